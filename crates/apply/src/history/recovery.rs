//! From runs and what is there to the plan that takes them back.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{Bdf, GuestName, Inventory, VfIndex, inventory::FoundGuest, text::counted};
use penstock_plan::{
    Action, Fact, FileAction, FunctionAction, GuestAction, Observe, Plan, Step, StepId, persist, stranger,
    undo,
};
use serde::{Deserialize, Serialize};

use super::{record::RunId, state::RunState};
use crate::others;

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
    /// The steps of which nothing is left to take back, since somebody else has changed what they made, with what is there: they count as
    /// taken back from now on. Those that were about VFs which went with that are among them.
    pub anothers: Vec<(RunId, StepId, String)>,
    /// Files of Penstock's own that somebody has edited and that are taken back all the same: whoever does that keeps the edit.
    pub edited: Vec<String>,
}

impl UndoPlan {
    /// Why the machine is not as it was once all steps of the plan are carried out: the first of those that are kept for now.
    pub fn left_for_now(&self) -> Option<String> {
        let Kept { step, action, why, .. } = self.kept.iter().find(|kept| kept.for_now)?;
        Some(format!("step {step} is still to be taken back ({action}): {why}"))
    }

    /// Leaves out of the plan all steps but those whose interface was away when the others were carried out. Where VFs are left out that stayed
    /// then, what is to come back of one of them is left out too: it is not there. It is kept, which nobody has told of: it was to come back.
    pub fn leave_all_but_what_comes_back(&mut self, is_there: impl Fn(Bdf) -> bool) {
        // Of each step that comes after VFs are made: what has to be taken back for that.
        let mut unmade: BTreeMap<StepId, String> = BTreeMap::new();
        for step in &self.plan.steps {
            let makes = others::made_vfs(&step.action).map(|_| undone_by(step).to_string());
            let after = || step.needs.iter().find_map(|need| unmade.get(need).cloned());
            if let Some(made) = makes.or_else(after) {
                unmade.insert(step.id, made);
            }
        }
        let steps = std::mem::take(&mut self.plan.steps).into_iter().zip(std::mem::take(&mut self.origins));
        let mut left_out = Vec::new();
        for (step, origin) in steps.filter(|(step, _)| is_to_come_back(&step.action)) {
            let vf = step.action.function().filter(|function| !is_there(*function));
            if let (Some(vf), Some(stays)) = (vf, unmade.get(&step.id)) {
                let (run, of) = origin;
                let action = undone_by(&step).to_string();
                left_out.push(Kept { run, step: of, action, why: not_made(vf, stays), for_now: false });
                continue;
            }
            // What it stood on was carried out before.
            self.plan.steps.push(Step { needs: Vec::new(), ..step });
            self.origins.push(origin);
        }
        self.kept.extend(left_out.into_iter().rev());
        self.kept.sort_by_key(|kept| (kept.run, kept.step));
    }

    /// The steps of the plan that write or remove this file.
    pub fn steps_at(&self, path: &str) -> impl Iterator<Item = StepId> {
        let at = move |step: &&Step| {
            let file = others::file(&step.action).or(others::own_boot_file(&step.action));
            file.is_some_and(|(at, _)| at == path)
        };
        self.plan.steps.iter().filter(at).map(|step| step.id)
    }
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
    /// Whether it stays only until somebody gives back what they have of it: the machine lacks it, and it is taken back when that is tried
    /// again then.
    #[serde(default)]
    pub for_now: bool,
}

