//! What was measured: cells with their raw samples, summaries, comparisons and rulings. Data only.
//!
//! A *cell* is one thing that is measured over and over, for example the throughput of UDP datagrams of 1 KiB from one VF
//! to another inside a NIC. A *sample* is one run of the tool, one dwell long. Cells are compared by the ratio of their
//! medians. What could not be measured is [`Status::Missing`] with the reason, and never a 0.
//!
//! Units, everywhere: throughput in bit/s, storage bandwidth in byte/s, rates in 1/s, latency and jitter in microseconds,
//! CPU in percent as the tool counts it, sizes in bytes, times since the run's start in seconds.
//!
//! As JSON each type is an object whose keys are the fields' names; text in place of an object is what the type's
//! `Display` writes.

pub mod cell;
mod claim;
mod estimate;
pub mod expectation;
mod histogram;
pub mod latency;
mod line;
mod metric;
pub mod run_comparison;
mod selector;

use serde::{Deserialize, Serialize};

pub use cell::{
    Cell, Direction, End, EndKind, Load, Measured, Measurement, Mix, Network, PathKind, Pattern, Protocol,
    Sample, SampleResult, Status, Storage, Subject, Summary, Tool, Withheld,
};
pub use claim::{Claim, Conclusion, ExpectationResult};
pub use estimate::Estimate;
pub use expectation::{Bound, Expectation, ParseExpectationError, Relation};
pub use histogram::{Histogram, HistogramError};
pub use metric::{Better, Metric, Quantity, Unit};
pub use selector::Selector;

/// The version of this JSON form. It grows when a reader of the old form would misread the new one.
pub const MEASUREMENT_VERSION: u32 = 1;

/// All measurements of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Measurements {
    /// [`MEASUREMENT_VERSION`] of the writer.
    pub version: u32,
    /// Whether the machine is an emulated board. Then only ratios between cells mean anything, never absolute values, and
    /// every number that is shown is marked.
    pub emulated: bool,
    /// Whether only the quick subset of the matrix was asked for.
    pub quick: bool,
    /// What the order of the arms and the bootstrap were drawn from; with it they can be drawn again.
    pub seed: u64,
    /// When the run started, in RFC 3339 text. All other times count from here.
    pub started: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// When it stops measuring a cell.
    pub rules: Rules,
    /// The tools that were used, with their versions, by place.
    pub tools: Vec<ToolVersion>,
    /// The speed of each link, read before anything was measured.
    pub links: Vec<Link>,
    /// What was measured, or not, in the order of the matrix.
    pub cells: Vec<Cell>,
    /// Cells compared with each other.
    pub comparisons: Vec<Comparison>,
    /// What the model's `expect:` lines came out as.
    pub rulings: Vec<ExpectationResult>,
    /// What the reader should know beside.
    pub notes: Vec<String>,
}

impl Default for Measurements {
    fn default() -> Measurements {
        Measurements {
            version: MEASUREMENT_VERSION,
            emulated: false,
            quick: false,
            seed: 0,
            started: String::new(),
            seconds: 0.0,
            rules: Rules::default(),
            tools: Vec::new(),
            links: Vec::new(),
            cells: Vec::new(),
            comparisons: Vec::new(),
            rulings: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Measurements {
    /// The cell of this name.
    pub fn cell(&self, id: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.id == id)
    }

    /// How many cells came out how.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for cell in &self.cells {
            match &cell.status {
                Status::Measured(_) => counts.measured += 1,
                Status::Missing { cut_short: None, .. } => counts.missing += 1,
                Status::Missing { cut_short: Some(_), .. } => counts.not_reached += 1,
            }
        }
        counts
    }

    /// What ended the run before all cells were measured; `None` when it was not cut short. An interrupt outweighs the time.
    pub fn cut_short(&self) -> Option<CutShort> {
        let of_cell = |cell: &Cell| match cell.status {
            Status::Missing { cut_short, .. } => cut_short,
            Status::Measured(_) => None,
        };
        self.cells.iter().filter_map(of_cell).max()
    }

    /// Whether they are as was wanted: when the model expects something that was asked for, whether all of that holds; else
    /// whether something was measured and nothing is missing. What the time limit or an interrupt left is not missing.
    pub fn holds(&self) -> bool {
        let mut asked = self.rulings.iter().filter(|ruling| ruling.told != Conclusion::NotAsked).peekable();
        match asked.peek() {
            None => self.counts().hold(),
            Some(_) => asked.all(|ruling| ruling.told == Conclusion::Holds),
        }
    }
}

/// How many of what was to be measured came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cells or series that were measured.
    pub measured: usize,
    /// Missing, because something is wrong.
    pub missing: usize,
    /// Not measured because the run was over: the time was up, or somebody interrupted it.
    pub not_reached: usize,
}

impl Counts {
    /// All of them.
    pub fn total(self) -> usize {
        self.measured + self.missing + self.not_reached
    }

