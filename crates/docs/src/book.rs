//! Makes the source of the site, which mdBook reads.
//!
//! The folders stay as they are, so that links among documents need no change. A README becomes the page of its folder, an example a page of
//! its own, the picture of a recorded session a page that plays it, and what the site does not have is looked up in the repository on its code
//! host.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use crate::{
    Problem,
    index::{self, Section},
    links,
    markdown::MarkdownLink,
    recording::{Recording, picture, player},
    tree::{INDEX, SourceTree, is_elsewhere, resolve},
};

/// mdBook's settings, and the site's style beside mdBook's own.
const FILES: [(&str, &str); 2] = [
    ("book.toml", include_str!("../book/book.toml")),
    ("penstock.css", include_str!("../book/penstock.css")),
];

/// Where the repository is shown.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// The models that are pages too.
const EXAMPLES: &str = "examples";

/// Folders of files, not documents, that the site has where documents lead to them.
const WITH_FILES: [&str; 2] = ["docs", "schema"];

/// What was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BookSize {
    /// Pages.
    pub pages: usize,
    /// Links in them.
    pub links: usize,
}

/// Where each document and example stands in the book, by its path in the tree.
type Pages = BTreeMap<PathBuf, PathBuf>;

/// Writes the book to `to`, in place of what is there.
///
/// # Errors
///
/// When a document leads nowhere or is not in the index, as one that reads the site would find out; or when something cannot be written.
pub fn make(tree: &SourceTree, to: &Path) -> Result<BookSize, Vec<Problem>> {
    let (_, mut problems) = links::check(tree);
    let sections = match index::read(tree) {
        Ok(sections) => sections,
        Err(found) => {
            problems.extend(found);
            Vec::new()
        }
    };
    if !problems.is_empty() {
        return Err(problems);
    }
    write(tree, &sections, to).map_err(|error| vec![Problem::io(to, &error)])
}

fn write(tree: &SourceTree, sections: &[Section], to: &Path) -> io::Result<BookSize> {
    let source = to.join("src");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    for (name, text) in FILES {
        put(&to.join(name), text)?;
    }
    let examples = examples(tree)?;
    let pages = pages(sections, &examples);
    let mut made = BookSize { pages: 0, links: 0 };
    let mut copied = BTreeSet::new();
    for (path, page) in &pages {
        let text = match tree.document(path) {
            Some(document) => {
                let links = &document.outline.links;
                let mut changes = Vec::new();
                for link in links {
                    let (Some(place), false) = (&link.place, is_elsewhere(&link.target)) else { continue };
                    made.links += 1;
                    // A picture that is the words of a link stays one: a link cannot hold a page.
                    changes.push(match recorded(tree, path, link).filter(|_| !is_in_another(link, links)) {
                        Some(recorded) => (link.range.clone(), played(tree, path, link, &recorded, &source)?),
                        None => (place.clone(), target(tree, &pages, &mut copied, path, &link.target)),
                    });
                }
                changed(&document.text, changes)
            }
            None if path == Path::new(EXAMPLES) => list_of_examples(tree, &examples)?,
            None => example(path, &fs::read_to_string(tree.at(path))?),
        };
        put(&source.join(page), text)?;
        made.pages += 1;
    }
    copied.extend(examples);
    for path in copied {
        put(&source.join(&path), fs::read(tree.at(&path))?)?;
    }
    put(&source.join("SUMMARY.md"), summary(sections, &pages))?;
    Ok(made)
}

fn put(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, content)
}

