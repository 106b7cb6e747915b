//! Every cell in full: a table for each family.

use std::fmt::Write;

use penstock_model::measurement::{Cell, Measured, Metric, Sample, SampleResult, Status};
use serde::Serialize;

use super::{
    Source, anchor,
    family::{Family, line},
    shown::{self, Scaled, bytes, count, scaled},
};
use crate::printable::{clip, one_line};

/// No more cells than this are listed on one page.
const MOST_CELLS: usize = 3_000;
/// No more samples than this are drawn of one cell.
const MOST_DRAWN: usize = 60;

/// The cells of a family.
#[derive(Serialize)]
pub(crate) struct CellTable {
    title: String,
    about: String,
    main: String,
    /// The heads of the metrics beside the main one.
    metrics: Vec<String>,
    rows: Vec<CellRow>,
    left_out: usize,
}

#[derive(Serialize)]
struct CellRow {
    id: String,
    name: String,
    detail: String,
    size: String,
    missing: String,
    n: String,
    median: String,
    range: String,
    values: Vec<String>,
    stop: String,
    others: String,
    drawn: Option<Drawn>,
}

/// The samples of a cell as marks in the order taken, high where the value is high.
#[derive(Default, Serialize)]
struct Drawn {
    width: usize,
    counted: String,
    warm_up: String,
    failed: String,
    /// Samples that are not drawn.
    left_out: usize,
}

/// The metrics that a table shows beside the main one, in this order.
const COLUMNS: [(Metric, &str); 18] = [
    (Metric::Transactions, "round trips"),
    (Metric::Throughput, "received"),
    (Metric::Sent, "sent"),
    (Metric::Loss, "lost"),
    (Metric::Jitter, "jitter"),
    (Metric::Iops, "operations"),
    (Metric::Bandwidth, "bandwidth"),
    (Metric::P50, "p50"),
    (Metric::P90, "p90"),
    (Metric::P99, "p99"),
    (Metric::P999, "p99.9"),
    (Metric::Max, "longest"),
    (Metric::LocalCpu, "CPU client"),
    (Metric::RemoteCpu, "CPU server"),
    (Metric::GuestCpuPerGbit, "CPU time of the VM"),
    (Metric::HostCpuPerGbit, "CPU time of the host"),
    (Metric::GuestInstructionsPerFrame, "instructions of the VM"),
    (Metric::HostInstructionsPerFrame, "instructions of the host"),
];

pub(crate) fn tables(source: &Source<'_>) -> Vec<CellTable> {
    let mut room = MOST_CELLS;
    let mut tables = Vec::new();
    for family in &source.families {
        let shown = room.min(family.all.len());
        room -= shown;
        tables.push(table(source, family, shown));
    }
    tables
}

fn table(source: &Source<'_>, family: &Family<'_>, shown: usize) -> CellTable {
    let cells = || family.all.iter().map(|place| source.cell(*place));
    let main = cells().next().map_or(Metric::P50, |cell| cell.measurement.main_metric());
    let told = |metric: Metric| {
        let withheld =
            |measured: &Measured| measured.withheld.iter().any(|withheld| withheld.metric == metric);
        cells().any(|cell| cell.summary(metric).is_some() || cell.measured().is_some_and(withheld))
    };
    let columns: Vec<(Metric, &str, Scaled)> = COLUMNS
        .into_iter()
        .filter(|(metric, _)| *metric != main && told(*metric))
        .map(|(metric, head)| (metric, head, unit(source, family, metric)))
        .collect();
    let missing = cells().filter(|cell| cell.measured().is_none()).count();
    let missing = if missing == 0 { String::new() } else { format!(", {missing} missing") };
    let with_unit = |head: &str, scaled: Scaled| match scaled.unit {
        "" => head.to_owned(),
        unit => format!("{head}, {unit}"),
    };
    let main_unit = unit(source, family, main);
    CellTable {
        title: family.kind.title(),
        about: format!("{}{missing}", shown::many(family.all.len(), "cell")),
        main: with_unit(super::metric_word(main), main_unit),
        metrics: columns.iter().map(|(_, head, scaled)| with_unit(head, *scaled)).collect(),
        rows: (family.all.iter().take(shown))
            .map(|place| row(source, *place, main, main_unit, &columns))
            .collect(),
        left_out: family.all.len() - shown,
    }
}

