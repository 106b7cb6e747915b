//! The record of a sample: what was run, where, and what it printed, as it was. Values are read from it, never stored
//! beside it, so that a run can be taken up again, or read anew by a better reader.

use penstock_host::{Command, Output};
use penstock_model::measurement::Measurement;
use serde::{Deserialize, Serialize};

use crate::parse::{self, Reading};

/// One sample as it was taken. As JSON one line of `samples.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The cell ([`penstock_model::measurement::Cell::id`]).
    pub cell: String,
    /// Its position in the order of all samples of the run.
    pub position: u32,
    /// Which round of the interleaved order it was in.
    pub round: u32,
    /// Whether it is left out of every summary.
    pub warm_up: bool,
    /// When it began, in seconds since the run's start.
    pub at: f64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: RecordOutcome,
}

/// What came of taking a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordOutcome {
    /// The tool ran to its end, well or not.
    Ran(RawOutput),
    /// It could not be run, or was ended, because of this.
    Failed(String),
}

/// What a tool printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawOutput {
    /// Where it ran: "host", "inside rt-2".
    pub place: String,
    /// The command, as a person would repeat it there.
    pub command: String,
    /// Its exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// What the kernels counted of CPU time, of a stream by a VM's own NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<SampleCpu>,
}

impl RawOutput {
    /// What a command printed that ran in this place, both streams as `text` makes them of their bytes.
    pub fn of(
        place: String,
        command: &Command,
        output: &Output,
        text: impl Fn(&[u8]) -> String,
    ) -> RawOutput {
        RawOutput {
            place,
            command: command.to_string(),
            status: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            cpu: None,
        }
    }
}

/// The CPU time that a stream by a VM's own NIC took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleCpu {
    /// In the VM, while the tool ran.
    pub guest: CpuTime,
    /// Of QEMU and the NIC's switch, while the stream arrived.
    pub host: CpuTime,
    /// How long an instruction takes, in nanoseconds, where the machine's clock counts instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<u32>,
}

impl SampleCpu {
    /// Not seen, because of this.
    pub fn not_seen(why: &str) -> SampleCpu {
        let not_seen = || CpuTime::NotSeen(why.to_owned());
        SampleCpu { guest: not_seen(), host: not_seen(), instruction: None }
    }
}

/// CPU time of an interval, or why it was not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuTime {
    /// It was counted.
    Counted {
        /// Microseconds of CPU time.
        microseconds: u64,
        /// Bits of frames that the far end's interface counted in that interval.
        bits: u64,
        /// How many frames these were.
        #[serde(default)]
        frames: u64,
    },
    /// It was not, because of this.
    NotSeen(String),
}

impl CpuTime {
    /// CPU seconds for each gigabit; `None` where it was not seen, or nothing arrived.
    pub fn per_gigabit(&self) -> Option<f64> {
        match self {
            CpuTime::Counted { microseconds, bits, .. } if *bits > 0 => {
                Some(*microseconds as f64 / 1e6 / (*bits as f64 / 1e9))
            }
            CpuTime::Counted { .. } | CpuTime::NotSeen(_) => None,
        }
    }

    /// Instructions for each frame, where each takes so many nanoseconds; `None` where it was not seen, or nothing arrived.
    pub fn instructions_per_frame(&self, instruction: u32) -> Option<f64> {
        match self {
            CpuTime::Counted { microseconds, frames, .. } if *frames > 0 && instruction > 0 => {
                Some(*microseconds as f64 * 1e3 / f64::from(instruction) / *frames as f64)
            }
            CpuTime::Counted { .. } | CpuTime::NotSeen(_) => None,
        }
    }
}

impl Record {
    /// What the sample tells of this measurement, which is the cell's.
    ///
    /// # Errors
    ///
    /// In words, why there is no reading: the tool did not run, or its output tells nothing.
    pub fn reading(&self, measurement: &Measurement) -> Result<Reading, String> {
        match &self.outcome {
            RecordOutcome::Failed(why) => Err(why.clone()),
            RecordOutcome::Ran(raw) => parse::read(measurement, raw),
        }
    }
}
