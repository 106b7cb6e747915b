//! Runs on disk.
#![allow(clippy::disallowed_methods)]

use penstock_host::{files, running::Running};
use penstock_plan::{Fact, Step};

use super::*;
use crate::{
    FileJournal, Journal,
    history::{
        decision::{Confirmation, Decision, decide},
        record::{Confirm, Outcome, Purpose, RunRecord, Who},
        store::{KEPT, KEPT_AT_MOST, KnownRun, Runs, StoreError, Undecided, UnreadableRun},
    },
    journal::{Ending, JOURNAL_VERSION, RECORD_LIMIT},
};

fn who() -> Who {
    // A process that is gone: this number was never started at that time.
    let process = Running { id: 1, started: u64::MAX };
    Who {
        process,
        user: "mara".to_owned(),
        command: vec!["penstock".to_owned()],
        since: 0,
        terminal: None,
        peer: None,
    }
}

fn runs(directory: &tempfile::TempDir, boot: &str) -> Runs {
    Runs::new(directory.path(), Some(boot.to_owned()))
}

/// A run with one step that was begun, ended or not.
fn run(runs: &Runs, purpose: Purpose, supersedes: &[RunId], ended: bool) -> KnownRun {
    let record = RunRecord { supersedes: supersedes.to_vec(), ..RunRecord::new(purpose, who()) };
    let run = runs.create(record, &Plan::default(), Some("nics: {}\n")).unwrap();
    let action = FunctionAction::SetVfCount { pf: pf(0), count: 8 }.into();
    let inverse = Some(FunctionAction::SetVfCount { pf: pf(0), count: 0 }.into());
    let mut journal: FileJournal = run.journal().unwrap();
    let step = StepId(1);
    let mut entries = vec![
        Entry::Begin { version: JOURNAL_VERSION, steps: 1 },
        Entry::Intent { step, action, inverse },
        Entry::Begun { steps: vec![step] },
    ];
    if ended {
        entries.push(Entry::Outcome { step, outcome: Ending::Done, detail: None });
        entries.push(Entry::End { applied: true });
        run.end(&Outcome { ended: 1, boottime: 1, error: None }).unwrap();
    }
    journal.record(&entries, true).unwrap();
    runs.find(run.id()).unwrap()
}

#[test]
fn a_run_that_could_not_be_read_again_does_not_begin() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(&directory, "boot");
    let step = |id: u32, reason: String| Step {
        id: StepId(id),
        action: FunctionAction::SetVfCount { pf: pf(0), count: 8 }.into(),
        reason,
        needs: Vec::new(),
        inverse: None,
        postcondition: Fact::VfCount { pf: pf(0), count: 8 },
        best_effort: false,
        guest: None,
    };
    let plan = |length: usize| Plan { steps: vec![step(1, "x".repeat(length))], ..Plan::default() };
    let record = || RunRecord::new(Purpose::Apply, who());
    let around = serde_json::to_vec_pretty(&plan(0)).unwrap().len();
    let refused = runs.create(record(), &plan(RECORD_LIMIT - around + 1), None).unwrap_err();
    assert!(matches!(refused, StoreError::TooLong { what: "plan", .. }), "{refused}");
    let refused = runs.create(record(), &Plan::default(), Some(&"x".repeat(RECORD_LIMIT + 1))).unwrap_err();
    assert!(matches!(refused, StoreError::TooLong { what: "model", .. }), "{refused}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left of them");
    // The longest is read again.
    let run = runs.create(record(), &plan(RECORD_LIMIT - around), None).unwrap();
    runs.plan(&run).unwrap();
}

#[test]
fn runs_are_numbered_kept_and_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(&directory, "boot");
    assert!(runs.list().unwrap().0.is_empty());
    let first = run(&runs, Purpose::Apply, &[], true);
    let second = run(&runs, Purpose::Stop, &[], false);
    assert_eq!((first.id(), second.id()), (RunId(1), RunId(2)));
    let (all, damaged) = runs.list().unwrap();
    assert!(damaged.is_empty());
    assert_eq!(all.iter().map(KnownRun::id).collect::<Vec<_>>(), [RunId(1), RunId(2)]);
    assert_eq!(all[0].record.boot.as_deref(), Some("boot"));
    assert_eq!(runs.applied_run(&all[0]).unwrap().state.phase, Phase::Applied);
    assert_eq!(files::read_to_string(all[0].directory.join("model.yaml")).unwrap(), "nics: {}\n");
    assert!(matches!(runs.find(RunId(3)), Err(StoreError::NoSuchRun(RunId(3)))));
}

