//! A run that undoes itself: `apply --confirm-within`, `penstock confirm`, and the process between them.
//!
//! The guard is started before the first write and outlives the terminal, the session and SSH. It waits for the run's end
//! and then for a decision; when there is none in time it decides itself, and takes the run back. All times are those of
//! `CLOCK_BOOTTIME`, which nobody sets.

use std::{
    env, thread,
    time::{Duration, SystemTime},
};

use penstock_apply::history::{Confirm, Decision, KnownRun, Phase, RunId, Verdict, Who, decision, store};
use penstock_host::{Command, boot, files, interrupt};
use penstock_plan::Plan;

use crate::{
    arguments,
    commands::undo,
    failure::{Failure, OrFail, Status},
    machine::{Machine, runs::who},
    printer::Printer,
    progress,
    settings::Settings,
};

/// How often the guard looks.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a guard may take from being started to watching.
const STARTING: Duration = Duration::from_secs(10);

/// How long a guard waits for the lock of the run that it takes back.
const LOCK: Duration = Duration::from_secs(30);

/// The longest that a run may take: generous, since it is only there for one that hangs.
pub fn terms(within: Duration, plan: &Plan) -> Confirm {
    let at_most = Duration::from_secs(600 + 10 * plan.steps.len() as u64);
    Confirm { within: within.as_millis() as u64, at_most: at_most.as_millis() as u64 }
}

/// Says how a run is confirmed, if anything of it is there to be confirmed.
pub fn announce(
    machine: &Machine,
    run: &KnownRun,
    within: Duration,
    printer: &mut Printer,
) -> Result<(), Failure> {
    if machine.runs().state(run).or_fail(Status::Missing)?.phase == Phase::Nothing {
        return Ok(());
    }
    let until = humantime::format_rfc3339_seconds(SystemTime::now() + within);
    printer.warn(format!(
        "run {} is taken back unless it is confirmed within {}, until {until}: penstock confirm {0}",
        run.id(),
        humantime::format_duration(within),
    ));
    Ok(())
}

