use std::{collections::BTreeMap, io, path::PathBuf};

use penstock_model::{Bdf, Mtu, VfAttribute, VfIndex};
use penstock_plan::Direction;

use penstock_plan::{ActionGroup, Execute, FileAction, GuestAction, Observe};

use super::*;
use crate::steps::step;

mod eswitch;
mod guests;
mod others;

/// A machine of keys and values: an action sets one, a fact looks at one.
#[derive(Default)]
struct World {
    state: BTreeMap<String, String>,
    /// What the next carries do instead of working, by how many carries came before.
    trouble: BTreeMap<usize, Trouble>,
    carried: usize,
    /// How many of these took something back.
    led_back: usize,
    /// Whether the device has left.
    unplugged: bool,
    /// Of these functions each is such a VF of a PF: it is there while that has so many.
    vfs: BTreeMap<Bdf, (Bdf, u16)>,
    /// Set by the world after so many carries.
    cancel_after: Option<(usize, &'static AtomicBool)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    /// Fails and changes nothing.
    Fails,
    /// Fails and has changed it all the same.
    FailsHalfWay,
    /// Says that it worked, and did nothing.
    Lies,
    /// The driver cannot.
    Unsupported,
    /// Works, and the PF's driver is reloaded right after: its VFs are gone.
    Reloads,
    /// Fails since the device is gone, with all that it held.
    Unplugged,
    /// Somebody else has made 8 VFs a moment before, for which the kernel refuses it.
    Overtaken,
    /// Works, and somebody else makes 8 VFs in place of those that are there.
    Replaced,
    /// Says that it worked, and has made one VF alone.
    Fewer,
    /// The kernel refuses it for a reason that is known, when one VF is there already.
    RefusedHalfWay,
    /// Works, and somebody edits a file.
    Edited,
}

/// The file that somebody edits.
const FILE: &str = "/etc/a.conf";

fn set(action: &Action) -> (String, String) {
    match action {
        Action::Function(FunctionAction::SetAutoprobe { pf, on }) => {
            (format!("autoprobe {pf}"), on.to_string())
        }
        Action::Function(FunctionAction::SetVfCount { pf, count }) => {
            (format!("vfs {pf}"), count.to_string())
        }
        Action::Function(FunctionAction::SetVfAttribute { pf, vf, attribute }) => {
            (format!("{} {pf} {vf}", attribute.kind()), attribute.to_string())
        }
        Action::Function(FunctionAction::SetEswitchMode { pf, mode }) => {
            (format!("eswitch {pf}"), mode.to_string())
        }
        Action::Function(FunctionAction::SetMtu { function, mtu }) => {
            (format!("mtu {function}"), mtu.to_string())
        }
        Action::Function(FunctionAction::SetDriver { function, driver, .. }) => {
            (format!("driver {function}"), format!("{driver:?}"))
        }
        Action::Function(FunctionAction::SetLink { function, direction }) => {
            (format!("link {function}"), format!("{direction:?}"))
        }
        Action::File(FileAction::WriteFile { path, text }) => (format!("file {path}"), text.clone()),
        other => panic!("not in these tests: {other}"),
    }
}

fn looked_at(fact: &Fact) -> (String, String) {
    match fact {
        Fact::Autoprobe { pf, on } => (format!("autoprobe {pf}"), on.to_string()),
        Fact::VfCount { pf, count } => (format!("vfs {pf}"), count.to_string()),
        Fact::VfAttribute { pf, vf, attribute } => {
            (format!("{} {pf} {vf}", attribute.kind()), attribute.to_string())
        }
        Fact::EswitchMode { pf, mode } => (format!("eswitch {pf}"), mode.to_string()),
        Fact::MtuIs { function, mtu } => (format!("mtu {function}"), mtu.to_string()),
        Fact::Driver { function, driver, .. } => (format!("driver {function}"), format!("{driver:?}")),
        Fact::Link { function, direction } => (format!("link {function}"), format!("{direction:?}")),
        Fact::FileIs { path, text } => (format!("file {path}"), text.clone()),
        other => panic!("not in these tests: {other}"),
    }
}

impl<A: ActionGroup + Clone> Execute<A> for World {
    fn execute(&mut self, action: &A, _: Duration) -> Result<(), ExecuteError> {
        let action = &action.clone().into();
        let trouble = self.trouble.get(&self.carried).copied();
        self.carried += 1;
        if let Some((after, flag)) = self.cancel_after {
            flag.fetch_or(self.carried == after, Ordering::Relaxed);
        }
        let (key, value) = set(action);
        match trouble {
            Some(Trouble::Lies) => return Ok(()),
            Some(Trouble::Unsupported) => return Err(ExecuteError::Unsupported("EOPNOTSUPP".to_owned())),
            None | Some(Trouble::FailsHalfWay) => drop(self.state.insert(key, value)),
            Some(Trouble::Fails) => (),
            Some(Trouble::Fewer | Trouble::RefusedHalfWay) => drop(self.state.insert(key, "1".to_owned())),
            Some(trouble @ (Trouble::Overtaken | Trouble::Replaced)) => {
                if trouble == Trouble::Replaced {
                    self.state.insert(key, value);
                }
                self.state.insert("vfs 0000:04:00.0".to_owned(), "8".to_owned());
            }
            Some(Trouble::Reloads) => {
                self.state.insert(key, value);
                self.state.retain(|key, _| !key.starts_with("mac"));
                self.state.entry("vfs 0000:04:00.0".to_owned()).and_modify(|count| *count = "0".to_owned());
            }
            Some(Trouble::Edited) => {
                self.state.insert(key, value);
                self.state.insert(format!("file {FILE}"), "edited".to_owned());
            }
            Some(Trouble::Unplugged) => {
                self.state.clear();
                self.unplugged = true;
            }
        }
        match trouble {
            None | Some(Trouble::Reloads | Trouble::Replaced | Trouble::Fewer | Trouble::Edited) => Ok(()),
            Some(Trouble::Overtaken) => {
                Err(ExecuteError::Refused { what: "EBUSY".to_owned(), hint: "wait".to_owned() })
            }
            Some(Trouble::RefusedHalfWay) => {
                Err(ExecuteError::Missing { what: "ENOMEM".to_owned(), hint: "boot with more".to_owned() })
            }
            Some(_) => Err(ExecuteError::Failed {
                attempt: format!("could not do {action}"),
                source: Box::new(io::Error::other("no luck")),
            }),
        }
    }

