//! `penstock plan MODEL`: what would change, why, and how it is undone.

use penstock_model::Inventory;
use penstock_plan::{Danger, Effects, Plan, PlanError, effects, generate::GenerateError};
use serde::Serialize;

use crate::{
    arguments, dangers,
    failure::{Failure, Status},
    machine::Machine,
    model_file::{self, ModelFile},
    printer::Printer,
    settings::Settings,
};

/// A plan with what it would take away. `--json` prints it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    /// What is refused unless it is allowed.
    dangers: Vec<Danger>,
    /// The VFs that vanish, and the running guests that are concerned.
    effects: Effects,
}

/// Prints the plan, and refuses it when what it takes away is not allowed.
pub fn run(
    arguments: &arguments::Plan,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let file = model_file::read_subject(&arguments.subject, printer)?;
    let inventory = match &arguments.inventory {
        Some(path) => model_file::read_inventory(path)?,
        None => Machine::here(settings).inventory_for(&file.model)?,
    };
    let plan = make(&file, &inventory, printer)?;
    let dangers = dangers::find(&plan, &inventory, printer);
    let told = Told { plan: &plan, dangers, effects: effects(&plan, &inventory) };
    printer.data(&told, || in_words(&told))?;
    dangers::refuse(&told.dangers, &arguments.allowed.names, printer)?;
    Ok(Status::Holds)
}

/// The plan, whom it concerns, and its dangers; which VFs vanish is in its notes.
fn in_words(told: &Told<'_>) -> String {
    let mut text = told.plan.to_string();
    for affected in &told.effects.guests {
        text.push_str(&format!("guest {} is concerned: {}\n", affected.guest, affected.what.join("; ")));
    }
    text.push_str(&dangers::in_words(&told.dangers));
    text
}

/// Makes a plan, has it judged by the checker, and explains what stands in its way.
pub fn make(file: &ModelFile, inventory: &Inventory, printer: &mut Printer) -> Result<Plan, Failure> {
    let plan = penstock_plan::plan(&file.model, inventory).map_err(|error| explain(error, file, printer))?;
    judge(&penstock_plan::check::check(&file.model, inventory, &plan))?;
    Ok(plan)
}

/// Has a plan that starts or stops guests judged: its steps, not whether it ends where the model wants to be.
pub fn judge_steps(plan: &Plan, file: &ModelFile, inventory: &Inventory) -> Result<(), Failure> {
    judge(&penstock_plan::check::check_steps(&file.model, inventory, plan))
}

/// Explains why there is no plan.
pub fn explain(error: PlanError, file: &ModelFile, printer: &mut Printer) -> Failure {
    match error {
        PlanError::Model(found) => model_file::explain(&found, &file.source, printer),
        PlanError::Template(error) => {
            model_file::explain_generate(&GenerateError::Template(error), &file.source, printer)
        }
        PlanError::NoSuchGuest { .. } => Failure::new(Status::BadInput, error),
        PlanError::Unsupported(_) => Failure::new(Status::Missing, error),
        PlanError::Refused(_) => Failure::new(Status::Refused, error),
    }
}

/// A plan that the checker rejects is never carried out: it would be a defect of the planner.
fn judge(findings: &[penstock_plan::check::Finding]) -> Result<(), Failure> {
    if findings.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let text = format!("the plan was made but does not pass its check:\n  {}", list.join("\n  "));
    Err(Failure::new(Status::Refused, text)
        .hint("this is a defect of penstock, nothing was touched: please report it with the model and `penstock scan --json`"))
}
