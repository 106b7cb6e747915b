//! Functions in guests that nobody can look into. They send and count no frames for us, but their IP stacks answer who
//! asks for their addresses: an answer took the path there and the path back.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::IpAddr,
};

use penstock_host::frames::NeighbourProbe;
use penstock_model::{FunctionName, Mac};

use super::{
    Expectation,
    observation::{GuestUnobserved, Observation},
    probes::ProbeEnd,
    reach::Paths,
    writer::Hidden,
};

/// A question for one function from another, and the paths that the answer proves.
pub struct PlannedProbe<'p> {
    /// The function that asks: frames can be sent from it.
    pub observer: &'p FunctionName,
    /// The function that is asked.
    pub about: &'p FunctionName,
    to: Mac,
    pub address: IpAddr,
    /// Whether the model wants it to be answered.
    pub awaited: bool,
    /// The positions of the paths, there and back, as far as they are tried.
    pub paths: Vec<usize>,
}

impl PlannedProbe<'_> {
    /// The question, from the end at this position.
    pub fn question(&self, from: usize) -> NeighbourProbe {
        NeighbourProbe { from, to: self.to, address: self.address, awaited: self.awaited }
    }

    /// What is answered.
    pub fn way(&self) -> &'static str {
        if self.address.is_ipv4() { "ARP" } else { "neighbour discovery" }
    }
}

/// What to ask: for each path with frames at one end alone, the other end, when it is in a guest that nobody can look into.
pub fn choose<'p>(
    observation: &Observation<'_>,
    paths: &'p Paths,
    probe_ends: &BTreeMap<&FunctionName, Result<ProbeEnd, String>>,
) -> Vec<PlannedProbe<'p>> {
    let mut known = BTreeMap::new();
    let mut planned_probes: Vec<PlannedProbe<'p>> = Vec::new();
    for (at, path) in paths.tried.iter().enumerate() {
        let (observer, about) = match (&probe_ends[&path.from], &probe_ends[&path.to]) {
            (Ok(_), Err(_)) => (&path.from, &path.to),
            (Err(_), Ok(_)) => (&path.to, &path.from),
            _ => continue,
        };
        match known.entry((observer, about)) {
            Entry::Occupied(known) => {
                let number: &usize = known.get();
                planned_probes[*number].paths.push(at);
            }
            Entry::Vacant(unknown) => {
                let Some((to, address)) = addressee(observation, about) else { continue };
                unknown.insert(planned_probes.len());
                // What is expected does not depend on the direction.
                let awaited = path.expectation == Expectation::Arrives;
                planned_probes.push(PlannedProbe { observer, about, to, address, awaited, paths: vec![at] });
            }
        }
    }
    planned_probes
}

/// The MAC address of a function in a guest that runs and that nobody can look into, and one address that it is to have:
/// the same for all who ask, so that their answers compare.
fn addressee(observation: &Observation<'_>, function: &FunctionName) -> Option<(Mac, IpAddr)> {
    let (guest, owned) = observation.owners.of(function)?;
    if !Hidden::inside(&observation.model.guests[guest]).hides("reach")
        || matches!(
            observation.inside(guest),
            Err(GuestUnobserved::NotRunning(_) | GuestUnobserved::Unseen(_))
        )
    {
        return None;
    }
    let addresses = || owned.addresses.iter().map(|address| address.ip());
    let address = addresses().find(IpAddr::is_ipv4).or_else(|| addresses().next())?;
    let mac = match function.vf {
        Some(vf) => observation.wanted_mac(&function.nic, vf, owned.settings.mac),
        None => owned.settings.mac.or_else(|| observation.pf(&function.nic)?.permanent_mac),
    };
    Some((mac?, address))
}
