//! CPU and memory limits of containers and the CPUs that they are pinned to, kept by cgroup v2
//! (`Documentation/admin-guide/cgroup-v2.rst`).

use std::path::PathBuf;

use penstock_host::{Root, files};
use penstock_model::{CpuSet, Guest, GuestName, Verdict, verdict::Subject};
use penstock_plan::action::GuestDefinition;

use crate::{error::GuestError, state::PREFIX};

/// The largest page of any Linux; the kernel rounds a memory limit down to whole pages.
const LARGEST_PAGE: u64 = 64 << 10;

/// Where cgroup v2 is mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Refuses limits that this machine cannot hold, before anything is started.
///
/// # Errors
///
/// [`GuestError::NoLimits`] where cgroup v2 is not alone, lacks the controller, or a CPU of `pin` is not online; when it cannot be read
/// which are.
pub fn check(root: &Root, definition: &GuestDefinition) -> Result<(), GuestError> {
    let wanted = [
        ("cpus", "cpu", definition.cpus.is_some()),
        ("memory", "memory", definition.memory.is_some()),
        ("pin", "cpuset", definition.pin.is_some()),
    ];
    let refused =
        |what: &'static str, why: String| GuestError::NoLimits { guest: definition.guest.clone(), what, why };
    for (what, controller, _) in wanted.into_iter().filter(|(.., wanted)| *wanted) {
        let no_limits = |why: String| refused(what, why);
        // LXC passes cgroup v2 limits over in silence when version 1 is mounted beside it: only pure v2 will do.
        let path = root.path(format!("{MOUNT}/cgroup.controllers"));
        let controllers =
            files::read_to_string(&path).map_err(|_| no_limits(format!("{MOUNT} is not cgroup v2 alone")))?;
        if !controllers.split_whitespace().any(|name| name == controller) {
            return Err(no_limits(format!("the kernel's cgroup v2 has no {controller} controller")));
        }
    }
    if let Some(pin) = &definition.pin {
        // A set none of whose CPUs is there would not be refused: the kernel takes its parent's instead.
        let online = files::read_to_string(root.path("/sys/devices/system/cpu/online"))?;
        let online: CpuSet = online.trim().parse().unwrap_or_default();
        let absent = CpuSet(pin.0.difference(&online.0).copied().collect());
        if pin.0.is_empty() || !absent.0.is_empty() {
            return Err(refused("pin", format!("of the CPUs {pin} only those of {online} are online")));
        }
    }
    Ok(())
}

/// One verdict for each limit that is asked for, read from the control group of the guest's first process, `pid`.
pub fn verdicts(root: &Root, guest: &GuestName, pid: Result<u32, String>, wanted: &Guest) -> Vec<Verdict> {
    let group = pid.and_then(|pid| group_of(root, guest, pid));
    let read = |file: &str| {
        let path = group.clone()?.join(file);
        files::read_to_string(&path).map(|text| text.trim().to_owned()).map_err(|error| error.to_string())
    };
    let verdict = |attribute: &str, wanted: String, seen: Result<(String, bool), String>| {
        Verdict::of_host(Subject::Guest(guest.clone()), attribute, wanted, seen)
    };
    let mut verdicts = Vec::new();
    if let Some(cpus) = wanted.cpus {
        let seen = read("cpu.max").and_then(|text| {
            let (quota, period) =
                text.split_once(' ').ok_or_else(|| format!("cpu.max cannot be parsed: {text:?}"))?;
            if quota == "max" {
                return Ok(("no limit".to_owned(), false));
            }
            let number = |field: &str| field.parse::<u64>().ok().filter(|number| *number > 0);
            let (quota, period) = number(quota)
                .zip(number(period))
                .ok_or_else(|| format!("cpu.max cannot be parsed: {text:?}"))?;
            let share =
                if quota % period == 0 { (quota / period).to_string() } else { format!("{quota}/{period}") };
            Ok((share, quota == u64::from(cpus).saturating_mul(period)))
        });
        verdicts.push(verdict("cpus", cpus.to_string(), seen));
    }
    if let Some(memory) = wanted.memory.map(|memory| memory.0) {
        let seen = read("memory.max").and_then(|text| {
            if text == "max" {
                return Ok(("no limit".to_owned(), false));
            }
            let seen: u64 = text.parse().map_err(|_| format!("memory.max cannot be parsed: {text:?}"))?;
            let rounded = seen <= memory && memory - seen < LARGEST_PAGE;
            Ok((penstock_model::ByteSize(seen).to_string(), rounded))
        });
        verdicts.push(verdict("memory", penstock_model::ByteSize(memory).to_string(), seen));
    }
    if let Some(pin) = &wanted.pin {
        // What it may run on in truth: of what was asked for, what its parents allow and what is online.
        let seen = read("cpuset.cpus.effective").and_then(|text| {
            let seen: CpuSet =
                text.parse().map_err(|_| format!("cpuset.cpus.effective cannot be parsed: {text:?}"))?;
            Ok((seen.to_string(), seen == *pin))
        });
        verdicts.push(verdict("pin", pin.to_string(), seen));
    }
    verdicts
}

/// The directory of the control group whose device rules hold for process `pid`: of version 1 where that has the
/// controller, else of version 2, where the rules of every group above hold as well.
///
/// # Errors
///
/// In words: the process has no control group that the kernel shows, or one outside of what Penstock sees.
pub fn group_of_devices(root: &Root, pid: u32) -> Result<PathBuf, String> {
    let text =
        files::read_to_string(root.path(format!("/proc/{pid}/cgroup"))).map_err(|error| error.to_string())?;
    let own = text.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "devices").then_some((format!("{MOUNT}/devices"), group))
    });
    let unified =
        || text.lines().find_map(|line| line.strip_prefix("0::")).map(|group| (MOUNT.to_owned(), group));
    let (mount, group) = own.or_else(unified).ok_or("the kernel shows no control group")?;
    if group.split('/').any(|part| part == "..") {
        return Err(format!("its control group {group:?} lies outside Penstock's own"));
    }
    Ok(root.path(format!("{mount}{group}")))
}

/// The directory of the control group that LXC made for the guest whose first process is `pid`. The process itself may
/// have moved below it, as systemd does.
fn group_of(root: &Root, guest: &GuestName, pid: u32) -> Result<PathBuf, String> {
    let path = root.path(format!("/proc/{pid}/cgroup"));
    let text = files::read_to_string(path).map_err(|error| error.to_string())?;
    let group =
        text.lines().find_map(|line| line.strip_prefix("0::")).ok_or("the kernel has no cgroup v2")?;
    // LXC appends "-1" and so on when a group of that name is left over.
    let ours = format!("lxc.payload.{PREFIX}{guest}");
    let mut directory = root.path(MOUNT);
    for part in group.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            return Err(format!("its control group {group:?} lies outside Penstock's own"));
        }
        directory.push(part);
        if part.starts_with(&ours) {
            return Ok(directory);
        }
    }
    Err(format!("its control group is {group:?} and not one that LXC made for it"))
}
