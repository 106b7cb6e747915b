//! Measurements: what to measure, in which order, what the tools' output says, and how sure one can be.
//!
//! - [`parse`]: what netperf, iperf3 and fio print. Hostile or cut-off output is an error, never a 0.
//! - [`statistics`]: medians, percentiles, bootstrap intervals, ratios, when to stop. Pure, and drawn from a seed.

pub mod parse;
pub mod statistics;
