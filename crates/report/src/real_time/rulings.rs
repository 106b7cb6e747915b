//! What the `expect:` lines about latencies came out as, in words.

use penstock_model::measurement::{
    Claim, Conclusion, ExpectationResult, Relation, Unit,
    latency::{LatencyExpectation, Limit, Statistic},
};

use super::{Source, tables};
use crate::{printable::one_line, rulings::Words, shown};

impl Words<LatencyExpectation> for Source<'_> {
    fn label(&self, id: &str) -> String {
        Source::label(self, id)
    }

    fn seen(&self, line: &LatencyExpectation, claim: &Claim) -> String {
        let statistic = tables::column(line.statistic());
        if let Limit::Times { .. } = line.limit() {
            return claim.seen.as_ref().map_or_else(
                || "nothing that could be told".to_owned(),
                |seen| format!("{} times", shown::ratio(seen)),
            );
        }
        if claim.n == 0 {
            return "nothing".to_owned();
        }
        let late =
            claim.late.map(|late| format!("{} of {} were late", shown::count(late), shown::count(claim.n)));
        let late = late
            .unwrap_or_else(|| format!("of {} it is not known how many were late", shown::count(claim.n)));
        let max = claim.max.map(|max| format!(", the longest {}", self.time(max))).unwrap_or_default();
        let own = claim
            .seen
            .as_ref()
            .map(|seen| format!(", {statistic} {}", self.shown.estimate(seen, Unit::Microseconds)));
        format!("{late}{max}{}", own.unwrap_or_default())
    }

    fn wanted(&self, line: &LatencyExpectation) -> String {
        match line.limit() {
            Limit::Below { late, except } if line.statistic() == Statistic::Max => {
                let one = if line.left().wakes() { "1" } else { "1 s" };
                format!(
                    "none of {late} µs or longer, and fewer than {one} in {} proven",
                    tables::one_in(*except)
                )
            }
            Limit::Below { late, except } => {
                format!("fewer than 1 in {} of {late} µs or longer", tables::one_in(*except))
            }
            Limit::Times { relation: Relation::AtLeast, factor, .. } => format!("at least {factor} times"),
            Limit::Times { relation: Relation::AtMost, factor, .. } => format!("at most {factor} times"),
        }
    }

    fn meaning(&self, ruling: &ExpectationResult<LatencyExpectation>) -> String {
        meaning(self, ruling)
    }

    fn shortest<'a>(&self, ruling: &'a ExpectationResult<LatencyExpectation>) -> Option<&'a Claim> {
        ruling.claims.iter().find(|claim| claim.told == ruling.told)
    }
}

/// What a line came out as, in a sentence or two for somebody who reads such a line for the first time.
fn meaning(source: &Source<'_>, ruling: &ExpectationResult<LatencyExpectation>) -> String {
    let alike = || ruling.claims.iter().filter(|claim| claim.told == ruling.told);
    let worst = |claim: &&Claim| claim.max.or(claim.seen.map(|seen| -seen.low())).unwrap_or(0.0);
    let Some(decisive) = alike().max_by(|a, b| worst(a).total_cmp(&worst(b))) else {
        return "No measured series matches this line, so it cannot be judged.".to_owned();
    };
    let series = source.label(&decisive.cell);
    let against = decisive.against.as_deref().map(|id| format!(" against {}", source.label(id)));
    let against = against.unwrap_or_default();
    let of = match ruling.claims.len() {
        1 => String::new(),
        all => format!(" So came out {} of {all}.", alike().count()),
    };
    let why = decisive.why.as_deref().map(|why| format!(": {}", one_line(why))).unwrap_or_default();
    let told = match ruling.told {
        Conclusion::Holds => "that is proven",
        Conclusion::DoesNotHold => "that breaks it",
        Conclusion::NotAsked => "that was not asked for",
        Conclusion::NotMeasured => "that was not measured before the run was over",
        Conclusion::CannotBeTold => "that cannot be told yet",
    };
    let seen = source.seen(&ruling.expectation, decisive);
    format!("Wanted: {}. {series}{against}: {seen}; {told}{why}.{of}", source.wanted(&ruling.expectation))
}
