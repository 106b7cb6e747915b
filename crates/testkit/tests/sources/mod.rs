//! The tree's own sources.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod shell;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The Rust sources below a directory, but for what was built there, in no order.
pub fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The folders of the workspace's crates.
pub fn crates() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let entries = fs::read_dir(root.join("crates")).unwrap();
    entries.map(|entry| entry.unwrap().path()).chain([root.join("switch")]).collect()
}

/// The Rust sources of all crates, in no order.
pub fn all_rust_files() -> Vec<PathBuf> {
    crates().iter().flat_map(|folder| rust_files(folder)).collect()
}

/// The Rust sources that a crate is made of, by its folder; none where that has none (any more).
pub fn own_files(folder: &Path) -> Vec<PathBuf> {
    let sources = folder.join("src");
    if sources.is_dir() { rust_files(&sources) } else { Vec::new() }
}

/// Whether a file, as it is below its crate's sources, is of the crate's tests, as they are called here.
pub fn is_of_tests(file: &Path) -> bool {
    file.ends_with("tests.rs") || file.iter().any(|part| part == "tests")
}
