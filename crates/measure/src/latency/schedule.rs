//! The order of blocks. Pure; drawn from a seed.
//!
//! A *round* takes one block of every series. The machine is tuned and untuned as seldom as can be, since that takes longer than
//! a block and changes the machine under everybody: once a round. Rounds come in pairs, of which the second is the mirror image
//! of the first, so that over a pair each arm stands in the middle of it: a machine that gets slower meets all of them alike.
//! For two arms that is ABBA. Which arm is first is drawn for each pair.

use penstock_model::measurement::latency::Arm;

use penstock_statistics::Random;

use crate::schedule;

/// The arms of a round, rounds counted from 0, in order. [`Arm::Tuned`] and [`Arm::Null`] are the same machine and stand beside each
/// other.
pub fn arms(round: u32, seed: u64, against: bool) -> Vec<Arm> {
    if !against {
        return vec![Arm::Tuned];
    }
    let mut random = Random::for_purpose(seed ^ (u64::from(round / 2) << 32), "arms of a pair of rounds");
    let mut same = [Arm::Tuned, Arm::Null];
    if random.below(2) == 1 {
        same.reverse();
    }
    let mut order = vec![same[0], same[1]];
    order.insert(if random.below(2) == 1 { 0 } else { 2 }, Arm::Untuned);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// In which order the series of one arm are taken in a round: `series` is how many there are. It is the same for each arm
/// of a round, so that the blocks of two arms that are compared lie equally far apart.
pub fn series(series: usize, round: u32, seed: u64) -> Vec<usize> {
    schedule::round(&[(0..series).collect()], round + 1, seed)
}
