//! What blocks add up to, and series against each other.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::measurement::Estimate;

/// What the blocks of a series add up to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Summary {
    /// How many latencies.
    pub n: u64,
    /// In how many blocks.
    pub blocks: u32,
    /// How long these took together, in seconds.
    pub seconds: f64,
    /// The shortest, in microseconds.
    pub min: Option<f64>,
    /// The mean, in microseconds.
    pub mean: Option<f64>,
    /// The longest, in microseconds. One order statistic: it grows with `n`.
    pub max: Option<f64>,
    /// Percentiles, the lowest first, and the median of the blocks' longest.
    pub quantiles: Vec<Quantile>,
    /// What the maximum allows to be said of all wake-ups.
    pub bound: Option<TailBound>,
    /// How many latencies were spikes; `None` where the tool does not tell.
    pub spikes: Option<u64>,
    /// In how many blocks there was one.
    pub spike_blocks: Option<u32>,
}

impl Summary {
    /// The entry of `statistic` in `quantiles`; `None` when there is none.
    pub fn quantile(&self, statistic: Statistic) -> Option<&Quantile> {
        self.quantiles.iter().find(|quantile| quantile.statistic == statistic)
    }

    /// Blocks with a spike a minute of measuring.
    pub fn spike_blocks_per_minute(&self) -> Option<f64> {
        let rate = f64::from(self.spike_blocks?) / (self.seconds / 60.0);
        rate.is_finite().then_some(rate)
    }
}

/// A percentile, or why it is withheld.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Quantile {
    /// The percentile that is told or withheld.
    pub statistic: Statistic,
    /// In microseconds, with its interval over blocks; `None` where `why` says why.
    pub value: Option<Estimate>,
    /// The value without an interval, where there are latencies enough for it and too few blocks for an interval.
    #[serde(default)]
    pub alone: Option<f64>,
    /// Why something of it is withheld.
    #[serde(default)]
    pub why: Option<String>,
}

/// What none of `n` latencies having been longer says of those that were not measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TailBound {
    /// All were shorter than this, in microseconds.
    pub below: f64,
    /// With this confidence...
    pub confidence: f64,
    /// ...fewer than this share of wake-ups take as long (the rule of three: 3 / n at 95 %). It takes wake-ups as independent.
    pub wake_ups: f64,
    /// ...and in fewer than this share of blocks there is such a wake-up. Blocks are much nearer to being independent, since spikes
    /// cluster.
    pub blocks: f64,
}

/// What of a series is told.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum Statistic {
    /// The shortest latency.
    #[serde(rename = "min")]
    Min,
    /// The mean of all latencies.
    #[serde(rename = "mean")]
    Mean,
    /// The median of all latencies.
    #[serde(rename = "p50")]
    P50,
    /// The 90th percentile.
    #[serde(rename = "p90")]
    P90,
    /// The 99th percentile.
    #[serde(rename = "p99")]
    P99,
    /// The 99.9th percentile.
    #[serde(rename = "p99.9")]
    P999,
    /// The 99.99th percentile.
    #[serde(rename = "p99.99")]
    P9999,
    /// The 99.999th percentile.
    #[serde(rename = "p99.999")]
    P99999,
    /// The median of the blocks' longest ones: what a block of that length usually comes to. Unlike the maximum it does not grow
    /// with the number of blocks, and has an interval that means something.
    #[serde(rename = "block-max")]
    BlockMax,
    /// The longest. One order statistic: it grows with the number of latencies.
    #[serde(rename = "max")]
    Max,
}

impl Statistic {
    /// All of them.
    pub const ALL: [Statistic; 10] = [
        Statistic::Min,
        Statistic::Mean,
        Statistic::P50,
        Statistic::P90,
        Statistic::P99,
        Statistic::P999,
        Statistic::P9999,
        Statistic::P99999,
        Statistic::BlockMax,
        Statistic::Max,
    ];

    /// Its name, as in JSON and in an `expect:` line.
    pub const fn name(self) -> &'static str {
        match self {
            Statistic::Min => "min",
            Statistic::Mean => "mean",
            Statistic::P50 => "p50",
            Statistic::P90 => "p90",
            Statistic::P99 => "p99",
            Statistic::P999 => "p99.9",
            Statistic::P9999 => "p99.99",
            Statistic::P99999 => "p99.999",
            Statistic::BlockMax => "block-max",
            Statistic::Max => "max",
        }
    }

    /// Which share of latencies is longer than it: 0.0001 for p99.99. `None` for what is no percentile.
    pub const fn beyond(self) -> Option<f64> {
        match self {
            Statistic::P50 => Some(0.5),
            Statistic::P90 => Some(0.1),
            Statistic::P99 => Some(0.01),
            Statistic::P999 => Some(0.001),
            Statistic::P9999 => Some(0.000_1),
            Statistic::P99999 => Some(0.000_01),
            Statistic::Min | Statistic::Mean | Statistic::BlockMax | Statistic::Max => None,
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Statistic {
    type Err = ();

    fn from_str(text: &str) -> Result<Statistic, ()> {
        Statistic::ALL.into_iter().find(|statistic| statistic.name() == text).ok_or(())
    }
}

/// Two series compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Comparison {
    /// The series that counts as 1: the tuned one, or the host's.
    pub base: String,
    /// The series that is compared with it: the untuned one, or the guest's.
    pub other: String,
    /// The statistic that is compared.
    pub statistic: Statistic,
    /// `other` over `base`, with its interval over blocks: 10 says that the other's latency is ten times the base's. `None` where `why`
    /// says why.
    pub ratio: Option<Estimate>,
    /// The tuned machine over itself, measured as two arms in turn (A/A). An interval that does not hold 1 says that the order of the
    /// blocks alone makes a difference, and the ratio beside it cannot be trusted.
    #[serde(default)]
    pub null: Option<Estimate>,
    /// Pairs of blocks, one of each, taken one after the other.
    pub pairs: u32,
    /// Why there is no ratio.
    #[serde(default)]
    pub why: Option<String>,
}

impl Comparison {
    /// Whether the A/A comparison beside it shows no difference; `None` without one.
    pub fn null_holds(&self) -> Option<bool> {
        self.null.as_ref().map(|null| null.spans(1.0))
    }
}
