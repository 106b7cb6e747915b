//! Spoof checks, as frames show them: whether a frame from an address that is nobody's gets out of a VF.
//!
//! It is sent to another function of the same NIC, and only where a frame from the VF's own address has just arrived there:
//! what stays inside a NIC teaches no switch outside an address that does not exist. Another frame from the VF's own
//! address goes beside it, so that silence means something.

use std::{collections::BTreeSet, time::Duration};

use indexmap::IndexSet;
use penstock_host::{
    frames::{Endpoint, ProbeTimeouts, Reach},
    interrupt,
};
use penstock_model::{FunctionName, Mac, NicName, Outcome, inventory::SwitchMode};

use super::{
    Observer,
    neighbours::{self, Neighbours, ProvenPath},
    observation::Observation,
    probes::{ProbeEnd, ProbePath},
    reach::{ISOLATION_WATCH, position},
    writer::VerdictSheet,
};

/// Tries the spoof check of each VF that the model has one on or off for.
pub fn judge(
    observation: &Observation<'_>,
    neighbours: &mut Neighbours<'_, '_>,
    observer: &mut dyn Observer,
    timeout: Duration,
    sheet: &mut VerdictSheet,
) {
    let mut tried: Vec<(ProvenPath, bool)> = Vec::new();
    for (vf, on) in neighbours::owned(observation, "spoofchk", |wanted| wanted.spoofchk, |seen| seen.spoofchk)
    {
        match neighbours.way(&vf, |_, _| true) {
            Some(Ok(way)) => match leaves(observation, &vf.nic) {
                None => tried.push((way, on)),
                Some(why) => {
                    let mut page = neighbours::page(observation, &vf, &way.receiver, sheet);
                    page.put("spoofchk", wanted(on, &way.receiver), why, Outcome::Unknown);
                }
            },
            Some(Err(nowhere)) => {
                let wanted = wanted(on, &nowhere.receiver);
                nowhere.tell(observation, &vf, "spoofchk", wanted, sheet);
            }
            None => (),
        }
    }
    let known = known(observation);
    let (here, away): (Vec<_>, Vec<_>) =
        tried.into_iter().partition(|(way, _)| neighbours::are_here(&way.from, &way.to));
    let of_here = send_here(&here, &known, observer, timeout);
    let of_away = send_away(&away, &known, neighbours, observer, timeout);
    for ((way, on), found) in here.iter().zip(of_here).chain(away.iter().zip(of_away)) {
        tell(observation, way, *on, found, sheet);
    }
}

/// How long a window may be: an interrupt is heard between two of them.
const LONGEST_WATCH: Duration = Duration::from_secs(4);

/// Why a forged frame could get out of the NIC: frames between its functions go through the switch outside, or nobody knows.
fn leaves(observation: &Observation<'_>, nic: &NicName) -> Option<String> {
    match &observation.sight(nic).ok()?.switch_mode {
        Ok(SwitchMode::Vepa) => Some(
            "not tried: the NIC sends every frame out (VEPA), and a forged one is not to get there"
                .to_owned(),
        ),
        Ok(SwitchMode::Veb | SwitchMode::Switchdev | SwitchMode::Unreported) => None,
        Err(why) => Some(format!("not tried: whether the NIC sends every frame out is not known ({why})")),
    }
}

/// What became of the frame from the VF's own address, and of the one from another.
type Found = Result<(Reach, Reach), String>;

/// Sends frames between functions under this kernel, all at once; those that show nothing yet again, as long as `timeout` lasts.
fn send_here(
    ways: &[(ProvenPath, bool)],
    known: &BTreeSet<Mac>,
    observer: &mut dyn Observer,
    timeout: Duration,
) -> Vec<Found> {
    if ways.is_empty() {
        return Vec::new();
    }
    let mut endpoints = IndexSet::new();
    let mut pairs = Vec::new();
    for (way, _) in ways {
        let forger = forger(&way.from.endpoint, known);
        let [own, forged, to] =
            [&way.from.endpoint, &forger, &way.to.endpoint].map(|end| position(&mut endpoints, end));
        pairs.push([(own, to), (forged, to)]);
    }
    let endpoints: Vec<Endpoint> = endpoints.into_iter().collect();
    let wanted: Vec<bool> = ways.iter().map(|(_, on)| *on).collect();
    until_shown(&wanted, timeout, |open, window| {
        let pairs: Vec<(usize, usize)> = open.iter().flat_map(|at| pairs[*at]).collect();
        let timeout = ProbeTimeouts { arrival: window, silence: Duration::ZERO };
        observer.reach(&endpoints, &pairs, &[], timeout).map(|(reached, _)| reached)
    })
}

