//! Taking back what was done.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Instant,
};

use penstock_host::{chain, interrupt};
use penstock_plan::{Action, Fact, Step, StepId, persist};
use serde::{Deserialize, Serialize};

use super::{Run, done_to};
use crate::{journal::Entry, others};

/// A step that could not be taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct NotUndone {
    /// The step that is left.
    pub step: StepId,
    /// The inverse that failed, in words.
    pub action: String,
    /// Why it failed.
    pub error: String,
    /// The step that needs what it did, and stays; `None` where its inverse was tried and failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needed_by: Option<StepId>,
    /// Whether its inverse was not tried, because somebody else has changed since what it made: that is left so, and nothing of this
    /// run is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anothers: bool,
}

impl NotUndone {
    /// Whether something of the run is left that was to be taken back. What other steps stand on was never to be.
    pub fn is_left(&self) -> bool {
        self.needed_by.is_none() && !self.anothers
    }
}

impl fmt::Display for NotUndone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}, {}: {}", self.step, self.action, self.error)
    }
}

/// The steps before `step` that it needs, and that those need.
fn stands_on(step: &Step, begun: &[&Step]) -> BTreeSet<StepId> {
    let mut needed: BTreeSet<StepId> = step.needs.iter().copied().collect();
    for earlier in begun.iter().rev() {
        if needed.contains(&earlier.id) {
            needed.extend(earlier.needs.iter().copied());
        }
    }
    needed
}

impl Run<'_, '_> {
    /// Takes `begun` back, last first, past every error. Cancelling does not stop it: half a way back helps nobody.
    pub(super) fn roll_back(&mut self, begun: &[&Step], why: &str) -> (Vec<StepId>, Vec<NotUndone>) {
        // The Ctrl-C that brought it about is heard with that; one that comes later is held off.
        interrupt::acknowledge();
        self.observer.rolling_back(begun.len(), why);
        let outcome = self.take_back(begun, begun);
        let _ = self.journal.record(&[Entry::End { applied: false }], true);
        outcome
    }

    /// Takes those of `begun` that are to go back, last first, past every error. Whatever interrupts meanwhile ends none of the commands that
    /// this runs; it counts afterwards, when only a guest was taken back and the run would go on.
    pub(super) fn take_back(&mut self, back: &[&Step], begun: &[&Step]) -> (Vec<StepId>, Vec<NotUndone>) {
        let _held_off = interrupt::hold_off();
        self.let_go_of_untouched(back, begun);
        let (mut undone, mut not_undone) = (Vec::new(), Vec::new());
        let mut held: BTreeMap<StepId, &Step> = BTreeMap::new();
        let mut steps = back.iter().rev().filter_map(|step| Some((*step, step.inverse.as_ref()?))).peekable();
        while let Some((step, inverse)) = steps.next() {
            let blocked = held.get(&step.id).and_then(|by| {
                let stuck = by.inverse.as_ref()?;
                others::holds(stuck, inverse, Some(&step.action)).then(|| {
                    format!("it was not tried: step {}, {stuck}, was not taken back, and comes before", by.id)
                })
            });
            let blocked = blocked.or_else(|| {
                self.awaits_vfs(inverse).map(|why| format!("it was not tried: {why}, and that comes before"))
            });
            let (error, anothers) = match blocked {
                Some(blocked) => (Some(blocked), None),
                None => {
                    let undo = Entry::Undo { step: step.id, action: inverse.clone() };
                    // The way back goes on when the disk is full: the intents that it needs were written before.
                    let _ = self.journal.record(&[undo], true);
                    let anothers = self.anothers(step);
                    let outcome = match anothers {
                        Some(_) => Ok(()),
                        // The VF that it was about is gone, and with it what was set of it.
                        None if self.vfs_are_anothers(step, begun) => Ok(()),
                        None => self.undo(inverse),
                    };
                    // What a batch that failed has kept from others stays so until its own turn has come.
                    let about = done_to(inverse);
                    let goes_on =
                        about.is_some() && steps.peek().is_some_and(|(_, next)| done_to(next) == about);
                    if !goes_on && !self.executors.let_go_of(inverse) {
                        self.executors.let_go();
                    }
                    // While nobody knows what came of a mode, VFs are not made: the driver holds the same lock, which no signal ends, and they
                    // would be of the wrong mode.
                    if outcome.is_err() && inverse.sets_eswitch_mode() {
                        held.extend(stands_on(step, begun).into_iter().map(|id| (id, step)));
                    }
                    (outcome.err(), anothers)
                }
            };
            if error.is_some() {
                self.unmade.note(step.id, inverse);
            }
            let left = anothers.is_some();
            let entry = Entry::Undone { step: step.id, error: error.clone(), anothers: anothers.clone() };
            let _ = self.journal.record(&[entry], false);
            let told = anothers
                .map(|seen| format!("it was changed by something else since, and is left so: {seen}"));
            let told = error.or(told);
            self.observer.undone(step, told.as_deref());
            match told {
                None => undone.push(step.id),
                Some(error) => not_undone.push(NotUndone {
                    step: step.id,
                    action: inverse.to_string(),
                    error,
                    needed_by: None,
                    anothers: left,
                }),
            }
        }
        self.executors.let_go();
        (undone, not_undone)
    }

