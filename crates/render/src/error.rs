//! Why files could not be made.

use penstock_model::{Diagnostics, GuestName, Source, text::Styled};
use thiserror::Error;

/// Why files could not be made.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum GenerateError {
    /// The model asks for what cannot be made; each message points into it.
    #[error("the files that the model asks for cannot be made: {0}")]
    Model(Diagnostics),
    /// A MAC address is not known, and with it what the files are to say; each message points into the model.
    #[error("what the files are to say is not known: {0}")]
    Unknown(Diagnostics),
    /// A template of the user's is wrong.
    #[error(transparent)]
    Template(Box<TemplateError>),
}

impl GenerateError {
    /// The messages as a person reads them, each with its place in `model` or in the template.
    pub fn styled(&self, model: &Source) -> Styled {
        match self {
            GenerateError::Model(found) | GenerateError::Unknown(found) => found.styled(model, None),
            GenerateError::Template(error) => error.styled(),
        }
    }
}

/// What is wrong with a template of the user's.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("the template {path} makes no file for {guest}: {found}")]
pub struct TemplateError {
    /// For whom it was rendered.
    pub guest: GuestName,
    /// Where the template is.
    pub path: String,
    /// The template's whole text.
    pub text: String,
    /// What is wrong, pointing into the template's text.
    pub found: Diagnostics,
}

impl TemplateError {
    /// The messages as a person reads them, each with its place in the template.
    pub fn styled(&self) -> Styled {
        self.found.styled(&Source::new(&self.path, &self.text), None)
    }
}
