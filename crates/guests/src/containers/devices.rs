//! Devices of the host in containers: which ones the device control group lets a container open, and where their nodes
//! are mounted inside.
//!
//! A path is resolved when the guest starts, so that a stable one (`/dev/disk/by-id/...`) finds its device whatever its
//! number. What the container may do is decided by the control group (`b 8:16 rw`, never `m`, which would let it make
//! nodes); the node itself is mounted read-only in any case, which for a device only means that the container cannot
//! change the owner and permissions of the host's node.
//!
//! A device that the host itself uses is refused: two kernels' worth of writers on one file system destroy it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use penstock_host::{
    Root,
    device::{self, Access, Device},
    files,
};
use penstock_model::{GuestName, Verdict, verdict::Subject};
use penstock_plan::action::GuestDefinition;

use super::limits;
use crate::error::GuestError;

/// How deep holders of holders are followed: partition, RAID, encryption and volumes are four.
const DEPTH: u32 = 16;

/// A device that a container is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The device.
    pub device: Device,
    /// Its node on the host, with every symbolic link resolved.
    pub node: PathBuf,
    /// Its path inside.
    pub inside: String,
    /// Whether the container may write to it.
    pub write: bool,
}

/// What the paths of a definition's devices name now.
///
/// # Errors
///
/// A path names nothing, or no device, or one that the host uses itself.
pub fn resolve(root: &Root, definition: &GuestDefinition) -> Result<Vec<Granted>, GuestError> {
    let mut used = None;
    let resolve = |wanted: &penstock_model::Device| {
        let no_device = |why: String| GuestError::NoDevice {
            guest: definition.guest.clone(),
            path: wanted.path.clone(),
            why,
        };
        let (node, device) = find(root, &wanted.path).map_err(no_device)?;
        let used = used.get_or_insert_with(|| used_by_host(root));
        if let Some(why) = conflict(root, device, used) {
            return Err(GuestError::DeviceInUse {
                guest: definition.guest.clone(),
                path: wanted.path.clone(),
                why,
            });
        }
        Ok(Granted { device, node, inside: wanted.inside.clone(), write: wanted.write })
    };
    definition.devices.iter().map(resolve).collect()
}

/// The node and the device that a path on the host names.
fn find(root: &Root, path: &str) -> Result<(PathBuf, Device), String> {
    let node = files::canonical(root.path(path)).map_err(|error| {
        if error.is_missing() { "there is no such device".to_owned() } else { error.source.to_string() }
    })?;
    match device::at(&node) {
        Ok(Some(device)) => Ok((node, device)),
        Ok(None) => Err(format!("{} is not a device", node.display())),
        Err(error) => Err(error.source.to_string()),
    }
}

/// The block devices that the host has file systems or swap space on, by major and minor number, and what for.
pub fn used_by_host(root: &Root) -> BTreeMap<(u64, u64), String> {
    let mut used = BTreeMap::new();
    let read = |path: &str| files::read_to_string(root.path(path)).unwrap_or_default();
    // Documentation/filesystems/proc.rst, 3.5: the mount point is field 5, the source the second after " - ".
    for line in read("/proc/self/mountinfo").lines() {
        let mut fields = line.split(' ');
        let (Some(number), Some(point)) = (fields.nth(2), fields.nth(1)) else { continue };
        let why = format!("mounted on the host at {point}");
        // Major 0 stands for a file system that has no one device, as btrfs; its source still names one.
        if let Some(number) = parse_number(number).filter(|(major, _)| *major != 0) {
            used.entry(number).or_insert_with(|| why.clone());
        }
        let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1));
        if let Some(number) = source.and_then(|source| number_of_node(root, source)) {
            used.entry(number).or_insert(why);
        }
    }
    for line in read("/proc/swaps").lines().skip(1) {
        if let Some(number) = line.split_whitespace().next().and_then(|path| number_of_node(root, path)) {
            used.entry(number).or_insert_with(|| "the host's swap space".to_owned());
        }
    }
    // All devices of mounted file systems that have several.
    for name in files::list(root.path("/sys/fs/btrfs")).unwrap_or_default() {
        for name in files::list(root.path(format!("/sys/fs/btrfs/{name}/devices"))).unwrap_or_default() {
            if let Some(number) = number_of_name(root, &name) {
                used.entry(number).or_insert_with(|| "part of a file system of the host".to_owned());
            }
        }
    }
    used
}

