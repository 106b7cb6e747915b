//! `penstock verify MODEL --watch`: looks once, then says what changes, for as long as it is let.
//!
//! The kernel's events say where to look again; what makes no event is glanced at ([`schedule`]), so seldom that it stays
//! below a thousandth of a core. Only what an event concerns is judged, by the same code that `verify` judges with.

mod advice;
pub mod lines;
mod schedule;
mod unwatched;
mod watcher;

use std::{
    collections::BTreeMap,
    mem,
    time::{Duration, Instant, SystemTime},
};

use penstock_host::{files, interrupt, process, terminal};
use penstock_model::text::one_line;
use penstock_verify::Scope;

use self::{
    lines::{Lines, WatchEvent},
    schedule::PollSchedule,
    unwatched::unwatched,
    watcher::{Recheck, Rechecks, SeenChanges, Watcher, When},
};
use crate::{
    arguments::Verify,
    failure::{Failure, Status},
    model_file::{self, For},
    runtime::machine::Machine,
    settings::Settings,
    ui::printer::Printer,
};

/// Events come in bursts. What came is judged when nothing more has come for so long...
const QUIET: Duration = Duration::from_millis(60);

/// ...or so long after the first.
const LONGEST: Duration = Duration::from_millis(300);

/// How often it is asked whether whoever changes the machine is still at it.
const BUSY: Duration = Duration::from_millis(200);

/// How many looks that a change has disturbed follow each other before it is waited for longer.
const TRIES: u32 = 3;

/// How long links may take to come up once somebody has changed the machine.
const SETTLING: Duration = Duration::from_secs(5);

/// Watches until it is interrupted, the time is over, or the first change has come.
///
/// # Errors
///
/// For a model that is wrong, when the first look at the machine fails, and when standard output takes nothing but for its reader's
/// going away.
pub fn run(arguments: &Verify, settings: &Settings, printer: &mut Printer) -> Result<Status, Failure> {
    let file = model_file::read_subject(&arguments.subject, For::Here(settings), printer)?;
    let machine = Machine::here(settings);
    let end = arguments.lasting.map(|lasting| Instant::now() + lasting);
    let lines = Lines::new(&arguments.subject);
    let of_incus = machine.incus(file.model.guests.keys(), &BTreeMap::new()).running;
    let of_incus = of_incus.into_iter().map(|(guest, instance)| (guest, instance.process)).collect();
    let stamp = machine.changes();
    let watcher = Watcher::new(file, machine, of_incus);
    let unwatched = unwatched(&watcher.file.model, &watcher.of_incus());
    lines.tell(WatchEvent::BlindSpots { unwatched }, printer)?;
    let mut watch = Watch {
        watcher,
        schedule: PollSchedule::new(Instant::now()),
        end,
        until: arguments.until_change,
        stamp,
        waiting: Recheck::default(),
        blind: None,
    };
    printer.doing("Looking at this machine");
    let first = watch.look(None, arguments.timeout, &lines, printer, None)?;
    let Some(Look { seen: first, took, .. }) = first else { return Ok(Status::DoesNotHold) };
    if !first.lost.0.is_empty() {
        drop(model_file::explain(&first.lost, &watch.watcher.file.source, printer));
    }
    if let Some(failure) = first.unseen {
        return Err(failure);
    }
    watch.schedule.looked(took, Instant::now());
    let mut goes_on = true;
    if let Some(why) = first.postponed {
        watch.schedule.failed(Instant::now());
        goes_on = watch.sees_not(why, true, &lines, printer)?;
    }
    goes_on &= lines.tell(watch.state(), printer)?;
    watch.watcher.unheard.clear();
    if goes_on {
        watch.go_on(settings, &lines, printer)?;
    }
    Ok(if watch.holds() { Status::Holds } else { Status::DoesNotHold })
}

/// Whether it is time to end: at `end`, after an interrupt, or when nobody reads what is said.
fn is_over(end: Option<Instant>) -> bool {
    interrupt::pending() || terminal::output_is_gone() || end.is_some_and(|end| Instant::now() >= end)
}

struct Watch {
    watcher: Watcher,
    schedule: PollSchedule,
    end: Option<Instant>,
    /// Whether the first change ends it.
    until: bool,
    /// What the machine's lock looked like before the last look at everything that followed a change.
    stamp: Option<files::Stamp>,
    /// What waits until it may be looked at again, since whoever makes the events may make them without end.
    waiting: Recheck,
    /// Why it could not be looked at all of it the last time, if so.
    blind: Option<Blindness>,
}

