//! Messages about a model that point at the place in the file.

use std::{fmt, ops::Range};

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
        Source { name: name.into(), text: text.into() }
    }

    /// A source called `name` from a file's bytes. When they are not UTF-8, the message tells the line and the offset
    /// of the first bad byte; there is no text to show then, so render it against `Source::new(name, "")`.
    pub fn from_bytes(name: impl Into<String>, bytes: &[u8]) -> Result<Source, Diagnostics> {
        if bytes.len() > crate::tree::MAX_BYTES {
            return Err(crate::tree::too_large(bytes.len()).into());
        }
        let error = match std::str::from_utf8(bytes) {
            Ok(text) => return Ok(Source::new(name, text)),
            Err(error) => error,
        };
        let offset = error.valid_up_to();
        let (before, after) = bytes.split_at(offset);
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let byte = after.first().copied().unwrap_or_default();
        Err(Diagnostic::error(
            Path::default(),
            format!("the file is not UTF-8: byte 0x{byte:02x} at offset {offset}, on line {line}"),
        )
        .with_hint("save it as UTF-8 text; `file` tells the encoding that it has and `iconv` changes it")
        .into())
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

/// What of a path is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// The value that the path leads to.
    #[default]
    Value,
    /// The key itself.
    Key,
    /// These bytes of the value that the path leads to, as it reads without quotes and escapes. Where they cannot be found
    /// in the file (a value from an alias, a folded block), the whole value is meant.
    Part(Range<usize>),
    /// These bytes of the text, for what no path leads to: text that is no YAML, a key given twice.
    Bytes(Range<usize>),
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The model cannot be used.
    Error,
    /// It can, but the user should know.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// One message about a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about; empty for the file as a whole.
    pub path: Path,
    /// What of `path` is meant.
    pub place: Place,
    /// What is wrong, with the values.
    pub message: String,
    /// What to do about it, when that is known.
    pub hint: Option<String>,
    /// Another place that explains this one: where a thing was given first.
    pub related: Option<Box<Related>>,
}

/// A second place that a message speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Where.
    pub path: Path,
    /// What of `path` is meant.
    pub place: Place,
    /// What is there: `first given here`.
    pub label: String,
}

impl Diagnostic {
    /// An error about the value at `path`.
    pub fn error(path: Path, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            path,
            place: Place::Value,
            message: message.into(),
            hint: None,
            related: None,
        }
    }

    /// A warning about the value at `path`.
    pub fn warning(path: Path, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(path, message) }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Diagnostic {
        self.hint = Some(hint.into());
        self
    }

    /// The same about the key, not its value.
    #[must_use]
    pub fn at_key(mut self) -> Diagnostic {
        self.place = Place::Key;
        self
    }

    /// The same about these bytes of the value, as it reads without quotes and escapes.
    #[must_use]
    pub fn at_part(mut self, bytes: Range<usize>) -> Diagnostic {
        self.place = Place::Part(bytes);
        self
    }

    /// The same about these bytes of the text.
    #[must_use]
    pub fn at_bytes(mut self, bytes: Range<usize>) -> Diagnostic {
        self.place = Place::Bytes(bytes);
        self
    }

    /// The same, showing the value at `path` too.
    #[must_use]
    pub fn with_related(mut self, path: Path, label: impl Into<String>) -> Diagnostic {
        self.related = Some(Box::new(Related { path, place: Place::Value, label: label.into() }));
        self
    }
}

impl fmt::Display for Diagnostic {
    /// `guests.rt-2.memory: 0B is too little`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.0.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// All messages about one model, in the file's order. Never empty as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Whether one of the messages is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Diagnostics {
        Diagnostics(vec![diagnostic])
    }
}

impl fmt::Display for Diagnostics {
    /// One line a message, without the text around it; [`Diagnostics::render`] shows that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, diagnostic) in self.0.iter().enumerate() {
            let newline = if n == 0 { "" } else { "\n" };
            write!(f, "{newline}{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
