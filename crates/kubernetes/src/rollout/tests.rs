//! Decisions about fleets that are simulated.

use serde_json::json;

use super::*;
use crate::machine::{
    ConditionStatus, condition,
    node::{ChangeResult, Outcome, PlanOutcome, PlanSummary, VanishingVf},
};

mod memory;
mod properties;

fn spec(more: serde_json::Value) -> SriovMachineSpec {
    let mut value = json!({"model": "nics: {NET0: {}}", "nodeSelector": {"role": "rt"}});
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(value).unwrap()
}

/// A fleet and its agents.
struct Fleet {
    machine: Machine,
    nodes: BTreeMap<String, Node>,
    now: UtcTime,
}

impl Fleet {
    fn new(nodes: usize, spec: SriovMachineSpec) -> Fleet {
        let machine = Machine {
            name: "m".to_owned(),
            uid: None,
            generation: Some(1),
            spec: Ok(spec),
            status: SriovMachineStatus::default(),
        };
        let node = |_| Node {
            labels: [("role".to_owned(), "rt".to_owned())].into(),
            ready: true,
            ..Node::default()
        };
        let nodes = (0..nodes).map(|index| (format!("node-{index}"), node(index))).collect();
        Fleet { machine, nodes, now: UtcTime(1_000_000) }
    }

    fn spec(&self) -> &SriovMachineSpec {
        self.machine.spec.as_ref().unwrap()
    }

    fn plan(&mut self, node: &str, outcome: PlanOutcome, steps: u32, vanishing: bool) {
        let hash = self.spec().hash();
        let vanishing: Vec<VanishingVf> = vanishing
            .then(|| VanishingVf { name: "NET0#0".to_owned(), address: "0000:01:10.0".to_owned() })
            .into_iter()
            .collect();
        let plan = PlanSummary {
            machine: "m".to_owned(),
            hash: hash.clone(),
            digest: PlanSummary::digest_of(&vanishing, &[], false),
            outcome,
            steps,
            dangers: Vec::new(),
            vanishing,
            reboot: false,
            message: if outcome == PlanOutcome::Planned {
                String::new()
            } else {
                "ssh:eno1: your connection".to_owned()
            },
            at: self.now,
        };
        let record = self.nodes.get_mut(node).unwrap().record.get_or_insert_default();
        if steps == 0 && outcome == PlanOutcome::Planned {
            let result = ChangeResult {
                number: 0,
                hash,
                outcome: Outcome::Verified,
                run: None,
                verdicts: None,
                message: String::new(),
                at: self.now,
            };
            record.status.result = Some(result);
        }
        record.status.plan = Some(plan);
    }

    fn plan_all(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        names.iter().for_each(|name| self.plan(name, PlanOutcome::Planned, 3, false));
    }

    /// What the agent of a node says of the change that it was told to make.
    fn report(&mut self, node: &str, outcome: Outcome) {
        let now = self.now;
        let record = self.nodes.get_mut(node).unwrap().record.as_mut().unwrap();
        let change =
            record.spec.open(&record.status).filter(|change| change.stage == Stage::Go).cloned().unwrap();
        let result = ChangeResult {
            number: change.number,
            hash: change.hash,
            outcome,
            run: Some(1),
            verdicts: None,
            message: format!("{outcome:?}"),
            at: now,
        };
        record.status.result = Some(result);
    }

    /// What somebody who looked at the pods of a node says of its present change.
    fn drained(&mut self, node: &str, drained: Drained) {
        let node = self.nodes.get_mut(node).unwrap();
        let change = node.record.as_ref().and_then(|record| record.spec.change.as_ref());
        node.drained = change.map(|change| (change.number, drained));
    }

    fn decide(&self) -> RolloutDecision {
        decide(std::slice::from_ref(&self.machine), &self.nodes, self.now)
    }

    /// Decides and does it.
    fn step(&mut self) -> RolloutDecision {
        let decision = self.decide();
        for (name, cordon) in &decision.cordons {
            let node = self.nodes.get_mut(name).unwrap();
            (node.cordoned, node.cordoned_for) = match cordon {
                Cordon::On(number) => (true, Some(*number)),
                Cordon::Off => (false, None),
            };
        }
        for write in &decision.writes {
            self.nodes.get_mut(&write.node).unwrap().record.get_or_insert_default().spec = write.spec.clone();
        }
        if let Some(status) = decision.statuses.get("m") {
            self.machine.status = status.clone();
        }
        // Whoever looks at pods forgets what was seen of a node that is not drained: changes of a SriovNode that is made anew count from 1 again.
        for (name, node) in &mut self.nodes {
            node.drained = node.drained.take().filter(|_| decision.draining.contains(name));
        }
        decision
    }

