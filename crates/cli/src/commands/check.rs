//! `penstock check MODEL`: the file by itself, and against a machine.

use penstock_plan::generate::{self, GenerateError};
use serde_json::json;

use crate::{
    arguments::Check,
    commands::plan,
    failure::{Failure, Status},
    machine::Machine,
    model_file,
    printer::Printer,
    settings::Settings,
};

/// Says whether the model can be used; everything that is wrong with it is printed with its place.
pub fn run(arguments: &Check, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let file = model_file::read_subject(&arguments.subject, printer)?;
    let inventory = match (&arguments.inventory, arguments.here) {
        (Some(path), _) => Some(model_file::read_inventory(path)?),
        (None, true) => Some(Machine::here(settings).inventory_for(&file.model)?),
        (None, false) => None,
    };
    // A wrong template is seen without a machine too, unless a MAC address that is not known stands before it.
    match generate::render(&file.model, None) {
        Ok(_) | Err(GenerateError::Unknown(_)) => {}
        Err(error) => return Err(model_file::explain_generate(&error, &file.source, printer)),
    }
    let planned = inventory.as_ref().map(|inventory| plan::make(&file, inventory, printer)).transpose()?;
    let (nics, guests) = (file.model.nics.len(), file.model.guests.len());
    let vfs: u32 = file.model.nics.values().map(|nic| u32::from(nic.vfs)).sum();
    let steps = planned.as_ref().map(|plan| plan.steps.len());
    let value =
        json!({"machine": file.model.machine, "nics": nics, "vfs": vfs, "guests": guests, "steps": steps});
    printer.answer(true, &value, || {
        let mut text =
            format!("{}: a good model of {nics} NICs, {vfs} VFs, {guests} guests", file.source.name);
        if let Some(steps) = steps {
            text.push_str(&format!("; it fits the machine, {steps} steps away"));
        }
        text
    })?;
    Ok(Status::Holds)
}
