//! Values against sizes: a chart for each protocol or kind of access, and one for each kind of ends where there are several.

use std::collections::BTreeMap;

use penstock_model::measurement::{Metric, Unit};
use serde::Serialize;

use super::{
    Charts, Source,
    family::{Family, Kind, Line, names, styles},
    metric_word,
    shown::{Scaled, bytes, scaled},
};
use crate::{
    charts::{
        Key, Plot,
        line_chart::{self, LineChart, LinePoint},
    },
    printable::clip,
};

/// No more lines than this in one chart.
const MOST_LINES: usize = 10;
/// No more characters of a line's name than fit beside the chart.
const MOST_NAME: usize = 19;

/// The charts of one family.
#[derive(Serialize)]
pub(crate) struct SizeCharts {
    id: String,
    title: String,
    /// Whether its charts stand in a details element: storage has many.
    folded: bool,
    #[serde(flatten)]
    charts: Charts,
    left_out: usize,
}

pub(crate) fn charts(source: &Source<'_>) -> Vec<SizeCharts> {
    let families = source.families.iter().enumerate();
    families
        .filter(|(_, family)| family.sizes.len() > 1)
        .filter_map(|(at, f)| of_family(source, f, at))
        .collect()
}

fn of_family(source: &Source<'_>, family: &Family<'_>, at: usize) -> Option<SizeCharts> {
    let metric = metric(source, family);
    let mut groups: BTreeMap<String, Vec<Line<'_>>> = BTreeMap::new();
    let mut left_out = 0;
    for line in &family.lines {
        // A point alone is no line; the heat map has it.
        if points(source, family, *line, metric, Scaled { factor: 1.0, unit: "" }).len() < 2 {
            continue;
        }
        let group = groups.entry(line.group()).or_default();
        if group.len() < MOST_LINES {
            group.push(*line);
        } else {
            left_out += 1;
        }
    }
    let greatest = groups
        .values()
        .flatten()
        .flat_map(|line| points(source, family, *line, metric, Scaled { factor: 1.0, unit: "" }))
        .map(|point| point.interval.map_or(point.value, |(_, high)| high))
        .fold(0.0, f64::max);
    let unit = scaled(metric.unit(), greatest);
    let several = groups.len() > 1;
    let title = family.kind.title();
    let mut keys: Vec<Key> = Vec::new();
    let mut plots: Vec<Plot> = Vec::new();
    for (number, (group, lines)) in groups.iter().enumerate() {
        let (styles, short) = (styles(lines), names(lines));
        let drawn = lines.iter().zip(&styles).zip(&short).map(|((line, style), name)| line_chart::Line {
            style: *style,
            name: clip(name, MOST_NAME),
            points: points(source, family, *line, metric, unit),
        });
        for (line, style) in lines.iter().zip(&styles) {
            let detail = if several { format!("{} ({group})", line.detail()) } else { line.detail() };
            keys.push(Key::new(*style, line.name(), detail));
        }
        let ends = if several { format!(", {group}") } else { String::new() };
        let chart = LineChart {
            id: format!("size-{at}-{number}"),
            title: format!("{title}{ends}"),
            x_label: format!("{}, bytes", family.kind.size_word()),
            y_label: format!("{}, {}{}", metric_word(metric), unit.unit, source.shown.mark()),
            lines: drawn.collect(),
            most: greatest / unit.factor,
        };
        plots.push(chart.plot(size, number_text));
    }
    let folded = matches!(family.kind, Kind::Storage(..));
    (!plots.is_empty()).then(|| SizeCharts {
        id: format!("sizes-{at}"),
        title,
        folded,
        charts: Charts { keys, plots },
        left_out,
    })
}

/// What is drawn: the main metric, but round trips a second where all tell them, as the published charts do.
fn metric(source: &Source<'_>, family: &Family<'_>) -> Metric {
    let cells =
        || family.all.iter().map(|place| source.cell(*place)).filter(|cell| cell.measured().is_some());
    let main = family.all.first().map_or(Metric::P50, |place| source.cell(*place).measurement.main_metric());
    let is_rr = matches!(family.kind, Kind::Network(protocol) if !protocol.is_stream());
    let all = cells().filter(|cell| !super::family::line(&cell.measurement).is_open());
    if is_rr
        && cells().next().is_some()
        && all.clone().all(|cell| cell.summary(Metric::Transactions).is_some())
    {
        Metric::Transactions
    } else {
        main
    }
}

fn points(
    source: &Source<'_>,
    family: &Family<'_>,
    line: Line<'_>,
    metric: Metric,
    unit: Scaled,
) -> Vec<LinePoint> {
    let point = |size: &u32| {
        let summary = source.cell(family.cell(line, *size)?).summary(metric)?;
        let within = |value: f64| value / unit.factor;
        let told = match &summary.interval {
            Some(interval) => source.shown.estimate(interval, metric.unit()),
            None => source.shown.value(summary.median, metric.unit()),
        };
        summary.median.is_finite().then(|| LinePoint {
            size: *size,
            value: within(summary.median),
            interval: summary.interval.as_ref().map(|i| (within(i.low()), within(i.high()))),
            title: format!("{}, {}: {told}", line.name(), bytes(*size)),
        })
    };
    family.sizes.iter().filter_map(point).collect()
}

/// A size below an axis: `128`, `16K`.
fn size(size: f64) -> String {
    match size as u64 {
        s if s >= 1 << 20 => format!("{}M", s >> 20),
        s if s >= 1 << 10 => format!("{}K", s >> 10),
        s => s.to_string(),
    }
}

fn number_text(value: f64) -> String {
    let text = super::shown::number(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A latency in nanoseconds beside an axis.
pub(crate) fn latency(nanoseconds: f64) -> String {
    let scaled = scaled(Unit::Microseconds, nanoseconds / 1e3);
    format!("{} {}", number_text(nanoseconds / 1e3 / scaled.factor), scaled.unit)
}
