//! `penstock apply --persist MODEL`: carries the plan out, and has it carried out at each boot.

use std::rc::Rc;

use penstock_apply::Mode;
use penstock_model::Inventory;
use penstock_plan::{boot::BootNeeds, boot_needs, in_use};

use super::{Carried, carry_out};
use crate::{
    arguments::Apply,
    commands::plan::{self, Ready},
    dangers,
    failure::{Failure, Status},
    model_file::ModelFile,
    runtime::{
        machine::{Machine, MachineLock},
        persisted,
    },
    ui::printer::Printer,
};

/// Applies, then has it last; only the latter where the model can come true only after a reboot. All that can be refused is
/// refused before anything is touched, and the lock is held throughout: what is to last was planned while nobody else changes anything.
///
/// # Errors
///
/// For a plan that is refused, or that cannot be made to last here, before anything is touched; then for what either of the two runs
/// fails with.
pub fn run(
    arguments: &Apply,
    machine: &Machine,
    mut alone: MachineLock,
    file: &ModelFile,
    inventory: Inventory,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let needs = boot_needs(&file.model, &inventory);
    let Ready { plan, inventory, waits } = plan::ready(file, inventory, &needs, printer)?;
    plan.notes.iter().chain(&needs.notes).for_each(|note| printer.warn(note));
    let found = dangers::find(&plan, &inventory, printer);
    dangers::refuse(&found, &arguments.allowed.names, printer)?;
    alone.in_use = in_use(&plan, &inventory);
    let names = &arguments.allowed.names;
    let persisted = persisted::plan(machine, file, &arguments.subject, names, &inventory, &needs)?;
    let alone = Rc::new(alone);
    let applied = if waits {
        printer.say("The model cannot come true before the next boot; it is applied then.");
        printer.document(&Carried { plan, ..Carried::default() })?;
        Status::DoesNotHold
    } else {
        let conducted = carry_out(machine, Rc::clone(&alone), plan, Mode::Apply, file, printer)?;
        let holds = conducted.holds();
        let status = conducted.end(printer)?;
        if !holds {
            printer.warn("nothing was made to last, because not all of the model came true");
            return Ok(status);
        }
        status
    };
    let mut lasts = Status::Holds;
    if persisted.plan.steps.is_empty() {
        printer.say("Nothing to do for the next boots: all is there.");
    } else {
        printer.say(format!("For the next boots:\n{}", persisted.shown.trim_end()));
        printer.under("persist");
        let conducted = carry_out(machine, alone, persisted.plan, Mode::Apply, file, printer)?;
        let holds = conducted.holds();
        lasts = conducted.end(printer)?;
        if !holds {
            return Ok(lasts.worse(applied));
        }
    }
    tell_reboot(&needs, printer);
    let done = applied.worse(lasts);
    Ok(match persisted::tell_by_hand(&persisted.by_hand, &needs, printer) {
        Status::Holds => done,
        // Of what comes true only after a reboot this is the reason.
        missing if done == Status::DoesNotHold => missing,
        missing => missing.worse(done),
    })
}

fn tell_reboot(needs: &BootNeeds, printer: &mut Printer) {
    for need in needs.missing() {
        printer.warn(format!(
            "a reboot is needed: {} for {}: {}",
            need.setting,
            need.lines.join(", "),
            need.reason
        ));
    }
}
