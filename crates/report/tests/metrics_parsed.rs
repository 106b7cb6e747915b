//! Any snapshot renders to text that somebody else's parser reads as it was meant: that of Prometheus' Python client, which knows
//! both formats.
#![allow(clippy::disallowed_methods)]

mod snapshots;

use std::{
    io::Write,
    process::{Command, ExitCode, Stdio},
};

use penstock_model::{
    Bdf, GuestKind, GuestName, NicName, Outcome, VfIndex,
    inventory::{PortCounters, VfCounters},
};
use penstock_report::metrics::{
    Area, DriftMetrics, FunctionMetrics, GuestMetrics, GuestState, Identity, InterfaceMetrics, MetricSeries,
    PfMetrics, PortMetrics, RunMetrics, RunOutcome, RunsMetrics, Snapshot, TextFormat, VerificationMetrics,
    render, series,
};
use penstock_testkit::{
    needs::{self, Lack},
    trials::{Failed, Outcome as Ended, Test, Trials},
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    strategy::ValueTree,
    test_runner::TestRunner,
};
use serde_json::{Value, json};

/// Debian's own, which the package is for: another may come before it in `PATH`.
const PYTHON: &str = "/usr/bin/python3";

/// How many snapshots are rendered.
const CASES: usize = 48;

/// Reads texts from standard input, and prints the series of each.
const PARSER: &str = r#"
import json, sys
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
parsers = {"openmetrics": openmetrics, "prometheus": parser}
read = []
for case in json.load(sys.stdin):
    families = parsers[case["format"]].text_string_to_metric_families(case["text"])
    read.append([[f.type, s.name, sorted(s.labels.items()), s.value] for f in families for s in f.samples])
json.dump(read, sys.stdout)
"#;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("metrics as others read them", lacking);
    let tests: [(&str, Test); 1] = [("any_snapshot_is_read_as_it_was_meant_by_another_parser", read_back)];
    trials.add(&missing, tests);
    trials.run()
}

fn lacking() -> Option<Lack> {
    needs::programs(&[PYTHON]).or_else(|| {
        let imported = Command::new(PYTHON).args(["-c", "import prometheus_client"]).output();
        let there = imported.is_ok_and(|output| output.status.success());
        (!there).then(|| {
            Lack::Installable(
                "/usr/bin/python3 has no prometheus_client: it is in the package python3-prometheus-client, see scripts/programs"
                    .to_owned(),
            )
        })
    })
}

/// Text as firmware, a file system or a socket may have it.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        "[\\x00-\\x7f]{0,40}",
        "[\"\\\\\n{}=, #]{0,12}",
        Just("# EOF\n".to_owned()),
        Just("\u{1b}[2J\u{202e}\u{2028}\u{85}\r".to_owned()),
        "[a-z]{300}",
    ]
}

fn guest() -> impl Strategy<Value = GuestName> {
    "[A-Za-z0-9][A-Za-z0-9._-]{0,20}".prop_map(|name| name.parse().unwrap())
}

fn nic() -> impl Strategy<Value = NicName> {
    "NET[0-9]|[A-Za-z0-9][A-Za-z0-9._-]{0,20}".prop_map(|name| name.parse().unwrap())
}

fn address() -> impl Strategy<Value = Bdf> {
    (any::<u8>(), 0..32_u8, 0..8_u8).prop_map(|(bus, device, function)| {
        format!("0000:{bus:02x}:{device:02x}.{function}").parse().unwrap()
    })
}

fn of_vf() -> impl Strategy<Value = VfCounters> {
    (any::<[u64; 4]>(), any::<[Option<u64>; 4]>()).prop_map(|([a, b, c, d], [e, f, g, h])| VfCounters {
        rx_packets: a,
        tx_packets: b,
        rx_bytes: c,
        tx_bytes: d,
        broadcast: e,
        multicast: f,
        rx_dropped: g,
        tx_dropped: h,
    })
}

fn interface() -> impl Strategy<Value = InterfaceMetrics> {
    let flags = (any::<bool>(), any::<Option<bool>>(), any::<Option<u32>>());
    ("[a-z][a-z0-9.-]{0,14}", flags, option::of(0..u64::MAX - 9)).prop_map(
        |(name, (up, carrier, speed), from)| InterfaceMetrics {
            name: name.parse().unwrap(),
            up,
            carrier,
            speed,
            counters: from.map(snapshots::counters),
        },
    )
}

fn function() -> impl Strategy<Value = FunctionMetrics> {
    let vf = option::of((0..=VfIndex::MAX).prop_map(|index| VfIndex::new(index).unwrap()));
    let identity =
        (address(), address(), vf, option::of("NET[0-9]#[0-9]")).prop_map(|(bdf, pf, vf, name)| Identity {
            bdf,
            pf,
            vf,
            function: name.map(|name| name.parse().unwrap()),
        });
    let pf = any::<(u16, u16, Option<bool>)>().prop_map(|(vfs, vfs_max, counts_vfs)| PfMetrics {
        vfs,
        vfs_max,
        counts_vfs,
    });
    let seen = (option::of(text()), option::of(guest()), any::<Option<u32>>());
    (identity, seen, option::of(interface()), option::of(of_vf()), option::of(pf)).prop_map(
        |(identity, (driver, guest, iommu_group), interface, counters, pf)| FunctionMetrics {
            identity,
            driver,
            guest,
            iommu_group,
            interface,
            counters,
            pf,
        },
    )
}

