//! Other programs: run to their end under a deadline, or kept in the background, never left behind.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{
            net::UnixStream,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::{Path, PathBuf},
    process::{self, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        prctl,
        signal::{SigHandler, Signal, kill, signal},
    },
    unistd::Pid,
};
use thiserror::Error;

use crate::interrupt;

mod stream;
mod talk;

pub use stream::{LINE_LIMIT, each_line};
pub use talk::{Talk, Terminal};

/// More output than this of one stream of one command is thrown away; see [`Output::truncated`].
pub const OUTPUT_LIMIT: usize = 64 << 20;

/// A program with its arguments, and what it is to be given.
#[derive(Clone, Debug)]
pub struct Command {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    input: Vec<u8>,
    deadline: Option<Duration>,
}

impl Command {
    /// `program`, found on `PATH` unless it has a slash.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        Command {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            input: Vec::new(),
            deadline: None,
        }
    }

    /// One more argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Command {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// More arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// An environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Command {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// The working directory.
    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Command {
        self.directory = Some(directory.into());
        self
    }

    /// What it reads on standard input; nothing by default.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Command {
        self.input = bytes.into();
        self
    }

    /// Killed when it runs longer than this; by default never.
    pub fn deadline(mut self, deadline: Duration) -> Command {
        self.deadline = Some(deadline);
        self
    }

    /// The program.
    pub fn program(&self) -> &OsStr {
        &self.program
    }

    /// The arguments.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// The environment variables that it is given besides Penstock's own.
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// The working directory that it is to start in.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// What it is to read on standard input.
    pub fn standard_input(&self) -> &[u8] {
        &self.input
    }

    /// How long it may run.
    pub fn time_allowed(&self) -> Option<Duration> {
        self.deadline
    }

    /// Runs it to its end and collects what it printed. A status other than 0 is not an error here.
    pub fn run(&self) -> Result<Output, ProcessError> {
        let started = Instant::now();
        let mut child = self
            .prepare(Stdio::piped(), Stdio::piped(), Stdio::piped())
            .spawn()
            .map_err(|e| self.start(e))?;
        let input = child.stdin.take();
        let collect = |stream: Option<Box<dyn Read + Send>>| {
            thread::spawn(move || stream.map(drain).unwrap_or_default())
        };
        let stdout = collect(child.stdout.take().map(|s| Box::new(s) as _));
        let stderr = collect(child.stderr.take().map(|s| Box::new(s) as _));
        let bytes = self.input.clone();
        // A program that exits without reading its input breaks the pipe; its status tells what happened.
        let feed = thread::spawn(move || input.map(|mut input| input.write_all(&bytes)));
        let ended =
            wait_until(&mut child, self.deadline.map(|deadline| started + deadline), interrupt::pending);
        let Some(status) = ended.map_err(|e| self.start(e))? else {
            let _ = kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL);
            let _ = child.wait();
            let command = self.to_string();
            return Err(match self.deadline {
                Some(after) if !interrupt::pending() => ProcessError::TimedOut { command, after },
                _ => ProcessError::Interrupted { command },
            });
        };
        let _ = feed.join();
        let (stdout, cut_out) = stdout.join().unwrap_or_default();
        let (stderr, cut_err) = stderr.join().unwrap_or_default();
        Ok(Output { command: self.to_string(), status, stdout, stderr, truncated: cut_out || cut_err })
    }

    /// Runs it to its end; any status other than 0 is an error that carries what it wrote to standard error.
    pub fn succeed(&self) -> Result<Output, ProcessError> {
        self.run()?.succeeded()
    }

    /// Starts it in the background with its output going to `log`. It is killed when the [`Background`] is dropped,
    /// and by the kernel when Penstock dies.
    pub fn start_logged(&self, log: File) -> Result<Background, ProcessError> {
        let errors = log.try_clone().map_err(|e| self.start(e))?;
        let child =
            self.prepare(Stdio::null(), log.into(), errors.into()).spawn().map_err(|e| self.start(e))?;
        Ok(Background { command: self.to_string(), child: Some(child) })
    }

    /// Starts it in the background with Penstock's own standard output. It is killed when the [`Background`] is dropped, and by
    /// the kernel when the thread that started it dies.
    pub fn start_beside(&self) -> Result<Background, ProcessError> {
        let mut command = self.prepare(Stdio::null(), Stdio::inherit(), Stdio::inherit());
        let child = command.spawn().map_err(|e| self.start(e))?;
        Ok(Background { command: self.to_string(), child: Some(child) })
    }

    /// Starts it in the background with a socket as its standard input and output; gives the other end of it. It is
    /// killed when the [`Background`] is dropped, and by the kernel when the thread that started it dies.
    pub fn start_connected(&self) -> Result<(Background, UnixStream), ProcessError> {
        let (ours, its) = UnixStream::pair().map_err(|e| self.start(e))?;
        let output = its.try_clone().map_err(|e| self.start(e))?;
        let child = self
            .prepare(OwnedFd::from(its).into(), OwnedFd::from(output).into(), Stdio::null())
            .spawn()
            .map_err(|e| self.start(e))?;
        Ok((Background { command: self.to_string(), child: Some(child) }, ours))
    }

    /// As [`start_logged`](Command::start_logged), but not killed when Penstock dies: for what
    /// [`Background::leave`] may let live on.
    pub fn start_to_stay(&self, log: File) -> Result<Background, ProcessError> {
        let errors = log.try_clone().map_err(|e| self.start(e))?;
        let child =
            self.compose(Stdio::null(), log.into(), errors.into()).spawn().map_err(|e| self.start(e))?;
        Ok(Background { command: self.to_string(), child: Some(child) })
    }

    /// Starts it in a session of its own, without a terminal, in the directory `/`, to outlive Penstock and the session
    /// that Penstock belongs to. Its output goes to `log`.
    pub fn start_session(&self, log: File) -> Result<Background, ProcessError> {
        let errors = log.try_clone().map_err(|e| self.start(e))?;
        let mut command = process::Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().map(|(n, v)| (n, v)));
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        command.current_dir(self.directory.as_deref().unwrap_or(Path::new("/")));
        lead_a_session(&mut command);
        let child = command.spawn().map_err(|e| self.start(e))?;
        Ok(Background { command: self.to_string(), child: Some(child) })
    }

    /// Runs it on Penstock's own terminal and gives its exit status, 128 + N for one that died of signal N.
    pub fn run_attached(&self) -> Result<i32, ProcessError> {
        let mut command = process::Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().map(|(n, v)| (n, v)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let status = command.status().map_err(|e| self.start(e))?;
        Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }

    fn prepare(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> process::Command {
        let mut command = self.compose(stdin, stdout, stderr);
        die_with_parent(&mut command);
        command
    }

    fn compose(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> process::Command {
        let mut command = self.compose_in_our_group(stdin, stdout, stderr);
        // Its own process group: Ctrl-C reaches Penstock alone, which then ends its children in order.
        command.process_group(0);
        command
    }

    fn compose_in_our_group(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> process::Command {
        let mut command = process::Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().map(|(n, v)| (n, v)));
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    fn start(&self, source: io::Error) -> ProcessError {
        if source.kind() == io::ErrorKind::NotFound {
            ProcessError::NotInstalled { program: self.program.to_string_lossy().into_owned() }
        } else {
            ProcessError::Start { command: self.to_string(), source }
        }
    }
}

/// Has the kernel kill the child when its parent dies, whatever the parent dies of.
#[allow(unsafe_code)]
fn die_with_parent(command: &mut process::Command) {
    // SAFETY: `prctl` and `getppid` are async-signal-safe system calls and allocate nothing between fork and exec.
    unsafe {
        command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
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

/// Has a child that stays in Penstock's process group not see the terminal's Ctrl-C: Penstock ends it in order.
#[allow(unsafe_code)]
fn deaf_to_interrupts(command: &mut process::Command) {
    // SAFETY: `signal` is async-signal-safe (signal-safety(7)), and `SigIgn` is no handler that could run.
    unsafe {
        command.pre_exec(|| signal(Signal::SIGINT, SigHandler::SigIgn).map(drop).map_err(io::Error::from));
    }
}

fn drain(mut stream: Box<dyn Read + Send>) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let _ = stream.by_ref().take(OUTPUT_LIMIT as u64).read_to_end(&mut bytes);
    let more = io::copy(&mut stream, &mut io::sink()).unwrap_or(0) > 0;
    (bytes, more)
}

/// Waits for a child until `deadline`, or until `give_up` says so. Polled, so that both can be looked at; the interval
/// grows from 1 ms to 20 ms.
fn wait_until(
    child: &mut process::Child,
    deadline: Option<Instant>,
    give_up: impl Fn() -> bool,
) -> io::Result<Option<process::ExitStatus>> {
    let mut interval = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if give_up() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(None);
        }
        thread::sleep(interval);
        interval = (interval * 2).min(Duration::from_millis(20));
    }
}

impl std::fmt::Display for Command {
    /// The command as a shell would need it, near enough for a person to repeat it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plain = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:,@+%".contains(&b))
        };
        for (position, word) in std::iter::once(&self.program).chain(&self.arguments).enumerate() {
            let word = word.to_string_lossy();
            let separator = if position == 0 { "" } else { " " };
            if plain(&word) {
                write!(f, "{separator}{word}")?
            } else {
                write!(f, "{separator}{}", quoted(&word))?
            }
        }
        Ok(())
    }
}

