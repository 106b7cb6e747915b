//! A run of latencies against a machine that is made up: its order, when it stops, and what it keeps.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use penstock_measure::{
    engine::{Parts, run},
    latency::{
        command, schedule,
        settings::{GuestSeat, Layout, Spread, Wanted, settings},
        wake_ups::{RunOptions, WakeUps},
    },
    record::{RawOutput, Record, RecordOutcome},
    sampler::{Failure, Preparation, Sampler},
};
use penstock_model::measurement::{
    Conclusion, CutShort, EndKind,
    latency::{Arm, Latency, LatencyExpectation, Power, Setting, Stopped, Tool, ToolVersion},
};
use proptest::prelude::*;

/// What cyclictest writes, of a block with these latencies.
fn json(latencies: &[u32]) -> String {
    let mut bins: BTreeMap<u32, u64> = BTreeMap::new();
    latencies
        .iter()
        .filter(|us| **us < command::CYCLICTEST_BINS)
        .for_each(|us| *bins.entry(*us).or_default() += 1);
    let bins: Vec<String> = bins.iter().map(|(us, count)| format!("\"{us}\": {count}")).collect();
    let (min, max) = (latencies.iter().min().unwrap(), latencies.iter().max().unwrap());
    let mean = latencies.iter().map(|us| f64::from(*us)).sum::<f64>() / latencies.len() as f64;
    format!(
        "{{\"file_version\": 1, \"cmdline:\": \"cyclictest\", \"rt_test_version:\": \"2.40\", \"return_code\": 0, \
         \"num_threads\": 1, \"thread\": {{\"0\": {{\"histogram\": {{{}}}, \"cycles\": {}, \"min\": {min}, \
         \"max\": {max}, \"avg\": {mean:.2}, \"cpu\": 2}}}}}}\n",
        bins.join(", "),
        latencies.len()
    )
}

type Answer<'a> = &'a dyn Fn(usize, &Setting) -> Result<String, Failure>;

/// A machine that answers as it is told to.
struct Fake<'a> {
    answer: Answer<'a>,
    missing: BTreeMap<String, String>,
    clock: &'a Cell<f64>,
    taken: &'a RefCell<Vec<Setting>>,
    finished: &'a Cell<u32>,
}

impl Sampler<Setting, ToolVersion> for Fake<'_> {
    fn prepare(&mut self, _: &[Setting]) -> Preparation<ToolVersion> {
        Preparation { missing: self.missing.clone(), ..Preparation::default() }
    }

    fn take(&mut self, setting: &Setting, length: Duration) -> Result<RawOutput, Failure> {
        let at = self.taken.borrow().len();
        self.taken.borrow_mut().push(setting.clone());
        self.clock.set(self.clock.get() + length.as_secs_f64());
        Ok(RawOutput {
            place: "host".into(),
            command: "cyclictest".into(),
            status: Some(0),
            stdout: (self.answer)(at, setting)?,
            cut: None,
            stderr: String::new(),
            cpu: None,
        })
    }

    fn finish(&mut self) -> Vec<String> {
        self.finished.set(self.finished.get() + 1);
        Vec::new()
    }
}

fn layout() -> Layout {
    Layout {
        isolated: "2-3".parse().unwrap(),
        housekeeping: "0-1".parse().unwrap(),
        online: "0-3".parse().unwrap(),
        guests: vec![GuestSeat {
            name: "rt".parse().unwrap(),
            kind: EndKind::Container,
            pin: "2".parse().unwrap(),
        }],
    }
}

fn wanted(against: bool) -> Vec<Setting> {
    settings(&layout(), &Wanted { quick: true, tools: Tool::ALL.to_vec(), against, spread: Spread::Others })
}

fn options(against: bool) -> RunOptions {
    RunOptions {
        seed: 7,
        spike: 100,
        confidence: 0.95,
        block_ms: 1000,
        budget: Some(1000.0),
        rounds: Some(4),
        against,
        emulated: false,
        stand_ins: Vec::new(),
        started: String::new(),
    }
}

struct Ran {
    latency: Latency,
    taken: Vec<Setting>,
    records: Vec<Record>,
    finished: u32,
}