    fn told(&self, stage: Stage) -> Vec<&str> {
        self.nodes
            .iter()
            .filter(|(_, node)| {
                node.record
                    .as_ref()
                    .and_then(|record| record.spec.open(&record.status))
                    .is_some_and(|change| change.stage == stage)
            })
            .map(|(name, _)| name.as_str())
            .collect()
    }

    fn said(&self, kind: &str) -> (&str, &str) {
        let condition = condition::find(&self.machine.status.conditions, kind).unwrap();
        (condition.reason.as_str(), condition.message.as_str())
    }

    fn unavailable(&self) -> usize {
        let matched = self.matched().map(|(name, node)| (node, self.standing(name, node)));
        matched.filter(|(node, standing)| standing::is_unavailable(node, standing)).count()
    }

    /// The nodes that the machine selects.
    fn matched(&self) -> impl Iterator<Item = (&String, &Node)> {
        self.nodes.iter().filter(|(_, node)| self.spec().selects(&node.labels))
    }

    fn standing(&self, name: &str, node: &Node) -> Standing {
        let hash = self.spec().hash();
        let remembered = super::memory::of(&self.machine.status, &hash);
        standing::of(node, &hash, None, remembered.get(name), self.now)
    }
}

#[test]
fn nobody_is_told_before_all_have_planned() {
    let mut fleet = Fleet::new(3, spec(json!({"rollout": {"maxUnavailable": 3, "canary": 0}})));
    fleet.plan("node-0", PlanOutcome::Planned, 3, false);
    fleet.plan("node-1", PlanOutcome::Planned, 3, false);
    assert!(fleet.step().writes.is_empty());
    assert_eq!(
        fleet.said("Progressing"),
        ("Planning", "1 of 3 nodes have not planned this model yet, and no node is changed before: node-2")
    );
    fleet.plan("node-2", PlanOutcome::Planned, 3, false);
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-0", "node-1", "node-2"]);
}

#[test]
fn one_that_refuses_stops_all_unless_the_others_may_go_on() {
    let mut fleet = Fleet::new(3, spec(json!({})));
    fleet.plan_all();
    fleet.plan("node-1", PlanOutcome::Refused, 3, false);
    assert!(fleet.step().writes.is_empty());
    assert_eq!(fleet.said("Degraded"), ("NodeRefused", "node-1: ssh:eno1: your connection"));
    assert!(fleet.said("Progressing").1.contains("spec.rollout.partial"), "{:?}", fleet.said("Progressing"));
    assert_eq!(fleet.machine.status.refused, 1);
    fleet.machine.spec.as_mut().unwrap().rollout.partial = true;
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-0"]);
}

#[test]
fn the_canary_holds_before_the_others_follow_in_waves() {
    let mut fleet = Fleet::new(6, spec(json!({"rollout": {"maxUnavailable": "50%"}})));
    fleet.plan_all();
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-0"]);
    fleet.report("node-0", Outcome::Applying);
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-0"]);
    fleet.report("node-0", Outcome::Verified);
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-1", "node-2", "node-3"]);
    // A node that somebody else cordons leaves less room.
    fleet.report("node-1", Outcome::Verified);
    fleet.nodes.get_mut("node-5").unwrap().cordoned = true;
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-2", "node-3"]);
    fleet.report("node-2", Outcome::Verified);
    fleet.report("node-3", Outcome::Verified);
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-4"]);
    fleet.report("node-4", Outcome::Verified);
    fleet.step();
    assert_eq!(
        fleet.said("Progressing"),
        ("RollingOut", "5 of 6 nodes are what the model says; cordoned: node-5")
    );
    fleet.nodes.get_mut("node-5").unwrap().cordoned = false;
    fleet.step();
    fleet.report("node-5", Outcome::Verified);
    fleet.step();
    assert_eq!(fleet.said("Ready"), ("AllNodesReady", "all 6 nodes are what the model says, and ready"));
    assert_eq!(fleet.said("Progressing").0, "Complete");
}

