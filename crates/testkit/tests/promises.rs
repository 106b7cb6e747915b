//! SECURITY.md names the test of each promise: each of them is there.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{collections::BTreeSet, fs, path::Path};

use sources::all_rust_files;

#[test]
fn each_promise_names_a_test_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let files = all_rust_files();
    let all: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let words: BTreeSet<&str> = all.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let mut promises = 0;
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| not trusted")) {
        let tests: Vec<&str> =
            line.trim_end_matches(" |").rsplit(" | ").next().unwrap().split(", ").collect();
        for test in &tests {
            let name = test.strip_prefix('`').and_then(|test| test.strip_suffix('`'));
            let name = name.unwrap_or_else(|| panic!("{line} names no test"));
            assert!(words.contains(name), "there is no test {name}: {line}");
        }
        promises += 1;
    }
    assert!(promises >= 10, "{promises}");
}
