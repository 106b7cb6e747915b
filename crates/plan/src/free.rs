//! VFs that no guest owns: their drivers, and who has taken them meanwhile.

use penstock_model::{
    Bdf, FreeDriver, Inventory,
    inventory::{Pf, PresentVf},
};

use crate::{
    drivers::{self, VFIO},
    lent, overrides,
    planner::{Planner, vf_list, vf_name},
    vfs,
    waits::Waits,
    wanted::{WantedNic, WantedVf},
};

/// Who has a VF that no guest of ours has, if somebody does: who holds it through VFIO, the container that a network plugin's record
/// names, or another network namespace, which nobody has looked into: one that has its driver and no interface here may be in one.
pub fn stranger(
    inventory: &Inventory,
    function: Bdf,
    pf: Option<&Pf>,
    present: Option<&PresentVf>,
) -> Option<String> {
    let holders = inventory.lifelines.as_ref().and_then(|found| found.holders.get(&function));
    if let Some(holders) = holders {
        return Some(holders.join(", "));
    }
    drivers::has_interface_elsewhere(pf?, present?)
        .then(|| "another network namespace, it seems (its interface is not here)".to_owned())
}

/// Who has taken a VF that stays.
pub fn taken(planner: &Planner<'_>, nic: &WantedNic<'_>, vf: &WantedVf<'_>) -> Option<String> {
    let present = nic.present(vf)?;
    stranger(planner.inventory, vf.found.bdf, Some(nic.pf), Some(present))
}

/// Whether the model asks for another driver than this for the VFs of a NIC that no guest owns.
pub fn binds_another(nic: &WantedNic<'_>, driver: &str) -> bool {
    let Some(known) = nic.driver else { return false };
    match nic.nic.free_driver {
        None | Some(FreeDriver::None) => false,
        Some(FreeDriver::Host) => driver != known.vf_driver,
        Some(FreeDriver::VfioPci) => driver != VFIO,
    }
}

/// Binds the VFs of a NIC that no guest owns. The guests have theirs by then, and wait for nobody else's.
///
/// Where the model says nothing, one that has a driver keeps it, and one that cannot be bound stays without: its driver may not be
/// there, or its IOMMU group be a VM's.
pub fn driver_steps<'a>(planner: &mut Planner<'a>, waits: &mut Waits<'a>, nic: &WantedNic<'a>) {
    let Some(known) = nic.driver.filter(|_| !nic.nic.externally_managed) else { return };
    let asked = nic.nic.free_driver;
    let wanted = match asked {
        None | Some(FreeDriver::Host) => known.vf_driver,
        Some(FreeDriver::VfioPci) => VFIO,
        Some(FreeDriver::None) => return,
    };
    let inside = planner.user(nic.pf.bdf).filter(|_| wanted != VFIO);
    let (mut kept, mut late) = (Vec::new(), Vec::new());
    for vf in nic.vfs.iter().filter(|vf| vf.owner.is_none()) {
        // Of a guest that the model does not have.
        if planner.user(vf.found.bdf).is_some() {
            continue;
        }
        let who = vf_name(nic.name, vf.index);
        if let Some(taker) = taken(planner, nic, vf) {
            planner.note(format!("{who} belongs to no guest and is left as it is, in use by {taker}"));
            continue;
        }
        let present = planner.bound(nic, vf).map(str::to_owned);
        match &present {
            Some(driver) if driver == wanted => continue,
            Some(_) if asked.is_none() => continue,
            _ => {}
        }
        if inside.is_some() && !lent::has_its_address(nic, vf) {
            late.push(vf.index);
            continue;
        }
        if asked.is_none() && overrides::chosen(planner, nic, vf, wanted).is_some() {
            kept.push(vf.index);
            continue;
        }
        if asked.is_some() && !overrides::allow(planner, nic, vf, wanted, None) {
            continue;
        }
        if let Some(driver) = &present {
            vfs::unbind(
                planner,
                nic,
                vf,
                driver,
                format!("{who} belongs to no guest, and is to have {wanted}"),
            );
        }
        if inside.is_some() {
            waits.for_holder(planner, nic);
            planner.draft.on_behalf_of(None);
        }
        let why = format!("{who} belongs to no guest, and is free for others");
        let binding = match wanted {
            VFIO => vfs::binding_vfio(nic, vf, why),
            network => vfs::binding(planner, nic, vf, network, why),
        };
        planner.draft.push(binding.best_effort(asked.is_none()));
    }
    if let (Some(guest), false) = (inside, late.is_empty()) {
        planner.note(format!(
            "{guest} runs with {}: {}, which no guest owns, stay without a driver until it stops",
            nic.name,
            vf_list(nic.name, &late)
        ));
    }
    if !kept.is_empty() {
        planner.note(format!(
            "{} belong to no guest and stay without a driver: somebody has chosen another than {wanted} for them",
            vf_list(nic.name, &kept)
        ));
    }
}
