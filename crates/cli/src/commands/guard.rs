//! A run that undoes itself: `apply --confirm-within`, `penstock confirm`, and the process between them.
//!
//! The guard is started before the first write and outlives the terminal, the session and SSH. It waits for the run's end
//! and then for a decision; when there is none in time it decides itself, and takes the run back. All times are those of
//! `CLOCK_BOOTTIME`, which nobody sets. [`watch`] is how it goes on whatever fails, [`machine`] how it does what it does.

use std::{
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use penstock_apply::{
    Mode, Options,
    history::{
        Confirm, Confirmation, Decision, KnownRun, Phase, RunId, Runs, StoreError, Undecided, Who, decision,
        recovery::{Kept, RunToUndo},
        store,
        succession::has_gone_on_from,
    },
};
use penstock_host::{
    Command, Root, boot, chain, files, interrupt, process, running::Running, scan::lifelines::ssh_connection,
};
use penstock_plan::{Plan, in_use};
use serde::Serialize;

use crate::{
    arguments,
    failure::{Failure, OrBadInput, Status},
    runtime::{
        machine::{Machine, MachineLock, run_states::CUT_OFF_WAY, runs::who},
        progress,
    },
    settings::Settings,
    ui::printer::Printer,
};

mod machine;
mod watch;

use machine::Watched;
use watch::{Ended, Guarded};

/// So long a confirmation waits for another that is being written.
const ANOTHER_DECIDES: Duration = Duration::from_secs(2);

/// So long it is waited for systemd to take a guard, and for a guard that lives to watch: a machine that is busy, or short of memory, is slow
/// to start a program. One that has ended is not waited for.
const STARTING: Duration = Duration::from_secs(60);

/// So long systemd may take to tell of a guard's process.
const ASKING: Duration = Duration::from_secs(10);

/// So long it is waited for a guard that was refused to be gone.
const ENDING: Duration = Duration::from_secs(2);

/// How long is waited for a decision, and for a run that hangs.
pub fn terms(within: Duration, plan: &Plan) -> Confirm {
    let at_most = Options::default().longest_silence(plan);
    Confirm { within: within.as_millis() as u64, at_most: at_most.as_millis() as u64 }
}

/// Says how a run is confirmed, if anything of it is there to be confirmed.
pub fn announce(machine: &Machine, run: &KnownRun, within: Duration, printer: &mut Printer) {
    if machine.runs().state(run).phase == Phase::Nothing {
        return;
    }
    printer.waits(run.id());
    let until = humantime::format_rfc3339_seconds(SystemTime::now() + within);
    printer.warn(format!(
        "run {} is taken back unless it is confirmed within {}, until {until}: penstock confirm {0}",
        run.id(),
        humantime::format_duration(within),
    ));
}

/// Starts the guard of a run and waits until it watches.
///
/// # Errors
///
/// When no guard can be made that outlives this session, or it does not watch in time. Nothing has been changed by then.
pub fn start(run: &KnownRun, settings: &Settings) -> Result<(), Failure> {
    let program = process::own_program()?;
    let id = run.id().to_string();
    let absolute = |path: &Path| files::canonical(path);
    let (state, journal) = (absolute(&settings.state)?, absolute(&settings.journal)?);
    if boot::systemd_serves_us() {
        let unit = format!("penstock-guard-{id}-{}.service", std::process::id());
        // A process of ours may end with the session instead (`KillUserProcesses`), just when it is needed.
        unit_command(&unit, &program, &id, &state, &journal).succeed().map_err(|error| {
            Failure::from(error).hint(
                "nothing was changed: the process that would take it back could not be made a service of systemd, so that \
                 it would not surely outlive this session",
            )
        })?;
        let watching = await_watching(run, || main_process(&unit), &format!("journalctl --unit={unit}"));
        if watching.is_err() {
            // Or systemd starts it again. One that it has started finds that nothing is to be taken back.
            let _ = Command::new("systemctl").args(["stop", "--no-block", &unit]).deadline(ASKING).run();
        }
        watching
    } else if boot::ends_with_its_session(&Root::system()) {
        Err(Failure::new(
            Status::Failed,
            "nothing was changed: the process that would take it back would end with this session",
        )
        .hint(
            "this session sees other files than systemd (a mount namespace of its own, as by pam_namespace), so that no service can be \
             made from it: try `nsenter --target 1 --mount`, or a session without that",
        ))
    } else {
        let log = run.directory.join("guard.log");
        let command = Command::new(&program)
            .args(["guard", &id])
            .env("PENSTOCK_STATE", &state)
            .env("PENSTOCK_JOURNAL", &journal);
        let command = match ssh_connection() {
            Some(from) => command.env("SSH_CONNECTION", from),
            None => command,
        };
        let guard = command.start_session(files::append(&log)?)?;
        let started = Running::of(guard.id()).map_or(Started::Ended, Started::Known);
        guard.leave();
        await_watching(run, || started, &log.display().to_string())
    }
}

/// How systemd is asked to run `program` as the guard of the run `id`. A service of systemd's own belongs to no session: the end of one does
/// not end it. One that is killed or fails is started again, and goes on; what there is no run for is not.
fn unit_command(unit: &str, program: &Path, id: &str, state: &Path, journal: &Path) -> Command {
    let keep = |name: &str, path: &Path| format!("--setenv={name}={}", path.display());
    Command::new("systemd-run")
        .args(["--quiet", "--collect", "--property=TimeoutStopSec=2"])
        .arg(format!("--unit={unit}"))
        // Whoever is locked out goes to the console, and may well ask for the rescue target.
        .args(boot::STAYS_ON_ISOLATE)
        .args([
            "--property=Restart=on-failure",
            "--property=RestartSec=1",
            "--property=StartLimitIntervalSec=0",
        ])
        .arg(format!("--property=RestartPreventExitStatus={}", Status::BadInput.code()))
        // Not what is ended when memory is short.
        .arg("--property=OOMScoreAdjust=-1000")
        .arg(keep("PENSTOCK_STATE", state))
        .arg(keep("PENSTOCK_JOURNAL", journal))
        .args(process::search_path::for_service())
        // Over which it is not to cut: a service has no SSH server among its ancestors.
        .args(ssh_connection().map(|from| format!("--setenv=SSH_CONNECTION={from}")))
        .arg("--")
        .arg(program)
        .args(["guard", id])
        .deadline(STARTING)
}

/// What is known of a guard that was started.
#[derive(Clone, Copy)]
enum Started {
    /// Its process, which may have ended since.
    Known(Running),
    /// It has ended.
    Ended,
    /// Nobody says.
    Unknown,
}

/// The main process of a service that systemd has started.
fn main_process(unit: &str) -> Started {
    let asked = Command::new("systemctl").args(["show", "--property=MainPID", unit]).deadline(ASKING);
    let Ok(told) = asked.succeed().map(|output| output.text()) else { return Started::Unknown };
    match told.trim().strip_prefix("MainPID=").and_then(|process| process.parse().ok()) {
        // 0 is one that has ended (org.freedesktop.systemd1(5)), or that systemd knows no more.
        Some(0) => Started::Ended,
        Some(process) => Running::of(process).map_or(Started::Ended, Started::Known),
        None => Started::Unknown,
    }
}

/// Waits until the guard watches. `started` tells what was started, and is asked once, unless the guard watches by then; `log` is where the
/// guard says why it does not. One that is refused is ended.
fn await_watching(run: &KnownRun, started: impl FnOnce() -> Started, log: &str) -> Result<(), Failure> {
    let began = boot::elapsed();
    if watcher(run)?.is_some() {
        return Ok(());
    }
    let started = started();
    let why = loop {
        // Looked at first: one that has ended since then is found the next time.
        let has_ended = match started {
            Started::Known(process) => !process.is_alive(),
            Started::Ended => true,
            Started::Unknown => false,
        };
        if watcher(run)?.is_some() {
            return Ok(());
        } else if has_ended {
            break "ended before it watched the run".to_owned();
        } else if interrupt::pending() {
            break "did not watch the run yet when this was interrupted".to_owned();
        } else if boot::elapsed() - began > STARTING {
            break format!("does not watch the run {} s after its start", STARTING.as_secs());
        }
        thread::sleep(Duration::from_millis(10));
    };
    if let Started::Known(process) = started {
        process.kill(ENDING);
    }
    let text = format!("nothing was changed: the process that would take it back {why}");
    Err(Failure::new(Status::Failed, text).hint(format!("what it said: {log}")))
}

/// The guard of a run, if it lives.
///
/// # Errors
///
/// When the record of who watches is there and cannot be read.
pub fn watcher(run: &KnownRun) -> Result<Option<Who>, Failure> {
    let who: Option<Who> = store::read_json(&run.directory.join("guard.json"))?;
    Ok(who.filter(|who| who.process.is_alive()))
}

/// `penstock guard RUN`: watches a run, and takes it back unless somebody confirms it.
///
/// # Errors
///
/// `Status::BadInput` for a run that is not there or needs no guard; when its plan cannot be read, or its record not be written before
/// it begins.
pub fn run(
    arguments: &arguments::Guard,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    // The end of a session sends SIGHUP or SIGTERM to all that it finds of it.
    interrupt::ignore();
    let machine = Machine::here(settings);
    let runs = machine.runs();
    let run = match runs.find(arguments.run) {
        Err(error @ StoreError::NoSuchRun(_)) => return Err(error).or_bad_input(),
        found => found?,
    };
    let Some(terms) = run.record.confirm else {
        return Err(Failure::new(Status::BadInput, format!("run {} needs no guard", arguments.run)));
    };
    process::spare_when_memory_is_short();
    let own = run.directory.join("guard.json");
    // One that was killed goes on without what is not to be had any more: the run is there by now.
    let goes_on = files::exists(&own);
    if !goes_on {
        machine::make_ready(&run)?;
    }
    let mut watched = Watched::new(&machine, run, printer)?;
    match files::write_durable(own, serde_json::to_string(&who())?) {
        Err(error) if goes_on => watched.tell(&format!("who watches it is not recorded: {}", chain(&error))),
        written => written?,
    }
    // What is confirmed may still be undone, and needs the room for that.
    if watch::guard(&mut watched, terms) != Ended::Confirmed {
        watched.release();
    }
    Ok(Status::Holds)
}

/// Takes back what is left of runs that nobody had confirmed when the machine was reset; the caller gives the lock, and gets it
/// again. One that cannot be taken back is told of and keeps nobody: who goes on does so from what is.
///
/// # Errors
///
/// The runs cannot be listed, an interrupt is pending, or somebody else has the lock by now.
pub fn take_back_lapsed(
    machine: &Machine,
    alone: MachineLock,
    printer: &mut Printer,
) -> Result<MachineLock, Failure> {
    take_back(machine, alone, |_| false, printer)
}

/// The same when the machine starts, where nobody is there to decide: also of runs that wait to be confirmed and that nobody watches any
/// more. `systemctl soft-reboot` ends a guard as a reset does, and leaves the kernel with all that was set in it.
///
/// # Errors
///
/// As [`take_back_lapsed`].
pub fn take_back_at_start(
    machine: &Machine,
    alone: MachineLock,
    printer: &mut Printer,
) -> Result<MachineLock, Failure> {
    let runs = machine.runs();
    let has_ended = |run: &KnownRun| !matches!(runs.undecided(run), None | Some(Undecided::AtWork));
    let unwatched = |run: &KnownRun| has_ended(run) && matches!(watcher(run), Ok(None));
    take_back(machine, alone, unwatched, printer)
}

fn take_back(
    machine: &Machine,
    mut alone: MachineLock,
    is_left_alone: impl Fn(&KnownRun) -> bool,
    printer: &mut Printer,
) -> Result<MachineLock, Failure> {
    let runs = machine.runs();
    let (all, _) = runs.list()?;
    let mut stay: Vec<RunId> = Vec::new();
    // Newest first, and none from below one that stays.
    for run in all.iter().rev().filter(|run| runs.has_lapsed(run) || is_left_alone(run)) {
        let id = run.id();
        let is_below = stay.iter().any(|later| has_gone_on_from(&all, *later, id));
        if runs.is_left(&all, run) && !is_below {
            printer.warn(match runs.has_lapsed(run) {
                true => {
                    format!(
                        "run {id} was not confirmed before the machine was reset: what it left is taken back"
                    )
                }
                false => {
                    format!("run {id} was not confirmed, and nobody watches it any more: it is taken back")
                }
            });
            let taken = take_one_back(machine, alone, run, printer);
            alone = machine.lock()?;
            if let Err(failure) = taken {
                if interrupt::pending() {
                    return Err(failure);
                }
                printer.warn(format!(
                    "what run {id} left stays for now, and `penstock undo` takes it back when the cause is gone: {}",
                    failure.in_one_line()
                ));
            }
            if runs.state(run).phase != Phase::Nothing {
                stay.push(id);
            }
        }
        // Last: whoever is killed before this finds the run as it was, and goes on.
        let ours = Decision { verdict: Confirmation::Reset, who: who(), at: progress::now() };
        if let Err(error) = decision::decide(&run.directory, ours) {
            printer.warn(format!("that run {id} does not stay is not recorded: {}", chain(&error)));
        }
    }
    Ok(alone)
}

/// Takes one run back, whatever of it is there.
fn take_one_back(
    machine: &Machine,
    mut alone: MachineLock,
    run: &KnownRun,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let applied_run = machine.runs().applied_run(run)?;
    let taken = [RunToUndo { id: run.id(), plan: &applied_run.plan, state: &applied_run.state }];
    let inventory = machine.inventory()?;
    let way = machine.way_back(&taken, &inventory)?;
    // As the guard would have taken it.
    alone.in_use = in_use(&way.plan, &inventory);
    for Kept { run, step, action, why, .. } in &way.kept {
        printer.warn(format!("run {run}, step {step} is not taken back ({action}): {why}"));
    }
    // Without the room that this gives it is tried all the same.
    let _ = run.release();
    let begun = machine.begin_undo(alone, std::slice::from_ref(run), &way);
    begun.said.iter().for_each(|said| printer.warn(said));
    machine.carry_out(begun, &way.plan, Mode::Undo, &mut ())?.map(drop)?;
    // Nobody waits for it here: the machine starts, or somebody has a change to make.
    way.left_for_now().map_or(Ok(()), |why| Err(Failure::new(Status::Failed, why)))
}

/// A run that stays.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Confirmed {
    /// The run that stays.
    run: RunId,
    /// What a person is told.
    said: String,
}

