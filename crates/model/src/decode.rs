//! From a tree to a document: a serde deserializer whose errors keep their place and their structure.
//!
//! Serde stops at the first error. Here the wrong part is then struck out of the tree and the rest read again, so
//! that one run tells everything that is wrong.

mod suggest;
mod trap;

use std::{fmt, ops::RangeInclusive};

use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Unexpected, Visitor};

use crate::{
    diagnostic::{Diagnostic, Path, PathTarget, Related},
    selectors,
    tree::{YamlEntry, YamlNode, YamlValue, shown},
};

pub(crate) use suggest::nearest;
use suggest::{quoted, spelled};

/// After this many wrong values the rest is not looked at.
const MAX_ERRORS: usize = 40;
/// The longest text that any value may have; Linux's longest path is 4096.
const MAX_VALUE: usize = 4096;

/// Reads a `T`, and what had to be passed over for it. `None` when nothing could be read.
pub(crate) fn document<T: DeserializeOwned>(mut root: YamlNode) -> (Option<T>, Vec<Diagnostic>) {
    let mut wrong = Vec::new();
    // Each turn takes a value out of the tree, so this ends; the bound is against very many wrong values.
    for _ in 0..MAX_ERRORS * 4 {
        let fault = match T::deserialize(Reader(&root)) {
            Ok(document) => return (Some(document), wrong),
            Err(fault) => fault,
        };
        let path = Path(fault.path.iter().rev().cloned().collect());
        let place = if fault.at_key { PathTarget::Key } else { PathTarget::Value };
        let consequence = matches!(fault.kind, Kind::Spoiled);
        if !consequence {
            if wrong.len() == MAX_ERRORS {
                wrong.push(
                    Diagnostic::error(path, "there are more errors; this is where reading stopped")
                        .with_hint("mend those above first"),
                );
                return (None, wrong);
            }
            wrong.push(fault.kind.diagnostic(path.clone(), place.clone()));
        }
        if !strike(&mut root, &path, place == PathTarget::Key, consequence) {
            return (None, wrong);
        }
    }
    (None, wrong)
}

/// Reads a `T` from one node. As an error, why it holds none: a message without a path.
pub(crate) fn value<T: DeserializeOwned>(node: &YamlNode) -> Result<T, Diagnostic> {
    T::deserialize(Reader(node)).map_err(|fault| fault.kind.diagnostic(Path::default(), PathTarget::Value))
}

/// Takes the wrong value out: a key with an unknown name goes, the value of a known one becomes null, an item of a
/// list stays as a gap so that the positions of the others stay true. What cannot be read without it goes with it.
fn strike(root: &mut YamlNode, path: &Path, key: bool, consequence: bool) -> bool {
    let mut segments = path.0.as_slice();
    loop {
        let Some((last, above)) = segments.split_last() else {
            return false;
        };
        let mut parent = &mut *root;
        for segment in above {
            match parent.child_mut(segment) {
                Some(child) => parent = child,
                None => return false,
            }
        }
        match &mut parent.value {
            YamlValue::Mapping(entries) => {
                let Some(at) = entries.iter().position(|entry| entry.key == *last) else {
                    return false;
                };
                if key
                    || matches!(entries[at].value.value, YamlValue::Null | YamlValue::Spoiled)
                    || consequence
                {
                    entries.remove(at);
                } else if names_its_entry(path, last) {
                    segments = above;
                    continue;
                } else {
                    entries[at].value.value = YamlValue::Null;
                }
                return true;
            }
            YamlValue::Sequence(items) => {
                let item = last.parse::<usize>().ok().and_then(|index| items.get_mut(index));
                match item {
                    Some(item) if !matches!(item.value, YamlValue::Spoiled) => {
                        item.value = YamlValue::Spoiled;
                        return true;
                    }
                    // A list whose type allows no gaps goes as a whole.
                    _ => segments = above,
                }
            }
            _ => segments = above,
        }
    }
}

/// Whether the entry around `key` is nothing without it: a function's name, what is measured and in which guest.
fn names_its_entry(path: &Path, key: &str) -> bool {
    match key {
        "vf" | "pf" => true,
        "guest" | "path" => path.0.first().is_some_and(|first| first == "measure"),
        _ => false,
    }
}

/// Why a value could not be read, and where.
#[derive(Debug)]
struct Fault {
    kind: Kind,
    /// From the value up to the root.
    path: Vec<String>,
    at_key: bool,
}

