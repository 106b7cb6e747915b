//! Runs that are killed, after each write and each step, and what is made of them.

use std::collections::BTreeMap;

use penstock_model::{
    Mtu, VfAttribute, VfIndex,
    inventory::{BootLoader, FoundGuest},
};
use penstock_plan::{
    Action, BootAction, Direction, Fact, FileAction, FunctionAction, GuestAction, Plan, Step, StepId,
    action::{BootArguments, BootFile, GuestDefinition},
};

use super::{
    carried::UndoJournal,
    record::RunId,
    recovery::{RunToUndo, UndoPlan, way_back},
    state::{Fate, Phase, RunState},
};
use crate::{
    journal::{Ending, Entry},
    steps::step,
};

mod comes_back;
mod machine;
mod stored;
mod successive;

use machine::{Life, Machine, Tape, guest, pf, plan_for, vf};

/// What a run leaves: its plan and its journal.
struct Left {
    plan: Plan,
    tape: Tape,
}

impl Left {
    fn state(&self, reset: bool) -> RunState {
        RunState::read(&self.tape.entries(), reset)
    }
}

/// Makes `machine` as wanted until the run is killed; gives what is left.
fn apply(machine: &Machine, life: Life) -> Left {
    let plan = plan_for(&machine.snapshot());
    let tape = Tape::new(machine, Vec::new());
    machine.live(life);
    let _ = machine.run(&plan, &mut tape.clone(), crate::Mode::Apply);
    Left { plan, tape }
}

fn way(machine: &Machine, runs: &[&Left], reset: bool) -> UndoPlan {
    let states: Vec<RunState> = runs.iter().map(|run| run.state(reset)).collect();
    let taken: Vec<RunToUndo<'_>> = (1..)
        .zip(runs.iter().zip(&states))
        .map(|(id, (run, state))| RunToUndo { id: RunId(id), plan: &run.plan, state })
        .collect();
    way_back(&taken, &machine.inventory(), &mut machine.clone())
}

/// Takes `runs` back, oldest first, until that is killed.
fn undo(machine: &Machine, runs: &[&Left], reset: bool, life: Life) {
    let way = way(machine, runs, reset);
    let journals = (1..).zip(runs).map(|(id, run)| (RunId(id), run.tape.reopened())).collect();
    let own = Tape::new(machine, Vec::new());
    let mut journal = UndoJournal::new(own, journals, &way);
    machine.live(life);
    let _ = machine.run(&way.plan, &mut journal, crate::Mode::Undo);
}

fn wanted() -> BTreeMap<String, String> {
    let machine = Machine::before();
    apply(&machine, Life::Whole);
    machine.snapshot()
}

/// In how many places a whole run can be killed.
fn moments() -> usize {
    let machine = Machine::before();
    apply(&machine, Life::Whole);
    machine.events()
}

#[test]
fn the_plan_is_long_and_works_both_ways() {
    let machine = Machine::before();
    let before = machine.snapshot();
    let run = apply(&machine, Life::Whole);
    assert!(run.plan.steps.len() >= 40, "{}", run.plan.steps.len());
    assert_eq!(run.state(false).phase, Phase::Applied);
    assert_ne!(machine.snapshot(), before);
    assert_eq!(plan_for(&machine.snapshot()).steps, []);
    undo(&machine, &[&run], false, Life::Whole);
    assert_eq!(machine.snapshot(), before);
    assert_eq!(run.state(false).phase, Phase::Nothing);
    assert_eq!(way(&machine, &[&run], false).plan.steps, []);
}

#[test]
fn killed_anywhere_and_taken_back_the_machine_is_as_before() {
    let before = Machine::before().snapshot();
    for moment in 0..moments() {
        let machine = Machine::before();
        let run = apply(&machine, Life::Until(moment));
        let state = run.state(false);
        assert!(!state.ended || moment + 1 >= moments(), "{moment}");
        undo(&machine, &[&run], false, Life::Whole);
        assert_eq!(machine.snapshot(), before, "killed at {moment}: {state:?}");
        assert_eq!(run.state(false).phase, Phase::Nothing, "killed at {moment}");
    }
}

