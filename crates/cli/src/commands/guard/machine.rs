//! How a guard does what it does, on the machine that Penstock runs on.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic,
    panic::AssertUnwindSafe,
    thread,
    time::Duration,
};

use penstock_apply::{
    MayTake, Mode,
    history::{
        Confirmation, Decision, KnownRun, Outcome, Phase, Purpose, RunRecord, UndoJournal, decision,
        recovery::{Kept, RunToUndo},
        store,
        succession::{self, Successors},
    },
    journal::{CatchUpJournal, ChangesJournal},
};
use penstock_host::{
    boot, chain,
    files::{self, Lock},
    kernel_log, scan,
};
use penstock_model::{Bdf, Inventory};
use penstock_plan::Plan;

use super::watch::{Guarded, NoLock, RunEnd};
use crate::{
    failure::{Failure, Status},
    runtime::{
        machine::{Machine, MachineLock, runs::who},
        progress,
    },
    ui::printer::Printer,
};

/// After so many attempts the way back goes without what cannot be found out about guests.
const LOOKS_AT_GUESTS: u32 = 5;

/// Takes what the way back of a run needs, before the run begins.
///
/// # Errors
///
/// When the disk has no room for the way back, or the lock of the decision cannot be made.
pub fn make_ready(run: &KnownRun) -> Result<(), Failure> {
    run.reserve().map_err(|error| {
        Failure::from(error).hint("the way back needs this room, so that the disk may fill up meanwhile")
    })?;
    // Made now, so that it is there when nothing can be made.
    drop(run.deciding()?);
    Ok(())
}

/// A run that waits to be confirmed. All that is needed to take it back is read before the run begins.
pub struct Watched<'a> {
    machine: &'a Machine,
    run: KnownRun,
    plan: Plan,
    printer: &'a mut Printer,
    alone: Option<MachineLock>,
    /// Since when somebody with another directory of states changes the machine.
    beside: Option<Duration>,
    deciding: Option<Lock>,
    /// Our decision, as long as it is not written down.
    unwritten: Option<Decision>,
    /// The run that takes it back, once it could be recorded.
    undo: Option<KnownRun>,
    own: CatchUpJournal,
    of_run: CatchUpJournal,
    /// The same, for attempts that may come to the same for days.
    own_changes: ChangesJournal<CatchUpJournal>,
    changes_of_run: ChangesJournal<CatchUpJournal>,
    /// How the undo came out, as long as that is not written down.
    outcome: Option<Outcome>,
    attempts: u32,
    /// What was told and may come up again at each attempt.
    said: BTreeSet<String>,
    /// Whether all was carried out but what is to come back.
    waits: bool,
}

