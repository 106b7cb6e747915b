//! Runs with a scripted sampler and clock: nothing sleeps, and nothing is run.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use penstock_model::{
    Source,
    measurement::{Counts, CutShort, Load, Metric, PathKind, Protocol, SampleResult, Status, Tool},
};
use proptest::prelude::*;

use super::*;
use crate::{
    engine::{GRACE, Parts, run},
    journal::{Journal, JsonLines, read_records, whole},
    matrix::{self, Null, Options, Planned},
    record::{RawOutput, RecordOutcome},
    sampler::{Failure, Sampler},
};

mod failures;
mod limits;

const STREAM: &str = include_str!("../../tests/outputs/netperf-2.7.1-udp-stream.txt");
const ROUND_TRIPS: &str = include_str!("../../tests/outputs/netperf-2.7.1-udp-rr.txt");
const IPERF3: &str = include_str!("../../tests/outputs/iperf3-3.18-tcp.json");
const IPERF3_REVERSE: &str = include_str!("../../tests/outputs/iperf3-3.18-tcp-reverse.json");
const PROBE_CLOSED: &str = include_str!("../../tests/outputs/probe-1-closed.json");
const PROBE_OPEN: &str = include_str!("../../tests/outputs/probe-1-open.json");

/// What the script is asked for: the cell, its next round, how many samples were taken before it, and when.
struct Ask<'a> {
    cell: &'a Planned,
    round: u32,
    taken: u32,
    now: f64,
}

type Script<'a> = &'a dyn Fn(&Ask<'_>) -> Result<f64, String>;

/// The machine that a run is made on.
struct World<'a> {
    script: Script<'a>,
    now: Cell<f64>,
    taken: Cell<u32>,
    finished: Cell<u32>,
    records: RefCell<Vec<Record>>,
    /// From which sample on the journal's disk is full.
    full_from: Option<usize>,
    /// While which sample, counted from 1, somebody presses Ctrl-C, and whether the tool ends of it; 0: before the first.
    interrupt: Option<(u32, bool)>,
    missing: BTreeMap<String, String>,
    /// Seconds that a sample takes beside its dwell.
    overhead: fn(f64) -> f64,
    events: RefCell<Vec<Event>>,
}

