//! Texts that are kept as files, to be read in a review.

use std::{env, fs, path::Path};

/// Compares `text` with the file at `path`; with `UPDATE_GOLDEN=1` in the environment, writes it there first.
///
/// # Panics
///
/// When they differ, or there is no such file.
#[track_caller]
pub fn compare(path: &Path, text: &str) {
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, text).expect("the golden file can be written");
    }
    let wanted = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, wanted, "{}", path.display());
}
