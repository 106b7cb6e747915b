//! A board as it was when it had just become ready, so that the next one like it starts there.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use penstock_host::files::{self, Lock};
use serde_json::{Value, json};

use crate::{
    cache::{Cache, DirectoryLock, unforeseen},
    control::Control,
    error::BoardError,
    machine::{Machine, SERIAL_LOG},
    origin::Origin,
    shell::{KEYS, Shell},
};

/// How long QEMU may take to give up a save and to let the board run on, also when the time for saving is up.
const RUNNING_ON: Duration = Duration::from_secs(30);

/// How many are kept, newest first, and how much they may take together: some 120 MB each.
const KEPT: usize = 16;
const KEPT_BYTES: u64 = 2 << 30;

const STATE: &str = "state";
/// What it was booted from.
const ORIGIN: &str = "origin.json";
const USED: &str = "used";
/// Behind the name of what is not saved yet.
const PART: &str = ".part-";
/// What is kept beside the machine's state. The guest's memory holds the host key, so the keys belong to the state.
pub const BESIDE: [&str; 5] = [KEYS[0], KEYS[1], KEYS[2], KEYS[3], SERIAL_LOG];

/// Where a board of one kind is saved.
#[derive(Clone, Debug)]
pub struct Saved {
    /// All saved boards: in a cache that several machines have, or in a volume of several containers.
    all: PathBuf,
    directory: PathBuf,
    origin: Origin,
}

impl Saved {
    /// The place for boards of this origin: a state can only be resumed by a board that would boot from the very same.
    pub fn place(cache: &Cache, origin: Origin) -> Saved {
        Saved { all: cache.saved(), directory: cache.saved().join(origin.key()), origin }
    }

    /// Whether there is one that is whole, and it was booted from what this place is for.
    pub fn is_there(&self) -> bool {
        let all = BESIDE.iter().chain([&STATE]);
        all.map(|name| self.directory.join(name)).all(files::exists)
            && files::read_to_string(self.directory.join(ORIGIN)).is_ok_and(|text| text == self.origin.text())
    }

    /// Puts the keys and the console's past into the directory of a board that is to resume.
    ///
    /// # Errors
    ///
    /// When a file cannot be copied or the host key not be written.
    pub fn furnish(&self, run: &Path) -> Result<(), BoardError> {
        for name in BESIDE {
            files::copy(self.directory.join(name), run.join(name))?;
        }
        Shell::pin_host_key(run)
    }

    /// Resumes in a QEMU that waits for it, over [`to_resume`].
    ///
    /// # Errors
    ///
    /// As [`Control::ask`] and [`Control::await_migration`]. The board does not run then.
    pub fn resume(&self, mut control: Control) -> Result<(), BoardError> {
        let from = json!({"uri": format!("file:{}", self.directory.join(STATE).display())});
        control.ask("resume the saved board", "migrate-incoming", from)?;
        control.await_migration("resume the saved board")?;
        control.let_run()?;
        // It only seems older than it is where that cannot be noted.
        let _ = self.note_use();
        Ok(())
    }

    /// Saves a board that has just become ready; it stands still meanwhile and runs on afterwards. Nothing half-saved
    /// is ever in the place.
    ///
    /// # Errors
    ///
    /// When a file cannot be written, the lock of the saved boards not be had, or QEMU cannot save it by `deadline`: the board runs on all
    /// the same. When QEMU does not give up a save or does not let the board run, it does not ([`Unsaved::runs_on`]).
    pub fn save(&self, machine: &Machine, run: &Path, deadline: Instant) -> Result<(), Unsaved> {
        let mut part = Part::make(&self.all, &self.origin.key())?;
        let there = part.directory.clone();
        for name in BESIDE {
            files::copy(run.join(name), there.join(name))?;
            files::set_mode(there.join(name), 0o600)?;
        }
        files::write_atomic_mode(there.join(ORIGIN), self.origin.text(), 0o600)?;
        let mut control = Control::connect(&machine.control_socket(), deadline)?;
        control.watch_migration()?;
        // By default it holds back for the sake of a network that is not there.
        let fast = json!({"max-bandwidth": 1u64 << 40});
        control.ask("save the board", "migrate-set-parameters", fast)?;
        write_state(&mut control, &there.join(STATE), deadline)?;
        files::set_mode(there.join(STATE), 0o600)?;
        let _all = DirectoryLock::of(&self.all)?;
        // Another Penstock may have saved the same meanwhile.
        if !self.is_there() {
            files::remove_tree(&self.directory)?;
            part.lock = None;
            files::rename(&there, &self.directory)?;
        }
        Ok(self.note_use()?)
    }

