//! Events of a roll-out, on its `SriovMachine`: `kubectl describe` shows them. They tell what came when; how things are is in conditions.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use penstock_host::running::RunsOn;

use crate::{
    events::{EventKind, EventSettings, EventWriter},
    machine::{GROUP, SriovMachineStatus, VERSION, node::Stage},
    rollout::{Machine, Node, Setback, SpecWrite},
};

/// How many nodes an Event names.
const NAMED: usize = 10;

/// What is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    machine: String,
    kind: EventKind,
    reason: String,
    what: Vec<String>,
}

/// Writes Events of machines.
pub(super) struct Announcer {
    writer: EventWriter,
    /// What was told of nodes, by machine; a machine that is not here was not looked at yet.
    told: BTreeMap<String, BTreeSet<Setback>>,
}

impl Announcer {
    /// Nothing was told yet.
    pub(super) fn new(client: Client, manager: &str) -> Announcer {
        let settings = EventSettings {
            component: manager.to_owned(),
            host: None,
            controller: format!("{GROUP}/{manager}"),
            instance: RunsOn::here().host,
        };
        Announcer { writer: EventWriter::new(client, settings), told: BTreeMap::new() }
    }

    /// The setbacks that nobody was told of. Those that were there when this controller began were told by the one before, as far as they are
    /// counted in the machine's status.
    pub(super) fn new_setbacks(
        &mut self,
        machines: &[Machine],
        setbacks: BTreeMap<String, BTreeSet<Setback>>,
    ) -> Vec<Announcement> {
        self.told.retain(|name, _| machines.iter().any(|machine| machine.name == *name));
        let mut all = Vec::new();
        for machine in machines {
            let now = setbacks.get(&machine.name).cloned().unwrap_or_default();
            let counted = (machine.status.failed + machine.status.refused) as usize == now.len();
            let before = self.told.insert(machine.name.clone(), now.clone());
            let before = before.unwrap_or_else(|| if counted { now.clone() } else { BTreeSet::new() });
            let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for setback in now.difference(&before) {
                let words = format!("{}: {}", setback.node, setback.message);
                by_reason.entry(setback.reason.clone()).or_default().push(words);
            }
            all.extend(by_reason.into_iter().map(|(reason, what)| Announcement {
                machine: machine.name.clone(),
                kind: EventKind::Warning,
                reason,
                what,
            }));
        }
        all
    }

    /// Tells all of it. What cannot be written is lost.
    pub(super) async fn tell(&mut self, machines: &[Machine], all: Vec<Announcement>) {
        for one in all {
            let Some(machine) = machines.iter().find(|machine| machine.name == one.machine) else { continue };
            let of = ObjectReference {
                api_version: Some(format!("{GROUP}/{VERSION}")),
                kind: Some("SriovMachine".to_owned()),
                name: Some(machine.name.clone()),
                uid: machine.uid.clone(),
                ..ObjectReference::default()
            };
            // One that gets no answer is enough: the Lease has to be renewed meanwhile.
            if !self.writer.write(&of, one.kind, &one.reason, &one.what).await {
                return;
            }
        }
    }
}

/// What these writes begin, by machine.
pub(super) fn begun(
    machines: &[Machine],
    fleet: &BTreeMap<String, Node>,
    writes: &[SpecWrite],
) -> Vec<Announcement> {
    let mut all = Vec::new();
    for machine in machines {
        let Ok(spec) = &machine.spec else { continue };
        let hash = spec.hash();
        for (stage, reason, words) in
            [(Stage::Drain, "Draining", "pods leave"), (Stage::Go, "Applying", "told to apply the model")]
        {
            let of_stage = |write: &&SpecWrite| {
                let labels = fleet.get(&write.node).map(|node| &node.labels);
                let change = write.spec.change.as_ref();
                change.is_some_and(|change| change.stage == stage && change.hash == hash)
                    && labels.is_some_and(|labels| spec.selects(labels))
            };
            let nodes: Vec<&str> = writes.iter().filter(of_stage).map(|write| write.node.as_str()).collect();
            if nodes.is_empty() {
                continue;
            }
            let named = nodes.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            let more = match nodes.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            all.push(Announcement {
                machine: machine.name.clone(),
                kind: EventKind::Normal,
                reason: reason.to_owned(),
                what: vec![format!("{words}: {named}{more}")],
            });
        }
    }
    all
}