fn port() -> impl Strategy<Value = PortMetrics> {
    let dropped = || btree_map(text(), any::<u64>(), 0..40);
    let counters = (any::<[u64; 4]>(), dropped(), dropped()).prop_map(
        |([sent, sent_bytes, received, received_bytes], dropped_sent, dropped_received)| PortCounters {
            sent,
            sent_bytes,
            received,
            received_bytes,
            dropped_sent,
            dropped_received,
        },
    );
    (guest(), nic(), text(), any::<(bool, bool)>(), option::of(counters)).prop_map(
        |(guest, nic, port, (connected, up), counters)| PortMetrics {
            guest,
            nic,
            port,
            connected,
            up,
            counters,
        },
    )
}

fn runs() -> impl Strategy<Value = RunsMetrics> {
    let outcomes = vec![RunOutcome::Running, RunOutcome::Done, RunOutcome::Failed, RunOutcome::CutOff];
    let time = || 0.0..4e9_f64;
    let last = (any::<u32>(), text(), option::of(text()), prop::sample::select(outcomes), time()).prop_map(
        |(id, purpose, model, outcome, began)| RunMetrics {
            id,
            purpose,
            model,
            outcome,
            began,
            ended: Some(began + 0.5),
        },
    );
    (any::<[u8; 4]>(), option::of(time()), option::of(last)).prop_map(
        |([open, half_way, lapsed, damaged], confirm_until, last)| RunsMetrics {
            open: open.into(),
            half_way: half_way.into(),
            lapsed: lapsed.into(),
            damaged: damaged.into(),
            confirm_until,
            last,
            in_progress: None,
        },
    )
}

fn verification() -> impl Strategy<Value = VerificationMetrics> {
    let outcomes = vec![Outcome::Pass, Outcome::Fail, Outcome::Unsupported, Outcome::Unknown];
    let verdicts = btree_map(text(), btree_map(prop::sample::select(outcomes), any::<u64>(), 0..4), 0..80);
    let drift =
        vec((text(), text()).prop_map(|(subject, attribute)| DriftMetrics { subject, attribute }), 0..40);
    (any::<bool>(), verdicts, drift).prop_map(|(holds, verdicts, drift)| VerificationMetrics {
        holds,
        at: 1.8e9,
        verdicts,
        drift,
    })
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let state = prop::sample::select(GuestState::ALL.to_vec());
    let kind = prop::sample::select(vec![GuestKind::Vm, GuestKind::Container]);
    let guest_is = (option::of(kind), state, any::<Option<u64>>())
        .prop_map(|(kind, state, since)| GuestMetrics { kind, state, since });
    let area = prop::sample::select(Area::ALL.to_vec());
    let machine = (vec(function(), 0..6), btree_map(guest(), guest_is, 0..4), vec(port(), 0..3));
    let rest = (text(), any::<u16>(), btree_map(area, any::<u64>(), 0..4), 0.0..1e3_f64);
    (machine, option::of(runs()), option::of(verification()), rest).prop_map(
        |((functions, guests, ports), runs, verification, (build, notes, unread, took))| Snapshot {
            build,
            functions,
            guests,
            ports,
            runs,
            verification,
            scan_notes: notes.into(),
            unread,
            took,
        },
    )
}

fn read_back() -> Ended {
    let mut runner = TestRunner::default();
    let mut all = vec![Snapshot::default(), snapshots::small(), snapshots::everything()];
    for _ in 0..CASES {
        all.push(snapshot().new_tree(&mut runner).map_err(|why| why.to_string())?.current());
    }
    for (format, name) in [(TextFormat::OpenMetrics, "openmetrics"), (TextFormat::Prometheus, "prometheus")] {
        let texts: Vec<String> = all.iter().map(|snapshot| render(snapshot, format)).collect();
        let cases: Vec<Value> = texts.iter().map(|text| json!({"format": name, "text": text})).collect();
        let read = parsed(&cases)?;
        assert_eq!(read.len(), texts.len());
        for ((snapshot, text), read) in all.iter().zip(&texts).zip(&read) {
            compare(&series(snapshot), read, format).map_err(|why| format!("{name}: {why}\n{text}"))?;
        }
    }
    Ok(())
}

/// What the other parser reads of each text.
fn parsed(cases: &[Value]) -> Result<Vec<Value>, Failed> {
    let mut python = Command::new(PYTHON)
        .args(["-c", PARSER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = python.stdin.take().ok_or("no standard input")?;
    let text = serde_json::to_vec(cases)?;
    let writer = std::thread::spawn(move || input.write_all(&text));
    let output = python.wait_with_output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    writer.join().map_err(|_| "the writer panicked")??;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn compare(wanted: &[MetricSeries], read: &Value, format: TextFormat) -> Result<(), String> {
    let read = read.as_array().ok_or("no list")?;
    if read.len() != wanted.len() {
        return Err(format!("{} series were read, and {} were written", read.len(), wanted.len()));
    }
    for (one, read) in wanted.iter().zip(read) {
        let mut labels: Vec<Value> = one.labels.iter().map(|(name, value)| json!([name, value])).collect();
        labels.sort_by_key(Value::to_string);
        let mut seen = read[2].as_array().cloned().unwrap_or_default();
        seen.sort_by_key(Value::to_string);
        let value = read[3].as_f64().ok_or_else(|| format!("no value: {read}"))?;
        let counter = one.name.ends_with("_total");
        let kind = match (format, counter, one.name.ends_with("_info")) {
            (_, true, _) => "counter",
            (TextFormat::OpenMetrics, _, true) => "info",
            _ => "gauge",
        };
        // A gauge has 63 bits: one that is more is written as the most that it can be.
        let most = if counter { f64::INFINITY } else { i64::MAX as f64 };
        let near = (value - one.value.min(most)).abs() <= one.value * 1e-9;
        if (&read[0], &read[1]) != (&json!(kind), &json!(one.name)) || seen != labels || !near {
            return Err(format!("{one:?} was read as {read}"));
        }
    }
    Ok(())
}
