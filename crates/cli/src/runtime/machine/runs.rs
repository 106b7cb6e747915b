//! Changing this machine: alone, with a run's own directory, and found again when it is cut off.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    rc::Rc,
};

use penstock_apply::{
    Applied, ApplyError, HostExecutor, Journal, MayTake, Mode, Options, RunProgress,
    history::{
        Confirm, Confirmation, Decision, KnownRun, Outcome, Phase, Purpose, RunId, RunRecord, Runs,
        StoreError, Undecided, UndoJournal, UndoPlan, Who, decision, recovery::RunToUndo,
        store::UnreadableRun, way_back,
    },
    journal::{CatchUpJournal, FileJournal},
};
use penstock_host::{
    PciFunction, accounts, boot, chain,
    files::{self, Lock},
    interrupt,
    running::Running,
    scan::lifelines::ssh_connection_as_told,
};
use penstock_model::{Bdf, Inventory};
use penstock_plan::{Executors, Plan, StepId, persist};

use super::{Machine, MachineLock, run_states::CUT_OFF_WAY};
use crate::{
    failure::{Failure, Status},
    model_file::ModelFile,
    runtime::progress,
};

/// A run that was begun: nobody else changes the machine while this is there.
pub struct Begun {
    alone: Rc<MachineLock>,
    /// The run; `None` when there is nothing to do and nothing to go on from, and for an undo that could not be recorded.
    pub run: Option<KnownRun>,
    journal: Box<dyn Journal>,
    /// The journals of the runs that are taken back, which keep what cannot be written now.
    pub taken_back: Vec<CatchUpJournal>,
    /// What an operator should know before it goes on.
    pub said: Vec<String>,
    /// The steps of an undo that are left out after all: what somebody has made of their files could not be kept.
    left_out: BTreeSet<StepId>,
}

/// This process, and who started it.
pub fn who() -> Who {
    let present = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let user = accounts::this_user();
    let terminal = files::read_link("/proc/self/fd/0").ok().map(|path| path.display().to_string());
    Who {
        process: Running::this().unwrap_or(Running { id: std::process::id(), started: 0 }),
        user: present("SUDO_USER").map_or(user.clone(), |caller| format!("{user} ({caller})")),
        command: env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        since: progress::now(),
        terminal: terminal.filter(|name| name.starts_with("/dev/pts/") || name.starts_with("/dev/tty")),
        // `su -`, `doas` and `sudo su -` leave no variable at all.
        peer: ssh_connection_as_told()
            // Without the interface that a link-local address is of, which may have another name by the time that it is compared.
            .and_then(|text| text.split([' ', '%']).next().map(str::to_owned)),
    }
}

/// Whether somebody changed the machine as a look at it began, and the last time that its lock was taken.
pub struct BeforeLook {
    stamp: Option<files::Stamp>,
    busy: bool,
}

impl Machine {
    /// The runs that changed it.
    pub fn runs(&self) -> Runs {
        Runs::new(&self.journal, boot::id(&self.root))
    }

    /// Who changes it now, in words, if anybody does. The lock is not touched.
    pub fn changed_by(&self) -> Option<String> {
        let path = self.state.join("lock");
        let noted = files::read(&path).ok().and_then(|text| serde_json::from_slice::<Who>(&text).ok());
        let id = Lock::holder(&path, noted.as_ref().map(|who| who.process.id))?;
        Some(match noted.filter(|who| who.process.is_alive()) {
            Some(who) => who.to_string(),
            None => format!("process {id}"),
        })
    }

    /// What is another one after each time that the machine's lock was taken.
    pub fn changes(&self) -> Option<files::Stamp> {
        files::stamp(self.state.join("lock"))
    }

    /// Whether somebody changes this machine, or has begun to since [`Machine::changes`] was `stamp`.
    pub fn is_changed_since(&self, stamp: Option<&files::Stamp>) -> bool {
        self.changed_by().is_some() || self.changes().as_ref() != stamp
    }

    /// What [`Machine::was_changed`] compares with after a look at the machine.
    pub fn before_a_look(&self) -> BeforeLook {
        // In this order: who takes the lock in between has changed the stamp.
        let stamp = self.changes();
        BeforeLook { stamp, busy: self.changed_by().is_some() }
    }

    /// Whether somebody changed this machine at some time since `before`.
    pub fn was_changed(&self, before: &BeforeLook) -> bool {
        before.busy || self.is_changed_since(before.stamp.as_ref())
    }

