//! The runs that have changed this machine, of whoever began them (docs/json.md).

use std::{path::Path, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use crate::penstock::{Penstock, PenstockError};

/// The list is read from a few files.
const LIST: Duration = Duration::from_secs(60);

/// A run, as `undo --list` has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Run {
    /// Its number.
    pub run: u64,
    /// What it was for: `"apply"`, among others.
    purpose: Value,
    /// With which command.
    #[serde(default)]
    command: Vec<String>,
    /// Whether whoever does it is still at it.
    #[serde(default)]
    pub running: bool,
    /// What is left of it.
    pub phase: String,
    /// Whether somebody has to confirm it.
    #[serde(default)]
    pub waits_for_confirmation: bool,
    /// Whether it does not stay, and not all of it is taken back yet.
    #[serde(default)]
    is_to_go: bool,
}

impl Run {
    /// Whether it is an `apply` of this model.
    pub fn applies(&self, model: &Path) -> bool {
        self.purpose == "apply" && self.command.iter().any(|word| Path::new(word) == model)
    }

    /// Whether nothing of it is left.
    pub fn is_gone(&self) -> bool {
        self.phase == "nothing"
    }

    /// Why what it makes may be gone in a moment, if it may.
    pub fn why_unsettled(&self) -> Option<&'static str> {
        match self {
            Run { running: true, .. } => Some("goes on"),
            Run { waits_for_confirmation: true, .. } => Some("waits to be confirmed"),
            Run { is_to_go: true, .. } => Some("is not all taken back"),
            Run { running: false, waits_for_confirmation: false, is_to_go: false, .. } => None,
        }
    }
}

/// The runs that `undo --list` has, oldest first.
///
/// # Errors
///
/// The binary cannot be run, fails, or prints no such list.
pub async fn list(penstock: &Penstock) -> Result<Vec<Run>, PenstockError> {
    let value = penstock.json(&["undo", "--list"], Vec::new(), LIST).await?;
    let runs = value.get("runs").cloned().unwrap_or_default();
    let nonsense = |source| PenstockError::Nonsense {
        command: "penstock undo --list".to_owned(),
        what: "list of runs",
        source,
    };
    serde_json::from_value(runs).map_err(nonsense)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_known_by_the_model_in_its_command() {
        let run = |purpose: Value, command: &[&str]| -> Run {
            serde_json::from_value(
                json!({"run": 3, "purpose": purpose, "command": command, "phase": "nothing", "user": "root"}),
            )
            .unwrap()
        };
        let model = Path::new("/var/lib/x/abc.yaml");
        assert!(run(json!("apply"), &["penstock", "apply", "/var/lib/x/abc.yaml", "--json"]).applies(model));
        assert!(!run(json!("apply"), &["penstock", "apply", "/var/lib/x/abd.yaml"]).applies(model));
        assert!(!run(json!({"undo": [2]}), &["penstock", "apply", "/var/lib/x/abc.yaml"]).applies(model));
    }
}
