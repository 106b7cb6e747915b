//! Latencies as Markdown: claims, percentiles, comparisons. The charts are on the page, every bin is in the JSON.

use std::fmt::{self, Write};

use super::{Source, finding, label, lead, tables, why_missing};
use crate::{Evidence, markdown_text::plain, rulings, section, shown};

/// Writes nothing when no latencies were to be measured.
pub(crate) fn write(to: &mut String, evidence: &Evidence) -> fmt::Result {
    let Some(source) = Source::of(evidence) else { return Ok(()) };
    let latency = source.latency;
    let findings = finding::findings(&source);
    section::begin(to, "Real time", latency.emulated, &findings, &plain(&lead(latency)), &latency.notes)?;
    rulings::table(to, "What was claimed", &source, &latency.rulings)?;
    let table = tables::series(&source);
    if !table.rows.is_empty() {
        write!(to, "### Latencies\n\n| series | n |")?;
        for column in &table.columns {
            write!(to, " {column} |")?;
        }
        writeln!(
            to,
            " max | bound | spike blocks a minute |\n|---|--:|{}--:|--:|--:|",
            "--:|".repeat(table.columns.len())
        )?;
        for row in &table.rows {
            write!(to, "| {}, {} | {} |", plain(&row.place), plain(&row.detail), row.n)?;
            for cell in &row.cells {
                write!(to, " {} |", plain(format!("{} {}", cell.text, cell.interval).trim()))?;
            }
            writeln!(to, " {} | {} | {} |", row.max, row.bound, row.spikes)?;
        }
        writeln!(to, "\nThe bound is of the maximum, for wake-ups that are independent of each other.\n")?;
    }
    let (compared, left_out) = tables::comparisons(&source);
    if !compared.is_empty() {
        writeln!(
            to,
            "### Compared\n\n| what | against | in | ratio | A/A | pairs |\n|---|---|---|--:|--:|--:|"
        )?;
        for row in compared {
            let doubt = if row.class == "doubt" { "! " } else { "" };
            let ratio = if row.ratio.is_empty() {
                row.why.clone()
            } else {
                format!("{doubt}{} {}", row.ratio, row.interval)
            };
            writeln!(
                to,
                "| {} | {} | {} | {} | {} | {} |",
                plain(&row.other),
                plain(&row.base),
                row.statistic,
                plain(&ratio),
                plain(&row.null),
                row.pairs
            )?;
        }
        if left_out > 0 {
            writeln!(to, "\nAnd {}; the JSON has them all.", shown::many(left_out, "more row"))?;
        }
        writeln!(to)?;
    }
    let missing: Vec<_> = latency.series.iter().filter(|series| !series.is_measured()).collect();
    if !missing.is_empty() {
        writeln!(to, "### Not measured\n")?;
        for series in missing {
            writeln!(to, "- {}: {}", plain(&label(&series.setting)), plain(&why_missing(series)))?;
        }
        writeln!(to)?;
    }
    Ok(())
}
