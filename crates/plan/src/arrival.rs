//! What of a model's hardware is still to come while a machine is started.

use penstock_model::{Diagnostics, Inventory, Model, WantedEswitch, inventory::KnownMode};

use crate::{
    drive::{DRIVER, resolve_drives},
    error::said,
    resolve::resolve,
};

/// What `model` needs of the machine before it can be planned for and that is not there, each in a few words; empty when it can. A PF
/// is there with its driver and its network interface, unless a guest has it; a drive is there with its driver.
/// Of one whose VFs others make only the PF is waited for.
pub fn not_there_yet(model: &Model, inventory: &Inventory) -> Vec<String> {
    let (drives, Diagnostics(mut wrong)) = resolve_drives(model, inventory);
    let nics = resolve(model, inventory).unwrap_or_else(|Diagnostics(messages)| {
        wrong.extend(messages);
        Default::default()
    });
    let mut lacking: Vec<String> = wrong.iter().map(said).collect();
    for (name, bdf) in &nics {
        let Some(pf) = inventory.pf(*bdf) else { continue };
        let given = inventory.guests.values().any(|found| found.running && found.functions.contains(bdf));
        if given || model.nics.get(name).is_some_and(|nic| nic.externally_managed) {
            continue;
        }
        match (&pf.driver, &pf.interface) {
            (None, _) => lacking.push(format!("{name} ({bdf}) has no driver")),
            (Some(driver), None) => {
                lacking.push(format!("{name} ({bdf}) has no network interface of {driver}"))
            }
            (Some(_), Some(_)) => {}
        }
    }
    for (name, bdf) in &drives {
        let found = inventory.nvme.iter().find(|found| found.bdf == *bdf);
        // The name comes once the controller has answered: its driver can be asked from then on.
        if found.is_some_and(|found| found.driver.as_deref() != Some(DRIVER) || found.name.is_none()) {
            lacking.push(format!("{name} ({bdf}) does not answer through {DRIVER}"));
        }
    }
    lacking
}

/// The NICs for which `model` has a mode of the embedded switch whose mode is not known yet, or whose driver seems to have none, each in a
/// few words: a driver is there before its devlink is. `inventory` is one for which devlink was asked.
pub fn modes_not_known(model: &Model, inventory: &Inventory) -> Vec<String> {
    let nics = resolve(model, inventory).unwrap_or_default();
    let mut lacking = Vec::new();
    for (name, bdf) in &nics {
        let (Some(nic), Some(pf)) = (model.nics.get(name), inventory.pf(*bdf)) else { continue };
        let given = inventory.guests.values().any(|found| found.running && found.functions.contains(bdf));
        let Some(wanted) = nic.eswitch.filter(|_| !given && !nic.externally_managed) else { continue };
        let needs_modes = wanted == WantedEswitch::Switchdev && !nic.best_effort.contains("eswitch");
        match pf.known_mode() {
            KnownMode::Is(_) => {}
            KnownMode::Without if !needs_modes => {}
            KnownMode::Without => lacking.push(format!("{name} ({bdf}) has no modes of the embedded switch")),
            KnownMode::Unknown(why) => lacking.push(format!(
                "the mode of the embedded switch of {name} ({bdf}) is not known: {}",
                why.unwrap_or("devlink was not asked")
            )),
        }
    }
    lacking
}
