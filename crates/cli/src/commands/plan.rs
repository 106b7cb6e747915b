//! `penstock plan MODEL`: what would change, why, and how it is undone.

use penstock_model::{
    Inventory,
    text::{Style, Styled, paragraph},
};
use penstock_plan::{
    Danger, Effects, Plan, PlanError,
    boot::{BootNeeds, after_reboot},
    boot_needs, effects, overview,
};
use penstock_render::GenerateError;
use serde::Serialize;

use crate::{
    arguments, dangers,
    failure::{Failure, Status},
    model_file::{self, For, ModelFile},
    runtime::{machine::Machine, persisted},
    settings::Settings,
    ui::printer::Printer,
};

/// A plan with what it would take away. `--json` prints it.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct PlanDocument<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    /// What is refused unless it is allowed.
    dangers: Vec<Danger>,
    /// The VFs that vanish, and the running guests that are concerned.
    effects: Effects,
    /// Whether the model comes true only after a reboot, or not as well before it.
    needs_reboot: bool,
    /// What the model needs at the start of the machine, and what of it the running kernel has.
    boot: &'a BootNeeds,
    /// What `apply --persist` changes, as a diff; only where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    persist: Option<&'a str>,
}

/// Prints the plan, and refuses it when what it takes away is not allowed.
///
/// # Errors
///
/// For a model that is wrong; `Status::DoesNotFit` for one that does not fit, and for one that can come true only after a reboot; for a danger
/// that is not allowed, for something else in the place of a generated file, and for what keeps `--persist` from being planned; when the
/// machine's guests cannot be seen; for a defect of the planner that the checker finds.
pub fn run(
    arguments: &arguments::Plan,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let file = model_file::read_subject(
        &arguments.subject,
        For::of(arguments.inventory.as_deref(), true, settings),
        printer,
    )?;
    let machine = Machine::here(settings).reaching(&arguments.peers);
    let inventory = match &arguments.inventory {
        Some(path) => model_file::read_inventory(path)?,
        None => machine.inventory_for(&file.model)?,
    };
    let needs = boot_needs(&file.model, &inventory);
    let Ready { plan, inventory, waits } = ready(&file, inventory, &needs, printer)?;
    let dangers = dangers::find(&plan, &inventory, printer);
    let persisted = match arguments.persist {
        true => Some(persisted::plan(
            &machine,
            &file,
            &arguments.subject,
            &arguments.allowed.names,
            &inventory,
            &needs,
        )?),
        false => None,
    };
    let told = PlanDocument {
        plan: &plan,
        dangers,
        effects: effects(&plan, &inventory),
        needs_reboot: needs.missing().next().is_some(),
        boot: &needs,
        persist: persisted.as_ref().map(|persisted| persisted.shown.as_str()),
    };
    let view = View { inventory: &inventory, steps: arguments.steps, width: printer.width() };
    printer.data(&told, || in_words(&told, view))?;
    dangers::refuse(&told.dangers, &arguments.allowed.names, printer)?;
    let changes = !told.plan.steps.is_empty() || told.persist.is_some_and(|shown| !shown.is_empty());
    let by_hand = persisted
        .as_ref()
        .map_or(Status::Holds, |persisted| persisted::tell_by_hand(&persisted.by_hand, &needs, printer));
    match (waits, by_hand) {
        (true, _) => Err(waits_for_boot(&needs)),
        (false, Status::Holds) if changes && arguments.detailed_exitcode => Ok(Status::WouldChange),
        (false, by_hand) => Ok(by_hand),
    }
}

/// A plan that can be carried out now, or after the next boot.
pub struct Ready {
    /// The plan for the machine that `inventory` describes.
    pub plan: Plan,
    /// What it is for: the machine as it is, or as far as it is known as it will be then.
    pub inventory: Inventory,
    /// Whether it waits for the next boot.
    pub waits: bool,
}

/// Makes a plan for now; where only a reboot makes that possible, one for then.
///
/// # Errors
///
/// As [`make`].
pub fn ready(
    file: &ModelFile,
    inventory: Inventory,
    needs: &BootNeeds,
    printer: &mut Printer,
) -> Result<Ready, Failure> {
    let lacking = needs.needs.iter().any(|need| !need.live);
    if lacking && penstock_plan::plan(&file.model, &inventory).is_err() {
        let later = after_reboot(&inventory, needs);
        if penstock_plan::plan(&file.model, &later).is_ok() {
            let plan = make(file, &later, printer)?;
            return Ok(Ready { plan, inventory: later, waits: true });
        }
    }
    let plan = make(file, &inventory, printer)?;
    Ok(Ready { plan, inventory, waits: false })
}

