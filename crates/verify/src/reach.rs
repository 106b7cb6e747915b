//! Reachability: whether frames pass where the model wants it, and only there.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hash,
    time::Duration,
};

use indexmap::IndexSet;
use penstock_host::{
    Place,
    frames::{Endpoint, NeighbourProbe, ProbeResult, ProbeTimeouts, Reach},
};
use penstock_model::{
    FunctionName, FunctionOwners, Guest, GuestKind, GuestName, Model, NicName, Outcome,
    guest::Inside,
    inventory::SwitchMode,
    verdict::{ARRIVES, ISOLATED, Subject, Vantage},
};

use super::{
    Barrier, Expectation, Network, Observer, nic,
    observation::{Observation, pf_of},
    planned_probes::{self, PlannedProbe},
    probes::{ProbeEnd, ProbePath, Remote},
    sample,
    silence::{self, EndBefore},
    writer::{Hidden, Unobserved, VerdictSheet, on},
};

/// How long frames that must not arrive are waited for. They have the same way as those that arrive, which takes
/// milliseconds, also under software emulation.
pub const ISOLATION_WATCH: Duration = Duration::from_millis(1000);

/// How long a function is asked that answers nobody. A kernel answers within milliseconds; a machine under emulation may
/// have to wait for its turn.
const SILENCE: Duration = Duration::from_secs(3);

/// The functions that frames are sent between: PFs that carry something, and VFs that a guest owns.
pub fn functions(model: &Model) -> BTreeSet<FunctionName> {
    let pfs = model.nics.iter().filter(|(_, nic)| nic.vfs > 0).map(|(name, _)| pf_of(name));
    let owned = model.guests.values().flat_map(|guest| &guest.functions);
    pfs.chain(owned.map(|function| function.name.clone())).collect()
}

/// A path that the model says something of.
pub struct Path {
    pub from: FunctionName,
    pub to: FunctionName,
    pub expectation: Expectation,
}

/// The paths that are tried, of all that the model says something of.
pub struct Paths {
    pub tried: Vec<Path>,
}

impl Paths {
    /// The functions that frames are to arrive at, or to come from.
    pub fn reached(&self) -> BTreeSet<&FunctionName> {
        let arriving = self.tried.iter().filter(|path| path.expectation == Expectation::Arrives);
        arriving.flat_map(|path| [&path.from, &path.to]).collect()
    }

    /// The functions that something on the way is to keep frames from: only with a carrier do they tell, unless that is what keeps them.
    pub fn parted<'p>(&'p self, owners: &'p FunctionOwners<'_>) -> impl Iterator<Item = &'p FunctionName> {
        self.tried.iter().flat_map(move |path| {
            let ends = [&path.from, &path.to].into_iter();
            ends.filter(move |end| match path.expectation {
                Expectation::Isolated(barrier) => !is_proof(owners, end, barrier),
                Expectation::Arrives | Expectation::NotJudged => false,
            })
        })
    }
}

/// Chooses the paths to try.
pub fn paths(network: &Network, functions: &BTreeSet<FunctionName>) -> Paths {
    let functions: Vec<&FunctionName> = functions.iter().collect();
    let judged = |(from, to): (usize, usize)| {
        let expectation = network.expectation(functions[from], functions[to]);
        (expectation != Expectation::NotJudged).then(|| Path {
            from: functions[from].clone(),
            to: functions[to].clone(),
            expectation,
        })
    };
    Paths { tried: sample::pairs(&functions).into_iter().filter_map(judged).collect() }
}

/// What became of a path.
#[derive(Clone)]
pub struct Trial {
    /// `Err` when it could not be tried, or nothing can be said of it.
    pub reach: Result<Reach, String>,
    /// How its ends are hidden, where that is why nothing can be said.
    pub hidden: Hidden,
    /// Who saw it, where it was not the receiver that counted frames.
    pub witness: Option<Witness>,
}

/// An end that asked the other one, and whether that answered.
#[derive(Clone)]
pub struct Witness {
    observer: FunctionName,
    about: FunctionName,
    way: &'static str,
}

