//! The runs on disk: `runs/0007/` with `run.json`, `plan.json`, `model.yaml`, `journal`, and `outcome.json` when it ended.
//!
//! A run's directory is made under another name, synced, and renamed: it is there whole or not at all. What is written
//! later is a journal that may be cut off at any byte, or a file that is whole or not there.

use std::path::{Path, PathBuf};

use penstock_host::{
    chain,
    files::{self, FileError, Lock},
};
use penstock_plan::Plan;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use super::{
    decision::{self, Confirmation, Decision},
    record::{Outcome, Purpose, RUN_VERSION, RunId, RunRecord},
    state::{Phase, RunState},
    succession::{Successors, successors},
};
use crate::journal::{self, FileJournal, JOURNAL_LIMIT, JournalError, RECORD_LIMIT};

/// So many runs are kept; of older ones those of which nothing is left to take back are forgotten.
pub const KEPT: usize = 100;

/// So many are kept at most. A run that could still be taken back is forgotten then too, and that is said.
pub const KEPT_AT_MOST: usize = 200;

/// How a run stands that was to be confirmed and of which nobody has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// Whoever does it is still at it.
    AtWork,
    /// It has come to its end and waits for somebody to confirm it.
    Waits,
    /// Whoever did it was ended before that: nobody can confirm half a run, and its guard takes it back, if that lives.
    CutOff,
    /// The machine was reset since: it does not stay.
    Lapsed,
}

/// The room for the way back of a run that waits to be confirmed.
const RESERVE: &str = "reserve";
/// So many bytes of it whatever the plan is, and so many times the plan.
const RESERVED: u64 = 256 << 10;
const RESERVED_FOR_PLAN: u64 = 8;
/// What there is room for is also read again.
const _: () = assert!(JOURNAL_LIMIT as u64 > RESERVED + RESERVED_FOR_PLAN * RECORD_LIMIT as u64);
/// As many files as an undo makes, and one more: a disk also runs out of inodes.
const RESERVED_FILES: u64 = 8;

/// Something about the runs on disk that is not as it should be.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file's text makes no sense.
    #[error("{} cannot be understood", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// Why its text was not understood.
        #[source]
        source: serde_json::Error,
    },
    /// A newer Penstock wrote it.
    #[error("{} has version {version}; this Penstock reads up to {RUN_VERSION}", path.display())]
    Newer {
        /// The path of the run's `run.json`.
        path: PathBuf,
        /// The [`RUN_VERSION`] of the Penstock that wrote it.
        version: u32,
    },
    /// Its plan, or its model, is longer than what is read again, so that nobody could take the run back.
    #[error(
        "the {what} has {length} bytes as it is recorded, and at most {most} are read again: make several smaller changes of it"
    )]
    TooLong {
        /// What it is: `plan` or `model`.
        what: &'static str,
        /// How long it is, in bytes.
        length: usize,
        /// How long it may be, in bytes.
        most: usize,
    },
    /// There is no such run.
    #[error("there is no run {0} on this machine")]
    NoSuchRun(RunId),
}

/// The runs of a machine.
#[derive(Clone, Debug)]
pub struct Runs {
    directory: PathBuf,
    boot: Option<String>,
}

/// A run as its small files tell: cheap to have for all of them.
#[derive(Clone, Debug)]
pub struct KnownRun {
    /// Who, when, what for.
    pub record: RunRecord,
    /// How it ended, if it did by itself.
    pub outcome: Option<Outcome>,
    /// What was decided, of one that was to be confirmed.
    pub decision: Option<Decision>,
    /// The directory with its files; its name is the run's number.
    pub directory: PathBuf,
    /// What is wrong with its small files, each the error and its causes. What they would tell counts as not known.
    pub damage: Vec<String>,
}

