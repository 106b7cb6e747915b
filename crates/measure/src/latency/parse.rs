//! What cyclictest, oslat, rtla, hwlatdetect and hackbench print. Outside bytes: cut off, of another version, or made up; each
//! of these is an error that says so, and none becomes a 0.

pub mod cyclictest;
pub mod hackbench;
pub mod hwlatdetect;
pub mod oslat;
mod rt_tests;
pub mod timerlat;

use std::collections::BTreeMap;

use penstock_model::measurement::latency::{Bins, BinsError};

use crate::output::{OutputError, text};

/// The longest latency in microseconds that is believed: an hour. A longer one is a clock that was set.
const LONGEST: f64 = 3.6e9;

/// What one run of a tool on one CPU told.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyOutput {
    /// The tool's version, where its output has it.
    pub version: Option<String>,
    /// The CPU that it ran on, where its output has it.
    pub cpu: Option<u32>,
    /// Every latency, those beyond the last bin included; never none.
    pub counts: Bins,
    /// The shortest, in microseconds.
    pub min: f64,
    /// The mean, in microseconds.
    pub mean: f64,
    /// The longest, in microseconds.
    pub max: f64,
}

/// Output in lines, of which the last has its end: a number at the end of what was cut off could be the first half of one.
fn lines<'a>(tool: &'static str, output: &'a [u8]) -> Result<&'a str, OutputError> {
    let text = text(tool, output)?;
    match text.ends_with('\n') {
        true => Ok(text),
        false => Err(OutputError::Malformed { tool, why: "its last line has no end".to_owned() }),
    }
}

impl LatencyOutput {
    /// Checks what the parts say of each other: a histogram that was cut off does not pass.
    fn checked(self, tool: &'static str) -> Result<LatencyOutput, OutputError> {
        let odd = |why: String| Err(OutputError::Odd { tool, why });
        let LatencyOutput { counts, min, mean, max, .. } = &self;
        let (min, mean, max) = (*min, *mean, *max);
        if counts.is_empty() {
            return Err(OutputError::NothingCounted { tool });
        }
        let sound = [min, mean, max].iter().all(|value| value.is_finite() && (0.0..=LONGEST).contains(value));
        // Means are printed with two digits, or cut down to whole numbers.
        if !sound || min > mean + 1.0 || mean > max + 0.01 {
            return odd(format!("the shortest is {min} us, the mean {mean} us, the longest {max} us"));
        }
        let (over, limit) = (counts.over(), counts.limit());
        if over > 0 && max < f64::from(limit) {
            return odd(format!("{over} latencies are beyond {limit} us, but the longest is {max} us"));
        }
        let (first, last) = (counts.bins().next(), counts.bins().next_back());
        // A bin holds what is cut down, or rounded, to its number.
        let far =
            |bin: Option<(u32, u64)>, told: f64| bin.filter(|(bin, _)| (f64::from(*bin) - told).abs() > 1.0);
        if let Some((bin, _)) = far(last, max).filter(|_| over == 0) {
            return odd(format!("the longest is {max} us, but the last bin is that of {bin} us"));
        }
        if let Some((bin, _)) = far(first, min) {
            return odd(format!("the shortest is {min} us, but the first bin is that of {bin} us"));
        }
        Ok(self)
    }
}

/// A histogram; what the bins lack to `total` is beyond them.
fn counts(tool: &'static str, bins: BTreeMap<u32, u64>, limit: u32, total: u64) -> Result<Bins, OutputError> {
    Bins::new(bins, limit, total).map_err(|error| odd(tool, error))
}

fn odd(tool: &'static str, error: BinsError) -> OutputError {
    OutputError::Odd { tool, why: error.to_string() }
}

/// The counts of a histogram, added up.
fn total(tool: &'static str, bins: &BTreeMap<u32, u64>) -> Result<u64, OutputError> {
    let total = bins.values().try_fold(0u64, |sum, count| sum.checked_add(*count));
    total.ok_or_else(|| odd(tool, BinsError::Overflow))
}
