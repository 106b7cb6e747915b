//! The programs of LXC.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_host::{Command, ProcessError, Root, files, process, running::Running};
use penstock_model::GuestName;

use crate::{
    state::{PREFIX, State},
    words::printable,
};

/// What LXC says of the last start, in the guest's directory. `lxc-start` opens it before all else.
pub const LOG: &str = "lxc.log";

const GROUPS: &str = "/sys/fs/cgroup";

/// How much of a log is looked at for its last lines; a hostile container can write as much as it likes.
const TAIL: usize = 2 << 20;

/// How much of a process's command line is looked at.
const LONGEST_TITLE: usize = 8 << 10;

/// How many lines of each log an error carries.
const LINES: usize = 8;

/// Whether the programs that are needed are installed; the first that is not, else.
pub fn missing() -> Option<&'static str> {
    ["lxc-start", "lxc-stop", "lxc-info", "lxc-attach"]
        .into_iter()
        .find(|program| process::find(program).is_none())
}

/// A program of LXC about one guest.
pub fn command(program: &str, state: &State, guest: &GuestName) -> Command {
    // With its full path where it has one: it may lie outside an ordinary user's PATH.
    let program = process::find(program).unwrap_or_else(|| program.into());
    Command::new(program)
        .arg("-P")
        .arg(state.directory())
        .args(["-n", &format!("{PREFIX}{guest}")])
        .current_dir("/")
}

/// Starts the guest from its `config`, in the background, with this first process.
///
/// # Errors
///
/// When `lxc-start` is missing, fails, or does not end within `timeout`.
pub fn start(
    state: &State,
    guest: &GuestName,
    init: &[String],
    timeout: Duration,
) -> Result<(), ProcessError> {
    command("lxc-start", state, guest)
        .arg("-d")
        .arg("-o")
        .arg(state.file(guest, LOG))
        .args(["-l", "WARN", "--"])
        .args(init)
        .deadline(timeout)
        .succeed()
        .map(drop)
}

/// Asks the guest to stop, and kills it when it has not after `timeout`; at once for zero.
///
/// # Errors
///
/// When `lxc-stop` is missing, fails for another reason than that the guest does not run, or does not end in time.
pub fn stop(state: &State, guest: &GuestName, timeout: Duration) -> Result<(), ProcessError> {
    let command = command("lxc-stop", state, guest);
    let command = if timeout.is_zero() {
        command.arg("-k")
    } else {
        // LXC counts in whole seconds.
        command.args(["-t", &timeout.as_secs().max(1).to_string()])
    };
    let output = command.deadline(timeout + Duration::from_secs(10)).run()?;
    // It says 2 for a container that does not run: then it has stopped.
    if output.status.code() == Some(2) {
        return Ok(());
    }
    output.succeeded().map(drop)
}

/// The number of the guest's first process on the host; `None` when it does not run.
///
/// # Errors
///
/// When `lxc-info` is missing or does not end within 10 s.
pub fn init_of(state: &State, guest: &GuestName) -> Result<Option<u32>, ProcessError> {
    if !files::exists(state.file(guest, "config")) {
        return Ok(None);
    }
    let output =
        command("lxc-info", state, guest).args(["-p", "-H"]).deadline(Duration::from_secs(10)).run()?;
    Ok(output.text().trim().parse().ok().filter(|pid| *pid > 0))
}

/// Whether LXC has started the guest to the end: its first process was executed.
///
/// # Errors
///
/// When `lxc-info` is missing or does not end within 10 s.
pub fn is_running(state: &State, guest: &GuestName) -> Result<bool, ProcessError> {
    let output =
        command("lxc-info", state, guest).args(["-s", "-H"]).deadline(Duration::from_secs(10)).run()?;
    Ok(output.text().trim() == "RUNNING")
}

/// LXC's own process beside the guest (`lxc-start`'s `lxc_monitor`), which outlives the guest's last process: it gives the interfaces
/// back, removes the control groups and ends. `None` when there is none.
pub fn monitor(root: &Root, state: &State, guest: &GuestName) -> Option<Running> {
    monitors(root, guest).find(|(_, path)| state.is_in(path)).map(|(monitor, _)| monitor)
}

