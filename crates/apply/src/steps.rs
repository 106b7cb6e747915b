//! Steps of plans, for tests.

use penstock_plan::{Action, Fact, Step, StepId};

/// A required step that belongs to no guest: its number, what it does, what takes it back, and the numbers of the steps that come before it.
pub fn step(id: u32, action: impl Into<Action>, inverse: impl Into<Action>, needs: &[u32]) -> Step {
    let action = action.into();
    Step {
        id: StepId(id),
        postcondition: Fact::after(&action),
        action,
        reason: "a test".to_owned(),
        needs: needs.iter().copied().map(StepId).collect(),
        inverse: Some(inverse.into()),
        best_effort: false,
        guest: None,
    }
}
