//! `penstock scan`: the inventory of this machine, or a model of it.

use penstock_host::{Root, scan::ask_drivers};
use penstock_model::{Diagnostics, Inventory, Model};
use penstock_plan::{
    adopt::{ImportInput, adopt},
    resolve_what_is_there,
};

use crate::{
    arguments::{Scan, Strict},
    documents::ScannedModel,
    failure::{Failure, Status},
    model_file::{self, For},
    runtime::machine::{self, Machine},
    settings::Settings,
    ui::{printer::Printer, tables},
};

/// Prints the inventory, or a model of what is there. What could not be read is told on standard error as well.
///
/// # Errors
///
/// For a recorded tree that is none, a model that is wrong, another run at work where `--probe` needs the lock, and
/// `Status::DoesNotFit` where there is no NIC to make a model of; when this machine's guests cannot be seen, or what `--probe` has found
/// not be kept.
pub fn run(arguments: &Scan, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let root = arguments.root.as_deref().map_or_else(|| Ok(Root::system()), machine::recorded)?;
    let machine = Machine::at(root, settings);
    let model = match &arguments.model {
        Some(path) => Some(model_file::read(path, Strict::default(), For::Here(settings), printer)?),
        None => None,
    };
    let mut inventory = machine.inventory_reaching(&arguments.peers)?;
    if arguments.probe {
        let _alone = machine.lock()?;
        // What another run changed until the lock was ours would not be in it.
        inventory = machine.inventory_reaching(&arguments.peers)?;
        machine.probe_all(&mut inventory, printer)?;
        printer.done();
    }
    // No model has any of it. The lock is not held: others can change the machine while this waits.
    if !arguments.as_model && !arguments.without_drivers {
        ask_drivers(machine.root(), &mut inventory);
    }
    if let Some(file) = &model {
        name_nics(&file.model, &mut inventory);
    }
    if !arguments.as_model {
        let width = printer.width();
        printer.data(&inventory, || tables::inventory::table(&inventory, width))?;
        return Ok(Status::Holds);
    }
    let (host, definitions) = (machine.host_name(), machine.definitions());
    let (strangers, unseen) = machine.strangers(&inventory);
    if let Some(why) = unseen {
        printer.warn(format!("who has VFs in other network namespaces is not wholly known: {why}"));
    }
    let sight = ImportInput {
        host: host.as_deref(),
        inventory: &inventory,
        definitions: &definitions,
        strangers: &strangers,
    };
    let Some(model) = adopt(sight) else {
        let text = "this machine has no NIC that a model could name";
        return Err(Failure::new(Status::DoesNotFit, text).hint("`penstock scan` lists what there is"));
    };
    printer.data(&ScannedModel { model: model.clone() }, || model.clone())?;
    Ok(Status::Holds)
}

/// Writes down which PF each NIC of a model is. One that is not here is no reason to tell nothing of the others.
fn name_nics(model: &Model, inventory: &mut Inventory) {
    let (nics, Diagnostics(lost)) = resolve_what_is_there(model, inventory);
    inventory.nics = nics.into_iter().collect();
    let unknown = lost.iter().map(|lost| format!("{}: {}", lost.path, lost.message));
    inventory.unknown.extend(unknown);
}
