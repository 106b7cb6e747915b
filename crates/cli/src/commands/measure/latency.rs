//! `penstock measure MODEL --latency`: how late threads wake on this machine.

use std::time::{Instant, SystemTime};

use indexmap::IndexMap;
use penstock_measure::{
    event::{BlockSample, Event},
    journal::Journal,
    latency::{
        machine::{AsItIs, Toggle},
        wake_ups::RAW,
    },
    record::Record,
};
use penstock_model::{Verdicts, digest::sha256};
use penstock_report::evidence::Audits;

use super::{Before, Outward, TIMEOUT, conclude, directory, emulated, ended, gathered, warn};
use crate::{
    arguments::Measure,
    bench::{Requested, samples, testbed, wire::Line},
    commands::verify::{self, Seen},
    failure::{Failure, Status},
    latency::{Choice, RequestedRun, layout::layout, outcome, perform::perform, toggle::Steps, watch::Watch},
    model_file::ModelFile,
    runtime::machine::Machine,
    settings::Settings,
    ui::printer::Printer,
};

/// Whether it is this that is asked for: by an option, or by going on with a run of it.
///
/// # Errors
///
/// When the run to go on with cannot be read, or is of another model.
pub fn is_meant(arguments: &Measure, file: &ModelFile) -> Result<Option<Option<RequestedRun>>, Failure> {
    let directory = arguments.resume.as_deref().filter(|directory| RequestedRun::is_in(directory));
    let model = sha256(&file.source.text);
    let earlier = directory.map(|directory| RequestedRun::of(directory, &model)).transpose()?;
    Ok((arguments.waking.latency || earlier.is_some()).then_some(earlier))
}

/// Looks at the machine, measures it, and leaves a run directory. `earlier` is what the run was asked for that this one goes
/// on with.
///
/// # Errors
///
/// When nothing can be measured on these CPUs, the run to go on with is of another machine, what tunes the machine cannot be toggled,
/// or the run's files cannot be written.
pub fn run(
    arguments: &Measure,
    file: &ModelFile,
    earlier: Option<RequestedRun>,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let (began, now) = (Instant::now(), SystemTime::now());
    let mut choice = match &earlier {
        Some(asked) => asked.choice.clone(),
        None => Choice::new(arguments.quick, &arguments.waking, &arguments.tuning, now),
    };
    let machine = Machine::here(settings);
    // What needs no look at guests is said before anything is looked at.
    let online = penstock_host::scan::online_cpus(machine.root());
    let layout = layout(&file.model, &file.source.name, &online, choice.cpus.as_ref())?;
    let mut steps = match choice.options.against {
        true => Some(Steps::find(&machine, file)?),
        false => None,
    };
    let Seen { inventory, nics, places, verdicts } = look(file, &machine, printer)?;
    let looked = began.elapsed();
    let emulated = emulated(arguments, &inventory, &nics, &machine);
    if let Some((asked, directory)) = earlier.as_ref().zip(arguments.resume.as_deref()) {
        asked.of_such_a_machine(&online, emulated.is_some(), directory)?;
    }
    choice.options.emulated = emulated.is_some();
    choice.options.stand_ins = layout.stand_ins();
    let asked = earlier.unwrap_or_else(|| RequestedRun::new(file, choice, online));
    let testbed = testbed::testbed(&file.model, &nics, places, machine.root());
    warn(&verdicts, printer);
    if let Some(why) = &emulated {
        printer.say(format!("Only ratios will mean anything: {why}"));
    }
    for step in steps.iter().flat_map(Steps::in_words) {
        printer.say(format!("Untuned means: {step}"));
    }
    let mut unaudited = Vec::new();
    let mut audited = |when: &str| match machine.inventory_with_tuning(&file.model) {
        Ok(seen) => Some(penstock_audit::audit(&seen, Some(&file.model))),
        Err(failure) => {
            unaudited.push(format!("the machine was not audited {when}: {}", failure.in_one_line()));
            None
        }
    };
    let mut as_it_is = AsItIs;
    let toggle: &mut dyn Toggle = match &mut steps {
        Some(steps) => steps,
        None => &mut as_it_is,
    };
    let mut measure = |records: &[Record],
                       journal: &mut dyn Journal,
                       observe: &mut dyn FnMut(&Event<BlockSample>)| {
        let root = machine.root();
        let (mut latency, interrupted) =
            perform(&file.model, &asked, &layout, &testbed, root, toggle, records, journal, observe);
        let because = emulated.iter().flat_map(|why| {
            [
                format!("only ratios mean anything: {why}"),
                "the emulator's virtual CPUs share the CPUs of the machine below: a wake-up can be late because that machine \
                 ran something else, which no tuning of the board changes, so that a ratio is too small rather than too large"
                    .to_owned(),
            ]
        });
        latency.notes.splice(0..0, because);
        (latency, interrupted)
    };
    if arguments.events {
        Line::Verdicts(verdicts.clone()).tell();
        let mut observe = |event: &_| Line::Waking(Clone::clone(event)).tell();
        let (latency, interrupted) = measure(&[], &mut Outward, &mut observe);
        let status = ended(interrupted, outcome::status(&latency), &verdicts);
        Line::Woken(Box::new(latency)).tell();
        printer.done();
        return Ok(status);
    }

    let directory = directory(arguments, file, now)?;
    asked.keep(directory.path())?;
    let (records, mut blocks) = samples::open_file(&directory.path().join(RAW))?;
    printer.doing("Auditing this machine");
    let before = audited("before");
    let mut watch = Watch::new(&asked.choice.options);
    printer.done();
    let (latency, interrupted) = measure(&records, &mut blocks, &mut |event| watch.event(event, printer));
    printer.done();
    let after = audited("after");

    let before_all =
        Before { inventory: &inventory, nics: &nics, verdicts, emulated: emulated.is_some(), looked };
    let mut evidence = gathered(file, &directory, now, began, before_all)?;
    let status = ended(interrupted, outcome::status(&latency), &evidence.verdicts);
    let measured = outcome::text(&latency);
    evidence.latency = Some(latency);
    evidence.notes.extend(unaudited);
    evidence.audits = Some(Audits { before, after });
    conclude(file, &directory, evidence, &measured, began, status, printer)
}

/// Looks at the machine as `verify` does. CPUs can be measured without the model's NICs: where these are not found, nothing is
/// said of them, and what guests there are is measured.
fn look(file: &ModelFile, machine: &Machine, printer: &mut Printer) -> Result<Seen, Failure> {
    let inventory = machine.inventory()?;
    if penstock_plan::resolve(&file.model, &inventory).is_ok() {
        return verify::look(file, machine, TIMEOUT, printer);
    }
    printer.warn(
        "the model's NICs are not here: only its CPUs are measured, on the host and in guests that run",
    );
    let places = machine.places(&file.model);
    Ok(Seen { inventory, nics: IndexMap::default(), places, verdicts: Verdicts::default() })
}
