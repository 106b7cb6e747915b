//! A process of another time, known again without mistaking another that got its number.

mod runs_on;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs, io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::poll::PollFlags;
use rustix::{
    io::Errno,
    param::clock_ticks_per_second,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize};

use crate::{Root, accounts::of_process, files, terminal::ready};

pub use runs_on::RunsOn;

/// How long it is waited for a process to end before it is looked at anew.
const AGAIN: Duration = Duration::from_millis(100);

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
        Running::look(root, id).ok().flatten()
    }

    /// As [`Running::find`], with the error of what could not be looked at: that is not a process that has ended.
    fn look(root: &Root, id: u32) -> io::Result<Option<Running>> {
        let stat = match files::read(root.path(format!("/proc/{id}/stat"))) {
            Ok(stat) => stat,
            // The kernel tells of a process that ends between open and read with ESRCH.
            Err(error) => match Errno::from_io_error(&error.source) {
                Some(Errno::NOENT | Errno::SRCH) => return Ok(None),
                _ => return Err(error.source),
            },
        };
        // The program's name, in parentheses, may itself hold blanks, parentheses and whatever is no UTF-8.
        let stat = String::from_utf8_lossy(&stat);
        let read = || {
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let ended = matches!(fields.next()?, "Z" | "X");
            let started = fields.nth(18)?.parse().ok()?;
            (!ended).then_some(Running { id, started })
        };
        // What says nothing of a process is none's.
        Ok(read())
    }

    /// This very process.
    pub fn this() -> Option<Running> {
        Running::of(std::process::id())
    }

    /// When it started, as the time since boot.
    pub fn began(&self) -> Duration {
        Duration::from_secs_f64(self.started as f64 / clock_ticks_per_second() as f64)
    }

    /// Whether it still runs; also if that cannot be looked at, for lack of descriptors, say: what belongs to one that runs is let alone.
    pub fn is_alive(&self) -> bool {
        self.is_alive_below(&Root::system())
    }

    /// As [`Running::is_alive`], on the machine whose `/proc` lies below `root`.
    pub fn is_alive_below(&self, root: &Root) -> bool {
        Running::look(root, self.id).map_or(true, |found| found == Some(*self))
    }

    /// Kills it, and waits up to `timeout` for it to be gone; says whether it is. Gone already is success.
    pub fn kill(&self, timeout: Duration) -> bool {
        self.kill_if(timeout, || true)
    }

    /// As [`Running::kill`], if it works in `directory` ([`Command::current_dir`](crate::Command::current_dir)): a process of another
    /// start of the machine can have the same number and time. One that works elsewhere is another, so that the one that is
    /// meant is gone.
    pub fn kill_in(&self, directory: &Path, timeout: Duration) -> bool {
        self.kill_if(timeout, || {
            let place = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino()));
            let at = place(Path::new(&format!("/proc/{}/cwd", self.id)));
            matches!((at, place(directory)), (Ok(at), Ok(wanted)) if at == wanted)
        })
    }

    /// The process is held (`pidfd_open(2)`) while it is looked at, and the signal goes to what is held: whatever gets its number
    /// meanwhile is let alone.
    fn kill_if(&self, timeout: Duration, is_meant: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        let Some(id) = i32::try_from(self.id).ok().and_then(Pid::from_raw) else { return true };
        loop {
            let held = pidfd_open(id, PidfdFlags::empty());
            if !self.is_alive() || !is_meant() {
                return true;
            }
            // Whether it was this very process that was looked at: had it ended in between, it would not take a signal.
            match held {
                Ok(held) => {
                    let _ = pidfd_send_signal(&held, Signal::KILL);
                    let _ = ready(held.as_fd(), PollFlags::POLLIN, left(deadline).min(AGAIN));
                }
                // Before Linux 5.3 there are none, and nothing better than the number.
                Err(Errno::NOSYS) => {
                    let _ = kill_process(id, Signal::KILL);
                    thread::sleep(Duration::from_millis(5));
                }
                // It has just ended, or there is no descriptor to be had for now.
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
            if Instant::now() > deadline {
                return !self.is_alive();
            }
        }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// What `read` gives of something that a process wrote down, and whether its `owner`, the process with which it is to end, has ended. A process that ends may
/// have written last that it stays without it: so it is read anew once the owner is known to have ended.
pub fn with_owner<T>(
    read: impl Fn() -> Option<T>,
    owner: impl Fn(&T) -> Option<Running>,
) -> Option<(T, bool)> {
    let is_orphaned = |it: &T| owner(it).is_some_and(|owner| !owner.is_alive());
    let it = read()?;
    if !is_orphaned(&it) {
        return Some((it, false));
    }
    let it = read()?;
    let orphaned = is_orphaned(&it);
    Some((it, orphaned))
}

/// The processes of this machine that run the program `program` and work in `directory`, as far as this user may look into them.
pub fn of_program_in(program: &Path, directory: &Path) -> Vec<Running> {
    let same = |one: &Path, other: &Path| {
        let file = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino()));
        matches!((file(one), file(other)), (Ok(one), Ok(other)) if one == other)
    };
    let runs = |id: &u32| {
        let of = |name: &str| format!("/proc/{id}/{name}");
        same(Path::new(&of("cwd")), directory) && same(Path::new(&of("exe")), program)
    };
    let names = files::list("/proc").unwrap_or_default();
    names.iter().filter_map(|name| name.parse().ok()).filter(runs).filter_map(Running::of).collect()
}

