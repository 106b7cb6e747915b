//! Others' programs and their threads: started, pinned, put before others on their CPU, frozen and let run again.

use std::{
    fmt, fs,
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sched::{CpuSet, sched_setaffinity},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The CPU of the guests.
pub const GUESTS: usize = 0;
/// The CPU of the switch.
pub const SWITCH: usize = 1;
/// The priority of threads that poll.
const POLLS: u8 = 10;
/// The priority of those that seldom do anything, and must not wait for those.
const SELDOM: u8 = 20;

/// Command lines that were started, each once.
static STARTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// All command lines that were started.
pub fn started() -> Vec<String> {
    STARTED.lock().map(|lines| lines.clone()).unwrap_or_default()
}

/// A program that ends with this.
#[derive(Debug)]
pub struct Program {
    child: Child,
}

impl Program {
    /// Starts it.
    pub fn start(command: &mut Command) -> Result<Program, String> {
        let line = shown(command);
        let child = command.spawn().map_err(|error| format!("{line}: {error}"))?;
        if let Ok(mut lines) = STARTED.lock()
            && !lines.contains(&line)
        {
            lines.push(line);
        }
        Ok(Program { child })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its streams and its end.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The thread that it began with.
    pub fn first_thread(&self) -> Thread {
        Thread { pid: self.pid(), tid: self.pid() }
    }

    /// Its thread, not the first, whose name begins with one of `names`; it may yet have to be started.
    pub fn thread(&self, names: &[&str]) -> Result<Thread, String> {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let found = threads(self.pid())
                .into_iter()
                .filter(|(tid, _)| *tid != self.pid())
                .find(|(_, comm)| names.iter().any(|name| comm.starts_with(name)));
            match found {
                Some((tid, _)) => return Ok(Thread { pid: self.pid(), tid }),
                None if Instant::now() > until => {
                    return Err(format!("process {} has no thread {}", self.pid(), names.join(" or ")));
                }
                None => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// What all its threads have had of CPUs so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        let seconds = |tid| Thread { pid: self.pid(), tid }.cpu_seconds();
        threads(self.pid()).into_iter().map(|(tid, _)| seconds(tid)).sum()
    }

    /// Has its threads run on `cpu`, where they are not in the way of the one that polls elsewhere.
    pub fn keep_on(&self, cpu: usize, polls: Thread) {
        for (tid, _) in threads(self.pid()).into_iter().filter(|(tid, _)| *tid != polls.tid) {
            pin(tid, cpu);
        }
    }

    /// Has none of its threads run.
    pub fn freeze(&self) {
        let _ = kill(Pid::from_raw(self.pid() as i32), Signal::SIGSTOP);
    }

    /// Lets it run again.
    pub fn thaw(&self) {
        let _ = kill(Pid::from_raw(self.pid() as i32), Signal::SIGCONT);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // By a thread of ordinary priority, as each new one has: while the kernel buries a process it spins until others have let go
        // of its entry in /proc, and before a thread that runs before all others they never would.
        let child = &mut self.child;
        thread::scope(|scope| {
            scope.spawn(|| child.wait().is_ok());
        });
    }
}

/// A thread of a program.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    pid: u32,
    tid: u32,
}

impl Thread {
    /// Has it run on `cpu` alone, and there before all that do not poll. Its program's other threads stay behind: one that
    /// waits for a spin lock before this one would wait for ever.
    pub fn polls_on(self, cpu: usize) {
        pin(self.tid, cpu);
        real_time(self.tid, POLLS);
    }

    /// Has it run on `cpu` alone, as one among others.
    pub fn stays_on(self, cpu: usize) {
        pin(self.tid, cpu);
    }

    /// Has it run before those that poll: it seldom does anything.
    pub fn before_polls(self) {
        real_time(self.tid, SELDOM);
    }

    /// What it has had of a CPU so far, in seconds.
    pub fn cpu_seconds(self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/task/{}/schedstat", self.pid, self.tid));
        let nanoseconds = text.ok().and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        nanoseconds.map_or(f64::NAN, |nanoseconds| nanoseconds / 1e9)
    }
}

/// A program whose standard streams are nobody's.
pub fn silent(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

/// Runs a program to its end, and gives what it printed.
pub fn output(command: &mut Command) -> Result<String, String> {
    let line = shown(command);
    let output = command.output().map_err(|error| format!("{line}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("{line}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// Has the rest of the machine have its CPUs for a moment, so that the kernel does not take them from a run for it.
pub fn let_others_run() {
    thread::sleep(Duration::from_millis(100));
}

/// Has the calling thread wait for nobody; what it starts is put in its place later.
pub fn before_all_others() {
    real_time(this_thread(), SELDOM + 10);
}

fn this_thread() -> u32 {
    nix::unistd::gettid().as_raw().unsigned_abs()
}

/// Has the calling thread run on `cpu` alone, and there before all that do not poll.
pub fn polls_on(cpu: usize) {
    Thread { pid: std::process::id(), tid: this_thread() }.polls_on(cpu);
}

fn pin(tid: u32, cpu: usize) {
    let mut set = CpuSet::new();
    let tid = Pid::from_raw(tid.cast_signed());
    if let Err(errno) = set.set(cpu).and_then(|()| sched_setaffinity(tid, &set)) {
        eprintln!("thread {tid} could not be pinned to CPU {cpu}: {errno}");
    }
}

fn real_time(tid: u32, priority: u8) {
    let mut command = Command::new("chrt");
    command.args(["--reset-on-fork", "--fifo", "--pid", &priority.to_string(), &tid.to_string()]);
    if let Err(failed) = output(&mut command) {
        eprintln!("{failed}");
    }
}

fn threads(pid: u32) -> Vec<(u32, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok);
    let named = tasks.filter_map(|task| {
        let comm = fs::read_to_string(task.path().join("comm")).ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, comm.trim().to_owned()))
    });
    named.collect()
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ")
}

/// Cycles of the processor's time stamp counter in a second.
#[derive(Clone, Copy, Debug)]
pub struct Clock(pub f64);

impl Clock {
    /// The counter.
    pub fn now() -> u64 {
        // SAFETY: every x86-64 processor has it, and it changes nothing.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    /// Compares it with the kernel's clock for a tenth of a second.
    pub fn measured() -> Clock {
        let read = || (Instant::now(), Clock::now());
        let (began, first) = read();
        thread::sleep(Duration::from_millis(100));
        let (ended, last) = read();
        Clock((last - first) as f64 / (ended - began).as_secs_f64())
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} MHz", self.0 / 1e6)
    }
}
