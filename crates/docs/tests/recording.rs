//! The recorded session of the tutorial (`make recording`): its picture and its text are made of it, and nothing in it tells on what machine
//! it was recorded. That its words are the program's is the matter of `crates/cli/tests/recorded_session.rs`.
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

/// What a machine is known by: its paths, addresses and names. Those of the board, and QEMU's own, are everybody's.
#[test]
fn nothing_tells_on_what_machine_it_was_recorded() {
    let recording = recording();
    let first = cast().lines().next().unwrap().to_owned();
    let header: serde_json::Value = serde_json::from_str(&first).unwrap();
    let keys: Vec<&String> = header.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["env", "height", "timestamp", "version", "width"], "{first}");
    assert_eq!(header["env"], serde_json::json!({"TERM": "xterm-256color"}));
    assert_eq!((recording.columns, recording.rows), (112, 30));

    let text: String = recording.outputs.iter().map(|output| output.text.as_str()).collect();
    let known = ["/dev/kvm", "/root/smallest.yaml", "/dev/pts/0", "10.0.2.2"];
    let text = known.iter().fold(text, |text, known| text.replace(known, "-"));
    for (at, _) in text.match_indices('/') {
        let before = text[..at].chars().next_back().unwrap_or(' ');
        let after = text[at + 1..].chars().next().unwrap_or(' ');
        let word = &text[at..].split_whitespace().next().unwrap_or("");
        assert!(
            before.is_ascii_alphanumeric() || !after.is_ascii_alphabetic(),
            "a path of a machine: {word}"
        );
    }
    for word in text.split(|c: char| !c.is_ascii_digit() && c != '.') {
        assert!(word.split('.').count() < 4, "an address: {word}");
    }
    for word in ["@", "~", "KVM", "error", "localhost", "home"] {
        assert!(!text.contains(word), "{word}: record it on a machine that has nothing to say of itself");
    }
    let users: Vec<&str> = text.match_indices(" of root (process").map(|(_, word)| word).collect();
    assert_eq!(text.matches("root").count(), users.len(), "the board's root alone");
}
