//! That nobody else changes this machine.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use penstock_apply::history::Who;
use penstock_host::{
    NetworkNamespace, boot,
    files::{self, Lock},
    process,
};
use penstock_model::Bdf;

use super::{Machine, runs::who};
use crate::{
    failure::{Failure, Status},
    runtime::progress,
};

/// Where the locks are that do not depend on the directory of states, one for each network namespace.
pub(super) const CHANGING: &str = "/run/penstock/changing";

/// How long a change with another directory of states is waited for: one that only looks at the machine is over by then, also a busy one.
const LOCKS_OF_OTHERS: Duration = Duration::from_secs(10);

/// How long a guard waits for such a change altogether: it may hang for ever, and only a guard gives an operator the machine back.
const OTHERS_HANG: Duration = Duration::from_secs(120);

/// How long whoever has just taken the lock may need to write down who it is.
const HOLDER_WRITES: Duration = Duration::from_secs(1);

/// What to do while a penstock with the same directory of states is at work.
const SEE_STATUS: &str = "wait for it to end, then try again; `penstock status` says how far it is";

/// What to do while one with another is.
const SEE_STATUS_THERE: &str = "wait for it to end, then try again; it has another directory of states, with which alone (`PENSTOCK_STATE`) \
                                `penstock status` says how far it is";

/// What to do where a lock cannot be made.
const NEEDS_ROOT: &str =
    "changing a machine needs root; `penstock rehearse` needs neither root nor the hardware";

/// That nobody else changes this machine, for as long as this is there. The kernel drops the locks of a process that dies.
#[derive(Debug)]
pub struct MachineLock {
    /// In the directory of states, where others look who is at work.
    state: Lock,
    /// At the same path whatever directories of states there are.
    machine: Option<Lock>,
    /// The functions that are taken from whoever has them: that was known when the plan was made, and allowed ([`penstock_plan::in_use`]).
    pub in_use: BTreeSet<Bdf>,
}

impl Machine {
    /// Makes sure that nobody else changes it, whatever their directory of states.
    ///
    /// # Errors
    ///
    /// `Status::Busy` when another run holds it; when a lock cannot be made or taken.
    pub fn lock(&self) -> Result<MachineLock, Failure> {
        MachineLock::with(&self.state, self.lock_of_machine()?.as_deref(), LOCKS_OF_OTHERS)
    }

    /// As [`Machine::lock`], for a guard, which goes on in the end beside a change with another directory of states that does not end. `held` is
    /// since when such a one was met, as [`boot::elapsed`] has it. With the lock, whom it goes on beside.
    ///
    /// # Errors
    ///
    /// As [`Machine::lock`], until it goes on beside the other.
    pub fn lock_for_guard(
        &self,
        held: &mut Option<Duration>,
    ) -> Result<(MachineLock, Option<String>), Failure> {
        let common = self.lock_of_machine()?;
        MachineLock::for_guard(&self.state, common.as_deref(), LOCKS_OF_OTHERS, OTHERS_HANG, held)
    }

    /// The lock that all have in common who change the functions and interfaces of one network namespace, which are one machine to Penstock.
    /// `None` where nothing of this machine is changed (another root), or this process may not lock there: it is not root, or root of a container
    /// or of a user namespace to which the machine's root is a stranger.
    fn lock_of_machine(&self) -> Result<Option<PathBuf>, Failure> {
        if !self.root.is_system() || !process::is_root() {
            return Ok(None);
        }
        match files::make_own_directory(&self.changing) {
            Err(error) if error.is_denied() => return Ok(None),
            made => made?,
        }
        let (_, namespace) = NetworkNamespace::current()?.identity()?;
        Ok(Some(self.changing.join(format!("{namespace}.lock"))))
    }
}

