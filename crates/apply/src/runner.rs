//! Takes a plan's steps in order, proves each, and takes them back when one fails.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use penstock_plan::{Action, Carry, CarryError, Fact, Plan, Step, StepId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::journal::{Ending, Entry, JOURNAL_VERSION, Journal, JournalError};

mod undo;

pub use undo::NotUndone;

/// At most so many steps share one sync of the journal, and one chance to cancel.
const BATCH: usize = 64;

/// How a run behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// To make, or to tear down.
    pub mode: Mode,
    /// How long one step of the host may take, its read-back included. Default: 60 s; 200 VFs at once under software
    /// emulation take about a second.
    pub deadline: Duration,
    /// How long starting or stopping one guest may take. Default: 120 s.
    pub guest_deadline: Duration,
    /// Set from outside (Ctrl-C) when the run is to stop; looked at between steps and while waiting.
    pub cancel: Option<&'a AtomicBool>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            mode: Mode::Apply,
            deadline: Duration::from_secs(60),
            guest_deadline: Duration::from_secs(120),
            cancel: None,
        }
    }
}

impl Options<'_> {
    fn deadline_of(&self, action: &Action) -> Duration {
        match action {
            Action::StartGuest { .. } | Action::StopGuest { .. } => self.guest_deadline,
            _ => self.deadline,
        }
    }

    fn cancelled(&self) -> bool {
        self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// What a run does about a step that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Stops and takes back what was done.
    #[default]
    Apply,
    /// Goes on, and says at the end what is left; what is gone already counts as done.
    TearDown,
}

/// Told what happens, as it happens.
pub trait Observer {
    /// A step is about to be carried out. Independent steps may start together.
    fn started(&mut self, _step: &Step) {}
    /// A step came out so.
    fn finished(&mut self, _step: &Step, _report: &StepReport) {}
    /// Taking back `steps` steps begins, because of `why`.
    fn rolling_back(&mut self, _steps: usize, _why: &str) {}
    /// A step was taken back, or could not be.
    fn undone(&mut self, _step: &Step, _error: Option<&str>) {}
}

/// Nobody watches.
impl Observer for () {}

/// What came of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Which step.
    pub step: StepId,
    /// What it did, in words.
    pub action: String,
    /// How it came out.
    pub outcome: Ending,
    /// Why, unless it is done.
    pub detail: Option<String>,
    /// Whether the model says that it may be unsupported.
    pub best_effort: bool,
    /// How long it took, its read-back included; steps carried out side by side each count their whole batch.
    pub seconds: f64,
}

/// A plan that was carried out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// Every step, in order.
    pub steps: Vec<StepReport>,
    /// How long it all took.
    pub seconds: f64,
}

impl Applied {
    /// The steps that the driver or device cannot do.
    pub fn unsupported(&self) -> impl Iterator<Item = &StepReport> {
        self.steps
            .iter()
            .filter(|step| step.outcome == Ending::Unsupported)
    }
}

