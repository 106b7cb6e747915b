//! Whether a run that waits for confirmation stays. One file, made once: of all that want to decide, the first does.

use std::path::Path;

use penstock_host::files;
use serde::{Deserialize, Serialize};

use super::{record::Who, store::StoreError};

/// What was decided of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// Somebody confirmed it: what it did stays.
    Confirmed,
    /// Nobody confirmed it in time.
    Expired,
    /// It did not get to its end: it was cut off, failed, or took too long.
    Failed,
    /// Somebody took it back.
    TakenBack,
    /// The machine was reset before anybody confirmed it.
    Reset,
}

/// What was decided, by whom, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What was decided.
    pub verdict: Confirmation,
    /// The user and the process that gave it.
    pub who: Who,
    /// When, in milliseconds since 1970.
    pub at: u64,
}

/// The decision's name in a run's directory.
const NAME: &str = "decision.json";

/// The decision on the run in `directory`, if there is one.
///
/// # Errors
///
/// [`StoreError`] when the file is there and cannot be read, or makes no sense.
pub fn read(directory: &Path) -> Result<Option<Decision>, StoreError> {
    super::store::read_json(&directory.join(NAME))
}

/// Decides, unless that was done; gives the decision that counts, which is not ours when somebody was first.
///
/// # Errors
///
/// [`StoreError`] when it cannot be written, or one that is there cannot be read. One that makes no sense is replaced.
pub fn decide(directory: &Path, ours: Decision) -> Result<Decision, StoreError> {
    let path = directory.join(NAME);
    // A disk that is full now may have it already.
    if let Ok(Some(given)) = read(directory) {
        return Ok(given);
    }
    if files::create_durable(&path, super::store::json(&ours))? {
        return Ok(ours);
    }
    match read(directory) {
        Ok(given) => Ok(given.unwrap_or(ours)),
        // Nobody can tell any more what was decided: without this nobody could ever decide again.
        Err(StoreError::Damaged { .. }) => {
            files::write_durable(&path, super::store::json(&ours))?;
            Ok(ours)
        }
        Err(error) => Err(error),
    }
}
