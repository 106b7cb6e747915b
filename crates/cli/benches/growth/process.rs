//! What one process takes of the processors and of memory, as the kernel's accounting has it when it ends.
//!
//! Each is the only child of a process that does nothing else: the kernel counts what all children took together, and starts a child's peak
//! with that of whoever started it (`setmax_mm_hiwater_rss` in fs/exec.c), which is 13 MB for Python and 3 MB for this.

use std::{
    env,
    ffi::OsString,
    path::Path,
    process::{Command, Stdio, exit},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};

/// What such a process is started with.
const LAUNCH: &str = "launch-and-count";

/// What a process took.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUsage {
    /// User and system time in milliseconds, that of its own children included.
    pub cpu: f64,
    /// Its largest resident set in MB.
    pub memory: f64,
}

/// Starts what the arguments say, tells what it took, and ends, if this is a process for that. `main` calls it before anything else.
pub fn launch_if_asked() {
    let mut words = env::args_os().skip(1);
    if words.next().is_some_and(|word| word == LAUNCH) {
        launch(words.next().expect("a program"), words);
    }
}

fn launch(program: OsString, words: impl Iterator<Item = OsString>) {
    let status = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("the program starts");
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the kernel counts");
    let cpu = used.user_time().num_microseconds() + used.system_time().num_microseconds();
    println!("{cpu} {}", used.max_rss());
    exit(status.code().unwrap_or(-1));
}

/// Runs `program` to its end; what it prints is thrown away.
///
/// # Panics
///
/// When it ends with anything but 0 or 1, which says that something is not as it should be.
pub fn measure(directory: &Path, program: &Path, words: &[&str]) -> ProcessUsage {
    let mut command = Command::new(env::current_exe().expect("this program's path"));
    command.arg(LAUNCH).arg(program).args(words).current_dir(directory);
    let output = command.output().expect("this program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {said}", words.join(" "));
    let told = String::from_utf8_lossy(&output.stdout);
    let (cpu, kib) = told.trim().split_once(' ').expect("two numbers");
    let number = |text: &str| text.parse::<f64>().expect("a number");
    ProcessUsage { cpu: number(cpu) / 1e3, memory: number(kib) * 1024.0 / 1e6 }
}