/// Why a container must not have this device: it is one that the host uses, or holds one, or a way around one.
pub fn conflict(root: &Root, device: Device, used: &BTreeMap<(u64, u64), String>) -> Option<String> {
    if device.block {
        let directory = root.path(format!("/sys/dev/block/{}:{}", device.major, device.minor));
        let own = (device.major, device.minor);
        return conflict_below(root, own, &directory, used, DEPTH);
    }
    // drivers/char/mem.c
    if device.major == 1 && matches!(device.minor, 1 | 2 | 4) {
        return Some("it is the host's memory or I/O ports".to_owned());
    }
    // A disk can have character devices that write to it as well: SCSI's generic ones, NVMe's, a USB device's raw one.
    let directory =
        files::canonical(root.path(format!("/sys/dev/char/{}:{}", device.major, device.minor))).ok()?;
    let behind = files::canonical(directory.join("device")).ok();
    let ways = [Some(directory), behind];
    used.iter().find_map(|((major, minor), why)| {
        let disk = files::canonical(root.path(format!("/sys/dev/block/{major}:{minor}"))).ok()?;
        let around = ways.iter().flatten().any(|way| disk.starts_with(way));
        around.then(|| format!("it leads to a disk that is {why}"))
    })
}

/// The same for a block device: itself, then its partitions and whatever is made of them.
fn conflict_below(
    root: &Root,
    own: (u64, u64),
    directory: &Path,
    used: &BTreeMap<(u64, u64), String>,
    depth: u32,
) -> Option<String> {
    if let Some(why) = used.get(&own) {
        return Some(format!("it, or what lies on it, is {why}"));
    }
    let depth = depth.checked_sub(1)?;
    let partitions = files::list(directory).unwrap_or_default();
    let partitions =
        partitions.into_iter().filter(|name| files::exists(directory.join(name).join("partition")));
    let holders = files::list(directory.join("holders")).unwrap_or_default();
    partitions.chain(holders).find_map(|name| {
        let number = number_of_name(root, &name)?;
        let directory = root.path(format!("/sys/dev/block/{}:{}", number.0, number.1));
        conflict_below(root, number, &directory, used, depth)
    })
}

/// The number of the block device whose node is `path` on the host.
fn number_of_node(root: &Root, path: &str) -> Option<(u64, u64)> {
    let node = files::canonical(root.path(path.strip_prefix("/dev/").map(|_| path)?)).ok()?;
    number_of_name(root, node.file_name()?.to_str()?)
}

/// The number of the block device that the kernel calls `name`.
fn number_of_name(root: &Root, name: &str) -> Option<(u64, u64)> {
    let text = files::read_to_string(root.path(format!("/sys/class/block/{name}/dev"))).ok()?;
    parse_number(text.trim())
}

fn parse_number(text: &str) -> Option<(u64, u64)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// One verdict for each device that is asked for: inside it is the device that its path on the host names now, and the
/// guest's control group lets it be opened as asked and no further. `pid` is the guest's first process.
pub fn verdicts(
    root: &Root,
    guest: &GuestName,
    pid: Result<u32, String>,
    wanted: &[penstock_model::Device],
) -> Vec<Verdict> {
    let group = pid.clone().and_then(|pid| limits::group_of_devices(root, pid));
    let judge = |wanted: &penstock_model::Device| {
        let seen = pid.clone().and_then(|pid| look(root, pid, &group, wanted));
        let name = if wanted.inside == wanted.path {
            wanted.path.clone()
        } else {
            format!("{} as {}", wanted.path, wanted.inside)
        };
        let wanted = format!("{name}: {}", rights(true, wanted.write));
        Verdict::of_host(Subject::Guest(guest.clone()), "devices", wanted, seen)
    };
    wanted.iter().map(judge).collect()
}

fn look(
    root: &Root,
    pid: u32,
    group: &Result<PathBuf, String>,
    wanted: &penstock_model::Device,
) -> Result<(String, bool), String> {
    let here = match find(root, &wanted.path) {
        Ok((_, device)) => device,
        Err(why) => return Ok((format!("on the host: {why}"), false)),
    };
    let held = match device::hold_in_root(root.path(format!("/proc/{pid}/root")), &wanted.inside) {
        Ok(held) => held,
        Err(error) if error.is_missing() => return Ok(("nothing inside".to_owned(), false)),
        Err(error) => return Err(error.source.to_string()),
    };
    let Some(inside) = held.device().map_err(|error| error.to_string())? else {
        return Ok(("no device inside".to_owned(), false));
    };
    if inside != here {
        return Ok((format!("{inside} inside, {here} on the host"), false));
    }
    let group = group.clone()?;
    let may = |access: Access| {
        held.may(access, &group).map_err(|error| format!("its control group cannot be asked: {error}"))
    };
    let (read, write) = (may(Access::Read)?, may(Access::Write)?);
    Ok((format!("{inside}: {}", rights(read, write)), read && write == wanted.write))
}

fn rights(read: bool, write: bool) -> &'static str {
    match (read, write) {
        (true, true) => "read and write",
        (true, false) => "read only",
        (false, true) => "write only",
        (false, false) => "neither read nor write",
    }
}
