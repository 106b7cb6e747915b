//! Latencies counted in bins of a microsecond, with those that are longer than the last bin.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Latencies counted in bins of one microsecond: the bin 7 has those of 7 up to but not 8 microseconds, as cyclictest, oslat
/// and timerlat count. Only bins with a count are kept. What is longer than the last bin is the *overflow*, of which nothing
/// but the number is known here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "Raw", into = "Raw")]
pub struct Bins {
    counts: BTreeMap<u32, u64>,
    limit: u32,
    over: u64,
}

/// As it is written. The overflow stands beside the bins, because a reader who forgets it sees no spike.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
struct Raw {
    /// Counts by microsecond.
    bins: BTreeMap<u32, u64>,
    /// The first microsecond that has no bin.
    limit: u32,
    /// How many were that long or longer.
    over: u64,
}

/// Counts that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BinsError {
    /// A count in a bin that the histogram does not have.
    #[error("{count} latencies in the bin of {bin} us of a histogram that ends at {limit} us")]
    PastLimit {
        /// The bin past the end, in microseconds.
        bin: u32,
        /// How many latencies that bin counts.
        count: u64,
        /// The first microsecond without a bin.
        limit: u32,
    },
    /// Fewer latencies were measured than the bins have.
    #[error("the bins hold {binned} latencies, and only {total} were measured")]
    MoreThanMeasured {
        /// What the bins add up to.
        binned: u64,
        /// How many were measured.
        total: u64,
    },
    /// Two histograms that end at different places.
    #[error(
        "a histogram that ends at {one} us cannot be added to one that ends at {other} us: it has {over} longer latencies, which \
         belong to no bin"
    )]
    Limits {
        /// Where the one ends.
        one: u32,
        /// Where the other ends.
        other: u32,
        /// What the shorter one has over its end.
        over: u64,
    },
    /// More than can be counted.
    #[error("the counts of a histogram add up to more than 2^64")]
    Overflow,
}

impl TryFrom<Raw> for Bins {
    type Error = BinsError;

    fn try_from(raw: Raw) -> Result<Bins, BinsError> {
        let binned = sum(&raw.bins)?;
        let total = binned.checked_add(raw.over).ok_or(BinsError::Overflow)?;
        Bins::new(raw.bins, raw.limit, total)
    }
}

impl From<Bins> for Raw {
    fn from(bins: Bins) -> Raw {
        Raw { bins: bins.counts, limit: bins.limit, over: bins.over }
    }
}

fn sum(counts: &BTreeMap<u32, u64>) -> Result<u64, BinsError> {
    counts.values().try_fold(0u64, |sum, count| sum.checked_add(*count)).ok_or(BinsError::Overflow)
}

impl Bins {
    /// Counts by microsecond of a histogram with the bins 0 to `limit - 1`, of `total` latencies in all. What the bins lack to
    /// `total` was longer: cyclictest's JSON does not say so otherwise.
    ///
    /// # Errors
    /// When a bin is past the limit, or the bins hold more than `total`.
    pub fn new(mut counts: BTreeMap<u32, u64>, limit: u32, total: u64) -> Result<Bins, BinsError> {
        counts.retain(|_, count| *count > 0);
        if let Some((bin, count)) = counts.range(limit..).next() {
            return Err(BinsError::PastLimit { bin: *bin, count: *count, limit });
        }
        let binned = sum(&counts)?;
        let over = total.checked_sub(binned).ok_or(BinsError::MoreThanMeasured { binned, total })?;
        Ok(Bins { counts, limit, over })
    }

    /// How many latencies were counted, the overflow among them.
    pub fn total(&self) -> u64 {
        self.counts.values().sum::<u64>() + self.over
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.over == 0
    }

    /// How many are longer than the last bin.
    pub fn over(&self) -> u64 {
        self.over
    }

    /// The first microsecond that has no bin.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The bins with a count, the shortest latency first: the microsecond, and the count. The overflow is not among them.
    pub fn bins(&self) -> impl DoubleEndedIterator<Item = (u32, u64)> + '_ {
        self.counts.iter().map(|(bin, count)| (*bin, *count))
    }

    /// How many latencies are in the bin of `microseconds` or later ones. `None` past the last bin while something is over it:
    /// nobody knows how much of that is so long.
    pub fn at_least(&self, microseconds: u32) -> Option<u64> {
        if microseconds > self.limit && self.over > 0 {
            return None;
        }
        Some(self.counts.range(microseconds..).map(|(_, count)| count).sum::<u64>() + self.over)
    }

    /// The bin that the latency of this rank is in, counted from 1 at the shortest. `None` where there is no such rank, or it is
    /// in the overflow.
    pub fn ranked(&self, rank: u64) -> Option<u32> {
        let mut seen = 0;
        self.counts.iter().find_map(|(bin, count)| {
            seen += count;
            (rank > 0 && seen >= rank).then_some(*bin)
        })
    }

    /// Adds what another has counted. The limit becomes the smaller one where the shorter has an overflow, else the larger one:
    /// nothing that was counted is moved to a bin that it may not belong to.
    ///
    /// # Errors
    /// When the shorter one has an overflow while the other has counts past its limit, which could not be told apart any more; when it is
    /// more than can be counted.
    pub fn merge(&mut self, other: &Bins) -> Result<(), BinsError> {
        self.total().checked_add(other.total()).ok_or(BinsError::Overflow)?;
        if self.is_empty() && self.limit == 0 {
            *self = other.clone();
            return Ok(());
        }
        let (short, long) = if self.limit <= other.limit { (&*self, other) } else { (other, &*self) };
        let limit = match short.over {
            0 => long.limit,
            over if long.limit > short.limit && long.counts.range(short.limit..).next().is_some() => {
                return Err(BinsError::Limits { one: short.limit, other: long.limit, over });
            }
            _ => short.limit,
        };
        for (bin, count) in &other.counts {
            *self.counts.entry(*bin).or_default() += count;
        }
        self.over += other.over;
        self.limit = limit;
        Ok(())
    }

    /// The complementary cumulative distribution, a point a bin: a microsecond, and which fraction of all latencies is in that
    /// bin or longer. The first fraction is 1.
    pub fn reaching(&self) -> impl Iterator<Item = (u32, f64)> + '_ {
        let total = self.total();
        let mut left = total;
        self.counts.iter().map(move |(bin, count)| {
            let share = left as f64 / total as f64;
            left -= count;
            (*bin, share)
        })
    }
}
