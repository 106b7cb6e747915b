//! How much memory something takes. Of the whole process, so that a test that measures has a program of its own.

use std::fs;

/// What `act` gives, and how many bytes of memory the process had meanwhile at most beyond what it had before.
///
/// # Panics
///
/// When the kernel does not tell (`/proc/self/status`, `/proc/self/clear_refs`).
pub fn peak<T>(act: impl FnOnce() -> T) -> (T, u64) {
    // So that the peak counts from now on (proc_pid_clear_refs(5)).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS");
    let outcome = act();
    (outcome, status("VmHWM").saturating_sub(before))
}

/// A line of `/proc/self/status` that is a size, in bytes.
///
/// # Panics
///
/// When there is none of this name.
pub fn status(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