    /// Begins a run of `plan`, which was made while the lock was held. Refused while an earlier one waits for confirmation.
    ///
    /// # Errors
    ///
    /// `Status::Busy` while an earlier run waits to be confirmed; when the runs cannot be listed, or the new one not be recorded.
    pub fn begin(
        &self,
        alone: impl Into<Rc<MachineLock>>,
        plan: &Plan,
        mode: Mode,
        model: &ModelFile,
        confirm: Option<Confirm>,
    ) -> Result<Begun, Failure> {
        let runs = self.runs();
        let (all, unreadable) = runs.list()?;
        let of_unreadable = |run: &UnreadableRun| {
            let why = chain(&run.error);
            format!(
                "run {} cannot be read: what it left, if anything, stays where this run changes nothing: {why}",
                run.id
            )
        };
        let mut said: Vec<String> = unreadable.iter().map(of_unreadable).collect();
        for run in all.iter().filter(|run| run.is_open() && !runs.has_lapsed(run)) {
            self.settle(&runs, run)?;
        }
        let half_way = runs.half_way(&all);
        for (run, phase) in &half_way {
            let what = match phase {
                Phase::Interrupted => "was cut off",
                Phase::Damaged => "is damaged, so that nobody knows how far it got",
                _ => "was taken back in part",
            };
            said.push(format!(
                "run {} of {} {what}: this run goes on from what is; `penstock undo` then takes both back",
                run.id(),
                run.record.who
            ));
        }
        if plan.steps.is_empty() && half_way.is_empty() {
            let journal = Box::new(Vec::new());
            return Ok(Begun {
                alone: alone.into(),
                run: None,
                journal,
                taken_back: Vec::new(),
                said,
                left_out: BTreeSet::new(),
            });
        }
        let purpose = match mode {
            Mode::TearDown => Purpose::Stop,
            _ if persist::is_for_the_start(plan) => Purpose::Persist,
            _ => Purpose::Apply,
        };
        let earlier: Vec<&KnownRun> = half_way.iter().map(|(run, _)| run).collect();
        let clears_overrides = self.overrides_left_by(&runs, &earlier, &mut said);
        let record = RunRecord {
            model: Some(model.source.name.clone()),
            confirm,
            supersedes: earlier.iter().map(|run| run.id()).collect(),
            clears_overrides,
            ..RunRecord::new(purpose, who())
        };
        let run = runs.create(record, plan, Some(model.source.text.as_str()));
        let run = run.map_err(not_recorded)?;
        let ready = make_ready(&runs, &all, &run, mode, &mut said);
        let journal = Box::new(ready.map_err(|error| {
            // It does not begin: nobody is to take it for a run that was cut off. One that stays has come to nothing.
            if runs.forget(&run).is_err() {
                let _ = run.release();
            }
            not_recorded(error)
        })?);
        said.extend(self.clear_overrides(&run.record.clears_overrides));
        Ok(Begun {
            alone: alone.into(),
            run: Some(run),
            journal,
            taken_back: Vec::new(),
            said,
            left_out: BTreeSet::new(),
        })
    }

    /// Begins to take `targets` back by `way`; the caller holds the lock. Where that cannot be recorded, on a full disk, it goes on
    /// all the same: the next undo looks at the machine, and passes over what is so already.
    pub fn begin_undo(&self, alone: MachineLock, targets: &[KnownRun], way: &UndoPlan) -> Begun {
        let alone = Rc::new(alone);
        let runs = self.runs();
        let ids: Vec<RunId> = targets.iter().map(KnownRun::id).collect();
        let mut said = Vec::new();
        let earlier: Vec<&KnownRun> = targets.iter().collect();
        let clears_overrides = self.overrides_left_by(&runs, &earlier, &mut said);
        let record = RunRecord {
            clears_overrides: clears_overrides.clone(),
            ..RunRecord::new(Purpose::Undo(ids), who())
        };
        let run = match runs.create(record, &way.plan, None) {
            Ok(run) => Some(run),
            Err(error) => {
                said.push(format!("this undo goes on, and cannot be recorded as a run: {}", chain(&error)));
                None
            }
        };
        let own = run.as_ref().map_or_else(CatchUpJournal::nowhere, journal_of);
        let journals: BTreeMap<RunId, CatchUpJournal> =
            targets.iter().map(|run| (run.id(), journal_of(run))).collect();
        let taken_back = journals.values().cloned().collect();
        let journal = Box::new(UndoJournal::new(own, journals, way));
        let mut left_out = BTreeSet::new();
        let keeper = run.as_ref().or(targets.last());
        for path in &way.edited {
            match self.keep_edit(path, keeper) {
                Ok(kept) => said.push(kept),
                Err(why) => {
                    said.push(why);
                    left_out.extend(way.steps_at(path));
                }
            }
        }
        said.extend(self.clear_overrides(&clears_overrides));
        Begun { alone, run, journal, taken_back, said, left_out }
    }

