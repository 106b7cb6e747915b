//! Measurements: what to measure, in which order, what the tools' output says, and how sure one can be.
//!
//! - [`matrix`]: the cells that a model gives. [`schedule`]: the order of their samples, balanced and interleaved.
//! - [`parse`]: what netperf, iperf3 and fio print. Hostile or cut-off output is an error, never a 0.
//! - [`statistics`]: medians, percentiles, bootstrap intervals, ratios, when to stop. Pure, and drawn from a seed.
//! - [`summarise`]: from samples to summaries, comparisons and rulings.

pub mod matrix;
pub mod parse;
pub mod schedule;
pub mod statistics;
pub mod summarise;
