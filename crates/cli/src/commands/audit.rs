//! `penstock audit [MODEL]`: how late threads may wake on this machine, and why.

mod tuned;

use std::{path::Path, sync::Arc, time::Duration};

use penstock_audit::audit;
use penstock_exchange::{TunedCoverage, compare_with_tuned};
use penstock_host::{
    Root, files, interrupt,
    record::{Recorded, Recorder},
    scan::{
        self,
        lifelines::{Started, lifelines},
        tuning,
    },
};
use penstock_model::{Inventory, audit::Audit as Found, inventory::tuning::Watched};
use serde::Serialize;

use crate::{
    arguments::Audit,
    failure::{Failure, OrBadInput, Status},
    model_file::{self, For, ModelFile},
    runtime::machine::{self, Machine},
    settings::Settings,
    ui::{printer::Printer, tables},
};

pub use tuned::AuditProfile;

/// In a recorded tree: what went on while it was recorded.
const WATCHED: &str = ".watched.json";
/// A machine of 500 CPUs and 5000 interrupts has some MiB of counts.
const WATCHED_LIMIT: usize = 64 << 20;

/// What `--json` prints.
#[derive(Serialize, schemars::JsonSchema)]
pub struct Audited<'a> {
    /// Whether nothing failed, contradicts or could not be seen.
    holds: bool,
    #[serde(flatten)]
    found: &'a Found,
    /// What the TuneD profile does of what is advised; only with `--tuned`.
    #[serde(skip_serializing_if = "Option::is_none")]
    tuned: Option<TunedCoverage>,
}

/// Judges this machine, or a recorded one.
///
/// # Errors
///
/// For a model or profile that is wrong, a recorded tree that is none, and `Status::BadInput` when the directory to record into is not
/// free; when the machine cannot be looked at or the recording not be written.
pub fn run(mut arguments: Audit, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let is_here = arguments.root.is_none();
    let file = match arguments.subject_mut() {
        Some(subject) => Some(model_file::read_subject(subject, For::of(None, is_here, settings), printer)?),
        None => None,
    };
    let profile = arguments.tuned.as_deref().map(tuned::read).transpose()?;
    let recorder = arguments.record.as_ref().map(|_| Arc::new(Recorder::default()));
    let root = match (&arguments.root, &recorder) {
        (Some(tree), _) => machine::recorded(tree)?,
        (None, Some(recorder)) => Root::system().recording(recorder.clone()),
        (None, None) => Root::system(),
    };
    if let Some(directory) = &arguments.record {
        is_free(directory)?;
    }
    let watched = match (&arguments.root, arguments.over) {
        (Some(tree), _) => recall(tree)?,
        (None, Some(lasting)) => Some(watch(&root, lasting, printer)),
        (None, None) => None,
    };
    printer.doing("Looking at this machine");
    let mut inventory = inventory(&root, file.as_ref(), watched, settings)?;
    let model = file.as_ref().map(|file| &file.model);
    let found = audit(&inventory, model);
    printer.done();
    if let (Some(directory), Some(recorder)) = (&arguments.record, &recorder) {
        // For `scan`, which reads the tree: no rule of the audit judges it.
        scan::ask_drivers(&root, &mut inventory);
        let recorded = write(directory, recorder, &inventory)?;
        tell(directory, recorded, printer);
    }
    if arguments.as_tuned {
        return tuned::print_profile(&found, printer);
    }
    let (width, verbose) = (printer.width(), arguments.verbose);
    let coverage = profile.map(|profile| compare_with_tuned(&found, &profile));
    let audited = Audited { holds: found.holds(), found: &found, tuned: coverage };
    printer.data(&audited, || {
        let table = tables::audit::table(&found, verbose, width);
        table + &audited.tuned.as_ref().map(|it| tuned::table(it, verbose, width)).unwrap_or_default()
    })?;
    Ok(if found.holds() { Status::Holds } else { Status::DoesNotHold })
}