/// Sends frames along the paths and judges what became of them, and of loopback where the driver does not report it. Tells
/// what became of each.
pub fn judge(
    observation: &Observation<'_>,
    paths: &Paths,
    observer: &mut dyn Observer,
    timeout: Duration,
    sheet: &mut VerdictSheet,
) -> Vec<Trial> {
    let mut trials = send(observation, paths, observer, timeout);
    doubt_silence(observation, paths, &mut trials, observer);
    for name in observation.model.nics.keys() {
        loopback(observation, name, paths, &trials, sheet);
    }
    for (path, trial) in paths.tried.iter().zip(&trials) {
        judge_path(observation, path, trial, sheet);
    }
    let judged = Network::of(observation.model).judged(&functions(observation.model));
    if judged > paths.tried.len() {
        let nothing = BTreeSet::new();
        let page = sheet.page(Subject::Machine, Vantage::Host, &nothing);
        let seen = trials.iter().filter(|trial| trial.reach.is_ok()).count();
        let unseen = trials.iter().filter(|trial| trial.reach.is_err() && trial.hidden == Hidden::Nothing);
        let unseen = unseen.count();
        // Only where the model hides all of them is nobody to blame for not looking.
        let hidden = seen == 0 && unseen == 0 && !trials.is_empty();
        let mut page = page.hiding(if hidden { Hidden::All } else { Hidden::Nothing });
        let wanted = format!(
            "a sample of {} of the {} paths: neighbours, PFs, and others drawn",
            paths.tried.len(),
            judged
        );
        let outcome = if unseen == 0 && seen > 0 { Outcome::Pass } else { Outcome::Unknown };
        page.put("reach", wanted, format!("{seen} of {judged} paths were tried"), outcome);
    }
    trials
}

/// Takes nothing for proven where an end of a path could not send or receive all the time.
fn doubt_silence(
    observation: &Observation<'_>,
    paths: &Paths,
    trials: &mut [Trial],
    observer: &mut dyn Observer,
) {
    let all = trials.iter_mut().zip(&paths.tried);
    let silent = all.filter(|(trial, _)| trial.reach == Ok(Reach::NotArrived));
    let (silent, ends): (Vec<&mut Trial>, Vec<_>) = silent
        .map(|(trial, path)| {
            let before = |function| EndBefore::of(observation, function, path.expectation);
            (trial, (path.expectation, [before(&path.from), before(&path.to)]))
        })
        .unzip();
    for (trial, doubt) in silent.into_iter().zip(silence::doubts(observation, &ends, observer)) {
        if let Some(why) = doubt {
            (trial.reach, trial.hidden) = (Err(why), Hidden::Nothing);
        }
    }
}