/// Why a plan is not carried out now.
fn waits_for_boot(needs: &BootNeeds) -> Failure {
    let lacking: Vec<String> =
        needs.needs.iter().filter(|need| !need.live).map(|need| need.setting.to_string()).collect();
    let text = format!("not possible before this machine is started anew, with {}", lacking.join(", "));
    Failure::new(Status::DoesNotFit, text).hint(
        "`penstock apply --persist` puts that where it belongs; then reboot: the model is applied at boot",
    )
}

/// How much of a plan is shown.
#[derive(Clone, Copy)]
struct View<'a> {
    inventory: &'a Inventory,
    /// All steps, with their reasons and inverses.
    steps: bool,
    width: Option<usize>,
}

/// What the plan comes to and changes, or all of its steps; whom it concerns, and its dangers. Which VFs vanish is in its notes.
fn in_words(told: &PlanDocument<'_>, view: View<'_>) -> Styled {
    let View { inventory, steps, width } = view;
    let plan = told.plan;
    let mut out = overview(plan, inventory, &told.dangers, Some(told.boot), width);
    let mut rest = Styled::new();
    if !steps {
        plan.notes.iter().for_each(|note| paragraph(&mut rest, Style::Plain, "note: ", note, width));
    }
    for affected in &told.effects.guests {
        let lead = format!("guest {} is concerned: ", affected.guest);
        paragraph(&mut rest, Style::Warning, &lead, &affected.what.join("; "), width);
    }
    rest.append(dangers::in_words(&told.dangers, width));
    for need in told.boot.missing() {
        let text = format!("{} for {}: {}", need.setting, need.lines.join(", "), need.reason);
        paragraph(&mut rest, Style::Warning, "needs a reboot: ", &text, width);
    }
    told.boot.notes.iter().for_each(|note| paragraph(&mut rest, Style::Plain, "note: ", note, width));
    match told.persist {
        None => {}
        Some("") => rest.plain("for the next boots: all is there\n"),
        Some(shown) => rest.plain(format!("for the next boots:\n{shown}")),
    }
    if steps {
        out.plain("\n");
        out.append(plan.steps_in_words(inventory, width));
    }
    if !rest.is_empty() {
        out.plain("\n");
        out.append(rest);
    }
    if !steps && !plan.steps.is_empty() {
        let count = plan.steps.len();
        let text = format!(
            "{count} step{}: --steps shows them in order, each with its reason and its way back.",
            if count == 1 { "" } else { "s" }
        );
        out.plain("\n");
        paragraph(&mut out, Style::Dim, "", &text, width);
    }
    out
}

/// Makes a plan, has it judged by the checker, and explains what stands in its way.
///
/// # Errors
///
/// With its place in the model, why no plan can be made; `Status::Internal` when the checker finds a plan wrong.
pub fn make(file: &ModelFile, inventory: &Inventory, printer: &mut Printer) -> Result<Plan, Failure> {
    let plan = penstock_plan::plan(&file.model, inventory).map_err(|error| explain(error, file, printer))?;
    judge(&penstock_plan::check::check(&file.model, inventory, &plan))?;
    Ok(plan)
}

/// Has a plan that starts or stops guests judged: its steps, not whether it ends where the model wants to be.
///
/// # Errors
///
/// `Status::Internal` when the checker finds a step wrong.
pub fn judge_steps(plan: &Plan, file: &ModelFile, inventory: &Inventory) -> Result<(), Failure> {
    judge(&penstock_plan::check::check_steps(&file.model, inventory, plan))
}

/// Explains why there is no plan.
pub fn explain(error: PlanError, file: &ModelFile, printer: &mut Printer) -> Failure {
    match error {
        PlanError::Model(found) | PlanError::UnsupportedAttributes(found) => {
            model_file::does_not_fit(&found, &file.source, printer)
        }
        PlanError::Files(found) => model_file::explain(&found, &file.source, printer),
        PlanError::Template(error) => {
            model_file::explain_generate(&GenerateError::Template(error), &file.source, printer)
        }
        PlanError::NoSuchGuest { .. } | PlanError::Unsupported(_) | PlanError::Refused(_) => error.into(),
    }
}

/// A plan that the checker rejects is never carried out: it would be a defect of the planner.
fn judge(findings: &[penstock_plan::check::Finding]) -> Result<(), Failure> {
    if findings.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let text = format!("the plan was made but does not pass its check:\n  {}", list.join("\n  "));
    Err(Failure::new(Status::Internal, text)
        .hint("this is a defect of penstock, nothing was touched: please report it with the model and `penstock scan --json`"))
}
