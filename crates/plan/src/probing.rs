//! On which VF a driver can be tried without anybody noticing.

use std::collections::BTreeSet;

use penstock_model::{
    Bdf, Inventory, VfIndex,
    inventory::{Capabilities, Capability, DriverIdentity, Pf},
};

use crate::{Action, FunctionAction, Plan};

/// A VF that nobody uses, for finding out what its PF's driver can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The PF's address.
    pub pf: Bdf,
    /// The VF's index.
    pub vf: VfIndex,
    /// The VF's address.
    pub function: Bdf,
    /// The driver that is tried.
    pub of: DriverIdentity,
    /// Whether the PF has a link: without one, drivers refuse every rate.
    pub linked: bool,
}

/// For each driver, as it is on this machine, a VF to try it on; and the drivers that have none. A VF will do that has no
/// driver, no interface and no guest.
pub fn subjects(inventory: &Inventory) -> (Vec<Subject>, Vec<DriverIdentity>) {
    let mut found: Vec<Subject> = Vec::new();
    let mut without = BTreeSet::new();
    for pf in &inventory.pfs {
        let Some(known) = inventory.capabilities.get(&pf.bdf).filter(|_| pf.sriov.is_some()) else {
            continue;
        };
        if found.iter().any(|subject| subject.of == known.of) {
            continue;
        }
        match subject(inventory, pf, known) {
            Some(subject) => {
                without.remove(&known.of);
                found.push(subject);
            }
            None => drop(without.insert(known.of.clone())),
        }
    }
    (found, without.into_iter().collect())
}

/// The VF of `pf` on which its driver can be tried.
pub fn subject(inventory: &Inventory, pf: &Pf, known: &Capabilities) -> Option<Subject> {
    let used = |function: Bdf| {
        inventory.guests.values().any(|guest| guest.running && guest.functions.contains(&function))
    };
    let interface = pf.interface.as_ref().filter(|interface| interface.up && !used(pf.bdf))?;
    let free = |vf: &&penstock_model::inventory::Vf| {
        let quiet = vf.present.as_ref().is_some_and(|vf| vf.driver.is_none() && vf.interface.is_none());
        quiet && !used(vf.bdf)
    };
    let vf = pf.sriov.as_ref()?.vfs.iter().rev().find(free)?;
    Some(Subject {
        pf: pf.bdf,
        vf: vf.index,
        function: vf.bdf,
        of: known.of.clone(),
        linked: interface.carrier == Some(true),
    })
}

/// What `plan` is going to set of which it is not known whether the driver can, with a VF to try each driver on first.
pub fn untried(plan: &Plan, inventory: &Inventory) -> Vec<(Subject, BTreeSet<Capability>)> {
    let mut found: Vec<(Subject, BTreeSet<Capability>)> = Vec::new();
    for step in &plan.steps {
        let Action::Function(FunctionAction::SetVfAttribute { pf, attribute, .. }) = &step.action else {
            continue;
        };
        let capability = Capability::of(attribute);
        let Some(known) = inventory.capabilities.get(pf) else { continue };
        // What is there already says nothing of another tag protocol; every VF is given a MAC, whatever is known.
        if known.trials.contains_key(&capability)
            || matches!(capability, Capability::VlanProto | Capability::Mac)
        {
            continue;
        }
        if let Some((_, wanted)) = found.iter_mut().find(|(subject, _)| subject.of == known.of) {
            wanted.insert(capability);
        } else if let Some(subject) = inventory.pf(*pf).and_then(|pf| subject(inventory, pf, known)) {
            found.push((subject, BTreeSet::from([capability])));
        }
    }
    found
}
