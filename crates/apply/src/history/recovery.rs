//! From runs and what is there to the plan that takes them back.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use penstock_model::{Bdf, GuestName, Inventory, text::counted};
use penstock_plan::{
    Action, Fact, FileAction, FunctionAction, GuestAction, Observe, Plan, Step, StepId, stranger, undo,
};
use serde::{Deserialize, Serialize};

use super::{
    record::RunId,
    state::{Fate, RunState},
};

/// A run to take back.
#[derive(Clone, Copy, Debug)]
pub struct RunToUndo<'a> {
    /// The number of the run.
    pub id: RunId,
    /// What it was to do.
    pub plan: &'a Plan,
    /// What became of that.
    pub state: &'a RunState,
}

/// The way back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UndoPlan {
    /// The steps, newest first. They are carried out by [`Mode::Undo`](crate::Mode::Undo), which looks before it touches.
    pub plan: Plan,
    /// For each step of the plan the step that it takes back.
    pub origins: Vec<(RunId, StepId)>,
    /// The steps that are not taken back, in the order in which they were carried out.
    pub kept: Vec<Kept>,
}

/// A step that is not taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The run that did it.
    pub run: RunId,
    /// Its step there.
    pub step: StepId,
    /// What it did, in words.
    pub action: String,
    /// Why it stays.
    pub why: String,
}

