//! When a block ends, and what a limit of time leaves out.

use super::*;

#[test]
fn a_block_stops_when_all_of_it_is_tight_enough() {
    let matrix = pair(&Options { null: Null::None, ..Options::quick() });
    // TCP changes from sample to sample, by half.
    let script = |ask: &Ask<'_>| {
        let rough = ask.cell.id.contains("tcp stream vf-vf inside") && ask.round.is_multiple_of(2);
        steady(ask).map(|value| if rough { value * 1.5 } else { value })
    };
    let world = World::new(&script);
    let rules = Rules { maximum: 20, ..Rules::default() };
    let told = world.go(&matrix, &options(rules), &[], &[]);
    let looks = InterimAnalyses::new(&rules);
    let first = looks.at()[0];
    for (cell, planned) in told.cells.iter().zip(&matrix.cells) {
        let main = cell.summary(planned.measurement.main_metric()).unwrap();
        let stop = cell.measured().unwrap().stop;
        // The arms of a block end together, so that their samples stay pairs.
        let expected = match cell.id.as_str() {
            id if id.contains("tcp stream vf-vf inside") => (20, StopReason::SamplesUp),
            id if id.contains("tcp") => (20, StopReason::TightEnough),
            _ => (first, StopReason::TightEnough),
        };
        assert_eq!((main.n, stop), expected, "{}", cell.id);
        assert_eq!(main.interval.unwrap().confidence(), 0.95, "stated with what all looks together have");
    }
    let stopped = world.events.borrow().iter().filter(|e| matches!(e, Event::Stopped { .. })).count();
    assert_eq!(stopped, matrix.cells.len());
    // Taken up again, nothing is left to take.
    let records = world.records.borrow().clone();
    let again = World::new(&script);
    assert!(essence(again.go(&matrix, &options(rules), &[], &records)) == essence(told));
    assert_eq!(again.taken.get(), 0);
}

fn with_budget(budget: f64) -> RunOptions {
    options(Rules { budget: Some(budget), ..Rules::default() })
}

#[test]
fn the_example_has_its_intervals_within_twelve_minutes_and_the_quick_one_within_two() {
    // The recorded output of the probe is of 500 requests a second.
    let full = Options { probe: Some(500), ..Options::full() };
    for (options, budget) in [(full, 720.0), (Options::quick(), 120.0)] {
        let matrix = matrix::network(&model(CONTAINERS), &options);
        let world = World::new(&steady);
        let told = world.go(&matrix, &with_budget(budget), &[], &[]);
        assert_eq!(told.counts(), Counts { measured: matrix.cells.len(), ..Counts::default() });
        assert!(told.seconds <= budget, "{}", told.seconds);
        for cell in &told.cells {
            let main = cell.summary(cell.measurement.main_metric()).unwrap();
            assert!(main.interval.is_some(), "{} has {} samples", cell.id, main.n);
        }
    }
}

#[test]
fn what_the_time_is_not_enough_for_is_left_out_as_whole_blocks() {
    let matrix = matrix::network(&model(CONTAINERS), &Options { probe: Some(500), ..Options::full() });
    for (budget, line) in
        [(300.0, "udp stream vf-vf inside 4KiB >= 0.8 x bridge"), (60.0, "tcp rr pf-pf p99 <= 1s")]
    {
        let world = World::new(&steady);
        let told = world.go(&matrix, &with_budget(budget), &[line], &[]);
        assert!(told.seconds <= budget + GRACE + 1.1, "{}", told.seconds);
        let Counts { measured, missing: faults, not_reached } = told.counts();
        assert!(measured > 0 && not_reached > 0 && faults == 0, "{measured} and {not_reached}");
        for block in matrix.blocks() {
            let there = block.iter().filter(|cell| told.cells[**cell].measured().is_some()).count();
            assert!(there == 0 || there == block.len(), "a block is whole or not there");
            let needed = told.rulings[0]
                .claims
                .iter()
                .any(|claim| block.iter().any(|cell| matrix.cells[*cell].id == claim.cell));
            assert!(!needed || there > 0 || budget < 100.0);
        }
        for cell in told.cells.iter().filter(|cell| cell.measured().is_some()) {
            assert!(cell.summary(cell.measurement.main_metric()).unwrap().interval.is_some(), "{}", cell.id);
        }
        let why = missing(&told, "");
        assert!(
            why.iter().all(|why| why.starts_with("left out for want of time: ")
                && why.ends_with("more with --time-limit"))
        );
    }
}

#[test]
fn a_machine_that_becomes_slower_loses_a_few_blocks_and_not_the_last_round_of_all() {
    let matrix = matrix::network(&model(CONTAINERS), &Options { probe: Some(500), ..Options::full() });
    let late = World { overhead: |now| if now < 150.0 { 0.1 } else { 0.3 }, ..World::new(&steady) };
    let told = late.go(&matrix, &with_budget(720.0), &[], &[]);
    let has_interval = |cell: &&penstock_model::measurement::Cell| {
        cell.summary(cell.measurement.main_metric()).is_some_and(|main| main.interval.is_some())
    };
    let (whole, all) = (told.cells.iter().filter(has_interval).count(), told.cells.len());
    assert!(
        told.seconds <= 720.0 + GRACE && (80..all).contains(&whole),
        "{whole} of {all}, {} s",
        told.seconds
    );
}

#[test]
fn a_time_limit_ends_everything_and_no_limit_is_too_short() {
    let matrix = three();
    for budget in [0.0, 0.5, 1.0, 2.0, 3.3, 5.0, 9.0, 20.0, 29.0, 1000.0] {
        let world = World::new(&steady);
        let told = world.go(&matrix, &with_budget(budget), &[], &[]);
        assert!(told.seconds <= (budget + GRACE).max(1.0) + 1e-9, "{} of {budget}", told.seconds);
        let Counts { measured, missing, not_reached } = told.counts();
        assert_eq!((measured + not_reached, missing), (3, 0));
        assert!(budget < 20.0 || measured == 3);
        assert_eq!(told.holds(), measured > 0, "the limit is no fault, and nothing is no proof");
        for cell in &told.cells {
            match &cell.status {
                Status::Missing { why, cut_short } => {
                    assert!(why.contains("time") && *cut_short == Some(CutShort::TimeUp), "{why}");
                }
                Status::Measured(measured) if budget < 20.0 => assert_eq!(measured.stop, StopReason::TimeUp),
                Status::Measured(_) => {}
            }
        }
    }
}
