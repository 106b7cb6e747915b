//! Nodes that refused or failed, one by one, for those who tell of each as it comes.

use super::{Node, Standing};
use crate::machine::UtcTime;

/// That a node refused a model, or failed with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setback {
    /// The node.
    pub node: String,
    /// When; at no time where that is not known.
    pub at: UtcTime,
    /// What happened, in one word: how the change ended (`RolledBack`, `Failed`, `HalfWay`), `Withdrawn` before it began, `NoAnswer`; or what
    /// came of planning (`Refused`, `Unfit`, `RebootRequired`, `PlanFailed`); or `Ambiguous`.
    pub reason: String,
    /// What the node says.
    pub message: String,
}

/// What has happened to a node that stands so to the machine with this hash.
pub(super) fn of(name: &str, node: &Node, standing: &Standing, hash: &str) -> Option<Setback> {
    let record = node.record.as_ref();
    let (reason, message, at) = match standing {
        Standing::Ambiguous { other } => {
            let message = format!("the SriovMachine {other} selects this node too, and neither changes it");
            ("Ambiguous".to_owned(), message, UtcTime(0))
        }
        Standing::Refused { message, at } => {
            let outcome = record.and_then(|record| Some(record.status.plan.as_ref()?.outcome.to_string()));
            // A change that failed has this word too.
            let reason = outcome.map(|word| if word == "Failed" { "PlanFailed".to_owned() } else { word });
            (reason.unwrap_or_else(|| "Refused".to_owned()), message.clone(), *at)
        }
        Standing::Failed { message, at, untouched: true } => ("Withdrawn".to_owned(), message.clone(), *at),
        Standing::Failed { message, at, untouched: false } => {
            let result = record.and_then(|record| record.status.result.as_ref());
            let ended = result.filter(|result| result.hash == hash && result.outcome.is_failure());
            let reason = ended.map_or_else(|| "NoAnswer".to_owned(), |result| result.outcome.to_string());
            (reason, message.clone(), *at)
        }
        Standing::Unplanned
        | Standing::Waiting
        | Standing::Draining { .. }
        | Standing::Granted { .. }
        | Standing::Done { .. } => return None,
    };
    Some(Setback { node: name.to_owned(), at, reason, message })
}
