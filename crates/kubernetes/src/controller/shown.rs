//! What the controller tells scrapers: what it has written of machines, as it was at its last decision.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    machine::{SriovMachineStatus, condition::ConditionStatus},
    metrics::{
        exposition::AgentExposition,
        families::{CONTROLLER_LEADS, ROLLOUT_CONDITION, ROLLOUT_NODES},
    },
    rollout::Machine,
};

/// What is shown; clones show the same.
#[derive(Clone, Default)]
pub(super) struct Shown(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    leads: bool,
    statuses: BTreeMap<String, SriovMachineStatus>,
}

impl Shown {
    /// Whether this controller decides.
    pub(super) fn leads(&self, leads: bool) {
        self.known(|known| known.leads = leads);
    }

    /// The machines as they are now.
    pub(super) fn machines<'a>(&self, machines: impl Iterator<Item = &'a Machine>) {
        let statuses = machines.map(|machine| (machine.name.clone(), machine.status.clone())).collect();
        self.known(|known| known.statuses = statuses);
    }

    fn known<T>(&self, at: impl FnOnce(&mut Known) -> T) -> T {
        at(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All of it, as OpenMetrics text. A controller that does not decide knows nothing of machines.
    pub(super) fn text(&self) -> String {
        let mut all = AgentExposition::default();
        self.known(|known| {
            all.put(&CONTROLLER_LEADS, &[], i64::from(known.leads));
            for (machine, status) in known.statuses.iter().filter(|_| known.leads) {
                for (state, count) in [
                    ("matched", status.matched),
                    ("planned", status.planned),
                    ("updated", status.updated),
                    ("ready", status.ready),
                    ("unavailable", status.unavailable),
                    ("failed", status.failed),
                    ("refused", status.refused),
                ] {
                    all.put(&ROLLOUT_NODES, &[("machine", machine.as_str()), ("state", state)], count.into());
                }
                for condition in &status.conditions {
                    let labels = [
                        ("machine", machine.as_str()),
                        ("condition", condition.kind.as_str()),
                        ("reason", condition.reason.as_str()),
                    ];
                    let holds = condition.status == ConditionStatus::True;
                    all.put(&ROLLOUT_CONDITION, &labels, holds.into());
                }
            }
        });
        all.text_after("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_decide_tells_nothing_of_machines() {
        let shown = Shown::default();
        let status = serde_json::json!({"matched": 3, "failed": 1, "conditions": [
            {"type": "Degraded", "status": "True", "reason": "NodeFailed", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let machine = Machine {
            name: "edge".to_owned(),
            uid: None,
            generation: None,
            spec: Err(String::new()),
            status: serde_json::from_value(status).unwrap(),
        };
        shown.machines(std::iter::once(&machine));
        let text = shown.text();
        assert!(text.contains("penstock_controller_leads 0") && !text.contains("edge"), "{text}");
        shown.leads(true);
        let text = shown.text();
        for line in [
            "penstock_rollout_nodes{machine=\"edge\",state=\"failed\"} 1",
            "penstock_rollout_condition{machine=\"edge\",condition=\"Degraded\",reason=\"NodeFailed\"} 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
