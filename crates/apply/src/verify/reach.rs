//! Reachability: whether frames pass where the model wants it, and only there.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use penstock_host::frames::{Endpoint, Reach};
use penstock_model::{
    FunctionName, GuestKind, GuestName, Model, NicName, Outcome,
    guest::Inside,
    inventory::SwitchMode,
    verdict::{ARRIVES, ISOLATED, Subject, Vantage},
};

use super::{
    Barrier, Expectation, Eyes, Network, nic, sample,
    scene::{Scene, pf_of},
    sheet::{Blind, Hidden, Sheet, on},
    stations::{Crossing, Post, Remote},
};

/// How long frames that must not arrive are waited for. They have the same way as those that arrive, which takes
/// milliseconds, also under software emulation.
const ISOLATION_WATCH: Duration = Duration::from_millis(1000);

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
    pub judged: usize,
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
    let tried: Vec<Path> = sample::pairs(&functions).into_iter().filter_map(judged).collect();
    let judged = if functions.len() <= sample::ALL_UP_TO {
        tried.len()
    } else {
        functions
            .iter()
            .flat_map(|from| functions.iter().map(move |to| network.expectation(from, to)))
            .filter(|expectation| *expectation != Expectation::NotJudged)
            .count()
    };
    Paths { tried, judged }
}

/// Sends frames along the paths and judges what became of them, and of loopback where the driver does not report it.
pub fn judge(scene: &Scene<'_>, paths: &Paths, eyes: &mut dyn Eyes, patience: Duration, sheet: &mut Sheet) {
    let outcomes = send(scene, paths, eyes, patience);
    for name in scene.model.nics.keys() {
        loopback(scene, name, paths, &outcomes, sheet);
    }
    for (path, outcome) in paths.tried.iter().zip(&outcomes) {
        judge_path(scene, path, outcome, sheet);
    }
    if paths.judged > paths.tried.len() {
        let nothing = BTreeSet::new();
        let mut page = sheet.page(Subject::Machine, Vantage::Host, &nothing);
        let seen = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let unseen = paths
            .tried
            .iter()
            .zip(&outcomes)
            .filter(|(path, outcome)| outcome.is_err() && hidden(scene, path) == Hidden::Nothing);
        let wanted = format!(
            "a sample of {} of the {} paths: neighbours, PFs, and others drawn",
            paths.tried.len(),
            paths.judged
        );
        let outcome = if unseen.count() == 0 { Outcome::Pass } else { Outcome::Unknown };
        page.put("reach", wanted, format!("{seen} of {} paths were tried", paths.judged), outcome);
    }
}

