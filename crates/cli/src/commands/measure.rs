//! `penstock measure MODEL`: measures every path between the model's functions, and storage, on this machine.

use std::time::{Duration, Instant, SystemTime};

use indexmap::IndexMap;
use penstock_measure::{event::Event, journal::Journal, matrix::Matrix, record::Record};
use penstock_model::{Bdf, Inventory, NicName, Verdict, Verdicts, digest::sha256};
use penstock_report::{Evidence, evidence::Phase, machine::Machine as Picture};

use crate::{
    arguments::{Measure, Only},
    bench::{
        Choice, ON_A_BOARD, Requested, RequestedRun, outcome, perform::perform, samples, testbed,
        watch::Watch, wire::Line,
    },
    commands::verify::{self, Seen},
    failure::{Failure, Status},
    model_file::{self, For, ModelFile},
    runtime::{evidence, machine::Machine, run_directory::RunDirectory},
    settings::Settings,
    ui::printer::Printer,
};

mod latency;

/// How long a link may take to come up, and a frame to arrive, while the machine is looked at beforehand.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Looks at the machine, measures it, and leaves a run directory.
///
/// # Errors
///
/// For a model that is wrong or does not fit, `Status::BadInput` when it gives nothing to measure, `Status::DoesNotHold` when no guest
/// is there, and when the run's files cannot be written.
pub fn run(arguments: &Measure, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let began = Instant::now();
    let file = model_file::read_subject(&arguments.subject, For::Here(settings), printer)?;
    if let Some(earlier) = latency::is_meant(arguments, &file)? {
        return latency::run(arguments, &file, earlier, settings, printer);
    }
    let now = SystemTime::now();
    let earlier = arguments
        .resume
        .as_deref()
        .map(|directory| RequestedRun::of(directory, &sha256(&file.source.text)))
        .transpose()?;
    let choice = match &earlier {
        Some(asked) => asked.choice.clone(),
        None => Choice::new(arguments.quick, &arguments.tuning, now),
    };
    let matrix = choice.matrix(&file.model);
    if matrix.cells.is_empty() {
        return Err(nothing(&file, &choice, &matrix));
    }

    let machine = Machine::here(settings);
    let seen = verify::look(&file, &machine, TIMEOUT, printer)?;
    let looked = began.elapsed();
    let Seen { inventory, nics, places, verdicts } = seen;
    let emulated = emulated(arguments, &inventory, &nics, &machine);
    if let Some((asked, directory)) = earlier.as_ref().zip(arguments.resume.as_deref()) {
        asked.of_such_a_machine(emulated.as_deref(), directory)?;
    }
    let testbed = testbed::testbed(&file.model, &nics, places, machine.root());
    if let Some(why) = testbed::nobody_there(&testbed) {
        let text = format!("there is nothing to measure between: {why}");
        return Err(Failure::new(Status::DoesNotHold, text)
            .hint(format!("start the guests first: `penstock apply {}`", file.source.name)));
    }
    warn(&verdicts, printer);
    if let Some(why) = &emulated {
        printer.say(format!("Only ratios will mean anything: {why}"));
    }
    let asked = earlier.unwrap_or_else(|| RequestedRun::new(&file, choice, emulated, now));
    if arguments.events {
        Line::Verdicts(verdicts.clone()).tell();
        let mut observe = |event: &Event| Line::Event(event.clone()).tell();
        let (measurements, interrupted) =
            perform(&file.model, &asked, &matrix, &testbed, &[], &mut Outward, &mut observe);
        let status = ended(interrupted, outcome::status(&measurements), &verdicts);
        Line::Measured(Box::new(measurements)).tell();
        printer.done();
        return Ok(status);
    }

    let directory = directory(arguments, &file, now)?;
    asked.keep(directory.path())?;
    let (records, mut samples) = samples::open(directory.path())?;
    let mut watch = Watch::new(&matrix, &asked.choice.rules, asked.emulated.is_some());
    printer.doing("Making ready");
    printer.done();
    let (measurements, interrupted) =
        perform(&file.model, &asked, &matrix, &testbed, &records, &mut samples, &mut |event| {
            watch.event(event, printer);
        });
    printer.done();

    let before =
        Before { inventory: &inventory, nics: &nics, verdicts, emulated: asked.emulated.is_some(), looked };
    let mut evidence = gathered(&file, &directory, now, began, before)?;
    let status = ended(interrupted, outcome::status(&measurements), &evidence.verdicts);
    let measured = outcome::text(&measurements, &matrix, printer.width());
    evidence.measurements = Some(measurements);
    conclude(&file, &directory, evidence, &measured, began, status, printer)
}

