//! NVMe drives: what a command needs, what it does, and what is to be so in the end.

use penstock_model::{
    Bdf, DriveVfName, Model, VfIndex,
    inventory::{NvmeVirtualization, SecondaryController},
};

use super::{machine::Machine, rules::VFIO};
use crate::{Action, DriveAction, Plan};

/// Does what it can of an action.
pub fn act(virtualization: &mut NvmeVirtualization, action: &DriveAction) {
    let vf = action.vf();
    let Some(secondary) = virtualization.secondary.iter_mut().find(|secondary| secondary.vf == vf) else {
        return;
    };
    match *action {
        DriveAction::SetVfResources { queues, interrupts, .. } => {
            secondary.queues = queues;
            secondary.interrupts = interrupts;
        }
        DriveAction::SetVfOnline { online, .. } => secondary.online = online,
        DriveAction::AttachNamespace { namespace, attached, .. } => {
            let controller = secondary.controller;
            if let Some(found) = virtualization.namespaces.get_mut(&namespace) {
                match attached {
                    true => found.controllers.insert(controller),
                    false => found.controllers.remove(&controller),
                };
            }
        }
    }
}

/// The VFs of the drive have gone, or are new: their controllers are off line, and have nothing.
pub fn remade(virtualization: &mut NvmeVirtualization) {
    for secondary in &mut virtualization.secondary {
        (secondary.online, secondary.queues, secondary.interrupts) = (false, 0, 0);
    }
}

fn secondary(machine: &Machine, drive: Bdf, vf: VfIndex) -> Option<&SecondaryController> {
    machine.drive(drive)?.virtualization.as_ref()?.of_vf(vf)
}

fn is_attached(machine: &Machine, drive: Bdf, vf: VfIndex, namespace: u32) -> Option<bool> {
    let controller = secondary(machine, drive, vf)?.controller;
    let found = machine.drive(drive)?.virtualization.as_ref()?.namespaces.get(&namespace)?;
    Some(found.controllers.contains(&controller))
}

/// What must be so before a command.
pub fn broken(machine: &Machine, action: &DriveAction) -> Vec<String> {
    let (drive, vf) = (action.drive(), action.vf());
    let Some(found) = secondary(machine, drive, vf) else {
        return vec![format!("VF {vf} of {drive} is not known to have a controller")];
    };
    let mut broken = Vec::new();
    let Some((seat, _)) = machine.vf(drive, vf) else {
        return vec![format!("{drive} has no VF {vf}")];
    };
    if let Some(guest) = machine.user(seat.bdf) {
        broken.push(format!("guest {guest} runs with {}", seat.bdf));
    }
    match *action {
        DriveAction::SetVfResources { .. } if found.online => {
            broken.push(format!("the controller of {} is on line, and takes no queues", seat.bdf));
        }
        DriveAction::SetVfOnline { online: true, .. } if found.queues < 2 || found.interrupts == 0 => {
            broken.push(format!("the controller of {} has not what it needs to come on line", seat.bdf));
        }
        DriveAction::SetVfOnline { online, .. } if found.online == online => {
            broken.push(format!("the controller of {} is that way already", seat.bdf));
        }
        DriveAction::AttachNamespace { namespace, attached, .. } => {
            match is_attached(machine, drive, vf, namespace) {
                None => broken.push(format!("{drive} has no namespace {namespace}")),
                Some(is) if is == attached => {
                    broken.push(format!("namespace {namespace} of {drive} is that way already"));
                }
                Some(_) => {}
            }
        }
        DriveAction::SetVfResources { .. } | DriveAction::SetVfOnline { .. } => {}
    }
    broken
}

/// What takes a command back.
pub fn restoring(machine: &Machine, action: &DriveAction) -> Option<Action> {
    let (drive, vf) = (action.drive(), action.vf());
    let before = secondary(machine, drive, vf)?;
    let inverse = match *action {
        DriveAction::SetVfResources { .. } => {
            DriveAction::SetVfResources { drive, vf, queues: before.queues, interrupts: before.interrupts }
        }
        DriveAction::SetVfOnline { .. } => DriveAction::SetVfOnline { drive, vf, online: before.online },
        DriveAction::AttachNamespace { namespace, .. } => {
            let attached = is_attached(machine, drive, vf, namespace)?;
            DriveAction::AttachNamespace { drive, vf, namespace, attached }
        }
    };
    Some(inverse.into())
}

/// Where a VF of a drive is.
pub fn address(plan: &Plan, machine: &Machine, vf: &DriveVfName) -> Option<Bdf> {
    let (seat, _) = machine.vf(*plan.drives.get(&vf.drive)?, vf.vf)?;
    Some(seat.bdf)
}

/// What is not as the model says of its drives.
pub fn judge(
    model: &Model,
    plan: &Plan,
    machine: &Machine,
    ran: impl Fn(&penstock_model::GuestName) -> bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, wanted) in &model.drives {
        let found = plan.drives.get(name).and_then(|bdf| Some((*bdf, machine.drive(*bdf)?)));
        let Some((bdf, found)) = found.filter(|(bdf, found)| found.bdf == *bdf) else {
            wrong.push(format!("{name} is no NVMe drive of this machine"));
            continue;
        };
        if !wanted.matching.holds_for(found) {
            wrong.push(format!("{name} was found at {bdf}, which does not match"));
        }
        let vfs = found.sriov.as_ref().map_or(0, |sriov| sriov.num_vfs);
        if vfs != wanted.vfs {
            wrong.push(format!("{name} has {vfs} VFs, and is to have {}", wanted.vfs));
        }
        if wanted.vfs > 0 && found.sriov.as_ref().is_some_and(|sriov| sriov.autoprobe) {
            wrong.push(format!("driver autoprobe of {name} is on"));
        }
        for vf in (0..wanted.vfs).filter_map(VfIndex::new) {
            let of_model = DriveVfName { drive: name.clone(), vf };
            let Some((guest, owned)) = model.drive_owner(&of_model) else { continue };
            let Some((seat, present)) = machine.vf(bdf, vf) else { continue };
            if ran(guest) {
                continue;
            }
            if machine.user(seat.bdf) != Some(guest) {
                wrong.push(format!("{guest} does not have {of_model}"));
            }
            if present.driver.as_deref() != Some(VFIO) {
                wrong.push(format!("{of_model} is not bound to {VFIO}"));
            }
            let Some(controller) = secondary(machine, bdf, vf) else {
                wrong.push(format!("{of_model} has no controller"));
                continue;
            };
            if !controller.online {
                wrong.push(format!("the controller of {of_model} is off line"));
            }
            if let Some(queues) = owned.queues.filter(|queues| controller.queues != queues + 1) {
                wrong.push(format!("{of_model} is to have {queues} pairs of I/O queues"));
            }
            let known = found.virtualization.iter().flat_map(|told| told.namespaces.keys());
            for namespace in known.filter(|known| !owned.namespaces.contains(known)) {
                if !owned.namespaces.is_empty() && is_attached(machine, bdf, vf, *namespace) == Some(true) {
                    wrong.push(format!("{of_model} has namespace {namespace} besides"));
                }
            }
            for namespace in &owned.namespaces {
                if is_attached(machine, bdf, vf, *namespace) != Some(true) {
                    wrong.push(format!("{of_model} does not have namespace {namespace}"));
                }
            }
        }
    }
    wrong
}
