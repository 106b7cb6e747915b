//! Counting latencies without taking memory: all of it is there before the first request.

use std::collections::BTreeMap;

use penstock_model::measurement::Histogram;

use super::outcome::Latency;

/// Latencies in nanoseconds, counted in a [`Histogram`]'s buckets, with their sum and extremes.
pub struct Tally {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Tally {
    pub fn new() -> Tally {
        let buckets = Histogram::bucket(u64::MAX) as usize + 1;
        Tally { counts: vec![0; buckets], total: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    pub fn count(&mut self, nanoseconds: u64) {
        self.counts[Histogram::bucket(nanoseconds) as usize] += 1;
        self.total += 1;
        self.sum += u128::from(nanoseconds);
        self.min = self.min.min(nanoseconds);
        self.max = self.max.max(nanoseconds);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// The ends and the mean; `None` when nothing was counted.
    pub fn ends(&self) -> Option<Latency> {
        let mean_ns = u64::try_from(self.sum / u128::from(self.total.max(1))).unwrap_or(u64::MAX);
        (self.total > 0).then_some(Latency { min_ns: self.min, mean_ns, max_ns: self.max })
    }

    /// As it is recorded.
    pub fn histogram(&self) -> Histogram {
        let counts = (0..).zip(&self.counts).filter(|(_, count)| **count > 0);
        let counts: BTreeMap<u32, u64> = counts.map(|(bucket, count)| (bucket, *count)).collect();
        // Neither the bucket nor the sum can be out of bounds here.
        Histogram::try_from(counts).unwrap_or_default()
    }
}
