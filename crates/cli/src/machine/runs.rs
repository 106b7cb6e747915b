//! Changing this machine: alone, with a run's own directory, and found again when it is cut off.

use std::{collections::BTreeMap, env, path::Path, thread, time::Duration};

use penstock_apply::{
    Applied, ApplyError, HostCarrier, Journal, Mode, Observer, Options,
    history::{
        Confirm, Decision, KnownRun, Outcome, Phase, Purpose, RunId, RunRecord, Runs, StoreError,
        UndoJournal, Verdict, Way, Who, decision, store::UnreadableRun,
    },
};
use penstock_host::{
    accounts, boot, chain,
    files::{self, Lock},
    interrupt,
    running::Running,
};
use penstock_plan::{Carry, Plan, persist};

use super::Machine;
use crate::{
    failure::{Failure, Status},
    model_file::ModelFile,
    progress,
};

/// How long whoever has just taken the lock may need to write down who it is.
const HOLDER_WRITES: Duration = Duration::from_secs(1);

/// A run that was begun: nobody else changes the machine while this is there.
pub struct Begun {
    _alone: Lock,
    /// The run; `None` when there is nothing to do and nothing to go on from.
    pub run: Option<KnownRun>,
    journal: Box<dyn Journal>,
    /// What an operator should know before it goes on.
    pub said: Vec<String>,
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
        peer: present("SSH_CONNECTION").and_then(|text| text.split(' ').next().map(str::to_owned)),
    }
}

impl Machine {
    /// The runs that changed it.
    pub fn runs(&self) -> Runs {
        Runs::new(&self.journal, boot::id(&self.root))
    }

