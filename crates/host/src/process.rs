//! Other programs: run to their end under a deadline, or kept in the background, never left behind.

use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::BorrowedFd,
        unix::{
            ffi::OsStrExt,
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
        stat::{Mode, SFlag, fchmod, fstat},
    },
    unistd::Pid,
};
use thiserror::Error;

use crate::interrupt;

mod background;
mod pump;
mod reap;
pub mod search_path;
mod stream;
mod talk;

pub use background::Background;
use pump::{Ended, Stream};
pub(crate) use reap::reap;
use reap::still_there;
use search_path::SearchPath;
pub use stream::{LINE_LIMIT, each_line};
pub use talk::{Talk, Terminal};

/// More output than this of one stream of one command is thrown away; see [`Output::truncated`].
pub const OUTPUT_LIMIT: usize = 64 << 20;

/// How often a program on Penstock's terminal is asked whether it has ended, where an interrupt ends it.
const ATTACHED: Duration = Duration::from_millis(50);

/// A program with its arguments, and what it is to be given.
#[derive(Clone, Debug)]
pub struct Command {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    input: Vec<u8>,
    deadline: Option<Duration>,
    farewell: Duration,
}

impl Command {
    /// `program`, found as [`find`] finds it unless it has a slash.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        Command {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            input: Vec::new(),
            deadline: None,
            farewell: Duration::ZERO,
        }
    }

    /// One more argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Command {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Appends each of `arguments`.
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

    /// When its deadline has passed or Penstock is interrupted, it is asked to end (SIGTERM, with all of its process group) and has this long
    /// for it before it is killed: for a program that would leave mounts or gigabytes behind. Zero without it.
    pub fn farewell(mut self, farewell: Duration) -> Command {
        self.farewell = farewell;
        self
    }

    /// The program as it was given: a name, or a path with a slash.
    pub fn program(&self) -> &OsStr {
        &self.program
    }

    /// The arguments in order, without the program.
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
    ///
    /// # Errors
    ///
    /// It cannot be started, its deadline passed, or Penstock was interrupted. The deadline holds for its output too: what a
    /// program that has ended left running is not waited for ([`Output::truncated`]).
    pub fn run(&self) -> Result<Output, ProcessError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut truncated = false;
        let (status, held_open) = self.attend(&mut |stream, bytes| {
            let kept = if stream == Stream::Output { &mut stdout } else { &mut stderr };
            truncated |= !append_within(OUTPUT_LIMIT, kept, bytes);
        })?;
        Ok(Output { command: self.to_string(), status, stdout, stderr, truncated: truncated || held_open })
    }

    /// Runs it to its end and hands on what it writes as it comes: its status, and whether an output was still open then.
    fn attend(
        &self,
        on_bytes: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<(process::ExitStatus, bool), ProcessError> {
        let deadline = self.deadline.map(|deadline| (deadline, Instant::now() + deadline));
        let mut child = self
            .prepare(Stdio::piped(), Stdio::piped(), Stdio::piped())?
            .spawn()
            .map_err(|error| self.start(error))?;
        let command = || self.to_string();
        match pump::pump(&mut child, &self.input, deadline.map(|(_, at)| at), self.farewell, on_bytes) {
            Ok(Ended::Exited { status, held_open }) => Ok((status, held_open)),
            Ok(Ended::TimedOut) => {
                let after = deadline.map_or(Duration::ZERO, |(after, _)| after);
                Err(ProcessError::TimedOut { command: command(), after, left: reap(child) })
            }
            Ok(Ended::Interrupted) => {
                Err(ProcessError::Interrupted { command: command(), left: reap(child) })
            }
            Err(error) => {
                reap(child);
                Err(self.start(error))
            }
        }
    }

    /// Runs it to its end; any status other than 0 is an error that carries what it wrote to standard error.
    ///
    /// # Errors
    ///
    /// As [`run`](Command::run), and [`ProcessError::Failed`] for another status than 0.
    pub fn succeed(&self) -> Result<Output, ProcessError> {
        self.run()?.succeeded()
    }

    /// Runs it on Penstock's own terminal and gives its exit status, 128 + N for one that died of signal N.
    ///
    /// # Errors
    ///
    /// [`ProcessError::NotInstalled`] or [`ProcessError::Start`] when it cannot be started.
    pub fn run_attached(&self) -> Result<i32, ProcessError> {
        Ok(code_of(self.spawn_attached()?.wait().map_err(|e| self.start(e))?))
    }

    /// The same; an interrupt ends it in order (SIGTERM), so that it puts the terminal back, and by force after `farewell`.
    ///
    /// # Errors
    ///
    /// As [`run_attached`](Command::run_attached).
    pub fn run_attached_until_interrupt(&self, farewell: Duration) -> Result<i32, ProcessError> {
        let mut child = self.spawn_attached()?;
        let mut told = None;
        loop {
            if let Some(status) = child.try_wait().map_err(|e| self.start(e))? {
                return Ok(code_of(status));
            }
            match told {
                None if interrupt::pending() => {
                    told = Some(Instant::now());
                    let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
                }
                Some(since) if since.elapsed() >= farewell => drop(child.kill()),
                _ => {}
            }
            thread::sleep(ATTACHED);
        }
    }

    fn spawn_attached(&self) -> Result<process::Child, ProcessError> {
        let mut command = self.call()?;
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.spawn().map_err(|e| self.start(e))
    }

    /// Becomes it: this process goes on as that program, with its own streams (execve(2)).
    ///
    /// # Errors
    ///
    /// [`ProcessError::NotInstalled`] or [`ProcessError::Start`] when it cannot be started.
    pub fn replace_this_process(&self) -> Result<Infallible, ProcessError> {
        let mut command = self.call()?;
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        Err(self.start(command.exec()))
    }

    fn prepare(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Result<process::Command, ProcessError> {
        let mut command = self.compose(stdin, stdout, stderr)?;
        die_with_parent(&mut command);
        Ok(command)
    }

    fn compose(&self, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Result<process::Command, ProcessError> {
        let mut command = self.compose_in_our_group(stdin, stdout, stderr)?;
        let_output_be_opened_again(&mut command);
        // Its own process group: Ctrl-C reaches Penstock alone, which then ends its children in order.
        command.process_group(0);
        Ok(command)
    }

    /// The program with its arguments and environment. It is found here and run by its path: libc would take the first of its name that
    /// it comes upon, whosever it is.
    fn call(&self) -> Result<process::Command, ProcessError> {
        let is_named_by_path = self.program.as_bytes().contains(&b'/');
        let found = match is_named_by_path {
            true => PathBuf::from(&self.program),
            false => SearchPath::own().find(&self.program).ok_or_else(|| self.not_installed())?,
        };
        let mut command = process::Command::new(found);
        // Some are several programs in one, and tell by their name which is meant.
        command.arg0(&self.program);
        // What it runs itself is looked for there.
        command.env("PATH", SearchPath::own().joined());
        command.args(&self.arguments).envs(self.environment.iter().map(|(n, v)| (n, v)));
        Ok(command)
    }

    fn compose_in_our_group(
        &self,
        stdin: Stdio,
        stdout: Stdio,
        stderr: Stdio,
    ) -> Result<process::Command, ProcessError> {
        let mut command = self.call()?;
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        Ok(command)
    }

    fn start(&self, source: io::Error) -> ProcessError {
        if source.kind() == io::ErrorKind::NotFound {
            self.not_installed()
        } else {
            ProcessError::Start { command: self.to_string(), source }
        }
    }

    fn not_installed(&self) -> ProcessError {
        ProcessError::NotInstalled { program: self.program.to_string_lossy().into_owned() }
    }
}

/// The exit status, 128 + N of a program that died of signal N.
fn code_of(status: process::ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Has the kernel kill the child when its parent dies, whatever the parent dies of.
#[allow(unsafe_code)]
fn die_with_parent(command: &mut process::Command) {
    // SAFETY: `prctl` and `getppid` are async-signal-safe system calls and allocate nothing between fork and exec.
    unsafe {
        command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
}

/// Lets a program in a user namespace, to which root's pipes belong to nobody, open its standard output by name (`/proc/self/fd/1`).
/// Only who may look into the process gets to that name.
#[allow(unsafe_code)]
fn let_output_be_opened_again(command: &mut process::Command) {
    let open = || {
        let output = nix::libc::STDOUT_FILENO;
        // SAFETY: the descriptor is open: std has put the child's output there.
        let output = unsafe { BorrowedFd::borrow_raw(output) };
        let is_pipe = fstat(output)
            .is_ok_and(|data| SFlag::from_bits_truncate(data.st_mode) & SFlag::S_IFMT == SFlag::S_IFIFO);
        if is_pipe {
            // Where the kernel refuses, the program says what it cannot open.
            let _ = fchmod(output, Mode::S_IRUSR | Mode::S_IWUSR | Mode::S_IWOTH);
        }
        Ok(())
    };
    // SAFETY: `fstat` and `fchmod` are async-signal-safe (signal-safety(7)) and allocate nothing between fork and exec.
    unsafe {
        command.pre_exec(open);
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

/// Appends as many of `bytes` as keep `kept` within `limit`; `false` when some were left out.
fn append_within(limit: usize, kept: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let room = limit.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(&bytes[..room]);
    room == bytes.len()
}

/// Waits for a child until `deadline`. Polled; the interval grows from 1 ms to 20 ms.
fn wait_until(child: &mut process::Child, deadline: Instant) -> io::Result<Option<process::ExitStatus>> {
    let mut interval = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
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
    /// Whether more may have been written than is here: over [`OUTPUT_LIMIT`], or by something that it left running and that
    /// held its output open.
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
    ///
    /// # Errors
    ///
    /// [`ProcessError::Failed`] with the command, its status and at most the last 20 lines that it wrote.
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
    #[error("{}", not_installed(program))]
    NotInstalled {
        /// The program that was looked for.
        program: String,
    },
    /// It could not be started.
    #[error("could not run `{command}`")]
    Start {
        /// The command line, quoted as for a shell.
        command: String,
        /// Why the process could not be started.
        #[source]
        source: io::Error,
    },
    /// It ended with a status other than 0.
    #[error("`{command}` ended with {status}: {errors}")]
    Failed {
        /// The command line, quoted as for a shell.
        command: String,
        /// How it ended, as `ExitStatus` prints it: `exit status: 1`.
        status: String,
        /// The end of its standard error.
        errors: String,
    },
    /// Ctrl-C came while it ran, and it was killed.
    #[error("interrupted while `{command}` ran{}", still_there(*left))]
    Interrupted {
        /// The command line, quoted as for a shell.
        command: String,
        /// Its process id, where it is still there 2 s after it was killed.
        left: Option<u32>,
    },
    /// It ran longer than it was allowed, and was killed.
    #[error("`{command}` did not end within {} s and was killed{}", after.as_secs_f32(), still_there(*left))]
    TimedOut {
        /// The command line, quoted as for a shell.
        command: String,
        /// How long it was allowed.
        after: Duration,
        /// Its process id, where it is still there 2 s after it was killed.
        left: Option<u32>,
    },
}

/// `word` as one word for a POSIX shell, whatever is in it.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// `word` as somebody would type it in a POSIX shell: quoted where something in it has a meaning there.
pub fn quoted_where_needed(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@+,#".contains(&byte);
    let is_plain = !word.is_empty() && !word.starts_with('#') && word.bytes().all(plain);
    if is_plain { word.to_owned() } else { quoted(word) }
}

/// Where `program` is, if it is there and executable: on `PATH` and in the usual directories for daemons. Root looks only where
/// nobody else can put a program, and takes none that somebody else can change ([`search_path`]).
pub fn find(program: &str) -> Option<PathBuf> {
    SearchPath::own().find(program)
}

/// What to say of a program that [`find`] does not find: also where it is there and passed over, and why.
pub fn not_installed(program: &str) -> String {
    format!("the program {program:?} is not installed{}", SearchPath::own().why_not(program))
}

/// The file of the program that this process runs, whole and the very one, also where another has taken its place since: to be read.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Where the program that this process runs is, to be started. Where an upgrade has replaced it since, that is the new one.
///
/// # Errors
///
/// When the kernel does not tell.
pub fn own_program() -> io::Result<PathBuf> {
    std::fs::read_link(OWN_PROGRAM).map(in_place)
}

/// The file that has the place of one that is gone, if there is one. The kernel says of the latter that it is gone (proc_pid_exe(5)).
fn in_place(path: PathBuf) -> PathBuf {
    let name = path.as_os_str().as_bytes().strip_suffix(b" (deleted)");
    let other = name.map(|name| PathBuf::from(OsStr::from_bytes(name)));
    match other {
        Some(other) if !crate::files::exists(&path) && crate::files::exists(&other) => other,
        _ => path,
    }
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

/// Has the kernel end any other process first when memory is short (`oom_score_adj`, proc_pid_oom_score_adj(5)). Who may not
/// ask for that is treated like others.
pub fn spare_when_memory_is_short() {
    let _ = crate::files::write_attribute("/proc/self/oom_score_adj", "-1000");
}

/// The number of the user that Penstock runs as.
pub fn user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Whether Penstock runs as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether the calling thread may administer networks (`CAP_NET_ADMIN`, capabilities(7)), in its own user namespace.
pub fn may_administer_networks() -> bool {
    const NET_ADMIN: u32 = 12;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.map_or_else(is_root, |mask| mask >> NET_ADMIN & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Command {
        Command::new("sh").args(["-c", line])
    }

    #[test]
    fn a_quoted_word_is_one_word_in_a_shell() {
        for word in ["", "a", "a'b $c", "#a", "a#1", "a b", "~", "*", "a=b", "é", "a\nb", "/x/@+,:._-9", "\\"]
        {
            for quoted in [quoted(word), quoted_where_needed(word)] {
                let said = shell(&format!("set -- {quoted}; printf %s/%s $# \"$1\"")).run().unwrap();
                assert_eq!(said.text(), format!("1/{word}"), "{quoted}");
            }
        }
        assert_eq!(quoted_where_needed("/x/NET0#1"), "/x/NET0#1");
    }

    #[test]
    fn a_program_that_was_replaced_is_started_from_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let [gone, other] = ["penstock (deleted)", "penstock"].map(|name| directory.path().join(name));
        assert_eq!(in_place(gone.clone()), gone, "there is no other");
        std::fs::write(&other, "").unwrap();
        assert_eq!(in_place(gone.clone()), other);
        assert_eq!(in_place(other.clone()), other);
        std::fs::write(&gone, "").unwrap();
        assert_eq!(in_place(gone.clone()), gone, "it is called so");
        assert_eq!(own_program().unwrap(), std::env::current_exe().unwrap());
    }

    /// The quickest of many, by turns, so that what else the machine does is in neither. Whoever asks from time to time whether a program has
    /// ended is never quicker than that time, however often it is tried.
    #[test]
    fn the_end_of_a_program_is_seen_when_it_comes() {
        let took = |run: &dyn Fn()| {
            let began = Instant::now();
            run();
            began.elapsed()
        };
        let (mut plain, mut ours) = (Duration::MAX, Duration::MAX);
        for round in 0..3000 {
            plain = plain.min(took(&|| drop(process::Command::new("true").output().unwrap())));
            ours = ours.min(took(&|| drop(Command::new("true").run().unwrap())));
            if round >= 100 && ours < plain + Duration::from_millis(2) {
                return;
            }
        }
        panic!("{ours:?}, and without a deadline {plain:?}");
    }

    #[test]
    fn what_a_program_leaves_running_does_not_hold_its_caller() {
        let began = Instant::now();
        let output = shell("echo done; setsid sleep 30 &").run().unwrap();
        assert_eq!((output.text().as_str(), output.status.success()), ("done\n", true));
        assert!(output.truncated, "more may come, and that is said");
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_deadline_holds_for_what_a_program_leaves_running() {
        let began = Instant::now();
        let output = shell("setsid sh -c 'while echo more; do :; done' & exit 0");
        let output = output.deadline(Duration::from_secs(3)).run().unwrap();
        assert!(output.status.success() && output.truncated);
        assert!(began.elapsed() < Duration::from_secs(25));
    }

    #[test]
    fn a_program_with_a_farewell_cleans_up_before_it_ends_and_not_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join("left");
        // What it started is asked too: `sleep` ends, and the shell with it.
        let tidy = format!("trap 'rm {0}; exit 1' TERM; touch {0}; sleep 100; exit 2", left.display());
        let patient = Duration::from_secs(60);
        let ended = shell(&tidy).deadline(Duration::from_millis(500)).farewell(patient).run();
        assert!(matches!(ended, Err(ProcessError::TimedOut { .. })), "{ended:?}");
        assert!(!left.exists(), "it had no time to clean up");

        let began = Instant::now();
        let deaf = shell("trap '' TERM; while :; do sleep 1; done");
        let ended = deaf.deadline(Duration::from_millis(100)).farewell(Duration::from_millis(300)).run();
        assert!(matches!(ended, Err(ProcessError::TimedOut { .. })), "{ended:?}");
        assert!(began.elapsed() < patient, "it is killed in the end");
    }

    #[test]
    fn much_input_and_output_at_once_are_carried_whole() {
        let input: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
        let output = shell("tee /dev/stderr").input(input.clone()).run().unwrap();
        assert!(output.stdout == input && output.stderr == input && !output.truncated);
    }

    #[test]
    fn a_program_that_never_reads_its_input_ends_at_its_deadline() {
        let command = shell("sleep 60").input(vec![0; 1 << 20]).deadline(Duration::from_millis(200));
        let began = Instant::now();
        assert!(matches!(command.run(), Err(ProcessError::TimedOut { .. })));
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
