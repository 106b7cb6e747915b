//! Refuses plans that take away what nobody may want to lose, unless each such danger is allowed by its name.

use std::collections::BTreeSet;

use penstock_host::process::quoted_where_needed;
use penstock_model::{
    Inventory,
    text::{Style, Styled, paragraph},
};
use penstock_plan::{Danger, Plan, StepId, dangers};

use crate::{
    failure::{Failure, Status},
    ui::printer::Printer,
};

/// The dangers of a plan. It is said when nobody looked for some of them.
pub fn find(plan: &Plan, inventory: &Inventory, printer: &mut Printer) -> Vec<Danger> {
    if inventory.lifelines.is_none() && !plan.steps.is_empty() {
        printer.say(
            "This inventory does not say what the machine's own life hangs on: whether the plan cuts it off is not known.",
        );
    }
    dangers(plan, inventory)
}

/// Refuses a plan with dangers that are not `allowed`; warns of those that are, and of names that allow nothing.
///
/// # Errors
///
/// `Status::Refused` with each danger that is not allowed, and what allows it.
pub fn refuse(dangers: &[Danger], allowed: &[String], printer: &mut Printer) -> Result<(), Failure> {
    let names: BTreeSet<&str> = dangers.iter().map(|danger| danger.name.as_str()).collect();
    for name in allowed.iter().filter(|name| !names.contains(name.as_str())) {
        printer.warn(format!("--allow {name} allows nothing: this plan has no danger of that name"));
    }
    let (allowed, refused): (Vec<&Danger>, Vec<&Danger>) =
        dangers.iter().partition(|danger| allowed.contains(&danger.name));
    for danger in allowed {
        printer.warn(format!("allowed: {}", one(danger)));
    }
    if refused.is_empty() {
        return Ok(());
    }
    let mut text = "refused as unsafe; nothing was touched".to_owned();
    refused.iter().for_each(|danger| text.push_str(&format!("\n  {}", one(danger))));
    let hints = refused.iter().map(|danger| {
        format!(
            "{}; or, to do it all the same: --allow {}",
            danger.way_round,
            quoted_where_needed(&danger.name)
        )
    });
    Err(Failure::new(Status::Refused, text).hints(hints))
}

/// Dangers as a part of a plan's text, in lines of at most `width` columns.
pub fn in_words(dangers: &[Danger], width: Option<usize>) -> Styled {
    let mut text = Styled::new();
    for danger in dangers {
        paragraph(&mut text, Style::Warning, "danger: ", &one(danger), width);
        paragraph(&mut text, Style::Plain, "  instead: ", &danger.way_round, width);
        paragraph(
            &mut text,
            Style::Plain,
            "  or all the same: ",
            &format!("--allow {}", quoted_where_needed(&danger.name)),
            width,
        );
    }
    text
}

fn one(danger: &Danger) -> String {
    let steps: Vec<String> = danger.steps.iter().map(StepId::to_string).collect();
    let word = if steps.len() == 1 { "step" } else { "steps" };
    format!("{} ({word} {}): {}", danger.name, steps.join(", "), danger.lost)
}
