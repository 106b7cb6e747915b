//! What a way back leaves for when an interface, or the VFs that it is one of, come back.

use super::*;

/// A guard that waits for an interface plans the whole way back at each attempt.
#[test]
fn of_a_way_back_only_what_comes_back_is_left() {
    let function = "0000:04:10.0".parse().unwrap();
    let setup = penstock_plan::InterfaceSetup { up: true, ..Default::default() };
    let restore = FunctionAction::RestoreInterface { function, setup };
    let count = FunctionAction::SetVfCount { pf: pf(0), count: 0 };
    let plan = Plan {
        steps: vec![step(1, count.clone(), count, &[]), step(2, restore.clone(), restore.clone(), &[1])],
        ..Plan::default()
    };
    let origins = vec![(RunId(1), StepId(7)), (RunId(1), StepId(3))];
    let mut way = UndoPlan { plan, origins, kept: Vec::new(), anothers: Vec::new(), edited: Vec::new() };
    way.leave_all_but_what_comes_back(|_| false);
    assert_eq!(way.plan.steps, [step(2, restore.clone(), restore.clone(), &[])]);
    assert_eq!(way.origins, [(RunId(1), StepId(3))]);

    // Nobody makes the VF then: it is not called gone.
    let count = |count| FunctionAction::SetVfCount { pf: pf(0), count };
    let link = FunctionAction::SetLink { function, direction: Direction::Down };
    let steps = vec![
        step(1, count(1), count(0), &[]),
        step(2, link.clone(), link, &[1]),
        step(3, restore.clone(), restore, &[2]),
    ];
    for is_there in [true, false] {
        let plan = Plan { steps: steps.clone(), ..Plan::default() };
        let origins = (1..=3).map(|n| (RunId(1), StepId(n))).collect();
        let mut way = UndoPlan { plan, origins, ..UndoPlan::default() };
        way.leave_all_but_what_comes_back(|_| is_there);
        assert_eq!(way.plan.steps.len(), usize::from(is_there));
        // Somebody has to be told of it, since no later attempt is.
        let kept: Vec<(StepId, &str, bool)> =
            way.kept.iter().map(|kept| (kept.step, kept.why.as_str(), kept.for_now)).collect();
        let why = format!(
            "{function} is not there, and \"{}\", without which it is not made, stays",
            FunctionAction::SetVfCount { pf: pf(0), count: 0 }
        );
        let left_out = [(StepId(3), why.as_str(), false)];
        assert_eq!(kept, if is_there { &[][..] } else { &left_out[..] });
    }
}

/// A guest of no run has one of the 4 VFs of now; of the 8 that were there before the host used the last.
#[test]
fn what_comes_back_of_a_vf_stays_with_the_number_of_vfs_that_it_comes_with() {
    let setup = penstock_plan::InterfaceSetup { up: true, ..Default::default() };
    let vfs = |count| FunctionAction::SetVfCount { pf: pf(0), count };
    let link = |direction| FunctionAction::SetLink { function: vf(0, 7), direction };
    let restore = FunctionAction::RestoreInterface { function: vf(0, 7), setup };
    let plan = Plan {
        steps: vec![
            step(1, restore.clone(), restore, &[]),
            step(2, link(Direction::Down), link(Direction::Up), &[1]),
            step(3, vfs(0), vfs(8), &[2]),
            step(4, vfs(4), vfs(0), &[3]),
        ],
        ..Plan::default()
    };
    let way = way_back_while_a_stranger_has_a_vf(&plan, (format!("vfs {}", pf(0)), "4".to_owned()));
    assert_eq!(way.origins, [], "{:?}", way.kept);
    assert_eq!(
        way.kept.iter().map(|kept| (kept.step, kept.for_now)).collect::<Vec<_>>(),
        [(StepId(1), false), (StepId(2), false), (StepId(3), false), (StepId(4), false)]
    );
    assert!(way.kept[0].why.contains("is not there, and"), "{}", way.kept[0].why);

    // Nobody makes VFs of a PF that has gone: nothing waits for them, and each step tells itself what it finds.
    let way = way_back_while_a_stranger_has_a_vf(&plan, (format!("gone {}", pf(0)), String::new()));
    assert_eq!(way.origins, [(RunId(1), StepId(2)), (RunId(1), StepId(1))], "{:?}", way.kept);
}
