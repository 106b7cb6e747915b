//! Takes a plan's steps in order, proves each, and takes them back when one fails.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use penstock_host::chain;
use penstock_model::{Bdf, VfIndex};
use penstock_plan::{
    Action, ActionTimeLimit, ExecuteError, Executors, Fact, FunctionAction, Plan, Step, StepId,
    action::{GUEST_LIMIT, STEP_LIMIT},
};
use serde::{Deserialize, Serialize};

use crate::{
    journal::{Ending, Entry, JOURNAL_VERSION, Journal, JournalError},
    others,
};

mod error;
mod losses;
mod undo;
mod unmade;

use losses::{Fallen, Losses};
use unmade::Unmade;

pub use error::{ApplyError, Failure, GuestFailure, StepError};
pub use undo::NotUndone;

/// At most so many steps are carried out side by side, and have one chance to cancel between them.
const BATCH: usize = 256;

/// At most so many functions are bound together: no network plugin gets one of them before all are bound.
const BOUND_AT_ONCE: usize = 64;

/// What a driver is said to do that takes a value and then reports another; what it reports follows.
pub const IGNORED: &str = "the driver took it and ignored it: ";

/// How long a driver may take until it reports an attribute as it was set: they set it before they answer.
const KEEPING: Duration = Duration::from_secs(5);

/// So many steps are announced in the journal with one sync. An announced step that was not begun does no harm: its
/// inverse sets what is so already.
const ANNOUNCED_AT_ONCE: usize = 256;

/// How a run behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// To make, or to tear down.
    pub mode: Mode,
    /// How long one step of the host may take, its read-back included. Default: [`STEP_LIMIT`].
    pub deadline: Duration,
    /// How long starting or stopping one guest may take. Default: [`GUEST_LIMIT`].
    pub guest_deadline: Duration,
    /// Set from outside (Ctrl-C) when the run is to stop; looked at between steps and while waiting.
    pub cancel: Option<&'a AtomicBool>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options { mode: Mode::Apply, deadline: STEP_LIMIT, guest_deadline: GUEST_LIMIT, cancel: None }
    }
}

impl Options<'_> {
    fn deadline_of(&self, action: &Action) -> Duration {
        match action.time_limit() {
            ActionTimeLimit::Step => self.deadline,
            ActionTimeLimit::Guest => self.guest_deadline,
            // A wait ends by itself; what is more is for telling so.
            ActionTimeLimit::Wait(within) => Duration::from_secs(u64::from(within) + 5),
        }
    }

    /// How long a run of `plan` that does not hang is without a new entry in its journal: generous, since steps that are carried
    /// out together are told of together.
    pub fn longest_silence(&self, plan: &Plan) -> Duration {
        let actions = plan.steps.iter().flat_map(|step| [Some(&step.action), step.inverse.as_ref()]);
        let longest = actions.flatten().map(|action| self.deadline_of(action)).max();
        2 * longest.unwrap_or(self.deadline) + Duration::from_secs(60)
    }

    fn cancelled(&self) -> bool {
        self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// What a run does about a step that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Stops and takes back what was done; when it is a step of a guest ([`Step::guest`]) only what was done for that
    /// guest, and goes on with what does not need it.
    #[default]
    Apply,
    /// Goes on, and says at the end what is left; what is gone already counts as done.
    TearDown,
    /// Takes an earlier run back. Each step is looked at first, and is done when what it is to make so is so already.
    /// With one that fails, those that need it are left out; the rest goes on.
    Undo,
}

/// Told what happens, as it happens.
pub trait RunProgress {
    /// A step is about to be carried out. Independent steps may start together.
    fn started(&mut self, _step: &Step) {}
    /// A step came out so.
    fn finished(&mut self, _step: &Step, _report: &StepReport) {}
    /// Taking back `steps` steps begins, because of `why`.
    fn rolling_back(&mut self, _steps: usize, _why: &str) {}
    /// A step was taken back, or could not be.
    fn undone(&mut self, _step: &Step, _error: Option<&str>) {}
}

/// Ignores all that it is told, for runs that nobody watches.
impl RunProgress for () {}

/// What came of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepReport {
    /// The step that ended so.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Applied {
    /// Every step, in order.
    pub steps: Vec<StepReport>,
    /// How long it all took.
    pub seconds: f64,
}

