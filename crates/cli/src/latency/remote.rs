//! Measuring latencies inside a board, watched from outside: every block is kept here as it comes.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use penstock_board::Board;
use penstock_host::Command;
use penstock_measure::latency::wake_ups::{RAW, RunOptions};
use penstock_model::{Model, measurement::latency::Latency};

use super::{Choice, watch::Watch};
use crate::{
    arguments::{Tuning, Waking},
    bench::{remote::listen, wire::Line},
    boards::{BINARY, refused},
    failure::Failure,
    ui::printer::Printer,
};

/// How much longer than its own limit a run in a board may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Whether a model says anything of real time.
pub fn is_realtime(model: &Model) -> bool {
    model.realtime.as_ref().is_some_and(|realtime| !realtime.isolated.0.is_empty())
        || model.guests.values().any(|guest| guest.realtime.is_some())
}

/// Measures what shows each place, in `board`, where the model is at `model`; what is told is also kept in `directory`.
///
/// # Errors
///
/// When the board does not answer any more, or `measure` in it fails or tells no latencies.
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
    let mut watch = Watch::new(&RunOptions { emulated: true, ..options });
    let mut latency = None;
    let told = listen(board, &command, &directory.join(RAW), printer, &mut |line, printer| match line {
        Line::Waking(event) => watch.event(&event, printer),
        Line::Woken(told) => latency = Some(*told),
        // The network and storage are measured by a run of their own.
        Line::Verdicts(_) | Line::Record(_) | Line::Event(_) | Line::Measured(_) => {}
    });
    let output = told.output?;
    match (output.status.code(), latency) {
        (Some(0 | 1), Some(latency)) => Ok(latency),
        _ => Err(refused("measure --latency", &output)),
    }
}