/// A selector that is misspelt.
#[test]
fn without_nodes_a_machine_is_not_ready_and_not_complete() {
    let mut fleet = Fleet::new(0, spec(json!({})));
    fleet.step();
    let words = "no node has the labels of spec.nodeSelector";
    assert_eq!((fleet.said("Ready"), fleet.said("Progressing")), (("NoNodes", words), ("NoNodes", words)));
    let ready = condition::find(&fleet.machine.status.conditions, "Ready").unwrap();
    assert_eq!(ready.status, ConditionStatus::Unknown);
}

#[test]
fn one_that_takes_it_back_stops_the_wave() {
    let mut fleet = Fleet::new(4, spec(json!({"rollout": {"maxUnavailable": 4}})));
    fleet.plan_all();
    fleet.step();
    fleet.report("node-0", Outcome::RolledBack);
    assert!(fleet.step().writes.is_empty());
    assert_eq!(fleet.said("Degraded"), ("NodeFailed", "node-0: RolledBack"));
    let (reason, message) = fleet.said("Progressing");
    assert_eq!(reason, "Stopped");
    assert!(
        message.contains("stopped after 1 failed") && message.contains("raise spec.attempt"),
        "{message}"
    );
    // Another attempt is planned and begun anew.
    fleet.machine.spec.as_mut().unwrap().attempt = 1;
    assert!(fleet.step().writes.is_empty());
    fleet.plan_all();
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-0"]);
    let record = fleet.nodes["node-0"].record.as_ref().unwrap();
    assert_eq!(record.spec.change.as_ref().unwrap().number, 2);
}

#[test]
fn pause_lets_what_was_begun_end_and_begins_nothing() {
    let mut fleet = Fleet::new(3, spec(json!({"rollout": {"canary": 0}})));
    fleet.plan_all();
    fleet.step();
    fleet.report("node-0", Outcome::Applying);
    fleet.machine.spec.as_mut().unwrap().rollout.pause = true;
    assert!(fleet.step().writes.is_empty());
    assert_eq!(fleet.told(Stage::Go), ["node-0"]);
    fleet.report("node-0", Outcome::Verified);
    assert!(fleet.step().writes.is_empty());
    assert_eq!(fleet.said("Progressing").0, "Paused");
}

#[test]
fn a_drain_that_comes_to_no_end_leaves_the_node_as_it_was() {
    let mut fleet = Fleet::new(2, spec(json!({"drain": {"timeout": "5m"}})));
    for name in ["node-0", "node-1"] {
        fleet.plan(name, PlanOutcome::Planned, 3, true);
    }
    let decision = fleet.step();
    assert_eq!(fleet.told(Stage::Drain), ["node-0"]);
    assert!(decision.draining.is_empty());
    let decision = fleet.step();
    assert_eq!(decision.draining, ["node-0".to_owned()].into());
    assert_eq!(decision.next, Some(fleet.now.after(Duration::from_secs(300))));
    fleet.drained("node-0", Drained::Waiting("pod a/b may not be evicted: a budget".to_owned()));
    fleet.now = fleet.now.after(Duration::from_secs(299));
    assert!(fleet.step().writes.is_empty());
    assert!(
        fleet.said("Progressing").1.contains("node-0 is drained: pod a/b may not be evicted"),
        "{:?}",
        fleet.said("Progressing")
    );
    fleet.now = fleet.now.after(Duration::from_secs(1));
    fleet.step();
    assert!(fleet.told(Stage::Drain).is_empty());
    fleet.step();
    assert_eq!(
        fleet.said("Degraded"),
        (
            "NodeFailed",
            "node-0: not drained within 5m: pod a/b may not be evicted: a budget; the node is as it was"
        )
    );
    assert_eq!(fleet.machine.status.unavailable, 0);
    assert!(fleet.told(Stage::Drain).is_empty() && fleet.told(Stage::Go).is_empty());
}

