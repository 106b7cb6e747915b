//! Which drivers were forced on functions by runs of ours that did not come to take that back.

use std::collections::BTreeMap;

use penstock_apply::history::{RunId, RunState, overrides};
use penstock_host::{PciFunction, chain};
use penstock_model::{Bdf, Inventory};
use penstock_plan::{Action, FunctionAction, Plan};

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
            let Ok(applied_run) = runs.applied_run(run) else { continue };
            let actions = applied_run
                .plan
                .steps
                .iter()
                .flat_map(|step| std::iter::once(&step.action).chain(&step.inverse));
            for action in actions {
                if let Action::Function(FunctionAction::SetDriver { function, driver: Some(driver), .. }) =
                    action
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

    /// The functions whose `driver_override` this run, which was cut off, has left set. What cannot be found out is told in
    /// `said`.
    pub fn left_overrides(
        &self,
        run: RunId,
        plan: &Plan,
        state: &RunState,
        said: &mut Vec<String>,
    ) -> Vec<Bdf> {
        let mut left = Vec::new();
        for (function, driver) in overrides::in_doubt(plan, state) {
            match PciFunction::new(&self.root, function).has_idle_override(&driver) {
                Ok(true) => {
                    said.push(format!(
                        "run {run} has left the driver override {driver} on {function}, which is cleared"
                    ));
                    left.push(function);
                }
                Ok(false) => {}
                Err(error) => said.push(format!(
                    "whether run {run} has left the driver override {driver} on {function} is not known: {}",
                    chain(&error)
                )),
            }
        }
        left
    }

    /// Clears the `driver_override` of these functions; gives what could not be cleared, in words. What is bound stays bound, and a
    /// function that keeps its override works all the same.
    pub fn clear_overrides(&self, of: &[Bdf]) -> Vec<String> {
        let clear = |function: &Bdf| PciFunction::new(&self.root, *function).clear_override().err();
        of.iter().filter_map(clear).map(|error| chain(&error)).collect()
    }
}