#[derive(Debug)]
enum Kind {
    UnknownKey {
        key: String,
        known: &'static [&'static str],
    },
    UnknownWord {
        word: String,
        known: &'static [&'static str],
    },
    Bool(String),
    LeadingZero(String),
    /// A key of an entry that has it in another spelling before.
    Again {
        /// As it stands there.
        key: String,
        /// The spelling of models.
        own: &'static str,
        /// Whether the first one is spelled so.
        own_first: bool,
    },
    /// A whole number that its type cannot hold, and what that holds.
    OutOfRange(String, RangeInclusive<i128>),
    Message(String),
    Spoiled,
}

/// What numbers may be that have no type of their own, by their keys, and where one key means several things by what the thing with the
/// key is one of: the range of the type that they are read as says nothing to anybody. A test holds the schema and the checks against it.
const RANGES: [(&str, &str, RangeInclusive<i128>); 12] = [
    ("", "cache", 1..=32),
    ("", "cpus", 1..=8192),
    ("", "more_macs", 0..=64),
    ("", "nvme_vfs", 1..=127),
    ("", "port", 0..=7),
    ("", "priority", 1..=99),
    ("drives", "queues", 1..=65_534),
    ("nics", "queues", 1..=16),
    ("", "ready_within", 1..=86_400),
    ("nics", "vfs", 1..=7),
    ("", "wake_latency", 0..=2_147_483_646),
    ("nics", "workers", 1..=16),
];

impl Kind {
    fn diagnostic(self, path: Path, place: PathTarget) -> Diagnostic {
        let mut related = None;
        let (message, hint) = match self {
            Kind::UnknownKey { key, known } => match selectors::explain(&path) {
                Some((message, hint)) => (message, Some(hint)),
                None => (format!("unknown key {}", shown(&key)), Some(suggest::key(&key, known))),
            },
            Kind::UnknownWord { word, known } => (
                format!("{} is none of {}", shown(&word), quoted(known.iter().copied())),
                suggest::word(&word, known),
            ),
            Kind::Bool(text) => {
                let hint = match text.to_ascii_lowercase().as_str() {
                    "yes" | "y" | "1" | "true" | "on" | "enable" | "enabled" => Some("write `on`".to_owned()),
                    "no" | "n" | "0" | "false" | "off" | "disable" | "disabled" => {
                        Some("write `off`".to_owned())
                    }
                    _ => None,
                };
                (format!("{} is neither on nor off", shown(&text)), hint)
            }
            Kind::LeadingZero(text) => {
                let digits = text.trim_start_matches(['-', '+']);
                let sign = if text.starts_with('-') { "-" } else { "" };
                let decimal = digits.trim_start_matches('0');
                let octal = u64::from_str_radix(digits, 8)
                    .ok()
                    .filter(|octal| *octal > 7)
                    .map(|octal| format!(", which YAML 1.1 reads as {sign}{octal}"));
                let message = format!("{} begins with a 0{}", shown(&text), octal.unwrap_or_default());
                let decimal = if decimal.is_empty() { "0".to_owned() } else { format!("{sign}{decimal}") };
                (message, Some(format!("write {decimal}, without the 0")))
            }
            Kind::OutOfRange(number, range) => {
                let from_end = |count: usize| path.0.len().checked_sub(count).and_then(|at| path.0.get(at));
                let own = RANGES.iter().find(|(kind, key, _)| {
                    from_end(1).is_some_and(|last| last == key)
                        && (kind.is_empty() || from_end(3).is_some_and(|above| above == kind))
                });
                let range = own.map_or(range, |(.., range)| range.clone());
                let (least, most) = (range.start(), range.end());
                (clipped(format!("{number} is out of range: it goes from {least} to {most}")), None)
            }
            Kind::Again { key, own, own_first } => {
                let above = path.0.split_last().map_or(&[][..], |(_, above)| above);
                related = own_first.then(|| {
                    let place = PathTarget::Key;
                    Box::new(Related {
                        path: Path::of(above).join(own),
                        place,
                        label: "first given here".to_owned(),
                    })
                });
                let message = match key == own {
                    true => {
                        format!("{} is given a second time: before it stands in another spelling", shown(own))
                    }
                    false => format!("{} is given a second time, here as {}", shown(own), shown(&key)),
                };
                (message, Some("remove one of them".to_owned()))
            }
            Kind::Message(message) => (clipped(message), None),
            Kind::Spoiled => (String::new(), None),
        };
        let hint = hint.or_else(|| trap::hint(&path, &message));
        Diagnostic { place, hint, related, ..Diagnostic::error(path, message) }
    }
}

/// A message quotes what was found, and that may be long.
fn clipped(message: String) -> String {
    const LONGEST: usize = 400;
    match message.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", &message[..at]),
        None => message,
    }
}

impl Fault {
    fn new(kind: Kind) -> Fault {
        Fault { kind, path: Vec::new(), at_key: false }
    }

    fn message(message: impl Into<String>) -> Fault {
        Fault::new(Kind::Message(message.into()))
    }

