//! Why a command did not get to its end: its exit status, and what a person is told.

use std::{error::Error, fmt};

use penstock_host::{ProcessError, files::FileError, interrupt};
use penstock_model::text::one_line;

pub use crate::status::Status;

mod faults;

pub use faults::Fault;

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
        // What failed while an interrupt is pending failed because of it. That the machine is half-way matters more, and a
        // defect is one whatever else there is.
        let other = !matches!(status, Status::HalfWay | Status::Internal);
        let interrupted = other && (interrupt::pending() || sources(&*error).any(ended));
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

    /// A file that could not be written below a path that the user has named: where something else is in the way, or the directory is not
    /// there, another path is what helps.
    pub fn of_named(error: FileError) -> Failure {
        use std::io::ErrorKind::{AlreadyExists, InvalidFilename, IsADirectory, NotADirectory, NotFound};
        match error.source.kind() {
            AlreadyExists | InvalidFilename | IsADirectory | NotADirectory | NotFound => {
                Failure::new(Status::BadInput, error)
            }
            _ if error.leads_in_a_circle() => Failure::new(Status::BadInput, error),
            _ => Failure::from(error),
        }
    }

    /// Its causes, outermost first.
    pub fn causes(&self) -> Vec<String> {
        self.error.iter().flat_map(|error| sources(&**error).map(ToString::to_string)).collect()
    }

    /// The same in one line.
    pub fn in_one_line(&self) -> String {
        one_line(&self.causes().join(": "))
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

/// Each kind of error has its exit status in one place, [`Fault`]; `?` makes a failure of it.
impl<E: Fault + Error + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        let hints = error.hints();
        Failure::new(error.status(), error).hints(hints)
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

/// A failure that is the fault of what the user wrote or named, whatever the error says by itself.
pub trait OrBadInput<T> {
    /// The value, or the failure.
    ///
    /// # Errors
    ///
    /// `Status::BadInput` with the error that it was.
    fn or_bad_input(self) -> Result<T, Failure>;
}

impl<T, E: Into<Box<dyn Error>>> OrBadInput<T> for Result<T, E> {
    fn or_bad_input(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(Status::BadInput, error))
    }
}
