//! Messages about a model that point at the place in the file.

use std::{fmt, ops::Range};

/// The largest file that is read. 510 VFs, each with all its attributes, take a tenth of it.
pub const MAX_BYTES: usize = 1 << 20;

/// A model file's name and text.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name to show.
    pub name: String,
    /// The whole text that messages point into; empty when there is none to show.
    pub text: String,
}

impl Source {
    /// A source called `name`.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source { name: name.into(), text: text.into() }
    }

    /// A source called `name` from a file's bytes. When they are not UTF-8, the message tells the line and the offset
    /// of the first bad byte; there is no text to show then, so render it against `Source::new(name, "")`.
    ///
    /// # Errors
    ///
    /// [`Diagnostics`] with one message, when they are no UTF-8 or more than a model may have.
    pub fn from_bytes(name: impl Into<String>, bytes: &[u8]) -> Result<Source, Diagnostics> {
        if bytes.len() > MAX_BYTES {
            return Err(too_large(bytes.len()).into());
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

/// The message for a file of `size` bytes that is not read.
pub(crate) fn too_large(size: usize) -> Diagnostic {
    Diagnostic::error(
        Path::default(),
        format!("the file has {size} bytes, and a model has at most {MAX_BYTES}"),
    )
    .with_hint("is this the right file?")
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
pub enum PathTarget {
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
    pub place: PathTarget,
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
    /// The path of the second place.
    pub path: Path,
    /// What of `path` is meant.
    pub place: PathTarget,
    /// What is there: `first given here`.
    pub label: String,
}

impl Diagnostic {
    /// An error about the value at `path`.
    pub fn error(path: Path, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            path,
            place: PathTarget::Value,
            message: message.into(),
            hint: None,
            related: None,
        }
    }

    /// A warning about the value at `path`.
    #[track_caller]
    pub fn warning(path: Path, message: impl Into<String>) -> Diagnostic {
        #[cfg(test)]
        tests::warned_at(std::panic::Location::caller());
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
        self.place = PathTarget::Key;
        self
    }

    /// The same about these bytes of the value, as it reads without quotes and escapes.
    #[must_use]
    pub fn at_part(mut self, bytes: Range<usize>) -> Diagnostic {
        self.place = PathTarget::Part(bytes);
        self
    }

    /// The same about these bytes of the text.
    #[must_use]
    pub fn at_bytes(mut self, bytes: Range<usize>) -> Diagnostic {
        self.place = PathTarget::Bytes(bytes);
        self
    }

    /// The same, showing the value at `path` too.
    #[must_use]
    pub fn with_related(mut self, path: Path, label: impl Into<String>) -> Diagnostic {
        self.related = Some(Box::new(Related { path, place: PathTarget::Value, label: label.into() }));
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

    /// The same messages, each warning as an error.
    #[must_use]
    pub fn into_errors(self) -> Diagnostics {
        let error = |diagnostic| Diagnostic { severity: Severity::Error, ..diagnostic };
        Diagnostics(self.0.into_iter().map(error).collect())
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test reads its own sources")]
mod tests {
    use std::{
        cell::RefCell,
        collections::BTreeSet,
        fs,
        path::{Path as File, PathBuf},
    };

    use super::*;
    use crate::parse;

    thread_local! {
        /// Where in the sources warnings were made: `file:line:column`.
        static SITES: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(super) fn warned_at(place: &std::panic::Location<'_>) {
        SITES.with_borrow_mut(|sites| sites.insert(place.to_string()));
    }

    fn sources(directory: &File, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false => found.push(path),
            }
        }
    }

    /// `penstock check` prints the text of each golden folder (`crates/cli/tests/warnings.rs`), so that what is in none of
    /// them has never been seen by anybody.
    #[test]
    fn every_warning_is_in_a_golden_folder() {
        let this = File::new(env!("CARGO_MANIFEST_DIR"));
        let mut models = Vec::new();
        sources(&this.join("tests/golden"), &mut models);
        models.retain(|path| path.ends_with("model.yaml") && path.to_string_lossy().contains("/good-"));
        for model in &models {
            let source = Source::new("model.yaml", fs::read_to_string(model).unwrap());
            assert!(parse(&source).is_ok(), "{}", model.display());
        }
        let many = format!("nics: {{A: }}\nguests: {{a: , b: {{after: [{}a]}}}}\n", "a, ".repeat(200));
        let warnings = parse(&Source::new("many.yaml", many)).unwrap().warnings;
        assert_eq!(warnings.0.last().unwrap().message, "there is more than these 100");
        let made = SITES.with_borrow(Clone::clone);

        let mut files = Vec::new();
        sources(&this.join("src"), &mut files);
        let mut there = 0;
        let mut unseen = Vec::new();
        for file in files.iter().filter(|file| !file.ends_with("diagnostic.rs")) {
            let name = format!("src/{}", file.strip_prefix(this.join("src")).unwrap().display());
            for (line, _) in fs::read_to_string(file)
                .unwrap()
                .lines()
                .enumerate()
                .filter(|(_, line)| line.contains("Diagnostic::warning("))
            {
                there += 1;
                let place = format!("{name}:{}:", line + 1);
                if !made.iter().any(|site| site.contains(&place)) {
                    unseen.push(place);
                }
            }
        }
        assert!(there >= 17, "only {there} warnings were found in the sources");
        assert_eq!(unseen, [""; 0], "these warnings are in no good golden model");
    }
}
