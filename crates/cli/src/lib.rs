//! Describe a machine with SR-IOV in one file; rehearse, apply and prove it.
//!
//! This crate puts the parts together: it alone knows them all, and decides their order. One file a verb in
//! `commands`; `arguments` is what the user typed, `settings` what that and the environment come to; `ui` is what people see, `runtime`
//! this machine and the runs on it, `remote` other machines. It is a library for its
//! fuzz targets and for the packages alone, which are made from [`command`]: the program's only entry is [`main`].

mod arguments;
mod bench;
mod boards;
mod commands;
mod dangers;
mod documents;
mod failure;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod generated_files;
mod latency;
mod metrics;
mod model_file;
mod rehearsal;
mod remote;
mod runtime;
mod settings;
mod status;
mod ui;
mod version;

use std::{
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
};

use clap::CommandFactory;

use crate::{
    arguments::{Arguments, Check, Format, Verb},
    documents::Kind,
    failure::Failure,
    settings::Settings,
    status::Status,
    ui::printer::Printer,
};

/// The program `penstock`.
pub fn main() -> ExitCode {
    // Where even saying so fails: no other exit status says what it was.
    let status = panic::catch_unwind(run).unwrap_or(Status::Internal);
    ExitCode::from(status.code())
}

/// The command line, from which manual pages and completions are made.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// What `act` comes to; a panic in it is a failure like any other, so that `--json` prints a document of it too. What it was
/// has stood on standard error by then.
fn guarded(act: impl FnOnce() -> Result<Status, Failure>) -> Result<Status, Failure> {
    panic::catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panicked| {
        let said = panicked.downcast_ref::<&str>().map(|said| (*said).to_owned());
        let said = said.or_else(|| panicked.downcast_ref::<String>().cloned());
        let text = format!("penstock has a defect: {}", said.as_deref().unwrap_or("it does not say which"));
        Err(Failure::new(Status::Internal, text)
            .hint("please report it with the command and what stands on standard error"))
    })
}

fn run() -> Status {
    let arguments = Arguments::of_the_command_line();
    let mut settings = Settings::resolve(&arguments.common);
    settings.json |= matches!(arguments.verb, Verb::Check(Check { format: Format::Json, .. }));
    if arguments.common.attended {
        return remote::agent::run(arguments.verb, &settings);
    }
    let mut printer = Printer::new(&settings);
    printer.expect(Kind::of(&arguments.verb));
    let outcome = guarded(|| {
        penstock_host::interrupt::catch()?;
        commands::run(arguments.verb, &settings, &mut printer)
    });
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
    fn a_panic_is_a_failure_with_a_status_of_its_own() {
        assert!(matches!(guarded(|| Ok(Status::Busy)), Ok(Status::Busy)));
        let failure = guarded(|| panic!("a defect {}", 1)).unwrap_err();
        assert_eq!(failure.status, Status::Internal);
        assert_eq!(failure.error.unwrap().to_string(), "penstock has a defect: a defect 1");
    }
}