/// A run of which not even that can be read who did it and what for.
#[derive(Debug)]
pub struct UnreadableRun {
    /// The run's number, from the name of its directory.
    pub id: RunId,
    /// Why its `run.json` could not be read.
    pub error: StoreError,
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct AppliedRun {
    /// What it was to do.
    pub plan: Plan,
    /// What became of that.
    pub state: RunState,
}

impl KnownRun {
    /// The run's number on this machine.
    pub fn id(&self) -> RunId {
        self.record.id
    }

    /// Whether whoever does it is still at it.
    pub fn is_running(&self) -> bool {
        self.outcome.is_none() && self.record.who.process.is_alive()
    }

    /// Whether it is written down by now that it came to its end.
    fn has_ended_by_now(&self) -> bool {
        matches!(read_json::<Outcome>(&self.directory.join("outcome.json")), Ok(Some(_)))
    }

    /// Whether it waits for somebody to confirm it, or is to when it ends.
    pub fn is_open(&self) -> bool {
        self.record.confirm.is_some() && self.decision.is_none()
    }

    /// Whether it was decided that it does not stay.
    pub fn is_not_to_stay(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.verdict != Confirmation::Confirmed)
    }

    /// The runs that it takes back, of an undo.
    pub fn takes_back(&self) -> &[RunId] {
        match &self.record.purpose {
            Purpose::Undo(runs) => runs,
            Purpose::Apply | Purpose::Stop | Purpose::Persist => &[],
        }
    }
}

