//! `packaging/ci/rehearse-change`, as continuous integration runs it on a change of a model: rehearsals are recorded ones, all else is as it is.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use penstock_testkit::{binary::Run, script};
use tempfile::TempDir;

/// A model whose comment says how its rehearsal ends; one that begins otherwise is a good one.
fn model(how: &str) -> String {
    format!("nics: {{NET0: {{vfs: 2}}}}\n# {how}\n")
}

/// Stands for `penstock`: only `rehearse` is not the real one.
fn stub(evidence: &Path) -> String {
    format!(
        r##"#!/bin/sh
[ "$1" = rehearse ] || exec '{binary}' "$@"
[ "$2" = --output ] || exit 2
if grep -q 'no board' "$4"; then echo 'error: no board can be made here' >&2; exit 4; fi
mkdir -p "$3"
echo "# The run of this model" >"$3/report.md"
if grep -q worse "$4"; then
    sed '0,/"outcome": "pass"/s//"outcome": "fail"/' '{evidence}' >"$3/evidence.json"
    # The second verdict is about a NIC.
    ! grep -q 'NET0 worse' "$4" || sed -i '0,/"outcome": "pass"/s//"outcome": "fail"/' "$3/evidence.json"
    exit 1
fi
cp '{evidence}' "$3/evidence.json"
"##,
        binary = env!("CARGO_BIN_EXE_penstock"),
        evidence = evidence.display()
    )
}

/// A repository whose model was changed.
struct Repository(TempDir);

impl Repository {
    fn new(before: Option<&str>, after: &str) -> Repository {
        let repository = Repository(tempfile::tempdir().unwrap());
        let evidence = Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/tests/golden/small.json");
        script::write(repository.at("penstock"), stub(&evidence));
        fs::create_dir_all(repository.at("clone/models")).unwrap();
        repository.git(&["init", "--quiet"]);
        for (name, text) in [("base", before), ("change", Some(after))] {
            if let Some(text) = text {
                fs::write(repository.at("clone/models/machine.yaml"), text).unwrap();
            }
            repository.git(&["add", "--all"]);
            repository.git(&["commit", "--quiet", "--allow-empty", "--message", name]);
            repository.git(&["tag", name]);
        }
        repository
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.at("clone")).env("PENSTOCK", self.at("penstock")).env("HOME", self.0.path());
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@example.org");
        }
        command.env_remove("GITHUB_ACTIONS").env_remove("GITLAB_CI");
        command
    }

    fn git(&self, words: &[&str]) -> String {
        let run = Run::from(self.command("git").args(words).output().unwrap());
        assert_eq!(run.status, 0, "{words:?}: {}", run.stderr);
        run.stdout
    }

    /// The script, on the model and this commit.
    fn script(&self, base: &str, setting: Option<(&str, &str)>) -> Run {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/ci/rehearse-change");
        let mut command = self.command(script.to_str().unwrap());
        command.args(["models/machine.yaml", base]).envs(setting).output().unwrap().into()
    }

    /// What GitLab is given for the lines of a merge request.
    fn code_quality(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.at("clone/rehearsal/code-quality.json")).unwrap()).unwrap()
    }

    /// What the script says of the change, after that it left nothing but its directory.
    fn rehearsed(&self, setting: Option<(&str, &str)>) -> (Run, String) {
        let run = self.script("base", setting);
        assert_eq!(self.git(&["worktree", "list"]).lines().count(), 1);
        assert_eq!(self.git(&["status", "--porcelain"]), "?? rehearsal/\n");
        (run, fs::read_to_string(self.at("clone/rehearsal/summary.md")).unwrap())
    }
}

#[test]
fn a_change_that_makes_nothing_worse_ends_well() {
    let repository = Repository::new(Some(&model("as it was")), &model("other words"));
    let (run, summary) = repository.rehearsed(None);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(summary.contains("Nothing got worse") && !summary.contains("The run of this model"), "{summary}");
    assert_eq!(run.stdout, summary);
    // What is there already is not taken for this run's.
    let again = repository.script("base", None);
    assert_eq!(again.status, 2);
    assert!(again.stderr.contains("rehearsal/after is there already"), "{}", again.stderr);
}

#[test]
fn a_change_that_makes_something_worse_ends_as_its_rehearsal_does() {
    let repository = Repository::new(Some(&model("as it was")), &model("worse"));
    let (run, summary) = repository.rehearsed(None);
    assert_eq!(run.status, 1, "{}", run.stderr);
    assert!(!summary.contains("Nothing got worse"), "{summary}");
    assert!(summary.contains("The run of this model"), "{summary}");
    // What was wrong before is no fault of the change.
    let (run, summary) = Repository::new(Some(&model("worse")), &model("mended")).rehearsed(None);
    assert_eq!(run.status, 0, "{summary}");
}