/// What became of each path; `Err` when it could not be tried.
fn send(
    scene: &Scene<'_>,
    paths: &Paths,
    eyes: &mut dyn Eyes,
    patience: Duration,
) -> Vec<Result<Reach, String>> {
    let names: BTreeSet<&FunctionName> = paths.tried.iter().flat_map(|path| [&path.from, &path.to]).collect();
    let mut remotes = Remotes::default();
    let posts: BTreeMap<&FunctionName, Result<Post, String>> =
        names.into_iter().map(|function| (function, post(scene, function, &mut remotes))).collect();
    let mut outcomes: Vec<Result<Reach, String>> =
        paths.tried.iter().map(|_| Err("not tried".to_owned())).collect();
    let (mut here, mut across) = (Vec::new(), Vec::new());
    for (at, path) in paths.tried.iter().enumerate() {
        match (&posts[&path.from], &posts[&path.to]) {
            (Err(why), _) | (_, Err(why)) => outcomes[at] = Err(why.clone()),
            (Ok(from), Ok(to)) if from.remote.is_none() && to.remote.is_none() => here.push((at, from, to)),
            (Ok(from), Ok(to)) => across.push((at, from, to)),
        }
    }
    // Apart, so that those that must not arrive do not keep the others waiting.
    for arriving in [true, false] {
        let awaited = |at: usize| paths.tried[at].expectation == Expectation::Arrives;
        let chosen: Vec<_> = here.iter().filter(|(at, ..)| awaited(*at) == arriving).collect();
        if chosen.is_empty() {
            continue;
        }
        let mut endpoints: Vec<Endpoint> = Vec::new();
        let pairs: Vec<(usize, usize)> = chosen
            .iter()
            .map(|(_, from, to)| {
                let from = position(&mut endpoints, &from.endpoint);
                (from, position(&mut endpoints, &to.endpoint))
            })
            .collect();
        let patience = if arriving { patience } else { patience.min(ISOLATION_WATCH) };
        match eyes.reach(&endpoints, &pairs, patience) {
            Ok(reached) => chosen.iter().zip(reached).for_each(|((at, ..), reach)| outcomes[*at] = Ok(reach)),
            Err(why) => chosen.iter().for_each(|(at, ..)| outcomes[*at] = Err(why.clone())),
        }
    }
    if !across.is_empty() {
        let mut standing: Vec<Post> = Vec::new();
        let crossings: Vec<Crossing> = across
            .iter()
            .map(|(at, from, to)| Crossing {
                from: position(&mut standing, from),
                to: position(&mut standing, to),
                awaited: paths.tried[*at].expectation == Expectation::Arrives,
            })
            .collect();
        let reached = eyes.reach_across(&standing, &crossings, &remotes.places, patience);
        across.iter().zip(reached).for_each(|((at, ..), outcome)| outcomes[*at] = outcome);
    }
    outcomes
}

/// The position of `one` in `all`, where it is put unless it is there.
fn position<T: Clone + PartialEq>(all: &mut Vec<T>, one: &T) -> usize {
    all.iter().position(|other| other == one).unwrap_or_else(|| {
        all.push(one.clone());
        all.len() - 1
    })
}

/// The places under other kernels that frames are sent from.
#[derive(Default)]
struct Remotes<'s> {
    guests: Vec<GuestName>,
    places: Vec<Remote<'s>>,
}

/// Where a function's frames go in and come out. An interface that is down proves nothing by its silence.
fn post<'s>(
    scene: &'s Scene<'_>,
    function: &FunctionName,
    remotes: &mut Remotes<'s>,
) -> Result<Post, String> {
    let home = scene.home(function).map_err(|dark| format!("{function}: {}", dark.why()))?;
    let owner = scene.model.owner(function).map(|(guest, _)| guest);
    let (namespace, remote) = match (&home.namespace, &home.program, owner) {
        (Ok(namespace), ..) => (*namespace, None),
        (Err(why), Some(program), Some(guest)) => {
            let place = scene.place(guest).ok_or_else(|| format!("{function}: {why}"))?;
            let at = remotes.guests.iter().position(|known| known == guest).unwrap_or_else(|| {
                remotes.guests.push(guest.clone());
                remotes.places.push(Remote { place, program, delay: home.took });
                remotes.places.len() - 1
            });
            (None, Some(at))
        }
        (Err(why), None, Some(guest)) if scene.model.guests[guest].kind == GuestKind::Vm => {
            let why = match scene.model.guests[guest].vm.inside {
                Inside::Agent => "there is an agent inside, and no penstock to send frames",
                Inside::Console => "it is looked into by its console alone, which sends no frames",
                Inside::None => why,
            };
            return Err(format!("{function}: {why}"));
        }
        (Err(why), ..) => return Err(format!("{function}: {why}")),
    };
    let report = scene.interface(function).map_err(|blind| match blind {
        Blind::Absent(why) | Blind::Unknown(why) | Blind::Unsupported(why) => format!("{function}: {why}"),
    })?;
    if !report.interface.up {
        return Err(format!("{function}: its interface {} is down", report.interface.name));
    }
    let endpoint = Endpoint {
        label: function.to_string(),
        namespace,
        interface: report.index,
        mac: report.interface.mac,
    };
    Ok(Post { endpoint, remote })
}