fn perform(
    against: bool,
    options: &RunOptions,
    claims: &[&str],
    earlier: &[Record],
    stop_after: usize,
    answer: Answer<'_>,
) -> Ran {
    let (clock, taken, finished) = (Cell::new(0.0), RefCell::new(Vec::new()), Cell::new(0));
    let mut sampler =
        Fake { answer, missing: BTreeMap::new(), clock: &clock, taken: &taken, finished: &finished };
    let claims: Vec<LatencyExpectation> = claims.iter().map(|text| text.parse().unwrap()).collect();
    let mut records: Vec<Record> = Vec::new();
    let settings = wanted(against);
    let latency = run(
        WakeUps::new(&settings, options, &claims),
        Parts {
            earlier,
            sampler: &mut sampler,
            journal: &mut records,
            observe: &mut |_| {},
            clock: &|| clock.get(),
            interrupted: &|| taken.borrow().len() >= stop_after,
        },
    );
    Ran { latency, taken: taken.into_inner(), records, finished: finished.get() }
}

const EVER: usize = usize::MAX;

#[test]
fn every_series_has_as_many_blocks_and_the_machine_is_toggled_once_a_round() {
    let ran = perform(true, &options(true), &[], &[], EVER, &|_, _| Ok(json(&[3, 4, 5])));
    assert_eq!((ran.latency.stopped, ran.finished), (Some(Stopped::TimeUp), 1));
    assert!(ran.latency.series.iter().all(|series| series.blocks.len() == 4), "{:?}", ran.latency.counts());
    let toggles = ran
        .taken
        .windows(2)
        .filter(|pair| (pair[0].arm == Arm::Untuned) != (pair[1].arm == Arm::Untuned))
        .count();
    assert!(toggles <= 6, "{toggles} in 4 rounds");
    let ids: BTreeSet<String> = wanted(true).iter().map(Setting::id).collect();
    assert_eq!(ids.len(), wanted(true).len(), "each series has a name of its own");
}

#[test]
fn a_limit_that_is_short_is_no_fault_and_a_tool_that_fails_is_one() {
    // Not even one round fits.
    let short = RunOptions { budget: Some(2.5), rounds: None, ..options(false) };
    let ran = perform(false, &short, &["latency max < 100us"], &[], EVER, &|_, _| Ok(json(&[3, 4, 5])));
    let counts = ran.latency.counts();
    assert!(counts.measured > 0 && counts.not_reached > 0 && counts.missing == 0, "{counts:?}");
    assert_eq!(ran.latency.cut_short(), Some(CutShort::TimeUp));
    let unclaimed = Latency { rulings: Vec::new(), ..ran.latency.clone() };
    assert!(unclaimed.holds(), "what was measured is what was asked for");
    assert!(!ran.latency.holds(), "a claim needs its proof");
    for series in ran.latency.series.iter().filter(|series| !series.is_measured()) {
        assert_eq!(series.missing.as_deref(), Some("no block of it was taken: time is up"));
    }
    let none = RunOptions { budget: Some(0.0), ..short.clone() };
    let ran = perform(false, &none, &["latency max < 100us"], &[], EVER, &|_, _| Ok(json(&[3])));
    assert_eq!((ran.latency.counts().measured, ran.latency.rulings[0].told), (0, Conclusion::NotMeasured));
    assert!(!ran.latency.holds());

    let failing = perform(false, &short, &[], &[], EVER, &|_, _| Err(Failure::Sample("no timer".into())));
    assert!(
        failing.latency.counts().missing > 0 && !failing.latency.holds(),
        "{:?}",
        failing.latency.counts()
    );
    let interrupted = perform(false, &options(false), &[], &[], 1, &|_, _| Ok(json(&[3])));
    assert_eq!(interrupted.latency.cut_short(), Some(CutShort::Interrupted));
}

#[test]
fn blocks_of_other_series_are_noted_and_passed_over() {
    let ran = perform(false, &options(false), &[], &[], EVER, &|_, _| Ok(json(&[3, 4, 5])));
    let mut records = ran.records;
    records.iter_mut().take(3).for_each(|record| record.cell = "another".to_owned());
    let again = perform(false, &options(false), &[], &records, EVER, &|_, _| Ok(json(&[3, 4, 5])));
    let note = "3 blocks of 1 series that this run has not, like \"another\", are passed over";
    assert!(again.latency.notes.iter().any(|said| said == note), "{:?}", again.latency.notes);
    assert!(ran.latency.notes.is_empty());
}

