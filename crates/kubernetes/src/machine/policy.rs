//! `SriovMachine`: the model of a class of nodes, and how it is to reach them.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Span, StatusCondition, UtcTime};

/// The shortest time to confirm within: kubelet renews its Lease every 10 s, and a new connection and `verify` come on top.
pub const SHORTEST_CONFIRM: Span = Span::seconds(30);

/// What the SR-IOV NICs of a class of nodes are to be, and how that reaches them.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "penstock.dev",
    version = "v1alpha1",
    kind = "SriovMachine",
    plural = "sriovmachines",
    shortname = "srm",
    status = "SriovMachineStatus",
    derive = "PartialEq",
    doc = "What the SR-IOV NICs of a class of nodes are to be, and how that reaches them.",
    printcolumn = r#"{"name": "Matched", "type": "integer", "jsonPath": ".status.matched"}"#,
    printcolumn = r#"{"name": "Planned", "type": "integer", "jsonPath": ".status.planned"}"#,
    printcolumn = r#"{"name": "Updated", "type": "integer", "jsonPath": ".status.updated"}"#,
    printcolumn = r#"{"name": "Unavailable", "type": "integer", "jsonPath": ".status.unavailable"}"#,
    printcolumn = r#"{"name": "Failed", "type": "integer", "jsonPath": ".status.failed"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Why", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Progressing\")].message", "priority": 1}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SriovMachineSpec {
    /// The model: the text of the file that `penstock check` reads.
    #[schemars(length(min = 1, max = 262144))]
    pub model: String,
    /// The labels of the nodes that it is for, all of them. At least one; `kubernetes.io/os: linux` is on all nodes.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub node_selector: BTreeMap<String, String>,
    /// In which order and how fast.
    #[serde(default)]
    pub rollout: Rollout,
    /// What becomes of a node's pods before it is changed.
    #[serde(default)]
    pub drain: Drain,
    /// Dangers that are allowed, each by the name that the refusal gives it: `default-route:eno1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub allow: Vec<String>,
    /// Raise it to try the same model again after it failed somewhere.
    #[serde(default)]
    #[schemars(range(max = 1_000_000))]
    pub attempt: u32,
}

/// In which order and how fast a model reaches its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Rollout {
    /// How many matched nodes may be unavailable at a time, those that are so for other reasons included: a number, or a part of the matched
    /// nodes (`10%`, rounded down, at least 1).
    pub max_unavailable: MaxUnavailable,
    /// How many nodes have to hold before the others follow.
    #[schemars(range(max = 1000))]
    pub canary: u32,
    /// A node takes the change back by itself unless it proves within this time, counted from the end of `apply`, that it holds.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "duration(self.replace(' ', '')) >= duration('30s') && duration(self.replace(' ', '')) <= duration('1h')", "message": "confirmWithin is 30s to 1h: kubelet renews its Lease only every 10s"}]))]
    pub confirm_within: Span,
    /// No node is changed any more when so many have failed.
    #[schemars(range(min = 1, max = 1000))]
    pub stop_after_failures: u32,
    /// No node is changed. What is being changed comes to its end.
    pub pause: bool,
    /// Whether nodes that planned well are changed while others refuse, cannot, or are not ready.
    pub partial: bool,
}

impl Default for Rollout {
    fn default() -> Rollout {
        Rollout {
            max_unavailable: MaxUnavailable::Nodes(1),
            canary: 1,
            confirm_within: Span::seconds(120),
            stop_after_failures: 1,
            pause: false,
            partial: false,
        }
    }
}

/// A number of nodes, or a part of them in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxUnavailable {
    /// So many.
    Nodes(u32),
    /// So many of a hundred, 1 to 100.
    Percent(u32),
}

impl MaxUnavailable {
    /// How many of so many nodes: at least 1.
    pub fn of(self, nodes: usize) -> usize {
        match self {
            MaxUnavailable::Nodes(number) => (number as usize).max(1),
            MaxUnavailable::Percent(percent) => (nodes * percent as usize / 100).max(1),
        }
    }
}