/// Why only ratios of this machine mean anything; `None` for a real one.
fn emulated(
    arguments: &Measure,
    inventory: &Inventory,
    nics: &IndexMap<NicName, Bdf>,
    machine: &Machine,
) -> Option<String> {
    match arguments.emulated {
        true => Some(ON_A_BOARD.to_owned()),
        false => testbed::emulated(inventory, nics, machine.root()),
    }
}

/// Where everything of the run is kept.
fn directory(arguments: &Measure, file: &ModelFile, now: SystemTime) -> Result<RunDirectory, Failure> {
    match &arguments.resume {
        Some(earlier) => RunDirectory::of_earlier(earlier),
        None => RunDirectory::create(arguments.output.as_deref(), &file.model.machine, now),
    }
}

/// How a run ends: as what was `measured` does, and never well on a machine that is not as the model says.
fn ended(interrupted: bool, measured: Status, verdicts: &Verdicts) -> Status {
    match measured {
        _ if interrupted => Status::Interrupted,
        Status::Holds if !verdicts.iter().all(Verdict::holds) => Status::DoesNotHold,
        measured => measured,
    }
}

/// What was seen of the machine before anything was measured.
struct Before<'a> {
    inventory: &'a Inventory,
    nics: &'a IndexMap<NicName, Bdf>,
    verdicts: Verdicts,
    emulated: bool,
    /// How long that took.
    looked: Duration,
}

/// The evidence of a run, which `began` then, but for what it measured.
fn gathered(
    file: &ModelFile,
    directory: &RunDirectory,
    now: SystemTime,
    began: Instant,
    before: Before<'_>,
) -> Result<Evidence, Failure> {
    let Before { inventory, nics, verdicts, emulated, looked } = before;
    let mut evidence: Evidence = evidence::begun(file, directory.id(), now, emulated);
    evidence::scanned(&mut evidence, inventory)?;
    evidence.hashes.binary = Some(evidence::binary()?);
    evidence.machine = Picture::of(&file.model, inventory, nics, emulated);
    evidence.verdicts = verdicts;
    let phase = |name: &str, took| Phase { name: name.to_owned(), took };
    evidence.phases = vec![phase("verify", looked), phase("measure", began.elapsed().saturating_sub(looked))];
    Ok(evidence)
}

/// Keeps the evidence, shows it with what was `measured`, and says where it is and how an interrupted run goes on.
fn conclude(
    file: &ModelFile,
    directory: &RunDirectory,
    mut evidence: Evidence,
    measured: &str,
    began: Instant,
    status: Status,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    evidence.run.took = began.elapsed();
    evidence.run.exit = Some(status.code());
    let kept = directory.keep(&evidence, printer);
    printer.data(&evidence, || format!("{}{measured}", penstock_report::summary(&evidence)))?;
    kept?;
    printer.say(format!("report: {}", directory.path().join("report.html").display()));
    if status == Status::Interrupted {
        let path = directory.path().display();
        printer
            .say(format!("Interrupted: go on with `penstock measure {} --resume {path}`", file.source.name));
    }
    Ok(status)
}

/// Why there is no cell.
fn nothing(file: &ModelFile, choice: &Choice, matrix: &Matrix) -> Failure {
    let absent = matrix.absent.iter().map(|absent| format!("\n  {}: {}", absent.path, absent.why));
    let storage =
        (choice.only == Some(Only::Storage)).then(|| "\n  storage: it has no `measure: storage`".into());
    let whys: Vec<String> = absent.chain(storage).collect();
    Failure::new(Status::BadInput, format!("{} gives nothing to measure:{}", file.source.name, whys.concat()))
}

/// Says loudly what of the machine is not as the model has it: what is measured then is another machine.
fn warn(verdicts: &[Verdict], printer: &mut Printer) {
    let not: Vec<&Verdict> = verdicts.iter().filter(|verdict| !verdict.holds()).collect();
    if let Some(first) = not.first() {
        printer.warn(format!(
            "the machine is not as the model says in {} of {} points, the first being {} {}: wanted {}, seen {}; it is \
             measured as it is",
            not.len(),
            verdicts.len(),
            first.subject,
            first.attribute,
            first.wanted,
            first.seen
        ));
    }
}

/// Records as lines for the Penstock outside the board.
struct Outward;

impl Journal for Outward {
    fn append(&mut self, record: &Record) -> Result<(), String> {
        Line::Record(record.clone()).tell();
        Ok(())
    }
}
