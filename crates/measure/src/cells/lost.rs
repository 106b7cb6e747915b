//! Paths on which nothing goes through any more.

use penstock_model::measurement::{End, Measurement, Network, PathKind};

use crate::matrix::Planned;

/// Failures on one path, one after the other, after which all its cells are given up.
const FAILURES: usize = 6;

/// Counts failures over all cells of a path. A guest that died fails dozens of cells, and each of them would wait for its
/// deadline twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost(Vec<(Path, Vec<bool>)>);

type Path = (PathKind, End, End);

impl Lost {
    /// Counts a sample; says whether its path is lost: so many failures without a success between them, of UDP and of TCP,
    /// because one of them alone can have a reason of its own.
    pub fn count(&mut self, cell: &Planned, good: bool) -> bool {
        let Some((path, network)) = path(&cell.measurement) else { return false };
        let at = self.0.iter().position(|(known, _)| *known == path).unwrap_or_else(|| {
            self.0.push((path, Vec::new()));
            self.0.len() - 1
        });
        let failures = &mut self.0[at].1;
        if good {
            failures.clear();
            return false;
        }
        failures.push(network.protocol.is_udp());
        failures.len() >= FAILURES && failures.contains(&true) && failures.contains(&false)
    }
}

/// Whether two cells are of one path between the same ends.
pub(super) fn same_path(one: &Planned, other: &Planned) -> bool {
    path(&one.measurement)
        .is_some_and(|(one, _)| path(&other.measurement).is_some_and(|(other, _)| one == other))
}

fn path(measurement: &Measurement) -> Option<(Path, &Network)> {
    let network = measurement.network()?;
    Some(((network.path, network.client.clone(), network.server.clone()), network))
}