/// Why a step failed.
#[derive(Debug, Error)]
pub enum StepError {
    /// It could not be carried out.
    #[error(transparent)]
    Carry(#[from] CarryError),
    /// It was carried out, but its postcondition did not come true.
    #[error("it was carried out, but after {} s it is not so that {fact}: {seen}", after.as_secs_f32())]
    NotSo {
        /// The postcondition.
        fact: String,
        /// What is so instead.
        seen: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The journal could not be kept, so nothing was written.
    #[error("it was not begun, because it could not be recorded")]
    Journal(#[from] JournalError),
    /// The user asked to stop.
    #[error("cancelled")]
    Cancelled,
}

/// A step that failed in a tear-down.
#[derive(Debug)]
pub struct Failure {
    /// Which.
    pub step: StepId,
    /// What it does, in words.
    pub action: String,
    /// Why it failed.
    pub error: StepError,
}

/// Why a plan was not carried out.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// No carrier knows a step's action. Nothing was written.
    #[error("step {step} cannot be carried out here: {action}")]
    NotCarried {
        /// Which step.
        step: StepId,
        /// Its action, in words.
        action: String,
    },
    /// No carrier can look a step's postcondition up. Nothing was written.
    #[error("step {step} could not be proven here: {fact}")]
    NotObserved {
        /// Which step.
        step: StepId,
        /// Its postcondition, in words.
        fact: String,
    },
    /// The journal could not be begun. Nothing was written.
    #[error("nothing was changed, because it could not be recorded")]
    Journal(#[source] JournalError),
    /// A step failed; the steps before it were taken back.
    #[error("step {step} failed ({action}); {}", told(undone.len(), not_undone))]
    RolledBack {
        /// Which step.
        step: StepId,
        /// What it does, in words.
        action: String,
        /// Why it failed.
        #[source]
        source: StepError,
        /// The steps that were taken back, in the order in which they were.
        undone: Vec<StepId>,
        /// Those that could not be: the machine is not as it was.
        not_undone: Vec<NotUndone>,
    },
    /// The user asked to stop; the steps before that were taken back.
    #[error("cancelled at step {step}; {}", told(undone.len(), not_undone))]
    Cancelled {
        /// The step that was being carried out, or would have been next.
        step: StepId,
        /// The steps that were taken back, in the order in which they were.
        undone: Vec<StepId>,
        /// Those that could not be: the machine is not as it was.
        not_undone: Vec<NotUndone>,
    },
    /// A tear-down did all it could, and something is left.
    #[error("{} of {} steps of the tear-down failed{}", failures.len(), applied.steps.len(), listed(failures))]
    Incomplete {
        /// What failed.
        failures: Vec<Failure>,
        /// Everything that was attempted.
        applied: Applied,
    },
}

fn told(undone: usize, not_undone: &[NotUndone]) -> String {
    let mut text = match undone {
        0 if not_undone.is_empty() => "nothing had to be taken back".to_owned(),
        1 => "1 step was taken back".to_owned(),
        many => format!("{many} steps were taken back"),
    };
    for left in not_undone {
        text += &format!(
            "\n  not taken back: step {}, {}: {}",
            left.step, left.action, left.error
        );
    }
    text
}

fn listed(failures: &[Failure]) -> String {
    failures
        .iter()
        .map(|failure| {
            format!(
                "\n  step {}, {}: {}",
                failure.step,
                failure.action,
                chain(&failure.error)
            )
        })
        .collect()
}

/// An error and its sources on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text += ": ";
        text += &source.to_string();
        next = source.source();
    }
    text
}

/// Carries `plan` out with the first of `carriers` that knows each step.
///
/// First every step is checked to have a carrier for its action and its postcondition; only then is anything written.
/// Each step is recorded in `journal` before it is begun, and counts as done only when its postcondition was read back.
/// A setting that the driver cannot do (an attribute, the switch mode, a reset) is noted and passed over; anything else
/// that fails ends the run, and what was done is taken back in reverse order ([`Mode::Apply`]), or is listed at the end
/// ([`Mode::TearDown`]).
///
/// # Errors
///
/// See [`ApplyError`].
pub fn run(
    plan: &Plan,
    carriers: &mut [&mut dyn Carry],
    journal: &mut dyn Journal,
    observer: &mut dyn Observer,
    options: &Options<'_>,
) -> Result<Applied, ApplyError> {
    let began = Instant::now();
    let carried_by = assign(plan, carriers)?;
    let begin = Entry::Begin {
        version: JOURNAL_VERSION,
        steps: plan.steps.len(),
    };
    journal.record(&[begin], true).map_err(ApplyError::Journal)?;

    let mut run = Run {
        carriers,
        journal,
        observer,
        options,
    };
    let mut applied = Applied::default();
    let mut failures = Vec::new();
    let mut begun: Vec<&Step> = Vec::new();
    let mut next = 0;
    while next < plan.steps.len() {
        if options.cancelled() {
            let step = plan.steps[next].id;
            let (undone, not_undone) = run.roll_back(&begun, "cancelled");
            return Err(ApplyError::Cancelled {
                step,
                undone,
                not_undone,
            });
        }
        let batch = batch(&plan.steps[next..], &carried_by[next..]);
        let outcomes = run.carry_batch(batch, carried_by[next]);
        let mut failed: Option<(&Step, StepError)> = None;
        for (
            step,
            Tried {
                outcome,
                touched,
                took,
            },
        ) in batch.iter().zip(outcomes)
        {
            let report = report(step, &outcome, took);
            let entry = Entry::Outcome {
                step: step.id,
                outcome: report.outcome,
                detail: report.detail.clone(),
            };
            // The intent is on disk, which is what safety needs; the next intent tells whether the disk is full.
            let _ = run.journal.record(&[entry], false);
            run.observer.finished(step, &report);
            if touched {
                begun.push(step);
            }
            if let (Ending::Failed, Err(error)) = (report.outcome, outcome) {
                match options.mode {
                    Mode::Apply => failed = failed.or(Some((step, error))),
                    Mode::TearDown => failures.push(Failure {
                        step: step.id,
                        action: step.action.to_string(),
                        error,
                    }),
                }
            }
            applied.steps.push(report);
        }
        if let Some((step, source)) = failed {
            // A command that was ended by Ctrl-C failed for that reason and no other.
            let cancelled = options.cancelled() || matches!(source, StepError::Cancelled);
            let why = if cancelled {
                "cancelled".to_owned()
            } else {
                chain(&source)
            };
            let (undone, not_undone) = run.roll_back(&begun, &why);
            if cancelled {
                return Err(ApplyError::Cancelled {
                    step: step.id,
                    undone,
                    not_undone,
                });
            }
            return Err(ApplyError::RolledBack {
                step: step.id,
                action: step.action.to_string(),
                source,
                undone,
                not_undone,
            });
        }
        next += batch.len();
    }

    let end = Entry::End {
        applied: failures.is_empty(),
    };
    // Everything that the plan wants is so and was read back; a full disk does not unmake that.
    let _ = run.journal.record(&[end], true);
    applied.seconds = began.elapsed().as_secs_f64();
    if failures.is_empty() {
        Ok(applied)
    } else {
        Err(ApplyError::Incomplete { failures, applied })
    }
}

/// Which carrier carries each step, after making sure that there is one for its action, its postcondition and its
/// inverse.
fn assign(plan: &Plan, carriers: &[&mut dyn Carry]) -> Result<Vec<usize>, ApplyError> {
    let carrier_of = |action: &Action| carriers.iter().position(|carrier| carrier.carries(action));
    plan.steps
        .iter()
        .map(|step| {
            if !carriers
                .iter()
                .any(|carrier| carrier.observes(&step.postcondition))
            {
                return Err(ApplyError::NotObserved {
                    step: step.id,
                    fact: step.postcondition.to_string(),
                });
            }
            let not_carried = |action: &Action| ApplyError::NotCarried {
                step: step.id,
                action: action.to_string(),
            };
            if let Some(inverse) = &step.inverse {
                carrier_of(inverse).ok_or_else(|| not_carried(inverse))?;
            }
            carrier_of(&step.action).ok_or_else(|| not_carried(&step.action))
        })
        .collect()
}

/// The steps from the first on that one carrier can do without regard to their order.
fn batch<'a>(steps: &'a [Step], carried_by: &[usize]) -> &'a [Step] {
    let first = carried_by.first();
    let alike =
        |step: &Step| std::mem::discriminant(&step.action) == std::mem::discriminant(&steps[0].action);
    let length = (0..steps.len().min(BATCH))
        .take_while(|n| {
            carried_by.get(*n) == first
                && alike(&steps[*n])
                && !steps[..*n]
                    .iter()
                    .any(|earlier| steps[*n].needs.contains(&earlier.id))
        })
        .count();
    &steps[..length]
}