/// The same of guests of this name of any state, each with its directory of all guests.
pub fn monitors<'a>(root: &'a Root, guest: &GuestName) -> impl Iterator<Item = (Running, PathBuf)> + use<'a> {
    let name = format!(" {PREFIX}{guest}");
    // The owner, and the namespace of process ids.
    let whose = move |directory: PathBuf| {
        let owner = files::owner(&directory).ok()?;
        Some((owner, files::read_link(directory.join("ns/pid")).ok()))
    };
    let ours = whose(root.path("/proc/self"));
    let processes = files::list(root.path("/proc")).unwrap_or_default();
    processes.into_iter().filter_map(move |id| {
        let id: u32 = id.parse().ok()?;
        let directory = root.path(format!("/proc/{id}"));
        let line = files::read_at_most(directory.join("cmdline"), LONGEST_TITLE).ok()?.0;
        let line = String::from_utf8_lossy(&line);
        let path = line.trim_end_matches('\0').strip_prefix("[lxc monitor] ")?.strip_suffix(&name)?;
        // Anybody can call himself so, a process of a container too; that one has another owner, or another namespace where the container
        // is privileged.
        let is_ours = ours.is_some() && whose(directory) == ours;
        is_ours.then(|| Some((Running::find(root, id)?, PathBuf::from(path))))?
    })
}

/// The directories of the control groups that LXC made for a container and for its own process, in each hierarchy, and removes
/// when both have ended; `process` is in one of them. Empty where LXC made none.
pub fn groups(root: &Root, process: u32) -> Vec<PathBuf> {
    let text = files::read_to_string(root.path(format!("/proc/{process}/cgroup"))).unwrap_or_default();
    let mut all = Vec::new();
    for (controllers, group) in text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':')) {
        // Version 2 has no name, and beside hierarchies of version 1 a directory of its own.
        let mount = match controllers.strip_prefix("name=").unwrap_or(controllers) {
            "" if files::exists(root.path(format!("{GROUPS}/cgroup.controllers"))) => GROUPS.to_owned(),
            "" => format!("{GROUPS}/unified"),
            name => format!("{GROUPS}/{name}"),
        };
        let mut above = root.path(mount);
        for part in group.split('/').filter(|part| !part.is_empty() && *part != "..") {
            // LXC appends "-1" and so on to both when a group of that name is left over.
            let name = part.strip_prefix("lxc.monitor.").or_else(|| part.strip_prefix("lxc.payload."));
            if let Some(name) = name {
                all.extend(["payload", "monitor"].map(|sort| above.join(format!("lxc.{sort}.{name}"))));
                break;
            }
            above.push(part);
        }
    }
    all
}

/// Removes a control group and those below it; already gone is fine. One that somebody is still in stays.
pub fn remove_group(directory: &Path) {
    let below = files::list(directory).unwrap_or_default();
    for name in below {
        let path = directory.join(name);
        if path.is_dir() && !path.is_symlink() {
            remove_group(&path);
        }
    }
    let _ = files::remove_directory(directory);
}

/// The last lines of what LXC and the guest's first process said.
pub fn last_words(state: &State, guest: &GuestName) -> Vec<String> {
    let log = text(&state.file(guest, LOG));
    // "lxc-start NAME TIME ERROR start - ../src/lxc/start.c:start:2197 - No such file or directory - Failed to exec"
    let errors = log
        .lines()
        .filter(|line| line.contains(" ERROR "))
        .filter_map(|line| line.splitn(3, " - ").nth(2))
        // Advice to run LXC's own programs in another way.
        .filter(|words| {
            !words.starts_with("To get more details") && !words.starts_with("Additional information")
        });
    let errors: Vec<String> = errors.map(|words| format!("lxc: {}", printable(words))).collect();
    let console = text(&state.file(guest, "console.log"));
    let said: Vec<String> = console
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| format!("console: {}", printable(line)))
        .collect();
    let last = |lines: Vec<String>| lines[lines.len().saturating_sub(LINES)..].to_vec();
    [last(errors), last(said)].concat()
}

fn text(path: &Path) -> String {
    let bytes = files::read_at_most(path, TAIL).map_or_else(|_| Vec::new(), |(bytes, _)| bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