/// What a finished command left.
#[derive(Clone, Debug)]
pub struct Output {
    /// The command, for messages.
    pub command: String,
    /// How it ended.
    pub status: process::ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// Whether more than [`OUTPUT_LIMIT`] was written to one of them.
    pub truncated: bool,
}

impl Output {
    /// Standard output as text, with what is not UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text, with what is not UTF-8 replaced.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// This output if the status was 0, else an error with the end of what was written to standard error.
    pub fn succeeded(self) -> Result<Output, ProcessError> {
        if self.status.success() {
            return Ok(self);
        }
        let errors = if self.stderr.is_empty() { self.text() } else { self.errors() };
        let lines: Vec<&str> = errors.trim_end().lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        Err(ProcessError::Failed { command: self.command, status: self.status.to_string(), errors: tail })
    }
}

/// Why a command did not do what was wanted.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// There is no such program.
    #[error("the program {program:?} is not installed")]
    NotInstalled {
        /// Its name.
        program: String,
    },
    /// It could not be started.
    #[error("could not run `{command}`")]
    Start {
        /// The command.
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended with a status other than 0.
    #[error("`{command}` ended with {status}: {errors}")]
    Failed {
        /// The command.
        command: String,
        /// Its status.
        status: String,
        /// The end of its standard error.
        errors: String,
    },
    /// Ctrl-C came while it ran, and it was killed.
    #[error("interrupted while `{command}` ran")]
    Interrupted {
        /// The command.
        command: String,
    },
    /// It ran longer than it was allowed, and was killed.
    #[error("`{command}` did not end within {} s and was killed", after.as_secs_f32())]
    TimedOut {
        /// The command.
        command: String,
        /// How long it was allowed.
        after: Duration,
    },
}

/// A program in the background, killed when this is dropped.
#[derive(Debug)]
pub struct Background {
    command: String,
    child: Option<process::Child>,
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

    /// Asks it to end (SIGTERM) and waits for `patience`, then kills it.
    pub fn end(mut self, patience: Duration) {
        if let Some(mut child) = self.child.take() {
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
            if !matches!(wait_until(&mut child, Some(Instant::now() + patience), || false), Ok(Some(_))) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

impl Background {
    /// Kills it and all that it started: its process group, which nothing of Penstock's is in.
    pub fn end_group(mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `word` as one word for a POSIX shell, whatever is in it.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Where `program` is on `PATH`, if it is there and executable.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Daemons and QEMU live in sbin, which an ordinary user's PATH leaves out on Debian.
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|directory| directory.join(program))
        .find(|file| executable(file))
}

fn executable(file: &Path) -> bool {
    nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok() && file.is_file()
}

/// The processor time that this process has used, all of its threads together.
pub fn cpu_time() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// The most memory that Penstock has had resident so far, in bytes (`VmHWM` in `/proc/self/status`); `None` where the
/// kernel does not tell.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Whether Penstock runs as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
