//! What the tools print. Outside bytes: cut off, of another version, or made up; each of these is an error that says so, and
//! none becomes a 0.

pub mod fio;
pub mod iperf3;
pub mod netperf;
pub mod probe;

use std::collections::BTreeMap;

use penstock_model::measurement::{Histogram, Measurement, Metric, Protocol, Subject, Tool, Withheld};
use penstock_statistics::samples_for;
use serde_json::Value;

use crate::{
    output::OutputError,
    record::{CpuTime, RawOutput, SampleCpu},
};

/// What one run of a tool told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Values in the metrics' units. What the tool did not tell is absent.
    pub values: BTreeMap<Metric, f64>,
    /// Percentiles that the tool told from too few latencies; left out of `values`.
    pub withheld: Vec<Withheld>,
    /// Every latency, where the tool tells them.
    pub histogram: Option<Histogram>,
    /// How many more requests were sent and not answered in time: their latencies are longer than all of these.
    pub lost: u64,
    /// The tool's version, where its output has it.
    pub version: Option<String>,
}

impl Reading {
    /// Takes a percentile in, or withholds it when there are too few latencies for it.
    fn percentile(&mut self, metric: Metric, microseconds: f64, latencies: u64) {
        let need = metric.quantile().map_or(0, |q| needed(q, latencies, self.lost));
        if latencies >= need {
            self.values.insert(metric, microseconds);
        } else {
            self.withheld.push(Withheld { metric, have: latencies, need });
        }
    }
}

/// How many answers a quantile takes, where `lost` more were not answered in time: enough for it, and so many that it is not
/// one of the lost.
pub(crate) fn needed(q: f64, answered: u64, lost: u64) -> u64 {
    samples_for(q).max(if lost == 0 { 0 } else { Histogram::rank(q, answered.saturating_add(lost)) })
}

/// What a tool's raw output tells of a measurement, in words for a person when it tells nothing.
///
/// # Errors
///
/// In words: what is wrong with the output, with what the tool wrote to standard error; also for a tool that does not measure
/// this.
pub fn read(measurement: &Measurement, raw: &RawOutput) -> Result<Reading, String> {
    raw.is_whole(measurement.tool)?;
    let output = raw.stdout.as_bytes();
    let outcome = match (&measurement.subject, measurement.tool) {
        (Subject::Network(network), Tool::Netperf) => netperf::key_values(output, network.protocol),
        (Subject::Network(network), Tool::Iperf3) => {
            iperf3::json(output, network.protocol, network.direction)
        }
        (Subject::Network(network), Tool::Probe) => probe::json(output, network.load, network.size),
        (Subject::Storage(storage), Tool::Fio) => fio::json(output, storage.mix),
        (_, tool) => return Err(format!("nothing here reads {tool}")),
    };
    let said = || message(&raw.stderr);
    let with_cpu = |mut reading: Reading| {
        reading.values.extend(raw.cpu.as_ref().map(|cpu| costs(measurement, cpu)).unwrap_or_default());
        reading
    };
    outcome.map(with_cpu).map_err(|error| match (raw.status, said()) {
        (Some(0), _) => error.to_string(),
        (Some(status), said) if said.is_empty() => format!("{error} (exit status {status})"),
        (None, said) if said.is_empty() => format!("{error} (ended by a signal)"),
        (_, said) => format!("{} failed: {said}", measurement.tool),
    })
}

/// What a sample took of CPUs. Frames are those of datagrams alone: what an interface counts of TCP has up to 64 KiB each.
fn costs(measurement: &Measurement, cpu: &SampleCpu) -> Vec<(Metric, f64)> {
    let udp =
        matches!(&measurement.subject, Subject::Network(network) if network.protocol == Protocol::UdpStream);
    let instruction = cpu.instruction.filter(|_| udp);
    let instructions = |time: &CpuTime| time.instructions_per_frame(instruction?);
    let told = [
        (Metric::GuestCpuPerGbit, cpu.guest.per_gigabit()),
        (Metric::HostCpuPerGbit, cpu.host.per_gigabit()),
        (Metric::GuestInstructionsPerFrame, instructions(&cpu.guest)),
        (Metric::HostInstructionsPerFrame, instructions(&cpu.host)),
    ];
    told.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()
}

/// A message of a tool, short and on one line.
fn message(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// One JSON value of a tool.
struct Json<'a> {
    tool: &'static str,
    value: &'a Value,
    path: String,
}

impl<'a> Json<'a> {
    fn find(&self, key: &str) -> Option<Json<'a>> {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        self.value.get(key).filter(|value| !value.is_null()).map(|value| Json {
            tool: self.tool,
            value,
            path,
        })
    }

    fn get(&self, key: &str) -> Result<Json<'a>, OutputError> {
        self.find(key).ok_or_else(|| {
            let field = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
            OutputError::Missing { tool: self.tool, field }
        })
    }

    fn odd(&self) -> OutputError {
        let value: String = self.value.to_string().chars().take(80).collect();
        OutputError::OddField { tool: self.tool, field: self.path.clone(), value }
    }

    /// A number that is finite and not negative.
    fn number(&self) -> Result<f64, OutputError> {
        self.value.as_f64().filter(|number| number.is_finite() && *number >= 0.0).ok_or_else(|| self.odd())
    }

    fn count(&self) -> Result<u64, OutputError> {
        self.value.as_u64().ok_or_else(|| self.odd())
    }

    fn text(&self) -> Result<&'a str, OutputError> {
        self.value.as_str().ok_or_else(|| self.odd())
    }
}

/// The JSON object in a tool's output.
fn object(tool: &'static str, text: &str) -> Result<Value, OutputError> {
    let malformed = |why: String| OutputError::Malformed { tool, why };
    match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(malformed("it is not a JSON object".into())),
        Err(error) => Err(malformed(error.to_string())),
    }
}
