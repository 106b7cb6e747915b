//! What is done to files that the model generates.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Fact, names::Names};

/// One write of a file that the model generates; the host's executor carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum FileAction {
    /// Write a file that the model generates; the directories on its way too.
    WriteFile { path: String, text: String },
    /// Remove such a file.
    RemoveFile { path: String },
}

impl FileAction {
    /// The file's absolute path.
    pub fn path(&self) -> &str {
        match self {
            Self::WriteFile { path, .. } | Self::RemoveFile { path } => path,
        }
    }

    /// What is true after it.
    pub fn after(&self) -> Fact {
        match self.clone() {
            Self::WriteFile { path, text } => Fact::FileIs { path, text },
            Self::RemoveFile { path } => Fact::NoFile { path },
        }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, _: &Names) -> fmt::Result {
        match self {
            Self::WriteFile { path, text } => write!(f, "write {path} ({} bytes)", text.len()),
            Self::RemoveFile { path } => write!(f, "remove {path}"),
        }
    }
}
