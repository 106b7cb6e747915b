//! From records to measurements. Pure: the same records give the same measurements, when they were just taken and when
//! they are read again.

use std::collections::BTreeMap;

use penstock_model::measurement::{
    Cell, Comparison, CutShort, Expectation, ExpectationResult, Histogram, MEASUREMENT_VERSION, Measurements,
    Metric, Protocol, Rules, Sample, SampleResult, Status, StopReason, Subject, ToolVersion, Withheld,
};
use penstock_statistics::{Confidence, InterimAnalyses, Look};

use super::RunOptions;
use crate::{
    engine,
    matrix::{Matrix, Planned},
    parse::Reading,
    record::{Record, RecordOutcome},
    sampler::Preparation,
    summarise,
};

/// What is known of a run beside its records. The default is what is known when only they are left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// What making ready came to, with the cells that were left out among the missing.
    pub preparation: Preparation,
    /// The rules that it went by in the end, which the time may have made narrower than those that were asked for.
    pub rules: Option<Rules>,
    /// Why each cell ended, by id; of others it is told from their samples.
    pub stops: BTreeMap<String, StopReason>,
    /// How long it took, in seconds; `None`: until the end of the last sample.
    pub seconds: Option<f64>,
    /// What else the reader should know.
    pub notes: Vec<String>,
}

/// The measurements that these records are of.
pub fn conclude(
    matrix: &Matrix,
    options: &RunOptions,
    expect: &[Expectation],
    records: &[Record],
    outcome: &Outcome,
) -> Measurements {
    let rules = outcome.rules.unwrap_or(options.rules);
    let looks = InterimAnalyses::new(&rules);
    let confidence = looks.confidence();
    let mut by_cell: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    records.iter().for_each(|record| by_cell.entry(&record.cell).or_default().push(record));
    let mut tools = outcome.preparation.tools.clone();
    let mut cells = Vec::new();
    for planned in &matrix.cells {
        let mut records = by_cell.remove(planned.id.as_str()).unwrap_or_default();
        records.sort_by_key(|record| record.position);
        let read: Vec<Read<'_>> = records.iter().map(|record| Read::new(planned, record)).collect();
        read.iter().filter_map(|read| read.version(planned)).for_each(|found| {
            let same = |known: &ToolVersion| known.tool == found.tool && known.place == found.place;
            if !tools.iter().any(same) {
                tools.push(found);
            }
        });
        let stop = outcome
            .stops
            .get(&planned.id)
            .copied()
            .unwrap_or_else(|| told_by(planned, &read, &looks, options.seed));
        let missing = outcome.preparation.missing.get(&planned.id);
        // Only what this run knows of itself: records alone do not tell whether somebody wanted it to end.
        let cut_short = outcome.stops.get(&planned.id).copied().and_then(CutShort::of);
        let (id, measurement, null) = (planned.id.clone(), planned.measurement.clone(), planned.null);
        let status = status(read, missing, cut_short, stop, confidence, options.seed);
        cells.push(Cell { id, measurement, null, status });
    }
    let end = records.iter().map(|record| record.at + record.seconds).fold(0.0, f64::max);
    let mut measurements = Measurements {
        version: MEASUREMENT_VERSION,
        emulated: options.emulated,
        quick: options.quick,
        seed: options.seed,
        started: options.started.clone(),
        seconds: outcome.seconds.unwrap_or(end),
        rules,
        tools,
        links: outcome.preparation.links.clone(),
        comparisons: comparisons(matrix, &cells, confidence, options.seed),
        cells,
        rulings: Vec::new(),
        notes: notes(matrix, outcome, records),
    };
    let controls = matrix.controls();
    let rule = |line: &Expectation| match matrix.leaves_out(line) {
        true => ExpectationResult::not_asked(line.clone()),
        false => summarise::rule(line, &measurements, &controls, confidence),
    };
    let rulings = expect.iter().map(rule).collect();
    measurements.rulings = rulings;
    measurements
}

/// A record and what it tells.
struct Read<'a> {
    record: &'a Record,
    reading: Result<Reading, String>,
}

