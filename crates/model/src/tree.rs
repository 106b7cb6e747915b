//! YAML text as a tree in which every key and value knows its place.
//!
//! Nothing here knows what a model is. What a hostile file could cost is bounded before it is spent: the text's size,
//! the depth, and the nodes and bytes that aliases expand to.

mod comment;
mod directive;
mod scalar;
mod syntax;

use std::{collections::HashMap, ops::Range};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use crate::diagnostic::{Diagnostic, MAX_BYTES, Path, PathTarget, Related, too_large};

/// The deepest nesting; a model needs seven levels.
pub const MAX_DEPTH: usize = 32;
/// Nodes after the expansion of aliases.
pub const MAX_NODES: usize = 100_000;
/// Bytes of text after the expansion of aliases.
const MAX_TEXT: usize = 4 << 20;

/// A value and its place in the text.
#[derive(Clone, Debug)]
pub struct YamlNode {
    /// Bytes of the text.
    pub span: Range<usize>,
    /// What stands there.
    pub value: YamlValue,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub enum YamlValue {
    /// Nothing, `~` or `null`.
    Null,
    /// Text; numbers and booleans too, for whoever reads them knows better what they should be.
    Scalar(String),
    /// A list; its items are in the file's order.
    Sequence(Vec<YamlNode>),
    /// Keys and values in the file's order.
    Mapping(Vec<YamlEntry>),
    /// It was wrong, it has been reported, and it is to be passed over.
    Spoiled,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct YamlEntry {
    /// The key, without quotes and escapes.
    pub key: String,
    /// Where the key is: bytes of the text.
    pub key_span: Range<usize>,
    /// What the key has.
    pub value: YamlNode,
}

impl YamlNode {
    fn cost(&self) -> Cost {
        let mut cost = Cost { nodes: 1, text: 0 };
        match &self.value {
            YamlValue::Null | YamlValue::Spoiled => {}
            YamlValue::Scalar(text) => cost.text = text.len(),
            YamlValue::Sequence(items) => items.iter().for_each(|item| cost.add(item.cost())),
            YamlValue::Mapping(entries) => entries.iter().for_each(|entry| {
                cost.text += entry.key.len();
                cost.add(entry.value.cost());
            }),
        }
        cost
    }

    /// Levels of lists and mappings, this one included.
    fn depth(&self) -> usize {
        match &self.value {
            YamlValue::Null | YamlValue::Spoiled | YamlValue::Scalar(_) => 0,
            YamlValue::Sequence(items) => 1 + items.iter().map(YamlNode::depth).max().unwrap_or(0),
            YamlValue::Mapping(entries) => {
                1 + entries.iter().map(|entry| entry.value.depth()).max().unwrap_or(0)
            }
        }
    }

    /// The child under `segment`: a key, or a position counted from 0.
    pub(crate) fn child_mut(&mut self, segment: &str) -> Option<&mut YamlNode> {
        match &mut self.value {
            YamlValue::Mapping(entries) => {
                let entry = entries.iter_mut().find(|entry| entry.key == segment)?;
                Some(&mut entry.value)
            }
            YamlValue::Sequence(items) => items.get_mut(segment.parse::<usize>().ok()?),
            _ => None,
        }
    }

    /// The bytes of `text`, which this tree was read from, that `path` means, or its longest part that leads somewhere.
    /// `None` for the file as a whole.
    pub(crate) fn locate(&self, text: &str, path: &Path, place: &PathTarget) -> Option<Range<usize>> {
        if let PathTarget::Bytes(bytes) = place {
            return Some(bytes.clone());
        }
        let mut found: Option<(Option<&Range<usize>>, &YamlNode)> = None;
        let mut node = self;
        for segment in &path.0 {
            let next = match &node.value {
                YamlValue::Mapping(entries) => entries
                    .iter()
                    .find(|entry| entry.key == *segment)
                    .map(|entry| (Some(&entry.key_span), &entry.value)),
                YamlValue::Sequence(items) => {
                    segment.parse::<usize>().ok().and_then(|index| items.get(index)).map(|item| (None, item))
                }
                _ => None,
            };
            let Some((key, child)) = next else {
                break;
            };
            found = Some((key, child));
            node = child;
        }
        let (key, node) = found?;
        if let (PathTarget::Part(part), YamlValue::Scalar(value)) = (place, &node.value)
            && let Some(bytes) = scalar::part(text.get(node.span.clone())?, value, part)
        {
            return Some(node.span.start + bytes.start..node.span.start + bytes.end);
        }
        let key = key.filter(|_| *place == PathTarget::Key || !matches!(node.value, YamlValue::Scalar(_)));
        Some(key.unwrap_or(&node.span).clone())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    nodes: usize,
    text: usize,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.nodes += other.nodes;
        self.text += other.text;
    }
}

/// The tree of a model's `text`, with what is wrong in it as YAML and can be passed over: keys that it gives twice, functions
/// that a comment cuts in two, directives. As an error, why it is not one YAML document.
pub(crate) fn read_model(text: &str) -> Result<(YamlNode, Vec<Diagnostic>), Vec<Diagnostic>> {
    match read(text) {
        Ok((mut root, mut messages)) => {
            messages.extend(comment::cut_functions(&mut root, text));
            messages.extend(directive::refused(text));
            Ok((root, messages))
        }
        Err(error) if text.len() > MAX_BYTES => Err(vec![error]),
        Err(error) => {
            let found = comment::broken_by(text);
            Err(if found.is_empty() { vec![error] } else { found })
        }
    }
}

/// The tree of `text` and the keys that it gives twice; as an error, why it is not one YAML document.
pub(crate) fn read(text: &str) -> Result<(YamlNode, Vec<Diagnostic>), Diagnostic> {
    let (roots, duplicates) = read_documents(text, 1)?;
    match roots.into_iter().next() {
        Some(root) if !matches!(root.value, YamlValue::Null) => Ok((root, duplicates)),
        _ => Err(Diagnostic::error(Path::default(), "the file is empty").with_hint(
            "the smallest useful model is a NIC and a guest:\n  nics: {NET0: {vfs: 1}}\n  guests: {a: {functions: [NET0#0]}}",
        )),
    }
}

/// The trees of the documents in `text`, at most so many of them, and the keys that they give twice; as an error, why it is no YAML.
pub(crate) fn read_documents(
    text: &str,
    most: usize,
) -> Result<(Vec<YamlNode>, Vec<Diagnostic>), Diagnostic> {
    if text.len() > MAX_BYTES {
        return Err(too_large(text.len()));
    }
    // The scanner takes NUL for the end of the text, and would pass over what follows.
    if let Some((at, c)) = text.char_indices().find(|(_, c)| !printable(*c)) {
        let code = u32::from(c);
        return Err(Diagnostic::error(
            Path::default(),
            format!("the character U+{code:04X} is not allowed in YAML"),
        )
        .at_bytes(at..at + c.len_utf8()));
    }
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::new(Offsets::new(body, text.len() - body.len()), most);
    let mut parser = Parser::new_from_str(body);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| builder.scan_error(&error, text))?;
        let mut span = builder.offsets.bytes(span);
        if let Event::Scalar(_, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted, ..) = event {
            // The scanner's reaches to the next token, over a comment.
            span = scalar::quoted(text, span);
        }
        if matches!(event, Event::StreamEnd) {
            break;
        }
        builder.take(event, span)?;
    }
    Ok((builder.roots, builder.duplicates))
}

