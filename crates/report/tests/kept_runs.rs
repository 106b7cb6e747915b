//! Real runs of the examples on boards, redacted and without their serial logs, each compared with itself and with itself after
//! one thing got worse. `tests/kept/NAME.json` is the evidence that `penstock rehearse examples/NAME.yaml` left.
#![allow(clippy::disallowed_methods, reason = "a test reads its own files")]

use std::{fs, path::Path};

use penstock_model::{
    Outcome, Verdict,
    measurement::{
        Conclusion, Status,
        run_comparison::{RunComparison, Turn},
    },
};
use penstock_report::{Evidence, compare};

/// Every kept run with its name.
fn kept() -> Vec<(String, Evidence)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept");
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8, "{files:?}");
    let read = |path: &Path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let evidence = Evidence::from_json(&fs::read_to_string(path).unwrap());
        (name.clone(), evidence.unwrap_or_else(|error| panic!("{name}: {error:?}")))
    };
    files.iter().map(|path| read(path)).collect()
}

fn compared(a: &Evidence, b: &Evidence) -> RunComparison {
    compare::compare(a, b, None, Vec::new())
}

#[test]
fn a_run_against_itself_is_empty() {
    for (name, run) in kept() {
        assert!(!run.verdicts.is_empty() && !run.steps.is_empty(), "{name}");
        let comparison = compared(&run, &run);
        assert_eq!(comparison.turns().collect::<Vec<_>>(), Vec::<&Turn>::new(), "{name}");
        assert!(comparison.is_paired() && !comparison.got_worse(), "{name}: {:?}", comparison.unpaired);
        assert!(
            compare::summary(&comparison).contains("Nothing got worse: all of it is as it was"),
            "{name}"
        );
    }
}

#[test]
fn the_keys_of_a_real_run_need_no_numbers() {
    for (name, run) in kept().into_iter().filter(|(_, run)| run.has_keys()) {
        let numbered = |verdict: &&Verdict| verdict.item.as_ref().is_some_and(|item| item.ends_with(')'));
        assert_eq!(run.verdicts.iter().find(numbered), None, "{name}: two verdicts were given the same key");
    }
}

#[test]
fn each_verdict_of_each_run_is_missed_when_it_turns_and_when_it_is_gone() {
    for (name, run) in kept() {
        let run = Evidence { steps: Vec::new(), measurements: None, ..run };
        for at in 0..run.verdicts.len() {
            let was = &run.verdicts[at];
            for outcome in [Outcome::Fail, Outcome::Unknown, Outcome::Unsupported] {
                let mut all: Vec<Verdict> = run.verdicts.iter().cloned().collect();
                (all[at].outcome, all[at].seen) = (outcome, "otherwise".to_owned());
                let now = all[at].clone();
                let turned = Evidence { verdicts: all.into_iter().collect(), ..run.clone() };
                let turns = compared(&run, &turned);
                if (now.outcome, now.holds()) == (was.outcome, was.holds()) {
                    assert!(turns.verdicts.is_empty(), "{name}: {} was so before", was.key());
                    continue;
                }
                let expected = format!("{}, seen from {}", was.key(), was.vantage);
                let found: Vec<&str> = turns.verdicts.iter().map(|turn| turn.what.as_str()).collect();
                assert_eq!(found, [expected.as_str()], "{name}: {outcome}");
                let worse =
                    was.outcome == Outcome::Pass || !now.holds() && was.holds() || outcome == Outcome::Fail;
                assert_eq!(turns.got_worse(), worse, "{name}: {} {} -> {outcome}", was.key(), was.outcome);
                assert!(!compared(&turned, &run).verdicts.is_empty(), "and the other way round");
            }
            let mut all: Vec<Verdict> = run.verdicts.iter().cloned().collect();
            all.remove(at);
            let gone = Evidence { verdicts: all.into_iter().collect(), ..run.clone() };
            let comparison = compared(&run, &gone);
            assert!(
                comparison.verdicts.len() == 1 && comparison.verdicts[0].b.is_none(),
                "{name}: {}",
                was.key()
            );
            assert_eq!(comparison.got_worse(), was.holds(), "{name}: {} is not known any more", was.key());
            assert!(!comparison.is_paired());
        }
    }
}

#[test]
fn each_step_of_each_run_is_missed_when_it_fails() {
    for (name, run) in kept() {
        // One that failed in the real run cannot get worse.
        for at in (0..run.steps.len()).filter(|at| run.steps[*at].outcome.holds()) {
            let mut failed = run.clone();
            failed.steps[at].outcome = penstock_report::StepOutcome::Failed;
            let comparison = compared(&run, &failed);
            assert!(comparison.got_worse(), "{name}: {}", run.steps[at].what);
            let step = format!("step: {}", run.steps[at].what);
            assert!(comparison.outcomes.iter().any(|turn| turn.what == step && turn.worse), "{name}: {step}");
        }
    }
}

#[test]
fn what_was_measured_in_a_real_run_holds_though_the_time_was_short() {
    let runs = kept();
    let of = |name: &str| runs.iter().find(|(known, _)| known == name).map(|(_, run)| run.clone()).unwrap();
    let run = of("containers-measured");
    let measured = run.measurements.as_ref().unwrap();
    let counts = measured.counts();
    assert!(counts.measured > 0 && counts.not_reached > 0 && counts.missing == 0, "{counts:?}");
    assert!(run.holds() && run.run.exit == Some(0));
    assert!(penstock_report::sentence(&run).starts_with("Stopped as asked after "));
    for ruling in &measured.rulings {
        assert!(matches!(ruling.told, Conclusion::Holds | Conclusion::NotMeasured), "{ruling:?}");
    }
    for cell in &measured.cells {
        assert!(!matches!(&cell.status, Status::Missing { cut_short: None, .. }), "{}", cell.id);
    }
}