impl MachineLock {
    /// By the lock in a directory of states, and by the one that is common to several, for which it is waited this long. The former is not held
    /// meanwhile, or an `undo` would find it held, and nothing is written into it: whoever watches it would see a change that is none.
    fn with(state: &Path, common: Option<&Path>, timeout: Duration) -> Result<MachineLock, Failure> {
        let mut alone = MachineLock::of_state(state)?;
        if let Some(path) = common {
            alone = match lock_common(path, Duration::ZERO)? {
                Some(machine) => MachineLock { machine, ..alone },
                None => {
                    drop(alone);
                    let machine = lock_common(path, timeout)?.ok_or_else(|| busy(path, SEE_STATUS_THERE))?;
                    MachineLock { machine, ..MachineLock::of_state(state)? }
                }
            };
        }
        Ok(alone.announced())
    }

    /// By the lock in a directory of states alone, which does not say so yet.
    fn of_state(state: &Path) -> Result<MachineLock, Failure> {
        files::create_dir_all(state).map_err(|error| Failure::from(error).hint(NEEDS_ROOT))?;
        let path = state.join("lock");
        let lock = Lock::try_exclusive(&path).map_err(|error| Failure::from(error).hint(NEEDS_ROOT))?;
        let state = lock.ok_or_else(|| busy(&path, SEE_STATUS))?;
        Ok(MachineLock { state, machine: None, in_use: BTreeSet::new() })
    }

    /// As [`Machine::lock_for_guard`], which goes on `at_last` after a time.
    fn for_guard(
        state: &Path,
        common: Option<&Path>,
        timeout: Duration,
        at_last: Duration,
        held: &mut Option<Duration>,
    ) -> Result<(MachineLock, Option<String>), Failure> {
        let failure = match MachineLock::with(state, common, timeout) {
            Err(failure) if failure.status == Status::Busy => failure,
            done => {
                *held = None;
                return done.map(|alone| (alone, None));
            }
        };
        // Who has this directory of states too is waited for, however long it takes.
        let Ok(alone) = MachineLock::of_state(state) else {
            *held = None;
            return Err(failure);
        };
        let now = boot::elapsed();
        let since = *held.get_or_insert(now);
        match now.saturating_sub(since) >= at_last {
            true => Ok((alone.announced(), Some(failure.in_one_line()))),
            false => Err(failure),
        }
    }

    /// Writes into the locks who has them.
    fn announced(mut self) -> MachineLock {
        // It is only told to others: a full disk must not keep anybody from putting things right.
        if let Ok(text) = serde_json::to_string(&who()) {
            for lock in std::iter::once(&mut self.state).chain(&mut self.machine) {
                let _ = lock.note(&text);
            }
        }
        self
    }
}

/// Takes the lock that is common to several directories of states: `Some(None)` where this process may not, `None` when nobody has let it go
/// within `timeout`.
fn lock_common(path: &Path, timeout: Duration) -> Result<Option<Option<Lock>>, Failure> {
    match Lock::exclusive_within(path, timeout) {
        Err(error) if error.is_denied() => Ok(Some(None)),
        lock => Ok(lock?.map(Some)),
    }
}

