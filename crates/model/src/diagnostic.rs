//! Messages about a model that point at the place in the file.

use std::fmt;

/// A model file's name and text.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name to show.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Source {
    /// A source called `name`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source {
            name: name.into(),
            text: text.into(),
        }
    }
}

/// Where in a document: `guests`, `rt-2`, `functions`, `3`, `vlan`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(pub Vec<String>);

impl Path {
    /// The path of `segments`.
    pub fn of<S: fmt::Display>(segments: impl IntoIterator<Item = S>) -> Path {
        Path(segments.into_iter().map(|segment| segment.to_string()).collect())
    }

    /// This path, one step further down.
    pub fn join(&self, segment: impl fmt::Display) -> Path {
        let mut segments = self.0.clone();
        segments.push(segment.to_string());
        Path(segments)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The model cannot be used.
    Error,
    /// It can, but the user should know.
    Warning,
}

/// One message about a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about; empty for the file as a whole.
    pub path: Path,
    /// What is wrong, with the values.
    pub message: String,
    /// What to do about it, when that is known.
    pub hint: Option<String>,
}

/// All messages about one model, in the file's order. Never empty as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);
