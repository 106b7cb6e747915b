//! Claims against what was measured.

use penstock_model::measurement::{
    Claim, Conclusion, ExpectationResult,
    latency::{Arm, LatencyExpectation, Limit, Series, Statistic, Stopped},
};

use super::{compare, design_effect, needed, rule_of_three, test};

/// What a claim comes out as. Claims about bounds may be asked after every block; a ratio is asked once, when all is measured.
pub fn judge(
    line: &LatencyExpectation,
    series: &[Series],
    confidence: f64,
    seed: u64,
) -> ExpectationResult<LatencyExpectation> {
    let claims = match line.limit() {
        Limit::Below { late, except } => (series.iter())
            .filter(|series| line.left().matches(&series.setting))
            .map(|series| below(line, series, *late, *except, confidence))
            .collect(),
        Limit::Times { .. } => ratios(line, series, confidence, seed),
    };
    ExpectationResult::new(line.clone(), claims)
}

/// Whether the rulings so far end a measurement: a bound that is broken does, and so do claims that all are proven, when none is a
/// ratio, which more blocks would still narrow.
pub fn decided(rulings: &[ExpectationResult<LatencyExpectation>]) -> Option<Stopped> {
    let is_bound = |ruling: &ExpectationResult<LatencyExpectation>| {
        matches!(ruling.expectation.limit(), Limit::Below { .. })
    };
    if rulings.iter().any(|ruling| is_bound(ruling) && ruling.told == Conclusion::DoesNotHold) {
        return Some(Stopped::Broken);
    }
    let all = rulings.iter().all(|ruling| is_bound(ruling) && ruling.told == Conclusion::Holds);
    (all && !rulings.is_empty()).then_some(Stopped::Proven)
}

fn below(line: &LatencyExpectation, series: &Series, late: u32, except: f64, confidence: f64) -> Claim {
    let statistic = line.statistic();
    let mut claim = Claim {
        n: series.counted().map(|block| block.counts.total()).sum(),
        max: series.max(),
        why: series.missing.clone(),
        ..Claim::new(&series.id, Conclusion::CannotBeTold)
    };
    if claim.n == 0 {
        if series.cut_short.is_some() {
            claim.told = Conclusion::NotMeasured;
        }
        claim.why.get_or_insert_with(|| "nothing was measured".to_owned());
        return claim;
    }
    if statistic != Statistic::Max {
        let summary = series.summary.as_ref().and_then(|summary| summary.quantile(statistic));
        claim.seen = summary.and_then(|quantile| quantile.value);
    }
    let wakes = series.setting.tool.wakes();
    if !wakes && statistic != Statistic::Max {
        let tool = series.setting.tool;
        claim.why = Some(format!(
            "{tool} counts no wake-ups, and {statistic} is a share of them; its max can be claimed"
        ));
        return claim;
    }
    // A histogram may end before the bound; a block whose maximum is below it has no late one all the same.
    let blocks: Option<Vec<(u64, u64)>> = series
        .counted()
        .map(|block| {
            let on_time = block.max.is_some_and(|max| max < f64::from(late));
            let late = if on_time { Some(0) } else { block.counts.at_least(late) };
            Some((block.counts.total(), late?))
        })
        .collect();
    claim.late = blocks.as_ref().map(|blocks| blocks.iter().map(|(_, late)| late).sum());
    // A tool that never sleeps counts turns of its loop, millions a second, of which none is by itself a chance to be late: what may
    // be taken as independent of each other are seconds.
    let seconds = || series.counted().map(|block| block.seconds).sum::<f64>() as u64;
    let tries = if wakes { claim.n } else { seconds() };
    if statistic == Statistic::Max {
        let broken = claim.max.is_some_and(|max| max >= f64::from(late)) || claim.late.unwrap_or(0) > 0;
        claim.told = match () {
            () if broken => Conclusion::DoesNotHold,
            // The maximum is known of every block or no late one was binned, so that there was none.
            () if claim.late == Some(0) && rule_of_three(tries, confidence) <= except => Conclusion::Holds,
            () => Conclusion::CannotBeTold,
        };
    } else if let Some(blocks) = &blocks {
        let late = claim.late.unwrap_or(0);
        claim.told = test(claim.n, late, except, confidence, design_effect(blocks));
    }
    if claim.told == Conclusion::CannotBeTold {
        let tries = if wakes { Tries::WakeUps(tries) } else { Tries::Seconds(tries) };
        claim.why = Some(more(&claim, tries, except, confidence));
    }
    claim
}

/// What may be late or not.
enum Tries {
    WakeUps(u64),
    Seconds(u64),
}

/// Why a bound cannot be told yet, and what it would take.
fn more(claim: &Claim, tries: Tries, except: f64, confidence: f64) -> String {
    match (claim.late, tries) {
        (None, _) => "the histogram ends before the bound".to_owned(),
        (Some(0), Tries::WakeUps(n)) => {
            let left = needed(except, confidence).saturating_sub(n);
            format!("none of {n} wake-ups was late; {left} more without one would prove it")
        }
        (Some(0), Tries::Seconds(n)) => {
            let left = needed(except, confidence).saturating_sub(n);
            format!("in {n} s nothing was late; {left} s more without that would prove it")
        }
        (Some(late), _) => {
            let n = claim.n;
            format!("{late} of {n} wake-ups were late, which is too near to {except} of them to tell")
        }
    }
}

fn ratios(line: &LatencyExpectation, series: &[Series], confidence: f64, seed: u64) -> Vec<Claim> {
    let Limit::Times { relation, factor, .. } = line.limit() else { return Vec::new() };
    let mut claims = Vec::new();
    for left in series {
        for right in series.iter().filter(|right| line.pairs(&left.setting, &right.setting)) {
            let null = series.iter().find(|null| is_null_of(null, right));
            let compared = compare(right, left, null, line.statistic(), confidence, seed);
            let not_reached = |series: &Series| !series.is_measured() && series.cut_short.is_some();
            let doubt = (compared.ratio.is_some() && compared.null_holds() == Some(false)).then(|| {
                "the same measured twice differs from itself, so that no ratio can be trusted".to_owned()
            });
            let told = match compared.ratio {
                Some(_) if doubt.is_some() => Conclusion::CannotBeTold,
                Some(seen) => relation.judge(&seen, *factor),
                None if not_reached(left) || not_reached(right) => Conclusion::NotMeasured,
                None => Conclusion::CannotBeTold,
            };
            claims.push(Claim {
                against: Some(right.id.clone()),
                seen: compared.ratio,
                why: doubt.or(compared.why),
                ..Claim::new(&left.id, told)
            });
        }
    }
    claims
}

fn is_null_of(null: &Series, of: &Series) -> bool {
    null.setting.arm == Arm::Null && of.setting.arm == Arm::Tuned && null.setting.is_arm_of(&of.setting)
}
