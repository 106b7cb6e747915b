//! Describe a machine with SR-IOV in one file; rehearse, apply and prove it.
//!
//! This binary puts the parts together: it alone knows them all, and decides their order. One file a verb in
//! [`commands`]; [`arguments`] is what the user typed, [`settings`] what that and the environment come to.

mod arguments;
mod attended;
mod audit_table;
mod boards;
mod commands;
mod dangers;
mod evidence;
mod failure;
mod generated_files;
mod inventory_table;
mod kept_run;
mod live;
mod machine;
mod measuring;
mod model_file;
mod persisted;
mod printer;
mod progress;
mod rehearsal;
mod remote;
mod run_directory;
mod settings;
mod waking;
mod watching;

use std::process::ExitCode;

use clap::Parser;

use crate::{arguments::Arguments, failure::Status, printer::Printer, settings::Settings};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let settings = Settings::resolve(&arguments.common);
    if arguments.common.attended {
        return ExitCode::from(attended::run(arguments.verb, &settings) as u8);
    }
    let mut printer = Printer::new(&settings);
    let outcome = penstock_host::interrupt::catch()
        .map_err(|error| failure::Failure::new(Status::Missing, error))
        .and_then(|()| commands::run(arguments.verb, &settings, &mut printer));
    let status = outcome.unwrap_or_else(|failure| {
        printer.failure(&failure);
        failure.status
    });
    ExitCode::from(status as u8)
}
