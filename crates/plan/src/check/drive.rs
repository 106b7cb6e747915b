//! NVMe drives: what a command needs, what it does, and what is to be so in the end.

use penstock_model::{
    Bdf, DriveVfName, Model, VfIndex,
    inventory::{FlexibleResources, NvmeVirtualization, SecondaryController},
};

use super::{machine::Machine, rules::VFIO};
use crate::{Action, ControllerResources, DriveAction, Plan};

/// Does what it can of an action.
pub fn act(virtualization: &mut NvmeVirtualization, action: &DriveAction) {
    let vf = action.vf();
    let Some(secondary) = virtualization.secondary.iter_mut().find(|secondary| secondary.vf == vf) else {
        return;
    };
    match *action {
        DriveAction::SetVfResources { .. } | DriveAction::SetVfOnline { .. } => {
            let (online, held) = line_and_holding(secondary, action);
            secondary.online = online;
            (secondary.queues, secondary.interrupts) = (held.queues, held.interrupts);
        }
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

/// Whether a controller is on line after an action, and what it holds then. One that goes off line loses all that it is not given again.
fn line_and_holding(before: &SecondaryController, action: &DriveAction) -> (bool, ControllerResources) {
    let had = ControllerResources::of(before);
    match *action {
        DriveAction::SetVfResources { queues, interrupts, .. } => {
            (before.online, ControllerResources { queues, interrupts })
        }
        DriveAction::SetVfOnline { online, with: Some(with), .. } => (online, with),
        DriveAction::SetVfOnline { online: false, with: None, .. } => (false, ControllerResources::NONE),
        DriveAction::SetVfOnline { online: true, with: None, .. } => (true, had),
        DriveAction::AttachNamespace { .. } => (before.online, had),
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
    let (_, held) = line_and_holding(found, action);
    let Some((seat, present)) = machine.vf(drive, vf) else {
        return vec![format!("{drive} has no VF {vf}")];
    };
    if let Some(driver) = present.driver.as_deref().filter(|driver| *driver != VFIO) {
        broken.push(format!("{} is bound to {driver}, under which its controller changes", seat.bdf));
    }
    if let Some(guest) = machine.user(seat.bdf) {
        broken.push(format!("guest {guest} runs with {}", seat.bdf));
    }
    match *action {
        DriveAction::SetVfResources { .. } if found.online => {
            broken.push(format!("the controller of {} is on line, and takes no queues", seat.bdf));
        }
        DriveAction::SetVfOnline { online: true, .. } if held.queues < 2 || held.interrupts == 0 => {
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
        DriveAction::SetVfResources { .. } | DriveAction::SetVfOnline { .. } => {
            broken.extend(beyond(machine, drive, vf, held));
        }
    }
    broken
}

/// What the drive has not, when this VF gets so much and the others hold what they hold at this point.
fn beyond(machine: &Machine, drive: Bdf, vf: VfIndex, wanted: ControllerResources) -> Vec<String> {
    let ControllerResources { queues, interrupts } = wanted;
    let Some(told) = machine.drive(drive).and_then(|found| found.virtualization.as_ref()) else {
        return Vec::new();
    };
    let holding = || told.secondary.iter().filter(|other| other.vf != vf);
    let all = [
        ("pairs of queues", told.queues, queues, holding().map(|other| u32::from(other.queues)).sum::<u32>()),
        ("interrupts", told.interrupts, interrupts, holding().map(|other| u32::from(other.interrupts)).sum()),
    ];
    let beyond = all.into_iter().filter(|(_, of, wanted, held)| {
        u32::from(*wanted) + held + u32::from(of.held_by_pf) > of.total && *wanted > 0
    });
    let text = |(what, of, wanted, held): (&str, FlexibleResources, u16, u32)| {
        format!("VF {vf} of {drive} gets {wanted} {what}, and {held} of {} are held by others", of.total)
    };
    beyond.map(text).collect()
}

/// What VFs of a drive have one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Passed {
    Queues,
    Namespace(u32),
}

/// What a command takes that another VF may have had before.
pub fn takes(machine: &Machine, action: &DriveAction) -> Option<Passed> {
    let (drive, vf) = (action.drive(), action.vf());
    match *action {
        DriveAction::SetVfResources { .. } | DriveAction::SetVfOnline { .. } => {
            let had = secondary(machine, drive, vf)?;
            let (_, holds) = line_and_holding(had, action);
            let more = holds.queues > had.queues || holds.interrupts > had.interrupts;
            more.then_some(Passed::Queues)
        }
        DriveAction::AttachNamespace { namespace, attached: true, .. } => Some(Passed::Namespace(namespace)),
        DriveAction::AttachNamespace { .. } => None,
    }
}

/// What a command leaves to other VFs that its own had.
pub fn leaves(machine: &Machine, action: &DriveAction) -> Option<Passed> {
    match *action {
        DriveAction::SetVfResources { .. } | DriveAction::SetVfOnline { .. } => {
            let had = secondary(machine, action.drive(), action.vf())?;
            let (_, holds) = line_and_holding(had, action);
            let less = holds.queues < had.queues || holds.interrupts < had.interrupts;
            less.then_some(Passed::Queues)
        }
        DriveAction::AttachNamespace { namespace, attached: false, .. } => Some(Passed::Namespace(namespace)),
        DriveAction::AttachNamespace { .. } => None,
    }
}

/// What takes a command back.
pub fn restoring(machine: &Machine, action: &DriveAction) -> Option<Action> {
    let (drive, vf) = (action.drive(), action.vf());
    let before = secondary(machine, drive, vf)?;
    let inverse = match *action {
        DriveAction::SetVfResources { .. } => {
            DriveAction::SetVfResources { drive, vf, queues: before.queues, interrupts: before.interrupts }
        }
        DriveAction::SetVfOnline { .. } => {
            let had = ControllerResources::of(before);
            DriveAction::SetVfOnline { drive, vf, online: before.online, with: Some(had) }
        }
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
            for (namespace, has) in found.virtualization.iter().flat_map(|told| &told.namespaces) {
                let secondary = || found.virtualization.iter().flat_map(|told| &told.secondary);
                let others = secondary().filter(|other| other.vf != vf);
                let sharing = others.filter(|other| has.controllers.contains(&other.controller));
                if has.controllers.contains(&controller.controller) {
                    wrong.extend(sharing.map(|other| {
                        format!("{of_model} has namespace {namespace}, and VF {} has it as well", other.vf)
                    }));
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
