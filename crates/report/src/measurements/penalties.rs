//! How much worse one thing is than another, with one sign rule: positive is worse.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::measurement::{Better, Comparison, Metric};
use serde::Serialize;

use super::{
    MOST_COLUMNS, Source,
    family::{Kind, Line, kind, line, load_word, place_word},
    metric_word,
    shown::{self, bytes},
};
use crate::printable::one_line;

/// No more rows than this in one table.
const MOST_ROWS: usize = 60;
/// No more tables than this.
const MOST_TABLES: usize = 80;

/// No more comparisons than this are named whose cells are not there.
const MOST_UNPLACED: usize = 12;

/// All tables of penalties.
#[derive(Serialize)]
pub(crate) struct PenaltyView {
    pub(super) tables: Vec<PenaltyTable>,
    pub(super) left_out: usize,
    /// Comparisons of cells that are not in this evidence, by their names.
    pub(super) unplaced: Vec<String>,
    pub(super) unplaced_more: usize,
    /// Comparisons whose base differs from itself.
    pub(super) doubtful: usize,
}

/// Everything that was compared with one base.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PenaltyTable {
    pub(super) title: String,
    pub(super) base: String,
    pub(super) metric: &'static str,
    pub(super) rule: &'static str,
    pub(super) corner: &'static str,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<PenaltyRow>,
    pub(super) left_out: usize,
    pub(super) columns_left_out: usize,
    /// Whether the A/A comparison of a column shows a difference.
    pub(super) doubtful: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PenaltyRow {
    pub(super) head: String,
    pub(super) detail: String,
    /// Whether it is the base compared with itself.
    pub(super) null: bool,
    pub(super) cells: Vec<PenaltyCell>,
}

/// A penalty; without text where nothing was compared.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PenaltyCell {
    /// `worse`, `better`, `same` (the interval holds 0), `doubt` (an A/A that shows a difference), `missing` or nothing.
    pub(super) class: &'static str,
    pub(super) text: String,
    /// Its confidence interval as text; empty when the penalty is missing.
    pub(super) interval: String,
    pub(super) title: String,
}

/// What stands in one table: family, metric, base, and for storage the place that is compared with it.
type Key<'a> = (Kind<'a>, Metric, Line<'a>, Option<Line<'a>>);

pub(crate) fn view(source: &Source<'_>) -> PenaltyView {
    let mut tables: BTreeMap<Key<'_>, Vec<(Line<'_>, u32, &Comparison)>> = BTreeMap::new();
    let (mut doubtful, mut unplaced) = (0, Vec::new());
    for comparison in &source.measurements.comparisons {
        let (Some(base), Some(other)) = (source.named(&comparison.base), source.named(&comparison.other))
        else {
            unplaced.push(format!("{} against {}", one_line(&comparison.other), one_line(&comparison.base)));
            continue;
        };
        doubtful += usize::from(comparison.null_holds() == Some(false));
        let (base, other, metric) = (&base.measurement, &other.measurement, comparison.metric);
        let (from, to) = (line(base), line(other));
        let key = match (from, to) {
            // Block sizes are the rows there, depth and jobs the columns: these say nothing of the place.
            (Line::Storage { .. }, Line::Storage { .. }) => {
                (kind(other), metric, unloaded(from), Some(unloaded(to)))
            }
            _ => (kind(other), metric, from, None),
        };
        tables.entry(key).or_default().push((to, other.size(), comparison));
    }
    let left_out = tables.len().saturating_sub(MOST_TABLES);
    let tables = tables.into_iter().take(MOST_TABLES);
    let unplaced_more = unplaced.len().saturating_sub(MOST_UNPLACED);
    unplaced.truncate(MOST_UNPLACED);
    PenaltyView {
        tables: tables.map(|(key, compared)| table(key, &compared)).collect(),
        left_out,
        unplaced,
        unplaced_more,
        doubtful,
    }
}

/// The line without its load.
fn unloaded(line: Line<'_>) -> Line<'_> {
    match line {
        Line::Storage { kind, place, .. } => Line::Storage { kind, place, depth: 0, jobs: 0 },
        network => network,
    }
}

fn table(key: Key<'_>, compared: &[(Line<'_>, u32, &Comparison)]) -> PenaltyTable {
    let (kind, metric, base, other) = key;
    let Grid { rows, columns, left_out, columns_left_out } = match other {
        None => by_size(compared),
        Some(_) => by_load(compared),
    };
    let doubtful = compared.iter().any(|(.., comparison)| comparison.null_holds() == Some(false));
    let against = match (base, other) {
        (Line::Storage { place, .. }, Some(Line::Storage { place: to, .. })) => {
            format!("{} against {}", place_word(to), place_word(place))
        }
        _ => format!("against {}", base.name()),
    };
    let variant = Some(base.variant()).filter(|variant| !variant.is_empty());
    let variant = variant.map(|variant| format!(" ({variant})")).unwrap_or_default();
    PenaltyTable {
        title: format!("{}, {against}{variant}", kind.title()),
        base: match base {
            Line::Network { .. } => format!("{}, {}", base.name(), base.detail()),
            Line::Storage { .. } => base.name(),
        },
        metric: metric_word(metric),
        rule: match metric.better() {
            Better::Higher => "100 × (base − other) ÷ base",
            Better::Lower => "100 × (other − base) ÷ base",
        },
        corner: kind.size_word(),
        columns,
        rows,
        left_out,
        columns_left_out,
        doubtful,
    }
}

