//! What a machine's status says of its nodes.

use std::collections::BTreeMap;

use super::{Drained, Held, Machine, Node, Standing, standing};
use crate::machine::{
    ConditionStatus, SriovMachineStatus, StatusCondition, UtcTime,
    policy::{FirstFailure, RememberedChange, SriovMachineSpec},
};

/// How many nodes a sentence names.
const NAMED: usize = 5;

/// The reason of what is said where the selector has no node, and the words.
const NO_NODES: (&str, &str) = ("NoNodes", "no node has the labels of spec.nodeSelector");

/// The status of a machine whose spec this program cannot read.
pub(super) fn unreadable(machine: &Machine, why: &str, now: UtcTime) -> SriovMachineStatus {
    let message = format!(
        "this controller cannot read the spec, and changes no node by it: {why}; it may be written for a newer version of Penstock"
    );
    let condition = |kind: &str, status: bool| {
        let condition =
            StatusCondition::new(kind, status, "Unreadable", &message, now).after(&machine.status.conditions);
        StatusCondition { observed_generation: machine.generation, ..condition }
    };
    SriovMachineStatus {
        observed_generation: machine.generation,
        conditions: vec![
            condition("Ready", false),
            condition("Progressing", false),
            condition("Degraded", true),
        ],
        // What has failed counts again as soon as the spec can be read, and is the same one.
        hash: machine.status.hash.clone(),
        changes: machine.status.changes.clone(),
        // What was counted before is of a spec that is not this one.
        ..SriovMachineStatus::default()
    }
}

/// The status of a machine whose nodes stand so; `gone` are those that failed and are not its nodes any more. Hash and memory are not filled in.
pub(super) fn of(
    machine: &Machine,
    spec: &SriovMachineSpec,
    matched: &BTreeMap<&str, (&Node, Standing)>,
    gone: &[&RememberedChange],
    held: Option<Held>,
    now: UtcTime,
) -> SriovMachineStatus {
    let count = |which: &dyn Fn(&Node, &Standing) -> bool| {
        matched.values().filter(|(node, standing)| which(node, standing)).count() as u32
    };
    let done = |_: &Node, standing: &Standing| matches!(standing, Standing::Done { .. });
    let failed = |_: &Node, standing: &Standing| matches!(standing, Standing::Failed { .. });
    let refused = |_: &Node, standing: &Standing| {
        matches!(standing, Standing::Refused { .. } | Standing::Ambiguous { .. })
    };
    let planned =
        |_: &Node, standing: &Standing| !matches!(standing, Standing::Unplanned | Standing::Ambiguous { .. });
    let first = first_failure(matched, gone);
    let mut status = SriovMachineStatus {
        observed_generation: machine.generation,
        matched: matched.len() as u32,
        planned: count(&planned),
        updated: count(&done),
        ready: count(&|node, standing| node.ready && done(node, standing)),
        unavailable: count(&standing::is_unavailable),
        failed: count(&failed) + gone.len() as u32,
        refused: count(&refused),
        first_failure: first,
        ..SriovMachineStatus::default()
    };
    let (goes_on, reason, message) = progress(&status, spec, matched, gone, held);
    // A selector that is misspelt selects none, which is not to pass for a roll-out that has been made.
    let (ready, ready_reason, ready_words) = match status.matched {
        0 => (ConditionStatus::Unknown, NO_NODES.0, NO_NODES.1.to_owned()),
        matched if status.ready == matched => {
            let words = format!("all {matched} nodes are what the model says, and ready");
            (ConditionStatus::True, "AllNodesReady", words)
        }
        matched => {
            let words = format!("{} of {matched} nodes are what the model says, and ready", status.ready);
            (ConditionStatus::False, "NodesNotReady", words)
        }
    };
    let degraded = match (&status.first_failure, status.failed + status.refused) {
        (None, _) | (_, 0) => (false, "AsExpected", String::new()),
        (Some(first), 1) => (
            true,
            if status.failed > 0 { "NodeFailed" } else { "NodeRefused" },
            format!("{}: {}", first.node, first.message),
        ),
        (Some(first), some) => (
            true,
            if status.failed > 0 { "NodesFailed" } else { "NodesRefused" },
            format!("{some} nodes, the first of them {}: {}", first.node, first.message),
        ),
    };
    let condition = |kind: &str, holds: ConditionStatus, reason: &str, message: &str| {
        let condition =
            StatusCondition::new(kind, holds, reason, message, now).after(&machine.status.conditions);
        StatusCondition { observed_generation: machine.generation, ..condition }
    };
    status.conditions = vec![
        condition("Ready", ready, ready_reason, &ready_words),
        condition("Progressing", goes_on.into(), reason, &message),
        condition("Degraded", degraded.0.into(), degraded.1, &degraded.2),
    ];
    status
}

/// What to do about nodes that refuse a model, as far as it helps here.
fn ways_out(status: &SriovMachineStatus, matched: &BTreeMap<&str, (&Node, Standing)>) -> String {
    let endangered = |node: &Node| {
        let plan = node.record.as_ref().and_then(|record| record.status.plan.as_ref());
        plan.is_some_and(|plan| !plan.dangers.is_empty())
    };
    let mut ways = vec!["change the model"];
    if matched
        .values()
        .any(|(node, standing)| matches!(standing, Standing::Refused { .. }) && endangered(node))
    {
        ways.push("allow the danger by its name in spec.allow");
    }
    if status.refused < status.matched {
        ways.push("go on with the others by spec.rollout.partial");
    }
    ways.join("; or ")
}

