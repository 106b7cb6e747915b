//! What was found as SARIF 2.1.0 (OASIS, sarif-v2.1.0-os), which code scanning services read.

use std::collections::BTreeSet;

use penstock_model::Located;
use serde::Serialize;

use super::{Checked, Checks};

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json";

/// `sarifLog`: the whole document, with one run.
#[derive(Debug, Serialize)]
pub struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Tool,
    /// Ours; other readers count UTF-16 otherwise.
    column_kind: &'static str,
    results: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: &'static str,
    version: &'static str,
    rules: Vec<Rule>,
}

/// `reportingDescriptor`: one for each code that is in the results.
#[derive(Debug, Serialize)]
struct Rule {
    id: String,
}

/// `result`: one finding at one place in a file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    rule_id: String,
    level: String,
    message: Text,
    locations: [Location; 1],
}

#[derive(Debug, Serialize)]
struct Text {
    text: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: Physical,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Physical {
    artifact_location: Artifact,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<Region>,
}

#[derive(Debug, Serialize)]
struct Artifact {
    uri: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: usize,
    start_column: usize,
    end_line: usize,
    end_column: usize,
}

/// All that was found.
pub fn log(checks: &Checks) -> Log {
    let results: Vec<Finding> = checks.files.iter().flat_map(of_file).collect();
    let codes: BTreeSet<&str> = results.iter().map(|result| result.rule_id.as_str()).collect();
    let rules = codes.into_iter().map(|id| Rule { id: id.to_owned() }).collect();
    let driver = Driver { name: "penstock", version: env!("CARGO_PKG_VERSION"), rules };
    let run = Run { tool: Tool { driver }, column_kind: "unicodeCodePoints", results };
    Log { schema: SCHEMA, version: "2.1.0", runs: [run] }
}

fn of_file(checked: &Checked) -> Vec<Finding> {
    let diagnostics = checked.diagnostics.iter().map(of_message);
    let errors = checked.errors.iter().map(|error| {
        let text: Vec<&str> =
            std::iter::once(&error.message).chain(&error.causes).map(String::as_str).collect();
        finding(checked.status, "error", text.join(": "), &checked.file, None)
    });
    diagnostics.chain(errors).collect()
}

fn of_message(found: &Located) -> Finding {
    let text = match &found.help {
        Some(help) => format!("{}\nhelp: {help}", found.message),
        None => found.message.clone(),
    };
    let region = (found.line > 0).then_some(Region {
        start_line: found.line,
        start_column: found.column,
        end_line: found.end_line,
        end_column: found.end_column,
    });
    finding(&found.code, &found.severity, text, &found.file, region)
}

fn finding(code: &str, level: &str, text: String, file: &str, region: Option<Region>) -> Finding {
    let physical_location = Physical { artifact_location: Artifact { uri: uri(file) }, region };
    Finding {
        rule_id: code.to_owned(),
        level: level.to_owned(),
        message: Text { text },
        locations: [Location { physical_location }],
    }
}

/// A path as a URI reference (RFC 3986): relative stays relative.
fn uri(path: &str) -> String {
    let escaped: String = path
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                (byte as char).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect();
    if path.starts_with('/') { format!("file://{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_uri() {
        assert_eq!(uri("models/a b#1.yaml"), "models/a%20b%231.yaml");
        assert_eq!(uri("/etc/é.yaml"), "file:///etc/%C3%A9.yaml");
    }
}
