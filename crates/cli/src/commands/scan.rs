//! `penstock scan`: the inventory of this machine.

use penstock_host::Root;

use crate::{
    arguments::Scan,
    failure::{Failure, Status},
    inventory_table,
    machine::Machine,
    printer::Printer,
    settings::Settings,
};

/// Prints the inventory. What could not be read is told on standard error as well.
pub fn run(arguments: &Scan, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let root = arguments.root.as_ref().map_or_else(Root::system, Root::at);
    let inventory = Machine::at(root, settings).inventory()?;
    printer.data(&inventory, || inventory_table::table(&inventory))?;
    Ok(Status::Holds)
}