#[test]
fn a_directory_that_was_not_finished_is_no_run_and_a_damaged_one_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(&directory, "boot");
    let first = run(&runs, Purpose::Apply, &[], true);
    files::create_dir_all(runs.directory().join(".part")).unwrap();
    files::write_atomic(runs.directory().join(".part/run.json"), "{").unwrap();
    assert_eq!(runs.list().unwrap().0.len(), 1);
    files::write_atomic(first.directory.join("run.json"), "{\"version\": 99}").unwrap();
    let (all, damaged) = runs.list().unwrap();
    assert!(
        all.is_empty()
            && matches!(
                &damaged[..],
                [UnreadableRun { id: RunId(1), error: StoreError::Newer { version: 99, .. } }]
            ),
        "{damaged:?}"
    );
    files::write_atomic(first.directory.join("run.json"), "{\"version\"").unwrap();
    assert!(matches!(runs.list().unwrap().1[..], [UnreadableRun { error: StoreError::Damaged { .. }, .. }]));
    // Its number is not given to another.
    assert_eq!(run(&runs, Purpose::Apply, &[], true).id(), RunId(2));
}

#[test]
fn a_run_that_was_cut_off_is_half_way_until_a_whole_one_goes_on_from_it() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(&directory, "boot");
    let half_way = |runs: &Runs| {
        let found = runs.half_way(&runs.list().unwrap().0);
        found.into_iter().map(|(run, phase)| (run.id(), phase)).collect::<Vec<_>>()
    };
    run(&runs, Purpose::Apply, &[], true);
    assert_eq!(half_way(&runs), []);
    run(&runs, Purpose::Apply, &[], false);
    assert_eq!(half_way(&runs), [(RunId(2), Phase::Interrupted)]);
    run(&runs, Purpose::Apply, &[RunId(2)], false);
    assert_eq!(half_way(&runs), [(RunId(2), Phase::Interrupted), (RunId(3), Phase::Interrupted)]);
    // The machine started anew: what they did is gone.
    assert_eq!(half_way(&Runs::new(directory.path(), Some("another".to_owned()))), []);
    run(&runs, Purpose::Apply, &[RunId(2), RunId(3)], true);
    assert_eq!(half_way(&runs), []);

    // An undo of the last that did not get to its end.
    let undone = runs.find(RunId(4)).unwrap();
    run(&runs, Purpose::Undo(vec![RunId(4)]), &[], false);
    let undo =
        Entry::Undo { step: StepId(1), action: FunctionAction::SetVfCount { pf: pf(0), count: 0 }.into() };
    undone.journal().unwrap().record(&[undo], true).unwrap();
    assert_eq!(half_way(&runs), [(RunId(4), Phase::PartlyTakenBack)]);
}

#[test]
fn a_run_that_was_cut_off_is_half_way_again_when_what_went_on_from_it_is_taken_back() {
    let set = FunctionAction::SetVfCount { pf: pf(0), count: 0 }.into();
    let back = [
        Entry::Undo { step: StepId(1), action: set },
        Entry::Undone { step: StepId(1), error: None, anothers: None },
    ];
    let found = |runs: &Runs| {
        let found = runs.half_way(&runs.list().unwrap().0);
        found.into_iter().map(|(run, phase)| (run.id(), phase)).collect::<Vec<_>>()
    };
    for verdict in
        [Confirmation::Expired, Confirmation::Failed, Confirmation::TakenBack, Confirmation::Confirmed]
    {
        let directory = tempfile::tempdir().unwrap();
        let runs = runs(&directory, "boot");
        run(&runs, Purpose::Apply, &[], false);
        let later = run(&runs, Purpose::Apply, &[RunId(1)], true);
        let decision = Decision { verdict, who: who(), at: 1 };
        decide(&later.directory, decision).unwrap();
        later.journal().unwrap().record(&back[..1], true).unwrap();
        let not_yet = if verdict == Confirmation::Confirmed { vec![] } else { vec![RunId(2)] };
        let ids = |found: Vec<(RunId, Phase)>| found.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(found(&runs)), not_yet, "{verdict:?}: it is being taken back");
        later.journal().unwrap().record(&back, true).unwrap();
        let left =
            if verdict == Confirmation::Confirmed { vec![] } else { vec![(RunId(1), Phase::Interrupted)] };
        assert_eq!(found(&runs), left, "{verdict:?}: all of it is taken back");
    }

    // Undone by hand, and of the earlier one not all could be.
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(&directory, "boot");
    let first = run(&runs, Purpose::Apply, &[], false);
    let later = run(&runs, Purpose::Apply, &[RunId(1)], true);
    run(&runs, Purpose::Undo(vec![RunId(1), RunId(2)]), &[], true);
    later.journal().unwrap().record(&back, true).unwrap();
    let stuck = Entry::Undone { step: StepId(1), error: Some("no luck".to_owned()), anothers: None };
    first.journal().unwrap().record(&[back[0].clone(), stuck], true).unwrap();
    assert_eq!(found(&runs).len(), 1);
    assert_eq!(found(&runs)[0].0, RunId(1));
}

