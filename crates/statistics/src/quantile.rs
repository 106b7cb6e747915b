//! Medians and percentiles.

/// The quantile `q` of values in ascending order, between the two nearest (type 7 of Hyndman and Fan, "Sample Quantiles in
/// Statistical Packages", 1996: the one of R and NumPy). `None` without values, or when `q` is not between 0 and 1.
pub fn quantile(ascending: &[f64], q: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    let position = ascending.len().checked_sub(1)? as f64 * q;
    let (below, above) = (ascending[position.floor() as usize], ascending[position.ceil() as usize]);
    // Written so that two equal values give exactly that value, and large ones do not overflow.
    Some(below + (above - below) * (position - position.floor()))
}

/// The median of values in any order. `None` without values, or when one is not a number.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.iter().any(|value| value.is_nan()) {
        return None;
    }
    let mut ascending = values.to_vec();
    ascending.sort_by(f64::total_cmp);
    quantile(&ascending, 0.5)
}

/// The median, faster; the values' order is lost. They hold no NaN and there is at least one.
pub(super) fn median_in_place(values: &mut [f64]) -> f64 {
    let (middle, odd) = (values.len() / 2, values.len() % 2 == 1);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    if odd {
        return upper;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    lower + (upper - lower) * 0.5
}

/// How many samples a quantile needs before it is told: ten beyond it, on its rarer side. p50 needs 20, p90 100, p99 1000,
/// p99.9 10000, p99.99 100000.
///
/// The number of samples beyond a quantile is binomial; with ten expected, its standard deviation is a third of it, so
/// that the share of samples beyond the value told is right within a factor of two (10 ± 2 * 3.2). With one, as when
/// p99 is taken from a hundred samples, the value is a maximum under another name.
pub fn samples_for(q: f64) -> u64 {
    let beyond = q.min(1.0 - q);
    if beyond <= 0.0 || !beyond.is_finite() {
        return u64::MAX;
    }
    // The quantile's own rounding must not ask for one more: 1 - 0.9 is a little less than 0.1.
    (10.0 / beyond - 1e-6).ceil() as u64
}
