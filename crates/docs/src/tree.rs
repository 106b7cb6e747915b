//! The files of this tree.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Component, Path, PathBuf},
};

use crate::markdown::{self, Outline};

/// Folders without documents of ours: what is built or fetched, what tests compare with.
const NOT_OURS: [&str; 8] =
    ["target", ".git", "tests", "fixtures", "runs", "corpus", "artifacts", "node_modules"];

/// The index of the documents, which is the site's table of contents too.
pub const INDEX: &str = "docs/README.md";

/// A document as it is written, and as it is read.
#[derive(Debug)]
pub struct MarkdownFile {
    /// Its text.
    pub text: String,
    /// Its links and headings.
    pub outline: Outline,
}

/// This tree, with its documents read.
#[derive(Debug)]
pub struct SourceTree {
    root: PathBuf,
    documents: BTreeMap<PathBuf, MarkdownFile>,
}

impl SourceTree {
    /// # Errors
    ///
    /// When a folder or document cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut documents = BTreeMap::new();
        collect(root, Path::new(""), &mut documents)?;
        Ok(Self { root: root.to_owned(), documents })
    }

    /// Every document, by its path from the top.
    pub fn documents(&self) -> impl Iterator<Item = (&Path, &MarkdownFile)> {
        self.documents.iter().map(|(path, document)| (path.as_path(), document))
    }

    /// The document at a path from the top.
    pub fn document(&self, path: &Path) -> Option<&MarkdownFile> {
        self.documents.get(path)
    }

    /// Where on this machine a path from the top is.
    pub fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    /// Whether it is an entry of the index, or must become one: all but READMEs in `docs/` and at the top.
    pub fn is_for_index(path: &Path) -> bool {
        let top = path.components().count() == 1;
        (top || path.starts_with("docs")) && !path.ends_with("README.md")
    }
}

/// Where a link of `document` leads: a path from the top, and the fragment. `None` where it leads out of the tree.
pub fn resolve<'a>(document: &Path, target: &'a str) -> Option<(PathBuf, Option<&'a str>)> {
    let (path, fragment) = match target.split_once('#') {
        Some((path, fragment)) => (path, Some(fragment)),
        None => (target, None),
    };
    if path.is_empty() {
        return Some((document.to_owned(), fragment));
    }
    let folder = document.parent().unwrap_or(Path::new(""));
    Some((normal(&folder.join(path))?, fragment))
}

/// A path without `.` and `..`; `None` where it begins above where it starts.
pub fn normal(path: &Path) -> Option<PathBuf> {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !parts.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts)
}

/// Whether a link leads to another machine (`https://...`, `mailto:...`).
pub fn is_elsewhere(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    target.starts_with("//")
        || scheme.is_some_and(|scheme| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        })
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, MarkdownFile>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !NOT_OURS.iter().any(|name| path.ends_with(name)) {
                collect(root, &path, found)?;
            }
        } else if kind.is_file() && path.extension().is_some_and(|ending| ending == "md") {
            let text = fs::read_to_string(root.join(&path))?;
            let outline = markdown::read(&text);
            found.insert(path, MarkdownFile { text, outline });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{SourceTree, is_elsewhere, normal, resolve};

    #[test]
    fn a_link_is_followed_from_its_document() {
        let leads = |target| {
            let (path, fragment) = resolve(Path::new("docs/a.md"), target)?;
            Some(format!("{} {fragment:?}", path.display()))
        };
        assert_eq!(leads("../x.md#y").as_deref(), Some("x.md Some(\"y\")"));
        assert_eq!(leads("#y").as_deref(), Some("docs/a.md Some(\"y\")"));
        assert_eq!(leads("../../x.md"), None);
        assert_eq!(leads("/x.md"), None);
        assert_eq!(normal(Path::new("a/./b/../c")).unwrap(), Path::new("a/c"));
    }

    #[test]
    fn a_scheme_leads_elsewhere() {
        assert!(
            is_elsewhere("https://a.example") && is_elsewhere("mailto:a@b.example") && is_elsewhere("//a/b")
        );
        assert!(!is_elsewhere("a/b:c") && !is_elsewhere("a.md#b:c") && !is_elsewhere("#a"));
    }

    #[test]
    fn documents_of_docs_and_of_the_top_are_for_the_index() {
        let is = |path| SourceTree::is_for_index(Path::new(path));
        assert!(is("docs/model.md") && is("docs/more/a.md") && is("SECURITY.md"));
        assert!(!is("README.md") && !is("docs/README.md") && !is("fuzz/notes.md"));
    }
}
