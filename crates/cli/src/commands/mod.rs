//! The verbs, one file each.

pub mod apply;
mod at_boot;
pub mod audit;
mod board;
pub mod check;
mod cluster;
mod cni;
mod completions;
pub mod console;
mod embedded_switch;
pub mod export;
mod follow_filters;
mod forward_connection;
pub mod generate;
pub mod guard;
mod guests;
pub mod import;
mod inside;
mod measure;
mod metrics;
pub mod plan;
mod rehearse;
pub mod report;
mod scan;
mod schema;
pub mod status;
pub mod undo;
pub mod verify;

use crate::{
    arguments::Verb,
    failure::{Failure, Status},
    remote,
    settings::Settings,
    ui::printer::Printer,
};

/// Runs a verb to its exit status.
///
/// # Errors
///
/// What the verb fails with.
pub fn run(verb: Verb, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    if let Some(machines) = verb.machines().filter(|machines| machines.any()).cloned() {
        return remote::run(verb, &machines, settings, printer);
    }
    match verb {
        Verb::Scan(arguments) => scan::run(&arguments, settings, printer),
        Verb::Audit(arguments) => audit::run(arguments, settings, printer),
        Verb::Check(arguments) => check::run(&arguments, settings, printer),
        Verb::Generate(arguments) => generate::run(&arguments, settings, printer),
        Verb::Export(arguments) => export::run(&arguments, settings, printer),
        Verb::Import(arguments) => import::run(&arguments, settings, printer),
        Verb::Plan(arguments) => plan::run(&arguments, settings, printer),
        Verb::Apply(arguments) => apply::run(&arguments, settings, printer),
        Verb::Verify(arguments) => verify::run(&arguments, settings, printer),
        Verb::Start(arguments) => guests::start(&arguments, settings, printer),
        Verb::Stop(arguments) => guests::stop(&arguments, settings, printer),
        Verb::Confirm(arguments) => guard::confirm(&arguments, settings, printer),
        Verb::Guard(arguments) => guard::run(&arguments, settings, printer),
        Verb::Undo(arguments) => undo::run(&arguments, settings, printer),
        Verb::Status(arguments) => status::run(&arguments, settings, printer),
        Verb::Metrics(arguments) => metrics::run(&arguments, settings, printer),
        Verb::Console(arguments) => console::run(&arguments, settings, printer),
        Verb::Measure(arguments) => measure::run(&arguments, settings, printer),
        Verb::Rehearse(arguments) => rehearse::run(&arguments, settings, printer),
        Verb::Report(arguments) => report::run(&arguments, printer),
        Verb::Board(arguments) => board::run(arguments, settings, printer),
        Verb::Schema(arguments) => schema::run(&arguments, printer),
        Verb::Completions(arguments) => completions::run(&arguments, printer),
        Verb::Inside(arguments) => inside::run(&arguments),
        Verb::Cni => cni::run(),
        Verb::EmbeddedSwitch(arguments) => embedded_switch::run(&arguments),
        Verb::FollowFilters(arguments) => follow_filters::run(&arguments),
        Verb::ForwardConnection(arguments) => forward_connection::run(&arguments),
        Verb::AtBoot(arguments) => at_boot::run(&arguments, settings, printer),
    }
}

/// Ends with another program's exit status, as that of a command run inside a board.
fn exit_with(status: i32) -> ! {
    std::process::exit(status)
}
