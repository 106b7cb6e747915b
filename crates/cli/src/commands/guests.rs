//! `penstock start` and `penstock stop`: guests of a model on this machine.

use penstock_apply::Mode;
use penstock_host::files;
use penstock_model::{GuestName, Inventory, Model};
use penstock_plan::{Plan, PlanError, in_use};

use crate::{
    arguments::Guests,
    commands::{apply, guard, plan},
    dangers,
    failure::{Failure, Status},
    model_file::{self, For},
    runtime::machine::Machine,
    settings::Settings,
    ui::printer::Printer,
};

/// Starts guests, and the guests that they need.
///
/// # Errors
///
/// For a guest that the model does not have, a plan that the checker refuses, and for what a step fails with.
pub fn start(arguments: &Guests, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    run(arguments, penstock_plan::start, Mode::Apply, settings, printer)
}

/// Stops guests, dependents first; gives every VF back, reset. Goes on past what fails.
///
/// # Errors
///
/// As [`start`]; what fails does not keep the others from being stopped.
pub fn stop(arguments: &Guests, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    run(arguments, penstock_plan::stop, Mode::TearDown, settings, printer)
}

/// Makes the plan for the guests that were named, all of them when none was.
type Planner = fn(&Model, &Inventory, &[GuestName]) -> Result<Plan, PlanError>;

fn run(
    arguments: &Guests,
    planner: Planner,
    mode: Mode,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let machine = Machine::here(settings);
    let file = model_file::read_subject(&arguments.subject, For::Here(settings), printer)
        .map_err(|failure| with_guest_in_place(failure, arguments, mode, &machine))?;
    let mut alone = guard::take_back_lapsed(&machine, machine.lock()?, printer)?;
    let inventory = machine.inventory_with_tuning(&file.model)?;
    let plan = planner(&file.model, &inventory, &arguments.guests)
        .map_err(|error| plan::explain(error, &file, printer))?;
    plan::judge_steps(&plan, &file, &inventory)?;
    for note in &plan.notes {
        printer.warn(note);
    }
    let found = dangers::find(&plan, &inventory, printer);
    dangers::refuse(&found, &arguments.allowed.names, printer)?;
    alone.in_use = in_use(&plan, &inventory);
    apply::carry_out(&machine, alone, plan, mode, &file, printer)?.end(printer)
}

/// Where no file has the name that stands for the model's, and a guest has it, what was probably meant.
fn with_guest_in_place(failure: Failure, arguments: &Guests, mode: Mode, machine: &Machine) -> Failure {
    let model = &arguments.subject.model;
    let guest = model.to_str().and_then(|name| name.parse::<GuestName>().ok());
    let Some(guest) = guest.filter(|_| arguments.subject.payload.is_none() && !files::exists(model)) else {
        return failure;
    };
    let known = machine.guests().seen().unwrap_or_default();
    if !known.contains_key(&guest) {
        return failure;
    }
    let verb = if mode == Mode::TearDown { "stop" } else { "start" };
    failure
        .hint(format!("{guest} is a guest, and the model stands before it: `penstock {verb} MODEL {guest}`"))
}
