//! How each step of a plan is taken back, also where it has no inverse of its own.

use crate::{
    Action, FunctionAction, GuestAction, Plan, Step, StepId,
    action::{GoesWith, NoInverse},
};

/// How a step is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WayBack<'a> {
    /// By an action of its own.
    Inverse(&'a Action),
    /// When this earlier step is taken back, and why that is enough.
    With(StepId, String),
    /// Not at all, and why that is no harm, or what is left.
    None(String),
}

/// How `step` of `plan` is taken back.
pub fn way_back<'a>(plan: &'a Plan, step: &'a Step) -> WayBack<'a> {
    if let Some(inverse) = &step.inverse {
        return WayBack::Inverse(inverse);
    }
    let NoInverse { goes_with, why } = step.action.no_inverse();
    let earlier = goes_with.and_then(|(what, enough)| Some((made_by(plan, step, what)?, enough)));
    match earlier {
        Some((id, enough)) => WayBack::With(id, enough.to_owned()),
        None => WayBack::None(why),
    }
}

/// The last step before `step` that made `what`, if it can be taken back.
fn made_by(plan: &Plan, step: &Step, what: GoesWith) -> Option<StepId> {
    let made = |action: &Action| match (what, action) {
        (GoesWith::VfsOf(of), Action::Function(FunctionAction::SetVfCount { pf, count: 1.. })) => *pf == of,
        (
            GoesWith::DriverOf(of),
            Action::Function(FunctionAction::SetDriver { function, driver: Some(_), .. }),
        ) => *function == of,
        (
            GoesWith::Guest,
            Action::Guest(GuestAction::StartGuest { guest } | GuestAction::CreateGuest { guest }),
        ) => step.guest.as_ref() == Some(guest),
        (GoesWith::VfsOf(_) | GoesWith::DriverOf(_) | GoesWith::Guest, _) => false,
    };
    let earlier = plan.steps.iter().take_while(|earlier| earlier.id != step.id);
    let last = earlier.filter(|earlier| made(&earlier.action)).last();
    last.filter(|found| found.inverse.is_some()).map(|found| found.id)
}
