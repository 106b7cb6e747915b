//! `penstock verify MODEL --watch`: looks once, then says what changes, for as long as it is let.
//!
//! The kernel's events say where to look again; what makes no event is glanced at ([`schedule`]), so seldom that it stays
//! below a thousandth of a core. Only what an event concerns is judged, by the same code that `verify` judges with.

mod advice;
pub mod lines;
mod schedule;
mod unwatched;
mod watcher;

use std::time::{Duration, Instant, SystemTime};

use penstock_host::{files, interrupt, process};
use penstock_model::GuestName;

use self::{
    lines::{Lines, WatchEvent},
    schedule::PollSchedule,
    unwatched::unwatched,
    watcher::{Recheck, Watcher},
};
use crate::{
    arguments::Verify,
    failure::{Failure, Status},
    machine::Machine,
    model_file::{self, For},
    printer::Printer,
    settings::Settings,
};

/// Events come in bursts. What came is judged when nothing more has come for so long...
const QUIET: Duration = Duration::from_millis(60);

/// ...or so long after the first.
const LONGEST: Duration = Duration::from_millis(300);

/// How often it is asked whether whoever changes the machine is still at it.
const BUSY: Duration = Duration::from_millis(200);

/// How long links may take to come up once somebody has changed the machine.
const SETTLING: Duration = Duration::from_secs(5);

/// Watches until it is interrupted, the time is over, or the first change has come.
pub fn run(arguments: &Verify, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let file = model_file::read_subject(&arguments.subject, For::Here(settings), printer)?;
    let machine = Machine::here(settings);
    let end = arguments.lasting.map(|lasting| Instant::now() + lasting);
    let mut lines = Lines::new(&arguments.subject, &file.model);
    let of_incus: Vec<GuestName> =
        machine.incus(file.model.guests.keys()).unwrap_or_default().into_keys().collect();
    lines.tell(WatchEvent::BlindSpots { unwatched: unwatched(&file.model, &of_incus) }, printer)?;
    let mut busy = false;
    if let Some(who) = machine.changed_by() {
        busy = true;
        lines.tell(WatchEvent::Changing { who }, printer)?;
        if !wait_until_free(&machine, end) {
            return Ok(Status::DoesNotHold);
        }
    }
    let stamp = machine.changes();
    let mut watch = Watch {
        watcher: Watcher::new(file, machine),
        schedule: PollSchedule::default(),
        end,
        until: arguments.until_change,
        stamp,
    };
    printer.doing("Looking at this machine");
    let timeout = arguments.timeout;
    watch.watcher.look(if busy { timeout.max(SETTLING) } else { timeout }, printer)?;
    watch.schedule.looked(&watch.watcher);
    let goes_on = lines.tell(WatchEvent::state(&watch.watcher, &watch.schedule), printer)?;
    watch.watcher.deaf.clear();
    if goes_on {
        watch.go_on(&mut lines, printer)?;
    }
    Ok(if watch.watcher.known.holds() { Status::Holds } else { Status::DoesNotHold })
}

/// Whether the machine is free before `end` and before an interrupt.
fn wait_until_free(machine: &Machine, end: Option<Instant>) -> bool {
    while machine.changed_by().is_some() {
        if interrupt::pending() || end.is_some_and(|end| Instant::now() >= end) {
            return false;
        }
        std::thread::sleep(BUSY);
    }
    true
}

struct Watch {
    watcher: Watcher,
    schedule: PollSchedule,
    end: Option<Instant>,
    /// Whether the first change ends it.
    until: bool,
    /// What the machine's lock looked like before the last look at everything that followed a change.
    stamp: Option<files::Stamp>,
}

impl Watch {
    fn go_on(&mut self, lines: &mut Lines, printer: &mut Printer) -> Result<(), Failure> {
        let mut spent = process::cpu_time();
        while !interrupt::pending() && self.end.is_none_or(|end| Instant::now() < end) {
            let left = self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            let told = self.watcher.poller.gather(self.schedule.next().min(left), QUIET, LONGEST);
            let told = told?;
            let quiet = told.is_empty();
            let mut recheck = self.watcher.concerned(&told);
            if quiet && self.schedule.is_due() {
                recheck.join(self.watcher.poll());
                self.schedule.glanced();
            }
            let now = self.watcher.machine.changes();
            let locked = now != self.stamp;
            self.stamp = now;
            if recheck.is_nothing() && !locked && !self.schedule.whole_is_due() {
                let now = process::cpu_time();
                self.schedule.cost(now.saturating_sub(spent), quiet);
                spent = now;
                continue;
            }
            if !self.judge(recheck, locked, lines, printer)? {
                break;
            }
            // What it takes to look when something happens is not what it costs to wait.
            spent = process::cpu_time();
        }
        Ok(())
    }

    /// Looks again at what there is news of, and tells what has changed. Whether to go on.
    fn judge(
        &mut self,
        recheck: Recheck,
        locked: bool,
        lines: &mut Lines,
        printer: &mut Printer,
    ) -> Result<bool, Failure> {
        let mut whole = locked || recheck.whole || self.schedule.whole_is_due();
        let mut timeout = Duration::ZERO;
        if let Some(who) = self.watcher.machine.changed_by() {
            if !lines.tell(WatchEvent::Changing { who }, printer)?
                || !wait_until_free(&self.watcher.machine, self.end)
            {
                return Ok(false);
            }
            // Before the look: who comes while that goes on is seen to have come.
            self.stamp = self.watcher.machine.changes();
            whole = true;
            timeout = SETTLING;
        } else if locked {
            timeout = SETTLING;
        }
        let changes = match whole {
            true => self.watcher.look(timeout, printer),
            false => self.watcher.look_at(&recheck.scope),
        };
        if whole {
            self.schedule.looked(&self.watcher);
        }
        let mut goes_on = true;
        match changes {
            Ok(changes) => {
                goes_on &= !self.until || changes.is_empty();
                goes_on &= lines.changes(&changes, &self.watcher.known, printer)?;
            }
            // Libvirt may be away for a moment, and the model be worked at: the next look tells.
            Err(failure) => {
                let why = failure.error.as_deref().map_or("see above".to_owned(), |error| {
                    let causes: Vec<String> =
                        crate::failure::sources(error).map(ToString::to_string).collect();
                    causes.join(": ")
                });
                self.schedule.again();
                goes_on &= lines.tell(WatchEvent::Blind { why }, printer)?;
            }
        }
        for why in recheck.broken.into_iter().chain(std::mem::take(&mut self.watcher.deaf)) {
            goes_on &= lines.tell(WatchEvent::Blind { why }, printer)?;
        }
        if timeout > Duration::ZERO {
            goes_on &= lines.tell(WatchEvent::state(&self.watcher, &self.schedule), printer)?;
        }
        Ok(goes_on)
    }
}

/// The time of day, as lines bear it.
fn time() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}
