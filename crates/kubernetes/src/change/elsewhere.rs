//! An agent that takes itself for a node that it does not run on.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{Agent, ChangeError, Own};
use crate::{
    log,
    machine::{ConditionStatus, StatusCondition, UtcTime, condition},
    rollout::Record,
};

/// The condition that says so.
const KIND: &str = "SingleAgent";

/// The name by which whoever says so owns it: the node's own agent writes all others.
const MANAGER: &str = "penstock-agent-elsewhere";

/// So long a Node may seem to be another machine: after a start kubelet needs some time to say anew which run of the kernel it is.
const ELSEWHERE: Duration = Duration::from_secs(180);

impl Agent {
    /// The Node is another machine, or was started anew and kubelet has not said so yet. Nothing is done.
    pub(super) async fn is_elsewhere(&mut self, own: &Own) -> Result<Option<Duration>, ChangeError> {
        let since = *self.elsewhere.get_or_insert_with(Instant::now);
        let left = ELSEWHERE.saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Ok(Some(left));
        }
        if self.accused.as_ref() != Some(&own.boot) {
            let message = accusation(&own.boot, &self.boot);
            log::say(&message);
            let condition = StatusCondition::new(KIND, false, "AnotherMachine", &message, UtcTime::now());
            self.apply_status(json!({"conditions": [condition]}), MANAGER).await?;
            self.accused = Some(own.boot.clone());
        }
        Ok(Some(ELSEWHERE))
    }

    /// The Node is this machine. What was said before kubelet had told of this run of the kernel is taken back.
    pub(super) async fn is_here(&mut self, own: &Own, record: Option<&Record>) -> Result<(), ChangeError> {
        self.elsewhere = None;
        self.accused = None;
        let conditions = record.map(|record| record.status.conditions.as_slice()).unwrap_or_default();
        if is_outdated(conditions, &own.boot) {
            log::say("the Node is this machine after all");
            let object = self.apply_status(json!({"conditions": []}), MANAGER).await?;
            self.records.put(object, super::record);
        }
        Ok(())
    }
}

fn accusation(node: &str, agent: &str) -> String {
    format!(
        "an agent that takes itself for this node runs on another machine, or kubelet does not run here: the Node's kernel was started \
         as {node}, the agent's as {agent}; that agent does nothing"
    )
}

/// Whether it is said of another run of the Node's kernel than this one. An agent that runs on another machine says it of this one.
fn is_outdated(conditions: &[StatusCondition], node: &str) -> bool {
    let said = condition::find(conditions, KIND).filter(|said| said.status == ConditionStatus::False);
    said.is_some_and(|said| !node.is_empty() && !said.message.contains(&format!("was started as {node},")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kubelet_that_was_slow_led_to_is_taken_back_and_a_second_agent_is_not_acquitted() {
        let said = |node: &str, agent: &str| {
            let message = accusation(node, agent);
            [StatusCondition::new(KIND, false, "AnotherMachine", message, UtcTime(1))]
        };
        // Said by the node's own agent, of the run before.
        assert!(is_outdated(&said("first", "second"), "second"));
        // Said by an agent on another machine.
        assert!(!is_outdated(&said("second", "other"), "second"));
        // The machine was started anew since.
        assert!(is_outdated(&said("second", "other"), "third"));
        assert!(!is_outdated(&[], "second"));
        assert!(!is_outdated(&said("first", "second"), ""), "nobody knows which run it is");
    }
}
