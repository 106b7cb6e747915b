//! `penstock rehearse MODEL`: all of it on an emulated board, with a report.

use std::time::SystemTime;

use crate::{
    arguments::{Extent, Rehearse},
    bench::{Choice, Requested, RequestedRun, outcome, remote::Measuring},
    boards::Boards,
    commands::verify::table,
    failure::{Failure, Status},
    model_file::{self, For},
    rehearsal::Rehearsal,
    runtime::run_directory::RunDirectory,
    settings::Settings,
    ui::printer::Printer,
};

/// Boots, applies, verifies, and leaves a run directory whatever happens, once there is an image to boot.
///
/// # Errors
///
/// For a model that is wrong or gives no board; when the run directory cannot be had, the board does not boot, a verb in it fails, or the run
/// directory cannot be written. Once a board is to be booted, what was seen until then is kept in it all the same, and with `--json` printed
/// where the board or a verb has failed. Where there is no image, or a program or a permission for a board is missing, no run directory is left.
pub fn run(arguments: &Rehearse, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    if arguments.measure.is_none() && arguments.tuning.is_given() {
        let text = "it was said how to measure, and not that anything is to be measured";
        return Err(Failure::new(Status::BadInput, text).hint("add --measure, or --measure=full"));
    }
    let file = model_file::read(
        &arguments.model,
        arguments.strict,
        For::of(arguments.inventory.as_deref(), false, settings),
        printer,
    )?;
    let inventory = arguments.inventory.as_deref().map(model_file::read_inventory).transpose()?;
    let boards = Boards::new(settings);
    let design = boards.design(&file, inventory.as_ref(), printer)?;

    let now = SystemTime::now();
    let directory = RunDirectory::create(arguments.output.as_deref(), &file.model.machine, now)?;
    let choice = arguments.measure.map(|extent| Choice::new(extent == Extent::Quick, &arguments.tuning, now));
    let matrix = choice.as_ref().map(|choice| choice.matrix(&file.model));
    let measuring = choice.map(|choice| Measuring::new(&file, choice, directory.path(), now)).transpose()?;
    let mut rehearsal = Rehearsal::new(&file, directory.id(), now);
    let outcome = rehearsal.perform(&boards, design, arguments.cold, measuring, printer);
    let outcome = match outcome {
        // Nothing was rehearsed that there could be a report of.
        Err(failure) if !rehearsal.has_begun(failure.status) => {
            printer.done();
            directory.discard(&[RequestedRun::FILE]);
            return Err(failure);
        }
        outcome => outcome,
    };
    let status = match &outcome {
        Ok(()) if rehearsal.holds() => Status::Holds,
        Ok(()) => Status::DoesNotHold,
        Err(failure) => failure.status,
    };
    printer.done();
    let brought = directory.keep_files(rehearsal.files());
    let evidence = rehearsal.conclude(status);
    let kept = directory.keep(&evidence, printer).and(brought);
    if status == Status::Interrupted {
        printer.say(format!(
            "Interrupted: the board is gone; what was seen so far is in {}",
            directory.path().display()
        ));
    }
    if let Err(failure) = outcome {
        // Programs get what was seen so far beside what went wrong.
        printer.document(&evidence)?;
        return Err(failure);
    }
    kept?;
    let width = printer.width();
    printer.answer(status == Status::Holds, &evidence, || {
        let measured = evidence.measurements.as_ref().zip(matrix.as_ref());
        let measured = measured.map(|(measurements, matrix)| outcome::text(measurements, matrix, width));
        let woken = evidence.latency.as_ref().map(crate::latency::outcome::text).unwrap_or_default();
        let verdicts = if arguments.verbose { table(&evidence.verdicts, true) + "\n" } else { String::new() };
        let summary = penstock_report::summary(&evidence);
        format!("{verdicts}{summary}{}{woken}", measured.unwrap_or_default())
    })?;
    printer.say(format!("report: {}", directory.path().join("report.html").display()));
    Ok(status)
}
