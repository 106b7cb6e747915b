//! The crates' arrows point the way that ARCHITECTURE.md draws them, and every crate inherits the lints.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{collections::BTreeMap, path::Path, process::Command};

use penstock_testkit::golden;

/// Which crates of ours a crate may use. One that is missing here fails the test: a new crate declares itself.
const ARROWS: [(&str, &[&str]); 22] = [
    ("model", &[]),
    ("render", &["model"]),
    ("plan", &["model", "render"]),
    ("exchange", &["model", "plan"]),
    ("host", &["model"]),
    ("audit", &["model"]),
    ("report", &["model"]),
    ("statistics", &["model"]),
    ("apply", &["plan", "host", "model"]),
    ("verify", &["host", "model"]),
    ("guests", &["plan", "host", "model"]),
    ("board", &["host", "model"]),
    ("measure", &["host", "model", "statistics"]),
    ("cni", &["host", "model"]),
    ("oci", &["model"]),
    ("cluster", &["board", "host", "model", "oci"]),
    ("kubernetes", &["host", "model", "oci"]),
    ("switch", &[]),
    ("packages", &["cli", "host", "kubernetes", "model", "oci", "switch"]),
    ("testkit", &["host", "model"]),
    ("docs", &[]),
    (
        "cli",
        &[
            "apply", "audit", "board", "cluster", "cni", "exchange", "guests", "host", "measure", "model",
            "plan", "render", "report", "switch", "verify",
        ],
    ),
];

/// What a crate's tests may use besides: what one writes for another's program to read is read by that.
const FOR_TESTS: [(&str, &str); 1] = [("kubernetes", "cni")];

fn metadata() -> serde_json::Value {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path", manifest])
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_crates_arrows_point_the_way_the_design_draws_them() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.into();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    assert_eq!(packages.len(), ARROWS.len());
    for package in packages {
        let name = package["name"].as_str().unwrap().strip_prefix("penstock-").unwrap();
        let may = allowed.get(name).unwrap_or_else(|| panic!("crate {name} has no arrows"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let Some(on) = dependency["name"].as_str().unwrap().strip_prefix("penstock-") else {
                continue;
            };
            let for_tests =
                dependency["kind"] == "dev" && (on == "testkit" || FOR_TESTS.contains(&(name, on)));
            assert!(for_tests || may.contains(&on), "crate {name} must not use {on}");
        }
    }
}

/// `UPDATE_GOLDEN=1 cargo test -p penstock-testkit --test arrows` writes it.
#[test]
fn the_page_has_each_arrow() {
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let row = |(name, uses): (&str, &[&str])| match uses.is_empty() {
        true => format!("| `{name}` | nothing here |\n"),
        false => format!("| `{name}` | {} |\n", quoted(uses)),
    };
    let table: String = ARROWS.into_iter().map(row).collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    golden::compare_part(&page, "arrows", &format!("| crate | uses |\n|---|---|\n{table}"));
}

#[test]
fn the_pure_crates_stay_pure() {
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if ![
            "penstock-model",
            "penstock-plan",
            "penstock-render",
            "penstock-exchange",
            "penstock-audit",
            "penstock-report",
            "penstock-statistics",
        ]
        .contains(&name)
        {
            continue;
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            let impure = ["nix", "libc", "netlink-sys", "signal-hook", "indicatif", "clap"].contains(&on);
            assert!(!impure || dependency["kind"] == "dev", "pure crate {name} must not use {on}");
        }
    }
}

#[test]
fn every_crate_inherits_the_lints() {
    for folder in sources::crates() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{manifest}");
    }
}
