//! Latencies of two runs compared, series by series.

use penstock_model::measurement::{
    Metric,
    latency::{Arm, Block, Latency, Series},
    run_comparison::{CellsComparison, Untold, pair},
};

use super::{adjust, tell};
use penstock_statistics::samples_for;

/// What is compared: the longest of each block, and the 99.9th percentile of each block that has wake-ups enough for one.
const METRICS: [Metric; 2] = [Metric::Max, Metric::P999];

/// The series of B against those of A, as cells: a block is a sample, so that "max" is the median of the blocks' longest; `None`
/// when neither run measured any. The interval takes the two runs as independent, and is drawn from A's seed. Confidence is the
/// lower of the two runs'.
pub fn latency(a: Option<&Latency>, b: Option<&Latency>) -> Option<CellsComparison> {
    let confidence = a.into_iter().chain(b).map(|run| run.confidence).reduce(f64::min)?;
    let mut across = CellsComparison { confidence, ..CellsComparison::default() };
    let seed = a.map_or(0, |run| run.seed);
    let [of_a, of_b] = [a, b].map(|run| run.map(|run| run.series.as_slice()).unwrap_or_default());
    for both in pair(of_a, of_b, |series| series.id.as_str()) {
        match both {
            (Some(series), Some(other)) => compare(series, other, seed, &mut across),
            (Some(series), None) => across.only_a.push(series.id.clone()),
            (None, Some(series)) => across.only_b.push(series.id.clone()),
            (None, None) => {}
        }
    }
    adjust(&mut across);
    Some(across)
}

fn compare(series: &Series, other: &Series, seed: u64, across: &mut CellsComparison) {
    let untold = |why: String| Untold { cell: series.id.clone(), why };
    match (series.is_measured(), other.is_measured()) {
        // The second arm of an A/A comparison is of no interest by itself.
        (true, true) if series.setting.arm == Arm::Null => {}
        // The name does not say where the load ran.
        (true, true) if series.setting != other.setting => {
            let (a, b) = (&series.setting, &other.setting);
            across.untold.push(untold(match a.load == b.load {
                false => format!("the load was another one: {} in A, {} in B", a.load, b.load),
                true => "it was another place of the same name".to_owned(),
            }));
        }
        (true, true) => {
            let values = |series: &Series, metric: Metric| -> Vec<f64> {
                series.counted().filter_map(|block| value(block, metric)).collect()
            };
            // The longer a block, the longer its longest.
            let [a, b] = [series, other].map(|series| series.counted().next().map(|block| block.seconds));
            for metric in METRICS {
                if let (Metric::Max, Some(a), Some(b)) = (metric, a, b)
                    && a != b
                {
                    across.untold.push(untold(format!("{metric}: blocks of {a} s in A, {b} s in B")));
                    continue;
                }
                let of_both = (values(series, metric), values(other, metric));
                // A block is what a sample is of a cell.
                tell(&series.id, metric, of_both, "blocks that tell", seed, across);
            }
        }
        (true, false) if other.cut_short.is_some() => {
            across.untold.push(untold(format!("not measured in B: {}", why(other))));
        }
        (true, false) => across.lost.push(untold(why(other))),
        (false, true) => across.found.push(untold(why(series))),
        (false, false) => across.missing.push(untold(why(other))),
    }
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

#[cfg(test)]
mod tests {
    use penstock_model::{
        measurement::{
            Conclusion, EndKind, ExpectationResult,
            latency::{Bins, LatencyExpectation, Load, Power, Setting, Tool},
            run_comparison::Direction,
        },
        verdict::Vantage,
    };

    use super::*;
    use crate::run_comparison::{rulings, together};

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
        let latency = |a: &Latency, b: &Latency| latency(Some(a), Some(b)).unwrap();
        let across = latency(&a, &b);
        assert_eq!(across.changes.len(), 2);
        assert_eq!(across.count(Direction::Worse), 2, "{across:?}");
        assert_eq!((across.changes[1].a, across.changes[1].b), (15.0, 65.0));
        assert_eq!(latency(&b, &a).count(Direction::Better), 2);
        assert_eq!(latency(&a, &a).count(Direction::Same), 2);
        let none = run(10, 0);
        assert_eq!((latency(&a, &none).lost.len(), latency(&none, &a).found.len()), (1, 1));
        assert_eq!(latency(&a, &run(10, 3)).untold.len(), 2, "both metrics of A have no partner");
        assert_eq!(latency(&a, &Latency::default()).only_a.len(), 1);
        let both = together([across.clone(), across]).unwrap();
        assert_eq!(both.changes.len(), 4);
        assert!(
            both.changes.iter().all(|change| change.adjusted >= change.p * 2.0 || change.adjusted == 1.0)
        );
        assert!(together([]).is_none());
    }

    #[test]
    fn the_longest_of_longer_blocks_is_not_compared() {
        let (a, mut b) = (run(10, 12), run(10, 12));
        b.series[0].blocks.iter_mut().for_each(|block| block.seconds = 10.0);
        let across = latency(Some(&a), Some(&b)).unwrap();
        assert_eq!(across.changes.iter().map(|change| change.metric).collect::<Vec<_>>(), [Metric::P999]);
        assert_eq!(across.untold[0].why, "max: blocks of 1 s in A, 10 s in B");
    }

    #[test]
    fn a_claim_that_holds_no_longer_is_worse() {
        let ruling = |told| ExpectationResult::<LatencyExpectation> {
            told,
            ..ExpectationResult::new("latency host max < 9us".parse().unwrap(), Vec::new())
        };
        let turns = rulings(&[ruling(Conclusion::Holds)], &[ruling(Conclusion::CannotBeTold)], true);
        assert!(turns.len() == 1 && turns[0].worse);
        assert!(rulings(&[ruling(Conclusion::Holds)], &[ruling(Conclusion::Holds)], true).is_empty());
        assert!(!rulings(&[], &[ruling(Conclusion::DoesNotHold)], true)[0].worse);
    }
}
