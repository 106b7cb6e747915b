//! Sets up what the measuring process needs and gives it back, however that ends: huge pages, their mount, a directory.

use std::{
    env, fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::{
        signal::{SigSet, Signal, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, Uid},
};

/// Says to the measuring process where it may work.
const DIRECTORY: &str = "PENSTOCK_BENCH_DIRECTORY";
/// Huge pages of 2 MiB: Open vSwitch's, those of two front ends at a time, and the copy limit's.
const PAGES: u64 = 512;
const NUMBER: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Where the measuring process works.
pub struct Workshop {
    directory: PathBuf,
}

impl Workshop {
    /// The one that a supervisor has set up for this process, if one has.
    pub fn here() -> Option<Workshop> {
        env::var_os(DIRECTORY).map(|directory| Workshop { directory: directory.into() })
    }

    /// A file or directory in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where huge pages are mounted.
    pub fn huge_pages(&self) -> PathBuf {
        self.path("huge")
    }
}

/// Runs this program again to measure.
pub fn run() -> ExitCode {
    if !Uid::effective().is_root() {
        eprintln!("root is needed: huge pages are reserved, and programs run under the real-time scheduler");
        return ExitCode::from(4);
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("two CPUs are needed: one for the switch, one for the guests");
        return ExitCode::from(4);
    }
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    let outcome = signals.thread_block().map_err(io::Error::from).and_then(|()| {
        let reserved = Reserved::new()?;
        measure_in(&reserved, &signals)
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("nothing was measured: {error}");
        ExitCode::FAILURE
    })
}

fn measure_in(reserved: &Reserved, signals: &SigSet) -> io::Result<ExitCode> {
    // All that it starts is in its process group, and ends with it.
    let child = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(DIRECTORY, reserved.directory.path())
        .process_group(0)
        .spawn()?;
    let child = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let code = loop {
        let signal = signals.wait()?;
        if signal != Signal::SIGCHLD {
            eprintln!("{signal}: everything is stopped and given back");
            break ExitCode::from(130);
        }
        match waitpid(child, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::Exited(_, code) => break ExitCode::from(u8::try_from(code).unwrap_or(1)),
            WaitStatus::Signaled(_, signal, _) => {
                eprintln!("the measuring process was ended by {signal}");
                break ExitCode::FAILURE;
            }
            _ => {}
        }
    };
    // Nobody may be left in it.
    let _ = killpg(child, Signal::SIGKILL);
    let _ = waitpid(child, None);
    Ok(code)
}

/// What is given back when this goes.
struct Reserved {
    directory: tempfile::TempDir,
    /// Pages more than there were.
    pages: u64,
}

impl Reserved {
    fn new() -> io::Result<Reserved> {
        let directory = tempfile::Builder::new().prefix("bench-switch-").tempdir()?;
        let mut reserved = Reserved { directory, pages: 0 };
        // Those that are free may be about to be used by who made them so.
        let number = read(NUMBER)?;
        write(NUMBER, number + PAGES)?;
        reserved.pages = read(NUMBER)?.saturating_sub(number);
        if reserved.pages < PAGES {
            let text = format!(
                "{PAGES} more huge pages of 2 MiB are needed, and the kernel has no more than {}",
                reserved.pages
            );
            return Err(io::Error::other(text));
        }
        let huge = reserved.huge();
        fs::create_dir(&huge)?;
        mount(Some("hugetlbfs"), &huge, Some("hugetlbfs"), MsFlags::empty(), Some("pagesize=2M"))?;
        Ok(reserved)
    }

    fn huge(&self) -> PathBuf {
        self.directory.path().join("huge")
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // It may not have been mounted; and who was killed may hold its pages a moment longer.
        let _ = umount2(&self.huge(), MntFlags::MNT_DETACH);
        let back = read(NUMBER).and_then(|number| write(NUMBER, number.saturating_sub(self.pages)));
        if let Err(error) = back {
            eprintln!("{} huge pages could not be given back in {NUMBER}: {error}", self.pages);
        }
    }
}

fn read(path: &str) -> io::Result<u64> {
    let text = fs::read_to_string(path)
        .map_err(|error| io::Error::other(format!("{path} could not be read: {error}")))?;
    text.trim().parse().map_err(io::Error::other)
}

fn write(path: &str, number: u64) -> io::Result<()> {
    fs::write(Path::new(path), number.to_string())
        .map_err(|error| io::Error::other(format!("{number} could not be written to {path}: {error}")))
}
