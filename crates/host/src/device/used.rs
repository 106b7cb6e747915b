//! Which devices this host uses itself: nobody else may write to them, or have a way to.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use penstock_model::text::one_line;

use super::{Device, HELD, is_held};
use crate::{
    Root,
    files::{self, FileError},
};

/// How deep holders of holders are followed: partition, RAID, encryption and volumes are four.
const DEPTH: u32 = 16;

/// The block devices that the host has file systems or swap space on, by major and minor number, and what for.
pub fn by_host(root: &Root) -> BTreeMap<(u64, u64), String> {
    let mut used = BTreeMap::new();
    let read = |path: &str| files::read_to_string(root.path(path)).unwrap_or_default();
    // What a file system of a program in user space is called whoever mounts it chooses (`fsname=`, mount.fuse3(8)).
    let names_its_device = |kind: &str| kind != "fuse" && !kind.starts_with("fuse.");
    let why = |point: &str| format!("mounted on the host at {point}");
    mounted(root, &read("/proc/self/mountinfo"), names_its_device, why, &mut used);
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

/// File systems of several devices, whose number is none of a device: their sources the kernel itself has opened, which takes root.
const OF_SEVERAL: [&str; 2] = ["bcachefs", "btrfs"];

/// Adds the devices of a table of mounts (Documentation/filesystems/proc.rst, 3.5: the mount point is field 5, the kind the first after
/// " - ", the source the second). The source is a text that whoever mounts may choose: it counts for the kinds that `believed` takes.
fn mounted(
    root: &Root,
    table: &str,
    believed: impl Fn(&str) -> bool,
    why: impl Fn(&str) -> String,
    used: &mut BTreeMap<(u64, u64), String>,
) {
    for line in table.lines() {
        let mut fields = line.split(' ');
        let (Some(number), Some(point)) = (fields.nth(2), fields.nth(1)) else { continue };
        // Major 0 stands for a file system that has no one device, as btrfs; its source still names one.
        if let Some(number) = parse_number(number).filter(|(major, _)| *major != 0) {
            used.entry(number).or_insert_with(|| why(point));
        }
        let mut what = line.split_once(" - ").map_or("", |(_, rest)| rest).split(' ');
        let (Some(kind), Some(source)) = (what.next(), what.next()) else { continue };
        if !believed(kind) {
            continue;
        }
        // bcachefs names all its devices.
        let sources = source.split(|c| c == ':' && kind == "bcachefs");
        for number in sources.filter_map(|source| number_of_node(root, source)) {
            used.entry(number).or_insert_with(|| why(point));
        }
    }
}

/// As [`by_host`], with what others on this machine use: file systems in mount namespaces that the host's own does not show, as far as this
/// user may see them, and loop devices. Nothing is opened.
pub fn by_anybody(root: &Root) -> BTreeMap<(u64, u64), String> {
    let mut used = by_host(root);
    let read = |path: &str| files::read_to_string(root.path(path)).unwrap_or_default();
    let namespace = |id: &str| files::read_link(root.path(format!("/proc/{id}/ns/mnt"))).ok();
    let mut seen = BTreeSet::from([namespace("self")]);
    let mut processes: Vec<u32> = files::list(root.path("/proc"))
        .unwrap_or_default()
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    processes.sort_unstable();
    for id in processes {
        let home = namespace(&id.to_string());
        if home.is_some() && seen.insert(home) {
            let program = one_line(read(&format!("/proc/{id}/comm")).trim());
            // What a container calls its mount points reaches a terminal.
            let why = |point: &str| format!("mounted at {} by {program} (process {id})", one_line(point));
            // Anybody can have a mount namespace of his own, and mounts in it.
            let believed = |kind: &str| OF_SEVERAL.contains(&kind);
            mounted(root, &read(&format!("/proc/{id}/mountinfo")), believed, why, &mut used);
        }
    }
    for kind in ["ext4", "xfs", "f2fs"] {
        for name in files::list(root.path(format!("/sys/fs/{kind}"))).unwrap_or_default() {
            if let Some(number) = number_of_name(root, &name) {
                used.entry(number).or_insert_with(|| format!("mounted: a file system of {kind}"));
            }
        }
    }
    let blocks = files::list(root.path("/sys/class/block")).unwrap_or_default();
    for name in blocks.iter().filter(|name| name.starts_with("loop")) {
        let file = read(&format!("/sys/class/block/{name}/loop/backing_file"));
        if let Some(number) = number_of_node(root, file.trim()) {
            used.entry(number).or_insert_with(|| format!("behind {name}"));
        }
    }
    used
}

/// Signs that anybody uses the block device that the kernel calls `name`, without opening it, which would be in the way of who is just about
/// to use it: as [`purpose`], other devices that are made of it or of its partitions, and what udev has found on them. `used` is what
/// [`by_anybody`] gave.
pub fn signs(root: &Root, name: &str, used: &BTreeMap<(u64, u64), String>) -> Option<String> {
    number_of_name(root, name)?;
    if let Some(why) = purpose_of(root, name, used) {
        return Some(why);
    }
    let blocks = with_partitions(root, name);
    let holder = blocks.iter().find_map(|name| holders(root, name).into_iter().next());
    holder
        .map(|called| format!("a part of {called}"))
        .or_else(|| blocks.iter().find_map(|name| member(root, name)))
}

/// A block device and its partitions, as the kernel calls them.
fn with_partitions(root: &Root, name: &str) -> Vec<String> {
    let directory = root.path(format!("/sys/class/block/{name}"));
    std::iter::once(name.to_owned()).chain(partitions(&directory)).collect()
}

/// The partitions of the block device that `directory` of sysfs is of, as the kernel calls them.
fn partitions(directory: &Path) -> impl Iterator<Item = String> {
    let names = files::list(directory).unwrap_or_default();
    names.into_iter().filter(|name| files::exists(directory.join(name).join("partition")))
}

/// The devices that are made of a block device, as device mapper calls them, or the kernel.
fn holders(root: &Root, name: &str) -> Vec<String> {
    let holders = files::list(root.path(format!("/sys/class/block/{name}/holders"))).unwrap_or_default();
    let called = |holder: String| {
        let mapped = files::read_to_string(root.path(format!("/sys/class/block/{holder}/dm/name")));
        one_line(mapped.as_deref().unwrap_or(&holder).trim())
    };
    holders.into_iter().map(called).collect()
}

/// What the kernel has made of a block device that it holds, of its partitions, or of the disk that it is a partition of.
fn held_for(root: &Root, device: Device) -> Option<String> {
    let directory = files::canonical(directory_of(root, (device.major, device.minor))).ok()?;
    let disk = directory.parent().filter(|_| files::exists(directory.join("partition")));
    let names = [Some(directory.as_path()), disk].into_iter().flatten();
    let names = names.filter_map(|directory| directory.file_name()?.to_str());
    let made: BTreeSet<String> =
        names.flat_map(|name| with_partitions(root, name)).flat_map(|name| holders(root, &name)).collect();
    (!made.is_empty()).then(|| made.into_iter().collect::<Vec<_>>().join(", "))
}

/// Where ZFS tells of the pools that this kernel has, one directory each (zpool(8)).
const POOLS: &str = "/proc/spl/kstat/zfs";

/// Whether a block device looks like a member of a ZFS pool, by what udev's database says of its contents (blkid(8)), on a machine that has a
/// pool: its members have no holder in sysfs. Other arrays and volume groups have one while they are in use; what is only written on a
/// disk may be a guest's own.
fn member(root: &Root, name: &str) -> Option<String> {
    let (major, minor) = number_of_name(root, name)?;
    let record = files::read_to_string(root.path(format!("/run/udev/data/b{major}:{minor}"))).ok()?;
    let is_member = record.lines().any(|line| line == "E:ID_FS_TYPE=zfs_member");
    let pools = || files::list(root.path(POOLS)).unwrap_or_default();
    let has_pools = || pools().iter().any(|name| files::exists(root.path(format!("{POOLS}/{name}/state"))));
    (is_member && has_pools())
        .then(|| "it looks like a member of a ZFS pool, of which this machine has one".to_owned())
}

/// As [`purpose`], of the block device that the kernel calls `name`.
pub fn purpose_of(root: &Root, name: &str, used: &BTreeMap<(u64, u64), String>) -> Option<String> {
    let (major, minor) = number_of_name(root, name)?;
    purpose(root, Device { block: true, major, minor }, used)
}

/// What this host uses a block device for, partitions and volumes upon it included: `mounted on the host at /var`.
pub fn purpose(root: &Root, device: Device, used: &BTreeMap<(u64, u64), String>) -> Option<String> {
    let own = (device.major, device.minor);
    device.block.then(|| purpose_below(root, own, &directory_of(root, own), used, DEPTH))?
}

/// Why nobody else must be given or write to this device: it is one that the host uses, or holds one, or a way around one.
pub fn conflict(root: &Root, device: Device, used: &BTreeMap<(u64, u64), String>) -> Option<String> {
    if device.block {
        return purpose(root, device, used).map(|why| format!("it, or what lies on it, is {why}"));
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
        let disk = files::canonical(directory_of(root, (*major, *minor))).ok()?;
        let around = ways.iter().flatten().any(|way| disk.starts_with(way));
        around.then(|| format!("it leads to a disk that is {why}"))
    })
}

