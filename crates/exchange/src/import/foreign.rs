//! A file of another program, key by key. Whatever nobody asks for is told: nothing is dropped in silence.

use std::{cell::RefCell, ops::Range};

use penstock_model::{
    Diagnostic, Path, VfKey, VfSettings, VfValue,
    yaml::{self, YamlEntry, YamlNode, YamlValue, shown},
};
use serde::de::DeserializeOwned;

/// Messages about several files: each with the file's position.
#[derive(Default)]
pub struct ImportMessages(RefCell<Vec<(usize, Diagnostic)>>);

impl ImportMessages {
    /// One more message about the file at this position.
    pub fn push(&self, file: usize, message: Diagnostic) {
        self.0.borrow_mut().push((file, message));
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<(usize, Diagnostic)> {
        self.0.into_inner()
    }
}

/// A value of a file, with its place.
#[derive(Clone)]
pub struct ForeignNode<'a> {
    node: &'a YamlNode,
    /// The keys that lead to it.
    pub path: Path,
    /// Where its key is, or it itself where it has none: what a message about all of it points to.
    span: Range<usize>,
    file: usize,
    messages: &'a ImportMessages,
}

impl<'a> ForeignNode<'a> {
    /// A document of the file at this position.
    pub fn root(node: &'a YamlNode, file: usize, messages: &'a ImportMessages) -> ForeignNode<'a> {
        ForeignNode { node, path: Path::default(), span: first_line(node), file, messages }
    }

    /// Whether it is nothing.
    pub fn is_null(&self) -> bool {
        matches!(self.node.value, YamlValue::Null)
    }

    /// Whether it is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.node.value, YamlValue::Sequence(_))
    }

    /// Its text, if that is all it is.
    pub fn text(&self) -> Option<&'a str> {
        match &self.node.value {
            YamlValue::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Says that something here makes the file unusable.
    pub fn error(&self, message: impl Into<String>) {
        self.messages
            .push(self.file, Diagnostic::error(self.path.clone(), message).at_bytes(self.span.clone()));
    }

    /// Says that this is not in the model, and why.
    pub fn left_out(&self, why: impl Into<String>) {
        let message = Diagnostic::warning(self.path.clone(), why).at_bytes(self.span.clone());
        self.messages.push(self.file, message);
    }

    /// The same with what to do about it.
    pub fn left_out_with_hint(&self, why: impl Into<String>, hint: impl Into<String>) {
        let message = Diagnostic::warning(self.path.clone(), why).at_bytes(self.span.clone()).with_hint(hint);
        self.messages.push(self.file, message);
    }

    /// What it says, as a `T`. One that is none is an error.
    pub fn value<T: DeserializeOwned>(&self) -> Option<T> {
        self.noted(yaml::value(self.node))
    }

    /// Whether it is on, in any word of YAML 1.1 and 1.2 and of systemd (`parse_boolean` there). What is no such word is an error.
    pub fn switch(&self) -> Option<bool> {
        match self.text().map(str::to_ascii_lowercase).as_deref() {
            Some("yes" | "y" | "t" | "1") => Some(true),
            Some("no" | "n" | "f" | "0") => Some(false),
            _ => self.value(),
        }
    }

    /// What it says of a VF, as the value of this key.
    pub fn setting(&self, key: VfKey) -> Option<VfSettings> {
        if matches!(key.unset(), VfValue::Switch(_)) {
            let on = self.switch()?.to_string();
            return self.setting_as(key, &on);
        }
        self.setting_of(key, self.node.clone())
    }

    /// What it says of a VF, in a model's words for it.
    pub fn setting_as(&self, key: VfKey, word: &str) -> Option<VfSettings> {
        let value = YamlValue::Scalar(word.to_owned());
        self.setting_of(key, YamlNode { span: self.node.span.clone(), value })
    }

    fn setting_of(&self, key: VfKey, node: YamlNode) -> Option<VfSettings> {
        let entry = YamlEntry { key: key.name().to_owned(), key_span: self.span.clone(), value: node };
        let settings = YamlNode { span: self.node.span.clone(), value: YamlValue::Mapping(vec![entry]) };
        self.noted(yaml::value(&settings))
    }

    fn noted<T>(&self, read: Result<T, Diagnostic>) -> Option<T> {
        // What to do is said to who writes a model.
        read.map_err(|found| {
            self.messages.push(self.file, Diagnostic { path: self.path.clone(), hint: None, ..found })
        })
        .ok()
    }

    /// Reads the YAML that is the text of this, and says here what is to be said of it. What is wrong with it is left out, too.
    pub fn yaml_inside(&self, read: impl FnOnce(&ForeignNode<'_>)) {
        let messages = ImportMessages::default();
        match yaml::documents(self.text().unwrap_or_default()) {
            Ok(documents) => {
                let first = documents.first().map(|first| ForeignNode::root(first, self.file, &messages));
                if let Some(first) = first.filter(|first| !first.is_null()) {
                    read(&first);
                }
            }
            Err(wrong) => wrong.0.into_iter().for_each(|message| messages.push(self.file, message)),
        }
        for (_, message) in messages.into_vec() {
            let place = message.path.to_string();
            let place = if place.is_empty() { String::new() } else { format!(" at {}", shown(&place)) };
            self.left_out(format!("in its text{place}: {}", message.message));
        }
    }

    /// The items of a list; nothing is an empty one. Anything else is an error.
    pub fn items(&self) -> Vec<ForeignNode<'a>> {
        let items = match &self.node.value {
            YamlValue::Sequence(items) => items.as_slice(),
            YamlValue::Null => &[],
            _ => {
                self.error("expected a list");
                &[]
            }
        };
        let item = |(position, node): (usize, &'a YamlNode)| ForeignNode {
            node,
            path: self.path.join(position),
            span: first_line(node),
            ..self.clone()
        };
        items.iter().enumerate().map(item).collect()
    }

    /// The keys of a mapping, each with its value; nothing is an empty one. Anything else is an error.
    pub fn entries(&self) -> Vec<(&'a str, ForeignNode<'a>)> {
        let entries = match &self.node.value {
            YamlValue::Mapping(entries) => entries.as_slice(),
            YamlValue::Null => &[],
            _ => {
                self.error("expected a mapping");
                &[]
            }
        };
        let entry = |entry: &'a YamlEntry| {
            let node = ForeignNode {
                node: &entry.value,
                path: self.path.join(&entry.key),
                span: entry.key_span.clone(),
                ..self.clone()
            };
            (entry.key.as_str(), node)
        };
        entries.iter().map(entry).collect()
    }

    /// The same, to be asked key by key.
    pub fn fields(&self) -> ForeignFields<'a> {
        ForeignFields { rest: self.entries() }
    }
}

