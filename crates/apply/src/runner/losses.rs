//! Guests that fail alone: what is taken back with one, and what is left out.

use std::collections::{BTreeMap, BTreeSet};

use penstock_host::chain;
use penstock_model::GuestName;
use penstock_plan::{Action, GuestAction, Plan, Step, StepId};

use super::{
    Run, StepReport,
    error::{GuestFailure, StepError},
    undo::NotUndone,
};
use crate::{
    journal::{Ending, Entry},
    others,
};

/// A guest's step that failed.
pub(super) struct Fallen<'p> {
    pub step: &'p Step,
    pub guest: &'p GuestName,
    pub source: StepError,
}

/// The guests that failed so far, and all that goes with them.
#[derive(Default)]
pub(super) struct Losses {
    /// Why each failed; its first failure counts.
    pub failures: Vec<GuestFailure>,
    /// The guests that failed or need one that did.
    guests: BTreeSet<GuestName>,
    /// The steps that failed, and those that are not attempted, with the reason.
    failed: BTreeSet<StepId>,
    left_out: BTreeMap<StepId, String>,
    /// Steps of these guests that could not be taken back.
    stuck: Vec<NotUndone>,
    /// Those that stay because others stand on them.
    kept: Vec<NotUndone>,
}

impl Losses {
    /// Why a step is not attempted, if it is not.
    pub fn left_out(&self, step: StepId) -> Option<&str> {
        self.left_out.get(&step).map(String::as_str)
    }

    /// The guests that did not fail themselves, in the plan's order.
    pub fn guests_left_out(&self, plan: &Plan) -> Vec<GuestName> {
        let failed = |guest: &GuestName| self.failures.iter().any(|failure| failure.guest == *guest);
        let mut names: Vec<GuestName> = Vec::new();
        for guest in plan.steps.iter().filter_map(|step| step.guest.as_ref()) {
            if self.guests.contains(guest) && !failed(guest) && !names.contains(guest) {
                names.push(guest.clone());
            }
        }
        names
    }

    /// The errors, and what is left of the guests that failed or were left out.
    pub fn conclude(self) -> (Vec<GuestFailure>, Vec<NotUndone>) {
        let mut not_undone = self.stuck;
        not_undone.extend(self.kept);
        not_undone.sort_by_key(|left| left.step);
        (self.failures, not_undone)
    }

    /// Notes that `step` of `guest` failed, and finds all of `ahead` that is left out for it: the guest's further
    /// steps, the steps that need what failed, is left out or is taken back, and the guests that these are of. A guest
    /// is whole or not at all: one that lacks a step lacks them all.
    fn spread(&mut self, guest: &GuestName, step: StepId, plan: &Plan, ahead: usize) {
        self.failed.insert(step);
        self.guests.insert(guest.clone());
        let by_id: BTreeMap<StepId, &Step> = plan.steps.iter().map(|step| (step.id, step)).collect();
        loop {
            let before = self.left_out.len();
            for step in &plan.steps[ahead..] {
                if self.left_out.contains_key(&step.id) {
                    continue;
                }
                let Some(why) = self.why_left_out(step, &by_id) else { continue };
                self.left_out.insert(step.id, why);
                self.guests.extend(step.guest.clone());
            }
            if self.left_out.len() == before {
                return;
            }
        }
    }

    /// Notes that `failed` did, and that nothing is attempted of `ahead` that needs it and that it holds.
    pub fn hold_up(&mut self, failed: &Step, plan: &Plan, ahead: usize) {
        self.failed.insert(failed.id);
        self.hold(plan, ahead);
    }

    /// Notes that `step` is not attempted, nor what needs it of `ahead` and it holds.
    pub fn leave_out(&mut self, step: &Step, why: String, plan: &Plan, ahead: usize) {
        self.left_out.insert(step.id, why);
        self.hold(plan, ahead);
    }

    /// Finds all of `ahead` that what failed or is left out holds.
    fn hold(&mut self, plan: &Plan, ahead: usize) {
        let by_id: BTreeMap<StepId, &Step> = plan.steps.iter().map(|step| (step.id, step)).collect();
        // What is missing for steps that it does not hold: it holds what needs those all the same.
        let mut passed: BTreeMap<StepId, BTreeSet<StepId>> = BTreeMap::new();
        for step in &plan.steps[ahead..] {
            let mut missing: BTreeSet<StepId> = BTreeSet::new();
            for need in &step.needs {
                if self.failed.contains(need) || self.left_out.contains_key(need) {
                    missing.insert(*need);
                }
                missing.extend(passed.get(need).into_iter().flatten());
            }
            let holds = |by: &&StepId| {
                let by = by_id.get(*by);
                by.is_none_or(|by| others::holds(&by.action, &step.action, step.inverse.as_ref()))
            };
            if let Some(need) = missing.iter().find(holds) {
                let fate = if self.failed.contains(need) { "failed" } else { "was left out" };
                self.left_out.insert(step.id, format!("needs step {need}, which {fate}"));
            } else if !missing.is_empty() {
                passed.insert(step.id, missing);
            }
        }
    }

