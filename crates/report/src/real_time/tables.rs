//! Numbers in rows.

use penstock_model::measurement::{
    Unit,
    latency::{Comparison, Quantile, Series, Statistic, Summary, TailBound},
};
use serde::Serialize;

use super::{Source, arm, place};
use crate::{printable::one_line, shown};

/// The percentiles that have a column.
pub(super) const COLUMNS: [Statistic; 5] =
    [Statistic::P50, Statistic::P99, Statistic::P999, Statistic::P9999, Statistic::BlockMax];
/// No more rows than this.
const MOST_ROWS: usize = 200;

/// All series with their percentiles.
#[derive(Serialize)]
pub(super) struct SeriesTable {
    /// What is counted: wake-ups, or the loops of a thread that never sleeps.
    pub(super) counted: &'static str,
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<SeriesRow>,
    pub(super) left_out: usize,
}

/// One series as text, a row of the table.
#[derive(Serialize)]
pub(super) struct SeriesRow {
    pub(super) place: String,
    pub(super) detail: String,
    pub(super) n: String,
    pub(super) cells: Vec<Cell>,
    pub(super) max: String,
    pub(super) bound: String,
    /// The same in a sentence.
    pub(super) bound_detail: String,
    pub(super) spikes: String,
}

/// One percentile of a series as text, or `withheld`.
#[derive(Serialize)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) interval: String,
    /// Why something is withheld.
    pub(super) why: String,
}

/// What a column is called.
pub(super) fn column(statistic: Statistic) -> &'static str {
    match statistic {
        Statistic::BlockMax => "block max",
        other => other.name(),
    }
}

pub(super) fn series(source: &Source<'_>) -> SeriesTable {
    let all = source.latency.series.iter().filter_map(|series| Some((series, series.summary.as_ref()?)));
    let rows: Vec<SeriesRow> = all.map(|(series, summary)| row(source, series, summary)).collect();
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    let series = || source.latency.series.iter().filter(|series| series.summary.is_some());
    let wakes = |series: &Series| series.setting.tool.wakes();
    SeriesTable {
        counted: match (series().any(wakes), series().all(wakes)) {
            (_, true) => "Wake-ups",
            (true, false) => "Wake-ups or loops",
            (false, false) => "Loops",
        },
        columns: COLUMNS.map(column).to_vec(),
        rows: rows.into_iter().take(MOST_ROWS).collect(),
        left_out,
    }
}

fn row(source: &Source<'_>, series: &Series, summary: &Summary) -> SeriesRow {
    let setting = &series.setting;
    let load = if setting.load.is_loaded() { "loaded" } else { "idle" };
    let cell =
        |statistic| summary.quantile(statistic).map_or_else(nothing, |quantile| cell(source, quantile));
    let bound = summary.bound.as_ref();
    SeriesRow {
        place: format!("{} CPU {}, {}", place(setting), setting.cpu, arm(setting)),
        detail: format!("{}, {load}, {}", setting.tool, setting.power),
        n: match setting.tool.wakes() {
            true => shown::count(summary.n),
            false => format!("{} loops", shown::count(summary.n)),
        },
        cells: COLUMNS.map(cell).into_iter().collect(),
        max: summary.max.map(|max| source.time(max)).unwrap_or_else(|| "–".to_owned()),
        bound: bound.map(|bound| format!("all but 1 in {}", one_in(bound.wake_ups))).unwrap_or_default(),
        bound_detail: bound.map(|bound| sentence(source, bound)).unwrap_or_default(),
        spikes: match (summary.spike_blocks_per_minute(), summary.spike_blocks) {
            (Some(_), Some(0)) => "none".to_owned(),
            (Some(rate), Some(blocks)) => {
                format!("{} ({blocks} of {})", shown::number(rate), summary.blocks)
            }
            _ => "–".to_owned(),
        },
    }
}

/// A small share as what it is one of, rounded down, so that nothing is promised that was not proven.
pub(super) fn one_in(share: f64) -> String {
    let one_in = (1.0 / share * (1.0 + 1e-9)).floor();
    if one_in.is_finite() { shown::count(one_in as u64) } else { "∞".to_owned() }
}

/// What a maximum allows to be said.
pub(super) fn sentence(source: &Source<'_>, bound: &TailBound) -> String {
    format!(
        "Below {} with {} % confidence for all but 1 in {} wake-ups, if they are independent of each other; and for all of the \
         wake-ups in all but 1 in {} blocks, which is safer, since late ones come together.",
        source.time(bound.below),
        shown::trimmed(bound.confidence * 100.0),
        one_in(bound.wake_ups),
        shown::number(1.0 / bound.blocks)
    )
}

fn nothing() -> Cell {
    Cell { text: "–".to_owned(), interval: String::new(), why: String::new() }
}

fn cell(source: &Source<'_>, quantile: &Quantile) -> Cell {
    let why = quantile.why.as_deref().map(one_line).unwrap_or_default();
    match (&quantile.value, quantile.alone) {
        (Some(value), _) => {
            let scaled = shown::scaled(Unit::Microseconds, value.value());
            let number = |value: f64| shown::number(value / scaled.factor);
            let interval = match value.low() == value.high() {
                true => String::new(),
                false => format!("[{}, {}]", number(value.low()), number(value.high())),
            };
            Cell { text: source.time(value.value()), interval, why }
        }
        (None, Some(alone)) => Cell { text: source.time(alone), interval: String::new(), why },
        (None, None) => Cell { text: "withheld".to_owned(), interval: String::new(), why },
    }
}

/// One comparison of two series as text, a row of the table.
#[derive(Serialize)]
pub(super) struct ComparisonRow {
    pub(super) other: String,
    pub(super) base: String,
    pub(super) statistic: &'static str,
    pub(super) ratio: String,
    pub(super) interval: String,
    pub(super) null: String,
    pub(super) pairs: u32,
    pub(super) why: String,
    /// `doubt`: the A/A interval does not hold 1; `same`: no difference can be told.
    pub(super) class: &'static str,
}

/// At most so many comparisons, and how many more there are.
pub(super) fn comparisons(source: &Source<'_>) -> (Vec<ComparisonRow>, usize) {
    let all = &source.latency.comparisons;
    let rows = all.iter().take(MOST_ROWS).map(|one| comparison(source, one)).collect();
    (rows, all.len().saturating_sub(MOST_ROWS))
}

fn comparison(source: &Source<'_>, one: &Comparison) -> ComparisonRow {
    let parts = |text: String| match text.split_once(' ') {
        Some((value, interval)) => (value.to_owned(), interval.to_owned()),
        None => (text, String::new()),
    };
    let (ratio, interval) = one
        .ratio
        .as_ref()
        .map(|ratio| parts(shown::ratio(ratio)))
        .map_or((String::new(), String::new()), |(ratio, interval)| (format!("{ratio} ×"), interval));
    ComparisonRow {
        other: source.label(&one.other),
        base: source.label(&one.base),
        statistic: column(one.statistic),
        class: match (one.null_holds(), &one.ratio) {
            (Some(false), _) => "doubt",
            (_, Some(ratio)) if ratio.spans(1.0) => "same",
            _ => "",
        },
        ratio,
        interval,
        null: one.null.as_ref().map(shown::ratio).unwrap_or_else(|| "not measured".to_owned()),
        pairs: one.pairs,
        why: one.why.as_deref().map(one_line).unwrap_or_default(),
    }
}
