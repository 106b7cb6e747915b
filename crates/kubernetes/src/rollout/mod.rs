//! How models reach nodes: what is decided from what is there, and nothing else. Nothing here reads a clock or a cluster.
//!
//! The rules, in the order in which they count:
//!
//! 1. No node is told anything before each node that the selector matches has planned this very model. One that refuses, or cannot, stops all;
//!    with `partial` the others go on, and nodes that are not ready are not waited for.
//! 2. First `canary` nodes; the others when these hold.
//! 3. At no time are more than `maxUnavailable` matched nodes unavailable: not ready, cordoned by whomever, being changed, or failed.
//! 4. With `drain.mode: node` a node is cordoned before anything else is done for its change, and uncordoned when that has ended: by whoever
//!    cordoned it alone, and not where the change was left half-way.
//! 5. When `stopAfterFailures` nodes have failed nobody is told to begin any more, and who is being drained is left as it is; who was told and has not begun is
//!    told no more, as with `pause`, and where it says nothing for too long. A node that goes
//!    after it failed, or while it is changed, counts too: the machine remembers it.
//!
//! To decide twice about the same writes nothing the second time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::machine::{
    SriovMachineStatus, SriovNodeSpec, SriovNodeStatus, UtcTime,
    node::{Change, Outcome, Stage, Withdrawn},
    policy::{DrainMode, RememberedChange, SriovMachineSpec},
};

mod called_off;
pub mod drain;
mod memory;
mod setback;
mod standing;
mod summary;

use called_off::{call_off, call_off_unbegun};
pub use setback::Setback;
pub use standing::Standing;

/// How much longer than twice the time to confirm within a node may say nothing of a change; then it counts as failed. `apply` itself takes
/// minutes where guests are started.
pub const SILENCE: Duration = Duration::from_secs(900);

/// A `SriovMachine` as far as is decided by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Option<String>,
    /// Its generation.
    pub generation: Option<i64>,
    /// Its spec, or why it cannot be read.
    pub spec: Result<SriovMachineSpec, String>,
    /// Its status as it is now.
    pub status: SriovMachineStatus,
}

/// A node as far as is decided by it.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether kubelet reports it ready.
    pub ready: bool,
    /// Whether it takes no new pods (`spec.unschedulable`), whoever said so.
    pub cordoned: bool,
    /// The change that a controller cordoned it for.
    pub cordoned_for: Option<u64>,
    /// What its agent and the controller wrote of it.
    pub record: Option<Record>,
    /// How far it is drained, where somebody has looked, and the number of the change that this was for.
    pub drained: Option<(u64, Drained)>,
}

impl Node {
    /// How far it is drained for a change.
    fn drained_for(&self, change: &Change) -> Option<&Drained> {
        self.drained.as_ref().filter(|(number, _)| *number == change.number).map(|(_, drained)| drained)
    }
}

/// A `SriovNode`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What it is told.
    pub spec: SriovNodeSpec,
    /// What it says.
    pub status: SriovNodeStatus,
    /// Whether what is there cannot be read: nothing of the above is known then.
    pub unreadable: bool,
}

/// How far a node is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drained {
    /// No pod has a VF that vanishes, and none can get one; with `drain.mode: node`, no pod that has to leave is there, and none can come.
    Clear,
    /// Not yet, for this reason.
    Waiting(String),
}

/// A write to the spec of a `SriovNode`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecWrite {
    /// The node.
    pub node: String,
    /// What it is told from now on.
    pub spec: SriovNodeSpec,
}

/// A write to a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cordon {
    /// It takes no new pods, for the change with this number.
    On(u64),
    /// It takes pods again.
    Off,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutDecision {
    /// Specs of nodes to write, in order.
    pub writes: Vec<SpecWrite>,
    /// Nodes to cordon or to uncordon.
    pub cordons: BTreeMap<String, Cordon>,
    /// Statuses of machines that are not what they should be.
    pub statuses: BTreeMap<String, SriovMachineStatus>,
    /// The nodes that are being drained: somebody has to look at their pods.
    pub draining: BTreeSet<String>,
    /// The nodes that refuse or failed, by machine.
    pub setbacks: BTreeMap<String, BTreeSet<Setback>>,
    /// When something changes by time alone.
    pub next: Option<UtcTime>,
}

