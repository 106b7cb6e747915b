//! Evidence as Markdown (GitHub's dialect, for its tables).

use std::fmt::{self, Write};

use penstock_model::{Verdict, text::counted};

use crate::{
    Evidence, Group, MachineGuest, audit, machine::kind_word, markdown_text::plain, measurements, origin,
    printable::printable, reach, real_time, seconds, sentence::sentence,
};

/// No more rows than this in a table of what does not hold.
const MOST_ROWS: usize = 500;

/// The evidence as Markdown: what does not hold in full, the rest in counts.
pub fn markdown(evidence: &Evidence) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, evidence);
    text
}

fn write(to: &mut String, evidence: &Evidence) -> fmt::Result {
    let machine = &evidence.machine;
    writeln!(to, "# {}\n", plain(&machine.name))?;
    writeln!(to, "**{}**\n", plain(&sentence(evidence)))?;
    if machine.emulated {
        writeln!(to, "The machine is emulated: what it shows of speed is worth nothing outside it.\n")?;
    }
    for note in &evidence.notes {
        writeln!(to, "> {}\n", plain(note))?;
    }
    guests(to, &machine.guests)?;
    let groups = evidence.groups();
    if !groups.is_empty() || !evidence.has_more_than_verdicts() {
        verdicts(to, &groups)?;
    }
    paths(to, evidence)?;
    measurements::markdown::write(to, evidence)?;
    real_time::markdown::write(to, evidence)?;
    audit::markdown(to, evidence)?;
    steps(to, evidence)?;
    phases(to, evidence)?;
    provenance(to, evidence)?;
    if let Some(log) = &evidence.serial_log {
        writeln!(to, "\n## Serial console\n")?;
        fenced(to, "text", log)?;
    }
    Ok(())
}

fn guests(to: &mut String, guests: &[MachineGuest]) -> fmt::Result {
    if guests.is_empty() {
        return Ok(());
    }
    writeln!(to, "## Who owns what\n")?;
    writeln!(to, "| guest | kind | functions |\n|---|---|---|")?;
    for guest in guests {
        writeln!(
            to,
            "| {} | {} | {} |",
            plain(guest.name.as_str()),
            kind_word(guest.kind),
            plain(&guest.owns())
        )?;
    }
    writeln!(to)
}

fn verdicts(to: &mut String, groups: &[Group<'_>]) -> fmt::Result {
    writeln!(to, "## Verdicts\n")?;
    if groups.is_empty() {
        return writeln!(to, "Nothing was verified.\n");
    }
    writeln!(to, "| about | pass | fail | unsupported | unknown |\n|---|--:|--:|--:|--:|")?;
    for group in groups {
        let counts = group.counts;
        writeln!(
            to,
            "| {} | {} | {} | {} | {} |",
            plain(&group.name.to_string()),
            counts.pass,
            counts.fail,
            counts.unsupported,
            counts.unknown
        )?;
    }
    writeln!(to)?;
    let bad: Vec<&Verdict> = (groups.iter().flat_map(|group| &group.verdicts).copied())
        .filter(|verdict| !verdict.holds())
        .collect();
    if bad.is_empty() {
        return Ok(());
    }
    writeln!(to, "### What does not hold\n")?;
    writeln!(to, "| subject | attribute | from | wanted | seen | outcome |\n|---|---|---|---|---|---|")?;
    for verdict in bad.iter().take(MOST_ROWS) {
        writeln!(
            to,
            "| {} | {} | {} | {} | {} | **{}** |",
            plain(&verdict.subject.to_string()),
            plain(&verdict.attribute),
            plain(&verdict.vantage.to_string()),
            plain(&verdict.wanted),
            plain(&verdict.seen),
            verdict.outcome
        )?;
    }
    if bad.len() > MOST_ROWS {
        writeln!(to, "\nAnd {} more; the JSON has them all.", bad.len() - MOST_ROWS)?;
    }
    writeln!(to)
}

fn paths(to: &mut String, evidence: &Evidence) -> fmt::Result {
    let Some(matrix) = reach::matrix(evidence) else {
        return Ok(());
    };
    writeln!(to, "## Reachability\n")?;
    writeln!(
        to,
        "From the row to the column: ✓ arrives as wanted, · isolated as wanted, ✗ should arrive and does"
    )?;
    write!(to, "not, ! arrives and should not, ? could not be seen, – unsupported")?;
    match &matrix.not_judged {
        Some(words) => writeln!(to, ",\nempty: {words}.\n")?,
        None => writeln!(to, ".\n")?,
    }
    write!(to, "| |")?;
    for end in &matrix.ends {
        write!(to, " {} |", plain(&end.name))?;
    }
    writeln!(to, "\n|---|{}", ":-:|".repeat(matrix.ends.len()))?;
    for (end, row) in matrix.ends.iter().zip(&matrix.cells) {
        write!(to, "| {} |", plain(&end.name))?;
        for cell in row {
            write!(to, " {} |", cell.mark().0)?;
        }
        writeln!(to)?;
    }
    if matrix.ends_left_out > 0 {
        writeln!(to, "\nAnd {}; the JSON has every path.", counted(matrix.ends_left_out, "more NIC"))?;
    }
    writeln!(to)
}

fn steps(to: &mut String, evidence: &Evidence) -> fmt::Result {
    if evidence.steps.is_empty() {
        return Ok(());
    }
    writeln!(to, "## Steps of the plan\n")?;
    writeln!(to, "| step | what | why | time | outcome |\n|--:|---|---|--:|---|")?;
    for step in &evidence.steps {
        let detail = step.detail.as_deref().map(|detail| format!(": {}", plain(detail)));
        writeln!(
            to,
            "| {} | {} | {} | {} | {}{} |",
            step.id,
            plain(&step.what),
            plain(&step.why),
            step.took.map(seconds::text).unwrap_or_default(),
            step.outcome.word(),
            detail.unwrap_or_default()
        )?;
    }
    writeln!(to)
}

fn phases(to: &mut String, evidence: &Evidence) -> fmt::Result {
    if evidence.phases.is_empty() {
        return Ok(());
    }
    writeln!(to, "## Where the time went\n")?;
    writeln!(to, "| phase | time |\n|---|--:|")?;
    for phase in &evidence.phases {
        writeln!(to, "| {} | {} |", plain(&phase.name), seconds::text(phase.took))?;
    }
    writeln!(to, "| **whole run** | **{}** |\n", seconds::text(evidence.run.took))
}

fn provenance(to: &mut String, evidence: &Evidence) -> fmt::Result {
    writeln!(to, "## Where this comes from\n")?;
    writeln!(to, "| what | value |\n|---|---|")?;
    for (what, value) in origin::rows(evidence) {
        writeln!(to, "| {what} | {} |", plain(&value))?;
    }
    Ok(())
}

/// Text in a fence longer than any run of backticks in it.
fn fenced(to: &mut String, language: &str, text: &str) -> fmt::Result {
    let text = printable(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    writeln!(to, "{fence}{language}\n{}\n{fence}", text.trim_end())
}