/// What became of each path.
fn send(
    observation: &Observation<'_>,
    paths: &Paths,
    observer: &mut dyn Observer,
    timeout: Duration,
) -> Vec<Trial> {
    let names: BTreeSet<&FunctionName> = paths.tried.iter().flat_map(|path| [&path.from, &path.to]).collect();
    let mut remotes = Remotes::default();
    let probe_ends: BTreeMap<&FunctionName, Result<ProbeEnd, String>> = names
        .into_iter()
        .map(|function| (function, probe_end(observation, function, &mut remotes)))
        .collect();
    let planned_probes = planned_probes::choose(observation, paths, &probe_ends);
    let mut trials: Vec<Trial> = paths
        .tried
        .iter()
        .map(|path| Trial {
            reach: Err("not tried".to_owned()),
            hidden: hidden(observation, path),
            witness: None,
        })
        .collect();
    let (mut here, mut probe_results) = (Vec::new(), Vec::new());
    for (at, path) in paths.tried.iter().enumerate() {
        match (&probe_ends[&path.from], &probe_ends[&path.to]) {
            (Err(why), _) | (_, Err(why)) => trials[at].reach = Err(why.clone()),
            (Ok(from), Ok(to)) if from.remote.is_none() && to.remote.is_none() => here.push((at, from, to)),
            (Ok(from), Ok(to)) => probe_results.push((at, from, to)),
        }
    }
    let of_observer = |planned_probe: &PlannedProbe<'_>| {
        probe_ends[planned_probe.observer].as_ref().expect("it can send frames")
    };
    let (asked_here, asked_away): (Vec<&PlannedProbe<'_>>, Vec<_>) =
        planned_probes.iter().partition(|planned_probe| of_observer(planned_probe).remote.is_none());
    // Silence says something only beside another's answer in the same window.
    let beside = |chosen: &[&PlannedProbe<'_>]| -> Vec<&PlannedProbe<'_>> {
        let about: BTreeSet<&FunctionName> = chosen.iter().map(|planned_probe| planned_probe.about).collect();
        let answered =
            |planned_probe: &&&PlannedProbe<'_>| planned_probe.awaited && about.contains(planned_probe.about);
        asked_here.iter().filter(answered).copied().collect()
    };
    // Apart, so that those that must not arrive do not keep the others waiting.
    for arriving in [true, false] {
        let awaited = |at: usize| paths.tried[at].expectation == Expectation::Arrives;
        let chosen: Vec<_> = here.iter().filter(|(at, ..)| awaited(*at) == arriving).collect();
        let asked: Vec<&PlannedProbe<'_>> =
            asked_here.iter().filter(|planned_probe| planned_probe.awaited == arriving).copied().collect();
        if chosen.is_empty() && asked.is_empty() {
            continue;
        }
        let mut endpoints: IndexSet<Endpoint> = IndexSet::new();
        let pairs: Vec<(usize, usize)> = chosen
            .iter()
            .map(|(_, from, to)| {
                let from = position(&mut endpoints, &from.endpoint);
                (from, position(&mut endpoints, &to.endpoint))
            })
            .collect();
        let witnesses = if arriving { Vec::new() } else { beside(&asked) };
        let planned_probes: Vec<NeighbourProbe> = asked
            .iter()
            .chain(&witnesses)
            .map(|planned_probe| {
                planned_probe.question(position(&mut endpoints, &of_observer(planned_probe).endpoint))
            })
            .collect();
        let endpoints: Vec<Endpoint> = endpoints.into_iter().collect();
        let timeout = ProbeTimeouts {
            arrival: if arriving { timeout } else { timeout.min(ISOLATION_WATCH) },
            silence: timeout.min(SILENCE),
        };
        match observer.reach(&endpoints, &pairs, &planned_probes, timeout) {
            Ok((reached, answers)) => {
                chosen.iter().zip(reached).for_each(|((at, ..), reach)| trials[*at].reach = Ok(reach));
                asked
                    .iter()
                    .zip(answers)
                    .for_each(|(planned_probe, asked)| settle(planned_probe, Ok(asked), &mut trials));
            }
            Err(why) => {
                chosen.iter().for_each(|(at, ..)| trials[*at].reach = Err(why.clone()));
                asked.iter().for_each(|planned_probe| settle(planned_probe, Err(why.clone()), &mut trials));
            }
        }
    }
    if !probe_results.is_empty() || !asked_away.is_empty() {
        let mut standing: IndexSet<ProbeEnd> = IndexSet::new();
        let probe_paths: Vec<ProbePath> = probe_results
            .iter()
            .map(|(at, from, to)| ProbePath {
                from: position(&mut standing, from),
                to: position(&mut standing, to),
                awaited: paths.tried[*at].expectation == Expectation::Arrives,
            })
            .collect();
        let mut planned_probes: Vec<NeighbourProbe> = asked_away
            .iter()
            .map(|planned_probe| planned_probe.question(position(&mut standing, of_observer(planned_probe))))
            .collect();
        planned_probes.extend(beside(&asked_away).iter().map(|planned_probe| NeighbourProbe {
            // Judged above; here they only bear witness.
            awaited: false,
            ..planned_probe.question(position(&mut standing, of_observer(planned_probe)))
        }));
        let standing: Vec<ProbeEnd> = standing.into_iter().collect();
        let told = observer.reach_across(&standing, &probe_paths, &planned_probes, &remotes.places, timeout);
        probe_results.iter().zip(told.frames).for_each(|((at, ..), reach)| trials[*at].reach = reach);
        asked_away
            .iter()
            .zip(told.answers)
            .for_each(|(planned_probe, asked)| settle(planned_probe, asked, &mut trials));
    }
    trials
}

/// What the answer to a question, or none, says of the paths there and back.
fn settle(planned_probe: &PlannedProbe<'_>, asked: Result<ProbeResult, String>, trials: &mut [Trial]) {
    let (about, way) = (planned_probe.about, planned_probe.way());
    let nobody = matches!(asked, Ok(ProbeResult::AnswersNobody));
    let reach = asked.and_then(|asked| match asked {
        ProbeResult::Answered => Ok(Reach::Arrived),
        ProbeResult::NotAnswered => Ok(Reach::NotArrived),
        ProbeResult::SendFailed(why) => Ok(Reach::SendFailed(why)),
        ProbeResult::AnswersNobody => {
            Err(format!("{about} answers nobody's {way} for {}", planned_probe.address))
        }
    });
    for at in &planned_probe.paths {
        let trial = &mut trials[*at];
        trial.reach = reach.clone();
        // A guest may keep silent; that we could not ask is no doing of its.
        if !nobody {
            trial.hidden = Hidden::Nothing;
        }
        trial.witness = Some(Witness { observer: planned_probe.observer.clone(), about: about.clone(), way });
    }
}

/// The position of `one` in `all`, where it is put unless it is there.
pub fn position<T: Clone + Eq + Hash>(all: &mut IndexSet<T>, one: &T) -> usize {
    all.get_index_of(one).unwrap_or_else(|| all.insert_full(one.clone()).0)
}

/// The places under other kernels that frames are sent from.
#[derive(Default)]
pub struct Remotes<'s> {
    guests: Vec<GuestName>,
    pub places: Vec<Remote<'s>>,
}