impl<'a> World<'a> {
    fn new(script: Script<'a>) -> World<'a> {
        World {
            script,
            now: Cell::new(0.0),
            taken: Cell::new(0),
            finished: Cell::new(0),
            records: RefCell::default(),
            full_from: None,
            interrupt: None,
            missing: BTreeMap::new(),
            overhead: |_| 0.1,
            events: RefCell::default(),
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupt.is_some_and(|(during, _)| self.taken.get() >= during)
    }

    fn go(&self, matrix: &Matrix, options: &RunOptions, expect: &[&str], earlier: &[Record]) -> Measurements {
        self.records.replace(earlier.to_vec());
        let expect: Vec<Expectation> = expect.iter().map(|line| line.parse().unwrap()).collect();
        let told = run(
            Cells::new(matrix, options, &expect),
            Parts {
                earlier,
                sampler: &mut Scripted(self),
                journal: &mut Kept(self),
                observe: &mut |event| self.events.borrow_mut().push(event.clone()),
                clock: &|| self.now.get(),
                interrupted: &|| self.interrupted(),
            },
        );
        assert_eq!(self.finished.get(), 1, "what was made is given back, once");
        told
    }

    fn notes(&self) -> Vec<String> {
        let events = self.events.borrow();
        let notes = events.iter().filter_map(|event| match event {
            Event::Note(note) => Some(note.clone()),
            _ => None,
        });
        notes.collect()
    }
}

struct Scripted<'a, 'b>(&'a World<'b>);

impl Sampler for Scripted<'_, '_> {
    fn prepare(&mut self, cells: &[Planned]) -> Preparation {
        self.0.now.set(self.0.now.get() + 1.0);
        assert!(!cells.is_empty());
        Preparation { missing: self.0.missing.clone(), ..Preparation::default() }
    }

    fn take(&mut self, cell: &Planned, dwell: Duration) -> Result<RawOutput, Failure> {
        let world = self.0;
        let good = |record: &&Record| {
            record.cell == cell.id && !record.warm_up && matches!(record.outcome, RecordOutcome::Ran(_))
        };
        let round = world.records.borrow().iter().filter(good).count() as u32 + 1;
        let ask = Ask { cell, round, taken: world.taken.get(), now: world.now.get() };
        world.taken.set(ask.taken + 1);
        let value = (world.script)(&ask);
        world.now.set(ask.now + dwell.as_secs_f64() + (world.overhead)(ask.now));
        if world.interrupted() && world.interrupt.is_some_and(|(_, kills)| kills) {
            return Err("ended by a signal".to_owned().into());
        }
        let stdout = printed(cell, value?);
        let (place, command) = ("host".to_owned(), "netperf".to_owned());
        Ok(RawOutput { place, command, status: Some(0), stdout, cut: None, stderr: String::new(), cpu: None })
    }

    fn finish(&mut self) -> Vec<String> {
        self.0.finished.set(self.0.finished.get() + 1);
        Vec::new()
    }
}

/// What the tool prints for this value of the main metric.
fn printed(cell: &Planned, value: f64) -> String {
    let network = cell.measurement.network().unwrap();
    let text = match (cell.measurement.tool, network.load, network.direction) {
        (Tool::Netperf, ..) if network.protocol.is_stream() => {
            STREAM.replace("REMOTE_RECV_THROUGHPUT=1913.18", &format!("REMOTE_RECV_THROUGHPUT={value}"))
        }
        (Tool::Netperf, ..) => ROUND_TRIPS.replace("P50_LATENCY=10", &format!("P50_LATENCY={value}")),
        (Tool::Iperf3, _, penstock_model::measurement::Direction::Forward) => IPERF3.to_owned(),
        (Tool::Iperf3, ..) => IPERF3_REVERSE.to_owned(),
        (_, Load::Closed, _) => PROBE_CLOSED.to_owned(),
        _ => PROBE_OPEN.to_owned(),
    };
    if network.protocol.is_udp() { text } else { text.replace("PROTOCOL=UDP", "PROTOCOL=TCP") }
}

struct Kept<'a, 'b>(&'a World<'b>);

impl Journal for Kept<'_, '_> {
    fn append(&mut self, record: &Record) -> Result<(), String> {
        let mut records = self.0.records.borrow_mut();
        if self.0.full_from.is_some_and(|from| records.len() >= from) {
            return Err("No space left on device (os error 28)".to_owned());
        }
        records.push(record.clone());
        Ok(())
    }
}

/// A value that depends on the cell and the round alone.
fn steady(ask: &Ask<'_>) -> Result<f64, String> {
    let level: u32 = ask.cell.id.bytes().map(u32::from).sum::<u32>() % 500 + 1000;
    Ok(f64::from(level) * (1.0 + 0.002 * f64::from((ask.round * 7) % 5)))
}

fn model(text: &str) -> penstock_model::Model {
    penstock_model::parse(&Source::new("m.yaml", text)).unwrap_or_else(|error| panic!("{error:?}")).model
}

/// Two containers with a VF each: inside the NIC, to the host, over a bridge.
const PAIR: &str = "nics: {NET0: {vfs: 2}}\nguests: {a: {functions: [NET0#0]}, b: {functions: [NET0#1]}}\n";
const CONTAINERS: &str = include_str!("../../../../examples/containers.yaml");

fn pair(options: &Options) -> Matrix {
    matrix::network(&model(PAIR), options)
}

/// Inside, bridge, and inside again.
fn three() -> Matrix {
    let paths = vec![PathKind::VfVfInside, PathKind::Bridge];
    pair(&Options { protocols: vec![Protocol::UdpStream], paths, ..Options::quick() })
}

fn options(rules: Rules) -> RunOptions {
    RunOptions { rules, seed: 7, emulated: false, quick: true, started: "2026-01-02T03:04:05Z".to_owned() }
}

/// So many samples and no more.
fn exactly(samples: u32) -> RunOptions {
    options(Rules { minimum: samples, maximum: samples, ..Rules::default() })
}

/// What two runs of the same have in common: all but when, and the warm-up.
fn essence(mut told: Measurements) -> Measurements {
    told.seconds = 0.0;
    told.notes.clear();
    for cell in &mut told.cells {
        if let Status::Measured(measured) = &mut cell.status {
            measured
                .samples
                .retain(|sample| !sample.warm_up && matches!(sample.taken, SampleResult::Values(_)));
            measured.samples.sort_by_key(|sample| sample.round);
            for sample in &mut measured.samples {
                (sample.at, sample.seconds, sample.position) = (0.0, 0.0, 0);
            }
        }
    }
    told
}

/// Why cells with this in their id have no values.
fn missing<'a>(told: &'a Measurements, text: &str) -> Vec<&'a str> {
    let cells = told.cells.iter().filter(|cell| cell.id.contains(text));
    let why = cells.filter_map(|cell| match &cell.status {
        Status::Missing { why, .. } => Some(why.as_str()),
        Status::Measured(_) => None,
    });
    why.collect()
}

fn counting(records: &[Record]) -> Vec<&Record> {
    records.iter().filter(|record| !record.warm_up).collect()
}

