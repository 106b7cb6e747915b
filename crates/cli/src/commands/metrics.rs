//! `penstock metrics`: this machine's counters and states, for Prometheus.

use std::path::Path;

use penstock_host::{Root, files};
use penstock_report::metrics::{Snapshot, TextFormat, render};

use crate::{
    arguments::Metrics,
    failure::{Failure, Status},
    metrics::snapshot,
    model_file::{self, For},
    runtime::machine::{self, Machine},
    settings::Settings,
    ui::printer::Printer,
};

/// What the file is called: node_exporter reads what ends in `.prom`.
const FILE: &str = "penstock.prom";

/// Prints the metrics, or writes them for node_exporter. What could not be read is a metric too, and a warning; it is no failure.
///
/// # Errors
///
/// For a model that is wrong, a recorded tree that is none, and when the file for node_exporter cannot be written.
pub fn run(arguments: &Metrics, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let is_here = arguments.root.is_none();
    let file = match arguments.subject() {
        Some(subject) => Some(model_file::read_subject(&subject, For::of(None, is_here, settings), printer)?),
        None => None,
    };
    let root = arguments.root.as_deref().map_or_else(|| Ok(Root::system()), machine::recorded)?;
    let machine = Machine::at(root, settings);
    let snapshot = snapshot(&machine, file.as_ref(), arguments.verify, printer);
    match &arguments.textfile {
        None => printer.data(&snapshot, || render(&snapshot, TextFormat::OpenMetrics))?,
        Some(directory) => {
            write(directory, &snapshot)?;
            printer.document(&snapshot)?;
        }
    }
    Ok(Status::Holds)
}

/// Replaces the file in `directory`, whole. What a Penstock that was killed has left of writing it goes first.
fn write(directory: &Path, snapshot: &Snapshot) -> Result<(), Failure> {
    let path = directory.join(FILE);
    let written = files::remove_parts(&path)
        .and_then(|()| files::write_atomic(&path, render(snapshot, TextFormat::Prometheus)));
    written.map_err(|error| {
        let hint = "--textfile takes the directory that node_exporter has as --collector.textfile.directory, \
                    which has to be there and to be writable";
        Failure::of_named(error).hint(hint)
    })
}