#[test]
fn a_run_that_was_not_confirmed_before_a_reset_has_lapsed_also_when_it_was_being_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let earlier = runs(&directory, "earlier");
    let now = runs(&directory, "now");
    let open = |supersedes: &[RunId]| {
        let run = run(&earlier, Purpose::Apply, supersedes, true);
        let confirm = Some(Confirm { within: 1, at_most: 1 });
        let record = RunRecord { confirm, ..run.record.clone() };
        files::write_atomic(run.directory.join("run.json"), serde_json::to_vec(&record).unwrap()).unwrap();
        let action = FileAction::WriteFile { path: "/etc/made".to_owned(), text: String::new() }.into();
        let inverse = Some(FileAction::RemoveFile { path: "/etc/made".to_owned() }.into());
        let step = StepId(2);
        let entries = [Entry::Intent { step, action, inverse }, Entry::Begun { steps: vec![step] }];
        run.journal().unwrap().record(&entries, true).unwrap();
        run.id()
    };
    let id = open(&[]);
    let verdicts = [
        None,
        Some(Confirmation::Expired),
        Some(Confirmation::Failed),
        Some(Confirmation::TakenBack),
        Some(Confirmation::Confirmed),
    ];
    for verdict in verdicts {
        let found = now.find(id).unwrap();
        let path = found.directory.join("decision.json");
        if let Some(verdict) = verdict {
            let decision = Decision { verdict, who: who(), at: 1 };
            files::write_atomic(path, serde_json::to_vec(&decision).unwrap()).unwrap();
        }
        let found = now.find(id).unwrap();
        let stays = verdict == Some(Confirmation::Confirmed);
        assert_eq!(now.has_lapsed(&found), !stays, "{verdict:?}");
        assert!(!earlier.has_lapsed(&found), "{verdict:?}");
        let half_way = now.half_way(&[found]).len();
        assert_eq!(half_way, usize::from(!stays), "{verdict:?}: whoever goes on goes on from it");
    }

    // What another run has gone on from stays below it.
    let below = open(&[]);
    let all = || now.list().unwrap().0;
    let is_left = || now.is_left(&all(), &now.find(below).unwrap());
    assert!(is_left());
    run(&now, Purpose::Apply, &[below], true);
    assert!(!is_left());
    let back = Entry::Undone { step: StepId(2), error: None, anothers: None };
    now.find(below).unwrap().journal().unwrap().record(&[back], true).unwrap();
    assert_eq!(now.state(&now.find(below).unwrap()).phase, Phase::Nothing);
}

#[test]
fn a_run_for_the_start_that_was_cut_off_is_not_gone_on_with_by_what_is_applied_at_boot() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(&directory, "boot");
    let cut_off = || {
        let found = runs.half_way_to_the_start(&runs.list().unwrap().0);
        found.iter().map(KnownRun::id).collect::<Vec<_>>()
    };
    run(&runs, Purpose::Apply, &[], false);
    run(&runs, Purpose::Persist, &[], true);
    assert_eq!(cut_off(), []);
    run(&runs, Purpose::Persist, &[], false);
    assert_eq!(cut_off(), [RunId(3)]);
    for purpose in [Purpose::Apply, Purpose::Stop] {
        run(&runs, purpose, &[RunId(1), RunId(3)], true);
        assert!(runs.half_way(&runs.list().unwrap().0).is_empty());
        assert_eq!(cut_off(), [RunId(3)]);
    }
    run(&runs, Purpose::Persist, &[], true);
    assert_eq!(cut_off(), []);
}

