//! The recorded session of the tutorial (`make recording`) is one with this program: its commands are there, `check` prints what the recording
//! shows, and the verdict of `rehearse` is worded as it is there. Of `verify` the counts are compared with that; what the others print, with nothing.
#![allow(clippy::disallowed_methods)]

use std::{collections::BTreeMap, path::Path};

use penstock_model::{
    Outcome, Verdict, Verdicts,
    verdict::{Subject, Vantage},
};
use penstock_report::{Evidence, Machine, summary};
use penstock_testkit::binary::run_built;

/// What to do where the program prints something else than the recording shows.
const REMEDY: &str = "the program prints something else than docs/pictures/first-steps.cast shows. Record it anew (`make recording`); or change \
    the words in the cast's line by hand and run `UPDATE_GOLDEN=1 cargo test -p penstock-docs --test recording`, which needs no board";

/// The commands of the session, and what each printed.
fn session() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/first-steps.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut session: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("$ ") {
            Some(remark) if remark.starts_with("# ") => {}
            Some(command) => session.push((command.to_owned(), String::new())),
            None => {
                let (_, printed) = session.last_mut().expect("a command before what it prints");
                *printed += line;
                printed.push('\n');
            }
        }
    }
    session
}

/// What the session's command that begins so printed.
fn printed(command: &str) -> String {
    let found = session().into_iter().find(|(typed, _)| typed.starts_with(command));
    found.unwrap_or_else(|| panic!("the session has no `{command}`")).1
}

#[test]
fn each_command_of_the_session_is_one_that_the_program_takes() {
    let session = session();
    let verbs: Vec<&str> =
        ["check", "rehearse", "board up", "apply", "confirm", "verify", "undo", "board down"].into();
    assert_eq!(session.len(), verbs.len(), "{session:?}");
    for ((command, _), verb) in session.iter().zip(verbs) {
        // The last of them is what is meant: `penstock board ssh NAME penstock VERB ...` runs it on the board.
        for (at, _) in command.match_indices("penstock ") {
            if let Err(error) = penstock_cli::command().try_get_matches_from(command[at..].split(' ')) {
                panic!("`{command}` is no command any more: record it anew with `make recording`: {error}");
            }
        }
        let last = command.rsplit("penstock ").next().unwrap();
        assert!(last.starts_with(verb), "{command}: {verb}");
    }
}

#[test]
fn a_check_prints_what_the_session_shows() {
    let directory = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    std::os::unix::fs::symlink(examples, directory.path().join("examples")).unwrap();
    let run =
        run_built(env!("CARGO_BIN_EXE_penstock"), directory.path(), &["check", "examples/smallest.yaml"]);
    assert_eq!(printed("penstock check"), run.stdout, "{REMEDY}");
}

/// A run on a board whose verdicts all pass, so many of each subject.
fn holding(machine: &str, passing: &BTreeMap<&str, usize>) -> Evidence {
    let verdict = |subject: &str, at: usize| Verdict {
        subject: match subject.starts_with("NET") {
            true => Subject::Nic(subject.parse().unwrap()),
            false => Subject::Guest(subject.parse().unwrap()),
        },
        attribute: format!("attribute-{at}"),
        item: None,
        vantage: Vantage::Host,
        wanted: String::new(),
        seen: String::new(),
        outcome: Outcome::Pass,
        best_effort: false,
        out_of_sight: false,
        emulated: false,
    };
    let all = passing.iter().flat_map(|(subject, count)| (0..*count).map(|at| verdict(subject, at)));
    Evidence {
        machine: Machine { name: machine.to_owned(), emulated: true, ..Machine::default() },
        verdicts: all.collect::<Verdicts>(),
        ..Evidence::default()
    }
}

/// "  NET0   4 pass" and its like: how many of what.
fn passing(printed: &str) -> BTreeMap<&str, usize> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix("  ")?.strip_suffix(" pass"));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, count)| (name.trim(), count.parse().unwrap()))
        .collect()
}

#[test]
fn the_verdict_of_the_session_is_worded_as_the_program_words_it() {
    let printed = printed("penstock rehearse");
    let passing = passing(&printed);
    assert_eq!(passing.keys().copied().collect::<Vec<_>>(), ["NET0", "alpha"]);
    let evidence = holding("smallest", &passing);
    let summary = summary(&evidence);
    assert!(summary.contains("\nHolds: "), "{summary}");
    let (_, after) = printed.split_once("smallest (emulated)\n").unwrap();
    let (shown, report) = after.split_once("report: ").unwrap();
    assert_eq!(format!("smallest (emulated)\n{shown}"), summary, "{REMEDY}");
    assert!(report.starts_with("runs/smallest-") && report.ends_with("/report.html\n"), "{report}");

    let verified = session().into_iter().find(|(command, _)| command.contains("penstock verify")).unwrap();
    let count = |outcome| evidence.verdicts.iter().filter(|verdict| verdict.outcome == outcome).count();
    let counts = [Outcome::Pass, Outcome::Fail, Outcome::Unsupported, Outcome::Unknown]
        .map(|outcome| format!("{} {outcome}", count(outcome)));
    assert_eq!(verified.1, format!("{}\n", counts.join(", ")), "{REMEDY}");
}
