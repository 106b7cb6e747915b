//! Devices of the host in containers: which ones the device control group lets a container open, and where their nodes
//! are mounted inside.
//!
//! A path is resolved when the guest starts, so that a stable one (`/dev/disk/by-id/...`) finds its device whatever its
//! number. What the container may do is decided by the control group (`b 8:16 rw`, never `m`, which would let it make
//! nodes); the node itself is mounted read-only in any case, which for a device only means that the container cannot
//! change the owner and permissions of the node. The host's own node belongs to an account that does not exist in a user
//! namespace: a container that has one is given a node that is its root's, made below `/dev/penstock` while it runs.
//!
//! A device that the host itself uses, or that the kernel has for somebody, is refused: two kernels' worth of writers on one file system
//! destroy it.

use std::path::PathBuf;

use penstock_host::{
    Root,
    device::{self, Access, Device, used},
    files,
};
use penstock_model::{GuestName, Verdict, verdict::Subject};
use penstock_plan::action::GuestDefinition;

use super::{ids::Ids, limits};
use crate::error::{GuestError, refuse_used};

/// A device that a container is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The kind and the numbers of the device.
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
    let mut known = None;
    let resolve = |wanted: &penstock_model::Device| {
        let no_device = |why: String| GuestError::NoDevice {
            guest: definition.guest.clone(),
            path: wanted.path.clone(),
            why,
        };
        let (node, device) = find(root, &wanted.path).map_err(no_device)?;
        let known = known.get_or_insert_with(|| used::by_host(root));
        refuse_used(used::refusal(root, &node, device, known), &definition.guest, &wanted.path)?;
        Ok(Granted { device, node, inside: wanted.inside.clone(), write: wanted.write })
    };
    definition.devices.iter().map(resolve).collect()
}

/// Where nodes lie that belong to containers' roots. Below `/dev`, because nodes elsewhere may not be opened (`nodev`).
const NODES: &str = "/dev/penstock";

fn nodes_of(guest: &GuestName) -> PathBuf {
    PathBuf::from(NODES).join(guest.as_str())
}

/// The same devices with nodes that the container's root may open: `ids` are the host's that stand for its own. The group
/// decides what may be written; without a user namespace the host's nodes will do.
///
/// # Errors
///
/// A node cannot be made.
pub fn nodes(guest: &GuestName, granted: &[Granted], ids: Option<Ids>) -> Result<Vec<Granted>, GuestError> {
    let Some(ids) = ids.filter(|_| !granted.is_empty()) else { return Ok(granted.to_vec()) };
    let failed = |granted: &Granted, source| GuestError::Node {
        guest: guest.clone(),
        path: granted.node.display().to_string(),
        source,
    };
    let directory = nodes_of(guest);
    files::remove_tree(&directory)?;
    files::create_dir_all(&directory)?;
    for path in [NODES.as_ref(), directory.as_path()] {
        files::set_mode(path, 0o711)?;
    }
    let make = |(position, wanted): (usize, &Granted)| {
        let node = directory.join(position.to_string());
        device::make_node(&node, wanted.device, ids.user, ids.group)
            .map_err(|error| failed(wanted, error))?;
        Ok(Granted { node, ..wanted.clone() })
    };
    granted.iter().enumerate().map(make).collect()
}

/// Removes the nodes that were made for a guest; none is success.
///
/// # Errors
///
/// [`GuestError::State`] when one of them cannot be removed.
pub fn remove_nodes(guest: &GuestName) -> Result<(), GuestError> {
    Ok(files::remove_tree(nodes_of(guest))?)
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
        let item = wanted.inside.clone();
        let wanted = format!("{name}: {}", rights(true, wanted.write));
        Verdict::of_host(Subject::Guest(guest.clone()), "devices", wanted, seen).of_item(item)
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
