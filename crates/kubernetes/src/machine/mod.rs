//! The objects of a roll-out: `SriovMachine`, what a class of nodes is to be, and `SriovNode`, how one node stands to it.
//!
//! Users write `SriovMachine`. The agent of a node writes the status of its `SriovNode`; only the controller writes the spec of one. Nothing
//! here reads or writes a cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

pub mod condition;
pub mod manifests;
pub mod moment;
pub mod node;
pub mod policy;

pub use condition::{ConditionStatus, StatusCondition};
pub use moment::{Span, UtcTime};
pub use node::{SriovNode, SriovNodeSpec, SriovNodeStatus};
pub use policy::{SriovMachine, SriovMachineSpec, SriovMachineStatus};

/// The API group of both kinds.
pub const GROUP: &str = "penstock.dev";

/// The version of both kinds that this program reads and writes.
pub const VERSION: &str = "v1alpha1";

/// The definitions of both kinds, as an API server takes them.
pub fn crds() -> Vec<Value> {
    [SriovMachine::crd(), SriovNode::crd()].iter().map(structural).collect()
}

/// A definition without what an API server warns of: it knows none of the number formats that come from Rust's types.
fn structural(crd: &CustomResourceDefinition) -> Value {
    let mut value = serde_json::to_value(crd).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    plain(&mut value);
    value
}

fn plain(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let unknown =
                map.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint"));
            if unknown {
                map.remove("format");
            }
            if map.get("properties").is_some() && map.get("additionalProperties") == Some(&Value::Bool(false))
            {
                map.remove("additionalProperties");
            }
            map.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_structural_and_have_a_status_of_their_own() {
        for crd in crds() {
            let version = &crd["spec"]["versions"][0];
            assert_eq!(version["subresources"], serde_json::json!({"status": {}}), "{crd}");
            let text = version.to_string();
            for foreign in [
                "\"format\":\"uint",
                "\"$ref\"",
                "\"additionalProperties\":false",
                "oneOf",
                "anyOf\":[{\"required",
            ] {
                assert!(!text.contains(foreign), "{foreign} in {text}");
            }
            assert!(version["additionalPrinterColumns"].as_array().is_some_and(|columns| columns.len() >= 4));
        }
    }

    #[test]
    fn the_definitions_are_those_on_record() {
        let text = serde_json::to_string_pretty(&crds()).unwrap();
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/crds.json"));
        penstock_testkit::golden::compare(path, &(text + "\n"));
    }
}
