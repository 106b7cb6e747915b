//! A cell while it is sampled.

use std::collections::{BTreeMap, BTreeSet};

use crate::{matrix::Planned, record::Record};

/// A cell while it is sampled.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    /// Whether more samples are taken of it.
    pub going: bool,
    /// Samples so far, of every kind.
    pub taken: u32,
    /// How many failed one after the other, in this run.
    pub failed: u32,
    /// The rounds that need no sample any more.
    done: BTreeSet<u32>,
    /// The main metric by round.
    told: BTreeMap<u32, f64>,
}

impl Arm {
    pub fn new(_: &Planned) -> Arm {
        Arm { going: true, taken: 0, failed: 0, done: BTreeSet::new(), told: BTreeMap::new() }
    }

    /// Counts a record of an earlier run. One that failed leaves its round open: what it failed of may be mended.
    pub fn earlier(&mut self, planned: &Planned, record: &Record) {
        let reading = record.reading(&planned.measurement);
        let value = reading
            .as_ref()
            .ok()
            .and_then(|told| told.values.get(&planned.measurement.main_metric()).copied());
        if reading.is_ok() {
            self.count(record, true, value);
        } else {
            self.taken += 1;
        }
    }

    /// Counts a record of this run.
    pub fn count(&mut self, record: &Record, good: bool, value: Option<f64>) {
        self.taken += 1;
        self.failed = if good { 0 } else { self.failed + 1 };
        if record.warm_up {
            return;
        }
        self.done.insert(record.round);
        if let Some(value) = value {
            self.told.insert(record.round, value);
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

    /// What it told until this round.
    pub fn values(&self, until: u32) -> Vec<f64> {
        self.told.range(..=until).map(|(_, value)| *value).collect()
    }

    /// What it and another told in the same rounds, until this one.
    pub fn pairs(&self, other: &Arm, until: u32) -> Vec<(f64, f64)> {
        let rounds = self.told.range(..=until);
        rounds.filter_map(|(round, value)| Some((*value, *other.told.get(round)?))).collect()
    }
}
