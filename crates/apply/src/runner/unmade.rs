//! VFs that a way back was to make and has not made: what was to come back of them is not gone for good.

use std::collections::BTreeSet;

use penstock_model::Bdf;
use penstock_plan::{Action, Fact, FunctionAction, Plan, StepId};

use super::Run;
use crate::others;

/// The numbers of VFs that did not come back.
pub(super) struct Unmade {
    /// Functions that are no VFs: nobody makes them.
    pfs: BTreeSet<Bdf>,
    /// The step, its PF, and how many VFs that is to have.
    steps: Vec<(StepId, Bdf, u16)>,
}

impl Unmade {
    pub fn of(plan: &Plan) -> Unmade {
        let given = plan.steps.iter().filter_map(|step| others::vf_count(&step.action));
        let pfs = plan.nics.values().chain(plan.drives.values()).copied();
        Unmade { pfs: pfs.chain(given.map(|(pf, _)| pf)).collect(), steps: Vec::new() }
    }

    /// Notes that `back` was not carried out. What makes no VFs is of no concern here.
    pub fn note(&mut self, step: StepId, back: &Action) {
        self.steps.extend(others::made_vfs(back).map(|(pf, count)| (step, pf, count)));
    }
}

impl Run<'_, '_> {
    /// Why what an action of a way back is done to is not there, where VFs were to be made before and were not: it may be one of them, which
    /// comes when that is tried again. `None` where it is there, and where it has left for good.
    pub(super) fn awaits_vfs(&mut self, back: &Action) -> Option<String> {
        if self.unmade.steps.is_empty() {
            return None;
        }
        let vf = others::may_be_vf(back).filter(|function| !self.unmade.pfs.contains(function))?;
        if self.executors.is_there(vf) != Some(false) {
            return None;
        }
        for (step, pf, count) in self.unmade.steps.clone() {
            let makes: Action = FunctionAction::SetVfCount { pf, count }.into();
            // By now there are as many, or there is nobody to make them.
            if !self.already(&Fact::after(&makes)) && !self.executors.is_gone(&makes) {
                return Some(format!("{vf} is not there while step {step}, {makes}, is not carried out"));
            }
        }
        None
    }
}
