//! `penstock audit` as a user meets it, on the machine that the test runs on and on recorded ones.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output, Stdio},
    time::{Duration, Instant},
};

use penstock_testkit::{
    binary, json, sysfs,
    trials::{Test, Trials},
};
use serde_json::Value;

const PENSTOCK: &str = env!("CARGO_BIN_EXE_penstock");
/// `nobody`, on every distribution that has one by this number.
const NOBODY: &str = "65534";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let anywhere: [(&str, Test); 6] = [
        ("a_profile_of_tuned_is_made_of_what_is_advised_and_does_it", || a_profile_does_what_is_advised()),
        ("a_record_is_judged_as_the_machine_was", || a_record_is_judged_as_the_machine_was()),
        ("what_was_denied_there_is_unknown_here", || what_was_denied_there_is_unknown_here()),
        ("ctrl_c_ends_the_watch_and_what_was_seen_is_judged", || ctrl_c_ends_the_watch()),
        ("a_wrong_use_is_said_and_touches_nothing", || a_wrong_use_is_said()),
        ("an_audit_of_a_recorded_machine_is_for_people_too", || for_people_too()),
    ];
    trials.add(&None, anywhere);
    let missing = trials.lacking("audits by an ordinary user", cannot_be_nobody);
    trials.add(&missing, [("four_fifths_of_the_rows_take_no_root", (|| nearly_all_without_root()) as Test)]);
    trials.run()
}

type Outcome = penstock_testkit::trials::Outcome;

fn cannot_be_nobody() -> Option<String> {
    let outcome = Command::new("setpriv").args(["--reuid", NOBODY, "--clear-groups", "true"]).output();
    match outcome {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("setpriv cannot be run: {error}")),
    }
}

fn audit(arguments: &[&str]) -> Output {
    Command::new(PENSTOCK).arg("audit").args(arguments).output().expect("the binary runs")
}

/// What an audit with `--json` found, however it came out.
fn found(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}: {said}", output.status);
    let found: Value = json::read(&String::from_utf8_lossy(&output.stdout)).expect("a document");
    assert_eq!(found["holds"] == true, output.status.success(), "the exit status says what the data says");
    found
}

fn rows(found: &Value) -> &[Value] {
    found["rows"].as_array().map(Vec::as_slice).expect("an audit has rows")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn a_record_is_judged_as_the_machine_was() -> Outcome {
    let directory = tempfile::tempdir()?;
    let record = directory.path().join("record");
    let here = found(&audit(&["--json", "--over", "300ms", "--record", text(&record)]));
    let there = found(&audit(&["--json", "--root", text(&record)]));
    assert!(rows(&here).len() > 20, "{here:#}");
    assert_eq!(here, there);
    // And the scan of a record finds the same machine.
    let scan = Command::new(PENSTOCK).args(["scan", "--json", "--root", text(&record)]).output()?;
    let scanned: Value = serde_json::from_slice(&scan.stdout)?;
    assert_eq!(scanned["kernel"]["release"], here["kernel"]);
    assert!(!scanned["cpus"]["siblings"].as_array().unwrap().is_empty(), "{:#}", scanned["cpus"]);
    // Nothing goes along that was not read.
    assert!(!record.join("etc/passwd").exists() && !record.join("proc/self/environ").exists());
    Ok(())
}

/// A file that one rule judges, and is as it should be.
const FILE: &str = "/proc/sys/vm/stat_interval";
const RULE: &str = "stat-interval";

/// A recorded machine with that file.
fn recorded() -> tempfile::TempDir {
    let tree = sysfs::machine("82576-seven-vfs");
    let file = tree.path().join(FILE.trim_start_matches('/'));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, "10\n").unwrap();
    tree
}

/// How the rule that looks at the file came out.
fn verdict(found: &Value) -> String {
    let row = rows(found).iter().find(|row| row["rule"] == RULE).expect("the rule was applied");
    row["verdict"].as_str().unwrap_or_default().to_owned()
}

fn what_was_denied_there_is_unknown_here() -> Outcome {
    let tree = recorded();
    let look = || found(&audit(&["--json", "--root", text(tree.path())]));
    assert_eq!(verdict(&look()), "pass");
    fs::write(tree.path().join(".errors"), format!("13 {FILE}\n"))?;
    let after = look();
    assert_eq!(verdict(&after), "unknown", "{after:#}");
    assert_eq!(after["holds"], false, "what is unknown does not hold");
    Ok(())
}