#[test]
fn what_flatters_never_stands_alone() {
    let full = Wanted { quick: false, tools: Tool::ALL.to_vec(), against: true, spread: Spread::Others };
    let all = settings(&layout(), &full);
    let held: Vec<&Setting> = all.iter().filter(|setting| setting.power == Power::Held).collect();
    assert!(!held.is_empty());
    for setting in held {
        let honest = Setting { power: Power::System, ..setting.clone() };
        assert!(all.contains(&honest), "{}", setting.id());
    }
    assert!(all.iter().filter(|setting| setting.ordinary).all(|setting| setting.arm == Arm::Tuned));
    assert!(all.iter().any(|setting| setting.ordinary));
}

#[test]
fn a_bound_is_proven_when_there_are_wake_ups_enough_and_not_before() {
    // 1 in 100: 299 wake-ups without one.
    let claims = ["latency max < 100us except 0.01"];
    let options = RunOptions { rounds: Some(30), ..options(false) };
    let ran = perform(false, &options, &claims, &[], EVER, &|_, _| Ok(json(&[7; 60])));
    assert_eq!(ran.latency.stopped, Some(Stopped::Proven));
    assert_eq!(ran.latency.series[0].blocks.len(), 5, "300 wake-ups are the first that are enough");
    assert_eq!(ran.latency.rulings[0].told, Conclusion::Holds);
}

#[test]
fn a_bound_is_broken_by_a_single_wake_up_and_the_round_is_ended_first() {
    let claims = ["latency max < 100us except 0.01"];
    let options = RunOptions { rounds: Some(30), ..options(false) };
    let late = |at: usize, _: &Setting| Ok(json(&[7, if at == 4 { 100 } else { 8 }]));
    let ran = perform(false, &options, &claims, &[], EVER, &late);
    let series = ran.latency.series.len();
    // Of the ordinary CPU nothing is claimed.
    let ordinary = ran.taken[4].ordinary;
    assert!(!ordinary, "the seed has another order now: choose another block");
    assert_eq!(ran.latency.stopped, Some(Stopped::Broken));
    assert_eq!(ran.taken.len(), series * 2, "the second round is ended, and there is no third");
    assert_eq!(ran.latency.rulings[0].told, Conclusion::DoesNotHold);
    assert!(!ran.latency.holds());
}

#[test]
fn on_a_board_a_bound_cannot_be_told_however_it_looks() {
    let options = RunOptions { emulated: true, ..options(false) };
    let ran =
        perform(false, &options, &["latency max < 100us except 0.1"], &[], EVER, &|_, _| Ok(json(&[7; 60])));
    assert_eq!(ran.latency.rulings[0].told, Conclusion::CannotBeTold);
    assert!(ran.latency.emulated && !ran.latency.holds());
}

/// With every claim in numbers that would prove it: a run that ended for that would say so, and no claim would.
#[test]
fn on_a_board_nothing_is_proven_before_the_time_is_up() {
    let proving = |emulated: bool| {
        let options = RunOptions { emulated, ..options(false) };
        let claims = ["latency max < 100us except 0.1"];
        perform(false, &options, &claims, &[], EVER, &|_, _| Ok(json(&[7; 60]))).latency.stopped
    };
    assert_eq!((proving(false), proving(true)), (Some(Stopped::Proven), Some(Stopped::TimeUp)));
}

/// A series that fails twice after its first block has an odd number of blocks for ever.
#[test]
fn a_series_that_was_given_up_keeps_no_claim_from_being_proven() {
    let a_round = wanted(true).len();
    let failing = |at: usize, setting: &Setting| match setting.ordinary && at >= a_round {
        true => Err(Failure::Sample("it broke".into())),
        false => Ok(json(&[7; 60])),
    };
    let rounds = RunOptions { rounds: Some(9), ..options(true) };
    let ran = perform(true, &rounds, &["latency max < 100us except 0.01"], &[], EVER, &failing);
    assert_eq!(ran.latency.stopped, Some(Stopped::Proven));
    assert!(ran.latency.series.iter().any(|series| series.blocks.len() == 3), "it was given up");
}

