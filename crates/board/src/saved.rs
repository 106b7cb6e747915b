//! A board as it was when it had just become ready, so that the next one like it starts there.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use penstock_host::{files, running::Running};
use serde_json::{Value, json};

use crate::{
    cache::Cache,
    control::Control,
    error::BoardError,
    machine::{Machine, SERIAL_LOG},
    origin::Origin,
    shell::{KEYS, Shell},
};

/// How many are kept, newest first, and how much they may take together: some 120 MB each.
const KEPT: usize = 16;
const KEPT_BYTES: u64 = 2 << 30;

const STATE: &str = "state";
/// What it was booted from.
const ORIGIN: &str = "origin.json";
const USED: &str = "used";
/// What is kept beside the machine's state. The guest's memory holds the host key, so the keys belong to the state.
pub const BESIDE: [&str; 5] = [KEYS[0], KEYS[1], KEYS[2], KEYS[3], SERIAL_LOG];

/// Where a board of one kind is saved.
#[derive(Clone, Debug)]
pub struct Saved {
    directory: PathBuf,
    origin: Origin,
}

impl Saved {
    /// The place for boards of this origin: a state can only be resumed by a board that would boot from the very same.
    pub fn place(cache: &Cache, origin: Origin) -> Saved {
        Saved { directory: cache.saved().join(origin.key()), origin }
    }

    /// Whether there is one, and it was booted from what this place is for.
    pub fn is_there(&self) -> bool {
        files::exists(self.directory.join(STATE))
            && files::read_to_string(self.directory.join(ORIGIN)).is_ok_and(|text| text == self.origin.text())
    }

    /// Puts the keys and the console's past into the directory of a board that is to resume.
    pub fn furnish(&self, run: &Path) -> Result<(), BoardError> {
        for name in BESIDE {
            files::copy(self.directory.join(name), run.join(name))?;
        }
        Shell::pin_host_key(run)
    }

    /// Resumes in a QEMU that waits for it.
    pub fn resume(&self, machine: &Machine, deadline: Instant) -> Result<(), BoardError> {
        let mut control = Control::connect(&machine.control_socket(), deadline)?;
        control.watch_migration()?;
        // By default each NIC is to announce itself, for the sake of a network in which it has moved. Linux's virtio_net waits for ever for
        // its own announcement (`virtnet_config_changed_work` takes RTNL, for which `virtnet_close` has it wait) when its NIC is taken
        // down meanwhile.
        let quiet = json!({"announce-rounds": 0});
        control.ask("resume the saved board", "migrate-set-parameters", quiet)?;
        let from = json!({"uri": format!("file:{}", self.directory.join(STATE).display())});
        control.ask("resume the saved board", "migrate-incoming", from)?;
        control.await_migration("resume the saved board")?;
        control.let_run()?;
        self.note_use()
    }

    /// Saves a board that has just become ready; it stands still meanwhile and runs on afterwards. Nothing half-saved
    /// is ever in the place.
    pub fn save(&self, machine: &Machine, run: &Path, deadline: Instant) -> Result<(), BoardError> {
        let mut part = self.directory.clone().into_os_string();
        part.push(format!(".part-{}", std::process::id()));
        let part = Part(PathBuf::from(part));
        files::create_dir_all(&part.0)?;
        files::set_mode(&part.0, 0o700)?;
        for name in BESIDE {
            files::copy(run.join(name), part.0.join(name))?;
            files::set_mode(part.0.join(name), 0o600)?;
        }
        files::write_atomic_mode(part.0.join(ORIGIN), self.origin.text(), 0o600)?;
        let mut control = Control::connect(&machine.control_socket(), deadline)?;
        control.watch_migration()?;
        // By default it holds back for the sake of a network that is not there.
        let fast = json!({"max-bandwidth": 1u64 << 40});
        control.ask("save the board", "migrate-set-parameters", fast)?;
        control.ask("stop the board", "stop", Value::Null)?;
        let to = json!({"uri": format!("file:{}", part.0.join(STATE).display())});
        let saved = control
            .ask("save the board", "migrate", to)
            .and_then(|_| control.await_migration("save the board"));
        control.let_run()?;
        saved?;
        files::set_mode(part.0.join(STATE), 0o600)?;
        // Another Penstock may have saved the same meanwhile.
        if !self.is_there() {
            files::remove_tree(&self.directory)?;
            files::rename(&part.0, &self.directory)?;
        }
        self.note_use()
    }

    /// Removes it: it did not resume.
    pub fn discard(&self) -> Result<(), BoardError> {
        Ok(files::remove_tree(&self.directory)?)
    }

    fn note_use(&self) -> Result<(), BoardError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Ok(files::write_atomic(self.directory.join(USED), now.as_secs().to_string())?)
    }
}

/// A directory that is removed unless it was renamed.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = files::remove_tree(&self.0);
    }
}

/// Removes saved boards past the newest 16, or past 2 GiB, and what a killed Penstock left half-saved.
pub fn evict(cache: &Cache) -> Result<(), BoardError> {
    let names = match files::list(cache.saved()) {
        Err(error) if error.is_missing() => return Ok(()),
        names => names?,
    };
    let mut saved = Vec::new();
    for name in names {
        let directory = cache.saved().join(&name);
        if let Some((_, maker)) = name.split_once(".part-") {
            if maker.parse().ok().and_then(Running::of).is_none() {
                files::remove_tree(&directory)?;
            }
            continue;
        }
        let used = files::read_to_string(directory.join(USED)).unwrap_or_default();
        let used: u64 = used.trim().parse().unwrap_or(0);
        saved.push((used, files::length(directory.join(STATE)).unwrap_or(0), directory));
    }
    saved.sort();
    let mut total = 0;
    for (position, (_, bytes, directory)) in saved.iter().rev().enumerate() {
        total += bytes;
        if position >= KEPT || total > KEPT_BYTES {
            files::remove_tree(directory)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // No process has the number 0.
        files::create_dir_all(cache.saved().join("board9.part-0")).unwrap();
        evict(&cache).unwrap();
        let mut left: Vec<String> = (0..KEPT + 2).map(|position| format!("board{position:02}")).collect();
        left.retain(|name| name != "board01" && name != "board03");
        assert_eq!(files::list(cache.saved()).unwrap(), left);
        evict(&Cache::at(directory.path().join("none"))).unwrap();
    }
}