fn ctrl_c_ends_the_watch() -> Outcome {
    let began = Instant::now();
    let child = Command::new(PENSTOCK)
        .args(["audit", "--json", "--over", "10m"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    binary::interrupt(&child);
    let output = child.wait_with_output()?;
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    assert!(!rows(&found(&output)).is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Stopped after"), "{said}");
    Ok(())
}

fn a_wrong_use_is_said() -> Outcome {
    let directory = tempfile::tempdir()?;
    let full = directory.path().join("full");
    fs::create_dir(&full)?;
    fs::write(full.join("precious"), "mine")?;
    let cases: [(&[&str], &str); 6] = [
        (&["--root", text(directory.path())], "no recorded machine"),
        (&["--root", "/no/such/place"], "no recorded machine"),
        (&["--record", text(&full)], "holds something already"),
        (&["--root", "/", "--over", "1s"], "--over"),
        (&["--over", "soon"], "write it like"),
        (&["--nic", "NET0=0c:c4:7a:9a:61:ea"], "MODEL"),
    ];
    for (arguments, said) in cases {
        let output = audit(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
    assert_eq!(fs::read_dir(&full)?.count(), 1);
    // Somebody else's tree with counts that make no sense.
    let tree = recorded();
    fs::write(tree.path().join(".watched.json"), "[[[[")?;
    let output = audit(&["--root", text(tree.path())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(".watched.json cannot be parsed"));
    Ok(())
}

fn for_people_too() -> Outcome {
    let tree = recorded();
    fs::write(tree.path().join("proc/cmdline"), "isolcpus=1\u{1b}[2J quiet\n")?;
    let output = audit(&["--root", text(tree.path())]);
    let shown = String::from_utf8(output.stdout)?;
    assert!(shown.contains("Score ") && shown.contains("Out of sight"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "what a tree says does not steer a terminal");
    let verbose = String::from_utf8(audit(&["--verbose", "--root", text(tree.path())]).stdout)?;
    assert!(verbose.len() > shown.len());
    Ok(())
}

fn a_profile_does_what_is_advised() -> Outcome {
    let tree = recorded();
    fs::create_dir_all(tree.path().join("proc/sys/vm"))?;
    fs::write(tree.path().join("proc/sys/vm/stat_interval"), "1\n")?;
    fs::write(tree.path().join("proc/cmdline"), "isolcpus=1 quiet\n")?;
    let output = audit(&["--as-tuned", "--root", text(tree.path())]);
    let (profile, warned) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(output.status.success() && profile.contains("\nvm.stat_interval=10\n"), "{profile}{warned}");

    let profiles = tempfile::tempdir()?;
    let file = |name: &str, text: &str| {
        let directory = profiles.path().join(name);
        fs::create_dir_all(&directory).and_then(|()| fs::write(directory.join("tuned.conf"), text))
    };
    file("made", &profile)?;
    file("child", "[main]\ninclude=made\n[sysctl]\nvm.stat_interval=7\n")?;
    let compared = |name: &str| {
        let profile = profiles.path().join(name);
        found(&audit(&["--json", "--tuned", text(&profile), "--root", text(tree.path())]))
    };
    let row = |found: &Value| {
        let rows = found["tuned"]["rows"].as_array().expect("rows beside the profile");
        rows.iter().find(|row| row["rule"] == "stat-interval").expect("a row of the rule").clone()
    };
    let made = compared("made");
    assert_eq!(row(&made)["verdict"], "sets", "{made:#}");
    // What was left out of the profile was warned of, and is what it does not set.
    for row in made["tuned"]["rows"].as_array().into_iter().flatten().filter(|row| row["verdict"] != "sets") {
        assert!(warned.contains(row["rule"].as_str().unwrap_or_default()), "{row}: {warned}");
    }
    let child = row(&compared("child"));
    assert_eq!(child["verdict"], "differs", "{child:#}");
    let shown = audit(&["--tuned", text(&profiles.path().join("child")), "--root", text(tree.path())]);
    let shown = String::from_utf8(shown.stdout)?;
    assert!(shown.contains("differs       stat-interval"), "{shown}");

    file("lost", "[main]\ninclude=nobody-has-this\n")?;
    let lost = audit(&["--tuned", text(&profiles.path().join("lost")), "--root", text(tree.path())]);
    let said = String::from_utf8(lost.stderr)?;
    assert!(lost.status.code() == Some(2) && said.contains("nobody-has-this/tuned.conf"), "{said}");
    Ok(())
}

/// The binary where everybody may run it.
fn for_everybody(directory: &Path) -> PathBuf {
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory, open.clone()).unwrap();
    let binary = directory.join("penstock");
    // Another process copies it: what this one has open for writing, children of other tests have open, too, and cannot be run.
    assert!(Command::new("cp").arg(PENSTOCK).arg(&binary).status().unwrap().success());
    fs::set_permissions(&binary, open).unwrap();
    binary
}

fn nearly_all_without_root() -> Outcome {
    let directory = tempfile::tempdir_in("/tmp")?;
    let binary = for_everybody(directory.path());
    let as_nobody = |arguments: &[&str]| {
        let output = Command::new("setpriv")
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
            .arg(&binary)
            .args(["audit", "--json"])
            .args(arguments)
            .output();
        found(&output.expect("setpriv runs"))
    };
    let (root, nobody) = (found(&audit(&["--json"])), as_nobody(&[]));
    let all = rows(&root).len();
    let key = |row: &Value| (row["rule"].clone(), row["subject"].clone());
    let is_known = |found: &Value, wanted: &Value| {
        rows(found).iter().any(|row| key(row) == key(wanted) && row["verdict"] != "unknown")
    };
    let known = rows(&root).iter().filter(|row| row["verdict"] != "unknown");
    let lost: Vec<_> = known.filter(|row| !is_known(&nobody, row)).map(key).collect();
    eprintln!("{} of {all} rows are lost without root: {lost:?}", lost.len());
    assert!(all > 20 && lost.len() * 5 <= all, "{} of {all}: {lost:?}", lost.len());
    // By what the rules themselves say, too.
    let without = root["score"]["without_root"].as_u64().unwrap_or_default();
    assert!(without * 5 >= all as u64 * 4, "{without} of {all}");
    // Who may not read something is told so, and not that it is as it should be.
    let tree = recorded();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o755))?;
    let look = || verdict(&as_nobody(&["--root", text(tree.path())]));
    assert_eq!(look(), "pass");
    let file = tree.path().join(FILE.trim_start_matches('/'));
    fs::set_permissions(file, fs::Permissions::from_mode(0o000))?;
    assert_eq!(look(), "unknown");
    Ok(())
}
