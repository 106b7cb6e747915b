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
    progress,
};

/// Where the locks are that do not depend on the directory of states, one for each network namespace.
const CHANGING: &str = "/run/penstock/changing";

/// How long a change with another directory of states is waited for: one that only looks at runs is over by then.
const LOCKS_OF_OTHERS: Duration = Duration::from_secs(3);

/// How long whoever has just taken the lock may need to write down who it is.
const HOLDER_WRITES: Duration = Duration::from_secs(1);

/// What to do where a lock cannot be made.
const NEEDS_ROOT: &str =
    "changing a machine needs root; `penstock rehearse` needs neither root nor the hardware";

/// That nobody else changes this machine, for as long as this is there. The kernel drops the locks of a process that dies.
#[derive(Debug)]
pub struct Alone {
    /// In the directory of states, where others look who is at work.
    _state: Lock,
    /// At the same path whatever directories of states there are.
    _machine: Option<Lock>,
    /// The functions that are taken from whoever has them: that was known when the plan was made, and allowed ([`penstock_plan::in_use`]).
    pub in_use: BTreeSet<Bdf>,
}

impl Machine {
    /// Makes sure that nobody else changes it, whatever their directory of states.
    pub fn lock(&self) -> Result<Alone, Failure> {
        Alone::with(&self.state, self.lock_of_machine()?.as_deref(), LOCKS_OF_OTHERS)
    }

    /// The lock that all have in common who change the functions and interfaces of one network namespace, which are one machine to Penstock.
    /// `None` where nothing of this machine is changed (another root), or this process could change nothing: it is not root, or root of a
    /// container that may not write there.
    fn lock_of_machine(&self) -> Result<Option<PathBuf>, Failure> {
        if !self.root.is_system() || !process::is_root() {
            return Ok(None);
        }
        match files::make_own_directory(CHANGING) {
            Err(error) if error.is_denied() => return Ok(None),
            made => made?,
        }
        let (_, namespace) = NetworkNamespace::current()?.identity()?;
        Ok(Some(Path::new(CHANGING).join(format!("{namespace}.lock"))))
    }
}

impl Alone {
    /// By the lock in a directory of states, and by the one that is common to several, for which it is waited this long.
    fn with(state: &Path, common: Option<&Path>, timeout: Duration) -> Result<Alone, Failure> {
        files::create_dir_all(state).map_err(|error| Failure::from(error).hint(NEEDS_ROOT))?;
        let state = take(&state.join("lock"), Duration::ZERO)?;
        let machine = common.map(|path| take(path, timeout)).transpose()?;
        Ok(Alone { _state: state, _machine: machine, in_use: BTreeSet::new() })
    }
}

/// Takes a lock, and writes into it who has it.
///
/// # Errors
///
/// [`Status::Busy`] with who has it, when nobody has let it go within `timeout`.
fn take(path: &Path, timeout: Duration) -> Result<Lock, Failure> {
    let lock = Lock::exclusive_within(path, timeout);
    if let Some(mut lock) = lock.map_err(|error| Failure::from(error).hint(NEEDS_ROOT))? {
        // It is only told to others: a full disk must not keep anybody from putting things right.
        let _ = serde_json::to_string(&who()).map(|text| lock.note(&text));
        return Ok(lock);
    }
    let text = match holder(path) {
        Some(who) => format!(
            "another penstock is changing this machine: {who}, for {} s",
            progress::now().saturating_sub(who.since) / 1000
        ),
        None => format!("another penstock is changing this machine: it holds {}", path.display()),
    };
    Err(Failure::new(Status::Busy, text)
        .hint("wait for it to end, then try again; `penstock status` says how far it is"))
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
            Alone::with(&at(state), Some(&common), Duration::from_millis(20))
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
    fn the_lock_of_a_machine_is_that_of_its_network_namespace() {
        let there = tempfile::tempdir().unwrap();
        let settings = crate::settings::Settings::resolve(&crate::arguments::Common::default());
        let recorded = Machine::at(penstock_host::Root::at(there.path()), &settings);
        assert_eq!(recorded.lock_of_machine().unwrap(), None, "it is no machine that anything is done to");
        let here = Machine::here(&settings);
        let path = here.lock_of_machine().unwrap();
        let (_, namespace) = NetworkNamespace::current().unwrap().identity().unwrap();
        // Nobody but root could change anything.
        let name = path.map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
        assert!(name.is_none_or(|name| process::is_root() && name == format!("{namespace}.lock")));
    }
}