#[test]
fn blocks_that_failed_before_a_run_was_taken_up_again_are_still_told() {
    let failing = |at: usize, _: &Setting| match at {
        1 => Err(Failure::Sample("it broke".into())),
        _ => Ok(json(&[5, 6, 7])),
    };
    let first = perform(false, &options(false), &[], &[], 4, &failing);
    let rest = perform(false, &options(false), &[], &first.records, EVER, &|_, _| Ok(json(&[5, 6, 7])));
    let failed = rest.latency.series.iter().flat_map(|series| &series.blocks);
    let failed: Vec<_> = failed.filter_map(|block| block.failed.as_deref()).collect();
    assert_eq!(failed, ["it broke"]);
    assert!(rest.latency.series.iter().all(|series| series.counted().count() == 4), "it was taken again");
}

/// Of CPUs that nobody measured nothing may seem to be proven.
#[test]
fn what_one_cpu_stands_for_is_told() {
    let layout = Layout {
        isolated: "2-7".parse().unwrap(),
        guests: vec![GuestSeat {
            name: "rt".parse().unwrap(),
            kind: EndKind::Container,
            pin: "6-7".parse().unwrap(),
        }],
        ..layout()
    };
    let stand_ins = layout.stand_ins();
    let told: Vec<String> = stand_ins.iter().map(|one| format!("{}: {one}", one.place)).collect();
    assert_eq!(told[0], "host: CPU 2 alone was measured, not CPUs 3-5");
    assert!(told[1].ends_with("CPU 6 alone was measured, not CPU 7") && told.len() == 2, "{told:?}");
    let options = RunOptions { stand_ins, ..options(false) };
    let ran = perform(false, &options, &["latency host max < 100us except 0.1"], &[], EVER, &|_, _| {
        Ok(json(&[7; 60]))
    });
    assert!(ran.latency.notes.contains(&told[0]), "{:?}", ran.latency.notes);
    let ruling = &ran.latency.rulings[0];
    assert_eq!(ruling.told, Conclusion::Holds);
    assert!(ruling.claims.iter().all(|claim| claim.why.as_ref().unwrap().contains("not CPUs 3-5")));
}

#[test]
fn a_late_wake_up_of_the_ordinary_cpu_breaks_nothing() {
    let late = |_: usize, setting: &Setting| Ok(json(&[7, if setting.ordinary { 5000 } else { 8 }]));
    let ran = perform(false, &options(false), &["latency max < 100us"], &[], EVER, &late);
    assert_eq!(ran.latency.stopped, Some(Stopped::TimeUp));
    assert_eq!(ran.latency.rulings[0].told, Conclusion::CannotBeTold, "8 wake-ups prove nothing");
}

#[test]
fn output_that_is_cut_off_is_no_block_and_twice_ends_the_series() {
    let cut = |_: usize, setting: &Setting| {
        let text = json(&[5, 6]);
        Ok(if setting.kind == EndKind::Container { text[..text.len() / 2].to_owned() } else { text })
    };
    let ran = perform(false, &options(false), &[], &[], EVER, &cut);
    let inside: Vec<_> =
        ran.latency.series.iter().filter(|series| series.setting.kind == EndKind::Container).collect();
    assert!(!inside.is_empty());
    for series in inside {
        assert_eq!(series.blocks.len(), 2, "and no third is tried");
        assert!(series.missing.as_ref().unwrap().contains("cut off"), "{:?}", series.missing);
        assert!(series.blocks.iter().all(|block| block.max.is_none() && block.counts.is_empty()));
    }
    assert!(!ran.latency.holds());
}

#[test]
fn a_machine_that_cannot_be_untuned_ends_the_run_and_is_put_back() {
    let stuck = |_: usize, setting: &Setting| match setting.arm {
        Arm::Untuned => Err(Failure::Machine("the partition does not go".into())),
        _ => Ok(json(&[5])),
    };
    let ran = perform(true, &options(true), &[], &[], EVER, &stuck);
    assert_eq!((ran.latency.stopped, ran.finished), (Some(Stopped::GivenUp), 1));
    assert!(ran.latency.notes.iter().any(|note| note.contains("the partition does not go")));
}

