//! What the lines of `expect` came out as, whatever they are about.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Estimate, Expectation, Metric};

/// What a claim came out as.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// The whole interval satisfies it.
    Holds,
    /// What it is about was left out on purpose (`--only`, `--path`, `--protocol`, `--quick`). Holds nothing against the machine.
    NotAsked,
    /// What it is about, or some of it, was not measured, because the run was over: the time was up, or somebody interrupted it.
    /// It may be so; it is not shown.
    NotMeasured,
    /// It could not be told: something is missing, or the interval has the bound inside.
    CannotBeTold,
    /// The whole interval contradicts it.
    DoesNotHold,
}

impl fmt::Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Conclusion::Holds => "holds",
            Conclusion::NotAsked => "not asked for",
            Conclusion::NotMeasured => "not measured",
            Conclusion::CannotBeTold => "cannot be told",
            Conclusion::DoesNotHold => "does not hold",
        })
    }
}

/// An `expect:` line for one cell, or for one pair of cells.
///
/// As JSON this is the form of a cell of [`super::Measurements`]; the form of a series of latencies, which has other keys, is
/// written by [`super::latency::Latency`]. Both are read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(description = "An `expect:` line for one cell, or for one pair of cells.")]
pub struct Claim {
    /// The cell of the left side.
    #[serde(alias = "series")]
    pub cell: String,
    /// The cell that it is compared with, for a ratio.
    pub against: Option<String>,
    /// The metric in which it is compared; `None` for latencies of wake-ups, whose line names the statistic.
    #[schemars(with = "Metric", description = "The metric in which it is compared.")]
    pub metric: Option<Metric>,
    /// What was seen: the ratio, or the value in the metric's unit.
    pub seen: Option<Estimate>,
    /// How many latencies were held against a bound; 0 for a ratio, and for what is no latency of wake-ups.
    #[serde(default, skip_serializing)]
    #[schemars(skip)]
    pub n: u64,
    /// How many of them were too late; `None` where the histogram ends before that, and where `n` is 0.
    #[serde(default, skip_serializing)]
    #[schemars(skip)]
    pub late: Option<u64>,
    /// The longest of them in microseconds.
    #[serde(default, skip_serializing)]
    #[schemars(skip)]
    pub max: Option<f64>,
    /// What it came out as.
    pub told: Conclusion,
    /// Why it cannot be told, or what it does not speak of.
    pub why: Option<String>,
}

impl Claim {
    /// A claim about this cell or series, of which nothing was seen.
    pub fn new(cell: impl Into<String>, told: Conclusion) -> Claim {
        Claim {
            cell: cell.into(),
            against: None,
            metric: None,
            seen: None,
            n: 0,
            late: None,
            max: None,
            told,
            why: None,
        }
    }
}

/// What an `expect:` line came out as: `L` is an [`Expectation`] or a [`super::latency::LatencyExpectation`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "ExpectationResult", description = "What an `expect:` line came out as.")]
pub struct ExpectationResult<L = Expectation> {
    /// The line of `expect` that is judged.
    #[serde(alias = "claim")]
    pub expectation: L,
    /// The worst of its claims; without claims it cannot be told.
    pub told: Conclusion,
    /// A claim for each cell or pair of cells that it means.
    #[serde(alias = "findings")]
    pub claims: Vec<Claim>,
}

impl<L> ExpectationResult<L> {
    /// A line of which nothing was asked for.
    pub fn not_asked(expectation: L) -> ExpectationResult<L> {
        ExpectationResult { expectation, told: Conclusion::NotAsked, claims: Vec::new() }
    }

    /// A line and its claims.
    pub fn new(expectation: L, claims: Vec<Claim>) -> ExpectationResult<L> {
        let told = claims.iter().map(|claim| claim.told).max().unwrap_or(Conclusion::CannotBeTold);
        ExpectationResult { expectation, told, claims }
    }
}
