//! Rust's `Debug` is for programmers. Text between quotation marks (`{name:?}` of a `str`) is the one use of it in messages; whatever
//! else is formatted so shows names of variants and fields (`mode Veb`) to people.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{collections::BTreeSet, fs};

use sources::{crates, is_of_tests, own_files};

/// Where `Debug` is used on text, paths and characters, and with what name; an empty name is `{:?}`. Whoever adds to it has
/// looked at the type.
const TEXTS: &str = include_str!("quoted_texts.txt");

/// The names that are formatted with `Debug` in a source's messages: neither in comments, nor in tests, nor in panics.
fn debugged(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut names = Vec::new();
    let mut panics = false;
    for line in code.lines().map(str::trim) {
        if line.starts_with("//") {
            continue;
        }
        let macros = ["panic!", "assert!", "assert_eq!", "assert_ne!", "unreachable!", "expect("];
        panics |= macros.iter().any(|name| line.contains(name));
        for end in line.match_indices(":?}").chain(line.match_indices(":#?}")).map(|(at, _)| at) {
            let begin = line[..end].rfind('{').map_or(0, |at| at + 1);
            names.extend((!panics).then_some(&line[begin..end]));
        }
        panics &= !line.ends_with(';') && !line.ends_with('}');
    }
    names
}

#[test]
fn messages_hold_words_and_not_what_rust_calls_things() {
    let texts: BTreeSet<&str> = TEXTS.lines().collect();
    let (mut used, mut wrong) = (BTreeSet::new(), Vec::new());
    for folder in crates() {
        if folder.ends_with("testkit") {
            continue;
        }
        let sources = folder.join("src");
        let files = own_files(&folder);
        for file in files.iter().filter(|file| !is_of_tests(file.strip_prefix(&sources).unwrap())) {
            let text = fs::read_to_string(file).unwrap();
            for name in debugged(&text) {
                let entry =
                    format!("{} {name}", file.strip_prefix(folder.parent().unwrap()).unwrap().display());
                match texts.get(entry.trim_end()) {
                    Some(known) => drop(used.insert(*known)),
                    None => wrong.push(entry),
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these would show a value as Rust has it: give its type a Display. Only a text may stand in quotation marks like this, \
         and is then named in quoted_texts.txt:\n{}",
        wrong.join("\n")
    );
    let gone: Vec<&&str> = texts.iter().filter(|text| !used.contains(*text)).collect();
    assert!(gone.is_empty(), "no longer there, take them from quoted_texts.txt: {gone:?}");
}

#[test]
fn a_value_in_a_message_is_found() {
    let text = "    format!(\"mode {mode:?}\")\n    // {no:?}\n    panic!(\"{a:?}\");\n    f(\"{:?} {b:#?}\", c)\n#[cfg(test)]\nmod tests {\n{z:?}";
    assert_eq!(debugged(text), ["mode", "", "b"]);
}

/// Programs that end after they have said what is wrong, and those that only tests and builds run.
const SAY_AND_END: [&str; 4] = ["testkit", "docs", "packages", "statistics"];

/// `eprintln!` panics where nobody reads it any more, or with a full disk: whatever it stands in would end for a line.
#[test]
fn what_is_said_on_standard_error_ends_nothing() {
    let mut wrong = Vec::new();
    for folder in crates() {
        if SAY_AND_END.iter().any(|name| folder.ends_with(name)) {
            continue;
        }
        let sources = folder.join("src");
        for file in own_files(&folder) {
            let below = file.strip_prefix(&sources).unwrap();
            if is_of_tests(below) || below.iter().any(|part| part == "bin" || part == "hostile") {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let says = |line: &&str| !line.trim().starts_with("//") && line.contains("eprintln!(");
            wrong
                .extend(code.lines().filter(says).map(|line| format!("{}: {}", file.display(), line.trim())));
        }
    }
    // Of the command line itself, before anything has begun.
    wrong.retain(|line| !line.contains("arguments/parse.rs"));
    assert_eq!(wrong, [""; 0], "use complain! (crates/host/src/complaint.rs, switch/src/complaint.rs)");
}
