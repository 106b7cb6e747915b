//! What a good model warns of reaches the user's standard error, whichever verb reads it, and once.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use penstock_testkit::{binary::Run, models};

/// It warns of `p`, which is named twice.
const WARNS: &str = "nics: {NET0: {vfs: 2}}\nguests:\n  p: {functions: [NET0#0]}\n  q: {functions: [NET0#1], after: [p, p]}\n";
/// Where that is, and the line under it.
const PLACE: &str = "m.yaml:4:39\n";
const CARET: &str = "   |                                       ^\n";

fn penstock(directory: &Path, arguments: &[&str]) -> Run {
    // What is remembered of this machine is none of the test's business.
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.current_dir(directory).env("NO_COLOR", "1").env("XDG_CACHE_HOME", directory.join("cache"));
    for name in ["PENSTOCK_STATE", "PENSTOCK_JOURNAL"] {
        command.env(name, directory.join("state"));
    }
    command.args(arguments).output().unwrap().into()
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden")
}

/// Each model that is good and warns, with its warnings as they are shown.
fn warning_models() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for case in fs::read_dir(golden()).unwrap() {
        let case = case.unwrap().path();
        let expected = fs::read_to_string(case.join("expected.txt")).unwrap();
        if expected.starts_with("warning: ") && case.display().to_string().contains("/good-") {
            let (warnings, _) = expected.split_once("\n{\n").expect("the model follows the warnings");
            found.push((case, format!("{warnings}\n")));
        }
    }
    found
}

#[test]
fn every_warning_of_the_model_reaches_standard_error() {
    let cases = warning_models();
    assert!(cases.len() >= 8, "{} models with warnings", cases.len());
    for (case, warnings) in cases {
        let run = penstock(&case, &["check", "model.yaml"]);
        assert_eq!((run.status, run.stderr.as_str()), (0, warnings.as_str()), "{}", case.display());
        let strict = penstock(&case, &["check", "--strict", "model.yaml"]);
        assert_eq!((strict.status, strict.stdout.as_str()), (2, ""), "{}", case.display());
        let errors = warnings.replace("warning: ", "error: ");
        assert!(strict.stderr.starts_with(&errors), "{}: {}", case.display(), strict.stderr);
        assert!(strict.stderr.contains("`--strict`"), "{}", strict.stderr);
    }
}

/// Every verb that reads a model, on a machine that has none of it.
#[test]
fn every_verb_that_reads_a_model_prints_its_warnings_once() {
    let directory = models::beside_a_machine("m.yaml", WARNS);
    let here = directory.path();
    let verbs: [&[&str]; 16] = [
        &["check", "m.yaml"],
        &["check", "m.yaml", "--json"],
        &["check", "m.yaml", "--inventory", "machine.json"],
        &["plan", "m.yaml", "--inventory", "machine.json"],
        &["generate", "m.yaml"],
        &["export", "m.yaml", "--to", "networkd", "--inventory", "machine.json"],
        &["plan", "m.yaml"],
        &["apply", "m.yaml"],
        &["verify", "m.yaml"],
        &["verify", "m.yaml", "--watch", "--for", "10ms"],
        &["start", "m.yaml"],
        &["stop", "m.yaml"],
        &["measure", "m.yaml", "--quiet"],
        &["audit", "m.yaml"],
        &["rehearse", "m.yaml", "--output", "."],
        &["board", "up", "m.yaml", "--inventory", "none.json"],
    ];
    for verb in verbs {
        let run = penstock(here, verb);
        let said = run.stderr.matches("warning: q names p twice").count();
        assert_eq!(said, 1, "{verb:?}: {}", run.stderr);
        assert!(run.stderr.contains(PLACE) && run.stderr.contains(CARET), "{verb:?}: {}", run.stderr);
        let strict = penstock(here, &[verb, &["--strict"]].concat());
        assert_eq!(strict.status, 2, "{verb:?}: {}", strict.stderr);
        // As data they are in the document, and nowhere else.
        if verb.contains(&"--json") {
            for (printed, severity) in [(&run.stdout, "warning"), (&strict.stdout, "error")] {
                let document = penstock_testkit::json::read(printed).unwrap();
                let found = &document["files"][0]["diagnostics"][0];
                assert_eq!(found["severity"], severity, "{document}");
                assert!(found["message"].as_str().unwrap().contains("q names p twice"), "{document}");
            }
        } else {
            assert!(!run.stdout.contains("twice"), "{verb:?}: {}", run.stdout);
            assert_eq!(strict.stdout, "", "{verb:?}");
        }
        assert!(strict.stderr.contains("error: q names p twice"), "{verb:?}: {}", strict.stderr);
    }
}

/// For other machines it is said here, before anybody is logged in anywhere, and so refused, too.
#[test]
fn a_model_for_another_machine_prints_its_warnings_here() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    fs::write(here.join("m.yaml"), WARNS).unwrap();
    fs::write(here.join("ssh"), "Host nowhere\n  ProxyCommand false\n").unwrap();
    let run = penstock(here, &["check", "m.yaml", "--host", "nowhere", "--ssh-config", "ssh"]);
    assert_ne!(run.status, 0, "{}", run.stderr);
    assert_eq!(run.stderr.matches("warning: q names p twice").count(), 1, "{}", run.stderr);
    let run = penstock(here, &["check", "m.yaml", "--strict", "--host", "nowhere", "--ssh-config", "ssh"]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(!run.stderr.contains("nowhere"), "{}", run.stderr);
}
