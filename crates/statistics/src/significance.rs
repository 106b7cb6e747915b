//! How likely a ratio is by chance, alone and among many.

use penstock_model::measurement::Estimate;

use super::tails::{student, student_between};

/// Less than this is not told: it would be the distribution's far tail, of which some dozens of samples know nothing.
const LEAST: f64 = 1e-9;

/// How often two arms of the same would give a ratio as far from 1 as this one, whose smaller arm has `n` samples. Below
/// `1 - confidence` exactly where the interval leaves 1 out. 1 for a ratio that is not above 0.
pub fn p_of_ratio(ratio: &Estimate, n: usize) -> f64 {
    let freedom = u32::try_from(n.saturating_sub(1)).unwrap_or(u32::MAX).clamp(1, 1000);
    let (value, low, high) = (ratio.value(), ratio.low(), ratio.high());
    if value <= 0.0 || value == 1.0 {
        return 1.0;
    }
    // The side of the interval on which 1 lies; an interval of medians need not be symmetric.
    let side =
        if value > 1.0 { value.ln() - low.max(f64::MIN_POSITIVE).ln() } else { high.ln() - value.ln() };
    let t = value.ln().abs() / side * student(ratio.confidence(), freedom);
    if !t.is_finite() {
        return LEAST;
    }
    (1.0 - student_between(t, freedom)).clamp(LEAST, 1.0)
}

/// P-values corrected for their number: those at most `alpha` hold together with an error of `alpha` (Holm 1979). In the
/// order given.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 0.0f64;
    for (rank, position) in order.into_iter().enumerate() {
        least = least.max((p[position] * (p.len() - rank) as f64).min(1.0));
        adjusted[position] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_published_example_comes_out() {
        // Altman and Bland: a ratio of 0.81 [0.70, 0.94] has p = 0.005 with the normal distribution.
        let ratio = Estimate::new(0.81, 0.70, 0.94, 0.95).unwrap();
        assert!((p_of_ratio(&ratio, 1001) - 0.005).abs() < 1e-3, "{}", p_of_ratio(&ratio, 1001));
    }

    #[test]
    fn holm_by_hand() {
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(close(&holm(&[0.01, 0.04, 0.03, 0.005]), &[0.03, 0.06, 0.06, 0.02]));
        assert!(close(&holm(&[0.9, 0.8]), &[1.0, 1.0]));
        assert!(holm(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn it_is_small_exactly_where_the_interval_leaves_1_out(
            value in 0.2f64..5.0, below in 0.01f64..1.0, above in 0.01f64..3.0, n in 6usize..40,
        ) {
            let ratio = Estimate::new(value, value * (1.0 - below * 0.9), value * (1.0 + above), 0.95).unwrap();
            prop_assume!((ratio.low() - 1.0).abs() > 1e-6 && (ratio.high() - 1.0).abs() > 1e-6);
            prop_assert_eq!(p_of_ratio(&ratio, n) < 0.05, !ratio.spans(1.0), "{}", ratio);
        }

        #[test]
        fn correcting_keeps_the_order_and_never_lowers(p in prop::collection::vec(0.0f64..=1.0, 0..40)) {
            let adjusted = holm(&p);
            for (i, a) in p.iter().enumerate() {
                prop_assert!(adjusted[i] >= *a && adjusted[i] <= 1.0);
                for (j, b) in p.iter().enumerate() {
                    prop_assert!(a > b || adjusted[i] <= adjusted[j]);
                }
            }
        }
    }
}