/// How the ends of a path are hidden.
fn hidden(scene: &Scene<'_>, path: &Path) -> Hidden {
    let of = |function: &FunctionName| match scene.model.owner(function) {
        Some((guest, _)) => Hidden::inside(&scene.model.guests[guest]),
        None => Hidden::Nothing,
    };
    [of(&path.from), of(&path.to)].into_iter().find(|hidden| hidden.hides("reach")).unwrap_or_default()
}

fn judge_path(scene: &Scene<'_>, path: &Path, outcome: &Result<Reach, String>, sheet: &mut Sheet) {
    let subject = Subject::Path { from: path.from.clone(), to: path.to.clone() };
    // The receiver is the witness.
    let vantage = match scene.model.owner(&path.to) {
        Some((guest, _)) => Vantage::Guest(guest.clone()),
        None => Vantage::Host,
    };
    let mut best_effort = BTreeSet::new();
    if let Expectation::Isolated(barrier) = path.expectation
        && may_lack(scene, path, barrier)
    {
        best_effort.insert("reach".to_owned());
    }
    let mut page = sheet.page(subject, vantage, &best_effort).hiding(hidden(scene, path));
    let arrives = path.expectation == Expectation::Arrives;
    let wanted = if arrives { ARRIVES } else { ISOLATED };
    match (path.expectation, outcome) {
        (_, Err(why)) => page.put("reach", wanted, why, Outcome::Unknown),
        (Expectation::Arrives, Ok(Reach::Arrived)) => page.put("reach", wanted, ARRIVES, Outcome::Pass),
        (Expectation::Arrives, Ok(Reach::NotArrived)) => {
            page.put("reach", wanted, "nothing arrived", Outcome::Fail);
        }
        (Expectation::Isolated(_), Ok(Reach::NotArrived)) => {
            page.put("reach", wanted, ISOLATED, Outcome::Pass)
        }
        // A link that is shown as down takes nothing: that is what was asked for.
        (Expectation::Isolated(Barrier::LinkDisabled), Ok(Reach::SendFailed(_))) => {
            page.put("reach", wanted, ISOLATED, Outcome::Pass);
        }
        (_, Ok(Reach::SendFailed(why))) => {
            page.put("reach", wanted, format!("nothing could be sent: {why}"), Outcome::Unknown);
        }
        (Expectation::Isolated(barrier), Ok(Reach::Arrived)) => match lacking(scene, path, barrier) {
            Some(why) => page.put("reach", wanted, format!("{ARRIVES}: {why}"), Outcome::Unsupported),
            None => page.put("reach", wanted, ARRIVES, Outcome::Fail),
        },
        (Expectation::NotJudged, _) => (),
    }
}

/// The functions of a path that make its barrier.
fn makers<'p>(scene: &Scene<'_>, path: &'p Path, barrier: Barrier) -> Vec<&'p FunctionName> {
    let makes = |function: &FunctionName| {
        let settings = scene.model.owner(function).map(|(_, owned)| &owned.settings);
        match barrier {
            Barrier::Vlan => settings.is_some_and(|settings| settings.vlan.is_some_and(|id| id.get() != 0)),
            Barrier::LinkDisabled => settings
                .is_some_and(|settings| settings.link_state == Some(penstock_model::LinkState::Disable)),
            Barrier::LoopbackOff | Barrier::NotCabled => true,
        }
    };
    [&path.from, &path.to].into_iter().filter(|function| makes(function)).collect()
}

/// Whether the model says of every maker of the barrier that its attribute may be unsupported.
fn may_lack(scene: &Scene<'_>, path: &Path, barrier: Barrier) -> bool {
    let makers = makers(scene, path, barrier);
    !makers.is_empty()
        && makers.iter().all(|function| {
            let own = scene.model.owner(function).map(|(_, owned)| &owned.best_effort);
            let of_nic = &scene.model.nics[&function.nic].best_effort;
            let words = own.filter(|_| barrier != Barrier::LoopbackOff).unwrap_or(of_nic);
            words.contains(barrier.attribute())
        })
}

