//! From text to a model.

use crate::{
    Diagnostics, Model, Source, check, decode,
    diagnostic::{Diagnostic, Path, Severity},
    document::ModelDocument,
    tree::{self, Node},
};

/// Reads and checks the model in `source`. As an error, everything that is wrong with it, in the file's order; the
/// warnings too.
pub fn parse(source: &Source) -> Result<Model, Diagnostics> {
    parse_with_warnings(source).map(|(model, _)| model)
}

/// As [`parse`], with the warnings about a model that is good all the same.
pub fn parse_with_warnings(source: &Source) -> Result<(Model, Diagnostics), Diagnostics> {
    let (root, mut messages) = tree::read(&source.text)?;
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
        messages.push(
            Diagnostic::error(Path::default(), format!("there is more than these {}", check::MAX_MESSAGES))
                .with_hint("mend these first"),
        );
    }
    match model {
        Some(model) if !wrong => Ok((model, Diagnostics(messages))),
        _ => Err(Diagnostics(messages)),
    }
}

/// Puts messages in the file's order; those about the file as a whole come last.
fn sort(messages: &mut [Diagnostic], root: &Node, text: &str) {
    messages.sort_by_cached_key(|message| {
        root.locate(text, &message.path, &message.place).map_or(usize::MAX, |bytes| bytes.start)
    });
}
