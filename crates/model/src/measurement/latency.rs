//! How late threads woke up: what `measure --latency` finds. Data only.
//!
//! A *series* is one [`Setting`] that is measured over and over: a tool, at a place, on a CPU, under a load, with the machine
//! tuned or not. It is made of *blocks*, each one run of the tool, and the blocks of all series are taken in turn, so that what
//! changes with time changes all of them. A block is the unit of every resampling, because spikes cluster: wake-ups
//! inside a block are not independent of each other.
//!
//! Units: latencies in microseconds, times in seconds since the start of the measurement.
//!
//! Of the tools cyclictest and timerlat tell how late a thread woke, oslat and hwlat how long a thread that only looks at
//! the clock was kept from it; they are never put into one histogram.

mod bins;
mod block;
mod expectation;
mod rulings;
mod series;
mod summary;

use serde::{Deserialize, Serialize};

use super::{Counts, CutShort, ExpectationResult};

pub use bins::{Bins, BinsError};
pub use block::Block;
pub use expectation::{LatencyExpectation, Limit, Side};
pub use series::{Arm, Load, Power, Series, Setting, Tool};
pub use summary::{Comparison, Quantile, Statistic, Summary, TailBound};

/// The version of this JSON form. It grows when a reader of the old form would misread the new one.
pub const LATENCY_VERSION: u32 = 1;

/// All that one run found out about latencies of wake-ups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Latency {
    /// [`LATENCY_VERSION`] of the writer.
    pub version: u32,
    /// Whether the machine is an emulated board. Then only ratios between series mean anything, and every absolute value that is
    /// shown is marked.
    pub emulated: bool,
    /// What the order of the blocks and the bootstrap were drawn from.
    pub seed: u64,
    /// When it started, in RFC 3339 text. All other times count from here.
    pub started: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// A wake-up of at least so many microseconds is a spike.
    pub spike: u32,
    /// Confidence of every interval and bound, for example 0.95.
    pub confidence: f64,
    /// The tools that were used, with their versions, by place.
    pub tools: Vec<ToolVersion>,
    /// What was measured, or not, in the order of the plan.
    pub series: Vec<Series>,
    /// Series compared with each other.
    pub comparisons: Vec<Comparison>,
    /// What the claims (`expect:` lines, `--prove`) came out as.
    #[serde(serialize_with = "rulings::serialize")]
    #[schemars(with = "Vec<rulings::ClaimResult<'_>>")]
    pub rulings: Vec<ExpectationResult<LatencyExpectation>>,
    /// Why it ended; `None` while it has not.
    pub stopped: Option<Stopped>,
    /// What the reader should know beside: what the emulation hides, what was interrupted.
    pub notes: Vec<String>,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            version: LATENCY_VERSION,
            emulated: false,
            seed: 0,
            started: String::new(),
            seconds: 0.0,
            spike: 100,
            confidence: 0.95,
            tools: Vec::new(),
            series: Vec::new(),
            comparisons: Vec::new(),
            rulings: Vec::new(),
            stopped: None,
            notes: Vec::new(),
        }
    }
}

impl Latency {
    /// The series of this name.
    pub fn series(&self, id: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.id == id)
    }

    /// How many series have wake-ups, and how many have none, and why.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for series in &self.series {
            match series.cut_short {
                _ if series.is_measured() => counts.measured += 1,
                None => counts.missing += 1,
                Some(_) => counts.not_reached += 1,
            }
        }
        counts
    }

    /// What ended it before all series were measured; `None` when it was not cut short.
    pub fn cut_short(&self) -> Option<CutShort> {
        self.series.iter().filter(|series| !series.is_measured()).filter_map(|series| series.cut_short).max()
    }

    /// Whether it is as was wanted: when something was claimed, whether all of that holds; else whether something was
    /// measured and nothing is missing. What the time limit or an interrupt left is not missing.
    pub fn holds(&self) -> bool {
        match self.rulings.as_slice() {
            [] => self.counts().hold(),
            rulings => rulings.iter().all(|ruling| ruling.told == super::Conclusion::Holds),
        }
    }
}

/// A measuring or loading program as it was found in a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ToolVersion {
    /// Its name: "cyclictest", "hackbench".
    pub tool: String,
    /// Where: "host", "inside rt-2".
    pub place: String,
    /// What it says its version is; `None` where it is missing or does not say.
    pub version: Option<String>,
}

/// Why a measurement of latencies ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// Every claim was proven.
    Proven,
    /// A claim was broken: more time would not mend it.
    Broken,
    /// All that was planned was measured, or the time was up.
    TimeUp,
    /// Somebody interrupted it.
    Interrupted,
    /// The tools failed one time after the other.
    GivenUp,
}

impl Stopped {
    /// Whether it ended because whoever asked for it wanted it to.
    pub const fn cut_short(self) -> Option<CutShort> {
        match self {
            Stopped::TimeUp => Some(CutShort::TimeUp),
            Stopped::Interrupted => Some(CutShort::Interrupted),
            Stopped::Proven | Stopped::Broken | Stopped::GivenUp => None,
        }
    }
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Stopped::Proven => "proven",
            Stopped::Broken => "broken",
            Stopped::TimeUp => "time is up",
            Stopped::Interrupted => "interrupted",
            Stopped::GivenUp => "given up after failures",
        })
    }
}

#[cfg(test)]
mod tests;
