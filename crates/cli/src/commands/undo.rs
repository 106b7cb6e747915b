//! `penstock undo [RUN]`: takes an earlier run back.

use std::time::{Duration, UNIX_EPOCH};

use penstock_apply::{
    Mode,
    history::{
        Confirmation, Decision, KnownRun, Phase, Purpose, RunId, Runs, Undecided, decision, recovery,
        recovery::{Kept, RunToUndo},
        store::{AppliedRun, StoreError, UnreadableRun},
        succession::has_gone_on_from,
    },
    journal::CatchUpJournal,
};
use penstock_host::chain;
use penstock_plan::in_use;
use serde::Serialize;

use crate::{
    arguments,
    commands::apply::{self, Carried},
    dangers,
    failure::{Failure, OrBadInput, Status},
    runtime::{
        machine::{Machine, MachineLock, runs::who},
        progress,
    },
    settings::Settings,
    ui::printer::Printer,
};

/// The runs that changed this machine.
#[derive(Serialize, schemars::JsonSchema)]
pub struct ListOfRuns {
    /// The runs, oldest first.
    runs: Vec<Listed>,
    /// Runs of which nothing can be read any more, oldest first: whether they left anything nobody knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<Unreadable>,
}

/// A run of which not even that can be read who did it and what for.
#[derive(Serialize, schemars::JsonSchema)]
pub struct Unreadable {
    /// The number of the run.
    run: RunId,
    /// Why: the error and its causes.
    damage: String,
}

impl Unreadable {
    /// Says so to a person, with what it means for them.
    pub fn tell(run: &UnreadableRun, printer: &mut Printer) -> Unreadable {
        let UnreadableRun { id, error } = run;
        let damage = chain(error);
        printer.warn(format!(
            "run {id} cannot be read, and cannot be undone: what it left, if anything, is not known: {damage}"
        ));
        Unreadable { run: *id, damage }
    }
}

/// A run in the list.
#[derive(Serialize, schemars::JsonSchema)]
struct Listed {
    /// The number of the run.
    run: RunId,
    /// What it was for.
    purpose: Purpose,
    /// Who started it.
    user: String,
    /// With which command.
    command: Vec<String>,
    /// In milliseconds since 1970.
    since: u64,
    /// Whether whoever does it is still at it.
    running: bool,
    /// What is left of it.
    phase: Phase,
    /// How many of its steps may still be there and can be taken back: to wait for something leaves nothing.
    standing: usize,
    /// Whether somebody has to confirm it.
    waits_for_confirmation: bool,
    /// Whether it does not stay, and not all of it is taken back yet: so it was decided, or it was cut off before anybody could confirm it.
    is_to_go: bool,
    /// What is wrong with what is kept of it, each the error and its causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damage: Vec<String>,
}

/// Takes a run back, or lists them.
///
/// # Errors
///
/// `Status::BadInput` for a run that is not there, `Status::Internal` for one that cannot be read, a danger that is not allowed,
/// another run at work, and what a step fails with.
pub fn run(
    arguments: &arguments::Undo,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let machine = Machine::here(settings);
    if arguments.list {
        return list(&machine.runs(), printer);
    }
    let alone = machine.lock()?;
    let runs = machine.runs();
    let (all, unreadable) = runs.list()?;
    if let Some(run) = unreadable.iter().find(|run| arguments.run == Some(run.id)) {
        let text = format!("run {} cannot be read: {}", run.id, chain(&run.error));
        return Err(Failure::new(Status::Internal, text)
            .hint("what it left is not known; `penstock plan` says what is not as a model wants it"));
    }
    for run in &unreadable {
        Unreadable::tell(run, printer);
    }
    let targets = match arguments.persist {
        true => standing(&runs, &all, &Purpose::Persist, printer),
        false => choose(&runs, &all, arguments.run, arguments.with_later, printer)?,
    };
    if targets.is_empty() && arguments.persist {
        printer.say("Nothing to undo: nothing is done for this machine at boot.");
        printer.document(&Carried::default())?;
        return Ok(Status::Holds);
    }
    if targets.is_empty() {
        printer.say(match arguments.run {
            Some(run) => format!("Nothing to undo: nothing of run {run} is left."),
            None => "Nothing to undo: no run has left anything on this machine.".to_owned(),
        });
        printer.document(&Carried::default())?;
        return Ok(Status::Holds);
    }
    take_back(&machine, alone, &targets, Some(&arguments.allowed.names), printer)
}

