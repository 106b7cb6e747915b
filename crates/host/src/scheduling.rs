//! With which policy threads run (sched(7)).
//!
//! The system calls are made as such: musl's wrappers of them always fail.

use std::collections::BTreeSet;

use nix::{errno::Errno, libc};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Root, files};

/// How a thread is scheduled, in the kernel's own numbers (`include/uapi/linux/sched.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Scheduled {
    /// Its policy: 0 other, 1 FIFO, 2 RR, 3 batch, 5 idle, 6 deadline, 7 ext.
    pub policy: u32,
    /// Its real-time priority, 1 to 99 for FIFO and RR; 0 for the others.
    pub priority: u32,
}

impl std::fmt::Display for Scheduled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.policy {
            0 => f.write_str("other"),
            1 => write!(f, "fifo with priority {}", self.priority),
            2 => write!(f, "rr with priority {}", self.priority),
            3 => f.write_str("batch"),
            5 => f.write_str("idle"),
            6 => f.write_str("deadline"),
            7 => f.write_str("ext"),
            other => write!(f, "policy {other}"),
        }
    }
}

/// Why a thread was not given its scheduling.
#[derive(Debug, Error)]
pub enum SchedulingError {
    /// The kernel refused.
    #[error("thread {thread} was not scheduled as {scheduling}")]
    Refused {
        /// The thread's id.
        thread: u32,
        /// What was asked for.
        scheduling: Scheduled,
        /// The error of sched_setscheduler(2).
        #[source]
        source: Errno,
    },
    /// Threads came up faster than they could be reached.
    #[error("of the threads that were to be scheduled as {scheduling} new ones kept coming up")]
    Restless {
        /// What was asked for.
        scheduling: Scheduled,
    },
}

impl SchedulingError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            SchedulingError::Refused { source: Errno::EPERM, .. } => Some(
                "run Penstock as root; a kernel with CONFIG_RT_GROUP_SCHED also refuses it in control groups that have no real-time budget",
            ),
            _ => None,
        }
    }
}

/// Sets how a thread is scheduled; one that has ended is success.
///
/// # Errors
///
/// What the kernel says.
#[allow(unsafe_code)]
pub fn set(thread: u32, scheduling: Scheduled) -> Result<(), SchedulingError> {
    let parameters = libc::sched_param { sched_priority: scheduling.priority.cast_signed() };
    // SAFETY: `parameters` is a whole `struct sched_param` that outlives the call, which only reads it.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread.cast_signed(),
            scheduling.policy.cast_signed(),
            &raw const parameters,
        )
    };
    match Errno::result(outcome) {
        Ok(_) | Err(Errno::ESRCH) => Ok(()),
        Err(source) => Err(SchedulingError::Refused { thread, scheduling, source }),
    }
}

/// How a thread is scheduled (`policy` and `rt_priority` of proc_pid_stat(5)); `None` when it has ended.
pub fn of(root: &Root, process: u32, thread: u32) -> Option<Scheduled> {
    let stat = files::read_to_string(root.path(format!("/proc/{process}/task/{thread}/stat"))).ok()?;
    // The name, in parentheses, may itself hold blanks and parentheses. Field 3 is the first after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u32>().ok();
    Some(Scheduled { policy: number(41)?, priority: number(40)? })
}

/// How often the list of threads is read anew while there are new ones in it.
const ROUNDS: usize = 50;

/// Sets how all threads that `list` tells are scheduled, until it tells no new ones: those that come up later inherit it.
///
/// # Errors
///
/// What the kernel says of one of them.
pub fn set_all(scheduling: Scheduled, mut list: impl FnMut() -> Vec<u32>) -> Result<usize, SchedulingError> {
    let mut done: BTreeSet<u32> = BTreeSet::new();
    for _ in 0..ROUNDS {
        let new: Vec<u32> = list().into_iter().filter(|thread| !done.contains(thread)).collect();
        if new.is_empty() {
            return Ok(done.len());
        }
        for thread in new {
            set(thread, scheduling)?;
            done.insert(thread);
        }
    }
    Err(SchedulingError::Restless { scheduling })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_read_as_the_kernel_shows_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let path = root.path("/proc/7/task/9/stat");
        files::create_dir_all(path.parent().unwrap()).unwrap();
        let rest = "S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 -81 0 1 0 100 0 0 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 -1 3 80 1 0 0 0";
        std::fs::write(&path, format!("9 (CPU 0) KVM) {rest}\n")).unwrap();
        let seen = of(&root, 7, 9).unwrap();
        assert_eq!(seen, Scheduled { policy: 1, priority: 80 });
        assert_eq!(seen.to_string(), "fifo with priority 80");
        assert_eq!(of(&root, 7, 10), None);
    }

    #[test]
    fn this_thread_keeps_what_it_is_given() {
        // To be scheduled as one already is needs no privilege.
        let (process, thread) = (std::process::id(), nix::unistd::gettid().as_raw().cast_unsigned());
        let now = of(&Root::system(), process, thread).unwrap();
        set(thread, now).unwrap();
        assert_eq!(of(&Root::system(), process, thread), Some(now));
        let odd = Scheduled { policy: 1, priority: 200 };
        assert!(matches!(set(thread, odd), Err(SchedulingError::Refused { source: Errno::EINVAL, .. })));
        assert_eq!(set_all(now, || vec![thread]).unwrap(), 1);
    }

    #[test]
    fn a_thread_that_is_gone_needs_nothing() {
        let gone = Scheduled { policy: 0, priority: 0 };
        set(u32::MAX >> 2, gone).unwrap();
    }
}
