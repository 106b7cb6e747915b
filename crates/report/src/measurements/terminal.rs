//! The measurements in a few lines for a terminal.

use penstock_model::measurement::{Conclusion, Counts};

use super::{Source, finding, missing, shown};
use crate::{Evidence, printable::clip, rulings};

/// No more lines of the model than this, and no more reasons.
const MOST_RULINGS: usize = 4;
const MOST_REASONS: usize = 2;
/// No more findings than this.
const MOST_FINDINGS: usize = 2;
/// No line is longer.
const MOST_WIDE: usize = 200;

/// A dozen lines at most; none when nothing was to be measured.
pub(crate) fn lines(evidence: &Evidence) -> Vec<String> {
    let Some(source) = Source::of(evidence) else { return Vec::new() };
    let measurements = source.measurements;
    let Counts { measured, missing, not_reached } = measurements.counts();
    let marked = if measurements.emulated { "; emulated: look at the ratios only" } else { "" };
    let not_reached = match not_reached {
        0 => String::new(),
        some => format!(", {} not reached", shown::count(some as u64)),
    };
    let mut lines = vec![format!(
        "measured: {}, {} missing{not_reached}{marked}",
        shown::many(measured, "cell"),
        shown::count(missing as u64)
    )];
    let findings = finding::findings(&source);
    lines.extend(findings.iter().take(MOST_FINDINGS).map(|finding| format!("  {finding}")));
    if findings.len() > MOST_FINDINGS {
        lines.push(format!(
            "  and {}; the report has them",
            shown::many(findings.len() - MOST_FINDINGS, "more finding")
        ));
    }
    let (told, rest) = rulings::lines(&source, &measurements.rulings, MOST_RULINGS);
    lines.extend(told);
    if !rest.is_empty() {
        let bad = rest.iter().filter(|told| **told > Conclusion::NotAsked).count();
        lines.push(format!(
            "  and {}; of these, not shown to hold: {bad}",
            shown::many(rest.len(), "more expectation")
        ));
    }
    let reasons = missing::faults(&source);
    for reason in reasons.iter().take(MOST_REASONS) {
        lines.push(format!("  missing: {}, {}", reason.count, reason.why));
    }
    if reasons.len() > MOST_REASONS {
        let rest = shown::many(reasons.len() - MOST_REASONS, "more reason");
        lines.push(format!("  missing: {rest}, in the report"));
    }
    lines.into_iter().map(|line| clip(&line, MOST_WIDE)).collect()
}