impl<'s> Remotes<'s> {
    /// The position of a guest's inside, where it is put unless it is there.
    pub fn add(
        &mut self,
        guest: &GuestName,
        place: &'s dyn Place,
        program: &'s str,
        delay: Duration,
    ) -> usize {
        self.guests.iter().position(|known| known == guest).unwrap_or_else(|| {
            self.guests.push(guest.clone());
            self.places.push(Remote { place, program, delay });
            self.places.len() - 1
        })
    }
}

/// Where a function's frames go in and come out; why that is not known, else, or that it is not there.
///
/// # Errors
///
/// In words, as [`seen_end`].
pub fn probe_end<'s>(
    observation: &'s Observation<'_>,
    function: &FunctionName,
    remotes: &mut Remotes<'s>,
) -> Result<ProbeEnd, String> {
    seen_end(observation, function, remotes).map_err(|blind| match blind {
        Unobserved::Absent(why) | Unobserved::Unknown(why) | Unobserved::Unsupported(why) => why,
    })
}

/// As [`probe_end`]. [`Unobserved::Absent`]: it was looked at, and is not there or down. An interface that is down proves nothing by its
/// silence.
///
/// # Errors
///
/// [`Unobserved::Unknown`] when where it is to live cannot be looked into, or nothing can be started there.
pub fn seen_end<'s>(
    observation: &'s Observation<'_>,
    function: &FunctionName,
    remotes: &mut Remotes<'s>,
) -> Result<ProbeEnd, Unobserved> {
    let unknown = |why: &str| Unobserved::Unknown(format!("{function}: {why}"));
    let home = observation.home(function).map_err(|dark| unknown(&dark.why()))?;
    let owner = observation.owners.of(function).map(|(guest, _)| guest);
    let (namespace, remote) = match (&home.namespace, &home.program, owner) {
        (Ok(namespace), ..) => (*namespace, None),
        (Err(why), Some(program), Some(guest)) => {
            let place = observation.place(guest).ok_or_else(|| unknown(why))?;
            (None, Some(remotes.add(guest, place, program, home.took)))
        }
        (Err(why), None, Some(guest)) if observation.model.guests[guest].kind == GuestKind::Vm => {
            return Err(unknown(without_program(&observation.model.guests[guest], why)));
        }
        (Err(why), ..) => return Err(unknown(why)),
    };
    let report = observation.interface(function).map_err(|blind| match blind {
        Unobserved::Absent(why) => Unobserved::Absent(format!("{function}: {why}")),
        Unobserved::Unknown(why) | Unobserved::Unsupported(why) => unknown(&why),
    })?;
    if !report.interface.up {
        let why = format!("{function}: its interface {} is down", report.interface.name);
        return Err(Unobserved::Absent(why));
    }
    let endpoint = Endpoint {
        label: function.to_string(),
        namespace,
        interface: report.index,
        mac: report.interface.mac,
    };
    Ok(ProbeEnd { endpoint, remote })
}

