//! Claims that were prepared.

use std::{collections::BTreeSet, path::Path};

use thiserror::Error;

/// Why the state cannot be read.
#[derive(Debug, Error)]
pub enum StateError {}

/// The names of the devices that prepared claims have.
///
/// # Errors
///
/// None here.
pub fn held(_state: &Path) -> Result<BTreeSet<String>, StateError> {
    Ok(BTreeSet::new())
}
