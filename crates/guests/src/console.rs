//! Consoles of guests: read from the file that everything on them is logged to, written to by one at a time.
//!
//! | file in the guest's directory | what |
//! |---|---|
//! | `console.log` | what the guest has written since its last start; `.0`, `.1`, `.2` are older parts of it, put aside by libvirt or LXC |
//! | `console.sock` | a VM's serial port as QEMU serves it: one client at a time |
//! | `console.lock` | locked (flock(2)) by whoever writes, who also notes itself in it |
//!
//! Readers only follow the log, so there can be any number of them, none of them can hold the guest up, and what a guest
//! said before anybody looked is not lost. A container's console is a pseudo-terminal of LXC, reached by `lxc-console`.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use penstock_host::{
    Command, ProcessError, Root, accounts,
    files::{self, FileError, Lock},
    process::{self, Background},
};
use penstock_model::{GuestKind, GuestName};
use thiserror::Error;

use crate::{
    error::GuestError,
    state::{PREFIX, State},
    words::last_lines,
};

/// The group whose members may use the consoles of this machine, where there is such a group.
pub const GROUP: &str = "penstock-console";

/// How long one write may wait for a guest that takes no input, before the rest is left for later.
const STUCK: Duration = Duration::from_millis(100);

/// Why a console cannot be written to.
#[derive(Debug, Error)]
pub enum ConsoleError {
    /// Its lock cannot be taken for lack of permission, or for another reason that does not pass.
    #[error("the console of guest {guest} cannot be written to")]
    Lock {
        /// The guest whose console it is.
        guest: GuestName,
        /// Why its lock file could not be opened or locked.
        #[source]
        source: FileError,
    },
    /// LXC lets nobody but root write to a container's console.
    #[error("LXC lets only root write to the console of a container, and guest {guest} is one")]
    OnlyRoot {
        /// The container whose console it is.
        guest: GuestName,
    },
    /// The guest is not there, or has not made its console yet.
    #[error("guest {guest} has no console to write to now: it does not run")]
    NotThere {
        /// The guest whose console it is.
        guest: GuestName,
    },
    /// The guest's VM does not answer on the socket of its console.
    #[error("could not connect to {}", path.display())]
    Socket {
        /// The path of the VM's socket.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// `lxc-console` cannot be run.
    #[error("the console of guest {guest} cannot be written to")]
    Lxc {
        /// The container whose console it is.
        guest: GuestName,
        /// Why `lxc-console` could not be started.
        #[source]
        source: ProcessError,
    },
    /// This process cannot make the two ends or the thread that a container's console needs.
    #[error("the console of guest {guest} cannot be read and written to")]
    Line {
        /// The container whose console it is.
        guest: GuestName,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl ConsoleError {
    /// What to do about it, when that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            ConsoleError::Lock { .. } => Some(format!("be root, or a member of the group {GROUP}")),
            ConsoleError::Lxc { .. } => Some("install LXC (Debian: apt-get install lxc)".to_owned()),
            ConsoleError::Socket { .. } | ConsoleError::NotThere { .. } => {
                Some("see `penstock status`; another program may be connected (virsh console)".to_owned())
            }
            ConsoleError::OnlyRoot { .. } | ConsoleError::Line { .. } => None,
        }
    }

    /// Whether trying again later makes no sense.
    pub fn is_final(&self) -> bool {
        matches!(self, ConsoleError::Lock { .. } | ConsoleError::OnlyRoot { .. } | ConsoleError::Lxc { .. })
    }
}

/// The console of one guest.
#[derive(Clone, Debug)]
pub struct Console {
    guest: GuestName,
    kind: GuestKind,
    state: State,
}

impl Console {
    /// The console of a guest that is defined; `None` when it is not.
    ///
    /// # Errors
    ///
    /// [`GuestError::State`] or [`GuestError::Garbled`] when a file of its state cannot be read or makes no sense.
    pub fn of(state: &State, guest: &GuestName) -> Result<Option<Console>, GuestError> {
        let definition = state.definition(guest)?;
        Ok(definition.map(|definition| Console {
            guest: guest.clone(),
            kind: if definition.vm.is_some() { GuestKind::Vm } else { GuestKind::Container },
            state: state.clone(),
        }))
    }

    /// The guest whose console it is.
    pub fn guest(&self) -> &GuestName {
        &self.guest
    }

    /// VM or container.
    pub fn kind(&self) -> GuestKind {
        self.kind
    }

