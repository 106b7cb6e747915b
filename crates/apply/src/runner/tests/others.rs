//! VFs that somebody else makes meanwhile.

use super::*;
use crate::history::{Fate, Phase, RunState};

#[test]
fn vfs_that_somebody_else_made_since_the_plan_stay() {
    for (theirs, trouble) in [("8", None), ("2", None), ("8", Some(Trouble::Overtaken))] {
        let mut world = before();
        world.trouble.extend(trouble.map(|trouble| (1, trouble)));
        if trouble.is_none() {
            world.state.insert("vfs 0000:04:00.0".to_owned(), theirs.to_owned());
        }
        let (outcome, journal) = go(&mut world, &quick());
        let Err(ApplyError::RolledBack { step, not_undone, undone, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((step, not_undone, undone), (StepId(2), vec![], vec![StepId(1)]));
        assert_eq!(world.state["vfs 0000:04:00.0"], theirs);
        assert_eq!(world.state["autoprobe 0000:04:00.0"], "true");
        // A later undo has nothing to remove either.
        assert_eq!(RunState::read(&journal, false).phase, Phase::Nothing);
    }
}

#[test]
fn vfs_that_somebody_else_made_in_place_of_ours_are_left_and_told_of() {
    let mut world = before();
    world.trouble.extend([(3, Trouble::Replaced), (5, Trouble::Fails)]);
    let (outcome, journal) = go(&mut world, &quick());
    let Err(ApplyError::RolledBack { step, not_undone, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    let left: Vec<StepId> = not_undone.iter().map(|left| left.step).collect();
    assert_eq!((step, left), (StepId(6), vec![StepId(2)]));
    assert!(not_undone[0].error.contains("changed by something else since"), "{}", not_undone[0]);
    assert!(!not_undone[0].is_left(), "nothing of this run");
    assert_eq!(world.state["vfs 0000:04:00.0"], "8");
    assert_eq!(world.state["mtu 0000:04:00.0"], "1500", "the rest is taken back");
    assert_eq!(world.state["mac 0000:04:00.0 0"], after()["mac 0000:04:00.0 0"], "the VF is theirs by now");
    let state = RunState::read(&journal, false);
    assert_eq!((state.left, state.phase), (0, Phase::Nothing));
    assert!(state.steps.contains(&(StepId(2), Fate::Anothers("it has 8 VFs".to_owned()))), "{state:?}");
}

/// A number of VFs for each of two PFs, which are made together.
fn two_pfs() -> Plan {
    let count = |pf: &str, count| FunctionAction::SetVfCount { pf: bdf(pf), count }.into();
    let steps = [("04:00.0", 1), ("05:00.0", 2)].map(|(pf, id)| Step {
        id: StepId(id),
        needs: Vec::new(),
        postcondition: Fact::VfCount { pf: bdf(pf), count: 2 },
        action: count(pf, 2),
        inverse: Some(count(pf, 0)),
        reason: "a test".to_owned(),
        best_effort: false,
        guest: None,
    });
    Plan { steps: steps.into(), ..Plan::default() }
}

#[test]
fn vfs_of_a_step_that_nobody_has_proven_are_taken_back_however_many_there_are() {
    for (first, second) in [(Trouble::Lies, Some(Trouble::Fewer)), (Trouble::RefusedHalfWay, None)] {
        let state = two_pfs().steps.iter().filter_map(|step| step.inverse.as_ref().map(set)).collect();
        let mut world = World { state, ..World::default() };
        world.trouble.insert(0, first);
        world.trouble.extend(second.map(|second| (1, second)));
        let (before, mut journal) = (world.state.clone(), Vec::new());
        let outcome = run(&two_pfs(), &mut Executors::of_host(&mut world), &mut journal, &mut (), &quick());
        let Err(ApplyError::RolledBack { step, not_undone, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((step, not_undone), (StepId(1), vec![]));
        assert_eq!(world.state, before);
        let told = |entry: &Entry| matches!(entry, Entry::Outcome { step: StepId(2), outcome, .. } if *outcome != Ending::LeftOut);
        assert!(!journal.iter().any(told), "nobody knows what came of it");
        let state = RunState::read(&journal, false);
        assert_eq!(state.phase, Phase::Nothing, "what was not attempted, too: {state:?}");
    }
}

#[test]
fn on_the_way_back_vfs_that_cannot_be_removed_keep_no_interface_of_the_host() {
    let pf = bdf("04:00.0");
    let link = |direction| FunctionAction::SetLink { function: pf, direction }.into();
    let mtu = |bytes| FunctionAction::SetMtu { function: pf, mtu: Mtu::new(bytes).unwrap() }.into();
    let count = |count| FunctionAction::SetVfCount { pf, count }.into();
    let autoprobe = |on| FunctionAction::SetAutoprobe { pf, on }.into();
    let mut there = plan();
    there.steps.truncate(4);
    let steps: [(Action, Action, &[u32]); 4] = [
        (autoprobe(false), autoprobe(true), &[]),
        (link(Direction::Down), link(Direction::Up), &[]),
        (mtu(9000), mtu(1500), &[1, 2]),
        (count(2), count(0), &[3]),
    ];
    for (step, (action, inverse, needs)) in there.steps.iter_mut().zip(steps) {
        step.needs = needs.iter().copied().map(StepId).collect();
        (step.postcondition, step.action, step.inverse) = (Fact::after(&action), action, Some(inverse));
    }
    let mut world =
        World { state: there.steps.iter().map(|step| set(&step.action)).collect(), ..World::default() };
    world.trouble.insert(0, Trouble::Fails);
    let undo = Options { mode: Mode::Undo, ..quick() };
    let way = penstock_plan::undo(&there);
    let outcome = run(&way, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &undo);
    assert!(matches!(outcome, Err(ApplyError::Incomplete { .. })), "{outcome:?}");
    assert_eq!((&*world.state["vfs 0000:04:00.0"], &*world.state["autoprobe 0000:04:00.0"]), ("2", "false"));
    assert_eq!((&*world.state["link 0000:04:00.0"], &*world.state["mtu 0000:04:00.0"]), ("Up", "1500"));
}

#[test]
fn vfs_that_somebody_makes_while_a_run_is_taken_back_stay() {
    let mut there = plan();
    there.steps.truncate(3);
    let mut world =
        World { state: there.steps.iter().map(|step| set(&step.action)).collect(), ..World::default() };
    world.trouble.insert(0, Trouble::Replaced);
    let undo = Options { mode: Mode::Undo, ..quick() };
    let way = penstock_plan::undo(&there);
    let outcome = run(&way, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &undo);
    let Err(ApplyError::Incomplete { failures, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(
        matches!(failures[..], [Failure { step: StepId(2), error: StepError::Lost { .. }, .. }]),
        "{failures:?}"
    );
    assert_eq!(world.state["vfs 0000:04:00.0"], "8");
}

#[test]
fn a_file_that_somebody_edits_meanwhile_keeps_the_edit() {
    // Before it is written, right after it was, and while an earlier run is taken back.
    for (mode, edited_at) in [(Mode::Apply, 3), (Mode::Apply, 4), (Mode::Undo, 0)] {
        let mut there = plan();
        let write =
            |text: &str| Action::from(FileAction::WriteFile { path: FILE.to_owned(), text: text.to_owned() });
        let step = &mut there.steps[4];
        (step.action, step.inverse) = (write("ours"), Some(write("before")));
        step.postcondition = Fact::after(&step.action);
        let (there, state) = match mode {
            Mode::Undo => {
                (penstock_plan::undo(&there), there.steps.iter().map(|step| set(&step.action)).collect())
            }
            _ => {
                let state = there.steps.iter().filter_map(|step| step.inverse.as_ref().map(set)).collect();
                (there, state)
            }
        };
        let mut world = World { state, ..World::default() };
        world.trouble.insert(edited_at, Trouble::Edited);
        let options = Options { mode, ..quick() };
        let mut journal = Vec::new();
        let outcome = run(&there, &mut Executors::of_host(&mut world), &mut journal, &mut (), &options);
        assert!(outcome.is_err(), "{edited_at}");
        assert_eq!(world.state[&format!("file {FILE}")], "edited", "{edited_at}");
        if mode == Mode::Apply {
            assert_eq!(world.state["vfs 0000:04:00.0"], "0", "the rest is taken back");
            assert_eq!(RunState::read(&journal, false).phase, Phase::Nothing, "{edited_at}");
        }
    }
}

#[test]
fn a_step_whose_vfs_somebody_has_changed_is_not_begun_nor_what_goes_with_it() {
    let state = [("vfs 0000:04:00.0", "2"), ("vfs 0000:05:00.0", "0")];
    let state = state.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut world = World { state: state.into(), ..World::default() };
    let mut journal = Vec::new();
    let outcome = run(&two_pfs(), &mut Executors::of_host(&mut world), &mut journal, &mut (), &quick());
    assert!(matches!(outcome, Err(ApplyError::RolledBack { step: StepId(1), .. })), "{outcome:?}");
    assert!(!journal.iter().any(|entry| matches!(entry, Entry::Begun { .. })), "{journal:?}");
    assert_eq!((RunState::read(&journal, false).phase, world.carried), (Phase::Nothing, 0));
}

#[test]
fn what_cannot_be_done_here_may_have_left_something_that_a_later_undo_looks_at() {
    let mut world = before();
    world.trouble.insert(1, Trouble::Unsupported);
    let (outcome, journal) = go(&mut world, &quick());
    assert!(matches!(outcome, Err(ApplyError::RolledBack { step: StepId(2), .. })), "{outcome:?}");
    let state = RunState::read(&journal, false);
    assert!(state.steps.contains(&(StepId(2), Fate::Doubtful)), "{state:?}");
}

#[test]
fn what_a_run_takes_back_is_led_back_whoever_has_it() {
    let mut world = before();
    world.trouble.insert(5, Trouble::Fails);
    let (outcome, _) = go(&mut world, &quick());
    assert!(matches!(outcome, Err(ApplyError::RolledBack { .. })), "{outcome:?}");
    assert_eq!((world.carried, world.led_back), (12, 6));
}

#[test]
fn a_driver_of_the_host_comes_back_though_an_attribute_of_its_vf_does_not() {
    let function = bdf("04:10.0");
    let bound = |driver: Option<&str>| {
        FunctionAction::SetDriver { function, driver: driver.map(str::to_owned), mac: None }.into()
    };
    let mut there = plan();
    there.steps.truncate(3);
    let autoprobe = |on| FunctionAction::SetAutoprobe { pf: bdf("04:00.0"), on }.into();
    let steps: [(Action, Action, &[u32]); 3] = [
        (autoprobe(false), autoprobe(true), &[]),
        (bound(None), bound(Some("igbvf")), &[1]),
        (mac(0, "02:00:00:00:00:01"), mac(0, "00:00:00:00:00:00"), &[2]),
    ];
    for (step, (action, inverse, needs)) in there.steps.iter_mut().zip(steps) {
        step.needs = needs.iter().copied().map(StepId).collect();
        (step.postcondition, step.action, step.inverse) = (Fact::after(&action), action, Some(inverse));
    }
    let state = there.steps.iter().map(|step| set(&step.action)).collect();
    let mut world = World { state, trouble: [(0, Trouble::Fails)].into(), ..World::default() };
    let undo = Options { mode: Mode::Undo, ..quick() };
    let way = penstock_plan::undo(&there);
    let outcome = run(&way, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &undo);
    assert!(matches!(outcome, Err(ApplyError::Incomplete { .. })), "{outcome:?}");
    assert!(world.state["driver 0000:04:10.0"].contains("igbvf"), "{:?}", world.state);
    assert_eq!(world.state["autoprobe 0000:04:00.0"], "false", "the attribute stands on it all the same");
}

#[test]
fn a_manager_of_interfaces_gets_back_what_nothing_holds() {
    let (pf, vf, other) = (bdf("04:00.0"), bdf("04:10.0"), bdf("04:10.2"));
    let manager = penstock_model::inventory::Manager::NetworkManager;
    let told = |functions: &[Bdf]| {
        FunctionAction::LeaveAlone { manager, pf, functions: functions.iter().copied().collect() }.into()
    };
    let driver = |function| FunctionAction::SetDriver { function, driver: None, mac: None }.into();
    let (done, back): (Action, Action) = (told(&[vf]), told(&[]));
    for (by, held) in [
        (mac(0, "02:00:00:00:00:01"), false),
        (driver(vf), true),
        (driver(other), false),
        (FunctionAction::SetVfCount { pf, count: 0 }.into(), true),
        (FunctionAction::SetVfCount { pf: bdf("05:00.0"), count: 0 }.into(), false),
        (FileAction::RemoveFile { path: FILE.to_owned() }.into(), false),
    ] {
        assert_eq!(crate::others::holds(&by, &back, Some(&done)), held, "{by}");
    }
}

#[test]
fn a_file_that_somebody_has_removed_is_told_to_be_gone() {
    let mut there = plan();
    let write =
        |text: &str| Action::from(FileAction::WriteFile { path: FILE.to_owned(), text: text.to_owned() });
    let step = &mut there.steps[0];
    (step.action, step.inverse) = (write("ours"), Some(write("before")));
    step.postcondition = Fact::after(&step.action);
    let outcome = run(&there, &mut Executors::of_host(&mut before()), &mut Vec::new(), &mut (), &quick());
    let Err(ApplyError::RolledBack { source, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(source.to_string().contains("it is gone"), "{source}");
}
