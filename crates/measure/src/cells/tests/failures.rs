//! What fails, and what becomes of the rest.

use super::*;

#[test]
fn a_path_that_is_down_is_given_up_and_the_rest_goes_on() {
    let matrix = pair(&Options { null: Null::None, ..Options::full() });
    let script = |ask: &Ask<'_>| {
        if ask.cell.id.contains("guest-host") { Err("no route to host".to_owned()) } else { steady(ask) }
    };
    let script = World::new(&script);
    let told = script.go(&matrix, &exactly(6), &["tcp guest-host >= 0.5 x vf-vf inside"], &[]);
    let down = matrix.cells.iter().filter(|cell| cell.id.contains("guest-host")).count();
    let why = missing(&told, "guest-host");
    assert_eq!(why.len(), down);
    assert!(why.iter().all(|why| why.contains("no route to host")), "{why:?}");
    let lost = script.records.borrow().iter().filter(|record| record.cell.contains("guest-host")).count();
    assert!((6..20).contains(&lost), "{lost} samples were lost on it, of {down} cells");
    assert!(script.notes().iter().any(|note| note.contains("guest-host") && note.contains("is given up")));
    assert_eq!(missing(&told, "netperf udp stream vf-vf inside"), [""; 0]);
    assert_eq!(told.rulings[0].told, penstock_model::measurement::Conclusion::CannotBeTold);
}

#[test]
fn one_protocol_that_fails_does_not_take_the_others_with_it() {
    let matrix = pair(&Options { null: Null::None, iperf3: false, probe: None, ..Options::full() });
    // Everything that UDP sends is lost: the tool runs, and tells that nothing arrived.
    let script = |ask: &Ask<'_>| if ask.cell.id.contains("udp stream") { Ok(0.0) } else { steady(ask) };
    let world = World::new(&script);
    let told = world.go(&matrix, &exactly(6), &[], &[]);
    let why = missing(&told, "");
    assert_eq!(why.len(), 3 * 8);
    assert!(why.iter().all(|why| why.contains("nothing arrived")), "{why:?}");
    assert!(told.cells.iter().all(|cell| cell.measured().is_some() != cell.id.contains("udp stream")));
}

#[test]
fn a_guest_that_stops_in_the_middle_leaves_what_it_told() {
    let matrix = pair(&Options::quick());
    let uses_b = |cell: &Planned| cell.id.contains(">b");
    let script = |ask: &Ask<'_>| {
        if ask.now > 60.0 && uses_b(ask.cell) { Err("b is gone".to_owned()) } else { steady(ask) }
    };
    let world = World::new(&script);
    let told = world.go(&matrix, &exactly(8), &[], &[]);
    for (cell, planned) in told.cells.iter().zip(&matrix.cells) {
        let measured = cell.measured().unwrap_or_else(|| panic!("{} was measured for a while", cell.id));
        let failed =
            measured.samples.iter().filter(|sample| matches!(sample.taken, SampleResult::Missing(_))).count();
        let good = measured.values(planned.measurement.main_metric()).count();
        if uses_b(planned) {
            assert!(measured.stop == StopReason::GivenUp && failed <= 2 && good < 8, "{}", cell.id);
        } else {
            assert!(measured.stop == StopReason::TightEnough && failed == 0 && good == 8, "{}", cell.id);
        }
    }
    // It is started again, and the run goes on: all of it is there in the end.
    let records = world.records.borrow().clone();
    let mended = World::new(&steady);
    let told = mended.go(&matrix, &exactly(8), &[], &records);
    for (cell, planned) in told.cells.iter().zip(&matrix.cells) {
        assert_eq!(cell.summary(planned.measurement.main_metric()).unwrap().n, 8, "{}", cell.id);
    }
}

#[test]
fn everything_lost_is_all_missing() {
    let matrix = pair(&Options::quick());
    let world = World::new(&|_| Err("nothing works".to_owned()));
    let told = world.go(&matrix, &exactly(6), &["pf-pf >= 1Gbit/s"], &[]);
    assert_eq!(told.counts(), Counts { missing: matrix.cells.len(), ..Counts::default() });
    assert!(missing(&told, "").iter().all(|why| why.contains("nothing works")));
    assert!(told.comparisons.iter().all(|compared| compared.ratio.is_none() && compared.why.is_some()));
    assert!(world.taken.get() < 2 * matrix.cells.len() as u32 + 9);
}

#[test]
fn cells_that_could_not_be_prepared_are_never_sampled() {
    let matrix = pair(&Options::quick());
    let none = "no netperf in b".to_owned();
    let of_b = matrix.cells.iter().filter(|cell| cell.id.contains(">b"));
    let mut missing_cells: BTreeMap<String, String> =
        of_b.map(|cell| (cell.id.clone(), none.clone())).collect();
    let expected = missing_cells.len();
    missing_cells.insert("another".to_owned(), none);
    let world = World { missing: missing_cells, ..World::new(&steady) };
    let told = world.go(&matrix, &exactly(6), &[], &[]);
    assert_eq!(missing(&told, ">b"), vec!["no netperf in b"; expected]);
    assert_eq!(missing(&told, "").len(), expected);
    assert!(world.records.borrow().iter().all(|record| !record.cell.contains(">b")));
    let events = world.events.borrow();
    let Some(Event::Prepared { cells, missing, .. }) = events.first() else { panic!("{events:?}") };
    assert_eq!((*cells, *missing), (matrix.cells.len() - expected, expected));
}

#[test]
fn a_full_disk_is_noted_once_and_the_run_goes_on() {
    let matrix = three();
    for full_from in 0..20 {
        let world = World { full_from: Some(full_from), ..World::new(&steady) };
        let told = world.go(&matrix, &exactly(6), &[], &[]);
        assert_eq!(world.records.borrow().len(), full_from);
        assert_eq!(told.counts(), Counts { measured: 3, ..Counts::default() });
        let notes = told.notes.iter().filter(|note| note.contains("No space left on device")).count();
        assert_eq!(notes, 1, "{:?}", told.notes);
    }
}

#[test]
fn records_of_other_cells_are_noted_and_passed_over() {
    let (matrix, world) = (three(), World::new(&steady));
    world.go(&matrix, &exactly(2), &[], &[]);
    let mut records = world.records.borrow().clone();
    records.iter_mut().filter(|r| r.cell.contains("bridge")).for_each(|r| r.cell = "another".to_owned());
    let resumed = World::new(&steady);
    let told = resumed.go(&matrix, &exactly(6), &[], &records);
    assert!(told.notes.iter().any(|note| note.contains("\"another\"") && note.contains("passed over")));
    assert_eq!(told.counts(), Counts { measured: 3, ..Counts::default() });
    assert_eq!(told.cells.len(), 3);
}
