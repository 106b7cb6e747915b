//! cyclictest of rt-tests, by `--json` (`src/cyclictest/cyclictest.c`, `write_stats`).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{LatencyOutput, counts, rt_tests};
use crate::output::OutputError;

const TOOL: &str = "cyclictest";

#[derive(Deserialize)]
struct Thread {
    histogram: BTreeMap<String, u64>,
    cycles: u64,
    min: f64,
    max: f64,
    avg: f64,
    cpu: u32,
}

/// The JSON of a cyclictest that was asked for one thread and for a histogram of `limit` microseconds (`-h`). How many were
/// beyond it is not in the JSON: it is what its cycles have more than its bins.
///
/// # Errors
///
/// [`OutputError`] when it is empty, too long, not of the form that this tool prints, or its numbers
/// contradict each other, and when it has counted nothing.
pub fn json(output: &[u8], limit: u32) -> Result<LatencyOutput, OutputError> {
    let (thread, version): (Thread, String) = rt_tests::only_thread(TOOL, output)?;
    let bins = rt_tests::bins(TOOL, &thread.histogram)?;
    let Thread { cycles, min, max, avg, cpu, .. } = thread;
    let counts = counts(TOOL, bins, limit, cycles)?;
    LatencyOutput { version: Some(version), cpu: Some(cpu), counts, min, mean: avg, max }.checked(TOOL)
}
