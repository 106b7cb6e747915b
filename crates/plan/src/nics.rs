//! What a model comes to on a machine, NIC by NIC and VF by VF: for who says it in other words than a plan's.

use std::collections::HashMap;

use penstock_model::{
    Bdf, Diagnostics, GuestName, Inventory, Model, Nic, NicMatch, NicName, VfIndex, VfSettings, inventory::Pf,
};

use crate::{resolve::resolve, wanted::wanted};

/// A NIC of a model, where it is on a machine.
pub struct NicOnMachine<'a> {
    /// Its name in the model.
    pub name: &'a NicName,
    /// What the model says of it.
    pub nic: &'a Nic,
    /// The PF that it is.
    pub pf: &'a Pf,
    /// The VFs that it is to have, by index.
    pub vfs: Vec<VfOnMachine<'a>>,
}

/// A VF that a model wants on a machine.
pub struct VfOnMachine<'a> {
    /// The index of the VF.
    pub index: VfIndex,
    /// The PCI address that it has, or would get.
    pub bdf: Bdf,
    /// What its PF is to keep for it; the MAC address is derived where the model gives none.
    pub settings: VfSettings,
    /// The guest that owns it, or whose NIC leads out through it.
    pub owner: Option<&'a GuestName>,
}

/// The NICs of a model on this machine, in the model's order.
///
/// # Errors
///
/// As of [`resolve`]; VFs whose PF's driver is not known, or without a MAC address that one could be derived from; two functions with one
/// MAC address.
pub fn nics_on_machine<'a>(
    model: &'a Model,
    inventory: &'a Inventory,
) -> Result<Vec<NicOnMachine<'a>>, Diagnostics> {
    let nics = resolve(model, inventory)?;
    let all = wanted(model, inventory, &nics, &HashMap::new())?;
    let vf = |vf: crate::wanted::WantedVf<'a>| VfOnMachine {
        index: vf.index,
        bdf: vf.found.bdf,
        settings: vf.settings,
        owner: vf.owner,
    };
    Ok(all
        .into_iter()
        .map(|nic| NicOnMachine {
            name: nic.name,
            nic: nic.nic,
            pf: nic.pf,
            vfs: nic.vfs.into_iter().map(vf).collect(),
        })
        .collect())
}

/// By what a model knows a PF: its permanent address, where that is known and no other has it, else its PCI address.
pub fn lasting_match(pf: &Pf, inventory: &Inventory) -> NicMatch {
    let mut others = inventory.pfs.iter().filter(|other| other.bdf != pf.bdf);
    let alone = !others.any(|other| other.permanent_mac == pf.permanent_mac);
    let mac = pf.permanent_mac.filter(|mac| !mac.is_zero() && !mac.is_multicast());
    NicMatch { mac, bdf: (mac.is_none() || !alone).then_some(pf.bdf), ..NicMatch::default() }
}

/// Indices in ascending order as ranges of consecutive ones: the first and the last of each, which may be the same.
pub fn vf_ranges(indices: &[VfIndex]) -> Vec<(VfIndex, VfIndex)> {
    let mut ranges: Vec<(VfIndex, VfIndex)> = Vec::new();
    for index in indices.iter().copied() {
        match ranges.last_mut() {
            Some((_, last)) if last.get() + 1 == index.get() => *last = index,
            _ => ranges.push((index, index)),
        }
    }
    ranges
}