impl<'a> Read<'a> {
    fn new(planned: &Planned, record: &'a Record) -> Read<'a> {
        Read { record, reading: record.reading(&planned.measurement) }
    }

    fn counts(&self) -> Option<&Reading> {
        self.reading.as_ref().ok().filter(|_| !self.record.warm_up)
    }

    fn version(&self, planned: &Planned) -> Option<ToolVersion> {
        let version = self.reading.as_ref().ok()?.version.clone()?;
        let RecordOutcome::Ran(raw) = &self.record.outcome else { return None };
        Some(ToolVersion { tool: planned.measurement.tool, place: raw.place.clone(), version: Some(version) })
    }
}

fn status(
    read: Vec<Read<'_>>,
    missing: Option<&String>,
    cut_short: Option<CutShort>,
    stop: StopReason,
    confidence: Confidence,
    seed: u64,
) -> Status {
    let mut histogram = Histogram::new();
    let mut withheld: Vec<Withheld> = Vec::new();
    let mut lost = 0u64;
    for reading in read.iter().filter_map(Read::counts) {
        lost = lost.saturating_add(reading.lost);
        withheld.extend(&reading.withheld);
        if let Some(one) = &reading.histogram {
            // Counts that add up to more than 2^64 are of no real run: what was merged before stays.
            let _ = histogram.merge(one);
        }
    }
    let sampled = !read.is_empty();
    // What was tried and failed is a fault, whatever ended the run.
    let cut_short = cut_short.filter(|_| read.iter().all(|read| read.reading.is_ok()));
    let samples = read.into_iter().map(|Read { record, reading }| Sample {
        at: record.at,
        seconds: record.seconds,
        position: record.position,
        round: record.round,
        warm_up: record.warm_up,
        taken: match reading {
            Ok(reading) => SampleResult::Values(reading.values),
            Err(why) => SampleResult::Missing(why),
        },
    });
    let status =
        summarise::status(samples.collect(), Some(histogram), lost, withheld, stop, confidence, seed);
    match (status, missing) {
        (Status::Missing { .. }, Some(why)) => Status::Missing { why: why.clone(), cut_short },
        (Status::Missing { .. }, None) if !sampled => {
            Status::Missing { why: format!("no sample was taken: {stop}"), cut_short }
        }
        (Status::Missing { why, .. }, None) => Status::Missing { why, cut_short },
        (measured @ Status::Measured(_), _) => measured,
    }
}

/// Why a cell ended whose records alone are left.
fn told_by(planned: &Planned, read: &[Read<'_>], looks: &InterimAnalyses, seed: u64) -> StopReason {
    let metric = planned.measurement.main_metric();
    let counting = || read.iter().filter(|read| !read.record.warm_up);
    let told = counting().filter_map(|read| read.counts()?.values.get(&metric).copied());
    let values: Vec<f64> = told.collect();
    let round = counting().map(|read| read.record.round).max().unwrap_or(0);
    let interval = looks.confidence().interval(&values, round, seed);
    match looks.decide(round, interval.as_ref()) {
        Look::Stop(reason) => reason,
        Look::More if read.iter().rev().take(2).filter(|read| read.reading.is_err()).count() == 2 => {
            StopReason::GivenUp
        }
        Look::More => StopReason::Interrupted,
    }
}

fn comparisons(matrix: &Matrix, cells: &[Cell], confidence: Confidence, seed: u64) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for (base, other, null) in matrix.comparisons() {
        let null = null.and_then(|null| Some([&cells[matrix.repeated(null)?], &cells[null]]));
        let (base, other) = (&cells[base], &cells[other]);
        let main = base.measurement.main_metric();
        let told = |metric: &Metric| base.summary(*metric).is_some() && other.summary(*metric).is_some();
        let beside: &[Metric] = match &base.measurement.subject {
            Subject::Network(network) => match network.protocol {
                Protocol::UdpRr | Protocol::TcpRr => &[Metric::P99, Metric::Transactions],
                Protocol::UdpStream | Protocol::TcpStream => &[],
            },
            Subject::Storage(_) => &[Metric::P50],
        };
        let metrics = std::iter::once(main).chain(beside.iter().copied().filter(told));
        let compare = |metric| summarise::compare(base, other, null, metric, confidence, seed);
        comparisons.extend(metrics.map(compare));
    }
    comparisons
}

fn notes(matrix: &Matrix, outcome: &Outcome, records: &[Record]) -> Vec<String> {
    let absent =
        matrix.absent.iter().map(|absent| format!("{} is not measured: {}", absent.path, absent.why));
    let beside = outcome.preparation.notes.iter().chain(&outcome.notes).cloned();
    let known = |id: &str| matrix.cells.iter().any(|cell| cell.id == id);
    absent.chain(beside).chain(engine::unknown(records, known, ["samples", "cells"])).collect()
}
