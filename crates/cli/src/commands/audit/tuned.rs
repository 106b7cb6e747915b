//! An audit and TuneD: what is advised as a profile, and what a profile does of it.

use std::path::{Component, Path, PathBuf};

use penstock_exchange::{
    Exported, TUNED_FILE, TunedCoverage, TunedProfile, TunedSource, TunedVerdict, read_tuned, tuned_profile,
};
use penstock_host::files;
use penstock_model::{audit::Audit, text::one_line, yaml};
use serde::Serialize;

use crate::{
    failure::{Failure, OrBadInput, Status},
    ui::{paragraphs::Paragraphs, printer::Printer},
};

/// Where profiles are, the first that has one first (`tuned/consts.py`; the last two up to version 2.22).
const PROFILES: [&str; 4] =
    ["/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"];

/// Where variables of profiles are.
const VARIABLES: [&str; 2] = ["/etc/tuned", "/usr/lib/tuned"];

/// Those of TuneD have a few KiB.
const LIMIT: usize = 1 << 20;

/// What `audit --as-tuned` prints.
#[derive(Serialize, schemars::JsonSchema)]
pub struct AuditProfile {
    /// The text of `tuned.conf`; `null` when the audit advises nothing that a profile can do.
    profile: Option<String>,
    /// What the audit advises and the profile does not do, a sentence each.
    left_out: Vec<String>,
}

/// Prints what is advised as a profile; what it leaves out is warned of.
///
/// # Errors
///
/// When standard output takes nothing.
pub fn print_profile(found: &Audit, printer: &mut Printer) -> Result<Status, Failure> {
    let Exported { files, left_out } = tuned_profile(found);
    for left_out in &left_out {
        printer.warn(format!("left out: {}", one_line(left_out)));
    }
    let profile = files.into_iter().next().map(|file| file.text);
    if profile.is_none() {
        printer.say("The audit advises nothing that a profile of TuneD can do.");
    }
    let printed = AuditProfile { profile, left_out };
    printer.data(&printed, || printed.profile.clone().unwrap_or_default())?;
    Ok(Status::Holds)
}

/// Reads the profile that the user names: its directory or its file. What it includes is looked up beside it, then where TuneD does.
///
/// # Errors
///
/// `Status::BadInput` when the file cannot be read, or it or what it includes is no profile.
pub fn read(path: &Path) -> Result<TunedProfile, Failure> {
    let file = match path.is_dir() {
        true => path.join(TUNED_FILE),
        false => path.to_owned(),
    };
    let beside = file.parent().and_then(Path::parent).map(Path::to_owned);
    let text = text(&file).or_bad_input()?;
    let read = |source: TunedSource<'_>| match source {
        TunedSource::Variables(path) => variables(Path::new(path)),
        TunedSource::Profile(name) => included(beside.as_deref(), name),
    };
    let wrong = |why: String| {
        Failure::new(
            Status::BadInput,
            format!("{} is no profile of TuneD that can be read: {why}", file.display()),
        )
    };
    read_tuned(&text, &read).map_err(wrong)
}

/// The text of a file of variables. A profile from elsewhere may name any file, lines of which would be told where they make no sense.
fn variables(path: &Path) -> Result<String, String> {
    let is_inside = VARIABLES.iter().any(|directory| path.starts_with(directory));
    if !is_inside || path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("only files below {} are read", VARIABLES.join(" and ")));
    }
    text(path)
}

/// The text of an included profile.
fn included(beside: Option<&Path>, name: &str) -> Result<String, String> {
    if name.contains('/') || name.starts_with('.') {
        return Err(format!("{} is no name of a profile", yaml::shown(name)));
    }
    let directories = beside.into_iter().chain(PROFILES.iter().map(Path::new));
    let candidates: Vec<PathBuf> =
        directories.map(|directory| directory.join(name).join(TUNED_FILE)).collect();
    match candidates.iter().find(|file| files::exists(file)) {
        Some(file) => text(file),
        None => {
            let places: Vec<String> = candidates.iter().map(|file| file.display().to_string()).collect();
            Err(format!("there is none of these: {}", places.join(", ")))
        }
    }
}

fn text(file: &Path) -> Result<String, String> {
    let bytes = files::read_whole(file, LIMIT).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8 text", file.display()))
}

/// What a profile does of the advice, below the table of the audit.
pub fn table(coverage: &TunedCoverage, verbose: bool, width: Option<usize>) -> String {
    let mut out = Paragraphs::new(width);
    out.push_str("\n");
    out.heading("The TuneD profile");
    for row in &coverage.rows {
        out.wrapped(
            &format!("  {:<13} ", shown(row.verdict)),
            &one_line(&format!("{}: {}", row.rule, row.subject)),
        );
        for why in &row.why {
            out.wrapped("                - ", &one_line(why));
        }
    }
    let sets = coverage.rows.iter().filter(|row| row.verdict == TunedVerdict::Sets).count();
    let counts = format!(
        "It does what is advised for {sets} of {} rows that failed or conflict.",
        coverage.rows.len()
    );
    out.wrapped("", &counts);
    if verbose {
        for unread in &coverage.unread {
            out.wrapped("  not read: ", &one_line(unread));
        }
    } else if !coverage.unread.is_empty() {
        let text = format!("{} of its settings were not read; --verbose names them.", coverage.unread.len());
        out.wrapped("", &text);
    }
    out.finish()
}

fn shown(verdict: TunedVerdict) -> &'static str {
    match verdict {
        TunedVerdict::Sets => "sets",
        TunedVerdict::Computes => "computes",
        TunedVerdict::Differs => "differs",
        TunedVerdict::SetsPart => "sets part",
        TunedVerdict::SetsNothing => "sets nothing",
        TunedVerdict::Cannot => "cannot",
    }
}
