//! What was found as a Code Quality report of GitLab: a merge request shows what a report of the target branch does not have, in paid tiers at the lines.
//!
//! Source: GitLab's documentation, "Code Quality", "Code Quality report format".

use std::collections::HashMap;

use penstock_model::digest::sha256;
use serde::Serialize;

use super::{Checked, Checks};

/// One finding at one line of a file.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct QualityFinding {
    description: String,
    check_name: String,
    /// By this GitLab tells what is new: of two that are alike it shows one. Lines that come and go above it leave it as it is.
    fingerprint: String,
    severity: &'static str,
    location: QualityLocation,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct QualityLocation {
    path: String,
    lines: QualityLines,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct QualityLines {
    begin: usize,
}

/// All that was found.
pub fn report(checks: &Checks) -> Vec<QualityFinding> {
    let mut findings: Vec<QualityFinding> = checks.files.iter().flat_map(of_file).collect();
    let mut equals: HashMap<String, usize> = HashMap::new();
    for found in &mut findings {
        let text =
            [&found.location.path, &found.check_name, &found.description].map(String::as_str).join("\n");
        let number = equals.entry(text.clone()).or_default();
        found.fingerprint = sha256(format!("{text}\n{number}"));
        *number += 1;
    }
    findings
}

fn of_file(checked: &Checked) -> Vec<QualityFinding> {
    let diagnostics = checked.diagnostics.iter().map(|found| {
        let text = match &found.help {
            Some(help) => format!("{} (help: {help})", found.message),
            None => found.message.clone(),
        };
        finding(&found.code, &found.severity, text, &found.file, found.line)
    });
    let errors = checked.errors.iter().map(|error| {
        let text: Vec<&str> =
            std::iter::once(&error.message).chain(&error.causes).map(String::as_str).collect();
        finding(checked.status, "error", text.join(": "), &checked.file, 0)
    });
    diagnostics.chain(errors).collect()
}

/// `line` counts from 1; 0 where it is about the whole file. The fingerprint is still to be added.
fn finding(code: &str, level: &str, description: String, file: &str, line: usize) -> QualityFinding {
    QualityFinding {
        fingerprint: String::new(),
        description,
        check_name: code.to_owned(),
        severity: if level == "error" { "major" } else { "minor" },
        location: QualityLocation {
            path: file.strip_prefix("./").unwrap_or(file).to_owned(),
            lines: QualityLines { begin: line.max(1) },
        },
    }
}
