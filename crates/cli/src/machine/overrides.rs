//! Which drivers were forced on functions by runs of ours that did not come to take that back.

use std::collections::BTreeMap;

use penstock_model::{Bdf, Inventory};
use penstock_plan::Action;

use super::Machine;

impl Machine {
    /// Finds the functions whose `driver_override` is of an earlier run, killed before a guest was defined or the override
    /// cleared. Runs are read only when there is an override that nothing else explains; one that cannot be read explains
    /// nothing.
    pub(super) fn find_own_overrides(&self, inventory: &mut Inventory) {
        let ours = |bdf: &Bdf| inventory.guests.values().any(|found| found.functions.contains(bdf));
        let vfs = inventory.pfs.iter().filter_map(|pf| pf.sriov.as_ref()).flat_map(|sriov| &sriov.vfs);
        let mut open: BTreeMap<Bdf, &str> = vfs
            .filter_map(|vf| Some((vf.bdf, vf.present.as_ref()?.driver_override.as_deref()?)))
            .filter(|(bdf, _)| !inventory.chosen_drivers.contains_key(bdf) && !ours(bdf))
            .collect();
        if open.is_empty() {
            return;
        }
        let runs = self.runs();
        let Ok((known, _)) = runs.list() else { return };
        let mut own = Vec::new();
        for run in known.iter().rev().filter(|run| !runs.was_reset_since(run)) {
            let Ok(deeds) = runs.deeds(run) else { continue };
            let actions =
                deeds.plan.steps.iter().flat_map(|step| std::iter::once(&step.action).chain(&step.inverse));
            for action in actions {
                if let Action::SetDriver { function, driver: Some(driver), .. } = action
                    && open.get(function) == Some(&driver.as_str())
                {
                    open.remove(function);
                    own.push(*function);
                }
            }
            if open.is_empty() {
                break;
            }
        }
        inventory.own_overrides.extend(own);
    }
}
