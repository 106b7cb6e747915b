//! Which cells a model gives, in which order they are sampled, and what becomes of the samples.

use std::collections::{BTreeMap, BTreeSet};

use penstock_measure::{
    matrix::{self, Matrix, Options},
    schedule, summarise,
};
use penstock_model::{
    Model, Source,
    measurement::{
        Cell, EndKind, Measurements, Metric, PathKind, Rules, Sample, Status, StopReason, Subject, Taken,
        Told,
    },
    verdict::Vantage,
};
use proptest::prelude::*;

fn model(text: &str) -> Model {
    penstock_model::parse(&Source::new("m.yaml", text)).unwrap_or_else(|error| panic!("{error:?}"))
}

const TWO_PORTS: &str = "
nics: {NET0: {vfs: 4}, NET1: {vfs: 4}}
guests:
  owner: {functions: [NET1]}
  a: {functions: [NET0#0, NET1#0]}
  b: {functions: [NET0#1, NET1#1]}
  rt: {kind: vm, functions: [NET0#2]}
board: {cables: [[NET0, NET1]]}
";

fn ends(matrix: &Matrix) -> BTreeSet<String> {
    let ends = matrix.cells.iter().filter_map(|cell| match &cell.measurement.subject {
        Subject::Network(n) => Some(format!("{} {}>{}", n.path, n.client, n.server)),
        Subject::Storage(_) => None,
    });
    ends.collect()
}

#[test]
fn a_two_port_machine_has_every_path() {
    let matrix = matrix::network(&model(TWO_PORTS), &Options::full());
    let expected = [
        "bridge a>b",
        "guest-host a:NET0#0>host:NET0",
        "guest-host rt:NET0#2>host:NET0",
        "pf-pf host:NET0>owner:NET1",
        "vf-vf across a:NET0#0>b:NET1#1",
        "vf-vf across rt:NET0#2>a:NET1#0",
        "vf-vf inside a:NET0#0>b:NET0#1",
        "vf-vf inside a:NET0#0>rt:NET0#2",
    ];
    assert_eq!(ends(&matrix), expected.map(str::to_owned).into());
    assert_eq!(matrix.absent, []);
    // 8 sizes of two streams, 3 of two request-responses, iperf3 both ways; 8 ends and one again.
    assert_eq!(matrix.cells.len(), (2 * 8 + 2 * 3 + 2) * 9);
    let names: BTreeSet<&str> = matrix.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(names.len(), matrix.cells.len(), "names are unique");
    let bridged = matrix.comparisons().into_iter().filter(|(base, other, _)| {
        matrix.cells[*base].id.contains("bridge a>b 1024B")
            && matrix.cells[*other].id.contains("udp stream vf-vf inside a:NET0#0>b:NET0#1")
    });
    assert_eq!(bridged.count(), 1, "row B7");
    assert!(matrix.comparisons().iter().all(|(base, other, null)| {
        let block = matrix.cells[*base].block;
        block == matrix.cells[*other].block && null.is_some_and(|null| matrix.cells[null].null)
    }));
}

#[test]
fn chosen_paths_are_compared_with_the_bridge_too() {
    let options = Options { paths: vec![PathKind::VfVfInside, PathKind::Bridge], ..Options::quick() };
    let matrix = matrix::network(&model(TWO_PORTS), &options);
    let expected =
        ["bridge a>b", "vf-vf inside a:NET0#0>b:NET0#1", "vf-vf inside a:NET0#0>rt:NET0#2"].map(str::to_owned);
    assert_eq!(ends(&matrix), expected.into());
    assert_eq!(matrix.absent, []);
    let bridged = matrix.comparisons().into_iter().filter(|(base, other, _)| {
        matrix.cells[*base].id.contains("bridge a>b 128B")
            && matrix.cells[*other].id.contains("udp stream vf-vf inside a:NET0#0>b:NET0#1")
    });
    assert_eq!(bridged.count(), 1, "the first arm of a block is an other to the bridge");
}

#[test]
fn what_cannot_be_measured_says_why() {
    let why = |text: &str| -> BTreeMap<PathKind, String> {
        let matrix = matrix::network(&model(text), &Options::quick());
        matrix.absent.into_iter().map(|absent| (absent.path, absent.why)).collect()
    };
    let one = why("nics: {NET0: {vfs: 2}}\nguests: {a: {functions: [NET0#0, NET0#1]}}\n");
    assert_eq!(one[&PathKind::PfPf], "no cable joins two NICs");
    assert!(one[&PathKind::VfVfInside].contains("in one place"), "{one:?}");
    assert!(!one.contains_key(&PathKind::GuestHost));
    let off = why(
        "nics: {NET0: {vfs: 2, loopback: off}}\nguests: {a: {functions: [NET0#0]}, b: {functions: [NET0#1]}}\n",
    );
    assert_eq!(off[&PathKind::VfVfInside], "no NIC switches between its own functions (loopback: off)");
    let host = why("nics: {NET0: {vfs: 1}, NET1: {vfs: 1}}\nguests: {a: {functions: [NET0#0]}}\n");
    assert!(host[&PathKind::PfPf].contains("its kernel would hand the bytes over itself"), "{host:?}");
    let vlan = why(
        "nics: {NET0: {vfs: 2}}\nguests: {a: {functions: [{vf: NET0#0, vlan: 5}]}, b: {functions: [NET0#1]}}\n",
    );
    assert!(vlan[&PathKind::VfVfInside].contains("different VLANs"), "{vlan:?}");
    let rtos = why("nics: {NET0: {vfs: 1}}\nguests: {a: {kind: vm, inside: console, functions: [NET0#0]}}\n");
    assert!(rtos.contains_key(&PathKind::GuestHost), "{rtos:?}");
}

#[test]
fn storage_is_measured_on_the_host_first() {
    let at = [(Vantage::Host, EndKind::Host), (Vantage::Guest("a".parse().unwrap()), EndKind::Container)];
    let full = matrix::storage("/dev/nvme0n1", &at, false, true);
    assert_eq!(full.cells.len(), 2 * 3 * 9 * 3 * 3);
    assert_eq!(full.blocks().len(), 2 * 3 * 9 * 3);
    assert!(full.comparisons().iter().all(|(base, other, _)| {
        full.cells[*base].id.contains(" host ") && full.cells[*other].id.contains(" a ")
    }));
    assert_eq!(matrix::storage("/dev/nvme0n1", &at, true, false).cells.len(), 2 * 3 * 2);
}

#[test]
fn the_time_it_takes_is_told_before() {
    let rules = Rules { minimum: 6, maximum: 6, warm_up: 1, dwell_ms: 1000, ..Rules::default() };
    let told = schedule::duration(100, &rules, 0.02);
    assert!((told.least - 714.0).abs() < 1e-6 && told.least == told.most, "{told:?}");
    let capped = Rules { maximum: 30, budget: Some(720.0), ..rules };
    assert_eq!(schedule::duration(100, &capped, 0.02).most, 720.0);
    assert_eq!(schedule::samples_within(100, &capped, 0.02), Some(6));
    assert_eq!(schedule::samples_within(100, &rules, 0.02), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_round_takes_every_arm_once(sizes in prop::collection::vec(1usize..9, 1..6), seed in any::<u64>()) {
        let mut next = 0;
        let blocks: Vec<Vec<usize>> = sizes.iter().map(|n| { next += n; (next - n..next).collect() }).collect();
        for round in 0..5 {
            let order = schedule::round(&blocks, round, seed);
            prop_assert_eq!(&order, &schedule::round(&blocks, round, seed));
            prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), (0..next).collect());
            prop_assert_eq!(order.len(), next);
            // The arms of a block stand together.
            for block in &blocks {
                let at: Vec<usize> = (0..next).filter(|at| block.contains(&order[*at])).collect();
                prop_assert_eq!(at[at.len() - 1] - at[0] + 1, block.len());
            }
        }
    }

    #[test]
    fn each_arm_stands_everywhere_and_follows_each_other_equally_often(n in 2usize..9, seed in any::<u64>()) {
        let block = vec![(0..n).collect::<Vec<_>>()];
        let rounds = schedule::balanced_after(n);
        let (mut places, mut follows) = (BTreeMap::new(), BTreeMap::new());
        for round in 0..rounds {
            let order = schedule::round(&block, round as u32, seed);
            for (at, arm) in order.iter().enumerate() {
                *places.entry((at, *arm)).or_insert(0) += 1;
            }
            order.windows(2).for_each(|pair| *follows.entry((pair[0], pair[1])).or_insert(0) += 1);
        }
        prop_assert_eq!(places.len(), n * n);
        prop_assert!(places.values().all(|times| *times == rounds / n));
        prop_assert_eq!(follows.len(), n * (n - 1));
        prop_assert!(follows.values().all(|times| *times == rounds / n));
    }
}

#[test]
fn two_arms_go_there_and_back() {
    let rounds: Vec<Vec<usize>> = (0..4).map(|round| schedule::round(&[vec![0, 1]], round, 3)).collect();
    assert_eq!(rounds[0], rounds[2]);
    assert_eq!(rounds[1], rounds[0].iter().rev().copied().collect::<Vec<_>>());
}

/// Cells of a quick matrix, each sample `level` of its path, with one of them missing.
fn measured(emulated: bool) -> Measurements {
    let matrix = matrix::network(&model(TWO_PORTS), &Options::quick());
    let sample = |round: u32, value: f64, metric: Metric| Sample {
        at: f64::from(round),
        seconds: 1.0,
        position: round,
        round,
        warm_up: round == 0,
        taken: Taken::Values(BTreeMap::from([(metric, value)])),
    };
    let cells = matrix.cells.iter().map(|planned| {
        let Subject::Network(network) = &planned.measurement.subject else { unreachable!() };
        let metric = planned.measurement.main_metric();
        let level = match network.path {
            PathKind::PfPf => 9.4e9,
            PathKind::VfVfInside => 14.7e9,
            PathKind::Bridge => 5.0e9,
            _ => 9.3e9,
        };
        // The first is warm-up and far off; all arms share what each round does to them.
        let value = |round: u32| if round == 0 { 1.0 } else { level * (1.0 + 0.01 * f64::from(round % 4)) };
        let samples: Vec<Sample> = match network.path {
            PathKind::VfVfAcross => Vec::new(),
            _ => (0..9).map(|round| sample(round, value(round), metric)).collect(),
        };
        let status = summarise::status(samples, None, Vec::new(), StopReason::SamplesUp, 0.95, 1);
        Cell { id: planned.id.clone(), measurement: planned.measurement.clone(), null: planned.null, status }
    });
    Measurements { emulated, cells: cells.collect(), ..Measurements::default() }
}

#[test]
fn warm_up_is_kept_and_not_counted_and_nothing_is_missing_and_not_zero() {
    let run = measured(false);
    let cell = run.cells.iter().find(|cell| cell.id.contains("tcp stream pf-pf") && !cell.null).unwrap();
    let summary = cell.summary(Metric::Throughput).unwrap();
    assert_eq!((summary.n, summary.min), (8, 9.4e9));
    assert_eq!(cell.measured().unwrap().samples.len(), 9);
    let across = run.cells.iter().find(|cell| cell.id.contains("vf-vf across")).unwrap();
    assert!(matches!(&across.status, Status::Missing { why } if why.contains("no sample")), "{across:?}");
}

#[test]
fn lines_are_ruled_on_by_the_cells() {
    let rule =
        |line: &str, emulated: bool| summarise::rule(&line.parse().unwrap(), &measured(emulated), 0.95);
    let inside = rule("tcp vf-vf inside >= 1.4 x pf-pf", false);
    assert_eq!((inside.told, inside.claims.len()), (Told::Holds, 4), "two sizes, two pairs of ends");
    assert_eq!(rule("tcp vf-vf inside >= 1.6 x pf-pf", true).told, Told::DoesNotHold);
    let bridge = rule("udp stream vf-vf inside 128B >= 2 x bridge", true);
    assert_eq!((bridge.told, bridge.claims.len()), (Told::Holds, 1), "{bridge:?}");
    assert_eq!(rule("tcp pf-pf >= 9.39Gbit/s", false).told, Told::Holds);
    let absolute = rule("tcp pf-pf >= 9.39Gbit/s", true);
    assert_eq!(absolute.told, Told::CannotBeTold);
    assert!(absolute.claims[0].why.as_ref().unwrap().contains("emulated"));
    let missing = rule("tcp vf-vf across >= 0.5 x pf-pf", false);
    assert_eq!(missing.told, Told::CannotBeTold);
    assert!(missing.claims[0].why.as_ref().unwrap().contains("is missing: no sample"), "{missing:?}");
    assert!(rule("random read >= 0.9 x host", false).claims.is_empty());
}

#[test]
fn a_comparison_has_its_pairs_and_its_null() {
    let run = measured(true);
    let find = |text: &str, null: bool| {
        run.cells.iter().find(|cell| cell.id.contains(text) && cell.null == null).unwrap()
    };
    let (base, other) = (find("tcp stream pf-pf", false), find("tcp stream vf-vf inside", false));
    let null = find("tcp stream pf-pf", true);
    let compared = summarise::compare(base, other, Some(null), Metric::Throughput, 0.95, 1);
    assert_eq!(compared.pairs, 8);
    assert!((compared.ratio.unwrap().value() - 14.7 / 9.4).abs() < 1e-9, "{compared:?}");
    assert_eq!(compared.null_holds(), Some(true));
    assert!(compared.penalty().unwrap().high() < 0.0, "inside the NIC is better than the wire");
}
