//! What a run came to, for a terminal and for the exit status.

use std::{collections::BTreeSet, fmt::Write};

use penstock_model::measurement::latency::{Comparison, Latency, Statistic};

use crate::{bench::outcome::rulings, failure::Status};

/// The exit status that it comes to.
pub fn status(latency: &Latency) -> Status {
    if latency.holds() { Status::Holds } else { Status::DoesNotHold }
}

/// A line for each series, comparison and claim.
pub fn text(latency: &Latency) -> String {
    let mut text = String::new();
    let mark = if latency.emulated { "  (emulated: only ratios mean anything)" } else { "" };
    let wide = latency.series.iter().map(|series| series.id.len()).max().unwrap_or(0);
    let tools: BTreeSet<_> = latency.series.iter().map(|series| series.setting.tool).collect();
    let counted = if tools.iter().all(|tool| tool.wakes()) { "wake-ups" } else { "counted" };
    let _ = writeln!(
        text,
        "{:<wide$}  {counted:>9} {:>9} {:>9} {:>9} {:>9}  spikes/min{mark}",
        "microseconds", "p50", "p99", "p99.99", "max"
    );
    for series in &latency.series {
        let Some(summary) = &series.summary else {
            let why = series.missing.as_deref().unwrap_or("nothing was measured");
            let word = if series.cut_short.is_some() { "not reached" } else { "missing" };
            let _ = writeln!(text, "{:<wide$}  {word}: {why}", series.id);
            continue;
        };
        let quantile = |statistic| {
            let found = summary.quantile(statistic)?;
            found.value.as_ref().map(penstock_model::measurement::Estimate::value).or(found.alone)
        };
        let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
        let _ = writeln!(
            text,
            "{:<wide$}  {:>9} {:>9} {:>9} {:>9} {:>9}  {}",
            series.id,
            summary.n,
            cell(quantile(Statistic::P50)),
            cell(quantile(Statistic::P99)),
            cell(quantile(Statistic::P9999)),
            cell(summary.max),
            summary.spike_blocks_per_minute().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
        );
    }
    for tool in tools.iter().filter(|tool| !tool.wakes()) {
        let _ = writeln!(text, "{tool} counts loops, and no wake-ups");
    }
    compared(&mut text, latency);
    rulings(&mut text, &latency.rulings, |_, claim| match (claim.late, claim.max) {
        (Some(late @ 1..), Some(max)) => {
            format!("{}: {late} of {} were late, the longest {max:.0} us", claim.cell, claim.n)
        }
        _ => claim.cell.clone(),
    });
    if let Some(stopped) = latency.stopped {
        let _ = writeln!(text, "ended: {stopped}");
    }
    for note in &latency.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// A line for each pair of series that was compared: its ratios, or why there is none.
fn compared(text: &mut String, latency: &Latency) {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for comparison in &latency.comparisons {
        let pair = (comparison.base.as_str(), comparison.other.as_str());
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    for (base, other) in pairs {
        let all =
            latency.comparisons.iter().filter(|one| (one.base.as_str(), one.other.as_str()) == (base, other));
        let all: Vec<&Comparison> = all.collect();
        let told: Vec<String> = all
            .iter()
            .filter_map(|one| {
                let null = one.null.as_ref().map_or_else(String::new, |null| format!(" (A/A {null:.2})"));
                Some(format!("{} x {:.2}{null}", one.statistic, one.ratio.as_ref()?))
            })
            .collect();
        let why =
            || all.iter().find_map(|one| one.why.clone()).unwrap_or_else(|| "it is not known".to_owned());
        let told = if told.is_empty() { why() } else { told.join(", ") };
        let count = all.first().map_or(0, |one| one.pairs);
        let _ = writeln!(text, "{other} / {base}, {count} pairs: {told}");
    }
}
