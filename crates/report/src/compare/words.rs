//! A comparison as Markdown, and as a few lines for a terminal.

use std::fmt::{self, Write};

use penstock_model::measurement::run_comparison::{Direction, Fact, RunComparison, Turn, Untold};

use super::view;
use crate::{markdown_text::plain, printable::one_line};

/// No more rows than this in one table.
const MOST_ROWS: usize = 500;
/// No more lines than this in a part of the summary.
const MOST_LINES: usize = 12;

/// The comparison as Markdown.
pub fn markdown(comparison: &RunComparison) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, comparison);
    text
}

fn write(to: &mut String, comparison: &RunComparison) -> fmt::Result {
    let (head, explanation) = view::sentence(comparison);
    writeln!(to, "# {} against {}\n", plain(&comparison.b.id), plain(&comparison.a.id))?;
    writeln!(to, "**{head}**: {explanation}.\n")?;
    writeln!(to, "A is {}, B is {}; ratios are B over A.\n", run(&comparison.a), run(&comparison.b))?;
    for note in &comparison.notes {
        writeln!(to, "> {}\n", plain(note))?;
    }
    turns(to, "Outcomes that differ", &comparison.outcomes)?;
    list(to, "In one run alone", &comparison.unpaired)?;
    turns(to, "Expectations that came out differently", &comparison.rulings)?;
    turns(to, "Verdicts that came out differently", &comparison.verdicts)?;
    if let Some(cells) = &comparison.cells {
        writeln!(to, "## Measurements\n\n{}\n", view::chance(cells))?;
        for (title, direction) in [
            ("Worse", Direction::Worse),
            ("Better", Direction::Better),
            ("Perhaps worse, perhaps chance", Direction::PerhapsWorse),
            ("Perhaps better, perhaps chance", Direction::PerhapsBetter),
            ("The same", Direction::Same),
        ] {
            changes(to, title, &view::changes(cells, direction))?;
        }
        let why = |list: &[Untold]| -> Vec<String> {
            list.iter().map(|untold| format!("{}: {}", untold.cell, untold.why)).collect()
        };
        list(to, "Missing in B", &why(&cells.lost))?;
        list(to, "Missing in A", &why(&cells.found))?;
        list(to, "Not comparable", &why(&cells.untold))?;
        list(to, "Missing in both", &why(&cells.missing))?;
        list(to, "Only in A", &cells.only_a)?;
        list(to, "Only in B", &cells.only_b)?;
    }
    writeln!(to, "## What the runs were made with\n\n| what | A | B | |\n|---|---|---|---|")?;
    for fact in &comparison.facts {
        let value = |value: &Option<String>| value.as_deref().map_or("not reported".to_owned(), plain);
        writeln!(to, "| {} | {} | {} | {} |", plain(&fact.what), value(&fact.a), value(&fact.b), same(fact))?;
    }
    Ok(())
}

fn run(name: &penstock_model::measurement::run_comparison::RunName) -> String {
    match name.started.as_str() {
        "" => plain(&name.id),
        started => format!("{} of {}", plain(&name.id), plain(started)),
    }
}

/// How two values of a fact stand to each other.
pub(super) fn same(fact: &Fact) -> &'static str {
    match fact.same() {
        Some(true) => "the same",
        Some(false) => "**different**",
        None => "cannot be told",
    }
}

fn turns(to: &mut String, title: &str, turns: &[Turn]) -> fmt::Result {
    if turns.is_empty() {
        return Ok(());
    }
    writeln!(to, "## {title}\n\n| | what | A | B |\n|---|---|---|---|")?;
    for turn in turns.iter().take(MOST_ROWS) {
        let value = |value: &Option<String>| value.as_deref().map_or("not there".to_owned(), plain);
        let mark = if turn.worse { "worse" } else { "" };
        writeln!(to, "| {mark} | {} | {} | {} |", plain(&turn.what), value(&turn.a), value(&turn.b))?;
    }
    more(to, turns.len())
}

