//! What the blocks of a series add up to.

use penstock_model::measurement::{
    Estimate,
    latency::{Bins, Block, Quantile, Statistic, Summary, TailBound},
};

use super::{
    super::{RESAMPLES, Random, interval, quantile, samples_for, samples_for_interval, tails::expanded_tail},
    rule_of_three,
};

/// The percentiles that are told.
const TOLD: [Statistic; 6] =
    [Statistic::P50, Statistic::P90, Statistic::P99, Statistic::P999, Statistic::P9999, Statistic::P99999];
/// More blocks than this are put together with their neighbours before they are drawn again: the interval needs no more, and
/// longer blocks hold more of what clusters.
pub(super) const MOST_BLOCKS: usize = 128;

/// What blocks add up to. `None` without a block that counts.
///
/// # Errors
/// When the blocks' histograms cannot be put together, in words.
pub fn summarise(blocks: &[Block], confidence: f64, seed: u64) -> Result<Option<Summary>, String> {
    let counted: Vec<&Block> = blocks.iter().filter(|block| block.counts()).collect();
    if counted.is_empty() {
        return Ok(None);
    }
    let all = merged(counted.iter().map(|block| &block.counts))?;
    let n = all.total();
    let seconds = counted.iter().map(|block| block.seconds).sum();
    let maxima: Vec<f64> = counted.iter().filter_map(|block| block.max).collect();
    let max = maxima.iter().copied().max_by(f64::total_cmp);
    let means = counted.iter().map(|block| Some(block.mean? * block.counts.total() as f64));
    let mean = means.sum::<Option<f64>>().map(|sum| sum / n as f64);
    let drawn = draws(&counted, seed)?;
    let mut quantiles: Vec<Quantile> = TOLD
        .into_iter()
        .map(|statistic| percentile(statistic, &all, &drawn, counted.len(), confidence))
        .collect();
    if maxima.len() == counted.len() {
        quantiles.push(block_max(&maxima, confidence, seed));
    }
    let spikes: Option<u64> = counted.iter().map(|block| block.spikes).sum();
    Ok(Some(Summary {
        n,
        blocks: counted.len() as u32,
        seconds,
        min: counted.iter().filter_map(|block| block.min).min_by(f64::total_cmp),
        mean,
        max,
        quantiles,
        bound: max.map(|max| TailBound {
            below: max.floor() + 1.0,
            confidence,
            wake_ups: rule_of_three(n, confidence),
            blocks: rule_of_three(counted.len() as u64, confidence),
        }),
        spikes,
        spike_blocks: spikes.map(|_| {
            counted.iter().filter(|block| block.spikes.is_some_and(|spikes| spikes > 0)).count() as u32
        }),
    }))
}

/// Histograms in one.
pub(super) fn merged<'a>(all: impl Iterator<Item = &'a Bins>) -> Result<Bins, String> {
    let mut sum = Bins::default();
    for bins in all {
        sum.merge(bins).map_err(|error| error.to_string())?;
    }
    Ok(sum)
}

/// Latencies in a dense form that is quick to add up, the overflow last.
#[derive(Clone)]
pub(super) struct Dense {
    values: Vec<u32>,
    counts: Vec<Vec<(usize, u64)>>,
}

impl Dense {
    /// Of histograms whose limit is that of `all`, which is all of them together.
    pub(super) fn of(blocks: &[Bins], all: &Bins) -> Dense {
        let values: Vec<u32> = all.bins().map(|(bin, _)| bin).collect();
        let counts = blocks.iter().map(|block| {
            let bins =
                block.bins().filter_map(|(bin, count)| Some((values.binary_search(&bin).ok()?, count)));
            bins.chain((block.over() > 0).then_some((values.len(), block.over()))).collect()
        });
        let counts = counts.collect();
        Dense { values, counts }
    }

    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// These blocks together.
    pub(super) fn sum(&self, blocks: &[usize], into: &mut Vec<u64>) {
        into.clear();
        into.resize(self.values.len() + 1, 0);
        for block in blocks {
            for (place, count) in &self.counts[*block] {
                into[*place] += count;
            }
        }
    }

    /// The microsecond that all but the share `beyond` do not exceed; `None` in the overflow.
    pub(super) fn percentile(&self, counts: &[u64], beyond: f64) -> Option<u32> {
        let rank = rank(counts.iter().sum(), beyond);
        let mut seen = 0;
        let place = counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        self.values.get(place).copied()
    }
}