    /// Lets others have those VFs of a batch that failed which the way back does not touch: nothing was done to them. What nobody has proven is
    /// kept, also where it is taken back later.
    fn let_go_of_untouched(&mut self, back: &[&Step], begun: &[&Step]) {
        let unproven = begun.iter().filter(|step| !self.proven.contains(&step.id));
        let inverses = back.iter().chain(unproven.clone()).filter_map(|step| step.inverse.as_ref());
        let touched: Vec<&Action> = inverses.chain(unproven.map(|step| &step.action)).collect();
        self.executors.let_go_of_all_but(&touched);
    }

    /// What is there instead of what a step made, or of what was there before, where others set the same: VFs, which its inverse would
    /// remove, or a file.
    fn anothers(&mut self, step: &Step) -> Option<String> {
        let Some((pf, made)) = others::vf_count(&step.action) else { return self.edited(step) };
        let (_, before) = others::vf_count(step.inverse.as_ref()?)?;
        let now = self.executors.vf_count(pf)?;
        let proven = self.proven.contains(&step.id);
        others::are_anothers(now, made, before, proven).then(|| others::seen(now))
    }

    /// That a file holds neither what a step writes nor what its inverse does.
    pub(super) fn edited(&mut self, step: &Step) -> Option<String> {
        let path = others::file(&step.action)?.0;
        for action in [&step.action, step.inverse.as_ref()?] {
            let (path, text) = others::file(action)?;
            if self.executors.file_is(path, text)? {
                return None;
            }
        }
        if persist::owns(path) {
            return None;
        }
        let gone = self.executors.file_is(path, None) == Some(true);
        Some(if gone { others::GONE } else { others::OTHER_TEXT }.to_owned())
    }

    /// Whether a step was about VFs in whose place somebody else has made others.
    fn vfs_are_anothers(&mut self, step: &Step, begun: &[&Step]) -> bool {
        let Some(pf) = others::about_vfs_of(&step.action, |function| self.executors.pf_of(function)) else {
            return false;
        };
        let makes = |made: &&&Step| others::vf_count(&made.action).is_some_and(|(of, _)| of == pf);
        begun.iter().rev().find(makes).is_some_and(|made| self.anothers(made).is_some())
    }

    fn undo(&mut self, inverse: &Action) -> Result<(), String> {
        let began = Instant::now();
        let deadline = self.options.deadline_of(inverse);
        let fact = Fact::after(inverse);
        if !self.executors.execute_group_of(inverse) {
            return Err("nothing here can carry it out".to_owned());
        }
        if self.is_gone(inverse) {
            return Ok(());
        }
        if let Err(error) = self.executors.take_back(inverse, deadline) {
            // A step that failed half-way may never have changed what its inverse restores.
            return if self.already(&fact) || self.is_gone(inverse) { Ok(()) } else { Err(chain(&error)) };
        }
        if !self.executors.observe(&fact) {
            return Ok(());
        }
        match self.prove(&fact, deadline.saturating_sub(began.elapsed()), None) {
            Err(_) if self.is_gone(inverse) => Ok(()),
            outcome => outcome.map_err(|error| chain(&error)),
        }
    }
}
