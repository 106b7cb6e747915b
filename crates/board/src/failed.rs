//! What is kept of a board that did not become ready: its directory goes, and nobody can look into it any more.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use penstock_host::files;
use serde_json::json;

use crate::{
    cache::Cache,
    control::Control,
    error::BoardError,
    machine::{self, LOGS},
};

/// So many boards' logs are kept, the newest.
const MOST: usize = 8;
/// Where its CPUs were, each time that was asked.
const CPUS: &str = "cpus.log";
/// So often they are asked where they are, and so far apart: one that stands shows the same twice.
const ASKED: usize = 2;
const APART: Duration = Duration::from_secs(1);
/// How long QEMU may take to tell.
const TELLING: Duration = Duration::from_secs(10);

/// The error of a board that did not become ready, with the place where its logs are kept; every other one as it is.
pub fn with_logs(error: BoardError, cache: &Cache, name: &str, directory: &Path) -> BoardError {
    match error {
        BoardError::NotReady { after, console, logs: None } => {
            BoardError::NotReady { after, console, logs: keep(cache, name, directory) }
        }
        other => other,
    }
}

/// Copies the logs of the board in `directory`, and where its CPUs are, to `failed` in the cache. `None` where that cannot be done: it is no
/// reason to hide why the board failed.
fn keep(cache: &Cache, name: &str, directory: &Path) -> Option<PathBuf> {
    let all = cache.directory().join("failed");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // In the order of time, which is that of their names.
    let kept = all.join(format!("{now}-{name}"));
    files::create_dir_all(&kept).ok()?;
    for log in LOGS {
        // One that was not begun is not there.
        let _ = files::copy(directory.join(log), kept.join(log));
    }
    let _ = files::write_atomic(kept.join(CPUS), cpus(directory).unwrap_or_else(|why| why.to_string()));
    let there = files::list(&all).unwrap_or_default();
    for old in there.iter().rev().skip(MOST) {
        let _ = files::remove_tree(all.join(old));
    }
    Some(kept)
}

/// Where the CPUs of the board in `directory` are, in QEMU's words.
fn cpus(directory: &Path) -> Result<String, BoardError> {
    let mut control = Control::connect(&machine::control_socket(directory), Instant::now() + TELLING)?;
    let mut told = String::new();
    for time in 0..ASKED {
        if time > 0 {
            thread::sleep(APART);
        }
        let line = json!({"command-line": "info registers -a"});
        let answer = control.ask("tell where the board's CPUs are", "human-monitor-command", line)?;
        told += answer.as_str().unwrap_or_default();
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_logs_of_boards_that_failed_are_kept() {
        let (cache, board) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = Cache::at(cache.path());
        files::write_atomic(board.path().join(machine::SERIAL_LOG), "[ 1.0] Booting").unwrap();
        for old in 0..MOST {
            files::create_dir_all(cache.directory().join(format!("failed/{old:010}-old"))).unwrap();
        }
        let kept = keep(&cache, "one", board.path()).unwrap();
        assert_eq!(machine::serial_log(&kept), "[ 1.0] Booting");
        // Its QEMU is not there.
        assert!(crate::log::tail(&kept.join(CPUS), 1 << 10).contains("QEMU's control socket"));
        let there = files::list(cache.directory().join("failed")).unwrap();
        assert_eq!(there.len(), MOST);
        assert!(
            !there.contains(&"0000000000-old".to_owned()) && kept.ends_with(there.last().unwrap()),
            "{there:?}"
        );
    }
}
