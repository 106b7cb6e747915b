//! The recorded session of the tutorial (`make recording`): its picture and its text are made of it, and it has no path or address of
//! the machine that it was recorded on; that it does not have the machine's name, `scripts/record-session` sees to. That it is one with the program
//! is the matter of `crates/cli/tests/recorded_session.rs`.
#![allow(clippy::disallowed_methods)]

use std::{fs, path::Path};

use penstock_docs::recording::{Recording, picture};
use penstock_testkit::golden;

/// What the recording is to those who do not see it: the tutorial and the page that plays it say the same.
const TITLE: &str = "A terminal: a model is checked, rehearsed on an emulated board, applied to a practice machine, confirmed, verified, and undone";

fn pictures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures")
}

fn cast() -> String {
    fs::read_to_string(pictures().join("first-steps.cast")).unwrap()
}

fn recording() -> Recording {
    Recording::read(&cast()).unwrap()
}

/// `UPDATE_GOLDEN=1 cargo test -p penstock-docs --test recording` draws it anew.
#[test]
fn the_picture_and_the_text_are_made_of_the_recording() {
    let recording = recording();
    let svg = picture::draw(&recording, TITLE).unwrap();
    golden::compare(&pictures().join("first-steps.svg"), &svg);
    golden::compare(&pictures().join("first-steps.txt"), &recording.transcript());
    assert!(svg.len() < 150_000, "every reader fetches it: {} bytes", svg.len());
    let tutorial = fs::read_to_string(pictures().join("../tutorial.md")).unwrap();
    assert!(tutorial.contains(&format!("![{TITLE}](pictures/first-steps.svg)")));
}

/// A recording that is not in its place yet, which `make recording` looks at before it puts it there; otherwise the one that is.
fn examined() -> String {
    match std::env::var_os("PENSTOCK_RECORDING") {
        Some(path) => fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        None => cast(),
    }
}

/// What a session says of the machine that it was recorded on, if it does: a path, an address, a user or host. What the board has, and QEMU, is
/// everybody's, and so is which accelerator a board has; where KVM is there and broken, the session is about that machine.
fn told_of_the_machine(text: &str) -> Result<(), String> {
    let known = ["/dev/kvm", "/root/smallest.yaml", "/dev/pts/0", "10.0.2.2"];
    let text = known.iter().fold(text.to_owned(), |text, known| text.replace(known, "-"));
    for (at, _) in text.match_indices('/') {
        let before = text[..at].chars().next_back().unwrap_or(' ');
        let after = text[at + 1..].chars().next().unwrap_or(' ');
        if !before.is_ascii_alphanumeric() && after.is_ascii_alphabetic() {
            let word = text[at..].split_whitespace().next().unwrap_or("");
            return Err(format!("a path of a machine: {word}"));
        }
    }
    for word in text.split(|c: char| !c.is_ascii_digit() && c != '.') {
        if word.split('.').count() >= 4 {
            return Err(format!("an address: {word}"));
        }
    }
    // A time has two colons, a PCI address too, a MAC five. That of a VF without one is Penstock's own, and begins with 02.
    for word in text.split(|c: char| !c.is_ascii_hexdigit() && c != ':') {
        let colons = word.matches(':').count();
        let of_a_vf = word.len() == 17 && colons == 5 && word.starts_with("02:");
        if word.contains("::") || colons >= 5 && !of_a_vf {
            return Err(format!("an address: {word}"));
        }
    }
    let broken =
        ["KVM internal error", "KVM failed", "not run under", "not boot under", "this board did not"];
    if let Some(broken) = broken.iter().find(|broken| text.contains(**broken)) {
        return Err(format!("`{broken}`: KVM is there and broken, record it on another machine"));
    }
    let rest: String = text
        .split_inclusive('\n')
        .map(|line| line.split_once("Accelerator: ").map_or(line, |(before, _)| before))
        .collect();
    for word in ["@", "~", "KVM", "error", "localhost", "home"] {
        if rest.contains(word) {
            return Err(format!("{word}: record it on a machine that has nothing to say of itself"));
        }
    }
    match text.matches("root").count() == text.matches(" of root (process").count() {
        true => Ok(()),
        false => Err("root: that of the board alone is known".to_owned()),
    }
}

#[test]
fn it_has_no_path_or_address_of_the_machine_it_was_recorded_on() {
    let cast = examined();
    let recording = Recording::read(&cast).unwrap();
    let first = cast.lines().next().unwrap();
    let header: serde_json::Value = serde_json::from_str(first).unwrap();
    let keys: Vec<&String> = header.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["env", "height", "timestamp", "version", "width"], "{first}");
    assert_eq!(header["env"], serde_json::json!({"TERM": "xterm-256color"}));
    assert_eq!((recording.columns, recording.rows), (112, 30));
    let drawn = picture::draw(&recording, TITLE).unwrap();
    assert!(drawn.len() < 150_000, "every reader fetches it: {} bytes", drawn.len());

    let text: String = recording.outputs.iter().map(|output| output.text.as_str()).collect();
    told_of_the_machine(&text).unwrap();
    told_of_the_machine(&recording.transcript()).unwrap();
}

#[test]
fn what_a_board_runs_under_may_be_said_and_what_tells_of_a_machine_not() {
    for good in [
        "Accelerator: kvm (a kernel booted under KVM in 0.4 s)\r\nKernel: standard\r\n",
        "Accelerator: tcg (/dev/kvm cannot be opened: Permission denied (os error 13))\r\n",
        "until 2026-12-01T00:47:17Z of 0000:01:00.0\r\n",
    ] {
        assert_eq!(told_of_the_machine(good), Ok(()), "{good}");
    }
    for (bad, named) in [
        ("Accelerator: tcg (a kernel does not run under this machine's KVM: x)", "not run under"),
        ("Accelerator: tcg (KVM internal error. Suberror: 1)", "KVM internal error"),
        ("Accelerator: tcg (KVM failed: not ready; x)", "KVM failed"),
        ("Accelerator: kvm\r\nan error\r\n", "error"),
        ("see /var/lib/x", "/var/lib/x"),
        ("at 192.168.7.1 it", "192.168.7.1"),
        ("at fe80::5054:ff:fe12:3456 it", "fe80::5054:ff:fe12:3456"),
        ("at 2001:db8:1:2:3:4:5:6 it", "2001:db8:1:2:3:4:5:6"),
        ("at 52:54:00:12:34:56 it", "52:54:00:12:34:56"),
        ("somebody@x", "@"),
        ("root", "root"),
    ] {
        let why = told_of_the_machine(bad).unwrap_err();
        assert!(why.contains(named), "{bad}: {why}");
    }
}