/// The first node by name that failed, or else one that failed and is gone, or else one that refused.
fn first_failure(
    matched: &BTreeMap<&str, (&Node, Standing)>,
    gone: &[&RememberedChange],
) -> Option<FirstFailure> {
    let failed = matched.iter().find_map(|(node, (_, standing))| match standing {
        Standing::Failed { message, at, .. } => {
            Some(FirstFailure { node: (*node).to_owned(), message: message.clone(), at: Some(*at) })
        }
        _ => None,
    });
    let gone = gone.first().map(|change| FirstFailure {
        node: change.node.clone(),
        message: change.message.clone(),
        at: Some(change.at),
    });
    failed.or(gone).or_else(|| {
        matched.iter().find_map(|(node, (_, standing))| match standing {
            Standing::Refused { message, at } => {
                Some(FirstFailure { node: (*node).to_owned(), message: message.clone(), at: Some(*at) })
            }
            Standing::Ambiguous { other } => {
                let message = format!(
                    "the SriovMachine {other} selects this node too, and neither changes it: give it labels that only one of them selects"
                );
                Some(FirstFailure { node: (*node).to_owned(), message, at: None })
            }
            _ => None,
        })
    })
}

/// Some names in a sentence.
fn named(names: &[String]) -> String {
    match names.len() {
        some if some <= NAMED => names.join(", "),
        some => format!("{} and {} more", names[..NAMED].join(", "), some - NAMED),
    }
}

/// Whether nodes are being changed, and what is waited for.
fn progress(
    status: &SriovMachineStatus,
    spec: &SriovMachineSpec,
    matched: &BTreeMap<&str, (&Node, Standing)>,
    gone: &[&RememberedChange],
    held: Option<Held>,
) -> (bool, &'static str, String) {
    let those = |which: &dyn Fn(&Node, &Standing) -> bool| -> Vec<String> {
        let those = matched.iter().filter(|(_, (node, standing))| which(node, standing));
        those.map(|(name, _)| (*name).to_owned()).collect()
    };
    let names = |which: &dyn Fn(&Node, &Standing) -> bool| named(&those(which));
    let under_way = |_: &Node, standing: &Standing| {
        matches!(standing, Standing::Draining { .. } | Standing::Granted { .. })
    };
    let at_work = match names(&under_way) {
        none if none.is_empty() => String::new(),
        some => format!("; being changed: {some}"),
    };
    match held {
        _ if status.matched == 0 => (false, NO_NODES.0, NO_NODES.1.to_owned()),
        _ if status.updated == status.matched => (
            false,
            "Complete",
            format!("{} of {} nodes are what the model says", status.updated, status.matched),
        ),
        Some(Held::Paused) => (
            !at_work.is_empty(),
            "Paused",
            format!("spec.rollout.pause: no further node is changed{at_work}"),
        ),
        Some(Held::Failures(failures)) => (
            !at_work.is_empty(),
            "Stopped",
            format!(
                "stopped after {failures} failed (spec.rollout.stopAfterFailures: {}): {}{at_work}; mend the cause, then raise spec.attempt or \
                 change the model",
                spec.rollout.stop_after_failures,
                named(
                    &those(&|_, standing| matches!(standing, Standing::Failed { .. }))
                        .into_iter()
                        .chain(gone.iter().map(|change| format!("{} (gone)", change.node)))
                        .collect::<Vec<_>>()
                ),
            ),
        ),
        Some(Held::Unplanned(some)) => {
            let unready = names(&|node, standing| matches!(standing, Standing::Unplanned) && !node.ready);
            let unready = if unready.is_empty() { unready } else { format!("; not ready: {unready}") };
            let partial = if unready.is_empty() { "" } else { " (spec.rollout.partial does without these)" };
            let message = format!(
                "{some} of {} nodes have not planned this model yet, and no node is changed before: {}{unready}{partial}{at_work}",
                status.matched,
                names(&|_, standing| matches!(standing, Standing::Unplanned)),
            );
            (true, "Planning", message)
        }
        Some(Held::Refused(some)) => (
            !at_work.is_empty(),
            "Refused",
            format!(
                "{some} of {} nodes refuse this model or cannot have it, and no node is changed: {}{at_work}; {}",
                status.matched,
                names(&|_, standing| matches!(
                    standing,
                    Standing::Refused { .. } | Standing::Ambiguous { .. }
                )),
                ways_out(status, matched),
            ),
        ),
        None => {
            let waiting = |which: &dyn Fn(&Node) -> bool| {
                names(&|node, standing| matches!(standing, Standing::Waiting) && which(node))
            };
            let blocked: Vec<String> = [
                ("not ready", waiting(&|node| !node.ready)),
                ("cordoned", waiting(&|node| node.ready && node.cordoned)),
            ]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(what, names)| format!("; {what}: {names}"))
            .collect();
            let drains: Vec<String> = matched
                .iter()
                .filter_map(|(name, (node, standing))| match standing {
                    Standing::Draining { change } => match node.drained_for(change) {
                        Some(Drained::Waiting(why)) => Some(format!("; {name} is drained: {why}")),
                        Some(Drained::Clear) | None => None,
                    },
                    _ => None,
                })
                .take(NAMED)
                .collect();
            let message = format!(
                "{} of {} nodes are what the model says{at_work}{}{}",
                status.updated,
                status.matched,
                drains.concat(),
                blocked.concat()
            );
            (true, "RollingOut", message)
        }
    }
}
