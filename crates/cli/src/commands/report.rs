//! `penstock report RUN...`: renders a run again, compares two, makes a copy that can be shown to others, or writes its latencies as other
//! programs do.

pub mod latencies;
pub mod redacted;

use std::path::Path;

use penstock_host::files;
use penstock_measure::run_comparison;
use penstock_report::compare;

use crate::{
    arguments::Report,
    failure::{Failure, Status},
    runtime::{kept_run::KeptRun, run_directory::ANOTHER},
    ui::printer::Printer,
};

/// One run or two.
///
/// # Errors
///
/// `Status::BadInput` for a directory that is no run, for options that do not go together, and with `--redact`, when the directory of the copy
/// is not empty; when a file cannot be written.
pub fn run(arguments: &Report, printer: &mut Printer) -> Result<Status, Failure> {
    match arguments.runs.as_slice() {
        [run] if arguments.redact => redacted::write(&KeptRun::read(run)?, arguments, printer),
        [run] => match arguments.latencies {
            Some(form) => latencies::write(&KeptRun::read(run)?, form, arguments.output.as_deref(), printer),
            None => render(&KeptRun::read(run)?, arguments.output.as_deref(), printer),
        },
        [_, _] if arguments.redact => {
            Err(Failure::new(Status::BadInput, "a comparison has nothing to redact but its two runs")
                .hint("redact each of them, then compare the copies"))
        }
        [_, _] if arguments.latencies.is_some() => {
            Err(Failure::new(Status::BadInput, "`--latencies` writes those of one run"))
        }
        [a, b] => compared(&KeptRun::read(a)?, &KeptRun::read(b)?, arguments.output.as_deref(), printer),
        _ => Err(Failure::new(Status::BadInput, "`report` takes one run or two")),
    }
}

/// The report as this Penstock makes it. The evidence itself is never written.
fn render(run: &KeptRun, output: Option<&Path>, printer: &mut Printer) -> Result<Status, Failure> {
    let directory = output.unwrap_or(run.directory());
    let evidence = run.evidence();
    keep(
        directory,
        &[
            ("report.md", penstock_report::markdown(evidence)),
            ("report.html", penstock_report::html(evidence)),
        ],
    )?;
    printer.data(evidence, || penstock_report::summary(evidence))?;
    printer.say(format!("The report is {}", directory.join("report.html").display()));
    Ok(Status::Holds)
}

/// Two runs, B against A.
fn compared(
    a: &KeptRun,
    b: &KeptRun,
    output: Option<&Path>,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let (a, b) = (a.evidence(), b.evidence());
    let same_model = compare::same_model(a, b);
    let cells = run_comparison::cells(a.measurements.as_ref(), b.measurements.as_ref());
    let latencies = run_comparison::latency(a.latency.as_ref(), b.latency.as_ref());
    let cells = run_comparison::together(cells.into_iter().chain(latencies));
    let mut rulings = run_comparison::rulings(a.rulings(), b.rulings(), same_model);
    rulings.extend(run_comparison::rulings(a.claims(), b.claims(), same_model));
    let comparison = compare::compare(a, b, cells, rulings);
    if let Some(directory) = output {
        let json = serde_json::to_string_pretty(&comparison)? + "\n";
        let (page, text) = (compare::html(&comparison), compare::markdown(&comparison));
        keep(directory, &[("comparison.json", json), ("comparison.md", text), ("comparison.html", page)])?;
    }
    printer.data(&comparison, || compare::summary(&comparison))?;
    if let Some(directory) = output {
        printer.say(format!("The comparison is {}", directory.join("comparison.html").display()));
    }
    Ok(if comparison.got_worse() { Status::DoesNotHold } else { Status::Holds })
}

/// Writes files into a directory, each whole or not at all.
fn keep(directory: &Path, all: &[(&str, String)]) -> Result<(), Failure> {
    let written = files::create_dir_all(directory).and_then(|()| {
        all.iter().try_for_each(|(name, text)| files::write_atomic(directory.join(name), text))
    });
    written.map_err(|error| Failure::of_named(error).hint(ANOTHER))
}
