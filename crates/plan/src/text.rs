//! All steps of a plan in order, as text for people: what each does, why, after which others, and how it is taken back.

use std::fmt;

use penstock_model::{
    Inventory,
    text::{Style, Styled, paragraph},
};

use crate::{
    Plan, Step, StepId,
    names::Names,
    way_back::{WayBack, way_back},
};

/// Numbered steps, functions named by their addresses, in lines of any length, then the notes.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Styled::new();
        write(&mut out, self, &Names::default(), None);
        out.fmt(f)
    }
}

impl Plan {
    /// The steps in order, functions named as the model does, in lines of at most `width` columns (`None`: of any length).
    pub fn steps_in_words(&self, inventory: &Inventory, width: Option<usize>) -> Styled {
        let mut out = Styled::new();
        write(&mut out, self, &Names::of(self, inventory), width);
        out
    }
}

fn write(out: &mut Styled, plan: &Plan, names: &Names, width: Option<usize>) {
    for (nic, bdf) in &plan.nics {
        out.plain(format!("{nic} is {bdf}\n"));
    }
    if plan.steps.is_empty() {
        out.plain("nothing to do\n");
    }
    let digits = plan.steps.last().map_or(1, |step| step.id.to_string().len());
    for step in &plan.steps {
        let number = format!("{:>digits$}. ", step.id.0);
        paragraph(out, Style::Bold, &number, &step.action.named(names), width);
        let indent = " ".repeat(digits + 2);
        let mut part = |what: &str, text: &str| {
            paragraph(out, Style::Plain, &format!("{indent}{what:<7}"), text, width);
        };
        part("why:", &step.reason);
        if !step.needs.is_empty() {
            part("needs:", &steps(&step.needs));
        }
        part("undo:", &undo(plan, step, names));
        part("then:", &step.postcondition.named(names));
        if step.best_effort {
            paragraph(
                out,
                Style::Plain,
                &format!("{indent}best effort: "),
                "passed over where the driver cannot",
                width,
            );
        }
    }
    for note in &plan.notes {
        paragraph(out, Style::Plain, "note: ", note, width);
    }
}

/// How a step is taken back, in words.
fn undo(plan: &Plan, step: &Step, names: &Names) -> String {
    match way_back(plan, step) {
        WayBack::Inverse(action) => action.named(names),
        WayBack::With(id, why) => format!("with step {id}: {why}"),
        WayBack::None(why) => format!("none: {why}"),
    }
}

fn steps(ids: &[StepId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
