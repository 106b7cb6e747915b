//! `penstock generate MODEL`: writes or compares the files that tell guests what their functions are.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_host::{Root, files};
use penstock_model::text::{clip, counted, one_line};
use penstock_render::{FoundFile, FoundMachine, GeneratedFile};
use serde::Serialize;
use similar::TextDiff;

use crate::{
    arguments::Generate,
    failure::{Failure, OrBadInput, Status},
    generated_files,
    model_file::{self, For, ModelFile},
    runtime::machine::Machine,
    settings::Settings,
    ui::printer::Printer,
};

/// The most lines that are shown of how a file differs.
const MOST_LINES: usize = 20;
/// How long the shortest difference is looked for: what is told after that is one, and perhaps not the shortest.
const FIND_FOR: Duration = Duration::from_secs(1);

/// The files that guests are given.
#[derive(Serialize, schemars::JsonSchema)]
pub struct Generated {
    files: Vec<Entry>,
}

/// What became of one file.
#[derive(Serialize, schemars::JsonSchema)]
struct Entry {
    /// Where it is.
    path: PathBuf,
    /// Whose it is.
    guest: String,
    /// The hash of what it says, or should say.
    sha256: String,
    /// How it is with it.
    state: State,
    /// Why it is not fresh, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum State {
    /// It is written now.
    Written,
    /// It was already as it would be made.
    Fresh,
    /// It is there and otherwise.
    Stale,
    /// It is not there.
    Missing,
}

/// Renders all, then writes or compares. Nothing is written unless everything could be rendered and read.
///
/// # Errors
///
/// For a model that is wrong or does not fit, an inventory that is none, a template that cannot be rendered, and when a file cannot be read or
/// written, or with `--here` the machine's guests not be seen.
pub fn run(arguments: &Generate, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let file = model_file::read_subject(
        &arguments.subject,
        For::of(arguments.inventory.as_deref(), arguments.here, settings),
        printer,
    )?;
    let inventory = match (&arguments.inventory, arguments.here) {
        (Some(path), _) => Some(model_file::read_inventory(path)?),
        (None, true) => Some(Machine::here(settings).inventory()?),
        (None, false) => None,
    };
    let nics = inventory.as_ref().map(|inventory| penstock_plan::resolve(&file.model, inventory)).transpose();
    let nics = nics.map_err(|found| model_file::does_not_fit(&found, &file.source, printer))?;
    let found =
        inventory.as_ref().zip(nics.as_ref()).map(|(inventory, nics)| FoundMachine { inventory, nics });
    let made = penstock_render::render(&file.model, found).map_err(|error| {
        let failure = model_file::explain_generate(&error, &file.source, printer);
        // Without a machine it cannot be the machine's fault: one is to be named.
        if inventory.is_none() { Failure { status: Status::BadInput, ..failure } } else { failure }
    })?;
    if made.is_empty() {
        printer.say(format!("{}: no guest has a `generate`.", file.source.name));
    }
    let output = arguments.output.as_deref().map(absolute).transpose()?;
    let mut entries = Vec::with_capacity(made.len());
    for generated in &made {
        let path = match &output {
            Some(output) => below(output, &file, &generated.path),
            None => PathBuf::from(&generated.path),
        };
        entries.push(compare(path, generated, arguments.check)?);
    }
    if !arguments.check {
        for (entry, generated) in
            entries.iter_mut().zip(&made).filter(|(entry, _)| entry.state != State::Fresh)
        {
            generated_files::write(&entry.path, &generated.text)?;
            (entry.state, entry.detail) = (State::Written, None);
        }
    }
    let entries = Generated { files: entries };
    let holds = entries.files.iter().all(|entry| matches!(entry.state, State::Written | State::Fresh));
    printer.answer(holds, &entries, || entries.files.iter().map(line).collect::<String>())?;
    Ok(if holds { Status::Holds } else { Status::DoesNotHold })
}

/// A directory that may be still to be made, as an absolute path.
fn absolute(directory: &Path) -> Result<PathBuf, Failure> {
    files::canonical(".").map(|here| here.join(directory)).or_bad_input()
}

/// The place below `output` of a file that the model has elsewhere: as below the model's directory, or as below `/`.
fn below(output: &Path, file: &ModelFile, path: &str) -> PathBuf {
    let path = Path::new(path);
    let inner = path.strip_prefix(&file.directory).or_else(|_| path.strip_prefix("/"));
    output.join(inner.unwrap_or(path))
}

fn compare(path: PathBuf, generated: &GeneratedFile, check: bool) -> Result<Entry, Failure> {
    let (state, detail) = match generated_files::look(&Root::system(), &path) {
        FoundFile::Text(text) if text == generated.text => (State::Fresh, None),
        FoundFile::Text(text) => (State::Stale, Some(difference(&text, &generated.text))),
        FoundFile::Missing => (State::Missing, None),
        FoundFile::Other(why) if check => (State::Stale, Some(format!("  {why}\n"))),
        FoundFile::Unreadable(why) if check => {
            let text = format!("{} cannot be compared with what the model makes: {why}", path.display());
            return Err(Failure::new(Status::Failed, text));
        }
        FoundFile::Other(why) | FoundFile::Unreadable(why) => {
            let text = format!("{} is not written: {why}", path.display());
            return Err(
                Failure::new(Status::Refused, text).hint("move it away, or write another `to` in the model")
            );
        }
    };
    Ok(Entry { path, guest: generated.guest.to_string(), sha256: generated.digest(), state, detail })
}

fn line(entry: &Entry) -> String {
    let state = match entry.state {
        State::Written => "wrote",
        State::Fresh => "fresh",
        State::Stale => "stale",
        State::Missing => "missing",
    };
    let detail = entry.detail.as_deref().unwrap_or_default();
    format!("{state:<8} {} ({})\n{detail}", entry.path.display(), entry.guest)
}

/// The first lines in which a file differs from what it would be, as `diff -u` shows them.
fn difference(is: &str, wanted: &str) -> String {
    let diff = TextDiff::configure().timeout(FIND_FOR).diff_lines(is, wanted);
    let diff = diff.unified_diff().context_radius(1).to_string();
    let mut lines = diff.lines();
    let mut text = String::new();
    for line in lines.by_ref().take(MOST_LINES) {
        let _ = writeln!(text, "  {}", clip(one_line(line).trim_end_matches('\n'), 200));
    }
    let more = lines.count();
    if more > 0 {
        let _ = writeln!(text, "  ({} more)", counted(more, "line"));
    }
    text
}
