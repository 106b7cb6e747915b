//! What somebody else manages is used, and stays as it is.

use penstock_model::{
    Bdf, Mac, Model, Nic, NicName,
    inventory::{Pf, Vf},
};

use super::machine::Machine;
use crate::{Action, FunctionAction, GuestAction, Plan, Step};

/// What a step does to a NIC that is externally managed, unless it only uses a VF for a guest: binds or resets it.
pub fn touched(machine: &Machine, model: &Model, plan: &Plan, step: &Step) -> Vec<String> {
    let (function, using) = match &step.action {
        Action::Function(FunctionAction::SetDriver { function, .. })
        | Action::Function(FunctionAction::RestoreInterface { function, .. })
        | Action::Function(FunctionAction::ResetFunction { function }) => (*function, true),
        Action::Function(FunctionAction::SetAutoprobe { pf, .. })
        | Action::Function(FunctionAction::SetVfCount { pf, .. })
        | Action::Function(FunctionAction::SetVfAttribute { pf, .. })
        | Action::Function(FunctionAction::SetSwitchMode { pf, .. })
        | Action::Function(FunctionAction::SetEswitchMode { pf, .. }) => (*pf, false),
        Action::Function(FunctionAction::SetMac { function, .. })
        | Action::Function(FunctionAction::Rename { function, .. })
        | Action::Function(FunctionAction::SetMtu { function, .. })
        | Action::Function(FunctionAction::SetLink { function, .. })
        | Action::Function(FunctionAction::AddAddress { function, .. })
        | Action::Function(FunctionAction::RemoveAddress { function, .. }) => (*function, false),
        Action::Guest(GuestAction::DefineGuest(definition)) => {
            let functions = definition.functions.iter().map(|owned| owned.function);
            let whole =
                functions.filter(|function| machine.seat(*function).is_some_and(|at| at.vf.is_none()));
            return whole.filter_map(|pf| managed(machine, model, plan, pf)).map(refused).collect();
        }
        // Nothing of these is a NIC's.
        Action::Function(FunctionAction::LeaveAlone { .. } | FunctionAction::AwaitLink { .. })
        | Action::Guest(
            GuestAction::UndefineGuest { .. }
            | GuestAction::StartSwitch { .. }
            | GuestAction::StopSwitch { .. }
            | GuestAction::MakeTaps { .. }
            | GuestAction::RemoveTaps { .. }
            | GuestAction::SetPortAttribute { .. }
            | GuestAction::StartGuest { .. }
            | GuestAction::CreateGuest { .. }
            | GuestAction::ResumeGuest { .. }
            | GuestAction::SuspendGuest { .. }
            | GuestAction::AwaitGuest { .. }
            | GuestAction::StopGuest { .. }
            | GuestAction::IsolateGuest { .. }
            | GuestAction::ScheduleGuest { .. },
        )
        | Action::Drive(_)
        | Action::RealTime(_)
        | Action::Boot(_)
        | Action::File(_) => return Vec::new(),
    };
    let is_vf = machine.seat(function).is_some_and(|seat| seat.vf.is_some());
    if using && is_vf && step.guest.is_some() {
        return Vec::new();
    }
    managed(machine, model, plan, function).map(refused).into_iter().collect()
}

fn refused(name: &NicName) -> String {
    format!("{name} is externally managed, and this changes it")
}

/// The NIC that `function` is on, if somebody else manages it.
fn managed<'a>(machine: &Machine, model: &Model, plan: &'a Plan, function: Bdf) -> Option<&'a NicName> {
    let pf = machine.pf(function)?.bdf;
    let (name, _) = plan.nics.iter().find(|(_, at)| **at == pf)?;
    model.nics.get(name)?.externally_managed.then_some(name)
}

/// What is not as it was, or was too little.
pub fn changed(name: &NicName, nic: &Nic, before: &Pf, after: &Pf) -> Vec<String> {
    let count = |pf: &Pf| pf.sriov.as_ref().map_or(0, |sriov| sriov.num_vfs);
    let mut wrong = Vec::new();
    if count(after) < nic.vfs {
        wrong.push(format!("{name} has {} VFs, and is to have {}", count(after), nic.vfs));
    }
    let kept = |pf: &Pf| {
        let autoprobe = pf.sriov.as_ref().map(|sriov| sriov.autoprobe);
        let attributes: Vec<_> = pf
            .sriov
            .iter()
            .flat_map(|sriov| &sriov.vfs)
            .map(|vf| vf.present.as_ref().map(|present| present.attributes.clone()))
            .collect();
        (count(pf), autoprobe, attributes, pf.interface.clone(), pf.driver.clone(), pf.switch_mode)
    };
    if kept(before) != kept(after) {
        wrong.push(format!("{name} is externally managed and does not stay as it was"));
    }
    wrong
}

/// The VF at `function`.
fn vf(pf: &Pf, function: Bdf) -> Option<&Vf> {
    pf.sriov.as_ref()?.vfs.iter().find(|vf| vf.bdf == function)
}

/// The address that a VF was given.
pub fn given_mac(pf: &Pf, function: Bdf) -> Option<Mac> {
    vf(pf, function)?.given_mac()
}

/// The driver of a VF.
pub fn driver(pf: &Pf, function: Bdf) -> Option<&str> {
    vf(pf, function)?.present.as_ref()?.driver.as_deref()
}