impl<'a> Watched<'a> {
    /// Gets ready to watch `run`: reads its plan.
    ///
    /// # Errors
    ///
    /// When the plan of the run cannot be read.
    pub fn new(
        machine: &'a Machine,
        run: KnownRun,
        printer: &'a mut Printer,
    ) -> Result<Watched<'a>, Failure> {
        let plan = machine.runs().plan(&run)?;
        let of_run = CatchUpJournal::new(run.directory.join("journal"));
        let own = CatchUpJournal::nowhere();
        Ok(Watched {
            machine,
            plan,
            printer,
            alone: None,
            beside: None,
            deciding: None,
            unwritten: None,
            undo: None,
            own_changes: ChangesJournal::new(own.clone()),
            changes_of_run: ChangesJournal::new(of_run.clone()),
            own,
            of_run,
            outcome: None,
            attempts: 0,
            said: BTreeSet::new(),
            waits: false,
            run,
        })
    }

    /// Gives back the room that was taken.
    pub fn release(&self) {
        // Left behind it goes with the run.
        let _ = self.run.release();
    }

    /// What is there. Where guests cannot be looked at however often that is tried, only functions: the way back then does not
    /// see a guest that somebody else has started on them.
    fn inventory(&mut self) -> Result<Inventory, String> {
        match self.machine.inventory() {
            Ok(inventory) => Ok(inventory),
            Err(error) if self.attempts > LOOKS_AT_GUESTS => {
                let why = error.in_one_line();
                self.tell_new(&format!(
                    "guests cannot be looked at, and the run is taken back without: {why}"
                ));
                Ok(scan::scan_system())
            }
            Err(error) => Err(error.in_one_line()),
        }
    }

    /// Has the undo a number and a directory of its own, unless nothing can be recorded now.
    fn record_undo(&mut self, plan: &Plan, clears_overrides: &[Bdf]) {
        if self.undo.is_some() {
            return;
        }
        let record = RunRecord {
            clears_overrides: clears_overrides.to_vec(),
            ..RunRecord::new(Purpose::Undo(vec![self.run.id()]), who())
        };
        match self.machine.runs().create(record, plan, None) {
            Ok(undo) => {
                self.own = CatchUpJournal::new(undo.directory.join("journal"));
                self.own_changes = ChangesJournal::new(self.own.clone());
                self.undo = Some(undo);
            }
            Err(error) => {
                let why = chain(&error);
                self.tell_new(&format!(
                    "the run is taken back, and that cannot be recorded as a run of its own: {why}"
                ));
            }
        }
    }

    /// Tells what may come up again at each attempt, unless that was told.
    fn tell_new(&mut self, text: &str) {
        if self.said.insert(text.to_owned()) {
            self.tell(text);
        }
    }

    fn attempt(&mut self) -> Result<(), String> {
        self.attempts += 1;
        let runs = self.machine.runs();
        let plan = self.plan.clone();
        let state = runs.state_by(&self.run, || Ok(plan));
        if state.phase == Phase::Nothing {
            // Somebody else has brought back what was left.
            if let Some(outcome) = &mut self.outcome {
                outcome.error = None;
            }
            return Ok(());
        }
        if let Some(damage) = &state.damage {
            self.tell_new(&format!(
                "all that the run was to do is looked at, since how far it got cannot be read: {damage}"
            ));
        }
        let inventory = self.inventory()?;
        let taken = [RunToUndo { id: self.run.id(), plan: &self.plan, state: &state }];
        let mut way = self.machine.way_back(&taken, &inventory).map_err(|failure| failure.in_one_line())?;
        if self.waits {
            // It may wait for days: what was told as staying stays, whoever could do without it by now.
            way.leave_all_but_what_comes_back(|function| self.machine.has_function(function));
            if way.plan.steps.is_empty()
                && let Some(left) = way.left_for_now()
            {
                return Err(left);
            }
        }
        for Kept { run, step, action, why, for_now } in &way.kept {
            let text = format!("run {run}, step {step} is not taken back ({action}): {why}");
            // What is to come back is told of by whoever tries again, and that may be for days.
            if !for_now {
                self.tell_new(&text);
            }
        }
        let mut said = Vec::new();
        let left = self.machine.left_overrides(self.run.id(), &self.plan, &state, &mut said);
        self.record_undo(&way.plan, &left);
        said.extend(self.machine.clear_overrides(&left));
        said.iter().for_each(|said| self.tell_new(said));
        // An attempt tells of every step that is left: what could not be written, and what is otherwise than before, is.
        self.own.forget();
        self.of_run.forget();
        let of_runs = BTreeMap::from([(self.run.id(), self.changes_of_run.clone())]);
        let mut journal = UndoJournal::new(self.own_changes.clone(), of_runs, &way);
        let mut nobody = ();
        let mut kept = progress::Kept::new(&mut nobody, &way.plan, Mode::Undo, self.machine.progress_file());
        // Whoever has taken a VF since has it from a change that nobody wanted.
        let outcome = self.machine.execute(&way.plan, Mode::Undo, MayTake::All, &mut journal, &mut kept);
        drop(kept);
        let outcome = outcome.map_err(|failure| failure.in_one_line())?;
        self.outcome = Some(Outcome {
            ended: progress::now(),
            boottime: boot::elapsed().as_millis() as u64,
            error: outcome.as_ref().err().map(|error| chain(error)).or_else(|| way.left_for_now()),
        });
        outcome.map_err(|error| chain(&error))?;
        self.waits = true;
        // Who has an interface gives it back some time, and nobody but the guard is there to bring back the addresses of the host then.
        way.left_for_now().map_or(Ok(()), Err)
    }
}

