//! Claims against what was measured.

use penstock_model::measurement::{
    Conclusion, Relation,
    latency::{Arm, ClaimResult, Finding, LatencyExpectation, Limit, Series, Statistic, Stopped},
};

use super::{compare, design_effect, needed, rule_of_three, test};

/// What a claim comes out as. Claims about bounds may be asked after every block; a ratio is asked once, when all is measured.
pub fn judge(claim: &LatencyExpectation, series: &[Series], confidence: f64, seed: u64) -> ClaimResult {
    let findings = match claim.limit() {
        Limit::Below { late, except } => (series.iter())
            .filter(|series| claim.left().matches(&series.setting))
            .map(|series| below(claim, series, *late, *except, confidence))
            .collect(),
        Limit::Times { .. } => ratios(claim, series, confidence, seed),
    };
    ClaimResult::new(claim.clone(), findings)
}

/// Whether the rulings so far end a measurement: a bound that is broken does, and so do claims that all are proven, when none is a
/// ratio, which more blocks would still narrow.
pub fn decided(rulings: &[ClaimResult]) -> Option<Stopped> {
    let is_bound = |ruling: &ClaimResult| matches!(ruling.claim.limit(), Limit::Below { .. });
    if rulings.iter().any(|ruling| is_bound(ruling) && ruling.told == Conclusion::DoesNotHold) {
        return Some(Stopped::Broken);
    }
    let all = rulings.iter().all(|ruling| is_bound(ruling) && ruling.told == Conclusion::Holds);
    (all && !rulings.is_empty()).then_some(Stopped::Proven)
}

fn below(claim: &LatencyExpectation, series: &Series, late: u32, except: f64, confidence: f64) -> Finding {
    let statistic = claim.statistic();
    let mut finding = Finding {
        series: series.id.clone(),
        against: None,
        seen: None,
        n: series.counted().map(|block| block.counts.total()).sum(),
        late: None,
        max: series.max(),
        told: Conclusion::CannotBeTold,
        why: series.missing.clone(),
    };
    if finding.n == 0 {
        if series.cut_short.is_some() {
            finding.told = Conclusion::NotMeasured;
        }
        finding.why.get_or_insert_with(|| "nothing was measured".to_owned());
        return finding;
    }
    if statistic != Statistic::Max {
        let summary = series.summary.as_ref().and_then(|summary| summary.quantile(statistic));
        finding.seen = summary.and_then(|quantile| quantile.value);
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
    finding.late = blocks.as_ref().map(|blocks| blocks.iter().map(|(_, late)| late).sum());
    if statistic == Statistic::Max {
        let broken = finding.max.is_some_and(|max| max >= f64::from(late)) || finding.late.unwrap_or(0) > 0;
        finding.told = match () {
            () if broken => Conclusion::DoesNotHold,
            // The maximum is known of every block or no late one was binned, so that there was none.
            () if finding.late == Some(0) && rule_of_three(finding.n, confidence) <= except => {
                Conclusion::Holds
            }
            () => Conclusion::CannotBeTold,
        };
    } else if let Some(blocks) = &blocks {
        let late = finding.late.unwrap_or(0);
        finding.told = test(finding.n, late, except, confidence, design_effect(blocks));
    }
    if finding.told == Conclusion::CannotBeTold {
        finding.why = Some(more(&finding, except, confidence));
    }
    finding
}

/// Why a bound cannot be told yet, and what it would take.
fn more(finding: &Finding, except: f64, confidence: f64) -> String {
    let n = finding.n;
    match finding.late {
        None => "the histogram ends before the bound".to_owned(),
        Some(0) => {
            let left = needed(except, confidence).saturating_sub(n);
            format!("none of {n} wake-ups was late; {left} more without one would prove it")
        }
        Some(late) => {
            format!("{late} of {n} wake-ups were late, which is too near to {except} of them to tell")
        }
    }
}

fn ratios(claim: &LatencyExpectation, series: &[Series], confidence: f64, seed: u64) -> Vec<Finding> {
    let Limit::Times { relation, factor, .. } = claim.limit() else { return Vec::new() };
    let mut findings = Vec::new();
    for left in series {
        for right in series.iter().filter(|right| claim.pairs(&left.setting, &right.setting)) {
            let null = series.iter().find(|null| is_null_of(null, right));
            let compared = compare(right, left, null, claim.statistic(), confidence, seed);
            let not_reached = |series: &Series| !series.is_measured() && series.cut_short.is_some();
            let told = match (compared.ratio, relation) {
                (None, _) if not_reached(left) || not_reached(right) => Conclusion::NotMeasured,
                (None, _) => Conclusion::CannotBeTold,
                (Some(seen), Relation::AtLeast) if seen.low() >= *factor => Conclusion::Holds,
                (Some(seen), Relation::AtLeast) if seen.high() < *factor => Conclusion::DoesNotHold,
                (Some(seen), Relation::AtMost) if seen.high() <= *factor => Conclusion::Holds,
                (Some(seen), Relation::AtMost) if seen.low() > *factor => Conclusion::DoesNotHold,
                (Some(_), _) => Conclusion::CannotBeTold,
            };
            let doubt = (compared.null_holds() == Some(false)).then(|| {
                "the same measured twice differs from itself, so that no ratio can be trusted".to_owned()
            });
            findings.push(Finding {
                series: left.id.clone(),
                against: Some(right.id.clone()),
                seen: compared.ratio,
                n: 0,
                late: None,
                max: None,
                told: if doubt.is_some() { told.max(Conclusion::CannotBeTold) } else { told },
                why: doubt.or(compared.why),
            });
        }
    }
    findings
}

fn is_null_of(null: &Series, of: &Series) -> bool {
    null.setting.arm == Arm::Null && of.setting.arm == Arm::Tuned && null.setting.is_arm_of(&of.setting)
}
