//! What is being done, for whoever waits.

/// A sign of progress.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Something has begun: "Installing packages".
    Phase(String),
    /// How much of the whole is done, from 0 to 1.
    Fraction(f64),
    /// Something worth knowing afterwards: which accelerator was chosen and why.
    Note(String),
}

/// Who is told.
pub type Listener<'a> = &'a mut dyn FnMut(Progress);
