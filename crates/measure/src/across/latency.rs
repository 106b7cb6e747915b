//! Latencies of two runs compared, series by series.

use std::collections::{HashMap, HashSet};

use penstock_model::measurement::{
    Metric,
    across::{CellsAcross, Change, Turn, Untold},
    latency::{Arm, Block, Latency, Ruling, Series},
};

use super::{adjust, changed, turns};
use crate::statistics::samples_for;

/// What is compared: the longest of each block, and the 99.9th percentile of each block that has wake-ups enough for one.
const METRICS: [Metric; 2] = [Metric::Max, Metric::P999];

/// The series of B against those of A, as cells: a block is a sample, so that "max" is the median of the blocks' longest. The
/// interval takes the two runs as independent, and is drawn from A's seed. Confidence is the lower of the two runs'.
pub fn latency(a: &Latency, b: &Latency) -> CellsAcross {
    let confidence = a.confidence.min(b.confidence);
    let of_b: HashMap<&str, &Series> = arms(b).map(|series| (series.id.as_str(), series)).collect();
    let in_a: HashSet<&str> = arms(a).map(|series| series.id.as_str()).collect();
    let mut across = CellsAcross { confidence, ..CellsAcross::default() };
    for series in arms(a) {
        let Some(other) = of_b.get(series.id.as_str()) else {
            across.only_a.push(series.id.clone());
            continue;
        };
        let untold = |why: String| Untold { cell: series.id.clone(), why };
        match (series.is_measured(), other.is_measured()) {
            (true, true) => {
                for (number, metric) in METRICS.into_iter().enumerate() {
                    match change(series, other, metric, confidence, a.seed) {
                        Ok(change) => across.changes.push(change),
                        // Percentiles that one run has no wake-ups for are no news.
                        Err(why) if number == 0 => across.untold.push(untold(why)),
                        Err(_) => {}
                    }
                }
            }
            (true, false) => across.lost.push(untold(why(other))),
            (false, true) => across.found.push(untold(why(series))),
            (false, false) => across.untold.push(untold(format!("missing in both runs: {}", why(other)))),
        }
    }
    across.only_b =
        arms(b).filter(|series| !in_a.contains(series.id.as_str())).map(|series| series.id.clone()).collect();
    adjust(&mut across);
    across
}

/// The series that are of interest by themselves.
fn arms(latency: &Latency) -> impl Iterator<Item = &Series> {
    latency.series.iter().filter(|series| series.setting.arm != Arm::Null)
}

fn why(series: &Series) -> String {
    series.missing.clone().unwrap_or_else(|| "no block counts".to_owned())
}

/// What a block tells.
fn value(block: &Block, metric: Metric) -> Option<f64> {
    match metric.quantile() {
        None => block.max,
        Some(quantile) => {
            let n = block.counts.total();
            let rank = n - ((1.0 - quantile) * n as f64 * (1.0 + 1e-12)) as u64;
            (n >= samples_for(quantile)).then(|| block.counts.ranked(rank).map(f64::from))?
        }
    }
}

fn change(a: &Series, b: &Series, metric: Metric, confidence: f64, seed: u64) -> Result<Change, String> {
    let values =
        |series: &Series| -> Vec<f64> { series.counted().filter_map(|block| value(block, metric)).collect() };
    // A block is what a sample is of a cell.
    changed(&a.id, metric, (&values(a), &values(b)), "blocks that tell", confidence, seed)
}

/// The claims that came out differently, and those that only one run has.
pub fn claims(a: &[Ruling], b: &[Ruling]) -> Vec<Turn> {
    let told = |ruling: &Ruling| (ruling.claim.to_string(), ruling.told);
    turns(&a.iter().map(told).collect::<Vec<_>>(), &b.iter().map(told).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use penstock_model::{
        measurement::{
            EndKind, Told,
            across::Direction,
            latency::{Bins, Load, Power, Setting, Tool},
        },
        verdict::Vantage,
    };

    use super::*;
    use crate::across::together;

    fn run(usual: u32, blocks: u32) -> Latency {
        let mut series = Series::new(Setting {
            place: Vantage::Host,
            kind: EndKind::Host,
            cpu: 2,
            ordinary: false,
            tool: Tool::Cyclictest,
            load: Load::Idle,
            arm: Arm::Tuned,
            power: Power::Held,
        });
        series.blocks = (0..blocks)
            .map(|round| {
                let max = usual + 10 + round % 3;
                let counts = [(usual, 20_000), (usual + 5, 50), (max, 1)].into_iter().collect();
                let counts = Bins::new(counts, 400, 20_051).unwrap();
                Block { round, seconds: 1.0, counts, max: Some(max.into()), ..Block::default() }
            })
            .collect();
        Latency { series: vec![series], ..Latency::default() }
    }

    #[test]
    fn later_wake_ups_are_worse_and_a_series_that_is_missing_too() {
        let (a, b) = (run(10, 12), run(60, 12));
        let across = latency(&a, &b);
        assert_eq!(across.changes.len(), 2);
        assert_eq!(across.count(Direction::Worse), 2, "{across:?}");
        assert_eq!((across.changes[1].a, across.changes[1].b), (15.0, 65.0));
        assert_eq!(latency(&b, &a).count(Direction::Better), 2);
        assert_eq!(latency(&a, &a).count(Direction::Same), 2);
        let none = run(10, 0);
        assert_eq!((latency(&a, &none).lost.len(), latency(&none, &a).found.len()), (1, 1));
        assert_eq!(latency(&a, &run(10, 3)).untold.len(), 1);
        assert_eq!(latency(&a, &Latency::default()).only_a.len(), 1);
        let both = together([across.clone(), across]).unwrap();
        assert_eq!(both.changes.len(), 4);
        assert!(
            both.changes.iter().all(|change| change.adjusted >= change.p * 2.0 || change.adjusted == 1.0)
        );
        assert!(together([]).is_none());
    }

    #[test]
    fn a_claim_that_holds_no_longer_is_worse() {
        let ruling =
            |told| Ruling { claim: "latency host max < 9us".parse().unwrap(), told, findings: Vec::new() };
        let turns = claims(&[ruling(Told::Holds)], &[ruling(Told::CannotBeTold)]);
        assert!(turns.len() == 1 && turns[0].worse);
        assert!(claims(&[ruling(Told::Holds)], &[ruling(Told::Holds)]).is_empty());
        assert!(!claims(&[], &[ruling(Told::DoesNotHold)])[0].worse);
    }
}