impl Applied {
    /// The steps that the driver or device cannot do.
    pub fn unsupported(&self) -> impl Iterator<Item = &StepReport> {
        self.steps.iter().filter(|step| step.outcome == Ending::Unsupported)
    }
}

/// Carries `plan` out: each step by that of `executors` which its group belongs to.
///
/// First every step is checked to have an executor for its action and its postcondition; only then is anything written.
/// Each step is recorded in `journal` before it is begun, and counts as done only when its postcondition was read back.
/// A setting that the driver cannot do (an attribute, the switch mode, a reset) is noted and passed over; anything else
/// that fails ends the run, and what was done is taken back in reverse order ([`Mode::Apply`]), or is listed at the end
/// ([`Mode::TearDown`], [`Mode::Undo`]). A guest fails alone: with a failed step of its own, what was begun for it is taken back at once,
/// what needs it is left out, and the rest goes on.
///
/// # Errors
///
/// See [`ApplyError`].
pub fn run(
    plan: &Plan,
    executors: &mut Executors<'_>,
    journal: &mut dyn Journal,
    observer: &mut dyn RunProgress,
    options: &Options<'_>,
) -> Result<Applied, ApplyError> {
    let began = Instant::now();
    all_carried(plan, executors)?;
    let begin = Entry::Begin { version: JOURNAL_VERSION, steps: plan.steps.len() };
    // Giving back needs no way back, so a full disk does not hold it.
    if let (Err(error), Mode::Apply) = (journal.record(&[begin], true), options.mode) {
        return Err(ApplyError::Journal(error));
    }

    let (proven, unmade) = (BTreeSet::new(), Unmade::of(plan));
    let mut run = Run { executors, journal, observer, options, proven, unmade };
    let mut applied = Applied::default();
    let mut failures = Vec::new();
    let mut losses = Losses::default();
    let mut begun: Vec<&Step> = Vec::new();
    let (mut next, mut announced) = (0, 0);
    while next < plan.steps.len() {
        if options.cancelled() {
            return Err(run.cancelled(plan.steps[next].id, &begun));
        }
        if let Some(why) = losses.left_out(plan.steps[next].id) {
            applied.steps.push(run.leave_out(&plan.steps[next], why));
            if options.mode == Mode::Undo {
                run.unmade.note(plan.steps[next].id, &plan.steps[next].action);
            }
            next += 1;
            continue;
        }
        if options.mode == Mode::Undo
            && let Some(why) = run.awaits_vfs(&plan.steps[next].action)
        {
            losses.leave_out(&plan.steps[next], why, plan, next + 1);
            continue;
        }
        let is_left = |step: &Step| losses.left_out(step.id).is_none();
        if next >= announced {
            announced = plan.steps.len().min(next + ANNOUNCED_AT_ONCE);
            let window = plan.steps[next..announced].iter().filter(|step| is_left(step));
            // Giving functions back needs no way back, so a full disk does not hold them.
            if let (Err(error), Mode::Apply) = (run.announce(window), options.mode) {
                return Err(run.failed(&plan.steps[next], error.into(), &begun));
            }
        }
        if options.mode == Mode::Undo && run.passes_over(&plan.steps[next]) {
            applied.steps.push(run.pass_over(&plan.steps[next]));
            next += 1;
            continue;
        }
        let reach = next + plan.steps[next..announced].iter().take_while(|step| is_left(step)).count();
        let (batch, outcomes) = match run.changed_since_planned(&plan.steps[next]) {
            Some(error) => (&plan.steps[next..=next], vec![Tried::not_begun(error)]),
            None => {
                let is_vf = |function| run.executors.pf_of(function).is_some();
                let batch = batch(&plan.steps[next..reach], is_vf);
                let batch = run.not_yet(batch);
                let begin = Entry::Begun { steps: batch.iter().map(|step| step.id).collect() };
                if let (Err(error), Mode::Apply) = (run.journal.record(&[begin], false), options.mode) {
                    return Err(run.failed(&plan.steps[next], error.into(), &begun));
                }
                (batch, run.carry_batch(batch))
            }
        };
        // The others of the batch were not attempted, because one before them failed.
        let attempted = outcomes.len();
        next += attempted;
        let mut failed: Option<(&Step, StepError)> = None;
        let mut fallen: Vec<Fallen<'_>> = Vec::new();
        for (step, Tried { outcome, touched, refused, proven, took }) in batch.iter().zip(outcomes) {
            let report = report(step, &outcome, took);
            let mut entries = Vec::new();
            // What was carried out and nobody has proven is begun, and no more is known of it.
            if proven || outcome.is_err() {
                let detail = report.detail.clone();
                entries.push(Entry::Outcome { step: step.id, outcome: report.outcome, detail });
            }
            if options.mode == Mode::Apply && refused {
                // Nothing of it is there for a later undo either.
                entries.push(Entry::Undone { step: step.id, error: None, anothers: None });
            }
            // The intent is on disk, which is what safety needs; the next intent tells whether the disk is full.
            let _ = run.journal.record(&entries, false);
            if proven {
                run.proven.insert(step.id);
            }
            run.observer.finished(step, &report);
            if touched {
                begun.push(step);
            }
            if let (Ending::Failed, Err(error)) = (report.outcome, outcome) {
                match (options.mode, &step.guest) {
                    (Mode::Apply, Some(guest)) => fallen.push(Fallen { step, guest, source: error }),
                    (Mode::Apply, None) => failed = failed.or(Some((step, error))),
                    (Mode::TearDown | Mode::Undo, _) => {
                        failures.push(Failure { step: step.id, action: step.action.to_string(), error });
                        if options.mode == Mode::Undo {
                            losses.hold_up(step, plan, next);
                            run.unmade.note(step.id, &step.action);
                        }
                    }
                }
            }
            applied.steps.push(report);
        }
        if options.mode == Mode::Apply {
            run.not_attempted(&batch[attempted.min(batch.len())..]);
        }
        if let Some((step, source)) = failed {
            return Err(run.failed(step, source, &begun));
        }
        for fallen in fallen {
            // A command that was ended by Ctrl-C failed for that reason and no other.
            if options.cancelled() || matches!(fallen.source, StepError::Cancelled) {
                return Err(run.cancelled(fallen.step.id, &begun));
            }
            run.lose(plan, fallen, next, &mut begun, &mut losses);
        }
    }

    if let (Mode::Apply, Some((step, lost))) = (options.mode, run.lost_since(plan, &begun)) {
        return Err(run.failed(step, lost, &begun));
    }
    let end = Entry::End { applied: failures.is_empty() && losses.failures.is_empty() };
    // Everything that the plan wants is so and was read back; a full disk does not unmake that.
    let _ = run.journal.record(&[end], true);
    applied.seconds = began.elapsed().as_secs_f64();
    if !losses.failures.is_empty() {
        let left_out = losses.guests_left_out(plan);
        let (failures, not_undone) = losses.conclude();
        return Err(ApplyError::GuestsFailed { failures, left_out, not_undone, applied });
    }
    if failures.is_empty() { Ok(applied) } else { Err(ApplyError::Incomplete { failures, applied }) }
}

