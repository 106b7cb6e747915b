//! Values against sizes: a chart for each protocol or kind of access, and one for each kind of ends where there are several.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::measurement::{EndKind, Metric, Status, Unit};
use serde::Serialize;

use super::{
    Source,
    family::{Family, Kind, Line, kind_word, names, styles},
    metric_word,
    shown::{Scaled, bytes, scaled, trimmed},
};
use crate::{
    charts::{
        Key, Plot,
        line_chart::{self, LineChart, LinePoint},
    },
    printable::{clip, one_line},
};

/// No more lines than this in one chart.
const MOST_LINES: usize = 10;
/// No more characters of a line's name than fit beside the chart.
const MOST_NAME: usize = 19;

/// The charts of one family.
#[derive(Serialize)]
pub(crate) struct SizeCharts {
    title: String,
    /// Whether they stand in a details element: storage has many.
    folded: bool,
    charts: Vec<Chart>,
    left_out: usize,
}

/// A chart and what its lines are.
#[derive(Serialize)]
struct Chart {
    plot: Plot,
    keys: Vec<Key>,
}

/// A line and its points.
type Drawn<'a> = (Line<'a>, Vec<LinePoint>);

pub(crate) fn charts(source: &Source<'_>) -> Vec<SizeCharts> {
    let families = source.families.iter().enumerate();
    families
        .filter(|(_, family)| family.sizes.len() > 1)
        .filter_map(|(at, f)| of_family(source, f, at))
        .collect()
}

fn of_family(source: &Source<'_>, family: &Family<'_>, at: usize) -> Option<SizeCharts> {
    let metric = metric(source, family);
    let mut groups: BTreeMap<(bool, [EndKind; 2]), Vec<Drawn<'_>>> = BTreeMap::new();
    let mut left_out = 0;
    let plain = Scaled { factor: 1.0, unit: "" };
    for line in &family.lines {
        // A point alone is no line; the heat map has it.
        let points = points(source, family, *line, metric, plain);
        if points.iter().filter(|point| point.value.is_some()).count() < 2 {
            continue;
        }
        let group = groups.entry(line.group()).or_default();
        group.push((*line, points));
    }
    for lines in groups.values_mut() {
        left_out += lines.len().saturating_sub(MOST_LINES);
        fairly(lines);
    }
    let greatest = groups
        .values()
        .flatten()
        .flat_map(|(_, points)| points)
        .flat_map(|point| [point.value, point.interval.map(|(_, high)| high)])
        .flatten()
        .fold(0.0, f64::max);
    let unit = scaled(metric.unit(), greatest);
    let several = groups.len() > 1 && matches!(family.kind, Kind::Network(_));
    let title = family.kind.title();
    let mut charts = Vec::new();
    for (number, ((_, [a, b]), lines)) in groups.iter().enumerate() {
        let lines: Vec<Line<'_>> = lines.iter().map(|(line, _)| *line).collect();
        let (styles, short) = (styles(&lines), names(&lines));
        let drawn = lines.iter().zip(&styles).zip(&short).map(|((line, style), name)| line_chart::Line {
            style: *style,
            name: clip(name, MOST_NAME),
            points: points(source, family, *line, metric, unit),
        });
        let keys =
            lines.iter().zip(&styles).map(|(line, style)| Key::new(*style, line.name(), line.detail()));
        let chart = LineChart {
            id: format!("size-{at}-{number}"),
            title: match several {
                true => format!("{} and {}", kind_word(*a), kind_word(*b)),
                false => title.clone(),
            },
            x_label: format!("{}, bytes", family.kind.size_word()),
            y_label: format!("{}, {}{}", metric_word(metric), unit.unit, source.shown.mark()),
            lines: drawn.collect(),
            most: greatest / unit.factor,
        };
        let keys = keys.collect();
        charts.push(Chart { plot: chart.plot(size, trimmed), keys });
    }
    let folded = matches!(family.kind, Kind::Storage(..));
    (!charts.is_empty()).then_some(SizeCharts { title, folded, charts, left_out })
}

/// Keeps as many lines as fit, the first of each path or place before the second of any.
fn fairly(lines: &mut Vec<Drawn<'_>>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, usize)> = lines
        .iter()
        .enumerate()
        .map(|(place, (line, _))| {
            let before = seen.entry(line.name()).or_default();
            *before += 1;
            (*before, place)
        })
        .collect();
    ranked.sort_unstable();
    let kept: BTreeSet<usize> = ranked.into_iter().take(MOST_LINES).map(|(_, place)| place).collect();
    let mut place = 0;
    lines.retain(|_| {
        place += 1;
        kept.contains(&(place - 1))
    });
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
        let cell = source.cell(family.cell(line, *size)?);
        let name = format!("{}, {}", line.name(), bytes(*size));
        if let Status::Missing { why, .. } = &cell.status {
            let title = format!("{name} is missing: {}", clip(&one_line(why), 200));
            return Some(LinePoint { size: *size, value: None, interval: None, title });
        }
        let summary = cell.summary(metric)?;
        let within = |value: f64| value / unit.factor;
        let told = match &summary.interval {
            Some(interval) => source.shown.estimate(interval, metric.unit()),
            None => source.shown.value(summary.median, metric.unit()),
        };
        summary.median.is_finite().then(|| LinePoint {
            size: *size,
            value: Some(within(summary.median)),
            interval: summary.interval.as_ref().map(|i| (within(i.low()), within(i.high()))),
            title: format!("{name}: {told}"),
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

/// A latency in nanoseconds beside an axis.
pub(crate) fn latency(nanoseconds: f64) -> String {
    let scaled = scaled(Unit::Microseconds, nanoseconds / 1e3);
    format!("{} {}", trimmed(nanoseconds / 1e3 / scaled.factor), scaled.unit)
}
