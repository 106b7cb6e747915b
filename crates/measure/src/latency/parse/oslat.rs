//! oslat of rt-tests, by `--json` (`src/oslat/oslat.c`, `write_summary_json`). What it counts is how long a busy loop stood
//! still, not how late a thread woke.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{LatencyOutput, counts, rt_tests, total};
use crate::output::OutputError;

const TOOL: &str = "oslat";

#[derive(Deserialize)]
struct Thread {
    cpu: u32,
    min: f64,
    avg: f64,
    max: f64,
    histogram: BTreeMap<String, u64>,
}

/// The JSON of an oslat that was asked for one CPU and so many buckets (`-b`) of a microsecond, the first being that of 1. The
/// last bucket has all that are as long or longer.
///
/// # Errors
///
/// [`OutputError`] when it is empty, too long, not of the form that this tool prints, or its numbers
/// contradict each other, and when it has counted nothing.
pub fn json(output: &[u8], buckets: u32) -> Result<LatencyOutput, OutputError> {
    let (thread, version): (Thread, String) = rt_tests::only_thread(TOOL, output)?;
    let mut bins = rt_tests::bins(TOOL, &thread.histogram)?;
    let total = total(TOOL, &bins)?;
    bins.remove(&buckets);
    let Thread { cpu, min, avg, max, .. } = thread;
    let counts = counts(TOOL, bins, buckets, total)?;
    LatencyOutput { version: Some(version), cpu: Some(cpu), counts, min, mean: avg, max }.checked(TOOL)
}
