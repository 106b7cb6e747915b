use std::collections::BTreeMap;

use penstock_model::{
    measurement::{
        Direction, End, EndKind, Expectation, Load, Measurement, Network, PathKind, Protocol, Sample,
        SampleResult, StopReason, Tool, run_comparison::Direction as Turned,
    },
    verdict::Vantage,
};

use super::*;
use crate::summarise;

fn cell(id: &str, protocol: Protocol, samples: &[BTreeMap<Metric, f64>]) -> Cell {
    let end = |name: &str| End {
        place: Vantage::Guest(name.parse().unwrap()),
        kind: EndKind::Container,
        function: None,
    };
    let network = Network {
        protocol,
        path: PathKind::VfVfInside,
        client: end("a"),
        server: end("b"),
        size: 128,
        direction: Direction::Forward,
        load: Load::Closed,
    };
    let samples = samples.iter().enumerate().map(|(n, values)| Sample {
        at: n as f64,
        seconds: 1.0,
        position: n as u32,
        round: n as u32,
        warm_up: n == 0,
        taken: SampleResult::Values(values.clone()),
    });
    Cell {
        id: id.into(),
        measurement: Measurement { tool: Tool::Netperf, subject: Subject::Network(network) },
        null: false,
        status: summarise::status(samples.collect(), None, 0, Vec::new(), StopReason::TightEnough, 0.95, 1),
    }
}

/// Samples around `centre`, the first of which, the warm-up, is far off.
fn around(metric: Metric, centre: f64, spread: f64, n: usize, seed: u64) -> Vec<BTreeMap<Metric, f64>> {
    let mut random = Random::new(seed);
    (0..=n)
        .map(|n| {
            // Four uniform numbers are near enough to a bell.
            let noise = (0..4).map(|_| random.unit() - 0.5).sum::<f64>() * spread * 1.73;
            BTreeMap::from([(metric, if n == 0 { 1.0 } else { centre * (1.0 + noise) })])
        })
        .collect()
}

fn run(cells: Vec<Cell>) -> Measurements {
    Measurements { cells, seed: 7, ..Measurements::default() }
}

fn missing(id: &str) -> Cell {
    Cell { status: Status::missing("the guest is gone"), ..cell(id, Protocol::UdpStream, &[]) }
}

#[test]
fn a_run_is_the_same_as_itself() {
    let cells = (0..30)
        .map(|n| cell(&n.to_string(), Protocol::UdpStream, &around(Metric::Throughput, 1e9, 0.05, 8, n)));
    let one = run(cells.collect());
    let across = super::cells(Some(&one), Some(&one)).unwrap();
    assert_eq!(across.changes.len(), 30);
    assert!(across.changes.iter().all(|change| change.direction() == Turned::Same && change.a == change.b));
}

#[test]
fn one_that_changed_is_found_among_hundreds_and_chance_is_not() {
    let of = |seed: u64, slow: f64| {
        let cells = (0..300).map(|n| {
            let centre = if n == 17 { slow } else { 1e9 };
            let samples = around(Metric::Throughput, centre, 0.03, 8, seed * 1000 + n);
            cell(&n.to_string(), Protocol::UdpStream, &samples)
        });
        run(cells.collect())
    };
    let mut alarms = 0;
    for seed in 0..20 {
        let across = super::cells(Some(&of(2 * seed + 1, 1e9)), Some(&of(2 * seed + 2, 0.7e9))).unwrap();
        let changed: Vec<&Change> = across
            .changes
            .iter()
            .filter(|change| matches!(change.direction(), Turned::Worse | Turned::Better))
            .collect();
        let slow = changed.iter().find(|change| change.cell == "17").expect("the slow cell is found");
        assert_eq!(slow.direction(), Turned::Worse);
        assert!(slow.ratio.spans(0.7) && slow.adjusted < 0.05, "{slow:?}");
        alarms += usize::from(changed.len() > 1);
        assert!(across.by_chance() > 14.9 && across.by_chance() < 15.1);
    }
    // One run in twenty may; the chance of more than four is below 0.3 %.
    assert!(alarms <= 4, "{alarms} of 20 comparisons had a false alarm");
}

#[test]
fn latency_that_grew_is_worse_and_the_tail_is_looked_at() {
    let samples = |p50: f64, p99: f64| -> Vec<BTreeMap<Metric, f64>> {
        (0..10)
            .map(|n| {
                let wobble = 1.0 + f64::from(n) / 500.0;
                BTreeMap::from([(Metric::P50, p50 * wobble), (Metric::P99, p99 * wobble)])
            })
            .collect()
    };
    let a = run(vec![cell("rr", Protocol::UdpRr, &samples(10.0, 20.0))]);
    let b = run(vec![cell("rr", Protocol::UdpRr, &samples(8.0, 60.0))]);
    let across = super::cells(Some(&a), Some(&b)).unwrap();
    let told: Vec<(Metric, Turned)> = across.changes.iter().map(|c| (c.metric, c.direction())).collect();
    assert_eq!(told, [(Metric::P50, Turned::Better), (Metric::P99, Turned::Worse)]);
}

#[test]
fn what_only_one_run_has_is_told_and_never_a_ratio() {
    let good = |id: &str| cell(id, Protocol::UdpStream, &around(Metric::Throughput, 1e9, 0.01, 8, 3));
    let few = cell("few", Protocol::UdpStream, &around(Metric::Throughput, 1e9, 0.01, 3, 3));
    let zero = cell("zero", Protocol::UdpStream, &around(Metric::Throughput, 0.0, 0.0, 8, 3));
    let mut again = good("again");
    again.null = true;
    let a = run(vec![
        good("old"),
        good("lost"),
        missing("found"),
        missing("never"),
        few,
        zero.clone(),
        again.clone(),
    ]);
    let b =
        run(vec![good("new"), missing("lost"), good("found"), missing("never"), good("few"), zero, again]);
    let across = super::cells(Some(&a), Some(&b)).unwrap();
    let names = |list: &[Untold]| list.iter().map(|untold| untold.cell.clone()).collect::<Vec<_>>();
    assert_eq!((across.only_a, across.only_b), (vec!["old".to_owned()], vec!["new".to_owned()]));
    assert_eq!(names(&across.lost), ["lost"]);
    assert_eq!(names(&across.found), ["found"]);
    assert_eq!(names(&across.missing), ["never"]);
    assert_eq!(names(&across.untold), ["few"], "zero is the same in both");
    assert_eq!(across.untold[0].why, "A has 3 samples of throughput, and an interval takes 6");
    assert!(across.changes.is_empty());
}

#[test]
fn expectations_turn() {
    let ruling = |line: &str, told: Conclusion| ExpectationResult::<Expectation> {
        told,
        ..ExpectationResult::new(line.parse().unwrap(), Vec::new())
    };
    let (x, y, z) = ("p99 <= 5us", "p50 <= 5us", "p90 <= 5us");
    let a = [ruling(x, Conclusion::Holds), ruling(y, Conclusion::DoesNotHold), ruling(z, Conclusion::Holds)];
    let b = [
        ruling(x, Conclusion::CannotBeTold),
        ruling(y, Conclusion::Holds),
        ruling("max <= 1ms", Conclusion::DoesNotHold),
    ];
    let turns = rulings(&a, &b, false);
    let told: Vec<(&str, bool)> = turns.iter().map(|turn| (turn.what.as_str(), turn.worse)).collect();
    assert_eq!(told, [(x, true), (y, false), (z, false), ("max <= 1ms", false)]);
    assert_eq!((turns[2].b.as_deref(), turns[3].a.as_deref()), (None, None));
}
