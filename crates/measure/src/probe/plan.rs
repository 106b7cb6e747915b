//! When the requests of an open loop leave: drawn before the first of them.

use std::time::Duration;

use penstock_statistics::Random;

/// More requests than this are not planned; their times take 32 MiB.
pub const MOST: usize = 4 << 20;

/// The times in nanoseconds from the start at which requests leave, in order, all before `dwell`: a Poisson process of `rate`
/// a second, drawn from `seed`.
///
/// Poisson and not constant spacing, because its requests see the path as it is on average over time (PASTA, Wolff 1982),
/// where a constant spacing falls into step with whatever else is periodic, the timer tick above all, and meets it always
/// or never.
///
/// `None` when that is more than [`MOST`] or none at all.
pub fn poisson(rate: u32, dwell: Duration, seed: u64) -> Option<Vec<u64>> {
    let expected = f64::from(rate) * dwell.as_secs_f64();
    if expected < 1.0 || expected > MOST as f64 * 0.9 {
        return None;
    }
    let mut random = Random::for_purpose(seed, "times of requests");
    let (mean, end) = (1e9 / f64::from(rate), dwell.as_nanos() as f64);
    let mut times = Vec::with_capacity((expected * 1.2) as usize + 64);
    let mut at = 0.0;
    loop {
        // 1 - unit() is never 0.
        at -= (1.0 - random.unit()).ln() * mean;
        if at >= end {
            break;
        }
        if times.len() >= MOST {
            return None;
        }
        times.push(at as u64);
    }
    (!times.is_empty()).then_some(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisson_process() {
        let times = poisson(10_000, Duration::from_secs(10), 7).unwrap();
        assert!(times.is_sorted());
        assert!(*times.last().unwrap() < 10_000_000_000);
        // 100000 expected, with a standard deviation of 316.
        assert!((98_500..101_500).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((deviation / mean - 1.0).abs() < 0.03, "exponential gaps: {mean} {deviation}");
        assert_eq!(poisson(10_000, Duration::from_secs(10), 7), Some(times.clone()));
        assert_ne!(poisson(10_000, Duration::from_secs(10), 8), Some(times));
    }

    #[test]
    fn what_cannot_be_planned() {
        assert_eq!(poisson(0, Duration::from_secs(1), 1), None);
        assert_eq!(poisson(1, Duration::from_millis(1), 1), None);
        assert_eq!(poisson(u32::MAX, Duration::from_secs(1), 1), None);
    }
}
