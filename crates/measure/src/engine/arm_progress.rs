//! An arm while it is sampled.

use std::collections::BTreeSet;

use crate::record::Record;

/// An arm while it is sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmProgress {
    /// Its name.
    pub id: String,
    /// Whether more samples are taken of it.
    pub going: bool,
    /// Why it is not measured, or no further.
    pub missing: Option<String>,
    /// Samples so far, of every kind.
    pub taken: u32,
    /// How many failed one after the other, in this run.
    pub failed: u32,
    /// Bytes of its output that are kept.
    pub(super) kept: u64,
    /// The rounds that need no sample any more.
    done: BTreeSet<u32>,
}

impl ArmProgress {
    /// One that has no sample yet.
    pub(super) fn new(id: String) -> ArmProgress {
        ArmProgress { id, going: true, ..ArmProgress::default() }
    }

    /// Counts a record.
    pub(super) fn count(&mut self, record: &Record, good: bool) {
        self.taken += 1;
        self.failed = if good { 0 } else { self.failed + 1 };
        if !record.warm_up {
            self.done.insert(record.round);
        }
    }

    /// Whether this round takes a sample of it.
    pub fn wants(&self, round: u32) -> bool {
        self.going && !self.done.contains(&round)
    }

    /// How many rounds it had.
    pub fn rounds(&self) -> u32 {
        self.done.len() as u32
    }
}
