//! `penstock at-boot PHASE MODEL`: applies a model while the machine is started, for the units that `apply --persist` makes.
//!
//! Nobody is there to answer. In the first phase the network is not configured yet: what would cut a connection off cuts
//! nothing off, and is said only. What somebody has put at interfaces was put there by the machine itself as it starts (udev, networkd, a
//! network plugin), so that it says nothing of who works there, and is said only too. Disks that the machine runs from are never taken. In the second phase guests start, on a
//! machine that may be reached already: one that would take away what nobody allowed is left out, alone.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use penstock_apply::Mode;
use penstock_host::{InterfaceReport, Netlink, interface_of, netlink::wait_for_udev};
use penstock_model::{GuestName, Inventory, text::counted};
use penstock_plan::{
    Danger, Plan, StepId, in_use, modes_not_known, not_there_yet, plan_without_guests, resolve_what_is_there,
};

use crate::{
    arguments::{AtBoot, BootPhase},
    commands::{apply, guard, plan},
    dangers,
    failure::{Failure, Status},
    model_file::{self, For, ModelFile},
    runtime::machine::Machine,
    settings::Settings,
    ui::printer::Printer,
};

/// How long the NICs and drives of a model may take to be there. A driver with much firmware to load takes some 20 s.
const NICS: Duration = Duration::from_secs(30);
/// How often it is looked at what no event of a network interface tells of.
const LOOK: Duration = Duration::from_secs(1);
/// How long udev may take to have named an interface.
const UDEV: Duration = Duration::from_secs(10);

/// Applies one phase.
///
/// # Errors
///
/// For a model that is wrong or does not fit, NICs that do not come in time, another run at work, and for what the steps fail with. A
/// danger that is not allowed leaves its steps out and is no error.
pub fn run(arguments: &AtBoot, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let file = model_file::read_subject(&arguments.subject, For::Here(settings), printer)?;
    let machine = Machine::here(settings);
    let mut alone = machine.lock()?;
    if arguments.phase == BootPhase::Nics {
        await_nics(&machine, &file, printer)?;
    }
    // Before anything is looked at: a run that nobody had confirmed when the machine was reset stays in nobody's way.
    alone = match guard::take_back_at_start(&machine, alone, printer) {
        Ok(alone) => alone,
        Err(failure) => {
            printer.warn(failure.in_one_line());
            machine.lock()?
        }
    };
    let inventory = machine.inventory_for(&file.model)?;
    let mut plan = match arguments.phase {
        BootPhase::Nics => {
            let plan = plan_without_guests(&file.model, &inventory)
                .map_err(|error| plan::explain(error, &file, printer))?;
            plan::judge_steps(&plan, &file, &inventory)?;
            plan
        }
        BootPhase::Guests => plan::make(&file, &inventory, printer)?,
    };
    for note in &plan.notes {
        printer.warn(note);
    }
    let left_out = refuse(&mut plan, &inventory, arguments, printer)?;
    alone.in_use = in_use(&plan, &inventory);
    let status = apply::carry_out(&machine, alone, plan, Mode::Apply, &file, printer)?.end(printer)?;
    Ok(if left_out { status.worse(Status::DoesNotHold) } else { status })
}

/// Waits until every NIC and drive of the model is there, with its driver, and each NIC has its name.
fn await_nics(machine: &Machine, file: &ModelFile, printer: &mut Printer) -> Result<(), Failure> {
    let mut netlink = Netlink::open()?;
    let drives = match file.model.drives.len() {
        0 => String::new(),
        count => format!(" and {}", counted(count, "drive")),
    };
    printer.doing(format!("Waiting for {}{drives}", counted(file.model.nics.len(), "NIC")));
    let end = Instant::now() + NICS;
    let inventory = loop {
        let known: BTreeSet<u32> = netlink.interfaces()?.iter().map(|report| report.index).collect();
        let late = Instant::now() >= end;
        match machine.inventory() {
            Err(failure) if late => return Err(failure),
            // What comes or goes while it is looked at may be in the way: it is looked at again.
            Err(_) => {}
            Ok(mut inventory) => {
                let mut lacking = not_there_yet(&file.model, &inventory);
                if lacking.is_empty() {
                    // A driver may be there before its devlink is.
                    machine.ask_eswitch_modes(&file.model, &mut inventory);
                    lacking = modes_not_known(&file.model, &inventory);
                }
                if late && !lacking.is_empty() {
                    printer.warn(format!("not there after {} s: {}", NICS.as_secs(), lacking.join("; ")));
                }
                if late || lacking.is_empty() {
                    break inventory;
                }
            }
        }
        // An interface that comes ends the wait; of a driver, or a drive, there is no such event.
        let another = |reports: &[InterfaceReport]| {
            reports.iter().any(|report| !known.contains(&report.index)).then_some(())
        };
        let _ = netlink.wait_for("see an interface come", end.min(Instant::now() + LOOK), another);
    };
    let (nics, _) = resolve_what_is_there(&file.model, &inventory);
    let deadline = Instant::now() + UDEV;
    let reports = netlink.interfaces()?;
    for report in nics.values().filter_map(|bdf| interface_of(*bdf, &reports, machine.root())) {
        wait_for_udev(machine.root(), report.index, deadline);
    }
    Ok(())
}

