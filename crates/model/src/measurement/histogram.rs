//! Latencies counted in buckets that grow with the latency.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bits of a latency that a bucket keeps after the first: 64 buckets a power of two, so that a bucket's ends are at most
/// 1.6 % apart. The same buckets as fio's (`stat.h`, `FIO_IO_U_PLAT_BITS`), whose counts can be taken over as they are.
const BITS: u32 = 6;
/// Buckets that any latency of 64 bits can fall into.
const BUCKETS: u32 = (64 - BITS + 1) << BITS;

/// Latencies in nanoseconds, counted in log-linear buckets. Only buckets with a count are kept; as JSON it is an object of
/// bucket numbers and counts, and a bucket's ends are told by [`Histogram::ends`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "BTreeMap<u32, u64>", into = "BTreeMap<u32, u64>")]
pub struct Histogram {
    counts: BTreeMap<u32, u64>,
}

/// A histogram that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HistogramError {
    /// There is no such bucket.
    #[error("bucket {0} of a latency histogram: the last is {last}", last = BUCKETS - 1)]
    Bucket(u32),
    /// More than can be counted.
    #[error("the counts of a latency histogram add up to more than 2^64")]
    Overflow,
}

impl TryFrom<BTreeMap<u32, u64>> for Histogram {
    type Error = HistogramError;

    fn try_from(mut counts: BTreeMap<u32, u64>) -> Result<Histogram, HistogramError> {
        if let Some((bucket, _)) = counts.last_key_value().filter(|(bucket, _)| **bucket >= BUCKETS) {
            return Err(HistogramError::Bucket(*bucket));
        }
        counts.retain(|_, count| *count > 0);
        let total = counts.values().try_fold(0u64, |sum, count| sum.checked_add(*count));
        total.map(|_| Histogram { counts }).ok_or(HistogramError::Overflow)
    }
}

impl From<Histogram> for BTreeMap<u32, u64> {
    fn from(histogram: Histogram) -> BTreeMap<u32, u64> {
        histogram.counts
    }
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Histogram {
        Histogram::default()
    }

    /// Which bucket a latency falls into.
    pub fn bucket(nanoseconds: u64) -> u32 {
        if nanoseconds < 1 << BITS {
            return nanoseconds as u32;
        }
        let power = 63 - nanoseconds.leading_zeros() - BITS;
        let kept = (nanoseconds >> power) as u32 & ((1 << BITS) - 1);
        ((power + 1) << BITS) + kept
    }

    /// The shortest and the longest latency of a bucket, in nanoseconds.
    pub fn ends(bucket: u32) -> (u64, u64) {
        let bucket = bucket.min(BUCKETS - 1);
        if bucket < 1 << BITS {
            return (u64::from(bucket), u64::from(bucket));
        }
        let power = (bucket >> BITS) - 1;
        let kept = u64::from(bucket & ((1 << BITS) - 1)) | 1 << BITS;
        let low = kept << power;
        (low, low + ((1 << power) - 1))
    }

    /// Counts `times` more of this latency. The total cannot pass 2^64: what is over is an error and is not counted.
    ///
    /// # Errors
    ///
    /// [`HistogramError::Overflow`].
    pub fn record(&mut self, nanoseconds: u64, times: u64) -> Result<(), HistogramError> {
        if times == 0 {
            return Ok(());
        }
        self.total().checked_add(times).ok_or(HistogramError::Overflow)?;
        *self.counts.entry(Histogram::bucket(nanoseconds)).or_default() += times;
        Ok(())
    }

    /// Adds what another has counted.
    ///
    /// # Errors
    ///
    /// [`HistogramError::Overflow`] when the totals together pass 2^64; nothing is added then.
    pub fn merge(&mut self, other: &Histogram) -> Result<(), HistogramError> {
        self.total().checked_add(other.total()).ok_or(HistogramError::Overflow)?;
        for (bucket, count) in &other.counts {
            *self.counts.entry(*bucket).or_default() += count;
        }
        Ok(())
    }

    /// Which of `n` latencies, counted from the shortest as 1, is the quantile `q`.
    pub fn rank(q: f64, n: u64) -> u64 {
        ((q * n as f64).ceil() as u64).max(1)
    }

    /// How many latencies were counted.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The buckets with a count, from the shortest latency: their ends in nanoseconds, and the count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts.iter().map(|(bucket, count)| {
            let (low, high) = Histogram::ends(*bucket);
            (low, high, *count)
        })
    }

    /// The complementary cumulative distribution, a point a bucket: a latency in nanoseconds, and which fraction of all is
    /// longer than it. The last fraction is 0, which a logarithmic scale cannot show.
    pub fn longer_than(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        let total = self.total();
        let mut left = total;
        self.buckets().map(move |(_, high, count)| {
            left -= count;
            (high, left as f64 / total as f64)
        })
    }

    /// The latency in nanoseconds that the fraction `q` does not exceed, as the upper end of its bucket (never too
    /// good). `None` when nothing was counted or `q` is not between 0 and 1. It does not ask whether there are enough
    /// samples for it.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        self.quantile_below(q, 0)
    }

    /// The same, as if `longer` more had been counted that are longer than all of these; `None` also when it falls among them.
    pub fn quantile_below(&self, q: f64, longer: u64) -> Option<u64> {
        if self.is_empty() || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let rank = Histogram::rank(q, self.total().saturating_add(longer));
        let mut seen = 0;
        for (_, high, count) in self.buckets() {
            seen += count;
            if seen >= rank {
                return Some(high);
            }
        }
        self.buckets().last().map(|(_, high, _)| high)
    }
}
