//! A plan as text for people.

use std::fmt;

use crate::{Plan, Step};

/// Numbered steps, each with its reason, its undo and what holds afterwards, then the notes.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nic, bdf) in &self.nics {
            writeln!(f, "{nic} is {bdf}")?;
        }
        if self.steps.is_empty() {
            writeln!(f, "nothing to do")?;
        }
        let width = self.steps.last().map_or(1, |step| step.id.to_string().len());
        for step in &self.steps {
            write_step(f, step, width)?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

impl Plan {
    /// The plan as text for people; the same as its `Display`.
    pub fn render(&self) -> String {
        self.to_string()
    }
}

fn write_step(f: &mut fmt::Formatter<'_>, step: &Step, width: usize) -> fmt::Result {
    writeln!(f, "{:>width$}. {}", step.id.0, step.action)?;
    let indent = width + 2;
    writeln!(f, "{:indent$}why:   {}", "", step.reason)?;
    if !step.needs.is_empty() {
        let needs: Vec<String> = step.needs.iter().map(ToString::to_string).collect();
        writeln!(f, "{:indent$}needs: {}", "", needs.join(", "))?;
    }
    match &step.inverse {
        Some(inverse) => writeln!(f, "{:indent$}undo:  {inverse}", "")?,
        None => writeln!(f, "{:indent$}undo:  none", "")?,
    }
    writeln!(f, "{:indent$}then:  {}", "", step.postcondition)?;
    if step.best_effort {
        writeln!(f, "{:indent$}best effort: passed over where the driver cannot", "")?;
    }
    Ok(())
}
