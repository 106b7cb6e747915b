//! Where images, saved boards and running boards are kept.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    path::{Path, PathBuf},
};

use penstock_host::{
    files::{self, Lock},
    running::RunsOn,
};
use penstock_model::digest::sha256;

/// A Unix socket's path is at most 107 bytes, and a board's directory holds some; one that is longer than this
/// leaves no room for them.
const LONGEST_RUN_DIRECTORY: usize = 64;

/// The user's cache of images and saved boards, and the directory of boards that run.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
    running: PathBuf,
}

impl Cache {
    /// The cache in `directory`. Running boards are in `$XDG_RUNTIME_DIR/penstock/boards`, or in the cache where there
    /// is no such directory that is this user's own; where that is too long for a socket, in [`short`].
    pub fn at(directory: impl Into<PathBuf>) -> Cache {
        let directory = directory.into();
        let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let running = given
            .filter(|given| is_own(given))
            .map_or(directory.join("run"), |runtime| runtime.join("penstock/boards"));
        let running = if running.as_os_str().len() > LONGEST_RUN_DIRECTORY {
            short(&directory, &running)
        } else {
            running
        };
        Cache { directory, running }
    }

    /// The same with its running boards in this directory, where another user's session, or none, had brought them up.
    pub fn running_in(self, running: PathBuf) -> Cache {
        Cache { running, ..self }
    }

    /// The cache directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Board images, by digest.
    pub fn images(&self) -> PathBuf {
        self.directory.join("images")
    }

    /// Saved boards, by digest.
    pub fn saved(&self) -> PathBuf {
        self.directory.join("boards")
    }

    /// What was found out about accelerators.
    pub fn accelerators(&self) -> PathBuf {
        self.directory.join("accelerators.json")
    }

    /// The parts of Kubernetes clusters that every cluster shares, by digest.
    pub fn kubernetes(&self) -> PathBuf {
        self.directory.join("kubernetes")
    }

    /// Kubernetes clusters that run, by name.
    pub fn clusters(&self) -> PathBuf {
        self.directory.join("clusters")
    }

    /// Boards that run, by name.
    pub fn running(&self) -> &Path {
        &self.running
    }
}

/// Whether it is a directory in which nobody else can do anything.
fn is_own(directory: &Path) -> bool {
    directory.is_absolute() && matches!(files::own_directory(directory), Ok(Some(_)))
}

/// A short directory for the boards that would run in `wanted`: where only this user, or root, can make one; in `/tmp` otherwise, of
/// a name that nobody foresees, and that the cache remembers.
fn short(cache: &Path, wanted: &Path) -> PathBuf {
    let user = format!("/run/user/{}", penstock_host::process::user());
    let digest = &sha256(wanted.to_string_lossy().as_bytes())[..12];
    for base in [user.as_str(), "/run"] {
        if is_own(Path::new(base)) {
            return Path::new(base).join("penstock").join(digest);
        }
    }
    // Of this machine alone, for the cache may be that of others, too: on them it leads nowhere.
    let here = RunsOn::here();
    let here = here.machine.unwrap_or(here.start);
    remembered(&cache.join(format!("run.short-{here}")))
        // The cache cannot be written to: nothing will run from it. A directory of this name is used only if it is our own.
        .unwrap_or_else(|_| PathBuf::from(format!("/tmp/penstock-{digest}")))
}

/// The directory of ours in `/tmp` to which the link `at` leads; another one where that is gone.
fn remembered(at: &Path) -> files::Result<PathBuf> {
    let led = || files::read_link(at).ok().filter(|directory| is_own(directory));
    if let Some(directory) = led() {
        return Ok(directory);
    }
    let directory = PathBuf::from(format!("/tmp/penstock-{}", unforeseen()));
    at.parent().map_or(Ok(()), files::create_dir_all)?;
    files::make_own_directory(&directory)?;
    files::remove_file(at)?;
    match files::link(&directory, at) {
        Ok(()) => Ok(directory),
        // Somebody else of ours was first.
        Err(error) => {
            files::remove_directory(&directory)?;
            led().ok_or(error)
        }
    }
}

/// A directory of which nobody else makes or removes what lies in it meanwhile: another process, also one of a container or of another
/// machine that has the same file system. A file in it is locked, which is there as long as that.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: PathBuf,
    _lock: Lock,
}

impl DirectoryLock {
    /// The name of the file.
    pub(crate) const NAME: &str = ".lock";

    /// Takes the lock, waiting for whoever has it.
    pub(crate) fn of(directory: &Path) -> files::Result<DirectoryLock> {
        let file = directory.join(DirectoryLock::NAME);
        loop {
            let lock = Lock::exclusive(&file)?;
            // Who had it before has removed the file that was waited for.
            if lock.is_at(&file) {
                return Ok(DirectoryLock { file, _lock: lock });
            }
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        let _ = files::remove_file(&self.file);
    }
}

/// Sixteen digits that nobody else has thought of, nor foresees.
pub(crate) fn unforeseen() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_place_is_ours_alone_and_found_again() {
        let there = tempfile::tempdir().unwrap();
        let long = there.path().join("long-".repeat(20));
        let cache = Cache::at(&long);
        assert!(cache.running().as_os_str().len() <= LONGEST_RUN_DIRECTORY, "{}", cache.running().display());
        assert_eq!(Cache::at(&long).running(), cache.running());
        assert_ne!(Cache::at(long.join("other")).running(), cache.running());
        // Where neither root nor a session has a place.
        let link = there.path().join("run.short");
        let first = remembered(&link).unwrap();
        assert!(is_own(&first) && first.as_os_str().len() <= LONGEST_RUN_DIRECTORY);
        assert_eq!(remembered(&link).unwrap(), first);
        assert_ne!(remembered(&there.path().join("other.short")).unwrap(), first, "nobody foresees it");
        files::remove_tree(&first).unwrap();
        let second = remembered(&link).unwrap();
        assert_ne!(second, first, "its name is known by now, and may be somebody else's");
        for made in [second, remembered(&there.path().join("other.short")).unwrap()] {
            files::remove_directory(made).unwrap();
        }
    }
}