/// Decides about all machines.
pub fn decide(machines: &[Machine], nodes: &BTreeMap<String, Node>, now: UtcTime) -> RolloutDecision {
    let mut decision = RolloutDecision { cordons: cordons(nodes), ..RolloutDecision::default() };
    let mut owned: BTreeSet<&str> = BTreeSet::new();
    for machine in machines {
        if let Ok(spec) = &machine.spec {
            owned.extend(
                nodes.iter().filter(|(_, node)| spec.selects(&node.labels)).map(|(name, _)| name.as_str()),
            );
        }
        let status = one(machine, machines, nodes, now, &mut decision);
        if status != machine.status {
            decision.statuses.insert(machine.name.clone(), status);
        }
    }
    // Nobody drains a node that no machine has any more. One that was told to go comes to its end by itself. While a machine cannot be
    // read, nobody knows whose nodes are whose.
    if machines.iter().all(|machine| machine.spec.is_ok()) {
        for (name, node) in nodes.iter().filter(|(name, _)| !owned.contains(name.as_str())) {
            if let Some(write) = call_off(name, node) {
                decision.writes.push(write);
            }
        }
    }
    decision
}

/// Which nodes are to be cordoned, and which of those that a controller has cordoned take pods again. A node that somebody else has cordoned is left
/// alone.
fn cordons(nodes: &BTreeMap<String, Node>) -> BTreeMap<String, Cordon> {
    let of = |node: &Node| {
        let record = node.record.as_ref()?;
        let open = record.spec.open(&record.status).filter(|change| change.cordon);
        if let Some(change) = open {
            return (!node.cordoned).then_some(Cordon::On(change.number));
        }
        let number = node.cordoned_for?;
        // A SriovNode that was made anew tells nothing of the change. An agent that plans is at none.
        let forgotten = !record.unreadable
            && record.spec.change.is_none()
            && record.spec.next_number(&record.status) <= number
            && record.status.plan.is_some();
        if !forgotten && !record.spec.has_ended(&record.status, number) {
            return None;
        }
        let result = record.status.result.as_ref().filter(|result| result.number == number);
        let half_way = result.is_some_and(|result| result.outcome == Outcome::HalfWay);
        (!half_way).then_some(Cordon::Off)
    };
    nodes.iter().filter_map(|(name, node)| Some((name.clone(), of(node)?))).collect()
}

