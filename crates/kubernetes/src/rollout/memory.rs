//! What a machine remembers of changes of its present model. Nodes go, with their `SriovNode`, and labels are taken away; that a change hung or
//! failed there counts all the same, until the model or the attempt is another one.

use std::collections::BTreeMap;

use super::{Node, Standing, standing};
use crate::machine::{
    SriovMachineStatus, UtcTime,
    condition::shortened,
    policy::{LONGEST_MEMORY, RememberedChange},
};

/// The word for a change of which nobody can tell any more how it ended.
const GONE: &str = "Gone";

/// A message that is kept is no longer.
const LONGEST_MESSAGE: usize = 256;

/// What is remembered for the model with this hash, by node.
pub(super) fn of(status: &SriovMachineStatus, hash: &str) -> BTreeMap<String, RememberedChange> {
    let same = status.changes.iter().filter(|_| status.hash == hash);
    same.map(|change| (change.node.clone(), change.clone())).collect()
}

/// Whether a node cannot tell of a change that is remembered: its `SriovNode` is not there, or was made anew since. One that cannot be read may tell
/// later of one that was under way.
pub(super) fn is_lost(node: &Node, change: &RememberedChange) -> bool {
    match &node.record {
        Some(record) if record.unreadable => change.reason.is_some(),
        Some(record) => record.spec.next_number(&record.status) <= change.number,
        None => true,
    }
}

/// A change that failed, as it is remembered; one that was under way when the node, or its word on it, went counts as failed too.
pub(super) fn lost(change: &RememberedChange, now: UtcTime) -> RememberedChange {
    if change.reason.is_some() {
        return change.clone();
    }
    let message = format!(
        "the node, its label or its SriovNode went while change {} was made, and nobody can say how that ended; see `penstock status` there",
        change.number
    );
    RememberedChange { reason: Some(GONE.to_owned()), message, at: now, ..change.clone() }
}

/// What is to be remembered from now on.
pub(super) fn after(
    before: &BTreeMap<String, RememberedChange>,
    matched: &BTreeMap<&str, (&Node, Standing)>,
    nodes: &BTreeMap<String, Node>,
    hash: &str,
    now: UtcTime,
) -> BTreeMap<String, RememberedChange> {
    let mut after = BTreeMap::new();
    for (name, (node, standing)) in matched {
        let known = before.get(*name);
        let unreadable = node.record.as_ref().is_some_and(|record| record.unreadable);
        let change = if unreadable { known.cloned() } else { to_remember(name, node, standing, known, hash) };
        after.extend(change.map(|change| ((*name).to_owned(), change)));
    }
    for (name, change) in before.iter().filter(|(name, _)| !matched.contains_key(name.as_str())) {
        let change = match nodes.get(name) {
            // Without its label it still tells how what was begun ends.
            Some(node) if change.reason.is_none() => {
                let standing = standing::of(node, hash, None, Some(change), now);
                to_remember(name, node, &standing, Some(change), hash)
            }
            _ => Some(lost(change, now)),
        };
        after.extend(change.map(|change| (name.clone(), change)));
    }
    after
}

fn to_remember(
    name: &str,
    node: &Node,
    standing: &Standing,
    known: Option<&RememberedChange>,
    hash: &str,
) -> Option<RememberedChange> {
    let own = node.record.as_ref().map_or(0, |record| record.spec.next_number(&record.status) - 1);
    match standing {
        Standing::Granted { change, .. } if change.hash == hash => Some(RememberedChange {
            node: name.to_owned(),
            number: change.number,
            at: change.since,
            reason: None,
            message: String::new(),
        }),
        Standing::Failed { message, at, reason, .. } => Some(RememberedChange {
            node: name.to_owned(),
            // A SriovNode that was made anew begins to count again.
            number: known.map_or(own, |known| own.max(known.number)),
            at: *at,
            reason: Some(reason.clone()),
            message: shortened(message, LONGEST_MESSAGE),
        }),
        _ => None,
    }
}

/// As it is written down: by node, and where that is too much, first those who failed and cannot tell of it themselves.
pub(super) fn listed(
    memory: BTreeMap<String, RememberedChange>,
    matched: &BTreeMap<&str, (&Node, Standing)>,
) -> Vec<RememberedChange> {
    let mut all: Vec<RememberedChange> = memory.into_values().collect();
    if all.len() > LONGEST_MEMORY {
        all.sort_by_key(|change| (change.reason.is_none(), matched.contains_key(change.node.as_str())));
        all.truncate(LONGEST_MEMORY);
        all.sort_by(|one, other| one.node.cmp(&other.node));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_an_end_and_keeps_those_that_failed_and_are_gone() {
        let change = |index: usize| RememberedChange {
            node: format!("node-{index:05}"),
            number: 1,
            at: UtcTime(1),
            reason: (index >= 600).then(|| GONE.to_owned()),
            message: String::new(),
        };
        let memory = (0..700).map(change).map(|change| (change.node.clone(), change)).collect();
        let listed = listed(memory, &BTreeMap::new());
        assert_eq!(listed.len(), LONGEST_MEMORY);
        assert_eq!(listed.iter().filter(|change| change.reason.is_some()).count(), 100);
        assert!(listed.is_sorted_by(|one, other| one.node < other.node));
    }
}
