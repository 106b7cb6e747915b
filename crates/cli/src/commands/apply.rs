//! `penstock apply MODEL`: carries the plan out on this machine.

use std::{rc::Rc, time::Instant};

use penstock_apply::{
    ApplyError, Mode, RunProgress,
    history::Confirm,
    journal::Ending,
    runner::{GuestFailure, NotUndone, StepReport},
};
use penstock_guests::containers::apparmor;
use penstock_host::{chain, process};
use penstock_model::{GuestName, text::counted};
use penstock_plan::{Action, FunctionAction, GuestAction, Plan, Step, StepId, in_use};
use serde::{Deserialize, Serialize};

use crate::{
    arguments::Apply,
    commands::{guard, plan},
    dangers,
    failure::{Failure, Status},
    model_file::{self, For, ModelFile},
    runtime::{
        machine::{Machine, MachineLock, runs::Begun},
        progress::Kept,
    },
    settings::Settings,
    ui::printer::Printer,
};

mod persist;

/// What carrying out a plan leaves. `--json` prints it, also when a step failed.
#[derive(Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Carried {
    /// What was planned.
    pub plan: Plan,
    /// How it went, for as many steps as were begun.
    pub steps: Vec<StepReport>,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The steps that were carried out and taken back.
    #[serde(default)]
    pub undone: Vec<StepId>,
    /// The guests that failed, while the others went on.
    #[serde(default)]
    pub failed: Vec<FailedGuest>,
    /// The guests that were not started because they need one that failed.
    #[serde(default)]
    pub left_out: Vec<GuestName>,
    /// What is left of these guests and could not be taken back.
    #[serde(default)]
    pub not_undone: Vec<NotUndone>,
    /// The most memory that Penstock had resident meanwhile, in bytes.
    #[serde(default)]
    pub peak_memory: Option<u64>,
}

/// What `apply` leaves; with `--persist` also for the next boots.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Applied {
    /// What was carried out now.
    #[serde(flatten)]
    pub now: Carried,
    /// What was carried out for the next boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persist: Option<Carried>,
}

/// A guest that failed.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FailedGuest {
    /// The guest that failed.
    pub guest: GuestName,
    /// The step of it that failed.
    pub step: StepId,
    /// Why: the error and its causes.
    pub why: String,
    /// What to do about it, when that is known.
    pub hint: Option<String>,
}

impl From<&GuestFailure> for FailedGuest {
    fn from(failure: &GuestFailure) -> FailedGuest {
        FailedGuest {
            guest: failure.guest.clone(),
            step: failure.step,
            why: chain(&failure.source),
            hint: failure.hint().map(str::to_owned),
        }
    }
}

/// Plans against what is, and carries it out.
///
/// # Errors
///
/// For a model that is wrong or does not fit this machine, a danger that is not allowed, another run at work, a guard that does not
/// start, and for what the steps fail with; by then what they had done was taken back, or the status says that it was not.
pub fn run(arguments: &Apply, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let file = model_file::read_subject(&arguments.subject, For::Here(settings), printer)?;
    let machine = Machine::here(settings).reaching(&arguments.peers);
    // Before anything is looked at: what another run changes meanwhile would not be in the plan.
    let mut alone = guard::take_back_lapsed(&machine, machine.lock()?, printer)?;
    printer.doing("Looking at this machine");
    let mut inventory = machine.inventory_for(&file.model)?;
    if arguments.persist {
        return persist::run(arguments, &machine, alone, &file, inventory, printer);
    }
    let plan = plan::make(&file, &inventory, printer)?;
    let plan = if machine.probe_for(&plan, &mut inventory, printer)? {
        plan::make(&file, &inventory, printer)?
    } else {
        plan
    };
    for note in &plan.notes {
        printer.warn(note);
    }
    let found = dangers::find(&plan, &inventory, printer);
    dangers::refuse(&found, &arguments.allowed.names, printer)?;
    alone.in_use = in_use(&plan, &inventory);
    let Some(within) = arguments.confirm_within else {
        return carry_out(&machine, alone, plan, Mode::Apply, &file, printer)?.end(printer);
    };
    let confirm = guard::terms(within, &plan);
    let begun = begin(&machine, alone, &plan, Mode::Apply, &file, Some(confirm), printer)?;
    let Some(run) = begun.run.clone() else {
        return conduct(&machine, begun, plan, Mode::Apply, printer).end(printer);
    };
    guard::start(&run, settings)?;
    let conducted = conduct(&machine, begun, plan, Mode::Apply, printer);
    guard::announce(&machine, &run, within, printer);
    conducted.end(printer)
}

/// How a plan was carried out, and why that could not be printed, if so.
#[must_use]
pub struct Conducted {
    outcome: Result<Status, Failure>,
    unwritten: Option<Failure>,
}

impl Conducted {
    /// Whether all of it was done, whether or not that could be printed.
    pub fn holds(&self) -> bool {
        matches!(self.outcome, Ok(Status::Holds))
    }

