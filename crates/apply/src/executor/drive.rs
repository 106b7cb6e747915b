//! Commands to NVMe drives for their VFs.

use penstock_host::{
    PciFunction, Root,
    nvme::{NvmeError, PrimaryController},
};
use penstock_model::{Bdf, VfIndex, inventory::SecondaryController};
use penstock_plan::{ControllerResources, DriveAction, ExecuteError, Fact};

use super::execute_error;

/// What is seen of a fact: so, or what is so instead.
type Seen = Result<(), String>;

/// Does something to a drive's controllers or namespaces.
///
/// # Errors
///
/// When there is no such drive or VF, or the drive refuses.
pub fn execute(root: &Root, action: &DriveAction) -> Result<(), ExecuteError> {
    let attempt = format!("{action} was not done");
    let (controller, found) = ask(root, action.drive(), action.vf(), &attempt)?;
    let own = found.controller;
    let done = match action {
        DriveAction::SetVfResources { queues, interrupts, .. } => {
            set(&controller, own, ControllerResources { queues: *queues, interrupts: *interrupts })
        }
        DriveAction::SetVfOnline { vf, online: true, with, .. } => {
            give(&controller, *vf, own, *with).and_then(|()| controller.set_online(own, true))
        }
        DriveAction::SetVfOnline { vf, online: false, with, .. } => {
            controller.set_online(own, false).and_then(|()| give(&controller, *vf, own, *with))
        }
        DriveAction::AttachNamespace { namespace, attached, .. } => {
            controller.attach(*namespace, own, *attached)
        }
    };
    done.map_err(|error| refused(&attempt, error))
}

/// Gives a controller what it is to have, unless it has that.
fn give(
    controller: &PrimaryController,
    vf: VfIndex,
    own: u16,
    with: Option<ControllerResources>,
) -> Result<(), NvmeError> {
    let Some(with) = with else { return Ok(()) };
    let has = controller.of_vf(vf)?;
    if has.is_some_and(|has| ControllerResources::of(&has) == with) {
        return Ok(());
    }
    set(controller, own, with)
}

fn set(controller: &PrimaryController, own: u16, to: ControllerResources) -> Result<(), NvmeError> {
    controller.set_queues(own, to.queues)?;
    controller.set_interrupts(own, to.interrupts).map(drop)
}

/// Whether the drive has left the machine.
pub fn is_gone(root: &Root, action: &DriveAction) -> bool {
    !PciFunction::new(root, action.drive()).exists()
}

/// Whether a fact about a drive is so; `None` for any other fact.
pub fn holds(root: &Root, fact: &Fact) -> Option<Result<Seen, ExecuteError>> {
    let (drive, vf) = match fact {
        Fact::VfResources { drive, vf, .. }
        | Fact::VfOnline { drive, vf, .. }
        | Fact::NamespaceAttached { drive, vf, .. } => (*drive, *vf),
        _ => return None,
    };
    Some(look(root, drive, vf, fact))
}

fn look(root: &Root, drive: Bdf, vf: VfIndex, fact: &Fact) -> Result<Seen, ExecuteError> {
    let attempt = format!("could not read whether {fact}");
    let (controller, found) = ask(root, drive, vf, &attempt)?;
    Ok(match fact {
        Fact::VfResources { queues, interrupts, .. } => {
            has(&found, ControllerResources { queues: *queues, interrupts: *interrupts })
        }
        Fact::VfOnline { online, .. } if found.online != *online => {
            Err(format!("it is {} line", if found.online { "on" } else { "off" }))
        }
        Fact::VfOnline { with: Some(with), .. } => has(&found, *with),
        Fact::NamespaceAttached { namespace, attached, .. } => {
            let told = controller.virtualization().map_err(|error| refused(&attempt, error))?;
            let known = told.namespaces.get(namespace);
            match known.is_some_and(|known| known.controllers.contains(&found.controller)) == *attached {
                true => Ok(()),
                false => Err(format!("it is {}", if *attached { "not" } else { "still attached" })),
            }
        }
        _ => Ok(()),
    })
}

fn has(found: &SecondaryController, wanted: ControllerResources) -> Seen {
    if ControllerResources::of(found) == wanted {
        return Ok(());
    }
    Err(format!(
        "it has {} pairs of queues, with the one for administration, and {} interrupts",
        found.queues, found.interrupts
    ))
}

/// Opens a drive, and asks it for the controller of a VF.
fn ask(
    root: &Root,
    drive: Bdf,
    vf: VfIndex,
    attempt: &str,
) -> Result<(PrimaryController, SecondaryController), ExecuteError> {
    let controller = PrimaryController::open(root, drive).map_err(|error| refused(attempt, error))?;
    let found = controller.of_vf(vf).map_err(|error| refused(attempt, error))?;
    let found = found.ok_or_else(|| ExecuteError::Failed {
        attempt: format!("VF {vf} of the NVMe drive {drive} cannot be configured"),
        source: "the drive does not say that it has a controller".into(),
    })?;
    Ok((controller, found))
}

fn refused(attempt: &str, error: NvmeError) -> ExecuteError {
    let hint = error.hint().map(str::to_owned);
    execute_error(attempt, error, false, hint)
}