/// Makes sure that there is an executor for each step's action, its postcondition and its inverse.
fn all_carried(plan: &Plan, executors: &Executors<'_>) -> Result<(), ApplyError> {
    for step in &plan.steps {
        if !executors.observe(&step.postcondition) {
            return Err(ApplyError::NotObserved { step: step.id, fact: step.postcondition.to_string() });
        }
        let mut actions = step.inverse.iter().chain([&step.action]);
        if let Some(action) = actions.find(|action| !executors.execute_group_of(action)) {
            return Err(ApplyError::NotCarried { step: step.id, action: action.to_string() });
        }
    }
    Ok(())
}

/// The steps from the first on that one executor can do without regard to their order, where `is_vf` tells VFs from other functions.
fn batch(steps: &[Step], mut is_vf: impl FnMut(Bdf) -> bool) -> &[Step] {
    let at_most = match &steps[0].action {
        Action::Function(FunctionAction::SetDriver { .. }) => BOUND_AT_ONCE,
        _ => BATCH,
    };
    let mut alone = |step: &Step| by_itself(&step.action).is_some_and(&mut is_vf);
    let first_alone = alone(&steps[0]);
    let length = (0..steps.len().min(at_most))
        .take_while(|n| {
            if *n > 0 && (first_alone || alone(&steps[*n])) {
                return false;
            }
            steps[*n].action.is_like(&steps[0].action)
                && !steps[..*n].iter().any(|earlier| steps[*n].needs.contains(&earlier.id))
        })
        .count();
    &steps[..length]
}

