//! What a run tells while it goes on, for whoever watches.

use penstock_model::measurement::{Estimate, Metric, PathKind, StopReason};
use serde::{Deserialize, Serialize};

use crate::schedule::Duration;

/// Something that happened in a run: `T` is what is told of a sample, a [`CellSample`] or a [`BlockSample`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event<T = CellSample> {
    /// All is made ready. Told again after a warm-up, when it is known how long a sample takes.
    Prepared {
        /// How many cells or series will be measured.
        cells: usize,
        /// How many cannot be.
        missing: usize,
        /// How many are left out for want of time.
        #[serde(default)]
        left_out: usize,
        /// How long it will take, where that can be told.
        duration: Option<Duration>,
    },
    /// A sample begins.
    Sampling {
        /// The id of the cell or series, as in the run's plan.
        cell: String,
        /// Which sample of it this is, counted from 1, warm-up and samples of a resumed run included.
        sample: u32,
        /// In which round.
        round: u32,
        /// Seconds since the run's start.
        at: f64,
        /// Seconds that the rest will take, as far as can be told.
        left: Option<f64>,
    },
    /// A sample was taken.
    Sampled(T),
    /// Measuring a cell ended.
    Stopped {
        /// The cell's id, as in the run's matrix.
        cell: String,
        /// Why no more samples of it are taken.
        why: StopReason,
    },
    /// Something that the user should know.
    Note(String),
}

/// A sample of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellSample {
    /// The cell's id, as in the run's matrix.
    pub cell: String,
    /// Its kind of path, for a network cell.
    pub path: Option<PathKind>,
    /// What it counts.
    pub metric: Metric,
    /// The value; `None` when it is missing.
    pub value: Option<f64>,
    /// Why it is missing.
    pub why: Option<String>,
    /// The median so far, with its interval as soon as there are samples enough.
    pub median: Option<f64>,
    /// The confidence interval of the median; `None` while there are too few samples.
    pub interval: Option<Estimate>,
    /// How many samples count so far.
    pub samples: u32,
}

/// A block of latencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockSample {
    /// Of which series.
    pub series: String,
    /// How many latencies it has; 0 when it failed.
    pub n: u64,
    /// The longest of them in microseconds.
    pub max: Option<f64>,
    /// The longest of the series so far.
    pub worst: Option<f64>,
    /// Why it failed.
    pub why: Option<String>,
}