/// Plans to take `runs` back, which are given oldest first, on the machine that `present` shows and `host` looks at. All that may
/// stand of them is taken back newest first; steps of which nobody knows are part of the plan, and are looked at when their turn comes.
///
/// What was done and somebody has changed since stays: files, numbers of VFs, and attributes of VFs that somebody else has by now.
pub fn way_back(runs: &[RunToUndo<'_>], present: &Inventory, host: &mut dyn Observe) -> UndoPlan {
    let mut all = Plan::default();
    let mut origins: Vec<(RunId, StepId)> = Vec::new();
    let mut kept = Vec::new();
    let mut earlier: Vec<StepId> = Vec::new();
    let mut done: BTreeSet<StepId> = BTreeSet::new();
    for run in runs {
        all.nics.extend(run.plan.nics.iter().map(|(name, bdf)| (name.clone(), *bdf)));
        all.drives.extend(run.plan.drives.iter().map(|(name, bdf)| (name.clone(), *bdf)));
        let mut names: BTreeMap<StepId, StepId> = BTreeMap::new();
        let fates: BTreeMap<StepId, &Fate> = run.state.standing().collect();
        for step in run.plan.steps.iter().filter(|step| fates.contains_key(&step.id)) {
            let id = StepId(u32::try_from(origins.len() + 1).unwrap_or(u32::MAX));
            names.insert(step.id, id);
            if fates.get(&step.id) == Some(&&Fate::Done) {
                done.insert(id);
            }
            let own = step.needs.iter().filter_map(|need| names.get(need)).copied();
            // Which of an earlier run's steps it stands on nobody has written down: on all of them.
            let needs = earlier.iter().copied().chain(own).collect();
            all.steps.push(Step { id, needs, ..step.clone() });
            origins.push((run.id, step.id));
        }
        earlier.extend(names.into_values());
    }
    let stays = what_stays(&all, &done, present, host);
    for step in &all.steps {
        let why = match (stays.get(&step.id), &step.inverse) {
            (Some(why), _) => why.clone(),
            (None, None) if goes_with_its_vfs(step, &all, &stays) => continue,
            (None, None) => match step.action.lost_for_good() {
                Some(why) => why.to_owned(),
                None => continue,
            },
            (None, Some(_)) => continue,
        };
        let (run, origin) = origins[step.id.0 as usize - 1];
        kept.push(Kept { run, step: origin, action: step.action.to_string(), why });
    }
    all.steps.retain(|step| !stays.contains_key(&step.id));
    let origins = all
        .steps
        .iter()
        .rev()
        .filter(|step| step.inverse.is_some())
        .map(|step| origins[step.id.0 as usize - 1])
        .collect();
    let mut plan = undo(&all);
    plan.notes = notes(&plan);
    UndoPlan { plan, origins, kept }
}

/// Which steps must stay because somebody else has what they made, and all that these stand on; and those of `done` after which somebody
/// has changed what they made, which hold nothing else; with the reason.
fn what_stays(
    all: &Plan,
    done: &BTreeSet<StepId>,
    present: &Inventory,
    host: &mut dyn Observe,
) -> BTreeMap<StepId, String> {
    // Guests that the way back stops give back what they have.
    let stopped: BTreeSet<&GuestName> = all
        .steps
        .iter()
        .filter_map(|step| match &step.inverse {
            Some(Action::Guest(GuestAction::StopGuest { guest })) => Some(guest),
            _ => None,
        })
        .collect();
    let mut stays: BTreeMap<StepId, String> = BTreeMap::new();
    let mut changed: BTreeMap<StepId, String> = BTreeMap::new();
    // What is so of a thing once the steps after this one are taken back.
    let mut then: BTreeMap<String, Fact> = BTreeMap::new();
    for step in all.steps.iter().rev() {
        if let Entry::Vacant(place) = stays.entry(step.id) {
            let Some(why) = taken_by_another(step, present, &stopped) else {
                let Some((thing, inverse)) = thing_of(&step.action).zip(step.inverse.as_ref()) else {
                    continue;
                };
                let before = Fact::after(inverse);
                let look = || changed_by_another(step, &before, then.get(&thing), present, &stopped, host);
                match done.contains(&step.id).then(look).flatten() {
                    Some(why) => drop(changed.insert(step.id, why)),
                    None => drop(then.insert(thing, before)),
                }
                continue;
            };
            place.insert(why);
        }
        for need in &step.needs {
            stays.entry(*need).or_insert_with(|| format!("\"{}\" needs it and stays", step.action));
        }
    }
    stays.extend(changed);
    stays
}

/// What an action sets that others set as well, and that is not to be set back under them.
fn thing_of(action: &Action) -> Option<String> {
    match action {
        Action::File(FileAction::WriteFile { path, .. } | FileAction::RemoveFile { path }) => {
            Some(path.clone())
        }
        Action::Function(FunctionAction::SetVfCount { pf, .. }) => Some(format!("the VFs of {pf}")),
        Action::Function(FunctionAction::SetVfAttribute { pf, vf, attribute }) => {
            Some(format!("{} of VF {vf} of {pf}", attribute.kind()))
        }
        _ => None,
    }
}

/// That somebody has changed what a step did since: neither that is so, nor what was `before` it. `then` is what is so once later
/// steps are taken back; without one the machine is looked at.
fn changed_by_another(
    step: &Step,
    before: &Fact,
    then: Option<&Fact>,
    present: &Inventory,
    stopped: &BTreeSet<&GuestName>,
    host: &mut dyn Observe,
) -> Option<String> {
    let who = match &step.action {
        Action::Function(FunctionAction::SetVfAttribute { pf, vf, .. }) => {
            let pf = present.pfs.iter().find(|found| found.bdf == *pf)?;
            let vf = pf.sriov.as_ref()?.vfs.iter().find(|found| found.index == *vf)?;
            match user_of(vf.bdf, present, stopped) {
                Some(guest) => format!("guest {guest}, which has {},", vf.bdf),
                None => {
                    format!(
                        "who has {}, {},",
                        vf.bdf,
                        stranger(present, vf.bdf, Some(pf), vf.present.as_ref())?
                    )
                }
            }
        }
        _ => "somebody".to_owned(),
    };
    let seen = match then {
        Some(fact) => (*fact != step.postcondition && fact != before).then(|| fact.to_string())?,
        None => match host.holds(&step.postcondition) {
            Ok(Err(seen)) if !matches!(host.holds(before), Ok(Ok(()))) => seen,
            _ => return None,
        },
    };
    Some(format!("{who} has it otherwise since, and that stays: {seen}"))
}

/// The guest that runs with a function, but for those that the way back stops.
fn user_of<'a>(
    function: Bdf,
    present: &'a Inventory,
    stopped: &BTreeSet<&GuestName>,
) -> Option<&'a GuestName> {
    let has = |(name, guest): &(&GuestName, &_)| uses(guest, function) && !stopped.contains(name);
    present.guests.iter().find(has).map(|(name, _)| name)
}

