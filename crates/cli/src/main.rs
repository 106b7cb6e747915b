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
mod documents;
mod evidence;
mod failure;
mod generated_files;
mod inventory_table;
mod kept_run;
mod live;
mod machine;
mod measuring;
mod model_file;
mod paragraphs;
mod persisted;
mod printer;
mod progress;
mod rehearsal;
mod remote;
mod run_directory;
mod settings;
mod status;
mod waking;
mod watching;

use std::{panic, process::ExitCode};

use crate::{
    arguments::{Arguments, Check, Format, Verb},
    documents::Kind,
    printer::Printer,
    settings::Settings,
    status::Status,
};

fn main() -> ExitCode {
    ExitCode::from(guarded(run).code())
}

/// What a panic has said on standard error by itself, it is a defect; and no other exit status says what it was.
fn guarded(act: fn() -> Status) -> Status {
    panic::catch_unwind(act).unwrap_or_else(|_| {
        eprintln!(
            "help: this is a defect of penstock: please report it with the command and what stands above"
        );
        Status::Internal
    })
}

fn run() -> Status {
    let arguments = Arguments::of_the_command_line();
    let mut settings = Settings::resolve(&arguments.common);
    settings.json |= matches!(arguments.verb, Verb::Check(Check { format: Format::Json, .. }));
    if arguments.common.attended {
        return attended::run(arguments.verb, &settings);
    }
    let mut printer = Printer::new(&settings);
    printer.expect(Kind::of(&arguments.verb));
    let outcome = penstock_host::interrupt::catch()
        .map_err(failure::Failure::from)
        .and_then(|()| commands::run(arguments.verb, &settings, &mut printer));
    let status = outcome.unwrap_or_else(|failure| {
        printer.failure(&failure);
        failure.status
    });
    printer.finish(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_with_a_status_of_its_own() {
        assert_eq!(guarded(|| Status::Busy), Status::Busy);
        assert_eq!(guarded(|| panic!("a defect")), Status::Internal);
    }
}
