//! The normal and Student's distributions, as far as the expanded percentile interval needs them.

/// The normal distribution's cumulative function (Abramowitz and Stegun 7.1.26; off by less than 1.5e-7).
pub(super) fn normal(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let upper = series.into_iter().fold(0.0, |sum, term| sum * t + term) * t * (-z * z).exp() / 2.0;
    if x < 0.0 { upper } else { 1.0 - upper }
}

/// The share of Student's distribution between `-t` and `t` (Abramowitz and Stegun 26.7.3 and 26.7.4, exact for whole
/// degrees of freedom).
pub(super) fn student_between(t: f64, freedom: u32) -> f64 {
    let angle = (t / f64::from(freedom).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let (mut term, mut sum) = (if odd { cos } else { 1.0 }, 0.0);
    let mut k = if odd { 1 } else { 0 };
    while k + 2 <= freedom {
        sum += term;
        k += 2;
        term *= cos * cos * f64::from(k - 1) / f64::from(k);
    }
    if odd { (angle + sin * sum) * std::f64::consts::FRAC_2_PI } else { sin * sum }
}

/// The `t` with this share of Student's distribution between `-t` and `t`.
pub(super) fn student(share: f64, freedom: u32) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if student_between(middle, freedom) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Which tail of the bootstrap's distribution to cut off on each side for this confidence with `n` samples: Hesterberg's
/// expanded tail `Phi(-sqrt(n / (n - 1)) t)`.
pub(super) fn expanded_tail(confidence: f64, n: usize) -> f64 {
    let freedom = u32::try_from(n.saturating_sub(1)).unwrap_or(u32::MAX).clamp(1, 1000);
    let n = n.max(2) as f64;
    normal(-(n / (n - 1.0)).sqrt() * student(confidence, freedom))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tables_values_come_out() {
        for (x, share) in [(0.0, 0.5), (-1.959_964, 0.025), (1.0, 0.841_344_7), (-2.816, 0.002_431)] {
            assert!((super::normal(x) - share).abs() < 2e-6, "{x}: {}", super::normal(x));
        }
        for (share, freedom, t) in
            [(0.95, 1, 12.7062), (0.95, 2, 4.3027), (0.95, 5, 2.5706), (0.99, 10, 3.1693), (0.95, 30, 2.0423)]
        {
            assert!((super::student(share, freedom) - t).abs() < 1e-4, "{freedom}");
        }
    }
}
