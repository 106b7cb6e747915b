//! The index of the documents, `docs/README.md`: written for readers, and the table of contents of the site.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    Problem,
    tree::{INDEX, SourceTree, is_elsewhere, resolve},
};

/// A kind of documents, such as the how-tos.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The heading of level 2 that it stands below.
    pub title: String,
    /// In their order.
    pub entries: Vec<Entry>,
}

/// A document of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The words of its link, with a capital letter.
    pub title: String,
    /// From the top of the tree.
    pub path: PathBuf,
}

/// Reads the index: each link to a document that stands in a list is an entry.
///
/// # Errors
///
/// When a document has no entry, or two, or an entry has no document.
pub fn read(tree: &SourceTree) -> Result<Vec<Section>, Vec<Problem>> {
    let index = Path::new(INDEX);
    let Some(document) = tree.document(index) else {
        return Err(vec![Problem::new(index, 1, "the index of the documents is not there")]);
    };
    let headings = document.outline.headings.iter().filter(|heading| heading.level == 2);
    let mut sections: Vec<(usize, Section)> = headings
        .map(|heading| (heading.line, Section { title: heading.text.clone(), entries: Vec::new() }))
        .collect();
    let mut lines: BTreeMap<PathBuf, usize> = BTreeMap::new();
    let mut problems = Vec::new();
    for link in document.outline.links.iter().filter(|link| link.in_list && !is_elsewhere(&link.target)) {
        // A link that leads nowhere is told by `links`, with what to do.
        let Some((path, _)) = resolve(index, &link.target) else { continue };
        if tree.document(&path).is_none() {
            continue;
        }
        if let Some(before) = lines.insert(path.clone(), link.line) {
            let message = format!("{} is listed already, in line {before}: list it once", path.display());
            problems.push(Problem::new(index, link.line, message));
            continue;
        }
        match sections.iter_mut().rev().find(|(line, _)| *line < link.line) {
            Some((_, section)) => section.entries.push(Entry { title: capital(&link.text), path }),
            None => problems.push(Problem::new(
                index,
                link.line,
                format!("{} stands below no heading of level 2", path.display()),
            )),
        }
    }
    for (path, _) in tree.documents().filter(|(path, _)| SourceTree::is_for_index(path)) {
        if !lines.contains_key(path) {
            problems.push(Problem::new(
                path,
                1,
                format!("{INDEX} does not list this document: add it to a list there"),
            ));
        }
    }
    match problems.is_empty() {
        true => Ok(sections.into_iter().map(|(_, section)| section).collect()),
        false => Err(problems),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
