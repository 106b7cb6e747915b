//! What holds whatever happens to a fleet.

use proptest::{
    prelude::{Strategy, any, prop, proptest},
    prop_assert, prop_assert_eq, prop_oneof,
    test_runner::TestCaseError,
};
use serde_json::json;

use super::*;

/// What happens in a fleet.
#[derive(Clone, Debug)]
enum Happening {
    Plans { node: usize, refused: bool, empty: bool, vanishing: bool },
    Ready { node: usize, ready: bool },
    Cordoned { node: usize, cordoned: bool },
    Drained { node: usize, clear: bool },
    Reports { node: usize, outcome: Outcome },
    Time { seconds: u64 },
    Pause { pause: bool },
    Model,
    Starts { node: usize },
    NodeGoes { node: usize },
    NodeComes { node: usize },
    LabelGoes { node: usize },
    LabelComes { node: usize },
    RecordGoes { node: usize },
}

fn happening() -> impl Strategy<Value = Happening> {
    let node = 0..5_usize;
    let outcome = prop_oneof![
        4 => prop::strategy::Just(Outcome::Verified),
        1 => prop::strategy::Just(Outcome::Applying),
        1 => prop::strategy::Just(Outcome::RolledBack),
        1 => prop::strategy::Just(Outcome::Failed),
        1 => prop::strategy::Just(Outcome::Lapsed),
    ];
    prop_oneof![
        6 => (node.clone(), prop::bool::weighted(0.05), prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(node, refused, empty, vanishing)| Happening::Plans { node, refused, empty, vanishing }),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, ready)| Happening::Ready { node, ready }),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, cordoned)| Happening::Cordoned { node, cordoned }),
        4 => (node.clone(), prop::bool::weighted(0.8)).prop_map(|(node, clear)| Happening::Drained { node, clear }),
        6 => (node.clone(), outcome).prop_map(|(node, outcome)| Happening::Reports { node, outcome }),
        1 => (0..2000_u64).prop_map(|seconds| Happening::Time { seconds }),
        1 => prop::bool::weighted(0.2).prop_map(|pause| Happening::Pause { pause }),
        1 => prop::strategy::Just(Happening::Model),
        1 => node.clone().prop_map(|node| Happening::Starts { node }),
        1 => node.clone().prop_map(|node| Happening::NodeGoes { node }),
        2 => node.clone().prop_map(|node| Happening::NodeComes { node }),
        1 => node.clone().prop_map(|node| Happening::LabelGoes { node }),
        2 => node.clone().prop_map(|node| Happening::LabelComes { node }),
        1 => node.prop_map(|node| Happening::RecordGoes { node }),
    ]
}

/// The failures that no `SriovNode` of a selected node tells of any more.
#[derive(Default)]
struct Lost {
    /// Those of nodes that went, or whose `SriovNode` did.
    gone: BTreeSet<String>,
    /// Those of nodes without the label.
    unlabelled: BTreeSet<String>,
}

impl Lost {
    /// Its word on what it does, or did, is about to go.
    fn goes(&mut self, fleet: &Fleet, name: &str) {
        let Some(node) = fleet.nodes.get(name) else { return };
        let hash = fleet.spec().hash();
        let bad = match standing::of(node, &hash, None, None, fleet.now) {
            Standing::Failed { .. } => fleet.spec().selects(&node.labels) || self.unlabelled.contains(name),
            Standing::Granted { change, .. } => {
                change.hash == hash && fleet.machine.status.changes.iter().any(|known| known.node == name)
            }
            _ => false,
        };
        if bad || self.unlabelled.remove(name) {
            self.gone.insert(name.to_owned());
        }
    }
}

