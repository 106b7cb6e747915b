//! Work inside another process's network namespace.
//!
//! A thread enters the namespace, does the work and ends: no other thread ever changes its namespace, but to make a socket. A socket stays
//! in the namespace where it was made (`net/core/sock.c`), so making one is all that has to be done there.

use std::{
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process, thread,
};

use nix::sched::{CloneFlags, setns};
use thiserror::Error;

use crate::{
    Netlink, NetlinkError,
    files::{self, FileError, Result as FileResult},
};

/// Why a namespace could not be entered.
#[derive(Debug, Error)]
#[error("could not enter a namespace of process {pid}")]
pub struct NamespaceError {
    /// A process that lives there.
    pub pid: u32,
    /// Why: `ENOENT` when it has ended, `EPERM` without `CAP_SYS_ADMIN`.
    #[source]
    pub source: io::Error,
}

/// Runs `work` in the network namespace of process `pid`; in the calling thread's own for `None`.
///
/// `work` must not start a program: programs die with the thread that started them, see [`crate::process`].
///
/// # Errors
///
/// [`NamespaceError`] when the process is gone, or this one may not enter its namespace. `work` has then not run.
pub fn within<T: Send>(pid: Option<u32>, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
    let Some(pid) = pid else { return Ok(work()) };
    let enter_and_work = || {
        let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
        setns(&namespace, CloneFlags::CLONE_NEWNET)?;
        Ok(work())
    };
    in_a_thread(enter_and_work).map_err(|source| NamespaceError { pid, source })
}

/// Whether this process has the mounts of the first one: that of the machine, or of a container with processes of its own.
///
/// # Errors
///
/// [`NamespaceError`] when this process may not look at the first one's, which takes root.
pub fn shares_mounts_of_first() -> Result<bool, NamespaceError> {
    let namespace = |of: &str| files::read_link(format!("/proc/{of}/ns/mnt"));
    let shares = || Ok(namespace("1")? == namespace("self")?);
    shares().map_err(|error: FileError| NamespaceError { pid: 1, source: error.source })
}

/// Goes into the namespaces of the first process but that of processes: its mounts, and with them its root directory, its network, its
/// hostname, its IPC and its control groups. For good; the process must have no other thread (setns(2)).
///
/// # Errors
///
/// [`NamespaceError`] when one cannot be entered. The process is then in some of them, and had better end.
pub fn enter_first() -> Result<(), NamespaceError> {
    let enter = || -> io::Result<()> {
        // The files of the machine are no longer there under these names after the first step.
        let kinds = [
            ("cgroup", CloneFlags::CLONE_NEWCGROUP),
            ("ipc", CloneFlags::CLONE_NEWIPC),
            ("uts", CloneFlags::CLONE_NEWUTS),
            ("net", CloneFlags::CLONE_NEWNET),
            ("mnt", CloneFlags::CLONE_NEWNS),
        ];
        let files: Vec<(File, CloneFlags)> = kinds
            .into_iter()
            .map(|(name, kind)| Ok((File::open(format!("/proc/1/ns/{name}"))?, kind)))
            .collect::<io::Result<_>>()?;
        files.iter().try_for_each(|(file, kind)| Ok(setns(file, *kind)?))
    };
    enter().map_err(|source| NamespaceError { pid: 1, source })
}

/// Runs `work` in a thread of its own.
fn in_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name("namespace".to_owned())
            .spawn_scoped(scope, work)?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A network namespace that is held by one of its files: `/proc/PID/ns/net`, `/run/netns/NAME` (network_namespaces(7)). It lives
/// for as long as it is held.
#[derive(Debug)]
pub struct NetworkNamespace {
    path: PathBuf,
    file: File,
}

