//! `penstock scan`: the inventory of this machine, or a model of it.

use penstock_host::Root;
use penstock_plan::adopt::{ImportInput, adopt};

use crate::{
    arguments::Scan,
    documents::ScannedModel,
    failure::{Failure, Status},
    inventory_table,
    machine::Machine,
    printer::Printer,
    settings::Settings,
};

/// Prints the inventory, or a model of what is there. What could not be read is told on standard error as well.
pub fn run(arguments: &Scan, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let root = arguments.root.as_ref().map_or_else(Root::system, Root::recorded);
    let machine = Machine::at(root, settings);
    let mut inventory = machine.inventory()?;
    if arguments.probe {
        let _alone = machine.lock()?;
        // What another run changed until the lock was ours would not be in it.
        inventory = machine.inventory()?;
        machine.probe_all(&mut inventory, printer)?;
        printer.done();
    }
    if !arguments.as_model {
        let width = printer.width();
        printer.data(&inventory, || inventory_table::table(&inventory, width))?;
        return Ok(Status::Holds);
    }
    let (host, strangers, definitions) =
        (machine.host_name(), machine.strangers(&inventory), machine.definitions());
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