#[test]
fn killed_anywhere_and_applied_again_it_is_as_wanted_and_both_are_taken_back_together() {
    let (before, wanted) = (Machine::before().snapshot(), wanted());
    for moment in 0..moments() {
        let machine = Machine::before();
        let first = apply(&machine, Life::Until(moment));
        let second = apply(&machine, Life::Whole);
        assert_eq!(machine.snapshot(), wanted, "killed at {moment}");
        undo(&machine, &[&first, &second], false, Life::Whole);
        assert_eq!(machine.snapshot(), before, "killed at {moment}");
    }
}

#[test]
fn an_undo_that_is_killed_anywhere_is_gone_on_with() {
    let (before, wanted) = (Machine::before().snapshot(), wanted());
    let mut second = 0;
    for moment in (0..moments()).chain([usize::MAX]) {
        // Every moment of the second is tried with some moment of the first, and the whole run with all of them.
        let seconds: Vec<usize> = match moment {
            usize::MAX => (0..moments() * 2).collect(),
            _ => (0..3)
                .map(|_| {
                    second += 7;
                    second % (moment * 2 + 2)
                })
                .collect(),
        };
        for second in seconds {
            let machine = Machine::before();
            let run = apply(&machine, Life::Until(moment));
            undo(&machine, &[&run], false, Life::Until(second));
            if second % 2 == 0 {
                undo(&machine, &[&run], false, Life::Whole);
                assert_eq!(machine.snapshot(), before, "killed at {moment}, its undo at {second}");
                assert_eq!(run.state(false).phase, Phase::Nothing);
            } else {
                apply(&machine, Life::Whole);
                assert_eq!(machine.snapshot(), wanted, "killed at {moment}, its undo at {second}");
            }
        }
    }
}

#[test]
fn a_journal_cut_off_at_any_byte_leads_back() {
    let before = Machine::before().snapshot();
    let machine = Machine::before();
    let run = apply(&machine, Life::Whole);
    let (bytes, writes) = run.tape.writes();
    let mut last = None;
    for (from, to, world) in writes {
        // A line that was cut off is none, wherever in it the cut is.
        let lines = (from..to).filter(|at| *at == from || bytes[at - 1] == b'\n');
        for cut in lines.flat_map(|start| [start, start + 1]) {
            // While it writes a line nothing else changes.
            let torn = Left { plan: run.plan.clone(), tape: Tape::new(&machine, bytes[..cut].to_vec()) };
            let state = torn.state(false);
            if last.as_ref() == Some(&state) {
                continue;
            }
            let machine = Machine::with(world.clone());
            let torn = Left { tape: Tape::new(&machine, bytes[..cut].to_vec()), ..torn };
            undo(&machine, &[&torn], false, Life::Whole);
            assert_eq!(machine.snapshot(), before, "cut at {cut}: {state:?}");
            last = Some(state);
        }
        last = None;
    }
}

#[test]
fn after_a_reset_only_files_are_taken_back_whatever_of_the_journal_was_lost() {
    let boot = Machine::before().after_reset();
    // Between two of these moments lies what one batch writes.
    for moment in (0..moments()).step_by(5) {
        let machine = Machine::before();
        let run = apply(&machine, Life::Until(moment));
        let (bytes, _) = run.tape.writes();
        let world = machine.after_reset();
        let mut last = None;
        let lines = (run.tape.synced()..=bytes.len()).filter(|at| *at == 0 || bytes[at - 1] == b'\n');
        for cut in lines {
            let machine = Machine::with(world.clone());
            let torn = Left { plan: run.plan.clone(), tape: Tape::new(&machine, bytes[..cut].to_vec()) };
            let state = torn.state(true);
            if last.as_ref() == Some(&state) {
                continue;
            }
            for step in way(&machine, &[&torn], true).plan.steps {
                assert!(step.action.outlives_reset(), "{}", step.action);
            }
            undo(&machine, &[&torn], true, Life::Whole);
            assert_eq!(machine.snapshot(), boot, "reset at {moment}, {cut} bytes left");
            assert_eq!(torn.state(true).phase, Phase::Nothing);
            last = Some(state);
        }
    }
}

#[test]
fn with_a_full_disk_nothing_is_changed_that_cannot_be_taken_back() {
    let before = Machine::before().snapshot();
    let writes = Machine::before();
    let writes = { apply(&writes, Life::Whole).tape.writes().1.len() };
    for full in 0..writes {
        let machine = Machine::before();
        let plan = plan_for(&machine.snapshot());
        let tape = Tape::new(&machine, Vec::new()).full_after(full);
        let outcome = machine.run(&plan, &mut tape.clone(), crate::Mode::Apply);
        match outcome {
            // Only what came of the last steps, and the end, are not recorded.
            Ok(_) => assert!(full + 2 >= writes, "{full}"),
            Err(_) => assert_eq!(machine.snapshot(), before, "full after {full}"),
        }
        let run = Left { plan, tape };
        undo(&machine, &[&run], false, Life::Whole);
        assert_eq!(machine.snapshot(), before, "full after {full}, taken back");
    }
}