/// The function of an action that executors do one after the other: one to a VF is proven before the next one is begun, since network plugins do
/// not get the VF before that.
fn by_itself(action: &Action) -> Option<Bdf> {
    match action {
        Action::Function(FunctionAction::ResetFunction { function }) => Some(*function),
        Action::Function(action) => action.changes_interface_of(),
        _ => None,
    }
}

/// The function, or the VF of a PF, that an action is done to.
fn done_to(action: &Action) -> Option<(Bdf, Option<VfIndex>)> {
    match action {
        Action::Function(FunctionAction::SetVfAttribute { pf, vf, .. }) => Some((*pf, Some(*vf))),
        Action::Function(action) => Some((action.function()?, None)),
        _ => None,
    }
}

fn report(step: &Step, outcome: &Result<(), StepError>, took: Duration) -> StepReport {
    let (outcome, detail) = match outcome {
        Ok(()) => (Ending::Done, None),
        Err(StepError::Execute(ExecuteError::Unsupported(why)))
            if step.best_effort || step.action.is_setting() =>
        {
            (Ending::Unsupported, Some(why.clone()))
        }
        // A driver that a VF may do without: it is not there, or does not take the function.
        Err(error @ (StepError::Execute(_) | StepError::NotSo { .. }))
            if step.best_effort
                && matches!(
                    step.action,
                    Action::Function(FunctionAction::SetDriver { driver: Some(_), .. })
                ) =>
        {
            (Ending::Unsupported, Some(chain(error)))
        }
        Err(StepError::NotSo { seen, .. })
            if step.best_effort
                && matches!(step.action, Action::Function(FunctionAction::SetVfAttribute { .. })) =>
        {
            (Ending::Unsupported, Some(format!("{IGNORED}{seen}")))
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

/// What came of carrying one step.
struct Tried {
    outcome: Result<(), StepError>,
    /// Whether the machine may be different for it, so that the run's own way back has something to do.
    touched: bool,
    /// Whether it is sure that the machine is not: nobody began it, or it was refused before anything was changed.
    refused: bool,
    /// Whether its postcondition was seen to be so.
    proven: bool,
    took: Duration,
}

impl Tried {
    /// One that was not even begun.
    fn not_begun(why: StepError) -> Tried {
        Tried { outcome: Err(why), touched: false, refused: true, proven: false, took: Duration::ZERO }
    }
}

struct Run<'a, 'c> {
    executors: &'a mut Executors<'c>,
    journal: &'a mut dyn Journal,
    observer: &'a mut dyn RunProgress,
    options: &'a Options<'a>,
    /// The steps whose postconditions were seen to be so.
    proven: BTreeSet<StepId>,
    /// What did not come back of VFs.
    unmade: Unmade,
}

impl Run<'_, '_> {
    /// Records that steps are about to be carried out.
    fn announce<'s>(&mut self, steps: impl Iterator<Item = &'s Step>) -> Result<(), JournalError> {
        let intents: Vec<Entry> = steps
            .map(|step| Entry::Intent {
                step: step.id,
                action: step.action.clone(),
                inverse: step.inverse.clone(),
            })
            .collect();
        self.journal.record(&intents, true)
    }

    /// Records that steps which were begun together with one that failed were not attempted after all.
    fn not_attempted(&mut self, steps: &[Step]) {
        let left = |step: &Step| Entry::Outcome {
            step: step.id,
            outcome: Ending::LeftOut,
            detail: Some("not attempted, because a step before it failed".to_owned()),
        };
        let entries: Vec<Entry> = steps.iter().map(left).collect();
        if !entries.is_empty() {
            let _ = self.journal.record(&entries, false);
        }
    }

    /// Takes `begun` back because `step` failed.
    fn failed(&mut self, step: &Step, source: StepError, begun: &[&Step]) -> ApplyError {
        // A command that was ended by Ctrl-C failed for that reason and no other.
        if self.options.cancelled() || matches!(source, StepError::Cancelled) {
            return self.cancelled(step.id, begun);
        }
        let (undone, not_undone) = self.roll_back(begun, &chain(&source));
        ApplyError::RolledBack {
            step: step.id,
            action: step.action.to_string(),
            source: Box::new(source),
            undone,
            not_undone,
        }
    }

    /// Takes `begun` back because the user asked to stop; what was torn down stays so.
    fn cancelled(&mut self, step: StepId, begun: &[&Step]) -> ApplyError {
        let (undone, not_undone) = match self.options.mode {
            Mode::Apply => self.roll_back(begun, "cancelled"),
            Mode::TearDown | Mode::Undo => (Vec::new(), Vec::new()),
        };
        ApplyError::Cancelled { step, undone, not_undone }
    }

    /// Carries out and reads back some independent steps. At least one answer; one for each up to the first that failed
    /// ([`Mode::Apply`]), and for those after it that the executor did all the same, or for all (the other modes).
    fn carry_batch(&mut self, steps: &[Step]) -> Vec<Tried> {
        let began = Instant::now();
        for step in steps {
            self.observer.started(step);
        }
        let actions: Vec<&Action> = steps.iter().map(|step| &step.action).collect();
        let longest = actions.iter().map(|action| self.options.deadline_of(action)).max();
        let deadline = longest.unwrap_or(self.options.deadline);
        let mut answers = self.executors.execute_all(&actions, deadline);
        while self.options.mode != Mode::Apply && answers.len() < actions.len() {
            let rest = self.executors.execute_all(&actions[answers.len()..], deadline);
            if rest.is_empty() {
                break;
            }
            answers.extend(rest);
        }
        if answers.is_empty() {
            let what = format!("{}: it was not attempted", actions[0]);
            answers.push(Err(ExecuteError::Failed { attempt: what, source: "no answer".into() }));
        }
        let seen = self.let_go_of_proven(steps, &answers);
        let (mut stopped, mut failed) = (false, false);
        let outcomes = steps
            .iter()
            .zip(answers)
            .map(|(step, answer)| {
                let refused = matches!(answer, Err(ExecuteError::Refused { .. }));
                let touched = !refused && !matches!(answer, Err(ExecuteError::Unsupported(_)));
                // Once one of the host's failed the others need no proof: they are taken back.
                let unproven = stopped && answer.is_ok();
                let outcome = match answer {
                    Ok(()) if stopped || seen.contains(&step.id) => Ok(()),
                    Ok(()) => {
                        let left = deadline.saturating_sub(began.elapsed());
                        let keeps =
                            matches!(step.action, Action::Function(FunctionAction::SetVfAttribute { .. }));
                        let timeout = if keeps { left.min(KEEPING) } else { left };
                        self.prove(&step.postcondition, timeout, self.options.cancel)
                    }
                    Err(error) => Err(StepError::Execute(error)),
                };
                let outcome = match outcome {
                    Err(_) if self.options.mode != Mode::Apply && self.passes_over(step) => Ok(()),
                    outcome => outcome,
                };
                let has_failed = self.options.mode == Mode::Apply
                    && report(step, &outcome, Duration::ZERO).outcome == Ending::Failed;
                failed |= has_failed;
                stopped |= has_failed && step.guest.is_none();
                let proven = outcome.is_ok() && !unproven;
                Tried { outcome, touched, refused, proven, took: began.elapsed() }
            })
            .collect();
        // What is taken back now lets go itself: nobody gets in between.
        if !failed {
            self.executors.let_go();
        }
        outcomes
    }

    /// Looks once which of the steps that were carried out are so already, and lets others have the VFs of which all steps are: one that is slow, or
    /// that its driver does not keep, keeps nobody from the others. Where a step has failed what comes next may be the way back.
    fn let_go_of_proven(&mut self, steps: &[Step], answers: &[Result<(), ExecuteError>]) -> BTreeSet<StepId> {
        let carried: Vec<&Step> =
            steps.iter().zip(answers).filter(|(_, answer)| answer.is_ok()).map(|(step, _)| step).collect();
        let alone = steps.len() == 1;
        let mut seen = BTreeSet::new();
        let mut lacking = BTreeSet::new();
        for step in &carried {
            let about = done_to(&step.action);
            let is_so = self.executors.has_seen(&step.postcondition)
                || (!alone && about.is_some() && self.already(&step.postcondition));
            if is_so {
                seen.insert(step.id);
            } else {
                lacking.insert(about);
            }
        }
        if carried.len() == steps.len() || self.options.mode != Mode::Apply {
            for step in carried.iter().filter(|step| !lacking.contains(&done_to(&step.action))) {
                self.executors.let_go_of(&step.action);
            }
        }
        seen
    }

    /// Reads a fact until it holds, within `timeout`.
    fn prove(
        &mut self,
        fact: &Fact,
        timeout: Duration,
        cancel: Option<&AtomicBool>,
    ) -> Result<(), StepError> {
        let began = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let late = began.elapsed() >= timeout;
            let seen = match self.look(fact) {
                None => "nothing here can look it up".to_owned(),
                Some(Ok(Ok(()))) => return Ok(()),
                Some(Ok(Err(seen))) => seen,
                Some(Err(error @ ExecuteError::Unsupported(_))) => return Err(error.into()),
                Some(Err(error)) if late => return Err(error.into()),
                Some(Err(error)) => chain(&error),
            };
            if late {
                return Err(StepError::NotSo { fact: fact.to_string(), seen, after: began.elapsed() });
            }
            if cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                return Err(StepError::Cancelled);
            }
            thread::sleep(pause.min(timeout.saturating_sub(began.elapsed())));
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// What the executor that can look a fact up says; `None` when there is none.
    fn look(&mut self, fact: &Fact) -> Option<Result<Result<(), String>, ExecuteError>> {
        self.executors.holds(fact)
    }

    /// Those of a batch up to the first that is not to be carried out: an undo finds that it is so already, or somebody has
    /// changed what it was planned for.
    fn not_yet<'s>(&mut self, batch: &'s [Step]) -> &'s [Step] {
        // The first is looked at by itself.
        let other = batch.iter().skip(1).position(|step| {
            self.options.mode == Mode::Undo
                && (self.passes_over(step) || self.awaits_vfs(&step.action).is_some())
                || self.changed_since_planned(step).is_some()
        });
        &batch[..other.map_or(batch.len(), |at| at + 1)]
    }

    /// That somebody has changed what a step is to change since that was planned, a number of VFs or a file: VFs that are there now, be
    /// they as many as wanted, are not this run's to set up and to remove.
    fn changed_since_planned(&mut self, step: &Step) -> Option<StepError> {
        let inverse = step.inverse.as_ref().filter(|_| self.options.mode != Mode::TearDown)?;
        let lost = |seen| StepError::Lost { fact: Fact::after(inverse).to_string(), seen };
        let (Some((pf, to)), Some((_, from))) = (others::vf_count(&step.action), others::vf_count(inverse))
        else {
            return self.edited(step).map(lost);
        };
        let now = self.executors.vf_count(pf)?;
        let changed = match self.options.mode {
            // What is taken back may have come about in part.
            Mode::Undo => others::are_anothers(now, from, to, false),
            _ => now != from,
        };
        changed.then(|| lost(others::seen(now)))
    }

    /// Records a step as done of which it was seen that it is so already.
    fn pass_over(&mut self, step: &Step) -> StepReport {
        let report = report(step, &Ok(()), Duration::ZERO);
        let entry = Entry::Outcome { step: step.id, outcome: report.outcome, detail: None };
        let _ = self.journal.record(&[entry], false);
        self.observer.finished(step, &report);
        report
    }

    /// A step that made VFs which are not there any more, although it was seen that they were: a driver that is reloaded while
    /// other steps are carried out takes them along, with all that was set of them.
    fn lost_since<'s>(&mut self, plan: &Plan, begun: &[&'s Step]) -> Option<(&'s Step, StepError)> {
        let makes = |step: &Step| match step.action {
            Action::Function(FunctionAction::SetVfCount { pf, .. }) => Some(pf),
            _ => None,
        };
        for step in begun {
            let Some(pf) = makes(step) else { continue };
            if plan.steps.iter().any(|later| later.id > step.id && makes(later) == Some(pf)) {
                continue;
            }
            if let Some(Ok(Err(seen))) = self.look(&step.postcondition) {
                return Some((step, StepError::Lost { fact: step.postcondition.to_string(), seen }));
            }
        }
        None
    }

    /// Whether a step that gives something back needs not be carried out.
    fn passes_over(&mut self, step: &Step) -> bool {
        self.already(&step.postcondition) || self.is_gone(&step.action)
    }

    /// Whether what an action is done to has left the machine, and is not to come back on this way.
    fn is_gone(&mut self, action: &Action) -> bool {
        self.executors.is_gone(action) && self.awaits_vfs(action).is_none()
    }

    fn already(&mut self, fact: &Fact) -> bool {
        matches!(self.look(fact), Some(Ok(Ok(()))))
    }
}

#[cfg(test)]
mod tests;
