//! Programs in the background.

use std::{
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{self, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{Command, ProcessError, reap::reap, wait_until};

/// A program in the background, killed when this is dropped.
#[derive(Debug)]
pub struct Background {
    pub(super) command: String,
    pub(super) child: Option<process::Child>,
}

impl Background {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, process::Child::id)
    }

    /// The command, for messages.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<process::ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Lets it live on without Penstock.
    pub fn leave(mut self) {
        self.child = None;
    }

    /// Asks it and all that it started to end (SIGTERM to its process group, which nothing of Penstock's is in), waits for it for `timeout`, then
    /// kills what is left.
    pub fn end(mut self, timeout: Duration) {
        if let Some(mut child) = self.child.take() {
            let group = Pid::from_raw(-(child.id() as i32));
            let _ = kill(group, Signal::SIGTERM);
            let _ = wait_until(&mut child, Instant::now() + timeout);
            let _ = kill(group, Signal::SIGKILL);
            reap(child);
        }
    }

    /// Kills it and all that it started: its process group, which nothing of Penstock's is in.
    pub fn end_group(mut self) {
        if let Some(child) = self.child.take() {
            let _ = kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL);
            reap(child);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            reap(child);
        }
    }
}

impl Command {
    /// Starts it in the background with its output going to `log`. It is killed when the [`Background`] is dropped,
    /// and by the kernel when Penstock dies.
    ///
    /// # Errors
    ///
    /// [`ProcessError::NotInstalled`] or [`ProcessError::Start`] when it cannot be started, or `log` cannot be shared with it.
    pub fn start_logged(&self, log: File) -> Result<Background, ProcessError> {
        let errors = log.try_clone().map_err(|e| self.start(e))?;
        let child =
            self.prepare(Stdio::null(), log.into(), errors.into())?.spawn().map_err(|e| self.start(e))?;
        Ok(Background { command: self.to_string(), child: Some(child) })
    }

    /// Starts it in the background with Penstock's own standard output. It is killed when the [`Background`] is dropped, and by
    /// the kernel when the thread that started it dies.
    ///
    /// # Errors
    ///
    /// [`ProcessError::NotInstalled`] or [`ProcessError::Start`] when it cannot be started.
    pub fn start_beside(&self) -> Result<Background, ProcessError> {
        let mut command = self.prepare(Stdio::null(), Stdio::inherit(), Stdio::inherit())?;
        let child = command.spawn().map_err(|e| self.start(e))?;
        Ok(Background { command: self.to_string(), child: Some(child) })
    }

    /// Starts it in the background with a socket as its standard input and output; gives the other end of it. It is
    /// killed when the [`Background`] is dropped, and by the kernel when the thread that started it dies.
    ///
    /// # Errors
    ///
    /// [`ProcessError::NotInstalled`] or [`ProcessError::Start`] when it cannot be started, or there is no socket for it.
    pub fn start_connected(&self) -> Result<(Background, UnixStream), ProcessError> {
        let (ours, its) = UnixStream::pair().map_err(|e| self.start(e))?;
        let output = its.try_clone().map_err(|e| self.start(e))?;
        let child = self
            .prepare(OwnedFd::from(its).into(), OwnedFd::from(output).into(), Stdio::null())?
            .spawn()
            .map_err(|e| self.start(e))?;
        Ok((Background { command: self.to_string(), child: Some(child) }, ours))
    }

    /// As [`start_logged`](Command::start_logged), but not killed when Penstock dies: for what
    /// [`Background::leave`] may let live on.
    ///
    /// # Errors
    ///
    /// As [`start_logged`](Command::start_logged).
    pub fn start_to_stay(&self, log: File) -> Result<Background, ProcessError> {
        let errors = log.try_clone().map_err(|e| self.start(e))?;
        let child =
            self.compose(Stdio::null(), log.into(), errors.into())?.spawn().map_err(|e| self.start(e))?;
        Ok(Background { command: self.to_string(), child: Some(child) })
    }

    /// Starts it in a session of its own, without a terminal, in the directory `/`, to outlive Penstock and the session
    /// that Penstock belongs to. Its output goes to `log`.
    ///
    /// # Errors
    ///
    /// As [`start_logged`](Command::start_logged).
    pub fn start_session(&self, log: File) -> Result<Background, ProcessError> {
        let errors = log.try_clone().map_err(|e| self.start(e))?;
        let mut command = self.call()?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        command.current_dir(self.directory.as_deref().unwrap_or(Path::new("/")));
        lead_a_session(&mut command);
        let child = command.spawn().map_err(|e| self.start(e))?;
        Ok(Background { command: self.to_string(), child: Some(child) })
    }
}

/// Has the child leave its parent's session: what the terminal's end does to that (SIGHUP) does not reach it.
#[allow(unsafe_code)]
fn lead_a_session(command: &mut process::Command) {
    // SAFETY: `setsid` is an async-signal-safe system call and allocates nothing between fork and exec.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_that_a_program_has_started_ends_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let line = "(trap '' TERM; exec sleep 100) & echo $!; wait";
        let started =
            Command::new("sh").args(["-c", line]).start_logged(crate::files::append(&log).unwrap()).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let child = loop {
            let said = String::from_utf8(crate::files::read(&log).unwrap()).unwrap();
            if let Some(pid) = said.lines().find_map(|line| line.parse::<i32>().ok()) {
                break Pid::from_raw(pid);
            }
            assert!(Instant::now() < until, "{said}");
            thread::sleep(Duration::from_millis(10));
        };
        started.end(Duration::from_millis(200));
        // Its new parent may not have waited for it yet.
        let state = || crate::files::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z ") {
            assert!(Instant::now() < until, "{}", state());
            thread::sleep(Duration::from_millis(10));
        }
    }
}
