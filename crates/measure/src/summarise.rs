//! From samples to summaries, comparisons and rulings. Pure.

use std::collections::BTreeMap;

use penstock_model::measurement::{
    Bound, Cell, Claim, Comparison, Conclusion, CutShort, Estimate, Expectation, ExpectationResult,
    Histogram, Measured, Measurements, Metric, Sample, SampleResult, Status, StopReason, Summary, Withheld,
};

use penstock_statistics::{Confidence, median, samples_for_interval};

use crate::parse::needed;

/// Why a ratio is not told whose control is none.
const DOUBT: &str = "the same measured twice differs from itself, so that no ratio can be trusted";

/// The status of a cell with these samples, in the order taken: measured when one that counts told something, else missing
/// for the last reason. `histogram` is of the samples that count, `withheld` what they could not tell each for itself. A
/// percentile that a sample could not tell is told from all latencies together where they are enough; it has no interval,
/// being one value. `lost` more were longer than all of these.
pub fn status(
    samples: Vec<Sample>,
    histogram: Option<Histogram>,
    lost: u64,
    withheld: Vec<Withheld>,
    stop: StopReason,
    confidence: impl Into<Confidence>,
    seed: u64,
) -> Status {
    let confidence = confidence.into();
    let mut values: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
    let (mut why, mut counting) = (None, 0);
    for sample in &samples {
        match &sample.taken {
            SampleResult::Values(told) if !sample.warm_up => {
                counting += 1;
                told.iter().for_each(|(metric, value)| values.entry(*metric).or_default().push(*value));
            }
            SampleResult::Values(_) => {}
            SampleResult::Missing(reason) => why = Some(reason.clone()),
        }
    }
    let round = rounds(&samples);
    let summaries =
        values.iter().filter_map(|(metric, values)| summary(*metric, values, round, confidence, seed));
    let mut summaries: Vec<Summary> = summaries.collect();
    if summaries.is_empty() {
        let only_warm_up = || format!("no sample beside the warm-up was taken: {stop}");
        return Status::missing(why.unwrap_or_else(only_warm_up));
    }
    let histogram = histogram.filter(|histogram| !histogram.is_empty());
    let withheld = pool(&mut summaries, withheld, (histogram.as_ref(), lost), counting);
    Status::Measured(Box::new(Measured { samples, summaries, withheld, histogram, stop }))
}

/// Tells of all latencies together what a sample could not tell for itself; hands back what still cannot be told. Those that could
/// are no summary of all: a sample with a stall is the one that has too few.
fn pool(
    summaries: &mut Vec<Summary>,
    withheld: Vec<Withheld>,
    (histogram, lost): (Option<&Histogram>, u64),
    samples: u32,
) -> Vec<Withheld> {
    summaries.retain(|summary| !withheld.iter().any(|one| one.metric == summary.metric));
    let mut left: BTreeMap<Metric, Withheld> = BTreeMap::new();
    for one in withheld {
        if summaries.iter().any(|summary| summary.metric == one.metric) {
            continue;
        }
        let total = histogram.map_or(0, Histogram::total);
        let need = one.metric.quantile().map_or(one.need, |q| needed(q, total, lost));
        let pooled = one.metric.quantile().filter(|_| total >= need);
        match pooled.and_then(|q| histogram?.quantile_below(q, lost)) {
            Some(nanoseconds) => {
                let value = nanoseconds as f64 / 1e3;
                let (metric, n) = (one.metric, samples);
                summaries.push(Summary { metric, n, median: value, interval: None, min: value, max: value });
            }
            None => {
                let have = left.get(&one.metric).map_or(total, |before| before.have).max(one.have);
                let need = need.max(one.need);
                left.insert(one.metric, Withheld { have, need, ..one });
            }
        }
    }
    summaries.sort_by_key(|summary| summary.metric);
    left.into_values().collect()
}