/// Has `send` send both frames of each way that its numbers name, and wait as long as it is told. Those of which nothing is shown are sent
/// again in windows that are each twice as long as the one before, for no longer than `timeout` in all: a machine that is busy may be late to
/// look for what has come. `wanted` tells of each way whether its check is to be on. The silence of a forged frame counts in the window alone
/// in which the other one arrives.
fn until_shown(
    wanted: &[bool],
    timeout: Duration,
    mut send: impl FnMut(&[usize], Duration) -> Result<Vec<Reach>, String>,
) -> Vec<Found> {
    let mut found: Vec<Found> = vec![Err("not tried".to_owned()); wanted.len()];
    let mut open: Vec<usize> = (0..wanted.len()).collect();
    let (mut left, mut window) = (timeout, ISOLATION_WATCH);
    loop {
        window = window.min(left);
        left -= window;
        // What is left is no window of its own when too little would come in it.
        if left < ISOLATION_WATCH {
            window += std::mem::take(&mut left);
        }
        let reached = match send(&open, window) {
            Ok(reached) => reached,
            Err(why) => {
                open.iter().for_each(|at| found[*at] = Err(why.clone()));
                return found;
            }
        };
        let mut both = reached.chunks(2);
        for at in &open {
            let fresh = match both.next() {
                Some([own, forged]) => Ok((own.clone(), forged.clone())),
                _ => Err("it was not reported".to_owned()),
            };
            // That the own frame arrived and the forged one did not says more than that neither did.
            let says_less = matches!(&fresh, Ok((own, _)) if *own != Reach::Arrived);
            if !(says_less && matches!(&found[*at], Ok((Reach::Arrived, _)))) {
                found[*at] = fresh;
            }
        }
        open.retain(|at| !is_shown(wanted[*at], &found[*at]));
        if open.is_empty() || left.is_zero() || interrupt::pending() {
            return found;
        }
        window = LONGEST_WATCH.min(window * 2);
    }
}

/// Whether no other window would show more. A frame that is to get through is waited for, as everywhere.
fn is_shown(on: bool, found: &Found) -> bool {
    match found {
        Ok((own, forged)) => *forged == Reach::Arrived || on && *own == Reach::Arrived,
        Err(_) => true,
    }
}

/// Sends frames to or from functions in VMs.
fn send_away(
    ways: &[(ProvenPath, bool)],
    known: &BTreeSet<Mac>,
    neighbours: &Neighbours<'_, '_>,
    observer: &mut dyn Observer,
    timeout: Duration,
) -> Vec<Found> {
    if ways.is_empty() {
        return Vec::new();
    }
    let mut probe_ends = IndexSet::new();
    let mut probe_paths = Vec::new();
    for (way, on) in ways {
        let forger = ProbeEnd { endpoint: forger(&way.from.endpoint, known), remote: way.from.remote };
        let [own, forged, to] = [&way.from, &forger, &way.to].map(|end| position(&mut probe_ends, end));
        probe_paths.extend([
            ProbePath { from: own, to, awaited: true },
            ProbePath { from: forged, to, awaited: !on },
        ]);
    }
    let probe_ends: Vec<ProbeEnd> = probe_ends.into_iter().collect();
    let told = observer.reach_across(&probe_ends, &probe_paths, &[], &neighbours.remotes.places, timeout);
    let both = |both: &[Result<Reach, String>]| match both {
        [own, forged] => Ok((own.clone()?, forged.clone()?)),
        _ => Err("it was not reported".to_owned()),
    };
    told.frames.chunks(2).map(both).collect()
}

/// What is to be seen.
fn wanted(on: bool, receiver: &FunctionName) -> String {
    match on {
        true => format!("on: a frame from a forged address does not arrive at {receiver}"),
        false => format!("off: a frame from another address arrives at {receiver}"),
    }
}

fn tell(observation: &Observation<'_>, way: &ProvenPath, on: bool, found: Found, sheet: &mut VerdictSheet) {
    use Reach::{Arrived, NotArrived, SendFailed};
    let mut page = neighbours::page(observation, &way.sender, &way.receiver, sheet);
    let imitated = page.emulated;
    let (seen, outcome) = match (on, found) {
        (_, Err(why)) => (why, Outcome::Unknown),
        (true, Ok((_, Arrived))) if imitated => (
            "accepted, and not enforced by this emulated NIC: the forged frame arrives".to_owned(),
            Outcome::Unsupported,
        ),
        (true, Ok((_, Arrived))) => ("the forged frame arrives".to_owned(), Outcome::Fail),
        (false, Ok((_, Arrived))) => ("it arrives".to_owned(), Outcome::Pass),
        (_, Ok((NotArrived, _))) => {
            ("not even a frame from its own address arrives beside it".to_owned(), Outcome::Unknown)
        }
        (_, Ok((SendFailed(why), _) | (_, SendFailed(why)))) => {
            (format!("nothing could be sent: {why}"), Outcome::Unknown)
        }
        (true, Ok((Arrived, NotArrived))) => {
            ("it does not, and one from its own address does".to_owned(), Outcome::Pass)
        }
        (false, Ok((Arrived, NotArrived))) => {
            ("it does not, and one from its own address does".to_owned(), Outcome::Fail)
        }
    };
    page.put("spoofchk", wanted(on, &way.receiver), seen, outcome);
}

/// The same end, from an address that is nobody's.
fn forger(own: &Endpoint, known: &BTreeSet<Mac>) -> Endpoint {
    let mac = nobodys(own.mac, known);
    Endpoint { label: format!("{}, forged", own.label), mac, ..own.clone() }
}

