//! A process of another time, known again without mistaking another that got its number.

use std::{
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use crate::{Root, files};

/// A process by its number and the time at which it started; numbers are used again, the pair is not.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Running {
    /// The process id.
    #[serde(alias = "pid")]
    pub id: u32,
    /// When it started, in clock ticks since boot (`/proc/ID/stat`, field 22; proc_pid_stat(5)).
    pub started: u64,
}

impl Running {
    /// The process `id`, if there is one that has not ended.
    pub fn of(id: u32) -> Option<Running> {
        Running::find(&Root::system(), id)
    }

    /// The process `id` of the machine whose `/proc` lies below `root`, if there is one that has not ended.
    pub fn find(root: &Root, id: u32) -> Option<Running> {
        let stat = files::read_to_string(root.path(format!("/proc/{id}/stat"))).ok()?;
        // The program's name, in parentheses, may itself hold blanks and parentheses.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        let started = fields.nth(18)?.parse().ok()?;
        (!ended).then_some(Running { id, started })
    }

    /// This very process.
    pub fn this() -> Option<Running> {
        Running::of(std::process::id())
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        self.is_alive_below(&Root::system())
    }

    /// Whether it still runs on the machine whose `/proc` lies below `root`.
    pub fn is_alive_below(&self, root: &Root) -> bool {
        Running::find(root, self.id) == Some(*self)
    }

    /// Kills it, and waits up to `patience` for it to be gone; says whether it is. Gone already is success.
    pub fn kill(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.is_alive() {
            if Instant::now() > deadline {
                return false;
            }
            if let Ok(id) = i32::try_from(self.id) {
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// The processes that have the file `path` open, each as `NAME (process ID)`; those of other users only as root.
pub fn holders(root: &Root, path: &std::path::Path) -> Vec<String> {
    let processes = files::list(root.path("/proc")).unwrap_or_default();
    let holds = |id: &u32| {
        let directory = root.path(format!("/proc/{id}/fd"));
        let open = files::list(&directory).unwrap_or_default();
        open.iter().any(|number| files::read_link(directory.join(number)).is_ok_and(|open| open == path))
    };
    let named = |id: u32| {
        let name = files::read_to_string(root.path(format!("/proc/{id}/comm"))).unwrap_or_default();
        format!("{} (process {id})", name.trim())
    };
    processes.iter().filter_map(|name| name.parse().ok()).filter(holds).map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    #[test]
    fn a_process_is_known_again_until_it_ends() {
        let log = tempfile::tempfile().unwrap();
        let background = Command::new("sleep").arg("600").start_to_stay(log).unwrap();
        let running = Running::of(background.id()).unwrap();
        let other = Running { started: running.started + 1, ..running };
        assert!(running.is_alive());
        assert!(!other.is_alive());
        assert!(other.kill(Duration::ZERO), "another process of this number is let alone");
        assert!(running.is_alive());
        assert!(running.kill(Duration::from_secs(5)));
        assert!(!running.is_alive());
        background.end(Duration::ZERO);
    }
}
