//! The order of samples. Pure; drawn from a seed.
//!
//! A *round* takes one sample of every arm. The arms of a block, which are compared with each other, are taken one after
//! the other, so that what changes on the machine meets all of them. Their order follows a Williams square (E. J. Williams,
//! 1949): over its rows each arm stands at each position equally often, and follows each other arm equally often. For two
//! arms that is AB BA. Which arm has which letter, and the order of the blocks in a round, is drawn from the seed.

use penstock_model::measurement::Rules;
use serde::{Deserialize, Serialize};

use penstock_statistics::Random;

/// The order of all arms in one round, rounds counted from 1. `blocks` holds arms by number, each once, and is the same in
/// every round of a run: what is no longer sampled is passed over by the caller, or the letters would change hands.
pub fn round(blocks: &[Vec<usize>], round: u32, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    Random::for_purpose(seed ^ (u64::from(round) << 32), "blocks of a round").shuffle(&mut order);
    order.into_iter().flat_map(|block| block_order(&blocks[block], block, round, seed)).collect()
}

/// After how many rounds the order of `arms` arms is balanced: as many as arms, twice as many for an odd number.
pub fn balanced_after(arms: usize) -> usize {
    if arms.is_multiple_of(2) { arms } else { 2 * arms }
}

fn block_order(arms: &[usize], block: usize, round: u32, seed: u64) -> Vec<usize> {
    let n = arms.len();
    if n < 2 {
        return arms.to_vec();
    }
    let mut random = Random::for_purpose(seed ^ ((block as u64) << 32), "letters of a block");
    let mut letters = arms.to_vec();
    random.shuffle(&mut letters);
    let row = round as usize % balanced_after(n);
    // 0, 1, n-1, 2, n-2...: neighbours differ by 1, -2, 3, -4..., by each distance once.
    let zigzag = (0..n).map(|at| if at % 2 == 1 { at.div_ceil(2) } else { (n - at / 2) % n });
    let mut order: Vec<usize> = zigzag.map(|letter| letters[(letter + row) % n]).collect();
    // With an odd number of arms the distances lean one way; the mirrored rows lean the other.
    if row >= n {
        order.reverse();
    }
    order
}

/// How long a run takes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Duration {
    /// When every arm stops at its first look.
    pub least: f64,
    /// When none does before the maximum, or the time that the rules allow.
    pub most: f64,
}

/// Seconds that a sample takes beside its dwell (starting the tool, connecting, ending), before anything is known.
pub const OVERHEAD: f64 = 0.1;

/// Seconds that one sample takes, with this much beside its dwell.
pub fn sample(rules: &Rules, overhead: f64) -> f64 {
    f64::from(rules.dwell_ms) / 1e3 + overhead.max(0.0)
}

/// How long `arms` arms take, of which `warm_ups` are warmed up. `overhead` is the time in seconds that a sample takes beside
/// its dwell.
pub fn duration(arms: usize, warm_ups: usize, rules: &Rules, overhead: f64) -> Duration {
    let looks = penstock_statistics::InterimAnalyses::new(rules);
    let warm_up = f64::from(rules.warm_up) * warm_ups as f64;
    let of = |rounds: u32| {
        let seconds = (warm_up + arms as f64 * f64::from(rounds)) * sample(rules, overhead);
        rules.budget.map_or(seconds, |budget| seconds.min(budget))
    };
    let (first, last) = (looks.at().first().copied().unwrap_or(1), looks.at().last().copied().unwrap_or(1));
    Duration { least: of(first), most: of(last) }
}

/// A block that is to be fitted into the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How many arms of it are sampled.
    pub arms: usize,
    /// How many rounds of it there are already.
    pub have: u32,
    /// How early it is taken in: 0 first.
    pub priority: u32,
}

impl Waiting {
    /// How many samples it takes until it has so many rounds.
    fn samples(&self, rounds: u32) -> f64 {
        self.arms as f64 * f64::from(rounds.saturating_sub(self.have))
    }
}

/// Which blocks can have so many rounds in the seconds that are `left`, at `sample` seconds each: whole blocks, in the order
/// of their priority, and of two with the same the one that comes first. One is always taken, however long it takes.
pub fn fit(blocks: &[Waiting], rounds: u32, sample: f64, left: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|block| blocks[*block].priority);
    let mut fits = vec![false; blocks.len()];
    let mut spent = 0.0;
    for (at, block) in order.into_iter().enumerate() {
        let takes = blocks[block].samples(rounds) * sample;
        if at == 0 || spent + takes <= left {
            fits[block] = true;
            spent += takes;
        }
    }
    fits
}

/// How many rounds all these blocks can have in the seconds that are `left`, at most `most`.
pub fn rounds_within(blocks: &[Waiting], sample: f64, left: f64, most: u32) -> u32 {
    let takes = |rounds: u32| blocks.iter().map(|block| block.samples(rounds)).sum::<f64>() * sample;
    // The more rounds, the longer: halving finds the last that fits.
    let (mut fits, mut not) = (0, most.saturating_add(1));
    while not - fits > 1 {
        let middle = fits + (not - fits) / 2;
        if takes(middle) <= left {
            fits = middle;
        } else {
            not = middle;
        }
    }
    fits
}