/// That something could not be looked at.
struct Blindness {
    /// Why, as it was told.
    why: String,
    /// Whether only a look at everything shows that it is over: such a one has failed.
    whole: bool,
}

/// A look at a machine that nobody changed meanwhile.
struct Look {
    seen: SeenChanges,
    /// Whether it was one at everything.
    whole: bool,
    /// Whether links were given time to come up.
    settled: bool,
    /// Whether something that did not hold is not judged any more.
    dropped: bool,
    /// How long it took, but for that time.
    took: Duration,
}

impl Watch {
    fn go_on(&mut self, settings: &Settings, lines: &Lines, printer: &mut Printer) -> Result<(), Failure> {
        let mut spent = process::cpu_time();
        while !is_over(self.end) {
            let left = self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            let pause = self.schedule.next(!self.waiting.is_nothing(), Instant::now()).min(left);
            let told = self.watcher.poller.gather(pause, QUIET, LONGEST)?;
            let quiet = told.is_empty();
            let Rechecks { at_once: mut recheck, waits } = self.watcher.concerned(&told);
            self.waiting.join(waits);
            if self.schedule.is_due(Instant::now()) {
                recheck.join(self.watcher.poll());
                self.schedule.glanced(Instant::now());
            }
            let waited = !self.waiting.is_nothing() && self.schedule.may_recheck(Instant::now());
            if waited {
                recheck.join(mem::take(&mut self.waiting));
            }
            let locked = self.watcher.machine.changes() != self.stamp;
            if recheck.is_nothing() && !locked && !self.schedule.whole_is_due(Instant::now()) {
                let now = process::cpu_time();
                self.schedule.cost(now.saturating_sub(spent), quiet);
                spent = now;
                continue;
            }
            // What it says is said by the line that tells of it: the same at each look would fill a log.
            let mut kept = Printer::keeping(settings);
            if !self.judge(recheck, waited, lines, printer, &mut kept)? {
                break;
            }
            // What it takes to look when something happens is not what it costs to wait.
            spent = process::cpu_time();
        }
        Ok(())
    }

    /// Whether all holds, as far as is known, and all of it could be looked at.
    fn holds(&self) -> bool {
        self.blind.is_none() && self.watcher.known.holds()
    }

    fn state(&self) -> WatchEvent {
        WatchEvent::state(&self.watcher, &self.schedule, self.holds())
    }

    /// Tells why all of it could not be looked at, once. Whether anybody still listens.
    fn sees_not(
        &mut self,
        why: String,
        whole: bool,
        lines: &Lines,
        printer: &mut Printer,
    ) -> Result<bool, Failure> {
        let (told, was_whole) = match &self.blind {
            Some(blind) => (blind.why == why, blind.whole),
            None => (false, false),
        };
        self.blind = Some(Blindness { why: why.clone(), whole: whole || was_whole });
        if told { Ok(true) } else { lines.tell(WatchEvent::Blind { why }, printer) }
    }