/// The rank of a percentile among `n`, from 1.
pub(super) fn rank(n: u64, beyond: f64) -> u64 {
    // What is beyond is rounded down, but for the error of the division itself: of 10^5 one in 10^4 is ten.
    let beyond = (n as f64 * beyond * (1.0 + 1e-12)).floor() as u64;
    (n - beyond.min(n)).max(1)
}

/// Neighbouring histograms put together until there are few enough.
pub(super) fn coarse(blocks: &[&Bins]) -> Result<Vec<Bins>, String> {
    let each = blocks.len().div_ceil(MOST_BLOCKS).max(1);
    blocks.chunks(each).map(|chunk| merged(chunk.iter().copied())).collect()
}

/// The percentiles of blocks drawn again, for each of [`TOLD`]; `None` among them is the overflow.
fn draws(counted: &[&Block], seed: u64) -> Result<Vec<Vec<Option<u32>>>, String> {
    let blocks = coarse(&counted.iter().map(|block| &block.counts).collect::<Vec<_>>())?;
    if blocks.len() < 2 {
        return Ok(vec![Vec::new(); TOLD.len()]);
    }
    let dense = Dense::of(&blocks, &merged(blocks.iter())?);
    let mut random = Random::for_purpose(seed, "percentiles");
    let mut drawn = vec![Vec::with_capacity(RESAMPLES); TOLD.len()];
    let (mut again, mut counts) = (vec![0; dense.len()], Vec::new());
    for _ in 0..RESAMPLES {
        again.iter_mut().for_each(|slot| *slot = random.below(dense.len()));
        dense.sum(&again, &mut counts);
        for (statistic, drawn) in TOLD.iter().zip(&mut drawn) {
            drawn.push(dense.percentile(&counts, statistic.beyond().unwrap_or(0.5)));
        }
    }
    Ok(drawn)
}

fn percentile(
    statistic: Statistic,
    all: &Bins,
    drawn: &[Vec<Option<u32>>],
    blocks: usize,
    confidence: f64,
) -> Quantile {
    let withheld = |why: String| Quantile { statistic, value: None, alone: None, why: Some(why) };
    let beyond = statistic.beyond().unwrap_or(0.5);
    let (n, least) = (all.total(), samples_for(beyond));
    if n < least {
        return withheld(format!("it takes {least} wake-ups, and there are {n}"));
    }
    let Some(value) = all.ranked(rank(n, beyond)) else {
        let limit = all.limit();
        return withheld(format!("it is longer than the histogram, which ends at {limit} us"));
    };
    let alone = |why: String| Quantile { statistic, value: None, alone: Some(value.into()), why: Some(why) };
    let least = samples_for_interval(confidence);
    if blocks < least {
        return alone(format!("an interval takes {least} blocks, and there are {blocks}"));
    }
    let place = TOLD.iter().position(|told| *told == statistic).unwrap_or(0);
    let Some(drawn) = drawn[place].iter().map(|value| value.map(f64::from)).collect::<Option<Vec<f64>>>()
    else {
        let limit = all.limit();
        return alone(format!("its interval reaches past the histogram, which ends at {limit} us"));
    };
    let value = spread(f64::from(value), drawn, confidence, blocks.min(MOST_BLOCKS));
    Quantile { statistic, value, alone: None, why: None }
}

/// The interval of what was drawn again, which holds the value.
pub(super) fn spread(value: f64, mut drawn: Vec<f64>, confidence: f64, n: usize) -> Option<Estimate> {
    drawn.sort_by(f64::total_cmp);
    let tail = expanded_tail(confidence, n);
    let (low, high) = (quantile(&drawn, tail)?, quantile(&drawn, 1.0 - tail)?);
    Estimate::new(value, low.min(value), high.max(value), confidence)
}

fn block_max(maxima: &[f64], confidence: f64, seed: u64) -> Quantile {
    let statistic = Statistic::BlockMax;
    match interval(maxima, confidence, seed) {
        Some(value) => Quantile { statistic, value: Some(value), alone: None, why: None },
        None => {
            let least = samples_for_interval(confidence);
            let why = format!("an interval takes {least} blocks, and there are {}", maxima.len());
            Quantile { statistic, value: None, alone: crate::median(maxima), why: Some(why) }
        }
    }
}
