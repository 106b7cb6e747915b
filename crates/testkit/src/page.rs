//! Examples that stand in the documents.

use std::{fs, path::Path};

/// A block of YAML in a document.
#[derive(Clone, Debug)]
pub struct Example {
    /// The line of its first line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
}

/// The models, and parts of models from the top, that stand in `docs/NAME`. A block that is indented is a part from further down, and one of
/// comments alone has no key to judge.
///
/// # Panics
///
/// When the document cannot be read, or a block has no end.
pub fn examples(name: &str) -> Vec<Example> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let begin = "```yaml\n";
    let blocks = page.match_indices(begin).map(|(at, _)| {
        let rest = &page[at + begin.len()..];
        let (text, _) = rest.split_once("```").unwrap_or_else(|| panic!("{name}: a block has no end"));
        Example { line: page[..at].matches('\n').count() + 2, text: text.to_owned() }
    });
    let is_comment = |line: &str| line.starts_with('#') || line.trim().is_empty();
    blocks.filter(|example| !example.text.starts_with(' ') && !example.text.lines().all(is_comment)).collect()
}
