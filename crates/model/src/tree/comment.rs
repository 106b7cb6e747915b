//! Comments that nobody meant: after white space a `#` begins one, so that `NET0 #1` is the PF and not its VF 1.

use std::ops::Range;

use super::{YamlNode, YamlValue, read, shown};
use crate::{
    FunctionName,
    diagnostic::{Diagnostic, Path, PathTarget},
};

/// No more such places than this are told of one file, and looked at where it is no YAML because of them.
const MOST: usize = 20;
/// A function's name, with quotes around it, is not longer than this.
const LONGEST: usize = 64;

/// A function, a comment after it, and what the two might mean together.
struct Split<'a> {
    /// Where both stand in the text.
    place: Range<usize>,
    /// What stands there.
    written: &'a str,
    /// The function before the `#`, as YAML reads it.
    name: FunctionName,
    /// The digits after the `#`.
    digits: &'a str,
}

impl<'a> Split<'a> {
    /// `comment` begins with a `#`, `length` bytes of which are taken for an index.
    fn new(name: FunctionName, text: &'a str, start: usize, comment: usize, length: usize) -> Split<'a> {
        let place = start..comment + length;
        let digits = text[comment..comment + length].trim_start_matches(['#', ' ', '\t']);
        Split { written: &text[place.clone()], place, name, digits }
    }

    /// Both as one word.
    fn joined(&self) -> String {
        format!("{}#{}", self.name, self.digits)
    }

    fn message(&self, what: &str) -> Diagnostic {
        let name = &self.name;
        let hint = match self.joined().parse::<FunctionName>() {
            Ok(meant) => format!("did you mean {meant}? If {name} is meant, begin the comment with a word"),
            Err(_) => "begin the comment with a word".to_owned(),
        };
        Diagnostic::error(Path::default(), format!("{} is {name} and {what}", shown(self.written)))
            .at_bytes(self.place.clone())
            .with_hint(hint)
    }
}

/// Functions that are cut in two by a comment, anywhere that a model names functions. What is found is spoiled in the tree: what it
/// says is not what was meant.
pub(super) fn cut_functions(root: &mut YamlNode, text: &str) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut cut = |node: &YamlNode| {
        let Some(split) = after(node, text) else { return false };
        let message = split.message("a comment: in YAML a `#` after a space begins one");
        // An alias stands at several places, for one.
        if found.len() < MOST && !found.contains(&message) {
            found.push(message);
        }
        true
    };
    for guest in values(root.child_mut("guests")) {
        let mut named: Vec<&mut YamlNode> = Vec::new();
        for (key, node) in entries(guest) {
            match key {
                "functions" => named.extend(items(Some(node))),
                "nics" => named.extend(values(Some(node)).filter_map(|nic| nic.child_mut("uplink"))),
                _ => {}
            }
        }
        for function in named {
            let is_cut = match &function.value {
                YamlValue::Mapping(entries) => entries
                    .iter()
                    .filter(|entry| matches!(entry.key.as_str(), "vf" | "pf"))
                    .any(|entry| cut(&entry.value)),
                _ => cut(function),
            };
            if is_cut {
                function.value = YamlValue::Spoiled;
            }
        }
    }
    for cable in items(root.child_mut("board").and_then(|board| board.child_mut("cables"))) {
        if items(Some(cable)).any(|end| cut(end)) {
            cable.value = YamlValue::Spoiled;
        }
    }
    found
}

/// The keys of a mapping, each with what stands there; none of what is no mapping.
fn entries(node: &mut YamlNode) -> impl Iterator<Item = (&str, &mut YamlNode)> {
    let entries = match &mut node.value {
        YamlValue::Mapping(entries) => entries.as_mut_slice(),
        _ => &mut [],
    };
    entries.iter_mut().map(|entry| (entry.key.as_str(), &mut entry.value))
}

fn values(node: Option<&mut YamlNode>) -> impl Iterator<Item = &mut YamlNode> {
    node.into_iter().flat_map(entries).map(|(_, value)| value)
}

fn items(node: Option<&mut YamlNode>) -> impl Iterator<Item = &mut YamlNode> {
    let items = match node.map(|node| &mut node.value) {
        Some(YamlValue::Sequence(items)) => items.as_mut_slice(),
        _ => &mut [],
    };
    items.iter_mut()
}

/// The comment after a function in the rest of its line, if that reads like an index.
fn after<'a>(node: &YamlNode, text: &'a str) -> Option<Split<'a>> {
    let YamlValue::Scalar(value) = &node.value else { return None };
    let name = value.parse::<FunctionName>().ok()?;
    let rest = text.get(node.span.end..)?;
    let comment = rest.trim_start_matches([' ', '\t']);
    let blank = rest.len() - comment.len();
    // Nothing else is looked at for most functions: thousands may be in one line.
    if blank == 0 || !comment.starts_with('#') {
        return None;
    }
    let line = &comment[..comment.find(['\n', '\r']).unwrap_or(comment.len())];
    let length = index(line, name.vf.is_none())?;
    Some(Split::new(name, text, node.span.start, node.span.end + blank, length))
}

/// The length of `#1` at the start of a comment. `spaced`: also `# 1`, when nothing else is in the line.
fn index(comment: &str, spaced: bool) -> Option<usize> {
    let rest = comment.strip_prefix('#')?;
    let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let digits = rest[blank..].bytes().take_while(u8::is_ascii_digit).count();
    let next = rest[blank + digits..].chars().next();
    let ends = match blank {
        0 => next.is_none_or(|c| !c.is_alphanumeric()),
        _ => spaced && rest[blank + digits..].trim_end_matches([' ', '\t', ',', ']', '}']).is_empty(),
    };
    (digits > 0 && ends).then_some(1 + blank + digits)
}

/// The functions that are cut in two by a comment when the text is no YAML for that: the comment takes a bracket, a comma or a colon
/// with it. Each is found by putting it together again and looking how far the text can be read then.
pub(super) fn broken_by(text: &str) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut body = text.to_owned();
    let mut removed = 0;
    let Some(mut reach) = reached(&body) else { return found };
    for split in splits(text) {
        let joined = split.joined();
        let less = split.place.len().saturating_sub(joined.len());
        let mut mended = body.clone();
        mended.replace_range(split.place.start - removed..split.place.end - removed, &joined);
        let further = reached(&mended);
        if further.is_none_or(|further| further + less > reach) {
            found.push(split.message("a comment, which takes the rest of the line with it"));
            (body, removed) = (mended, removed + less);
            match further {
                Some(further) => reach = further,
                None => break,
            }
        }
    }
    found
}

/// The byte up to which `text` is YAML; `None` for all of it.
fn reached(text: &str) -> Option<usize> {
    let error = read(text).err()?;
    match error.place {
        PathTarget::Bytes(bytes) => Some(bytes.start),
        _ => None,
    }
}

/// What looks like a function with a comment, anywhere in the text.
fn splits(text: &str) -> impl Iterator<Item = Split<'_>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '#' | '"' | '\'');
    text.match_indices('#')
        .filter_map(move |(at, _)| {
            let before = &text[..at];
            let name_end = before.trim_end_matches([' ', '\t']).len();
            let name = before[..name_end].char_indices().rev().take(LONGEST).take_while(|(_, c)| is_part(*c));
            let name_start = name.last()?.0;
            let name = text[name_start..name_end].trim_matches(['"', '\'']).parse().ok()?;
            let length = index(&text[at..], false)?;
            (name_end < at).then(|| Split::new(name, text, name_start, at, length))
        })
        .take(MOST)
}