    fn why_left_out(&self, step: &Step, by_id: &BTreeMap<StepId, &Step>) -> Option<String> {
        for need in &step.needs {
            let of_lost = || {
                let step = by_id.get(need)?;
                Some(self.is_lost(step) && !gives_back(&step.action))
            };
            let fate = if self.failed.contains(need) {
                "failed"
            } else if self.left_out.contains_key(need) {
                "was left out"
            } else if of_lost().unwrap_or(false) {
                "was taken back"
            } else {
                continue;
            };
            return Some(format!("needs step {need}, which {fate}"));
        }
        let guest = step.guest.as_ref().filter(|guest| self.guests.contains(*guest))?;
        Some(match self.failures.iter().find(|failure| failure.guest == *guest) {
            Some(failure) => format!("guest {guest} failed at step {}", failure.step),
            None => format!("guest {guest} needs a guest that failed"),
        })
    }

    /// Whether a step is part of a guest that failed or is left out.
    fn is_lost(&self, step: &Step) -> bool {
        step.guest.as_ref().is_some_and(|guest| self.guests.contains(guest))
    }
}

/// Whether an action only gives back what a guest had: nothing is missing for who needs it when that guest fails.
fn gives_back(action: &Action) -> bool {
    matches!(
        action,
        Action::Guest(GuestAction::StopGuest { .. }) | Action::Guest(GuestAction::UndefineGuest { .. })
    )
}

impl<'p> Run<'_, '_> {
    /// Records a step that is not attempted.
    pub(super) fn leave_out(&mut self, step: &Step, why: &str) -> StepReport {
        let report = StepReport {
            step: step.id,
            action: step.action.to_string(),
            outcome: Ending::LeftOut,
            detail: Some(why.to_owned()),
            best_effort: step.best_effort,
            seconds: 0.0,
        };
        let entry = Entry::Outcome { step: step.id, outcome: Ending::LeftOut, detail: report.detail.clone() };
        let _ = self.journal.record(&[entry], false);
        self.observer.finished(step, &report);
        report
    }

    /// Takes back what was begun of a guest that failed and of the guests that need it; finds what is left out of the
    /// steps from position `ahead` on.
    pub(super) fn lose(
        &mut self,
        plan: &'p Plan,
        fallen: Fallen<'p>,
        ahead: usize,
        begun: &mut Vec<&'p Step>,
        losses: &mut Losses,
    ) {
        let Fallen { step, guest, source } = fallen;
        let why = chain(&source);
        if !losses.failures.iter().any(|failure| failure.guest == *guest) {
            let action = step.action.to_string();
            losses.failures.push(GuestFailure { guest: guest.clone(), step: step.id, action, source });
        }
        losses.spread(guest, step.id, plan, ahead);

        // What others stand on stays: VFs whose number was changed do not fit the guest that was stopped for it.
        let mut stands_on: BTreeMap<StepId, StepId> = BTreeMap::new();
        let mut back: Vec<&Step> = Vec::new();
        losses.kept.clear();
        for todo in plan.steps[ahead..].iter().filter(|step| losses.left_out(step.id).is_none()) {
            stands_on.extend(todo.needs.iter().map(|need| (*need, todo.id)));
        }
        for done in begun.iter().rev() {
            if losses.stuck.iter().any(|left| left.step == done.id) {
                continue;
            }
            if !losses.is_lost(done) {
                stands_on.extend(done.needs.iter().map(|need| (*need, done.id)));
                continue;
            }
            let Some(other) = stands_on.get(&done.id).copied() else {
                back.push(done);
                continue;
            };
            stands_on.extend(done.needs.iter().map(|need| (*need, done.id)));
            if let Some(inverse) = &done.inverse {
                losses.kept.push(NotUndone {
                    step: done.id,
                    action: inverse.to_string(),
                    error: format!("step {other} needs it and stays"),
                    needed_by: Some(other),
                    anothers: false,
                });
            }
        }
        back.reverse();
        if !back.is_empty() {
            self.observer.rolling_back(back.len(), &why);
        }
        let (undone, not_undone) = self.take_back(&back, begun);
        let settled = |step: &Step| {
            undone.contains(&step.id) || not_undone.iter().any(|left| left.anothers && left.step == step.id)
        };
        begun.retain(|step| !settled(step));
        losses.stuck.extend(not_undone);
    }
}
