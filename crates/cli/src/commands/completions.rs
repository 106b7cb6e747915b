//! `penstock completions`: what a shell needs to complete the command line. Packages bring the same files.

use crate::{
    arguments::Completions,
    failure::{Failure, Status},
    ui::printer::Printer,
};

/// Prints the completions of a shell.
///
/// # Errors
///
/// When standard output takes nothing.
pub fn run(arguments: &Completions, printer: &mut Printer) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::command(), "penstock", &mut script);
    printer.text(String::from_utf8_lossy(&script).into_owned())?;
    Ok(Status::Holds)
}
