//! The mode of an embedded switch that does not come, or does not come back.

use std::collections::BTreeSet;

use penstock_model::inventory::EswitchMode::{self, Legacy, Switchdev};

use super::*;
use crate::history::RunState;

/// From one VF in legacy mode to four in switchdev mode.
fn to_switchdev(best_effort: bool) -> Plan {
    let pf = bdf("04:00.0");
    let mode = |mode: EswitchMode| FunctionAction::SetEswitchMode { pf, mode }.into();
    let count = |count| FunctionAction::SetVfCount { pf, count }.into();
    let steps: [(Action, Action, &[u32]); 3] =
        [(count(0), count(1), &[]), (mode(Switchdev), mode(Legacy), &[1]), (count(4), count(0), &[2])];
    let steps = (1..)
        .zip(steps)
        .map(|(n, (action, inverse, needs))| {
            let best_effort = best_effort && n == 2;
            Step { best_effort, ..step(n, action, inverse, needs) }
        })
        .collect();
    Plan { steps, ..Plan::default() }
}

fn world(mode: EswitchMode, vfs: &str, trouble: &[(usize, Trouble)]) -> World {
    let keys = [("eswitch 0000:04:00.0", mode.to_string()), ("vfs 0000:04:00.0", vfs.to_owned())];
    World {
        state: keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        trouble: trouble.iter().copied().collect(),
        ..World::default()
    }
}

fn carry(plan: &Plan, world: &mut World, mode: Mode) -> (Result<Applied, ApplyError>, Vec<Entry>) {
    let mut journal = Vec::new();
    let options = Options { mode, ..quick() };
    let outcome = run(plan, &mut Executors::of_host(world), &mut journal, &mut (), &options);
    (outcome, journal)
}