    /// Keeps what somebody has made of a file of Penstock's own, which is about to be taken back, with the run `keeper`; what a person is
    /// told of it, with `Err` that the file is to stay.
    fn keep_edit(&self, path: &str, keeper: Option<&KnownRun>) -> Result<String, String> {
        let what = format!("somebody has edited {path} since Penstock wrote it");
        let Some(keeper) = keeper else {
            return Err(format!("{what}: it stays, with no run to keep it with"));
        };
        let kept = keeper.directory.join("edited").join(path.trim_start_matches('/'));
        let made = kept.parent().map_or(Ok(()), files::create_dir_all);
        match made.and_then(|()| files::copy(self.root.path(path), &kept)) {
            Ok(_) => Ok(format!(
                "{what}, and it is taken back all the same: the edit is kept as {}",
                kept.display()
            )),
            Err(error) => Err(format!(
                "{what}: it is not taken back, since the edit could not be kept; make room, and call `penstock undo` again: {}",
                chain(&error)
            )),
        }
    }

    /// The functions whose `driver_override` runs that were cut off have left set, each once. A run whose plan cannot be read tells
    /// nothing of it.
    fn overrides_left_by(&self, runs: &Runs, of: &[&KnownRun], said: &mut Vec<String>) -> Vec<Bdf> {
        let mut left = BTreeSet::new();
        for run in of {
            if let Ok(applied_run) = runs.applied_run(run) {
                left.extend(self.left_overrides(run.id(), &applied_run.plan, &applied_run.state, said));
            }
        }
        left.into_iter().collect()
    }

    /// Carries out what was begun, and keeps how it ended.
    ///
    /// # Errors
    ///
    /// The machine cannot be changed at all. What came of the plan is inside.
    pub fn carry_out(
        &self,
        mut begun: Begun,
        plan: &Plan,
        mode: Mode,
        observer: &mut dyn RunProgress,
    ) -> Result<Result<Applied, ApplyError>, Failure> {
        if begun.run.is_none() && begun.taken_back.is_empty() {
            return Ok(Ok(Applied::default()));
        }
        let may_take = MayTake::Known(begun.alone.in_use.clone());
        let left = plan.steps.iter().filter(|step| !begun.left_out.contains(&step.id));
        let plan = Plan { steps: left.cloned().collect(), ..plan.clone() };
        let outcome = self.execute(&plan, mode, may_take, &mut *begun.journal, observer)?;
        // Whatever of it cannot be written even now is told by whoever began to undo.
        begun.taken_back.iter().for_each(|journal| drop(journal.catch_up()));
        let Some(run) = begun.run else { return Ok(outcome) };
        let ended = Outcome {
            ended: progress::now(),
            boottime: boot::elapsed().as_millis() as u64,
            error: outcome.as_ref().err().map(|error| chain(error)),
        };
        // Its journal tells the same, only slower: a full disk does not make what was done undone.
        let _ = run.end(&ended);
        if self.runs().state(&run).phase == Phase::Nothing {
            let _ = run.release();
        }
        Ok(outcome)
    }