#[test]
fn a_drained_node_is_told_to_go_on_with_the_same_change() {
    let mut fleet = Fleet::new(1, spec(json!({})));
    fleet.plan("node-0", PlanOutcome::Planned, 3, true);
    fleet.step();
    let number = fleet.nodes["node-0"].record.as_ref().unwrap().spec.change.as_ref().unwrap().number;
    fleet.drained("node-0", Drained::Clear);
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-0"]);
    assert_eq!(fleet.nodes["node-0"].record.as_ref().unwrap().spec.change.as_ref().unwrap().number, number);
}

#[test]
fn a_node_that_is_drained_as_a_whole_takes_no_pods_until_its_change_has_ended() {
    let on = |fleet: &Fleet| (fleet.nodes["node-0"].cordoned, fleet.nodes["node-0"].cordoned_for);
    for (outcome, after) in [
        (Outcome::Verified, (false, None)),
        (Outcome::RolledBack, (false, None)),
        (Outcome::Failed, (false, None)),
        (Outcome::Lapsed, (false, None)),
        (Outcome::HalfWay, (true, Some(1))),
    ] {
        let mut fleet = Fleet::new(2, spec(json!({"drain": {"mode": "node"}})));
        fleet.plan_all();
        fleet.step();
        // Also where no VF vanishes.
        assert_eq!(fleet.told(Stage::Drain), ["node-0"]);
        assert_eq!(on(&fleet), (false, None));
        fleet.step();
        assert_eq!(on(&fleet), (true, Some(1)));
        fleet.drained("node-0", Drained::Clear);
        fleet.step();
        assert_eq!(fleet.told(Stage::Go), ["node-0"]);
        // Somebody lets it take pods again too early.
        fleet.nodes.get_mut("node-0").unwrap().cordoned = false;
        fleet.step();
        assert_eq!(on(&fleet), (true, Some(1)));
        // What is not known to have ended keeps it so: its SriovNode cannot be read, or is gone.
        let record = fleet.nodes.get_mut("node-0").unwrap().record.take();
        assert!(fleet.decide().cordons.is_empty());
        fleet.nodes.get_mut("node-0").unwrap().record = Some(Record::default());
        assert!(fleet.decide().cordons.is_empty());
        fleet.nodes.get_mut("node-0").unwrap().record = record;
        fleet.report("node-0", outcome);
        fleet.step();
        assert_eq!(on(&fleet), after, "{outcome}");
    }
}

#[test]
fn a_drain_that_is_called_off_uncordons_its_node_and_no_other() {
    let mut fleet = Fleet::new(
        2,
        spec(json!({"drain": {"mode": "node", "timeout": "5m"}, "rollout": {"maxUnavailable": 2}})),
    );
    fleet.plan_all();
    fleet.nodes.get_mut("node-1").unwrap().cordoned = true;
    fleet.step();
    fleet.step();
    assert!(fleet.nodes["node-0"].cordoned);
    fleet.now = fleet.now.after(Duration::from_secs(301));
    fleet.step();
    assert!(fleet.told(Stage::Drain).is_empty());
    fleet.step();
    assert!(!fleet.nodes["node-0"].cordoned && fleet.nodes["node-1"].cordoned);
    assert!(fleet.decide().cordons.is_empty());
}

#[test]
fn a_drain_is_called_off_when_the_model_changes_or_the_node_is_no_longer_meant() {
    for change in [
        |fleet: &mut Fleet| fleet.machine.spec.as_mut().unwrap().model.push('#'),
        |fleet: &mut Fleet| fleet.machine.spec.as_mut().unwrap().rollout.pause = true,
        |fleet: &mut Fleet| fleet.nodes.get_mut("node-0").unwrap().labels.clear(),
    ] {
        let mut fleet = Fleet::new(1, spec(json!({})));
        fleet.plan("node-0", PlanOutcome::Planned, 3, true);
        fleet.step();
        assert_eq!(fleet.told(Stage::Drain), ["node-0"]);
        change(&mut fleet);
        fleet.step();
        assert!(fleet.told(Stage::Drain).is_empty());
        assert!(fleet.decide().writes.is_empty());
        fleet.step();
        assert_eq!(fleet.machine.status.failed, 0);
    }
}

