//! Messages as a person reads them: the line of the file, what is meant underlined, and what to do.
//!
//! ```text
//! error: unknown key `vf`
//!   --> m.yaml:3:9
//!    |
//!  3 |   NET0: {vf: 7}
//!    |          ^^
//!    = help: did you mean `vfs`?
//! ```

use std::ops::Range;

use unicode_width::UnicodeWidthChar;

use crate::{
    Diagnostics, Source,
    diagnostic::{Diagnostic, Path, PathTarget, Severity},
    text::{self, Style, Styled, is_hidden, one_line, wrap_prose},
    tree::{self, YamlNode},
};

/// The most columns of a line that are shown; of a longer one, what surrounds the place.
const WIDEST: usize = 120;
/// Columns shown before the place when the line is cut.
const BEFORE: usize = 40;

impl Diagnostics {
    /// All messages with their places in `source`, each ended by a newline and set apart by an empty line; with ANSI
    /// colours if `color`. A path that leads nowhere in the file shows the longest part of it that does.
    pub fn render(&self, source: &Source, color: bool) -> String {
        self.styled(source, None).shown(color)
    }

    /// The same with its styles, for whoever knows later whether colours may be shown, in lines of at most `width` columns where that
    /// can be.
    pub fn styled(&self, source: &Source, width: Option<usize>) -> Styled {
        let root = tree::read(&source.text).ok().map(|(root, _)| root);
        let page = Page { source, root: root.as_ref(), lines: line_starts(&source.text), width };
        let mut out = Styled::new();
        for (n, diagnostic) in self.0.iter().enumerate() {
            if n > 0 {
                out.plain("\n");
            }
            page.message(&mut out, diagnostic);
        }
        out
    }
}

/// The byte at which each line starts. A line feed ends one, a carriage return, and both together (YAML 1.2.2, section 5.4).
fn line_starts(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let ends = |at: &usize| match bytes.get(*at) {
        Some(b'\n') => true,
        Some(b'\r') => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    };
    std::iter::once(0).chain((0..bytes.len()).filter(ends).map(|at| at + 1)).collect()
}

/// A file whose places can be looked up.
pub struct Page<'a> {
    source: &'a Source,
    root: Option<&'a YamlNode>,
    lines: Vec<usize>,
    /// Columns that a line may take; `None`: as many as it likes.
    width: Option<usize>,
}

/// One place in numbers, all counted from 1; columns are characters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    pub line: usize,
    pub column: usize,
    pub end_line: usize,
    pub end_column: usize,
}

/// One place as it is shown.
struct Excerpt {
    line: usize,
    column: usize,
    text: String,
    /// Columns before the underlined ones.
    indent: usize,
    /// Underlined columns, at least one.
    width: usize,
}