#[test]
fn a_model_that_is_new_or_could_not_be_rehearsed_before_is_told_alone() {
    let (run, summary) = Repository::new(None, &model("new")).rehearsed(None);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(
        summary.starts_with("base has no models/machine.yaml.") && summary.contains("The run of this model")
    );
    let (run, summary) = Repository::new(Some(&model("no board")), &model("mended")).rehearsed(None);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let told = "The model of base cannot be rehearsed: `error: no board can be made here`";
    assert!(summary.starts_with(told), "{summary}");
}

#[test]
fn a_model_that_is_wrong_is_not_rehearsed() {
    let repository = Repository::new(Some(&model("as it was")), "nisc: {}\n");
    let (run, summary) = repository.rehearsed(None);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(summary.contains("nothing was rehearsed") && summary.contains("nisc"), "{summary}");
    assert!(!repository.at("clone/rehearsal/after").exists());
    let (run, _) = Repository::new(None, "nisc: {}\n").rehearsed(Some(("GITHUB_ACTIONS", "true")));
    assert_eq!(run.status, 2);
    assert!(run.stdout.contains("::error file=models/machine.yaml,line=1"), "{}", run.stdout);
    let repository = Repository::new(None, "nisc: {}\n");
    let (run, summary) = repository.rehearsed(Some(("GITLAB_CI", "true")));
    assert!(run.status == 2 && summary.contains("nisc"), "{summary}");
    assert_eq!(repository.code_quality()[0]["location"]["path"], "models/machine.yaml");
    // No board: its own words and its status.
    let (run, summary) = Repository::new(None, &model("no board")).rehearsed(None);
    assert_eq!(run.status, 4);
    assert!(
        summary.contains("left no evidence") && summary.contains("no board can be made here"),
        "{summary}"
    );
}

/// What does not hold on the board stands at the line of the model that it is about.
#[test]
fn verdicts_that_fail_are_annotations_in_a_workflow_and_none_elsewhere() {
    let worse = || Repository::new(Some(&model("as it was")), &model("worse"));
    let (run, _) = worse().rehearsed(Some(("GITHUB_ACTIONS", "true")));
    assert_eq!(run.status, 1, "{}", run.stderr);
    let annotations: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with("::")).collect();
    // The recorded run's first verdict is about the machine, of which the model says nothing.
    let wanted =
        "::error file=models/machine.yaml,title=machine iommu::machine iommu: fail: wanted on, seen on";
    assert_eq!(annotations, [wanted]);
    let (run, _) = Repository::new(None, &model("NET0 worse")).rehearsed(Some(("GITHUB_ACTIONS", "true")));
    let annotations: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with("::")).collect();
    assert!(annotations.len() == 2 && annotations[1].contains(",line=1,title=NET0 "), "{annotations:?}");

    let repository = worse();
    let (run, summary) = repository.rehearsed(Some(("GITLAB_CI", "true")));
    assert_eq!((run.status, run.stdout), (1, summary));
    assert_eq!(repository.code_quality(), serde_json::json!([]));
}

/// By fingerprints GitLab tells what is new.
#[test]
fn a_line_above_a_finding_leaves_its_fingerprint_as_it_is() {
    let wrong = "nics:\n  NET0: {vfs: 2, vsf: 1}\n  NET1: {vfs: 2, vsf: 1}\n";
    let found = |text: &str| {
        let repository = Repository::new(None, text);
        assert_eq!(repository.rehearsed(Some(("GITLAB_CI", "true"))).0.status, 2);
        let report = repository.code_quality();
        let of = |pointer: &str| -> Vec<serde_json::Value> {
            report.as_array().unwrap().iter().map(|found| found.pointer(pointer).unwrap().clone()).collect()
        };
        (of("/location/lines/begin"), of("/description"), of("/fingerprint"))
    };
    let (lines, texts, before) = found(wrong);
    let (below, _, after) = found(&format!("# one more\n{wrong}"));
    assert_eq!((lines, below), (vec![2.into(), 3.into()], vec![3.into(), 4.into()]));
    assert_eq!(before, after);
    assert!(
        texts[0] == texts[1] && before[0] != before[1],
        "of two that are equal both are shown: {texts:?}"
    );
}

#[test]
fn a_commit_that_is_not_there_is_named() {
    let repository = Repository::new(None, &model("new"));
    let run = repository.script("none", None);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("none is no commit of this repository"), "{}", run.stderr);
    assert!(!repository.at("clone/rehearsal").exists());
}
