//! Text for terminals. What comes from outside (names of files, words of a model, what kernels, guests and other machines
//! say) goes through [`printable`], and nothing else makes it fit to be shown. [`Styled`] does so by itself.

use std::{borrow::Cow, fmt};

use anstyle::{AnsiColor, Effects};
use serde::{Deserialize, Serialize};
use textwrap::{
    core::{Word, break_words},
    wrap_algorithms::wrap_first_fit,
};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What stands for a character that must not reach a terminal.
const HIDDEN: char = char::REPLACEMENT_CHARACTER;

/// `text` without what steers a terminal. Colours (ECMA-48, 8.3.117, SGR) go without a trace, since the logs of guests are
/// full of them. Every other escape sequence (5.4) becomes one U+FFFD, and so does every control character but newline and
/// tab and every character that turns the direction of the text around it (Unicode TR 36, 3.2). Carriage returns at the
/// end of lines go too.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| !matches!(c, '\n' | '\t') && is_hidden(c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.peek() {
                Some('[') => {
                    chars.next();
                    // Parameters and intermediates, then one final byte.
                    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
                    if chars.next_if_eq(&'m').is_none() {
                        chars.next_if(|c| matches!(c, '@'..='~'));
                        shown.push(HIDDEN);
                    }
                }
                // A string (device control, operating-system command and their like): up to BEL or ST, never over the end
                // of the line.
                Some(']' | 'P' | 'X' | '^' | '_') => {
                    while chars.next_if(|c| !matches!(c, '\u{7}' | '\u{1b}' | '\n')).is_some() {}
                    if chars.next_if_eq(&'\u{7}').is_none() && chars.next_if_eq(&'\u{1b}').is_some() {
                        chars.next_if_eq(&'\\');
                    }
                    shown.push(HIDDEN);
                }
                // The two-character sequences.
                Some('@'..='~') => {
                    chars.next();
                    shown.push(HIDDEN);
                }
                _ => shown.push(HIDDEN),
            },
            '\n' | '\t' => shown.push(c),
            '\r' if matches!(chars.peek(), None | Some('\n')) => {}
            c if is_hidden(c) => shown.push(HIDDEN),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// The same on one line: newlines and tabs become blanks.
pub fn one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// So many characters of a metric's label are kept. Names of ours are shorter; what firmware or a file is called need not be.
const LONGEST_LABEL: usize = 128;

/// The value of a metric's label: on one line, without what steers a terminal, and not longer than 128 characters; what is cut off is said
/// with an ellipsis.
pub fn metric_label(value: &str) -> String {
    let value = one_line(value);
    match value.char_indices().nth(LONGEST_LABEL) {
        None => value,
        Some((end, _)) => format!("{}…", &value[..end]),
    }
}

/// JSON without what steers a terminal, and with the same meaning: characters that are hidden can stand in its strings alone,
/// where they can be written otherwise.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let harmless = |c: char| matches!(c, '\n' | '\r' | '\t') || !is_hidden(c);
    if json.chars().all(harmless) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if harmless(c) {
            shown.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| shown.push_str(&format!("\\u{unit:04x}")));
        }
    }
    Cow::Owned(shown)
}

