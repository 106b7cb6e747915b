//! The words and numbers that every rendering of a comparison shows.

use penstock_model::measurement::{
    Quantity,
    run_comparison::{CellsComparison, Change, Direction, RunComparison, Turn},
};

use crate::printable::one_line;

/// A change in text.
pub(super) struct Shown {
    pub cell: String,
    pub metric: String,
    pub a: String,
    pub b: String,
    pub ratio: String,
    pub interval: String,
    pub samples: String,
    pub chance: String,
}

/// A change in text.
pub(super) fn shown(change: &Change) -> Shown {
    let value = |value| Quantity { value, unit: change.metric.unit() }.to_string();
    let ratio = &change.ratio;
    Shown {
        cell: change.cell.clone(),
        metric: change.metric.to_string(),
        a: value(change.a),
        b: value(change.b),
        ratio: format!("{:.3}", ratio.value()),
        interval: format!("[{:.3}, {:.3}]", ratio.low(), ratio.high()),
        samples: format!("{}, {}", change.n_a, change.n_b),
        chance: match change.adjusted {
            p if p < 0.0001 => "< 0.01 %".to_owned(),
            p => format!("{:.2} %", 100.0 * p),
        },
    }
}

/// The changes that come to this, the largest first.
pub(super) fn changes(cells: &CellsComparison, direction: Direction) -> Vec<&Change> {
    let mut found: Vec<&Change> =
        cells.changes.iter().filter(|change| change.direction() == direction).collect();
    let size = |change: &Change| change.ratio.value().max(f64::MIN_POSITIVE).ln().abs();
    found.sort_by(|a, b| size(b).total_cmp(&size(a)));
    found
}

/// What the comparison comes to, in a few words and in a sentence.
pub(super) fn sentence(comparison: &RunComparison) -> (&'static str, String) {
    let head = match (comparison.got_worse(), comparison.is_paired()) {
        (true, _) => "B is worse than A",
        (false, true) => "Nothing got worse",
        // What has no partner may have.
        (false, false) => "Nothing that could be compared got worse",
    };
    let mut parts = Vec::new();
    let mut tell = |count: usize, one: &str, many: &str| {
        if count > 0 {
            parts.push(format!("{count} {}", if count == 1 { one } else { many }));
        }
    };
    if let Some(cells) = &comparison.cells {
        tell(cells.count(Direction::Worse), "ratio is worse", "ratios are worse");
        tell(cells.lost.len(), "cell is missing now", "cells are missing now");
        tell(cells.count(Direction::Better), "ratio is better", "ratios are better");
    }
    let worse = comparison.rulings.iter().filter(|turn| turn.worse).count();
    tell(worse, "expectation holds no longer", "expectations hold no longer");
    let worse = comparison.verdicts.iter().filter(|turn| turn.worse).count();
    tell(worse, "verdict is worse", "verdicts are worse");
    let worse = comparison.outcomes.iter().filter(|turn| turn.worse).count();
    tell(worse, "outcome is worse", "outcomes are worse");
    if parts.is_empty() {
        parts.push(match &comparison.cells {
            Some(cells) if cells.changes.is_empty() && !cells.is_paired() => {
                "no cell could be compared".to_owned()
            }
            _ if comparison.is_paired() => "all of it is as it was".to_owned(),
            _ => "what could be compared is as it was".to_owned(),
        });
    }
    parts.extend(unpaired(comparison));
    (head, parts.join(", "))
}

/// How much has no partner in the other run, or could not be compared with it.
fn unpaired(comparison: &RunComparison) -> Vec<String> {
    let verdicts = |only: fn(&Turn) -> bool| comparison.verdicts.iter().filter(|turn| only(turn)).count();
    let lines = |only: fn(&Turn) -> bool| comparison.rulings.iter().filter(|turn| only(turn)).count();
    let cells = |of: fn(&CellsComparison) -> usize| comparison.cells.as_ref().map_or(0, of);
    let counts = [
        (cells(|cells| cells.untold.len()), "cell", "cannot be compared"),
        (cells(|cells| cells.only_a.len()), "cell", "only in A"),
        (cells(|cells| cells.only_b.len()), "cell", "only in B"),
        (lines(|turn| turn.b.is_none()), "expectation", "only in A"),
        (lines(|turn| turn.a.is_none()), "expectation", "only in B"),
        (verdicts(|turn| turn.b.is_none()), "verdict", "only in A"),
        (verdicts(|turn| turn.a.is_none()), "verdict", "only in B"),
    ];
    let told = counts.into_iter().filter(|(count, ..)| *count > 0).map(|(count, what, how)| {
        let many = if count == 1 { "" } else { "s" };
        format!("{count} {what}{many} {how}")
    });
    told.chain(comparison.unpaired.iter().map(|text| one_line(text))).collect()
}

/// How much of what is seen would be seen by chance.
pub(super) fn chance(cells: &CellsComparison) -> String {
    let all = cells.changes.len();
    let outside = all - cells.count(Direction::Same);
    let certain = cells.count(Direction::Worse) + cells.count(Direction::Better);
    format!(
        "Of {all} ratios, {outside} have an interval that leaves 1 out; by chance alone it would be about {:.1}. \
         {certain} of them stay after Holm's correction for their number: the chance that even one of those is false is at \
         most {:.0} %. That says nothing of what differs from run to run and not within one: a boot, a temperature, where the \
         scheduler put what.",
        cells.by_chance(),
        100.0 * (1.0 - cells.confidence)
    )
}