/// YAML 1.2.2, section 5.1, without the byte order mark inside a text.
fn printable(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
        | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

/// Characters to bytes: the scanner counts the former.
struct Offsets {
    text_len: usize,
    start: usize,
    /// Each character's byte, unless all are ASCII.
    bytes: Option<Vec<usize>>,
    /// Whether the byte is white space, to trim spans with.
    blank: Vec<bool>,
}

impl Offsets {
    fn new(text: &str, start: usize) -> Offsets {
        Offsets {
            text_len: text.len(),
            start,
            bytes: (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect()),
            blank: text.bytes().map(|byte| byte.is_ascii_whitespace()).collect(),
        }
    }

    fn byte(&self, character: usize) -> usize {
        match &self.bytes {
            None => character.min(self.text_len),
            Some(bytes) => bytes.get(character).copied().unwrap_or(self.text_len),
        }
    }

    /// The bytes of `span` without white space at its end: a block's span reaches to the next token.
    fn bytes(&self, span: Span) -> Range<usize> {
        let start = self.byte(span.start.index());
        let mut end = self.byte(span.end.index()).max(start);
        while end > start && self.blank[end - 1] {
            end -= 1;
        }
        self.start + start..self.start + end
    }
}

struct Builder {
    offsets: Offsets,
    open: Vec<Open>,
    anchors: HashMap<usize, YamlNode>,
    spent: Cost,
    documents: usize,
    /// How many documents there may be.
    most: usize,
    roots: Vec<YamlNode>,
    duplicates: Vec<Diagnostic>,
}

/// A list or mapping whose end has not come.
struct Open {
    start: usize,
    anchor: usize,
    content: Content,
}

enum Content {
    Sequence(Vec<YamlNode>),
    Mapping { entries: Vec<YamlEntry>, places: HashMap<String, usize>, key: Option<(String, Range<usize>)> },
}

impl Builder {
    fn new(offsets: Offsets, most: usize) -> Builder {
        Builder {
            offsets,
            open: Vec::new(),
            anchors: HashMap::new(),
            spent: Cost::default(),
            documents: 0,
            most,
            roots: Vec::new(),
            duplicates: Vec::new(),
        }
    }

    fn scan_error(&self, error: &ScanError, text: &str) -> Diagnostic {
        let at = self.offsets.start + self.offsets.byte(error.marker().index());
        let open: Vec<usize> = self.open.iter().map(|open| open.start).collect();
        syntax::explain(text, error.info(), at, &open)
    }

    fn take(&mut self, event: Event<'_>, span: Range<usize>) -> Result<(), Diagnostic> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                // An alias means nothing of another document.
                self.anchors.clear();
                if self.documents > self.most {
                    return Err(match self.most {
                        1 => wrong(span, "a second document starts here").with_hint(
                            "one file is one model: remove what follows `---` or give it its own file",
                        ),
                        most => wrong(span, format!("the file has more than {most} documents")),
                    });
                }
                Ok(())
            }
            Event::Alias(anchor) => {
                if self.key_is_due() {
                    return Err(wrong(span, "a key cannot be an alias"));
                }
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err(wrong(span, "this alias stands inside what it stands for"));
                };
                let node = YamlNode { span: span.clone(), value: node.value.clone() };
                self.spend(node.cost(), &span)?;
                if self.open.len() + node.depth() > MAX_DEPTH {
                    return Err(too_deep(span));
                }
                self.place(node)
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.spend(Cost { nodes: 1, text: text.len() }, &span)?;
                let tagged = tag.as_deref().map(|tag| core_type(tag, &span)).transpose()?.flatten();
                let word = tagged == Some("str");
                if self.key_is_due() {
                    return self.key(text.into_owned(), span);
                }
                let null = style == ScalarStyle::Plain
                    && !word
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                if tagged == Some("null") && !null {
                    let text = format!("{} is something, and its tag says that it is nothing", shown(&text));
                    return Err(wrong(span, text).with_hint("a model needs no tags: remove it"));
                }
                let value = if null { YamlValue::Null } else { YamlValue::Scalar(text.into_owned()) };
                self.finish(YamlNode { span, value }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                tag.as_deref().map(|tag| core_type(tag, &span)).transpose()?;
                self.enter(span, anchor, Content::Sequence(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                tag.as_deref().map(|tag| core_type(tag, &span)).transpose()?;
                self.enter(
                    span,
                    anchor,
                    Content::Mapping { entries: Vec::new(), places: HashMap::new(), key: None },
                )
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else {
                    return Ok(());
                };
                let node = YamlNode {
                    span: open.start..self.end(open.start, &span),
                    value: match open.content {
                        Content::Sequence(items) => YamlValue::Sequence(items),
                        Content::Mapping { entries, .. } => YamlValue::Mapping(entries),
                    },
                };
                self.finish(node, open.anchor)
            }
        }
    }

    fn end(&self, start: usize, end: &Range<usize>) -> usize {
        let mut at = end.end.max(start);
        while at > start && self.offsets.blank[at - 1 - self.offsets.start] {
            at -= 1;
        }
        at
    }

    fn spend(&mut self, cost: Cost, span: &Range<usize>) -> Result<(), Diagnostic> {
        self.spent.add(cost);
        if self.spent.nodes > MAX_NODES || self.spent.text > MAX_TEXT {
            return Err(wrong(
                span.clone(),
                format!("up to here the file expands to more than {MAX_NODES} values or {MAX_TEXT} bytes"),
            )
            .with_hint("aliases of aliases multiply; a NIC's `defaults` say once what all its VFs get"));
        }
        Ok(())
    }

    fn enter(&mut self, span: Range<usize>, anchor: usize, content: Content) -> Result<(), Diagnostic> {
        self.spend(Cost { nodes: 1, text: 0 }, &span)?;
        if self.key_is_due() {
            return Err(wrong(span, "a key cannot be a list or a mapping"));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(too_deep(span));
        }
        self.open.push(Open { start: span.start, anchor, content });
        Ok(())
    }

    fn finish(&mut self, node: YamlNode, anchor: usize) -> Result<(), Diagnostic> {
        if anchor != 0 {
            self.spend(node.cost(), &node.span)?;
            self.anchors.insert(anchor, node.clone());
        }
        self.place(node)
    }

    /// Puts a finished value where it belongs.
    fn place(&mut self, node: YamlNode) -> Result<(), Diagnostic> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.roots.push(node),
            Some(Content::Sequence(items)) => items.push(node),
            Some(Content::Mapping { entries, places, key }) => {
                let Some((key, key_span)) = key.take() else {
                    return Ok(());
                };
                if let Some(first) = places.get(&key).and_then(|at| entries.get(*at)) {
                    let mut duplicate = wrong(key_span, format!("the key {} is given twice", shown(&key)));
                    duplicate.related = Some(Box::new(Related {
                        path: Path::default(),
                        place: PathTarget::Bytes(first.key_span.clone()),
                        label: "first given here".to_owned(),
                    }));
                    self.duplicates.push(duplicate);
                    return Ok(());
                }
                places.insert(key.clone(), entries.len());
                entries.push(YamlEntry { key, key_span, value: node });
            }
        }
        Ok(())
    }

    fn key_is_due(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Mapping { key: None, .. }, .. }))
    }

    fn key(&mut self, text: String, span: Range<usize>) -> Result<(), Diagnostic> {
        if text == "<<" {
            return Err(wrong(span, "merge keys (`<<`) are not part of YAML 1.2")
                .with_hint("a NIC's `defaults` say once what all its VFs get"));
        }
        if let Some(Content::Mapping { key, .. }) = self.open.last_mut().map(|open| &mut open.content) {
            *key = Some((text, span));
        }
        Ok(())
    }
}

fn wrong(span: Range<usize>, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(Path::default(), message).at_bytes(span)
}

fn too_deep(span: Range<usize>) -> Diagnostic {
    wrong(span, format!("this is nested more than {MAX_DEPTH} levels deep"))
}

/// The name of a core type (YAML 1.2.2, section 10.3) that a tag gives.
fn core_type<'a>(tag: &'a Tag, span: &Range<usize>) -> Result<Option<&'a str>, Diagnostic> {
    let known = tag.is_yaml_core_schema()
        && matches!(tag.suffix.as_str(), "str" | "int" | "bool" | "null" | "float" | "map" | "seq");
    if known {
        Ok(Some(&tag.suffix))
    } else {
        Err(wrong(span.clone(), format!("the tag {} means nothing here", shown(&tag.to_string())))
            .with_hint("a model needs no tags: remove it"))
    }
}

/// `text` as a message shows it: in back quotes, without control characters, never long.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut out = String::from("`");
    for c in text.chars().take(LONGEST) {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.push_str(if text.chars().nth(LONGEST).is_some() { "...`" } else { "`" });
    out
}
