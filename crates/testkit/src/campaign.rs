//! Every fault at every step: on a board, a run of Penstock's meets a fault at one step of its plan, and what is there afterwards
//! is compared with what has to be. `inside/campaign.py` carries a trial out, `inside/reader.py` reads what is there without
//! Penstock's help, `inside/tracer.py` stops a run at the moment.
//!
//! - [`fault`]: which faults there are, and which runs meet them.
//! - [`record`]: what was tried, on disk, so that a campaign that was interrupted goes on.
//! - [`table`]: what came of it, in a table.

use std::{fs, process::Stdio, time::Instant};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    binary,
    board::{KeptBoard, own_name},
};

pub mod fault;
pub mod record;
pub mod table;

pub use fault::{Fault, Over};
pub use record::{Ended, Record, Trial};

/// What runs inside: the file's name and its text.
const SCRIPTS: [(&str, &str); 3] = [
    ("reader.py", include_str!("../inside/reader.py")),
    ("tracer.py", include_str!("../inside/tracer.py")),
    ("campaign.py", include_str!("../inside/campaign.py")),
];

/// Where the scripts keep what each step changes.
const STEPS: &str = "/root/campaign-steps.json";

/// A step of a run, as the board tells it.
#[derive(Clone, Debug, Deserialize)]
pub struct Step {
    /// Its number in the plan.
    pub step: u32,
    /// What kind of action it is.
    pub action: String,
    /// How many system calls of Penstock's own change the machine in it and in those that it is carried out together with.
    pub changes: u32,
}

#[derive(Deserialize)]
struct Runs {
    apply: Vec<Step>,
    undo: Vec<Step>,
}

#[derive(Deserialize)]
struct Prepared {
    wrong: Vec<String>,
    steps: Runs,
    differs: u32,
}

#[derive(Deserialize)]
struct Reply {
    wrong: Vec<String>,
    notes: Vec<String>,
    not_tried: Option<String>,
}

/// Which steps of a run are tried.
#[derive(Clone, Debug, Default)]
pub enum Steps {
    /// Every step of the run.
    #[default]
    All,
    /// Of each kind of action the first: what a campaign without the time for all shows soonest.
    Kinds,
    /// The steps with these numbers in the run's plan.
    Numbers(Vec<u32>),
}

impl Steps {
    fn has(&self, run: &[Step], step: &Step) -> bool {
        match self {
            Steps::All => true,
            Steps::Kinds => run
                .iter()
                .find(|other| other.action == step.action)
                .is_some_and(|first| first.step == step.step),
            Steps::Numbers(numbers) => numbers.contains(&step.step),
        }
    }
}

/// What is tried of a model.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Which steps of a run meet the faults.
    pub steps: Steps,
    /// These faults alone; all when there is none.
    pub faults: Vec<Fault>,
    /// The runs that meet them; all when there is none.
    pub runs: Vec<Over>,
}

/// The trials of one model, on boards of its own.
pub struct Campaign<'a> {
    /// The model's name in the record.
    pub model: &'a str,
    /// The model itself. It must not name its machine.
    pub text: &'a str,
    /// What is tried: what one of these has.
    pub choices: &'a [Choice],
}

impl Choice {
    fn has(&self, over: Over, fault: Fault) -> bool {
        over.meets(fault) && among(&self.runs, &over) && among(&self.faults, &fault)
    }
}

/// A board that is ready for trials.
struct Ready {
    board: KeptBoard,
    steps: Runs,
}

