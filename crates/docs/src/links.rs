//! Follows every link of every document.

use std::{collections::BTreeMap, path::Path};

use crate::{
    Problem,
    fragment::Names,
    markdown::MarkdownLink,
    tree::{SourceTree, is_elsewhere, resolve},
};

/// What was followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCount {
    /// How many files were read.
    pub files: usize,
    /// How many links lead to a file of ours.
    pub links: usize,
    /// How many of these name a place in it.
    pub fragments: usize,
}

/// Follows the links of all documents. Those to other machines are not asked for: what is there today says nothing about tomorrow, and a test
/// needs no network.
pub fn check(tree: &SourceTree) -> (LinkCount, Vec<Problem>) {
    let names: BTreeMap<&Path, Names> = tree
        .documents()
        .map(|(path, document)| {
            (path, Names::of(document.outline.headings.iter().map(|heading| heading.text.as_str())))
        })
        .collect();
    let mut count = LinkCount::default();
    let mut problems = Vec::new();
    for (path, document) in tree.documents() {
        count.files += 1;
        for link in &document.outline.links {
            if let Err(message) = follow(tree, &names, path, link, &mut count) {
                problems.push(Problem::new(
                    path,
                    link.line,
                    format!("the link to `{}`: {message}", link.target),
                ));
            }
        }
        for line in &document.outline.html {
            problems.push(Problem::new(
                path,
                *line,
                "HTML, whose links nobody follows: write Markdown, or `<NAME>` in backquotes",
            ));
        }
    }
    (count, problems)
}

fn follow(
    tree: &SourceTree,
    names: &BTreeMap<&Path, Names>,
    document: &Path,
    link: &MarkdownLink,
    count: &mut LinkCount,
) -> Result<(), String> {
    if is_elsewhere(&link.target) {
        return match link.picture {
            true => {
                Err("a picture from another machine, which learns who reads this: put it into docs/pictures/"
                    .into())
            }
            false => Ok(()),
        };
    }
    if link.place.is_none() {
        return Err("write it as `[words](target)`, as the site rewrites such links alone".into());
    }
    count.links += 1;
    let (path, fragment) = resolve(document, &link.target)
        .ok_or("it leads out of this repository: write a path from this document's folder")?;
    if !tree.at(&path).exists() {
        return Err(format!("there is no {}", path.display()));
    }
    let Some(fragment) = fragment else { return Ok(()) };
    count.fragments += 1;
    let names = names
        .get(path.as_path())
        .ok_or_else(|| format!("{} is no document, and has no headings to name", path.display()))?;
    names.find(fragment).map_err(|message| format!("{message} ({})", path.display()))
}
