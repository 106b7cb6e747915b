//! Heat maps: line x size, one for each protocol and each kind of storage access.

use std::collections::BTreeSet;

use penstock_model::{
    NicName,
    measurement::{Better, End, Metric, Status, Unit},
};

use super::{
    MOST_COLUMNS, Source, anchor,
    family::{Family, Line, NetworkMethod},
    metric_word,
    shown::{bytes, number, scaled},
};
use crate::{
    charts::{HeatCell, HeatColumn, HeatMap, HeatRow, Warmth},
    printable::{clip, one_line},
};

/// No more lines than this in one map.
const MOST_LINES: usize = 80;

pub(crate) fn maps(source: &Source<'_>) -> Vec<HeatMap> {
    source.families.iter().enumerate().filter_map(|(place, family)| map(source, family, place)).collect()
}

fn map(source: &Source<'_>, family: &Family<'_>, place: usize) -> Option<HeatMap> {
    let first = source.cell(*family.all.first()?);
    let metric = first.measurement.main_metric();
    let medians = || {
        let cells = family.lines.iter().flat_map(|line| family.sizes.iter().map(move |size| (*line, *size)));
        let cells = cells.filter_map(|(line, size)| family.cell(line, size));
        cells.filter_map(|cell| source.cell(cell).summary(metric)).map(|summary| summary.median)
    };
    let sound = || medians().filter(|median| median.is_finite() && *median > 0.0);
    let better = metric.better();
    let best = match better {
        Better::Higher => sound().fold(0.0, f64::max),
        Better::Lower => sound().fold(f64::INFINITY, f64::min),
    };
    let mut sorted: Vec<f64> = sound().collect();
    sorted.sort_by(f64::total_cmp);
    let unit = scaled(metric.unit(), sorted.get(sorted.len() / 2).copied().unwrap_or(0.0));
    // Other ways of measuring the same line are columns beside the usual ones.
    let lines: BTreeSet<Line<'_>> = family.lines.iter().map(|line| line.usual()).collect();
    let ways: BTreeSet<Option<NetworkMethod>> = family.lines.iter().map(|line| line.way()).collect();
    let any = |way: Option<NetworkMethod>, size: u32| {
        lines.iter().any(|line| family.cell(line.measured(way), size).is_some())
    };
    let columns = ways.iter().flat_map(|way| family.sizes.iter().map(move |size| (*way, *size)));
    let mut columns: Vec<(Option<NetworkMethod>, u32)> =
        columns.filter(|(way, size)| any(*way, *size)).collect();
    let columns_left_out = columns.len().saturating_sub(MOST_COLUMNS);
    columns.truncate(MOST_COLUMNS);
    let rates: Vec<Option<f64>> =
        lines.iter().map(|line| line_rate(source, *line).filter(|_| metric == Metric::Throughput)).collect();
    let rows = lines.iter().zip(&rates).take(MOST_LINES).map(|(line, rate)| {
        let cell = |(way, size): &(Option<NetworkMethod>, u32)| {
            let Some(place) = family.cell(line.measured(*way), *size) else {
                return HeatCell::none();
            };
            let cell = source.cell(place);
            let measured = match &cell.status {
                Status::Missing { why, .. } => return HeatCell::missing(one_line(why), anchor(place)),
                Status::Measured(_) => cell.summary(metric),
            };
            let Some(summary) = measured else {
                let why = format!("the samples tell no {}", metric_word(metric));
                return HeatCell::missing(why, anchor(place));
            };
            let part = match (better, rate) {
                (Better::Higher, Some(rate)) => summary.median / rate,
                (Better::Higher, None) => summary.median / best,
                (Better::Lower, _) => best / summary.median,
            };
            let title = match &summary.interval {
                Some(interval) => source.shown.estimate(interval, metric.unit()),
                None => "too few samples for an interval".to_owned(),
            };
            let small = match better {
                Better::Higher if part.is_nan() => String::new(),
                Better::Higher => format!("{:.0} %", part.clamp(0.0, 10.0) * 100.0),
                Better::Lower if part.is_nan() => String::new(),
                Better::Lower => format!("{} ×", number((1.0 / part).min(1e6))),
            };
            let text = source.shown.bare(summary.median, unit);
            HeatCell::number(Warmth::new(part), text, small, title, anchor(place))
        };
        HeatRow {
            head: line.name(),
            detail: line.detail(),
            scale: match rate {
                Some(rate) => format!("% of {}", super::Shown::new(false).value(*rate, Unit::BitPerSecond)),
                None => "% of the best".to_owned(),
            },
            cells: columns.iter().map(cell).collect(),
        }
    });
    let rows: Vec<HeatRow> = rows.collect();
    let with_rate = rates.iter().any(Option::is_some);
    Some(HeatMap {
        id: format!("heat-{place}"),
        title: clip(&family.kind.title(), 80),
        about: about(metric, unit.unit, source, with_rate),
        corner: family.kind.size_word().to_owned(),
        columns: (columns.iter())
            .map(|(way, size)| HeatColumn {
                head: bytes(*size),
                detail: lines.first().map(|line| line.measured(*way).variant()).unwrap_or_default(),
            })
            .collect(),
        scales: with_rate,
        left_out: lines.len() - rows.len(),
        columns_left_out,
        rows,
    })
}

fn about(metric: Metric, unit: &str, source: &Source<'_>, with_rate: bool) -> String {
    let what = format!(
        "Median {} in {unit}{}",
        metric_word(metric).trim_start_matches("median "),
        source.shown.mark()
    );
    match (metric.better(), with_rate) {
        (Better::Higher, true) => format!(
            "{what}; the darker the more. Small numbers and colours are percent of the line rate where the path has a wire, \
             else of the best here: the last column says which."
        ),
        (Better::Higher, false) => {
            format!("{what}; the darker the more. Small numbers and colours are relative to the best here.")
        }
        (Better::Lower, _) => format!(
            "{what}; the darker the shorter, which is better. Small numbers say how many times the shortest here."
        ),
    }
}

/// The rate of the wire that a line crosses, in bit/s; `None` without a wire, where nobody tells, and on an emulated board,
/// whose NICs tell a speed that means nothing.
fn line_rate(source: &Source<'_>, line: Line<'_>) -> Option<f64> {
    let Line::Network { path, client, server, .. } = line else { return None };
    if !path.has_wire() || source.measurements.emulated {
        return None;
    }
    let speed = |end: &End| {
        let of = |end: &'_ End| Some(end.function.as_ref()?.of_model()?.nic.clone());
        let nic: NicName = of(end)?;
        let links = source.measurements.links.iter();
        // A VF tells no speed; the PF of its NIC does.
        let of_nic = links.filter(|link| of(&link.end).as_ref() == Some(&nic));
        of_nic.filter_map(|link| link.speed).max()
    };
    let slower = speed(client)?.min(speed(server)?);
    (slower > 0).then(|| f64::from(slower) * 1e6)
}
