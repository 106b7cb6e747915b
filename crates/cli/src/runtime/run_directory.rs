//! The directory that a run leaves.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::SystemTime,
};

use penstock_host::files::{self, FileError, Lock};
use penstock_report::Evidence;

use crate::{
    failure::{Failure, Status},
    runtime::kept_run::{self, EVIDENCE},
    ui::printer::Printer,
};

/// The directory of one run: `evidence.json`, `report.html`, `report.md`, `model.yaml`, `serial.log`, what was brought out of
/// the machine: `consoles/GUEST.log`, `generated/`; and of a run that measures what it was asked for and every sample with
/// the tool's own output, as soon as it was taken: `run.json`, `samples.jsonl`.
///
/// While the run goes on it is locked, unless its file system has no locks: of two that would write to it, one does.
pub struct RunDirectory {
    path: PathBuf,
    /// The directories that were not there before, the deepest first.
    made: Vec<PathBuf>,
    _lock: Option<Lock>,
}

/// What is locked, in the directory; it is gone when the run is over.
const LOCK: &str = ".penstock-run.lock";

/// What to do about a directory that cannot be had.
pub const ANOTHER: &str = "name another directory with --output";

/// ENOLCK, ENOSYS and EOPNOTSUPP (errno(3)).
const NO_LOCKS: [i32; 3] = [37, 38, 95];

impl RunDirectory {
    /// Creates `wanted`, or `runs/MACHINE-TIME` here, with a number behind it where another run has begun in the same second. One that has
    /// something in it is refused: evidence is not written over.
    ///
    /// # Errors
    ///
    /// `Status::BadInput` when `wanted` is not empty; when another process has it, or it cannot be made.
    pub fn create(wanted: Option<&Path>, machine: &str, now: SystemTime) -> Result<RunDirectory, Failure> {
        RunDirectory::made(wanted, machine, now).map_err(|failure| match failure.hints.is_empty() {
            true => failure.hint(ANOTHER),
            false => failure,
        })
    }

    fn made(wanted: Option<&Path>, machine: &str, now: SystemTime) -> Result<RunDirectory, Failure> {
        let Some(wanted) = wanted else {
            let time = humantime::format_rfc3339_seconds(now).to_string().replace([':', '-'], "");
            return RunDirectory::fresh(&Path::new("runs").join(format!("{machine}-{time}")));
        };
        if let Some(directory) = RunDirectory::claim(wanted)? {
            return Ok(directory);
        }
        if is_empty(wanted)? {
            return Err(in_use(wanted));
        }
        let text = format!("the run directory {} is not empty", wanted.display());
        Err(Failure::new(Status::BadInput, text).hint(ANOTHER))
    }

    /// Leaves nothing behind of a run that did not come to begin: neither these files, which it has written, nor the directories that it made.
    /// What somebody else has put there meanwhile stays, and what it is in.
    pub fn discard(self, written: &[&str]) {
        let made = self.made.clone();
        for name in written {
            let _ = files::remove_file(self.path.join(name));
        }
        // The lock goes last.
        drop(self);
        let _ = made.iter().try_for_each(files::remove_directory);
    }

    /// The directory of an earlier run that goes on.
    ///
    /// # Errors
    ///
    /// When another process has it, or it cannot be locked.
    pub fn of_earlier(path: &Path) -> Result<RunDirectory, Failure> {
        RunDirectory::lock(path)?.ok_or_else(|| in_use(path))
    }

    /// `first`, or that with the first number from 2 on behind it which no run has.
    fn fresh(first: &Path) -> Result<RunDirectory, Failure> {
        let mut path = first.to_owned();
        let mut number = 1_u32;
        loop {
            if let Some(directory) = RunDirectory::claim(&path)? {
                return Ok(directory);
            }
            number += 1;
            path = PathBuf::from(format!("{}-{number}", first.display()));
        }
    }