/// Whether a character steers a terminal or is there to be overlooked: control characters (C0, DEL, C1), the directions of
/// Unicode's bidirectional algorithm, separators of lines, marks of annotations, and tags.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// How many columns of a terminal `text` takes.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// `1 VF`, `2 VFs`: a number of things whose word takes an s.
pub fn counted(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// The parts of a path that say something, `/` the first where it starts from the top: `a//b` and `./a/b` are one place.
pub fn path_parts(path: &str) -> Vec<&str> {
    let root = path.starts_with('/').then_some("/");
    root.into_iter().chain(path.split('/').filter(|part| !matches!(*part, "" | "."))).collect()
}

/// A path without the parts that say nothing: two that are equal are one place, links aside. Empty for `.`.
pub fn plain_path(path: &str) -> String {
    let root = if path.starts_with('/') { "/" } else { "" };
    let parts = path_parts(path);
    format!("{root}{}", parts.get(root.len()..).unwrap_or_default().join("/"))
}

/// At most `most` columns of `text`; what is cut off is said with an ellipsis.
pub fn clip(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let mut clipped = String::new();
    let mut room = most.saturating_sub(1);
    for c in text.chars() {
        let Some(left) = room.checked_sub(c.width().unwrap_or(0)) else { break };
        room = left;
        clipped.push(c);
    }
    clipped.push('…');
    clipped
}

/// Words of `text` in lines of at most `width` columns; a word that is longer is cut into several. `None` is a line of any
/// length. There is at least one line.
pub fn wrap(text: &str, width: Option<usize>) -> Vec<String> {
    fill(text.split_whitespace(), width.unwrap_or(usize::MAX).max(1), true)
}

/// The same of a message to a person, of which paths and commands are copied: no word is cut, however long it is, and what stands
/// between backquotes is broken only where it is longer than a line.
pub fn wrap_prose(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        // A command that this word begins, with what stands right behind it.
        let begins = rest[..end].matches('`').count() % 2 == 1;
        let closing = rest[end..].find('`').filter(|_| begins).map(|at| end + at + 1);
        let whole = closing.map(|at| at + rest[at..].find(char::is_whitespace).unwrap_or(rest.len() - at));
        let end = whole.filter(|whole| columns(&rest[..*whole]) <= width).unwrap_or(end);
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    fill(words.into_iter(), width, false)
}

/// Words in lines of at most `width` columns; one that is longer is cut, or has a line of its own.
fn fill<'a>(words: impl Iterator<Item = &'a str>, width: usize, cut: bool) -> Vec<String> {
    let words = words.map(|word| Word { whitespace: " ", ..Word::from(word) });
    let words = if cut { break_words(words, width) } else { words.collect() };
    let lines = wrap_first_fit(&words, &[width as f64]);
    let line = |words: &&[Word<'_>]| {
        let text: String = words.iter().flat_map(|word| [word.word, word.whitespace]).collect();
        text.trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}

/// How a part of a text looks where colours may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// As the terminal has it.
    Plain,
    /// What stands out: a heading.
    Bold,
    /// What is beside the point.
    Dim,
    /// The label of an error, in bold red.
    Error,
    /// A warning, and what is dangerous.
    Warning,
    /// What to do.
    Help,
    /// Line numbers and marks beside an excerpt.
    Gutter,
    /// What is new.
    Added,
    /// What is removed.
    Removed,
    /// What becomes otherwise.
    Changed,
}

impl Style {
    /// Its colour and weight.
    pub fn look(self) -> anstyle::Style {
        let color = |color: AnsiColor| anstyle::Style::new().fg_color(Some(color.into()));
        let bold = |color: AnsiColor| anstyle::Style::new().bold().fg_color(Some(color.into()));
        match self {
            Style::Plain => anstyle::Style::new(),
            Style::Bold => anstyle::Style::new().bold(),
            Style::Dim => anstyle::Style::new().effects(Effects::DIMMED),
            Style::Error => bold(AnsiColor::Red),
            Style::Warning => bold(AnsiColor::Yellow),
            Style::Help => bold(AnsiColor::Cyan),
            Style::Gutter => bold(AnsiColor::Blue),
            Style::Added => color(AnsiColor::Green),
            Style::Removed => color(AnsiColor::Red),
            Style::Changed => color(AnsiColor::Yellow),
        }
    }
}

/// Text in parts that look different. However it gets out, as plain text or with colours, its parts are [`printable`]: what
/// came from outside cannot steer a terminal, since all colours are those of [`Style`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Styled(Vec<(Style, String)>);

impl Styled {
    /// No text yet.
    pub fn new() -> Styled {
        Styled::default()
    }