    /// What the guest has written since its last start, as far as it was not put aside.
    pub fn log(&self) -> PathBuf {
        self.state.file(&self.guest, "console.log")
    }

    /// Older parts of the log that were put aside, oldest first.
    pub fn older_logs(&self) -> Vec<PathBuf> {
        let older = ["console.log.2", "console.log.1", "console.log.0"];
        older
            .map(|name| self.state.file(&self.guest, name))
            .into_iter()
            .filter(|path| files::exists(path))
            .collect()
    }

    /// The last `count` lines on it that say something, without what could steer a terminal.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        last_lines(&self.log(), count)
    }

    /// Whether the guest is there, as far as can be told without asking LXC or libvirt.
    pub fn guest_runs(&self) -> bool {
        let started = self.state.started(&self.guest).ok().flatten();
        // One whose first process nobody lived to note may run.
        started.is_some_and(|started| started.init.is_none_or(|init| init.is_alive()))
    }

    /// Takes the right to write, if nobody has it.
    ///
    /// # Errors
    ///
    /// [`ConsoleError::OnlyRoot`] for a container without root, [`ConsoleError::NotThere`] when the guest is not defined or was
    /// never started, [`ConsoleError::Lock`] when the lock cannot be had for another reason than a writer, who is part of the
    /// answer.
    pub fn take(&self) -> Result<WriteTurn, ConsoleError> {
        if self.kind == GuestKind::Container && !process::is_root() {
            return Err(ConsoleError::OnlyRoot { guest: self.guest.clone() });
        }
        let path = self.lock();
        // Only root may make it, and for anybody else it is only not there yet: the guest is about to be started again.
        if !process::is_root() && !files::exists(&path) {
            return Err(ConsoleError::NotThere { guest: self.guest.clone() });
        }
        let lock = match Lock::try_exclusive(&path) {
            Ok(lock) => lock,
            // The directory of a guest that is not defined any more.
            Err(error) if error.is_missing() => {
                return Err(ConsoleError::NotThere { guest: self.guest.clone() });
            }
            Err(source) => return Err(ConsoleError::Lock { guest: self.guest.clone(), source }),
        };
        let Some(mut lock) = lock else {
            return Ok(WriteTurn::ByAnother(holder(&path)));
        };
        // Only for others to read: not worth failing for.
        let _ = lock.note(&format!("{} {}\n", std::process::id(), accounts::this_user()));
        Ok(WriteTurn::Ours(Turn { lock, path }))
    }

    /// Connects to the guest's input. For a container this starts `lxc-console`, which dies with the calling thread.
    ///
    /// # Errors
    ///
    /// [`ConsoleError::NotThere`] when the guest does not run, [`ConsoleError::Socket`] or [`ConsoleError::Lxc`] when its input
    /// cannot be reached.
    pub fn connect(&self, _turn: &Turn) -> Result<Line, ConsoleError> {
        match self.kind {
            GuestKind::Vm => {
                let path = self.state.file(&self.guest, "console.sock");
                let stream = UnixStream::connect(&path).map_err(|source| match source.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        ConsoleError::NotThere { guest: self.guest.clone() }
                    }
                    _ => ConsoleError::Socket { path: path.clone(), source },
                })?;
                Line::over(stream, None).map_err(|source| ConsoleError::Socket { path, source })
            }
            GuestKind::Container => {
                if !self.guest_runs() {
                    return Err(ConsoleError::NotThere { guest: self.guest.clone() });
                }
                let failed = |source| ConsoleError::Lxc { guest: self.guest.clone(), source };
                let (program, stream) = self.lxc_console().start_connected().map_err(failed)?;
                Line::over(stream, Some(program))
                    .map_err(|source| ConsoleError::Line { guest: self.guest.clone(), source })
            }
        }
    }

    /// LXC's own client, between its standard input and output and the container's console, without an escape.
    fn lxc_console(&self) -> Command {
        let program = process::find("lxc-console").unwrap_or_else(|| "lxc-console".into());
        Command::new(program)
            .arg("-P")
            .arg(self.state.directory())
            .args(["-n", &format!("{PREFIX}{}", self.guest), "-t", "0", "-e", "-1"])
            .current_dir("/")
    }

    fn lock(&self) -> PathBuf {
        self.state.file(&self.guest, "console.lock")
    }
}

