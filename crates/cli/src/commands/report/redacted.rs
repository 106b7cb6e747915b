//! A copy of a run in which pseudonyms stand for addresses, hostnames and users.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use penstock_host::files;
use penstock_report::redact::{self, Redactor};
use serde::Serialize;

use crate::{
    arguments::Report,
    failure::{Failure, OrBadInput, Status},
    runtime::kept_run::{KeptFiles, KeptRun, RUN_FILE_LIMIT, UnreadableFile},
    ui::printer::Printer,
};

/// Files that are made anew from the redacted evidence.
const RENDERED: [&str; 5] = ["evidence.json", "report.html", "report.md", "model.yaml", "serial.log"];

/// What `--json` prints.
#[derive(Serialize, schemars::JsonSchema)]
pub struct Redacted {
    directory: PathBuf,
    files: Vec<PathBuf>,
    /// What may hold anything: files that are no text, and directories that lie too deep within others to be looked into.
    left_out: Vec<PathBuf>,
    /// Names that could not be replaced, because they are words that say something else too.
    names_left: Vec<String>,
}

/// Reads everything, then reads it again and writes the copy: all of it at once may be more than memory holds. The original is only read.
///
/// # Errors
///
/// `Status::BadInput` when the evidence is too large to be redacted, or the directory of the copy is not empty; when a file changes
/// between the two readings, or cannot be read or written.
pub fn write(run: &KeptRun, arguments: &Report, printer: &mut Printer) -> Result<Status, Failure> {
    redact::check(&run.evidence().json()).map_err(|source| {
        let file = run.directory().join("evidence.json");
        Failure::new(Status::BadInput, UnreadableFile { file, source })
            .hint("it is too large to be redacted; a run with fewer guests or samples is not")
    })?;
    let mut redactor = Redactor::new(run.evidence(), arguments.redact_names);
    let KeptFiles { mut files, too_deep } = run.files()?;
    files.retain(|path| !RENDERED.iter().any(|name| path == Path::new(name)));
    let (mut texts, mut no_texts) = (Vec::new(), Vec::new());
    printer.doing("Reading the run");
    for path in files {
        match text_of(run.directory(), &path)? {
            Some(text) => {
                pieces(&path, &text).for_each(|piece| redactor.learn(piece));
                texts.push((path, hash(&text)));
            }
            None => no_texts.push(path),
        }
    }
    let directory = match &arguments.output {
        Some(directory) => directory.clone(),
        None => beside(run.directory(), &mut redactor)?,
    };
    if files::exists(&directory) && !files::list(&directory).or_bad_input()?.is_empty() {
        let text = format!("{} is not empty", directory.display());
        return Err(Failure::new(Status::BadInput, text).hint("name another directory with --output"));
    }
    let evidence = redactor.evidence(run.evidence()).map_err(|error| {
        Failure::from(error)
            .hint("a host, a user or a guest is called like a word of the evidence; nothing was written")
    })?;
    printer.doing("Writing the copy");
    let mut written = Vec::new();
    let mut keep = |path: PathBuf, text: &str| -> Result<(), Failure> {
        let whole = directory.join(&path);
        if let Some(parent) = whole.parent() {
            files::create_dir_all(parent).map_err(Failure::of_named)?;
        }
        files::write_atomic(whole, text).map_err(Failure::of_named)?;
        written.push(path);
        Ok(())
    };
    for (path, learnt) in texts {
        let text = same_text(run.directory(), &path, learnt)?;
        let shown: String = pieces(&path, &text).map(|piece| redactor.file(piece)).collect();
        keep(renamed(&path, &mut redactor), &shown)?;
    }
    keep("model.yaml".into(), &evidence.model.text)?;
    keep("serial.log".into(), evidence.serial_log.as_deref().unwrap_or_default())?;
    keep("evidence.json".into(), &evidence.json())?;
    keep("report.md".into(), &penstock_report::markdown(&evidence))?;
    keep("report.html".into(), &penstock_report::html(&evidence))?;
    printer.done();
    for path in &no_texts {
        printer.warn(format!("{} is no text and may hold anything: it is left out", path.display()));
    }
    for path in &too_deep {
        printer.warn(format!("{} lies too deep within directories: it is left out", path.display()));
    }
    let names_left = redactor.left();
    for name in &names_left {
        printer.warn(format!("{name} is left as it is: it is a word that says something else too"));
    }
    let left_out = no_texts.into_iter().chain(too_deep).collect();
    let redacted = Redacted { directory, files: written, left_out, names_left };
    printer.data(&redacted, || {
        format!(
            "{}: {} files; read them before you hand them on",
            redacted.directory.display(),
            redacted.files.len()
        )
    })?;
    Ok(Status::Holds)
}

