//! YAML that is no model: other programs' files, which are read within a model's bounds and in which each key and value knows its place,
//! and the pieces of a model that a program writes.

use std::fmt::Write;

use serde::de::DeserializeOwned;

use crate::{
    Diagnostic, Diagnostics, Path, VfSettings, VfValue, decode,
    tree::{self, shown as in_back_quotes},
};
pub use crate::{
    diagnostic::MAX_BYTES,
    tree::{MAX_DEPTH, MAX_NODES, YamlEntry, YamlNode, YamlValue},
};

/// The most documents that a file may have.
const MAX_DOCUMENTS: usize = 1000;

/// The documents of another program's file. Numbers and booleans are text in them; whoever reads one knows what it should be.
///
/// # Errors
///
/// [`Diagnostics`] when the text is larger than [`MAX_BYTES`], is no YAML, has a key twice in one mapping, is nested too deeply, or has
/// aliases that expand to too much.
pub fn documents(text: &str) -> Result<Vec<YamlNode>, Diagnostics> {
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes, and at most {MAX_BYTES} are read", text.len());
        return Err(Diagnostic::error(Path::default(), message).into());
    }
    // What the reader says to do is said to who writes a model.
    let plain = |found: Diagnostic| Diagnostic { hint: None, ..found };
    match tree::read_documents(text, MAX_DOCUMENTS) {
        Ok((roots, twice)) if twice.is_empty() => Ok(roots),
        Ok((_, twice)) => Err(Diagnostics(twice.into_iter().map(plain).collect())),
        Err(error) => Err(plain(error).into()),
    }
}

/// What `node` says, as a `T` of the model.
///
/// # Errors
///
/// A message without a path, about the bytes of `node`: it holds no `T`.
pub fn value<T: DeserializeOwned>(node: &YamlNode) -> Result<T, Diagnostic> {
    decode::value(node).map_err(|found| found.at_bytes(node.span.clone()))
}

/// Text of such a file as a message shows it: in back quotes, on one line, never long.
pub fn shown(text: &str) -> String {
    in_back_quotes(text)
}

/// Text between double quotes (YAML 1.2.2, section 7.3.1): whatever it holds, it is read as it was.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c => {
                let _ = match u32::from(c) {
                    code @ ..=0xffff => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push('"');
    out
}

/// A list on one line.
pub fn flow_list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// A mapping on one line. Values are written as they are given: [`quoted`] where they could be anything.
#[derive(Clone, Debug, Default)]
pub struct FlowMapping(Vec<String>);

impl FlowMapping {
    /// One more key.
    pub fn put(&mut self, key: &str, value: impl ToString) {
        self.0.push(format!("{key}: {}", value.to_string()));
    }

    /// One more key, if it has a value.
    pub fn maybe(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    /// All keys of another one.
    pub fn append(&mut self, other: FlowMapping) {
        self.0.extend(other.0);
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its keys, each with its value: `vlan: 100`.
    pub fn into_entries(self) -> Vec<String> {
        self.0
    }

    /// The whole: `{vlan: 100, qos: 3}`.
    pub fn line(&self) -> String {
        format!("{{{}}}", self.0.join(", "))
    }
}

/// Attributes of VFs as a model writes them.
impl From<&VfSettings> for FlowMapping {
    fn from(settings: &VfSettings) -> FlowMapping {
        let mut all = FlowMapping::default();
        for (key, value) in settings.values() {
            match value {
                VfValue::Mac(mac) => all.put(key.name(), quoted(&mac.to_string())),
                other => all.put(key.name(), other.plain()),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Mtu, Source, parse};

    #[test]
    fn documents_are_read_one_by_one_and_an_alias_ends_with_its_own() {
        let all = documents("a: 1\n---\nb: &x [2]\nc: *x\n---\n").unwrap();
        assert_eq!(all.len(), 3);
        assert!(matches!(all[2].value, YamlValue::Null));
        assert!(documents("a: &x 1\n---\nb: *x\n").is_err());
        let many = documents(&"---\na\n".repeat(MAX_DOCUMENTS + 1)).unwrap_err();
        assert!(many.to_string().contains("more than 1000 documents"), "{many}");
    }

    #[test]
    fn hostile_text_is_refused_without_advice_for_models() {
        let laughs: String =
            (1..12).fold("l0: &l0 [a, a, a, a, a, a, a, a, a]\n".to_owned(), |text, level| {
                let alias = format!("*l{}", level - 1);
                text + &format!("l{level}: &l{level} [{}]\n", [alias.as_str(); 9].join(", "))
            });
        let deep = "[".repeat(100);
        let large = " ".repeat(MAX_BYTES + 1);
        for text in
            [laughs.as_str(), deep.as_str(), large.as_str(), "a: 1\na: 2\n", "a: \0", "a: !x b", "<<: {a: 1}"]
        {
            let found = documents(text).unwrap_err();
            assert!(found.has_errors());
            assert!(
                found.0.iter().all(|found| found.hint.is_none() && !found.message.contains("model")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_value_is_read_or_refused_with_its_place() {
        let document = &documents("9000").unwrap()[0];
        assert_eq!(value::<Mtu>(document).unwrap().get(), 9000);
        let refused = value::<Mtu>(&documents("  many").unwrap()[0]).unwrap_err();
        assert_eq!(refused.place, crate::PathTarget::Bytes(2..6), "{refused:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// What is quoted here is what the model's own reader reads, whatever it is.
        #[test]
        fn what_is_quoted_is_read_as_it_was(text: String) {
            let model = format!("nics: {{NET0: }}\nguests: {{a: {{init: [sh, {}]}}}}\n", quoted(&text));
            let model = parse(&Source::new("m.yaml", model));
            prop_assert_eq!(&model.unwrap().model.guests["a"].init[1], &text);
        }
    }
}