    /// Whether something was measured and nothing is missing.
    pub fn hold(self) -> bool {
        self.measured > 0 && self.missing == 0
    }
}

/// What ended a run before all was measured: whoever asked for it, and nothing that is wrong with the machine.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CutShort {
    /// The time limit.
    TimeUp,
    /// It was interrupted (Ctrl-C).
    Interrupted,
}

impl CutShort {
    /// Whether measuring ended for one of these reasons.
    pub const fn of(stop: StopReason) -> Option<CutShort> {
        match stop {
            StopReason::TimeUp => Some(CutShort::TimeUp),
            StopReason::Interrupted => Some(CutShort::Interrupted),
            StopReason::TightEnough | StopReason::SamplesUp | StopReason::GivenUp => None,
        }
    }
}

/// When measuring a cell stops: when the interval of its main metric is tight enough after at least `minimum` samples, or
/// after `maximum`, or when the time is up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Rules {
    /// Confidence of every interval, for example 0.95.
    pub confidence: f64,
    /// Half the interval's width over the median that is tight enough, for example 0.05.
    pub half_width: f64,
    /// Samples of an arm before its interval is looked at for the first time; warm-up not counted.
    pub minimum: u32,
    /// Samples of an arm after which it stops in any case; warm-up not counted.
    pub maximum: u32,
    /// Samples that each tool takes of each path (storage: of each target, place and mix) before all others.
    /// They are recorded and marked in the cell of the largest size, and left out of every summary.
    pub warm_up: u32,
    /// Length of a sample in milliseconds.
    pub dwell_ms: u32,
    /// Seconds that the whole run may take; `None` is no limit.
    pub budget: Option<f64>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            confidence: 0.95,
            half_width: 0.05,
            minimum: 6,
            maximum: 30,
            warm_up: 1,
            dwell_ms: 1000,
            budget: None,
        }
    }
}

/// Why measuring a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The interval was as tight as [`Rules::half_width`] asks.
    TightEnough,
    /// [`Rules::maximum`] samples were taken, and the interval was still wider.
    SamplesUp,
    /// The time was up.
    TimeUp,
    /// Somebody interrupted the run.
    Interrupted,
    /// Samples failed one after the other, and no more time was spent on it.
    GivenUp,
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            StopReason::TightEnough => "tight enough",
            StopReason::SamplesUp => "as many samples as allowed",
            StopReason::TimeUp => "time is up",
            StopReason::Interrupted => "interrupted",
            StopReason::GivenUp => "given up after failures",
        })
    }
}

/// A tool as it was found in a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ToolVersion {
    /// The tool that was found.
    pub tool: Tool,
    /// Where: "host", "inside rt-2".
    pub place: String,
    /// What it says its version is; `None` where it is missing or does not say.
    pub version: Option<String>,
}

/// A link's speed before anything was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Link {
    /// The end of it.
    pub end: End,
    /// Megabits per second (`/sys/class/net/*/speed`); `None` where the driver tells none, as for VFs and virtio.
    pub speed: Option<u32>,
    /// Whether it had carrier.
    pub carrier: Option<bool>,
}

/// Two cells compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Comparison {
    /// The cell that counts as 1, for example the host's or PF-PF's.
    pub base: String,
    /// The cell that is compared with it, for example the guest's.
    pub other: String,
    /// The metric of the samples.
    pub metric: Metric,
    /// Median of `other` over median of `base`; `None` when there are too few samples, or a median is 0.
    pub ratio: Option<Estimate>,
    /// The ratio of one thing to itself: the base, or else a cell of the same tool, protocol and load, measured as two arms in
    /// the same interleaved run (A/A). An interval that does not hold 1 says that the order of the samples alone makes a
    /// difference, and no ratio beside it can be trusted.
    pub null: Option<Estimate>,
    /// Pairs of samples, one of each arm, taken one after the other.
    pub pairs: u32,
    /// Why `ratio` is `None`.
    pub why: Option<String>,
}

impl Comparison {
    /// How much worse `other` is than `base`, in percent, with its interval: positive is worse, for throughput
    /// `100 (base - other) / base`, for latency `100 (other - base) / base`.
    pub fn penalty(&self) -> Option<Estimate> {
        let ratio = self.ratio.as_ref()?;
        Some(match self.metric.better() {
            Better::Higher => ratio.map_decreasing(|r| 100.0 * (1.0 - r)),
            Better::Lower => ratio.map_increasing(|r| 100.0 * (r - 1.0)),
        })
    }

    /// Whether the interval holds "no difference".
    pub fn spans_none(&self) -> bool {
        self.ratio.as_ref().is_some_and(|ratio| ratio.spans(1.0))
    }

    /// Whether the A/A comparison beside it shows no difference; `None` without one.
    pub fn null_holds(&self) -> Option<bool> {
        self.null.as_ref().map(|null| null.spans(1.0))
    }
}

#[cfg(test)]
mod tests;
