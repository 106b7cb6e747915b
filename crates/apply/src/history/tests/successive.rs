//! Runs that go on from others.

use penstock_host::running::Running;

use super::*;
use crate::history::{
    decision::{Confirmation, Decision},
    record::{Confirm, Outcome, Purpose, RunRecord, Who},
    store::KnownRun,
    succession::{Successors, has_gone_on_from, successors},
};

/// How a run came out.
#[derive(Clone, Copy, PartialEq)]
enum Came {
    /// It was killed, and its process has told nothing more.
    CutOff,
    Well,
    Failed,
}

/// The run `id`, which went on from `supersedes`.
fn run(id: u32, purpose: Purpose, supersedes: &[u32], came: Came) -> KnownRun {
    let process = Running { id: 1, started: u64::MAX };
    let (user, command) = ("mara".to_owned(), vec!["penstock".to_owned()]);
    let who = Who { process, user, command, since: 0, terminal: None, peer: None };
    let record = RunRecord {
        id: RunId(id),
        supersedes: supersedes.iter().copied().map(RunId).collect(),
        ..RunRecord::new(purpose, who)
    };
    let error = (came == Came::Failed).then(|| "no luck".to_owned());
    let outcome = (came != Came::CutOff).then_some(Outcome { ended: 1, boottime: 1, error });
    KnownRun { record, outcome, decision: None, directory: "/nowhere".into(), damage: Vec::new() }
}

#[test]
fn a_run_is_built_upon_by_one_that_went_on_from_it_and_came_to_something() {
    let ours = || run(12, Purpose::Apply, &[], Came::Well);
    let apply = |id, from: &[u32], came| run(id, Purpose::Apply, from, came);
    let undo = || run(13, Purpose::Undo(vec![RunId(12)]), &[], Came::CutOff);
    let standing =
        [Phase::Applied, Phase::AppliedInPart, Phase::Interrupted, Phase::PartlyTakenBack, Phase::Damaged];
    let cases = [
        ("nobody came", vec![], vec![Phase::Nothing], false),
        ("its own undo, which is no run of somebody else's", vec![undo()], standing.to_vec(), false),
        ("it failed, and was taken back", vec![apply(13, &[12], Came::Failed)], vec![Phase::Nothing], false),
        (
            "it never began: a full disk, no guard",
            vec![apply(13, &[12], Came::CutOff)],
            vec![Phase::Nothing],
            false,
        ),
        ("something of it stands", vec![apply(13, &[12], Came::Failed)], standing.to_vec(), true),
        ("it was cut off", vec![apply(13, &[12], Came::CutOff)], standing.to_vec(), true),
        ("all was so already", vec![apply(13, &[12], Came::Well)], vec![Phase::Nothing], true),
        ("it has nothing to do with ours", vec![apply(13, &[], Came::Well)], standing.to_vec(), false),
        ("an earlier one", vec![apply(11, &[12], Came::Well)], standing.to_vec(), false),
        (
            "through one that came to nothing",
            vec![apply(13, &[12], Came::Failed), apply(14, &[13], Came::Well)],
            vec![Phase::Nothing],
            true,
        ),
    ];
    for (what, others, phases, wanted) in cases {
        let all: Vec<KnownRun> = [ours()].into_iter().chain(others).collect();
        for phase in phases {
            let found = successors(&all, RunId(12), |run| {
                if run.id() == RunId(12) { Phase::PartlyTakenBack } else { phase }
            });
            assert_eq!(found, if wanted { Successors::Stand } else { Successors::None }, "{what}: {phase:?}");
        }
    }
}

#[test]
fn many_runs_that_each_went_on_from_all_before_are_looked_through_once() {
    let all: Vec<KnownRun> =
        (1..=200).map(|id| run(id, Purpose::Apply, &(2..id).collect::<Vec<_>>(), Came::CutOff)).collect();
    assert!(has_gone_on_from(&all, RunId(200), RunId(2)));
    assert!(!has_gone_on_from(&all, RunId(200), RunId(1)));
    assert!(!has_gone_on_from(&all, RunId(2), RunId(200)) && !has_gone_on_from(&all, RunId(2), RunId(2)));
}

#[test]
fn a_run_that_may_still_be_taken_back_by_its_guard_is_not_yet_built_upon() {
    let verdicts =
        [None, Some(Confirmation::Confirmed), Some(Confirmation::Expired), Some(Confirmation::TakenBack)];
    let wanted = [
        // Something of it stands, or nothing does.
        (Successors::Undecided, Successors::Stand),
        (Successors::Stand, Successors::Stand),
        (Successors::Undecided, Successors::None),
        (Successors::Undecided, Successors::None),
    ];
    for (verdict, (left, nothing)) in verdicts.into_iter().zip(wanted) {
        let mut later = run(13, Purpose::Apply, &[12], Came::Well);
        later.record.confirm = Some(Confirm { within: 1, at_most: 1 });
        let who = later.record.who.clone();
        later.decision = verdict.map(|verdict| Decision { verdict, who, at: 1 });
        let all = [run(12, Purpose::Apply, &[], Came::Well), later];
        assert_eq!(successors(&all, RunId(12), |_| Phase::Applied), left);
        assert_eq!(successors(&all, RunId(12), |_| Phase::Nothing), nothing);
    }
}
