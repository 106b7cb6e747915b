//! Every link of the documents leads somewhere, and the index lists each document.
#![allow(clippy::disallowed_methods)]

use std::{fs, path::Path};

use penstock_docs::{Problem, book, index, links, site, tree::SourceTree};
use tempfile::TempDir;

fn tree() -> SourceTree {
    SourceTree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

fn told(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

#[test]
fn each_link_of_a_document_leads_to_a_file_and_a_heading_that_are_there() {
    let (count, problems) = links::check(&tree());
    assert!(problems.is_empty(), "{}", told(&problems));
    assert!(count.files > 40 && count.links > 250 && count.fragments > 60, "{count:?}");
}

#[test]
fn the_index_lists_each_document_once() {
    let sections = index::read(&tree()).unwrap_or_else(|problems| panic!("{}", told(&problems)));
    let titles: Vec<&str> = sections.iter().map(|section| section.title.as_str()).collect();
    assert_eq!(titles, ["Tutorial", "How-to", "Reference", "Explanation"]);
    assert!(sections.iter().all(|section| section.entries.len() > 1), "{sections:?}");
}

/// A small tree with these files.
fn small(files: &[(&str, &str)]) -> (TempDir, SourceTree) {
    let folder = tempfile::tempdir().unwrap();
    let index = "# Documentation\n\n## How-to\n\n- [the one](one.md): first\n- [Two](two.md)\n";
    let usual = [
        ("README.md", "# Penstock\n\n[All](docs/README.md)\n"),
        ("docs/README.md", index),
        (
            "docs/one.md",
            "# One\n\n[two](two.md#a-part), [model](../examples/a.yaml), [code](../src/x.rs), ![p](pictures/p.png)\n",
        ),
        ("docs/two.md", "# Two\n\n## A part\n\n[index](README.md)\n"),
        ("docs/pictures/p.png", ""),
        ("examples/a.yaml", "# A machine. More.\nnics: {A: }\n"),
        ("src/x.rs", ""),
    ];
    for (path, text) in usual.iter().chain(files) {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let tree = SourceTree::read(folder.path()).unwrap();
    (folder, tree)
}

#[test]
fn a_link_that_leads_nowhere_is_told_with_its_line_and_what_to_do() {
    let text = "# Three\n\n[a](gone.md) [b](two.md#a-prat)\n[c](../../x.md) [d][e] [f](../src/x.rs#a)\n\n<b>x</b> \
                ![g](https://a.example/p.png) [h](https://a.example)\n\n[e]: one.md\n";
    let (_folder, tree) = small(&[("docs/three.md", text)]);
    let (_, problems) = links::check(&tree);
    assert_eq!(
        told(&problems),
        "docs/three.md:3: the link to `gone.md`: there is no docs/gone.md\n\
         docs/three.md:3: the link to `two.md#a-prat`: no heading there is called `#a-prat`; the nearest is `#a-part` (docs/two.md)\n\
         docs/three.md:4: the link to `../../x.md`: it leads out of this repository: write a path from this document's folder\n\
         docs/three.md:4: the link to `one.md`: write it as `[words](target)`, as the site rewrites such links alone\n\
         docs/three.md:4: the link to `../src/x.rs#a`: src/x.rs is no document, and has no headings to name\n\
         docs/three.md:6: the link to `https://a.example/p.png`: a picture from another machine, which learns who reads this: put it into docs/pictures/\n\
         docs/three.md:6: HTML, whose links nobody follows: write Markdown, or `<NAME>` in backquotes\n\
         docs/three.md:6: HTML, whose links nobody follows: write Markdown, or `<NAME>` in backquotes\n"
    );
    let problems = index::read(&tree).unwrap_err();
    assert_eq!(
        told(&problems),
        "docs/three.md:1: docs/README.md does not list this document: add it to a list there\n"
    );
    assert!(book::make(&tree, &tree.at(Path::new("target/book"))).is_err());
}

#[test]
fn a_document_that_is_listed_twice_or_below_no_heading_is_told() {
    let index = "# Documentation\n\n- [One](one.md)\n\n## How-to\n\n- [Two](two.md), [two](two.md#a-part)\n";
    let (_folder, tree) = small(&[("docs/README.md", index)]);
    assert_eq!(
        told(&index::read(&tree).unwrap_err()),
        "docs/README.md:3: docs/one.md stands below no heading of level 2\n\
         docs/README.md:7: docs/two.md is listed already, in line 7: list it once\n"
    );
}

#[test]
fn the_book_has_every_page_and_its_links_lead_to_where_the_site_has_them() {
    let (folder, tree) = small(&[]);
    let made = book::make(&tree, &folder.path().join("book")).unwrap();
    assert_eq!((made.pages, made.links), (6, 8));
    let text = |path| fs::read_to_string(folder.path().join("book/src").join(path)).unwrap();
    assert_eq!(text("index.md"), "# Penstock\n\n[All](docs/index.md)\n");
    assert_eq!(text("docs/two.md"), "# Two\n\n## A part\n\n[index](index.md)\n");
    assert_eq!(
        text("docs/one.md"),
        "# One\n\n[two](two.md#a-part), [model](../examples/a.md), \
         [code](https://github.com/penstock/penstock/blob/main/src/x.rs), ![p](pictures/p.png)\n"
    );
    assert_eq!(text("examples/a.yaml"), "# A machine. More.\nnics: {A: }\n");
    assert!(text("examples/a.md").starts_with("# a.yaml\n\n```yaml\n# A machine. More.\n"));
    assert!(text("examples/index.md").ends_with("\n- [a.yaml](a.md): A machine.\n"));
    assert_eq!(
        text("SUMMARY.md"),
        "# Summary\n\n[Penstock](index.md)\n[Documentation](docs/index.md)\n\n# How-to\n\n- [The one](docs/one.md)\n- \
         [Two](docs/two.md)\n\n# Examples\n\n- [All examples](examples/index.md)\n- [a.yaml](examples/a.md)\n"
    );
    assert!(folder.path().join("book/src/docs/pictures/p.png").exists());
}

#[test]
fn the_picture_of_a_recording_is_played_on_a_page_of_its_own() {
    let cast = "{\"version\": 2, \"width\": 20, \"height\": 2}\n[0.5, \"o\", \"ab < c\"]\n";
    let (folder, tree) = small(&[
        ("docs/two.md", "# Two\n\n## A part\n\n![A \"terminal\"](pictures/s.svg)\n\n![p](pictures/p.svg)\n"),
        ("docs/pictures/s.svg", ""),
        ("docs/pictures/s.cast", cast),
        ("docs/pictures/p.svg", ""),
    ]);
    book::make(&tree, &folder.path().join("book")).unwrap();
    let text = |path| fs::read_to_string(folder.path().join("book/src").join(path)).unwrap();
    assert_eq!(
        text("docs/two.md"),
        "# Two\n\n## A part\n\n<div class=\"recording\" style=\"--width:196;--height:66\"><iframe src=\"pictures/s.html\" \
         title=\"A &quot;terminal&quot;\" loading=\"lazy\"></iframe></div>\n\n![p](pictures/p.svg)\n"
    );
    let page = text("docs/pictures/s.html");
    assert!(
        page.contains("<title>A &quot;terminal&quot;</title>") && page.contains("<pre>ab &lt; c\n</pre>"),
        "{page}"
    );
    assert!(
        page.contains(">ab &lt; c</text>") && page.contains("<a href=\"s.html\">From the start</a>"),
        "{page}"
    );

    let (folder, tree) = small(&[
        ("docs/two.md", "# Two\n\n## A part\n\n![A terminal](pictures/s.svg)\n"),
        ("docs/pictures/s.svg", ""),
        ("docs/pictures/s.cast", "no"),
    ]);
    let problems = book::make(&tree, &folder.path().join("book")).unwrap_err();
    let begin = "docs/pictures/s.cast: line 1 is not as an asciicast of version 2 has it: ";
    assert!(told(&problems).contains(begin), "{}", told(&problems));
}

#[test]
fn a_picture_that_is_the_words_of_a_link_stays_one() {
    let cast = "{\"version\": 2, \"width\": 20, \"height\": 2}\n[0.5, \"o\", \"a\"]\n";
    let text = "# Two\n\n## A part\n\n[![A terminal](pictures/s.svg)](../examples/a.yaml) [![p](../src/p.png)](../src/x.rs) [one](one.md)\n\n\
                ![B](pictures/a&b.svg)\n";
    let (folder, tree) = small(&[
        ("docs/two.md", text),
        ("docs/pictures/s.svg", ""),
        ("docs/pictures/s.cast", cast),
        ("docs/pictures/a&b.svg", ""),
        ("docs/pictures/a&b.cast", cast),
        ("src/p.png", ""),
    ]);
    book::make(&tree, &folder.path().join("book")).unwrap_or_else(|problems| panic!("{}", told(&problems)));
    let text = |path| fs::read_to_string(folder.path().join("book/src").join(path)).unwrap();
    let code = "https://github.com/penstock/penstock/blob/main/src";
    assert_eq!(
        text("docs/two.md"),
        format!(
            "# Two\n\n## A part\n\n[![A terminal](pictures/s.svg)](../examples/a.md) [![p]({code}/p.png)]({code}/x.rs) [one](one.md)\n\n\
             <div class=\"recording\" style=\"--width:196;--height:66\"><iframe src=\"pictures/a&amp;b.html\" title=\"B\" \
             loading=\"lazy\"></iframe></div>\n"
        )
    );
    assert!(text("docs/pictures/a&b.html").contains("<a href=\"a&amp;b.html\">From the start</a>"));
}

#[test]
fn a_page_whose_links_lead_nowhere_or_that_fetches_from_elsewhere_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let page = "<html>\n<script src=\"https://cdn.example/x.js\">'<a href=\"no.html\">'</script>\n<a href=\"b.html#there\">\
                <a href=\"b.html#gone\">\n<a href=\"c.html\"><a href=\"https://a.example\"><img src=\"data:x\"><p id=\"p\"><a href=\"#p\">";
    fs::write(folder.path().join("a.html"), page).unwrap();
    fs::write(folder.path().join("b.html"), "<h2 id=\"there\">").unwrap();
    fs::write(
        folder.path().join("s.css"),
        "a { b: url('b.html'); }\n@import \"https://cdn.example/s.css\";\n",
    )
    .unwrap();
    let (count, problems) = site::check(folder.path()).unwrap();
    assert_eq!((count.files, count.links, count.fragments), (2, 4, 3));
    assert_eq!(
        told(&problems),
        "s.css:2: `https://cdn.example/s.css` is no file of the site: bring it with the site\n\
         a.html:2: `https://cdn.example/x.js`: a browser fetches this from another machine: bring it with the site\n\
         a.html:3: `b.html#gone`: b.html has nothing of that name\n\
         a.html:4: `c.html`: the site has no c.html\n"
    );
}