/// What came of asking for the right to write.
#[derive(Debug)]
pub enum WriteTurn {
    /// It is the caller's until dropped.
    Ours(Turn),
    /// Somebody else has it.
    ByAnother(Holder),
}

/// The right to write to a console, until this is dropped; the kernel takes it back from a process that dies.
#[derive(Debug)]
pub struct Turn {
    lock: Lock,
    path: PathBuf,
}

impl Turn {
    /// Whether it still is what others ask for: a guest that is removed and defined again has a new lock.
    pub fn is_good(&self) -> bool {
        self.lock.is_at(&self.path)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = self.lock.note("");
    }
}

/// Who writes to a console, as far as it said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The id of the process; `None` where the lock file does not tell.
    pub pid: Option<u32>,
    /// The name of its user; `None` where the lock file tells none that could be one.
    pub user: Option<String>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.user, self.pid) {
            (Some(user), Some(pid)) => write!(f, "{user} (pid {pid})"),
            (None, Some(pid)) => write!(f, "process {pid}"),
            _ => f.write_str("somebody else"),
        }
    }
}

/// Reads who holds a lock. Any member of the group can write there, so nothing of it is taken on trust.
fn holder(lock: &Path) -> Holder {
    let bytes = files::read_at_most(lock, 128).unwrap_or_default().0;
    let text = String::from_utf8_lossy(&bytes);
    let mut words = text.split_whitespace();
    let pid = words.next().and_then(|pid| pid.parse().ok());
    let name = |user: &&str| {
        user.len() <= 32 && user.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    Holder { pid, user: words.next().filter(name).filter(|_| pid.is_some()).map(str::to_owned) }
}

/// A way in to a guest. What comes out of it is thrown away as soon as it comes, by a thread of its own: it is in the log
/// already, and a guest must never wait because somebody's terminal is stuck.
#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
    open: Arc<AtomicBool>,
    _program: Option<Background>,
}

impl Line {
    fn over(stream: UnixStream, program: Option<Background>) -> io::Result<Line> {
        stream.set_write_timeout(Some(STUCK))?;
        let open = Arc::new(AtomicBool::new(true));
        let (mut from, still_open) = (stream.try_clone()?, open.clone());
        thread::Builder::new().name("console".to_owned()).spawn(move || {
            let mut buffer = [0; 16 << 10];
            loop {
                match from.read(&mut buffer) {
                    Ok(count) if count > 0 => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    _ => break,
                }
            }
            still_open.store(false, Ordering::Release);
        })?;
        Ok(Line { stream, open, _program: program })
    }

    /// Whether the guest is still there at the other end.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Hands the guest as many of these bytes as it takes now, and says how many; waits 0.1 s at most.
    ///
    /// # Errors
    ///
    /// The guest is gone.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.write(bytes) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(0)
            }
            outcome => outcome,
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Ends the thread, which has a handle of its own.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Lets the members of [`GROUP`] use the console of the guest with this state directory; does nothing where there is no
/// such group. To be called when the guest has been started, since QEMU, libvirt and LXC make the log and the socket.
///
/// The directory can be entered by all and listed by the group (0751); the log can be read by the group (0640), the
/// socket and the lock written to (0660).
///
/// # Errors
///
/// As [`share_with`].
pub fn share(directory: &Path) -> Result<(), FileError> {
    match accounts::group(&Root::system(), GROUP) {
        Some(group) => share_with(directory, group),
        None => Ok(()),
    }
}

