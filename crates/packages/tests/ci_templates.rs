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

/// The script on a model that was changed, in a repository where `break_it` was run, and outside of GitHub; how it ended, and its summary.
fn compared(status: i32, break_it: &str) -> (Run, String) {
    changed(status, &format!("unset GITHUB_ACTIONS && {break_it}"))
}

/// The same with the environment that `prepare_it` makes.
fn changed(status: i32, prepare_it: &str) -> (Run, String) {
    let directory = with_program("penstock", &penstock(status));
    let prepare = "git init --quiet clone && cd clone && echo a >machine.yaml && git add . && git commit --quiet --message a && git tag base";
    let line = format!(
        "{prepare} && {prepare_it} && exec '{}' machine.yaml base",
        template("rehearse-change").display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(&directory).env("PENSTOCK", directory.path().join("penstock"));
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@example.org");
    }
    let run = Run::from(command.output().unwrap());
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
fn annotations_that_cannot_be_made_keep_nothing_else_from_being_said() {
    let broken = "mkdir programs && printf '#!/bin/sh\\nexit 5\\n' >programs/jq && chmod +x programs/jq && \
                  export GITHUB_ACTIONS=true PATH=$PWD/programs:$PATH";
    for (rehearsed, ends) in [(0, 8), (1, 1)] {
        let (run, summary) = changed(rehearsed, broken);
        assert_eq!(run.status, ends, "{}", run.stderr);
        assert!(run.stdout.contains("::notice::what does not hold could not be annotated"), "{}", run.stdout);
        assert!(summary.contains("the disk is full") && summary.contains("# The run"), "{summary}");
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

/// Comments on a merge request with a `curl` that notes what it is asked, and answers as GitLab does: `notes` are those of the first page. What
/// it ends with, and what it was asked.
fn commented_on_gitlab(notes: &str, settings: &[(&str, &str)]) -> (Run, String) {
    let curl = format!(
        r#"cat >>config
echo "$*" >>asked
case $* in
*denied*) echo '{{"message": "403 Forbidden"}}'; echo 'curl: (22) The requested URL returned error: 403' >&2; exit 22 ;;
*'GET '*/user) echo '{{"id": 5}}' ;;
*'GET '*'&page=1') printf '%s\n' '{notes}' ;;
*'GET '*) echo '[]' ;;
*) for word; do case $word in body@*) cat "${{word#body@}}" >sent ;; esac; done; echo '{{}}' ;;
esac"#
    );
    let directory = with_program("curl", &curl);
    fs::write(directory.path().join("summary.md"), "Nothing got worse\n").unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.arg(template("comment-on-gitlab")).args(["summary.md", "machine.yaml"]);
    command.current_dir(&directory).env("PATH", path);
    command.env("CI_API_V4_URL", "https://gitlab.example/api/v4");
    command.env("CI_MERGE_REQUEST_PROJECT_ID", "12").env("CI_MERGE_REQUEST_IID", "34");
    command.env("PENSTOCK_GITLAB_TOKEN", "secret").envs(settings.iter().copied());
    let run = Run::from(command.output().unwrap());
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    let (asked, sent) = (read("asked"), read("sent"));
    if !asked.is_empty() {
        assert!(!asked.contains("secret"), "the token is on a command line: {asked}");
        assert!(read("config").lines().all(|line| line == "header = \"PRIVATE-TOKEN: secret\""));
    }
    if asked.contains("body@") {
        assert_eq!(sent, "<!-- penstock: machine.yaml -->\nNothing got worse\n");
    }
    (run, asked)
}

#[test]
fn a_comment_on_gitlab_is_edited_or_made() {
    let notes = "https://gitlab.example/api/v4/projects/12/merge_requests/34/notes";
    let own = r#"{"id": 8, "author": {"id": 5}, "body": "<!-- penstock: machine.yaml -->\nold"}"#;
    let other = r#"{"id": 7, "author": {"id": 6}, "body": "<!-- penstock: machine.yaml -->\nof somebody"}"#;
    let of_another_model = r#"{"id": 9, "author": {"id": 5}, "body": "<!-- penstock: other.yaml -->\nold"}"#;
    for (there, asked) in [
        ("[]".to_owned(), format!("POST --data-urlencode body@{{}} {notes}")),
        (format!("[{other}, {of_another_model}]"), format!("POST --data-urlencode body@{{}} {notes}")),
        (format!("[{other}, {own}]"), format!("PUT --data-urlencode body@{{}} {notes}/8")),
    ] {
        let (run, all) = commented_on_gitlab(&there, &[]);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""));
        // Of two that are the same a reader would see both.
        let mut again =
            all.lines().map(|line| (line.contains("--request POST "), line.contains("--retry 0 ")));
        assert!(again.all(|(post, never)| post == never), "{all}");
        let last = all.lines().last().unwrap().split_once("--request ").unwrap().1;
        let (begin, end) = asked.split_once("{}").unwrap();
        assert!(last.starts_with(begin) && last.ends_with(end), "{last} is not {asked}");
    }
}

#[test]
fn why_there_is_no_comment_on_gitlab_is_told_and_no_failure() {
    for (setting, value, why) in [
        ("PENSTOCK_GITLAB_TOKEN", "", "PENSTOCK_GITLAB_TOKEN is not set"),
        ("CI_MERGE_REQUEST_IID", "", "CI_MERGE_REQUEST_IID is not set"),
        ("CI_API_V4_URL", "https://denied.example", "403 Forbidden"),
    ] {
        let (run, asked) = commented_on_gitlab("[]", &[(setting, value)]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert!(
            run.stderr.contains("no comment on the merge request") && run.stderr.contains(why),
            "{}",
            run.stderr
        );
        assert!(!asked.contains("POST"), "{asked}");
    }
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