/// `penstock confirm [RUN]`: keeps what a run did.
///
/// # Errors
///
/// `Status::DoesNotHold` when there is nothing to confirm, it is somebody else's, or it is too late; `Status::Busy` for a run that goes
/// on; when the decision cannot be written.
pub fn confirm(
    arguments: &arguments::Confirm,
    settings: &Settings,
    printer: &mut Printer,
) -> Result<Status, Failure> {
    let machine = Machine::here(settings);
    let (all, _) = machine.runs().list()?;
    let asked = |run: &&KnownRun| {
        run.record.confirm.is_some() && arguments.run.is_none_or(|wanted| wanted == run.id())
    };
    let runs = machine.runs();
    let waits = |run: &&KnownRun| runs.waits_for_confirmation(run);
    let waiting = all.iter().rfind(waits).map(KnownRun::id);
    let Some(run) = all.iter().rfind(asked) else {
        let known = arguments.run.map(|wanted| (wanted, all.iter().any(|run| run.id() == wanted)));
        return Err(nothing_to_confirm(known, waiting));
    };
    // What is gone nobody can keep, whoever asks.
    let waiting = waiting.filter(|other| *other != run.id());
    is_to_be_had(&runs, run).map_err(|failure| match waiting {
        Some(other) => failure.hint(waits_too(other)),
        None => failure,
    })?;
    // Who comes late would keep what somebody else has begun since, and its own is gone.
    let (began_by, own) = (&run.record.who, who());
    if arguments.run.is_none() && began_by.caller() != own.caller() {
        let (id, began_by, own) = (run.id(), began_by.caller(), own.caller());
        is_not_going(run)?;
        let text = format!("run {id} was begun by {began_by}, and not by {own}: nothing is confirmed");
        let way = match runs.undecided(run) {
            Some(Undecided::AtWork) => {
                format!("`penstock confirm {id}` keeps it when it has come to its end")
            }
            Some(_) => format!("`penstock confirm {id}` keeps it"),
            None => format!("run {id} was confirmed before"),
        };
        return Err(Failure::new(Status::DoesNotHold, text)
            .hint(format!("{way}; `penstock undo --list` shows all runs")));
    }
    if runs.undecided(run) == Some(Undecided::AtWork) {
        let text = format!("run {} has not come to its end", run.id());
        return Err(
            Failure::new(Status::Busy, text).hint("confirm it when `penstock status` says that it waits")
        );
    }
    let _deciding = deciding(run)?;
    let ours = Decision { verdict: Confirmation::Confirmed, who: who(), at: progress::now() };
    let given = decision::decide(&run.directory, ours.clone())?;
    if let Some(other) = waiting {
        printer.warn(waits_too(other));
    }
    match decision_in_words(run.id(), &given, given == ours) {
        Ok(said) => {
            printer.document(&Confirmed { run: run.id(), said: said.clone() })?;
            printer.say(said);
            Ok(Status::Holds)
        }
        Err(said) => Err(taken_back(said)),
    }
}

