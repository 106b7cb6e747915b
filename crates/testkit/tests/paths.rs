//! The documents name files of this tree: each of them is there. Their links are followed in `crates/docs`.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use sources::all_rust_files;

/// What a path of this tree begins with where a document names one.
const FOLDERS: [&str; 7] = ["crates/", "docs/", "examples/", "fuzz/", "schema/", "scripts/", "switch/"];

/// What is in no fresh tree: a program makes it.
const MADE: [&str; 2] = ["fuzz/artifacts", "fuzz/corpus"];

/// Words in a path that stand for a name the reader puts there.
const PLACEHOLDERS: [&str; 4] = ["TOOL", "NAME", "KIND", "..."];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files at the top of the tree, in `docs/` and in `fuzz/`, by their paths from the top.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["", "docs", "fuzz"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                found.push(Path::new(folder).join(name));
            }
        }
    }
    found.sort();
    assert!(found.len() > 25, "{found:?}");
    found
}

/// The paths of this tree, from its top, that `text` names.
fn paths(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| c.is_whitespace() || "`()[]\"'|,;".contains(c));
    let words = words.map(|word| word.trim_end_matches(['.', ':']).split('#').next().unwrap_or(word));
    words
        .filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder) && word.len() > folder.len()))
        .filter(|word| !MADE.iter().any(|made| word.starts_with(made)))
        .filter(|word| !PLACEHOLDERS.iter().any(|placeholder| word.contains(placeholder)))
        .collect()
}

/// The Rust files that `text` names after a folder has been named: `vfs.rs` in "`crates/plan/src/wanted.rs` and `vfs.rs`". Not
/// what begins with `_` after a `*`.
fn short_paths(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_-/.".contains(c));
    words
        .filter(|word| word.ends_with(".rs") && !word.starts_with(['_', '.']))
        .filter(|word| !FOLDERS.iter().any(|folder| word.starts_with(folder)))
        .filter(|word| !PLACEHOLDERS.iter().any(|placeholder| word.contains(placeholder)))
        .collect()
}

/// Whether `path` is a file or folder below `root`; `*` stands for any part of a file's name.
fn is_there(root: &Path, path: &str) -> bool {
    let Some((before, after)) = path.split_once('*') else { return root.join(path).exists() };
    let (folder, begin) = before.rsplit_once('/').unwrap_or(("", before));
    fs::read_dir(root.join(folder)).is_ok_and(|mut entries| {
        entries.any(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_prefix(begin).is_some_and(|rest| rest.ends_with(after))
        })
    })
}

#[test]
fn each_file_that_a_document_names_is_there() {
    let sources = all_rust_files();
    let mut names = 0;
    let mut missing = Vec::new();
    for document in documents() {
        // What a release's notes name may be gone since.
        if document == Path::new("CHANGELOG.md") {
            continue;
        }
        let text = fs::read_to_string(root().join(&document)).unwrap();
        for path in paths(&text) {
            names += 1;
            if !is_there(&root(), path) {
                missing.push(format!("{}: {path}", document.display()));
            }
        }
        for path in short_paths(&text) {
            names += 1;
            if !sources.iter().any(|source| source.ends_with(path)) {
                missing.push(format!("{}: {path}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "no such files:\n{}", missing.join("\n"));
    assert!(names > 60, "{names}");
}

/// A README that is read to its end. The limit counts what `wc -w` counts.
#[test]
fn the_readme_is_short() {
    let words = fs::read_to_string(root().join("README.md")).unwrap().split_whitespace().count();
    assert!((300..700).contains(&words), "{words} words");
}
