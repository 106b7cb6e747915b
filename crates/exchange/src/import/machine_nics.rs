//! NICs of files that know them by what is on the machine: by the PCI addresses of VFs, or by a PF. Of programs that make no VFs.

use std::collections::BTreeMap;

use penstock_model::{Bdf, Inventory, VfIndex, inventory::Pf};

use super::{
    foreign::ForeignNode,
    nic::{ForeignNic, PfSelector},
};

/// A VF of what has been read: the position of its NIC, and its index.
pub type VfOfNic = (usize, VfIndex);

/// The NICs that have been read so far.
pub struct MachineNics<'a, 'm> {
    machine: Option<&'m Inventory>,
    /// By the PCI addresses of their PFs.
    by_address: BTreeMap<Bdf, usize>,
    /// In the order of the files.
    pub nics: Vec<ForeignNic<'a>>,
}

impl<'a, 'm> MachineNics<'a, 'm> {
    /// None so far.
    pub fn new(machine: Option<&'m Inventory>) -> MachineNics<'a, 'm> {
        MachineNics { machine, by_address: BTreeMap::new(), nics: Vec::new() }
    }

    /// Which VF has this PCI address. `None` where that cannot be told, which is a warning.
    pub fn vf_at(&mut self, bdf: Bdf, at: &ForeignNode<'a>) -> Option<VfOfNic> {
        let Some(machine) = self.machine else {
            at.left_out_with_hint(
                format!("the VF {bdf} is left out: whose VF it is cannot be told without the machine"),
                "give `--inventory`, which `penstock scan --json` prints on the machine",
            );
            return None;
        };
        let of = |pf: &'_ Pf| {
            let vf = pf.sriov.as_ref()?.vfs.iter().find(|vf| vf.bdf == bdf)?;
            Some(vf.index)
        };
        let Some((pf, index)) = machine.pfs.iter().find_map(|pf| Some((pf, of(pf)?))) else {
            at.left_out(format!("{bdf} is left out: no NIC of the machine has a VF there"));
            return None;
        };
        let nic = self.of_pf(pf, at);
        Some(self.name((nic, index)))
    }

    /// The NIC that this selects; the first that asks says where it is. One that is not on the machine is a NIC all the same, and
    /// [`ForeignNic::find`] says that it was not found.
    pub fn selected(&mut self, selector: PfSelector, at: &ForeignNode<'a>) -> usize {
        if let Some(pf) =
            self.machine.and_then(|machine| machine.pfs.iter().find(|pf| selector.holds_for(pf)))
        {
            return self.of_pf(pf, at);
        }
        let known = self.nics.iter().position(|nic| nic.selector == selector);
        known.unwrap_or_else(|| self.push(selector, at))
    }

    /// All VFs that a NIC has now. That it has none is told, since `program` makes none; of one that was not found, that is told alone.
    pub fn all_vfs_of(&self, nic: usize, program: &str, at: &ForeignNode<'a>) -> Vec<VfOfNic> {
        let ForeignNic { name, vfs, .. } = &self.nics[nic];
        if vfs.is_none() && self.by_address.values().any(|known| *known == nic) {
            at.left_out(format!(
                "how many VFs {name} has is left out: {program} makes none, and the machine has none now; write `vfs:`"
            ));
        }
        (0..vfs.unwrap_or_default()).filter_map(|index| Some((nic, VfIndex::new(index)?))).collect()
    }

    /// Notes that a file names this VF.
    pub fn name(&mut self, (nic, index): VfOfNic) -> VfOfNic {
        self.nics[nic].settings.entry(index).or_default();
        (nic, index)
    }

    /// All NICs, each with at least the VFs that were named.
    pub fn finish(mut self) -> Vec<ForeignNic<'a>> {
        self.nics.iter_mut().for_each(ForeignNic::make_room_for_named);
        self.nics
    }

    fn of_pf(&mut self, pf: &Pf, at: &ForeignNode<'a>) -> usize {
        if let Some(nic) = self.by_address.get(&pf.bdf) {
            return *nic;
        }
        let selector = match &pf.interface {
            Some(interface) => PfSelector::by_name(interface.name.clone()),
            None => PfSelector::by_address(pf.bdf),
        };
        let nic = self.push(selector, at);
        self.nics[nic].count_those_of(pf);
        self.by_address.insert(pf.bdf, nic);
        nic
    }

    fn push(&mut self, selector: PfSelector, at: &ForeignNode<'a>) -> usize {
        self.nics.push(ForeignNic::new(selector.label(), selector, at.clone()));
        self.nics.len() - 1
    }
}