/// Takes runs back, which are given oldest first. What would be unsafe is refused unless it is `allowed`; `None` allows all.
///
/// # Errors
///
/// When the machine cannot be looked at, a danger is not allowed, the decision cannot be written, or a step fails.
pub fn take_back(
    machine: &Machine,
    mut alone: MachineLock,
    targets: &[(KnownRun, AppliedRun)],
    allowed: Option<&[String]>,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    for (run, applied_run) in targets {
        printer.doing(format!("Undoing run {}: {}", run.id(), run.record.who));
        if applied_run.state.phase == Phase::Interrupted {
            printer.say(format!(
                "Run {} was interrupted; steps whose outcome is unknown are checked.",
                run.id()
            ));
        }
        if let Some(damage) = &applied_run.state.damage {
            printer.warn(format!(
                "run {} is damaged, so that all that it was to do is looked at and taken back where it is there: {damage}",
                run.id()
            ));
        }
    }
    let taken: Vec<RunToUndo<'_>> = targets
        .iter()
        .map(|(run, applied_run)| RunToUndo {
            id: run.id(),
            plan: &applied_run.plan,
            state: &applied_run.state,
        })
        .collect();
    let inventory = machine.inventory()?;
    let way = machine.way_back(&taken, &inventory)?;
    if let Some(allowed) = allowed {
        let found = dangers::find(&way.plan, &inventory, printer);
        dangers::refuse(&found, allowed, printer)?;
    }
    alone.in_use = in_use(&way.plan, &inventory);
    for note in &way.plan.notes {
        printer.warn(note);
    }
    for Kept { run, step, action, why, .. } in &way.kept {
        printer.warn(format!("run {run}, step {step} is not taken back ({action}): {why}"));
    }
    let known: Vec<KnownRun> = targets.iter().map(|(run, _)| run.clone()).collect();
    for run in &known {
        // The room was taken for this.
        run.release()?;
    }
    for run in known.iter().filter(|run| run.is_open()) {
        let ours = Decision { verdict: Confirmation::TakenBack, who: who(), at: progress::now() };
        if let Err(error) = decision::decide(&run.directory, ours) {
            // It is still to be confirmed, and its guard may need the room.
            let _ = run.reserve();
            return Err(error.into());
        }
    }
    let begun = machine.begin_undo(alone, &known, &way);
    for said in &begun.said {
        printer.warn(said);
    }
    if way.plan.steps.is_empty() && way.kept.is_empty() {
        printer.done();
        printer.say("Nothing to do: it is already so.");
    }
    let journals = begun.taken_back.clone();
    let conducted = apply::conduct(machine, begun, way.plan, Mode::Undo, printer);
    // Once more from their journals: what matters is what stands of them now.
    let runs = machine.runs();
    let left = targets.iter().map(|(run, _)| run).rfind(|run| runs.state(run).phase != Phase::Nothing);
    let Some(left) = left else { return conducted.end(printer) };
    if let Some(Err(error)) = journals.iter().map(CatchUpJournal::catch_up).find(Result::is_err) {
        printer.warn(format!(
            "what was taken back could not be recorded, so that `undo --list` tells of it as it was before: make room, and run \
             `penstock undo` again: {}",
            chain(&error)
        ));
    }
    // For the next undo. Without room that is tried all the same.
    if left.reserve().is_err() {
        let _ = left.release();
    }
    Ok(conducted.end(printer)?.worse(Status::DoesNotHold))
}

/// The runs of this purpose of which anything stands, oldest first.
fn standing(
    runs: &Runs,
    all: &[KnownRun],
    purpose: &Purpose,
    printer: &mut Printer,
) -> Vec<(KnownRun, AppliedRun)> {
    let mut standing = Vec::new();
    for run in all.iter().filter(|run| run.record.purpose == *purpose) {
        match runs.applied_run(run) {
            Ok(applied_run) if applied_run.state.phase == Phase::Nothing => {}
            Ok(applied_run) => standing.push((run.clone(), applied_run)),
            Err(error) => printer.warn(passed_over(run.id(), &error)),
        }
    }
    standing
}

/// What a person is told of a run that cannot be taken back, while others are.
fn passed_over(run: RunId, error: &StoreError) -> String {
    format!(
        "run {run} is damaged and cannot be undone; whether it changed the same as another run is not known: {}",
        chain(error)
    )
}

