//! What `packaging/ci` does beside rehearsing: where a comparison fails, and how the comment comes to a pull request.
//! `crates/cli/tests/change_in_ci.rs` has the rest.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use penstock_testkit::{binary::Run, script};
use tempfile::TempDir;

fn template(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/ci").join(name)
}

/// A directory with a program in it, which notes nothing by itself.
fn with_program(name: &str, text: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    script::write(directory.path().join(name), format!("#!/bin/sh\n{text}\n"));
    directory
}

/// Ends its rehearsals with `status`, and can compare none.
fn penstock(status: i32) -> String {
    format!(
        "case $1 in
rehearse) mkdir -p \"$3\" && echo '{{}}' >\"$3/evidence.json\" && echo '# The run' >\"$3/report.md\" && exit {status} ;;
report) echo 'error: the disk is full' >&2; exit 70 ;;
esac"
    )
}

/// The script on a model that was changed, in a repository where `break_it` was run; how it ended, and its summary.
fn compared(status: i32, break_it: &str) -> (Run, String) {
    let directory = with_program("penstock", &penstock(status));
    let prepare = "git init --quiet clone && cd clone && echo a >machine.yaml && git add . && git commit --quiet --message a && git tag base";
    let line = format!(
        "{prepare} && {break_it} && exec '{}' machine.yaml base",
        template("rehearse-change").display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(&directory).env("PENSTOCK", directory.path().join("penstock"));
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@example.org");
    }
    let run = Run::from(command.env_remove("GITHUB_ACTIONS").output().unwrap());
    let summary = fs::read_to_string(directory.path().join("clone/rehearsal/summary.md")).unwrap();
    (run, summary)
}

#[test]
fn runs_that_cannot_be_compared_end_as_the_rehearsal_does_and_never_well() {
    // A file in the place of the directory in which git notes worktrees.
    for (break_it, said) in [("true", "the disk is full"), ("touch .git/worktrees", "worktrees")] {
        for (rehearsed, ends) in [(0, 8), (1, 1), (7, 7)] {
            let (run, summary) = compared(rehearsed, break_it);
            assert_eq!(run.status, ends, "{}", run.stderr);
            assert!(summary.starts_with("What the change does was not found out:"), "{summary}");
            assert!(summary.contains(said) && summary.contains("# The run"), "{summary}");
        }
    }
}

#[test]
fn what_an_earlier_run_has_left_decides_nothing() {
    let prepare = "mkdir rehearsal && for log in check after git before report; do echo stale >rehearsal/$log.log; done";
    let unknown = "git rm --quiet machine.yaml && git commit --quiet --message b && git tag --force base >/dev/null && echo b >machine.yaml";
    let (run, summary) = compared(0, &format!("{prepare} && {unknown}"));
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(summary.starts_with("base has no machine.yaml.") && !summary.contains("stale"), "{summary}");
}

/// The commands of the step of the workflow that comments.
fn commenting() -> String {
    let workflow = fs::read_to_string(template("github.yaml")).unwrap();
    let step = workflow.split("- name: Summarise\n").nth(1).expect("a step that summarises");
    let lines = step.lines().skip_while(|line| line.trim() != "run: |").skip(1);
    let lines: Vec<&str> = lines.take_while(|line| line.starts_with("          ")).collect();
    assert!(lines.len() > 3, "{step}");
    lines.join("\n")
}

/// Runs it with a `gh` that finds the comments `found`, or fails with what it says.
fn commented(found: Result<&str, &str>) -> (Run, String) {
    let finds = match found {
        Ok(ids) => {
            format!("echo \"$*\" >>asked; case $* in *--jq*) printf '{ids}' ;; *) echo '{{}}' ;; esac")
        }
        Err(why) => format!("echo '{{\"message\": \"no\"}}'; echo '{why}' >&2; exit 1"),
    };
    let directory = with_program("gh", &finds);
    fs::create_dir(directory.path().join("rehearsal")).unwrap();
    fs::write(directory.path().join("rehearsal/summary.md"), "Nothing got worse\n").unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["-e", "-c", &commenting()]).current_dir(&directory).env("PATH", path);
    command.env("GITHUB_STEP_SUMMARY", directory.path().join("page"));
    command.env("REPOSITORY", "a/b").env("NUMBER", "7").env("MARKER", "<!-- penstock -->");
    let run = Run::from(command.output().unwrap());
    let comment = fs::read_to_string(directory.path().join("rehearsal/comment.md")).unwrap();
    assert_eq!(comment, "<!-- penstock -->\nNothing got worse\n");
    assert_eq!(fs::read_to_string(directory.path().join("page")).unwrap(), "Nothing got worse\n");
    (run, fs::read_to_string(directory.path().join("asked")).unwrap_or_default())
}

#[test]
fn a_comment_is_edited_by_its_number_or_made_and_a_refusal_is_told() {
    let body = "--field body=@rehearsal/comment.md";
    for (ids, asked) in [
        ("", "api --method POST repos/a/b/issues/7/comments"),
        (r"12\n", "api --method PATCH repos/a/b/issues/comments/12"),
        (r"12\n34\n", "api --method PATCH repos/a/b/issues/comments/12"),
    ] {
        let (run, all) = commented(Ok(ids));
        assert_eq!((run.status, run.stdout.as_str()), (0, ""), "{}", run.stderr);
        let last = all.lines().last().unwrap();
        assert_eq!(last, format!("{asked} {body}"));
        assert!(all.contains("startswith(env.MARKER)"), "{all}");
    }
    let (run, _) = commented(Err("gh: Resource not accessible by integration (HTTP 403)"));
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.contains("::notice::") && run.stdout.contains("(HTTP 403)"), "{}", run.stdout);
}
