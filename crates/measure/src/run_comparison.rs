//! Two runs compared, cell by cell. Pure.

use std::fmt::Display;

use penstock_model::measurement::{
    Cell, Conclusion, ExpectationResult, Measurements, Metric, Status, Subject,
    run_comparison::{CellsComparison, Change, Turn, Untold, pair},
};

mod latency;

pub use latency::latency;

use penstock_statistics::{Random, holm, median, p_of_ratio, samples_for_interval};

/// The cells of B against those of A; `None` when neither run measured anything. The interval of each ratio takes the two
/// runs as independent, and is drawn from A's seed. Confidence is the lower of the two runs'.
pub fn cells(a: Option<&Measurements>, b: Option<&Measurements>) -> Option<CellsComparison> {
    let confidence = a.into_iter().chain(b).map(|run| run.rules.confidence).reduce(f64::min)?;
    let mut across = CellsComparison { confidence, ..CellsComparison::default() };
    let seed = a.map_or(0, |run| run.seed);
    let [of_a, of_b] = [a, b].map(|run| run.map(|run| run.cells.as_slice()).unwrap_or_default());
    for both in pair(of_a, of_b, |cell| cell.id.as_str()) {
        match both {
            (Some(cell), Some(other)) => compare(cell, other, seed, &mut across),
            (Some(cell), None) => across.only_a.push(cell.id.clone()),
            (None, Some(cell)) => across.only_b.push(cell.id.clone()),
            (None, None) => {}
        }
    }
    adjust(&mut across);
    Some(across)
}

fn compare(cell: &Cell, other: &Cell, seed: u64, across: &mut CellsComparison) {
    let untold = |why: String| Untold { cell: cell.id.clone(), why };
    match (&cell.status, &other.status) {
        // The second arm of an A/A comparison is of no interest by itself.
        (Status::Measured(_), Status::Measured(_)) if cell.null && other.null => {}
        (Status::Measured(a), Status::Measured(b)) => {
            for metric in metrics(cell) {
                let short = [("A", a), ("B", b)].into_iter().find_map(|(run, measured)| {
                    let (short, n) = measured.short_of(metric).filter(|(short, n)| short < n)?;
                    Some(format!("{short} of {n} samples of {run} could not tell {metric}"))
                });
                if let Some(why) = short {
                    across.untold.push(untold(why));
                    continue;
                }
                let of_both = (a.values(metric).collect(), b.values(metric).collect());
                tell(&cell.id, metric, of_both, "samples of", seed, across);
            }
        }
        // That the time was not enough says nothing of the machine.
        (Status::Measured(_), Status::Missing { why, cut_short: Some(_) }) => {
            across.untold.push(untold(format!("not measured in B: {why}")));
        }
        (Status::Measured(_), Status::Missing { why, cut_short: None }) => {
            across.lost.push(untold(why.clone()))
        }
        (Status::Missing { why, .. }, Status::Measured(_)) => across.found.push(untold(why.clone())),
        (Status::Missing { .. }, Status::Missing { why, .. }) => across.missing.push(untold(why.clone())),
    }
}

/// Takes in how B's values stand to A's, or why that cannot be told. What neither run has values enough for is no news, unless
/// it is all that there is of a cell: its main metric, or the first that is told of a series.
fn tell(
    id: &str,
    metric: Metric,
    (of_a, of_b): (Vec<f64>, Vec<f64>),
    what: &str,
    seed: u64,
    across: &mut CellsComparison,
) {
    let need = samples_for_interval(across.confidence);
    let beside = matches!(metric, Metric::P99 | Metric::P999);
    match changed(id, metric, (&of_a, &of_b), what, across.confidence, seed) {
        Ok(change) => across.changes.push(change),
        // The very same values are no change, however few they are.
        Err(_) if of_a == of_b => {}
        Err(_) if beside && of_a.len() < need && of_b.len() < need => {}
        Err(why) => across.untold.push(Untold { cell: id.to_owned(), why }),
    }
}

/// What two measurements of the same runs tell, as one: the chance of a false alarm is that of all of them together.
pub fn together(all: impl IntoIterator<Item = CellsComparison>) -> Option<CellsComparison> {
    all.into_iter().reduce(|mut one, other| {
        one.confidence = one.confidence.min(other.confidence);
        one.changes.extend(other.changes);
        one.lost.extend(other.lost);
        one.found.extend(other.found);
        one.untold.extend(other.untold);
        one.missing.extend(other.missing);
        one.only_a.extend(other.only_a);
        one.only_b.extend(other.only_b);
        adjust(&mut one);
        one
    })
}

/// Corrects the p-values for their number.
fn adjust(across: &mut CellsComparison) {
    let adjusted = holm(&across.changes.iter().map(|change| change.p).collect::<Vec<_>>());
    for (change, adjusted) in across.changes.iter_mut().zip(adjusted) {
        change.adjusted = adjusted;
    }
}

/// What of a cell is compared: its main metric, and of round trips the tail.
fn metrics(cell: &Cell) -> Vec<Metric> {
    let main = cell.measurement.main_metric();
    match &cell.measurement.subject {
        Subject::Network(network) if !network.protocol.is_stream() => vec![main, Metric::P99],
        _ => vec![main],
    }
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
    let ratio = penstock_statistics::ratio(of_a, of_b, confidence, seed);
    let (Some(ratio), Some(median_a), Some(median_b)) = (ratio, median(of_a), median(of_b)) else {
        return Err("a median can be 0".to_owned());
    };
    let p = p_of_ratio(&ratio, n);
    let (n_a, n_b) = (of_a.len() as u32, of_b.len() as u32);
    Ok(Change { cell: id.to_owned(), metric, a: median_a, b: median_b, n_a, n_b, ratio, p, adjusted: p })
}

/// The `expect:` lines that came out differently, and those that only one run has. `same_model`: whether the lines were asked of
/// both runs; then one that B does not tell is one that cannot be told any more.
pub fn rulings<L: Display>(
    a: &[ExpectationResult<L>],
    b: &[ExpectationResult<L>],
    same_model: bool,
) -> Vec<Turn> {
    let told = |ruling: &ExpectationResult<L>| (ruling.expectation.to_string(), ruling.told);
    turns(&a.iter().map(told).collect::<Vec<_>>(), &b.iter().map(told).collect::<Vec<_>>(), same_model)
}

/// What came out differently, and what only one run has.
fn turns(a: &[(String, Conclusion)], b: &[(String, Conclusion)], same_model: bool) -> Vec<Turn> {
    let mut turns = Vec::new();
    for (of_a, of_b) in pair(a, b, |(line, _)| line.as_str()) {
        let Some((what, _)) = of_a.or(of_b) else { continue };
        let (was, is) = (of_a.map(|(_, told)| *told), of_b.map(|(_, told)| *told));
        if was == is {
            continue;
        }
        let worse = match (was, is) {
            // Whoever did not ask for it this time has not made it worse.
            (Some(_), Some(Conclusion::NotAsked)) | (None, _) => false,
            (Some(was), Some(is)) => is > was,
            (Some(was), None) => same_model && was < Conclusion::CannotBeTold,
        };
        let (a, b) = (was.map(|told| told.to_string()), is.map(|told| told.to_string()));
        turns.push(Turn { what: what.clone(), a, b, worse });
    }
    turns
}

#[cfg(test)]
mod tests;
