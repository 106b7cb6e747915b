//! From blocks to what is told of them: summaries, comparisons, rulings.

use penstock_model::measurement::{
    Told,
    latency::{Claim, Finding, Latency, Limit, Ruling, Series, Statistic, Stopped, ToolVersion},
};

use super::run::RunOptions;

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ending {
    /// Why; `None` when it was ended from outside.
    pub stopped: Option<Stopped>,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What the reader should know beside.
    pub notes: Vec<String>,
    /// The tools that were found.
    pub tools: Vec<ToolVersion>,
}

/// All that a run tells.
pub fn conclude(series: Vec<Series>, options: &RunOptions, claims: &[Claim], ending: Ending) -> Latency {
    let mut series = series;
    for one in &mut series {
        // What failed to its end tells why; what was measured before it failed counts.
        if one.is_measured() {
            one.missing = None;
        } else if one.missing.is_none() {
            let why = one.blocks.iter().rev().find_map(|block| block.failed.clone());
            one.missing = Some(why.unwrap_or_else(|| "no block of it was taken".to_owned()));
        }
    }
    let rulings = rulings(claims, &series, options);
    Latency {
        seed: options.seed,
        seconds: ending.seconds,
        spike: options.spike,
        confidence: options.confidence,
        tools: ending.tools,
        series,
        rulings,
        stopped: ending.stopped,
        notes: ending.notes,
        ..Latency::default()
    }
}

/// What the claims come out as.
pub fn rulings(claims: &[Claim], series: &[Series], options: &RunOptions) -> Vec<Ruling> {
    claims.iter().map(|claim| Ruling::new(claim.clone(), findings(claim, series, options))).collect()
}

fn findings(claim: &Claim, series: &[Series], options: &RunOptions) -> Vec<Finding> {
    let meant = series.iter().filter(|series| claim.left().matches(&series.setting));
    meant.map(|series| finding(claim, series, options)).collect()
}

fn finding(claim: &Claim, series: &Series, options: &RunOptions) -> Finding {
    let mut finding = Finding {
        series: series.id.clone(),
        against: None,
        seen: None,
        n: 0,
        late: None,
        max: series.max(),
        told: Told::CannotBeTold,
        why: None,
    };
    let (Limit::Below { late, except }, Statistic::Max) = (claim.limit(), claim.statistic()) else {
        finding.why = Some("it is not decided here".to_owned());
        return finding;
    };
    let Ok(bins) = series.bins() else { return finding };
    finding.n = bins.total();
    finding.late = bins.at_least(*late);
    let needed = ((1.0 - options.confidence).ln() / (1.0 - except).ln()).ceil() as u64;
    match finding.late {
        Some(0) if finding.n >= needed => finding.told = Told::Holds,
        Some(0) => finding.why = Some(format!("{} wake-ups; it takes {needed}", finding.n)),
        Some(_) => finding.told = Told::DoesNotHold,
        None => finding.why = Some("the histogram ends before it".to_owned()),
    }
    finding
}
