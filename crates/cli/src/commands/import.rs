//! `penstock import FILE --from PROGRAM`: a model of what another program's files say of NICs and VFs.

use penstock_exchange::{ImportFormat, import};
use penstock_model::{Against, Diagnostics, Source};
use serde::Serialize;

use crate::{
    arguments::{Import, ImportFrom},
    failure::{Failure, Status},
    model_file,
    runtime::machine::Machine,
    settings::Settings,
    ui::printer::Printer,
};

/// A model that was made of other programs' files. What they say and it does not is in `diagnostics`.
#[derive(Serialize, schemars::JsonSchema)]
pub struct ImportedModel {
    /// The text of the model.
    model: String,
}

fn format(from: ImportFrom) -> ImportFormat {
    match from {
        ImportFrom::Cni => ImportFormat::Cni,
        ImportFrom::Incus => ImportFormat::Incus,
        ImportFrom::Libvirt => ImportFormat::Libvirt,
        ImportFrom::Netplan => ImportFormat::Netplan,
        ImportFrom::Networkd => ImportFormat::Networkd,
        ImportFrom::Nmstate => ImportFormat::Nmstate,
        ImportFrom::SriovOperator => ImportFormat::SriovOperator,
    }
}

/// Prints the model; what it cannot say is warned of, with its place in the files.
///
/// # Errors
///
/// `Status::BadInput` for a file that cannot be read or imported, and with `--strict` for what a model cannot say.
pub fn run(arguments: &Import, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let mut sources = Vec::with_capacity(arguments.files.len());
    for path in &arguments.files {
        let source = model_file::read_source(path, "a file that is imported")
            .map_err(|rejected| rejected.explain(printer))?;
        sources.push(source);
    }
    let machine = match &arguments.inventory {
        Some(path) => Some(model_file::read_inventory(path)?),
        // Whether its guests were seen is all one: names are looked up.
        None => Some(Machine::here(settings).functions_as_seen().0),
    };
    let all = match import(&sources, format(arguments.from), machine.as_ref()) {
        Err(wrong) => {
            say(&wrong, &sources, printer);
            return Err(Failure::explained(Status::BadInput));
        }
        Ok(imported) if arguments.strict && imported.warnings.iter().any(|of_file| !of_file.0.is_empty()) => {
            let wrong: Vec<Diagnostics> =
                imported.warnings.into_iter().map(Diagnostics::into_errors).collect();
            say(&wrong, &sources, printer);
            return Err(Failure::explained(Status::BadInput)
                .hint("`--strict` takes what is left out for errors; without it a model is printed"));
        }
        Ok(imported) => imported,
    };
    say(&all.warnings, &sources, printer);
    printer.data(&ImportedModel { model: all.model.clone() }, || all.model.clone())?;
    Ok(Status::Holds)
}

/// Prints the messages of each file, with their places.
fn say(all: &[Diagnostics], sources: &[Source], printer: &mut Printer) {
    for (found, source) in all.iter().zip(sources).filter(|(found, _)| !found.0.is_empty()) {
        printer.diagnose(found, source, Against::Import);
    }
}
