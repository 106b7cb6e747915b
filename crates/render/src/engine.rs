//! Renders one template with one context, within bounds.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    ops::Range,
};

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value, syntax::SyntaxConfig,
    value::ValueKind,
};
use penstock_model::{Diagnostic, Diagnostics, GuestName, Path};

use super::{
    GenerateError, MOST_BYTES, TemplateError,
    budget::{self, Exceeded, MOST_MEMORY, MOST_TIME},
};

/// The most instructions that one rendering may take. The table of 64 guests and 510 VFs takes a hundredth of it.
const FUEL: u64 = 5_000_000;

/// The filters that are not MiniJinja's.
const OWN_FILTERS: [&str; 3] = ["c_bytes", "c_ident", "c_string"];

/// A template's text under the name by which messages speak of it.
pub struct Named<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// MiniJinja as templates see it.
pub struct Engine {
    environment: Environment<'static>,
}

impl Engine {
    /// No loader: a template is one file and reads no other. A block's own line leaves no trace; what is missing is an
    /// error.
    pub fn new() -> Engine {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_debug(true);
        environment.set_fuel(Some(FUEL));
        let syntax =
            SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
        environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
        environment.add_filter("c_ident", c_ident);
        environment.add_filter("c_string", c_string);
        environment.add_filter("c_bytes", c_bytes);
        Engine { environment }
    }

    /// The template's text with its names filled in.
    ///
    /// # Errors
    ///
    /// [`Broken`] with the place: it is no template, has a name that is not known, or makes too long a text.
    pub fn render(&self, template: &Named<'_>, context: Value) -> Result<String, Broken> {
        let mut page = Bounded { bytes: Vec::new(), full: false };
        let outcome = self
            .environment
            .template_from_named_str(template.name, template.text)
            .and_then(|parsed| parsed.render_captured_to(context.clone(), &mut page).map(drop));
        match outcome {
            Ok(()) => Ok(String::from_utf8(page.bytes).expect("MiniJinja writes text")),
            Err(error) => Err(Broken::of(&error, page.full, template.text, &context)),
        }
    }
}

/// A template of the user's with its names filled in, in bounded time and memory.
///
/// # Errors
///
/// As [`Engine::render`], and when it takes too much time or memory.
pub fn render_within(name: String, text: String, context: Value) -> Result<String, Broken> {
    let rendered = budget::within(move || Engine::new().render(&Named { name: &name, text: &text }, context));
    let (message, hint) = match rendered {
        Ok(outcome) => return outcome,
        Err(Exceeded::Memory) => (
            format!("the template takes more than {} MiB of memory", MOST_MEMORY >> 20),
            "does a text or a list grow with each turn of a loop?",
        ),
        Err(Exceeded::Thread) => (
            "there is no memory for the thread that fills it in".to_owned(),
            "look what takes this machine's memory",
        ),
        Err(Exceeded::Time) => (
            format!("the template is not done after {} s", MOST_TIME.as_secs()),
            "does a loop go over large texts or lists?",
        ),
    };
    Err(Broken { message, hint: Some(hint.to_owned()), place: None })
}

