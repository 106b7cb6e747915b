//! From blocks to what is told of them: summaries, comparisons, rulings.

use penstock_model::{
    measurement::{
        Claim, Conclusion, ExpectationResult,
        latency::{
            Arm, Comparison, Latency, LatencyExpectation, Limit, Series, Setting, Statistic, Stopped,
            Summary, ToolVersion,
        },
    },
    verdict::Vantage,
};

use super::{settings::StandIn, wake_ups::RunOptions};
use penstock_statistics::wake_ups;

/// In what series are compared.
const TOLD: [Statistic; 4] = [Statistic::P99, Statistic::P9999, Statistic::BlockMax, Statistic::Max];

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
pub fn conclude(
    series: Vec<Series>,
    options: &RunOptions,
    claims: &[LatencyExpectation],
    ending: Ending,
) -> Latency {
    let mut series = series;
    for one in &mut series {
        // What failed to its end tells why; what was measured before it failed counts.
        if one.is_measured() {
            one.missing = None;
        } else if one.missing.is_none() {
            let failed = one.blocks.iter().rev().find_map(|block| block.failed.clone());
            // What was tried and failed is a fault, whatever ended the run.
            one.cut_short = ending.stopped.and_then(Stopped::cut_short).filter(|_| failed.is_none());
            let why = match ending.stopped {
                Some(stopped) => format!("no block of it was taken: {stopped}"),
                None => "no block of it was taken".to_owned(),
            };
            one.missing = Some(failed.unwrap_or(why));
        }
    }
    let mut notes = ending.notes;
    for one in series.iter_mut().filter(|one| one.missing.is_none()) {
        match wake_ups::summarise(&one.blocks, options.confidence, options.seed) {
            Ok(summary) => {
                one.summary = summary.map(|summary| Summary {
                    // The rule of three is of wake-ups.
                    bound: summary.bound.filter(|_| one.setting.tool.wakes()),
                    ..summary
                })
            }
            Err(why) => notes.push(format!("{}: {why}", one.id)),
        }
    }
    notes.extend(options.stand_ins.iter().map(|one| format!("{}: {one}", one.place)));
    let rulings = rulings(claims, &series, options);
    let mut rulings: Vec<_> =
        rulings.into_iter().map(|ruling| limited(ruling, &series, &options.stand_ins)).collect();
    if options.emulated {
        rulings = rulings.into_iter().map(unproven).collect();
    }
    Latency {
        emulated: options.emulated,
        started: options.started.clone(),
        seed: options.seed,
        seconds: ending.seconds,
        spike: options.spike,
        confidence: options.confidence,
        tools: ending.tools,
        comparisons: comparisons(&series, options),
        rulings,
        series,
        stopped: ending.stopped,
        notes,
        ..Latency::default()
    }
}

/// What the claims come out as.
pub fn rulings(
    claims: &[LatencyExpectation],
    series: &[Series],
    options: &RunOptions,
) -> Vec<ExpectationResult<LatencyExpectation>> {
    claims.iter().map(|claim| wake_ups::judge(claim, series, options.confidence, options.seed)).collect()
}

/// A claim speaks of a place; where one CPU of it stands for others, each says of which nothing is told.
fn limited(
    ruling: ExpectationResult<LatencyExpectation>,
    series: &[Series],
    stand_ins: &[StandIn],
) -> ExpectationResult<LatencyExpectation> {
    let name = |claim: Claim| {
        let setting = series.iter().find(|series| series.id == claim.cell).map(|series| &series.setting);
        let of =
            |one: &&StandIn| setting.is_some_and(|setting| one.place == setting.place && !setting.ordinary);
        let Some(one) = stand_ins.iter().find(of) else { return claim };
        let why = claim.why.as_deref().map_or_else(|| one.to_string(), |why| format!("{why}; {one}"));
        Claim { why: Some(why), ..claim }
    };
    ExpectationResult::new(ruling.expectation, ruling.claims.into_iter().map(name).collect())
}

/// On an emulated board no latency by itself means anything: what is said of one cannot be told, however it looks.
fn unproven(ruling: ExpectationResult<LatencyExpectation>) -> ExpectationResult<LatencyExpectation> {
    if !matches!(ruling.expectation.limit(), Limit::Below { .. }) {
        return ruling;
    }
    let cannot = |claim| Claim {
        told: Conclusion::CannotBeTold,
        why: Some("the board is emulated, and only ratios mean anything".to_owned()),
        ..claim
    };
    ExpectationResult::new(ruling.expectation, ruling.claims.into_iter().map(cannot).collect())
}

/// The tuned machine with the untuned one, and the host with its guests and with an ordinary CPU.
fn comparisons(series: &[Series], options: &RunOptions) -> Vec<Comparison> {
    let measured = || series.iter().filter(|series| series.is_measured());
    let arm_of = |base: &Series, arm: Arm| {
        let wanted = Setting { arm, ..base.setting.clone() };
        measured().find(|series| series.setting == wanted)
    };
    let tuned = measured().filter(|series| series.setting.arm == Arm::Tuned);
    let mut comparisons = Vec::new();
    for base in tuned {
        let here = &base.setting;
        let null = arm_of(base, Arm::Null);
        let reference = here.place == Vantage::Host && !here.ordinary;
        let elsewhere = measured().filter(|other| {
            let there = &other.setting;
            let same = (there.tool, there.power, there.arm) == (here.tool, here.power, here.arm);
            reference && same && there.load == here.load && (there.place != Vantage::Host || there.ordinary)
        });
        for other in arm_of(base, Arm::Untuned).into_iter().chain(elsewhere) {
            comparisons.extend(TOLD.into_iter().map(|statistic| {
                wake_ups::compare(base, other, null, statistic, options.confidence, options.seed)
            }));
        }
    }
    comparisons
}