/// How many rounds there were of these samples, those that failed too.
fn rounds(samples: &[Sample]) -> u32 {
    samples.iter().filter(|sample| !sample.warm_up).map(|sample| sample.round).max().unwrap_or(0)
}

fn rounds_of(cells: [&Cell; 2]) -> u32 {
    let samples = cells.into_iter().filter_map(Cell::measured).map(|measured| rounds(&measured.samples));
    samples.max().unwrap_or(0)
}

/// One metric's values after so many rounds; `None` without any, or when one is not a number.
pub fn summary(
    metric: Metric,
    values: &[f64],
    round: u32,
    confidence: impl Into<Confidence>,
    seed: u64,
) -> Option<Summary> {
    Some(Summary {
        metric,
        n: values.len() as u32,
        median: median(values)?,
        interval: confidence.into().interval(values, round, seed),
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// Compares two cells by their samples of the same rounds. `null` is a cell and its second arm, compared beside in the same
/// way: the base itself, or one of the same kind.
pub fn compare(
    base: &Cell,
    other: &Cell,
    null: Option<[&Cell; 2]>,
    metric: Metric,
    confidence: impl Into<Confidence>,
    seed: u64,
) -> Comparison {
    let confidence = confidence.into();
    let (pairs, ratio) = paired(base, other, metric, confidence, seed);
    let why = ratio.is_none().then(|| why_no_ratio([base, other], metric, pairs, confidence));
    let null = null.and_then(|[one, again]| paired(one, again, metric, confidence, seed).1);
    let (base, other) = (base.id.clone(), other.id.clone());
    Comparison { base, other, metric, ratio, null, pairs: pairs as u32, why }
}

fn paired(
    base: &Cell,
    other: &Cell,
    metric: Metric,
    confidence: Confidence,
    seed: u64,
) -> (usize, Option<Estimate>) {
    let by_round = |cell: &Cell| -> BTreeMap<u32, f64> {
        if cell.measured().is_some_and(|measured| measured.short_of(metric).is_some()) {
            return BTreeMap::new();
        }
        let samples = cell.measured().map(|measured| measured.samples.as_slice()).unwrap_or_default();
        let counted = samples.iter().filter(|sample| !sample.warm_up);
        counted.filter_map(|sample| Some((sample.round, sample.value(metric)?))).collect()
    };
    let round = rounds_of([base, other]);
    let (base, other) = (by_round(base), by_round(other));
    let pairs: Vec<(f64, f64)> =
        base.iter().filter_map(|(round, value)| Some((*value, *other.get(round)?))).collect();
    (pairs.len(), confidence.ratio_paired(&pairs, round, seed))
}

fn why_no_ratio(cells: [&Cell; 2], metric: Metric, pairs: usize, confidence: Confidence) -> String {
    for cell in cells {
        match &cell.status {
            Status::Missing { why, .. } => return format!("{} is missing: {why}", cell.id),
            Status::Measured(measured) => {
                if let Some((short, n)) = measured.short_of(metric) {
                    return format!("{short} of {n} samples of {} could not tell {metric}", cell.id);
                }
            }
        }
    }
    let need = samples_for_interval(confidence.made_for(rounds_of(cells)));
    if pairs < need {
        return format!("{pairs} pairs of samples, and an interval takes {need}");
    }
    "a median can be 0".into()
}

/// What an `expect:` line comes out as. A cell that is missing, an interval that is, an absolute value of an emulated board, and a
/// ratio whose control differs from itself cannot be told. `controls` are those of [`crate::matrix::Matrix::controls`].
pub fn rule(
    expectation: &Expectation,
    measurements: &Measurements,
    controls: &BTreeMap<usize, [usize; 2]>,
    confidence: impl Into<Confidence>,
) -> ExpectationResult {
    let confidence = confidence.into();
    let metric = expectation.metric();
    let all = &measurements.cells;
    let cells = || all.iter().enumerate().filter(|(_, cell)| !cell.null);
    let meant = cells().filter(|(_, cell)| expectation.left().matches(&cell.measurement));
    let control = |at: usize| Some(controls.get(&at)?.map(|at| all.get(at)));
    let mut claims = Vec::new();
    for (at, cell) in meant {
        match expectation.bound() {
            Bound::Value(_) => {
                let interval = cell.summary(metric).and_then(|summary| summary.interval);
                let seen = interval.ok_or_else(|| why_no_value(cell, metric, confidence));
                let seen = if measurements.emulated {
                    Err("the board is emulated: only ratios mean anything".to_owned())
                } else {
                    seen
                };
                claims.push(claim(expectation, cell, None, seen));
            }
            Bound::Times { .. } => {
                for (right, against) in
                    cells().filter(|(_, right)| expectation.pairs(&cell.measurement, &right.measurement))
                {
                    let null = match control(right).or_else(|| control(at)) {
                        Some([Some(one), Some(again)]) => Some([one, again]),
                        _ => None,
                    };
                    let compared = compare(against, cell, null, metric, confidence, measurements.seed);
                    let doubt = compared.null_holds() == Some(false);
                    let seen = compared.ratio.ok_or(compared.why.unwrap_or_default());
                    let mut claim = claim(expectation, cell, Some(against), seen);
                    if doubt && claim.seen.is_some() {
                        claim.told = Conclusion::CannotBeTold;
                        claim.why = Some(DOUBT.to_owned());
                    }
                    claims.push(claim);
                }
            }
        }
    }
    ExpectationResult::new(expectation.clone(), claims)
}

fn why_no_value(cell: &Cell, metric: Metric, confidence: Confidence) -> String {
    let measured = match &cell.status {
        Status::Missing { why, .. } => return why.clone(),
        Status::Measured(measured) => measured,
    };
    if let Some(summary) = cell.summary(metric) {
        let need = samples_for_interval(confidence.made_for(rounds(&measured.samples)));
        return match (summary.n as usize, measured.short_of(metric)) {
            (_, Some((short, n))) => format!(
                "{short} of {n} samples could not tell {metric}: it is told from the latencies of all together, without an interval"
            ),
            (n, None) => format!("{n} samples, and an interval takes {need}"),
        };
    }
    match measured.withheld.iter().find(|withheld| withheld.metric == metric) {
        Some(Withheld { have, need, .. }) => {
            let short = measured.short_of(metric).filter(|(short, n)| short < n);
            let of = short.map(|(short, n)| format!("{short} of {n} samples could not tell it: "));
            let of = of.unwrap_or_default();
            format!("{of}{metric} takes {need} latencies, and a sample had {have}")
        }
        None => format!("{} does not tell {metric}", cell.measurement.tool),
    }
}

/// Whether the run was over before the cell had anything, or samples enough for an interval.
fn was_cut_short(cell: &Cell) -> bool {
    match &cell.status {
        Status::Missing { cut_short, .. } => cut_short.is_some(),
        Status::Measured(measured) => {
            let main = cell.summary(cell.measurement.main_metric());
            CutShort::of(measured.stop).is_some() && main.is_none_or(|summary| summary.interval.is_none())
        }
    }
}

fn claim(
    expectation: &Expectation,
    cell: &Cell,
    against: Option<&Cell>,
    seen: Result<Estimate, String>,
) -> Claim {
    let told = match &seen {
        Ok(seen) => expectation.judge(seen),
        Err(_) if [Some(cell), against].into_iter().flatten().any(was_cut_short) => Conclusion::NotMeasured,
        Err(_) => Conclusion::CannotBeTold,
    };
    let why = match (&seen, told) {
        (Err(why), _) => Some(why.clone()),
        (Ok(_), Conclusion::CannotBeTold) => Some("the interval has the bound inside".to_owned()),
        _ => None,
    };
    let (cell, against) = (cell.id.clone(), against.map(|cell| cell.id.clone()));
    Claim { against, metric: Some(expectation.metric()), seen: seen.ok(), why, ..Claim::new(cell, told) }
}