/// As [`conflict`] of the device whose node is `node`; of a block device of which nothing is known the kernel is asked whether it has it for
/// somebody, so that it is to be asked right before the device is given away. A drive without a disk in it nobody can have.
///
/// # Errors
///
/// [`FileError`] when the block device cannot be opened: whether anybody uses it is then not known.
pub fn refusal(
    root: &Root,
    node: impl AsRef<Path>,
    device: Device,
    used: &BTreeMap<(u64, u64), String>,
) -> Result<Option<String>, FileError> {
    if let Some(why) = conflict(root, device, used) {
        return Ok(Some(why));
    }
    match device.block.then(|| is_held(node)) {
        Some(Ok(true)) => Ok(Some(match held_for(root, device) {
            Some(made) => format!(
                "it is held by the kernel: a part of {made}, which this host has made of what is written on it"
            ),
            None => format!("it is {HELD}"),
        })),
        Some(Err(error)) if !error.is_without_medium() => Err(error),
        _ => Ok(None),
    }
}

fn directory_of(root: &Root, (major, minor): (u64, u64)) -> PathBuf {
    root.path(format!("/sys/dev/block/{major}:{minor}"))
}

/// Of a block device itself, then of its partitions and whatever is made of them.
fn purpose_below(
    root: &Root,
    own: (u64, u64),
    directory: &Path,
    used: &BTreeMap<(u64, u64), String>,
    depth: u32,
) -> Option<String> {
    if let Some(why) = used.get(&own) {
        return Some(why.clone());
    }
    let depth = depth.checked_sub(1)?;
    let holders = files::list(directory.join("holders")).unwrap_or_default();
    partitions(directory).chain(holders).find_map(|name| {
        let number = number_of_name(root, &name)?;
        purpose_below(root, number, &directory_of(root, number), used, depth)
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
