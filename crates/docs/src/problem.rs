//! What is wrong in a document or a page, and where.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Something that is wrong, with its place and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file, from the top of the tree or of the site.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Problem {
    /// `message` about `line` of `file`.
    pub fn new(file: impl AsRef<Path>, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.as_ref().to_owned(), line, message: message.into() }
    }

    /// A file that could not be read or written.
    pub fn io(file: impl AsRef<Path>, error: &std::io::Error) -> Self {
        Self::new(file, 1, error.to_string())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.message)
    }
}
