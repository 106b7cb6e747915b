//! Guests that fail, each alone.

use std::collections::BTreeSet;

use super::*;

/// A machine of functions with an MTU each: a step sets one from [`BEFORE`] to [`AFTER`].
#[derive(Default)]
struct Functions {
    after: BTreeSet<Bdf>,
    /// These fail, having set it all the same or not.
    fails: BTreeMap<Bdf, bool>,
    /// These cannot be taken back.
    sticks: BTreeSet<Bdf>,
    cancel_at: Option<(Bdf, &'static AtomicBool)>,
    /// Whether independent steps are all attempted, whatever becomes of one.
    side_by_side: bool,
}

const BEFORE: u32 = 1500;
const AFTER: u32 = 9000;

impl<A: ActionGroup + Clone> Execute<A> for Functions {
    fn execute(&mut self, action: &A, _: Duration) -> Result<(), ExecuteError> {
        let action = &action.clone().into();
        let Action::Function(FunctionAction::SetMtu { function, mtu }) = action else {
            panic!("not in these tests: {action}")
        };
        let failed = || ExecuteError::Failed {
            attempt: format!("could not do {action}"),
            source: Box::new(io::Error::other("no luck")),
        };
        if mtu.get() == BEFORE {
            if self.sticks.contains(function) {
                return Err(failed());
            }
            self.after.remove(function);
            return Ok(());
        }
        if let Some((at, flag)) = self.cancel_at {
            flag.fetch_or(at == *function, Ordering::Relaxed);
        }
        match self.fails.get(function) {
            None => self.after.insert(*function),
            Some(true) => {
                self.after.insert(*function);
                return Err(failed());
            }
            Some(false) => return Err(failed()),
        };
        Ok(())
    }

