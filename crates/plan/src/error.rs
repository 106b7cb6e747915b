//! Why there is no plan.

use std::fmt;

use penstock_model::{Diagnostic, Diagnostics, GuestName, Path};
use penstock_render::{GenerateError, TemplateError};
use thiserror::Error;

/// Why a model and an inventory gave no plan. Nothing was touched.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// The model does not fit the machine; each message points into the file.
    #[error("the model does not fit this machine")]
    Model(Diagnostics),
    /// The files that the model asks for cannot be made, on any machine; each message points into the file.
    #[error("the files that the model asks for cannot be made")]
    Files(Diagnostics),
    /// The model requires what the drivers here were seen not to do; each message points into the file.
    #[error("the drivers here cannot do what the model requires")]
    UnsupportedAttributes(Diagnostics),
    /// The model is good, and this machine or this version cannot do what it asks for.
    #[error("not possible here: {}", reasons(.0))]
    Unsupported(Vec<Refusal>),
    /// What the model asks for would break what runs.
    #[error("refused as unsafe: {}", reasons(.0))]
    Refused(Vec<Refusal>),
    /// A template of the user's is wrong.
    #[error(transparent)]
    Template(Box<TemplateError>),
    /// A guest was chosen that the model does not have.
    #[error("the model has no guest {guest}; it has {}", if .known.is_empty() { "none".to_owned() } else { list(.known) })]
    NoSuchGuest {
        /// The name asked for.
        guest: GuestName,
        /// The names that there are.
        known: Vec<GuestName>,
    },
}

impl From<GenerateError> for PlanError {
    fn from(error: GenerateError) -> PlanError {
        match error {
            GenerateError::Model(found) => PlanError::Files(found),
            GenerateError::Unknown(found) => PlanError::Model(found),
            GenerateError::Template(error) => PlanError::Template(error),
        }
    }
}

/// `guests.rt-2.pin: this machine has no CPU 9`.
pub(crate) fn said(message: &Diagnostic) -> String {
    format!("{}: {}", message.path, message.message)
}

/// Something that is not done, and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is refused, and why.
    pub what: String,
    /// What to do instead.
    pub way_round: String,
}

impl PlanError {
    /// All of it without line breaks, for who has no file to point into.
    pub fn in_one_line(&self) -> String {
        match self {
            PlanError::Model(found) | PlanError::Files(found) | PlanError::UnsupportedAttributes(found) => {
                let lines: Vec<String> = found.0.iter().map(said).collect();
                format!("{self}: {}", lines.join("; "))
            }
            other => other.to_string(),
        }
    }

    /// What to do instead, one for each reason and numbered like it; none where the messages of a file say it.
    pub fn ways_round(&self) -> Vec<String> {
        match self {
            PlanError::Unsupported(refusals) | PlanError::Refused(refusals) => {
                numbered(refusals.iter().map(|refusal| refusal.way_round.as_str()))
            }
            PlanError::Model(_)
            | PlanError::Files(_)
            | PlanError::UnsupportedAttributes(_)
            | PlanError::Template(_)
            | PlanError::NoSuchGuest { .. } => Vec::new(),
        }
    }
}

/// One reason as it is; several a line each.
fn reasons(refusals: &[Refusal]) -> String {
    match numbered(refusals.iter().map(|refusal| refusal.what.as_str())) {
        mut one if one.len() == 1 => one.remove(0),
        several => format!("{} reasons\n{}", several.len(), several.join("\n")),
    }
}

/// Several texts with their numbers, so that an answer can be told for each.
fn numbered<'a>(texts: impl ExactSizeIterator<Item = &'a str>) -> Vec<String> {
    let several = texts.len() > 1;
    let number = |position: usize| if several { format!("{}. ", position + 1) } else { String::new() };
    texts.enumerate().map(|(position, text)| format!("{}{text}", number(position))).collect()
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    let texts: Vec<String> = items.iter().map(T::to_string).collect();
    texts.join("; ")
}

/// An error at `path`.
pub(crate) fn error(path: Path, message: String, hint: Option<String>) -> Diagnostic {
    let error = Diagnostic::error(path, message);
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}
