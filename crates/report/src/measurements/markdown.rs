//! The measurements as Markdown: what was expected, the heat maps, the penalties, what is missing. The rest is on the page
//! and in the JSON.

use std::fmt::{self, Write};

use penstock_model::measurement::Counts;

use super::{Source, finding, heat, missing, penalties, published, shown};
use crate::{Evidence, markdown_text::plain, rulings, section};

/// No more rows than this in one table.
const MOST_ROWS: usize = 40;
/// No more tables of penalties than this.
const MOST_TABLES: usize = 12;

/// Writes nothing when nothing was to be measured.
pub(crate) fn write(to: &mut String, evidence: &Evidence) -> fmt::Result {
    let Some(source) = Source::of(evidence) else { return Ok(()) };
    let measurements = source.measurements;
    let Counts { measured, missing, not_reached } = measurements.counts();
    let not_reached = match not_reached {
        0 => String::new(),
        some => format!(", {} not reached before the run was over", shown::count(some as u64)),
    };
    let lead = format!(
        "{} measured, {} missing{not_reached}. Numbers are medians; what stands in brackets is the {} interval.",
        shown::many(measured, "cell"),
        shown::count(missing as u64),
        section::confidence(measurements.rules.confidence)
    );
    let findings = finding::findings(&source);
    section::begin(to, "Measurements", measurements.emulated, &findings, &lead, &measurements.notes)?;
    rulings::table(to, "What was expected", &source, &measurements.rulings)?;
    for map in heat::maps(&source) {
        let rows = map.rows.iter().map(|row| (format!("{} {}", row.head, row.detail), row.texts()));
        writeln!(to, "### {}\n\n{}\n", plain(&map.title), plain(&map.about))?;
        let columns = map
            .columns
            .iter()
            .map(|column| format!("{} {}", column.head, column.detail).trim_end().to_owned());
        table(
            to,
            &map.corner,
            &columns.collect::<Vec<_>>(),
            rows.collect(),
            [map.left_out, map.columns_left_out],
        )?;
    }
    let view = penalties::view(&source);
    if view.doubtful > 0 {
        writeln!(
            to,
            "**Warning:** beside {} the same measured twice differs from itself (A/A, marked !). Do not trust what is marked.\n",
            shown::many(view.doubtful, "comparison")
        )?;
    }
    for penalty in view.tables.iter().take(MOST_TABLES) {
        writeln!(
            to,
            "### Penalty: {}\n\nIn {}, positive is worse; base: {}.\n",
            plain(&penalty.title),
            penalty.metric,
            plain(&penalty.base)
        )?;
        let rows = penalty.rows.iter().map(|row| {
            let cells = row.cells.iter().map(|cell| match (cell.class, cell.interval.is_empty()) {
                (_, true) => cell.text.clone(),
                ("doubt", _) => format!("! {} {}", cell.text, cell.interval),
                ("same", _) => format!("({} {})", cell.text, cell.interval),
                _ => format!("{} {}", cell.text, cell.interval),
            });
            (format!("{} {}", row.head, row.detail), cells.collect())
        });
        table(
            to,
            penalty.corner,
            &penalty.columns,
            rows.collect(),
            [penalty.left_out, penalty.columns_left_out],
        )?;
    }
    if !view.tables.is_empty() {
        writeln!(to, "In parentheses: the interval holds 0, so that no difference can be told.\n")?;
    }
    if !view.unplaced.is_empty() {
        let more = match view.unplaced_more {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let unplaced = plain(&view.unplaced.join("; "));
        writeln!(to, "Compared, and of cells that are not in this evidence: {unplaced}{more}.\n")?;
    }
    if view.tables.len() > MOST_TABLES {
        writeln!(
            to,
            "And {}; the JSON has every comparison.\n",
            shown::many(view.tables.len() - MOST_TABLES + view.left_out, "more table")
        )?;
    }
    if let Some(published) = published::view(&source) {
        let emulated = Some(published::EMULATED).filter(|_| measurements.emulated);
        let emulated = emulated.map(|emulated| format!(" **{emulated}**")).unwrap_or_default();
        writeln!(
            to,
            "### Published elsewhere\n\n{} Theirs: {}: {}.{emulated}\n",
            published::ABOUT,
            plain(published::WHO),
            published::HOW
        )?;
        let rows = published.rows.into_iter();
        let rows = rows.map(|row| (row.what.to_owned(), vec![row.theirs, row.with_nat, row.bridge]));
        table(to, "VF ÷ bridge in the VM", &published::COLUMNS.map(str::to_owned), rows.collect(), [0, 0])?;
    }
    let reasons = missing::cells(&source);
    if !reasons.is_empty() {
        writeln!(to, "### What is missing\n")?;
        for reason in reasons {
            writeln!(to, "- {}: {}", reason.count, plain(&reason.why))?;
        }
        writeln!(to)?;
    }
    Ok(())
}

fn table(
    to: &mut String,
    corner: &str,
    columns: &[String],
    rows: Vec<(String, Vec<String>)>,
    [left_out, columns_left_out]: [usize; 2],
) -> fmt::Result {
    write!(to, "| {} |", plain(corner))?;
    for column in columns {
        write!(to, " {} |", plain(column))?;
    }
    writeln!(to, "\n|---|{}", "--:|".repeat(columns.len()))?;
    for (head, cells) in rows.iter().take(MOST_ROWS) {
        write!(to, "| {} |", plain(head.trim()))?;
        for cell in cells {
            write!(to, " {} |", plain(cell))?;
        }
        writeln!(to)?;
    }
    let left_out = left_out + rows.len().saturating_sub(MOST_ROWS);
    if left_out > 0 {
        writeln!(to, "\nAnd {}; the JSON has them all.", shown::many(left_out, "more row"))?;
    }
    if columns_left_out > 0 {
        writeln!(to, "\nAnd {}; the JSON has them all.", shown::many(columns_left_out, "more column"))?;
    }
    writeln!(to)
}
