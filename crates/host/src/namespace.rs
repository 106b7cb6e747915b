//! Work inside another process's network namespace.
//!
//! A thread enters the namespace, does the work and ends: no other thread ever changes its namespace. A socket stays
//! in the namespace where it was made (`net/core/sock.c`), so making one is all that has to be done there.

use std::{fs::File, io, thread};

use nix::sched::{CloneFlags, setns};
use thiserror::Error;

/// Why a network namespace could not be entered.
#[derive(Debug, Error)]
#[error("could not enter the network namespace of process {pid}")]
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
pub fn within<T: Send>(pid: Option<u32>, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
    let Some(pid) = pid else { return Ok(work()) };
    let enter_and_work = || {
        let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
        setns(&namespace, CloneFlags::CLONE_NEWNET)?;
        Ok(work())
    };
    let outcome = thread::scope(|scope| {
        thread::Builder::new()
            .name("namespace".to_owned())
            .spawn_scoped(scope, enter_and_work)?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    outcome.map_err(|source| NamespaceError { pid, source })
}
