//! Nodes that refused or failed, one by one, for those who tell of each as it comes.

use super::{Node, Standing};
use crate::machine::{UtcTime, policy::RememberedChange};

/// That a node refused a model, or failed with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setback {
    /// The node.
    pub node: String,
    /// When; at no time where that is not known.
    pub at: UtcTime,
    /// What happened, in one word: how the change ended (`RolledBack`, `Failed`, `HalfWay`), `Withdrawn` before it began, `NoAnswer`, `Gone`; or what
    /// came of planning (`Refused`, `Unfit`, `RebootRequired`, `PlanFailed`); or `Ambiguous`.
    pub reason: String,
    /// What the node says.
    pub message: String,
}

/// What has happened to a node that stands so.
pub(super) fn of(name: &str, node: &Node, standing: &Standing) -> Option<Setback> {
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
        Standing::Failed { message, at, reason, .. } => (reason.clone(), message.clone(), *at),
        Standing::Unplanned
        | Standing::Waiting
        | Standing::Draining { .. }
        | Standing::Granted { .. }
        | Standing::Done { .. } => return None,
    };
    Some(Setback { node: name.to_owned(), at, reason, message })
}

/// The setback of a node that is not its machine's any more.
pub(super) fn of_remembered(change: &RememberedChange) -> Setback {
    Setback {
        node: change.node.clone(),
        at: change.at,
        reason: change.reason.clone().unwrap_or_default(),
        message: change.message.clone(),
    }
}