    /// Plans to take `runs` back, which are given oldest first, where the machine is as `present` shows it.
    ///
    /// # Errors
    ///
    /// When the kernel's sockets, by which steps are looked at, cannot be opened.
    pub fn way_back(&self, runs: &[RunToUndo<'_>], present: &Inventory) -> Result<UndoPlan, Failure> {
        let mut host = HostExecutor::new(self.root.clone())?;
        Ok(way_back(runs, present, &mut host))
    }

    /// Whether a function is there.
    pub fn has_function(&self, function: Bdf) -> bool {
        PciFunction::new(&self.root, function).exists()
    }

    /// Carries a plan out and records it in `journal`; the caller holds the machine's lock. Functions that others have are taken as `may_take`
    /// says.
    ///
    /// # Errors
    ///
    /// When the kernel's sockets cannot be opened; nothing was done then. What a step fails with is inside.
    pub fn execute(
        &self,
        plan: &Plan,
        mode: Mode,
        may_take: MayTake,
        journal: &mut dyn Journal,
        observer: &mut dyn RunProgress,
    ) -> Result<Result<Applied, ApplyError>, Failure> {
        let (mut host, mut guests) = (HostExecutor::new(self.root.clone())?.taking(may_take), self.guests());
        let mut executors = Executors::new(&mut host, &mut guests);
        let options = Options { mode, cancel: Some(interrupt::watched()), ..Options::default() };
        Ok(penstock_apply::run(plan, &mut executors, journal, observer, &options))
    }

    /// Refuses to go on past a run that waits for confirmation.
    fn settle(&self, runs: &Runs, run: &KnownRun) -> Result<(), Failure> {
        if run.outcome.is_some() || !run.is_running() {
            let nothing = runs.state(run).phase == Phase::Nothing;
            if nothing {
                let ours = Decision { verdict: Confirmation::Failed, who: who(), at: progress::now() };
                decision::decide(&run.directory, ours)?;
                return Ok(());
            }
        }
        if runs.undecided(run) == Some(Undecided::CutOff) {
            let (id, who) = (run.id(), &run.record.who);
            let text =
                format!("run {id} of {who} was to be confirmed, and was cut off before it came to its end");
            return Err(Failure::new(Status::Busy, text).hint(CUT_OFF_WAY));
        }
        let text = format!("run {} of {} waits to be confirmed", run.id(), run.record.who);
        Err(Failure::new(Status::Busy, text)
            .hint("`penstock confirm` keeps what it did, `penstock undo` takes it back"))
    }
}

/// Takes the room that the way back of `run` needs, forgets runs that are too many, and opens the journal.
fn make_ready(
    runs: &Runs,
    all: &[KnownRun],
    run: &KnownRun,
    mode: Mode,
    said: &mut Vec<String>,
) -> Result<FileJournal, StoreError> {
    for id in runs.prune(all)? {
        said.push(format!(
            "run {id} is the oldest of too many and was forgotten: it cannot be undone any more"
        ));
    }
    match run.reserve() {
        // The way back of this run is that of those that it goes on from: one reserve is enough for a machine.
        Ok(()) => all.iter().for_each(|earlier| drop(earlier.release())),
        // Giving back needs no way back, so a full disk does not hold it.
        Err(_) if mode == Mode::TearDown => drop(run.release()),
        Err(error) => return Err(error),
    }
    run.journal()
}

fn journal_of(run: &KnownRun) -> CatchUpJournal {
    CatchUpJournal::new(run.directory.join("journal"))
}

fn not_recorded(error: StoreError) -> Failure {
    Failure::from(error).hint("nothing was changed, because it could not be recorded")
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use std::{path::PathBuf, thread};

    use nix::{
        mount::{MsFlags, mount, umount},
        sched::{CloneFlags, unshare},
    };
    use penstock_apply::journal::{Ending, Entry};
    use penstock_guests::Builtin;
    use penstock_host::Root;
    use penstock_plan::{Action, Fact, FileAction, FunctionAction, Step, StepId};
    use tempfile::TempDir;

    use super::*;

    const VF: &str = "0000:04:10.0";

    fn step(action: Action, inverse: Action) -> Step {
        Step {
            id: StepId(1),
            postcondition: Fact::after(&action),
            action,
            reason: "a test".to_owned(),
            needs: Vec::new(),
            inverse: Some(inverse),
            best_effort: false,
            guest: None,
        }
    }

    fn vf_count(count: u16) -> Action {
        FunctionAction::SetVfCount { pf: "0000:04:00.0".parse().unwrap(), count }.into()
    }

    fn driver(driver: Option<&str>) -> Action {
        let driver = driver.map(str::to_owned);
        FunctionAction::SetDriver { function: VF.parse().unwrap(), driver, mac: None }.into()
    }

    fn machine(directory: &TempDir) -> Machine {
        Machine {
            root: Root::at(directory.path()),
            state: directory.path().join("state"),
            journal: directory.path().join("kept"),
            builtin: Builtin { directories: Vec::new() },
            peers: Vec::new(),
            changing: directory.path().join("changing"),
        }
    }

    /// A run of one step whose process is gone.
    fn cut_off(machine: &Machine, step: &Step, entries: &[Entry]) -> KnownRun {
        let plan = Plan { steps: vec![step.clone()], ..Plan::default() };
        let gone = Who { process: Running { id: 1, started: u64::MAX }, ..who() };
        let run = machine.runs().create(RunRecord::new(Purpose::Apply, gone), &plan, None).unwrap();
        let intent =
            Entry::Intent { step: step.id, action: step.action.clone(), inverse: step.inverse.clone() };
        let mut journal = run.journal().unwrap();
        journal.record(&[Entry::Begin { version: 1, steps: 1 }, intent], true).unwrap();
        journal.record(entries, true).unwrap();
        run
    }

    fn begin(machine: &Machine, plan: &Plan) -> Begun {
        let path = machine.root.path("/a.yaml");
        files::write_atomic(&path, "nics: {NET0: {vfs: 2}}\n").unwrap();
        let model = crate::model_file::load(&path).unwrap();
        machine.begin(machine.lock().unwrap(), plan, Mode::Apply, &model, None).unwrap()
    }

    /// Its VF is bound to a driver, and its `driver_override` is what a run left.
    fn bound(machine: &Machine, bound: &str, set: &str) {
        let function = machine.root.path(format!("/sys/bus/pci/devices/{VF}"));
        files::create_dir_all(&function).unwrap();
        files::write_atomic(function.join("driver_override"), set).unwrap();
        std::os::unix::fs::symlink(format!("../../drivers/{bound}"), function.join("driver")).unwrap();
    }

    fn override_of(machine: &Machine) -> String {
        let path = machine.root.path(format!("/sys/bus/pci/devices/{VF}/driver_override"));
        files::read_to_string(path).unwrap().trim().to_owned()
    }

    #[test]
    fn a_change_that_ends_or_takes_place_during_a_look_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(&directory);
        drop(machine.lock().unwrap());
        let quiet = machine.before_a_look();
        assert!(!machine.was_changed(&quiet));
        drop(machine.lock().unwrap());
        assert!(machine.was_changed(&quiet), "it took place meanwhile");
        let held = machine.lock().unwrap();
        let busy = machine.before_a_look();
        drop(held);
        assert!(machine.was_changed(&busy), "it went on as the look began");
    }

