//! Examples in the documentation are compiled: those in Rust stand where the runner has cargo look for them.
#![allow(clippy::disallowed_methods)]

mod sources;

use std::fs;

use penstock_testkit::programs::WITH_EXAMPLES;
use sources::{crates, rust_files};

/// The lines at which examples begin that cargo compiles: fences without a word, or with one that says Rust.
fn examples(source: &str) -> Vec<usize> {
    let mut inside = false;
    let mut found = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { continue };
        let Some(word) = text.trim_start().strip_prefix("```") else { continue };
        inside = !inside;
        let rust = ["", "rust", "should_panic", "no_run", "compile_fail", "edition"];
        let first = word.split([',', ' ']).next().unwrap_or_default();
        if inside
            && rust.iter().any(|known| first == *known || (*known == "edition" && first.starts_with(known)))
        {
            found.push(index + 1);
        }
    }
    found
}

#[test]
fn examples_in_rust_are_in_the_package_that_is_looked_at() {
    let mut wrong = Vec::new();
    let mut right = 0;
    for folder in crates() {
        for file in rust_files(&folder) {
            let lines = examples(&fs::read_to_string(&file).unwrap());
            match folder.ends_with(WITH_EXAMPLES.trim_start_matches("penstock-")) {
                true => right += lines.len(),
                false => wrong.extend(lines.iter().map(|line| format!("{}:{line}", file.display()))),
            }
        }
    }
    assert!(right > 0, "{WITH_EXAMPLES} has none");
    assert!(wrong.is_empty(), "cargo is not asked to compile these: {wrong:#?}");
}

#[test]
fn an_example_is_a_fence_of_rust() {
    assert_eq!(examples("/// ```\n/// let a = 1;\n/// ```\n"), [1]);
    assert_eq!(examples("//! ```text\n//! a\n//! ```\n    /// ```rust,no_run\n    /// ```\n"), [4]);
    assert!(examples("// ```\nlet text = \"```\";\n/// ```yaml\n/// ```\n").is_empty());
}