/// Takes out of the plan what must not be done; `Ok(true)` when guests are left out.
fn refuse(
    plan: &mut Plan,
    inventory: &Inventory,
    arguments: &AtBoot,
    printer: &mut Printer,
) -> Result<bool, Failure> {
    let found = dangers::find(plan, inventory, printer);
    let allowed = |danger: &Danger| {
        arguments.allowed.names.contains(&danger.name) || is_said_only(danger, arguments.phase)
    };
    let (said, refused): (Vec<Danger>, Vec<Danger>) = found.into_iter().partition(allowed);
    for danger in said {
        printer.warn(format!("{}: {}", danger.name, danger.lost));
    }
    let step = |id: &StepId| plan.steps.iter().find(|step| step.id == *id);
    let of_guests = refused
        .iter()
        .flat_map(|danger| &danger.steps)
        .all(|id| step(id).is_some_and(|step| step.guest.is_some()));
    if !of_guests {
        dangers::refuse(&refused, &[], printer)?;
    }
    let mut out: BTreeSet<GuestName> = BTreeSet::new();
    for danger in &refused {
        let guests: BTreeSet<GuestName> =
            danger.steps.iter().filter_map(|id| step(id)?.guest.clone()).collect();
        for guest in guests.iter().filter(|guest| !out.contains(*guest)) {
            printer.warn(format!("guest {guest} is not started: {}: {}", danger.name, danger.lost));
        }
        out.extend(guests);
    }
    let mut gone: BTreeSet<StepId> = BTreeSet::new();
    plan.steps.retain(|step| {
        let stays = !step.guest.as_ref().is_some_and(|guest| out.contains(guest))
            && step.needs.iter().all(|need| !gone.contains(need));
        if !stays {
            gone.insert(step.id);
        }
        stays
    });
    Ok(!out.is_empty())
}

/// Whether a danger keeps nothing from being done: one of connections that are not there yet, or of what stands at interfaces as soon as they
/// come.
fn is_said_only(danger: &Danger, phase: BootPhase) -> bool {
    let sorts: &[&str] = match phase {
        BootPhase::Nics => &["default-route:", "ssh:", "unknown-default-route:", "unknown-ssh:"],
        BootPhase::Guests => &[],
    };
    let at_interfaces = ["packet-programs:", "unknown-packet-programs:"];
    sorts.iter().chain(&at_interfaces).any(|sort| danger.name.starts_with(sort))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_puts_at_its_interfaces_as_it_starts_keeps_no_guest_from_starting() {
        let said_only = |name: &str, phase| {
            let danger = Danger {
                name: name.to_owned(),
                steps: vec![StepId(1)],
                lost: String::new(),
                way_round: String::new(),
                functions: BTreeSet::new(),
            };
            is_said_only(&danger, phase)
        };
        for name in ["packet-programs:NET0", "unknown-packet-programs:NET0"] {
            assert!(said_only(name, BootPhase::Nics) && said_only(name, BootPhase::Guests), "{name}");
        }
        for name in ["ssh:eno1", "default-route:eno1", "unknown-ssh:eno1", "unknown-default-route:eno1"] {
            assert!(said_only(name, BootPhase::Nics) && !said_only(name, BootPhase::Guests), "{name}");
        }
        for name in ["root:eno1", "unknown-root:0000:01:00.0", "vfs-in-use:NET0", "peer:eno1"] {
            assert!(!said_only(name, BootPhase::Nics) && !said_only(name, BootPhase::Guests), "{name}");
        }
    }
}
