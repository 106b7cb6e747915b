//! Drivers that somebody else has chosen for functions: they are not overwritten.

use penstock_model::{Bdf, GuestName};

use crate::{
    planner::{Planner, vf_name},
    wanted::{WantedNic, WantedVf},
};

/// Whether a VF may be bound to `driver` for `guest`, or for whoever may take it: refuses what the operator has chosen otherwise with
/// `driverctl`, and a `driver_override` that is none of ours and names another driver.
pub fn allow(
    planner: &mut Planner<'_>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'_>,
    driver: &str,
    guest: Option<&GuestName>,
) -> bool {
    let (bdf, who) = (vf.found.bdf, vf_name(nic.name, vf.index));
    let Some(chosen) = chosen(planner, nic, vf, driver) else { return true };
    let whose = guest.map_or_else(|| "be free".to_owned(), |guest| format!("go to {guest}"));
    let or = guest.map_or_else(
        || format!("leave `free` of {} out", nic.name),
        |guest| format!("give {guest} another VF"),
    );
    let (what, way_round) = match chosen {
        Chosen::ForGood(chosen) => (
            format!("driverctl has {chosen} for it for good"),
            format!("driverctl unset-override {bdf}; or {or}"),
        ),
        Chosen::ForNow(set) => (
            format!("somebody has set its driver_override to {set}"),
            format!("ask who has, then clear it: echo > /sys/bus/pci/devices/{bdf}/driver_override; or {or}"),
        ),
    };
    planner.refuse(format!("{who} ({bdf}) would {whose} with driver {driver}, and {what}"), way_round);
    false
}

/// A driver that somebody else has chosen for a function.
pub enum Chosen<'a> {
    /// The driver that `driverctl` has for the function (`/etc/driverctl.d`); `none` for no driver at all.
    ForGood(&'a str),
    /// The driver in the function's `driver_override` in sysfs, which a reboot clears.
    ForNow(&'a str),
}

/// What somebody else has chosen for a VF, if it is not `driver`.
pub fn chosen<'a>(
    planner: &Planner<'a>,
    nic: &WantedNic<'_>,
    vf: &WantedVf<'a>,
    driver: &str,
) -> Option<Chosen<'a>> {
    let bdf: Bdf = vf.found.bdf;
    if let Some(chosen) = planner.inventory.chosen_drivers.get(&bdf) {
        return (chosen != driver).then_some(Chosen::ForGood(chosen));
    }
    let set = nic.present(vf).and_then(|present| present.driver_override.as_deref());
    let inventory = planner.inventory;
    // Guests of ours leave it set for as long as they are defined; so does a run that was killed.
    let ours = || {
        inventory.own_overrides.contains(&bdf)
            || inventory.guests.values().any(|found| found.functions.contains(&bdf))
    };
    set.filter(|set| *set != driver && !ours()).map(Chosen::ForNow)
}