    /// The exit status: the worse of both. How the machine is is said before anything else is.
    ///
    /// # Errors
    ///
    /// Why the run did not come to its end. What could not be written of one that did is printed, and counts in the status.
    pub fn end(self, printer: &mut Printer) -> Result<Status, Failure> {
        let Some(unwritten) = self.unwritten else { return self.outcome };
        let status = self.outcome.unwrap_or_else(|failure| {
            printer.failure(&failure);
            failure.status
        });
        printer.failure(&unwritten);
        Ok(status.worse(unwritten.status))
    }
}

/// Carries a plan out, which was made while `alone` was held, and says how it went.
///
/// # Errors
///
/// When the run cannot be begun. What its steps fail with is in [`Conducted`].
pub fn carry_out(
    machine: &Machine,
    alone: impl Into<Rc<MachineLock>>,
    plan: Plan,
    mode: Mode,
    model: &ModelFile,
    printer: &mut Printer,
) -> Result<Conducted, Failure> {
    let begun = begin(machine, alone, &plan, mode, model, None, printer)?;
    Ok(conduct(machine, begun, plan, mode, printer))
}

fn begin(
    machine: &Machine,
    alone: impl Into<Rc<MachineLock>>,
    plan: &Plan,
    mode: Mode,
    model: &ModelFile,
    confirm: Option<Confirm>,
    printer: &mut Printer,
) -> Result<Begun, Failure> {
    if let Some(said) = without_profile(plan, apparmor::why_unconfined(machine.root())) {
        printer.warn(said);
    }
    let begun = machine.begin(alone, plan, mode, model, confirm)?;
    for said in &begun.said {
        printer.warn(said);
    }
    Ok(begun)
}

/// That the containers which a plan starts are without AppArmor's fence, and why, where that is so.
fn without_profile(plan: &Plan, why: Option<&str>) -> Option<String> {
    let starts = |step: &Step| matches!(step.action, Action::Guest(GuestAction::StartGuest { .. }));
    let why = why.filter(|_| plan.steps.iter().any(starts))?;
    Some(format!("containers are started without an AppArmor profile: {why}; their other fences hold"))
}

/// Carries out what was begun and says how it went.
pub fn conduct(machine: &Machine, begun: Begun, plan: Plan, mode: Mode, printer: &mut Printer) -> Conducted {
    if plan.steps.is_empty() {
        printer.done();
    }
    if plan.steps.is_empty() && mode != Mode::Undo {
        printer.say("Nothing to do: it is already so.");
    }
    let started = Instant::now();
    let mut narrator =
        Narrator { printer, mode, steps: plan.steps.len(), reports: Vec::new(), undone: Vec::new() };
    let mut kept = Kept::new(&mut narrator, &plan, mode, machine.progress_file());
    let outcome = machine.carry_out(begun, &plan, mode, &mut kept);
    drop(kept);
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => return Conducted { outcome: Err(failure), unwritten: None },
    };
    let Narrator { reports: steps, undone, .. } = narrator;
    printer.done();
    machine.learn(&plan, &steps, outcome.as_ref().err(), printer);
    let mut carried = Carried {
        plan,
        steps,
        seconds: started.elapsed().as_secs_f64(),
        undone,
        failed: Vec::new(),
        left_out: Vec::new(),
        not_undone: Vec::new(),
        peak_memory: process::peak_memory(),
    };
    if let Err(ApplyError::GuestsFailed { failures, left_out, not_undone, .. }) = &outcome {
        carried.failed = failures.iter().map(FailedGuest::from).collect();
        carried.left_out = left_out.clone();
        carried.not_undone = not_undone.clone();
    }
    let written = printer.answer(outcome.is_ok(), &carried, || in_words(&carried));
    let outcome = match outcome {
        Ok(_) if mode == Mode::Apply && lacks_required(&carried) => {
            printer.warn("the driver cannot do all that the model requires; `best_effort` in the model does without it");
            Ok(Status::DoesNotHold)
        }
        Ok(_) => Ok(Status::Holds),
        Err(ApplyError::GuestsFailed { failures, left_out, not_undone, .. }) => {
            Ok(guests_failed(failures, &left_out, &not_undone, printer))
        }
        Err(error) => Err(Failure::from(error)),
    };
    Conducted { outcome, unwritten: written.err() }
}

/// Whether an attribute was passed over that the model requires.
fn lacks_required(carried: &Carried) -> bool {
    carried.steps.iter().any(|report| {
        let step = carried.plan.steps.iter().find(|step| step.id == report.step);
        let is_attribute = step.is_some_and(|step| {
            matches!(step.action, Action::Function(FunctionAction::SetVfAttribute { .. }))
        });
        report.outcome == Ending::Unsupported && !report.best_effort && is_attribute
    })
}

