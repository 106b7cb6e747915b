//! From text to a model.

use crate::{
    Diagnostics, Model, Source, check, decode,
    diagnostic::{Diagnostic, Path, Severity},
    document::ModelDocument,
    tree::{self, YamlNode},
};

/// A good model, and what its author should know of it all the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The model, read and checked.
    pub model: Model,
    /// Warnings in the file's order; none of them is an error. Whoever reads a user's file shows them.
    pub warnings: Diagnostics,
}

/// Reads and checks the model in `source`. As an error, everything that is wrong with it, in the file's order; the
/// warnings too.
///
/// # Errors
///
/// [`Diagnostics`] when anything in it is an error; with warnings alone it is good.
pub fn parse(source: &Source) -> Result<Parsed, Diagnostics> {
    let (root, mut messages) = tree::read_model(&source.text).map_err(Diagnostics)?;
    let (document, wrong) = decode::document::<ModelDocument>(root.clone());
    messages.extend(wrong);
    let model = document.map(|document| check::check(document, &source.name, &mut messages));
    let wrong = messages.iter().any(|message| message.severity == Severity::Error);
    let more = messages.len() > check::MAX_MESSAGES;
    if more {
        // Errors before warnings, if not all of them can stay.
        messages.sort_by_key(|message| message.severity);
        messages.truncate(check::MAX_MESSAGES);
    }
    sort(&mut messages, &root, &source.text);
    if more {
        let text = format!("there is more than these {}", check::MAX_MESSAGES);
        // A model that has nothing but warnings stays good, however many they are.
        let last = match wrong {
            true => Diagnostic::error(Path::default(), text),
            false => Diagnostic::warning(Path::default(), text),
        };
        messages.push(last.with_hint("mend these first"));
    }
    match model {
        Some(model) if !wrong => Ok(Parsed { model, warnings: Diagnostics(messages) }),
        _ => Err(Diagnostics(messages)),
    }
}

/// Puts messages in the file's order; those about the file as a whole come last.
fn sort(messages: &mut [Diagnostic], root: &YamlNode, text: &str) {
    messages.sort_by_cached_key(|message| {
        root.locate(text, &message.path, &message.place).map_or(usize::MAX, |bytes| bytes.start)
    });
}