/// The runs to take back, oldest first: `wanted`, or the last of which anything stands, and those that it went on from.
fn choose(
    runs: &Runs,
    all: &[KnownRun],
    wanted: Option<RunId>,
    with_later: bool,
    printer: &mut Printer,
) -> Result<Vec<(KnownRun, AppliedRun)>, Failure> {
    let mut standing: Vec<(KnownRun, AppliedRun)> = Vec::new();
    for run in all.iter().filter(|run| !matches!(run.record.purpose, Purpose::Undo(_))) {
        if wanted.is_some_and(|wanted| run.id() < wanted && !has_gone_on_from(all, wanted, run.id())) {
            continue;
        }
        match runs.applied_run(run) {
            Ok(applied_run) if applied_run.state.phase == Phase::Nothing => {}
            Ok(applied_run) => standing.push((run.clone(), applied_run)),
            Err(error) if wanted == Some(run.id()) => {
                return Err(Failure::from(error).hint(format!(
                    "run {} cannot be undone without its plan; `penstock plan` says what is not as a model wants it",
                    run.id()
                )));
            }
            // All of it is surely gone, of an undo's or a reset's doing.
            Err(_) if runs.state(run).phase == Phase::Nothing => {}
            Err(error) => printer.warn(passed_over(run.id(), &error)),
        }
    }
    let first = match wanted {
        None => match all.iter().rev().find(|run| leads_to_any(all, run.id(), &standing)) {
            None => return Ok(Vec::new()),
            Some(run) => run.id(),
        },
        Some(id) => {
            let run = runs.find(id).or_bad_input()?;
            if let Purpose::Undo(taken) = &run.record.purpose {
                let text = format!("run {id} took run {} back", taken.first().copied().unwrap_or(id));
                return Err(Failure::new(Status::BadInput, text).hint("apply the model again instead"));
            }
            id
        }
    };
    let mut chosen: Vec<RunId> = vec![first];
    let mut at = 0;
    while let Some(id) = chosen.get(at).copied() {
        at += 1;
        let of = all.iter().find(|run| run.id() == id);
        let earlier = of.into_iter().flat_map(|run| &run.record.supersedes);
        let new: Vec<RunId> = earlier.filter(|id| !chosen.contains(id)).copied().collect();
        chosen.extend(new);
        let applied_run = standing.iter().find(|(run, _)| run.id() == id).map(|(_, applied_run)| applied_run);
        let later = standing.iter().filter(|(run, _)| run.id() > id && !chosen.contains(&run.id()));
        let on_it = later.filter(|(_, later)| {
            applied_run.is_some_and(|applied_run| recovery::shares(&applied_run.plan, &later.plan))
        });
        let on_it: Vec<RunId> = on_it.map(|(run, _)| run.id()).collect();
        if let (Some(later), false) = (on_it.first(), with_later) {
            let text = format!("run {later} came after run {id} and changed the same NICs, guests or files");
            return Err(Failure::new(Status::Refused, text)
                .hint(format!("take both back, newest first: penstock undo {first} --with-later")));
        }
        chosen.extend(on_it);
    }
    standing.retain(|(run, _)| chosen.contains(&run.id()));
    Ok(standing)
}

/// Whether taking the run `id` back takes any of `standing` back.
fn leads_to_any(all: &[KnownRun], id: RunId, standing: &[(KnownRun, AppliedRun)]) -> bool {
    standing.iter().any(|(run, _)| run.id() == id || has_gone_on_from(all, id, run.id()))
}

fn list(runs: &Runs, printer: &mut Printer) -> Result<Status, Failure> {
    let (all, unreadable) = runs.list()?;
    let unreadable: Vec<Unreadable> = unreadable.iter().map(|run| Unreadable::tell(run, printer)).collect();
    if let Some(path) = runs.journal_of_old() {
        let path = path.display();
        printer.warn(format!(
            "{path} is of an earlier penstock, which kept too little to undo by: apply or stop instead"
        ));
    }
    let listed = |run: &KnownRun| {
        let state = runs.state(run);
        Listed {
            run: run.id(),
            purpose: run.record.purpose.clone(),
            user: run.record.who.user.clone(),
            command: run.record.who.command.clone(),
            since: run.record.who.since,
            running: run.is_running(),
            phase: state.phase,
            standing: state.left,
            waits_for_confirmation: runs.waits_for_confirmation(run),
            is_to_go: (run.is_not_to_stay() || runs.undecided(run) == Some(Undecided::CutOff))
                && state.phase != Phase::Nothing
                && !runs.was_reset_since(run),
            damage: run.damage.iter().cloned().chain(state.damage).collect(),
        }
    };
    let listed: Vec<Listed> = all.iter().map(listed).collect();
    for run in &listed {
        for damage in &run.damage {
            printer.warn(format!("run {} is damaged: {damage}", run.run));
        }
    }
    let listed = ListOfRuns { runs: listed, unreadable };
    printer.data(&listed, || match &listed.runs[..] {
        [] if listed.unreadable.is_empty() => "No run has changed this machine.".to_owned(),
        runs => {
            let mut lines: Vec<(RunId, String)> = runs.iter().map(|run| (run.run, line(run))).collect();
            let unreadable = |run: &Unreadable| (run.run, format!("{:>4}  cannot be read\n", run.run));
            lines.extend(listed.unreadable.iter().map(unreadable));
            lines.sort();
            lines.into_iter().map(|(_, line)| line).collect()
        }
    })?;
    Ok(Status::Holds)
}

fn line(run: &Listed) -> String {
    let when = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(run.since));
    let state = match (run.running, run.waits_for_confirmation, &run.purpose, run.phase) {
        (true, ..) => "goes on",
        (_, true, ..) => "waits to be confirmed",
        (_, _, Purpose::Undo(_), _) => "took back",
        (.., Phase::Nothing) => "nothing of it is left",
        (.., Phase::Applied) => "applied",
        (.., Phase::AppliedInPart) => "applied in part",
        (.., Phase::Interrupted) => "cut off",
        (.., Phase::PartlyTakenBack) => "taken back in part",
        (.., Phase::Damaged) => "damaged",
    };
    format!("{:>4}  {when}  {:<22} {:<12} {}\n", run.run, state, run.user, run.command.join(" "))
}