/// Whether what a run did can stay yet: it was neither decided otherwise, nor is there nothing whole to keep.
fn is_to_be_had(runs: &Runs, run: &KnownRun) -> Result<(), Failure> {
    let id = run.id();
    match (runs.undecided(run), &run.decision) {
        (Some(Undecided::Lapsed), _) => {
            let text = format!("too late: the machine was reset before anybody confirmed run {id}");
            Err(Failure::new(Status::DoesNotHold, text)
                .hint("`penstock undo`, or the next `penstock apply`, takes back what it left"))
        }
        (Some(Undecided::CutOff), _) => {
            let text = format!("run {id} was cut off before it came to its end, and cannot be confirmed");
            Err(Failure::new(Status::DoesNotHold, text).hint(CUT_OFF_WAY))
        }
        (Some(Undecided::AtWork | Undecided::Waits), _) | (None, None) => Ok(()),
        (None, Some(given)) => match decision_in_words(id, given, false) {
            Ok(_) => Ok(()),
            Err(said) => is_not_going(run).and(Err(taken_back(said))),
        },
    }
}

/// Whether nobody is taking a run back right now. Who may not look is not kept from being told the rest.
fn is_not_going(run: &KnownRun) -> Result<(), Failure> {
    match deciding(run) {
        Err(failure) if failure.status == Status::DoesNotHold => Err(failure),
        _ => Ok(()),
    }
}

