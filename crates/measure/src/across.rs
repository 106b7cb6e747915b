//! Two runs compared, cell by cell. Pure.

use std::collections::{HashMap, HashSet};

use penstock_model::measurement::{
    Cell, Measurements, Metric, Ruling, Status, Subject, Told,
    across::{CellsAcross, Change, Turn, Untold},
};

mod latency;

pub use latency::{claims, latency};

use crate::statistics::{self, Random, holm, median, p_of_ratio, samples_for_interval};

/// The cells of B against those of A. The interval of each ratio takes the two runs as independent, and is drawn from A's
/// seed. Confidence is the lower of the two runs'.
pub fn cells(a: &Measurements, b: &Measurements) -> CellsAcross {
    let confidence = a.rules.confidence.min(b.rules.confidence);
    let of_b: HashMap<&str, &Cell> = arms(b).map(|cell| (cell.id.as_str(), cell)).collect();
    let in_a: HashSet<&str> = arms(a).map(|cell| cell.id.as_str()).collect();
    let mut across = CellsAcross { confidence, ..CellsAcross::default() };
    for cell in arms(a) {
        let Some(other) = of_b.get(cell.id.as_str()) else {
            across.only_a.push(cell.id.clone());
            continue;
        };
        let untold = |why: String| Untold { cell: cell.id.clone(), why };
        match (&cell.status, &other.status) {
            (Status::Measured(_), Status::Measured(_)) => {
                for (number, metric) in metrics(cell).into_iter().enumerate() {
                    match change(cell, other, metric, confidence, a.seed) {
                        Ok(change) => across.changes.push(change),
                        // Percentiles that one run has no samples for are no news.
                        Err(why) if number == 0 => across.untold.push(untold(why)),
                        Err(_) => {}
                    }
                }
            }
            (Status::Measured(_), Status::Missing { why }) => across.lost.push(untold(why.clone())),
            (Status::Missing { why }, Status::Measured(_)) => across.found.push(untold(why.clone())),
            (Status::Missing { .. }, Status::Missing { why }) => {
                across.untold.push(untold(format!("missing in both runs: {why}")));
            }
        }
    }
    across.only_b =
        arms(b).filter(|cell| !in_a.contains(cell.id.as_str())).map(|cell| cell.id.clone()).collect();
    adjust(&mut across);
    across
}

/// What two measurements of the same runs tell, as one: the chance of a false alarm is that of all of them together.
pub fn together(all: impl IntoIterator<Item = CellsAcross>) -> Option<CellsAcross> {
    all.into_iter().reduce(|mut one, other| {
        one.confidence = one.confidence.min(other.confidence);
        one.changes.extend(other.changes);
        one.lost.extend(other.lost);
        one.found.extend(other.found);
        one.untold.extend(other.untold);
        one.only_a.extend(other.only_a);
        one.only_b.extend(other.only_b);
        adjust(&mut one);
        one
    })
}

/// Corrects the p-values for their number.
fn adjust(across: &mut CellsAcross) {
    let adjusted = holm(&across.changes.iter().map(|change| change.p).collect::<Vec<_>>());
    for (change, adjusted) in across.changes.iter_mut().zip(adjusted) {
        change.adjusted = adjusted;
    }
}

/// The cells that are of interest by themselves.
fn arms(measurements: &Measurements) -> impl Iterator<Item = &Cell> {
    measurements.cells.iter().filter(|cell| !cell.null)
}

/// What of a cell is compared: its main metric, and of round trips the tail.
fn metrics(cell: &Cell) -> Vec<Metric> {
    let main = cell.measurement.main_metric();
    match &cell.measurement.subject {
        Subject::Network(network) if !network.protocol.is_stream() => vec![main, Metric::P99],
        _ => vec![main],
    }
}

fn change(a: &Cell, b: &Cell, metric: Metric, confidence: f64, seed: u64) -> Result<Change, String> {
    let values = |cell: &Cell| -> Vec<f64> {
        cell.measured().map(|measured| measured.values(metric).collect()).unwrap_or_default()
    };
    changed(&a.id, metric, (&values(a), &values(b)), "samples of", confidence, seed)
}

/// How values of B stand to those of A; `what` they are, with the metric behind it.
fn changed(
    id: &str,
    metric: Metric,
    (of_a, of_b): (&[f64], &[f64]),
    what: &str,
    confidence: f64,
    seed: u64,
) -> Result<Change, String> {
    let n = of_a.len().min(of_b.len());
    let need = samples_for_interval(confidence);
    if n < need {
        let run = if of_a.len() < of_b.len() { "A" } else { "B" };
        return Err(format!("{run} has {n} {what} {metric}, and an interval takes {need}"));
    }
    // Each its own draws: with the same ones, chance would strike many at once.
    let seed = Random::for_purpose(seed, &format!("{id} {metric}")).draw();
    let ratio = statistics::ratio(of_a, of_b, confidence, seed);
    let (Some(ratio), Some(median_a), Some(median_b)) = (ratio, median(of_a), median(of_b)) else {
        return Err("a median can be 0".to_owned());
    };
    let p = p_of_ratio(&ratio, n);
    let (n_a, n_b) = (of_a.len() as u32, of_b.len() as u32);
    Ok(Change { cell: id.to_owned(), metric, a: median_a, b: median_b, n_a, n_b, ratio, p, adjusted: p })
}

/// The `expect:` lines that came out differently, and those that only one run has.
pub fn rulings(a: &[Ruling], b: &[Ruling]) -> Vec<Turn> {
    let told = |ruling: &Ruling| (ruling.expectation.to_string(), ruling.told);
    turns(&a.iter().map(told).collect::<Vec<_>>(), &b.iter().map(told).collect::<Vec<_>>())
}

/// What came out differently, and what only one run has.
fn turns(a: &[(String, Told)], b: &[(String, Told)]) -> Vec<Turn> {
    let find =
        |all: &[(String, Told)], line: &str| all.iter().find(|(of, _)| of == line).map(|(_, told)| *told);
    let mut turns = Vec::new();
    for (line, was) in a {
        let told = find(b, line);
        if told != Some(*was) {
            let worse = told.is_some_and(|told| told > *was);
            turns.push(Turn { what: line.clone(), a: Some(word(*was)), b: told.map(word), worse });
        }
    }
    for (line, told) in b {
        if find(a, line).is_none() {
            turns.push(Turn { what: line.clone(), a: None, b: Some(word(*told)), worse: false });
        }
    }
    turns
}

fn word(told: Told) -> String {
    told.to_string()
}

#[cfg(test)]
mod tests;
