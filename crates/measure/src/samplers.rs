//! Two samplers as one: the network's and the storage's.

use std::time::Duration;

use penstock_model::measurement::Subject;

use crate::{
    matrix::Planned,
    record::RawOutput,
    sampler::{Failure, Preparation, Sampler},
};

/// Sends cells of the network to one sampler and cells of storage to another.
pub struct Samplers<'a> {
    network: &'a mut dyn Sampler,
    storage: &'a mut dyn Sampler,
}

impl<'a> Samplers<'a> {
    /// These two as one.
    pub fn new(network: &'a mut dyn Sampler, storage: &'a mut dyn Sampler) -> Samplers<'a> {
        Samplers { network, storage }
    }
}

impl Sampler for Samplers<'_> {
    fn prepare(&mut self, cells: &[Planned]) -> Preparation {
        let is_network = |cell: &&Planned| matches!(cell.measurement.subject, Subject::Network(_));
        let (network, storage): (Vec<&Planned>, Vec<&Planned>) = cells.iter().partition(is_network);
        let owned = |cells: Vec<&Planned>| cells.into_iter().cloned().collect::<Vec<_>>();
        let mut preparation = Preparation::default();
        // A sampler without cells has nothing to look for, and its tool need not be there.
        for (sampler, cells) in [(&mut *self.network, owned(network)), (&mut *self.storage, owned(storage))] {
            if !cells.is_empty() {
                preparation.merge(sampler.prepare(&cells));
            }
        }
        preparation
    }

    fn take(&mut self, cell: &Planned, dwell: Duration) -> Result<RawOutput, Failure> {
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
