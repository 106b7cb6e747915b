//! Bootstrap intervals of medians and of ratios of medians.

use penstock_model::measurement::Estimate;

use super::{
    Random,
    quantile::{median_in_place, quantile},
    tails::expanded_tail,
};

/// How often the samples are drawn again. The tail of six samples at 95 % is cut at 0.24 %, which five of two thousand
/// lie beyond.
pub const RESAMPLES: usize = 2000;

/// The fewest samples that an interval of the median of this confidence can be made of, whatever the distribution: the
/// range of `n` samples misses the median with a chance of `2^(1-n)` (all on one side). 6 for 95 %, 8 for 99 %.
/// `usize::MAX` for a confidence that is not between 0 and 1.
pub fn samples_for_interval(confidence: f64) -> usize {
    if !(confidence > 0.0 && confidence < 1.0) {
        return usize::MAX;
    }
    (2..64).find(|n| 2f64.powi(1 - *n) <= (1.0 - confidence) * (1.0 + 1e-9)).unwrap_or(64) as usize
}

/// The median with its interval. `None` with too few samples for this confidence ([`samples_for_interval`]), or when one is
/// not finite. The order of the samples does not matter.
pub fn interval(samples: &[f64], confidence: f64, seed: u64) -> Option<Estimate> {
    let mut sorted = enough(samples, confidence)?;
    let n = sorted.len();
    let mut again = vec![0.0; n];
    let mut random = Random::new(seed);
    let drawn = (0..RESAMPLES).map(|_| {
        again.iter_mut().for_each(|slot| *slot = sorted[random.below(n)]);
        median_in_place(&mut again)
    });
    let drawn = drawn.collect();
    estimate(median_in_place(&mut sorted), drawn, confidence, n)
}

/// The median of `other` over the median of `base`, two arms that share no rounds. `None` with too few samples in one of
/// them, when one is not finite, or when a median of `base` can be 0. The order of the samples does not matter.
pub fn ratio(base: &[f64], other: &[f64], confidence: f64, seed: u64) -> Option<Estimate> {
    let (mut base, mut other) = (enough(base, confidence)?, enough(other, confidence)?);
    let mut random = Random::new(seed);
    let (mut again_base, mut again_other) = (vec![0.0; base.len()], vec![0.0; other.len()]);
    let drawn = (0..RESAMPLES).map(|_| {
        again_base.iter_mut().for_each(|slot| *slot = base[random.below(base.len())]);
        again_other.iter_mut().for_each(|slot| *slot = other[random.below(other.len())]);
        median_in_place(&mut again_other) / median_in_place(&mut again_base)
    });
    let drawn = drawn.collect();
    let n = base.len().min(other.len());
    estimate(median_in_place(&mut other) / median_in_place(&mut base), drawn, confidence, n)
}

/// The median of `other` over the median of `base`, of pairs `(base, other)` taken one after the other: pairs are drawn
/// again as pairs, so that what changes from round to round in both arms alike does not widen the interval. `None` as for
/// [`ratio`]. The order of the pairs does not matter.
pub fn ratio_paired(pairs: &[(f64, f64)], confidence: f64, seed: u64) -> Option<Estimate> {
    let n = pairs.len();
    let finite = pairs.iter().all(|(base, other)| base.is_finite() && other.is_finite());
    if !finite || n < samples_for_interval(confidence) {
        return None;
    }
    let mut sorted = pairs.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (mut base, mut other): (Vec<f64>, Vec<f64>) = sorted.iter().copied().unzip();
    let value = median_in_place(&mut other) / median_in_place(&mut base);
    let mut random = Random::new(seed);
    let drawn = (0..RESAMPLES).map(|_| {
        for (base, other) in base.iter_mut().zip(other.iter_mut()) {
            (*base, *other) = sorted[random.below(n)];
        }
        median_in_place(&mut other) / median_in_place(&mut base)
    });
    let drawn = drawn.collect();
    estimate(value, drawn, confidence, n)
}

/// The samples in ascending order, when there are enough and all are finite.
fn enough(samples: &[f64], confidence: f64) -> Option<Vec<f64>> {
    if samples.len() < samples_for_interval(confidence) || !samples.iter().all(|sample| sample.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

fn estimate(value: f64, mut drawn: Vec<f64>, confidence: f64, n: usize) -> Option<Estimate> {
    if !drawn.iter().all(|drawn| drawn.is_finite()) {
        return None;
    }
    drawn.sort_by(f64::total_cmp);
    let tail = expanded_tail(confidence, n);
    let (low, high) = (quantile(&drawn, tail)?, quantile(&drawn, 1.0 - tail)?);
    // Between few samples the quantile of the draws can step over the value itself.
    Estimate::new(value, low.min(value), high.max(value), confidence)
}