impl Serialize for MaxUnavailable {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            MaxUnavailable::Nodes(number) => serializer.serialize_u32(*number),
            MaxUnavailable::Percent(percent) => serializer.collect_str(&format_args!("{percent}%")),
        }
    }
}

impl<'de> Deserialize<'de> for MaxUnavailable {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<MaxUnavailable, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(i64),
            Text(String),
        }
        let bad = |seen: String| {
            serde::de::Error::custom(format!(
                "maxUnavailable {seen} is neither a number of at least 1 nor 1% to 100%"
            ))
        };
        match Either::deserialize(deserializer)? {
            Either::Number(number) => match u32::try_from(number) {
                Ok(number) if number >= 1 => Ok(MaxUnavailable::Nodes(number)),
                _ => Err(bad(number.to_string())),
            },
            Either::Text(text) => match text.strip_suffix('%').map(str::parse) {
                Some(Ok(percent @ 1..=100)) => Ok(MaxUnavailable::Percent(percent)),
                _ => Err(bad(format!("{text:?}"))),
            },
        }
    }
}

impl JsonSchema for MaxUnavailable {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MaxUnavailable".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "x-kubernetes-validations": [{
                "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
                "message": "maxUnavailable is a number of at least 1, or 1% to 100%",
            }],
        })
    }
}

/// What becomes of a node's pods before it is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Drain {
    /// Who is evicted.
    pub mode: DrainMode,
    /// How long pods may take to go. Then the node is left as it is, and that counts as a failure.
    pub timeout: Span,
}

impl Default for Drain {
    fn default() -> Drain {
        Drain { mode: DrainMode::Claims, timeout: Span::seconds(600) }
    }
}

/// Who is evicted before a node is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DrainMode {
    /// Pods with a claim on a VF that vanishes, those of DaemonSets included. Nobody else.
    Claims,
    /// All pods but static ones and those of DaemonSets and of the controller, before any change; and of these too those with a claim on a VF
    /// that vanishes. The node is cordoned until the change has ended.
    Node,
    /// Nobody. A plan that takes a VF away from a pod is refused, unless `allow` names it.
    None,
}

/// How the nodes of a `SriovMachine` stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SriovMachineStatus {
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What of the spec decides what a node becomes, as one hash: the model, `allow` and `attempt`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// How many nodes the selector matches.
    pub matched: u32,
    /// How many of them have planned this model.
    pub planned: u32,
    /// How many have it and verified it.
    pub updated: u32,
    /// How many of these are ready.
    pub ready: u32,
    /// How many are unavailable, for whatever reason.
    pub unavailable: u32,
    /// How many failed, or took the change back.
    pub failed: u32,
    /// How many refuse it, or cannot.
    pub refused: u32,
    /// The first node, by name, that failed or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<FirstFailure>,
    /// Changes of this model that are under way, and those that failed. They count when their nodes or the labels of these go, until the hash is
    /// another one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512))]
    pub changes: Vec<RememberedChange>,
    /// `Ready`: all nodes have it. `Progressing`: nodes are being changed, or why not. `Degraded`: something went wrong.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<StatusCondition>,
}

/// The most changes that a status remembers.
pub const LONGEST_MEMORY: usize = 512;

/// A change of a node as its machine remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RememberedChange {
    /// The node.
    pub node: String,
    /// The number of the change.
    #[schemars(range(max = 1_000_000_000_000_i64))]
    pub number: u64,
    /// Since when it is under way, or when it failed.
    pub at: UtcTime,
    /// How it failed, in one word; none while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A node that failed or refused, and what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirstFailure {
    /// The node.
    pub node: String,
    /// What it says.
    pub message: String,
    /// When that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<UtcTime>,
}