#[test]
fn rounds_are_balanced_and_blocks_stand_together() {
    let matrix = pair(&Options::quick());
    let world = World::new(&steady);
    let told = world.go(&matrix, &exactly(8), &[], &[]);
    let records = world.records.borrow();
    let warm_up: Vec<&str> = records.iter().filter(|r| r.warm_up).map(|r| r.cell.as_str()).collect();
    assert_eq!(warm_up.len(), 3, "one on each path");
    assert!(records[..3].iter().all(|record| record.warm_up && record.round == 0));
    let positions: Vec<u32> = records.iter().map(|record| record.position).collect();
    assert_eq!(positions, (0..records.len() as u32).collect::<Vec<_>>());
    let block = |record: &Record| matrix.cells.iter().find(|cell| cell.id == record.cell).unwrap().block;
    let mut places: BTreeMap<(String, usize), u32> = BTreeMap::new();
    for round in 1..=8 {
        let of_round: Vec<&Record> = counting(&records).into_iter().filter(|r| r.round == round).collect();
        assert_eq!(of_round.len(), matrix.cells.len());
        let groups: Vec<&[&Record]> = of_round.chunk_by(|a, b| block(a) == block(b)).collect();
        assert_eq!(groups.len(), matrix.blocks().len(), "blocks stand together");
        for (at, record) in groups.iter().flat_map(|group| group.iter().enumerate()) {
            *places.entry((record.cell.clone(), at)).or_default() += 1;
        }
    }
    // Four arms a block, eight rounds: twice at each place.
    assert!(places.len() == matrix.cells.len() * 4 && places.values().all(|times| *times == 2), "{places:?}");
    assert!(told.cells.iter().all(|cell| cell.measured().is_some_and(|m| m.stop == StopReason::TightEnough)));
    let main =
        |cell: &penstock_model::measurement::Cell| cell.summary(cell.measurement.main_metric()).cloned();
    assert!(told.cells.iter().all(|cell| main(cell).is_some_and(|s| s.n == 8 && s.interval.is_some())));
    assert!(told.comparisons.iter().all(|compared| compared.null.is_some() && compared.pairs == 8));
    let metrics: BTreeSet<Metric> = told.comparisons.iter().map(|compared| compared.metric).collect();
    assert_eq!(metrics, [Metric::Throughput, Metric::Transactions, Metric::P50, Metric::P99].into());
    assert!(told.notes.iter().any(|note| note.starts_with("pf-pf is not measured: ")), "{:?}", told.notes);
    let prepared = world.events.borrow().iter().filter(|e| matches!(e, Event::Prepared { .. })).count();
    assert_eq!(prepared, 2, "before the warm-up, and after");
}

#[test]
fn the_records_alone_give_the_same_measurements() {
    let (matrix, world) = (pair(&Options::quick()), World::new(&steady));
    let options = exactly(6);
    let lines = ["udp stream vf-vf inside >= 0.5 x bridge"];
    let told = world.go(&matrix, &options, &lines, &[]);
    let expect: Vec<Expectation> = lines.iter().map(|line| line.parse().unwrap()).collect();
    let again = conclude(&matrix, &options, &expect, &world.records.borrow(), &Outcome::default());
    assert_eq!(again.rulings.len(), 1);
    assert!(Measurements { seconds: 0.0, ..told } == Measurements { seconds: 0.0, ..again });
}

#[test]
fn a_run_that_is_cut_anywhere_goes_on_to_the_same_end() {
    let (matrix, options) = (three(), exactly(6));
    let world = World::new(&steady);
    let whole_run = essence(world.go(&matrix, &options, &[], &[]));
    let mut lines = JsonLines(Vec::new());
    world.records.borrow().iter().for_each(|record| lines.append(record).unwrap());
    let text = lines.0;
    let mut known = usize::MAX;
    for cut in 0..=text.len() {
        let earlier = read_records(&text[..cut]).unwrap();
        let lines = text[..cut].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(earlier, world.records.borrow()[..lines]);
        if std::mem::replace(&mut known, lines) == lines {
            continue;
        }
        let resumed = World::new(&steady);
        let told = resumed.go(&matrix, &options, &[], &earlier);
        assert!(essence(told) == whole_run, "cut after {lines} lines");
        let records = resumed.records.borrow();
        assert!(records.windows(2).all(|w| w[0].position + 1 == w[1].position && w[0].at < w[1].at));
        // Nothing is taken twice but the warm-up, and that only if something is left to take.
        assert_eq!(counting(&records).len(), counting(&world.records.borrow()).len());
        assert_eq!(resumed.taken.get() == 0, counting(&earlier).len() == 18, "cut after {lines} lines");
    }
    assert!(whole(&text[..text.len() - 1]).len() < text.len() - 1);
}

