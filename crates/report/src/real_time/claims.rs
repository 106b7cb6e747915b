//! What the claims came out as, in words.

use penstock_model::measurement::{
    Conclusion, Relation,
    latency::{ClaimResult, Finding, LatencyExpectation, Limit, Statistic},
};

use super::{Source, tables};
use crate::{
    measurements::{
        rulings::{ClaimRow, RulingView, mark},
        shown,
    },
    printable::one_line,
};

/// No more findings of one line than this are listed.
const MOST_CLAIMS: usize = 40;

pub(super) fn rulings(source: &Source<'_>) -> Vec<RulingView> {
    source.latency.rulings.iter().map(|ruling| view(source, ruling)).collect()
}

fn view(source: &Source<'_>, ruling: &ClaimResult) -> RulingView {
    let (symbol, class) = mark(ruling.told);
    let mut findings: Vec<&Finding> = ruling.findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.told));
    RulingView {
        line: one_line(&ruling.claim.to_string()),
        class,
        symbol,
        word: ruling.told.to_string(),
        meaning: meaning(source, ruling),
        open: ruling.told != Conclusion::Holds && findings.len() <= 6,
        left_out: findings.len().saturating_sub(MOST_CLAIMS),
        claims: (findings.into_iter().take(MOST_CLAIMS))
            .map(|finding| row(source, &ruling.claim, finding))
            .collect(),
    }
}

fn row(source: &Source<'_>, claim: &LatencyExpectation, finding: &Finding) -> ClaimRow {
    let (symbol, class) = mark(finding.told);
    ClaimRow {
        cell: source.label(&finding.series),
        against: finding.against.as_deref().map(|id| source.label(id)).unwrap_or_default(),
        seen: seen(source, claim, finding),
        wanted: wanted(claim),
        class,
        symbol,
        word: finding.told.to_string(),
        why: finding.why.as_deref().map(one_line).unwrap_or_default(),
    }
}

/// What it takes.
fn wanted(claim: &LatencyExpectation) -> String {
    match claim.limit() {
        Limit::Below { late, except } if claim.statistic() == Statistic::Max => {
            format!("none of {late} µs or longer, and fewer than 1 in {} proven", tables::one_in(*except))
        }
        Limit::Below { late, except } => {
            format!("fewer than 1 in {} of {late} µs or longer", tables::one_in(*except))
        }
        Limit::Times { relation: Relation::AtLeast, factor, .. } => format!("at least {factor} times"),
        Limit::Times { relation: Relation::AtMost, factor, .. } => format!("at most {factor} times"),
    }
}

/// What was seen.
pub(super) fn seen(source: &Source<'_>, claim: &LatencyExpectation, finding: &Finding) -> String {
    let statistic = tables::column(claim.statistic());
    if let Limit::Times { .. } = claim.limit() {
        return finding.seen.as_ref().map_or_else(
            || "nothing that could be told".to_owned(),
            |seen| format!("{} times", shown::ratio(seen)),
        );
    }
    if finding.n == 0 {
        return "nothing".to_owned();
    }
    let late =
        finding.late.map(|late| format!("{} of {} were late", shown::count(late), shown::count(finding.n)));
    let late =
        late.unwrap_or_else(|| format!("of {} it is not known how many were late", shown::count(finding.n)));
    let max = finding.max.map(|max| format!(", the longest {}", source.time(max))).unwrap_or_default();
    let own = finding.seen.as_ref().map(|seen| {
        format!(
            ", {statistic} {}",
            source.shown.estimate(seen, penstock_model::measurement::Unit::Microseconds)
        )
    });
    format!("{late}{max}{}", own.unwrap_or_default())
}

/// What a line came out as, in a sentence or two for somebody who reads such a line for the first time.
pub(super) fn meaning(source: &Source<'_>, ruling: &ClaimResult) -> String {
    let alike = || ruling.findings.iter().filter(|finding| finding.told == ruling.told);
    let worst = |finding: &&Finding| finding.max.or(finding.seen.map(|seen| -seen.low())).unwrap_or(0.0);
    let Some(decisive) = alike().max_by(|a, b| worst(a).total_cmp(&worst(b))) else {
        return "No series that was measured is meant by this line, so nobody can tell.".to_owned();
    };
    let series = source.label(&decisive.series);
    let against = decisive.against.as_deref().map(|id| format!(" against {}", source.label(id)));
    let against = against.unwrap_or_default();
    let of = match ruling.findings.len() {
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
    let seen = seen(source, &ruling.claim, decisive);
    format!("Wanted: {}. {series}{against}: {seen}; {told}{why}.{of}", wanted(&ruling.claim))
}