impl Runs {
    /// The runs below `directory`, seen on the run of the kernel `boot`.
    pub fn new(directory: impl Into<PathBuf>, boot: Option<String>) -> Runs {
        Runs { directory: directory.into().join("runs"), boot }
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The journal that Penstock kept before it had a directory for each run, if there is one.
    pub fn journal_of_old(&self) -> Option<PathBuf> {
        let path = self.directory.parent()?.join("journal");
        files::exists(&path).then_some(path)
    }

    /// The run of the kernel that this is.
    pub fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    /// Makes the directory of a new run and gives it its number. The caller holds the machine's lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] when the directory or a file in it cannot be written: a full disk. [`StoreError::TooLong`] when the
    /// run could not be read again; nothing is written then.
    pub fn create(
        &self,
        mut record: RunRecord,
        plan: &Plan,
        model: Option<&str>,
    ) -> Result<KnownRun, StoreError> {
        let plan = json(plan);
        for (what, length) in [("plan", plan.len()), ("model", model.map_or(0, str::len))] {
            if length > RECORD_LIMIT {
                return Err(StoreError::TooLong { what, length, most: RECORD_LIMIT });
            }
        }
        files::create_dir_all(&self.directory)?;
        // A number that a damaged directory has is not given again.
        let last = self.names()?.into_iter().map(|(id, _)| id.0).max().unwrap_or(0);
        record.id = RunId(last + 1);
        record.version = RUN_VERSION;
        record.boot = self.boot.clone();
        let part = self.directory.join(".part");
        files::remove_tree(&part)?;
        files::create_dir_all(&part)?;
        files::write_atomic(part.join("run.json"), json(&record))?;
        files::write_atomic(part.join("plan.json"), plan)?;
        if let Some(model) = model {
            files::write_atomic(part.join("model.yaml"), model)?;
        }
        files::sync_directory(&part)?;
        let directory = self.directory.join(format!("{:04}", record.id.0));
        files::rename(&part, &directory)?;
        files::sync_directory(&self.directory)?;
        Ok(KnownRun { record, outcome: None, decision: None, directory, damage: Vec::new() })
    }

    /// Every run, oldest first, and those that cannot be read.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] when the directory of all runs cannot be read. A run that is damaged is part of the answer.
    pub fn list(&self) -> Result<(Vec<KnownRun>, Vec<UnreadableRun>), StoreError> {
        let (mut runs, mut damaged) = (Vec::new(), Vec::new());
        for (id, directory) in self.names()? {
            match self.look(id, directory) {
                Ok(run) => runs.push(run),
                Err(error) => damaged.push(UnreadableRun { id, error }),
            }
        }
        Ok((runs, damaged))
    }

    /// The run `id`.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchRun`]; [`StoreError::Damaged`], [`StoreError::Newer`] or [`StoreError::File`] when it cannot be
    /// read.
    pub fn find(&self, id: RunId) -> Result<KnownRun, StoreError> {
        let found = self.names()?.into_iter().find(|(name, _)| *name == id);
        let (_, directory) = found.ok_or(StoreError::NoSuchRun(id))?;
        self.look(id, directory)
    }

    fn look(&self, id: RunId, directory: PathBuf) -> Result<KnownRun, StoreError> {
        let path = directory.join("run.json");
        // The version first: of a newer form nothing else can be relied on.
        let head: serde_json::Value = need_json(&path)?;
        let version = head.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let version = u32::try_from(version).unwrap_or(u32::MAX);
        if version > RUN_VERSION {
            return Err(StoreError::Newer { path, version });
        }
        let record: RunRecord =
            serde_json::from_value(head).map_err(|source| StoreError::Damaged { path, source })?;
        let mut damage = Vec::new();
        let mut tell = |error: StoreError| damage.push(chain(&error));
        let outcome = read_json(&directory.join("outcome.json")).unwrap_or_else(|error| {
            tell(error);
            None
        });
        let decision = decision::read(&directory).unwrap_or_else(|error| {
            tell(error);
            None
        });
        Ok(KnownRun { record: RunRecord { id, ..record }, outcome, decision, directory, damage })
    }

    fn names(&self) -> Result<Vec<(RunId, PathBuf)>, StoreError> {
        let names = match files::list(&self.directory) {
            Err(error) if error.is_missing() => Vec::new(),
            names => names?,
        };
        let mut runs: Vec<(RunId, PathBuf)> =
            names.iter().filter_map(|name| Some((name.parse().ok()?, self.directory.join(name)))).collect();
        runs.sort();
        Ok(runs)
    }

    /// What a run did, and what of it may still stand.
    ///
    /// # Errors
    ///
    /// Its plan cannot be read. A damaged journal is none: see [`RunState::damage`].
    pub fn applied_run(&self, run: &KnownRun) -> Result<AppliedRun, StoreError> {
        let plan = self.plan(run)?;
        let state = self.state_by(run, || Ok(plan.clone()));
        Ok(AppliedRun { plan, state })
    }

    /// What a run was to do.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] when there is no plan or it cannot be read, [`StoreError::Damaged`] when it makes no sense.
    pub fn plan(&self, run: &KnownRun) -> Result<Plan, StoreError> {
        need_json(&run.directory.join("plan.json"))
    }

    /// What of a run may still stand. Of one whose journal is damaged that is all that it was to do.
    pub fn state(&self, run: &KnownRun) -> RunState {
        self.state_by(run, || self.plan(run))
    }

    /// As [`state`](Runs::state), of a run whose plan somebody has.
    pub fn state_by(&self, run: &KnownRun, plan: impl FnOnce() -> Result<Plan, StoreError>) -> RunState {
        let path = run.directory.join("journal");
        let reset = self.was_reset_since(run);
        match journal::read_past_damage(&path) {
            (entries, None) => RunState::read(&entries, reset),
            // It has not begun.
            (entries, Some(JournalError::File(error))) if error.is_missing() => {
                RunState::read(&entries, reset)
            }
            (entries, Some(damage)) => {
                let mut damage = chain(&damage);
                let plan = plan();
                if let Err(error) = &plan {
                    damage = format!("{damage}; {}", chain(error));
                }
                RunState::read_damaged(&entries, plan.as_ref().ok(), reset, damage)
            }
        }
    }

    /// Whether the machine has been started anew since a run. Where the kernel does not tell it has not: then everything is
    /// looked at.
    pub fn was_reset_since(&self, run: &KnownRun) -> bool {
        matches!((&run.record.boot, &self.boot), (Some(then), Some(now)) if then != now)
    }

    /// Whether a run that was to be confirmed was not when the machine was reset: then it is not to stay. Of one that was being taken back
    /// something may be left, too.
    pub fn has_lapsed(&self, run: &KnownRun) -> bool {
        (run.is_open() || run.is_not_to_stay()) && self.was_reset_since(run)
    }

    /// How a run stands that was to be confirmed and of which nobody has decided; `None` of any other.
    pub fn undecided(&self, run: &KnownRun) -> Option<Undecided> {
        run.is_open().then(|| match () {
            () if self.was_reset_since(run) => Undecided::Lapsed,
            () if run.outcome.is_some() => Undecided::Waits,
            () if run.is_running() => Undecided::AtWork,
            // It may have come to its end between the look at that and the one at its process.
            () if run.has_ended_by_now() => Undecided::Waits,
            () => Undecided::CutOff,
        })
    }

    /// Whether a run waits for somebody to confirm it.
    pub fn waits_for_confirmation(&self, run: &KnownRun) -> bool {
        self.undecided(run) == Some(Undecided::Waits)
    }

    /// Whether something of a run, one of `all`, is there that nothing stands on.
    pub fn is_left(&self, all: &[KnownRun], run: &KnownRun) -> bool {
        self.state(run).phase != Phase::Nothing
            && successors(all, run.id(), |later| self.state(later).phase) != Successors::Stand
    }

    /// The runs of `all` that left the machine half-way and that no later run has gone on from, oldest first.
    pub fn half_way(&self, all: &[KnownRun]) -> Vec<(KnownRun, Phase)> {
        self.half_way_until(all, |run, later| later.record.supersedes.contains(&run.id()))
    }

    /// The runs for the start of the machine of `all` that were left half-way, oldest first, whatever was applied or stopped since: that
    /// does not look at what the boot loader was to be told. Only a later one for the start goes on from them.
    pub fn half_way_to_the_start(&self, all: &[KnownRun]) -> Vec<KnownRun> {
        let is_for_start = |run: &KnownRun| run.record.purpose == Purpose::Persist;
        let half_way = self.half_way_until(all, |run, later| is_for_start(later) && later.id() > run.id());
        half_way.into_iter().map(|(run, _)| run).filter(is_for_start).collect()
    }

    /// The runs of `all` that were left half-way and that no whole one goes on from.
    fn half_way_until(
        &self,
        all: &[KnownRun],
        goes_on: impl Fn(&KnownRun, &KnownRun) -> bool,
    ) -> Vec<(KnownRun, Phase)> {
        let mut half_way = Vec::new();
        for run in all {
            let is_undo = matches!(run.record.purpose, Purpose::Undo(_));
            // One that got to its end is half-way only when taking it back did not.
            let undo_begun = || all.iter().any(|undo| undo.takes_back().contains(&run.id()));
            let gone_on = || {
                all.iter().any(|later| {
                    let whole = later.outcome.as_ref().is_some_and(|outcome| outcome.error.is_none());
                    whole && goes_on(run, later) && !self.is_taken_away(all, later, run)
                })
            };
            let is_not_to_stay = run.is_not_to_stay() || self.has_lapsed(run);
            let ended = run.outcome.is_some() && !undo_begun() && !is_not_to_stay;
            if is_undo || run.is_running() || ended || gone_on() {
                continue;
            }
            match self.state(run).phase {
                Phase::Nothing => {}
                phase if phase.is_half_way() => half_way.push((run.clone(), phase)),
                // Whoever was to take it back did not come to it.
                _ if is_not_to_stay => half_way.push((run.clone(), Phase::PartlyTakenBack)),
                _ => {}
            }
        }
        half_way
    }

    /// Whether the run `later` of `all`, which went on from `run`, was taken from above it again: all of it, or by an undo of both.
    fn is_taken_away(&self, all: &[KnownRun], later: &KnownRun, run: &KnownRun) -> bool {
        let undone = |which: &KnownRun| {
            all.iter().any(|undo| undo.id() > later.id() && undo.takes_back().contains(&which.id()))
        };
        let is_gone = || self.state(later).phase == Phase::Nothing;
        undone(run) || ((later.is_not_to_stay() || undone(later)) && is_gone())
    }

    /// Forgets old runs. Gives those of `all` that could have been taken back still, or that nobody can tell it of.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] when a run's directory cannot be renamed or removed; those before it are forgotten.
    pub fn prune(&self, all: &[KnownRun]) -> Result<Vec<RunId>, StoreError> {
        let mut said = Vec::new();
        let mut over = all.len().saturating_sub(KEPT);
        for (at, run) in all.iter().enumerate() {
            if over == 0 {
                break;
            }
            let nothing_left =
                self.state(run).phase == Phase::Nothing || matches!(run.record.purpose, Purpose::Undo(_));
            let too_many = all.len() - at > KEPT_AT_MOST;
            if run.is_running() || run.is_open() || !(nothing_left || too_many) {
                continue;
            }
            self.forget(run)?;
            over -= 1;
            if !nothing_left {
                said.push(run.id());
            }
        }
        Ok(said)
    }

    /// Forgets a run: nothing of it can be found any more. For one that is not begun after all, too.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] when its directory cannot be renamed or removed.
    pub fn forget(&self, run: &KnownRun) -> Result<(), StoreError> {
        // Renamed first: half a directory must not be found under a run's name.
        let gone = self.directory.join(".gone");
        files::remove_tree(&gone)?;
        files::rename(&run.directory, &gone)?;
        Ok(files::remove_tree(&gone)?)
    }
}

impl KnownRun {
    /// Opens its journal, to go on with it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Journal`] when it cannot be opened, or its cut-off end not be taken away.
    pub fn journal(&self) -> Result<FileJournal, StoreError> {
        Ok(FileJournal::open(self.directory.join("journal"))?)
    }