/// The place of a whole list or mapping: where it begins.
fn first_line(node: &YamlNode) -> Range<usize> {
    match &node.value {
        YamlValue::Mapping(entries) => entries.first().map(|first| first.key_span.clone()),
        YamlValue::Sequence(items) => items.first().map(first_line),
        YamlValue::Null | YamlValue::Scalar(_) | YamlValue::Spoiled => None,
    }
    .unwrap_or_else(|| node.span.clone())
}

/// The keys of a mapping that nobody has asked for yet. When it goes, each that is left is told as left out.
pub struct ForeignFields<'a> {
    rest: Vec<(&'a str, ForeignNode<'a>)>,
}

impl<'a> ForeignFields<'a> {
    /// What a key has, if it is there and something.
    pub fn take(&mut self, key: &str) -> Option<ForeignNode<'a>> {
        let at = self.rest.iter().position(|(found, _)| *found == key)?;
        Some(self.rest.remove(at).1).filter(|node| !node.is_null())
    }

    /// All that a key has that may come again, in order; also nothings.
    pub fn take_all(&mut self, key: &str) -> Vec<ForeignNode<'a>> {
        let (taken, rest) = std::mem::take(&mut self.rest).into_iter().partition(|(found, _)| *found == key);
        self.rest = rest;
        let taken: Vec<(&str, ForeignNode<'a>)> = taken;
        taken.into_iter().map(|(_, node)| node).collect()
    }

    /// What a key has that may come again and holds as it comes last.
    pub fn take_last(&mut self, key: &str) -> Option<ForeignNode<'a>> {
        self.take_all(key).pop().filter(|node| !node.is_null())
    }

    /// The value of a key, as a `T`.
    pub fn value<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        self.take(key)?.value()
    }

    /// Passes over a key that says nothing of what is read, wherever it comes.
    pub fn pass_over(&mut self, key: &str) {
        self.rest.retain(|(found, _)| *found != key);
    }

    /// Passes over each value of a key that says only what is so anyway; the others are left.
    pub fn pass_over_usual(&mut self, key: &str, is_usual: impl Fn(&ForeignNode<'a>) -> bool) {
        self.rest.retain(|(found, node)| *found != key || !is_usual(node));
    }

    /// The keys that are left.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.rest.iter().map(|(key, _)| *key)
    }

    /// Passes over all that is left, of which its owner says something as a whole.
    pub fn forget(&mut self) {
        self.rest.clear();
    }

    /// What plugins of CNI, and what configures them, say of a VF with these keys. A text that `says_nothing` of a key is passed over; names of
    /// protocols may have capitals.
    pub fn settings(
        &mut self,
        keys: [(&str, VfKey); 8],
        says_nothing: impl Fn(VfKey, &str) -> bool,
    ) -> VfSettings {
        let mut settings = VfSettings::default();
        for (key, of_vf) in keys {
            let said =
                self.take(key).filter(|node| !node.text().is_some_and(|text| says_nothing(of_vf, text)));
            let set = said.and_then(|node| match of_vf {
                VfKey::VlanProto => node.setting_as(of_vf, &node.text().unwrap_or_default().to_lowercase()),
                _ => node.setting(of_vf),
            });
            settings = settings.or(&set.unwrap_or_default());
        }
        settings
    }

    /// Says of a key that it is left out, and why, if it is there.
    pub fn left_out(&mut self, key: &str, why: &str) {
        if let Some(node) = self.take(key) {
            node.left_out(format!("`{key}` is left out: {why}"));
        }
    }
}

impl Drop for ForeignFields<'_> {
    fn drop(&mut self) {
        for (key, node) in &self.rest {
            node.left_out(format!("{} is left out: a model has no word for it", shown(key)));
        }
    }
}