    /// Removes it: it did not resume.
    ///
    /// # Errors
    ///
    /// When the lock cannot be had, or a file not be removed.
    pub fn discard(&self) -> Result<(), BoardError> {
        let _all = DirectoryLock::of(&self.all)?;
        Ok(files::remove_tree(&self.directory)?)
    }

    fn note_use(&self) -> Result<(), BoardError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Ok(files::write_atomic(self.directory.join(USED), now.as_secs().to_string())?)
    }
}

/// A connection to a QEMU that waits for a saved board. Of that nothing is read yet.
///
/// # Errors
///
/// As [`Control::connect`] and [`Control::ask`].
pub fn to_resume(machine: &Machine, deadline: Instant) -> Result<Control, BoardError> {
    let mut control = Control::connect(&machine.control_socket(), deadline)?;
    control.watch_migration()?;
    // By default each NIC is to announce itself, for the sake of a network in which it has moved. Linux's virtio_net waits for ever for
    // its own announcement (`virtnet_config_changed_work` takes RTNL, for which `virtnet_close` has it wait) when its NIC is taken
    // down meanwhile.
    let quiet = json!({"announce-rounds": 0});
    control.ask("resume the saved board", "migrate-set-parameters", quiet)?;
    Ok(control)
}

/// Why a board was not saved.
#[derive(Debug)]
pub struct Unsaved {
    /// What failed.
    pub why: BoardError,
    /// Whether the board runs all the same. One that does not stands still, or is about to, for good.
    pub runs_on: bool,
}

impl<E: Into<BoardError>> From<E> for Unsaved {
    fn from(error: E) -> Unsaved {
        Unsaved { why: error.into(), runs_on: true }
    }
}

/// Has QEMU write the board's state to a file by `deadline`. The board stands still meanwhile, and runs on whatever comes of it, as long as
/// QEMU does what it is asked for.
fn write_state(control: &mut Control, state: &Path, deadline: Instant) -> Result<(), Unsaved> {
    let to = json!({"uri": format!("file:{}", state.display())});
    let stopped = control.ask("stop the board", "stop", Value::Null);
    control.allow_until(deadline);
    let saved = stopped
        .and_then(|_| control.ask("save the board", "migrate", to))
        .and_then(|_| control.await_migration("save the board"));
    control.allow_until(Instant::now() + RUNNING_ON);
    // When it was only too slow, QEMU goes on with it, and stops the board once more at its end.
    let given_up = if saved.is_err() { control.cancel_migration() } else { Ok(()) };
    // That may have taken all of its time.
    control.allow_until(Instant::now() + RUNNING_ON);
    let stands_still = |why| Unsaved { why, runs_on: false };
    control.let_run().map_err(stands_still)?;
    given_up.map_err(stands_still)?;
    Ok(saved?)
}

/// A directory that is removed unless it was renamed. While it is locked, nobody else removes it.
#[derive(Debug)]
struct Part {
    directory: PathBuf,
    lock: Option<DirectoryLock>,
}

