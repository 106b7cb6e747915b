//! What the `expect:` lines came out as, in words.

use penstock_model::measurement::{Bound, Claim, Expectation, Quantity, Relation, Ruling, Told};
use serde::Serialize;

use super::{
    Source, metric_word,
    shown::{self, Shown},
};
use crate::printable::one_line;

/// No more claims of one line than this are listed.
const MOST_CLAIMS: usize = 40;

/// A line and what it came out as.
#[derive(Serialize)]
pub(crate) struct RulingView {
    line: String,
    class: &'static str,
    symbol: &'static str,
    word: String,
    /// What that means, in a sentence.
    meaning: String,
    open: bool,
    claims: Vec<ClaimRow>,
    left_out: usize,
}

#[derive(Serialize)]
struct ClaimRow {
    cell: String,
    against: String,
    seen: String,
    wanted: String,
    class: &'static str,
    symbol: &'static str,
    word: String,
    why: String,
}

/// The symbol and the class of an outcome.
pub(crate) fn mark(told: Told) -> (&'static str, &'static str) {
    match told {
        Told::Holds => ("✓", "pass"),
        Told::CannotBeTold => ("?", "unknown"),
        Told::DoesNotHold => ("✗", "fail"),
    }
}

pub(crate) fn rulings(source: &Source<'_>) -> Vec<RulingView> {
    source.measurements.rulings.iter().map(|ruling| view(source, ruling)).collect()
}

fn view(source: &Source<'_>, ruling: &Ruling) -> RulingView {
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
        open: ruling.told != Told::Holds && claims.len() <= 6,
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
        Bound::Times { factor, .. } => format!("{word} {} times", shown::number(*factor)),
        Bound::Value(Quantity { value, unit }) => {
            format!("{word} {}", Shown::new(false).value(*value, *unit))
        }
    }
}

/// What a line came out as, in a sentence or two for somebody who reads such a line for the first time.
pub(crate) fn meaning(source: &Source<'_>, ruling: &Ruling) -> String {
    let expectation = &ruling.expectation;
    let metric = metric_word(expectation.metric());
    let Some(decisive) = decisive(ruling) else {
        return "Nothing that was measured is meant by this line, so nobody can tell.".to_owned();
    };
    let of = match ruling.claims.len() {
        1 => String::new(),
        all => {
            let alike = ruling.claims.iter().filter(|claim| claim.told == ruling.told).count();
            format!(" ({alike} of {all} {})", if alike == 1 { "came out so" } else { "came out so" })
        }
    };
    let cell = source.label(&decisive.cell);
    let (seen, wanted) = (seen(source.shown, expectation, decisive), wanted(expectation));
    let against = match &decisive.against {
        Some(id) => format!(" {}", source.label(id)),
        None => String::new(),
    };
    match ruling.told {
        Told::Holds => format!(
            "Wanted {wanted}{against} in {metric}; even the nearest, {cell}, has {seen}, and its whole interval is on the \
             right side{of}."
        ),
        Told::DoesNotHold => format!(
            "Wanted {wanted}{against} in {metric}; {cell} has {seen}, and its whole interval is on the wrong side{of}."
        ),
        Told::CannotBeTold => match (&decisive.seen, &decisive.why) {
            (Some(_), None) => format!(
                "Wanted {wanted}{against} in {metric}; {cell} has {seen}, an interval with the bound inside: more samples \
                 would tell{of}."
            ),
            (_, why) => format!(
                "Wanted {wanted}{against} in {metric}; of {cell} it cannot be told: {}{of}.",
                why.as_deref().map_or_else(|| "nobody said why".to_owned(), one_line)
            ),
        },
    }
}

/// The claim that decides: of those that came out as the line did, the one nearest to the bound, or farthest on the wrong
/// side of it.
pub(crate) fn decisive(ruling: &Ruling) -> Option<&Claim> {
    let at_least = ruling.expectation.relation() == Relation::AtLeast;
    let order = |claim: &&Claim| {
        let worst = claim
            .seen
            .as_ref()
            .map_or(f64::INFINITY, |seen| if at_least { seen.low() } else { -seen.high() });
        worst
    };
    let alike = ruling.claims.iter().filter(|claim| claim.told == ruling.told);
    alike.min_by(|a, b| order(a).total_cmp(&order(b)))
}
