//! Failures of nodes that are not there any more.

use serde_json::json;

use super::*;

/// How a node is lost from sight, and what does that.
type Way = (&'static str, fn(&mut Fleet));

const WAYS: [Way; 4] = [
    ("the Node goes", |fleet| {
        fleet.nodes.remove("node-0");
    }),
    ("its label goes", |fleet| fleet.nodes.get_mut("node-0").unwrap().labels.clear()),
    ("its SriovNode goes", |fleet| fleet.nodes.get_mut("node-0").unwrap().record = None),
    ("its SriovNode is made anew", |fleet| {
        fleet.nodes.get_mut("node-0").unwrap().record = None;
        fleet.plan("node-0", PlanOutcome::Planned, 3, false);
    }),
];

#[test]
fn a_failure_counts_when_its_node_goes() {
    for (way, goes) in WAYS {
        let mut fleet = Fleet::new(3, spec(json!({"rollout": {"maxUnavailable": 3}})));
        fleet.plan_all();
        fleet.step();
        fleet.report("node-0", Outcome::RolledBack);
        fleet.step();
        goes(&mut fleet);
        assert!(fleet.step().writes.is_empty(), "{way}");
        assert_eq!(fleet.machine.status.failed, 1, "{way}");
        assert!(fleet.said("Degraded").1.starts_with("node-0: RolledBack"), "{way}");
        assert!(fleet.step().statuses.is_empty(), "{way}");
        // A spec that cannot be read for a while forgets nothing.
        let readable = std::mem::replace(&mut fleet.machine.spec, Err("unknown field".to_owned()));
        fleet.step();
        fleet.machine.spec = readable;
        assert!(fleet.step().writes.is_empty(), "{way}");
        assert_eq!(fleet.said("Progressing").0, "Stopped", "{way}");
        // Another attempt is one with those that are there.
        fleet.machine.spec.as_mut().unwrap().attempt = 1;
        fleet.step();
        fleet.plan_all();
        fleet.step();
        assert!(fleet.machine.status.failed == 0 && fleet.told(Stage::Go).len() == 1, "{way}");
    }
}

#[test]
fn a_node_that_goes_while_it_is_changed_has_failed() {
    for (way, goes) in [WAYS[0], WAYS[2], WAYS[3]] {
        let mut fleet = Fleet::new(3, spec(json!({})));
        fleet.plan_all();
        fleet.step();
        fleet.step();
        assert_eq!(fleet.told(Stage::Go), ["node-0"]);
        goes(&mut fleet);
        let decision = fleet.step();
        assert!(decision.writes.is_empty(), "{way}");
        let setback = decision.setbacks["m"].first().unwrap();
        assert_eq!((setback.node.as_str(), setback.reason.as_str()), ("node-0", "Gone"), "{way}");
        assert_eq!(fleet.said("Progressing").0, "Stopped", "{way}");
        assert!(fleet.step().statuses.is_empty(), "{way}");
    }
    // One whose agent tells the result in a SriovNode that was made anew has said how it ended.
    let mut fleet = Fleet::new(2, spec(json!({})));
    fleet.plan_all();
    fleet.step();
    fleet.step();
    fleet.report("node-0", Outcome::Verified);
    let status = fleet.nodes["node-0"].record.clone().unwrap().status;
    fleet.nodes.get_mut("node-0").unwrap().record = None;
    fleet.step();
    assert_eq!(fleet.machine.status.failed, 1);
    fleet.nodes.get_mut("node-0").unwrap().record = Some(Record { status, ..Record::default() });
    fleet.step();
    assert_eq!((fleet.machine.status.failed, fleet.told(Stage::Go)), (0, vec!["node-1"]));
}

#[test]
fn a_node_without_its_label_still_tells_how_its_change_ends() {
    for (outcome, failed) in [(Outcome::RolledBack, 1), (Outcome::Verified, 0), (Outcome::Lapsed, 0)] {
        let mut fleet = Fleet::new(2, spec(json!({})));
        fleet.plan_all();
        fleet.step();
        fleet.step();
        fleet.nodes.get_mut("node-0").unwrap().labels.clear();
        fleet.step();
        assert_eq!(fleet.machine.status.failed, 0, "{outcome}");
        fleet.report("node-0", outcome);
        fleet.step();
        assert_eq!(fleet.machine.status.failed, failed, "{outcome}");
    }
}

#[test]
fn a_node_whose_sriov_node_was_made_anew_takes_pods_again_when_its_agent_has_planned() {
    let mut fleet = Fleet::new(2, spec(json!({"drain": {"mode": "node"}})));
    fleet.plan_all();
    fleet.step();
    fleet.step();
    let cordoned = |fleet: &Fleet| fleet.nodes["node-0"].cordoned;
    assert!(cordoned(&fleet));
    fleet.nodes.get_mut("node-0").unwrap().record = None;
    fleet.step();
    assert!(cordoned(&fleet), "nobody says how it stands");
    fleet.nodes.get_mut("node-0").unwrap().record = Some(Record::default());
    fleet.step();
    assert!(cordoned(&fleet), "its agent may be about to say how the change ended");
    fleet.plan("node-0", PlanOutcome::Planned, 3, false);
    fleet.step();
    assert!(!cordoned(&fleet));
    assert!(fleet.decide().cordons.is_empty());
}