/// One unit for a column, so that its numbers can be compared.
fn unit(source: &Source<'_>, family: &Family<'_>, metric: Metric) -> Scaled {
    let cells = family.all.iter().filter_map(|place| source.cell(*place).summary(metric));
    let mut medians: Vec<f64> = cells.map(|summary| summary.median).filter(|m| m.is_finite()).collect();
    medians.sort_by(f64::total_cmp);
    scaled(metric.unit(), medians.get(medians.len() / 2).copied().unwrap_or(0.0))
}

fn row(
    source: &Source<'_>,
    place: usize,
    main: Metric,
    unit: Scaled,
    columns: &[(Metric, &str, Scaled)],
) -> CellRow {
    let cell = source.cell(place);
    let of = line(&cell.measurement);
    let again = if cell.null { " (A/A)" } else { "" };
    let mut row = CellRow {
        id: anchor(place),
        name: format!("{}{again}", of.name()),
        detail: of.detail(),
        size: bytes(cell.measurement.size()),
        missing: String::new(),
        n: String::new(),
        median: String::new(),
        range: String::new(),
        values: Vec::new(),
        stop: String::new(),
        others: String::new(),
        drawn: None,
    };
    let measured = match &cell.status {
        Status::Missing { why, .. } => {
            row.missing = clip(&one_line(why), 200);
            return row;
        }
        Status::Measured(measured) => measured,
    };
    if let Some(summary) = cell.summary(main) {
        row.n = count(summary.n);
        row.median = match &summary.interval {
            Some(interval) => {
                let bare = |value: f64| shown::number(value / unit.factor);
                let (low, high) = (bare(interval.low()), bare(interval.high()));
                format!("{} [{low}, {high}]", source.shown.bare(summary.median, unit))
            }
            None => format!("{} [too few]", source.shown.bare(summary.median, unit)),
        };
        row.range = format!(
            "{} to {}",
            shown::number(summary.min / unit.factor),
            source.shown.bare(summary.max, unit)
        );
    }
    row.values = columns.iter().map(|(metric, _, scaled)| value(source, cell, *metric, *scaled)).collect();
    row.stop = measured.stop.to_string();
    row.others = others(measured);
    row.drawn = drawn(measured, main);
    row
}

/// The median of a metric, the greatest of the longest, or why a percentile is not told.
fn value(source: &Source<'_>, cell: &Cell, metric: Metric, scaled: Scaled) -> String {
    if let Some(summary) = cell.summary(metric) {
        let value = if metric == Metric::Max { summary.max } else { summary.median };
        return source.shown.bare(value, scaled);
    }
    let withheld = cell.measured().and_then(|m| m.withheld.iter().find(|withheld| withheld.metric == metric));
    withheld.map_or_else(
        || "—".to_owned(),
        |withheld| format!("({}/{})", count(withheld.have), count(withheld.need)),
    )
}

/// The samples that do not count, by their kind.
fn others(measured: &Measured) -> String {
    let warm_up = measured.samples.iter().filter(|sample| sample.warm_up).count();
    let failed = measured.samples.iter().filter(|sample| !sample.warm_up && is_failed(sample)).count();
    let mut text = String::new();
    if warm_up > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, "+{warm_up} warm-up");
    }
    if failed > 0 {
        let _ = write!(text, "{}{failed} failed", if warm_up > 0 { ", " } else { "" });
    }
    text
}

fn is_failed(sample: &Sample) -> bool {
    matches!(sample.taken, SampleResult::Missing(_))
}

/// The samples from the least to the greatest value in a strip that is 14 pixels high.
fn drawn(measured: &Measured, metric: Metric) -> Option<Drawn> {
    let values =
        || measured.samples.iter().filter_map(|sample| sample.value(metric)).filter(|v| v.is_finite());
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    if least > most {
        return None;
    }
    let span = if most > least { most - least } else { 1.0 };
    let mut drawn = Drawn { left_out: measured.samples.len().saturating_sub(MOST_DRAWN), ..Drawn::default() };
    for (place, sample) in measured.samples.iter().take(MOST_DRAWN).enumerate() {
        let x = place * 6 + 3;
        drawn.width = x + 3;
        // Writing to a string cannot fail.
        let _ = match sample.value(metric).filter(|value| value.is_finite()) {
            None => write!(drawn.failed, "M{} 5l4 4m0-4l-4 4", x - 2),
            Some(value) => {
                // The span of values at both ends of what a number can be is no number.
                let part = Some((value - least) / span).filter(|part| part.is_finite()).unwrap_or(0.5);
                let y = 12.0 - part * 10.0;
                let path = if sample.warm_up { &mut drawn.warm_up } else { &mut drawn.counted };
                write!(path, "M{x} {y:.0}h0")
            }
        };
    }
    Some(drawn)
}
