//! Events on the Node: what drifted, and what holds again.

use std::time::{Duration, Instant};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};

use crate::{
    client::answer,
    health::{DriftEvent, in_words},
    identity::{DriverName, NodeName},
    log::{self, LastingTrouble},
    pace::Bucket,
    slices::publish::MANAGER,
};

/// An Event's message may be so long (`NoteLengthLimit`).
const MESSAGE_LIMIT: usize = 1024;

/// So many Events at once...
const BURST: u32 = 20;

/// ...and then one each so long: an attribute that changes all the time does not fill the cluster's store.
const EVERY: Duration = Duration::from_secs(10);

/// Writes Events on a Node.
pub struct NodeEvents {
    api: Api<Event>,
    node: NodeName,
    driver: DriverName,
    bucket: Bucket,
    left_out: u64,
    written: u64,
    trouble: LastingTrouble,
}

impl NodeEvents {
    /// Those of `node`.
    pub fn new(client: Client, node: NodeName, driver: DriverName) -> NodeEvents {
        NodeEvents {
            // Where Events of objects without a namespace are.
            api: Api::namespaced(client, "default"),
            node,
            driver,
            bucket: Bucket::new(BURST, EVERY, Instant::now()),
            left_out: 0,
            written: 0,
            trouble: LastingTrouble::new("write Events on the Node"),
        }
    }

    /// Tells what happened, those of one moment in one Event for each reason. An Event that cannot be written is lost: the taints tell the
    /// state.
    pub async fn tell(&mut self, news: &[DriftEvent]) {
        let drifted = news.iter().filter_map(|news| match news {
            DriftEvent::Drift(verdict) => Some(in_words(verdict)),
            DriftEvent::Unseen(verdict) => Some(in_words(verdict)),
            DriftEvent::HoldsAgain(_) | DriftEvent::State | DriftEvent::Blind(_) | DriftEvent::Nothing => {
                None
            }
        });
        let drifted: Vec<String> = drifted.collect();
        let again = news.iter().filter_map(|news| match news {
            DriftEvent::HoldsAgain(verdict) => {
                Some(format!("{} {}: {}", verdict.subject, verdict.attribute, verdict.seen))
            }
            DriftEvent::Drift(_)
            | DriftEvent::Unseen(_)
            | DriftEvent::State
            | DriftEvent::Blind(_)
            | DriftEvent::Nothing => None,
        });
        let again: Vec<String> = again.collect();
        self.write("Warning", "Drift", &drifted).await;
        self.write("Normal", "HoldsAgain", &again).await;
    }

    async fn write(&mut self, kind: &str, reason: &str, what: &[String]) {
        if what.is_empty() {
            return;
        }
        what.iter().for_each(|one| log::say(format!("{reason}: {one}")));
        if self.bucket.take(Instant::now()).is_err() {
            self.left_out += 1;
            return;
        }
        let more = match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            left_out => format!(" ({left_out} Events before this one were left out, they came too fast)"),
        };
        let event = self.event(kind, reason, message(what, &more));
        match answer(self.api.create(&PostParams::default(), &event)).await {
            Ok(_) => self.trouble.end(),
            Err(error) => self.trouble.meet(&error),
        }
    }

    fn event(&mut self, kind: &str, reason: &str, message: String) -> Event {
        let now = Timestamp::now();
        self.written += 1;
        // As client-go names them: unique by time, here also within one moment.
        let name = format!("{}.{:x}{:x}", self.node, now.as_nanosecond(), self.written);
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some("default".to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(self.node.to_string()),
                // kubelet's own Events of its Node have its name there, and `kubectl describe node` looks for that.
                uid: Some(self.node.to_string()),
                ..ObjectReference::default()
            },
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            source: Some(EventSource {
                component: Some(MANAGER.to_owned()),
                host: Some(self.node.to_string()),
            }),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            reporting_component: Some(self.driver.to_string()),
            reporting_instance: Some(self.node.to_string()),
            ..Event::default()
        }
    }
}

/// As many of these as fit, and how many more there are.
fn message(what: &[String], end: &str) -> String {
    let mut text = String::new();
    for (position, one) in what.iter().enumerate() {
        let rest = format!("; and {} more", what.len() - position);
        let one = one.chars().take(MESSAGE_LIMIT / 4).collect::<String>();
        let joint = if text.is_empty() { "" } else { "; " };
        if text.len() + joint.len() + one.len() + rest.len() + end.len() > MESSAGE_LIMIT && position > 0 {
            text.push_str(&rest);
            break;
        }
        text.push_str(joint);
        text.push_str(&one);
    }
    text.push_str(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_what_fits_and_says_how_much_more_there_is() {
        let one = vec!["NET0#1 vlan: wanted 1, seen 2".to_owned()];
        assert_eq!(message(&one, ""), one[0]);
        let many: Vec<String> = (0..200).map(|vf| format!("NET0#{vf} vlan: wanted 1, seen 2")).collect();
        let text = message(&many, " (3 left out)");
        assert!(
            text.len() <= MESSAGE_LIMIT && text.contains(" more") && text.ends_with("(3 left out)"),
            "{text}"
        );
        assert!(message(&["é".repeat(5000)], "").len() <= MESSAGE_LIMIT);
    }
}