/// Why no frames are sent from inside a VM that has no Penstock in it; `why` where nobody is to look inside.
pub fn without_program<'w>(guest: &Guest, why: &'w str) -> &'w str {
    match guest.vm.inside {
        Inside::Agent => "there is an agent inside, and no penstock to send frames",
        Inside::Console => "it is looked into by its console alone, which sends no frames",
        Inside::None => why,
    }
}

/// How the ends of a path are hidden.
fn hidden(observation: &Observation<'_>, path: &Path) -> Hidden {
    let of = |function: &FunctionName| match observation.owners.of(function) {
        Some((guest, _)) => Hidden::inside(&observation.model.guests[guest]),
        None => Hidden::Nothing,
    };
    [of(&path.from), of(&path.to)].into_iter().find(|hidden| hidden.hides("reach")).unwrap_or_default()
}

fn judge_path(observation: &Observation<'_>, path: &Path, trial: &Trial, sheet: &mut VerdictSheet) {
    let subject = Subject::Path { from: path.from.clone().into(), to: path.to.clone().into() };
    // The receiver is the witness, or the one that asked.
    let seer = trial.witness.as_ref().map_or(&path.to, |witness| &witness.observer);
    let sender = trial.witness.as_ref().map_or(&path.from, |witness| &witness.observer);
    let vantage = observation.vantage_of(seer);
    let mut best_effort = BTreeSet::new();
    if let Expectation::Isolated(barrier) = path.expectation
        && may_lack(observation, path, barrier)
    {
        best_effort.insert("reach".to_owned());
    }
    let mut page = sheet.page(subject, vantage, &best_effort).hiding(trial.hidden);
    let wanted = if path.expectation == Expectation::Arrives { ARRIVES } else { ISOLATED };
    let (arrived, silent, isolated) = match &trial.witness {
        None => (ARRIVES.to_owned(), "nothing arrived".to_owned(), ISOLATED.to_owned()),
        Some(Witness { observer, about, way }) => {
            let silent = format!("{about} answers others' {way}, not {observer}'s");
            (
                format!("{ARRIVES}: {about} answers {way}"),
                format!("nothing arrived there or back: {silent}"),
                format!("{ISOLATED}: {silent}"),
            )
        }
    };
    match (path.expectation, &trial.reach) {
        (_, Err(why)) => page.put("reach", wanted, why, Outcome::Unknown),
        (Expectation::Arrives, Ok(Reach::Arrived)) => page.put("reach", wanted, arrived, Outcome::Pass),
        (Expectation::Arrives, Ok(Reach::NotArrived)) => page.put("reach", wanted, silent, Outcome::Fail),
        (Expectation::Isolated(_), Ok(Reach::NotArrived)) => {
            page.put("reach", wanted, isolated, Outcome::Pass)
        }
        // A link that is shown as down takes nothing: that is what was asked for.
        (Expectation::Isolated(Barrier::LinkDisabled), Ok(reach))
            if reach.is_down() && is_disabled(&observation.owners, sender) =>
        {
            page.put("reach", wanted, ISOLATED, Outcome::Pass);
        }
        (_, Ok(Reach::SendFailed(why))) => {
            page.put("reach", wanted, format!("nothing could be sent: {why}"), Outcome::Unknown);
        }
        (Expectation::Isolated(barrier), Ok(Reach::Arrived)) => match lacking(observation, path, barrier) {
            Some(why) => page.put("reach", wanted, format!("{ARRIVES}: {why}"), Outcome::Unsupported),
            None => page.put("reach", wanted, arrived, Outcome::Fail),
        },
        (Expectation::NotJudged, _) => (),
    }
}

