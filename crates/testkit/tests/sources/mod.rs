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