impl Part {
    /// One in which a board is saved that will be called `key`, among all saved boards.
    fn make(all: &Path, key: &str) -> Result<Part, BoardError> {
        files::create_dir_all(all)?;
        let _all = DirectoryLock::of(all)?;
        let mut part = Part { directory: all.join(format!("{key}{PART}{}", unforeseen())), lock: None };
        files::create_dir_all(&part.directory)?;
        files::set_mode(&part.directory, 0o700)?;
        part.lock = Some(DirectoryLock::of(&part.directory)?);
        Ok(part)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = files::remove_tree(&self.directory);
    }
}

/// Removes saved boards past the newest 16, or past 2 GiB, and what a killed Penstock left half-saved.
///
/// # Errors
///
/// When the directory cannot be read, the lock not be had, or a board not be removed.
pub fn evict(cache: &Cache) -> Result<(), BoardError> {
    let all = cache.saved();
    if doomed(&all)?.is_empty() {
        return Ok(());
    }
    let _all = DirectoryLock::of(&all)?;
    for directory in doomed(&all)? {
        let is_part = directory.file_name().is_some_and(|name| name.to_string_lossy().contains(PART));
        // Whoever saves a board there, on whatever machine and in whatever container, holds it.
        let held = match is_part {
            // Whoever made it removes it without asking.
            true => match Lock::try_exclusive(directory.join(DirectoryLock::NAME)) {
                Err(error) if error.is_missing() => true,
                lock => lock?.is_none(),
            },
            false => false,
        };
        if !held {
            files::remove_tree(&directory)?;
        }
    }
    Ok(())
}

