//! One conversation on a serial line, which one process has at a time. Whoever had it before may have been killed in the middle
//! of a line: what is not the answer to the very request is passed over.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use serde_json::Value;

use super::wire::{Answer, Request, State};
use crate::NetlinkError;

/// How long the line may be another's, and how long an answer may take. Hundreds of ports take a second to tell of on an emulated
/// machine.
const TIMEOUT: Duration = Duration::from_secs(20);
/// An answer longer than this is none.
const LONGEST: usize = 4 << 20;

/// The line to an embedded switch, which is this process's until it is dropped.
#[derive(Debug)]
pub struct Line {
    port: File,
    id: u64,
    read: Vec<u8>,
    timeout: Duration,
}

impl Line {
    /// Takes the line; `attempt` is what for.
    ///
    /// # Errors
    ///
    /// As [`Line::open_within`].
    pub fn open(path: &Path, attempt: &str) -> Result<Line, NetlinkError> {
        Line::open_within(path, attempt, TIMEOUT)
    }

    /// The same, where the line may be another's for `timeout`, and each answer takes as long at most.
    ///
    /// # Errors
    ///
    /// [`NetlinkError::TimedOut`] when another has the line for longer than `timeout`, [`NetlinkError::NotPermitted`],
    /// [`NetlinkError::Socket`] for what else keeps it from being opened.
    pub fn open_within(path: &Path, attempt: &str, timeout: Duration) -> Result<Line, NetlinkError> {
        let attempt = format!("{attempt} over the line {} to the embedded switch", path.display());
        let began = Instant::now();
        loop {
            let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
            match opened {
                Ok(port) => {
                    // No two processes are at it at once, so that the time tells them apart.
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                    // Numbers beyond 2^53 are not safe in JSON.
                    let id = now.as_micros() as u64 & ((1 << 53) - 1);
                    return Ok(Line { port, id, read: Vec::new(), timeout });
                }
                Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
                    if began.elapsed() > timeout {
                        return Err(NetlinkError::TimedOut { attempt, after: timeout });
                    }
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(NetlinkError::NotPermitted { attempt, detail: None });
                }
                Err(source) => return Err(NetlinkError::Socket { attempt, source }),
            }
        }
    }

    /// What is set at the switch.
    ///
    /// # Errors
    ///
    /// As [`Line::ask`], and [`NetlinkError::Malformed`] when the answer is no such state.
    pub fn state(&mut self) -> Result<State, NetlinkError> {
        let attempt = "read what is set at the embedded switch";
        let answer = self.ask(attempt, Request::Get)?;
        serde_json::from_value(answer)
            .map_err(|error| NetlinkError::Malformed { attempt: attempt.to_owned(), what: error.to_string() })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    ///
    /// [`NetlinkError::TimedOut`] when no answer comes, [`NetlinkError::Socket`] when the line breaks, and what the switch answers when
    /// it refuses.
    pub fn ask(&mut self, attempt: &str, request: Request) -> Result<Value, NetlinkError> {
        let deadline = Instant::now() + self.timeout;
        self.id += 1;
        let after = self.timeout;
        let failed = |source: io::Error| match source.kind() {
            ErrorKind::TimedOut => NetlinkError::TimedOut { attempt: attempt.to_owned(), after },
            _ => NetlinkError::Socket { attempt: attempt.to_owned(), source },
        };
        self.write(request.line(self.id).as_bytes(), deadline).map_err(failed)?;
        loop {
            let line = self.line(deadline).map_err(failed)?;
            // Half of another's answer is no answer.
            let Ok(answer) = serde_json::from_slice::<Answer>(&line) else { continue };
            if answer.id != Some(self.id) {
                continue;
            }
            return answer.into_result(attempt);
        }
    }

    fn write(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.port.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(PollFlags::POLLOUT, deadline)?
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next line.
    fn line(&mut self, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut buffer = [0; 16 << 10];
        let mut seen = 0;
        loop {
            if let Some(end) = self.read[seen..].iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(seen + end + 1);
                return Ok(std::mem::replace(&mut self.read, rest));
            }
            seen = self.read.len();
            if seen > LONGEST {
                return Err(io::Error::new(ErrorKind::InvalidData, "it answers without an end"));
            }
            match self.port.read(&mut buffer) {
                // The other end is not there at the moment (`drivers/char/virtio_console.c`, `port_fops_read`).
                Ok(0) => {
                    if Instant::now() > deadline {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                Ok(count) => self.read.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(PollFlags::POLLIN, deadline)?
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn wait(&self, what: PollFlags, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.port.as_fd(), what)], timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // A line whose other end has hung up is always ready and has nothing.
        thread::sleep(Duration::from_millis(1));
        Ok(())
    }
}
