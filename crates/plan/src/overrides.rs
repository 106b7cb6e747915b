//! Drivers that somebody else has chosen for functions: they are not overwritten.

use penstock_model::GuestName;

use crate::{
    planner::{Planner, vf_name},
    wanted::{WantedNic, WantedVf},
};

/// Whether a VF may be bound to `driver` for `guest`: refuses what the operator has chosen otherwise with `driverctl`, and a
/// `driver_override` that is none of ours and names another driver.
pub fn allow(
    planner: &mut Planner<'_>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    driver: &str,
    guest: &GuestName,
) -> bool {
    let (bdf, who) = (vf.found.bdf, vf_name(nic.name, vf.index));
    let chosen = planner.inventory.chosen_drivers.get(&bdf);
    if let Some(chosen) = chosen {
        if chosen == driver {
            return true;
        }
        planner.refuse(
            format!(
                "{who} ({bdf}) would go to {guest} with driver {driver}, and driverctl has {chosen} for it for good"
            ),
            format!("driverctl unset-override {bdf}; or give {guest} another VF"),
        );
        return false;
    }
    let set = nic.present(vf).and_then(|present| present.driver_override.as_deref());
    let inventory = planner.inventory;
    // Guests of ours leave it set for as long as they are defined; so does a run that was killed.
    let ours = || {
        inventory.own_overrides.contains(&bdf)
            || inventory.guests.values().any(|found| found.functions.contains(&bdf))
    };
    match set.filter(|set| *set != driver) {
        Some(set) if !ours() => {
            planner.refuse(
                format!(
                    "{who} ({bdf}) would go to {guest} with driver {driver}, and somebody has set its driver_override to {set}"
                ),
                format!(
                    "ask who has, then clear it: echo > /sys/bus/pci/devices/{bdf}/driver_override; or give {guest} another VF"
                ),
            );
            false
        }
        _ => true,
    }
}