impl SriovMachineSpec {
    /// What of the spec decides what a node becomes, as one hash in hexadecimal: the model, `allow` and `attempt`.
    pub fn hash(&self) -> String {
        let mut digest = Sha256::new();
        let mut allow: Vec<&str> = self.allow.iter().map(String::as_str).collect();
        allow.sort_unstable();
        allow.dedup();
        // Each part with its length before it, so that no two specs look alike.
        let mut part = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        };
        part(self.model.as_bytes());
        part(&self.attempt.to_le_bytes());
        allow.iter().for_each(|name| part(name.as_bytes()));
        hexadecimal(&digest.finalize())
    }

    /// Whether a node with these labels is one of its nodes.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        !self.node_selector.is_empty()
            && self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// The time to confirm within: never shorter than a Lease needs to be seen renewed.
    pub fn confirm_within(&self) -> Span {
        self.rollout.confirm_within.max(SHORTEST_CONFIRM)
    }
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: serde_json::Value) -> Result<SriovMachineSpec, serde_json::Error> {
        serde_json::from_value(json)
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let spec = spec(serde_json::json!({"model": "nics: {}", "nodeSelector": {"a": "b"}})).unwrap();
        assert_eq!(spec.rollout, Rollout::default());
        assert_eq!(spec.drain, Drain::default());
        assert_eq!(spec.confirm_within(), Span::seconds(120));
    }

    #[test]
    fn the_hash_is_of_what_decides_what_a_node_becomes() {
        let base =
            spec(serde_json::json!({"model": "m", "nodeSelector": {"a": "b"}, "allow": ["x", "y"]})).unwrap();
        let mut same = base.clone();
        same.allow = vec!["y".to_owned(), "x".to_owned(), "x".to_owned()];
        same.rollout.pause = true;
        assert_eq!(base.hash(), same.hash());
        for change in [
            |spec: &mut SriovMachineSpec| spec.model.push('n'),
            |spec: &mut SriovMachineSpec| spec.attempt = 1,
            |spec: &mut SriovMachineSpec| spec.allow = vec!["xy".to_owned()],
            |spec: &mut SriovMachineSpec| spec.allow.clear(),
        ] {
            let mut other = base.clone();
            change(&mut other);
            assert_ne!(base.hash(), other.hash());
        }
        assert_eq!(base.hash().len(), 64);
    }

    #[test]
    fn a_part_of_the_nodes_is_at_least_one() {
        assert_eq!(MaxUnavailable::Percent(10).of(1000), 100);
        assert_eq!(MaxUnavailable::Percent(10).of(5), 1);
        assert_eq!(MaxUnavailable::Nodes(3).of(1), 3);
        for (text, good) in [
            ("3", true),
            ("\"10%\"", true),
            ("\"100%\"", true),
            ("0", false),
            ("-1", false),
            ("\"0%\"", false),
            ("\"101%\"", false),
            ("\"ten\"", false),
        ] {
            let read: Result<MaxUnavailable, _> = serde_json::from_str(text);
            assert_eq!(read.is_ok(), good, "{text}");
            if let Ok(read) = read {
                assert_eq!(serde_json::to_string(&read).unwrap(), text);
            }
        }
    }

    #[test]
    fn a_key_of_a_newer_version_is_named() {
        let read =
            spec(serde_json::json!({"model": "m", "nodeSelector": {"a": "b"}, "rollout": {"soak": "10m"}}));
        assert!(read.unwrap_err().to_string().contains("unknown field `soak`"));
    }

    #[test]
    fn a_selector_needs_all_its_labels() {
        let spec = spec(serde_json::json!({"model": "m", "nodeSelector": {"a": "b", "c": ""}})).unwrap();
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        };
        assert!(spec.selects(&labels(&[("a", "b"), ("c", ""), ("d", "e")])));
        assert!(!spec.selects(&labels(&[("a", "b")])));
        assert!(!spec.selects(&labels(&[("a", "x"), ("c", "")])));
    }
}