    fn under(mut self, segment: impl fmt::Display) -> Fault {
        self.path.push(segment.to_string());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::UnknownKey { key, .. } => write!(f, "unknown key {}", shown(key)),
            Kind::UnknownWord { word, .. } => write!(f, "unknown word {}", shown(word)),
            Kind::Bool(text) => write!(f, "{} is neither on nor off", shown(text)),
            Kind::LeadingZero(text) => write!(f, "{} begins with a 0", shown(text)),
            Kind::Again { own, .. } => write!(f, "{} is given a second time", shown(own)),
            Kind::OutOfRange(number, _) => write!(f, "{} is out of range", shown(number)),
            Kind::Message(message) => f.write_str(message),
            Kind::Spoiled => f.write_str("it was found wrong before"),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Fault {
        Fault::message(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Fault {
        Fault::message(format!("expected {expected}, found {}", found_words(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Fault {
        match found {
            Unexpected::Unsigned(_) | Unexpected::Signed(_) => {
                Fault::message(format!("{} is out of range", found_words(found)))
            }
            _ => Fault::invalid_type(found, expected),
        }
    }

    fn invalid_length(length: usize, expected: &dyn de::Expected) -> Fault {
        Fault::message(format!("expected {expected}, found a list of {length}"))
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Fault {
        Fault::new(Kind::UnknownKey { key: key.to_owned(), known })
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Fault {
        Fault::new(Kind::UnknownWord { word: word.to_owned(), known })
    }

    /// Keys of one spelling are found in the tree before; [`mapping`] knows the spelling that this one has.
    fn duplicate_field(key: &'static str) -> Fault {
        Fault::new(Kind::Again { key: key.to_owned(), own: key, own_first: false })
    }
}

fn found_words(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Str(text) => shown(text),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a mapping".to_owned(),
        other => other.to_string(),
    }
}

/// The words that read as `true`, in each case that YAML knows.
pub(crate) const TRUE: [&str; 6] = ["on", "On", "ON", "true", "True", "TRUE"];
/// The words that read as `false`.
pub(crate) const FALSE: [&str; 6] = ["off", "Off", "OFF", "false", "False", "FALSE"];

/// What a word says where a boolean is wanted.
pub(crate) fn boolean(word: &str) -> Option<bool> {
    if TRUE.contains(&word) {
        Some(true)
    } else if FALSE.contains(&word) {
        Some(false)
    } else {
        None
    }
}

/// Reads a node.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a YamlNode);

impl<'a> Reader<'a> {
    fn found(self) -> Unexpected<'a> {
        match &self.0.value {
            YamlValue::Null | YamlValue::Spoiled => Unexpected::Unit,
            YamlValue::Scalar(text) => Unexpected::Str(text),
            YamlValue::Sequence(_) => Unexpected::Seq,
            YamlValue::Mapping(_) => Unexpected::Map,
        }
    }

    fn wrong<T>(self, expected: &dyn de::Expected) -> Result<T, Fault> {
        match self.0.value {
            YamlValue::Spoiled => Err(Fault::new(Kind::Spoiled)),
            _ => Err(de::Error::invalid_type(self.found(), expected)),
        }
    }

    fn text(self, expected: &dyn de::Expected) -> Result<&'a str, Fault> {
        match &self.0.value {
            YamlValue::Scalar(text) if text.len() > MAX_VALUE => Err(Fault::message(format!(
                "this value has {} bytes; none may have more than {MAX_VALUE}",
                text.len()
            ))),
            YamlValue::Scalar(text) => Ok(text),
            _ => self.wrong(expected),
        }
    }

    /// A whole number in `range`. Without one, of which the visitor itself knows what it may be.
    fn number<V: Visitor<'a>>(
        self,
        visitor: V,
        range: Option<RangeInclusive<i128>>,
    ) -> Result<V::Value, Fault> {
        let text = self.text(&"a whole number")?;
        let Some(number) = whole_number(text)? else {
            return Err(Fault::message(format!("{} is not a whole number", shown(text))));
        };
        let number = number.filter(|number| range.as_ref().is_none_or(|range| range.contains(number)));
        match (number.map(u64::try_from), number.map(i64::try_from)) {
            (Some(Ok(number)), _) => visitor.visit_u64(number),
            (_, Some(Ok(number))) => visitor.visit_i64(number),
            _ => Err(match range {
                Some(range) => Fault::new(Kind::OutOfRange(text.to_owned(), range)),
                None => Fault::message(format!("{text} is no {}", &visitor as &dyn de::Expected)),
            }),
        }
    }
}

/// The whole number that is written like that (YAML 1.2.2, section 10.3.2); `None` for anything else, and `Some(None)` for one that
/// is too large for any use. As an error, what could be two numbers.
fn whole_number(text: &str) -> Result<Option<Option<i128>>, Fault> {
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 8),
        _ => (text.strip_prefix(['-', '+']).unwrap_or(text), 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Ok(None);
    }
    if radix == 10 && digits.len() > 1 && digits.starts_with('0') {
        return Err(Fault::new(Kind::LeadingZero(text.to_owned())));
    }
    let number = match radix {
        10 => text.parse(),
        _ => i128::from_str_radix(digits, radix),
    };
    Ok(Some(number.ok()))
}

macro_rules! numbers {
    ($($method:ident: $number:ty),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.number(visitor, Some(i128::from(<$number>::MIN)..=i128::from(<$number>::MAX)))
        })*
    };
}

impl<'de> de::Deserializer<'de> for Reader<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            YamlValue::Null => visitor.visit_unit(),
            YamlValue::Spoiled => visitor.visit_none(),
            YamlValue::Scalar(_) => visitor.visit_str(self.text(&"text")?),
            YamlValue::Sequence(items) => visitor.visit_seq(Items { items, at: 0 }),
            YamlValue::Mapping(entries) => mapping(entries, visitor),
        }
    }

    numbers! {
        deserialize_i8: i8, deserialize_i16: i16, deserialize_i32: i32, deserialize_i64: i64,
        deserialize_u8: u8, deserialize_u16: u16, deserialize_u32: u32
    }

    /// Of types with a range of their own, which tell it.
    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.number(visitor, None)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let text = self.text(&"on or off")?;
        match boolean(text) {
            Some(set) => visitor.visit_bool(set),
            None => Err(Fault::new(Kind::Bool(text.to_owned()))),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(self.text(&"text")?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0.value {
            YamlValue::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            YamlValue::Null => visitor.visit_seq(Items { items: &[], at: 0 }),
            YamlValue::Sequence(items) => visitor.visit_seq(Items { items, at: 0 }),
            _ => self.wrong(&"a list"),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            YamlValue::Sequence(items) if items.len() != length => {
                Err(de::Error::invalid_length(items.len(), &format!("a list of {length}").as_str()))
            }
            YamlValue::Sequence(items) => visitor.visit_seq(Items { items, at: 0 }),
            _ => self.wrong(&format!("a list of {length}").as_str()),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.0.value {
            YamlValue::Null => mapping(&[], visitor),
            YamlValue::Mapping(entries) => mapping(entries, visitor),
            // What serde says of types that say nothing themselves.
            _ => match (&visitor as &dyn de::Expected).to_string() {
                plain if plain == "a map" || plain.starts_with("struct ") => self.wrong(&"a mapping"),
                _ => self.wrong(&visitor),
            },
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let text = self.text(&quoted(spelled(variants)).as_str())?;
        visitor.visit_enum(IntoDeserializer::<Fault>::into_deserializer(text))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! { f32 f64 char bytes byte_buf unit unit_struct tuple_struct }
}

struct Items<'a> {
    items: &'a [YamlNode],
    at: usize,
}

impl<'a> de::SeqAccess<'a> for Items<'a> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(item) = self.items.get(self.at) else {
            return Ok(None);
        };
        let index = self.at;
        self.at += 1;
        seed.deserialize(Reader(item)).map(Some).map_err(|fault| fault.under(index))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len() - self.at)
    }
}

