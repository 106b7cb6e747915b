//! `penstock schema`: the model's JSON Schema, for editors and for other tools.

use std::io::{self, Write};

use crate::{
    failure::{Failure, Status},
    printer::Printer,
};

/// Prints the schema; it is JSON with or without `--json`.
pub fn run(printer: &mut Printer) -> Result<Status, Failure> {
    printer.done();
    let schema = serde_json::to_string_pretty(&penstock_model::schema())?;
    match writeln!(io::stdout(), "{schema}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Status::Holds),
    }
}
