//! Measuring inside a board, watched from outside: every sample is kept here as it comes, so that nothing is lost with the
//! board.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use penstock_board::Board;
use penstock_host::{Command, Output};
use penstock_measure::{
    cells::{self, Outcome},
    journal::Journal,
    matrix::Matrix,
    record::Record,
};
use penstock_model::measurement::Measurements;

use super::{Choice, ON_A_BOARD, Requested, RequestedRun, perform, samples, watch::Watch, wire::Line};
use crate::{
    boards::{BINARY, refused},
    failure::{Failure, Status},
    model_file::ModelFile,
    ui::printer::Printer,
};

/// How much longer than its own limit a run in a board may take: it looks at the machine first, and takes everything back
/// in the end, under software emulation.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A run without a limit of its own is given up after this.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A run that is to be made inside a board.
pub struct Measuring<'a> {
    file: &'a ModelFile,
    asked: RequestedRun,
    matrix: Matrix,
    directory: PathBuf,
}

/// What came of it.
pub struct Ended {
    /// What was measured, also when it was ended from outside.
    pub measurements: Measurements,
    /// Whether it got to its end.
    pub ended: Result<(), Failure>,
}

impl<'a> Measuring<'a> {
    /// A run of which everything is kept in `directory`.
    ///
    /// # Errors
    ///
    /// When what was asked for cannot be written into `directory`.
    pub fn new(
        file: &'a ModelFile,
        choice: Choice,
        directory: &Path,
        now: SystemTime,
    ) -> Result<Measuring<'a>, Failure> {
        let matrix = choice.matrix(&file.model);
        let asked = RequestedRun::new(file, choice, Some(ON_A_BOARD.to_owned()), now);
        asked.keep(directory)?;
        Ok(Measuring { file, asked, matrix, directory: directory.to_owned() })
    }

    /// Whether it is of nothing: a model without any path and any storage.
    pub fn is_empty(&self) -> bool {
        self.matrix.cells.is_empty()
    }

    /// What the order and the intervals are drawn from.
    pub fn seed(&self) -> u64 {
        self.asked.choice.seed
    }

    /// Where everything of it is kept.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Measures in `board`, where the model is at `model`, and its NICs are where these arguments say.
    pub fn perform(&self, board: &Board, model: &str, nics: &[String], printer: &mut Printer) -> Ended {
        let rules = &self.asked.choice.rules;
        let limit = rules.budget.and_then(|budget| Duration::try_from_secs_f64(budget).ok());
        let command = Command::new(BINARY)
            .args(["measure", "--events", "--emulated", "--quiet", "--warned", model])
            .args(self.asked.choice.arguments())
            .args(nics)
            .deadline(limit.map_or(LONGEST, |limit| limit + TIMEOUT));
        let mut watch = Watch::new(&self.matrix, rules, true);
        let mut measurements = None;
        let samples = self.directory.join(samples::SAMPLES);
        let Listened { records, mut notes, output } =
            listen(board, &command, &samples, printer, &mut |line, printer| match line {
                Line::Event(event) => watch.event(&event, printer),
                Line::Measured(told) => measurements = Some(*told),
                // Verdicts were seen by `verify` a moment before, latencies are measured by a run of their own.
                Line::Verdicts(_) | Line::Record(_) | Line::Waking(_) | Line::Woken(_) => {}
            });
        let ended = output.and_then(|output| match output.status.code() {
            Some(0 | 1) if measurements.is_some() => Ok(()),
            _ => Err(refused("measure", &output)),
        });
        let ended = ended.map_err(|failure| match failure.status {
            // Whoever pressed Ctrl-C needs not be told of the command that it ended.
            Status::Interrupted => Failure::explained(Status::Interrupted),
            _ => failure,
        });
        if let Some(measurements) = &mut measurements {
            measurements.notes.append(&mut notes);
        }
        let measurements = measurements.unwrap_or_else(|| {
            notes.extend(ended.as_ref().err().map(|failure| match &failure.error {
                Some(why) => format!("the run did not get to its end: {why}"),
                None => "the run did not get to its end: it was interrupted".to_owned(),
            }));
            let outcome = Outcome { notes, ..Outcome::default() };
            let options = perform::options(&self.asked);
            cells::conclude(&self.matrix, &options, &self.file.model.expect, &records, &outcome)
        });
        Ended { measurements, ended }
    }
}

/// What the Penstock inside a board has said, but for what was shown as it came.
pub struct Listened {
    /// The samples, in order.
    pub records: Vec<Record>,
    /// What the reader should know beside.
    pub notes: Vec<String>,
    /// How it ended.
    pub output: Result<Output, Failure>,
}

/// Measures in `board` by this command. Each sample is appended to the file `samples` as it comes; all else is told to `hear`.
pub fn listen(
    board: &Board,
    command: &Command,
    samples: &Path,
    printer: &mut Printer,
    hear: &mut dyn FnMut(Line, &mut Printer),
) -> Listened {
    let mut kept = match samples::open_file(samples) {
        Ok((_, samples)) => Some(samples),
        Err(failure) => {
            // What is measured is worth having without them.
            printer.failure(&failure);
            None
        }
    };
    let (mut records, mut notes) = (Vec::new(), Vec::new());
    printer.done();
    let streamed = board.stream(command, &mut |text| match Line::read(text) {
        Some(Line::Record(record)) => {
            if let Some(Err(why)) = kept.as_mut().map(|samples| samples.append(&record)) {
                printer.warn(&why);
                notes.push(why);
                kept = None;
            }
            records.push(record);
        }
        Some(line) => hear(line, printer),
        None => printer.warn(format!("the output of the penstock inside cannot be parsed: {text:.200}")),
    });
    printer.done();
    Listened { records, notes, output: streamed.map_err(Failure::from) }
}