/// Whether a step was about a VF that the same way back removes: then nothing of it is left to take back.
fn goes_with_its_vfs(step: &Step, all: &Plan, stays: &BTreeMap<StepId, String>) -> bool {
    let Action::Function(FunctionAction::SetVfAttribute { pf, .. }) = &step.action else { return false };
    all.steps.iter().any(|other| {
        let removes = matches!(&other.inverse, Some(Action::Function(FunctionAction::SetVfCount { pf: of, count: 0 })) if of == pf);
        removes && !stays.contains_key(&other.id)
    })
}

/// Who else has what a step made, in words.
fn taken_by_another(step: &Step, present: &Inventory, stopped: &BTreeSet<&GuestName>) -> Option<String> {
    let user = |function: Bdf| user_of(function, present, stopped);
    match (&step.action, &step.inverse) {
        (
            Action::Function(FunctionAction::SetVfCount { pf, count }),
            Some(Action::Function(FunctionAction::SetVfCount { count: before, .. })),
        ) if count != before => {
            let found = present.pfs.iter().find(|found| found.bdf == *pf)?;
            let vfs = &found.sriov.as_ref()?.vfs;
            let (vf, guest) = vfs.iter().find_map(|vf| Some((vf.bdf, user(vf.bdf)?)))?;
            Some(format!(
                "guest {guest} runs with {vf}, one of these VFs, and is of no run that is taken back"
            ))
        }
        (
            Action::Function(FunctionAction::SetDriver { function, driver, .. }),
            Some(Action::Function(FunctionAction::SetDriver { driver: before, .. })),
        ) => {
            if let Some(guest) = user(*function) {
                return Some(format!(
                    "guest {guest} runs with {function} and is of no run that is taken back"
                ));
            }
            let vfs = present.pfs.iter().filter_map(|pf| pf.sriov.as_ref()).flat_map(|sriov| &sriov.vfs);
            let mut found = vfs.filter(|vf| vf.bdf == *function).filter_map(|vf| vf.present.as_ref());
            let bound = found.next()?.driver.as_ref()?;
            let ours = driver.as_ref() == Some(bound) || before.as_ref() == Some(bound);
            (!ours).then(|| format!("somebody has bound {function} to {bound} since"))
        }
        _ => None,
    }
}

fn uses(guest: &penstock_model::inventory::FoundGuest, function: Bdf) -> bool {
    guest.running && (guest.functions.contains(&function) || guest.uplinks.contains(&function))
}

/// Whether two plans are about one of the same NICs, guests or files: then the later stands on the earlier.
pub fn shares(one: &Plan, other: &Plan) -> bool {
    let of = |plan: &Plan| {
        let mut things: BTreeSet<String> =
            plan.nics.values().chain(plan.drives.values()).map(Bdf::to_string).collect();
        things.extend(plan.steps.iter().filter_map(|step| match &step.action {
            Action::File(FileAction::WriteFile { path, .. })
            | Action::File(FileAction::RemoveFile { path }) => Some(path.clone()),
            action => action.guest().map(ToString::to_string),
        }));
        things
    };
    !of(one).is_disjoint(&of(other))
}

/// What an operator should know of a way back.
fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    for step in &plan.steps {
        match (&step.action, &step.inverse) {
            (Action::Guest(GuestAction::StopGuest { guest }), _) => notes.push(format!(
                "guest {guest} is stopped: its memory, and what it wrote to a file system of its own, do not come back"
            )),
            (Action::Guest(GuestAction::CreateGuest { guest }), Some(Action::Guest(GuestAction::StopGuest { .. }))) => notes.push(format!(
                "guest {guest} is made again, suspended and with an empty memory: penstock start lets it run"
            )),
            (Action::Function(FunctionAction::SetVfCount { pf, count }), _) if *count > 0 => notes.push(format!(
                "{pf} gets {} again, with their driver's defaults where nothing else was recorded",
                counted(usize::from(*count), "VF")
            )),
            _ => {}
        }
    }
    notes
}
