//! Bounds of what is rare.

use penstock_model::measurement::Conclusion;

/// The share of wake-ups that is not exceeded with this confidence when `n` of them had none: `1 - (1 - confidence)^(1/n)`,
/// which is 3 / n at 95 %. 1 for none.
pub fn rule_of_three(n: u64, confidence: f64) -> f64 {
    if n == 0 {
        return 1.0;
    }
    // Through logarithms: the power itself is 1 for large n.
    -((1.0 - confidence).ln() / n as f64).exp_m1()
}

/// How many wake-ups without a late one it takes to prove that fewer than `share` are late.
pub fn needed(share: f64, confidence: f64) -> u64 {
    let n = (1.0 - confidence).ln() / (-share).ln_1p();
    if n.is_finite() && n > 0.0 { n.ceil() as u64 } else { u64::MAX }
}

/// How much less a wake-up counts because late ones come together: the variance of the number of late ones from block to block over
/// what it would be if they were independent (Kish's design effect; the Pearson dispersion of McCullagh and Nelder). Never below 1,
/// and 1 where there are fewer than two blocks or no late one. A block is its latencies and how many of them were late.
pub fn design_effect(blocks: &[(u64, u64)]) -> f64 {
    let (n, late) = blocks.iter().fold((0u64, 0u64), |(n, late), block| (n + block.0, late + block.1));
    if blocks.len() < 2 || late == 0 || late >= n {
        return 1.0;
    }
    let share = late as f64 / n as f64;
    let squares = blocks.iter().filter(|block| block.0 > 0).map(|(n, late)| {
        let expected = *n as f64 * share;
        (*late as f64 - expected).powi(2) / (expected * (1.0 - share))
    });
    (squares.sum::<f64>() / (blocks.len() - 1) as f64).max(1.0)
}

/// What alternatives a test looks for, as multiples of the share: a mixture of few is enough, since a neighbour loses little.
const BETTER: [f64; 5] = [0.0, 0.125, 0.25, 0.5, 0.75];
const WORSE: [f64; 6] = [1.33, 2.0, 4.0, 8.0, 32.0, 256.0];

/// Whether fewer than `share` of wake-ups are late, after `n` of which `late` were. It may be asked after every block and be stopped by:
/// the chance that it ever says [`Conclusion::Holds`] or [`Conclusion::DoesNotHold`] wrongly is at most `1 - confidence`.
///
/// `effect` is the [`design_effect`], by which both numbers are divided.
pub fn test(n: u64, late: u64, share: f64, confidence: f64, effect: f64) -> Conclusion {
    let (n, late) = (n as f64 / effect, late as f64 / effect);
    let enough = -(1.0 - confidence).ln();
    if mixture(n, late, share, &BETTER) >= enough {
        Conclusion::Holds
    } else if mixture(n, late, share, &WORSE) >= enough {
        Conclusion::DoesNotHold
    } else {
        Conclusion::CannotBeTold
    }
}

/// The logarithm of the likelihood of the alternatives' even mixture over that of `share`. Every factor has a mean of at most 1 under every
/// share on the other side, so that this is a test of all of them.
fn mixture(n: f64, late: f64, share: f64, alternatives: &[f64]) -> f64 {
    if n <= 0.0 || !(share > 0.0 && share < 1.0) {
        return f64::NEG_INFINITY;
    }
    let possible = alternatives.iter().map(|times| times * share).filter(|other| *other < 1.0);
    let logs: Vec<f64> = possible
        .map(|other| {
            let of_late = match () {
                () if late == 0.0 => 0.0,
                () if other == 0.0 => return f64::NEG_INFINITY,
                () => late * (other / share).ln(),
            };
            of_late + (n - late) * ((-other).ln_1p() - (-share).ln_1p())
        })
        .collect();
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !most.is_finite() {
        return most;
    }
    // The mixture has as many parts as alternatives were named, possible or not.
    most + (logs.iter().map(|log| (log - most).exp()).sum::<f64>() / alternatives.len() as f64).ln()
}