#[test]
fn of_a_damaged_run_all_that_was_not_surely_taken_back_may_be_there() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(&directory, "boot");
    let run = run(&runs, Purpose::Apply, &[], true);
    let step = |id: u32| Step {
        id: StepId(id),
        action: FunctionAction::SetVfCount { pf: pf(id as usize), count: 8 }.into(),
        reason: String::new(),
        needs: Vec::new(),
        inverse: Some(FunctionAction::SetVfCount { pf: pf(id as usize), count: 0 }.into()),
        postcondition: Fact::VfCount { pf: pf(id as usize), count: 8 },
        best_effort: false,
        guest: None,
    };
    let plan = Plan { steps: vec![step(1), step(2)], ..Plan::default() };
    files::write_atomic(run.directory.join("plan.json"), serde_json::to_vec(&plan).unwrap()).unwrap();
    let path = run.directory.join("journal");
    let text = files::read_to_string(&path).unwrap();
    // What each line says may be what is lost; the last one is cut off and not damaged.
    let lines: Vec<&str> = text.lines().collect();
    for damaged in 0..lines.len() {
        let mut lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
        lines[damaged].insert_str(0, "{\"ent");
        files::write_atomic(&path, lines.concat()).unwrap();
        let state = runs.state(&run);
        assert_eq!(state.phase, Phase::Damaged, "line {damaged}");
        assert!(state.damage.as_ref().is_some_and(|why| why.contains(&format!("line {}", damaged + 1))));
        assert_eq!(state.standing().map(|(step, _)| step).collect::<Vec<_>>(), [StepId(1), StepId(2)]);
        // With the machine all of it is gone.
        assert_eq!(Runs::new(directory.path(), Some("another".to_owned())).state(&run).phase, Phase::Nothing);
    }
    // Taken back, it is only a run with damage.
    let back = (1..=2).map(|step| Entry::Undone { step: StepId(step), error: None, anothers: None });
    run.journal().unwrap().record(&back.collect::<Vec<_>>(), true).unwrap();
    let state = runs.state(&run);
    assert_eq!((state.phase, state.damage.is_some()), (Phase::Nothing, true));
    // Without its plan nobody can tell.
    files::write_atomic(run.directory.join("plan.json"), "{").unwrap();
    assert_eq!(runs.state(&run).phase, Phase::Damaged);
    assert!(runs.applied_run(&run).is_err());
}

#[test]
fn what_is_damaged_beside_a_run_hides_no_run() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(&directory, "boot");
    let run = run(&runs, Purpose::Apply, &[], true);
    for name in ["outcome.json", "decision.json"] {
        files::write_atomic(run.directory.join(name), "{").unwrap();
    }
    let (all, unreadable) = runs.list().unwrap();
    assert_eq!((all.len(), unreadable.len(), all[0].damage.len()), (1, 0, 2));
    let ours = Decision { verdict: Confirmation::TakenBack, who: who(), at: 1 };
    assert_eq!(decide(&run.directory, ours.clone()).unwrap(), ours);
    assert_eq!(runs.find(run.id()).unwrap().decision, Some(ours));
}

#[test]
fn of_all_that_decide_at_once_one_does() {
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let decide = |verdict| {
            let decision = Decision { verdict, who: who(), at: 0 };
            decide(directory.path(), decision).unwrap().verdict
        };
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| decide(Confirmation::Confirmed));
            let other = scope.spawn(|| decide(Confirmation::Expired));
            (one.join().unwrap(), other.join().unwrap())
        });
        assert_eq!(one, other);
        assert_eq!(decide(Confirmation::TakenBack), one);
        assert_eq!(files::list(directory.path()).unwrap(), ["decision.json"]);
    }
}

#[test]
fn old_runs_are_forgotten_and_one_that_could_be_taken_back_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let now = runs(&directory, "now");
    // Two that stand, then many of an earlier boot.
    run(&now, Purpose::Apply, &[], true);
    let open = RunRecord {
        confirm: Some(Confirm { within: 1, at_most: 1 }),
        ..RunRecord::new(Purpose::Apply, who())
    };
    now.create(open, &Plan::default(), None).unwrap();
    let earlier = runs(&directory, "earlier");
    for _ in 2..KEPT + 5 {
        run(&earlier, Purpose::Apply, &[], true);
    }
    let all = || now.list().unwrap().0;
    assert_eq!(now.prune(&all()).unwrap(), []);
    let left = all();
    assert_eq!(left.len(), KEPT);
    assert_eq!([left[0].id(), left[1].id(), left[2].id()], [RunId(1), RunId(2), RunId(8)]);
    for _ in 0..KEPT_AT_MOST - KEPT + 1 {
        run(&now, Purpose::Apply, &[], true);
    }
    assert_eq!(now.prune(&all()).unwrap(), [RunId(1)]);
    // One that waits to be confirmed is never forgotten.
    assert_eq!(all()[0].id(), RunId(2));
}

#[test]
fn a_run_that_ends_while_it_is_looked_at_was_not_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(&directory, "boot");
    let confirm = Some(Confirm { within: 1, at_most: 1 });
    let record = RunRecord { confirm, ..RunRecord::new(Purpose::Apply, who()) };
    runs.create(record, &Plan::default(), None).unwrap();
    let seen = runs.list().unwrap().0.remove(0);
    assert_eq!(runs.undecided(&seen), Some(Undecided::CutOff));
    // It was read before its end, and its process is gone by the time that it is asked for.
    seen.end(&Outcome { ended: 1, boottime: 1, error: None }).unwrap();
    assert!(seen.outcome.is_none());
    assert_eq!(runs.undecided(&seen), Some(Undecided::Waits));
}