fn happens(fleet: &mut Fleet, lost: &mut Lost, what: &Happening) {
    let name = |node: usize| format!("node-{node}");
    let index = match *what {
        Happening::Plans { node, .. }
        | Happening::Ready { node, .. }
        | Happening::Cordoned { node, .. }
        | Happening::Drained { node, .. }
        | Happening::Reports { node, .. }
        | Happening::Starts { node }
        | Happening::NodeGoes { node }
        | Happening::LabelGoes { node }
        | Happening::LabelComes { node }
        | Happening::RecordGoes { node } => Some(node),
        Happening::NodeComes { .. } | Happening::Time { .. } | Happening::Pause { .. } | Happening::Model => {
            None
        }
    };
    if index.is_some_and(|node| !fleet.nodes.contains_key(&name(node))) {
        return;
    }
    let has_open =
        |fleet: &Fleet, node: usize, stage: Stage| fleet.told(stage).contains(&name(node).as_str());
    match *what {
        Happening::Plans { node, refused, empty, vanishing } => {
            // An agent does not plan while it makes a change.
            if !has_open(fleet, node, Stage::Go) {
                let outcome = if refused { PlanOutcome::Refused } else { PlanOutcome::Planned };
                fleet.plan(&name(node), outcome, if empty { 0 } else { 3 }, vanishing);
                if empty && !refused && fleet.spec().selects(&fleet.nodes[&name(node)].labels) {
                    lost.gone.remove(&name(node));
                }
            }
        }
        Happening::Ready { node, ready } => fleet.nodes.get_mut(&name(node)).unwrap().ready = ready,
        Happening::Cordoned { node, cordoned } => {
            fleet.nodes.get_mut(&name(node)).unwrap().cordoned = cordoned
        }
        Happening::Drained { node, clear } => {
            let drained = if clear { Drained::Clear } else { Drained::Waiting("a pod".to_owned()) };
            if has_open(fleet, node, Stage::Drain) {
                fleet.drained(&name(node), drained);
            }
        }
        Happening::Reports { node, outcome } => {
            if has_open(fleet, node, Stage::Go) {
                fleet.report(&name(node), outcome);
            }
        }
        Happening::Time { seconds } => fleet.now = fleet.now.after(Duration::from_secs(seconds)),
        Happening::Pause { pause } => fleet.machine.spec.as_mut().unwrap().rollout.pause = pause,
        Happening::Model => {
            fleet.machine.spec.as_mut().unwrap().model.push('#');
            *lost = Lost::default();
        }
        Happening::NodeGoes { node } => {
            lost.goes(fleet, &name(node));
            fleet.nodes.remove(&name(node));
        }
        Happening::NodeComes { node } => {
            let anew = Fleet::new(1, fleet.spec().clone()).nodes.remove("node-0").unwrap();
            fleet.nodes.entry(name(node)).or_insert(anew);
        }
        Happening::LabelGoes { node } => {
            let one = &fleet.nodes[&name(node)];
            let standing = standing::of(one, &fleet.spec().hash(), None, None, fleet.now);
            if fleet.spec().selects(&one.labels) && matches!(standing, Standing::Failed { .. }) {
                lost.unlabelled.insert(name(node));
            }
            fleet.nodes.get_mut(&name(node)).unwrap().labels.clear();
        }
        Happening::LabelComes { node } => {
            lost.unlabelled.remove(&name(node));
            let labels = [("role".to_owned(), "rt".to_owned())].into();
            fleet.nodes.get_mut(&name(node)).unwrap().labels = labels;
        }
        Happening::RecordGoes { node } => {
            lost.goes(fleet, &name(node));
            fleet.nodes.get_mut(&name(node)).unwrap().record = None;
        }
        Happening::Starts { node } => {
            let record = fleet.nodes.get_mut(&name(node)).unwrap().record.as_mut();
            if let Some(result) = record
                .and_then(|record| record.status.result.as_mut())
                .filter(|result| result.outcome == Outcome::Verified)
            {
                result.outcome = Outcome::Lapsed;
            }
        }
    }
}

/// Whether a write has a node begin something that it was not at before.
fn begins(before: &Node, write: &SpecWrite) -> bool {
    let number = |spec: &SriovNodeSpec| spec.change.as_ref().map_or(0, |change| change.number);
    let before = before.record.as_ref().map_or(0, |record| number(&record.spec));
    number(&write.spec) > before
}

