//! Reachability: whether frames pass where the model wants it, and only there.

use std::{collections::BTreeSet, time::Duration};

use penstock_host::frames::{Endpoint, Reach};
use penstock_model::{
    FunctionName, Model, NicName, Outcome,
    inventory::SwitchMode,
    verdict::{ARRIVES, ISOLATED, Subject, Vantage},
};

use super::{
    Barrier, Expectation, Eyes, Network, nic, sample,
    scene::{Scene, pf_of},
    sheet::{Blind, Sheet, on},
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
        let wanted = format!(
            "a sample of {} of the {} paths: neighbours, PFs, and others drawn",
            paths.tried.len(),
            paths.judged
        );
        let outcome = if seen == paths.tried.len() { Outcome::Pass } else { Outcome::Unknown };
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
    let names: Vec<&FunctionName> = names.into_iter().collect();
    let mut endpoints = Vec::new();
    let positions: Vec<Result<usize, String>> = names
        .iter()
        .map(|function| {
            endpoint(scene, function).map(|endpoint| {
                endpoints.push(endpoint);
                endpoints.len() - 1
            })
        })
        .collect();
    let position = |function: &FunctionName| match names.binary_search(&function) {
        Ok(at) => positions[at].clone(),
        Err(_) => Err("not looked for".to_owned()),
    };
    let mut outcomes: Vec<Result<Reach, String>> =
        paths.tried.iter().map(|_| Err("not tried".to_owned())).collect();
    // Apart, so that those that must not arrive do not keep the others waiting.
    for arriving in [true, false] {
        let (mut pairs, mut whose) = (Vec::new(), Vec::new());
        for (at, path) in paths.tried.iter().enumerate() {
            if (path.expectation == Expectation::Arrives) != arriving {
                continue;
            }
            match position(&path.from).and_then(|from| Ok((from, position(&path.to)?))) {
                Ok(pair) => {
                    pairs.push(pair);
                    whose.push(at);
                }
                Err(why) => outcomes[at] = Err(why),
            }
        }
        if pairs.is_empty() {
            continue;
        }
        let patience = if arriving { patience } else { patience.min(ISOLATION_WATCH) };
        match eyes.reach(&endpoints, &pairs, patience) {
            Ok(reached) => whose.into_iter().zip(reached).for_each(|(at, reach)| outcomes[at] = Ok(reach)),
            Err(why) => whose.into_iter().for_each(|at| outcomes[at] = Err(why.clone())),
        }
    }
    outcomes
}

/// Where a function's frames go in and come out. An interface that is down proves nothing by its silence.
fn endpoint(scene: &Scene<'_>, function: &FunctionName) -> Result<Endpoint, String> {
    let home = scene.home(function).map_err(|dark| format!("{function}: {}", dark.why()))?;
    let namespace = home.namespace.clone().map_err(|why| format!("{function}: {why}"))?;
    let report = scene.interface(function).map_err(|blind| match blind {
        Blind::Absent(why) | Blind::Unknown(why) | Blind::Unsupported(why) => format!("{function}: {why}"),
    })?;
    if !report.interface.up {
        return Err(format!("{function}: its interface {} is down", report.interface.name));
    }
    Ok(Endpoint {
        label: function.to_string(),
        namespace,
        interface: report.index,
        mac: report.interface.mac,
    })
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
    let mut page = sheet.page(subject, vantage, &best_effort);
    let arrives = path.expectation == Expectation::Arrives;
    let wanted = if arrives { ARRIVES } else { ISOLATED };
    match (path.expectation, outcome) {
        (_, Err(why)) => page.put("reach", wanted, why, Outcome::Unknown),
        (Expectation::Arrives, Ok(Reach::Arrived { .. })) => {
            page.put("reach", wanted, ARRIVES, Outcome::Pass)
        }
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
        (Expectation::Isolated(barrier), Ok(Reach::Arrived { .. })) => match lacking(scene, path, barrier) {
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
    let inside = paths.tried.iter().zip(outcomes).filter(|(path, _)| {
        let decided =
            matches!(path.expectation, Expectation::Arrives | Expectation::Isolated(Barrier::LoopbackOff));
        path.from.nic == *name && path.to.nic == *name && decided
    });
    let tried: Vec<bool> = inside
        .filter_map(|(_, outcome)| match outcome {
            Ok(Reach::Arrived { .. }) => Some(true),
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
