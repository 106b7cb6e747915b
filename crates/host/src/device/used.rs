//! Which devices this host uses itself: nobody else may write to them, or have a way to.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

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
        Some(Ok(true)) => Ok(Some(format!("it is {HELD}"))),
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
    let partitions = files::list(directory).unwrap_or_default();
    let partitions =
        partitions.into_iter().filter(|name| files::exists(directory.join(name).join("partition")));
    let holders = files::list(directory.join("holders")).unwrap_or_default();
    partitions.chain(holders).find_map(|name| {
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