    /// Looks at this, or at everything, once nobody changes the machine; and again at everything if somebody has done so meanwhile: what is
    /// seen then is neither how it was nor how it will be. `None` when it is time to end, or nobody listens.
    fn look(
        &mut self,
        mut scope: Option<(&Scope, When)>,
        mut timeout: Duration,
        lines: &Lines,
        printer: &mut Printer,
        mut kept: Option<&mut Printer>,
    ) -> Result<Option<Look>, Failure> {
        let mut disturbed = 0;
        loop {
            // First: who comes while it is looked is seen to have come.
            let stamp = self.watcher.machine.changes();
            if stamp != self.stamp {
                self.stamp = stamp;
                (scope, timeout) = (None, timeout.max(SETTLING));
            }
            if let Some(who) = self.watcher.machine.changed_by() {
                if !lines.tell(WatchEvent::Changing { who }, printer)? || !self.wait_until_free() {
                    return Ok(None);
                }
                (scope, timeout) = (None, timeout.max(SETTLING));
                continue;
            }
            let before = self.watcher.begin();
            let began = Instant::now();
            let seen = match scope {
                None => {
                    self.waiting = Recheck::default();
                    self.watcher.look(timeout, kept.as_deref_mut().unwrap_or(printer))
                }
                Some((scope, when)) => self.watcher.look_at(scope, when),
            };
            let took = began.elapsed().saturating_sub(timeout);
            let changed = self.watcher.machine.is_changed_since(self.stamp.as_ref());
            let (whole, settled) = (scope.is_none(), timeout > Duration::ZERO);
            // With an interrupt the programs end that were asked: what they did not say tells nothing of the machine.
            if !changed && !interrupt::pending() {
                let seen = seen.unwrap_or_else(SeenChanges::nothing);
                let dropped = self.watcher.known.end();
                return Ok(Some(Look { seen, whole, settled, dropped, took }));
            }
            self.watcher.put_back(before);
            kept.iter_mut().for_each(|kept| drop(kept.take_kept()));
            if is_over(self.end) {
                return Ok(None);
            }
            disturbed += 1;
            if disturbed == TRIES {
                let why = format!("somebody changed this machine during each of {TRIES} looks");
                let seen = SeenChanges { postponed: Some(why), ..SeenChanges::default() };
                return Ok(Some(Look { seen, whole: true, settled, dropped: false, took }));
            }
        }
    }

    /// Whether the machine is free before it is time to end.
    fn wait_until_free(&mut self) -> bool {
        while self.watcher.machine.changed_by().is_some() {
            if is_over(self.end) {
                return false;
            }
            self.watcher.forget_ended();
            std::thread::sleep(BUSY);
        }
        true
    }

    /// Looks again at what there is news of, and tells what has changed. Whether to go on.
    fn judge(
        &mut self,
        recheck: Recheck,
        waited: bool,
        lines: &Lines,
        printer: &mut Printer,
        kept: &mut Printer,
    ) -> Result<bool, Failure> {
        let whole = recheck.whole || self.schedule.whole_is_due(Instant::now());
        let scope = (!whole).then_some(&recheck.scope);
        let of_incus = self.watcher.of_incus();
        let when = if waited { When::Later } else { When::AtOnce };
        let Some(look) =
            self.look(scope.map(|scope| (scope, when)), Duration::ZERO, lines, printer, Some(&mut *kept))?
        else {
            return Ok(false);
        };
        let Look {
            seen: SeenChanges { changes, unseen, postponed, again, .. },
            whole,
            settled,
            dropped,
            took,
        } = look;
        let unseen = unseen.map(|failure| match &failure.error {
            Some(_) => failure.in_one_line(),
            None => one_line(&kept.take_kept().join("; ")),
        });
        let unseen = unseen.or(postponed);
        if again {
            self.waiting.scope.join(recheck.scope.clone());
        }
        if waited || again || !whole && unseen.is_some() {
            self.schedule.rechecked(took, Instant::now());
        }
        let mut goes_on = !self.until || changes.is_empty();
        if self.watcher.of_incus() != of_incus {
            let unwatched = unwatched(&self.watcher.file.model, &self.watcher.of_incus());
            goes_on &= lines.tell(WatchEvent::BlindSpots { unwatched }, printer)?;
        }
        goes_on &= lines.changes(&changes, &self.watcher, printer)?;
        let mut sees_again = false;
        match unseen {
            None => {
                if whole {
                    self.schedule.looked(took, Instant::now());
                }
                // What could not be looked at waits until it can.
                let all_seen = |blind: &Blindness| whole || !blind.whole && self.waiting.scope.is_empty();
                sees_again = self.blind.as_ref().is_some_and(all_seen);
                if sees_again {
                    self.blind = None;
                }
            }
            // Libvirt may be away for a moment, and the model be worked at: a later look tells.
            Some(why) => {
                if whole {
                    self.schedule.failed(Instant::now());
                } else {
                    self.waiting.scope.join(recheck.scope);
                }
                goes_on &= self.sees_not(why, whole, lines, printer)?;
            }
        }
        for why in recheck.broken.into_iter().chain(mem::take(&mut self.watcher.unheard)) {
            goes_on &= lines.tell(WatchEvent::Blind { why }, printer)?;
        }
        if settled || sees_again || dropped {
            goes_on &= lines.tell(self.state(), printer)?;
        }
        Ok(goes_on)
    }
}

