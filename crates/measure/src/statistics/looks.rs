//! At how many samples an arm is looked at, and what each look may claim.

use penstock_model::measurement::{Estimate, Rules, StopReason};

/// The fewest samples that an interval of the median of this confidence can be made of, whatever the distribution: the
/// range of `n` samples misses the median with a chance of `2^(1-n)` (all on one side). 6 for 95 %, 8 for 99 %.
/// `usize::MAX` for a confidence that is not between 0 and 1.
pub fn samples_for_interval(confidence: f64) -> usize {
    if !(confidence > 0.0 && confidence < 1.0) {
        return usize::MAX;
    }
    (2..64).find(|n| 2f64.powi(1 - *n) <= (1.0 - confidence) * (1.0 + 1e-9)).unwrap_or(64) as usize
}

/// The looks of an arm, fixed before the first sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Looks {
    at: Vec<u32>,
    confidence: f64,
    half_width: f64,
}

/// What a look says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Take more samples.
    More,
    /// Stop, because of this.
    Stop(StopReason),
}

impl Looks {
    /// The looks of these rules: at the minimum, then each time there are half as many samples again, and at the maximum.
    /// The first is later than the minimum where an interval of the confidence of one look needs more samples. With
    /// minimum and maximum the same there is one look, which has the whole confidence.
    pub fn new(rules: &Rules) -> Looks {
        let last = rules.maximum.max(1);
        let mut at: Vec<u32> = Vec::new();
        let mut next = rules.minimum.clamp(1, last);
        while next < last {
            at.push(next);
            next = next.saturating_add((next / 2).max(1));
        }
        at.push(last);
        // Fewer looks need fewer samples for the first: dropping too early ones ends.
        while at.len() > 1 && (at[0] as usize) < samples_for_interval(share(rules.confidence, at.len())) {
            at.remove(0);
        }
        Looks { at, confidence: rules.confidence, half_width: rules.half_width }
    }

    /// At how many samples, in ascending order; never empty.
    pub fn at(&self) -> &[u32] {
        &self.at
    }

    /// The confidence that the interval of one look must be made for, so that all of them together have the stated one.
    pub fn confidence_of_one(&self) -> f64 {
        share(self.confidence, self.at.len())
    }

    /// What to do after `n` samples with this interval, which was made with [`Looks::confidence_of_one`]. Between looks the
    /// answer is always [`Look::More`], whatever the interval.
    pub fn decide(&self, n: u32, interval: Option<&Estimate>) -> Look {
        let last = self.at.last().copied().unwrap_or(1);
        let tight = interval.and_then(Estimate::relative_half_width).is_some_and(|w| w <= self.half_width);
        match () {
            () if self.at.contains(&n) && tight => Look::Stop(StopReason::TightEnough),
            () if n >= last => Look::Stop(StopReason::SamplesUp),
            () => Look::More,
        }
    }
}

fn share(confidence: f64, looks: usize) -> f64 {
    1.0 - (1.0 - confidence) / looks as f64
}
