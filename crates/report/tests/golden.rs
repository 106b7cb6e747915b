//! What the renderings look like, kept as files: `UPDATE_GOLDEN=1 cargo test -p penstock-report` writes them anew.
#![allow(clippy::disallowed_methods, reason = "a test reads and writes its golden files")]

mod runs;

use std::{fs, path::Path};

use penstock_report::{Evidence, html, markdown, summary};

/// Compares with the golden file, and leaves what was made beside the build for people to look at.
fn check(name: &str, made: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, made).unwrap();
    }
    let kept = fs::read_to_string(&golden).unwrap_or_default();
    if kept != made {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&place, made).unwrap();
        let line = kept.lines().zip(made.lines()).take_while(|(kept, made)| kept == made).count() + 1;
        panic!("{name} differs from line {line} on; what was made is in {}", place.display());
    }
}

#[test]
fn a_small_run_as_a_page() {
    check("small.html", &html(&runs::small()));
}

#[test]
fn a_small_run_as_markdown() {
    check("small.md", &markdown(&runs::small()));
}

#[test]
fn a_failing_run_as_markdown() {
    check("xeon-d-failing.md", &markdown(&runs::xeon_d_failing()));
}

#[test]
fn a_failing_run_in_a_terminal() {
    let made = summary(&runs::xeon_d_failing());
    check("xeon-d-failing.txt", &made);
    for must in ["mac", "NET1#4", "02:de:ad:be:ef:04", "host", "step 6 failed"] {
        assert!(made.contains(must), "{must} is missing in:\n{made}");
    }
}

#[test]
fn a_small_run_as_json_reads_back() {
    let evidence = runs::small();
    check("small.json", &evidence.json());
    assert_eq!(Evidence::from_json(&evidence.json()).unwrap(), evidence);
}

#[test]
fn a_measured_run_as_a_page() {
    check("measured.html", &html(&runs::measured::measured_small()));
}

#[test]
fn a_measured_run_as_markdown() {
    check("measured.md", &markdown(&runs::measured::measured_small()));
}

#[test]
fn a_run_measured_in_a_vm_as_markdown() {
    check("measured-in-a-vm.md", &markdown(&runs::measured::measured_in_a_vm(true)));
}

#[test]
fn the_page_tells_what_a_gigabit_costs_a_vm_and_its_host() {
    let page = html(&runs::measured::measured_in_a_vm(true));
    for column in ["CPU time of the VM, ", "CPU time of the host, "] {
        assert!(page.contains(column), "no column {column}");
    }
    // What nobody counts on such paths has no column.
    assert!(!html(&runs::measured::measured_in_containers()).contains("CPU time of the"));
}

#[test]
fn a_run_measured_in_containers_as_markdown() {
    check("measured-in-containers.md", &markdown(&runs::measured::measured_in_containers()));
}

#[test]
fn a_measured_run_in_a_terminal() {
    let made = summary(&runs::measured::measured(true));
    check("measured.txt", &made);
    for must in ["2.05 [1.97, 2.14] times what the bridge carries", "cells are missing", "ratios only"] {
        assert!(made.contains(must), "{must} is missing in:\n{made}");
    }
}

#[test]
fn a_measured_run_as_json_reads_back() {
    let evidence = runs::measured::measured_small();
    check("measured.json", &evidence.json());
    assert_eq!(Evidence::from_json(&evidence.json()).unwrap(), evidence);
}

#[test]
fn a_run_of_latencies_as_a_page() {
    check("real-time.html", &html(&runs::real_time::real_time(true)));
}

#[test]
fn a_run_of_latencies_as_markdown() {
    check("real-time.md", &markdown(&runs::real_time::real_time(true)));
}

#[test]
fn a_run_of_latencies_in_a_terminal() {
    check("real-time.txt", &summary(&runs::real_time::real_time(false)));
}

#[test]
fn a_run_of_latencies_as_json_reads_back() {
    let evidence = runs::real_time::real_time(true);
    assert_eq!(Evidence::from_json(&evidence.json()).unwrap(), evidence);
    let latency = evidence.latency.unwrap();
    let counts = latency.counts();
    assert_eq!((counts.measured, counts.missing, counts.not_reached), (10, 1, 0));
}
