//! What a run came to, for a terminal.

use std::fmt::Write;

use penstock_model::Verdict;

use crate::{Evidence, StepOutcome, audit, measurements, printable::one_line, real_time, sentence::sentence};

/// No summary has more lines.
const MOST_LINES: usize = 25;
/// So many lines are kept for what does not hold, and for notes.
const LEAST_BAD: usize = 4;
/// No more groups than this get a line of their own.
const MOST_GROUPS: usize = 8;

/// Plain text of at most 25 lines: the sentence, the outcome of each group, what was measured in short, and what does not
/// hold in full.
pub fn summary(evidence: &Evidence) -> String {
    let mut lines = vec![format!(
        "{}{}",
        one_line(&evidence.machine.name),
        if evidence.machine.emulated { " (emulated)" } else { "" }
    )];
    lines.push(sentence(evidence));

    let groups = evidence.groups();
    // One line is kept for the groups that have none.
    let shown = if groups.len() > MOST_GROUPS { MOST_GROUPS - 1 } else { groups.len() };
    let width =
        groups.iter().take(shown).map(|group| group.name.to_string().chars().count()).max().unwrap_or(0);
    for group in groups.iter().take(shown) {
        let name = group.name.to_string();
        lines.push(format!("  {name:width$}  {}", group.counts));
    }
    if let Some(rest) = groups.get(shown..).filter(|rest| !rest.is_empty()) {
        let holding = rest.iter().filter(|group| group.counts.hold()).count();
        lines.push(match rest.len() - holding {
            // One alone has a line of its own.
            0 => format!("  and {} more groups that hold", rest.len()),
            1 => format!("  and {} more groups, of which 1 does not hold", rest.len()),
            bad => format!("  and {} more groups, of which {bad} do not hold", rest.len()),
        });
    }

    lines.extend(measurements::terminal::lines(evidence));
    lines.extend(real_time::terminal::lines(evidence));
    lines.extend(audit::line(evidence));
    lines.truncate(MOST_LINES - LEAST_BAD);

    let mut bad: Vec<String> = evidence
        .steps
        .iter()
        .filter(|step| step.outcome == StepOutcome::Failed)
        .map(|step| {
            let detail = step.detail.as_deref().map(|detail| format!(": {}", one_line(detail)));
            format!("step {} failed: {}{}", step.id, one_line(&step.what), detail.unwrap_or_default())
        })
        .collect();
    bad.extend(
        groups.iter().flat_map(|group| &group.verdicts).filter(|verdict| !verdict.holds()).map(|v| line(v)),
    );
    let room = MOST_LINES - lines.len() - evidence.notes.len().min(1);
    if bad.len() > room {
        let left = bad.len() - (room - 1);
        bad.truncate(room - 1);
        bad.push(format!("and {left} more"));
    }
    lines.extend(bad);
    match evidence.notes.as_slice() {
        [] => {}
        [note] => lines.push(format!("note: {}", one_line(note))),
        [note, rest @ ..] => lines.push(format!("note: {} (and {} more)", one_line(note), rest.len())),
    }
    let mut text = String::new();
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// One verdict in full.
fn line(verdict: &Verdict) -> String {
    format!(
        "{}: {} {}, {}: wanted {}, seen {}",
        verdict.outcome,
        verdict.subject,
        one_line(&verdict.attribute),
        verdict.vantage,
        one_line(&verdict.wanted),
        one_line(&verdict.seen)
    )
}