/// The rows and the heads of the columns of a table, and how many more there would be.
struct Grid {
    rows: Vec<PenaltyRow>,
    columns: Vec<String>,
    left_out: usize,
    columns_left_out: usize,
}

/// The first of them, and how many more there are.
fn first<T>(all: BTreeSet<T>, most: usize) -> (Vec<T>, usize) {
    let left_out = all.len().saturating_sub(most);
    (all.into_iter().take(most).collect(), left_out)
}

/// A row for each line, a column for each size; what was measured twice first.
fn by_size(compared: &[(Line<'_>, u32, &Comparison)]) -> Grid {
    let (sizes, columns_left_out) = first(compared.iter().map(|(_, size, _)| *size).collect(), MOST_COLUMNS);
    let (lines, left_out) = first(compared.iter().map(|(line, ..)| *line).collect(), MOST_ROWS);
    let at: BTreeMap<(Line<'_>, u32), &Comparison> =
        compared.iter().map(|(line, size, comparison)| ((*line, *size), *comparison)).collect();
    let null = |size: &u32| {
        let of_size =
            compared.iter().filter(|(_, other, _)| other == size).map(|(.., comparison)| comparison);
        // They are one and the same; if not, the one that gives cause for doubt counts.
        let null = of_size.filter(|c| c.null.is_some()).min_by_key(|c| c.null_holds());
        null.map_or_else(PenaltyCell::default, |comparison| null_cell(comparison))
    };
    let mut rows = Vec::new();
    if compared.iter().any(|(.., comparison)| comparison.null.is_some()) {
        rows.push(PenaltyRow {
            head: "the same measured twice (A/A)".to_owned(),
            detail: "0 must be inside".to_owned(),
            null: true,
            cells: sizes.iter().map(null).collect(),
        });
    }
    rows.extend(lines.into_iter().map(|line| {
        PenaltyRow {
            head: line.name(),
            detail: line.detail(),
            null: false,
            cells: sizes
                .iter()
                .map(|size| at.get(&(line, *size)).map_or_else(PenaltyCell::default, |c| cell(c)))
                .collect(),
        }
    }));
    Grid { rows, columns: sizes.into_iter().map(bytes).collect(), left_out, columns_left_out }
}

/// A row for each block size, with what was measured twice beneath, a column for each depth and number of jobs.
fn by_load(compared: &[(Line<'_>, u32, &Comparison)]) -> Grid {
    let load = |line: Line<'_>| match line {
        Line::Storage { depth, jobs, .. } => (jobs, depth),
        Line::Network { .. } => (0, 0),
    };
    let (sizes, left_out) = first(compared.iter().map(|(_, size, _)| *size).collect(), MOST_ROWS);
    let (loads, columns_left_out) =
        first(compared.iter().map(|(line, ..)| load(*line)).collect(), MOST_COLUMNS);
    let at: BTreeMap<(u32, (u32, u32)), &Comparison> =
        compared.iter().map(|(line, size, comparison)| ((*size, load(*line)), *comparison)).collect();
    let mut rows = Vec::new();
    for size in &sizes {
        let of = |show: fn(&Comparison) -> PenaltyCell| -> Vec<PenaltyCell> {
            let one =
                |load: &(u32, u32)| at.get(&(*size, *load)).map_or_else(PenaltyCell::default, |c| show(c));
            loads.iter().map(one).collect()
        };
        rows.push(PenaltyRow { head: bytes(*size), detail: String::new(), null: false, cells: of(cell) });
        let nulls = of(null_cell);
        if nulls.iter().any(|cell| !cell.text.is_empty()) {
            let (head, detail) = (String::new(), "the same measured twice (A/A)".to_owned());
            rows.push(PenaltyRow { head, detail, null: true, cells: nulls });
        }
    }
    let columns = loads.into_iter().map(|(jobs, depth)| load_word(depth, jobs)).collect();
    Grid { rows, columns, left_out, columns_left_out }
}

fn cell(comparison: &Comparison) -> PenaltyCell {
    let pairs = format!("{} pairs of samples", comparison.pairs);
    match comparison.penalty() {
        None => PenaltyCell {
            class: "missing",
            text: "missing".to_owned(),
            interval: String::new(),
            title: comparison.why.as_deref().map_or_else(|| "nobody said why".to_owned(), one_line),
        },
        Some(penalty) => PenaltyCell {
            class: match () {
                () if comparison.spans_none() => "same",
                () if penalty.value() > 0.0 => "worse",
                () => "better",
            },
            text: shown::penalty(&penalty).0,
            interval: shown::penalty(&penalty).1,
            title: pairs,
        },
    }
}

fn null_cell(comparison: &Comparison) -> PenaltyCell {
    let itself = Comparison { ratio: comparison.null, ..comparison.clone() };
    itself.penalty().map_or_else(PenaltyCell::default, |penalty| PenaltyCell {
        class: if itself.spans_none() { "same" } else { "doubt" },
        text: shown::penalty(&penalty).0,
        interval: shown::penalty(&penalty).1,
        title: String::new(),
    })
}
