//! `penstock export MODEL --to PROGRAM`: what a model says of NICs and VFs in the words of another program.

use std::path::PathBuf;

use penstock_exchange::{ExportFormat, Exported, export};
use penstock_host::files;
use serde::Serialize;

use crate::{
    arguments::{Export, ExportTo},
    failure::{Failure, Status},
    generated_files,
    model_file::{self, For},
    runtime::{machine::Machine, run_directory::ANOTHER},
    settings::Settings,
    ui::printer::Printer,
};

/// The files for another program.
#[derive(Serialize, schemars::JsonSchema)]
pub struct ExportedModel {
    /// The files, in the order in which they are printed.
    files: Vec<Entry>,
    /// What the model says and the files do not, a sentence each.
    left_out: Vec<String>,
}

/// One file of an export.
#[derive(Serialize, schemars::JsonSchema)]
struct Entry {
    /// Its name, without a directory.
    name: String,
    /// Where it was written; only with `--output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    /// The content of the file.
    text: String,
}

fn format(to: ExportTo) -> ExportFormat {
    match to {
        ExportTo::Cni => ExportFormat::Cni,
        ExportTo::Incus => ExportFormat::Incus,
        ExportTo::Libvirt => ExportFormat::Libvirt,
        ExportTo::Netplan => ExportFormat::Netplan,
        ExportTo::Networkd => ExportFormat::Networkd,
        ExportTo::Nmstate => ExportFormat::Nmstate,
        ExportTo::SriovOperator => ExportFormat::SriovOperator,
    }
}

/// Writes or prints the files; what they leave out is warned of.
///
/// # Errors
///
/// For a model that is wrong or does not fit the machine, an inventory that is none, something else in the place of a generated file, and
/// when the machine's guests cannot be seen or a file cannot be written.
pub fn run(arguments: &Export, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let wanted = For::of(arguments.inventory.as_deref(), true, settings);
    let file = model_file::read_subject(&arguments.subject, wanted, printer)?;
    let inventory = match &arguments.inventory {
        Some(path) => model_file::read_inventory(path)?,
        None => Machine::here(settings).inventory_for(&file.model)?,
    };
    let Exported { files, left_out } = export(&file.model, &inventory, format(arguments.to))
        .map_err(|found| model_file::does_not_fit(&found, &file.source, printer))?;
    let mut entries = Vec::with_capacity(files.len());
    if let Some(directory) = &arguments.output {
        files::create_dir_all(directory)
            .map_err(Failure::of_named)
            .map_err(|failure| failure.hint(ANOTHER))?;
    }
    for exported in files {
        let path = arguments.output.as_ref().map(|directory| directory.join(&exported.name));
        if let Some(path) = &path {
            generated_files::write(path, &exported.text).map_err(|failure| failure.hint(ANOTHER))?;
        }
        entries.push(Entry { name: exported.name, path, text: exported.text });
    }
    for left_out in &left_out {
        printer.warn(format!("left out: {left_out}"));
    }
    if entries.is_empty() {
        printer.say(format!("{}: nothing in it is for this program.", file.source.name));
    }
    let exported = ExportedModel { files: entries, left_out };
    let format = format(arguments.to);
    if arguments.output.is_none() && exported.files.len() > 1 && format.heading("").is_none() {
        let names: Vec<&str> = exported.files.iter().map(|file| file.name.as_str()).collect();
        printer.say(format!("These are {} files, one behind the other: {}.", names.len(), names.join(", ")));
    }
    printer.data(&exported, || shown(&exported.files, format))?;
    Ok(Status::Holds)
}

/// What is printed: where files are, or what is in them. One alone is printed as it is, for a program to read; of several each has its name
/// before it, in a comment.
fn shown(files: &[Entry], format: ExportFormat) -> String {
    let one = |entry: &Entry| match (&entry.path, files) {
        (Some(path), _) => format!("{}\n", path.display()),
        (None, [_]) => entry.text.clone(),
        (None, _) => format!("{}{}\n", format.heading(&entry.name).unwrap_or_default(), entry.text),
    };
    files.iter().map(one).collect()
}