fn holds(fleet: &mut Fleet, lost: &Lost) -> Result<(), TestCaseError> {
    let hash = fleet.spec().hash();
    let before = fleet.nodes.clone();
    let standings: BTreeMap<String, Standing> = fleet
        .matched()
        .map(|(name, node)| (name.clone(), standing::of(node, &hash, None, None, fleet.now)))
        .collect();
    let unavailable = fleet.unavailable();
    let decision = fleet.step();
    let begun: Vec<&SpecWrite> =
        decision.writes.iter().filter(|write| begins(&before[&write.node], write)).collect();
    let most = fleet.spec().rollout.max_unavailable.of(standings.len());
    prop_assert!(
        fleet.unavailable() <= most.max(unavailable),
        "{} unavailable of {most}",
        fleet.unavailable()
    );
    if !begun.is_empty() {
        prop_assert!(!fleet.spec().rollout.pause);
        // One that is lost had planned it, and counts as failed.
        let all_planned = standings.iter().all(|(name, standing)| {
            lost.gone.contains(name) || !matches!(standing, Standing::Unplanned | Standing::Refused { .. })
        });
        prop_assert!(all_planned);
        let failed = standings.iter().filter(|(_, standing)| matches!(standing, Standing::Failed { .. }));
        let failed: BTreeSet<&String> =
            failed.map(|(name, _)| name).chain(&lost.gone).chain(&lost.unlabelled).collect();
        let stop = fleet.spec().rollout.stop_after_failures as usize;
        prop_assert!(failed.len() < stop, "begun after {failed:?} failed");
        let proven = standings
            .values()
            .filter(|standing| matches!(standing, Standing::Done { changed: true }))
            .count();
        let canary = fleet.spec().rollout.canary as usize;
        if proven < canary {
            let at_it = |(_, node): &(&String, &Node)| {
                matches!(
                    standing::of(node, &hash, None, None, fleet.now),
                    Standing::Granted { .. } | Standing::Draining { .. }
                )
            };
            let under_way = fleet.matched().filter(at_it).count();
            prop_assert!(
                proven + under_way <= canary,
                "{proven} hold and {under_way} are at it, with {canary} canaries"
            );
        }
    }
    // Whoever a controller has cordoned has a change for which it is so, or had one that was left half-way.
    let fleet_mode = fleet.spec().drain.mode;
    for (name, cordon) in &decision.cordons {
        let node = &before[name];
        match cordon {
            Cordon::On(number) => {
                let record = node.record.as_ref().unwrap();
                let open = record.spec.open(&record.status).unwrap();
                prop_assert!(open.cordon && open.number == *number && !node.cordoned);
            }
            Cordon::Off => prop_assert!(node.cordoned_for.is_some(), "somebody else has cordoned {name}"),
        }
    }
    // Whoever is told to apply had planned just that, and its VFs are free.
    for write in &decision.writes {
        if let Some(change) = write.spec.change.as_ref().filter(|change| change.stage == Stage::Go) {
            let node = &before[&write.node];
            let plan = node.record.as_ref().and_then(|record| record.status.plan.as_ref()).unwrap();
            prop_assert_eq!((&plan.hash, &plan.digest), (&change.hash, &change.plan));
            let drained = node.drained == Some((change.number, Drained::Clear));
            prop_assert!(drained || (plan.vanishing.is_empty() && fleet_mode != DrainMode::Node));
        }
    }
    // What was called off makes room for others; nothing else leads to more.
    if decision.writes.iter().any(|write| write.spec.change.is_none()) {
        return holds(fleet, lost);
    }
    // What was written to nodes is decided anew when the watch has brought it.
    if !decision.cordons.is_empty() || !fleet.decide().cordons.is_empty() {
        return holds(fleet, lost);
    }
    let again = fleet.step();
    prop_assert!(again.writes.is_empty(), "decided twice: {:?}", again.writes);
    prop_assert!(fleet.step().statuses.is_empty());
    Ok(())
}

proptest! {
    #[test]
    fn whatever_happens_the_rules_hold(
        happenings in prop::collection::vec(happening(), 1..120),
        most in 1..4_u32,
        canary in 0..3_u32,
        stop in 1..3_u32,
        whole: bool,
    ) {
        let mode = if whole { "node" } else { "claims" };
        let rollout = json!({
            "rollout": {"maxUnavailable": most, "canary": canary, "stopAfterFailures": stop}, "drain": {"mode": mode},
        });
        let mut fleet = Fleet::new(5, spec(rollout));
        let mut lost = Lost::default();
        for what in &happenings {
            happens(&mut fleet, &mut lost, what);
            holds(&mut fleet, &lost)?;
        }
    }

    #[test]
    fn a_fleet_of_good_nodes_comes_to_its_end(nodes in 1..20_usize, most in 1..25_u32, canary in 0..30_u32, vanishing: bool, whole: bool) {
        let mode = if whole { "node" } else { "claims" };
        let more = json!({"rollout": {"maxUnavailable": most, "canary": canary}, "drain": {"mode": mode}});
        let mut fleet = Fleet::new(nodes, spec(more));
        let names: Vec<String> = fleet.nodes.keys().cloned().collect();
        names.iter().for_each(|name| fleet.plan(name, PlanOutcome::Planned, 3, vanishing));
        for _ in 0..4 * nodes + 4 {
            holds(&mut fleet, &Lost::default())?;
            let draining: Vec<String> = fleet.told(Stage::Drain).into_iter().map(str::to_owned).collect();
            draining.iter().for_each(|name| fleet.drained(name, Drained::Clear));
            let granted: Vec<String> = fleet.told(Stage::Go).into_iter().map(str::to_owned).collect();
            granted.iter().for_each(|name| fleet.report(name, Outcome::Verified));
        }
        prop_assert_eq!(fleet.machine.status.ready as usize, nodes);
    }
}