#[test]
fn an_interrupted_run_keeps_what_it_has_and_goes_on_in_the_same_order() {
    let answer = |_: usize, _: &Setting| Ok(json(&[5, 6, 7]));
    let whole = perform(true, &options(true), &[], &[], EVER, &answer);
    let first = perform(true, &options(true), &[], &[], 5, &answer);
    assert_eq!((first.latency.stopped, first.finished), (Some(Stopped::Interrupted), 1));
    // The fifth was being taken when it was interrupted: it ran to its end all the same.
    assert_eq!(first.records.len(), 5);
    let rest = perform(true, &options(true), &[], &first.records, EVER, &answer);
    let both: Vec<Setting> = first.taken.iter().chain(&rest.taken).cloned().collect();
    assert_eq!(both, whole.taken);
    assert!(rest.latency.series.iter().all(|series| series.blocks.len() == 4));
    let positions: Vec<u32> =
        first.records.iter().chain(&rest.records).map(|record| record.position).collect();
    assert_eq!(positions, (0..u32::try_from(both.len()).unwrap()).collect::<Vec<_>>());
}

#[test]
fn a_block_that_fails_while_it_is_interrupted_is_not_recorded() {
    let answer = |at: usize, _: &Setting| match at {
        2 => Err(Failure::Sample("interrupted while `cyclictest` ran".into())),
        _ => Ok(json(&[5])),
    };
    let ran = perform(false, &options(false), &[], &[], 3, &answer);
    assert_eq!(ran.latency.stopped, Some(Stopped::Interrupted));
    assert_eq!(ran.records.len(), 2);
    assert!(ran.records.iter().all(|record| matches!(record.outcome, RecordOutcome::Ran(_))));
}

#[test]
fn no_block_begins_that_the_time_is_not_enough_for() {
    let options = RunOptions { budget: Some(10.0), rounds: None, ..options(false) };
    let ran = perform(false, &options, &[], &[], EVER, &|_, _| Ok(json(&[5])));
    assert_eq!(ran.latency.stopped, Some(Stopped::TimeUp));
    assert!(ran.latency.seconds <= 10.5, "{}", ran.latency.seconds);
    let blocks: BTreeSet<usize> = ran.latency.series.iter().map(|series| series.blocks.len()).collect();
    assert_eq!(blocks.len(), 1, "whole rounds alone are begun");
}

proptest! {
    #[test]
    fn over_a_pair_of_rounds_each_arm_stands_in_the_middle(seed: u64, pair in 0..1000u32) {
        let rounds = [schedule::arms(2 * pair, seed, true), schedule::arms(2 * pair + 1, seed, true)];
        let both = rounds.concat();
        for arm in [Arm::Tuned, Arm::Null, Arm::Untuned] {
            let positions: Vec<usize> = both.iter().enumerate().filter(|(_, one)| **one == arm).map(|(at, _)| at).collect();
            prop_assert_eq!(positions.iter().sum::<usize>(), 5, "{:?} in {:?}", arm, both);
        }
        for round in rounds {
            let toggles = round.windows(2).filter(|two| (two[0] == Arm::Untuned) != (two[1] == Arm::Untuned)).count();
            prop_assert_eq!(toggles, 1);
        }
    }

    #[test]
    fn each_series_is_taken_once_a_round_and_the_order_is_the_seeds(seed: u64, round in 0..500u32, series in 0..12usize) {
        let order = schedule::series(series, round, seed);
        prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), (0..series).collect::<BTreeSet<_>>());
        prop_assert_eq!(order.len(), series);
        prop_assert_eq!(order, schedule::series(series, round, seed));
    }

    #[test]
    fn which_arm_is_first_is_drawn(seed: u64) {
        let first: BTreeSet<Arm> = (0..64).map(|pair| schedule::arms(2 * pair, seed, true)[0]).collect();
        prop_assert_eq!(first.len(), 3);
    }
}
