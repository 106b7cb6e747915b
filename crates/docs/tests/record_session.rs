//! `scripts/record-session` and `scripts/first-steps` with programs in place of asciinema and Penstock: what is refused, and that no board is left.
#![allow(clippy::disallowed_methods)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Notes each call in `calls`; a rehearsal takes a moment.
const PENSTOCK: &str =
    "#!/bin/sh\necho \"$*\" >>\"$(dirname \"$0\")/calls\"\n[ \"$1\" != rehearse ] || sleep 1\n";

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name)
}

/// A folder with these programs, and `penstock`.
fn programs(others: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in others.iter().chain(&[("penstock", PENSTOCK)]) {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn calls(folder: &TempDir) -> Vec<String> {
    let text = fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Records a session whose events are these, on a machine of this name.
fn record(folder: &TempDir, host: &str, events: &str) -> Output {
    let asciinema = format!(
        "#!/bin/sh\n[ \"$1\" != --version ] || {{ echo asciinema 2.4.0; exit; }}\n: >complete\ncat >session.cast <<'END'\n{events}\nEND\n"
    );
    for (name, text) in [("asciinema", asciinema), ("uname", format!("#!/bin/sh\necho {host}\n"))] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    Command::new(script("record-session"))
        .arg(folder.path().join("penstock"))
        .arg(folder.path().join("made.cast"))
        .env("PATH", path)
        .output()
        .unwrap()
}

#[test]
fn a_session_with_the_machines_name_is_refused_also_where_two_events_have_it() {
    let events = "{\"version\": 2}\n[0.1, \"o\", \"on gate\"]\n[0.2, \"o\", \"way7\\r\\nnext\"]";
    let folder = programs(&[]);
    let output = record(&folder, "gateway7", events);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("this machine's name or a path of it:\non gateway7\n"), "{told}");
    assert!(!folder.path().join("made.cast").exists());

    // A word of the session is no name that tells, and a part of a word none at all.
    for host in ["board", "gate"] {
        let output = record(&folder, host, &events.replace("next", "the board"));
        assert!(output.status.success(), "{host}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(folder.path().join("made.cast").exists());
    // Before each session a rehearsal, after it no board.
    let once = ["rehearse examples/smallest.yaml", "board down smallest"];
    assert_eq!(calls(&folder), once.repeat(3));
}

#[test]
fn a_session_that_is_broken_off_leaves_no_board() {
    let folder = programs(&[]);
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut session = Command::new(script("first-steps"))
        .current_dir(folder.path())
        .env("PATH", path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !calls(&folder).iter().any(|call| call.starts_with("rehearse")) {
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", calls(&folder));
        thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-TERM", &session.id().to_string()]).status().unwrap().success());
    assert_eq!(session.wait().unwrap().code(), Some(130));
    assert_eq!(
        calls(&folder),
        ["check examples/smallest.yaml", "rehearse examples/smallest.yaml", "board down smallest"]
    );
}
