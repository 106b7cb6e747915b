//! How every section of measurements begins, whatever was measured: the warning of an emulated machine, the main findings, what
//! was measured, the notes and what the `expect:` lines came out as.

use std::fmt::{self, Display, Write};

use penstock_model::measurement::ExpectationResult;
use serde::Serialize;

use crate::{
    markdown_text::plain,
    printable::one_line,
    rulings::{RulingView, Words, views},
    shown,
};

/// What the templates of all sections name.
#[derive(Serialize)]
pub(crate) struct Section {
    emulated: bool,
    findings: Vec<String>,
    notes: Vec<String>,
    rulings: Vec<RulingView>,
    /// How sure the intervals are: `95 %`.
    confidence: String,
}

impl Section {
    /// The section of a run with these `findings`, notes and lines.
    pub fn new<L: Display>(
        words: &impl Words<L>,
        emulated: bool,
        findings: Vec<String>,
        notes: &[String],
        rulings: &[ExpectationResult<L>],
        share: f64,
    ) -> Section {
        Section {
            emulated,
            findings,
            notes: notes.iter().map(|note| one_line(note)).collect(),
            rulings: views(words, rulings),
            confidence: confidence(share),
        }
    }
}

/// A confidence in words: `95 %`.
pub(crate) fn confidence(share: f64) -> String {
    format!("{} %", shown::trimmed(share * 100.0))
}

/// The beginning of a section of Markdown, up to the notes. `lead` says what was measured.
pub(crate) fn begin(
    to: &mut String,
    title: &str,
    emulated: bool,
    findings: &[String],
    lead: &str,
    notes: &[String],
) -> fmt::Result {
    writeln!(to, "## {title}\n")?;
    if emulated {
        writeln!(
            to,
            "The machine is emulated: look at the ratios only. Every absolute value is marked †.\n"
        )?;
    }
    for finding in findings {
        writeln!(to, "{}\n", plain(finding))?;
    }
    writeln!(to, "{lead}\n")?;
    for note in notes {
        writeln!(to, "> {}\n", plain(note))?;
    }
    Ok(())
}
