//! The order of samples. Pure; drawn from a seed.
//!
//! A *round* takes one sample of every arm. The arms of a block, which are compared with each other, are taken one after
//! the other, so that what changes on the machine meets all of them. Their order follows a Williams square (E. J. Williams,
//! 1949): over its rows each arm stands at each position equally often, and follows each other arm equally often. For two
//! arms that is AB BA. Which arm has which letter, and the order of the blocks in a round, is drawn from the seed.

use penstock_model::measurement::Rules;
use serde::{Deserialize, Serialize};

use crate::statistics::Random;

/// The order of all arms in one round. `blocks` holds arms by number, each once. Round 0 and those before
/// [`Rules::warm_up`] are warm-up.
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

/// How long `arms` arms take. `overhead` is the time in seconds that a sample takes beside its dwell (starting the tool,
/// connecting, ending).
pub fn duration(arms: usize, rules: &Rules, overhead: f64) -> Duration {
    let sample = f64::from(rules.dwell_ms) / 1e3 + overhead.max(0.0);
    let round = arms as f64 * sample;
    let looks = crate::statistics::Looks::new(rules);
    let rounds = |n: u32| f64::from(rules.warm_up) + f64::from(n);
    let capped = |seconds: f64| rules.budget.map_or(seconds, |budget| seconds.min(budget));
    let (first, last) = (looks.at().first().copied().unwrap_or(1), looks.at().last().copied().unwrap_or(1));
    Duration { least: capped(round * rounds(first)), most: capped(round * rounds(last)) }
}

/// How many samples of each arm, beside its warm-up, fit into the rules' time; `None` when they set none.
pub fn samples_within(arms: usize, rules: &Rules, overhead: f64) -> Option<u32> {
    let round = arms as f64 * (f64::from(rules.dwell_ms) / 1e3 + overhead.max(0.0));
    let rounds = (rules.budget? / round).floor();
    Some((rounds as u32).saturating_sub(rules.warm_up))
}