#[test]
fn an_interrupt_at_any_sample_keeps_what_was_taken() {
    let (matrix, options) = (three(), exactly(6));
    let whole_run = World::new(&steady);
    let told = essence(whole_run.go(&matrix, &options, &[], &[]));
    for (at, kills) in (0..=whole_run.taken.get()).flat_map(|at| [(at, true), (at, false)]) {
        let world = World { interrupt: Some((at, kills)), ..World::new(&steady) };
        let interrupted = world.go(&matrix, &options, &[], &[]);
        let records = world.records.borrow().clone();
        assert_eq!(
            records.len() as u32,
            at - u32::from(kills && at > 0),
            "what the interrupt ended is no sample"
        );
        assert!(records.iter().all(|record| matches!(record.outcome, RecordOutcome::Ran(_))));
        for cell in &interrupted.cells {
            let samples = counting(&records).into_iter().filter(|record| record.cell == cell.id).count();
            match &cell.status {
                Status::Missing { why, .. } => assert!(samples == 0 && why.contains("interrupted"), "{why}"),
                Status::Measured(measured) => {
                    assert_eq!(measured.values(Metric::Throughput).count(), samples);
                    assert!(measured.stop == StopReason::Interrupted || at == whole_run.taken.get());
                }
            }
        }
        let resumed = World::new(&steady);
        assert!(essence(resumed.go(&matrix, &options, &[], &records)) == told, "interrupted at {at}");
    }
}

#[test]
fn latencies_of_all_samples_tell_what_one_cannot() {
    let paths = vec![PathKind::VfVfInside];
    let (protocols, probe) = (vec![Protocol::UdpRr], Some(500));
    let matrix = pair(&Options { protocols, paths, probe, null: Null::None, ..Options::quick() });
    let open = |told: &Measurements| told.cells.iter().find(|c| c.id.contains("open")).cloned().unwrap();
    let few = open(&World::new(&steady).go(&matrix, &exactly(6), &[], &[]));
    let withheld = &few.measured().unwrap().withheld;
    assert!(
        withheld.iter().any(|w| w.metric == Metric::P999 && w.have == 6 * 517 && w.need == 10_000),
        "{withheld:?}"
    );
    assert!(few.summary(Metric::P999).is_none());
    let many = open(&World::new(&steady).go(&matrix, &exactly(20), &[], &[]));
    let pooled = many.summary(Metric::P999).unwrap();
    assert!(pooled.n == 20 && pooled.interval.is_none() && pooled.median > 0.0, "{pooled:?}");
    assert!(many.measured().unwrap().withheld.iter().all(|w| w.metric != Metric::P999));
    assert_eq!(many.measured().unwrap().histogram.as_ref().unwrap().total(), 20 * 517);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_fails_every_cell_is_told_and_nothing_is_zero(
        seed in any::<u64>(), one_in in 1usize..12, budget in prop::option::of(1.0f64..60.0),
        interrupt in prop::option::of((0u32..60, any::<bool>())),
    ) {
        let matrix = pair(&Options::quick());
        let fails = |ask: &Ask<'_>| {
            let mut random = penstock_statistics::Random::for_purpose(seed ^ u64::from(ask.taken), &ask.cell.id);
            match random.below(one_in) {
                0 if random.below(2) == 0 => Err("it failed".to_owned()),
                0 if ask.cell.id.contains("stream") => Ok(0.0),
                _ => steady(ask),
            }
        };
        let world = World { interrupt, ..World::new(&fails) };
        let options = options(Rules { budget, maximum: 7, ..Rules::default() });
        let told = world.go(&matrix, &options, &["vf-vf inside >= 0.5 x bridge"], &[]);
        prop_assert_eq!(told.cells.len(), matrix.cells.len());
        prop_assert!(budget.is_none_or(|budget| told.seconds <= budget + GRACE + 1e-9));
        for (cell, planned) in told.cells.iter().zip(&matrix.cells) {
            prop_assert_eq!(&cell.id, &planned.id);
            let records = world.records.borrow();
            let of_cell = records.iter().filter(|record| record.cell == cell.id);
            let tells = |record: &&Record| !record.warm_up && record.reading(&planned.measurement).is_ok();
            prop_assert_eq!(cell.measured().is_some(), of_cell.filter(tells).count() > 0);
            if let Some(measured) = cell.measured() {
                let main = cell.summary(planned.measurement.main_metric());
                prop_assert!(main.is_some_and(|main| main.min > 0.0));
                prop_assert!(measured.samples.windows(2).all(|w| w[0].position < w[1].position));
            }
        }
        let mut lines = JsonLines(Vec::new());
        world.records.borrow().iter().for_each(|record| lines.append(record).unwrap());
        prop_assert_eq!(&read_records(&lines.0).unwrap(), &*world.records.borrow());
    }
}
