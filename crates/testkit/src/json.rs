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
    let path = format!("{}/../../schema/{kind}.schema.json", env!("CARGO_MANIFEST_DIR"));
    let schema = fs::read(Path::new(&path)).map_err(|error| format!("{path}: {error}"))?;
    let schema: Value = serde_json::from_slice(&schema).map_err(|error| format!("{path}: {error}"))?;
    let validator = jsonschema::validator_for(&schema).map_err(|error| format!("{path}: {error}"))?;
    let wrong: Vec<String> = validator
        .iter_errors(&document)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect();
    match wrong.is_empty() {
        true => Ok(document),
        false => Err(format!("{kind} is not of its schema:\n{:.3000}", wrong.join("\n"))),
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