/// Each guest that failed, with why and what to do; then what that left out and left behind.
fn guests_failed(
    failures: Vec<GuestFailure>,
    left_out: &[GuestName],
    not_undone: &[NotUndone],
    printer: &mut Printer,
) -> Status {
    let half_way = not_undone.iter().any(NotUndone::is_left);
    let mut status = if half_way { Status::HalfWay } else { Status::DoesNotHold };
    for failure in failures {
        let hint = failure.hint().map(str::to_owned);
        let failure = Failure::new(status, failure).hints(hint);
        status = failure.status;
        printer.failure(&failure);
    }
    for guest in left_out {
        printer.warn(format!("guest {guest} was left out, because it needs a guest that failed"));
    }
    for left in not_undone {
        printer.warn(format!("not taken back: {left}"));
    }
    status
}

fn in_words(carried: &Carried) -> String {
    let count = |ending| carried.steps.iter().filter(|step| step.outcome == ending).count();
    let mut text = format!(
        "{} of {} steps done in {:.1} s",
        count(Ending::Done),
        carried.plan.steps.len(),
        carried.seconds
    );
    for (ending, word) in
        [(Ending::Unsupported, "not supported by the driver (see above)"), (Ending::LeftOut, "left out")]
    {
        match count(ending) {
            0 => {}
            some => text.push_str(&format!(", {some} {word}")),
        }
    }
    match carried.undone.len() {
        0 => {}
        some => text.push_str(&format!(", {some} taken back")),
    }
    text
}

/// Tells a person what is being done, and remembers how it went.
struct Narrator<'a> {
    printer: &'a mut Printer,
    mode: Mode,
    steps: usize,
    reports: Vec<StepReport>,
    undone: Vec<StepId>,
}

impl RunProgress for Narrator<'_> {
    fn started(&mut self, step: &Step) {
        self.printer.doing(format!("[{}/{}] {} ({})", step.id, self.steps, step.action, step.reason));
    }

    fn finished(&mut self, step: &Step, report: &StepReport) {
        // A guest fails alone, and why is said once for all of its steps.
        let said_later = self.mode == Mode::Apply && step.guest.is_some() && report.outcome == Ending::Failed;
        if let (Ending::Unsupported | Ending::Failed, Some(detail), false) =
            (report.outcome, &report.detail, said_later)
        {
            self.printer.warn(format!("{}: {detail}", step.action));
        }
        self.reports.push(report.clone());
    }

    fn rolling_back(&mut self, steps: usize, why: &str) {
        self.printer.warn(format!("{why}; taking back {}", counted(steps, "step")));
    }

    fn undone(&mut self, step: &Step, error: Option<&str>) {
        match error {
            None => {
                self.undone.push(step.id);
                self.printer.doing(format!("Took back: {}", step.action));
            }
            Some(error) => self.printer.warn(format!("could not take back {}: {error}", step.action)),
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_plan::Fact;

    use super::*;
    use crate::arguments::Common;

    #[test]
    fn what_was_done_is_told_before_that_it_could_not_be_printed() {
        let printed = |outcome: Result<Status, Failure>, unwritten: Option<Status>| {
            let mut printer = Printer::keeping(&Settings::resolve(&Common::default()));
            let unwritten = unwritten.map(|status| Failure::new(status, "the disk is full"));
            let conducted = Conducted { outcome, unwritten };
            let holds = conducted.holds();
            let status = conducted.end(&mut printer).map_err(|failure| failure.status);
            (holds, status, printer.take_kept())
        };
        let full = "the disk is full".to_owned();
        let lost = Some(Status::Internal);
        assert_eq!(printed(Ok(Status::Holds), None), (true, Ok(Status::Holds), vec![]));
        assert_eq!(printed(Ok(Status::Holds), lost), (true, Ok(Status::Internal), vec![full.clone()]));
        let half_way = || Err(Failure::new(Status::HalfWay, "step 3 failed"));
        assert_eq!(printed(half_way(), None), (false, Err(Status::HalfWay), vec![]));
        let both = vec!["step 3 failed".to_owned(), full.clone()];
        assert_eq!(printed(half_way(), lost), (false, Ok(Status::HalfWay), both));
        assert_eq!(printed(Ok(Status::DoesNotHold), lost), (false, Ok(Status::Internal), vec![full]));
    }

    #[test]
    fn a_missing_profile_is_said_where_a_container_is_started() {
        let plan_of = |action: Action| {
            let step = Step {
                id: StepId(1),
                postcondition: Fact::after(&action),
                action,
                reason: "a test".to_owned(),
                needs: Vec::new(),
                inverse: None,
                best_effort: false,
                guest: None,
            };
            Plan { steps: vec![step], ..Plan::default() }
        };
        let guest = || "box".parse().unwrap();
        let starts = plan_of(GuestAction::StartGuest { guest: guest() }.into());
        let why = Some("the program apparmor_parser is not installed");
        let said = without_profile(&starts, why).unwrap();
        assert!(said.contains("without an AppArmor profile: the program apparmor_parser"), "{said}");
        assert_eq!(without_profile(&starts, None), None);
        for other in [
            GuestAction::StopGuest { guest: guest() }.into(),
            GuestAction::CreateGuest { guest: guest() }.into(),
        ] {
            assert_eq!(without_profile(&plan_of(other), why), None);
        }
    }
}