#[test]
fn a_node_that_says_nothing_counts_as_failed_in_the_end_and_is_taken_back_in_when_it_speaks() {
    let mut fleet = Fleet::new(2, spec(json!({})));
    fleet.plan_all();
    fleet.step();
    fleet.report("node-0", Outcome::Applying);
    let next = fleet.decide().next.unwrap();
    assert_eq!(next.since(fleet.now), Duration::from_secs(2 * 120 + 900));
    fleet.now = next;
    fleet.step();
    assert!(
        fleet.said("Degraded").1.starts_with("node-0: told to begin at "),
        "{:?}",
        fleet.said("Degraded")
    );
    fleet.report("node-0", Outcome::Verified);
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-1"]);
    assert_eq!(fleet.said("Degraded").0, "AsExpected");
}

#[test]
fn who_has_not_begun_is_told_no_more_when_nobody_is_to_begin() {
    // Paused.
    let mut fleet =
        Fleet::new(2, spec(json!({"rollout": {"canary": 0, "maxUnavailable": 2, "pause": false}})));
    fleet.plan_all();
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-0", "node-1"]);
    fleet.report("node-1", Outcome::Applying);
    fleet.machine.spec.as_mut().unwrap().rollout.pause = true;
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-1"]);
    fleet.step();
    assert_eq!(fleet.machine.status.failed, 0);
    fleet.machine.spec.as_mut().unwrap().rollout.pause = false;
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-0", "node-1"]);
    let number = |fleet: &Fleet| fleet.nodes["node-0"].record.clone().unwrap().spec.change.unwrap().number;
    assert_eq!(number(&fleet), 2);
    // Stopped.
    fleet.report("node-1", Outcome::RolledBack);
    fleet.step();
    assert!(fleet.told(Stage::Go).is_empty());
    fleet.step();
    assert_eq!((fleet.machine.status.failed, fleet.said("Progressing").0), (1, "Stopped"));
    // Silent: that is the node's own failure.
    let mut fleet = Fleet::new(2, spec(json!({})));
    fleet.plan_all();
    fleet.step();
    fleet.now = fleet.decide().next.unwrap();
    fleet.step();
    assert!(fleet.told(Stage::Go).is_empty());
    fleet.step();
    let (reason, message) = fleet.said("Degraded");
    assert!(
        reason == "NodeFailed" && message.contains("had not begun when that was called off"),
        "{message}"
    );
}

#[test]
fn two_machines_that_select_one_node_change_neither_and_name_each_other() {
    let mut fleet = Fleet::new(2, spec(json!({})));
    fleet.plan_all();
    let mut other = fleet.machine.clone();
    other.name = "other".to_owned();
    let decision = decide(&[fleet.machine.clone(), other], &fleet.nodes, fleet.now);
    assert!(decision.writes.is_empty());
    let said = &condition::find(&decision.statuses["m"].conditions, "Degraded").unwrap().message;
    assert!(said.contains("node-0: the SriovMachine other selects this node too"), "{said}");
}

#[test]
fn a_spec_that_cannot_be_read_changes_nothing_and_says_why() {
    let mut fleet = Fleet::new(1, spec(json!({})));
    fleet.plan("node-0", PlanOutcome::Planned, 3, true);
    fleet.step();
    fleet.machine.spec = Err("unknown field `soak`".to_owned());
    let decision = fleet.step();
    assert!(decision.writes.is_empty());
    let (reason, message) = fleet.said("Degraded");
    assert_eq!(reason, "Unreadable");
    assert!(message.contains("unknown field `soak`; it may be written for a newer version"), "{message}");
}

#[test]
fn a_node_that_was_started_anew_is_told_again() {
    let mut fleet = Fleet::new(1, spec(json!({})));
    fleet.plan_all();
    fleet.step();
    fleet.report("node-0", Outcome::Verified);
    fleet.step();
    fleet.nodes.get_mut("node-0").unwrap().record.as_mut().unwrap().status.result.as_mut().unwrap().outcome =
        Outcome::Lapsed;
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-0"]);
    assert_eq!(fleet.nodes["node-0"].record.as_ref().unwrap().spec.change.as_ref().unwrap().number, 2);
}

#[test]
fn nothing_to_change_needs_no_grant_and_proves_nothing() {
    let mut fleet = Fleet::new(3, spec(json!({"rollout": {"maxUnavailable": 3}})));
    fleet.plan_all();
    fleet.plan("node-0", PlanOutcome::Planned, 0, false);
    fleet.step();
    assert_eq!(fleet.told(Stage::Go), ["node-1"]);
    assert_eq!(fleet.machine.status.updated, 1);
}