impl NetworkNamespace {
    /// The namespace whose file is `path`. What is no namespace is refused by the first use.
    ///
    /// # Errors
    ///
    /// When there is no such file, or it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> FileResult<NetworkNamespace> {
        let path = path.as_ref().to_owned();
        match File::open(&path) {
            Ok(file) => Ok(NetworkNamespace { path, file }),
            Err(source) => Err(FileError { attempt: "open the network namespace", path, source }),
        }
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// As of [`NetworkNamespace::open`].
    pub fn current() -> FileResult<NetworkNamespace> {
        NetworkNamespace::open("/proc/thread-self/ns/net")
    }

    /// The path of the file that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What no other namespace has while this one lives: the device and the inode of its file (namespaces(7)).
    ///
    /// # Errors
    ///
    /// When the kernel does not tell.
    pub fn identity(&self) -> FileResult<(u64, u64)> {
        let data = self.file.metadata().map_err(|source| FileError {
            attempt: "look at the network namespace",
            path: self.path.clone(),
            source,
        })?;
        Ok((data.dev(), data.ino()))
    }

    /// A process in the namespace with this identity ([`NetworkNamespace::identity`]); `None` where nobody lives in it. Takes the right to look at
    /// all processes, which root has.
    ///
    /// # Errors
    ///
    /// When processes cannot be listed.
    pub fn inhabitant(identity: (u64, u64)) -> FileResult<Option<u32>> {
        Ok(NetworkNamespace::inhabitants(identity)?.next())
    }

    /// As [`NetworkNamespace::inhabitant`], all of them. Each is looked for when it is asked for.
    ///
    /// # Errors
    ///
    /// When processes cannot be listed.
    pub fn inhabitants(identity: (u64, u64)) -> FileResult<impl Iterator<Item = u32>> {
        let lives_there = move |process: &u32| {
            // One that has ended meanwhile lives nowhere.
            let namespace = NetworkNamespace::open(format!("/proc/{process}/ns/net"));
            namespace.and_then(|namespace| namespace.identity()).is_ok_and(|of| of == identity)
        };
        let processes = files::list("/proc")?.into_iter().filter_map(|name| name.parse().ok());
        Ok(processes.filter(lives_there))
    }

    /// Runs `work` in it; see [`within`].
    ///
    /// # Errors
    ///
    /// When the file is no network namespace, or it may not be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> FileResult<T> {
        in_a_thread(|| Ok(self.enter().map(|()| work())))
            .map_err(|source| FileError {
                attempt: "start a thread in the network namespace",
                path: self.path.clone(),
                source,
            })
            .flatten()
    }

    /// A socket in it. The calling thread itself makes it where it is sure to come back: a thread more has to be scheduled, which takes
    /// milliseconds on a busy machine.
    ///
    /// # Errors
    ///
    /// When it cannot be entered, or the kernel gives no socket.
    pub fn netlink(&self) -> Result<Netlink, NetlinkError> {
        let made = match Return::prepare() {
            Some(_back) => self.enter().map(|()| Netlink::open()),
            None => self.within(Netlink::open),
        };
        made.map_err(|error| NetlinkError::Socket {
            attempt: format!("{} {}", error.attempt, error.path.display()),
            source: error.source,
        })?
    }

    /// Has the calling thread enter it.
    fn enter(&self) -> FileResult<()> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| FileError {
            attempt: "enter the network namespace",
            path: self.path.clone(),
            source: errno.into(),
        })
    }
}

/// Takes its thread back into the namespace that it was in, when it is dropped.
struct Return(NetworkNamespace);

impl Return {
    /// `None` where the thread may not enter its own namespace, as in a user namespace that does not own it (setns(2)): once out it
    /// could not come back.
    fn prepare() -> Option<Return> {
        let own = NetworkNamespace::current().ok()?;
        own.enter().ok()?;
        Some(Return(own))
    }
}

impl Drop for Return {
    /// Where the kernel refuses now what it allowed a moment ago the process ends: whatever it did next would be done to somebody
    /// else's interfaces.
    fn drop(&mut self) {
        if let Err(error) = self.0.enter() {
            crate::complain!("{}", crate::chain(&error));
            process::abort();
        }
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}