#[test]
fn a_step_that_cannot_be_taken_back_holds_what_it_stands_on_and_nothing_else() {
    let machine = Machine::before();
    let run = apply(&machine, Life::Whole);
    machine.refuse(GuestAction::StopGuest { guest: guest("a") }.into());
    undo(&machine, &[&run], false, Life::Whole);
    let now = machine.snapshot();
    // The guest runs on with its VFs; the other NIC is as before.
    assert_eq!(now[&format!("vfs {}", pf(0))], "8");
    assert_eq!(now[&format!("vfs {}", pf(1))], "4");
    assert_eq!(now["guest a"], "running");
    assert_eq!(run.state(false).phase, Phase::PartlyTakenBack);
    assert!(run.state(false).standing().any(|(_, fate)| matches!(fate, Fate::Stuck(_))));
    machine.refuse_nothing();
    undo(&machine, &[&run], false, Life::Whole);
    assert_eq!(machine.snapshot(), Machine::before().snapshot());
}

#[test]
fn what_somebody_else_has_taken_since_stays_with_what_it_stands_on() {
    let machine = Machine::before();
    let run = apply(&machine, Life::Whole);
    let mut present = machine.inventory();
    let taken = present.pfs[0].sriov.as_ref().unwrap().vfs[3].bdf;
    let stranger =
        penstock_model::inventory::FoundGuest { running: true, functions: vec![taken], ..Default::default() };
    present.guests.insert(guest("stranger"), stranger);
    let state = run.state(false);
    let taken = [RunToUndo { id: RunId(1), plan: &run.plan, state: &state }];
    let way = way_back(&taken, &present, &mut machine.clone());
    assert_eq!(present.guests.len(), 3);
    let counts = way.kept.iter().filter(|kept| kept.why.contains("guest stranger runs with"));
    assert_eq!(counts.count(), 1, "{:?}", way.kept);
    let touched = |step: &penstock_plan::Step| matches!(step.action, Action::Function(FunctionAction::SetVfCount { pf: at, .. }) if at == pf(0));
    assert!(!way.plan.steps.iter().any(touched));
    assert!(
        way.plan
            .steps
            .iter()
            .any(|step| matches!(step.action, Action::Function(FunctionAction::SetVfCount { .. })))
    );
    assert_eq!(way.plan.steps.len(), way.origins.len());
    for (step, (_, origin)) in way.plan.steps.iter().zip(&way.origins) {
        let origin = run.plan.steps.iter().find(|step| step.id == *origin).unwrap();
        assert_eq!(Some(&step.action), origin.inverse.as_ref());
    }
}

/// The run on a machine that somebody has changed since.
fn changed(machine: &Machine, run: &Left, key: &str, value: &str) -> (Machine, Left) {
    let mut world = machine.snapshot();
    assert!(world.insert(key.to_owned(), value.to_owned()).is_some(), "{key}");
    let machine = Machine::with(world);
    let tape = Tape::new(&machine, run.tape.writes().0);
    (machine, Left { plan: run.plan.clone(), tape })
}