    /// Makes sure that nobody else changes it, for as long as the lock is kept. The kernel drops the lock of a process that
    /// dies.
    pub fn lock(&self) -> Result<Lock, Failure> {
        let needs_root =
            "changing a machine needs root; `penstock rehearse` needs neither root nor the hardware";
        let created = files::create_dir_all(&self.state);
        created.map_err(|error| Failure::from(error).hint(needs_root))?;
        let path = self.state.join("lock");
        let lock = Lock::try_exclusive(&path).map_err(|error| Failure::from(error).hint(needs_root))?;
        if let Some(mut lock) = lock {
            // It is only told to others: a full disk must not keep anybody from putting things right.
            let _ = serde_json::to_string(&who()).map(|text| lock.note(&text));
            return Ok(lock);
        }
        let text = match holder(&path) {
            Some(who) => format!(
                "another penstock is changing this machine: {who}, for {} s",
                progress::now().saturating_sub(who.since) / 1000
            ),
            None => format!("another penstock is changing this machine: it holds {}", path.display()),
        };
        Err(Failure::new(Status::Busy, text)
            .hint("wait for it to end, then try again; `penstock status` says how far it is"))
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

    /// Begins a run of `plan`, which was made while the lock was held. Refused while an earlier one waits for confirmation.
    pub fn begin(
        &self,
        alone: Lock,
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
        for run in all.iter().filter(|run| run.is_open()) {
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
            return Ok(Begun { _alone: alone, run: None, journal: Box::new(Vec::new()), said });
        }
        let purpose = match mode {
            Mode::TearDown => Purpose::Stop,
            _ if persist::is_for_the_start(plan) => Purpose::Persist,
            _ => Purpose::Apply,
        };
        let record = RunRecord {
            model: Some(model.source.name.clone()),
            confirm,
            supersedes: half_way.iter().map(|(run, _)| run.id()).collect(),
            ..RunRecord::new(purpose, who())
        };
        let run = runs.create(record, plan, Some(model.source.text.as_str()));
        let run = run.map_err(not_recorded)?;
        for id in runs.prune(&all)? {
            said.push(format!(
                "run {id} is the oldest of too many and was forgotten: it cannot be undone any more"
            ));
        }
        let journal = Box::new(run.journal().map_err(not_recorded)?);
        Ok(Begun { _alone: alone, run: Some(run), journal, said })
    }

    /// Begins to take `targets` back by `way`; the caller holds the lock.
    pub fn begin_undo(&self, alone: Lock, targets: &[KnownRun], way: &Way) -> Result<Begun, Failure> {
        let runs = self.runs();
        let ids: Vec<RunId> = targets.iter().map(KnownRun::id).collect();
        let run = runs.create(RunRecord::new(Purpose::Undo(ids), who()), &way.plan, None)?;
        let own = run.journal()?;
        let of = |run: &KnownRun| Ok::<_, StoreError>((run.id(), run.journal()?));
        let journals: Result<BTreeMap<_, _>, _> = targets.iter().map(of).collect();
        let journal = Box::new(UndoJournal::new(own, journals?, way));
        Ok(Begun { _alone: alone, run: Some(run), journal, said: Vec::new() })
    }

    /// Carries out what was begun, and keeps how it ended.
    pub fn carry_out(
        &self,
        mut begun: Begun,
        plan: &Plan,
        mode: Mode,
        observer: &mut dyn Observer,
    ) -> Result<Result<Applied, ApplyError>, Failure> {
        let Some(run) = begun.run else { return Ok(Ok(Applied::default())) };
        let outcome = self.carry(plan, mode, &mut *begun.journal, observer)?;
        let ended = Outcome {
            ended: progress::now(),
            boottime: boot::elapsed().as_millis() as u64,
            error: outcome.as_ref().err().map(|error| chain(error)),
        };
        // Its journal tells the same, only slower: a full disk does not make what was done undone.
        let _ = run.end(&ended);
        Ok(outcome)
    }

    /// Carries a plan out and records it in `journal`; the caller holds the machine's lock.
    pub fn carry(
        &self,
        plan: &Plan,
        mode: Mode,
        journal: &mut dyn Journal,
        observer: &mut dyn Observer,
    ) -> Result<Result<Applied, ApplyError>, Failure> {
        let (mut host, mut guests) = (HostCarrier::new(self.root.clone())?, self.guests());
        let mut carriers: [&mut dyn Carry; 2] = [&mut host, &mut guests];
        let options = Options { mode, cancel: Some(interrupt::watched()), ..Options::default() };
        Ok(penstock_apply::run(plan, &mut carriers, journal, observer, &options))
    }

    /// Refuses to go on past a run that waits for confirmation.
    fn settle(&self, runs: &Runs, run: &KnownRun) -> Result<(), Failure> {
        if run.outcome.is_some() || !run.is_running() {
            let nothing = runs.state(run).phase == Phase::Nothing;
            if nothing {
                let ours = Decision { verdict: Verdict::Failed, who: who(), at: progress::now() };
                decision::decide(&run.directory, ours)?;
                return Ok(());
            }
        }
        let text = format!("run {} of {} waits to be confirmed", run.id(), run.record.who);
        Err(Failure::new(Status::Busy, text)
            .hint("`penstock confirm` keeps what it did, `penstock undo` takes it back"))
    }
}

/// Who holds the lock at `path`. It is written there right after the lock is taken, so that who comes second in the same moment
/// waits a little for it.
fn holder(path: &Path) -> Option<Who> {
    let began = boot::elapsed();
    loop {
        let text = files::read(path).ok()?;
        let holder = serde_json::from_slice::<Who>(&text).ok().filter(|who| who.process.is_alive());
        if holder.is_some() || boot::elapsed() - began > HOLDER_WRITES {
            return holder;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn not_recorded(error: StoreError) -> Failure {
    Failure::from(error).hint("nothing was changed, because it could not be recorded")
}

#[cfg(test)]
mod tests {
    use penstock_guests::Builtin;
    use penstock_host::Root;
    use penstock_plan::{Action, Fact, Step, StepId};

    use super::*;

    fn step() -> Step {
        let pf = "0000:04:00.0".parse().unwrap();
        let action = Action::SetVfCount { pf, count: 2 };
        Step {
            id: StepId(1),
            postcondition: Fact::after(&action),
            action,
            reason: "a test".to_owned(),
            needs: Vec::new(),
            inverse: Some(Action::SetVfCount { pf, count: 0 }),
            best_effort: false,
            guest: None,
        }
    }

    #[test]
    fn a_run_begins_past_damaged_ones_and_says_what_is_not_known_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine {
            root: Root::at(directory.path()),
            state: directory.path().join("state"),
            journal: directory.path().join("kept"),
            builtin: Builtin { directories: Vec::new() },
        };
        let plan = Plan { steps: vec![step()], ..Plan::default() };
        let gone = Who { process: Running { id: 1, started: u64::MAX }, ..who() };
        let runs = machine.runs();
        let make = || runs.create(RunRecord::new(Purpose::Apply, gone.clone()), &plan, None).unwrap();
        let (damaged, unreadable) = (make(), make());
        files::write_atomic(damaged.directory.join("journal"), "{\"ent{\"entry\":\"begun\"}\n").unwrap();
        files::write_atomic(unreadable.directory.join("run.json"), "{").unwrap();
        let path = directory.path().join("a.yaml");
        files::write_atomic(&path, "nics: {NET0: {vfs: 2}}\n").unwrap();
        let model = crate::model_file::load(&path).unwrap();
        let begun = machine.begin(machine.lock().unwrap(), &plan, Mode::Apply, &model, None).unwrap();
        let said = begun.said.join("\n");
        assert!(said.contains("run 2 cannot be read: what it left, if anything, stays"), "{said}");
        assert!(said.contains("is damaged, so that nobody knows how far it got"), "{said}");
        assert_eq!(begun.run.unwrap().record.supersedes, [damaged.id()]);
    }
}
