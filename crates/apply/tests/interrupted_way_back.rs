//! A way back that was begun goes to its end, whatever interrupts it.
//!
//! One test, since an interrupt is a whole process's, and one that is ignored is so for ever.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

use nix::sys::signal::{Signal, raise};
use penstock_apply::{Applied, ApplyError, Options, run};
use penstock_host::{interrupt, process::Command};
use penstock_model::{Bdf, Mtu};
use penstock_plan::{
    Action, ActionGroup, Execute, ExecuteError, Executors, Fact, FunctionAction, Observe, Plan, Step, StepId,
};

const BEFORE: u32 = 1500;
const AFTER: u32 = 9000;

/// Functions with an MTU each. To set one back takes a command that is slow.
struct Functions {
    mtus: BTreeMap<Bdf, u32>,
    fails: Bdf,
    /// What comes while the first is set back.
    interrupt: Option<fn()>,
    commands: usize,
}

impl<A: ActionGroup + Clone> Execute<A> for Functions {
    fn execute(&mut self, action: &A, deadline: Duration) -> Result<(), ExecuteError> {
        let action = action.clone().into();
        let Action::Function(FunctionAction::SetMtu { function, mtu }) = action else {
            panic!("not in this test: {action}")
        };
        let failed = |source| ExecuteError::Failed { attempt: format!("could not do {action}"), source };
        if mtu.get() == BEFORE {
            if let Some(comes) = self.interrupt.take() {
                comes();
            }
            let command = Command::new("sleep").arg("0.2").deadline(deadline);
            command.succeed().map_err(|error| failed(Box::new(error)))?;
            self.commands += 1;
        }
        self.mtus.insert(function, mtu.get());
        if function == self.fails && mtu.get() == AFTER { Err(failed("no luck".into())) } else { Ok(()) }
    }
}

impl Observe for Functions {
    fn holds(&mut self, fact: &Fact) -> Result<Result<(), String>, ExecuteError> {
        let Fact::MtuIs { function, mtu } = fact else { panic!("not in this test: {fact}") };
        let seen = self.mtus.get(function).copied().unwrap_or(BEFORE);
        Ok(if seen == mtu.get() { Ok(()) } else { Err(seen.to_string()) })
    }
}

fn function(step: u32) -> Bdf {
    format!("04:00.{step}").parse().unwrap()
}

/// A step for each guest, or for the host (no name); each needs the one before it, so that they are carried out in turn.
fn plan_of(guests: &[&str]) -> Plan {
    let set = |n, mtu| FunctionAction::SetMtu { function: function(n), mtu: Mtu::new(mtu).unwrap() }.into();
    let step = |(n, guest): (u32, &&str)| Step {
        id: StepId(n),
        postcondition: Fact::after(&set(n, AFTER)),
        action: set(n, AFTER),
        reason: "a test".to_owned(),
        needs: (n == 2).then_some(StepId(1)).into_iter().collect(),
        inverse: Some(set(n, BEFORE)),
        best_effort: false,
        guest: guest.parse().ok(),
    };
    Plan { steps: (1..).zip(guests).map(step).collect(), ..Plan::default() }
}

/// Carries a plan out of which the step `fails` does not work.
fn carry(plan: &Plan, fails: u32, comes: fn()) -> (Result<Applied, ApplyError>, Functions) {
    let mut functions =
        Functions { mtus: BTreeMap::new(), fails: function(fails), interrupt: Some(comes), commands: 0 };
    let options = Options { cancel: Some(interrupt::watched()), ..Options::default() };
    let mut executors = Executors::of_host(&mut functions);
    let outcome = run(plan, &mut executors, &mut Vec::new(), &mut (), &options);
    (outcome, functions)
}

/// The steps that were taken back, when all was that was begun.
fn all_back(outcome: &Result<Applied, ApplyError>, functions: &Functions) -> Vec<StepId> {
    let (ApplyError::RolledBack { undone, not_undone, .. }
    | ApplyError::Cancelled { undone, not_undone, .. }) = outcome.as_ref().unwrap_err()
    else {
        panic!("{}", outcome.as_ref().unwrap_err())
    };
    let left: Vec<String> = not_undone.iter().map(ToString::to_string).collect();
    assert!(left.is_empty(), "{}", left.join("; "));
    let mtus: BTreeSet<u32> = functions.mtus.values().copied().collect();
    assert_eq!(mtus, BTreeSet::from([BEFORE]));
    undone.clone()
}

#[test]
fn a_way_back_that_was_begun_goes_to_its_end_whatever_interrupts_it() {
    // A step of the host fails, and somebody presses Ctrl-C twice while all is taken back.
    let host = plan_of(&["", "", ""]);
    let twice = || [(); 2].into_iter().for_each(|()| interrupt::raise());
    let (outcome, functions) = carry(&host, 2, twice);
    assert_eq!(all_back(&outcome, &functions), [StepId(2), StepId(1)]);
    assert!(matches!(outcome, Err(ApplyError::RolledBack { .. })));
    assert!(interrupt::acknowledge(), "whoever asks next is told that it was interrupted");

    // A guest fails alone: it is taken back, then Ctrl-C counts and the rest is taken back.
    let (outcome, functions) = carry(&plan_of(&["", "a", "b"]), 2, interrupt::raise);
    assert_eq!(all_back(&outcome, &functions), [StepId(1)]);
    assert!(matches!(outcome, Err(ApplyError::Cancelled { step: StepId(3), .. })));
    assert_eq!(functions.commands, 2);
    assert!(!interrupt::pending(), "it was heard");

    // The connection is lost on the way back, and then the session hangs up.
    interrupt::catch().unwrap();
    let given = interrupt::watched();
    let lost = || {
        let listener = thread::spawn(|| {
            interrupt::raise();
            interrupt::ignore_once_heard();
            assert!(interrupt::acknowledge(), "what came before is known");
            raise(Signal::SIGHUP).unwrap();
        });
        listener.join().unwrap();
    };
    let (outcome, functions) = carry(&host, 2, lost);
    assert_eq!(all_back(&outcome, &functions), [StepId(2), StepId(1)]);
    assert!(!interrupt::pending(), "nobody is there any more to be told of it");
    assert!(!given.load(Ordering::Relaxed), "the signal reached what looks at the flag");
}
