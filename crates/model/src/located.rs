//! Messages as data: for editors, for continuous integration, and for programs that read JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Diagnostics, Path, PathTarget, Source,
    render::{Page, Span},
};

/// What a message was found against. It is the first part of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The rules of the file format alone.
    Model,
    /// A machine: the model is good, and not for it.
    Machine,
    /// A template of the user's.
    Template,
    /// What a model can say: the file is another program's.
    Import,
}

/// One message, with its place in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Located {
    /// `error` or `warning`.
    pub severity: String,
    /// What it is about, for programs: `yaml`, `model.unknown-key`, or `model.`, `machine.` or `template.` and the key, without
    /// names and positions: `model.guests.functions.vlan`. A code does not change while the key has its name. Of another program's file
    /// it is `import.` and that program's own key.
    pub code: String,
    /// What is wrong, with the values.
    pub message: String,
    /// The file's name as it was given.
    pub file: String,
    /// Counted from 1; 0 where the message is about the file as a whole.
    pub line: usize,
    /// In characters, counted from 1; 0 where the message is about the file as a whole.
    pub column: usize,
    /// The line of the first character that is not meant any more.
    pub end_line: usize,
    /// The column of the first character that is not meant any more.
    pub end_column: usize,
    /// The place in the document: `guests.rt-2.functions.3.vlan`; empty for the file as a whole.
    pub path: String,
    /// What to do about it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Another place that explains this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related: Option<Elsewhere>,
}

/// A second place that a message speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Elsewhere {
    /// Counted from 1; 0 where it cannot be told.
    pub line: usize,
    /// In characters, counted from 1; 0 where it cannot be told.
    pub column: usize,
    /// What is there.
    pub label: String,
}

impl Diagnostics {
    /// All messages as data, with their places in `source`.
    pub fn located(&self, source: &Source, against: Against) -> Vec<Located> {
        Page::with(source, |page| {
            let one = |diagnostic: &crate::Diagnostic| {
                let span = page.span(&diagnostic.path, &diagnostic.place).unwrap_or_default();
                let Span { line, column, end_line, end_column } = span;
                Located {
                    severity: diagnostic.severity.to_string(),
                    code: code(diagnostic, against),
                    message: diagnostic.message.clone(),
                    file: source.name.clone(),
                    line,
                    column,
                    end_line,
                    end_column,
                    path: diagnostic.path.to_string(),
                    help: diagnostic.hint.clone(),
                    related: diagnostic.related.as_ref().map(|related| {
                        let span = page.span(&related.path, &related.place).unwrap_or_default();
                        Elsewhere { line: span.line, column: span.column, label: related.label.clone() }
                    }),
                }
            };
            self.0.iter().map(one).collect()
        })
    }
}

fn code(diagnostic: &crate::Diagnostic, against: Against) -> String {
    let first = match against {
        Against::Model => "model",
        Against::Machine => "machine",
        Against::Template => "template",
        Against::Import => "import",
    };
    match diagnostic.place {
        // Where names stand in such a file only its program knows, but the last key is none, or what is left out.
        PathTarget::Bytes(_) if against == Against::Import => match keys(&diagnostic.path).last() {
            Some(key) => format!("{first}.{key}"),
            None => "yaml".to_owned(),
        },
        PathTarget::Key if diagnostic.message.starts_with("unknown key") => format!("{first}.unknown-key"),
        PathTarget::Bytes(_) if against == Against::Model => "yaml".to_owned(),
        PathTarget::Key | PathTarget::Bytes(_) | PathTarget::Value | PathTarget::Part(_) => {
            std::iter::once(first).chain(keys(&diagnostic.path)).collect::<Vec<_>>().join(".")
        }
    }
}

/// The keys on a path, without the names that the user gave and without positions in lists.
fn keys(path: &Path) -> impl Iterator<Item = &str> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let segments: Vec<&str> = path.0.iter().map(String::as_str).collect();
    let named = |at: usize| {
        matches!(
            segments.get(..at),
            Some(
                ["nics" | "guests" | "drives"]
                    | ["board", "emulation"]
                    | ["guests", _, "nics"]
                    | ["guests", _, "nics", _, "functions"]
            )
        )
    };
    let kept: Vec<bool> = (0..segments.len()).map(|at| !named(at) && !number(segments[at])).collect();
    segments.into_iter().zip(kept).filter_map(|(segment, kept)| kept.then_some(segment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn of(text: &str) -> Vec<Located> {
        let source = Source::new("m.yaml", text);
        parse(&source).unwrap_err().located(&source, Against::Model)
    }

    #[test]
    fn a_message_has_its_place_in_numbers_and_a_code() {
        let found = of("nics:\n  NET0: {vfs: 1, loopbak: on}\n  NET1: {match: {slot: \"ä\"}, vfs: x}\n");
        let place = |one: &Located| (one.line, one.column, one.end_line, one.end_column);
        let unknown = found.iter().find(|one| one.code == "model.unknown-key").expect("the key");
        assert_eq!(place(unknown), (2, 18, 2, 25), "{unknown:?}");
        assert_eq!((unknown.severity.as_str(), unknown.file.as_str()), ("error", "m.yaml"));
        assert!(unknown.help.as_deref().is_some_and(|help| help.contains("loopback")), "{unknown:?}");
        let value = found.iter().find(|one| one.code == "model.nics.vfs").expect("the value");
        assert_eq!(place(value), (3, 35, 3, 36), "columns are characters: {value:?}");
    }

    #[test]
    fn a_code_has_keys_and_no_names() {
        let found = of(
            "nics: {N: }\ndrives: {SSD0: {queues: 0}}\nguests:\n  nics: {kind: vm, nics: {net0: {vfs: 1, queues: 0, functions: {x: {}}}}}\n\
             board: {emulation: {N: x}}\n",
        );
        let codes: Vec<&str> = found.iter().map(|one| one.code.as_str()).collect();
        for code in [
            "model.drives.queues",
            "model.guests.nics.queues",
            "model.guests.nics.functions",
            "model.board.emulation",
        ] {
            assert!(codes.contains(&code), "{code}: {codes:?}");
        }
    }

    #[test]
    fn a_carriage_return_alone_ends_a_line() {
        for end in ["\n", "\r\n", "\r"] {
            let text = ["nics:", "  NET0: {vfs: 1}", "  NET1: {vfs: x}", ""].join(end);
            let found = of(&text);
            assert_eq!((found[0].line, found[0].column), (3, 15), "{end:?}: {found:?}");
            let source = Source::new("m.yaml", text);
            let shown = parse(&source).unwrap_err().render(&source, false);
            assert!(shown.contains("\n 3 |   NET1: {vfs: x}\n"), "{shown}");
        }
    }

    #[test]
    fn text_that_is_no_yaml_and_no_text_at_all_have_places_too() {
        let found = of("nics: {NET0: [}\n");
        assert_eq!((found[0].code.as_str(), found[0].line), ("yaml", 1), "{found:?}");
        let found = of("");
        assert_eq!((found[0].line, found[0].column), (0, 0), "{found:?}");
    }
}