/// Starts the guard of a run and waits until it watches.
pub fn start(run: &KnownRun, settings: &Settings) -> Result<(), Failure> {
    let program = env::current_exe().or_fail(Status::Missing)?;
    let id = run.id().to_string();
    let absolute = |path: &std::path::Path| files::canonical(path).or_fail(Status::Missing);
    let (state, journal) = (absolute(&settings.state)?, absolute(&settings.journal)?);
    let as_service = boot::systemd_serves_us() && {
        let name = format!("--unit=penstock-guard-{id}-{}", std::process::id());
        let keep = |name: &str, path: &std::path::Path| format!("--setenv={name}={}", path.display());
        // A service of systemd's own belongs to no session: the end of one does not end it.
        let command = Command::new("systemd-run")
            .args(["--quiet", "--collect", "--property=TimeoutStopSec=2"])
            .arg(name)
            .arg(keep("PENSTOCK_STATE", &state))
            .arg(keep("PENSTOCK_JOURNAL", &journal))
            .arg("--")
            .arg(&program)
            .args(["guard", &id]);
        command.deadline(STARTING).succeed().is_ok()
    };
    if !as_service {
        let log = files::append(run.directory.join("guard.log")).or_fail(Status::Missing)?;
        let command = Command::new(&program)
            .args(["guard", &id])
            .env("PENSTOCK_STATE", &state)
            .env("PENSTOCK_JOURNAL", &journal);
        command.start_session(log).or_fail(Status::Missing)?.leave();
    }
    let began = boot::elapsed();
    while boot::elapsed() - began < STARTING {
        if watcher(run)?.is_some() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err(Failure::new(
        Status::Missing,
        "nothing was changed: the process that would take it back did not start",
    )
    .hint(format!("see {}", run.directory.join("guard.log").display())))
}

/// The guard of a run, if it lives.
pub fn watcher(run: &KnownRun) -> Result<Option<Who>, Failure> {
    let who: Option<Who> = store::read_json(&run.directory.join("guard.json")).or_fail(Status::Missing)?;
    Ok(who.filter(|who| who.process.is_alive()))
}

/// `penstock guard RUN`: watches a run, and takes it back unless somebody confirms it.
pub fn run(
    arguments: &arguments::Guard,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    // The end of a session sends SIGHUP or SIGTERM to all that it finds of it.
    interrupt::ignore();
    let machine = Machine::here(settings);
    let runs = machine.runs();
    let began = boot::elapsed();
    let find = || runs.find(arguments.run).or_fail(Status::Missing);
    let watched = find()?;
    let Some(confirm) = watched.record.confirm else {
        return Err(Failure::new(Status::BadInput, format!("run {} needs no guard", arguments.run)));
    };
    let text = serde_json::to_string(&who()).or_fail(Status::Missing)?;
    files::write_durable(watched.directory.join("guard.json"), text).or_fail(Status::Missing)?;
    let verdict = loop {
        // Whether it lives first: what it wrote last was written before it ended.
        let lives = watched.record.who.process.is_alive();
        let seen = find()?;
        if seen.decision.is_some() {
            return Ok(Status::Holds);
        }
        match seen.outcome {
            Some(outcome) => {
                if runs.state(&watched).or_fail(Status::Missing)?.phase == Phase::Nothing {
                    break Verdict::Failed;
                }
                if boot::elapsed() >= Duration::from_millis(outcome.boottime + confirm.within) {
                    break Verdict::Expired;
                }
            }
            None if !lives => break Verdict::Failed,
            None if boot::elapsed() - began >= Duration::from_millis(confirm.at_most) => {
                watched.record.who.process.kill(Duration::from_secs(10));
                break Verdict::Failed;
            }
            None => {}
        }
        thread::sleep(PAUSE);
    };
    let ours = Decision { verdict, who: who(), at: progress::now() };
    if decision::decide(&watched.directory, ours.clone()).or_fail(Status::Missing)? != ours {
        return Ok(Status::Holds);
    }
    take_back(&machine, &watched, printer)
}

fn take_back(machine: &Machine, run: &KnownRun, printer: &mut Printer) -> Result<Status, Failure> {
    let began = boot::elapsed();
    let alone = loop {
        match machine.lock() {
            Ok(alone) => break alone,
            Err(failure) if boot::elapsed() - began >= LOCK => return Err(failure),
            Err(_) => thread::sleep(PAUSE),
        }
    };
    let deeds = machine.runs().deeds(run).or_fail(Status::Missing)?;
    if deeds.state.phase == Phase::Nothing {
        return Ok(Status::Holds);
    }
    // What was so before the run was safe enough to begin from.
    undo::take_back(machine, alone, &[(run.clone(), deeds)], None, printer)
}

/// `penstock confirm [RUN]`: keeps what a run did.
pub fn confirm(
    arguments: &arguments::Confirm,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let machine = Machine::here(settings);
    let (all, _) = machine.runs().list().or_fail(Status::Missing)?;
    let asked = |run: &&KnownRun| {
        run.record.confirm.is_some() && arguments.run.is_none_or(|wanted| wanted == run.id())
    };
    let Some(run) = all.iter().rfind(asked) else {
        return Err(Failure::new(Status::DoesNotHold, "no run waits to be confirmed"));
    };
    if run.decision.is_none() && run.outcome.is_none() {
        let text = format!("run {} has not come to its end", run.id());
        return Err(
            Failure::new(Status::Refused, text).hint("confirm it when `penstock status` says that it waits")
        );
    }
    let ours = Decision { verdict: Verdict::Confirmed, who: who(), at: progress::now() };
    let given = decision::decide(&run.directory, ours.clone()).or_fail(Status::Missing)?;
    match told(run.id(), &given, given == ours) {
        Ok(said) => {
            printer.say(said);
            Ok(Status::Holds)
        }
        Err(said) => {
            Err(Failure::new(Status::DoesNotHold, said).hint("`penstock undo --list` says what is left"))
        }
    }
}

fn told(run: RunId, given: &Decision, now: bool) -> Result<String, String> {
    match given.verdict {
        Verdict::Confirmed if now => Ok(format!("Run {run} is confirmed: what it did stays.")),
        Verdict::Confirmed => Ok(format!("Run {run} was confirmed before, by {}.", given.who)),
        Verdict::Expired => {
            Err(format!("too late: nobody confirmed run {run} in time, and it was taken back"))
        }
        Verdict::Failed => {
            Err(format!("run {run} did not come to a good end, and what it had done was taken back"))
        }
        Verdict::TakenBack => Err(format!("run {run} was taken back by {}", given.who)),
    }
}