/// A page that has an end.
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > MOST_BYTES {
            self.full = true;
            return Err(io::Error::other("the file is too large"));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is wrong with a template, and where.
pub struct Broken {
    message: String,
    hint: Option<String>,
    place: Option<Range<usize>>,
}

impl Broken {
    fn of(error: &Error, full: bool, text: &str, context: &Value) -> Broken {
        // Of an error inside a macro or a block the innermost one tells what happened.
        let mut inner = error;
        while let Some(next) = std::error::Error::source(inner).and_then(|next| next.downcast_ref::<Error>())
        {
            inner = next;
        }
        let place = inner.range().or_else(|| error.range()).or_else(|| line(text, inner.line()?));
        let place = place.filter(|place| text.get(place.clone()).is_some());
        let named = place.clone().and_then(|place| text.get(place)).unwrap_or_default();
        let (message, hint) = match inner.kind() {
            _ if full => (
                format!("the file would be larger than {} KiB", MOST_BYTES >> 10),
                Some("does a loop go on for too long?".to_owned()),
            ),
            ErrorKind::OutOfFuel => (
                format!("the template is not done after {FUEL} instructions"),
                Some("does a loop go on for too long?".to_owned()),
            ),
            ErrorKind::UndefinedError => undefined(named, context),
            ErrorKind::UnknownFilter => {
                let filter = inner.detail().and_then(|detail| detail.split_whitespace().nth(1));
                let near =
                    filter.and_then(|filter| nearest(filter, OWN_FILTERS.into_iter().map(str::to_owned)));
                let hint = near.map(|near| format!("did you mean `{near}`?")).unwrap_or_else(|| {
                    format!("besides MiniJinja's own there are {}", OWN_FILTERS.join(", "))
                });
                (words(inner), Some(hint))
            }
            ErrorKind::TemplateNotFound => (
                "a template is one file, and cannot include another".to_owned(),
                Some("make it one file; macros may stand in it".to_owned()),
            ),
            _ => (words(inner), None),
        };
        Broken { message, hint, place }
    }

    /// As an error of a file of the user's.
    pub fn of_template(self, guest: &GuestName, path: &str, text: &str) -> GenerateError {
        let mut found = Diagnostic::error(Path::default(), self.message);
        found.hint = self.hint;
        if let Some(place) = self.place {
            found = found.at_bytes(place);
        }
        GenerateError::Template(Box::new(TemplateError {
            guest: guest.clone(),
            path: path.to_owned(),
            text: text.to_owned(),
            found: Diagnostics::from(found),
        }))
    }

    /// As an error of the entry at `path` of the model, whose template is built in.
    pub fn of_model(self, path: Path) -> GenerateError {
        let mut found = Diagnostic::error(path, self.message);
        found.hint = self.hint;
        GenerateError::Model(found.into())
    }
}

/// A whole line of a text, without the white space around it.
fn line(text: &str, number: usize) -> Option<Range<usize>> {
    let line = text.split('\n').nth(number.checked_sub(1)?)?;
    let start = line.as_ptr() as usize - text.as_ptr() as usize;
    let trimmed = line.trim_start();
    let start = start + line.len() - trimmed.len();
    Some(start..start + trimmed.trim_end().len())
}

/// An error in MiniJinja's words, without where it was.
fn words(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// What to say of an expression that is undefined: the name in it that no context has, and the one that was meant.
fn undefined(expression: &str, context: &Value) -> (String, Option<String>) {
    let mut known = BTreeSet::new();
    names(context, &mut known);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let strangers: Vec<&str> = expression
        .split(|c: char| !word(c))
        .filter(|name| !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()))
        .filter(|name| !known.contains(*name))
        .collect();
    // `fn.mca`: the last name is what is missing, and a loop's variable stands before it.
    let name = strangers.last().copied();
    let message = match name {
        Some(name) if name != expression => format!("there is no `{name}` in `{}`", shown(expression)),
        _ if expression.is_empty() => "something is named here that there is not".to_owned(),
        _ => format!("there is no `{}`", shown(expression)),
    };
    let near = name.and_then(|name| nearest(name, known.into_iter()));
    (
        message,
        Some(match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "docs/templates.md lists what there is; test for it with `is defined`".to_owned(),
        }),
    )
}

/// An expression on one line, and not too long.
fn shown(expression: &str) -> String {
    let words: Vec<&str> = expression.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// All keys of a value and of what is in it.
fn names(value: &Value, known: &mut BTreeSet<String>) {
    let Ok(items) = value.try_iter() else { return };
    match value.kind() {
        ValueKind::Map => {
            for key in items {
                known.extend(key.as_str().map(str::to_owned));
                value.get_item(&key).iter().for_each(|item| names(item, known));
            }
        }
        // All items of a list are alike.
        ValueKind::Seq => items.take(1).for_each(|item| names(&item, known)),
        _ => {}
    }
}

fn nearest(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let most = 1 + name.len() / 3;
    let near = known.map(|other| (strsim::damerau_levenshtein(name, &other), other));
    near.filter(|(distance, _)| *distance <= most).min().map(|(_, other)| other)
}

/// A name as part of an identifier of C: letters, digits and `_`, no digit first.
fn c_ident(text: &str) -> String {
    let mut name: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        name.insert(0, '_');
    }
    name
}

/// A text as a string literal of C, quotes included. All but the plainest characters are octal escapes: of three digits,
/// so that what follows is not taken in, and `?` too, which could begin a trigraph.
fn c_string(text: &str) -> String {
    let mut literal = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b' ' | b'_' | b'-' | b'.' | b'#' | b':' | b'/' => {
                literal.push(char::from(byte));
            }
            other => literal.push_str(&format!("\\{other:03o}")),
        }
    }
    literal.push('"');
    literal
}

/// Bytes as they stand in an initializer of C: `0x02, 0x00`.
fn c_bytes(bytes: Vec<u8>) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("0x{byte:02x}")).collect();
    bytes.join(", ")
}
