//! The terminal that Penstock runs on: every key as it is pressed, and put back as it was however the program ends.

use std::{
    io::{self, IsTerminal, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::termios::{FlushArg, SetArg, Termios, cfmakeraw, tcflush, tcgetattr, tcsetattr},
    unistd,
};

use crate::interrupt;

/// What gives a terminal back its usual looks: no colours, the cursor seen, no reports of the mouse, no marks around
/// what is pasted. A guest may have left it otherwise.
const USUAL: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l";

/// How long to wait for a terminal to take more before asking whether to give up.
const STUCK: Duration = Duration::from_millis(100);

/// How much is written to a terminal at once: more could wait inside the kernel, where no interrupt is seen.
const AT_ONCE: usize = 512;

/// Whether standard input is a terminal.
pub fn is_input() -> bool {
    io::stdin().is_terminal()
}

/// Whether standard output is a terminal.
pub fn is_output() -> bool {
    io::stdout().is_terminal()
}

/// Standard input's terminal in raw mode (termios(3), `cfmakeraw`) until this is dropped: no echo, no signals from keys,
/// every byte at once and as it is. Dropping also happens in a panic, and after SIGINT, SIGTERM, SIGHUP and SIGQUIT,
/// which only note an [interrupt]; nothing helps against SIGKILL.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Makes standard input's terminal raw.
    ///
    /// # Errors
    ///
    /// `ENOTTY` when it is none.
    pub fn enter() -> io::Result<Raw> {
        interrupt::catch_quit()?;
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &raw)?;
        Ok(Raw { before })
    }

    /// Undoes what a guest may have told the terminal with escape sequences. Not part of dropping, because to write to a
    /// terminal that takes nothing would wait for ever.
    pub fn usual_looks(&self) {
        if is_output() {
            let _ = io::stdout().write_all(USUAL).and_then(|()| io::stdout().flush());
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // What the terminal answered to a guest's questions must not end up as a command in the user's shell.
        let _ = tcflush(io::stdin(), FlushArg::TCIFLUSH);
        // Not `TCSADRAIN`, which waits until a stuck terminal has taken everything.
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}

/// What came of waiting for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// So many bytes were read.
    Bytes(usize),
    /// Nothing came in time.
    Nothing,
    /// There is no more: the end of a file or pipe, or a terminal that hung up.
    End,
}

/// Reads what is there of standard input, waiting up to `timeout` for the first byte, or until a signal.
///
/// # Errors
///
/// Whatever `read` fails with, but for a terminal that hung up (`EIO`), which is an end.
pub fn read_input(buffer: &mut [u8], timeout: Duration) -> io::Result<Input> {
    let stdin = io::stdin();
    if !ready(stdin.as_fd(), PollFlags::POLLIN, timeout)? {
        return Ok(Input::Nothing);
    }
    match unistd::read(&stdin, buffer) {
        Ok(0) | Err(Errno::EIO) => Ok(Input::End),
        Ok(count) => Ok(Input::Bytes(count)),
        Err(Errno::EINTR | Errno::EAGAIN) => Ok(Input::Nothing),
        Err(errno) => Err(errno.into()),
    }
}

/// Columns and lines of the terminal that standard error is; `None` when it is none, or does not tell.
pub fn size() -> Option<(usize, usize)> {
    size_of(io::stderr().as_fd())
}

/// Columns and lines of the terminal that standard output is; `None` when it is none, or does not tell.
pub fn output_size() -> Option<(usize, usize)> {
    size_of(io::stdout().as_fd())
}

/// Columns of the terminal that standard output is; `None` when it is none, or does not tell.
pub fn output_columns() -> Option<usize> {
    output_size().map(|(columns, _)| columns)
}

/// Columns of the terminal that standard error is; `None` when it is none, or does not tell.
pub fn error_columns() -> Option<usize> {
    size().map(|(columns, _)| columns)
}

#[allow(unsafe_code)]
fn size_of(terminal: BorrowedFd<'_>) -> Option<(usize, usize)> {
    nix::ioctl_read_bad!(window_size, libc::TIOCGWINSZ, libc::winsize);
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes a `winsize` to where it is told and nothing beyond (tty_ioctl(4)); `size` is one.
    unsafe { window_size(terminal.as_raw_fd(), &mut size) }.ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// Writes all of `bytes` to standard output, as fast as the terminal takes them; `give_up` ends the wait for one that takes nothing.
///
/// # Errors
///
/// Whatever `write` fails with; `ETIMEDOUT` when it was given up.
pub fn write_output(mut bytes: &[u8], give_up: impl Fn() -> bool) -> io::Result<()> {
    let stdout = io::stdout();
    while !bytes.is_empty() {
        if !ready(stdout.as_fd(), PollFlags::POLLOUT, STUCK)? {
            if give_up() {
                return Err(Errno::ETIMEDOUT.into());
            }
            continue;
        }
        match unistd::write(&stdout, &bytes[..bytes.len().min(AT_ONCE)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Whether nobody reads standard output any more: the other end of a pipe was closed, or a terminal hung up.
pub fn output_is_gone() -> bool {
    let stdout = io::stdout();
    let mut watched = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let _ = poll(&mut watched, PollTimeout::ZERO);
    watched[0].revents().is_some_and(|seen| seen.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
}

/// Whether `events` (or an error, or a hang-up) came within `timeout`; a signal ends the wait.
pub(crate) fn ready(of: BorrowedFd<'_>, events: PollFlags, timeout: Duration) -> io::Result<bool> {
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(of, events)], timeout) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