impl Guarded for Watched<'_> {
    fn decision(&mut self) -> Result<Option<Confirmation>, String> {
        let decision = decision::read(&self.run.directory).map_err(|error| chain(&error))?;
        Ok(decision.map(|decision| decision.verdict))
    }

    fn ended(&mut self) -> Result<Option<RunEnd>, String> {
        let outcome: Result<Option<Outcome>, _> = store::read_json(&self.run.directory.join("outcome.json"));
        let outcome = outcome.map_err(|error| chain(&error))?;
        // Of one that failed and took everything back nothing is to be confirmed.
        Ok(outcome.map(|outcome| match self.machine.runs().state(&self.run).phase {
            Phase::Nothing => RunEnd::NothingIsLeft,
            _ => RunEnd::At(outcome.boottime),
        }))
    }

    fn lives(&mut self) -> bool {
        self.run.record.who.process.is_alive()
    }

    fn activity(&mut self) -> Result<u64, String> {
        match files::length(self.run.directory.join("journal")) {
            Err(error) if error.is_missing() => Ok(0),
            length => length.map_err(|error| chain(&error)),
        }
    }

    fn kill(&mut self) {
        self.run.record.who.process.kill(Duration::from_secs(10));
    }

    fn lock(&mut self) -> Result<(), NoLock> {
        if self.alone.is_none() {
            let locked = self.machine.lock_for_guard(&mut self.beside);
            let (alone, beside) = locked.map_err(|failure| match failure.status {
                Status::Busy => NoLock::Held(failure.in_one_line()),
                _ => NoLock::Failed(failure.in_one_line()),
            })?;
            self.alone = Some(alone);
            if let Some(who) = beside {
                self.tell(&format!("the run is taken back beside a change that does not end: {who}"));
            }
        }
        Ok(())
    }

    fn unlock(&mut self) {
        self.alone = None;
    }

    fn hold_decision(&mut self) -> Result<(), NoLock> {
        if self.deciding.is_none() {
            let lock = self.run.deciding().map_err(|error| NoLock::Failed(chain(&error)))?;
            self.deciding = Some(lock.ok_or_else(|| NoLock::Held("`penstock confirm` is at it".to_owned()))?);
        }
        Ok(())
    }

    fn let_decide(&mut self) {
        self.deciding = None;
    }

    fn decide(&mut self, verdict: Confirmation) -> Result<Confirmation, String> {
        // From here on the room is needed.
        self.release();
        let ours = Decision { verdict, who: who(), at: progress::now() };
        self.unwritten = Some(ours.clone());
        let given = decision::decide(&self.run.directory, ours).map_err(|error| chain(&error))?;
        self.unwritten = None;
        Ok(given.verdict)
    }

    fn successors(&mut self) -> Result<Successors, String> {
        let runs = self.machine.runs();
        let (all, _) = runs.list().map_err(|error| chain(&error))?;
        Ok(succession::successors(&all, self.run.id(), |run| runs.state(run).phase))
    }

    fn take_back(&mut self) -> Result<(), String> {
        // A defect of ours is no reason to leave the machine as it is.
        let attempt = AssertUnwindSafe(|| self.attempt());
        panic::catch_unwind(attempt).unwrap_or_else(|_| Err("penstock has a defect".to_owned()))
    }

    fn catch_up(&mut self) -> Result<(), String> {
        if let Some(ours) = &self.unwritten {
            decision::decide(&self.run.directory, ours.clone()).map_err(|error| chain(&error))?;
            self.unwritten = None;
        }
        self.of_run.catch_up().map_err(|error| chain(&error))?;
        let Some(undo) = &self.undo else { return Ok(()) };
        self.own.catch_up().map_err(|error| chain(&error))?;
        if let Some(outcome) = &self.outcome {
            undo.end(outcome).map_err(|error| chain(&error))?;
        }
        Ok(())
    }

    fn now(&mut self) -> Duration {
        boot::elapsed()
    }

    fn sleep(&mut self, time: Duration) {
        thread::sleep(time);
    }

    fn tell(&mut self, what: &str) {
        let text = format!("run {}: {what}", self.run.id());
        self.printer.warn(&text);
        kernel_log::error(&text);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use penstock_apply::{
        Journal,
        history::{Confirm, RunId},
        journal::{Ending, Entry},
    };
    use penstock_host::Root;
    use penstock_plan::{Action, Fact, FileAction, FunctionAction, Step, StepId};

    use super::*;
    use crate::{arguments::Common, settings::Settings};

    #[test]
    fn a_later_run_that_came_to_nothing_does_not_end_the_guard() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::resolve(&Common { quiet: true, ..Common::default() });
        settings.journal = directory.path().join("kept");
        let machine = Machine::at(Root::at(directory.path()), &settings);
        let watched_terms = Some(Confirm { within: 1, at_most: 1 });
        let create = |supersedes: &[RunId], confirm: Option<Confirm>| {
            let supersedes = supersedes.to_vec();
            let record = RunRecord { confirm, supersedes, ..RunRecord::new(Purpose::Apply, who()) };
            machine.runs().create(record, &Plan::default(), None).unwrap()
        };
        let set = |count| FunctionAction::SetVfCount { pf: "0000:04:00.0".parse().unwrap(), count }.into();
        let tell = |run: &KnownRun, entries: &[Entry]| run.journal().unwrap().record(entries, true).unwrap();
        let step = StepId(1);
        let begun = [
            Entry::Intent { step, action: set(2), inverse: Some(set(0)) },
            Entry::Begun { steps: vec![step] },
            Entry::Outcome { step, outcome: Ending::Failed, detail: None },
        ];
        let taken_back = [
            Entry::Undo { step, action: set(0) },
            Entry::Undone { step, error: None, anothers: None },
            Entry::End { applied: false },
        ];
        let end = |run: &KnownRun, error: Option<&str>| {
            run.end(&Outcome { ended: 1, boottime: 1, error: error.map(str::to_owned) }).unwrap();
        };

        let ours = create(&[], watched_terms);
        tell(&ours, &begun);
        let mut printer = Printer::keeping(&settings);
        let mut watched = Watched::new(&machine, ours.clone(), &mut printer).unwrap();
        assert_eq!(watched.successors(), Ok(Successors::None), "there is no other");
        let later = create(&[ours.id()], None);
        assert_eq!(watched.successors(), Ok(Successors::None), "it did not begin: its guard did not start");
        tell(&later, &begun);
        assert_eq!(watched.successors(), Ok(Successors::Stand), "it was cut off");
        tell(&later, &taken_back);
        end(&later, Some("its first step failed"));
        assert_eq!(watched.successors(), Ok(Successors::None), "all of it was taken back");
        let waits = create(&[ours.id()], watched_terms);
        tell(&waits, &begun);
        assert_eq!(watched.successors(), Ok(Successors::Undecided), "nobody has confirmed it yet");
        end(&create(&[ours.id()], None), None);
        assert_eq!(watched.successors(), Ok(Successors::Stand), "it came to a good end");
    }

    const VF: &str = "/sys/bus/pci/devices/0000:04:10.0";

    /// A machine on which a container has the interface of a VF, and a step that brings back how the host used that.
    fn with_an_interface_of_a_container(directory: &Path) -> (Settings, Machine, Action) {
        let mut settings = Settings::resolve(&Common { quiet: true, ..Common::default() });
        settings.journal = directory.join("kept");
        settings.state = directory.join("state");
        let root = Root::at(directory);
        let pf = root.path("/sys/bus/pci/devices/0000:04:00.0");
        for (place, to) in
            [(format!("{VF}/driver"), "../../drivers/igbvf"), (format!("{VF}/physfn"), "../0000:04:00.0")]
        {
            files::create_dir_all(root.path(VF)).unwrap();
            files::link(to, root.path(place)).unwrap();
        }
        files::create_dir_all(&pf).unwrap();
        let record = root.path("/run/penstock/cni/0000:04:10.0.json");
        for (place, text) in [
            (root.path("/run/netns/a"), ""),
            (record, r#"{"network": "n", "container": "web", "netns": "/run/netns/a"}"#),
        ] {
            files::create_dir_all(place.parent().unwrap()).unwrap();
            files::write_atomic(&place, text).unwrap();
        }
        let machine = Machine::at(root, &settings);
        let setup = penstock_plan::InterfaceSetup { up: true, ..Default::default() };
        let action = FunctionAction::RestoreInterface { function: "0000:04:10.0".parse().unwrap(), setup };
        (settings, machine, action.into())
    }

    /// A run that is to be confirmed and has done these.
    fn done(machine: &Machine, steps: &[(Action, Action)]) -> KnownRun {
        let step = |(id, (action, inverse)): (u32, &(Action, Action))| Step {
            id: StepId(id),
            postcondition: Fact::after(action),
            action: action.clone(),
            reason: "a test".to_owned(),
            needs: vec![],
            inverse: Some(inverse.clone()),
            best_effort: false,
            guest: None,
        };
        let plan = Plan { steps: (1..).zip(steps).map(step).collect(), ..Plan::default() };
        let watched_terms = Some(Confirm { within: 1, at_most: 1 });
        let record = RunRecord { confirm: watched_terms, ..RunRecord::new(Purpose::Apply, who()) };
        let run = machine.runs().create(record, &plan, None).unwrap();
        for Step { id, action, inverse, .. } in plan.steps {
            let entries = [
                Entry::Intent { step: id, action, inverse },
                Entry::Begun { steps: vec![id] },
                Entry::Outcome { step: id, outcome: Ending::Done, detail: None },
            ];
            run.journal().unwrap().record(&entries, true).unwrap();
        }
        run
    }

    /// A container has the interface whose addresses the run took away, and has it still when the guard takes the run back.
    #[test]
    fn a_guard_does_not_end_before_the_addresses_of_the_host_can_be_brought_back() {
        let directory = tempfile::tempdir().unwrap();
        let (settings, machine, restore) = with_an_interface_of_a_container(directory.path());
        let run = done(&machine, &[(restore.clone(), restore)]);
        let mut printer = Printer::keeping(&settings);
        let mut watched = Watched::new(&machine, run, &mut printer).unwrap();
        for _ in 0..2 {
            let why = watched.take_back().unwrap_err();
            assert!(why.contains("container web") && why.contains("has its interface"), "{why}");
            watched.catch_up().unwrap();
        }
        // It has gone, with all that was set of it.
        files::remove_tree(Root::at(directory.path()).path(VF)).unwrap();
        assert_eq!(watched.take_back(), Ok(()));
    }

    /// Beside that interface something else does not come back: all of it is tried each minute, and for days.
    #[test]
    fn a_guard_that_comes_to_the_same_again_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (settings, machine, restore) = with_an_interface_of_a_container(directory.path());
        let path = "/etc/a.conf".to_owned();
        let write = FileAction::WriteFile { path: path.clone(), text: "ours".to_owned() };
        // No file, and so it is not removed as one.
        let place = Root::at(directory.path()).path(&path);
        files::create_dir_all(&place).unwrap();
        let remove = FileAction::RemoveFile { path };
        let run = done(&machine, &[(restore.clone(), restore), (write.into(), remove.into())]);
        let journal = run.directory.join("journal");
        let mut printer = Printer::keeping(&settings);
        let mut watched = Watched::new(&machine, run, &mut printer).unwrap();
        let mut attempt = || {
            let why = watched.take_back().unwrap_err();
            watched.catch_up().unwrap();
            let own = watched.undo.as_ref().unwrap().directory.join("journal");
            (why, [&journal, &own].map(|journal| files::length(journal).unwrap()))
        };
        let (why, length) = attempt();
        assert!(why.contains("/etc/a.conf was not removed"), "{why}");
        for _ in 0..3 {
            assert_eq!(attempt(), (why.clone(), length));
        }
        // What changes is told.
        files::remove_tree(&place).unwrap();
        let (why, now) = attempt();
        assert!(why.contains("container web"), "{why}");
        assert!(now[0] > length[0] && now[1] > length[1], "{now:?} {length:?}");
        for _ in 0..2 {
            assert_eq!(attempt(), (why.clone(), now), "only the interface is left");
        }
    }

    #[test]
    fn what_comes_up_at_each_attempt_is_said_once() {
        let directory = tempfile::tempdir().unwrap();
        let (settings, machine, restore) = with_an_interface_of_a_container(directory.path());
        let run = done(&machine, &[(restore.clone(), restore)]);
        let journal = run.directory.join("journal");
        let text = files::read_to_string(&journal).unwrap();
        files::write_atomic(&journal, format!("{text}nonsense\n")).unwrap();
        let mut printer = Printer::keeping(&settings);
        let mut watched = Watched::new(&machine, run, &mut printer).unwrap();
        for _ in 0..3 {
            watched.take_back().unwrap_err();
        }
        let told = printer.take_kept();
        let damage = told.iter().filter(|line| line.contains("how far it got cannot be read")).count();
        assert_eq!(damage, 1, "{told:?}");
    }
}
