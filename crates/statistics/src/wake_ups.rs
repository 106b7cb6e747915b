//! What histograms of wake-ups allow to be said.
//!
//! **The unit is the block**, one run of a tool. Spikes cluster: an interrupt storm is late a thousand times and happened once.
//! Intervals are made by drawing whole blocks again (Efron's bootstrap of clusters; Künsch 1989 for why blocks of a series must be
//! kept together), pairs of blocks of one round where two arms are compared.
//!
//! **Refusal.** A percentile with fewer than ten latencies beyond it is not told ([`super::samples_for`]), nor is one that lies in a
//! histogram's overflow.
//!
//! **The maximum** of `n` wake-ups says that with confidence `c` fewer than `1 - (1 - c)^(1/n)` of them take longer: the rule of
//! three, `3 / n` at 95 % (Wilks 1941 for a sample's own maximum, Hanley and Lippman-Hand 1983 for none above a bound that was
//! chosen before). It takes them as independent, so the same is said of blocks.
//!
//! **Looking often.** A bound is tested by a likelihood ratio that may be looked at after every block: under the hypothesis that it does
//! not hold the ratio is a supermartingale, and exceeds `1 / (1 - c)` at *any* time with a chance of `1 - c` at most (Ville 1939;
//! Robbins 1970). Without a late wake-up it is just the rule of three.

mod bound;
mod judge;
mod ratio;
mod summarise;

pub use bound::{design_effect, needed, rule_of_three, test};
pub use judge::{decided, judge};
pub use ratio::compare;
pub use summarise::summarise;

#[cfg(test)]
mod tests;