#[test]
fn a_mode_that_the_model_requires_and_the_driver_has_not_is_no_apply() {
    let mut machine = world(Legacy, "1", &[(1, Trouble::Unsupported)]);
    let (outcome, _) = carry(&to_switchdev(false), &mut machine, Mode::Apply);
    let Err(ApplyError::RolledBack { step, not_undone, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((step, not_undone), (StepId(2), vec![]));
    assert_eq!(machine.state, world(Legacy, "1", &[]).state);
}

#[test]
fn a_mode_of_best_effort_is_done_without() {
    let mut machine = world(Legacy, "1", &[(1, Trouble::Unsupported)]);
    let (outcome, _) = carry(&to_switchdev(true), &mut machine, Mode::Apply);
    let endings: Vec<Ending> = outcome.unwrap().steps.iter().map(|step| step.outcome).collect();
    assert_eq!(endings, [Ending::Done, Ending::Unsupported, Ending::Done]);
    assert_eq!(machine.state, world(Legacy, "4", &[]).state);
}

#[test]
fn a_mode_that_does_not_come_back_is_a_failure_of_an_undo_whatever_it_was_to_the_apply() {
    for best_effort in [false, true] {
        let mut machine = world(Switchdev, "4", &[(1, Trouble::Unsupported)]);
        let back = penstock_plan::undo(&to_switchdev(best_effort));
        let (outcome, _) = carry(&back, &mut machine, Mode::Undo);
        let Err(ApplyError::Incomplete { failures, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert_eq!(machine.state, world(Switchdev, "0", &[]).state, "no VF is made in the wrong mode");
    }
}

#[test]
fn while_a_mode_has_not_come_back_no_vfs_are_made_and_an_undo_makes_them_later() {
    // The set has not answered in time, and neither has the way back.
    let trouble = [(1, Trouble::FailsHalfWay), (2, Trouble::Fails)];
    let mut machine = world(Legacy, "1", &trouble);
    let plan = to_switchdev(false);
    let (outcome, journal) = carry(&plan, &mut machine, Mode::Apply);
    let Err(ApplyError::RolledBack { step, not_undone, .. }) = outcome else { panic!("{outcome:?}") };
    let left: Vec<StepId> = not_undone.iter().map(|left| left.step).collect();
    assert_eq!((step, left), (StepId(2), vec![StepId(2), StepId(1)]));
    assert!(
        not_undone[1].is_left() && not_undone[1].error.contains("not tried: step 2"),
        "{}",
        not_undone[1]
    );
    assert_eq!(machine.carried, 3, "the number of VFs is not touched");
    assert_eq!(machine.state, world(Switchdev, "0", &[]).state);
    assert_eq!(RunState::read(&journal, false).left, 2);

    // The driver is through with it.
    let mut begun = plan;
    begun.steps.truncate(2);
    let (outcome, _) = carry(&penstock_plan::undo(&begun), &mut machine, Mode::Undo);
    outcome.unwrap();
    assert_eq!(machine.state, world(Legacy, "1", &[]).state);
}

/// As [`to_switchdev`], where the host uses the VF that goes: its interface is taken down first.
fn with_a_vf_of_the_host() -> Plan {
    let function = bdf("04:10.0");
    let link = |direction| FunctionAction::SetLink { function, direction };
    let later = to_switchdev(false).steps.into_iter().map(|step| {
        let needs = [step.needs.iter().map(|need| StepId(need.0 + 1)).collect(), vec![StepId(1)]].concat();
        Step { id: StepId(step.id.0 + 1), needs, ..step }
    });
    let first: Step = step(1, link(Direction::Down), link(Direction::Up), &[]);
    Plan { steps: [first].into_iter().chain(later).collect(), ..Plan::default() }
}

/// The machine, and how the interface of the VF is while that is there.
fn world_of_the_host(mode: EswitchMode, vfs: &str, link: &str, trouble: &[(usize, Trouble)]) -> World {
    let mut world = world(mode, vfs, trouble);
    world.state.insert("link 0000:04:10.0".to_owned(), link.to_owned());
    world.vfs.insert(bdf("04:10.0"), (bdf("04:00.0"), 0));
    world
}

#[test]
fn what_a_failed_run_does_not_bring_back_of_a_vf_that_is_not_made_again_is_left_to_an_undo() {
    // The mode does not come back; or it was never changed, and the VF cannot be made.
    for trouble in
        [[(2, Trouble::FailsHalfWay), (3, Trouble::Fails)], [(2, Trouble::Fails), (4, Trouble::Fails)]]
    {
        let mut machine = world_of_the_host(Legacy, "1", "Up", &trouble);
        let mut plan = with_a_vf_of_the_host();
        let (outcome, journal) = carry(&plan, &mut machine, Mode::Apply);
        let Err(ApplyError::RolledBack { not_undone, .. }) = outcome else { panic!("{outcome:?}") };
        let left = not_undone.iter().find(|left| left.step == StepId(1)).expect("the link of the VF");
        assert!(
            left.is_left() && left.error.contains("0000:04:10.0 is not there while step 2, "),
            "{}",
            left.error
        );
        assert_eq!(machine.state["vfs 0000:04:00.0"], "0");

        // A later undo has it to bring back.
        let state = RunState::read(&journal, false);
        let standing: BTreeSet<StepId> = state.standing().map(|(step, _)| step).collect();
        plan.steps.retain(|step| standing.contains(&step.id));
        let (outcome, _) = carry(&penstock_plan::undo(&plan), &mut machine, Mode::Undo);
        outcome.unwrap();
        assert_eq!(machine.state, world_of_the_host(Legacy, "1", "Up", &[]).state);
    }
}

#[test]
fn an_undo_leaves_out_what_comes_back_of_a_vf_that_it_does_not_make_again() {
    // First the mode, then the number of VFs.
    for fails in [1, 2] {
        let mut machine = world_of_the_host(Switchdev, "4", "Down", &[(fails, Trouble::Fails)]);
        let back = penstock_plan::undo(&with_a_vf_of_the_host());
        let (outcome, _) = carry(&back, &mut machine, Mode::Undo);
        let Err(ApplyError::Incomplete { failures, applied }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failures.len(), 1, "{failures:?}");
        let link = applied.steps.last().unwrap();
        assert_eq!(link.outcome, Ending::LeftOut, "{link:?}");
        let why = link.detail.as_deref().unwrap();
        assert!(why.starts_with("0000:04:10.0 is not there while step 3, "), "{why}");
        let (outcome, _) = carry(&back, &mut machine, Mode::Undo);
        outcome.unwrap();
        assert_eq!(machine.state, world_of_the_host(Legacy, "1", "Up", &[]).state);
    }
}

#[test]
fn what_is_set_of_a_vf_that_has_left_with_its_nic_is_gone_also_when_its_mode_did_not_come_back() {
    let mut machine = world_of_the_host(Switchdev, "4", "Down", &[(1, Trouble::Unplugged)]);
    let (outcome, _) = carry(&penstock_plan::undo(&with_a_vf_of_the_host()), &mut machine, Mode::Undo);
    assert!(outcome.unwrap().steps.iter().all(|step| step.outcome == Ending::Done));
}