/// What the audit needs to know of the machine; a recorder sees all that a scan looks at, too.
fn inventory(
    root: &Root,
    file: Option<&ModelFile>,
    watched: Option<Watched>,
    settings: &Settings,
) -> Result<Inventory, Failure> {
    let mut inventory = scan::scan(root, None);
    inventory.boot = Some(scan::boot::facts(root, &inventory));
    inventory.lifelines = Some(lifelines(root, None, &Started::default()));
    let (mut tuning, unknown) = tuning::tuning(root, &inventory);
    if file.is_some() && root.is_system() {
        // Guests that are defined here, and the permanent addresses by which a model knows its NICs.
        let whole = Machine::here(settings).functions()?;
        inventory = Inventory { boot: inventory.boot, lifelines: inventory.lifelines, ..whole };
    }
    tuning.watched = watched;
    inventory.tuning = Some(tuning);
    inventory.unknown.extend(unknown);
    Ok(inventory)
}

fn watch(root: &Root, lasting: Duration, printer: &mut Printer) -> Watched {
    let cpus = scan::online_cpus(root);
    printer.doing(format!("Watching for {}; Ctrl-C ends it early", humantime::format_duration(lasting)));
    let begun = std::time::Instant::now();
    let watched = tuning::watch::watch(root, &cpus, lasting, || {
        printer.fraction(begun.elapsed().as_secs_f64() / lasting.as_secs_f64().max(0.001));
        interrupt::pending()
    });
    if interrupt::acknowledge() {
        let seconds = begun.elapsed().as_secs_f64();
        printer.say(format!("Stopped after {seconds:.1} s; what was seen until then is judged."));
    }
    watched
}

/// What went on while the tree was recorded, if anybody watched.
fn recall(tree: &Path) -> Result<Option<Watched>, Failure> {
    match files::read_in_root(tree, WATCHED, WATCHED_LIMIT) {
        Ok(bytes) => {
            let failed = |error| format!("{} cannot be parsed: {error}", tree.join(WATCHED).display());
            serde_json::from_slice(&bytes).map(Some).map_err(failed).or_bad_input()
        }
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(Failure::new(Status::BadInput, error)),
    }
}

/// Whether a tree can be recorded there: said before anybody has waited for it.
fn is_free(directory: &Path) -> Result<(), Failure> {
    match files::list(directory) {
        Ok(names) if names.is_empty() => Ok(()),
        Ok(_) => {
            let text =
                format!("{} holds something already, which a record would mix with", directory.display());
            Err(Failure::new(Status::BadInput, text).hint("name a directory that is empty, or not there yet"))
        }
        Err(error) if error.is_missing() => Ok(()),
        Err(error) => Err(Failure::new(Status::BadInput, error)),
    }
}

fn write(directory: &Path, recorder: &Recorder, inventory: &Inventory) -> Result<Recorded, Failure> {
    let recorded = recorder.write(directory)?;
    if let Some(watched) = inventory.tuning.as_ref().and_then(|tuning| tuning.watched.as_ref()) {
        let text = serde_json::to_vec(watched)?;
        files::write_atomic_mode(directory.join(WATCHED), text, 0o600)?;
    }
    Ok(recorded)
}

fn tell(directory: &Path, recorded: Recorded, printer: &mut Printer) {
    let Recorded { files, bytes, private, errors } = recorded;
    printer.say(format!(
        "Recorded {files} files, {} KiB, in {}; {errors} more could not be read here, and are listed there.",
        bytes.div_ceil(1024),
        directory.display(),
    ));
    if private > 0 {
        printer.say(format!(
            "{private} of them not everybody may read on this machine; they are in it, for its owner alone (0600)."
        ));
    }
    printer.say(
        "It names this machine's interfaces, MAC addresses, slots, disks and boot line; serial numbers too if root \
         recorded it. Look through it before you give it away.",
    );
}
