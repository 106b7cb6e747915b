//! Every program that a script of Penstock's calls on the machine has the mark `script` in `scripts/programs`: by that root's search path knows
//! which programs nobody else may be able to change (`crates/host/src/process/search_path.rs`).
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use penstock_host::packages;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use sources::{
    crates, rust_files,
    shell::{BUILTINS, commands},
};
use syn::Lit;

/// Sources with scripts that others run than Penstock here, and who. Those of tests are the tests' own affair.
const ELSEWHERE: &[(&str, &str)] = &[
    ("crates/board/src/board.rs", "a board"),
    ("crates/board/src/board/bridges.rs", "a board"),
    ("crates/board/src/board/clock.rs", "a board"),
    ("crates/board/src/program.rs", "a board"),
    ("crates/cli/src/rehearsal.rs", "a board"),
    ("crates/cluster/src/image.rs", "a pod"),
    ("crates/cluster/src/node.rs", "a board that is a node"),
    ("crates/guests/src/containers/config.rs", "a container's first process"),
    (
        "crates/guests/src/containers/confinement.rs",
        "a container's root, with a search path that the script sets itself",
    ),
    ("crates/guests/src/containers/proofs.rs", "a container"),
    ("crates/guests/src/vms/place.rs", "a VM"),
];

/// Words at the beginning of a text that is no script: for people, or a command line that Penstock carries out itself.
const NO_CALLS: &[(&str, &str)] = &[
    ("crates/board/src/image.rs", "make"),
    ("crates/measure/src/latency/command.rs", "hwlatdetect"),
    ("crates/measure/src/latency/command.rs", "rtla"),
    ("crates/measure/src/latency/machine.rs", "hwlatdetect"),
    ("crates/measure/src/storage.rs", "fio"),
];

/// The texts of these tokens, but for those of tests and of attributes.
fn texts(tokens: TokenStream, texts_so_far: &mut Vec<String>) {
    // Whether what comes next is of tests alone.
    let mut of_tests = false;
    let mut before_attribute = false;
    for token in tokens {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => before_attribute = true,
            TokenTree::Group(group) if before_attribute && group.delimiter() == Delimiter::Bracket => {
                before_attribute = false;
                of_tests |= group.stream().to_string() == "cfg (test)";
            }
            TokenTree::Group(group) => {
                let skipped = of_tests && group.delimiter() == Delimiter::Brace;
                of_tests &= !skipped;
                if !skipped {
                    texts(group.stream(), texts_so_far);
                }
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => of_tests = false,
            TokenTree::Literal(literal) => {
                if let Lit::Str(text) = Lit::new(literal) {
                    texts_so_far.push(text.value());
                }
            }
            _ => {}
        }
    }
}

/// Whether a source has something run by a shell.
fn has_scripts(texts: &[String]) -> bool {
    let is = |wanted: &[&str]| texts.iter().any(|text| wanted.contains(&text.as_str()));
    let begins = |text: &String| ["#!/bin/sh", "set -e"].iter().any(|beginning| text.starts_with(beginning));
    (is(&["sh", "/bin/sh"]) && is(&["-c"])) || texts.iter().any(begins)
}

/// The programs that a text calls if it is a script; it may be a part of one that `format!` puts together.
fn called(text: &str) -> BTreeSet<String> {
    let looks_so = text.contains([';', '|', '&', '$', '>', '\n']) || text.split_whitespace().count() > 1;
    if !looks_so { BTreeSet::new() } else { commands(&text.replace("{{", "{").replace("}}", "}")) }
}

fn all_sources() -> Vec<(PathBuf, Vec<String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    for folder in crates().into_iter().filter(|folder| !folder.ends_with("testkit")) {
        let sources = folder.join("src");
        let files = if sources.is_dir() { rust_files(&sources) } else { Vec::new() };
        for file in files.into_iter().filter(|file| !file.iter().any(|part| part == "tests")) {
            let tokens: TokenStream = fs::read_to_string(&file).unwrap().parse().unwrap();
            let mut found = Vec::new();
            texts(tokens, &mut found);
            all.push((file.strip_prefix(&root).unwrap().to_owned(), found));
        }
    }
    all
}

#[test]
fn what_scripts_call_on_the_machine_has_the_mark() {
    let mut unused: BTreeSet<&str> = ELSEWHERE.iter().map(|(file, _)| *file).collect();
    let mut uncalled: BTreeSet<&(&str, &str)> = NO_CALLS.iter().collect();
    let (mut wrong, mut all) = (BTreeSet::new(), BTreeSet::new());
    for (file, texts) in all_sources().into_iter().filter(|(_, texts)| has_scripts(texts)) {
        let name = file.to_string_lossy();
        if let Some((file, _)) = ELSEWHERE.iter().find(|(file, _)| *file == name) {
            unused.remove(file);
            continue;
        }
        for program in texts.iter().flat_map(|text| called(text)) {
            let Some(row) = packages::row(&program) else { continue };
            if let Some(known) = NO_CALLS.iter().find(|known| **known == (&*name, &*program)) {
                uncalled.remove(known);
                continue;
            }
            if !row.is_of_scripts() && !BUILTINS.contains(&program.as_str()) {
                wrong.insert(format!("{name}: {program} has no mark `script` in scripts/programs"));
            }
            all.insert(program);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(unused.is_empty(), "no scripts are there, take them from ELSEWHERE: {unused:?}");
    assert!(uncalled.is_empty(), "no text begins so, take them from NO_CALLS: {uncalled:?}");
    for known in ["chroot", "cp", "grep", "ip", "nsenter", "rm", "sleep"] {
        assert!(all.contains(known), "{known} is called by a script: {all:?}");
    }
}

#[test]
fn a_program_in_a_script_is_found() {
    let text = "fn f() { run(\"sh\", \"-c\", \"cat x | chroot y\"); }\n#[cfg(test)]\nmod tests { const A: &str = \"mv a b\"; }\n\
                #[error(\"touch it;\")] struct B;";
    let mut found = Vec::new();
    texts(text.parse().unwrap(), &mut found);
    assert!(has_scripts(&found));
    let programs: Vec<String> = found.iter().flat_map(|text| called(text)).collect();
    assert_eq!(programs, ["cat", "chroot"]);
}

#[test]
fn the_commands_of_a_script_are_found() {
    let script = "set -eu\ntriple=$(rustc -vV | sed -n 's/^host: //p') # not this\nif ! head x >/dev/null && A=1 cut y; then\n\
                  cat >f <<'END'\nnot these\nEND\nfor a in one two; do base64 \"$(dirname \"$a\")\"; done\n\
                  case $x in a|b) tail ;; *) exec sort ;; esac\nmv a \\\n  b\n";
    let expected = [
        "base64", "case", "cat", "cut", "dirname", "done", "esac", "for", "head", "mv", "rustc", "sed",
        "set", "sort", "tail",
    ];
    let found: Vec<String> = commands(script).into_iter().collect();
    assert_eq!(found, expected);
}