#[test]
fn files_and_vfs_that_somebody_has_changed_since_stay_and_hold_nothing_else() {
    let before = Machine::before().snapshot();
    let applied = Machine::before();
    let run = apply(&applied, Life::Whole);
    let file = applied.snapshot().into_keys().find(|key| key.starts_with("file ")).unwrap();
    let vfs = format!("vfs {}", pf(0));
    let cases = [(file, "edited", "it has another text"), (vfs.clone(), "12", "it has 12 VFs")];
    for (key, value, seen) in cases {
        let (machine, run) = changed(&applied, &run, &key, value);
        let theirs = machine.snapshot();
        let kept = way(&machine, &[&run], false).kept;
        let whys: Vec<&str> = kept.iter().map(|kept| kept.why.as_str()).collect();
        let why = format!("somebody has it otherwise since, and that stays: {seen}");
        assert_eq!(whys.iter().filter(|told| **told == why).count(), 1, "{key}: {whys:?}");
        undo(&machine, &[&run], false, Life::Whole);
        let now = machine.snapshot();
        assert_eq!(now[&key], value);
        let rest = |world: &BTreeMap<String, String>| {
            let own = |key: &&String| {
                ["autoprobe ", "mtu ", "link ", "guest "].iter().any(|kind| key.starts_with(kind))
            };
            world
                .iter()
                .filter(|(key, _)| own(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        let (left, before): (BTreeMap<_, _>, BTreeMap<_, _>) = (rest(&now), rest(&before));
        assert_eq!(left, before, "{key}");
        if key == vfs {
            let of_vfs =
                |key: &&String| key.starts_with(&format!("mac {}", pf(0))) || key.starts_with("driver 04:10");
            let untouched = theirs.keys().filter(of_vfs).all(|key| now.get(key) == theirs.get(key));
            assert!(untouched, "their VFs: {now:?}");
        }
        // Whatever somebody makes of it later, also what the run had: it is his.
        assert_eq!(run.state(false).phase, Phase::Nothing);
        let (machine, run) = changed(&machine, &run, &key, &applied.snapshot()[&key]);
        undo(&machine, &[&run], false, Life::Whole);
        assert_eq!(machine.snapshot()[&key], applied.snapshot()[&key]);
    }
}

#[test]
fn whenever_a_run_was_killed_what_somebody_else_has_made_since_stays() {
    let file = wanted().into_keys().find(|key| key.starts_with("file ")).unwrap();
    for moment in 0..moments() {
        let killed = Machine::before();
        let run = apply(&killed, Life::Until(moment));
        let mut world = killed.snapshot();
        // A guest of ours would keep anybody from making other VFs.
        world.remove("guest a");
        let theirs = [(file.clone(), "edited"), (format!("vfs {}", pf(0)), "12")];
        world.extend(theirs.clone().map(|(key, value)| (key, value.to_owned())));
        let machine = Machine::with(world);
        let run = Left { plan: run.plan, tape: Tape::new(&machine, run.tape.writes().0) };
        for _ in 0..2 {
            undo(&machine, &[&run], false, Life::Whole);
            let now = machine.snapshot();
            theirs.iter().for_each(|(key, value)| assert_eq!(now[key], *value, "killed at {moment}"));
        }
        assert_eq!(run.state(false).phase, Phase::Nothing, "killed at {moment}: {:?}", run.state(false));
    }
}

#[test]
fn a_file_of_penstocks_own_is_taken_back_though_somebody_has_edited_it() {
    let path = penstock_plan::persist::MODEL.to_owned();
    let write = |text: &str| FileAction::WriteFile { path: path.clone(), text: text.to_owned() }.into();
    let runs = [
        done_run(write("one"), FileAction::RemoveFile { path: path.clone() }.into()),
        done_run(write("two"), write("one")),
    ];
    for (text, edited) in [("two", None), ("edited", Some(path.clone()))] {
        let mut machine = Machine::with([(format!("file {path}"), text.to_owned())].into());
        let runs: Vec<RunToUndo<'_>> =
            (1..).zip(&runs).map(|(id, (plan, state))| RunToUndo { id: RunId(id), plan, state }).collect();
        let way = way_back(&runs, &Machine::before().inventory(), &mut machine);
        assert_eq!((way.plan.steps.len(), way.kept, way.anothers), (2, vec![], vec![]), "{text}");
        assert_eq!(way.edited, Vec::from_iter(edited), "{text}");
    }
    // What the distribution's tools read is not.
    assert!(!penstock_plan::persist::owns(penstock_plan::persist::KERNEL_COMMAND_LINE));
}

#[test]
fn what_somebody_else_has_taken_holds_no_interface_of_the_host_and_no_guest_of_ours() {
    let machine = Machine::before();
    let run = apply(&machine, Life::Whole);
    let mut plan = run.plan.clone();
    // As where a PF is up before it has VFs, and where a guest of ours has it.
    let position = |plan: &Plan, is: fn(&Action) -> bool| {
        plan.steps.iter().find(|step| is(&step.action)).map(|step| step.id).unwrap()
    };
    let start = position(&plan, |action| matches!(action, Action::Guest(GuestAction::StartGuest { .. })));
    let mtu = position(&plan, |action| matches!(action, Action::Function(FunctionAction::SetMtu { .. })));
    let mut present = machine.inventory();
    let vf = &mut present.pfs[1].sriov.as_mut().unwrap().vfs[3];
    let function = vf.bdf;
    vf.present.get_or_insert_default().driver = Some("somebodys".to_owned());
    let last = plan.steps.last().unwrap().id;
    let bind = |driver: Option<&str>| {
        FunctionAction::SetDriver { function, driver: driver.map(str::to_owned), mac: None }.into()
    };
    plan.steps.push(Step {
        id: StepId(last.0 + 1),
        action: bind(Some("vfio-pci")),
        inverse: Some(bind(None)),
        postcondition: Fact::after(&bind(Some("vfio-pci"))),
        needs: vec![mtu, start],
        reason: "a test".to_owned(),
        best_effort: false,
        guest: None,
    });
    let state =
        RunState { steps: plan.steps.iter().map(|step| (step.id, Fate::Done)).collect(), ..run.state(false) };
    let taken = [RunToUndo { id: RunId(1), plan: &plan, state: &state }];
    let way = way_back(&taken, &present, &mut machine.clone());
    assert!(way.kept.iter().any(|kept| kept.why.contains("somebody has bound")), "{:?}", way.kept);
    let back: Vec<StepId> = way.origins.iter().map(|(_, step)| *step).collect();
    assert!(back.contains(&mtu) && back.contains(&start), "{:?}", way.kept);
}

#[test]
fn what_a_later_run_changed_and_gives_back_is_nobody_elses_change() {
    let write =
        |text: &str| FileAction::WriteFile { path: "/etc/x".to_owned(), text: text.to_owned() }.into();
    let runs = [
        done_run(write("one"), FileAction::RemoveFile { path: "/etc/x".to_owned() }.into()),
        done_run(write("two"), write("one")),
    ];
    let [first, second] = &runs;
    let taken = |runs: &[&(Plan, RunState)], text: &str| {
        let mut machine = Machine::with([("file /etc/x".to_owned(), text.to_owned())].into());
        let runs: Vec<RunToUndo<'_>> =
            (1..).zip(runs).map(|(id, (plan, state))| RunToUndo { id: RunId(id), plan, state }).collect();
        let way = way_back(&runs, &Machine::before().inventory(), &mut machine);
        (way.plan.steps.len(), way.kept.len())
    };
    assert_eq!(taken(&[first, second], "two"), (2, 0));
    assert_eq!(taken(&[first, second], "edited"), (0, 2));
    assert_eq!(taken(&[first], "one"), (1, 0));
}

#[test]
fn attributes_of_a_vf_that_somebody_else_has_by_now_are_not_set_back_under_it() {
    let attribute = |mac: &str| {
        let attribute = VfAttribute::Mac(mac.parse().unwrap());
        FunctionAction::SetVfAttribute { pf: pf(0), vf: VfIndex::new(3).unwrap(), attribute }.into()
    };
    let (plan, state) = done_run(attribute("02:00:00:00:00:01"), attribute("02:00:00:00:00:02"));
    let mut of_a = plan.clone();
    of_a.steps[0].guest = Some(guest("a"));
    // A VM of ours has stopped, and somebody else's has the VF.
    let mut of_stopped = plan.clone();
    let mut definition = GuestDefinition::bare(guest("a"));
    definition.drives = vec![Machine::before().inventory().pfs[0].sriov.as_ref().unwrap().vfs[3].bdf];
    let define = Action::from(GuestAction::DefineGuest(definition));
    of_stopped.steps.push(Step {
        id: StepId(2),
        postcondition: Fact::after(&define),
        action: define,
        inverse: Some(GuestAction::UndefineGuest { guest: guest("a") }.into()),
        ..plan.steps[0].clone()
    });
    let state = RunState { steps: vec![(StepId(1), Fate::Done), (StepId(2), Fate::Done)], ..state };
    for (mac, held, running, plan, stays) in [
        ("02:00:00:00:00:09", true, None, &of_stopped, true),
        ("02:00:00:00:00:09", false, None, &of_stopped, false),
        ("02:00:00:00:00:09", true, None, &plan, true),
        ("02:00:00:00:00:01", true, None, &plan, false),
        ("02:00:00:00:00:02", true, None, &plan, false),
        ("02:00:00:00:00:09", false, None, &plan, false),
        // A VM of ours holds it as any other does, and a guest of ours has set an address of its own.
        ("02:00:00:00:00:09", true, Some("a"), &of_a, false),
        ("02:00:00:00:00:09", false, Some("a"), &of_a, false),
        ("02:00:00:00:00:09", true, Some("c"), &of_a, true),
    ] {
        let mut machine = Machine::with([(format!("mac {} 3", pf(0)), format!("mac {mac}"))].into());
        let mut present = Machine::before().inventory();
        let vf = present.pfs[0].sriov.as_ref().unwrap().vfs[3].bdf;
        if held {
            let holders = &mut present.lifelines.get_or_insert_default().holders;
            holders.insert(vf, vec!["qemu (process 77)".to_owned()]);
        }
        if let Some(name) = running {
            let found = FoundGuest { running: true, functions: vec![vf], ..FoundGuest::default() };
            present.guests.insert(guest(name), found);
        }
        let taken = [RunToUndo { id: RunId(1), plan, state: &state }];
        let way = way_back(&taken, &present, &mut machine);
        let what = format!("{mac} {held} {running:?}");
        let back = way.plan.steps.iter().filter(|step| step.action.guest().is_none());
        assert_eq!((back.count(), way.kept.len()), if stays { (0, 1) } else { (1, 0) }, "{what}");
        if stays {
            let who = running.map_or("qemu (process 77)", |_| "guest c");
            assert!(way.kept[0].why.contains(who), "{}", way.kept[0].why);
            assert_eq!(way.anothers.len(), 1, "{what}");
        }
    }
}

/// A run of one step that was done.
fn done_run(action: Action, inverse: Action) -> (Plan, RunState) {
    let (plan, entries) = done_entries(action, inverse);
    (plan, RunState::read(&entries, false))
}

/// The same with its journal.
fn done_entries(action: Action, inverse: Action) -> (Plan, Vec<Entry>) {
    let entries = vec![
        Entry::Begin { version: 3, steps: 1 },
        Entry::Intent { step: StepId(1), action: action.clone(), inverse: Some(inverse.clone()) },
        Entry::Begun { steps: vec![StepId(1)] },
        Entry::Outcome { step: StepId(1), outcome: Ending::Done, detail: None },
        Entry::End { applied: true },
    ];
    (Plan { steps: vec![step(1, action, inverse, &[])], ..Plan::default() }, entries)
}

#[test]
fn steps_that_were_only_announced_are_no_part_of_the_way_back() {
    let intent = |step, pf| Entry::Intent {
        step: StepId(step),
        action: FunctionAction::SetVfCount { pf, count: 0 }.into(),
        inverse: Some(FunctionAction::SetVfCount { pf, count: 4 }.into()),
    };
    let mut entries = vec![Entry::Begin { version: 3, steps: 2 }, intent(1, pf(0)), intent(2, pf(1))];
    assert_eq!(RunState::read(&entries, false).phase, Phase::Nothing);
    entries.push(Entry::Begun { steps: vec![StepId(1)] });
    let state = RunState::read(&entries, false);
    assert_eq!(state.phase, Phase::Interrupted);
    let standing: Vec<_> = state.standing().collect();
    assert_eq!((standing, state.left), (vec![(StepId(1), &Fate::Unknown)], 1));
    assert_eq!(RunState::read(&entries, true).phase, Phase::Nothing);
    // What has no way back, as a wait has none, is not left to be taken back.
    let wait = FunctionAction::AwaitLink { pf: pf(0), within: 1 };
    entries.push(Entry::Intent { step: StepId(3), action: wait.into(), inverse: None });
    entries.push(Entry::Begun { steps: vec![StepId(3)] });
    let state = RunState::read(&entries, false);
    assert_eq!((state.standing().count(), state.left), (2, 1));
}

#[test]
fn what_an_undo_could_not_take_back_is_told_from_what_somebody_makes_of_it_then() {
    let vfs = |count| Action::from(FunctionAction::SetVfCount { pf: pf(0), count });
    let attribute = |mac: &str| {
        let attribute = VfAttribute::Mac(mac.parse().unwrap());
        Action::from(FunctionAction::SetVfAttribute { pf: pf(0), vf: VfIndex::new(3).unwrap(), attribute })
    };
    let mut present = Machine::before().inventory();
    let vf = present.pfs[0].sriov.as_ref().unwrap().vfs[3].bdf;
    present.lifelines.get_or_insert_default().holders.insert(vf, vec!["qemu (process 77)".to_owned()]);
    let (ours, before, theirs) = ("02:00:00:00:00:01", "02:00:00:00:00:02", "mac 02:00:00:00:00:09");
    let cases = [
        (vfs(4), vfs(0), (format!("vfs {}", pf(0)), "2".to_owned())),
        (attribute(ours), attribute(before), (format!("mac {} 3", pf(0)), theirs.to_owned())),
    ];
    for (action, inverse, found) in cases {
        let (plan, done) = done_entries(action, inverse.clone());
        let undo = Entry::Undo { step: StepId(1), action: inverse };
        let stuck = Entry::Undone { step: StepId(1), error: Some("held".to_owned()), anothers: None };
        for since in [vec![], vec![undo.clone()], vec![undo, stuck]] {
            let entries = [done.clone(), since].concat();
            let damaged = RunState::read_damaged(&entries, Some(&plan), false, "a line".to_owned());
            for state in [RunState::read(&entries, false), damaged] {
                let mut machine = Machine::with([found.clone()].into());
                let taken = [RunToUndo { id: RunId(1), plan: &plan, state: &state }];
                let way = way_back(&taken, &present, &mut machine);
                assert_eq!((way.plan.steps, way.anothers.len()), (vec![], 1), "{found:?}: {state:?}");
            }
        }
    }
}

/// The way back of a run that did all of its plan, on a machine that knows this of its PF, and where a guest that the model does not have runs
/// with a VF of it.
fn way_back_while_a_stranger_has_a_vf(plan: &Plan, pf_is: (String, String)) -> UndoPlan {
    let steps = plan.steps.iter().map(|step| (step.id, Fate::Done)).collect();
    let state = RunState { steps, ..RunState::read(&[], false) };
    let mut present = Machine::before().inventory();
    let functions = vec![present.pfs[0].sriov.as_ref().unwrap().vfs[3].bdf];
    present
        .guests
        .insert(guest("stranger"), FoundGuest { running: true, functions, ..FoundGuest::default() });
    let mut machine = Machine::with([pf_is].into());
    way_back(&[RunToUndo { id: RunId(1), plan, state: &state }], &present, &mut machine)
}

#[test]
fn what_stays_holds_also_what_stands_below_an_interface_that_comes_back() {
    let autoprobe = |on| FunctionAction::SetAutoprobe { pf: pf(0), on };
    let mtu = |bytes| FunctionAction::SetMtu { function: pf(0), mtu: Mtu::new(bytes).unwrap() };
    let vfs = |count| FunctionAction::SetVfCount { pf: pf(0), count };
    let plan = Plan {
        steps: vec![
            step(1, autoprobe(false), autoprobe(true), &[]),
            step(2, mtu(9000), mtu(1500), &[1]),
            step(3, vfs(8), vfs(0), &[2]),
        ],
        ..Plan::default()
    };
    let way = way_back_while_a_stranger_has_a_vf(&plan, (format!("vfs {}", pf(0)), "8".to_owned()));
    assert_eq!(way.origins, [(RunId(1), StepId(2))], "{:?}", way.kept);
}

#[test]
fn an_edit_of_penstocks_own_words_for_the_kernel_is_kept_aside() {
    let path = penstock_plan::persist::GRUB_DROP_IN;
    let set = |text: Option<&str>, path: &str| {
        BootAction::SetBootArguments(BootArguments {
            loader: BootLoader::Grub { refresh: vec!["update-grub".to_owned()], menu: "/m".to_owned() },
            file: Some(BootFile { path: path.to_owned(), text: text.map(str::to_owned), over: None }),
            words: Vec::new(),
            before: Vec::new(),
        })
        .into()
    };
    let shared = penstock_plan::persist::KERNEL_COMMAND_LINE;
    for (path, text, edited) in [
        (path, Some("ours"), false),
        (path, Some("before"), false),
        (path, None, false),
        (path, Some("edited"), true),
        (shared, Some("edited"), false),
    ] {
        let (plan, state) = done_run(set(Some("ours"), path), set(Some("before"), path));
        let world = text.map(|text| (format!("file {path}"), text.to_owned()));
        let mut machine = Machine::with(world.into_iter().collect());
        let taken = [RunToUndo { id: RunId(1), plan: &plan, state: &state }];
        let way = way_back(&taken, &Machine::before().inventory(), &mut machine);
        assert_eq!((way.plan.steps.len(), way.edited.len()), (1, usize::from(edited)), "{path} {text:?}");
    }
}
