//! The latency probe's output ([`crate::probe::outcome`]).

use penstock_model::measurement::{Load, Metric};
use serde::Serialize;

use super::{Json, Reading, message, object};
use crate::output::{OutputError, text};
use crate::probe::outcome::{Outcome, VERSION};

const TOOL: &str = "probe";

/// A guest's clock may run a little differently from the one that `achieved_rate` is checked by here.
const ROUNDING: f64 = 1e-6;

/// Reads what the client printed of a run with this load and size.
///
/// # Errors
///
/// [`OutputError`] when it is empty, too long, of another version of the tool, not of its form, or has no
/// number that was asked for; the tool's own error is in it where it printed one.
pub fn json(output: &[u8], load: Load, size: u32) -> Result<Reading, OutputError> {
    let value = object(TOOL, text(TOOL, output)?)?;
    let root = Json { tool: TOOL, value: &value, path: String::new() };
    let version = root.get("penstock_probe")?.count()?;
    if version != u64::from(VERSION) {
        return Err(OutputError::Version { tool: TOOL, version: version.to_string(), known: "version 1" });
    }
    let outcome: Outcome = serde_json::from_value(value)
        .map_err(|error| OutputError::Malformed { tool: TOOL, why: message(&error.to_string()) })?;
    check(&outcome, load, size)?;
    if !outcome.greeted || outcome.received == 0 {
        return match outcome.error.as_deref().map(message) {
            // A way that is closed is another thing than one that swallows everything.
            Some(message) => {
                Err(OutputError::Failed { tool: TOOL, message: format!("no answer: {message}") })
            }
            None => Err(OutputError::NothingArrived { tool: TOOL, sent: None }),
        };
    }
    if outcome.unsent > 0 || outcome.failed > 0 {
        // The latencies of what was never sent would be the longest.
        let said = outcome.error.as_deref().map(|said| format!(": {}", message(said))).unwrap_or_default();
        let (unsent, failed) = (outcome.unsent, outcome.failed);
        let message = format!(
            "{unsent} requests could not be sent in time, {failed} not at all{said}; a lower rate could be"
        );
        return Err(OutputError::Failed { tool: TOOL, message });
    }
    Ok(reading(outcome))
}

/// A value as it stood in the output.
fn written(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}

/// What cannot be, or is not what was asked for.
fn check(outcome: &Outcome, load: Load, size: u32) -> Result<(), OutputError> {
    let odd = |field: &str, value: String| OutputError::OddField { tool: TOOL, field: field.into(), value };
    if outcome.load != load {
        return Err(odd("load", written(&outcome.load)));
    }
    if outcome.size != size {
        return Err(odd("size", outcome.size.to_string()));
    }
    let rate = match load {
        Load::Open { rate } => Some(f64::from(rate)),
        Load::Closed => None,
    };
    if outcome.requested_rate != rate {
        return Err(odd("requested_rate", written(&outcome.requested_rate)));
    }
    let numbers = [
        ("seconds", outcome.seconds),
        ("achieved_rate", outcome.achieved_rate),
        ("cpu_percent", outcome.cpu_percent),
    ];
    if let Some((field, value)) = numbers.into_iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
        return Err(odd(field, value.to_string()));
    }
    let Outcome { sent, received, lost, overdue, .. } = *outcome;
    if received.checked_add(lost) != Some(sent) {
        return Err(odd("lost", format!("{lost} of {sent} sent and {received} received")));
    }
    if overdue > lost {
        return Err(odd("overdue", overdue.to_string()));
    }
    if sent > 0 && outcome.seconds == 0.0 {
        return Err(odd("seconds", outcome.seconds.to_string()));
    }
    let rate = sent as f64 / if sent > 0 { outcome.seconds } else { 1.0 };
    if (outcome.achieved_rate - rate).abs() > rate * ROUNDING {
        return Err(odd("achieved_rate", outcome.achieved_rate.to_string()));
    }
    if outcome.histogram.total() != received {
        let counted = outcome.histogram.total();
        return Err(odd("histogram", format!("{counted} latencies of {received} received")));
    }
    let (first, last) = (outcome.histogram.buckets().next(), outcome.histogram.buckets().last());
    match (outcome.latency, first, last) {
        (None, None, None) => {}
        (Some(latency), Some((low, high, _)), Some((last_low, last_high, _)))
            if (low..=high).contains(&latency.min_ns)
                && (last_low..=last_high).contains(&latency.max_ns)
                && (latency.min_ns..=latency.max_ns).contains(&latency.mean_ns) => {}
        (latency, ..) => return Err(odd("latency", written(&latency))),
    }
    match &outcome.late {
        Some(late) if late.p50_ns > late.p99_ns || late.p99_ns > late.max_ns || late.sends > sent => {
            Err(odd("late", written(late)))
        }
        _ => Ok(()),
    }
}

