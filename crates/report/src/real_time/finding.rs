//! The main findings, a sentence each.

use penstock_model::measurement::latency::{Arm, Comparison, Series, Statistic};

use super::{Source, short, tables};
use crate::shown;

/// The comparison that says most, and the guests' and the host's longest wake-up.
pub(super) fn findings(source: &Source<'_>) -> Vec<String> {
    let mut findings = Vec::new();
    findings.extend(compared(source));
    findings.extend(longest(source));
    findings
}

/// Tuned against untuned, under load where that was measured, in the rarest percentile that has an interval.
fn compared(source: &Source<'_>) -> Option<String> {
    let rank = |one: &&Comparison| {
        let (base, other) = (source.latency.series(&one.base)?, source.latency.series(&one.other)?);
        one.ratio?;
        let arms = base.setting.arm != other.setting.arm && base.setting.is_arm_of(&other.setting);
        let rare = match one.statistic {
            Statistic::P9999 => 3,
            Statistic::P999 => 2,
            Statistic::BlockMax => 1,
            _ => 0,
        };
        Some((
            arms,
            !base.setting.ordinary,
            base.setting.load.is_loaded(),
            base.setting.guest().is_some(),
            rare,
        ))
    };
    let one = source.latency.comparisons.iter().filter(|one| rank(one).is_some()).max_by_key(rank)?;
    let (base, other) = (source.latency.series(&one.base)?, source.latency.series(&one.other)?);
    let what = match one.statistic {
        Statistic::BlockMax => "usual longest wake-up of a block".to_owned(),
        statistic => statistic.name().to_owned(),
    };
    let load = if base.setting.load.is_loaded() { "under load" } else { "without load" };
    let ratio = shown::ratio(one.ratio.as_ref()?);
    let mut text = format!(
        "{}: the {what} {load} is {ratio} times that of {}",
        short(&other.setting),
        short(&base.setting)
    );
    match &one.null {
        Some(null) if one.null_holds() == Some(true) => {
            text += &format!("; the same twice gives {}", shown::ratio(null));
        }
        Some(null) => {
            text += &format!(", but the same twice gives {}: do not trust it", shown::ratio(null));
        }
        None => text += "; no A/A was measured beside it",
    }
    Some(text + ".")
}

/// The longest wake-up of the series that matter most: tuned, not ordinary, loaded where there is load.
fn longest(source: &Source<'_>) -> Option<String> {
    let subject = |series: &&Series| {
        series.setting.tool.wakes() && series.setting.arm == Arm::Tuned && !series.setting.ordinary
    };
    let all: Vec<&Series> = source.latency.series.iter().filter(subject).collect();
    let series = all
        .into_iter()
        .filter(|series| series.summary.is_some())
        .max_by(|a, b| a.max().unwrap_or(0.0).total_cmp(&b.max().unwrap_or(0.0)))?;
    let summary = series.summary.as_ref()?;
    let load = if series.setting.load.is_loaded() { "under load" } else { "without load" };
    let bound = summary.bound.as_ref().map(|bound| tables::sentence(source, bound)).unwrap_or_default();
    Some(format!(
        "The longest wake-up on a tuned CPU is {} ({}, {load}, of {}). {bound}",
        source.time(summary.max?),
        short(&series.setting),
        shown::count(summary.n)
    ))
}
