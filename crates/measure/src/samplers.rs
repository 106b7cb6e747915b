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

    fn enter_round(&mut self, round: u32) {
        self.network.enter_round(round);
        self.storage.enter_round(round);
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

#[cfg(test)]
mod tests {
    use penstock_model::{
        Source,
        measurement::{EndKind, PathKind, Protocol},
        verdict::Vantage,
    };

    use super::*;
    use crate::matrix::{self, Null, Options};

    #[test]
    fn two_takers_are_one_and_each_has_its_own_cells() {
        struct One(Vec<String>, &'static str);
        impl Sampler for One {
            fn prepare(&mut self, cells: &[Planned]) -> Preparation {
                let ids = cells.iter().map(|cell| (cell.id.clone(), self.1.to_owned()));
                Preparation {
                    missing: ids.collect(),
                    notes: vec![self.1.to_owned()],
                    ..Preparation::default()
                }
            }
            fn take(&mut self, cell: &Planned, _: Duration) -> Result<RawOutput, Failure> {
                self.0.push(cell.id.clone());
                Err(self.1.to_owned().into())
            }
            fn finish(&mut self) -> Vec<String> {
                vec![format!("{} is finished", self.1)]
            }
        }
        let model = "nics: {NET0: {vfs: 2}}\nguests: {a: {functions: [NET0#0]}, b: {functions: [NET0#1]}}\n";
        let model = penstock_model::parse(&Source::new("m.yaml", model)).unwrap().model;
        let (protocols, paths) = (vec![Protocol::UdpStream], vec![PathKind::VfVfInside, PathKind::Bridge]);
        let network = matrix::network(&model, &Options { protocols, paths, ..Options::quick() });
        let at = [(Vantage::Host, EndKind::Host)];
        let joined = matrix::join(network.clone(), matrix::storage("/srv", &at, true, Null::None));
        let (mut one, mut other) = (One(Vec::new(), "network"), One(Vec::new(), "storage"));
        let mut samplers = Samplers::new(&mut one, &mut other);
        let prepared = samplers.prepare(&joined.cells);
        assert_eq!(prepared.notes, ["network", "storage"]);
        for (at, cell) in joined.cells.iter().enumerate() {
            let whose = if at < network.cells.len() { "network" } else { "storage" };
            assert_eq!(prepared.missing[&cell.id], whose);
            assert_eq!(samplers.take(cell, Duration::from_secs(1)), Err(whose.to_owned().into()));
        }
        assert_eq!(
            samplers.prepare(&network.cells).notes,
            ["network"],
            "whose cells there are none of is not asked"
        );
        assert_eq!(samplers.finish(), ["network is finished", "storage is finished"]);
        assert_eq!((one.0.len(), other.0.len()), (3, 6));
    }
}