/// What the roll-out has come to, where that is something else than before.
pub(super) fn progress(
    machine: &str,
    before: &SriovMachineStatus,
    now: &SriovMachineStatus,
) -> Option<Announcement> {
    let of = |status: &SriovMachineStatus| {
        status.conditions.iter().find(|condition| condition.kind == "Progressing").cloned()
    };
    let progress = of(now)?;
    let same = of(before).is_some_and(|before| before.reason == progress.reason) && before.hash == now.hash;
    if same {
        return None;
    }
    let kind = match progress.reason.as_str() {
        "Stopped" | "Refused" | "Unreadable" => EventKind::Warning,
        _ => EventKind::Normal,
    };
    Some(Announcement {
        machine: machine.to_owned(),
        kind,
        reason: progress.reason,
        what: vec![progress.message],
    })
}

#[cfg(test)]
mod tests {
    use kube::Config;
    use serde_json::json;

    use super::*;

    fn machine(failed: u32) -> Machine {
        Machine {
            name: "edge".to_owned(),
            uid: Some("u".to_owned()),
            generation: Some(1),
            spec: Ok(
                serde_json::from_value(json!({"model": "nics: {}", "nodeSelector": {"edge": ""}})).unwrap()
            ),
            status: SriovMachineStatus { failed, ..SriovMachineStatus::default() },
        }
    }

    fn setbacks(nodes: &[&str]) -> BTreeMap<String, BTreeSet<Setback>> {
        let of = |node: &&str| Setback {
            node: (*node).to_owned(),
            at: crate::machine::UtcTime(1),
            reason: "RolledBack".to_owned(),
            message: "not confirmed".to_owned(),
        };
        BTreeMap::from([("edge".to_owned(), nodes.iter().map(of).collect())])
    }

    #[test]
    fn a_setback_is_told_once_by_whichever_controller() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let client = || Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let mut first = Announcer::new(client(), "m");
        assert_eq!(first.new_setbacks(&[machine(0)], setbacks(&[])), []);
        let told = first.new_setbacks(&[machine(0)], setbacks(&["a", "b"]));
        assert_eq!((told.len(), told[0].reason.as_str()), (1, "RolledBack"));
        assert_eq!(told[0].what, ["a: not confirmed", "b: not confirmed"]);
        assert_eq!(first.new_setbacks(&[machine(2)], setbacks(&["a", "b"])), []);
        // The next controller finds them counted; one more is not.
        let mut second = Announcer::new(client(), "m");
        assert_eq!(second.new_setbacks(&[machine(2)], setbacks(&["a", "b"])), []);
        assert_eq!(second.new_setbacks(&[machine(2)], setbacks(&["a", "b", "c"]))[0].what.len(), 1);
        let mut third = Announcer::new(client(), "m");
        assert_eq!(third.new_setbacks(&[machine(1)], setbacks(&["a", "b"]))[0].what.len(), 2);
    }

    #[test]
    fn progress_is_told_when_its_word_changes() {
        let status = |reason: &str, hash: &str| {
            let condition = json!({"type": "Progressing", "status": "True", "reason": reason, "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            serde_json::from_value::<SriovMachineStatus>(json!({"hash": hash, "conditions": [condition]}))
                .unwrap()
        };
        let none = SriovMachineStatus::default();
        assert_eq!(progress("edge", &none, &status("Planning", "a")).unwrap().kind, EventKind::Normal);
        assert_eq!(progress("edge", &status("Planning", "a"), &status("Planning", "a")), None);
        assert!(progress("edge", &status("Complete", "a"), &status("Complete", "b")).is_some());
        let stopped = progress("edge", &status("RollingOut", "a"), &status("Stopped", "a")).unwrap();
        assert_eq!((stopped.kind, stopped.reason.as_str()), (EventKind::Warning, "Stopped"));
    }
}