/// The processes that have one of the files `paths` open, also after it was removed, each as `NAME (process ID)`, of other users than root
/// as `NAME (process ID, user NAME)`; those of other users only as root. A file under another name is not seen.
pub fn holders(root: &Root, paths: &[PathBuf]) -> Vec<String> {
    let of_paths = paths.iter().map(|path| (path.clone(), ())).collect();
    holders_of(root, &of_paths).remove(&()).unwrap_or_default()
}

/// As [`holders`] of many files, in one look at all processes: by what each file stands for.
pub(crate) fn holders_of<T: Copy + Ord>(
    root: &Root,
    paths: &HashMap<PathBuf, T>,
) -> BTreeMap<T, Vec<String>> {
    let mut found: BTreeMap<T, Vec<String>> = BTreeMap::new();
    if paths.is_empty() {
        return found;
    }
    let stands_for = |open: PathBuf| {
        let shown = open.to_str().and_then(|shown| shown.strip_suffix(" (deleted)"));
        paths.get(&open).or_else(|| paths.get(Path::new(shown?))).copied()
    };
    let processes = files::list(root.path("/proc")).unwrap_or_default();
    for id in processes.iter().filter_map(|name| name.parse::<u32>().ok()) {
        let directory = root.path(format!("/proc/{id}/fd"));
        let open = files::list(&directory).unwrap_or_default();
        let open = open.iter().filter_map(|number| files::read_link(directory.join(number)).ok());
        let held: BTreeSet<T> = open.filter_map(stands_for).collect();
        if held.is_empty() {
            continue;
        }
        let read =
            |name: &str| files::read_to_string(root.path(format!("/proc/{id}/{name}"))).unwrap_or_default();
        let (name, account) = (read("comm"), of_process(root, &read("status")));
        for of in held {
            found.entry(of).or_default().push(format!("{} (process {id}{account})", name.trim()));
        }
    }
    found
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

    #[test]
    fn a_process_that_cannot_be_looked_at_has_not_ended() {
        let machine = tempfile::tempdir().unwrap();
        let root = Root::at(machine.path());
        let running = Running { id: 7, started: 300 };
        assert!(!running.is_alive_below(&root), "there is no such process");
        let directory = machine.path().join("proc/7");
        fs::create_dir_all(directory.join("stat")).unwrap();
        assert!(running.is_alive_below(&root), "a directory cannot be read");
        fs::remove_dir(directory.join("stat")).unwrap();
        let fields = "0 ".repeat(18);
        fs::write(directory.join("stat"), [b"7 (\xff) \xfe) S ", fields.as_bytes(), b"300 0"].concat())
            .unwrap();
        assert_eq!(Running::find(&root, 7), Some(running), "its name is no UTF-8");
        fs::write(directory.join("stat"), "7 (a) Z 0").unwrap();
        assert!(!running.is_alive_below(&root), "it says nothing of a process");
    }

    #[test]
    fn processes_are_found_by_program_and_directory() {
        let directory = tempfile::tempdir().unwrap();
        let program = crate::process::find("sleep").unwrap();
        let start = |at: &Path| {
            let command = Command::new("sleep").arg("600").current_dir(at);
            command.start_to_stay(tempfile::tempfile().unwrap()).unwrap()
        };
        let (own, other) = (start(directory.path()), start(Path::new("/")));
        let found = of_program_in(&program, directory.path());
        assert_eq!(found.iter().map(|found| found.id).collect::<Vec<_>>(), [own.id()]);
        assert!(of_program_in(Path::new("/bin/sh"), directory.path()).is_empty());
        own.end(Duration::ZERO);
        other.end(Duration::ZERO);
    }

    #[test]
    fn what_was_left_to_stay_by_an_owner_that_has_ended_is_no_orphan() {
        let ended = Running { id: std::process::id(), started: 0 };
        let reads = std::cell::RefCell::new(vec![None, Some(ended)]);
        let read = || reads.borrow_mut().pop();
        assert_eq!(with_owner(read, |owner| *owner), Some((None, false)), "its last word counts");
        assert_eq!(with_owner(|| Some(Some(ended)), |owner| *owner), Some((Some(ended), true)));
        let own = Running::this();
        assert_eq!(with_owner(|| Some(own), |owner| *owner), Some((own, false)));
        assert_eq!(with_owner(|| None, |owner: &Option<Running>| *owner), None);
    }

    #[test]
    fn a_process_that_works_elsewhere_is_another() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let command = Command::new("sleep").arg("600").current_dir(own.path());
        let background = command.start_to_stay(tempfile::tempfile().unwrap()).unwrap();
        let running = Running::of(background.id()).unwrap();
        for not_its in [other.path(), Path::new("/nowhere")] {
            assert!(running.kill_in(not_its, Duration::ZERO), "what is meant is gone");
            assert!(running.is_alive(), "and this is let alone");
        }
        assert!(running.kill_in(own.path(), Duration::from_secs(5)));
        assert!(!running.is_alive());
        assert!(running.kill_in(own.path(), Duration::ZERO));
        background.end(Duration::ZERO);
    }
}
