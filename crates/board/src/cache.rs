//! Where images, saved boards and running boards are kept.

use std::path::{Path, PathBuf};

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
    /// is no such directory; in `/tmp/penstock-NAME` when that is too long for a socket.
    pub fn at(directory: impl Into<PathBuf>) -> Cache {
        let directory = directory.into();
        let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let running = given
            .filter(|directory| directory.is_dir())
            .map_or(directory.join("run"), |runtime| runtime.join("penstock/boards"));
        let running = if running.as_os_str().len() > LONGEST_RUN_DIRECTORY {
            let digest = penstock_model::digest::sha256(running.to_string_lossy().as_bytes());
            PathBuf::from(format!("/tmp/penstock-{}", &digest[..12]))
        } else {
            running
        };
        Cache { directory, running }
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

    /// Boards that run, by name.
    pub fn running(&self) -> &Path {
        &self.running
    }
}
