//! `penstock schema`: the JSON Schema of the model, for editors and for other tools, and of what `--json` prints.

use crate::{
    arguments::Schema,
    failure::{Failure, Status},
    ui::printer::Printer,
};

/// Prints the schema; it is JSON with or without `--json`.
///
/// # Errors
///
/// When standard output takes nothing.
pub fn run(arguments: &Schema, printer: &mut Printer) -> Result<Status, Failure> {
    match arguments.kind {
        None => printer.json(&penstock_model::schema())?,
        Some(kind) => printer.json(&kind.schema())?,
    }
    Ok(Status::Holds)
}
