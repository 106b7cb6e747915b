//! Spoof checks, as frames show them: whether a frame from an address that is nobody's gets out of a VF.
//!
//! It is sent to another function of the same NIC, and only where a frame from the VF's own address has just arrived there:
//! what stays inside a NIC teaches no switch outside an address that does not exist. Another frame from the VF's own
//! address goes beside it, so that silence means something.

use std::{collections::BTreeSet, time::Duration};

use penstock_host::frames::{Endpoint, ProbeTimeouts, Reach};
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

/// Sends frames between functions under this kernel, all at once.
fn send_here(
    ways: &[(ProvenPath, bool)],
    known: &BTreeSet<Mac>,
    observer: &mut dyn Observer,
    timeout: Duration,
) -> Vec<Found> {
    if ways.is_empty() {
        return Vec::new();
    }
    let mut endpoints = Vec::new();
    let mut pairs = Vec::new();
    for (way, _) in ways {
        let forger = forger(&way.from.endpoint, known);
        let [own, forged, to] =
            [&way.from.endpoint, &forger, &way.to.endpoint].map(|end| position(&mut endpoints, end));
        pairs.extend([(own, to), (forged, to)]);
    }
    let timeout = ProbeTimeouts { arrival: timeout.min(ISOLATION_WATCH), silence: Duration::ZERO };
    match observer.reach(&endpoints, &pairs, &[], timeout) {
        Ok((reached, _)) => {
            let both = |both: &[Reach]| match both {
                [own, forged] => Ok((own.clone(), forged.clone())),
                _ => Err("nothing was told of it".to_owned()),
            };
            reached.chunks(2).map(both).collect()
        }
        Err(why) => vec![Err(why); ways.len()],
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
    let mut probe_ends = Vec::new();
    let mut probe_paths = Vec::new();
    for (way, on) in ways {
        let forger = ProbeEnd { endpoint: forger(&way.from.endpoint, known), remote: way.from.remote };
        let [own, forged, to] = [&way.from, &forger, &way.to].map(|end| position(&mut probe_ends, end));
        probe_paths.extend([
            ProbePath { from: own, to, awaited: true },
            ProbePath { from: forged, to, awaited: !on },
        ]);
    }
    let told = observer.reach_across(&probe_ends, &probe_paths, &[], &neighbours.remotes.places, timeout);
    let both = |both: &[Result<Reach, String>]| match both {
        [own, forged] => Ok((own.clone()?, forged.clone()?)),
        _ => Err("nothing was told of it".to_owned()),
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