/// What nobody else decides of a run while this is held. By the guard that is from the moment on at which it takes the run back, whether or
/// not it can write that down.
fn deciding(run: &KnownRun) -> Result<files::Lock, Failure> {
    let began = boot::elapsed();
    loop {
        if let Some(lock) = run.deciding()? {
            return Ok(lock);
        }
        if boot::elapsed() - began > ANOTHER_DECIDES {
            let text = format!("too late: run {} is being taken back", run.id());
            return Err(
                Failure::new(Status::DoesNotHold, text).hint("`penstock status` says how far that is")
            );
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn taken_back(said: String) -> Failure {
    Failure::new(Status::DoesNotHold, said).hint("`penstock undo --list` says what is left")
}

fn waits_too(other: RunId) -> String {
    format!("run {other} waits to be confirmed: `penstock confirm {other}`")
}

/// Why there is nothing to confirm: no run was named, or this one, which is known here or not. With the one that waits, if one does.
fn nothing_to_confirm(named: Option<(RunId, bool)>, waiting: Option<RunId>) -> Failure {
    let text = match named {
        None => return Failure::new(Status::DoesNotHold, "no run waits to be confirmed"),
        Some((run, false)) => format!("there is no run {run} on this machine"),
        Some((run, true)) => format!("run {run} does not wait to be confirmed"),
    };
    Failure::new(Status::DoesNotHold, text).hint(match waiting {
        Some(run) => format!("run {run} waits to be confirmed: `penstock confirm {run}`"),
        None => "no run waits to be confirmed; `penstock undo --list` shows all runs".to_owned(),
    })
}

fn decision_in_words(run: RunId, given: &Decision, now: bool) -> Result<String, String> {
    match given.verdict {
        Confirmation::Confirmed if now => Ok(format!("Run {run} is confirmed: what it did stays.")),
        Confirmation::Confirmed => Ok(format!("Run {run} was confirmed before, by {}.", given.who)),
        Confirmation::Expired => {
            Err(format!("too late: nobody confirmed run {run} in time, and it was taken back"))
        }
        Confirmation::Failed => {
            Err(format!("run {run} did not come to a good end, and what it had done was taken back"))
        }
        Confirmation::Reset => Err(format!(
            "too late: the machine was reset before anybody confirmed run {run}, which was taken back"
        )),
        Confirmation::TakenBack => Err(format!("run {run} was taken back by {}", given.who)),
    }
}

#[cfg(test)]
mod tests {
    use penstock_apply::history::{Purpose, RunRecord};

    use super::*;
    use crate::arguments::Common;

    #[test]
    fn who_confirms_another_run_is_told_which_one_waits() {
        let three = || Some("3".parse().unwrap());
        for (known, waiting, wanted) in [
            (None, None, "no run waits to be confirmed"),
            (
                Some(false),
                three(),
                "there is no run 99 on this machine; run 3 waits to be confirmed: `penstock confirm 3`",
            ),
            (
                Some(true),
                three(),
                "run 99 does not wait to be confirmed; run 3 waits to be confirmed: `penstock confirm 3`",
            ),
            (
                Some(true),
                None,
                "run 99 does not wait to be confirmed; no run waits to be confirmed; `penstock undo --list` shows all runs",
            ),
        ] {
            let failure = nothing_to_confirm(known.map(|known| ("99".parse().unwrap(), known)), waiting);
            let said = [vec![failure.in_one_line()], failure.hints].concat().join("; ");
            assert_eq!(said, wanted);
        }
    }

    #[test]
    fn the_guard_s_service_stays_when_a_target_is_isolated_and_is_started_again_when_it_is_killed() {
        let [program, state, journal] =
            ["/usr/bin/penstock", "/run/penstock", "/var/lib/penstock"].map(Path::new);
        let line = unit_command("penstock-guard-7-1.service", program, "7", state, journal).to_string();
        let (asked, ran) = line.split_once(" -- ").unwrap();
        assert_eq!(ran, "/usr/bin/penstock guard 7");
        let properties = [
            "IgnoreOnIsolate=yes",
            "DefaultDependencies=no",
            "Conflicts=shutdown.target",
            "Before=shutdown.target",
            "Restart=on-failure",
            "StartLimitIntervalSec=0",
            // Of a run that is not there any more.
            "RestartPreventExitStatus=2",
        ];
        for property in properties {
            assert!(asked.contains(&format!("--property={property}")), "{property}: {line}");
        }
        assert!(!asked.contains("Requires="), "{line}");
    }

    #[test]
    fn a_guard_is_waited_for_while_it_lives_and_refused_when_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::resolve(&Common { quiet: true, ..Common::default() });
        settings.journal = directory.path().join("kept");
        let machine = Machine::at(Root::at(directory.path()), &settings);
        let record = RunRecord::new(Purpose::Apply, who());
        let run = machine.runs().create(record, &Plan::default(), None).unwrap();
        let start = || {
            let log = tempfile::tempfile().unwrap();
            Command::new("sleep").arg("600").start_session(log).unwrap()
        };
        let refused =
            |started: Started| await_watching(&run, || started, "the log").unwrap_err().in_one_line();

        assert!(refused(Started::Ended).contains("ended before it watched"));
        let killed = start();
        let process = Running::of(killed.id()).unwrap();
        drop(killed);
        assert!(refused(Started::Known(process)).contains("ended before it watched"));

        // Slow, but it lives.
        let slow = start();
        let process = Running::of(slow.id()).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| await_watching(&run, || Started::Known(process), "the log").is_ok());
            thread::sleep(Duration::from_millis(100));
            assert!(!waits.is_finished());
            let text = serde_json::to_string(&Who { process, ..who() }).unwrap();
            files::write_durable(run.directory.join("guard.json"), text).unwrap();
            assert!(waits.join().unwrap());
            let nobody_is_asked = || -> Started { panic!("it watches") };
            assert!(await_watching(&run, nobody_is_asked, "the log").is_ok());
        });
        // What had watched and has ended watches no more.
        slow.end_group();
        assert!(refused(Started::Known(process)).contains("ended before it watched"));
    }
}
