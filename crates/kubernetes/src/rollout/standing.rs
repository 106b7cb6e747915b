//! How one node stands to one machine.

use super::{Node, SILENCE, memory};
use crate::machine::{
    UtcTime,
    node::{Change, Outcome, PlanOutcome, Stage},
    policy::RememberedChange,
};

/// How a node stands to a machine that selects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Another machine selects it too.
    Ambiguous {
        /// The other one.
        other: String,
    },
    /// It has no plan of this model yet.
    Unplanned,
    /// It refuses, or cannot.
    Refused {
        /// What it says.
        message: String,
        /// When it said so.
        at: UtcTime,
    },
    /// It can begin.
    Waiting,
    /// It is being drained.
    Draining {
        /// For this change.
        change: Change,
    },
    /// It was told to begin.
    Granted {
        /// For this change.
        change: Change,
        /// Until then it may be silent.
        until: UtcTime,
    },
    /// It is what the model says.
    Done {
        /// Whether something was changed for that.
        changed: bool,
    },
    /// It failed.
    Failed {
        /// What it says.
        message: String,
        /// When.
        at: UtcTime,
        /// How, in one word.
        reason: String,
        /// Whether it was left as it was and works: a drain that came to no end.
        untouched: bool,
    },
}

/// How a node stands to the machine with this hash, which remembers a change of it. `other` selects it too.
pub(super) fn of(
    node: &Node,
    hash: &str,
    other: Option<&str>,
    remembered: Option<&RememberedChange>,
    now: UtcTime,
) -> Standing {
    let told = by_record(node, hash, other, now);
    match remembered.filter(|change| memory::is_lost(node, change)) {
        Some(change) if !matches!(told, Standing::Done { .. }) => {
            let RememberedChange { message, at, reason, .. } = memory::lost(change, now);
            Standing::Failed { message, at, reason: reason.unwrap_or_default(), untouched: false }
        }
        _ => told,
    }
}

fn by_record(node: &Node, hash: &str, other: Option<&str>, now: UtcTime) -> Standing {
    let Some(record) = &node.record else {
        return match other {
            Some(other) => Standing::Ambiguous { other: other.to_owned() },
            None => Standing::Unplanned,
        };
    };
    // What was begun counts first, for whichever model it was.
    if let Some(change) = record.spec.open(&record.status) {
        match change.stage {
            Stage::Drain => return Standing::Draining { change: change.clone() },
            Stage::Go => {
                let until = silent_from(change);
                // Another model's grant that nobody reports on is not this one's failure: but the node is not available.
                if now < until || change.hash != hash {
                    return Standing::Granted { change: change.clone(), until };
                }
                let message = format!(
                    "told to begin at {}, and has not said since how that ended: the node or its agent is away; see `penstock status` there",
                    change.since
                );
                return Standing::Failed {
                    message,
                    at: until,
                    reason: "NoAnswer".to_owned(),
                    untouched: false,
                };
            }
        }
    }
    if let Some(other) = other {
        return Standing::Ambiguous { other: other.to_owned() };
    }
    let Some(plan) = record.status.plan.as_ref().filter(|plan| plan.hash == hash) else {
        return Standing::Unplanned;
    };
    if let Some(result) = record.status.result.as_ref().filter(|result| result.hash == hash) {
        match result.outcome {
            Outcome::Verified => return Standing::Done { changed: result.run.is_some() },
            Outcome::RolledBack | Outcome::Failed | Outcome::HalfWay => {
                return Standing::Failed {
                    message: result.message.clone(),
                    at: result.at,
                    reason: result.outcome.to_string(),
                    untouched: false,
                };
            }
            // `Applying` without an open change: its change was taken out of the spec by hand. It is planned anew.
            Outcome::Applying | Outcome::Lapsed => {}
        }
    }
    if let Some(withdrawn) = record.spec.withdrawn.as_ref().filter(|withdrawn| withdrawn.hash == hash) {
        return Standing::Failed {
            message: withdrawn.reason.clone(),
            at: withdrawn.at,
            reason: "Withdrawn".to_owned(),
            untouched: true,
        };
    }
    match plan.outcome {
        PlanOutcome::Planned => Standing::Waiting,
        PlanOutcome::Refused | PlanOutcome::Unfit | PlanOutcome::RebootRequired | PlanOutcome::Failed => {
            Standing::Refused { message: plan.message.clone(), at: plan.at }
        }
    }
}

/// When a node that was told to begin has been silent for too long.
pub(super) fn silent_from(change: &Change) -> UtcTime {
    change.since.after(change.confirm_within.0 * 2 + SILENCE)
}

/// Whether a node counts as one that cannot be used.
pub(super) fn is_unavailable(node: &Node, standing: &Standing) -> bool {
    !node.ready
        || node.cordoned
        || match standing {
            Standing::Draining { .. } | Standing::Granted { .. } => true,
            Standing::Failed { untouched, .. } => !untouched,
            Standing::Ambiguous { .. }
            | Standing::Unplanned
            | Standing::Refused { .. }
            | Standing::Waiting
            | Standing::Done { .. } => false,
        }
}
