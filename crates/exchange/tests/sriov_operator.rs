//! What is written for the SR-IOV network operator keeps to its resource definition.

use penstock_exchange::{ExportFormat, export};
use penstock_model::{
    Inventory, Source, parse,
    yaml::{self, YamlNode, YamlValue},
};
use penstock_testkit::json;
use serde_json::{Map, Number, Value};

/// As Kubernetes reads it: what stands between quotes is text, and nothing else that could be a number or a boolean.
fn as_json(node: &YamlNode, text: &str) -> Value {
    match &node.value {
        YamlValue::Null | YamlValue::Spoiled => Value::Null,
        YamlValue::Sequence(items) => items.iter().map(|item| as_json(item, text)).collect(),
        YamlValue::Mapping(entries) => {
            let entries = entries.iter().map(|entry| (entry.key.clone(), as_json(&entry.value, text)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
        YamlValue::Scalar(scalar) if text[node.span.clone()].starts_with(['\'', '"']) => {
            scalar.as_str().into()
        }
        YamlValue::Scalar(scalar) => match (scalar.parse::<bool>(), scalar.parse::<Number>()) {
            (Ok(on), _) => on.into(),
            (_, Ok(number)) => Value::Number(number),
            _ => scalar.as_str().into(),
        },
    }
}

fn policies(model: &str) -> Vec<Value> {
    let model = parse(&Source::new("model.yaml", model)).unwrap().model;
    let inventory: Inventory = serde_json::from_str(include_str!("machine.json")).unwrap();
    let files = export(&model, &inventory, ExportFormat::SriovOperator).unwrap().files;
    let text = &files[0].text;
    yaml::documents(text).unwrap().iter().map(|policy| as_json(policy, text)).collect()
}

#[test]
fn policies_keep_to_the_resource_definition() {
    // Names of the last one are numbers to who reads YAML.
    let numbers = "machine: \"1\"\nnics: {\"7\": {match: {mac: \"0c:c4:7a:9a:61:ea\"}, vfs: 3}}\n";
    for (model, least) in [(include_str!("model.yaml"), 4), (numbers, 1)] {
        let policies = policies(model);
        assert!(policies.len() >= least, "{policies:?}");
        for policy in &policies {
            json::sriov_policy(policy).unwrap_or_else(|wrong| panic!("{wrong}\n{policy}"));
        }
    }
}

#[test]
fn the_definition_refuses_what_the_operator_would() {
    let good = policies(include_str!("model.yaml")).remove(0);
    for (key, value) in [
        ("numVfs", Value::from("5")),
        ("deviceType", "igbvf".into()),
        ("mtuu", 9000.into()),
        ("nicSelector", Value::Null),
    ] {
        let mut policy = good.clone();
        policy["spec"][key] = value;
        assert!(json::sriov_policy(&policy).is_err(), "{key}");
    }
}
