//! What the `expect:` lines about cells came out as, in words.

use penstock_model::measurement::{
    Bound, Cell, Claim, Conclusion, Expectation, ExpectationResult, Quantity, Relation,
};

use super::{
    Source,
    family::line,
    metric_word,
    shown::{self, Shown},
};
use crate::{printable::one_line, rulings::Words};

impl Words<Expectation> for Source<'_> {
    fn label(&self, id: &str) -> String {
        Source::label(self, id)
    }

    fn seen(&self, line: &Expectation, claim: &Claim) -> String {
        let Some(seen) = &claim.seen else { return "nothing that could be told".to_owned() };
        match line.bound() {
            Bound::Times { .. } => format!("{} times", shown::ratio(seen)),
            Bound::Value(_) => self.shown.estimate(seen, line.metric().unit()),
        }
    }

    fn wanted(&self, line: &Expectation) -> String {
        let word = match line.relation() {
            Relation::AtLeast => "at least",
            Relation::AtMost => "at most",
        };
        match line.bound() {
            Bound::Times { factor, .. } => format!("{word} {factor} times as much"),
            Bound::Value(Quantity { value, unit }) => {
                format!("{word} {}", Shown::new(false).value(*value, *unit))
            }
        }
    }

    fn meaning(&self, ruling: &ExpectationResult) -> String {
        meaning(self, ruling)
    }

    fn shortest<'a>(&self, ruling: &'a ExpectationResult) -> Option<&'a Claim> {
        decisive(ruling).filter(|claim| claim.seen.is_some())
    }
}

/// What a line came out as, in a sentence or two for somebody who reads such a line for the first time.
fn meaning(source: &Source<'_>, ruling: &ExpectationResult) -> String {
    let expectation = &ruling.expectation;
    let Some(decisive) = decisive(ruling) else {
        if ruling.told == Conclusion::NotAsked {
            return "What this line means was left out of this run on purpose.".to_owned();
        }
        return "No measurement matches this line, so it cannot be judged.".to_owned();
    };
    let metric = metric_word(expectation.metric());
    let cell = source.label(&decisive.cell);
    let wanted = source.wanted(expectation);
    let base = decisive.against.as_deref().map(|id| source.named(id).map_or_else(|| one_line(id), short));
    let seen = match (&decisive.seen, base) {
        (Some(seen), Some(base)) => format!("{cell} has {} times the {metric} of {base}", shown::ratio(seen)),
        (Some(seen), None) => {
            format!("{cell} has a {metric} of {}", source.shown.estimate(seen, expectation.metric().unit()))
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
fn decisive(ruling: &ExpectationResult) -> Option<&Claim> {
    let at_least = ruling.expectation.relation() == Relation::AtLeast;
    let order = |claim: &&Claim| {
        claim.seen.as_ref().map_or(f64::INFINITY, |seen| if at_least { seen.low() } else { -seen.high() })
    };
    let alike = ruling.claims.iter().filter(|claim| claim.told == ruling.told);
    alike.min_by(|a, b| order(a).total_cmp(&order(b)))
}