    fn execute_all(&mut self, actions: &[&A], deadline: Duration) -> Vec<Result<(), ExecuteError>> {
        match self.side_by_side {
            true => actions.iter().map(|action| self.execute(*action, deadline)).collect(),
            false => penstock_plan::execute::one_by_one::<A, _>(self, actions, deadline),
        }
    }
}

impl Observe for Functions {
    fn holds(&mut self, fact: &Fact) -> Result<Result<(), String>, ExecuteError> {
        let Fact::MtuIs { function, mtu } = fact else { panic!("not in these tests: {fact}") };
        let seen = if self.after.contains(function) { AFTER } else { BEFORE };
        Ok(if seen == mtu.get() { Ok(()) } else { Err(seen.to_string()) })
    }
}

fn function(step: u32) -> Bdf {
    format!("{:02x}:{:02x}.0", step / 32, step % 32).parse().unwrap()
}

/// Steps of guests (a letter, or nothing) with what each needs.
fn plan_of(steps: &[(&str, &[u32])]) -> Plan {
    let mtu =
        |n, bytes| FunctionAction::SetMtu { function: function(n), mtu: Mtu::new(bytes).unwrap() }.into();
    let steps = (1..)
        .zip(steps)
        .map(|(n, (guest, needs))| Step {
            id: StepId(n),
            postcondition: Fact::after(&mtu(n, AFTER)),
            action: mtu(n, AFTER),
            reason: "a test".to_owned(),
            needs: needs.iter().copied().map(StepId).collect(),
            inverse: Some(mtu(n, BEFORE)),
            best_effort: false,
            guest: guest.parse().ok(),
        })
        .collect();
    Plan { steps, ..Plan::default() }
}

/// The host's step, then three guests in three steps each; the last one of c needs the last one of a.
fn three() -> Plan {
    plan_of(&[
        ("", &[]),
        ("a", &[1]),
        ("b", &[1]),
        ("c", &[1]),
        ("a", &[2]),
        ("b", &[3]),
        ("c", &[4]),
        ("a", &[5]),
        ("b", &[6]),
        ("c", &[7, 8]),
        ("", &[]),
    ])
}

fn steps_of(world: &Functions, plan: &Plan) -> Vec<u32> {
    plan.steps.iter().map(|step| step.id.0).filter(|n| world.after.contains(&function(*n))).collect()
}

fn lose(fails: &[u32]) -> (ApplyError, Vec<u32>, Vec<Entry>) {
    let plan = three();
    let fails = fails.iter().map(|n| (function(*n), true)).collect();
    let mut world = Functions { fails, ..Functions::default() };
    let mut journal = Vec::new();
    let error = run(&plan, &mut Executors::of_host(&mut world), &mut journal, &mut (), &quick()).unwrap_err();
    (error, steps_of(&world, &plan), journal)
}

#[test]
fn a_guest_fails_alone() {
    let (error, so, journal) = lose(&[6]);
    assert_eq!(so, [1, 2, 4, 5, 7, 8, 10, 11]);
    let text = error.to_string();
    assert!(text.starts_with("1 guest failed\n  b, step 6, "), "{text}");
    assert!(text.ends_with("no luck"), "{text}");
    let ApplyError::GuestsFailed { failures, left_out, not_undone, applied } = error else {
        panic!("{error:?}");
    };
    assert_eq!((failures[0].guest.as_str(), failures[0].step, failures.len()), ("b", StepId(6), 1));
    assert_eq!((left_out, not_undone), (vec![], vec![]));
    assert_eq!(applied.steps.len(), 11);
    let ninth = &applied.steps[8];
    assert_eq!((ninth.step, ninth.outcome), (StepId(9), Ending::LeftOut));
    assert_eq!(ninth.detail.as_deref(), Some("needs step 6, which failed"));
    // The journal has the way back, what was left out, and that not all came true.
    let undone: Vec<u32> = journal
        .iter()
        .filter_map(|entry| match entry {
            Entry::Undone { step, error: None, .. } => Some(step.0),
            _ => None,
        })
        .collect();
    assert_eq!(undone, [6, 3]);
    assert!(
        journal.iter().any(
            |entry| matches!(entry, Entry::Outcome { step, outcome: Ending::LeftOut, .. } if step.0 == 9)
        )
    );
    assert_eq!(journal.iter().filter(|entry| matches!(entry, Entry::End { .. })).count(), 1);
    assert_eq!(journal.last(), Some(&Entry::End { applied: false }));
}

#[test]
fn a_guest_that_needs_one_that_failed_is_left_out_as_a_whole() {
    let (error, so, _) = lose(&[8]);
    // c had begun: half a guest helps nobody.
    assert_eq!(so, [1, 3, 6, 9, 11]);
    let ApplyError::GuestsFailed { failures, left_out, applied, .. } = error else { panic!("{error:?}") };
    assert_eq!(failures.len(), 1);
    assert_eq!(left_out, ["c".parse().unwrap()]);
    assert_eq!(applied.steps[9].detail.as_deref(), Some("needs step 8, which failed"));
}

#[test]
fn several_guests_fail_each_for_its_own_reason() {
    for side_by_side in [false, true] {
        let plan = three();
        let fails = [(function(2), false), (function(3), true)].into();
        let mut world = Functions { fails, side_by_side, ..Functions::default() };
        let outcome = run(&plan, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &quick());
        let Err(ApplyError::GuestsFailed { failures, left_out, applied, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        let failed: Vec<_> =
            failures.iter().map(|failure| (failure.guest.as_str(), failure.step.0)).collect();
        assert_eq!(failed, [("a", 2), ("b", 3)]);
        assert_eq!(left_out.len(), 1);
        assert_eq!(steps_of(&world, &plan), [1, 11]);
        let numbers: Vec<u32> = applied.steps.iter().map(|report| report.step.0).collect();
        assert_eq!(numbers, (1..=11).collect::<Vec<_>>(), "each step is told of once, in order");
    }
}

#[test]
fn what_fails_for_all_takes_all_back_also_after_a_guest_failed() {
    for fails in [&[1][..], &[11], &[6, 11], &[8, 3, 11]] {
        let (error, so, journal) = lose(fails);
        assert!(matches!(error, ApplyError::RolledBack { .. }), "{error:?}");
        assert_eq!(so, Vec::<u32>::new());
        assert_eq!(journal.last(), Some(&Entry::End { applied: false }));
    }
}

#[test]
fn cancelling_takes_all_back_also_when_a_guest_failed_for_it() {
    for at in 1..=11 {
        for fails in [None, Some(at), Some(3)] {
            let flag: &'static AtomicBool = Box::leak(Box::default());
            let plan = three();
            let mut world = Functions { cancel_at: Some((function(at), flag)), ..Functions::default() };
            world.fails.extend(fails.map(|n| (function(n), true)));
            let options = Options { cancel: Some(flag), ..quick() };
            let outcome = run(&plan, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &options);
            match outcome {
                // Nothing is left to be cancelled after the last steps, which are carried out together.
                Ok(_) | Err(ApplyError::GuestsFailed { .. }) if at >= 10 && fails != Some(at) => continue,
                // Step 9 is left out, so it never asks.
                Err(ApplyError::GuestsFailed { .. }) if fails == Some(3) && [6, 9].contains(&at) => continue,
                Err(ApplyError::Cancelled { .. }) => (),
                other => panic!("{at} {fails:?}: {other:?}"),
            }
            assert_eq!(steps_of(&world, &plan), Vec::<u32>::new(), "{at} {fails:?}");
        }
    }
}

#[test]
fn what_others_stand_on_is_not_taken_back_with_a_guest_and_that_is_told() {
    // Guest a is stopped so that the host's step can be done; it cannot be started again.
    let plan = plan_of(&[("a", &[]), ("", &[1]), ("b", &[2]), ("a", &[2])]);
    let mut world = Functions { fails: [(function(4), false)].into(), ..Functions::default() };
    let outcome = run(&plan, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &quick());
    let Err(error) = outcome else { panic!() };
    assert!(error.to_string().contains("not taken back: step 1, "), "{error}");
    let ApplyError::GuestsFailed { not_undone, .. } = error else { panic!("{error:?}") };
    assert_eq!(not_undone.len(), 1);
    assert_eq!(not_undone[0].error, "step 2 needs it and stays");
    assert_eq!(steps_of(&world, &plan), [1, 2, 3]);
}

#[test]
fn what_cannot_be_taken_back_of_a_guest_is_told_and_the_others_go_on() {
    let plan = three();
    let mut world = Functions { fails: [(function(9), false)].into(), ..Functions::default() };
    world.sticks.insert(function(6));
    let outcome = run(&plan, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &quick());
    let Err(ApplyError::GuestsFailed { not_undone, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(not_undone.iter().map(|left| left.step.0).collect::<Vec<_>>(), [6]);
    assert_eq!(steps_of(&world, &plan), [1, 2, 4, 5, 6, 7, 8, 10, 11]);
}

#[test]
fn a_tear_down_goes_on_past_guests_too() {
    let plan = three();
    let mut world = Functions { fails: [(function(6), false)].into(), ..Functions::default() };
    let options = Options { mode: Mode::TearDown, ..quick() };
    let outcome = run(&plan, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &options);
    let Err(ApplyError::Incomplete { failures, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failures.len(), 1);
    assert_eq!(steps_of(&world, &plan).len(), 10);
}

/// Whatever the plan and whatever fails: a step of a guest that is not concerned is done, and nothing is left of those
/// that are but what others stand on.
#[test]
fn of_many_plans_with_many_failures_the_rest_is_done_and_nothing_else() {
    let mut state: u64 = 7;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut whole, mut lost_some) = (0, 0);
    for round in 0..2000 {
        let count = 2 + draw(14) as u32;
        let names = ["", "a", "b", "c", "d"];
        let drawn: Vec<(&str, Vec<u32>)> = (1..=count)
            .map(|n| {
                let guest = names[draw(5) as usize];
                let needs = (1..n).filter(|_| draw(5) == 0).collect();
                (guest, needs)
            })
            .collect();
        let borrowed: Vec<(&str, &[u32])> = drawn.iter().map(|(guest, needs)| (*guest, &needs[..])).collect();
        let plan = plan_of(&borrowed);
        let of = |n: u32| drawn[n as usize - 1].0;
        let fails: BTreeMap<u32, bool> = (1..=count)
            .filter(|n| !of(*n).is_empty())
            .map(|n| (n, draw(6)))
            .filter(|(_, drawn)| *drawn < 2)
            .map(|(n, drawn)| (n, drawn == 0))
            .collect();
        let fails_by = fails.iter().map(|(n, half)| (function(*n), *half)).collect();
        let mut world = Functions { fails: fails_by, side_by_side: round % 2 == 0, ..Functions::default() };
        let outcome = run(&plan, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &quick());
        let applied = match &outcome {
            Ok(applied) => applied,
            Err(ApplyError::GuestsFailed { applied, .. }) => applied,
            Err(error) => panic!("{error}"),
        };
        let ended = |n: u32| applied.steps[n as usize - 1].outcome;
        assert_eq!(applied.steps.len(), count as usize);

        let so = steps_of(&world, &plan);
        let failed: BTreeSet<&str> = (1..=count).filter(|n| ended(*n) == Ending::Failed).map(of).collect();
        let left: BTreeSet<&str> = (1..=count).filter(|n| ended(*n) == Ending::LeftOut).map(of).collect();
        let lost: BTreeSet<&str> = failed.union(&left).copied().filter(|guest| !guest.is_empty()).collect();
        for n in 1..=count {
            let (guest, needs) = &drawn[n as usize - 1];
            let concerned = lost.contains(guest)
                || needs.iter().any(|m| ended(*m) != Ending::Done || lost.contains(of(*m)));
            let stood_on = so.iter().any(|m| drawn[*m as usize - 1].1.contains(&n));
            if !concerned {
                assert!(so.contains(&n) && ended(n) == Ending::Done, "{round}: {n} of {drawn:?}, {fails:?}");
                whole += 1;
            } else if lost.contains(guest) {
                assert_eq!(so.contains(&n), stood_on, "{round}: {n} of {drawn:?}, {fails:?}");
                lost_some += 1;
            }
            // Nothing stands on what is not there.
            assert!(!so.contains(&n) || needs.iter().all(|m| so.contains(m)), "{round}: {n} of {drawn:?}");
        }
        assert_eq!(outcome.is_ok(), failed.is_empty());
    }
    assert!(whole > 1000 && lost_some > 1000, "{whole} {lost_some}");
}
