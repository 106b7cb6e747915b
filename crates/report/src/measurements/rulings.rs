//! What the `expect:` lines came out as, in words.

use penstock_model::measurement::{
    Bound, Cell, Claim, Conclusion, Expectation, ExpectationResult, Quantity, Relation,
};
use serde::Serialize;

use super::{
    Source,
    family::line,
    metric_word,
    shown::{self, Shown},
};
use crate::printable::one_line;

/// No more claims of one line than this are listed.
const MOST_CLAIMS: usize = 40;

/// A line and what it came out as.
#[derive(Serialize)]
pub(crate) struct RulingView {
    pub(crate) line: String,
    pub(crate) class: &'static str,
    pub(crate) symbol: &'static str,
    pub(crate) word: String,
    /// What that means, in a sentence.
    pub(crate) meaning: String,
    pub(crate) open: bool,
    pub(crate) claims: Vec<ClaimRow>,
    pub(crate) left_out: usize,
}

/// One thing that a line was held against.
#[derive(Serialize)]
pub(crate) struct ClaimRow {
    pub(crate) cell: String,
    pub(crate) against: String,
    pub(crate) seen: String,
    pub(crate) wanted: String,
    pub(crate) class: &'static str,
    pub(crate) symbol: &'static str,
    pub(crate) word: String,
    pub(crate) why: String,
}

/// The symbol and the class of an outcome.
pub(crate) fn mark(told: Conclusion) -> (&'static str, &'static str) {
    match told {
        Conclusion::Holds => ("✓", "pass"),
        Conclusion::NotAsked => ("–", "unsupported"),
        Conclusion::NotMeasured | Conclusion::CannotBeTold => ("?", "unknown"),
        Conclusion::DoesNotHold => ("✗", "fail"),
    }
}

pub(crate) fn rulings(source: &Source<'_>) -> Vec<RulingView> {
    source.measurements.rulings.iter().map(|ruling| view(source, ruling)).collect()
}

fn view(source: &Source<'_>, ruling: &ExpectationResult) -> RulingView {
    let (symbol, class) = mark(ruling.told);
    let mut claims: Vec<&Claim> = ruling.claims.iter().collect();
    // What decides first.
    claims.sort_by_key(|claim| std::cmp::Reverse(claim.told));
    RulingView {
        line: one_line(&ruling.expectation.to_string()),
        class,
        symbol,
        word: ruling.told.to_string(),
        meaning: meaning(source, ruling),
        open: ruling.told != Conclusion::Holds && claims.len() <= 6,
        left_out: claims.len().saturating_sub(MOST_CLAIMS),
        claims: (claims.into_iter().take(MOST_CLAIMS))
            .map(|claim| row(source, &ruling.expectation, claim))
            .collect(),
    }
}

fn row(source: &Source<'_>, expectation: &Expectation, claim: &Claim) -> ClaimRow {
    let (symbol, class) = mark(claim.told);
    ClaimRow {
        cell: source.label(&claim.cell),
        against: claim.against.as_deref().map(|id| source.label(id)).unwrap_or_default(),
        seen: seen(source.shown, expectation, claim),
        wanted: wanted(expectation),
        class,
        symbol,
        word: claim.told.to_string(),
        why: claim.why.as_deref().map(one_line).unwrap_or_default(),
    }
}

/// What was seen; nothing where nothing was.
pub(crate) fn seen(shown: Shown, expectation: &Expectation, claim: &Claim) -> String {
    let Some(seen) = &claim.seen else { return "nothing that could be told".to_owned() };
    match expectation.bound() {
        Bound::Times { .. } => format!("{} times", shown::ratio(seen)),
        Bound::Value(_) => shown.estimate(seen, claim.metric.unit()),
    }
}

/// What it takes: `at least 0.8 times`.
pub(crate) fn wanted(expectation: &Expectation) -> String {
    let word = match expectation.relation() {
        Relation::AtLeast => "at least",
        Relation::AtMost => "at most",
    };
    match expectation.bound() {
        Bound::Times { factor, .. } => format!("{word} {factor} times as much"),
        Bound::Value(Quantity { value, unit }) => {
            format!("{word} {}", Shown::new(false).value(*value, *unit))
        }
    }
}

/// What a line came out as, in a sentence or two for somebody who reads such a line for the first time.
pub(crate) fn meaning(source: &Source<'_>, ruling: &ExpectationResult) -> String {
    let expectation = &ruling.expectation;
    let Some(decisive) = decisive(ruling) else {
        if ruling.told == Conclusion::NotAsked {
            return "What this line means was left out of this run on purpose.".to_owned();
        }
        return "Nothing that was measured is meant by this line, so nobody can tell.".to_owned();
    };
    let metric = metric_word(expectation.metric());
    let cell = source.label(&decisive.cell);
    let wanted = wanted(expectation);
    let base = decisive.against.as_deref().map(|id| source.named(id).map_or_else(|| one_line(id), short));
    let seen = match (&decisive.seen, base) {
        (Some(seen), Some(base)) => format!("{cell} has {} times the {metric} of {base}", shown::ratio(seen)),
        (Some(seen), None) => {
            format!("{cell} has a {metric} of {}", source.shown.estimate(seen, decisive.metric.unit()))
        }
        (None, _) => cell,
    };
    let all = ruling.claims.len();
    let alike = ruling.claims.iter().filter(|claim| claim.told == ruling.told).count();
    let of = if all == 1 { String::new() } else { format!(" So came out {alike} of {all}.") };
    match ruling.told {
        Conclusion::Holds if all == 1 => {
            format!("Wanted: {wanted}. {seen}: the whole interval is on the right side.")
        }
        Conclusion::Holds => {
            format!(
                "Wanted: {wanted}. Nearest to that, {seen}: even there the whole interval is on the right side.{of}"
            )
        }
        Conclusion::DoesNotHold => {
            format!("Wanted: {wanted}. {seen}: the whole interval is on the wrong side.{of}")
        }
        Conclusion::NotAsked | Conclusion::NotMeasured => {
            let why = decisive.why.as_deref().map(|why| format!(": {}", one_line(why))).unwrap_or_default();
            format!("Wanted: {wanted}. {seen} was not measured before the run was over{why}.{of}")
        }
        Conclusion::CannotBeTold => match &decisive.why {
            None => format!(
                "Wanted: {wanted}. {seen}: the bound is inside the interval, and more samples would tell.{of}"
            ),
            Some(why) => format!("Wanted: {wanted}. Of {seen} it cannot be told: {}.{of}", one_line(why)),
        },
    }
}

/// A cell that stands beside another of the same family and size.
fn short(cell: &Cell) -> String {
    let line = line(&cell.measurement);
    format!("{} ({})", line.name(), line.detail())
}

/// The claim that decides: of those that came out as the line did, the one nearest to the bound, or farthest on the wrong
/// side of it.
pub(crate) fn decisive(ruling: &ExpectationResult) -> Option<&Claim> {
    let at_least = ruling.expectation.relation() == Relation::AtLeast;
    let order = |claim: &&Claim| {
        claim.seen.as_ref().map_or(f64::INFINITY, |seen| if at_least { seen.low() } else { -seen.high() })
    };
    let alike = ruling.claims.iter().filter(|claim| claim.told == ruling.told);
    alike.min_by(|a, b| order(a).total_cmp(&order(b)))
}