    fn take_back(&mut self, action: &A, deadline: Duration) -> Result<(), ExecuteError> {
        self.led_back += 1;
        self.execute(action, deadline)
    }

    fn is_gone(&mut self, action: &A) -> bool {
        let vf = crate::others::may_be_vf(&action.clone().into());
        self.unplugged || vf.is_some_and(|vf| self.is_there(vf) == Some(false))
    }
}

impl Observe for World {
    fn holds(&mut self, fact: &Fact) -> Result<Result<(), String>, ExecuteError> {
        let (key, value) = looked_at(fact);
        Ok(match self.state.get(&key) {
            Some(seen) if *seen == value => Ok(()),
            seen => Err(format!("{seen:?}")),
        })
    }

    fn is_there(&mut self, function: Bdf) -> Option<bool> {
        let (pf, index) = *self.vfs.get(&function)?;
        self.vf_count(pf).map(|count| index < count)
    }

    fn vf_count(&mut self, pf: Bdf) -> Option<u16> {
        self.state.get(&format!("vfs {pf}"))?.parse().ok()
    }

    fn file_is(&mut self, path: &str, text: Option<&str>) -> Option<bool> {
        Some(self.state.get(&format!("file {path}")).map(String::as_str) == text)
    }
}

fn bdf(text: &str) -> Bdf {
    text.parse().unwrap()
}

fn mac(vf: u16, mac: &str) -> Action {
    FunctionAction::SetVfAttribute {
        pf: bdf("04:00.0"),
        vf: VfIndex::new(vf).unwrap(),
        attribute: VfAttribute::Mac(mac.parse().unwrap()),
    }
    .into()
}

/// Autoprobe off, 2 VFs, a MAC for each, MTU, up.
fn plan() -> Plan {
    let pf = bdf("04:00.0");
    let mtu = |bytes| FunctionAction::SetMtu { function: pf, mtu: Mtu::new(bytes).unwrap() }.into();
    let link = |direction| FunctionAction::SetLink { function: pf, direction }.into();
    let steps: [(Action, Action, &[u32]); 6] = [
        (
            FunctionAction::SetAutoprobe { pf, on: false }.into(),
            FunctionAction::SetAutoprobe { pf, on: true }.into(),
            &[],
        ),
        (
            FunctionAction::SetVfCount { pf, count: 2 }.into(),
            FunctionAction::SetVfCount { pf, count: 0 }.into(),
            &[1],
        ),
        (mac(0, "02:00:00:00:00:01"), mac(0, "00:00:00:00:00:00"), &[2]),
        (mac(1, "02:00:00:00:00:02"), mac(1, "00:00:00:00:00:00"), &[2]),
        (mtu(9000), mtu(1500), &[]),
        (link(Direction::Up), link(Direction::Down), &[5]),
    ];
    let steps =
        (1..).zip(steps).map(|(n, (action, inverse, needs))| step(n, action, inverse, needs)).collect();
    Plan { steps, ..Plan::default() }
}

/// The world before, as the inverses of [`plan`] leave it.
fn before() -> World {
    let state = plan().steps.iter().filter_map(|step| step.inverse.as_ref().map(set)).collect();
    World { state, ..World::default() }
}

fn after() -> BTreeMap<String, String> {
    plan().steps.iter().map(|step| set(&step.action)).collect()
}

fn quick() -> Options<'static> {
    Options { deadline: Duration::from_millis(20), ..Options::default() }
}