/// The models, in their alphabet.
fn examples(tree: &SourceTree) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(tree.at(Path::new(EXAMPLES)))? {
        let path = Path::new(EXAMPLES).join(entry?.file_name());
        if path.extension().is_some_and(|ending| ending == "yaml") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn pages(sections: &[Section], examples: &[PathBuf]) -> Pages {
    let mut pages = Pages::new();
    let documents = sections.iter().flat_map(|section| &section.entries).map(|entry| entry.path.as_path());
    for path in documents.chain([Path::new("README.md"), Path::new(INDEX)]) {
        let of_folder = path.ends_with("README.md");
        pages.insert(
            path.to_owned(),
            if of_folder { path.with_file_name("index.md") } else { path.to_owned() },
        );
    }
    pages.insert(EXAMPLES.into(), Path::new(EXAMPLES).join("index.md"));
    for path in examples {
        pages.insert(path.clone(), path.with_extension("md"));
    }
    pages
}

/// Where a link of the document at `from` leads in the book. Files that it leads to are noted in `copied`.
fn target(
    tree: &SourceTree,
    pages: &Pages,
    copied: &mut BTreeSet<PathBuf>,
    from: &Path,
    target: &str,
) -> String {
    let Some((path, fragment)) = resolve(from, target) else { return target.to_owned() };
    let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
    let here = pages.get(from).map_or(from, PathBuf::as_path);
    if let Some(page) = pages.get(&path) {
        return format!("{}{fragment}", relative(here, page));
    }
    let is_file = tree.at(&path).is_file();
    if is_file && tree.document(&path).is_none() && WITH_FILES.iter().any(|folder| path.starts_with(folder)) {
        let to = relative(here, &path);
        copied.insert(path);
        return to;
    }
    let kind = if is_file { "blob" } else { "tree" };
    format!("{REPOSITORY}/{kind}/main/{}{fragment}", path.display())
}

/// The recording that a picture is drawn from: beside it, of the same name.
fn recorded(tree: &SourceTree, from: &Path, link: &MarkdownLink) -> Option<PathBuf> {
    let (path, _) = resolve(from, &link.target).filter(|_| link.picture)?;
    let recorded = path.with_extension("cast");
    (path.extension().is_some_and(|ending| ending == "svg") && tree.at(&recorded).is_file())
        .then_some(recorded)
}

/// Whether a link stands among the words of another.
fn is_in_another(link: &MarkdownLink, links: &[MarkdownLink]) -> bool {
    let around =
        |other: &MarkdownLink| other.range.start < link.range.start && link.range.end < other.range.end;
    links.iter().any(around)
}

/// A text with other words in these places, of which none overlap.
fn changed(text: &str, mut changes: Vec<(Range<usize>, String)>) -> String {
    changes.sort_by_key(|(place, _)| place.start);
    let mut text = text.to_owned();
    // From the end, so that places further up stay what they are.
    for (place, words) in changes.into_iter().rev() {
        text.replace_range(place, &words);
    }
    text
}

/// Writes the page that plays a recording, and gives what stands in the document for its picture. Browsers load the page, and so begin, when
/// it is near to what the reader sees: not all of them wait until it is in sight.
fn played(
    tree: &SourceTree,
    from: &Path,
    link: &MarkdownLink,
    recorded: &Path,
    source: &Path,
) -> io::Result<String> {
    let page = recorded.with_extension("html");
    let wrong = |error| io::Error::other(format!("{}: {error}", recorded.display()));
    let recording = Recording::read(&fs::read_to_string(tree.at(recorded))?).map_err(wrong)?;
    put(&source.join(&page), player::page(&recording, &link.text, &name(&page)).map_err(wrong)?)?;
    let (width, height) = picture::size(&recording);
    Ok(format!(
        "<div class=\"recording\" style=\"--width:{width};--height:{height}\"><iframe src=\"{}\" title=\"{}\" loading=\"lazy\"></iframe></div>",
        picture::escaped(&relative(from, &page)),
        picture::escaped(&link.text)
    ))
}

/// The way from one file to another, both from the top.
fn relative(from: &Path, to: &Path) -> String {
    let folder: Vec<_> = from.parent().unwrap_or(Path::new("")).components().collect();
    let parts: Vec<_> = to.components().collect();
    let common = folder.iter().zip(&parts).take_while(|(a, b)| a == b).count();
    let up = folder[common..].iter().map(|_| "..".to_owned());
    let down = parts[common..].iter().map(|part| part.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The first sentence of a model's leading comment, behind the line for editors.
fn about(model: &str) -> String {
    let comment = model.lines().take_while(|line| line.starts_with('#'));
    let words = comment.filter(|line| !line.contains("yaml-language-server:"));
    let text = words.map(|line| line.trim_start_matches('#').trim()).collect::<Vec<_>>().join(" ");
    text.split_once(". ").map_or(text.clone(), |(sentence, _)| format!("{sentence}."))
}

fn example(path: &Path, model: &str) -> String {
    let name = name(path);
    format!("# {name}\n\n```yaml\n{model}```\n\n[Download {name}]({name})\n")
}

fn list_of_examples(tree: &SourceTree, examples: &[PathBuf]) -> io::Result<String> {
    let mut text =
        "# Examples\n\nModels to start from. `penstock rehearse FILE` shows what each does, on a board.\n\n"
            .to_owned();
    for path in examples {
        let about = about(&fs::read_to_string(tree.at(path))?);
        let _ = writeln!(text, "- [{}]({}): {about}", name(path), name(&path.with_extension("md")));
    }
    Ok(text)
}

/// The table of contents, as mdBook has it.
fn summary(sections: &[Section], pages: &Pages) -> String {
    let mut text = "# Summary\n\n[Penstock](index.md)\n[Documentation](docs/index.md)\n".to_owned();
    for section in sections {
        let _ = writeln!(text, "\n# {}\n", section.title);
        for entry in &section.entries {
            let page = pages.get(&entry.path).map_or(entry.path.as_path(), PathBuf::as_path);
            let _ = writeln!(text, "- [{}]({})", entry.title, page.display());
        }
    }
    text += "\n# Examples\n\n";
    for (path, page) in pages.iter().filter(|(path, _)| path.starts_with(EXAMPLES)) {
        let title = if path == Path::new(EXAMPLES) { "All examples".to_owned() } else { name(path) };
        let _ = writeln!(text, "- [{title}]({})", page.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{about, relative};

    #[test]
    fn the_way_from_one_file_to_another_goes_up_first() {
        let way = |from, to| relative(Path::new(from), Path::new(to));
        assert_eq!(way("docs/a.md", "docs/b.md"), "b.md");
        assert_eq!(way("docs/a.md", "schema/m.json"), "../schema/m.json");
        assert_eq!(way("index.md", "docs/index.md"), "docs/index.md");
    }

    #[test]
    fn an_example_is_described_by_its_first_sentence() {
        let model = "# yaml-language-server: $schema=x\n# One machine\n# with VMs. More of it.\nnics:\n";
        assert_eq!(about(model), "One machine with VMs.");
    }
}
