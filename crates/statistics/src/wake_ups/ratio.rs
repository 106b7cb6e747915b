//! Two series against each other.

use std::collections::BTreeMap;

use penstock_model::measurement::{
    Estimate,
    latency::{Bins, Block, Comparison, Series, Statistic},
};

use super::{
    super::{RESAMPLES, Random, ratio_paired, samples_for, samples_for_interval},
    summarise::{Dense, MOST_BLOCKS, coarse, merged, spread},
};

/// `other` over `base` in one statistic, from the rounds that have a block of each, which are drawn again as pairs; `null` is the
/// second arm of `base` (A/A).
///
/// The interval of a ratio of maxima tells how much hangs on single blocks, and not what another maximum will be: no resampling finds
/// a longer one than was seen. That of [`Statistic::BlockMax`] has no such weakness.
pub fn compare(
    base: &Series,
    other: &Series,
    null: Option<&Series>,
    statistic: Statistic,
    confidence: f64,
    seed: u64,
) -> Comparison {
    let pairs = pairs(base, other);
    let found = ratio(&pairs, statistic, confidence, seed);
    let null = null.and_then(|null| ratio(&self::pairs(base, null), statistic, confidence, seed).ok());
    let count = pairs.len() as u32;
    let (base, other) = (base.id.clone(), other.id.clone());
    let (ratio, why) = match found {
        Ok(ratio) => (Some(ratio), None),
        Err(why) => (None, Some(why)),
    };
    Comparison { base, other, statistic, ratio, null, pairs: count, why }
}

/// The blocks of one round of both, in the order of time.
fn pairs<'a>(base: &'a Series, other: &'a Series) -> Vec<(&'a Block, &'a Block)> {
    let by_round = |series: &'a Series| -> BTreeMap<u32, &'a Block> {
        series.counted().map(|block| (block.round, block)).collect()
    };
    let (base, other) = (by_round(base), by_round(other));
    base.into_iter().filter_map(|(round, block)| Some((block, *other.get(&round)?))).collect()
}

fn ratio(
    pairs: &[(&Block, &Block)],
    statistic: Statistic,
    confidence: f64,
    seed: u64,
) -> Result<Estimate, String> {
    let least = samples_for_interval(confidence);
    if pairs.len() < least {
        return Err(format!("an interval takes {least} pairs of blocks, and there are {}", pairs.len()));
    }
    match statistic {
        Statistic::Max => maxima(&values(pairs, |block| block.max)?, confidence, seed),
        Statistic::BlockMax => medians(&values(pairs, |block| block.max)?, confidence, seed),
        Statistic::Mean => medians(&values(pairs, |block| block.mean)?, confidence, seed),
        Statistic::Min => medians(&values(pairs, |block| block.min)?, confidence, seed),
        percentile => percentiles(pairs, percentile, confidence, seed),
    }
}

fn values(
    pairs: &[(&Block, &Block)],
    tell: impl Fn(&Block) -> Option<f64>,
) -> Result<Vec<(f64, f64)>, String> {
    let all = pairs.iter().map(|(base, other)| Some((tell(base)?, tell(other)?)));
    all.collect::<Option<Vec<_>>>().ok_or_else(|| "the tool does not tell it of every block".to_owned())
}

const NO_BASE: &str = "the base is below one microsecond, of which no ratio can be made";

fn medians(pairs: &[(f64, f64)], confidence: f64, seed: u64) -> Result<Estimate, String> {
    ratio_paired(pairs, confidence, seed).ok_or_else(|| NO_BASE.to_owned())
}

fn maxima(pairs: &[(f64, f64)], confidence: f64, seed: u64) -> Result<Estimate, String> {
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let ratio = |drawn: &[(f64, f64)]| {
        most(&mut drawn.iter().map(|(_, other)| *other)) / most(&mut drawn.iter().map(|(base, _)| *base))
    };
    let mut random = Random::for_purpose(seed, "maxima");
    let mut again = pairs.to_vec();
    let drawn: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            again.iter_mut().for_each(|slot| *slot = pairs[random.below(pairs.len())]);
            ratio(&again)
        })
        .collect();
    if !drawn.iter().all(|ratio| ratio.is_finite()) {
        return Err(NO_BASE.to_owned());
    }
    spread(ratio(pairs), drawn, confidence, pairs.len()).ok_or_else(|| NO_BASE.to_owned())
}

fn percentiles(
    pairs: &[(&Block, &Block)],
    statistic: Statistic,
    confidence: f64,
    seed: u64,
) -> Result<Estimate, String> {
    let beyond = statistic.beyond().unwrap_or(0.5);
    let side = |tell: &dyn Fn(&(&'_ Block, &'_ Block)) -> Bins| -> Result<(Dense, Bins), String> {
        let all: Vec<Bins> = pairs.iter().map(tell).collect();
        let blocks = coarse(&all.iter().collect::<Vec<_>>())?;
        let sum = merged(blocks.iter())?;
        Ok((Dense::of(&blocks, &sum), sum))
    };
    let (base, base_sum) = side(&|(base, _)| base.counts.clone())?;
    let (other, other_sum) = side(&|(_, other)| other.counts.clone())?;
    let (n, least) = (base_sum.total().min(other_sum.total()), samples_for(beyond));
    if n < least {
        return Err(format!("{statistic} takes {least} wake-ups, and one side has {n}"));
    }
    let of = |blocks: &[usize], sums: &mut [Vec<u64>; 2]| -> Result<f64, String> {
        let [of_base, of_other] = sums;
        base.sum(blocks, of_base);
        other.sum(blocks, of_other);
        let over = || format!("{statistic} is longer than a histogram");
        let below = base.percentile(of_base, beyond).ok_or_else(over)?;
        let above = other.percentile(of_other, beyond).ok_or_else(over)?;
        if below == 0 {
            return Err(NO_BASE.to_owned());
        }
        Ok(f64::from(above) / f64::from(below))
    };
    let mut sums = [Vec::new(), Vec::new()];
    let value = of(&(0..base.len()).collect::<Vec<_>>(), &mut sums)?;
    let mut random = Random::for_purpose(seed, "ratios");
    let mut again = vec![0; base.len()];
    let mut drawn = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        again.iter_mut().for_each(|slot| *slot = random.below(base.len()));
        drawn.push(of(&again, &mut sums).map_err(|why| format!("{why}, when blocks are drawn again"))?);
    }
    spread(value, drawn, confidence, pairs.len().min(MOST_BLOCKS))
        .ok_or_else(|| "no interval can be made of it".to_owned())
}
