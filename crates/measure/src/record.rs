//! The record of a sample: what was run, where, and what it printed, as it was. Values are read from it, never stored
//! beside it, so that a run can be taken up again, or read anew by a better reader.

use std::fmt;

use penstock_host::{Command, Output};
use penstock_model::measurement::Measurement;
use serde::{Deserialize, Serialize};

use crate::{
    output::LIMIT,
    parse::{self, Reading},
};

/// What is kept of a standard output that is too long to be read.
const HEAD: usize = 64 << 10;
/// What is kept of a standard error: half of it from the beginning, half from the end.
const ERRORS: usize = 16 << 10;

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
    /// Its standard output; of one that is too long to be read the beginning.
    pub stdout: String,
    /// How many bytes that had, where only its beginning is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
    /// Its standard error; a long one says where something is left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// What the kernels counted of CPU time, of a stream by a VM's own NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<SampleCpu>,
}

impl RawOutput {
    /// What a command printed that ran in this place, both streams as `text` makes them of their bytes. A guest could print
    /// without end: what nobody reads is not kept.
    pub fn of(
        place: String,
        command: &Command,
        output: &Output,
        text: impl Fn(&[u8]) -> String,
    ) -> RawOutput {
        let cut = output.stdout.len() > LIMIT;
        RawOutput {
            place,
            command: command.to_string(),
            status: output.status.code(),
            stdout: text(if cut { &output.stdout[..HEAD] } else { &output.stdout }),
            cut: cut.then_some(output.stdout.len() as u64),
            stderr: errors(&output.stderr, text),
            cpu: None,
        }
    }

    /// Whether all of its standard output is here.
    ///
    /// # Errors
    /// In words, how much there was.
    pub fn is_whole(&self, tool: impl fmt::Display) -> Result<(), String> {
        match self.cut {
            None => Ok(()),
            Some(bytes) => Err(format!("{tool} printed {bytes} bytes, more than the {LIMIT} that are read")),
        }
    }

    /// Bytes that it takes in a journal, where control characters are written as six each.
    pub(crate) fn weight(&self) -> u64 {
        let of = |text: &str| {
            text.bytes().map(|byte| if byte < b' ' && byte != b'\n' { 6 } else { 1 }).sum::<u64>()
        };
        of(&self.stdout) + of(&self.stderr) + of(&self.command)
    }
}

fn errors(bytes: &[u8], text: impl Fn(&[u8]) -> String) -> String {
    let Some(between) = bytes.len().checked_sub(ERRORS).filter(|between| *between > 0) else {
        return text(bytes);
    };
    let (head, tail) = (&bytes[..ERRORS / 2], &bytes[ERRORS / 2 + between..]);
    format!("{}\n[{between} bytes are left out]\n{}", text(head), text(tail))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(script: &str) -> RawOutput {
        let command = Command::new("sh").args(["-c", script]);
        let output = command.run().unwrap();
        RawOutput::of("host".to_owned(), &command, &output, |bytes| {
            String::from_utf8_lossy(bytes).into_owned()
        })
    }

    #[test]
    fn what_nobody_reads_is_not_kept_and_that_is_said() {
        let raw = ran("echo first >&2; yes | head -c 100000 >&2; echo last >&2; yes | head -c 5000000");
        assert_eq!((raw.cut, raw.stdout.len()), (Some(5_000_000), HEAD));
        assert!(raw.is_whole("fio").unwrap_err().starts_with("fio printed 5000000 bytes, more than"));
        assert!(raw.stderr.len() < ERRORS + 100, "{}", raw.stderr.len());
        assert!(raw.stderr.starts_with("first\n") && raw.stderr.ends_with("\nlast\n"));
        assert!(raw.stderr.contains("[83627 bytes are left out]"), "{}", raw.stderr);
        let raw = ran("echo all; echo well >&2");
        assert_eq!((raw.stdout.as_str(), raw.stderr.as_str(), raw.cut), ("all\n", "well\n", None));
        assert_eq!(raw.is_whole("fio"), Ok(()));
    }
}
