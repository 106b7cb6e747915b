//! What of a model's hardware is still to come while a machine is started.

use penstock_model::{Diagnostics, Inventory, Model};

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