fn reading(outcome: Outcome) -> Reading {
    let (version, lost) = (Some(message(&outcome.program)), outcome.lost);
    let mut reading = Reading { version, lost, ..Reading::default() };
    let received = outcome.received;
    if let Some(latency) = outcome.latency {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        reading.values.insert(Metric::Min, microseconds(latency.min_ns));
        reading.values.insert(Metric::Mean, microseconds(latency.mean_ns));
        reading.values.insert(Metric::Max, microseconds(latency.max_ns));
        for metric in [Metric::P50, Metric::P90, Metric::P99, Metric::P999] {
            // Where it is one of the lost it is withheld. And a bucket's end can lie past the longest.
            let quantile = metric.quantile().and_then(|q| outcome.histogram.quantile_below(q, lost));
            let nanoseconds = quantile.unwrap_or(u64::MAX).min(latency.max_ns);
            reading.percentile(metric, microseconds(nanoseconds), received);
        }
    }
    if outcome.load == Load::Closed {
        reading.values.insert(Metric::Transactions, received as f64 / outcome.seconds);
    }
    reading.values.insert(Metric::Loss, outcome.lost as f64 / outcome.sent as f64);
    reading.values.insert(Metric::LocalCpu, outcome.cpu_percent);
    reading.histogram = Some(outcome.histogram);
    reading
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OPEN: Load = Load::Open { rate: 500 };
    const RECORDED: &str = include_str!("../../tests/outputs/probe-1-open.json");
    const CLOSED: &str = include_str!("../../tests/outputs/probe-1-closed.json");
    const REFUSED: &str = include_str!("../../tests/outputs/probe-1-refused.json");

    fn read(text: &str) -> Result<Reading, OutputError> {
        super::json(text.as_bytes(), OPEN, 128)
    }

    /// The recorded output with some keys changed.
    fn changed(changes: &[(&str, Value)]) -> Result<Reading, OutputError> {
        let mut value: Value = serde_json::from_str(RECORDED).unwrap();
        for (path, change) in changes {
            *value.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = change.clone();
        }
        read(&value.to_string())
    }

    #[test]
    fn a_recorded_run_is_read() {
        let value: Value = serde_json::from_str(RECORDED).unwrap();
        let reading = read(RECORDED).unwrap();
        let received = value["received"].as_u64().unwrap();
        assert_eq!(reading.histogram.as_ref().unwrap().total(), received);
        let us = |key: &str| value["latency"][key].as_f64().unwrap() / 1e3;
        assert_eq!(reading.values[&Metric::Min], us("min_ns"));
        assert_eq!(reading.values[&Metric::Max], us("max_ns"));
        assert!((us("min_ns")..us("max_ns")).contains(&reading.values[&Metric::P50]));
        assert_eq!(reading.values[&Metric::Loss], 0.0);
        assert!(!reading.values.contains_key(&Metric::Transactions), "the clock decided it");
        let withheld: Vec<Metric> = reading.withheld.iter().map(|withheld| withheld.metric).collect();
        assert_eq!(withheld, [Metric::P99, Metric::P999], "500 latencies are too few for them");
        assert_eq!(reading.version.as_deref(), Some("0.1.0"));
    }

    #[test]
    fn a_closed_loop_counts_its_round_trips() {
        let reading = super::json(CLOSED.as_bytes(), Load::Closed, 128).unwrap();
        let value: Value = serde_json::from_str(CLOSED).unwrap();
        let rate = value["received"].as_f64().unwrap() / value["seconds"].as_f64().unwrap();
        assert_eq!(reading.values[&Metric::Transactions], rate);
        assert!(reading.values.contains_key(&Metric::P99));
    }

    /// A path that loses some has no better percentiles for it.
    #[test]
    fn what_was_lost_is_longer_than_all_that_was_answered() {
        let value: Value = serde_json::from_str(RECORDED).unwrap();
        let received = value["received"].as_u64().unwrap();
        let losing = |lost: u64| {
            let sent = received + lost;
            let rate = sent as f64 / value["seconds"].as_f64().unwrap();
            let changes = [("/sent", json!(sent)), ("/lost", json!(lost)), ("/achieved_rate", json!(rate))];
            changed(&changes).unwrap()
        };
        let (none, few, many) = (losing(0), losing(received / 20), losing(received / 5));
        assert!(few.values[&Metric::P90] > none.values[&Metric::P90], "{few:?}");
        assert!(few.values[&Metric::P50] >= none.values[&Metric::P50]);
        assert!(!many.values.contains_key(&Metric::P90), "it is one of the lost");
        let withheld = many.withheld.iter().find(|withheld| withheld.metric == Metric::P90).unwrap();
        assert!(withheld.have == received && withheld.need > received, "{withheld:?}");
        assert!(many.values.contains_key(&Metric::P50));
        assert!((many.values[&Metric::Loss] - 1.0 / 6.0).abs() < 0.01);
    }

    #[test]
    fn nothing_is_never_a_latency() {
        let error = read(REFUSED).unwrap_err().to_string();
        assert_eq!(error, "probe failed: no answer: Connection refused (os error 111)");
        let lost = [
            ("/received", json!(0)),
            ("/lost", serde_json::from_str::<Value>(RECORDED).unwrap()["sent"].clone()),
            ("/latency", Value::Null),
            ("/histogram", json!({})),
        ];
        assert_eq!(changed(&lost), Err(OutputError::NothingArrived { tool: TOOL, sent: None }));
        let error = changed(&[("/unsent", json!(3))]).unwrap_err().to_string();
        assert!(error.contains("3 requests could not be sent in time"), "{error}");
    }

    #[test]
    fn what_is_cut_off_is_not_read() {
        assert_eq!(read(""), Err(OutputError::Empty { tool: TOOL }));
        for end in (1..RECORDED.trim_end().len()).step_by(7) {
            let read = read(&RECORDED[..end]);
            assert!(matches!(read, Err(OutputError::Malformed { .. })), "{end}: {read:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_not_read() {
        let other = changed(&[("/penstock_probe", json!(2))]);
        assert!(matches!(other, Err(OutputError::Version { .. })), "{other:?}");
        for (path, value) in [
            ("/load", json!("closed")),
            ("/size", json!(129)),
            ("/requested_rate", Value::Null),
            ("/achieved_rate", json!(7.0)),
            ("/seconds", json!(0.0)),
            ("/seconds", json!(-1.0)),
            ("/cpu_percent", json!(-1.0)),
            ("/sent", json!(1)),
            ("/received", json!(u64::MAX)),
            ("/lost", json!(u64::MAX)),
            ("/overdue", json!(1)),
            ("/histogram", json!({"640": 3})),
            ("/latency", Value::Null),
            ("/latency/min_ns", json!(0)),
            ("/latency/mean_ns", json!(0)),
            ("/latency/max_ns", json!(u64::MAX)),
            ("/late/p99_ns", json!(u64::MAX)),
        ] {
            let read = changed(&[(path, value)]);
            assert!(matches!(read, Err(OutputError::OddField { .. })), "{path}: {read:?}");
        }
        for (path, value) in [
            ("/sent", json!(-1)),
            ("/sent", json!(1.5)),
            ("/greeted", json!("yes")),
            ("/histogram", json!({"99999": 1})),
            ("/histogram", json!({"1": u64::MAX, "2": u64::MAX})),
        ] {
            let read = changed(&[(path, value)]);
            assert!(matches!(read, Err(OutputError::Malformed { .. })), "{path}: {read:?}");
        }
        let more = RECORDED.replacen('{', "{\"more\":1,", 1);
        assert!(matches!(read(&more), Err(OutputError::Malformed { .. })));
    }
}
