//! iperf3's JSON output (`-J`; `iperf_api.c`, `iperf_json_finish`).

use penstock_model::measurement::{Direction, Metric, Protocol};

use super::{Json, Reading, message, object};
use crate::output::{OutputError, text};

const TOOL: &str = "iperf3";

/// Reads the client's output of one run in one direction.
///
/// # Errors
///
/// [`OutputError`] when it is empty, too long, of another version of the tool, not of its form, or has no
/// number that was asked for; the tool's own error is in it where it printed one.
pub fn json(output: &[u8], protocol: Protocol, direction: Direction) -> Result<Reading, OutputError> {
    let value = object(TOOL, text(TOOL, output)?)?;
    let root = Json { tool: TOOL, value: &value, path: String::new() };
    if let Some(error) = root.find("error") {
        return Err(OutputError::Failed { tool: TOOL, message: message(error.text()?) });
    }
    let start = root.get("start")?;
    let version = start.get("version")?.text()?;
    if !version.starts_with("iperf 3.") {
        let version = message(version);
        return Err(OutputError::Version { tool: TOOL, version, known: "iperf 3" });
    }
    let test = start.get("test_start")?;
    let transport = test.get("protocol")?;
    let reverse = test.get("reverse")?;
    if transport.text()? != if protocol.is_udp() { "UDP" } else { "TCP" } {
        return Err(transport.odd());
    }
    if (reverse.count()? != 0) != (direction == Direction::Reverse) {
        return Err(reverse.odd());
    }
    if let Some(both) = test.find("bidir")
        && both.count()? != 0
    {
        return Err(both.odd());
    }
    let end = root.get("end")?;
    let received = end.get("sum_received")?;
    let sent = end.get("sum_sent")?.get("bits_per_second")?.number()?;
    let throughput = received.get("bits_per_second")?.number()?;
    if throughput <= 0.0 || received.get("bytes")?.count()? == 0 {
        return Err(OutputError::NothingArrived { tool: TOOL, sent: Some(sent as u64) });
    }
    let mut reading = Reading { version: Some(message(version)), ..Reading::default() };
    reading.values.insert(Metric::Throughput, throughput);
    reading.values.insert(Metric::Sent, sent);
    if protocol.is_udp() {
        let lost = received.get("lost_packets")?;
        let packets = received.get("packets")?.count()?;
        if packets == 0 {
            return Err(OutputError::NothingArrived { tool: TOOL, sent: Some(sent as u64) });
        }
        if lost.count()? > packets {
            return Err(lost.odd());
        }
        reading.values.insert(Metric::Loss, lost.count()? as f64 / packets as f64);
        reading.values.insert(Metric::Jitter, received.get("jitter_ms")?.number()? * 1e3);
    }
    if let Some(cpu) = end.find("cpu_utilization_percent") {
        for (metric, key) in [(Metric::LocalCpu, "host_total"), (Metric::RemoteCpu, "remote_total")] {
            if let Some(percent) = cpu.find(key) {
                reading.values.insert(metric, percent.number()?);
            }
        }
    }
    Ok(reading)
}
