//! Events of objects that are in no namespace, limited in number: of a Node, what drifted and what holds again; of a `SriovMachine`, how its
//! roll-out goes (in `controller`).

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

/// The namespace of Events of objects that have none.
const NAMESPACE: &str = "default";

/// So many Events at once...
const BURST: u32 = 20;

/// ...and then one each so long: an attribute that changes all the time does not fill the cluster's store.
const EVERY: Duration = Duration::from_secs(10);

/// Whether an Event tells of something that somebody should see to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It is the course of things.
    Normal,
    /// Somebody should see to it.
    Warning,
}

/// Who writes Events.
#[derive(Clone, Debug)]
pub struct EventSettings {
    /// The component (`source.component`).
    pub component: String,
    /// The node that it runs on, where it belongs to one.
    pub host: Option<String>,
    /// The controller's name (`reportingComponent`).
    pub controller: String,
    /// Which of several it is (`reportingInstance`).
    pub instance: String,
}

/// Writes Events of objects that are in no namespace, limited in number.
pub struct EventWriter {
    api: Api<Event>,
    settings: EventSettings,
    bucket: Bucket,
    left_out: u64,
    written: u64,
    trouble: LastingTrouble,
}

impl EventWriter {
    /// None is written yet.
    pub fn new(client: Client, settings: EventSettings) -> EventWriter {
        EventWriter {
            // Where Events of objects without a namespace are.
            api: Api::namespaced(client, NAMESPACE),
            settings,
            bucket: Bucket::new(BURST, EVERY, Instant::now()),
            left_out: 0,
            written: 0,
            trouble: LastingTrouble::new("write Events"),
        }
    }

    /// Tells what happened to an object, in one Event. One that comes too fast is counted in the next, one that cannot be written is lost; `false`
    /// says that the API server did not take it.
    pub async fn write(
        &mut self,
        of: &ObjectReference,
        kind: EventKind,
        reason: &str,
        what: &[String],
    ) -> bool {
        if what.is_empty() {
            return true;
        }
        let name = of.name.as_deref().unwrap_or_default();
        what.iter().for_each(|one| log::say(format!("{name}: {reason}: {one}")));
        if self.bucket.take(Instant::now()).is_err() {
            self.left_out += 1;
            return true;
        }
        let more = match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            left_out => format!(" ({left_out} Events before this one were left out, they came too fast)"),
        };
        let event = self.event(of, kind, reason, message(what, &more));
        match answer(self.api.create(&PostParams::default(), &event)).await {
            Ok(_) => {
                self.trouble.end();
                true
            }
            Err(error) => {
                self.trouble.meet(&error);
                false
            }
        }
    }

    fn event(&mut self, of: &ObjectReference, kind: EventKind, reason: &str, message: String) -> Event {
        let now = Timestamp::now();
        self.written += 1;
        // As client-go names them: unique by time, here also within one moment.
        let name = of.name.as_deref().unwrap_or_default();
        let name = format!("{name}.{:x}{:x}", now.as_nanosecond(), self.written);
        let EventSettings { component, host, controller, instance } = self.settings.clone();
        let kind = match kind {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: of.clone(),
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            source: Some(EventSource { component: Some(component), host }),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            reporting_component: Some(controller),
            reporting_instance: Some(instance),
            ..Event::default()
        }
    }
}

/// Writes Events on a Node.
pub struct NodeEvents {
    writer: EventWriter,
    node: ObjectReference,
}

impl NodeEvents {
    /// Those of `node`.
    pub fn new(client: Client, node: NodeName, driver: DriverName) -> NodeEvents {
        let settings = EventSettings {
            component: MANAGER.to_owned(),
            host: Some(node.to_string()),
            controller: driver.to_string(),
            instance: node.to_string(),
        };
        let node = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_string()),
            // kubelet's own Events of its Node have its name there, and `kubectl describe node` looks for that.
            uid: Some(node.to_string()),
            ..ObjectReference::default()
        };
        NodeEvents { writer: EventWriter::new(client, settings), node }
    }

    /// Tells what happened, those of one moment in one Event for each reason. An Event that cannot be written is lost: the taints tell the
    /// state.
    pub async fn tell(&mut self, news: &[DriftEvent]) {
        let drifted = news.iter().filter_map(|news| match news {
            DriftEvent::Drift(verdict) => Some(in_words(verdict)),
            DriftEvent::Unseen(verdict) => Some(in_words(verdict)),
            DriftEvent::ClaimDrift(told) => Some(told.clone()),
            DriftEvent::HoldsAgain(_)
            | DriftEvent::ClaimHoldsAgain(_)
            | DriftEvent::State
            | DriftEvent::Blind(_)
            | DriftEvent::Nothing => None,
        });
        let drifted: Vec<String> = drifted.collect();
        let again = news.iter().filter_map(|news| match news {
            DriftEvent::HoldsAgain(verdict) => {
                Some(format!("{} {}: {}", verdict.subject, verdict.attribute, verdict.seen))
            }
            DriftEvent::ClaimHoldsAgain(told) => Some(told.clone()),
            DriftEvent::Drift(_)
            | DriftEvent::Unseen(_)
            | DriftEvent::ClaimDrift(_)
            | DriftEvent::State
            | DriftEvent::Blind(_)
            | DriftEvent::Nothing => None,
        });
        let again: Vec<String> = again.collect();
        self.writer.write(&self.node, EventKind::Warning, "Drift", &drifted).await;
        self.writer.write(&self.node, EventKind::Normal, "HoldsAgain", &again).await;
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
