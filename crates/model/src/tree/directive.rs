//! Directives in front of a model: `%YAML`, `%TAG` (YAML 1.2.2, section 6.8).
//!
//! The scanner reads a model as YAML 1.2 whatever its directive says, and an editor's language server does not: under `%YAML 1.1` it
//! takes `no` for false and a MAC address for a number of base 60. Who writes one is told, not read in another way.

use crate::{
    diagnostic::{Diagnostic, Path},
    tree::shown,
};

/// What is wrong with the directives of `text`.
pub fn refused(text: &str) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut at = text.len() - text.strip_prefix('\u{feff}').unwrap_or(text).len();
    for line in text[at..].split_inclusive('\n') {
        let words = line.trim_end();
        // Directives come first, among comments and empty lines.
        match words.as_bytes().first() {
            Some(b'%') => found.extend(refuse(words).map(|wrong| wrong.at_bytes(at..at + words.len()))),
            Some(b'#') | None => {}
            Some(_) if words.trim_start().starts_with('#') => {}
            Some(_) => break,
        }
        at += line.len();
    }
    found
}

fn refuse(directive: &str) -> Option<Diagnostic> {
    let mut words = directive.split_whitespace();
    let error =
        |message: String, hint: &str| Some(Diagnostic::error(Path::default(), message).with_hint(hint));
    match (words.next().unwrap_or_default(), words.next()) {
        ("%YAML", Some("1.2")) => None,
        ("%YAML", version) => {
            let version = version.unwrap_or_default();
            let why = match version {
                "1.1" => ": to an editor `no` is then false, and a MAC address can be a number of base 60",
                _ => "",
            };
            error(
                format!("a model is YAML 1.2, and this says that it is YAML {}{why}", shown(version)),
                "remove the line; without one a file is YAML 1.2",
            )
        }
        ("%TAG", _) => {
            error("a model has no tags, and this makes a short name for some".to_owned(), "remove the line")
        }
        (name, _) => error(format!("YAML has no directive {}", shown(name)), "remove the line"),
    }
}
