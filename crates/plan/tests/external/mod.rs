//! Machines whose VFs somebody else makes.

use penstock_model::{FunctionName, Inventory, Model, Nic, VfSettings};

/// Says of every NIC that has VFs, and whose PF no guest owns, that somebody else manages it.
pub fn handed_over(model: &mut Model, inventory: &mut Inventory) {
    let owned: Vec<FunctionName> = model
        .guests
        .values()
        .flat_map(|guest| &guest.functions)
        .map(|function| function.name.clone())
        .collect();
    for (name, nic) in &mut model.nics {
        let pf = inventory.pfs.iter_mut().find(|pf| Some(pf.bdf) == nic.matching.bdf).unwrap();
        let count = pf.sriov.as_ref().map_or(0, |sriov| sriov.num_vfs);
        if count == 0 || owned.contains(&FunctionName { nic: name.clone(), vf: None }) {
            continue;
        }
        *nic = Nic {
            vfs: count,
            externally_managed: true,
            loopback: None,
            eswitch: None,
            mtu: None,
            interface: None,
            addresses: Vec::new(),
            vf_defaults: VfSettings::default(),
            free_driver: None,
            ..nic.clone()
        };
        pf.interface.as_mut().unwrap().up = true;
        for guest in model.guests.values_mut() {
            guest
                .functions
                .retain(|function| function.name.nic != *name || function.name.vf.unwrap().get() < count);
            for function in guest.functions.iter_mut().filter(|function| function.name.nic == *name) {
                function.settings = VfSettings::default();
            }
        }
    }
}