/// The time of day, as lines bear it.
fn time() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc, Barrier,
            atomic::{AtomicBool, Ordering},
        },
        thread,
    };

    use penstock_model::{Outcome, Verdict, verdict::Subject};
    use penstock_verify::Part;

    use super::*;
    use crate::arguments::{Common, Strict, Subject as ModelArguments};

    /// Of a machine that has neither NIC nor guests of Penstock's, before its first look; and what tells of it.
    fn watch() -> (Watch, Lines) {
        let watch = Watch {
            watcher: watcher::tests::watcher(&[]),
            schedule: PollSchedule::new(Instant::now()),
            end: None,
            until: false,
            stamp: None,
            waiting: Recheck::default(),
            blind: None,
        };
        let (nics, strict) = (Vec::new(), Strict::default());
        let subject = ModelArguments { model: "m.yaml".into(), nics, strict, payload: None };
        (watch, Lines::new(&subject))
    }

    #[test]
    fn what_is_seen_while_somebody_changes_the_machine_is_looked_at_again() {
        let settings = Settings::resolve(&Common::default());
        let state = tempfile::tempdir().unwrap();
        let here = Settings { state: state.path().to_owned(), ..Settings::resolve(&Common::default()) };
        let (mut printer, mut kept) = (Printer::keeping(&settings), Printer::keeping(&settings));
        let (mut watch, lines) = watch();
        watch.watcher.machine = Machine::here(&here);
        let lock = state.path().join("lock");
        files::write_atomic(&lock, "{}").unwrap();
        let mut look_beside_changes = |endless: bool| {
            let (lock, begun) = (files::open(&lock).unwrap(), Arc::new(Barrier::new(2)));
            let looked = Arc::new(AtomicBool::new(false));
            let (begins, ends) = (begun.clone(), looked.clone());
            let changes = thread::spawn(move || {
                begins.wait();
                let began = Instant::now();
                while !ends.load(Ordering::Relaxed) && (endless || began.elapsed() < Duration::from_millis(5))
                {
                    lock.set_modified(SystemTime::now()).unwrap();
                }
            });
            watch.stamp = watch.watcher.machine.changes();
            begun.wait();
            let scope = Some((&Scope::default(), When::AtOnce));
            let look = watch.look(scope, Duration::ZERO, &lines, &mut printer, Some(&mut kept));
            looked.store(true, Ordering::Relaxed);
            changes.join().unwrap();
            look.unwrap().unwrap()
        };
        // The changes may all fall outside of a look, or before it; not each time.
        let mut some = |endless: bool, fits: fn(&Look) -> bool| {
            (0..500).map(|_| look_beside_changes(endless)).find(fits)
        };
        let again = some(false, |look| look.whole && look.seen.postponed.is_none());
        assert!(again.is_some_and(|look| look.settled), "after a change everything is looked at");
        let disturbed = some(true, |look| look.seen.postponed.is_some());
        assert!(disturbed.is_some_and(|look| look.seen.changes.is_empty()), "what was seen then is not told");
    }

    #[test]
    fn nothing_holds_while_something_cannot_be_looked_at() {
        let settings = Settings::resolve(&Common::default());
        let mut printer = Printer::keeping(&settings);
        let (mut watch, lines) = watch();
        let seen = Err("b".to_owned());
        let good = Verdict::of_host(Subject::Machine, "mac", "a".to_owned(), seen);
        watch.watcher.known.take(vec![(Part::Rest, vec![Verdict { outcome: Outcome::Pass, ..good }])]);
        assert!(watch.holds());
        let mut after_a_part = |whole: bool, waiting: Scope| {
            watch.blind = None;
            assert!(watch.sees_not("it is away".to_owned(), whole, &lines, &mut printer).unwrap());
            assert!(!watch.holds() && matches!(watch.state(), WatchEvent::State { holds: false, .. }));
            watch.waiting.scope = waiting;
            let mut kept = Printer::keeping(&settings);
            assert!(watch.judge(Recheck::default(), false, &lines, &mut printer, &mut kept).unwrap());
            watch.holds()
        };
        assert!(after_a_part(false, Scope::default()), "what could not be looked at was");
        let waiting = Scope { nics: ["NET0".parse().unwrap()].into(), ..Scope::default() };
        assert!(!after_a_part(false, waiting), "it waits");
        assert!(!after_a_part(true, Scope::default()), "only a look at everything tells");
    }
}
