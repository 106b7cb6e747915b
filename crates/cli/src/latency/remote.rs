//! Measuring latencies inside a board, watched from outside: every block is kept here as it comes.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use penstock_board::Board;
use penstock_host::Command;
use penstock_measure::{journal::Journal, latency::run::RAW};
use penstock_model::{Model, measurement::latency::Latency};

use super::{Choice, watch::Watch};
use crate::{
    arguments::{Tuning, Waking},
    bench::{samples, wire::Line},
    boards::BINARY,
    failure::Failure,
    printer::Printer,
    rehearsal::refused,
};

/// How much longer than its own limit a run in a board may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Whether a model says anything of real time.
pub fn is_realtime(model: &Model) -> bool {
    model.realtime.as_ref().is_some_and(|realtime| !realtime.isolated.0.is_empty())
        || model.guests.values().any(|guest| guest.realtime.is_some())
}

/// Measures what shows each place, in `board`, where the model is at `model`; what is told is also kept in `directory`.
pub fn perform(
    board: &Board,
    model: &str,
    nics: &[String],
    seed: u64,
    directory: &Path,
    printer: &mut Printer,
) -> Result<Latency, Failure> {
    let tuning = Tuning { seed: Some(seed), ..Tuning::default() };
    let options = Choice::new(true, &Waking::default(), &tuning, SystemTime::UNIX_EPOCH).options;
    let limit = options.budget.and_then(|budget| Duration::try_from_secs_f64(budget).ok());
    let command = Command::new(BINARY)
        .args(["measure", "--latency", "--quick", "--events", "--emulated", "--quiet", "--warned", model])
        .arg(format!("--seed={seed}"))
        .args(nics)
        .deadline(limit.unwrap_or_default() + TIMEOUT);
    let mut kept = match samples::open_file(&directory.join(RAW)) {
        Ok((_, blocks)) => Some(blocks),
        Err(failure) => {
            // What is measured is worth having without them.
            printer.failure(&failure);
            None
        }
    };
    let mut watch = Watch::new(&penstock_measure::latency::run::RunOptions { emulated: true, ..options });
    let mut latency = None;
    printer.done();
    let streamed = board.stream(&command, &mut |line| match Line::read(line) {
        Some(Line::Waking(event)) => watch.event(&event, printer),
        Some(Line::Record(record)) => {
            if let Some(Err(why)) = kept.as_mut().map(|kept| kept.append(&record)) {
                printer.warn(&why);
                kept = None;
            }
        }
        Some(Line::Woken(told)) => latency = Some(*told),
        Some(_) => {}
        None => printer.warn(format!("the penstock inside said what makes no sense: {line:.200}")),
    });
    printer.done();
    let output = streamed?;
    match (output.status.code(), latency) {
        (Some(0 | 1), Some(latency)) => Ok(latency),
        _ => Err(refused("measure --latency", &output)),
    }
}