impl Page<'_> {
    /// Looks places of `source` up.
    pub fn with<T>(source: &Source, look: impl FnOnce(&Page<'_>) -> T) -> T {
        let root = tree::read(&source.text).ok().map(|(root, _)| root);
        let lines = line_starts(&source.text);
        look(&Page { source, root: root.as_ref(), lines, width: None })
    }

    /// Where that is, in numbers; `None` for the file as a whole.
    pub fn span(&self, path: &Path, place: &PathTarget) -> Option<Span> {
        let bytes = self.bytes(path, place)?;
        let text = &self.source.text;
        let at = |byte: usize| {
            let byte = floor(text, byte);
            let line = self.lines.partition_point(|first| *first <= byte).max(1);
            let before = &text[self.lines[line - 1]..byte];
            (line, before.chars().filter(|c| *c != '\u{feff}').count() + 1)
        };
        let ((line, column), (end_line, end_column)) = (at(bytes.start), at(bytes.end.max(bytes.start)));
        Some(Span { line, column, end_line, end_column })
    }

    /// Which bytes of the text are meant.
    fn bytes(&self, path: &Path, place: &PathTarget) -> Option<Range<usize>> {
        let bytes = match (self.root, place) {
            (Some(root), _) => root.locate(&self.source.text, path, place),
            (None, PathTarget::Bytes(bytes)) => Some(bytes.clone()),
            (None, _) => None,
        };
        bytes.filter(|_| !self.source.text.is_empty())
    }

    fn message(&self, out: &mut Styled, diagnostic: &Diagnostic) {
        let (kind, style) = match diagnostic.severity {
            Severity::Error => ("error", Style::Error),
            Severity::Warning => ("warning", Style::Warning),
        };
        out.push(style, kind);
        out.push(Style::Bold, format!(": {}\n", self.hanging(&diagnostic.message, columns(kind) + 2, 2)));
        let find = |path: &Path, place: &PathTarget| self.bytes(path, place);
        let main = find(&diagnostic.path, &diagnostic.place).map(|bytes| self.excerpt(bytes));
        let related = diagnostic.related.as_ref().and_then(|related| {
            let bytes = find(&related.path, &related.place)?;
            Some((self.excerpt(bytes), related.label.as_str()))
        });
        let widest = main
            .iter()
            .chain(related.iter().map(|(excerpt, _)| excerpt))
            .map(|excerpt| excerpt.line.to_string().len())
            .max()
            .unwrap_or(1);
        let margin = " ".repeat(widest + 1);
        let name = one_line(&self.source.name);
        let arrow = |out: &mut Styled, arrow: &str, at: String| {
            out.plain(&margin);
            out.push(Style::Gutter, arrow);
            out.plain(format!(" {at}\n"));
        };
        match &main {
            Some(excerpt) => {
                arrow(out, "-->", format!("{name}:{}:{}", excerpt.line, excerpt.column));
                show(out, excerpt, widest, style, &"^".repeat(excerpt.width));
            }
            None => arrow(out, "-->", name.clone()),
        }
        if let Some((excerpt, label)) = &related {
            arrow(out, ":::", format!("{name}:{}:{}", excerpt.line, excerpt.column));
            show(out, excerpt, widest, Style::Gutter, &format!("{} {label}", "-".repeat(excerpt.width)));
        }
        if let Some(hint) = &diagnostic.hint {
            out.plain(format!("{margin} "));
            out.push(Style::Gutter, "=");
            out.plain(" ");
            out.push(Style::Help, "help:");
            let indent = widest + 1 + columns(" = help: ");
            out.plain(format!(" {}\n", self.hanging(hint, indent, indent)));
        }
    }

    /// `text` after `before` columns; its further lines, and what does not fit, begin after `indent` of them.
    fn hanging(&self, text: &str, before: usize, indent: usize) -> String {
        let room = self.width.map(|width| width.saturating_sub(before.max(indent)));
        let wrapped = text.lines().flat_map(|line| match room {
            Some(room) if text::columns(line) > room => wrap_prose(line, room),
            _ => vec![line.to_owned()],
        });
        wrapped.collect::<Vec<_>>().join(&format!("\n{}", " ".repeat(indent)))
    }

    /// The most columns of the file's own lines that are shown beside a gutter of this many.
    fn widest(&self, gutter: usize) -> usize {
        /// Less says nothing.
        const LEAST: usize = 20;
        self.width.map_or(WIDEST, |width| width.saturating_sub(gutter).clamp(LEAST, WIDEST))
    }

    fn excerpt(&self, bytes: Range<usize>) -> Excerpt {
        let text = &self.source.text;
        let start = floor(text, bytes.start);
        let line = self.lines.partition_point(|first| *first <= start).max(1);
        let first = self.lines[line - 1];
        let last = self.lines.get(line).map_or(text.len(), |next| next - 1);
        let whole = text[first..last.max(start)].trim_end_matches('\r');
        let end = floor(text, bytes.end).clamp(start, first + whole.len().max(start - first));
        let (before, rest) = text[first..].split_at(start - first);
        let meant = &rest[..end - start];
        let after = whole.get(end - first..).unwrap_or_default();

        // The number of the line stands before it, and what a cut is told by behind it.
        let widest = self.widest(line.to_string().len() + columns("  | ..."));
        let (mut shown, indent) = tail(before, BEFORE.min(widest / 3), columns(whole) > widest);
        let column = before.chars().filter(|c| *c != '\u{feff}').count() + 1;
        let room = widest.saturating_sub(indent);
        let (meant, cut) = head(meant, room);
        let width = columns(&meant).max(1);
        shown.push_str(&meant);
        if !cut {
            let (after, _) = head(after, room.saturating_sub(width));
            shown.push_str(&after);
        }
        Excerpt { line, column, text: shown.trim_end().to_owned(), indent, width }
    }
}

/// A line of the file, with `mark` below what is meant.
fn show(out: &mut Styled, excerpt: &Excerpt, widest: usize, style: Style, mark: &str) {
    let margin = " ".repeat(widest + 1);
    out.plain(format!("{margin} "));
    out.push(Style::Gutter, "|");
    out.plain("\n ");
    out.push(Style::Gutter, format!("{:>widest$} |", excerpt.line));
    out.plain(format!(" {}\n{margin} ", excerpt.text));
    out.push(Style::Gutter, "|");
    out.plain(format!(" {}", " ".repeat(excerpt.indent)));
    out.push(style, mark);
    out.plain("\n");
}

/// The nearest boundary between characters at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// How a character is shown: a tab as one space, another control character as a mark.
fn visible(c: char) -> char {
    match c {
        '\t' => ' ',
        c if is_hidden(c) || c.width().is_none() => '\u{fffd}',
        c => c,
    }
}

fn plain(text: &str) -> String {
    text.chars().map(visible).collect()
}

fn column_of(c: char) -> usize {
    visible(c).width().unwrap_or(1)
}

/// Columns of `text`, counted no further than need be.
fn columns(text: &str) -> usize {
    text.chars().take(2 * WIDEST).map(column_of).sum()
}

/// What comes before the place, and its columns; only the last `most` of them when the line is to be cut.
fn tail(text: &str, most: usize, cut: bool) -> (String, usize) {
    if !cut {
        return (plain(text), columns(text));
    }
    let mut kept: Vec<char> = text.chars().rev().take(most).collect();
    kept.reverse();
    let text: String = kept.into_iter().map(visible).collect();
    let dots = if text.chars().count() == most { "..." } else { "" };
    let text = format!("{dots}{text}");
    let width = columns(&text);
    (text, width)
}

/// The first `most` columns of `text`, and whether something is left out.
fn head(text: &str, most: usize) -> (String, bool) {
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += column_of(c);
        if used > most {
            out.push_str("...");
            return (out, true);
        }
        out.push(visible(c));
    }
    (out, false)
}