    #[test]
    fn a_run_begins_past_damaged_ones_and_says_what_is_not_known_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(&directory);
        let step = step(vf_count(2), vf_count(0));
        let make = || cut_off(&machine, &step, &[]);
        let (damaged, unreadable) = (make(), make());
        files::write_atomic(damaged.directory.join("journal"), "{\"ent{\"entry\":\"begun\"}\n").unwrap();
        files::write_atomic(unreadable.directory.join("run.json"), "{").unwrap();
        let begun = begin(&machine, &Plan { steps: vec![step.clone()], ..Plan::default() });
        let said = begun.said.join("\n");
        assert!(said.contains("run 2 cannot be read: what it left, if anything, stays"), "{said}");
        assert!(said.contains("is damaged, so that nobody knows how far it got"), "{said}");
        assert_eq!(begun.run.unwrap().record.supersedes, [damaged.id()]);
    }

    #[test]
    fn a_run_that_a_reset_left_unconfirmed_waits_for_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(&directory);
        let boot = |id: &str| {
            let path = machine.root.path("/proc/sys/kernel/random/boot_id");
            files::create_dir_all(path.parent().unwrap()).unwrap();
            files::write_atomic(path, id).unwrap();
        };
        boot("the first");
        let path = "/etc/a.conf".to_owned();
        let write = FileAction::WriteFile { path: path.clone(), text: "a".to_owned() };
        let step = step(write.into(), FileAction::RemoveFile { path }.into());
        let plan = Plan { steps: vec![step.clone()], ..Plan::default() };
        let confirm = Some(Confirm { within: 1000, at_most: 1000 });
        let gone = Who { process: Running { id: 1, started: u64::MAX }, ..who() };
        let record = RunRecord { confirm, ..RunRecord::new(Purpose::Apply, gone) };
        let run = machine.runs().create(record, &plan, None).unwrap();
        let (action, inverse) = (step.action.clone(), step.inverse.clone());
        let done = Entry::Outcome { step: step.id, outcome: Ending::Done, detail: None };
        let entries = [
            Entry::Begin { version: 1, steps: 1 },
            Entry::Intent { step: step.id, action, inverse },
            done,
            Entry::End { applied: true },
        ];
        run.journal().unwrap().record(&entries, true).unwrap();
        let path = machine.root.path("/a.yaml");
        files::write_atomic(&path, "nics: {NET0: {vfs: 2}}\n").unwrap();
        let model = crate::model_file::load(&path).unwrap();
        let begin = || machine.begin(machine.lock().unwrap(), &plan, Mode::Apply, &model, None);
        let busy = begin().err().unwrap();
        assert!(
            busy.in_one_line().contains("was cut off before it came to its end"),
            "{}",
            busy.in_one_line()
        );
        run.end(&Outcome { ended: 1, boottime: 1, error: None }).unwrap();
        let busy = begin().err().unwrap();
        assert!(busy.in_one_line().contains("waits to be confirmed"), "{}", busy.in_one_line());
        boot("the second");
        assert!(begin().unwrap().run.is_some());
    }

    #[test]
    fn the_last_run_alone_has_taken_the_room_for_its_way_back_until_nothing_of_it_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(&directory);
        let reserve = |run: &KnownRun| run.directory.join("reserve");
        let plan = Plan { steps: vec![step(vf_count(2), vf_count(0))], ..Plan::default() };
        let first = begin(&machine, &plan).run.unwrap();
        let room = files::length(reserve(&first).join("0")).unwrap();
        assert!(room >= 32 << 10, "{room}");
        assert!(begin(&machine, &plan).run.is_some() && !files::exists(reserve(&first)));
        // The PF is not there: its first step fails, and nothing stays.
        let begun = begin(&machine, &plan);
        let last = begun.run.clone().unwrap();
        assert!(files::exists(reserve(&last)));
        assert!(machine.carry_out(begun, &plan, Mode::Apply, &mut ()).unwrap().is_err());
        assert_eq!(machine.runs().state(&last).phase, Phase::Nothing);
        assert!(!files::exists(reserve(&last)));
    }

    /// Needs a mount namespace, which not everybody may make.
    #[test]
    fn a_run_that_finds_no_room_for_its_way_back_leaves_nothing_behind() {
        let on_a_small_disk = || {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let (none, directory) = (None::<&str>, tempfile::tempdir().unwrap());
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            let machine = machine(&directory);
            files::create_dir_all(&machine.journal).unwrap();
            // Room for the run's own files, and not for those of an undo.
            mount(Some("tmpfs"), &machine.journal, Some("tmpfs"), MsFlags::empty(), Some("size=200k"))
                .unwrap();
            let step = step(vf_count(2), vf_count(0));
            let kept = cut_off(&machine, &step, &[]);
            let path = machine.root.path("/a.yaml");
            files::write_atomic(&path, "nics: {NET0: {vfs: 2}}\n").unwrap();
            let (model, plan) =
                (crate::model_file::load(&path).unwrap(), Plan { steps: vec![step], ..Plan::default() });
            let begin = |mode| machine.begin(machine.lock().unwrap(), &plan, mode, &model, None);
            let refused = begin(Mode::Apply).err().unwrap();
            assert!(refused.in_one_line().contains("No space left on device"), "{}", refused.in_one_line());
            let ids = || machine.runs().list().unwrap().0.iter().map(KnownRun::id).collect::<Vec<_>>();
            assert_eq!(ids(), [kept.id()]);
            // What gives back needs no room.
            assert_eq!(begin(Mode::TearDown).unwrap().run.unwrap().id(), RunId(2));
            umount(&machine.journal).unwrap();
            nix::Result::Ok(())
        };
        if let Err(errno) = thread::spawn(on_a_small_disk).join().unwrap() {
            penstock_testkit::skip::whole(format!("no mount namespace can be made here: {errno}"));
        }
    }

    #[test]
    fn an_override_that_a_killed_run_left_is_cleared_by_the_next_even_when_nothing_else_is_to_be_done() {
        let outcome = Entry::Outcome { step: StepId(1), outcome: Ending::Done, detail: None };
        let begun_step = Entry::Begun { steps: vec![StepId(1)] };
        for (what, entries, set, left) in [
            ("killed at it", vec![begun_step.clone()], "igbvf", "left"),
            ("nobody of ours set this one", vec![begun_step.clone()], "uio_pci_generic", "kept"),
            ("it came to its end, so that it is somebody else's", vec![begun_step, outcome], "igbvf", "kept"),
            ("it was not begun", vec![], "igbvf", "kept"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let machine = machine(&directory);
            bound(&machine, "igbvf", set);
            cut_off(&machine, &step(driver(Some("igbvf")), driver(None)), &entries);
            let begun = begin(&machine, &Plan::default());
            let (now, said) = (override_of(&machine), begun.said.join("\n"));
            if left == "left" {
                let run = begun.run.expect("a run that records it");
                assert_eq!(run.record.clears_overrides, [VF.parse().unwrap()], "{what}");
                assert_eq!(now, "", "{what}");
                assert!(said.contains("run 1 has left the driver override igbvf on 0000:04:10.0"), "{said}");
            } else {
                assert_eq!(now, set, "{what}: {said}");
            }
        }
    }

    /// A run that wrote the model for the next boots, with this at the journal's end; the file, which somebody has edited since; the way back.
    fn edited(machine: &Machine, end: Option<Entry>) -> (KnownRun, PathBuf, UndoPlan) {
        let path = persist::MODEL.to_owned();
        let write = FileAction::WriteFile { path: path.clone(), text: "a".to_owned() };
        let step = step(write.into(), FileAction::RemoveFile { path }.into());
        let done = Entry::Outcome { step: StepId(1), outcome: Ending::Done, detail: None };
        let begun = Entry::Begun { steps: vec![StepId(1)] };
        let journal: Vec<Entry> = [begun, done].into_iter().chain(end).collect();
        let run = cut_off(machine, &step, &journal);
        let place = machine.root.path(persist::MODEL);
        files::create_dir_all(place.parent().unwrap()).unwrap();
        files::write_atomic(&place, "edited").unwrap();
        let applied_run = machine.runs().applied_run(&run).unwrap();
        let taken = [RunToUndo { id: run.id(), plan: &applied_run.plan, state: &applied_run.state }];
        let way = machine.way_back(&taken, &Inventory::default()).unwrap();
        (run, place, way)
    }

    #[test]
    fn an_edit_of_a_file_of_penstocks_own_is_kept_when_the_file_is_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(&directory);
        let (run, place, way) = edited(&machine, None);
        let begun = machine.begin_undo(machine.lock().unwrap(), &[run], &way);
        let (kept, said) = (begun.run.clone().unwrap().directory, begun.said.join("\n"));
        let kept = kept.join("edited/etc/penstock/model.yaml");
        assert!(said.contains(&format!("the edit is kept as {}", kept.display())), "{said}");
        assert_eq!(files::read_to_string(&kept).unwrap(), "edited");
        machine.carry_out(begun, &way.plan, Mode::Undo, &mut ()).unwrap().unwrap();
        assert!(!files::exists(place));
    }

    #[test]
    fn a_file_of_penstocks_own_stays_where_an_edit_of_it_cannot_be_kept() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(&directory);
        let (run, place, way) = edited(&machine, Some(Entry::End { applied: true }));
        // It cannot be copied.
        files::remove_file(&place).unwrap();
        let begun = machine.begin_undo(machine.lock().unwrap(), std::slice::from_ref(&run), &way);
        let said = begun.said.join("\n");
        assert!(said.contains("it is not taken back, since the edit could not be kept"), "{said}");
        files::write_atomic(&place, "edited").unwrap();
        machine.carry_out(begun, &way.plan, Mode::Undo, &mut ()).unwrap().unwrap();
        assert_eq!(files::read_to_string(&place).unwrap(), "edited");
        assert_eq!(machine.runs().state(&run).left, 1, "a later undo takes it back");
    }

    #[test]
    fn an_override_that_a_killed_undo_left_is_cleared_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let machine = machine(&directory);
        bound(&machine, "igbvf", "igbvf");
        let inverse = driver(Some("igbvf"));
        let entries = [
            Entry::Begun { steps: vec![StepId(1)] },
            Entry::Outcome { step: StepId(1), outcome: Ending::Done, detail: None },
            Entry::End { applied: true },
            Entry::Undo { step: StepId(1), action: inverse.clone() },
        ];
        let run = cut_off(&machine, &step(driver(None), inverse), &entries);
        let begun = machine.begin_undo(machine.lock().unwrap(), &[run], &UndoPlan::default());
        assert_eq!(begun.run.unwrap().record.clears_overrides, [VF.parse().unwrap()]);
        assert_eq!(override_of(&machine), "");
    }
}
