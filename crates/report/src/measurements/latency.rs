//! Latencies: a histogram and the part that takes longer, for each protocol and size, closed and open loop beside each other.

use penstock_model::measurement::{Histogram, Metric};
use serde::Serialize;

use super::{
    Charts, Source,
    family::{Family, Kind, Line, load_word, names, styles},
    shown::{bytes, count},
    sizes::latency,
};
use crate::charts::{Key, ccdf, histogram, histogram::Latencies};

/// No more lines than this in one chart.
const MOST_LINES: usize = 8;
/// No more groups of charts than this on the page; each has two charts or four.
const MOST_GROUPS: usize = 48;

/// All charts of latencies.
#[derive(Serialize)]
pub(crate) struct LatencyView {
    sections: Vec<Section>,
    /// Groups for which there was no room.
    left_out: usize,
}

/// The charts of one family.
#[derive(Serialize)]
struct Section {
    title: String,
    /// Whether they stand in a details element of their own: storage has many.
    folded: bool,
    groups: Vec<LatencyGroup>,
}

/// The charts of one protocol and size.
#[derive(Serialize)]
struct LatencyGroup {
    title: String,
    open: bool,
    /// Whether there are both loops.
    both: bool,
    panels: Vec<Panel>,
}

#[derive(Serialize)]
struct Panel {
    title: &'static str,
    #[serde(flatten)]
    charts: Charts,
    left_out: usize,
}

/// A line and its latencies.
type Counted<'a> = (Line<'a>, &'a Histogram, f64);

pub(crate) fn view(source: &Source<'_>) -> LatencyView {
    let mut sections = Vec::new();
    let (mut room, mut left_out) = (MOST_GROUPS, 0);
    for (at, family) in source.families.iter().enumerate() {
        let mut grouped = grouped(source, family);
        left_out += grouped.len().saturating_sub(room);
        grouped.truncate(room);
        if grouped.is_empty() {
            continue;
        }
        room -= grouped.len();
        let first = sections.is_empty();
        let groups = grouped.into_iter().enumerate().map(|(number, (title, counted))| {
            group(source, &format!("latency-{at}-{number}"), title, &counted, first && number == 0)
        });
        let folded = matches!(family.kind, Kind::Storage(..));
        sections.push(Section { title: family.kind.title(), folded, groups: groups.collect() });
    }
    LatencyView { sections, left_out }
}

/// The lines that have latencies, by size and, for storage, by load.
fn grouped<'a>(source: &Source<'a>, family: &Family<'a>) -> Vec<(String, Vec<Counted<'a>>)> {
    let mut groups: Vec<((u32, u32, u32), Vec<Counted<'a>>)> = Vec::new();
    for size in &family.sizes {
        for line in &family.lines {
            let Some(cell) = family.cell(*line, *size).map(|place| source.cell(place)) else { continue };
            let Some(counted) = cell.measured().and_then(|measured| measured.histogram.as_ref()) else {
                continue;
            };
            if counted.is_empty() {
                continue;
            }
            let (depth, jobs) = match line {
                Line::Storage { depth, jobs, .. } => (*depth, *jobs),
                Line::Network { .. } => (0, 0),
            };
            // The histogram knows its bucket only; a tool tells the longest to the digit.
            let longest = (cell.measured().into_iter())
                .flat_map(|measured| measured.values(Metric::Max))
                .fold(f64::NEG_INFINITY, f64::max);
            let told = (*line, counted, longest);
            match groups.iter_mut().find(|(key, _)| *key == (*size, depth, jobs)) {
                Some((_, group)) => group.push(told),
                None => groups.push(((*size, depth, jobs), vec![told])),
            }
        }
    }
    let titled = |((size, depth, jobs), lines): ((u32, u32, u32), _)| {
        let load = if depth == 0 { String::new() } else { format!(", {}", load_word(depth, jobs)) };
        (format!("{}, {}{load}", family.kind.title(), bytes(size)), lines)
    };
    groups.into_iter().map(titled).collect()
}

fn group(source: &Source<'_>, id: &str, title: String, counted: &[Counted<'_>], first: bool) -> LatencyGroup {
    let (open, closed): (Vec<_>, Vec<_>) = counted.iter().copied().partition(|(line, ..)| line.is_open());
    let both = !open.is_empty() && !closed.is_empty();
    // One axis for both loops, so that they can be compared by eye.
    let x = histogram::axis(counted.iter().map(|(_, counted, _)| *counted));
    let panels = [("Closed loop", "closed", closed), ("Open loop", "open", open)];
    let panels = panels.into_iter().filter(|(.., lines)| !lines.is_empty()).map(|(title, word, lines)| {
        let shown: Vec<Counted<'_>> = lines.iter().copied().take(MOST_LINES).collect();
        let of: Vec<Line<'_>> = shown.iter().map(|(line, ..)| *line).collect();
        let (styles, names) = (styles(&of), names(&of));
        let all: Vec<Latencies<'_>> = (shown.iter().zip(&styles).zip(names))
            .map(|(((_, counted, longest), style), name)| {
                let bucket = counted.quantile(1.0).unwrap_or(0) as f64 / 1e3;
                let longest = if longest.is_finite() { *longest } else { bucket };
                let longest = source.shown.value(longest, penstock_model::measurement::Unit::Microseconds);
                Latencies { style: *style, name, counted, longest }
            })
            .collect();
        let key = |((line, ..), one): (&Counted<'_>, &Latencies<'_>)| {
            let counted = format!("{} latencies, longest {}", count(one.counted.total()), one.longest);
            let ends = line.ends();
            let detail = if ends.is_empty() { counted } else { format!("{ends}; {counted}") };
            Key::new(one.style, line.name(), detail)
        };
        let label = || format!("latency{}", source.shown.mark());
        let (a, b) = (format!("{id}-{word}-h"), format!("{id}-{word}-c"));
        let plots = vec![
            histogram::plot(a, "How many took how long".to_owned(), label(), &x, latency, &all),
            ccdf::plot(b, "Which part takes longer than that".to_owned(), label(), &x, latency, &all),
        ];
        let charts = Charts { keys: shown.iter().zip(&all).map(key).collect(), plots };
        Panel { title, charts, left_out: lines.len() - shown.len() }
    });
    LatencyGroup { title, open: first, both, panels: panels.collect() }
}
