//! Measurements: what to measure, in which order, and what the tools' output says.
//!
//! - [`matrix`]: the cells that a model gives. [`schedule`]: the order of their samples, balanced and interleaved.
//! - [`sampler`]: what it is to take a sample. [`record`]: a sample as it was. [`event`]: what a run tells while it goes on.
//! - [`engine`]: a run from its beginning to its end, whatever its workload: [`cells`] is that of the network and of storage,
//!   [`latency::wake_ups`] that of wake-ups. [`journal`]: what it can be taken up again from.
//! - [`network`]: samples between two ends, by netperf and iperf3.
//! - [`latency`]: how late threads wake, by cyclictest, oslat and timerlat, beside a load.
//! - [`testbed`]: where programs can be run, and where each function's interface is.
//! - [`parse`]: what netperf, iperf3, fio and the probe print. Hostile or cut-off output is an error ([`output`]), never a 0.
//! - [`probe`]: the sender of requests at fixed times, and what answers them.
//! - [`storage`]: takes samples of storage with fio, on the host and in guests.
//! - [`summarise`]: from samples to summaries, comparisons and rulings, by [`penstock_statistics`].
//! - [`run_comparison`]: two runs compared.

pub mod cells;
pub mod engine;
pub mod event;
pub mod journal;
pub mod latency;
pub mod matrix;
pub mod network;
pub mod output;
pub mod parse;
pub mod probe;
pub mod record;
pub mod run_comparison;
pub mod sampler;
pub mod samplers;
pub mod schedule;
pub mod storage;
pub mod summarise;
pub mod testbed;