/// `runs/x` to `runs/x-redacted`, also where `x` is the current directory. A machine's name in `x` is replaced.
fn beside(run: &Path, redactor: &mut Redactor) -> Result<PathBuf, Failure> {
    let whole = match run.file_name() {
        Some(_) => run.to_owned(),
        None => files::canonical(run).or_bad_input()?,
    };
    let Some(name) = whole.file_name() else {
        let text = format!("{} has no name that a copy beside it could have", whole.display());
        return Err(Failure::new(Status::BadInput, text).hint("name a directory with --output"));
    };
    Ok(whole.with_file_name(format!("{}-redacted", redactor.text(&name.to_string_lossy()))))
}

/// What tells a text from another one.
fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The text of a file of the run whose names were learnt. Names in what was written since were not, and would be left.
fn same_text(run: &Path, path: &Path, learnt: u64) -> Result<String, Failure> {
    let text = text_of(run, path)?.filter(|text| hash(text) == learnt);
    text.ok_or_else(|| {
        let file = run.join(path);
        let text = format!("{} was changed while it was read: the copy is not whole", file.display());
        Failure::new(Status::Busy, text)
            .hint("remove the copy, wait until nobody writes to the run any more, and make it again")
    })
}

/// The text of a file of the run; `None` when it is none.
fn text_of(run: &Path, path: &Path) -> Result<Option<String>, Failure> {
    let bytes = files::read_whole(run.join(path), RUN_FILE_LIMIT).or_bad_input()?;
    let text = match String::from_utf8(bytes) {
        // A serial console may print half a character; it is text all the same.
        Err(error) if is_text(path) => Some(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        text => text.ok(),
    };
    let checked = text.iter().flat_map(|text| pieces(path, text)).try_for_each(redact::check);
    checked.map_err(|source| {
        Failure::new(Status::BadInput, UnreadableFile { file: run.join(path), source })
            .hint("take it out of the run, or have whoever made it look at what wrote it")
    })?;
    Ok(text)
}

fn is_text(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ["log", "txt", "jsonl", "json", "md"].iter().any(|text| ending == *text))
}

/// Lines of JSON one by one: a run may have more of them than would fit into memory as values at once.
fn pieces<'a>(path: &Path, text: &'a str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
    if path.extension().is_some_and(|ending| ending == "jsonl") {
        Box::new(text.split_inclusive('\n'))
    } else {
        Box::new(std::iter::once(text))
    }
}

/// The path with the names of guests in it replaced.
fn renamed(path: &Path, redactor: &mut Redactor) -> PathBuf {
    path.iter().map(|part| redactor.text(&part.to_string_lossy())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_while_it_is_read_is_refused() {
        let run = tempfile::tempdir().unwrap();
        let log = Path::new("consoles.log");
        let text = "web says hello\n".to_owned();
        files::write_atomic(run.path().join(log), &text).unwrap();
        let learnt = hash(&text_of(run.path(), log).unwrap().unwrap());
        assert_eq!(same_text(run.path(), log, learnt).unwrap(), text);
        files::write_atomic(run.path().join(log), format!("{text}mara says hello\n")).unwrap();
        let failure = same_text(run.path(), log, learnt).unwrap_err();
        assert_eq!(failure.status, Status::Busy, "{}", failure.in_one_line());
        assert!(failure.in_one_line().contains("was changed while it was read"));
    }
}
