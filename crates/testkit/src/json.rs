//! What `--json` prints, held against the schema that is published for it.
//!
//! Every test reads documents through here, so that no verb's is left unchecked.

use std::{fs, path::Path};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The document that a run of the binary printed, which must be one, and of its kind's schema.
///
/// # Errors
///
/// When it is none, says no kind, or its schema does not hold.
pub fn read(text: &str) -> Result<Value, String> {
    let document: Value = serde_json::from_str(text).map_err(|error| format!("{error}: {text:.2000}"))?;
    let kind = document["kind"].as_str().ok_or_else(|| format!("it says no kind: {text:.2000}"))?;
    if !document["version"].is_u64() {
        return Err(format!("it says no version: {text:.2000}"));
    }
    held(&document, &format!("{}/../../schema/{kind}.schema.json", env!("CARGO_MANIFEST_DIR")))?;
    Ok(document)
}

/// The SARIF log that a run of the binary printed, held against the schema that OASIS publishes (fixtures/sarif).
///
/// # Errors
///
/// When it is no JSON, or the schema does not hold.
pub fn sarif(text: &str) -> Result<Value, String> {
    let log: Value = serde_json::from_str(text).map_err(|error| format!("{error}: {text:.2000}"))?;
    held(&log, concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/sarif/sarif-2.1.0.schema.json"))?;
    Ok(log)
}

/// A bill of materials, held against the schema of CycloneDX 1.6 (fixtures/cyclonedx).
///
/// # Errors
///
/// When it is no JSON, or the schema does not hold.
pub fn bill_of_materials(text: &str) -> Result<Value, String> {
    let bill: Value = serde_json::from_str(text).map_err(|error| format!("{error}: {text:.2000}"))?;
    held(&bill, concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/cyclonedx/bom-1.6.schema.json"))?;
    Ok(bill)
}

/// A `SriovNetworkNodePolicy`, held against the resource definition of the SR-IOV network operator (fixtures/sriov-operator).
///
/// # Errors
///
/// When the definition does not hold.
pub fn sriov_policy(policy: &Value) -> Result<(), String> {
    held(
        policy,
        concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/sriov-operator/sriovnetworknodepolicy.schema.json"),
    )
}

/// Holds a document against the schema in this file, formats of strings too.
fn held(document: &Value, path: &str) -> Result<(), String> {
    let schema = fs::read(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
    let schema: Value = serde_json::from_slice(&schema).map_err(|error| format!("{path}: {error}"))?;
    let options = jsonschema::options().should_validate_formats(true);
    let validator = options.build(&schema).map_err(|error| format!("{path}: {error}"))?;
    let wrong: Vec<String> = validator
        .iter_errors(document)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("it does not hold against {path}:\n{:.3000}", wrong.join("\n"))),
    }
}

/// The same as a value of Rust.
///
/// # Errors
///
/// As of [`read`], and when it is no `T`.
pub fn read_as<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(read(text)?).map_err(|error| error.to_string())
}
