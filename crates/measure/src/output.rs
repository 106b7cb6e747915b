//! What any tool may print that is of no use, and how it is said: outside bytes are cut off, of another version, or made up.

use thiserror::Error;

/// More output than this is not read. A histogram of a hundred thousand bins has two megabytes.
pub const LIMIT: usize = 4 << 20;

/// Output that tells nothing that could be used. Each variant names the tool.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutputError {
    /// There is none.
    #[error("{tool} printed nothing")]
    Empty {
        /// The tool that printed nothing.
        tool: &'static str,
    },
    /// There is too much.
    #[error("{tool} printed {bytes} bytes, more than the {LIMIT} that are read")]
    TooLong {
        /// The tool whose output it is.
        tool: &'static str,
        /// How many bytes it printed.
        bytes: usize,
    },
    /// It ends too early, or is no such output at all.
    #[error("{tool}'s output is cut off or is not what was asked for: {why}")]
    Malformed {
        /// The tool whose output it is.
        tool: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The tool itself says that it failed.
    #[error("{tool} failed: {message}")]
    Failed {
        /// The tool that failed.
        tool: &'static str,
        /// Why it failed, by its own output.
        message: String,
    },
    /// A version whose output is not known.
    #[error("{tool} of version {version:?} is not known here: {known} is")]
    Version {
        /// The tool whose output it is.
        tool: &'static str,
        /// The version that the output tells.
        version: String,
        /// The versions that are known.
        known: &'static str,
    },
    /// Something is not in it.
    #[error("{tool}'s output has no {field}")]
    Missing {
        /// The tool whose output it is.
        tool: &'static str,
        /// The missing field, as a key or as a path in the JSON: `jobs[0].read`.
        field: String,
    },
    /// Something in it cannot be.
    #[error("{tool}'s output has {field} = {value}, which cannot be")]
    OddField {
        /// The tool whose output it is.
        tool: &'static str,
        /// The field, as a key or as a path in the JSON: `jobs[0].read`.
        field: String,
        /// The field's value as text, cut short.
        value: String,
    },
    /// Its parts cannot be together.
    #[error("{tool}'s output cannot be: {why}")]
    Odd {
        /// The tool whose output it is.
        tool: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// It ran, and nothing arrived: there is nothing to tell, and a 0 would be taken for a slow path.
    #[error("{tool} ran, but nothing arrived{}", sent.map(|sent| format!(" of the {sent:.0} bit/s that were sent")).unwrap_or_default())]
    NothingArrived {
        /// The tool that ran.
        tool: &'static str,
        /// What was sent, in whole bit/s.
        sent: Option<u64>,
    },
    /// It ran, and nothing was counted: there is nothing to tell, and a 0 would be taken for a fast machine.
    #[error("{tool} ran, but counted no latency")]
    NothingCounted {
        /// The tool that ran.
        tool: &'static str,
    },
}

impl OutputError {
    /// What to look at.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            OutputError::NothingArrived { .. } => Some("the path may be down: penstock verify tells"),
            OutputError::Version { .. } => Some("install a version that is known, or report the output"),
            _ => None,
        }
    }
}

/// The bytes as text, when there are any and not too many.
pub(crate) fn text<'a>(tool: &'static str, output: &'a [u8]) -> Result<&'a str, OutputError> {
    if output.len() > LIMIT {
        return Err(OutputError::TooLong { tool, bytes: output.len() });
    }
    if output.iter().all(u8::is_ascii_whitespace) {
        return Err(OutputError::Empty { tool });
    }
    std::str::from_utf8(output).map_err(|error| OutputError::Malformed { tool, why: error.to_string() })
}