    /// The text of one style.
    pub fn of(style: Style, text: impl Into<String>) -> Styled {
        let text = text.into();
        if text.is_empty() { Styled::new() } else { Styled(vec![(style, text)]) }
    }

    /// Goes on with `text` in this style.
    pub fn push(&mut self, style: Style, text: impl AsRef<str>) {
        let text = text.as_ref();
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some((last, before)) if *last == style => before.push_str(text),
            _ => self.0.push((style, text.to_owned())),
        }
    }

    /// Goes on with `text` as the terminal has it.
    pub fn plain(&mut self, text: impl AsRef<str>) {
        self.push(Style::Plain, text);
    }

    /// Goes on with all of `other`.
    pub fn append(&mut self, other: Styled) {
        other.0.into_iter().for_each(|(style, text)| self.push(style, text));
    }

    /// The same, of at most so many columns; what is cut off is said with an ellipsis.
    #[must_use]
    pub fn clip(self, most: usize) -> Styled {
        let (mut clipped, mut room) = (Styled::new(), most);
        for (style, text) in self.0 {
            let text = printable(&text);
            let wide = columns(&text);
            if wide > room {
                clipped.push(style, clip(&text, room.max(1)));
                break;
            }
            room -= wide;
            clipped.push(style, text);
        }
        clipped
    }

    /// Its parts on one line, fit to be shown.
    pub fn parts(&self) -> impl Iterator<Item = (Style, String)> {
        self.0.iter().map(|(style, text)| (*style, one_line(text)))
    }

    /// The characters as they were given, for whoever reads them as data: they are not fit to be shown.
    pub fn raw(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether its last character ends a line.
    pub fn ends_a_line(&self) -> bool {
        self.0.last().is_some_and(|(_, text)| text.ends_with('\n'))
    }

    /// The same without newlines at its end.
    #[must_use]
    pub fn trim_end(mut self) -> Styled {
        while let Some((_, last)) = self.0.last_mut() {
            last.truncate(last.trim_end_matches('\n').len());
            if !last.is_empty() {
                break;
            }
            self.0.pop();
        }
        self
    }

    /// Plain text, or with colours (ECMA-48, SGR).
    pub fn shown(&self, color: bool) -> String {
        match color {
            false => self.to_string(),
            true => {
                let part = |(style, text): &(Style, String)| match style {
                    Style::Plain => printable(text).into_owned(),
                    other => {
                        let look = other.look();
                        format!("{look}{}{look:#}", printable(text))
                    }
                };
                self.0.iter().map(part).collect()
            }
        }
    }
}

/// Adds a paragraph to `out`: `text` after `lead`, in lines of at most `width` columns (`None`: of any length), the further ones
/// indented as deep. The style is that of what stands out: of the lead, or without one of the text.
pub fn paragraph(out: &mut Styled, style: Style, lead: &str, text: &str, width: Option<usize>) {
    let indent = columns(lead);
    let room = width.map(|width| width.saturating_sub(indent));
    let of_text = if lead.trim().is_empty() { style } else { Style::Plain };
    for (number, line) in wrap(text, room).into_iter().enumerate() {
        match number {
            0 => out.push(style, lead),
            _ => out.plain(" ".repeat(indent)),
        }
        out.push(of_text, line);
        out.plain("\n");
    }
}

/// The text without its styles.
impl fmt::Display for Styled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(_, text)| f.write_str(&printable(text)))
    }
}

impl From<String> for Styled {
    fn from(text: String) -> Styled {
        Styled::of(Style::Plain, text)
    }
}

impl From<&str> for Styled {
    fn from(text: &str) -> Styled {
        text.to_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        for (path, plain) in [
            ("/", "/"),
            ("/.", "/"),
            ("//./", "/"),
            ("", ""),
            ("./", ""),
            ("a//b/.", "a/b"),
            ("./a/b", "a/b"),
            ("/a/../b", "/a/../b"),
        ] {
            assert_eq!(plain_path(path), plain, "{path}");
        }
        assert_eq!(path_parts("//a/./b"), ["/", "a", "b"]);
    }

