//! `penstock schema`: the model's JSON Schema, for editors and for other tools.

use crate::{
    failure::{Failure, Status},
    printer::Printer,
};

/// Prints the schema; it is JSON with or without `--json`.
pub fn run(printer: &mut Printer) -> Result<Status, Failure> {
    let schema = serde_json::to_string_pretty(&penstock_model::schema())?;
    printer.text(format!("{schema}\n"))?;
    Ok(Status::Holds)
}
