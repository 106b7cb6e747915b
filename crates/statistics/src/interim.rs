//! At how many samples an arm is looked at, and what each look may claim.

use penstock_model::measurement::{Estimate, Rules, StopReason};

use super::bootstrap::samples_for_interval;

/// The looks of an arm, fixed before the first sample.
#[derive(Clone, Debug, PartialEq)]
pub struct InterimAnalyses {
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

impl InterimAnalyses {
    /// The looks of these rules: at the minimum, then each time there are half as many samples again, and at the maximum.
    /// The first is later than the minimum where an interval of the confidence of one look needs more samples. A look so
    /// near the maximum that it could save less than a fifth of the samples is left out: it would cost all others more. With
    /// minimum and maximum the same there is one look, which has the whole confidence.
    pub fn new(rules: &Rules) -> InterimAnalyses {
        let last = rules.maximum.max(1);
        let mut at: Vec<u32> = Vec::new();
        let mut next = rules.minimum.clamp(1, last);
        while next < last {
            if u64::from(next) * 5 <= u64::from(last) * 4 {
                at.push(next);
            }
            next = next.saturating_add((next / 2).max(1));
        }
        at.push(last);
        // Fewer looks need fewer samples for the first: dropping too early ones ends.
        while at.len() > 1 && (at[0] as usize) < samples_for_interval(share(rules.confidence, at.len())) {
            at.remove(0);
        }
        InterimAnalyses { at, confidence: rules.confidence, half_width: rules.half_width }
    }

    /// At how many samples, in ascending order; never empty.
    pub fn at(&self) -> &[u32] {
        &self.at
    }

    /// The confidence that the interval of one look must be made for, so that all of them together have the stated one.
    pub fn confidence_of_one(&self) -> f64 {
        share(self.confidence, self.at.len())
    }

    /// Whether an interval is as tight as the rules ask.
    pub fn is_tight(&self, interval: &Estimate) -> bool {
        interval.relative_half_width().is_some_and(|width| width <= self.half_width)
    }

    /// What to do after `n` samples with this interval, which was made with [`InterimAnalyses::confidence_of_one`]. Between looks the
    /// answer is always [`Look::More`], whatever the interval.
    pub fn decide(&self, n: u32, interval: Option<&Estimate>) -> Look {
        let last = self.at.last().copied().unwrap_or(1);
        let tight = interval.is_some_and(|interval| self.is_tight(interval));
        match () {
            () if self.at.contains(&n) && tight => Look::Stop(StopReason::TightEnough),
            () if n >= last => Look::Stop(StopReason::SamplesUp),
            () => Look::More,
        }
    }
}

/// How sure intervals are: with what they are stated, and for what they are made when the data was looked at before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    stated: f64,
    of_one: f64,
    /// After how many rounds there was the first look that could have ended it.
    from: u32,
}

impl From<f64> for Confidence {
    /// Of data that is looked at once.
    fn from(stated: f64) -> Confidence {
        Confidence { stated, of_one: stated, from: 0 }
    }
}

impl InterimAnalyses {
    /// How sure the intervals are of arms that were stopped by these looks. All looks together have the stated confidence;
    /// an arm that ended before the first, because the time was up, was looked at once.
    pub fn confidence(&self) -> Confidence {
        let from = self.at.first().copied().unwrap_or(0);
        Confidence { stated: self.confidence, of_one: self.confidence_of_one(), from }
    }
}

impl Confidence {
    /// What an interval is stated with.
    pub fn stated(self) -> f64 {
        self.stated
    }

    /// What an interval is made for after so many rounds. Whether there was a look hangs on them: of samples that failed there are
    /// fewer values.
    pub fn made_for(self, round: u32) -> f64 {
        if round >= self.from { self.of_one } else { self.stated }
    }

    /// The median with its interval ([`super::interval`]), after so many rounds.
    pub fn interval(self, samples: &[f64], round: u32, seed: u64) -> Option<Estimate> {
        self.state(super::interval(samples, self.made_for(round), seed)?)
    }

    /// The ratio of pairs with its interval ([`super::ratio_paired`]), after so many rounds.
    pub fn ratio_paired(self, pairs: &[(f64, f64)], round: u32, seed: u64) -> Option<Estimate> {
        self.state(super::ratio_paired(pairs, self.made_for(round), seed)?)
    }

    fn state(self, made: Estimate) -> Option<Estimate> {
        Estimate::new(made.value(), made.low(), made.high(), self.stated)
    }
}

fn share(confidence: f64, looks: usize) -> f64 {
    1.0 - (1.0 - confidence) / looks as f64
}