fn changes(
    to: &mut String,
    title: &str,
    changes: &[&penstock_model::measurement::run_comparison::Change],
) -> fmt::Result {
    if changes.is_empty() {
        return Ok(());
    }
    writeln!(to, "### {title}\n")?;
    writeln!(
        to,
        "| cell | | A | B | B/A | interval | samples | by chance |\n|---|---|--:|--:|--:|---|---|--:|"
    )?;
    for change in changes.iter().take(MOST_ROWS) {
        let row = view::shown(change);
        writeln!(
            to,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            plain(&row.cell),
            row.metric,
            row.a,
            row.b,
            row.ratio,
            plain(&row.interval),
            row.samples,
            plain(&row.chance)
        )?;
    }
    more(to, changes.len())
}

fn list(to: &mut String, title: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(to, "### {title}\n")?;
    for line in lines.iter().take(MOST_ROWS) {
        writeln!(to, "- {}", plain(line))?;
    }
    more(to, lines.len())
}

fn more(to: &mut String, all: usize) -> fmt::Result {
    match all.saturating_sub(MOST_ROWS) {
        0 => writeln!(to),
        left => writeln!(to, "\nand {left} more\n"),
    }
}

/// Plain text for a terminal: the sentence, what differs in what the runs were made with, and what changed.
pub fn summary(comparison: &RunComparison) -> String {
    let (head, explanation) = view::sentence(comparison);
    let mut lines = vec![
        format!("{} (B) against {} (A)", one_line(&comparison.b.id), one_line(&comparison.a.id)),
        format!("{head}: {explanation}"),
    ];
    let different: Vec<&str> = comparison
        .facts
        .iter()
        .filter(|fact| fact.same() == Some(false))
        .map(|fact| fact.what.as_str())
        .collect();
    match different.as_slice() {
        [] => {}
        all => lines.push(format!(
            "different: {}",
            all.iter().map(|what| one_line(what)).collect::<Vec<_>>().join("; ")
        )),
    }
    let turned = |turn: &Turn| {
        let value = |value: &Option<String>| value.as_deref().map_or("not there".to_owned(), one_line);
        let mark = if turn.worse { "worse " } else { "" };
        format!("  {mark}{}: {} -> {}", one_line(&turn.what), value(&turn.a), value(&turn.b))
    };
    // What got worse first: no more lines are shown than fit.
    let mut turns: Vec<&Turn> = comparison.turns().collect();
    turns.sort_by_key(|turn| !turn.worse);
    part(&mut lines, turns.into_iter().map(turned).collect());
    if let Some(cells) = &comparison.cells {
        for (word, direction) in [("worse", Direction::Worse), ("better", Direction::Better)] {
            let rows = view::changes(cells, direction).into_iter().map(|change| {
                let row = view::shown(change);
                format!(
                    "  {word:6} {:.3} {}  {} {}: {} -> {}",
                    change.ratio.value(),
                    row.interval,
                    one_line(&row.cell),
                    row.metric,
                    row.a,
                    row.b
                )
            });
            part(&mut lines, rows.collect());
        }
        let lost = cells
            .lost
            .iter()
            .map(|lost| format!("  missing {}: {}", one_line(&lost.cell), one_line(&lost.why)));
        part(&mut lines, lost.collect());
        for (count, what) in [
            (cells.found.len(), "were missing in A and are measured in B"),
            (cells.untold.len(), "cannot be compared"),
            (cells.missing.len(), "are missing in both"),
            (cells.only_a.len(), "are only in A"),
            (cells.only_b.len(), "are only in B"),
        ] {
            if count > 0 {
                lines.push(format!("  cells that {what}: {count}"));
            }
        }
        if !cells.changes.is_empty() {
            lines.push(view::chance(cells));
        }
    }
    lines.extend(comparison.notes.iter().map(|note| format!("note: {}", one_line(note))));
    lines.join("\n") + "\n"
}

fn part(lines: &mut Vec<String>, mut rows: Vec<String>) {
    if rows.len() > MOST_LINES {
        let left = rows.len() - (MOST_LINES - 1);
        rows.truncate(MOST_LINES - 1);
        rows.push(format!("  and {left} more"));
    }
    lines.extend(rows);
}
