//! The links and headings of a document, read by the parser that mdBook reads it with.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

/// A link or picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkdownLink {
    /// Where it leads, as it is written.
    pub target: String,
    /// Its words.
    pub text: String,
    /// Whether it is a picture.
    pub picture: bool,
    /// Its line, from 1.
    pub line: usize,
    /// Where the target stands in the text; `None` where it is not written as `[words](target)`.
    pub place: Option<Range<usize>>,
    /// Where the whole of it stands in the text.
    pub range: Range<usize>,
    /// Whether it is in an item of a list.
    pub in_list: bool,
}

/// A heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// Its words, without marks.
    pub text: String,
    /// 1 for the title.
    pub level: u8,
    /// Its line, from 1.
    pub line: usize,
}

/// What of a document matters for links.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    /// In their order.
    pub links: Vec<MarkdownLink>,
    /// In their order.
    pub headings: Vec<Heading>,
    /// Lines with HTML, which code hosts strip and mdBook does not; comments are none.
    pub html: Vec<usize>,
}

/// Tables, strikethrough, footnotes and lists of tasks: what code hosts have too. `book.toml` switches off what mdBook knows besides.
const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_FOOTNOTES)
    .union(Options::ENABLE_TASKLISTS);

/// Reads a document.
pub fn read(text: &str) -> Outline {
    let line_of = line_finder(text);
    let mut outline = Outline::default();
    // Positions in `outline.links` of links that are not closed yet: a picture may be the words of a link.
    let mut open: Vec<usize> = Vec::new();
    let mut heading: Option<Heading> = None;
    let mut lists = 0;
    for (event, range) in Parser::new_ext(text, OPTIONS).into_offset_iter() {
        match event {
            Event::Start(
                ref tag @ (Tag::Link { link_type, ref dest_url, .. }
                | Tag::Image { link_type, ref dest_url, .. }),
            ) => {
                open.push(outline.links.len());
                outline.links.push(MarkdownLink {
                    place: place(text, &range, link_type, dest_url),
                    target: dest_url.to_string(),
                    text: String::new(),
                    picture: matches!(tag, Tag::Image { .. }),
                    line: line_of(range.start),
                    range: range.clone(),
                    in_list: lists > 0,
                });
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                open.pop();
            }
            Event::Start(Tag::Heading { level, .. }) => {
                heading =
                    Some(Heading { text: String::new(), level: level as u8, line: line_of(range.start) });
            }
            Event::End(TagEnd::Heading(_)) => outline.headings.extend(heading.take()),
            Event::Start(Tag::List(_)) => lists += 1,
            Event::End(TagEnd::List(_)) => lists -= 1,
            Event::Text(words) | Event::Code(words) => {
                for at in &open {
                    outline.links[*at].text += &words;
                }
                if let Some(heading) = &mut heading {
                    heading.text += &words;
                }
            }
            Event::Start(Tag::HtmlBlock) | Event::InlineHtml(_)
                if !text[range.clone()].trim_start().starts_with("<!--") =>
            {
                outline.html.push(line_of(range.start));
            }
            _ => {}
        }
    }
    outline
}

/// Where `target` stands in the link of that range.
fn place(text: &str, range: &Range<usize>, kind: LinkType, target: &str) -> Option<Range<usize>> {
    if kind != LinkType::Inline {
        return None;
    }
    let before = text[range.clone()].rfind(&format!("]({target}"))? + "](".len();
    let start = range.start + before;
    Some(start..start + target.len())
}

/// The line of a position.
fn line_finder(text: &str) -> impl Fn(usize) -> usize {
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    move |at| ends.partition_point(|end| *end < at) + 1
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn links_are_found_where_they_are_and_not_in_code() {
        let text = "# A `b` c\n\nSee [the *other* one](x.md#y), `[no](n.md)`\n\n```text\n[no](n.md)\n```\n\n- [![p](p.png)](q.md)\n";
        let outline = read(text);
        assert_eq!(outline.headings[0].text, "A b c");
        let seen: Vec<_> =
            outline.links.iter().map(|link| (&*link.target, &*link.text, link.line, link.in_list)).collect();
        assert_eq!(
            seen,
            [("x.md#y", "the other one", 3, false), ("q.md", "p", 9, true), ("p.png", "p", 9, true)]
        );
        for link in &outline.links {
            assert_eq!(text[link.place.clone().unwrap()], link.target);
            assert!(text[link.range.clone()].ends_with(&format!("]({})", link.target)));
        }
    }

    #[test]
    fn a_link_by_reference_has_no_place_and_html_is_seen() {
        let outline = read(
            "[a][b] <b>bold</b>\n<!-- a comment -->\n\n<!-- of\n\ntwo -->\n\n<p>\na\n</p>\n\n[b]: c.md\n",
        );
        assert_eq!((outline.links[0].target.as_str(), &outline.links[0].place), ("c.md", &None));
        assert_eq!(outline.html, [1, 1, 8]);
    }
}
