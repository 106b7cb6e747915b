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
    assert!(not_undone[0].error.contains("somebody has changed that since"), "{}", not_undone[0]);
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
        let told = |entry: &Entry| matches!(entry, Entry::Outcome { step: StepId(2), .. });
        assert!(!journal.iter().any(told), "nobody knows what came of it");
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
        (mtu(9000), mtu(1500), &[2]),
        (count(2), count(0), &[1, 3]),
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
