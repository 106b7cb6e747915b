//! How a command ends: the exit status, and what a person is told when it is not 0.

use std::{error::Error, fmt};

use penstock_host::{ProcessError, interrupt};

/// The exit status of every command; `design.md` fixes the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// What was asked for holds.
    Holds = 0,
    /// It does not hold.
    DoesNotHold = 1,
    /// The command line or the model is wrong.
    BadInput = 2,
    /// It would have been unsafe.
    Refused = 3,
    /// Something that is needed is not there.
    Missing = 4,
    /// It failed and was rolled back.
    RolledBack = 5,
    /// Ctrl-C; the number that shells expect after SIGINT.
    Interrupted = 130,
}

impl Status {
    /// The status that a command of ours ended with; `None` for a number that none ends with.
    pub fn of(code: u8) -> Option<Status> {
        let all = [
            Status::Holds,
            Status::DoesNotHold,
            Status::BadInput,
            Status::Refused,
            Status::Missing,
            Status::RolledBack,
            Status::Interrupted,
        ];
        all.into_iter().find(|status| *status as u8 == code)
    }
}

/// Why a command did not get to its end.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub status: Status,
    /// What went wrong, with its sources. `None` when it was already printed.
    pub error: Option<Box<dyn Error>>,
    /// What to do about it.
    pub hints: Vec<String>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(status: Status, error: impl Into<Box<dyn Error>>) -> Failure {
        let error = error.into();
        let ended = |error: &(dyn Error + 'static)| {
            matches!(error.downcast_ref(), Some(ProcessError::Interrupted { .. }))
        };
        // What failed while an interrupt is pending failed because of it.
        let interrupted = interrupt::pending() || sources(&*error).any(ended);
        Failure {
            status: if interrupted { Status::Interrupted } else { status },
            error: Some(error),
            hints: Vec::new(),
        }
    }

    /// A failure that has already been explained.
    pub fn explained(status: Status) -> Failure {
        Failure { status, error: None, hints: Vec::new() }
    }

    /// With something to do about it.
    pub fn hint(mut self, hint: impl fmt::Display) -> Failure {
        self.hints.push(hint.to_string());
        self
    }

    /// With what the error itself knows to do about it, if anything.
    pub fn hints(mut self, hints: impl IntoIterator<Item = String>) -> Failure {
        self.hints.extend(hints);
        self
    }
}

/// An error and its sources, outermost first.
pub fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// Turns an error into a [`Failure`] of a given kind: `.or_fail(Status::Missing)?`.
pub trait OrFail<T> {
    /// The value, or the failure.
    fn or_fail(self, status: Status) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn Error>>> OrFail<T> for Result<T, E> {
    fn or_fail(self, status: Status) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(status, error))
    }
}