/// That somebody has the lock at `path`, and who.
fn busy(path: &Path, hint: &str) -> Failure {
    let text = match holder(path) {
        Some(who) => format!(
            "another penstock is changing this machine: {who}, for {} s",
            progress::now().saturating_sub(who.since) / 1000
        ),
        None => format!("another penstock is changing this machine: it holds {}", path.display()),
    };
    Failure::new(Status::Busy, text).hint(hint)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directories_of_states_are_one_machine() {
        let there = tempfile::tempdir().unwrap();
        let at = |name: &str| there.path().join(name);
        let alone = |state: &str, common: &str| {
            let common = at(common);
            MachineLock::with(&at(state), Some(&common), Duration::from_millis(20))
        };
        let first = alone("one", "machine").unwrap();
        let failure = alone("two", "machine").unwrap_err();
        assert_eq!(failure.status, Status::Busy);
        let told = failure.in_one_line();
        let who = who().to_string();
        assert!(told.contains(&format!("another penstock is changing this machine: {who}, for ")), "{told}");
        drop(alone("two", "machine of another network namespace").unwrap());
        assert_eq!(alone("one", "machine of another network namespace").unwrap_err().status, Status::Busy);
        drop(first);
        drop(alone("two", "machine").unwrap());
    }

    #[test]
    fn who_waits_for_another_directory_of_states_is_no_change_of_its_own() {
        let there = tempfile::tempdir().unwrap();
        let at = |name: &str| there.path().join(name);
        let common = at("machine");
        let with = |state: &str, timeout: u64| {
            MachineLock::with(&at(state), Some(&common), Duration::from_millis(timeout))
        };
        drop(with("two", 0).unwrap());
        let before = (files::stamp(at("two/lock")), files::read(at("two/lock")).unwrap());
        let first = with("one", 0).unwrap();
        let failure = with("two", 0).unwrap_err();
        assert!(failure.hints[0].contains("it has another directory of states"), "{:?}", failure.hints);
        assert_eq!((files::stamp(at("two/lock")), files::read(at("two/lock")).unwrap()), before);
        drop(first);
        drop(with("two", 0).unwrap());
    }

    #[test]
    fn the_common_lock_is_one_persons_at_a_time() {
        let there = tempfile::tempdir().unwrap();
        let (path, at_work) = (there.path().join("1.lock"), std::sync::atomic::AtomicU32::new(0));
        let work = || {
            for _ in 0..20 {
                let held = lock_common(&path, Duration::from_secs(60)).unwrap().unwrap().unwrap();
                assert_eq!(at_work.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "alone");
                assert_eq!(at_work.fetch_sub(1, std::sync::atomic::Ordering::SeqCst), 1);
                drop(held);
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    }

    #[test]
    fn a_guard_goes_on_beside_whoever_hangs_with_another_directory_of_states() {
        let there = tempfile::tempdir().unwrap();
        let at = |name: &str| there.path().join(name);
        let common = at("machine");
        let guard = |at_last: Duration, held: &mut Option<Duration>| {
            MachineLock::for_guard(&at("two"), Some(&common), Duration::ZERO, at_last, held)
        };
        let (mut held, hour) = (None, Duration::from_secs(3600));
        let hangs = MachineLock::with(&at("one"), Some(&common), Duration::ZERO).unwrap();
        assert_eq!(guard(hour, &mut held).unwrap_err().status, Status::Busy);
        assert!(held.is_some());
        let (alone, beside) = guard(Duration::ZERO, &mut held).unwrap();
        let beside = beside.unwrap();
        assert!(beside.contains("another penstock is changing this machine"), "{beside}");
        // Who has the same directory of states is waited for.
        assert_eq!(guard(Duration::ZERO, &mut held).unwrap_err().status, Status::Busy);
        assert_eq!(held, None);
        drop((alone, hangs));
        assert_eq!(guard(hour, &mut held).unwrap().1, None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a directory becomes another user's")]
    fn the_lock_of_a_machine_is_that_of_its_network_namespace() {
        let there = tempfile::tempdir().unwrap();
        let settings = crate::settings::Settings::resolve(&crate::arguments::Common::default());
        let recorded = Machine::at(penstock_host::Root::at(there.path()), &settings);
        assert_eq!(recorded.lock_of_machine().unwrap(), None, "it is no machine that anything is done to");
        let here = Machine { changing: there.path().join("changing"), ..Machine::here(&settings) };
        let path = here.lock_of_machine().unwrap();
        if !process::is_root() {
            assert_eq!(path, None, "nobody but root could change anything");
            penstock_testkit::skip::part("needs root");
            return;
        }
        let (_, namespace) = NetworkNamespace::current().unwrap().identity().unwrap();
        assert_eq!(path, Some(here.changing.join(format!("{namespace}.lock"))));
        // As the machine's root is to the root of a user namespace.
        if std::os::unix::fs::chown(&here.changing, Some(65534), Some(65534)).is_err() {
            penstock_testkit::skip::part("files cannot be given to another user here");
            return;
        }
        assert_eq!(here.lock_of_machine().unwrap(), None, "it is another user's");
    }
}