/// As [`share`], with a group by its number.
///
/// # Errors
///
/// [`FileError`] when the lock cannot be made, or a file's group or permissions cannot be set, which takes root.
pub fn share_with(directory: &Path, group: u32) -> Result<(), FileError> {
    let lock = directory.join("console.lock");
    if !files::exists(&lock) {
        // Who finds it may use it at once.
        let made = directory.join("console.lock.new");
        files::append(&made)?;
        files::share(&made, group, 0o660)?;
        files::rename(&made, &lock)?;
    }
    files::share(directory, group, 0o751)?;
    let shared = [("console.log", 0o640), ("console.sock", 0o660), ("console.lock", 0o660)];
    for (name, mode) in shared {
        match files::share(directory.join(name), group, mode) {
            // A container has no socket, and a guest that has not been started has no log.
            Err(error) if error.is_missing() => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// What makes the scroll-back of a console fit to be shown on a terminal.
///
/// A terminal answers some of what is written to it (where is the cursor, what are you, what is in the clipboard), as if
/// its user had typed the answer, and obeys more. What a guest says while somebody looks is between the two, as on every
/// serial console; but answers to questions of long ago would be typed into a guest that does not wait for them. So of
/// the scroll-back only text, colours and moves within a line are kept (ECMA-48; `SGR`, `EL`, `CUF`, `CUB`, `CHA`).
#[derive(Debug, Default)]
pub struct Replay {
    at: At,
    /// A sequence that may turn out to be kept.
    held: Vec<u8>,
    /// How many more bytes the present UTF-8 character has.
    continues: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Text,
    /// After ESC, which begins a sequence.
    Escape,
    /// After ESC and an intermediate byte.
    Designation,
    /// After ESC [.
    Control,
    /// In a string that ends with ST or BEL.
    String,
    /// After ESC in a string.
    StringEscape,
    /// After 0xC2, which begins the characters U+0080 to U+00BF: the first 32 of them are controls.
    Latin,
}

/// A sequence that is kept is no longer than this.
const SEQUENCE: usize = 64;

impl Replay {
    /// Appends to `out` what is kept of `bytes`, which go on where the last ones ended.
    pub fn keep(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            self.byte(*byte, out);
        }
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        const ESC: u8 = 0x1b;
        match self.at {
            At::Text => self.text(byte, out),
            At::Latin => {
                self.at = At::Text;
                match byte {
                    0x80..=0x9f => {}
                    0xa0..=0xbf => out.extend([0xc2, byte]),
                    _ => self.text(byte, out),
                }
            }
            At::Escape => match byte {
                b'[' => {
                    self.at = At::Control;
                    self.held = vec![ESC, b'['];
                }
                b']' | b'P' | b'X' | b'^' | b'_' => self.at = At::String,
                0x20..=0x2f => self.at = At::Designation,
                ESC => {}
                _ => self.at = At::Text,
            },
            At::Designation => match byte {
                0x20..=0x2f => {}
                ESC => self.at = At::Escape,
                _ => self.at = At::Text,
            },
            At::Control => match byte {
                // However the sequence ends, a character that began within it ends there: what comes next is not a part of it.
                ESC => (self.at, self.continues) = (At::Escape, 0),
                0x40..=0x7e => {
                    (self.at, self.continues) = (At::Text, 0);
                    let parameters = &self.held[2..];
                    let plain = parameters.iter().all(|b| matches!(b, b'0'..=b'9' | b';' | b':'));
                    if matches!(byte, b'm' | b'K' | b'C' | b'D' | b'G') && plain && self.held.len() < SEQUENCE
                    {
                        out.append(&mut self.held);
                        out.push(byte);
                    }
                }
                0x20..=0x3f if self.held.len() < SEQUENCE => self.held.push(byte),
                0x20..=0x3f => {}
                // A terminal obeys a control character within a sequence as if it stood before it.
                _ => self.text(byte, out),
            },
            At::String => match byte {
                0x07 | 0x18 | 0x1a => self.at = At::Text,
                ESC => self.at = At::StringEscape,
                // One that is not ended must not take the rest of the log with it.
                b'\n' => {
                    self.at = At::Text;
                    out.push(byte);
                }
                _ => {}
            },
            At::StringEscape => {
                self.at = At::Text;
                if byte != b'\\' {
                    self.at = At::Escape;
                    self.byte(byte, out);
                }
            }
        }
    }

    fn text(&mut self, byte: u8, out: &mut Vec<u8>) {
        let continues = std::mem::take(&mut self.continues);
        match byte {
            0x1b => self.at = At::Escape,
            b'\n' | b'\r' | b'\t' | 0x08 | 0x20..=0x7e => out.push(byte),
            // ENQ asks for an answer, SO and SI change the character set, BEL rings.
            0x00..=0x1f | 0x7f => {}
            // Inside a character, or else a control character of eight bits.
            0x80..=0xbf if continues > 0 => {
                self.continues = continues - 1;
                out.push(byte);
            }
            0x80..=0x9f => {}
            0xc2 => self.at = At::Latin,
            0xc3..=0xdf => self.character(byte, 1, out),
            0xe0..=0xef => self.character(byte, 2, out),
            0xf0..=0xf4 => self.character(byte, 3, out),
            0xa0..=0xc1 | 0xf5..=0xff => out.push(byte),
        }
    }

    fn character(&mut self, byte: u8, continues: u8, out: &mut Vec<u8>) {
        self.continues = continues;
        out.push(byte);
    }
}
