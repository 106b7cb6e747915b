//! A comparison as one self-contained HTML page.

use penstock_model::measurement::run_comparison::{CellsComparison, Change, Direction, RunComparison, Turn};
use serde::Serialize;

use super::view;
use crate::{printable::one_line, templates};

/// No more rows than this in one table.
const MOST_ROWS: usize = 500;
/// How many times more or less the ends of the picture of a ratio stand for.
const SCALE: f64 = 2.0;

/// The comparison as one HTML page that asks for nothing outside itself.
pub fn html(comparison: &RunComparison) -> String {
    templates::render("compare.html", &Page::of(comparison))
}

#[derive(Serialize)]
struct Page {
    a: Name,
    b: Name,
    class: &'static str,
    sign: &'static str,
    head: &'static str,
    explanation: String,
    notes: Vec<String>,
    tallies: Vec<Tally>,
    turns: Vec<Turns>,
    chance: Option<String>,
    tables: Vec<Table>,
    lists: Vec<List>,
    facts: Vec<FactRow>,
}

#[derive(Serialize)]
struct Name {
    id: String,
    started: String,
}

#[derive(Serialize)]
struct Tally {
    class: &'static str,
    count: usize,
    symbol: &'static str,
    word: &'static str,
    note: &'static str,
}

#[derive(Serialize)]
struct Turns {
    title: &'static str,
    rows: Vec<TurnRow>,
    left_out: usize,
}

#[derive(Serialize)]
struct TurnRow {
    what: String,
    a: String,
    b: String,
    worse: bool,
}

#[derive(Serialize)]
struct Table {
    title: &'static str,
    class: &'static str,
    symbol: &'static str,
    open: bool,
    rows: Vec<Row>,
    count: usize,
    left_out: usize,
}

#[derive(Serialize)]
struct Row {
    cell: String,
    metric: String,
    a: String,
    b: String,
    ratio: String,
    interval: String,
    samples: String,
    chance: String,
    /// The interval's ends and the ratio, in percent of the picture's width; 50 is a ratio of 1.
    low: String,
    width: String,
    at: String,
}

#[derive(Serialize)]
struct List {
    title: &'static str,
    rows: Vec<(String, String)>,
    count: usize,
    left_out: usize,
}

#[derive(Serialize)]
struct FactRow {
    what: String,
    a: String,
    b: String,
    same: &'static str,
    different: bool,
}

impl Page {
    fn of(comparison: &RunComparison) -> Page {
        let (head, explanation) = view::sentence(comparison);
        let name = |run: &penstock_model::measurement::run_comparison::RunName| Name {
            id: one_line(&run.id),
            started: one_line(&run.started),
        };
        let titled = |title, list: &[Turn]| Turns {
            title,
            rows: list.iter().take(MOST_ROWS).map(turn).collect(),
            left_out: list.len().saturating_sub(MOST_ROWS),
        };
        let (class, sign) = match (comparison.got_worse(), comparison.is_paired()) {
            (true, _) => ("fail", "✗"),
            (false, true) => ("pass", "✓"),
            (false, false) => ("unknown", "?"),
        };
        Page {
            a: name(&comparison.a),
            b: name(&comparison.b),
            class,
            sign,
            head,
            explanation,
            notes: comparison.notes.iter().map(|note| one_line(note)).collect(),
            tallies: tallies(comparison),
            turns: [
                titled("Outcomes that differ", &comparison.outcomes),
                titled("Expectations that came out differently", &comparison.rulings),
                titled("Verdicts that came out differently", &comparison.verdicts),
            ]
            .into_iter()
            .filter(|turns| !turns.rows.is_empty())
            .collect(),
            chance: comparison.cells.as_ref().map(view::chance),
            tables: tables(comparison),
            lists: lists(comparison),
            facts: facts(comparison),
        }
    }
}

fn tallies(comparison: &RunComparison) -> Vec<Tally> {
    let Some(cells) = &comparison.cells else { return Vec::new() };
    let count = |direction| cells.count(direction);
    let perhaps = count(Direction::PerhapsWorse) + count(Direction::PerhapsBetter);
    let tally = |count: usize, class, symbol, word, note| Tally {
        class: if count > 0 { class } else { "quiet" },
        count,
        symbol,
        word,
        note,
    };
    vec![
        tally(count(Direction::Worse), "fail", "▼", "worse", "also after the correction"),
        tally(count(Direction::Better), "pass", "▲", "better", "also after the correction"),
        tally(perhaps, "unknown", "?", "perhaps", "1 is outside the interval, which may be chance"),
        tally(count(Direction::Same), "unsupported", "=", "the same", "the interval holds 1"),
    ]
}