    #[test]
    fn what_steers_a_terminal_becomes_a_mark_and_colours_go() {
        for (text, wanted) in [
            ("\u{1b}[1;31mred\u{1b}[0m\r\nplain\tx\u{0}", "red\nplain\tx\u{fffd}"),
            ("x\u{1b}[2Jy", "x\u{fffd}y"),
            ("\u{1b}]0;title\u{7}after", "\u{fffd}after"),
            ("\u{1b}]0;title\u{1b}\\after", "\u{fffd}after"),
            ("\u{1b}]0;never ends\nafter", "\u{fffd}\nafter"),
            ("\u{1b}P+q544e\u{1b}\\after", "\u{fffd}after"),
            ("a\u{202e}b\u{2066}c", "a\u{fffd}b\u{fffd}c"),
            ("a\u{9b}2Jb", "a\u{fffd}2Jb"),
            ("10%\r100%", "10%\u{fffd}100%"),
            ("\u{1b}", "\u{fffd}"),
            ("\u{1b}c", "\u{fffd}"),
            ("naïve 🧊 日本", "naïve 🧊 日本"),
        ] {
            assert_eq!(printable(text), wanted, "{text:?}");
        }
        assert_eq!(one_line("a\nb"), "a b");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let text = "\u{7f}\u{9b}\u{202e}\u{e0041} ü";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let shown = printable_json(&json);
        assert!(!shown.contains(|c| c != '\n' && is_hidden(c)), "{shown:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [text]);
    }

    #[test]
    fn styled_text_has_no_colours_but_its_own() {
        let mut text = Styled::of(Style::Error, "error:");
        text.plain(" no \u{1b}[8m\u{1b}[2Jfile\n\n");
        assert_eq!(text.to_string(), "error: no \u{fffd}file\n\n");
        let text = text.trim_end();
        assert_eq!(text.shown(true), "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m no \u{fffd}file");
        assert_eq!(text.shown(false), text.to_string());
    }

    #[test]
    fn clipping_and_wrapping_count_columns() {
        assert_eq!(clip("äöü", 3), "äöü");
        assert_eq!(clip("äöüß", 3), "äö…");
        assert_eq!(clip("日本語", 4), "日…");
        assert_eq!(wrap("one two  three", Some(7)), ["one two", "three"]);
        assert_eq!(wrap("one two  three", None), ["one two three"]);
        assert_eq!(wrap("a abcdefgh b", Some(3)), ["a", "abc", "def", "gh", "b"].map(str::to_owned).to_vec());
        assert_eq!(wrap("日本語", Some(4)), ["日本", "語"]);
        assert_eq!(wrap("", Some(4)), [""]);
    }

    #[test]
    fn a_metrics_label_is_one_line_that_is_not_too_long() {
        assert_eq!(metric_label("a\nb\u{1b}[1m"), "a b");
        assert_eq!(metric_label(&"ä".repeat(LONGEST_LABEL)), "ä".repeat(LONGEST_LABEL));
        let clipped = format!("{}…", "ä".repeat(LONGEST_LABEL));
        assert_eq!(metric_label(&"ä".repeat(LONGEST_LABEL + 1)), clipped);
    }

    #[test]
    fn what_is_to_be_copied_stays_whole_in_prose() {
        assert_eq!(wrap_prose("try `penstock undo` now", 17), ["try", "`penstock undo`", "now"]);
        assert_eq!(wrap_prose("(`a b`, `c d`) e", 9), ["(`a b`,", "`c d`) e"]);
        assert_eq!(wrap_prose("see /a/very/long/path there", 8), ["see", "/a/very/long/path", "there"]);
        // A backquote without its other half, and a command that is longer than a line.
        assert_eq!(wrap_prose("one ` two three", 8), ["one `", "two", "three"]);
        assert_eq!(wrap_prose("`one two three` four", 8), ["`one two", "three`", "four"]);
        assert_eq!(wrap_prose("", 8), [""]);
    }
}
