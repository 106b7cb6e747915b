//! How sure one can be: medians, percentiles, intervals, ratios, and when there are samples enough.
//!
//! All of it is a pure function of samples and a seed. Samples are runs of a tool, a handful to some dozens an arm; the
//! distribution of latencies inside one run is a [`penstock_model::measurement::Histogram`].
//!
//! **Intervals** are bootstrap percentile intervals of the median (Efron 1979), their tails moved outwards for small
//! numbers of samples (Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section 5.3: the *expanded*
//! percentile interval). BCa is not used: its acceleration comes from the jackknife, which does not work for the median.
//!
//! **Looking repeatedly.** Stopping as soon as an interval is tight looks at the same data several times, and favours
//! moments when it happens to be tight. [`InterimAnalyses`] fixes in advance at how many samples an arm is looked at, and each look's
//! interval is made for the error that is left to it: `1 - (1 - confidence) / looks` (Bonferroni). Whichever look is the
//! last, the chance that its interval is wrong is at most the stated one. That is conservative, and it costs width; one
//! look costs nothing.
//!
//! **Many comparisons.** Two runs of hundreds of cells differ somewhere by chance. A ratio's p-value is had by inverting its
//! interval on the log scale (Altman and Bland, BMJ 343:d2304, 2011), with Student's distribution as for the interval itself,
//! and corrected by Holm's step-down procedure (1979), which bounds the chance of even one false alarm and assumes nothing of how
//! the cells hang together. Counting how often a bootstrap's draws cross 1 would not do: two thousand draws tell no p-value
//! below 1/2000, and hundreds of cells need smaller ones. Benjamini and Hochberg's procedure finds more, and lets a stated share
//! of what it finds be false; an exit status should not be false.

mod bootstrap;
mod interim;
mod quantile;
mod random;
mod significance;
mod tails;
pub mod wake_ups;

pub use bootstrap::{RESAMPLES, interval, ratio, ratio_paired, samples_for_interval};
pub use interim::{Confidence, InterimAnalyses, Look};
pub use quantile::{median, quantile, samples_for};
pub use random::Random;
pub use significance::{holm, p_of_ratio};

#[cfg(test)]
mod tests;