fn turn(turn: &Turn) -> TurnRow {
    let value = |value: &Option<String>| value.as_deref().map_or("not there".to_owned(), one_line);
    TurnRow { what: one_line(&turn.what), a: value(&turn.a), b: value(&turn.b), worse: turn.worse }
}

fn tables(comparison: &RunComparison) -> Vec<Table> {
    let Some(cells) = &comparison.cells else { return Vec::new() };
    let kinds = [
        ("Worse", "fail", "▼", true, Direction::Worse),
        ("Better", "pass", "▲", true, Direction::Better),
        ("Perhaps worse, perhaps chance", "unknown", "?", false, Direction::PerhapsWorse),
        ("Perhaps better, perhaps chance", "unknown", "?", false, Direction::PerhapsBetter),
        ("The same", "unsupported", "=", false, Direction::Same),
    ];
    let tables = kinds.into_iter().map(|(title, class, symbol, open, direction)| {
        let changes = view::changes(cells, direction);
        let rows: Vec<Row> = changes.iter().take(MOST_ROWS).map(|change| row(change)).collect();
        Table { title, class, symbol, open, left_out: changes.len() - rows.len(), count: changes.len(), rows }
    });
    tables.filter(|table| table.count > 0).collect()
}

fn row(change: &Change) -> Row {
    let view::Shown { cell, metric, a, b, ratio, interval, samples, chance } = view::shown(change);
    // A logarithmic scale: twice as much is as far from the middle as half as much.
    let place = |ratio: f64| {
        let place = 50.0 + 50.0 * ratio.max(f64::MIN_POSITIVE).ln() / SCALE.ln();
        place.clamp(0.0, 100.0)
    };
    let (low, high) = (place(change.ratio.low()), place(change.ratio.high()));
    Row {
        cell: one_line(&cell),
        metric,
        a,
        b,
        ratio,
        interval,
        samples,
        chance,
        low: format!("{low:.2}"),
        width: format!("{:.2}", (high - low).max(0.5)),
        at: format!("{:.2}", place(change.ratio.value())),
    }
}

fn lists(comparison: &RunComparison) -> Vec<List> {
    let nothing = CellsComparison::default();
    let cells = comparison.cells.as_ref().unwrap_or(&nothing);
    let why = |list: &[penstock_model::measurement::run_comparison::Untold]| -> Vec<(String, String)> {
        list.iter().map(|untold| (one_line(&untold.cell), one_line(&untold.why))).collect()
    };
    let bare = |list: &[String]| list.iter().map(|cell| (one_line(cell), String::new())).collect();
    let lists: [(&'static str, Vec<(String, String)>); 7] = [
        ("In one run alone", bare(&comparison.unpaired)),
        ("Measured in A, missing in B", why(&cells.lost)),
        ("Missing in A, measured in B", why(&cells.found)),
        ("Cannot be compared", why(&cells.untold)),
        ("Missing in both", why(&cells.missing)),
        ("Only in A", bare(&cells.only_a)),
        ("Only in B", bare(&cells.only_b)),
    ];
    let shown = lists.into_iter().map(|(title, mut rows)| {
        let count = rows.len();
        rows.truncate(MOST_ROWS);
        List { title, left_out: count - rows.len(), count, rows }
    });
    shown.filter(|list| list.count > 0).collect()
}

fn facts(comparison: &RunComparison) -> Vec<FactRow> {
    let value = |value: &Option<String>| value.as_deref().map_or("not reported".to_owned(), one_line);
    let rows = comparison.facts.iter().map(|fact| FactRow {
        what: one_line(&fact.what),
        a: value(&fact.a),
        b: value(&fact.b),
        same: match fact.same() {
            Some(true) => "= the same",
            Some(false) => "≠ different",
            None => "? cannot be told",
        },
        different: fact.same() == Some(false),
    });
    rows.collect()
}