    /// Makes a directory this run's; `None` when it is another's, or has something in it.
    fn claim(path: &Path) -> Result<Option<RunDirectory>, Failure> {
        let is_new = |path: &&Path| !path.as_os_str().is_empty() && !files::exists(path);
        let new: Vec<PathBuf> = path.ancestors().take_while(is_new).map(Path::to_owned).collect();
        files::create_dir_all(path).map_err(Failure::of_named)?;
        // In one that somebody has put something into, nothing is locked.
        if !is_empty(path)? {
            return Ok(None);
        }
        let locked = RunDirectory::lock(path)?;
        // Another may have come to its end meanwhile.
        let ours = locked.filter(|_| is_empty(path).is_ok_and(|empty| empty));
        Ok(ours.map(|mut directory| {
            directory.made = new;
            directory
        }))
    }

    fn lock(path: &Path) -> Result<Option<RunDirectory>, Failure> {
        RunDirectory::locked(path, Lock::try_exclusive(path.join(LOCK)))
    }

    fn locked(path: &Path, lock: files::Result<Option<Lock>>) -> Result<Option<RunDirectory>, Failure> {
        let lock = match lock {
            Err(error) if has_no_locks(&error) => None,
            // Who had it before has removed the file that was locked here.
            lock => match lock?.filter(|lock| lock.is_at(path.join(LOCK))) {
                None => return Ok(None),
                held => held,
            },
        };
        Ok(Some(RunDirectory { path: path.to_owned(), made: Vec::new(), _lock: lock }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's name.
    pub fn id(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Keeps what was brought out of the machine, each file at its path in here.
    ///
    /// # Errors
    ///
    /// The first file that cannot be written.
    pub fn keep_files(&self, all: &BTreeMap<String, Vec<u8>>) -> Result<(), Failure> {
        for (name, bytes) in all {
            let path = self.path.join(name);
            if let Some(directory) = path.parent() {
                files::create_dir_all(directory)?;
            }
            files::write_atomic(path, bytes)?;
        }
        Ok(())
    }

    /// Writes the evidence and its renderings, each file whole or not at all. What cannot be written, on a full disk, keeps
    /// nothing else from being tried. It warns of evidence that `penstock report` will not read, as of more VFs than its limits hold.
    ///
    /// # Errors
    ///
    /// The first file that cannot be written, with the names of all.
    pub fn keep(&self, evidence: &Evidence, printer: &mut Printer) -> Result<(), Failure> {
        // The evidence first: all others can be made from it.
        type Render = fn(&Evidence) -> String;
        let renderings: [(&str, Render); 5] = [
            (EVIDENCE, |evidence| evidence.json()),
            ("model.yaml", |evidence| evidence.model.text.clone()),
            ("serial.log", |evidence| evidence.serial_log.clone().unwrap_or_default()),
            ("report.md", penstock_report::markdown),
            ("report.html", penstock_report::html),
        ];
        let mut failures: Vec<(&str, FileError)> = Vec::new();
        for (name, render) in renderings {
            let text = render(evidence);
            if name == EVIDENCE
                && let Some(why) = kept_run::why_not_read(&text)
            {
                let file = self.path.join(name);
                printer.warn(format!("{} cannot be read again by `penstock report`: {why}", file.display()));
            }
            let written = files::write_atomic(self.path.join(name), text);
            failures.extend(written.err().map(|error| (name, error)));
        }
        let lost: Vec<&str> = failures.iter().map(|(name, _)| *name).collect();
        let hint = format!("not kept: {}; all else is in {}", lost.join(", "), self.path.display());
        match failures.into_iter().next() {
            None => Ok(()),
            Some((_, error)) => Err(Failure::from(error).hint(hint)),
        }
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _ = files::remove_file(self.path.join(LOCK));
    }
}

/// Whether it was a file system without locks, as some of networks are, that refused one (flock(2)).
fn has_no_locks(error: &FileError) -> bool {
    error.source.raw_os_error().is_some_and(|errno| NO_LOCKS.contains(&errno))
}

/// Whether there is nothing in a directory but, perhaps, the lock of a run.
fn is_empty(path: &Path) -> Result<bool, Failure> {
    Ok(files::list(path)?.iter().all(|name| name == LOCK))
}

fn in_use(path: &Path) -> Failure {
    let text = format!("another penstock writes to the run directory {}", path.display());
    Failure::new(Status::Busy, text).hint("wait until it has ended, or name another directory")
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn of_two_runs_each_has_a_directory_of_its_own() {
        let there = tempfile::tempdir().unwrap();
        let first = there.path().join("runs/m-20260101T000000Z");
        let all: Vec<RunDirectory> = std::thread::scope(|scope| {
            let one = || RunDirectory::fresh(&first).unwrap();
            let all: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let mut paths: Vec<&Path> = all.iter().map(RunDirectory::path).collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 8, "{paths:?}");
        assert!(paths.contains(&first.as_path()));
        drop(all);
        assert!(files::list(&first).unwrap().is_empty(), "nothing is left of one that wrote nothing");
        assert_eq!(RunDirectory::fresh(&first).unwrap().path(), first);
    }

    #[test]
    fn a_file_system_without_locks_has_runs_too() {
        let there = tempfile::tempdir().unwrap();
        let locked = |errno: Errno| {
            let (attempt, path) = ("lock", there.path().join(LOCK));
            RunDirectory::locked(there.path(), Err(FileError { attempt, path, source: errno.into() }))
        };
        for errno in [Errno::ENOLCK, Errno::EOPNOTSUPP, Errno::ENOSYS] {
            assert_eq!(locked(errno).unwrap().unwrap().path(), there.path());
        }
        assert!(locked(Errno::EIO).is_err());
    }

    #[test]
    #[allow(clippy::disallowed_methods)]
    fn a_path_that_no_directory_can_have_is_the_user_s_mistake() {
        let there = tempfile::tempdir().unwrap();
        let file = there.path().join("file");
        files::write_atomic(&file, "").unwrap();
        let circle = there.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle).unwrap();
        let long = there.path().join("x".repeat(300));
        for wanted in [file.clone(), file.join("out"), circle.join("out"), long] {
            let failure =
                RunDirectory::create(Some(&wanted), "m", SystemTime::UNIX_EPOCH).map(drop).unwrap_err();
            assert_eq!(failure.status, Status::BadInput, "{}", failure.in_one_line());
            assert_eq!(failure.hints, [ANOTHER]);
        }
    }

    #[test]
    fn a_run_that_did_not_begin_leaves_what_was_there() {
        let there = tempfile::tempdir().unwrap();
        let create = |path: &Path| RunDirectory::create(Some(path), "m", SystemTime::UNIX_EPOCH).unwrap();
        let new = there.path().join("runs/m-1");
        let directory = create(&new);
        files::write_atomic(new.join("run.json"), "{}").unwrap();
        directory.discard(&["run.json"]);
        assert!(files::list(there.path()).unwrap().is_empty());
        // With the run of another beside it.
        let (directory, _other) = (create(&new), create(&there.path().join("runs/m-2")));
        directory.discard(&["run.json"]);
        assert_eq!(files::list(there.path().join("runs")).unwrap(), ["m-2"]);
        // One that somebody had made.
        let own = there.path().join("own");
        files::create_dir_all(&own).unwrap();
        create(&own).discard(&[]);
        assert!(files::list(&own).unwrap().is_empty());
        // What somebody has put there meanwhile is not this run's.
        for path in [&own, &new] {
            let directory = create(path);
            files::write_atomic(path.join("notes.txt"), "mine").unwrap();
            directory.discard(&["run.json"]);
            assert_eq!(files::list(path).unwrap(), ["notes.txt"]);
        }
    }

    #[test]
    fn a_directory_that_is_named_is_written_to_by_one() {
        let there = tempfile::tempdir().unwrap();
        let wanted = there.path().join("out");
        let refused = |status: Status| {
            let failure =
                RunDirectory::create(Some(&wanted), "m", SystemTime::UNIX_EPOCH).map(drop).unwrap_err();
            assert_eq!(failure.status, status, "{}", failure.in_one_line());
        };
        let one = RunDirectory::create(Some(&wanted), "m", SystemTime::UNIX_EPOCH).unwrap();
        refused(Status::Busy);
        assert_eq!(RunDirectory::of_earlier(&wanted).map(drop).unwrap_err().status, Status::Busy);
        files::write_atomic(wanted.join("run.json"), "{}").unwrap();
        refused(Status::BadInput);
        drop(one);
        refused(Status::BadInput);
        assert_eq!(files::list(&wanted).unwrap(), ["run.json"]);
        assert_eq!(RunDirectory::of_earlier(&wanted).unwrap().path(), wanted);
    }
}
