//! The locks of account files, as `useradd`(8), `usermod`(8) and their like take them: who writes such a file reads it, changes it and
//! puts another in its place, and what somebody else has written in between is lost.
//!
//! There are two. One is for all of these files, a record lock on `/etc/.pwd.lock` (lckpwdf(3)), for which they wait. The other is
//! `FILE.lock` beside each file, a link to a file that holds the number of a process and is of no worth when that process has ended; for
//! that they do not wait when they have the first.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use thiserror::Error;

use crate::{
    files::{self, FileError},
    root::Root,
    running::Running,
};

/// The lock of all account files.
const ALL: &str = "/etc/.pwd.lock";

/// How often it is tried again.
const AGAIN: Duration = Duration::from_millis(50);

/// Neither lock keeps the threads of one process apart.
static OF_THIS_PROCESS: Mutex<()> = Mutex::new(());

/// Account files that nobody else writes until it is dropped.
#[derive(Debug)]
pub struct AccountsLock {
    /// The locks beside the files.
    beside: Vec<PathBuf>,
    _all: File,
    _threads: MutexGuard<'static, ()>,
}

/// Account files that cannot be locked.
#[derive(Debug, Error)]
pub enum AccountsLockError {
    /// A lock's file cannot be made or looked at.
    #[error(transparent)]
    File(#[from] FileError),
    /// The kernel does not lock the file.
    #[error("could not lock {}: {source}", path.display())]
    Kernel {
        /// The lock's file.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// Somebody else has the lock for too long.
    #[error("{} is held by {}", path.display(), by(*holder))]
    Held {
        /// The lock's file.
        path: PathBuf,
        /// The process that it names.
        holder: Option<u32>,
    },
}

fn by(holder: Option<u32>) -> String {
    holder.map_or_else(|| "somebody else".to_owned(), |holder| format!("process {holder}"))
}

impl AccountsLock {
    /// Locks account files of the machine below `root`, `/etc/subuid`, say, waiting this long for whoever has them.
    ///
    /// # Errors
    ///
    /// [`AccountsLockError`] when somebody has one of them for longer, or a lock cannot be made.
    pub fn of(root: &Root, paths: &[&str], timeout: Duration) -> Result<AccountsLock, AccountsLockError> {
        let deadline = Instant::now() + timeout;
        let threads = OF_THIS_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        let all = lock_all(root.path(ALL), deadline)?;
        let mut lock = AccountsLock { beside: Vec::new(), _all: all, _threads: threads };
        for path in paths {
            let beside = root.path(AccountsLock::beside(path));
            take(&beside, deadline)?;
            lock.beside.push(beside);
        }
        Ok(lock)
    }

    /// Where the lock of an account file lies.
    pub fn beside(path: &str) -> String {
        format!("{path}.lock")
    }
}

impl Drop for AccountsLock {
    fn drop(&mut self) {
        for beside in &self.beside {
            // One that stays names a process that has ended soon.
            let _ = files::remove_file(beside);
        }
    }
}

fn lock_all(path: PathBuf, deadline: Instant) -> Result<File, AccountsLockError> {
    let open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(&path);
    let file = open.map_err(|source| AccountsLockError::Kernel { path: path.clone(), source })?;
    let whole = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    loop {
        match fcntl(&file, FcntlArg::F_SETLK(&whole)) {
            Ok(_) => return Ok(file),
            Err(Errno::EACCES | Errno::EAGAIN) if Instant::now() < deadline => thread::sleep(AGAIN),
            Err(Errno::EACCES | Errno::EAGAIN) => {
                return Err(AccountsLockError::Held { path, holder: None });
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(AccountsLockError::Kernel { path, source: errno.into() }),
        }
    }
}

fn take(path: &Path, deadline: Instant) -> Result<(), AccountsLockError> {
    // With a zero at its end, as theirs: they refuse one with anything else behind the number.
    while !files::create_durable(path, format!("{}\0", process::id()))? {
        let holder = match files::read_at_most(path, 64) {
            Err(error) if error.is_missing() => continue,
            read => number(&read?.0),
        };
        // A number of this process is of an earlier one: no other thread has the lock.
        if holder.is_some_and(|holder| holder == process::id() || Running::of(holder).is_none()) {
            // Nobody else looks at it meanwhile: they have the other lock first.
            files::remove_file(path)?;
            continue;
        }
        if Instant::now() >= deadline {
            return Err(AccountsLockError::Held { path: path.to_owned(), holder });
        }
        thread::sleep(AGAIN);
    }
    Ok(())
}

fn number(bytes: &[u8]) -> Option<u32> {
    std::str::from_utf8(bytes).ok()?.trim_end_matches(['\0', '\n', ' ']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATHS: [&str; 2] = ["/etc/subuid", "/etc/subgid"];

    fn names(root: &Root) -> Vec<String> {
        let mut names = files::list(root.path("/etc")).unwrap();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_lock_is_of_no_worth_when_its_process_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        files::create_dir_all(root.path("/etc")).unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let path = root.path("/etc/subgid.lock");
        files::write_atomic(&path, format!("{}\0", ended.id())).unwrap();
        let lock = AccountsLock::of(&root, &PATHS, Duration::ZERO).unwrap();
        assert_eq!(names(&root), [".pwd.lock", "subgid.lock", "subuid.lock"]);
        assert_eq!(files::read(&path).unwrap(), format!("{}\0", process::id()).as_bytes());
        drop(lock);
        assert_eq!(names(&root), [".pwd.lock"]);
    }

    #[test]
    fn a_lock_of_a_process_that_lives_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        files::create_dir_all(root.path("/etc")).unwrap();
        let path = root.path("/etc/subgid.lock");
        // As theirs and as nobody writes it: neither is taken from anybody.
        for (text, holder) in [("1\0", "process 1"), ("", "somebody else"), ("x", "somebody else")] {
            files::write_atomic(&path, text).unwrap();
            let error = AccountsLock::of(&root, &PATHS, Duration::from_millis(120)).unwrap_err().to_string();
            assert_eq!(error, format!("{} is held by {holder}", path.display()));
            assert_eq!(names(&root), [".pwd.lock", "subgid.lock"], "what it had locked is free again");
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                files::remove_file(&path).unwrap();
            });
            AccountsLock::of(&root, &PATHS, Duration::from_secs(10)).unwrap();
        });
    }
}
