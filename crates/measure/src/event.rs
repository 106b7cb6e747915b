//! What a run tells while it goes on, for whoever watches.

use penstock_model::measurement::{Estimate, Metric, PathKind, StopReason};
use serde::{Deserialize, Serialize};

use crate::schedule::Duration;

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// All is made ready. Told again after the warm-up, when it is known how long a sample takes.
    Prepared {
        /// How many cells will be measured.
        cells: usize,
        /// How many cannot be, or are left out for want of time.
        missing: usize,
        /// How long it will take.
        duration: Duration,
    },
    /// A sample begins.
    Sampling {
        /// The cell's id, as in the run's matrix.
        cell: String,
        /// Which sample of it this is, counted from 1, warm-up and samples of a resumed run included.
        sample: u32,
        /// Seconds since the run's start.
        at: f64,
        /// Seconds that the rest will take, as far as can be told.
        left: Option<f64>,
    },
    /// A sample was taken.
    Sampled {
        /// The cell's id, as in the run's matrix.
        cell: String,
        /// Its kind of path, for a network cell.
        path: Option<PathKind>,
        /// What it counts.
        metric: Metric,
        /// The value; `None` when it is missing.
        value: Option<f64>,
        /// Why it is missing.
        why: Option<String>,
        /// The median so far, with its interval as soon as there are samples enough.
        median: Option<f64>,
        /// The confidence interval of the median; `None` while there are too few samples.
        interval: Option<Estimate>,
        /// How many samples count so far.
        samples: u32,
    },
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
