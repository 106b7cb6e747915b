//! How each step of a plan is taken back, also where it has no inverse of its own.

use penstock_model::Bdf;

use crate::{Action, Plan, Step, StepId};

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
    let none = |why: &str| WayBack::None(why.to_owned());
    let with = |id: StepId, why: &str| WayBack::With(id, why.to_owned());
    match &step.action {
        Action::SetVfAttribute { pf, attribute, .. } => match made(plan, step, *pf) {
            Some(id) => with(id, "the VF goes, with all that is set for it"),
            None => WayBack::None(format!(
                "the driver does not report {} as it was, so that nothing can put it back; a VF that is made anew has it no more",
                attribute.kind()
            )),
        },
        Action::SetSwitchMode { pf, .. } => match made(plan, step, *pf) {
            Some(id) => with(id, "without VFs there is no embedded switch"),
            None => {
                none("the driver does not report the mode that it was in, so that nothing can put it back")
            }
        },
        Action::SetMac { function, .. } => match bound(plan, step, *function) {
            Some(id) => with(id, "the interface goes with its driver, and its address with it"),
            None => none("the address that the interface had is not known"),
        },
        Action::SetMtu { .. } => none("the interface has an MTU that cannot be set"),
        Action::ResetFunction { .. } => none("what a reset clears was of the guest that is gone"),
        Action::DefineGuest(_) => {
            none("a definition does nothing by itself, and is written anew before each start")
        }
        Action::PlaceInterrupts { .. } => match started(plan, step) {
            Some(id) => with(id, "they are given back with the guest's functions"),
            None => none("where they went is not known; the kernel places them anew with the next driver"),
        },
        Action::AwaitLink { .. } | Action::AwaitGuest { .. } => none("it only waits"),
        // A planner gives these an inverse. One that came without it is told as it is.
        Action::LeaveAlone { .. }
        | Action::SetAutoprobe { .. }
        | Action::SetVfCount { .. }
        | Action::SetDriver { .. }
        | Action::Rename { .. }
        | Action::SetLink { .. }
        | Action::AddAddress { .. }
        | Action::RemoveAddress { .. }
        | Action::UndefineGuest { .. }
        | Action::StartSwitch { .. }
        | Action::StopSwitch { .. }
        | Action::MakeTaps { .. }
        | Action::RemoveTaps { .. }
        | Action::SetPortAttribute { .. }
        | Action::StartGuest { .. }
        | Action::CreateGuest { .. }
        | Action::ResumeGuest { .. }
        | Action::SuspendGuest { .. }
        | Action::WriteFile { .. }
        | Action::RemoveFile { .. }
        | Action::EnableUnit { .. }
        | Action::SetBootArguments(_)
        | Action::StopGuest { .. }
        | Action::Tune { .. }
        | Action::MakePartition { .. }
        | Action::RemovePartition { .. }
        | Action::IsolateGuest { .. }
        | Action::ScheduleGuest { .. }
        | Action::MakeResctrlGroup { .. }
        | Action::RemoveResctrlGroup { .. }
        | Action::SetSchemata { .. } => none("nothing takes it back"),
    }
}

/// The last step before `step` that `is` the one looked for, if it can be taken back.
fn before(plan: &Plan, step: &Step, is: impl Fn(&Action) -> bool) -> Option<StepId> {
    let earlier = plan.steps.iter().take_while(|earlier| earlier.id != step.id);
    earlier
        .filter(|earlier| is(&earlier.action))
        .last()
        .filter(|found| found.inverse.is_some())
        .map(|found| found.id)
}

/// The step that made the VFs of a PF.
fn made(plan: &Plan, step: &Step, of: Bdf) -> Option<StepId> {
    before(plan, step, |action| matches!(action, Action::SetVfCount { pf, count: 1.. } if *pf == of))
}

/// The step that bound a function's driver.
fn bound(plan: &Plan, step: &Step, of: Bdf) -> Option<StepId> {
    let is = |action: &Action| matches!(action, Action::SetDriver { function, driver: Some(_), .. } if *function == of);
    before(plan, step, is)
}

/// The step that started the guest that `step` is part of.
fn started(plan: &Plan, step: &Step) -> Option<StepId> {
    let of = step.guest.as_ref()?;
    let is = |action: &Action| matches!(action, Action::StartGuest { guest } | Action::CreateGuest { guest } if guest == of);
    before(plan, step, is)
}
