//! netperf's omni output (netperf 2.5 and later, `doc/omni_output_list.txt`): `KEY=value` lines (`-- -k`), or one line of
//! comma-separated values (`-- -o`).

use std::collections::BTreeMap;

use penstock_model::measurement::{Metric, Protocol};

use super::{Reading, message};
use crate::output::{OutputError, text};

const TOOL: &str = "netperf";

/// What to ask netperf for, in this order; with `-j` before the `--`, or it keeps no latencies.
pub const SELECTORS: [&str; 18] = [
    "THROUGHPUT_UNITS",
    "ELAPSED_TIME",
    "DIRECTION",
    "LOCAL_SEND_THROUGHPUT",
    "LOCAL_RECV_THROUGHPUT",
    "REMOTE_SEND_THROUGHPUT",
    "REMOTE_RECV_THROUGHPUT",
    "LOCAL_CPU_UTIL",
    "REMOTE_CPU_UTIL",
    "TRANSACTION_RATE",
    "MIN_LATENCY",
    "MEAN_LATENCY",
    "STDDEV_LATENCY",
    "P50_LATENCY",
    "P90_LATENCY",
    "P99_LATENCY",
    "MAX_LATENCY",
    "PROTOCOL",
];

/// Reads `KEY=value` lines.
///
/// # Errors
///
/// [`OutputError`] when it is empty, too long, of another version of the tool, not of its form, or has no
/// number that was asked for; the tool's own error is in it where it printed one.
pub fn key_values(output: &[u8], protocol: Protocol) -> Result<Reading, OutputError> {
    let text = text(TOOL, output)?;
    let mut values = BTreeMap::new();
    for line in text.lines() {
        // Lines that are none are the banner, which depends on the test, and warnings.
        let Some((key, value)) = line.split_once('=').filter(|(key, _)| is_key(key)) else { continue };
        if values.insert(key, value.trim()).is_some_and(|before| before != value.trim()) {
            return Err(odd(key, value));
        }
    }
    if values.is_empty() {
        return Err(OutputError::Failed { tool: TOOL, message: message(text) });
    }
    if !text.ends_with('\n') {
        let why = "the last line has no end, so that its number may be cut".into();
        return Err(OutputError::Malformed { tool: TOOL, why });
    }
    reading(&values, protocol)
}

/// Reads one line of comma-separated values, which was asked for with these selectors.
///
/// # Errors
///
/// [`OutputError`] when it is empty, too long, of another version of the tool, not of its form, or has no
/// number that was asked for; the tool's own error is in it where it printed one.
pub fn comma_separated(
    output: &[u8],
    selectors: &[&str],
    protocol: Protocol,
) -> Result<Reading, OutputError> {
    let text = text(TOOL, output)?;
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if fields.len() == 1 {
        return Err(OutputError::Failed { tool: TOOL, message: message(text) });
    }
    if fields.len() != selectors.len() || !text.ends_with('\n') {
        let why = format!("{} values in the last line, and not {}", fields.len(), selectors.len());
        return Err(OutputError::Malformed { tool: TOOL, why });
    }
    reading(&selectors.iter().copied().zip(fields).collect(), protocol)
}

fn is_key(key: &str) -> bool {
    !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

fn odd(field: &str, value: &str) -> OutputError {
    let value = value.chars().filter(|c| !c.is_control()).take(80).collect();
    OutputError::OddField { tool: TOOL, field: field.into(), value }
}

fn reading(values: &BTreeMap<&str, &str>, protocol: Protocol) -> Result<Reading, OutputError> {
    let get = |key: &str| {
        let value = values.get(key).copied().filter(|value| !value.is_empty());
        value.ok_or_else(|| OutputError::Missing { tool: TOOL, field: key.into() })
    };
    let number = |key: &str| {
        let value = get(key)?;
        let number = value.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| odd(key, value))
    };
    let transport = get("PROTOCOL")?;
    if transport != if protocol.is_udp() { "UDP" } else { "TCP" } {
        return Err(odd("PROTOCOL", transport));
    }
    let units = get("THROUGHPUT_UNITS")?;
    if units != if protocol.is_stream() { "10^6bits/s" } else { "Trans/s" } {
        return Err(odd("THROUGHPUT_UNITS", units));
    }
    let mut reading = Reading::default();
    if protocol.is_stream() {
        let (sent, received) = match get("DIRECTION")? {
            "Send" => (number("LOCAL_SEND_THROUGHPUT")?, number("REMOTE_RECV_THROUGHPUT")?),
            "Receive" => (number("REMOTE_SEND_THROUGHPUT")?, number("LOCAL_RECV_THROUGHPUT")?),
            other => return Err(odd("DIRECTION", other)),
        };
        // At a stream's end the latencies are of its send calls, which say nothing of the path.
        if received <= 0.0 {
            return Err(OutputError::NothingArrived { tool: TOOL, sent: Some((sent * 1e6) as u64) });
        }
        reading.values.insert(Metric::Throughput, received * 1e6);
        reading.values.insert(Metric::Sent, sent * 1e6);
        if protocol.is_udp() && sent > 0.0 {
            reading.values.insert(Metric::Loss, (1.0 - received / sent).clamp(0.0, 1.0));
        }
    } else {
        let rate = number("TRANSACTION_RATE")?;
        let transactions = (rate * number("ELAPSED_TIME")?) as u64;
        if transactions == 0 {
            return Err(OutputError::NothingArrived { tool: TOOL, sent: None });
        }
        reading.values.insert(Metric::Transactions, rate);
        for (metric, key) in [
            (Metric::Min, "MIN_LATENCY"),
            (Metric::Mean, "MEAN_LATENCY"),
            (Metric::Stddev, "STDDEV_LATENCY"),
            (Metric::Max, "MAX_LATENCY"),
        ] {
            reading.values.insert(metric, number(key)?);
        }
        for (metric, key) in
            [(Metric::P50, "P50_LATENCY"), (Metric::P90, "P90_LATENCY"), (Metric::P99, "P99_LATENCY")]
        {
            reading.percentile(metric, number(key)?, transactions);
        }
    }
    for (metric, key) in [(Metric::LocalCpu, "LOCAL_CPU_UTIL"), (Metric::RemoteCpu, "REMOTE_CPU_UTIL")] {
        // netperf says -1 where it was not asked to count, or cannot. A missing line is an output that is cut.
        if !get(key)?.starts_with('-') {
            reading.values.insert(metric, number(key)?);
        }
    }
    Ok(reading)
}