/// Decides about one machine.
fn one(
    machine: &Machine,
    machines: &[Machine],
    nodes: &BTreeMap<String, Node>,
    now: UtcTime,
    decision: &mut RolloutDecision,
) -> SriovMachineStatus {
    let spec = match &machine.spec {
        Ok(spec) => spec,
        Err(why) => return summary::unreadable(machine, why, now),
    };
    let hash = spec.hash();
    let remembered = memory::of(&machine.status, &hash);
    let matched: BTreeMap<&str, (&Node, Standing)> = nodes
        .iter()
        .filter(|(_, node)| spec.selects(&node.labels))
        .map(|(name, node)| {
            let other = machines.iter().find(|other| {
                other.name != machine.name && other.spec.as_ref().is_ok_and(|spec| spec.selects(&node.labels))
            });
            let other = other.map(|other| other.name.as_str());
            let standing = standing::of(node, &hash, other, remembered.get(name), now);
            (name.as_str(), (node, standing))
        })
        .collect();
    let remembered = memory::after(&remembered, &matched, nodes, &hash, now);
    let gone: Vec<&RememberedChange> = remembered
        .values()
        .filter(|change| change.reason.is_some() && !matched.contains_key(change.node.as_str()))
        .collect();
    let setbacks = matched.iter().filter_map(|(name, (node, standing))| setback::of(name, node, standing));
    let setbacks = setbacks.chain(gone.iter().map(|change| setback::of_remembered(change)));
    decision.setbacks.insert(machine.name.clone(), setbacks.collect());
    let count = |which: &dyn Fn(&Node, &Standing) -> bool| {
        matched.values().filter(|(node, standing)| which(node, standing)).count()
    };
    let failures = count(&|_, standing| matches!(standing, Standing::Failed { .. })) + gone.len();
    let unavailable = count(&standing::is_unavailable);
    let partial = spec.rollout.partial;
    let refused =
        count(&|_, standing| matches!(standing, Standing::Refused { .. } | Standing::Ambiguous { .. }));
    let unplanned =
        count(&|node, standing| matches!(standing, Standing::Unplanned) && (node.ready || !partial));
    let stopped = failures >= (spec.rollout.stop_after_failures as usize).max(1);
    let held = if spec.rollout.pause {
        Some(Held::Paused)
    } else if stopped {
        Some(Held::Failures(failures))
    } else if unplanned > 0 {
        Some(Held::Unplanned(unplanned))
    } else if refused > 0 && !partial {
        Some(Held::Refused(refused))
    } else {
        None
    };
    for (name, (node, standing)) in &matched {
        let Standing::Draining { change } = standing else { continue };
        // What waits for a plan of a node that is new, or was started anew, goes on when that is there.
        let goes_on = matches!(held, None | Some(Held::Unplanned(_))) && change.hash == hash;
        let plan_is_other = node
            .record
            .as_ref()
            .and_then(|record| record.status.plan.as_ref())
            .is_none_or(|plan| plan.digest != change.plan || plan.hash != change.hash);
        if !goes_on || plan_is_other {
            decision.writes.extend(call_off(name, node));
            continue;
        }
        let until = change.since.after(spec.drain.timeout.0);
        match node.drained_for(change) {
            Some(Drained::Clear) if held.is_none() && (node.cordoned || !change.cordon) => {
                let change = Change { stage: Stage::Go, since: now, ..change.clone() };
                let withdrawn = node.record.as_ref().and_then(|record| record.spec.withdrawn.clone());
                let spec = SriovNodeSpec { change: Some(change), withdrawn };
                decision.writes.push(SpecWrite { node: (*name).to_owned(), spec });
            }
            drained if now >= until => {
                let why = match drained {
                    Some(Drained::Waiting(why)) => why.as_str(),
                    Some(Drained::Clear) => "other nodes had not planned yet",
                    None => "nobody could look at its pods",
                };
                let withdrawn = Withdrawn {
                    number: change.number,
                    hash: change.hash.clone(),
                    reason: format!(
                        "not drained within {}: {why}; the node is as it was",
                        spec.drain.timeout
                    ),
                    at: now,
                };
                let spec = SriovNodeSpec { change: None, withdrawn: Some(withdrawn) };
                decision.writes.push(SpecWrite { node: (*name).to_owned(), spec });
            }
            _ => {
                decision.draining.insert((*name).to_owned());
                decision.next = earliest(decision.next, until);
            }
        }
    }
    for (name, (node, standing)) in &matched {
        let no_more = matches!(held, Some(Held::Paused | Held::Failures(_)));
        if let Some(write) = call_off_unbegun(name, node, no_more, &hash, now) {
            decision.writes.push(write);
        } else if let Standing::Granted { until, .. } = standing
            && *until > now
        {
            decision.next = earliest(decision.next, *until);
        }
    }
    if held.is_none() {
        let under_way =
            count(&|_, standing| matches!(standing, Standing::Draining { .. } | Standing::Granted { .. }));
        let proven = count(&|_, standing| matches!(standing, Standing::Done { changed: true }));
        let mut budget = spec.rollout.max_unavailable.of(matched.len()).saturating_sub(unavailable);
        let canaries = spec.rollout.canary as usize;
        if proven < canaries {
            budget = budget.min((canaries - proven).saturating_sub(under_way));
        }
        let may_begin = |(_, (node, standing)): &(&&str, &(&Node, Standing))| {
            matches!(standing, Standing::Waiting) && node.ready && !node.cordoned
        };
        for (name, (node, _)) in matched.iter().filter(may_begin).take(budget) {
            decision.writes.extend(begin(name, node, spec, &hash, now));
        }
    }
    let mut status = summary::of(machine, spec, &matched, &gone, held, now);
    status.hash = hash;
    status.changes = memory::listed(remembered, &matched);
    status
}

/// Why no node is told to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// The user says so.
    Paused,
    /// So many failed.
    Failures(usize),
    /// So many have no plan yet.
    Unplanned(usize),
    /// So many refuse or cannot.
    Refused(usize),
}

/// Tells a node to begin: with its drain where something vanishes, else with the change.
fn begin(name: &str, node: &Node, spec: &SriovMachineSpec, hash: &str, now: UtcTime) -> Option<SpecWrite> {
    let record = node.record.as_ref()?;
    let plan = record.status.plan.as_ref()?;
    let drains = match spec.drain.mode {
        DrainMode::Claims => !plan.vanishing.is_empty(),
        DrainMode::Node => true,
        DrainMode::None => false,
    };
    let change = Change {
        number: record.spec.next_number(&record.status),
        hash: hash.to_owned(),
        plan: plan.digest.clone(),
        stage: if drains { Stage::Drain } else { Stage::Go },
        since: now,
        confirm_within: spec.confirm_within(),
        cordon: spec.drain.mode == DrainMode::Node,
    };
    let spec = SriovNodeSpec { change: Some(change), withdrawn: record.spec.withdrawn.clone() };
    Some(SpecWrite { node: name.to_owned(), spec })
}

fn earliest(one: Option<UtcTime>, other: UtcTime) -> Option<UtcTime> {
    Some(one.map_or(other, |one| one.min(other)))
}

#[cfg(test)]
mod tests;
