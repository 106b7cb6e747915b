//! From samples to summaries, comparisons and rulings. Pure.

use std::collections::BTreeMap;

use penstock_model::measurement::{
    Bound, Cell, Claim, Comparison, Estimate, Expectation, Histogram, Measured, Measurements, Metric, Ruling,
    Sample, Status, StopReason, Summary, Taken, Told, Withheld,
};

use crate::statistics::{self, median, samples_for_interval};

/// The status of a cell with these samples, in the order taken: measured when one that counts told something, else missing
/// for the last reason. `histogram` is of the samples that count.
pub fn status(
    samples: Vec<Sample>,
    histogram: Option<Histogram>,
    withheld: Vec<Withheld>,
    stop: StopReason,
    confidence: f64,
    seed: u64,
) -> Status {
    let mut values: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
    let mut why = None;
    for sample in &samples {
        match &sample.taken {
            Taken::Values(told) if !sample.warm_up => {
                told.iter().for_each(|(metric, value)| values.entry(*metric).or_default().push(*value));
            }
            Taken::Values(_) => {}
            Taken::Missing(reason) => why = Some(reason.clone()),
        }
    }
    let summaries: Vec<Summary> =
        values.iter().filter_map(|(metric, values)| summary(*metric, values, confidence, seed)).collect();
    if summaries.is_empty() {
        let only_warm_up = || format!("no sample beside the warm-up was taken: {stop}");
        return Status::Missing { why: why.unwrap_or_else(only_warm_up) };
    }
    let histogram = histogram.filter(|histogram| !histogram.is_empty());
    Status::Measured(Box::new(Measured { samples, summaries, withheld, histogram, stop }))
}

/// One metric's values; `None` without any, or when one is not a number.
pub fn summary(metric: Metric, values: &[f64], confidence: f64, seed: u64) -> Option<Summary> {
    Some(Summary {
        metric,
        n: values.len() as u32,
        median: median(values)?,
        interval: statistics::interval(values, confidence, seed),
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// Compares two cells by their samples of the same rounds, with the base's own second arm beside.
pub fn compare(
    base: &Cell,
    other: &Cell,
    null: Option<&Cell>,
    metric: Metric,
    confidence: f64,
    seed: u64,
) -> Comparison {
    let (pairs, ratio) = paired(base, other, metric, confidence, seed);
    let why = ratio.is_none().then(|| why_no_ratio(base, other, pairs, confidence));
    let null = null.and_then(|null| paired(base, null, metric, confidence, seed).1);
    let (base, other) = (base.id.clone(), other.id.clone());
    Comparison { base, other, metric, ratio, null, pairs: pairs as u32, why }
}

fn paired(
    base: &Cell,
    other: &Cell,
    metric: Metric,
    confidence: f64,
    seed: u64,
) -> (usize, Option<Estimate>) {
    let by_round = |cell: &Cell| -> BTreeMap<u32, f64> {
        let samples = cell.measured().map(|measured| measured.samples.as_slice()).unwrap_or_default();
        let counted = samples.iter().filter(|sample| !sample.warm_up);
        counted.filter_map(|sample| Some((sample.round, sample.value(metric)?))).collect()
    };
    let (base, other) = (by_round(base), by_round(other));
    let pairs: Vec<(f64, f64)> =
        base.iter().filter_map(|(round, value)| Some((*value, *other.get(round)?))).collect();
    (pairs.len(), statistics::ratio_paired(&pairs, confidence, seed))
}

fn why_no_ratio(base: &Cell, other: &Cell, pairs: usize, confidence: f64) -> String {
    for cell in [base, other] {
        if let Status::Missing { why } = &cell.status {
            return format!("{} is missing: {why}", cell.id);
        }
    }
    let need = samples_for_interval(confidence);
    if pairs < need {
        return format!("{pairs} pairs of samples, and an interval takes {need}");
    }
    "a median can be 0".into()
}

/// What an `expect:` line comes out as. A cell that is missing, an interval that is, and an absolute value of an emulated
/// board cannot be told.
pub fn rule(expectation: &Expectation, measurements: &Measurements, confidence: f64) -> Ruling {
    let metric = expectation.metric();
    let cells = || measurements.cells.iter().filter(|cell| !cell.null);
    let meant = cells().filter(|cell| expectation.left().matches(&cell.measurement));
    let mut claims = Vec::new();
    for cell in meant {
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
                for against in
                    cells().filter(|right| expectation.pairs(&cell.measurement, &right.measurement))
                {
                    let compared = compare(against, cell, None, metric, confidence, measurements.seed);
                    let seen = compared.ratio.ok_or(compared.why.unwrap_or_default());
                    claims.push(claim(expectation, cell, Some(against), seen));
                }
            }
        }
    }
    Ruling::new(expectation.clone(), claims)
}

fn why_no_value(cell: &Cell, metric: Metric, confidence: f64) -> String {
    let measured = match &cell.status {
        Status::Missing { why } => return why.clone(),
        Status::Measured(measured) => measured,
    };
    if let Some(summary) = cell.summary(metric) {
        return format!("{} samples, and an interval takes {}", summary.n, samples_for_interval(confidence));
    }
    match measured.withheld.iter().find(|withheld| withheld.metric == metric) {
        Some(Withheld { have, need, .. }) => {
            format!("{metric} takes {need} latencies, and a sample had {have}")
        }
        None => format!("{} does not tell {metric}", cell.measurement.tool),
    }
}

fn claim(
    expectation: &Expectation,
    cell: &Cell,
    against: Option<&Cell>,
    seen: Result<Estimate, String>,
) -> Claim {
    let told = seen.as_ref().map_or(Told::CannotBeTold, |seen| expectation.judge(seen));
    let why = match (&seen, told) {
        (Err(why), _) => Some(why.clone()),
        (Ok(_), Told::CannotBeTold) => Some("the interval has the bound inside".to_owned()),
        _ => None,
    };
    let (cell, against) = (cell.id.clone(), against.map(|cell| cell.id.clone()));
    Claim { cell, against, metric: expectation.metric(), seen: seen.ok(), told, why }
}
