//! What it is to carry out a step.

use std::time::Duration;

use thiserror::Error;

use crate::{Action, Fact};

/// Something that can carry out some kinds of action: the host's functions, its containers, its VMs.
///
/// `apply` asks each of the executors that it was given in turn; the first that knows the action does it.
pub trait Execute {
    /// Whether this executor knows this kind of action.
    fn executes(&self, action: &Action) -> bool;

    /// Does it, within `deadline`. On `Err` the machine is as it was, or `apply` undoes the step by its inverse.
    ///
    /// # Errors
    ///
    /// [`ExecuteError`], which tells whether the action cannot be had here, something is missing, it failed, or its time was
    /// over.
    fn execute(&mut self, action: &Action, deadline: Duration) -> Result<(), ExecuteError>;

    /// Does several that do not need one another, each within `deadline`; an executor that can do them side by side
    /// overrides this. The answers are in the order of `actions` and may be fewer: the rest was not attempted.
    fn execute_all(&mut self, actions: &[&Action], deadline: Duration) -> Vec<Result<(), ExecuteError>> {
        one_by_one(self, actions, deadline)
    }

    /// Whether what the action is done to has left the machine, so that taking something back there is done already: a NIC
    /// that was unplugged has taken its settings along.
    fn is_gone(&mut self, _action: &Action) -> bool {
        false
    }

    /// Whether this executor can look this kind of fact up.
    fn observes(&self, fact: &Fact) -> bool;

    /// Looks a fact up. `Ok(Err(seen))` says what is so instead.
    ///
    /// # Errors
    ///
    /// [`ExecuteError`] when it cannot be found out.
    fn holds(&mut self, fact: &Fact) -> Result<Result<(), String>, ExecuteError>;
}

/// Does several actions one after the other, up to the first that fails for another reason than being unsupported.
pub fn one_by_one<C: Execute + ?Sized>(
    executor: &mut C,
    actions: &[&Action],
    deadline: Duration,
) -> Vec<Result<(), ExecuteError>> {
    let mut answers = Vec::with_capacity(actions.len());
    for action in actions {
        answers.push(executor.execute(action, deadline));
        if matches!(answers.last(), Some(Err(error)) if !matches!(error, ExecuteError::Unsupported(_))) {
            break;
        }
    }
    answers
}

/// Why an action was not carried out, or a fact not looked up.
#[derive(Debug, Error)]
pub enum ExecuteError {
    /// The driver or device says that it cannot do this (`EOPNOTSUPP`, a missing file).
    #[error("{0}")]
    Unsupported(String),
    /// Something that it needs is not there: a program, a module, a permission.
    #[error("{what}")]
    Missing {
        /// What was attempted and is missing.
        what: String,
        /// What to do about it.
        hint: String,
    },
    /// It was tried and failed; the source says why.
    #[error("{attempt}")]
    Failed {
        /// What was attempted, with which values.
        attempt: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It did not come true in time.
    #[error("{attempt}: not so after {} s", after.as_secs_f32())]
    TimedOut {
        /// What was waited for.
        attempt: String,
        /// How long it was waited for.
        after: Duration,
    },
}