struct Keys<'a> {
    entries: &'a [YamlEntry],
    at: usize,
}

/// Reads a mapping. A key that it has in two spellings is told at the second one.
fn mapping<'a, V: Visitor<'a>>(entries: &'a [YamlEntry], visitor: V) -> Result<V::Value, Fault> {
    let mut keys = Keys { entries, at: 0 };
    visitor.visit_map(&mut keys).map_err(|mut fault| match (&mut fault.kind, entries.get(keys.at)) {
        (Kind::Again { key, own, own_first }, Some(entry)) if fault.path.is_empty() => {
            key.clone_from(&entry.key);
            *own_first = entries.iter().take(keys.at).any(|before| before.key == *own);
            fault.at_key = true;
            fault.under(&entry.key)
        }
        _ => fault,
    })
}

impl<'a> de::MapAccess<'a> for Keys<'a> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some(entry) = self.entries.get(self.at) else {
            return Ok(None);
        };
        seed.deserialize(IntoDeserializer::<Fault>::into_deserializer(entry.key.as_str())).map(Some).map_err(
            |mut fault| {
                fault.at_key = true;
                fault.under(&entry.key)
            },
        )
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some(entry) = self.entries.get(self.at) else {
            return Err(Fault::message("a value was asked for where no key is"));
        };
        self.at += 1;
        seed.deserialize(Reader(&entry.value)).map_err(|fault| fault.under(&entry.key))
    }
}