impl Campaign<'_> {
    /// Carries out what the record has not yet; each trial is recorded, and handed on, when it is over. A board on which something
    /// was wrong is dropped, so that the next trial starts from a clean one.
    ///
    /// # Errors
    ///
    /// When a board does not come up, or the model cannot be applied and taken back as a whole to begin with.
    pub fn run(&self, record: &mut Record, on_trial: &mut dyn FnMut(&Ended)) -> Result<(), String> {
        // Only a board with a disk can be reset, and such a board is booted, not resumed.
        for reset in [false, true] {
            let mut ready: Option<Ready> = None;
            for over in Over::ALL {
                let has = |fault: &Fault| self.choices.iter().any(|choice| choice.has(over, *fault));
                let faults = Fault::ALL.into_iter().filter(|fault| (*fault == Fault::Reset) == reset);
                let faults: Vec<Fault> = faults.filter(has).collect();
                let mut next = 0;
                while !faults.is_empty() {
                    let now = ready.take().map_or_else(|| self.prepare(reset, record), Ok)?;
                    let steps = if over.takes_back() { &now.steps.undo } else { &now.steps.apply };
                    let Some(step) = steps.get(next).cloned() else {
                        ready = Some(now);
                        break;
                    };
                    next += 1;
                    let mut faults = faults.clone();
                    faults.retain(|fault| {
                        let mut choices = self.choices.iter();
                        choices.any(|choice| choice.has(over, *fault) && choice.steps.has(steps, &step))
                    });
                    ready = self.one_step(now, over, &step, &faults, record, on_trial)?;
                }
            }
        }
        Ok(())
    }

    fn one_step(
        &self,
        now: Ready,
        over: Over,
        step: &Step,
        faults: &[Fault],
        record: &mut Record,
        on_trial: &mut dyn FnMut(&Ended),
    ) -> Result<Option<Ready>, String> {
        let mut ready = Some(now);
        for fault in faults.iter().copied() {
            let action = step.action.clone();
            let trial = Trial { model: self.model.to_owned(), over, step: step.step, action, fault };
            if record.has(&trial) {
                continue;
            }
            let now = ready.take().map_or_else(|| self.prepare(fault == Fault::Reset, record), Ok)?;
            let began = Instant::now();
            let reply =
                if fault == Fault::Reset { reset(&now.board, &trial) } else { tried(&now.board, &trial) };
            let Reply { wrong, notes, not_tried } = reply.unwrap_or_else(|error| Reply {
                wrong: vec![error],
                notes: Vec::new(),
                not_tried: None,
            });
            let is_clean = wrong.is_empty();
            let ended =
                Ended { trial, wrong, notes, not_tried, seconds: began.elapsed().as_secs_f64().round() };
            record.add(&ended)?;
            on_trial(&ended);
            ready = is_clean.then_some(now);
        }
        Ok(ready)
    }

    fn prepare(&self, to_be_reset: bool, record: &Record) -> Result<Ready, String> {
        let name = own_name("campaign");
        let text = format!("machine: {name}\n{}", self.text);
        let options: &[&str] = if to_be_reset { &["--keep-disk"] } else { &[] };
        let board = KeptBoard::up_with(&name, &text, options)?;
        for (file, text) in SCRIPTS {
            board
                .write(&format!("/root/{file}"), text)
                .ended_with(0)
                .map_err(|failed| format!("{failed:?}"))?;
        }
        // To watch whole runs takes longer than most trials: once for each build is enough.
        let kept = record.steps_of(self.model);
        let steps = kept.as_ref().and_then(|path| fs::read_to_string(path).ok());
        if let Some(steps) = &steps {
            board.write(STEPS, steps).ended_with(0).map_err(|failed| format!("{failed:?}"))?;
        }
        let prepared = script(&board, &["prepare", board.model()])?;
        let prepared: Prepared = serde_json::from_value(prepared).map_err(|error| error.to_string())?;
        if !prepared.wrong.is_empty() || prepared.differs == 0 {
            let Prepared { wrong, differs, .. } = prepared;
            return Err(format!(
                "{} was not applied and taken back as a whole ({differs} differences): {wrong:#?}",
                self.model
            ));
        }
        if let (None, Some(path)) = (steps, kept) {
            let steps = board.inside(["cat", STEPS]);
            steps.ended_with(0).map_err(|failed| format!("{failed:?}"))?;
            fs::write(&path, steps.stdout).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(Ready { board, steps: prepared.steps })
    }
}

fn among<T: PartialEq>(chosen: &[T], one: &T) -> bool {
    chosen.is_empty() || chosen.contains(one)
}

fn tried(board: &KeptBoard, trial: &Trial) -> Result<Reply, String> {
    let step = trial.step.to_string();
    let words = ["try", board.model(), trial.over.name(), &step, trial.fault.name()];
    serde_json::from_value(script(board, &words)?).map_err(|error| error.to_string())
}

/// The reset button while the run stands still in the middle of the step; then the way back, and on.
fn reset(board: &KeptBoard, trial: &Trial) -> Result<Reply, String> {
    let mut command = binary::command(board.directory());
    let step = trial.step.to_string();
    let words = ["python3", "/root/campaign.py", "hold", board.model(), trial.over.name(), &step];
    command.args(["board", "ssh", board.name()]).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut held = command.stderr(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    let mut line = String::new();
    let output = held.stdout.take().expect("its output is a pipe");
    let read = std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line);
    let reached: Result<Reply, String> = read
        .map_err(|error| error.to_string())
        .and_then(|_| serde_json::from_str(&line).map_err(|error| format!("{error}: {line}")));
    let reset = board.reset(&[]);
    let _ = held.kill();
    let _ = held.wait();
    let mut reached = reached?;
    if reset.status != 0 {
        return Err(format!("the board was not reset: {}", reset.stderr));
    }
    let after: Reply = serde_json::from_value(script(board, &["after-reset", board.model()])?)
        .map_err(|error| error.to_string())?;
    reached.wrong.extend(after.wrong);
    reached.notes.extend(after.notes);
    Ok(reached)
}

fn script(board: &KeptBoard, words: &[&str]) -> Result<Value, String> {
    let run = board.inside([&["python3", "/root/campaign.py"][..], words].concat());
    serde_json::from_str(run.stdout.trim())
        .map_err(|error| format!("{words:?}: {error}: {}{}", run.stdout, run.stderr))
}