/// Those that are too many, and those that are not saved yet.
fn doomed(all: &Path) -> Result<Vec<PathBuf>, BoardError> {
    let names = match files::list(all) {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        names => names?,
    };
    let (mut saved, mut doomed) = (Vec::new(), Vec::new());
    for name in names.iter().filter(|name| *name != DirectoryLock::NAME) {
        let directory = all.join(name);
        if name.contains(PART) {
            doomed.push(directory);
            continue;
        }
        let used = files::read_to_string(directory.join(USED)).unwrap_or_default();
        let used: u64 = used.trim().parse().unwrap_or(0);
        saved.push((used, files::length(directory.join(STATE)).unwrap_or(0), directory));
    }
    saved.sort();
    let mut total = 0;
    for (position, (_, bytes, directory)) in saved.into_iter().rev().enumerate() {
        total += bytes;
        if position >= KEPT || total > KEPT_BYTES {
            doomed.push(directory);
        }
    }
    Ok(doomed)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        os::unix::net::UnixListener,
    };

    use super::*;

    /// A QEMU that never ends a migration by itself, and refuses one command: what it was asked, in order.
    fn slow_qemu(socket: &Path, refused: Option<&'static str>) -> std::thread::JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"{\"QMP\": {}}\n").unwrap();
            let mut asked: Vec<String> = Vec::new();
            let mut unanswered = None;
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
                let name = message["execute"].as_str().unwrap().to_owned();
                let times = asked.iter().filter(|asked| **asked == name).count();
                asked.push(name.clone());
                let told = match (name.as_str(), times) {
                    ("query-migrate", 0) => json!({"status": "cancelling"}),
                    ("query-migrate", _) => json!({"status": "cancelled"}),
                    _ => json!({}),
                };
                // The answer comes when it is too late.
                if name == "migrate" {
                    unanswered = Some(message["id"].clone());
                    continue;
                }
                for id in unanswered.take().into_iter().chain([message["id"].clone()]) {
                    // In two pieces, as a busy machine may write it.
                    let answer = match refused == Some(name.as_str()) {
                        true => json!({"id": id, "error": {"desc": "no"}}),
                        false => json!({"id": id, "return": told.clone()}),
                    };
                    let answer = format!("{answer}\n");
                    let (one, other) = answer.split_at(answer.len() / 2);
                    stream.write_all(one.as_bytes()).unwrap();
                    stream.write_all(other.as_bytes()).unwrap();
                }
            }
            asked
        })
    }

    #[test]
    fn a_save_that_takes_too_long_is_given_up_and_the_board_runs_on() {
        let there = tempfile::tempdir().unwrap();
        let socket = there.path().join("control");
        let qemu = slow_qemu(&socket, None);
        let mut control = Control::connect(&socket, Instant::now() + RUNNING_ON).unwrap();
        control.ask("stop the board", "query-status", Value::Null).unwrap();
        // No time is left once it stands still.
        let unsaved = write_state(&mut control, &there.path().join("state"), Instant::now()).unwrap_err();
        let why = unsaved.why;
        assert!(matches!(&why, BoardError::Control { attempt: "save the board", .. }), "{why}");
        assert!(unsaved.runs_on);
        drop(control);
        let asked = qemu.join().unwrap();
        let after: Vec<&str> = asked.iter().map(String::as_str).skip_while(|name| *name != "stop").collect();
        assert_eq!(after, ["stop", "migrate", "migrate_cancel", "query-migrate", "query-migrate", "cont"]);
    }

    #[test]
    fn a_board_that_stands_still_after_a_save_is_told_from_one_that_runs_on() {
        let there = tempfile::tempdir().unwrap();
        for (refused, attempt, runs_on) in [
            ("cont", "let the board run", false),
            ("migrate_cancel", "give up saving the board", false),
            ("stop", "stop the board", true),
        ] {
            let socket = there.path().join(refused);
            let qemu = slow_qemu(&socket, Some(refused));
            let mut control = Control::connect(&socket, Instant::now() + RUNNING_ON).unwrap();
            // What is refused at once is no matter of time.
            let deadline = Instant::now() + if refused == "stop" { RUNNING_ON } else { Duration::ZERO };
            let unsaved = write_state(&mut control, &there.path().join("state"), deadline).unwrap_err();
            let BoardError::Control { attempt: failed, .. } = unsaved.why else { panic!("{}", unsaved.why) };
            assert_eq!((failed, unsaved.runs_on), (attempt, runs_on));
            drop(control);
            assert!(qemu.join().unwrap().contains(&"cont".to_owned()));
        }
    }

    #[test]
    fn the_newest_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path());
        for position in 0..KEPT + 2 {
            // The second and the fourth are the oldest.
            let used = if position == 1 || position == 3 { position } else { 100 - position };
            let one = cache.saved().join(format!("board{position:02}"));
            files::create_dir_all(&one).unwrap();
            files::write_atomic(one.join(USED), used.to_string()).unwrap();
            files::write_atomic(one.join(STATE), "state").unwrap();
        }
        // Of one that was killed.
        files::create_dir_all(cache.saved().join("board9.part-0")).unwrap();
        evict(&cache).unwrap();
        let mut left: Vec<String> = (0..KEPT + 2).map(|position| format!("board{position:02}")).collect();
        left.retain(|name| name != "board01" && name != "board03");
        assert_eq!(files::list(cache.saved()).unwrap(), left);
        evict(&Cache::at(directory.path().join("none"))).unwrap();
    }
    /// Processes of two containers may have one number, and neither sees the other's.
    #[test]
    fn what_another_saves_at_the_moment_is_let_alone() {
        let directory = tempfile::tempdir().unwrap();
        let all = Cache::at(directory.path()).saved();
        let there = || files::list(&all).unwrap();
        let (one, other) = (Part::make(&all, "board").unwrap(), Part::make(&all, "board").unwrap());
        assert_ne!(one.directory, other.directory);
        files::write_atomic(one.directory.join(STATE), "state").unwrap();
        evict(&Cache::at(directory.path())).unwrap();
        assert_eq!(there().len(), 2);
        assert!(files::exists(one.directory.join(STATE)));
        // Killed, it holds no lock, and leaves all else.
        let killed = one.directory.clone();
        drop(one);
        assert_eq!(there().len(), 1);
        files::create_dir_all(&killed).unwrap();
        files::write_atomic(killed.join(DirectoryLock::NAME), "").unwrap();
        evict(&Cache::at(directory.path())).unwrap();
        assert_eq!(there(), [other.directory.file_name().unwrap().to_str().unwrap()]);
    }
}
