//! The `penstock` binary as a user runs it.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::trials::Outcome;

/// The optimised, static binary: `$PENSTOCK_BINARY`, or what `make build` leaves. `None` when it was not built.
pub fn path() -> Option<PathBuf> {
    let built =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/x86_64-unknown-linux-gnu/release/penstock");
    env::var_os("PENSTOCK_BINARY")
        .map(PathBuf::from)
        .or_else(|| Some(built.into()))
        .filter(|path| path.is_file())
}

/// The command `penstock` in `directory`, not yet started.
///
/// # Panics
///
/// When there is no binary; tests that use this ask [`needs::board`](crate::needs::board) first.
pub fn command(directory: &Path) -> Command {
    let mut command = Command::new(path().expect("the binary was built: `make build`"));
    command.current_dir(directory);
    command
}

/// Interrupts a program (SIGINT) once it catches that: before, as on a busy machine, it would end as any other does.
///
/// # Panics
///
/// When it has ended, or does not catch it within a minute.
pub fn interrupt(child: &Child) {
    let since = Instant::now();
    while !catches(child.id(), Signal::SIGINT) {
        assert!(since.elapsed() < Duration::from_secs(60), "process {} does not catch SIGINT", child.id());
        thread::sleep(Duration::from_millis(10));
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it runs");
}

/// Whether a process has a handler for a signal: `SigCgt` in /proc/PID/status, of which bit 0 is signal 1 (proc_pid_status(5)).
fn catches(process: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap_or_default();
    caught >> (signal as i32 - 1) & 1 == 1
}

/// How a run of the binary ended.
#[derive(Debug)]
pub struct Run {
    /// The exit status; -1 for one that died of a signal.
    pub status: i32,
    /// What it wrote on standard output; bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// What it wrote on standard error; bytes that are no UTF-8 are replaced.
    pub stderr: String,
}

impl Run {
    /// Whether it ended with this exit status; what it said, else.
    ///
    /// # Errors
    ///
    /// With both outputs.
    pub fn ended_with(&self, status: i32) -> Outcome {
        if self.status == status {
            return Ok(());
        }
        let Run { status: ended, stdout, stderr } = self;
        // Why it failed comes first: who reports a failure may cut the rest.
        let (before, why) = stderr.split_at(stderr.rfind("\nerror: ").map_or(stderr.len(), |at| at + 1));
        Err(format!("status {ended} instead of {status}\n{why}\n{stdout}\n{before}").into())
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Writes a copy of a program without what debuggers read to `to`: half the bytes or less, each of which an emulated processor deciphers when it is
/// put on a board.
///
/// # Errors
///
/// With what `strip` said.
pub fn strip(program: &Path, to: &Path) -> Outcome {
    let output = Command::new("strip").arg("-o").arg(to).arg(program).output()?;
    Run::from(output).ended_with(0)
}

/// Runs `penstock` with these arguments in `directory`.
///
/// # Panics
///
/// When it cannot be started.
pub fn run<A: AsRef<OsStr>>(directory: &Path, arguments: impl IntoIterator<Item = A>) -> Run {
    command(directory).args(arguments).output().expect("the binary runs").into()
}

/// Runs `program`, the binary of this build, with these arguments in `directory`: without colours, with a cache of the
/// test's own.
///
/// # Panics
///
/// When it cannot be started.
pub fn run_built(program: &str, directory: &Path, arguments: &[&str]) -> Run {
    let mut command = Command::new(program);
    command.current_dir(directory).env("NO_COLOR", "1").env("XDG_CACHE_HOME", directory.join("cache"));
    command.args(arguments).output().expect("the binary runs").into()
}
