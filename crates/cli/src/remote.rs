//! Other machines: the same program with the same verb there, over the user's own OpenSSH.
//!
//! [`session`] is one machine, [`fleet`] all of them, [`summary`] what came of them. [`bootstrap`] has Penstock run there,
//! where [`agent`] listens; [`protocol`] has the messages between the two.

use std::{collections::BTreeMap, env};

use penstock_apply::history::RunId;
use penstock_host::interrupt;

use crate::{
    arguments::{Apply, Audit, Check, Format, Machines, Plan, Scan, Verb},
    documents::Kind,
    failure::{Failure, OrBadInput, Status},
    model_file::{self, For},
    settings::Settings,
    ui::printer::Printer,
};

pub mod agent;
mod bootstrap;
pub mod fleet;
pub mod hosts;
pub mod protocol;
pub mod reply_sender;
pub mod session;
pub mod ssh;
pub mod summary;
mod trouble;
mod words;

/// At so many machines at a time, where the command line does not say it.
const AT_MOST: usize = 8;

/// Runs a verb on other machines, to one exit status.
///
/// # Errors
///
/// `Status::BadInput` for options that are of this machine alone, words that are not UTF-8, or a list of machines that cannot be read;
/// what is wrong in the model; when standard output takes nothing. What machines fail with is in the status.
pub fn run(
    mut verb: Verb,
    machines: &Machines,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let hosts = machines.named()?;
    if let Some(option) = of_this_machine(&verb) {
        let text = format!("{option} is about a file here, and --host about another machine");
        return Err(Failure::new(Status::BadInput, text).hint("leave one of them out"));
    }
    if let Verb::Check(Check { more, format, .. }) = &verb {
        if !more.is_empty() {
            let text = "--host checks one model, and several were named";
            return Err(Failure::new(Status::BadInput, text).hint("check them one after the other"));
        }
        if !matches!(format, Format::Human | Format::Json) {
            let text = "--host prints for people or as JSON, and another format was asked for";
            return Err(Failure::new(Status::BadInput, text).hint("leave --format out, or use --json"));
        }
    }
    let watches = Kind::of(&verb).is_some_and(Kind::is_a_line);
    if watches && settings.json && hosts.len() > 1 {
        let text = "--json prints one document for several machines, and --watch has no end";
        return Err(
            Failure::new(Status::BadInput, text).hint("watch each machine by itself, or leave --json out")
        );
    }
    // What is wrong in the model is said here, before anybody is logged in anywhere.
    let gives_addresses = matches!(verb, Verb::Check(_) | Verb::Plan(_) | Verb::Apply(_) | Verb::Start(_));
    let payload = match verb.subject() {
        Some(subject) => {
            let file = model_file::read_subject(subject, For::There(&hosts), printer)?;
            if gives_addresses && let Some(found) = model_file::same_on_each(&file.model, &hosts) {
                model_file::warn(&found.into(), &file.source, subject.strict, printer)?;
            }
            Some(Box::new(model_file::payload(&file, printer)?))
        }
        None => None,
    };
    let words = env::args_os().skip(1).map(|word| {
        word.into_string()
            .map_err(|word| format!("{word:?} is not UTF-8, and cannot be given to another machine"))
    });
    let mut words = words::for_there(words.collect::<Result<Vec<_>, _>>().or_bad_input()?);
    if matches!(verb, Verb::Check(Check { here: false, .. })) {
        let verb = words.iter().position(|word| word == "check").map_or(words.len(), |at| at + 1);
        words.insert(verb, "--here".to_owned());
    }
    let (name, changes) = nature(&verb);
    let job = session::Job {
        words,
        verb: name,
        changes,
        begin: protocol::Request::Begin { payload, widths: settings.widths },
        program: bootstrap::Program::this()?,
        sudo: machines.sudo,
        batch: hosts.len() > 1 || !settings.interactive,
        config: machines.ssh_config.clone(),
        confirms: matches!(verb, Verb::Apply(Apply { confirm_within: Some(_), .. })),
    };
    if hosts.len() > 1 {
        printer.of_kind(Kind::Hosts);
    }
    let order = fleet::Order {
        // Of those that are watched none ends to make room for another.
        at_most: machines.at_most.map_or(if watches { hosts.len() } else { AT_MOST }, usize::from),
        stop_on_failure: machines.stop_on_failure,
        json: settings.json,
        watches,
    };
    let (outcomes, interrupted) = fleet::perform(&hosts, &job, order, printer);
    interrupt::acknowledge();
    if hosts.len() > 1 {
        printer.data(&summary::document(&outcomes), || summary::table(&outcomes))?;
    }
    if job.confirms {
        tell_how_to_confirm(&outcomes, &job, printer);
    }
    Ok(summary::worst(&outcomes, interrupted))
}

/// An option that speaks of this machine's files.
fn of_this_machine(verb: &Verb) -> Option<&'static str> {
    match verb {
        Verb::Scan(Scan { root: Some(_), .. }) | Verb::Audit(Audit { root: Some(_), .. }) => Some("--root"),
        Verb::Audit(Audit { record: Some(_), .. }) => Some("--record"),
        Verb::Plan(Plan { inventory: Some(_), .. }) | Verb::Check(Check { inventory: Some(_), .. }) => {
            Some("--inventory")
        }
        _ => None,
    }
}

/// A verb's name, and whether it changes a machine.
fn nature(verb: &Verb) -> (&'static str, bool) {
    match verb {
        Verb::Apply(_) => ("apply", true),
        Verb::Start(_) => ("start", true),
        Verb::Stop(_) => ("stop", true),
        Verb::Undo(undo) => ("undo", !undo.list),
        Verb::Confirm(_) => ("confirm", true),
        Verb::Scan(_) => ("scan", false),
        Verb::Audit(_) => ("audit", false),
        Verb::Check(_) => ("check", false),
        Verb::Plan(_) => ("plan", false),
        Verb::Verify(_) => ("verify", false),
        _ => ("status", false),
    }
}

fn tell_how_to_confirm(outcomes: &[summary::Outcome], job: &session::Job, printer: &mut Printer) {
    let mut waiting: BTreeMap<RunId, Vec<&str>> = BTreeMap::new();
    for outcome in outcomes {
        if let Some(run) = outcome.waits {
            waiting.entry(run).or_default().push(outcome.host.as_str());
        }
    }
    // By its number: who comes late must not keep what somebody else has begun there since.
    for (run, hosts) in waiting {
        printer.say(format!("To keep it: penstock confirm {run} {}", job.reach(&hosts.join(","))));
    }
}