/// A locally administered address that is none of these: the same at each call, so that whoever learns it learns one.
fn nobodys(own: Mac, known: &BTreeSet<Mac>) -> Mac {
    // U/L bit set, I/G bit clear; Penstock derives no address with such a first octet from fewer than 8,192 VFs.
    const LOCAL: u8 = 0xfe;
    let [_, b, c, d, e, last] = own.octets();
    let candidate = |n: u8| Mac::new([LOCAL, !b, !c, !d, !e, last.wrapping_add(n)]);
    (0..=u8::MAX).map(candidate).find(|mac| !known.contains(mac)).unwrap_or_else(|| candidate(0))
}

/// Every address that was seen or is wanted.
fn known(observation: &Observation<'_>) -> BTreeSet<Mac> {
    let seen = observation.reports().flat_map(|report| [Some(report.interface.mac), report.permanent_mac]);
    let of_nics = observation.model.nics.keys().flat_map(|name| {
        let wanted = observation.model.vfs(name);
        let wanted = wanted.map(|(index, settings)| observation.wanted_mac(name, index, settings.mac));
        let kept = observation.sight(name).map(|sight| sight.vfs.clone()).unwrap_or_default();
        wanted.chain(kept.into_iter().map(|(_, state)| Some(state.mac)))
    });
    seen.chain(of_nics).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a machine shows that lets so many windows pass before it sees what has come; and what each window was told.
    fn shown(
        wanted: &[bool],
        timeout: u64,
        when: impl Fn(usize, usize) -> (Reach, Reach),
    ) -> (Vec<Found>, Vec<(Vec<usize>, u64)>) {
        let mut windows: Vec<(Vec<usize>, u64)> = Vec::new();
        let found = until_shown(wanted, Duration::from_millis(timeout), |open, window| {
            let nth = windows.len();
            windows.push((open.to_vec(), window.as_millis() as u64));
            Ok(open.iter().flat_map(|at| <[Reach; 2]>::from(when(*at, nth))).collect())
        });
        (found, windows)
    }

    #[test]
    fn a_frame_from_its_own_address_that_is_late_is_waited_for_and_silence_counts_beside_it_alone() {
        use Reach::{Arrived, NotArrived, SendFailed};
        let at_once = |_, _| (Arrived, NotArrived);
        let (found, windows) = shown(&[true], 10_000, at_once);
        assert_eq!((found, windows), (vec![Ok((Arrived, NotArrived))], vec![(vec![0], 1000)]));
        // The second way's own frame is late, and the third's forged one, whose check is to be off.
        let late = |way, nth| match (way, nth) {
            (0, _) | (1, 2) | (2, 0 | 1) => (Arrived, NotArrived),
            (2, _) => (Arrived, Arrived),
            _ => (NotArrived, NotArrived),
        };
        let (found, windows) = shown(&[true, true, false], 10_000, late);
        assert_eq!(found, [Ok((Arrived, NotArrived)), Ok((Arrived, NotArrived)), Ok((Arrived, Arrived))]);
        assert_eq!(windows, [(vec![0, 1, 2], 1000), (vec![1, 2], 2000), (vec![1, 2], 4000)]);
        // No longer than it may take, whatever cannot be sent; and the forged frame alone is enough.
        let never = |_, _| (SendFailed("down".to_owned()), NotArrived);
        let (found, windows) = shown(&[true], 10_000, never);
        assert_eq!(found, [Ok(never(0, 0))]);
        assert_eq!(windows.iter().map(|(_, window)| *window).collect::<Vec<_>>(), [1000, 2000, 4000, 3000]);
        assert_eq!(shown(&[true], 300, never).1, [(vec![0], 300)]);
        assert_eq!(shown(&[true], 0, never).1.len(), 1);
        assert_eq!(shown(&[true], 10_000, |_, _| (NotArrived, Arrived)).1.len(), 1);
    }

    #[test]
    fn what_cannot_be_tried_is_told_of_all_that_is_open() {
        let mut windows = 0;
        let found = until_shown(&[true, true], Duration::from_secs(10), |open, _| {
            windows += 1;
            let first = [Reach::Arrived, Reach::NotArrived, Reach::NotArrived, Reach::NotArrived];
            if open.len() == 2 { Ok(first.to_vec()) } else { Err("gone".to_owned()) }
        });
        assert_eq!(found, [Ok((Reach::Arrived, Reach::NotArrived)), Err("gone".to_owned())]);
        assert_eq!(windows, 2);
    }

    #[test]
    fn a_forged_address_is_local_unicast_and_nobodys() {
        let own: Mac = "0c:c4:7a:9a:61:ff".parse().unwrap();
        let first = nobodys(own, &BTreeSet::new());
        assert_eq!(first.to_string(), "fe:3b:85:65:9e:ff");
        assert!(first.is_local() && first.octets()[0] & 1 == 0);
        let second = nobodys(own, &[first].into());
        assert_ne!(first, second);
        assert_eq!(second, nobodys(own, &[first].into()));
    }
}