/// Why the barrier could not be made, when the driver is known to lack it.
fn lacking(scene: &Scene<'_>, path: &Path, barrier: Barrier) -> Option<String> {
    let driver = |nic: &NicName| scene.pf(nic).and_then(|pf| pf.driver.clone()).unwrap_or_default();
    match barrier {
        Barrier::NotCabled => None,
        Barrier::LoopbackOff => {
            let nic = &path.from.nic;
            reported_loopback(scene, nic)
                .is_none()
                .then(|| format!("the driver ({}) has no loopback setting", driver(nic)))
        }
        Barrier::Vlan | Barrier::LinkDisabled => {
            makers(scene, path, barrier).into_iter().find_map(|function| {
                let state = nic::state(scene, &function.nic, function.vf?);
                match state {
                    Err(Blind::Unsupported(_)) => {
                        Some(format!("{} functions have no embedded switch", driver(&function.nic)))
                    }
                    Ok(state)
                        if barrier == Barrier::LinkDisabled
                            && state.link_state != Some(penstock_model::LinkState::Disable)
                            && may_lack(scene, path, barrier) =>
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

/// What the driver says of loopback: on for VEB, off for VEPA.
fn reported_loopback(scene: &Scene<'_>, nic: &NicName) -> Option<bool> {
    match scene.sight(nic).ok()?.switch_mode {
        SwitchMode::Veb => Some(true),
        SwitchMode::Vepa => Some(false),
        SwitchMode::Switchdev | SwitchMode::Unreported => None,
    }
}

/// Loopback as the driver reports it; where it does not, as the frames inside the NIC prove it.
fn loopback(
    scene: &Scene<'_>,
    name: &NicName,
    paths: &Paths,
    outcomes: &[Result<Reach, String>],
    sheet: &mut Sheet,
) {
    let nic = &scene.model.nics[name];
    let Some(wanted) = nic.loopback else { return };
    let mut page = sheet.page(Subject::Nic(name.clone()), Vantage::Host, &nic.best_effort);
    if let Some(reported) = reported_loopback(scene, name) {
        return page.compare("loopback", on(wanted), Ok(on(reported)));
    }
    let inside: Vec<_> = paths
        .tried
        .iter()
        .zip(outcomes)
        .filter(|(path, _)| {
            let decided = matches!(
                path.expectation,
                Expectation::Arrives | Expectation::Isolated(Barrier::LoopbackOff)
            );
            path.from.nic == *name && path.to.nic == *name && decided
        })
        .collect();
    // Only where the model hides all of them is nobody to blame for not looking.
    let hidden = match inside.iter().all(|(path, _)| hidden(scene, path) != Hidden::Nothing) {
        true if !inside.is_empty() => Hidden::All,
        _ => Hidden::Nothing,
    };
    let mut page = page.hiding(hidden);
    let tried: Vec<bool> = inside
        .into_iter()
        .filter_map(|(_, outcome)| match outcome {
            Ok(Reach::Arrived) => Some(true),
            Ok(Reach::NotArrived) => Some(false),
            Ok(Reach::SendFailed(_)) | Err(_) => None,
        })
        .collect();
    let arrived = tried.iter().filter(|arrived| **arrived).count();
    let seen = match tried.len() {
        0 => "the driver reports no mode, and no path inside the NIC could be tried".to_owned(),
        many => {
            format!("the driver reports no mode; inside the NIC {arrived} of {many} paths tried pass frames")
        }
    };
    let outcome = match wanted {
        _ if tried.is_empty() => Outcome::Unknown,
        true if arrived == tried.len() => Outcome::Pass,
        true => Outcome::Fail,
        false if arrived == 0 => Outcome::Pass,
        false => Outcome::Unsupported,
    };
    page.put("loopback", on(wanted), seen, outcome);
}
