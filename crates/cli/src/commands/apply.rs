//! `penstock apply MODEL`: carries the plan out on this machine.

use std::time::Instant;

use penstock_apply::{ApplyError, Mode, Observer, journal::Ending, runner::StepReport};
use penstock_host::process;
use penstock_plan::{Plan, Step};
use serde::{Deserialize, Serialize};

use crate::{
    arguments::Subject,
    commands::plan,
    failure::{Failure, Status},
    machine::Machine,
    model_file,
    printer::Printer,
    settings::Settings,
};

/// What carrying out a plan leaves. `--json` prints it, also when a step failed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Carried {
    /// What was planned.
    pub plan: Plan,
    /// How it went, for as many steps as were begun.
    pub steps: Vec<StepReport>,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The most memory that Penstock had resident meanwhile, in bytes.
    #[serde(default)]
    pub peak_memory: Option<u64>,
}

/// Plans against what is, and carries it out.
pub fn run(arguments: &Subject, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let file = model_file::read_subject(arguments, printer)?;
    let machine = Machine::here(settings);
    printer.doing("Looking at this machine");
    let inventory = machine.inventory()?;
    let plan = plan::make(&file, &inventory, printer)?;
    for note in &plan.notes {
        printer.warn(note);
    }
    carry_out(&machine, plan, Mode::Apply, printer)
}

/// Carries a plan out and says how it went.
pub fn carry_out(
    machine: &Machine,
    plan: Plan,
    mode: Mode,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    if plan.steps.is_empty() {
        printer.done();
        printer.say("Nothing to do: it is already so.");
    }
    let started = Instant::now();
    let mut narrator = Narrator { printer, steps: plan.steps.len(), reports: Vec::new() };
    let outcome = machine.carry_out(&plan, mode, &mut narrator)?;
    let steps = narrator.reports;
    printer.done();
    let seconds = started.elapsed().as_secs_f64();
    let carried = Carried { plan, steps, seconds, peak_memory: process::peak_memory() };
    printer.data(&carried, || in_words(&carried))?;
    outcome.map(|_| Status::Holds).map_err(failed)
}

fn failed(error: ApplyError) -> Failure {
    let hint = error.hint().map(|hint| hint.to_string());
    let status = match &error {
        ApplyError::RolledBack { .. } => Status::RolledBack,
        ApplyError::Cancelled { .. } => Status::Interrupted,
        _ => Status::Missing,
    };
    Failure::new(status, error).hints(hint)
}

fn in_words(carried: &Carried) -> String {
    let count = |ending| carried.steps.iter().filter(|step| step.outcome == ending).count();
    let mut text = format!(
        "{} of {} steps done in {:.1} s",
        count(Ending::Done),
        carried.plan.steps.len(),
        carried.seconds
    );
    match count(Ending::Unsupported) {
        0 => {}
        some => text.push_str(&format!(", {some} not supported by the driver (see above)")),
    }
    text
}

/// Tells a person what is being done, and remembers how it went.
struct Narrator<'a> {
    printer: &'a mut Printer,
    steps: usize,
    reports: Vec<StepReport>,
}

impl Observer for Narrator<'_> {
    fn started(&mut self, step: &Step) {
        self.printer.doing(format!("[{}/{}] {} ({})", step.id, self.steps, step.action, step.reason));
    }

    fn finished(&mut self, step: &Step, report: &StepReport) {
        if let (Ending::Unsupported | Ending::Failed, Some(detail)) = (report.outcome, &report.detail) {
            self.printer.warn(format!("{}: {detail}", step.action));
        }
        self.reports.push(report.clone());
    }

    fn rolling_back(&mut self, steps: usize, why: &str) {
        self.printer.warn(format!("{why}; taking back {steps} steps"));
    }

    fn undone(&mut self, step: &Step, error: Option<&str>) {
        match error {
            None => self.printer.doing(format!("Took back: {}", step.action)),
            Some(error) => self.printer.warn(format!("could not take back {}: {error}", step.action)),
        }
    }
}