/// Whether an end without a carrier is what makes the barrier: its own link is to be down, or no cable leads to the other end.
pub fn is_proof(owners: &FunctionOwners<'_>, end: &FunctionName, barrier: Barrier) -> bool {
    match barrier {
        Barrier::NotCabled => true,
        Barrier::LinkDisabled => is_disabled(owners, end),
        Barrier::Vlan | Barrier::LoopbackOff => false,
    }
}

/// Whether the model has a function shown a link that is down.
fn is_disabled(owners: &FunctionOwners<'_>, function: &FunctionName) -> bool {
    let settings = owners.of(function).map(|(_, owned)| &owned.settings);
    settings.is_some_and(|settings| settings.link_state == Some(penstock_model::LinkState::Disable))
}

/// The functions of a path that make its barrier.
fn makers<'p>(observation: &Observation<'_>, path: &'p Path, barrier: Barrier) -> Vec<&'p FunctionName> {
    let makes = |function: &FunctionName| {
        let settings = observation.owners.of(function).map(|(_, owned)| &owned.settings);
        match barrier {
            Barrier::Vlan => settings.is_some_and(|settings| settings.vlan.is_some_and(|id| id.get() != 0)),
            Barrier::LinkDisabled => is_disabled(&observation.owners, function),
            Barrier::LoopbackOff | Barrier::NotCabled => true,
        }
    };
    [&path.from, &path.to].into_iter().filter(|function| makes(function)).collect()
}

/// Whether the model says of every maker of the barrier that its attribute may be unsupported.
fn may_lack(observation: &Observation<'_>, path: &Path, barrier: Barrier) -> bool {
    let makers = makers(observation, path, barrier);
    !makers.is_empty()
        && makers.iter().all(|function| {
            let own = observation.owners.of(function).map(|(_, owned)| &owned.best_effort);
            let of_nic = &observation.model.nics[&function.nic].best_effort;
            let words = own.filter(|_| barrier != Barrier::LoopbackOff).unwrap_or(of_nic);
            words.contains(barrier.attribute())
        })
}

/// Why the barrier could not be made, when the driver is known to lack it.
fn lacking(observation: &Observation<'_>, path: &Path, barrier: Barrier) -> Option<String> {
    let driver = |nic: &NicName| observation.pf(nic).and_then(|pf| pf.driver.clone()).unwrap_or_default();
    match barrier {
        Barrier::NotCabled => None,
        Barrier::LoopbackOff => {
            let nic = &path.from.nic;
            // What could not be read is no setting that is not there.
            (reported_loopback(observation, nic) == Ok(None))
                .then(|| format!("the driver ({}) has no loopback setting", driver(nic)))
        }
        Barrier::Vlan | Barrier::LinkDisabled => {
            makers(observation, path, barrier).into_iter().find_map(|function| {
                let state = nic::state(observation, &function.nic, function.vf?);
                match state {
                    Err(Unobserved::Unsupported(_)) => {
                        Some(format!("{} functions have no embedded switch", driver(&function.nic)))
                    }
                    Ok(state)
                        if barrier == Barrier::LinkDisabled
                            && state.link_state != Some(penstock_model::LinkState::Disable)
                            && may_lack(observation, path, barrier) =>
                    {
                        Some(format!(
                            "the driver ({}) does not report the link as down",
                            driver(&function.nic)
                        ))
                    }
                    _ => None,
                }
            })
        }
    }
}

