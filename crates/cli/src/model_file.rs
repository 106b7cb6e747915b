//! Reading the user's model and inventory files.

use std::path::Path;

use penstock_host::files;
use penstock_model::{
    Diagnostics, Inventory, Model, NicMatch, NicName, Source, inventory::INVENTORY_VERSION,
};

use crate::{
    arguments::{NicAt, Subject},
    failure::{Failure, OrFail, Status},
    printer::Printer,
};

/// The largest model file that is read. A machine with 510 VFs and 64 guests needs 60 KiB.
const MODEL_LIMIT: usize = 1 << 20;

/// The largest inventory that is read.
const INVENTORY_LIMIT: usize = 64 << 20;

/// A model with its text, so that later messages can point into it.
pub struct ModelFile {
    /// The file.
    pub source: Source,
    /// What it says.
    pub model: Model,
}

/// Reads and checks a model; prints what is wrong with it.
pub fn read(path: &Path, printer: &mut Printer) -> Result<ModelFile, Failure> {
    let name = path.display().to_string();
    let (bytes, more) = files::read_at_most(path, MODEL_LIMIT).or_fail(Status::BadInput)?;
    if more {
        let text = format!("{name} is larger than {} KiB, the most that a model may have", MODEL_LIMIT >> 10);
        return Err(Failure::new(Status::BadInput, text).hint("is this the file that you meant?"));
    }
    let source = Source::from_bytes(&name, &bytes)
        .map_err(|found| explain(&found, &Source::new(&name, ""), printer))?;
    let model = penstock_model::parse(&source).map_err(|found| explain(&found, &source, printer))?;
    Ok(ModelFile { source, model })
}

/// Reads and checks the model that a verb is about, with its NICs where the command line has them.
pub fn read_subject(subject: &Subject, printer: &mut Printer) -> Result<ModelFile, Failure> {
    let mut file = read(&subject.model, printer)?;
    for NicAt { name, mac } in &subject.nics {
        let Some(nic) = file.model.nics.get_mut(name) else {
            let known: Vec<&str> = file.model.nics.keys().map(NicName::as_str).collect();
            let text = format!("--nic names {name}, and {} has no such NIC", file.source.name);
            return Err(
                Failure::new(Status::BadInput, text).hint(format!("its NICs are {}", known.join(", ")))
            );
        };
        nic.matching = NicMatch { mac: Some(*mac), ..NicMatch::default() };
    }
    Ok(file)
}

/// Prints diagnostics with their place in the file.
pub fn explain(found: &Diagnostics, source: &Source, printer: &mut Printer) -> Failure {
    printer.done();
    eprint!("{}", found.render(source, printer.color()));
    Failure::explained(Status::BadInput)
}

/// Reads an inventory that `scan --json` printed.
pub fn read_inventory(path: &Path) -> Result<Inventory, Failure> {
    let how = "make one with `penstock scan --json > inventory.json` on the machine";
    let (bytes, more) = files::read_at_most(path, INVENTORY_LIMIT).or_fail(Status::BadInput)?;
    if more {
        return Err(Failure::new(Status::BadInput, format!("{} is too large", path.display())).hint(how));
    }
    let inventory: Inventory = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::new(Status::BadInput, format!("{} is no inventory: {error}", path.display())).hint(how)
    })?;
    if inventory.version > INVENTORY_VERSION {
        let text = format!(
            "{} has version {}, and this penstock reads up to {INVENTORY_VERSION}",
            path.display(),
            inventory.version
        );
        return Err(
            Failure::new(Status::BadInput, text).hint("use the penstock that made it, or a newer one")
        );
    }
    Ok(inventory)
}
