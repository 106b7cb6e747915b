//! Which drivers a run that was cut off may have forced on functions (`driver_override`) without taking that back.

use std::collections::BTreeSet;

use penstock_model::Bdf;
use penstock_plan::{Action, FunctionAction, Plan};

use super::state::{Fate, RunState};

/// The functions, and the drivers that they were to be bound to, of the steps of a run of which nobody knows what came of them, or
/// of taking them back. Binding names the driver to `driver_override` and clears that at its end, so that a kill in between leaves it. What
/// came to its end, well or badly, has cleared it.
pub fn in_doubt(plan: &Plan, state: &RunState) -> BTreeSet<(Bdf, String)> {
    let unknown = |step| state.steps.iter().any(|(id, fate)| *id == step && *fate == Fate::Unknown);
    let steps = plan.steps.iter().filter(|step| unknown(step.id));
    // Which of the two was at it the journal of a damaged run does not tell.
    let actions = steps.flat_map(|step| [Some(&step.action), step.inverse.as_ref()]).flatten();
    actions
        .filter_map(|action| match action {
            Action::Function(FunctionAction::SetDriver { function, driver: Some(driver), .. }) => {
                Some((*function, driver.clone()))
            }
            _ => None,
        })
        .collect()
}
