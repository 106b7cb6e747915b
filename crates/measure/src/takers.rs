//! Two takers as one: the network's and the storage's.

use std::time::Duration;

use penstock_model::measurement::Subject;

use crate::{
    matrix::Planned,
    record::RawOutput,
    taker::{Preparation, Taker},
};

/// Sends cells of the network to one taker and cells of storage to another.
pub struct Takers<'a> {
    network: &'a mut dyn Taker,
    storage: &'a mut dyn Taker,
}

impl<'a> Takers<'a> {
    /// These two as one.
    pub fn new(network: &'a mut dyn Taker, storage: &'a mut dyn Taker) -> Takers<'a> {
        Takers { network, storage }
    }
}

impl Taker for Takers<'_> {
    fn prepare(&mut self, cells: &[Planned]) -> Preparation {
        let is_network = |cell: &&Planned| matches!(cell.measurement.subject, Subject::Network(_));
        let (network, storage): (Vec<&Planned>, Vec<&Planned>) = cells.iter().partition(is_network);
        let owned = |cells: Vec<&Planned>| cells.into_iter().cloned().collect::<Vec<_>>();
        let mut preparation = Preparation::default();
        // A taker without cells has nothing to look for, and its tool need not be there.
        for (taker, cells) in [(&mut *self.network, owned(network)), (&mut *self.storage, owned(storage))] {
            if !cells.is_empty() {
                preparation.merge(taker.prepare(&cells));
            }
        }
        preparation
    }

    fn take(&mut self, cell: &Planned, dwell: Duration) -> Result<RawOutput, String> {
        match cell.measurement.subject {
            Subject::Network(_) => self.network.take(cell, dwell),
            Subject::Storage(_) => self.storage.take(cell, dwell),
        }
    }

    fn finish(&mut self) -> Vec<String> {
        let mut complaints = self.network.finish();
        complaints.extend(self.storage.finish());
        complaints
    }
}