/// What the driver says of loopback: on for VEB, off for VEPA; `None` for one that has no such setting. Why it could not be
/// asked, else, which says nothing of what it has.
fn reported_loopback(observation: &Observation<'_>, nic: &NicName) -> Result<Option<bool>, String> {
    Ok(match observation.sight(nic)?.switch_mode.clone()? {
        SwitchMode::Veb => Some(true),
        SwitchMode::Vepa => Some(false),
        SwitchMode::Switchdev | SwitchMode::Unreported => None,
    })
}

/// Says that nobody knows what the driver says of loopback, where that could not be read and something is wanted.
pub fn unread(observation: &Observation<'_>, name: &NicName, sheet: &mut VerdictSheet) {
    let nic = &observation.model.nics[name];
    if let (Some(wanted), Err(why)) = (nic.loopback, reported_loopback(observation, name)) {
        let mut page = sheet.page(Subject::Nic(name.clone()), Vantage::Host, &nic.best_effort);
        page.blind("loopback", on(wanted), Unobserved::Unknown(why));
    }
}

/// Judges loopback where the driver reports it; says whether it does, or nothing is wanted.
pub fn reported(observation: &Observation<'_>, name: &NicName, sheet: &mut VerdictSheet) -> bool {
    let nic = &observation.model.nics[name];
    let Some(wanted) = nic.loopback else { return true };
    let Ok(Some(reported)) = reported_loopback(observation, name) else { return false };
    let mut page = sheet.page(Subject::Nic(name.clone()), Vantage::Host, &nic.best_effort);
    page.compare("loopback", on(wanted), Ok(on(reported)));
    true
}

/// Loopback as the driver reports it; where it does not, as the frames inside the NIC prove it.
fn loopback(
    observation: &Observation<'_>,
    name: &NicName,
    paths: &Paths,
    trials: &[Trial],
    sheet: &mut VerdictSheet,
) {
    let nic = &observation.model.nics[name];
    let Some(wanted) = nic.loopback.filter(|_| !reported(observation, name, sheet)) else { return };
    let page = sheet.page(Subject::Nic(name.clone()), Vantage::Host, &nic.best_effort);
    let inside: Vec<_> = paths
        .tried
        .iter()
        .zip(trials)
        .filter(|(path, _)| {
            let decided = matches!(
                path.expectation,
                Expectation::Arrives | Expectation::Isolated(Barrier::LoopbackOff)
            );
            path.from.nic == *name && path.to.nic == *name && decided
        })
        .collect();
    // Only where the model hides all of them is nobody to blame for not looking.
    let hidden = match inside.iter().all(|(_, trial)| trial.hidden != Hidden::Nothing) {
        true if !inside.is_empty() => Hidden::All,
        _ => Hidden::Nothing,
    };
    let mut page = page.hiding(hidden);
    let tried: Vec<bool> = inside
        .into_iter()
        .filter_map(|(_, trial)| match trial.reach {
            Ok(Reach::Arrived) => Some(true),
            Ok(Reach::NotArrived) => Some(false),
            Ok(Reach::SendFailed(_)) | Err(_) => None,
        })
        .collect();
    let arrived = tried.iter().filter(|arrived| **arrived).count();
    let reports = match reported_loopback(observation, name) {
        Ok(_) => "the driver reports no mode".to_owned(),
        Err(why) => format!("the driver's mode could not be read ({why})"),
    };
    let seen = match tried.len() {
        0 => format!("{reports}, and no path inside the NIC could be tried"),
        many => format!("{reports}; inside the NIC {arrived} of {many} paths tried pass frames"),
    };
    let outcome = match wanted {
        _ if tried.is_empty() => Outcome::Unknown,
        true if arrived == tried.len() => Outcome::Pass,
        true => Outcome::Fail,
        false if arrived == 0 => Outcome::Pass,
        false if reported_loopback(observation, name).is_err() => Outcome::Fail,
        false => Outcome::Unsupported,
    };
    page.put("loopback", on(wanted), seen, outcome);
}
