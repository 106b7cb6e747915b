//! Why a step, or a plan, was not carried out.

use std::time::Duration;

use penstock_host::chain;
use penstock_model::GuestName;
use penstock_plan::{ExecuteError, StepId};
use thiserror::Error;

use super::{Applied, undo::NotUndone};
use crate::journal::JournalError;

/// Why a step failed.
#[derive(Debug, Error)]
pub enum StepError {
    /// It could not be carried out.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// It was carried out, but its postcondition did not come true.
    #[error("it was carried out, but after {} s it is not so that {fact}: {seen}", after.as_secs_f32())]
    NotSo {
        /// The step's postcondition, in words.
        fact: String,
        /// What is so instead.
        seen: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// It was seen to be so, and at the end of the run it no longer was.
    #[error(
        "at first it was so that {fact}, and now it is not: {seen}; was a driver reloaded, or does somebody else change \
         this machine?"
    )]
    Lost {
        /// The step's postcondition, in words.
        fact: String,
        /// What is so instead.
        seen: String,
    },
    /// The journal could not be kept, so nothing was written.
    #[error("it was not begun, because it could not be recorded")]
    Journal(#[from] JournalError),
    /// The user asked to stop.
    #[error("cancelled")]
    Cancelled,
}

/// A step that failed in a tear-down.
#[derive(Debug)]
pub struct Failure {
    /// The step's number in its plan.
    pub step: StepId,
    /// What it does, in words.
    pub action: String,
    /// Why it failed.
    pub error: StepError,
}

/// Why a guest failed, while the others went on.
#[derive(Debug, Error)]
#[error("guest {guest} failed at step {step} ({action}); what was done for it was taken back")]
pub struct GuestFailure {
    /// The guest that failed.
    pub guest: GuestName,
    /// The step of it that failed.
    pub step: StepId,
    /// What the step does, in words.
    pub action: String,
    /// Why it failed.
    #[source]
    pub source: StepError,
}

/// Why a plan was not carried out.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// No executor knows a step's action. Nothing was written.
    #[error("step {step} cannot be carried out here: {action}")]
    NotCarried {
        /// The step's number in its plan.
        step: StepId,
        /// Its action, in words.
        action: String,
    },
    /// No executor can look a step's postcondition up. Nothing was written.
    #[error("step {step} could not be proven here: {fact}")]
    NotObserved {
        /// The step's number in its plan.
        step: StepId,
        /// Its postcondition, in words.
        fact: String,
    },
    /// The journal could not be begun. Nothing was written.
    #[error("nothing was changed, because it could not be recorded")]
    Journal(#[source] JournalError),
    /// A step failed; the steps before it were taken back.
    #[error("step {step} failed ({action}); {}", undo_in_words(undone.len(), not_undone))]
    RolledBack {
        /// The step's number in its plan.
        step: StepId,
        /// What it does, in words.
        action: String,
        /// Why it failed.
        #[source]
        source: Box<StepError>,
        /// The steps that were taken back, in the order in which they were.
        undone: Vec<StepId>,
        /// Those that could not be: the machine is not as it was.
        not_undone: Vec<NotUndone>,
    },
    /// The user asked to stop; the steps before that were taken back.
    #[error("cancelled at step {step}; {}", undo_in_words(undone.len(), not_undone))]
    Cancelled {
        /// The step that was being carried out, or would have been next.
        step: StepId,
        /// The steps that were taken back, in the order in which they were.
        undone: Vec<StepId>,
        /// Those that could not be: the machine is not as it was.
        not_undone: Vec<NotUndone>,
    },
    /// Guests failed, each alone: what was begun for them was taken back, and the rest of the plan was carried out.
    #[error("{}", lost(failures, left_out, not_undone))]
    GuestsFailed {
        /// Each guest that failed, once.
        failures: Vec<GuestFailure>,
        /// The guests that were not started because they need one that failed.
        left_out: Vec<GuestName>,
        /// What could not be taken back, or stays because other steps stand on it.
        not_undone: Vec<NotUndone>,
        /// Every step, also those that were taken back and those that were left out.
        applied: Applied,
    },
    /// A tear-down or an undo did all it could, and something is left.
    #[error("{} of {} steps of the way back failed{}", failures.len(), applied.steps.len(), listed(failures))]
    Incomplete {
        /// Each step that failed.
        failures: Vec<Failure>,
        /// Everything that was attempted.
        applied: Applied,
    },
}

fn undo_in_words(undone: usize, not_undone: &[NotUndone]) -> String {
    let text = match undone {
        0 if not_undone.is_empty() => "nothing was taken back".to_owned(),
        1 => "1 step was taken back".to_owned(),
        many => format!("{many} steps were taken back"),
    };
    text + &left(not_undone)
}

fn left(not_undone: &[NotUndone]) -> String {
    not_undone.iter().map(|left| format!("\n  not taken back: {left}")).collect()
}

fn lost(failures: &[GuestFailure], left_out: &[GuestName], not_undone: &[NotUndone]) -> String {
    let mut text = match failures.len() {
        1 => "1 guest failed".to_owned(),
        many => format!("{many} guests failed"),
    };
    for failure in failures {
        text += &format!("\n  {}, step {}, {}: ", failure.guest, failure.step, failure.action);
        text += &chain(&failure.source);
    }
    for guest in left_out {
        text += &format!("\n  left out: {guest}, which needs a guest that failed");
    }
    text + &left(not_undone)
}

fn listed(failures: &[Failure]) -> String {
    failures
        .iter()
        .map(|failure| format!("\n  step {}, {}: {}", failure.step, failure.action, chain(&failure.error)))
        .collect()
}

impl StepError {
    /// What to do about it, when that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            StepError::Execute(ExecuteError::Missing { hint, .. } | ExecuteError::Refused { hint, .. }) => {
                Some(hint)
            }
            _ => None,
        }
    }
}

impl GuestFailure {
    /// What to do about it, when that is known.
    pub fn hint(&self) -> Option<&str> {
        self.source.hint()
    }
}

impl ApplyError {
    /// What to do about it, when that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            ApplyError::RolledBack { source, .. } => source.hint(),
            ApplyError::GuestsFailed { failures, .. } => failures.iter().find_map(GuestFailure::hint),
            ApplyError::Incomplete { failures, .. } => {
                failures.iter().find_map(|failure| failure.error.hint())
            }
            _ => None,
        }
    }
}