fn go(world: &mut World, options: &Options<'_>) -> (Result<Applied, ApplyError>, Vec<Entry>) {
    let mut journal = Vec::new();
    let outcome = run(&plan(), &mut Executors::of_host(world), &mut journal, &mut (), options);
    (outcome, journal)
}

#[test]
fn a_plan_that_works_is_carried_out_and_recorded() {
    let mut world = before();
    let (outcome, journal) = go(&mut world, &quick());
    let applied = outcome.unwrap();
    assert_eq!(world.state, after());
    assert_eq!(applied.steps.len(), 6);
    assert!(applied.steps.iter().all(|step| step.outcome == Ending::Done));
    let begun: Vec<usize> = journal
        .iter()
        .filter_map(|entry| if let Entry::Begun { steps } = entry { Some(steps.len()) } else { None })
        .collect();
    assert_eq!(begun, [1, 1, 2, 1, 1]);
    assert_eq!(journal.len(), 1 + 2 * 6 + begun.len() + 1);
    assert_eq!(journal.last(), Some(&Entry::End { applied: true }));
}

#[test]
fn whichever_step_fails_and_however_the_machine_is_as_before() {
    for k in 0..6 {
        for trouble in [Trouble::Fails, Trouble::FailsHalfWay, Trouble::Lies] {
            let mut world = before();
            world.trouble.insert(k, trouble);
            let (outcome, journal) = go(&mut world, &quick());
            let Err(ApplyError::RolledBack { step, not_undone, .. }) = outcome else {
                panic!("{k}: {outcome:?}");
            };
            // Two MACs are one batch: the second is carried before the first is proven.
            assert_eq!(step, StepId(k as u32 + 1));
            assert_eq!(not_undone, []);
            assert_eq!(world.state, before().state, "step {}", k + 1);
            assert_eq!(journal.last(), Some(&Entry::End { applied: false }));
        }
    }
}

#[test]
fn whenever_a_driver_is_reloaded_half_is_never_called_done() {
    for k in 1..6 {
        let mut world = before();
        world.trouble.insert(k, Trouble::Reloads);
        let (outcome, _) = go(&mut world, &quick());
        let Err(ApplyError::RolledBack { source, not_undone, .. }) = outcome else {
            panic!("{k}: {outcome:?}");
        };
        assert_eq!(not_undone, []);
        // The VFs that are gone have no addresses.
        let without_vfs = |mut state: BTreeMap<String, String>| {
            state.retain(|key, _| !key.starts_with("mac"));
            state
        };
        assert_eq!(without_vfs(world.state), without_vfs(before().state), "{k}");
        if k > 3 {
            // Every step was seen to be so by then.
            assert!(source.to_string().contains("was a driver reloaded"), "{source}");
        }
    }
}

#[test]
fn what_was_unplugged_is_passed_over_on_the_way_back() {
    for k in 0..6 {
        let mut world = before();
        world.trouble.insert(k, Trouble::Unplugged);
        let (outcome, _) = go(&mut world, &quick());
        let Err(ApplyError::RolledBack { step, not_undone, .. }) = outcome else {
            panic!("{k}: {outcome:?}");
        };
        // Two MACs are one batch: the second carry has taken the first one along.
        let failed = if k == 3 { 3 } else { k as u32 + 1 };
        assert_eq!((step, not_undone), (StepId(failed), vec![]));
        assert_eq!(world.carried, k + 1, "nothing is written to what is gone");

        let undo = Options { mode: Mode::Undo, ..quick() };
        let (outcome, _) = go(&mut world, &undo);
        assert!(outcome.unwrap().steps.iter().all(|step| step.outcome == Ending::Done));
    }
}