/// Plans to take `runs` back, which are given oldest first, on the machine that `present` shows and `host` looks at. All that may
/// stand of them is taken back newest first; steps of which nobody knows are part of the plan, and are looked at when their turn comes.
///
/// What somebody has changed since stays: files, numbers of VFs, and attributes of VFs that somebody else has by now. Of files of
/// Penstock's own, which are nobody else's to change, the edit is kept and the file is taken back.
pub fn way_back(runs: &[RunToUndo<'_>], present: &Inventory, host: &mut dyn Observe) -> UndoPlan {
    let mut all = Plan::default();
    let mut origins: Vec<(RunId, StepId)> = Vec::new();
    let mut earlier: Vec<StepId> = Vec::new();
    let mut done: BTreeSet<StepId> = BTreeSet::new();
    for run in runs {
        all.nics.extend(run.plan.nics.iter().map(|(name, bdf)| (name.clone(), *bdf)));
        all.drives.extend(run.plan.drives.iter().map(|(name, bdf)| (name.clone(), *bdf)));
        let mut names: BTreeMap<StepId, StepId> = BTreeMap::new();
        let standing: BTreeSet<StepId> = run.state.standing().map(|(step, _)| step).collect();
        for step in run.plan.steps.iter().filter(|step| standing.contains(&step.id)) {
            let id = StepId(u32::try_from(origins.len() + 1).unwrap_or(u32::MAX));
            names.insert(step.id, id);
            if run.state.done.contains(&step.id) {
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
    let stays = Stays::find(&all, &done, present, host);
    let origin = |step: &Step| origins[step.id.0 as usize - 1];
    let (mut kept, mut anothers) = (Vec::new(), Vec::new());
    for step in &all.steps {
        let (run, of) = origin(step);
        if let Some(seen) = stays.gone.get(&step.id) {
            anothers.push((run, of, seen.clone()));
            continue;
        }
        let changed = stays.anothers.get(&step.id);
        anothers.extend(changed.map(|seen| (run, of, seen.clone())));
        let why = match (changed.or(stays.held.get(&step.id)), &step.inverse) {
            (Some(why), _) => why.clone(),
            (None, None) if goes_with_its_vfs(step, &all, &stays) => continue,
            (None, None) => match step.action.lost_for_good() {
                Some(why) => why.to_owned(),
                None => continue,
            },
            (None, Some(_)) => continue,
        };
        // A VF that is not there comes back with others of these, which stay.
        let is_there = |function: Bdf| host.is_there(function) != Some(false);
        let for_now = is_to_come_back(&step.action) && step.action.function().is_none_or(is_there);
        kept.push(Kept { run, step: of, action: step.action.to_string(), why, for_now });
    }
    all.steps.retain(|step| !stays.has(step.id));
    let origins = all.steps.iter().rev().filter(|step| step.inverse.is_some()).map(origin).collect();
    let mut plan = undo(&all);
    plan.notes = notes(&plan);
    UndoPlan { plan, origins, kept, anothers, edited: stays.edited }
}

/// What a step of a way back takes back.
fn undone_by(step: &Step) -> &Action {
    step.inverse.as_ref().unwrap_or(&step.action)
}

/// Why what is to come back of a VF stays, with the action that stays with its number of VFs.
fn not_made(vf: Bdf, stays: &str) -> String {
    format!("{vf} is not there, and \"{stays}\", without which it is not made, stays")
}

/// Whether it is about an interface of the host's that may be somebody else's for now.
fn is_to_come_back(action: &Action) -> bool {
    matches!(action, Action::Function(FunctionAction::RestoreInterface { .. }))
}

/// What of steps is not taken back, and why.
#[derive(Default)]
struct Stays {
    /// Those that stay for as long as somebody else has what they made, and those that these stand on.
    held: BTreeMap<StepId, String>,
    /// Those of which nothing is left, since somebody else has changed what they made. They hold nothing.
    anothers: BTreeMap<StepId, String>,
    /// Those of which nothing is left, since they were about VFs in whose place somebody else has made others.
    gone: BTreeMap<StepId, String>,
    /// Files that are taken back although somebody has edited them.
    edited: Vec<String>,
}

impl Stays {
    fn find(all: &Plan, done: &BTreeSet<StepId>, present: &Inventory, host: &mut dyn Observe) -> Stays {
        let mut stays = Stays::default();
        // Guests that the way back stops give back what they have.
        let stopped: BTreeSet<&GuestName> = all
            .steps
            .iter()
            .filter_map(|step| match &step.inverse {
                Some(Action::Guest(GuestAction::StopGuest { guest })) => Some(guest),
                _ => None,
            })
            .collect();
        let own = Own::of(all);
        let replaced = replaced(all, done, host);
        // What is so of a thing once the steps after this one are taken back.
        let mut then: BTreeMap<String, Fact> = BTreeMap::new();
        for step in all.steps.iter().rev() {
            if let Some(seen) = others::vf_count(&step.action).and_then(|(pf, _)| replaced.get(&pf)) {
                stays.held.remove(&step.id);
                stays.anothers.insert(step.id, otherwise("somebody", seen));
                continue;
            }
            let of = others::about_vfs_of(&step.action, |function| host.pf_of(function));
            if let Some(seen) = of.and_then(|pf| replaced.get(&pf)) {
                stays.held.remove(&step.id);
                stays.gone.insert(step.id, format!("its VF is another one by now: of its PF, {seen}"));
                continue;
            }
            if !stays.held.contains_key(&step.id) {
                let taken = taken_by_another(step, present, &stopped)
                    .or_else(|| interface_of_another(step, (all, &stays), present, &stopped, host));
                let Some(why) = taken else {
                    stays.look(step, done.contains(&step.id), &mut then, (present, &own), host);
                    continue;
                };
                stays.held.insert(step.id, why);
            }
            // What it does not hold goes; what that stands on it holds all the same.
            let (mut below, mut seen) = (step.needs.clone(), BTreeSet::new());
            while let Some(need) = below.pop() {
                let needed = all.steps.get((need.0 as usize).wrapping_sub(1));
                let Some(needed) = needed.filter(|_| seen.insert(need)) else { continue };
                if is_held(step, needed) {
                    let why = || format!("\"{}\" needs it and stays", step.action);
                    stays.held.entry(need).or_insert_with(why);
                } else {
                    if let Some(vf) = awaits_vfs(step, needed, all, host) {
                        let why = || not_made(vf, &step.action.to_string());
                        stays.held.entry(need).or_insert_with(why);
                    }
                    below.extend(&needed.needs);
                }
            }
        }
        stays
    }

    /// Notes what somebody else has made of what a step set since; what is so `then`, after the steps that come after it are taken back,
    /// counts where they set the same.
    fn look(
        &mut self,
        step: &Step,
        done: bool,
        then: &mut BTreeMap<String, Fact>,
        (present, own): (&Inventory, &Own<'_>),
        host: &mut dyn Observe,
    ) {
        let Some(inverse) = &step.inverse else { return };
        if let (Some((path, text)), Some((_, before))) =
            (others::own_boot_file(&step.action), others::own_boot_file(inverse))
        {
            let mut is = |text| host.file_is(path, text) != Some(false);
            if !then.contains_key(path) && !is(text) && !is(before) && !is(None) {
                self.edited.push(path.to_owned());
            }
            then.insert(path.to_owned(), Fact::after(inverse));
            return;
        }
        let (thing, who) = match &step.action {
            Action::File(action) => (action.path().to_owned(), Some("somebody".to_owned())),
            Action::Function(FunctionAction::SetVfAttribute { pf, vf, attribute }) => {
                let who = done.then(|| own.who_else_has(*pf, *vf, present)).flatten();
                (format!("{} of VF {vf} of {pf}", attribute.kind()), who)
            }
            _ => return,
        };
        let before = Fact::after(inverse);
        let seen = match (&who, then.get(&thing)) {
            (None, _) => None,
            (Some(_), Some(fact)) => {
                (*fact != step.postcondition && *fact != before).then(|| fact.to_string())
            }
            (Some(_), None) => {
                let seen = instead(&step.postcondition, host);
                seen.filter(|_| instead(&before, host).is_some())
            }
        };
        match (seen, who) {
            (Some(_), _) if persist::owns(&thing) => {
                if !then.contains_key(&thing) && host.file_is(&thing, None) == Some(false) {
                    self.edited.push(thing.clone());
                }
                then.insert(thing, before);
            }
            (Some(seen), Some(who)) => drop(self.anothers.insert(step.id, otherwise(&who, &seen))),
            _ => drop(then.insert(thing, before)),
        }
    }

    fn has(&self, step: StepId) -> bool {
        [&self.held, &self.anothers, &self.gone].iter().any(|steps| steps.contains_key(&step))
    }
}

fn otherwise(who: &str, seen: &str) -> String {
    format!("{who} has it otherwise since, and that stays: {seen}")
}

/// Whether a step that stays holds one that it stands on.
fn is_held(step: &Step, needed: &Step) -> bool {
    let of = |step: &Step| step.inverse.clone().unwrap_or_else(|| step.action.clone());
    others::holds(&of(step), &of(needed), Some(&needed.action))
}

/// The VF that `needed` is about, where it is not there and comes when `step`, which stays, is taken back.
fn awaits_vfs(step: &Step, needed: &Step, all: &Plan, host: &mut dyn Observe) -> Option<Bdf> {
    let (pf, count) = others::made_vfs(step.inverse.as_ref()?)?;
    let vf = others::may_be_vf(needed.inverse.as_ref()?)?;
    let is_pf = pf == vf || all.nics.values().chain(all.drives.values()).any(|known| *known == vf);
    // Where the PF is not there nobody makes them.
    let is_awaited = !is_pf
        && host.is_there(vf) == Some(false)
        && host.is_there(pf) != Some(false)
        && host.vf_count(pf) != Some(count);
    is_awaited.then_some(vf)
}

/// The PFs on which somebody else has another number of VFs since than what steps made, or found, with what is there.
fn replaced(all: &Plan, done: &BTreeSet<StepId>, host: &mut dyn Observe) -> BTreeMap<Bdf, String> {
    let mut last: BTreeMap<Bdf, (u16, u16, bool)> = BTreeMap::new();
    for step in &all.steps {
        let before = step.inverse.as_ref().and_then(others::vf_count);
        if let (Some((pf, made)), Some((_, before))) = (others::vf_count(&step.action), before) {
            last.insert(pf, (made, before, done.contains(&step.id)));
        }
    }
    let look = |(pf, (made, before, done)): (Bdf, (u16, u16, bool))| {
        let now = host.vf_count(pf)?;
        others::are_anothers(now, made, before, done).then(|| (pf, others::seen(now)))
    };
    last.into_iter().filter_map(look).collect()
}

/// What is there instead of what a fact says; `None` where that is so, or where nobody can tell.
fn instead(fact: &Fact, host: &mut dyn Observe) -> Option<String> {
    let seen = match fact {
        Fact::FileIs { path, text } => {
            let is = host.file_is(path, Some(text))?;
            let gone = host.file_is(path, None)?;
            return (!is).then(|| if gone { others::GONE } else { others::OTHER_TEXT }.to_owned());
        }
        Fact::NoFile { path } => return (!host.file_is(path, None)?).then(|| "it is there".to_owned()),
        fact => host.holds(fact),
    };
    seen.ok()?.err()
}

/// What is of the runs themselves.
struct Own<'a> {
    /// The guests that their steps are part of, or done to.
    guests: BTreeSet<&'a GuestName>,
    /// The functions of guests that they define.
    functions: BTreeSet<Bdf>,
}

impl<'a> Own<'a> {
    fn of(all: &'a Plan) -> Own<'a> {
        let actions =
            || all.steps.iter().flat_map(|step| [Some(&step.action), step.inverse.as_ref()]).flatten();
        let guests = all.steps.iter().filter_map(|step| step.guest.as_ref());
        let functions = actions().filter_map(|action| match action {
            Action::Guest(GuestAction::DefineGuest(definition)) => Some(definition.host_functions()),
            _ => None,
        });
        Own {
            guests: guests.chain(actions().filter_map(Action::guest)).collect(),
            functions: functions.flatten().collect(),
        }
    }

    /// Who has a VF of a PF, in words, other than a guest of these runs: what one of those does to its VF goes with it.
    fn who_else_has(&self, pf: Bdf, vf: VfIndex, present: &Inventory) -> Option<String> {
        let pf = present.pf(pf)?;
        let vf = pf.sriov.as_ref()?.vf(vf)?;
        match present.guests.iter().find(|(_, guest)| uses(guest, vf.bdf)) {
            Some((guest, _)) if self.guests.contains(guest) => None,
            Some((guest, _)) => Some(format!("guest {guest}, which has {},", vf.bdf)),
            // A VM of ours that does not run holds nothing: whoever does is somebody else.
            None if self.functions.contains(&vf.bdf) && !is_held_open(present, vf.bdf) => None,
            None => {
                let who = stranger(present, vf.bdf, Some(pf), vf.present.as_ref())?;
                Some(format!("who has {}, {who},", vf.bdf))
            }
        }
    }
}

/// Whether a step was about a VF that the same way back removes: then nothing of it is left to take back.
fn goes_with_its_vfs(step: &Step, all: &Plan, stays: &Stays) -> bool {
    let Action::Function(FunctionAction::SetVfAttribute { pf, .. }) = &step.action else { return false };
    all.steps.iter().any(|other| {
        let removes = matches!(&other.inverse, Some(Action::Function(FunctionAction::SetVfCount { pf: of, count: 0 })) if of == pf);
        removes && !stays.has(other.id)
    })
}

/// Who else has what a step made, in words.
fn taken_by_another(step: &Step, present: &Inventory, stopped: &BTreeSet<&GuestName>) -> Option<String> {
    let user = |function: Bdf| {
        let has = |(name, guest): &(&GuestName, &_)| uses(guest, function) && !stopped.contains(name);
        present.guests.iter().find(has).map(|(name, _)| name)
    };
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

/// Who else has the interface whose use by the host a step brings back, in words. Guests that the way back stops give it back before, and
/// so does a driver that it binds: what comes of that shows when the step's turn comes.
fn interface_of_another(
    step: &Step,
    (all, stays): (&Plan, &Stays),
    present: &Inventory,
    stopped: &BTreeSet<&GuestName>,
    host: &mut dyn Observe,
) -> Option<String> {
    let Action::Function(FunctionAction::RestoreInterface { function, .. }) = &step.action else {
        return None;
    };
    if present.guests.iter().any(|(name, guest)| stopped.contains(name) && uses(guest, *function)) {
        return None;
    }
    let pf = host.pf_of(*function);
    let brings_it = |other: &Step| match &other.inverse {
        Some(Action::Function(FunctionAction::SetDriver { function: of, .. })) => {
            of == function || Some(*of) == pf
        }
        Some(Action::Function(FunctionAction::SetVfCount { pf: of, .. })) => Some(*of) == pf,
        _ => false,
    };
    // What stays of the steps after this one is known by now.
    if all.steps.iter().any(|other| other.id > step.id && brings_it(other) && !stays.has(other.id)) {
        return None;
    }
    let who = host.who_has_interface(*function)?;
    Some(format!(
        "{who} has its interface; once that is back `penstock undo` brings back what the host had of it"
    ))
}

/// Whether a process holds a function open through VFIO.
fn is_held_open(present: &Inventory, function: Bdf) -> bool {
    present.lifelines.as_ref().is_some_and(|found| found.holders.contains_key(&function))
}

fn uses(guest: &FoundGuest, function: Bdf) -> bool {
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