fn report(step: &Step, outcome: &Result<(), StepError>, took: Duration) -> StepReport {
    let (outcome, detail) = match outcome {
        Ok(()) => (Ending::Done, None),
        Err(StepError::Carry(CarryError::Unsupported(why)))
            if step.best_effort || is_setting(&step.action) =>
        {
            (Ending::Unsupported, Some(why.clone()))
        }
        Err(error) => (Ending::Failed, Some(chain(error))),
    };
    StepReport {
        step: step.id,
        action: step.action.to_string(),
        outcome,
        detail,
        best_effort: step.best_effort,
        seconds: took.as_secs_f64(),
    }
}

/// Whether the rest of a plan makes sense without this action. Everything else carries later steps: VFs that do not
/// exist cannot be bound, and a guest that does not start has nothing to verify.
fn is_setting(action: &Action) -> bool {
    match action {
        Action::SetAutoprobe { .. }
        | Action::SetVfAttribute { .. }
        | Action::SetMac { .. }
        | Action::SetMtu { .. }
        | Action::SetSwitchMode { .. }
        | Action::ResetFunction { .. } => true,
        Action::SetVfCount { .. }
        | Action::SetDriver { .. }
        | Action::Rename { .. }
        | Action::SetLink { .. }
        | Action::AddAddress { .. }
        | Action::RemoveAddress { .. }
        | Action::DefineGuest(_)
        | Action::UndefineGuest { .. }
        | Action::StartGuest { .. }
        | Action::StopGuest { .. } => false,
    }
}

