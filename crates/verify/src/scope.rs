//! Which part of a model is looked at, and what an event concerns. Pure.

use std::collections::BTreeSet;

use penstock_model::{Bdf, FunctionName, GuestName, Inventory, Model, NicName};

/// Some NICs and guests of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Their PFs, and what the PFs' drivers keep for each VF.
    pub nics: BTreeSet<NicName>,
    /// Whether they run, and their functions from the inside.
    pub guests: BTreeSet<GuestName>,
}

impl Scope {
    /// All of a model.
    pub fn whole(model: &Model) -> Scope {
        Scope { nics: model.nics.keys().cloned().collect(), guests: model.guests.keys().cloned().collect() }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.nics.is_empty() && self.guests.is_empty()
    }

    /// What something that happened to a guest, or inside it, concerns: it, and the NICs whose PF it owns.
    pub fn of_guest(model: &Model, name: &GuestName) -> Scope {
        let Some(guest) = model.guests.get(name) else { return Scope::default() };
        let pfs = guest.functions.iter().filter(|function| function.name.vf.is_none());
        Scope { nics: pfs.map(|pf| pf.name.nic.clone()).collect(), guests: [name.clone()].into() }
    }

    /// What something that happened to a NIC as a whole concerns: it, and whoever has a function of it.
    pub fn of_nic(model: &Model, name: &NicName) -> Scope {
        let has =
            |guest: &penstock_model::Guest| guest.functions.iter().any(|function| function.name.nic == *name);
        let guests = model.guests.iter().filter(|(_, guest)| has(guest)).map(|(guest, _)| guest.clone());
        Scope { nics: [name.clone()].into(), guests: guests.collect() }
    }

    /// What something that happened to a function concerns: its NIC and its owner; all owners for a PF, which has the VFs
    /// hang on it.
    pub fn of_function(model: &Model, function: &FunctionName) -> Scope {
        if function.vf.is_none() {
            return Scope::of_nic(model, &function.nic);
        }
        let owner = model.owner(function).map(|(guest, _)| guest.clone());
        Scope { nics: [function.nic.clone()].into(), guests: owner.into_iter().collect() }
    }

    /// This and that.
    pub fn join(&mut self, other: Scope) {
        self.nics.extend(other.nics);
        self.guests.extend(other.guests);
    }
}

/// The function of the model at an address, where its NICs' PFs are at these: one that is there, or a VF that could be.
pub fn function_at(
    model: &Model,
    inventory: &Inventory,
    nics: &indexmap::IndexMap<NicName, Bdf>,
    address: Bdf,
) -> Option<FunctionName> {
    let nics = nics.iter().filter(|(name, _)| model.nics.contains_key(*name));
    nics.into_iter().find_map(|(name, pf)| {
        let function = |vf| FunctionName { nic: name.clone(), vf };
        if *pf == address {
            return Some(function(None));
        }
        let sriov = inventory.pf(*pf)?.sriov.as_ref()?;
        let vf = sriov.vfs.iter().find(|vf| vf.bdf == address)?;
        Some(function(Some(vf.index)))
    })
}
