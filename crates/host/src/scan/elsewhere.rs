//! Functions whose interfaces are in other network namespaces, and who lives there.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::Bdf;

use crate::{Netlink, Root, files};

/// Looks for these functions in the network namespaces of all processes, and says who lives there, each as
/// `container NAME (LXC, process ID)` or `NAME (process ID)`. A namespace that nobody lives in, and all without the right to
/// enter them, stay unseen.
pub fn elsewhere(root: &Root, wanted: &BTreeSet<Bdf>) -> BTreeMap<Bdf, String> {
    let mut found = BTreeMap::new();
    if wanted.is_empty() || !root.is_system() {
        return found;
    }
    let namespace = |id: &str| files::read_link(format!("/proc/{id}/ns/net")).ok();
    let own = namespace("self");
    // The process with the lowest number in each: of a container that is its first, or who made it.
    let mut homes = BTreeMap::new();
    let mut processes: Vec<u32> =
        files::list("/proc").unwrap_or_default().iter().filter_map(|name| name.parse().ok()).collect();
    processes.sort_unstable();
    for id in processes {
        if let Some(home) = namespace(&id.to_string()).filter(|home| Some(home) != own.as_ref()) {
            homes.entry(home).or_insert(id);
        }
    }
    for id in homes.into_values() {
        let Ok(mut netlink) = Netlink::in_namespace_of(id) else { continue };
        for report in netlink.interfaces().unwrap_or_default() {
            let function = report.device.as_deref().and_then(|device| function_of(root, device));
            if let Some(function) = function.filter(|function| wanted.contains(function)) {
                found.entry(function).or_insert_with(|| who(id));
            }
        }
    }
    found
}

/// The PCI function that a device is, or that a virtio device sits on.
fn function_of(root: &Root, device: &str) -> Option<Bdf> {
    if let Ok(bdf) = device.parse() {
        return Some(bdf);
    }
    if !device.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let path = files::canonical(root.path(format!("/sys/bus/virtio/devices/{device}"))).ok()?;
    path.parent()?.file_name()?.to_str()?.parse().ok()
}

/// Who a process is: the container that its control group names, else its program.
fn who(id: u32) -> String {
    let read = |name: &str| files::read_to_string(format!("/proc/{id}/{name}")).unwrap_or_default();
    let groups = read("cgroup");
    let container = groups.split(['/', '\n']).find_map(|part| part.strip_prefix("lxc.payload."));
    match container {
        Some(name) => format!("container {name} (LXC, process {id})"),
        None => format!("{} (process {id})", read("comm").trim()),
    }
}
