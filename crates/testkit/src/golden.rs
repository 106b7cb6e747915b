//! Texts that are kept as files, to be read in a review.

use std::{env, fs, path::Path};

/// Compares `text` with the part of the file at `path` that stands between the lines `<!-- made: NAME -->` and `<!-- end: NAME -->`,
/// which a program makes; with `UPDATE_GOLDEN=1` in the environment, writes it there first. `text` ends with a line feed.
///
/// # Panics
///
/// When they differ, or there is no such file or no such part.
#[track_caller]
pub fn compare_part(path: &Path, name: &str, text: &str) {
    let page = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (begin, end) = (format!("<!-- made: {name} -->\n\n"), format!("\n<!-- end: {name} -->\n"));
    let parts = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.unwrap_or_else(|| panic!("{} has no part {name}", path.display()));
    compare(path, &format!("{before}{begin}{text}{end}{after}"));
}

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