#[test]
fn every_write_is_announced_before_it_happens() {
    /// A journal that looks at nothing but the order.
    struct Announced(Vec<Action>);
    impl Journal for Announced {
        fn record(&mut self, entries: &[Entry], sync: bool) -> Result<(), JournalError> {
            for entry in entries {
                match entry {
                    Entry::Intent { action, .. } | Entry::Undo { action, .. } => {
                        assert!(sync, "{action} was announced but not synced");
                        self.0.push(action.clone());
                    }
                    _ => (),
                }
            }
            Ok(())
        }
    }
    let mut world = before();
    world.trouble.insert(5, Trouble::Fails);
    let mut journal = Announced(Vec::new());
    let outcome = run(&plan(), &mut Executors::of_host(&mut world), &mut journal, &mut (), &quick());
    assert!(matches!(outcome, Err(ApplyError::RolledBack { .. })));
    assert_eq!(journal.0.len(), world.carried);
}

#[test]
fn a_rollback_goes_on_past_what_it_cannot_take_back() {
    let mut world = before();
    world.trouble.insert(4, Trouble::Fails);
    // Carries 5.. are the way back: the failed step, then the second MAC.
    world.trouble.insert(6, Trouble::Fails);
    let (outcome, _) = go(&mut world, &quick());
    let Err(error @ ApplyError::RolledBack { .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(error.to_string().contains("not taken back: step 4"), "{error}");
    let ApplyError::RolledBack { undone, not_undone, .. } = error else { unreachable!() };
    assert_eq!(undone, [5, 3, 2, 1].map(StepId));
    assert_eq!(not_undone.len(), 1);
    let mut expected = before().state;
    expected.insert("mac 0000:04:00.0 1".to_owned(), "mac 02:00:00:00:00:02".to_owned());
    assert_eq!(world.state, expected);
}

#[test]
fn a_setting_that_the_driver_lacks_is_listed_and_passed_over() {
    for k in [0, 2, 3, 4] {
        let mut world = before();
        world.trouble.insert(k, Trouble::Unsupported);
        let (outcome, _) = go(&mut world, &quick());
        let applied = outcome.unwrap();
        let unsupported: Vec<_> = applied.unsupported().map(|report| report.step).collect();
        assert_eq!(unsupported, [StepId(k as u32 + 1)]);
    }
}

#[test]
fn a_driver_that_a_vf_may_do_without_is_passed_over_and_only_where_it_is_bound() {
    let function = bdf("04:10.0");
    let bound = |driver: Option<&str>| {
        FunctionAction::SetDriver { function, driver: driver.map(str::to_owned), mac: None }.into()
    };
    let step = |best_effort| {
        let (action, inverse) = (bound(Some("igbvf")), bound(None));
        let step = plan().steps.remove(0);
        Step { postcondition: Fact::after(&action), action, inverse: Some(inverse), best_effort, ..step }
    };
    for trouble in [Trouble::Fails, Trouble::Lies] {
        for best_effort in [true, false] {
            let wanted = Plan { steps: vec![step(best_effort)], ..Plan::default() };
            let state = BTreeMap::from([set(&bound(None))]);
            let mut world = World { state, trouble: [(0, trouble)].into(), ..World::default() };
            let outcome =
                run(&wanted, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &quick());
            match outcome {
                Ok(applied) => assert!(best_effort && applied.unsupported().count() == 1),
                Err(error) => assert!(!best_effort, "{error}"),
            }
        }
    }
    // On the way back it has to come off.
    let back = penstock_plan::undo(&Plan { steps: vec![step(true)], ..Plan::default() });
    let state = BTreeMap::from([set(&bound(Some("igbvf")))]);
    let mut world = World { state, trouble: [(0, Trouble::Fails)].into(), ..World::default() };
    let options = Options { mode: Mode::Undo, ..quick() };
    assert!(run(&back, &mut Executors::of_host(&mut world), &mut Vec::new(), &mut (), &options).is_err());
}

#[test]
fn what_later_steps_stand_on_must_be_supported() {
    for k in [1, 5] {
        let mut world = before();
        world.trouble.insert(k, Trouble::Unsupported);
        let (outcome, _) = go(&mut world, &quick());
        assert!(matches!(outcome, Err(ApplyError::RolledBack { .. })), "{outcome:?}");
        assert_eq!(world.state, before().state);
    }
}

#[test]
fn a_postcondition_is_waited_for_no_longer_than_the_deadline() {
    let mut world = before();
    world.trouble.insert(5, Trouble::Lies);
    let began = Instant::now();
    let (outcome, _) = go(&mut world, &quick());
    assert!(began.elapsed() >= Duration::from_millis(20));
    let Err(ApplyError::RolledBack { source, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    let text = source.to_string();
    assert!(text.contains("is up") && text.contains("Down"), "{text}");
}

#[test]
fn a_cancelled_run_takes_back_what_it_did() {
    for k in 1..6 {
        let flag: &'static AtomicBool = Box::leak(Box::default());
        let mut world = before();
        world.cancel_after = Some((k, flag));
        let options = Options { cancel: Some(flag), ..quick() };
        let (outcome, _) = go(&mut world, &options);
        assert!(matches!(outcome, Err(ApplyError::Cancelled { .. })), "{outcome:?}");
        assert_eq!(world.state, before().state);
    }
}

#[test]
fn a_step_that_nobody_carries_is_refused_before_the_first_write() {
    let mut plan = plan();
    plan.steps[5].action = GuestAction::StartGuest { guest: "a".parse().unwrap() }.into();
    let mut world = before();
    let mut journal = Vec::new();
    let outcome = run(&plan, &mut Executors::of_host(&mut world), &mut journal, &mut (), &quick());
    assert!(matches!(outcome, Err(ApplyError::NotCarried { step: StepId(6), .. })));
    assert_eq!((world.carried, journal.len()), (0, 0));

    plan.steps[5].action = plan.steps[4].action.clone();
    plan.steps[5].postcondition = Fact::GuestRunning { guest: "a".parse().unwrap(), running: true };
    let outcome = run(&plan, &mut Executors::of_host(&mut world), &mut journal, &mut (), &quick());
    assert!(matches!(outcome, Err(ApplyError::NotObserved { step: StepId(6), .. })));
    assert_eq!((world.carried, journal.len()), (0, 0));
}

/// Full after so many records.
struct Full(usize);

impl Journal for Full {
    fn record(&mut self, _: &[Entry], _: bool) -> Result<(), JournalError> {
        if self.0 == 0 {
            return Err(JournalError::Write {
                path: PathBuf::from("journal"),
                source: io::ErrorKind::StorageFull.into(),
            });
        }
        self.0 -= 1;
        Ok(())
    }
}

#[test]
fn a_full_disk_stops_before_the_write_that_it_could_not_record() {
    for records in 0..6 {
        let mut world = before();
        let outcome =
            run(&plan(), &mut Executors::of_host(&mut world), &mut Full(records), &mut (), &quick());
        match (records, outcome) {
            (0, Err(ApplyError::Journal(_))) => (),
            // What could not be recorded is not begun, and what was done before is taken back.
            (_, Err(ApplyError::RolledBack { source, .. })) => {
                assert!(matches!(*source, StepError::Journal(_)), "{source:?}");
            }
            (_, other) => panic!("{records}: {other:?}"),
        }
        assert_eq!(world.state, before().state);
        assert!(records > 2 || world.carried == 0);
    }

    // A longer plan is announced in parts: the second part is not begun when it cannot be recorded.
    let mut long = plan();
    let last = long.steps.pop().unwrap();
    while long.steps.len() < 2 * ANNOUNCED_AT_ONCE {
        let id = StepId(long.steps.len() as u32 + 1);
        long.steps.push(Step { id, ..last.clone() });
    }
    let mut world = before();
    let outcome = run(
        &long,
        &mut Executors::of_host(&mut world),
        &mut Full(2 + 5 + ANNOUNCED_AT_ONCE),
        &mut (),
        &quick(),
    );
    let second = StepId(ANNOUNCED_AT_ONCE as u32 + 1);
    assert!(matches!(outcome, Err(ApplyError::RolledBack { step, .. }) if step == second), "{outcome:?}");
    assert_eq!(world.state, before().state);
}

#[test]
fn a_tear_down_goes_on_and_says_what_is_left() {
    let mut world = before();
    world.trouble.insert(1, Trouble::Fails);
    // What was torn down already is success, even when doing it again fails.
    world.state.extend([set(&plan().steps[4].action)]);
    world.trouble.insert(4, Trouble::Fails);
    let options = Options { mode: Mode::TearDown, ..quick() };
    let (outcome, journal) = go(&mut world, &options);
    let Err(ApplyError::Incomplete { failures, applied }) = outcome else {
        panic!("{outcome:?}");
    };
    let failed: Vec<_> = failures.iter().map(|failure| failure.step).collect();
    assert_eq!(failed, [StepId(2)]);
    assert_eq!(applied.steps.len(), 6);
    assert_eq!(world.carried, 6);
    assert!(!journal.iter().any(|entry| matches!(entry, Entry::Undo { .. })));
}

#[test]
fn a_cancelled_tear_down_stops_and_takes_nothing_back() {
    let flag: &'static AtomicBool = Box::leak(Box::default());
    let mut world = before();
    world.cancel_after = Some((2, flag));
    let options = Options { mode: Mode::TearDown, cancel: Some(flag), ..quick() };
    let (outcome, _) = go(&mut world, &options);
    let Err(ApplyError::Cancelled { step, undone, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((step, undone, world.carried), (StepId(3), vec![], 2));
}

#[test]
fn what_to_do_about_a_failure_is_told_apart_from_it() {
    let missing = || ExecuteError::Missing {
        what: "04:10.0 was not bound to igbvf: the driver is not loaded".to_owned(),
        hint: "load it: modprobe igbvf".to_owned(),
    };
    let error = ApplyError::RolledBack {
        step: StepId(1),
        action: "bind".to_owned(),
        source: Box::new(missing().into()),
        undone: vec![],
        not_undone: vec![],
    };
    assert_eq!(error.hint(), Some("load it: modprobe igbvf"));
    assert!(!chain(&error).contains("modprobe"));
}

#[test]
fn independent_steps_of_one_kind_make_a_batch_and_no_others_do() {
    let plan = plan();
    let lengths: Vec<usize> = (0..6).map(|from| batch(&plan.steps[from..], |_| false).len()).collect();
    assert_eq!(lengths, [1, 1, 2, 1, 1, 1]);

    let mut chained = plan.clone();
    chained.steps[3].needs = vec![StepId(3)];
    assert_eq!(batch(&chained.steps[2..], |_| false).len(), 1);
}

#[test]
fn the_observer_hears_of_every_step_and_of_the_way_back() {
    #[derive(Default)]
    struct Heard(Vec<String>);
    impl RunProgress for Heard {
        fn started(&mut self, step: &Step) {
            self.0.push(format!("+{}", step.id));
        }
        fn finished(&mut self, step: &Step, report: &StepReport) {
            self.0.push(format!("{:?} {}", report.outcome, step.id));
        }
        fn rolling_back(&mut self, steps: usize, _: &str) {
            self.0.push(format!("back {steps}"));
        }
        fn undone(&mut self, step: &Step, error: Option<&str>) {
            assert_eq!(error, None);
            self.0.push(format!("-{}", step.id));
        }
    }
    let mut world = before();
    world.trouble.insert(1, Trouble::Fails);
    let mut heard = Heard::default();
    let _ = run(&plan(), &mut Executors::of_host(&mut world), &mut Vec::new(), &mut heard, &quick());
    assert_eq!(heard.0, ["+1", "Done 1", "+2", "Failed 2", "back 2", "-2", "-1"]);
}

#[test]
fn what_is_done_to_vfs_one_after_the_other_is_proven_one_by_one() {
    let function: Bdf = "0000:04:00.0".parse().unwrap();
    let together = |action: FunctionAction, is_vf| {
        let steps: Vec<Step> = (1..=300).map(|id| step(id, action.clone(), action.clone(), &[])).collect();
        batch(&steps, |_| is_vf).len()
    };
    let restore =
        FunctionAction::RestoreInterface { function, setup: penstock_plan::InterfaceSetup::default() };
    assert_eq!((together(restore.clone(), true), together(restore, false)), (1, 256));
    let up = FunctionAction::SetLink { function, direction: Direction::Up };
    assert_eq!((together(up.clone(), true), together(up, false)), (1, 256));
    assert_eq!(together(FunctionAction::SetDriver { function, driver: None, mac: None }, true), 64);
    let (attribute, vf) = (VfAttribute::Trust(true), VfIndex::new(0).unwrap());
    assert_eq!(together(FunctionAction::SetVfAttribute { pf: function, vf, attribute }, true), 256);
}
