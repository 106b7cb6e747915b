//! The pipes of a running program: fed and read in one thread, so that nothing outlasts the program's deadline.
//!
//! A program may end and leave something behind that holds its output open (a daemon, or whatever a hostile container
//! chose to start). Whoever waits for the end of such a pipe waits for ever, which is why no thread here blocks in
//! `read`: the pipes are non-blocking, and what is not closed [`LINGER`] after the program has ended is given up.

use std::{
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    process::{Child, ExitStatus},
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::interrupt;

/// How long what a program left running may hold its output open, after the program has ended.
const LINGER: Duration = Duration::from_secs(2);

/// More than a pipe can hold (`/proc/sys/fs/pipe-max-size`, 1 MiB by default): what comes beyond it after the program has
/// ended was written by something that it left running.
const PIPE_CAPACITY: usize = 1 << 20;

/// The longest time in milliseconds between two looks at the program, its deadline and interrupts.
const INTERVAL: u16 = 20;

/// An output of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Its standard output.
    Output,
    /// Its standard error.
    Errors,
}

/// How running a program ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It ended by itself. `held_open`: something that it left running still has one of its outputs.
    Exited { status: ExitStatus, held_open: bool },
    /// Its deadline passed, and it was killed with its process group.
    TimedOut,
    /// Penstock was interrupted, and it was killed with its process group.
    Interrupted,
}

/// Feeds `input` to a program and hands on what it writes, until it has ended and its outputs are closed. Never returns
/// later than shortly after `deadline`, nor than [`LINGER`] after the program's end; `farewell` later where a program has to be ended that
/// has some. Whoever calls it waits for one that was killed.
///
/// # Errors
///
/// The pipes cannot be polled, or the program cannot be waited for; it is killed then.
pub(super) fn pump(
    child: &mut Child,
    input: &[u8],
    deadline: Option<Instant>,
    farewell: Duration,
    on_bytes: &mut dyn FnMut(Stream, &[u8]),
) -> io::Result<Ended> {
    let ended = Pump::new(child, input).and_then(|pump| pump.run(child, deadline, farewell, on_bytes));
    if !matches!(ended, Ok(Ended::Exited { .. })) {
        let _ = kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL);
    }
    ended
}

struct Pump<'a> {
    stdin: Option<std::process::ChildStdin>,
    unfed: &'a [u8],
    stdout: Option<std::process::ChildStdout>,
    stderr: Option<std::process::ChildStderr>,
    buffer: Vec<u8>,
}

impl<'a> Pump<'a> {
    fn new(child: &mut Child, input: &'a [u8]) -> io::Result<Pump<'a>> {
        let pump = Pump {
            stdin: child.stdin.take().filter(|_| !input.is_empty()),
            unfed: input,
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            buffer: vec![0; 64 << 10],
        };
        pump.stdin.as_ref().map_or(Ok(()), |pipe| never_block(pipe.as_fd()))?;
        pump.stdout.as_ref().map_or(Ok(()), |pipe| never_block(pipe.as_fd()))?;
        pump.stderr.as_ref().map_or(Ok(()), |pipe| never_block(pipe.as_fd()))?;
        Ok(pump)
    }

    fn run(
        mut self,
        child: &mut Child,
        deadline: Option<Instant>,
        farewell: Duration,
        on_bytes: &mut dyn FnMut(Stream, &[u8]),
    ) -> io::Result<Ended> {
        let mut ended: Option<(ExitStatus, Instant)> = None;
        let mut asked: Option<(Ended, Instant)> = None;
        let mut read_since_end = 0;
        let mut interval = 1;
        loop {
            self.wait(interval)?;
            self.feed();
            let was_open = self.is_open();
            let read = self.read(on_bytes);
            // Who closes both outputs ends, as a rule: nothing else wakes this then.
            let closes = was_open && !self.is_open();
            interval = if read > 0 || closes { 1 } else { (interval * 2).min(INTERVAL) };
            let overdue = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if let Some((status, end)) = ended {
                read_since_end += read;
                let held_open = self.is_open();
                let given_up = (end.elapsed() > LINGER || overdue || interrupt::pending())
                    && (read == 0 || read_since_end > PIPE_CAPACITY);
                if !held_open || given_up {
                    return Ok(Ended::Exited { status, held_open });
                }
                continue;
            }
            // Looked at after the pipes were read: what it wrote before its end is read in a further round.
            ended = child.try_wait()?.map(|status| (status, Instant::now()));
            if let Some((status, _)) = ended.filter(|_| asked.is_none() && !self.is_open()) {
                return Ok(Ended::Exited { status, held_open: false });
            }
            if asked.is_none() && ended.is_none() && (overdue || interrupt::pending()) {
                let why = if interrupt::pending() { Ended::Interrupted } else { Ended::TimedOut };
                asked = Some((why, Instant::now()));
                if !farewell.is_zero() {
                    let _ = kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGTERM);
                }
            }
            if let Some((why, _)) = asked.take_if(|(_, since)| ended.is_some() || since.elapsed() >= farewell)
            {
                return Ok(why);
            }
        }
    }

    /// Whether it may write more.
    fn is_open(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some()
    }

    /// Waits until a pipe can be used, for at most `interval` milliseconds.
    fn wait(&self, interval: u16) -> io::Result<()> {
        let mut pipes = Vec::with_capacity(3);
        pipes.extend(self.stdin.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)));
        pipes.extend(self.stdout.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        pipes.extend(self.stderr.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
        match poll(&mut pipes, PollTimeout::from(interval)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes what the program takes of its input. One that reads no more breaks the pipe; its status tells what happened.
    fn feed(&mut self) {
        let Some(pipe) = &mut self.stdin else { return };
        match pipe.write(self.unfed) {
            Ok(written) => self.unfed = &self.unfed[written..],
            Err(error) if passes(&error) => {}
            Err(_) => self.unfed = &[],
        }
        if self.unfed.is_empty() {
            self.stdin = None;
        }
    }

    /// Hands on what is there of both outputs, and says how many bytes that was.
    fn read(&mut self, on_bytes: &mut dyn FnMut(Stream, &[u8])) -> usize {
        read_from(&mut self.stdout, &mut self.buffer, &mut |bytes| on_bytes(Stream::Output, bytes))
            + read_from(&mut self.stderr, &mut self.buffer, &mut |bytes| on_bytes(Stream::Errors, bytes))
    }
}

/// Hands on at most one buffer of what is there; closes the pipe at its end.
fn read_from(pipe: &mut Option<impl Read>, buffer: &mut [u8], on_bytes: &mut dyn FnMut(&[u8])) -> usize {
    match pipe.as_mut().map(|pipe| pipe.read(buffer)) {
        None => 0,
        Some(Ok(length)) if length > 0 => {
            on_bytes(&buffer[..length]);
            length
        }
        Some(Err(error)) if passes(&error) => 0,
        Some(_) => {
            *pipe = None;
            0
        }
    }
}

/// Whether the same call may do better later.
fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Sets `O_NONBLOCK` on our end of a pipe; the other end is an open file description of its own and keeps its flags.
fn never_block(pipe: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(pipe, FcntlArg::F_GETFL)?);
    fcntl(pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