/// What came of carrying one step.
struct Tried {
    outcome: Result<(), StepError>,
    /// Whether the machine may be different for it.
    touched: bool,
    took: Duration,
}

struct Run<'a, 'c> {
    carriers: &'a mut [&'c mut dyn Carry],
    journal: &'a mut dyn Journal,
    observer: &'a mut dyn Observer,
    options: &'a Options<'a>,
}

impl Run<'_, '_> {
    /// Records, carries out and reads back some independent steps. One answer for each, up to the first that failed
    /// ([`Mode::Apply`]) or for all ([`Mode::TearDown`]).
    fn carry_batch(&mut self, steps: &[Step], carrier: usize) -> Vec<Tried> {
        let began = Instant::now();
        let intents: Vec<Entry> = steps
            .iter()
            .map(|step| Entry::Intent {
                step: step.id,
                action: step.action.clone(),
                inverse: step.inverse.clone(),
            })
            .collect();
        if let Err(error) = self.journal.record(&intents, true) {
            if self.options.mode == Mode::Apply {
                return vec![Tried {
                    outcome: Err(error.into()),
                    touched: false,
                    took: began.elapsed(),
                }];
            }
            // Giving functions back needs no way back: a full disk must not hold them.
        }
        for step in steps {
            self.observer.started(step);
        }
        let actions: Vec<&Action> = steps.iter().map(|step| &step.action).collect();
        let deadline = self.options.deadline_of(actions[0]);
        let mut answers = self.carriers[carrier].carry_all(&actions, deadline);
        while self.options.mode == Mode::TearDown && answers.len() < actions.len() {
            let rest = self.carriers[carrier].carry_all(&actions[answers.len()..], deadline);
            if rest.is_empty() {
                break;
            }
            answers.extend(rest);
        }
        let mut stopped = false;
        steps
            .iter()
            .zip(answers)
            .map(|(step, answer)| {
                let touched = !matches!(answer, Err(CarryError::Unsupported(_)));
                let outcome = match answer {
                    // Once one failed the others need no proof: they are taken back.
                    Ok(()) if stopped => Ok(()),
                    Ok(()) => self.prove(
                        &step.postcondition,
                        deadline.saturating_sub(began.elapsed()),
                        self.options.cancel,
                    ),
                    Err(error) => Err(StepError::Carry(error)),
                };
                let outcome = match outcome {
                    Err(_) if self.options.mode == Mode::TearDown && self.already(&step.postcondition) => {
                        Ok(())
                    }
                    outcome => outcome,
                };
                stopped |= self.options.mode == Mode::Apply
                    && report(step, &outcome, Duration::ZERO).outcome == Ending::Failed;
                Tried {
                    outcome,
                    touched,
                    took: began.elapsed(),
                }
            })
            .collect()
    }

    /// Reads a fact until it holds, within `patience`.
    fn prove(
        &mut self,
        fact: &Fact,
        patience: Duration,
        cancel: Option<&AtomicBool>,
    ) -> Result<(), StepError> {
        let began = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let late = began.elapsed() >= patience;
            let seen = match self.look(fact) {
                None => "nothing here can look it up".to_owned(),
                Some(Ok(Ok(()))) => return Ok(()),
                Some(Ok(Err(seen))) => seen,
                Some(Err(error @ CarryError::Unsupported(_))) => return Err(error.into()),
                Some(Err(error)) if late => return Err(error.into()),
                Some(Err(error)) => chain(&error),
            };
            if late {
                return Err(StepError::NotSo {
                    fact: fact.to_string(),
                    seen,
                    after: began.elapsed(),
                });
            }
            if cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                return Err(StepError::Cancelled);
            }
            thread::sleep(pause.min(patience.saturating_sub(began.elapsed())));
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// What the first carrier that can look a fact up says; `None` when there is none.
    fn look(&mut self, fact: &Fact) -> Option<Result<Result<(), String>, CarryError>> {
        self.carriers
            .iter_mut()
            .find(|carrier| carrier.observes(fact))
            .map(|carrier| carrier.holds(fact))
    }

    fn already(&mut self, fact: &Fact) -> bool {
        matches!(self.look(fact), Some(Ok(Ok(()))))
    }
}

#[cfg(test)]
mod tests;
