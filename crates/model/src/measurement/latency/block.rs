//! One run of a tool.

use serde::{Deserialize, Serialize};

use super::Bins;

/// One run of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Block {
    /// In which round of the whole measurement, from 0. Blocks of one round were taken one after the other.
    pub round: u32,
    /// When it began, in seconds since the start.
    pub start: f64,
    /// How long the tool measured, in seconds.
    pub seconds: f64,
    /// What it counted. Empty for a tool that tells only single latencies, and for a block that failed.
    pub counts: Bins,
    /// The shortest latency in microseconds, as the tool tells it.
    pub min: Option<f64>,
    /// The mean latency in microseconds.
    pub mean: Option<f64>,
    /// The longest latency in microseconds, known also where it is past the last bin.
    pub max: Option<f64>,
    /// How many latencies were at least [`super::Latency::spike`]; `None` where the tool does not tell.
    pub spikes: Option<u64>,
    /// The tool's own output, by its path in the run's directory.
    pub raw: Option<String>,
    /// Why it gave nothing that counts. Such a block is left out of every number.
    pub failed: Option<String>,
}

impl Block {
    /// Whether its latencies count.
    pub fn counts(&self) -> bool {
        self.failed.is_none() && !self.counts.is_empty()
    }
}
