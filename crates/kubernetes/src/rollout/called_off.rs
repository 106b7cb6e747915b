//! Changes that are called off before they begin.

use super::{Node, SpecWrite, standing};
use crate::machine::{
    SriovNodeSpec, UtcTime,
    node::{Stage, Withdrawn},
};

/// A change that a node is being drained for, called off.
pub(super) fn call_off(name: &str, node: &Node) -> Option<SpecWrite> {
    let record = node.record.as_ref()?;
    let change = record.spec.open(&record.status).filter(|change| change.stage == Stage::Drain)?;
    let reason = "called off before it began, for no fault of this node".to_owned();
    Some(write(name, change.number, String::new(), reason, change.since))
}

/// A change that a node was told to make, and has not begun: called off where nobody is to begin any more, and where the node has said nothing for
/// too long. Its agent may be away for days, and would begin as soon as it is back. Whoever has begun has said so before (`Applying`), and the
/// write has what was known of that as its precondition.
pub(super) fn call_off_unbegun(
    name: &str,
    node: &Node,
    no_more: bool,
    hash: &str,
    now: UtcTime,
) -> Option<SpecWrite> {
    let record = node.record.as_ref()?;
    let change = record.spec.open(&record.status).filter(|change| change.stage == Stage::Go)?;
    let has_begun = record.status.result.as_ref().is_some_and(|result| result.number == change.number);
    let is_silent = now >= standing::silent_from(change);
    if has_begun || !(no_more || is_silent) {
        return None;
    }
    let (of, reason) = if is_silent && change.hash == hash {
        let words = "and had not begun when that was called off: its agent is away, or waits until claims have ended, \
                     as its condition `Planned` tells; the node is as it was";
        (change.hash.clone(), format!("told to begin at {}, {words}", change.since))
    } else {
        (String::new(), "called off before it began, for no fault of this node".to_owned())
    };
    Some(write(name, change.number, of, reason, now))
}

/// The number stays taken: a later change has a higher one.
fn write(name: &str, number: u64, hash: String, reason: String, at: UtcTime) -> SpecWrite {
    let withdrawn = Withdrawn { number, hash, reason, at };
    SpecWrite { node: name.to_owned(), spec: SriovNodeSpec { change: None, withdrawn: Some(withdrawn) } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, proptest};

    use super::*;
    use crate::{
        machine::{
            Span, SriovNodeStatus,
            node::{Change, ChangeResult, Outcome},
        },
        rollout::Record,
    };

    fn told(since: u64, result: Option<(u64, Outcome)>) -> Node {
        let change = Change {
            number: 3,
            hash: "h".to_owned(),
            plan: "p".to_owned(),
            stage: Stage::Go,
            since: UtcTime(since),
            confirm_within: Span::seconds(60),
            cordon: false,
        };
        let result = result.map(|(number, outcome)| ChangeResult {
            number,
            hash: "h".to_owned(),
            outcome,
            run: None,
            verdicts: None,
            message: String::new(),
            at: UtcTime(since),
        });
        let record = Record {
            spec: SriovNodeSpec { change: Some(change), withdrawn: None },
            status: SriovNodeStatus { result, ..SriovNodeStatus::default() },
            unreadable: false,
        };
        Node { record: Some(record), ..Node::default() }
    }

    proptest! {
        #[test]
        fn what_was_begun_is_never_called_off(
            later in 0..5000_u64, no_more: bool, before in prop::option::of(0..3_u64), other_hash: bool,
        ) {
            let now = UtcTime(1000 + later);
            let hash = if other_hash { "other" } else { "h" };
            let begun = told(1000, Some((3, Outcome::Applying)));
            assert_eq!(call_off_unbegun("n", &begun, no_more, hash, now), None);
            let unbegun = told(1000, before.map(|number| (number, Outcome::Verified)));
            let silent = later >= 2 * 60 + 900;
            let write = call_off_unbegun("n", &unbegun, no_more, hash, now);
            assert_eq!(write.is_some(), no_more || silent);
            if let Some(withdrawn) = write.and_then(|write| write.spec.withdrawn) {
                // It is the node's failure only where it had all the time.
                assert_eq!(withdrawn.hash == "h", silent && !other_hash);
                assert_eq!(withdrawn.number, 3);
            }
        }
    }
}
