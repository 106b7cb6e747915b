//! Metrics as text: golden files, and the page that describes them. `UPDATE_GOLDEN=1` writes both anew.

mod snapshots;

use std::{collections::BTreeSet, path::Path};

use penstock_model::inventory::PortCounters;
use penstock_report::metrics::{
    Area, DriftMetrics, FAMILIES, Kind, Snapshot, TextFormat, VerificationMetrics, render, series, table,
};
use penstock_testkit::golden;

fn check(name: &str, text: &str) {
    golden::compare(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name), text);
}

#[test]
fn a_machine_as_openmetrics() {
    check("metrics.openmetrics", &render(&snapshots::small(), TextFormat::OpenMetrics));
}

#[test]
fn a_machine_as_node_exporter_reads_it() {
    let text = render(&snapshots::small(), TextFormat::Prometheus);
    check("metrics.prom", &text);
    assert!(text.ends_with('\n'));
    for refused in [" info\n", "# UNIT", "# EOF", "_created"] {
        assert!(!text.contains(refused), "{refused:?} is not in the format 0.0.4");
    }
}

#[test]
fn the_page_of_metrics_has_every_family() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    golden::compare_part(Path::new(page), "metrics", &table());
}

#[test]
fn names_keep_to_the_conventions() {
    let names: Vec<String> = FAMILIES.iter().map(|family| family.series()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "each has a name of its own");
    for (family, name) in FAMILIES.iter().zip(&names) {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.starts_with("penstock_") && name.chars().all(plain), "{name}");
        assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_info"), family.kind == Kind::Info, "{name}");
        // Suffixes that a format gives another meaning.
        for reserved in ["_created", "_bucket", "_count", "_sum"] {
            assert!(!name.ends_with(reserved), "{name}");
        }
        assert!(!family.help.contains(['\\', '"', '\n']) && family.help.ends_with('.'), "{}", family.help);
    }
}

#[test]
fn every_family_is_told_by_some_snapshot() {
    let told: BTreeSet<String> = series(&snapshots::everything()).into_iter().map(|one| one.name).collect();
    let all: BTreeSet<String> = FAMILIES.iter().map(|family| family.series()).collect();
    assert_eq!(told, all);
}

#[test]
fn what_was_not_read_is_counted_and_otherwise_missing() {
    let nothing = Snapshot { unread: [(Area::Runs, 1), (Area::Guests, 2)].into(), ..Snapshot::default() };
    let text = render(&nothing, TextFormat::OpenMetrics);
    assert!(text.contains("penstock_scrape_errors{what=\"guests\"} 2\n"), "{text}");
    assert!(text.contains("penstock_scrape_errors{what=\"interfaces\"} 0\n"), "{text}");
    for unknown in ["penstock_runs", "penstock_last_run", "penstock_run_in_progress", "penstock_verify"] {
        assert!(!text.contains(unknown), "{text}");
    }
}

#[test]
fn hostile_text_stays_inside_its_label() {
    let mut snapshot = snapshots::small();
    let hostile = "\"} 1\npenstock_evil{a=\"\\\n# EOF\n\u{1b}[2J\u{202e}";
    snapshot.functions[0].driver = Some(hostile.to_owned());
    snapshot.ports[0].port = "x".repeat(100_000);
    for format in [TextFormat::OpenMetrics, TextFormat::Prometheus] {
        let text = render(&snapshot, format);
        assert!(!text.lines().any(|line| line.starts_with("penstock_evil")), "{text}");
        assert!(text.contains(r#"driver="\"} 1 penstock_evil{a=\"\\ # EOF "#), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\r']), "{text:?}");
        assert!(text.lines().all(|line| line.len() < 2000), "a label has an end");
    }
}

#[test]
fn there_are_only_so_many_series_whatever_is_told() {
    let mut snapshot = snapshots::small();
    let many = |count: usize| (0..count).map(|number| format!("a{number:05}"));
    let counters = PortCounters {
        dropped_sent: many(1000).map(|reason| (reason, 1)).collect(),
        ..PortCounters::default()
    };
    snapshot.ports[0].counters = Some(counters);
    snapshot.verification = Some(VerificationMetrics {
        verdicts: many(1000)
            .map(|attribute| (attribute, [(penstock_model::Outcome::Fail, 1)].into()))
            .collect(),
        drift: many(1000).map(|subject| DriftMetrics { subject, attribute: "mac".to_owned() }).collect(),
        ..VerificationMetrics::default()
    });
    let all = series(&snapshot);
    let of = |name: &str| all.iter().filter(|one| one.name == name).collect::<Vec<_>>();
    assert_eq!(of("penstock_switch_port_transmit_dropped_packets_total").len(), 33);
    assert_eq!(of("penstock_verdicts").len(), 4 * 65);
    assert_eq!((of("penstock_drift").len(), of("penstock_drifted_attributes")[0].value), (256, 1000.0));
    let sum = |name: &str| of(name).iter().map(|one| one.value).sum::<f64>();
    assert_eq!(sum("penstock_verdicts"), 1000.0, "the others are counted together");
    assert_eq!(sum("penstock_switch_port_transmit_dropped_packets_total"), 1000.0);
}