    /// Takes the room on the disk that is needed to record its way back, until it is [released](KnownRun::release): whoever fills the
    /// disk meanwhile leaves that. Room for the files that an undo makes, and for twice as much as the plan is long in each of the
    /// journals. Taken already is success.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] when the disk has not that much room. What was taken stays until it is released.
    pub fn reserve(&self) -> Result<(), StoreError> {
        let directory = self.directory.join(RESERVE);
        files::create_dir_all(&directory)?;
        let plan = files::length(self.directory.join("plan.json"))?;
        let bytes = RESERVED + RESERVED_FOR_PLAN * plan;
        for number in 0..RESERVED_FILES {
            files::allocate(directory.join(number.to_string()), bytes / RESERVED_FILES)?;
        }
        Ok(files::sync_directory(&directory)?)
    }

    /// Gives the room back that was taken for its way back; none is success.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] when a file cannot be removed.
    pub fn release(&self) -> Result<(), StoreError> {
        Ok(files::remove_tree(self.directory.join(RESERVE))?)
    }

    /// The lock that whoever decides of the run holds, beside the file: it also keeps when nothing can be written. `None` when
    /// somebody else holds it.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] when the lock's file cannot be made.
    pub fn deciding(&self) -> Result<Option<Lock>, StoreError> {
        Ok(Lock::try_exclusive(self.directory.join("decision.lock"))?)
    }

    /// Keeps how it ended.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] when it cannot be written or not be synced.
    pub fn end(&self, outcome: &Outcome) -> Result<(), StoreError> {
        Ok(files::write_durable(self.directory.join("outcome.json"), json(outcome))?)
    }
}

/// The JSON of something of ours, which has no keys but strings.
pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec_pretty(value).unwrap_or_default()
}

/// Reads a file of JSON; `None` when there is no file.
///
/// # Errors
///
/// [`StoreError::File`] when it is there and cannot be read, [`StoreError::Damaged`] when it makes no sense.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    match need_json(path) {
        Err(StoreError::File(error)) if error.is_missing() => Ok(None),
        read => read.map(Some),
    }
}

fn need_json<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    serde_json::from_slice(&files::read_whole(path, RECORD_LIMIT)?)
        .map_err(|source| StoreError::Damaged { path: path.to_owned(), source })
}
