//! Taking back what was done.

use std::{fmt, time::Instant};

use penstock_host::{chain, interrupt};
use penstock_plan::{Action, Fact, Step, StepId};
use serde::{Deserialize, Serialize};

use super::{Run, counts_vfs};
use crate::journal::Entry;

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
}

impl fmt::Display for NotUndone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}, {}: {}", self.step, self.action, self.error)
    }
}

impl Run<'_, '_> {
    /// Takes `begun` back, last first, past every error. Cancelling does not stop it: half a way back helps nobody.
    pub(super) fn roll_back(&mut self, begun: &[&Step], why: &str) -> (Vec<StepId>, Vec<NotUndone>) {
        // The Ctrl-C that brought it about is heard with that; one that comes later is held off.
        interrupt::acknowledge();
        self.observer.rolling_back(begun.len(), why);
        let outcome = self.take_back(begun);
        let _ = self.journal.record(&[Entry::End { applied: false }], true);
        outcome
    }

    /// Takes steps back, last first, past every error. Whatever interrupts meanwhile ends none of the commands that this runs; it
    /// counts afterwards, when only a guest was taken back and the run would go on.
    pub(super) fn take_back(&mut self, begun: &[&Step]) -> (Vec<StepId>, Vec<NotUndone>) {
        let _held_off = interrupt::hold_off();
        let (mut undone, mut not_undone) = (Vec::new(), Vec::new());
        for step in begun.iter().rev() {
            let Some(inverse) = &step.inverse else { continue };
            let undo = Entry::Undo { step: step.id, action: inverse.clone() };
            // The way back goes on when the disk is full: the intents that it needs were written before.
            let _ = self.journal.record(&[undo], true);
            let outcome = match self.is_anothers(step, inverse) {
                Some(seen) => Err(format!("somebody has changed that since, and it is left so: {seen}")),
                None => self.undo(inverse),
            };
            let error = outcome.err();
            let entry = Entry::Undone { step: step.id, error: error.clone() };
            let _ = self.journal.record(&[entry], false);
            self.observer.undone(step, error.as_deref());
            match error {
                None => undone.push(step.id),
                Some(error) => not_undone.push(NotUndone {
                    step: step.id,
                    action: inverse.to_string(),
                    error,
                    needed_by: None,
                }),
            }
        }
        (undone, not_undone)
    }

    /// What is there instead of the VFs that a step made, or of none: its inverse would remove VFs that are not this run's. A step
    /// that failed half-way may have made fewer than it was to.
    fn is_anothers(&mut self, step: &Step, inverse: &Action) -> Option<String> {
        if !counts_vfs(inverse) || !self.proven.contains(&step.id) {
            return None;
        }
        match self.look(&step.postcondition)? {
            Ok(Err(seen)) if !self.already(&Fact::after(inverse)) && !self.is_gone(inverse) => Some(seen),
            _ => None,
        }
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
        if let Err(error) = self.executors.execute(inverse, deadline) {
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
