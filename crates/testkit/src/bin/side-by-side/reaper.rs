//! What a test program and all that it starts take of the processors.
//!
//! A board that is to stay has no parent that waits for it, so that what its QEMU takes is in nobody's account. Each program is therefore
//! started by a process of ours that adopts what loses its parent (`PR_SET_CHILD_SUBREAPER`, prctl(2)), waits for all of it, and says in a
//! file how much processor time that was.

use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::raise,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use penstock_host::interrupt;

/// The first word of a command line of this program that is one of a reaper: then come the file, the program and its arguments.
pub const REAP: &str = "--reap";

/// How long what is left of a program that has ended may take to end: a board that was just dropped.
const LEFTOVERS: Duration = Duration::from_secs(2);

/// How many ticks a second has in `/proc/PID/stat`: `USER_HZ`, which the kernel keeps at 100 on every architecture that boards run on.
const TICKS: f64 = 100.0;

/// `command` so that it is run by this program as its reaper, which writes to `file`.
pub fn reaped(reaper: &Path, file: &Path, command: &Command) -> Command {
    let mut wrapped = Command::new(reaper);
    wrapped.arg(REAP).arg(file).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        wrapped.current_dir(directory);
    }
    wrapped
}

/// The seconds that a reaper wrote to its file; `None` where it was ended before it could.
pub fn seconds(file: &Path) -> Option<f64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Runs a program to its end, with everything that it leaves behind, and ends as it did.
pub fn reap(words: &[OsString]) -> ExitCode {
    let [file, program, arguments @ ..] = words else {
        eprintln!("error: {REAP} FILE PROGRAM [ARGUMENT...]");
        return ExitCode::from(2);
    };
    match run(Path::new(file), program, arguments) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("error: {}: {why}", program.display());
            ExitCode::FAILURE
        }
    }
}

fn run(file: &Path, program: &OsString, arguments: &[OsString]) -> Result<ExitCode, String> {
    // An interrupt reaches the whole group. What it does to the program is for the program to say; the account is kept all the same.
    interrupt::catch().map_err(|error| error.to_string())?;
    prctl::set_child_subreaper(true).map_err(|error| error.to_string())?;
    let child = Command::new(program).args(arguments).spawn().map_err(|error| error.to_string())?;
    let child = i32::try_from(child.id()).map(Pid::from_raw).map_err(|error| error.to_string())?;
    let status = loop {
        match waitpid(None, None) {
            Ok(status) if status.pid() == Some(child) => break status,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.to_string()),
        }
    };
    let ended = Instant::now();
    while ended.elapsed() < LEFTOVERS {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => thread::sleep(Duration::from_millis(20)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => break,
        }
    }
    // That it cannot be written costs a figure, not a test.
    let _ = taken_by_children().map(|seconds| fs::write(file, format!("{seconds:.2}\n")));
    match status {
        WaitStatus::Signaled(_, signal, _) => {
            // Those that this process catches it survives.
            let _ = raise(signal);
            Ok(ExitCode::from(128 + u8::try_from(signal as i32).unwrap_or(127)))
        }
        WaitStatus::Exited(_, code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))),
        other => Err(format!("it neither ended nor died: {other:?}")),
    }
}

/// The seconds of processor time of all children that were waited for, and of all that those waited for; `None` where the kernel does not
/// tell.
fn taken_by_children() -> Option<f64> {
    read_taken_by_children(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Fields 16 and 17 of `/proc/PID/stat` (`cutime`, `cstime`, proc_pid_stat(5)). The second field is a name in parentheses, which may have
/// blanks and parentheses.
fn read_taken_by_children(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(13).map(str::parse::<u32>);
    let (user, system) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(f64::from(user + system) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_children_took_is_read_from_the_kernel() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 200 0 0 11 12 1300 45 20 0 1 0 5 6 7\n";
        assert_eq!(read_taken_by_children(stat), Some(13.45));
        assert_eq!(read_taken_by_children("7 (a) S 1"), None);
        assert!(taken_by_children().is_some(), "this kernel tells");
    }
}
