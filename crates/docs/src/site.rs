//! Follows every link of the built site, and makes sure that reading it fetches nothing from another machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use html5gum::{DefaultEmitter, HtmlString, StartTag, Token, Tokenizer};

use crate::{
    Problem,
    links::LinkCount,
    tree::{is_elsewhere, normal},
};

/// A page of the site.
#[derive(Debug, Default)]
struct Page {
    /// What a fragment may name.
    ids: BTreeSet<String>,
    references: Vec<Reference>,
    /// `<base href>`: where relative links begin, if not in the page's folder.
    base: Option<String>,
}

/// A place in a page that names a file.
#[derive(Debug)]
struct Reference {
    target: String,
    line: usize,
    /// Whether a browser fetches it by itself, as it does a picture, and not when somebody follows it.
    fetched: bool,
}

/// Follows all links of the site in that folder.
///
/// # Errors
///
/// When a file cannot be read.
pub fn check(site: &Path) -> io::Result<(LinkCount, Vec<Problem>)> {
    let mut files = BTreeSet::new();
    collect(site, Path::new(""), &mut files)?;
    let mut pages = BTreeMap::new();
    let mut problems = Vec::new();
    for path in &files {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("html") => {
                pages.insert(path.clone(), read(&fs::read_to_string(site.join(path))?));
            }
            Some("css") => problems.extend(styles(path, &fs::read_to_string(site.join(path))?, &files)),
            _ => {}
        }
    }
    let mut count = LinkCount { files: pages.len(), ..LinkCount::default() };
    for (path, page) in &pages {
        for reference in &page.references {
            if let Err(message) = follow(&files, &pages, path, page, reference, &mut count) {
                problems.push(Problem::new(
                    path,
                    reference.line,
                    format!("`{}`: {message}", reference.target),
                ));
            }
        }
    }
    Ok((count, problems))
}

fn follow(
    files: &BTreeSet<PathBuf>,
    pages: &BTreeMap<PathBuf, Page>,
    path: &Path,
    page: &Page,
    reference: &Reference,
    count: &mut LinkCount,
) -> Result<(), String> {
    let target = reference.target.as_str();
    if is_elsewhere(target) {
        let inside = target.starts_with("data:");
        return match reference.fetched && !inside {
            true => Err("a browser fetches this from another machine: bring it with the site".into()),
            false => Ok(()),
        };
    }
    count.links += 1;
    let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
    let file = file.split_once('?').map_or(file, |(file, _)| file);
    let leads_to = match (file, &page.base) {
        ("", _) => path.to_owned(),
        (file, base) => {
            let folder = match base {
                Some(base) => Path::new(base.trim_start_matches('/')),
                None => path.parent().unwrap_or(Path::new("")),
            };
            let file = normal(&folder.join(file)).ok_or("it leads out of the site")?;
            let of_folder = file.join("index.html");
            if files.contains(&of_folder) { of_folder } else { file }
        }
    };
    if !files.contains(&leads_to) {
        return Err(format!("the site has no {}", leads_to.display()));
    }
    if !fragment.is_empty() {
        count.fragments += 1;
        let named = pages.get(&leads_to).is_some_and(|page| page.ids.contains(fragment));
        if !named {
            return Err(format!("{} has nothing of that name", leads_to.display()));
        }
    }
    Ok(())
}

/// Reads what a page names.
fn read(html: &str) -> Page {
    let mut page = Page::default();
    let mut emitter = DefaultEmitter::<usize>::new_with_span();
    // What looks like a tag in a script is none.
    emitter.naively_switch_states(true);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(Token::StartTag(tag)) = token else { continue };
        let line = html[..tag.span.start].matches('\n').count() + 1;
        of_tag(&tag, line, &mut page);
    }
    page
}

fn of_tag(tag: &StartTag<usize>, line: usize, page: &mut Page) {
    let value = |name: &str| {
        let value: &HtmlString = tag.attributes.get(name.as_bytes())?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    page.ids.extend(value("id"));
    let name = tag.name.as_slice();
    if name == b"base" {
        page.base = value("href");
        return;
    }
    if name == b"a" || name == b"area" {
        page.ids.extend(value("name"));
        page.references.extend(value("href").map(|target| Reference { target, line, fetched: false }));
        return;
    }
    for attribute in ["href", "src", "poster", "data"] {
        page.references.extend(value(attribute).map(|target| Reference { target, line, fetched: true }));
    }
}

/// What a style sheet fetches: `url(...)`, and `@import` of a text.
fn styles(path: &Path, css: &str, files: &BTreeSet<PathBuf>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, _) in css.match_indices("url(").chain(css.match_indices("@import")) {
        let line = css[..at].matches('\n').count() + 1;
        let rest = css[at..].split_once(['(', '"', '\'']).map_or("", |(_, rest)| rest);
        let target = rest.trim_start_matches(['"', '\'']).split(['"', '\'', ')']).next().unwrap_or("");
        if target.starts_with("data:") || target.starts_with('#') {
            continue;
        }
        let file = target.split(['?', '#']).next().unwrap_or(target);
        let folder = path.parent().unwrap_or(Path::new(""));
        let there = normal(&folder.join(file)).is_some_and(|file| files.contains(&file));
        if is_elsewhere(target) || !there {
            let message = format!("`{target}` is no file of the site: bring it with the site");
            problems.push(Problem::new(path, line, message));
        }
    }
    problems
}

fn collect(site: &Path, folder: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(site.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(site, &path, found)?;
        } else {
            found.insert(path);
        }
    }
    Ok(())
}
