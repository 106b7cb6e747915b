//! Functions whose interfaces are in other network namespaces, and who lives there.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use penstock_model::Bdf;

use crate::{Netlink, Root, chain, files, namespace::NetworkNamespace, pci};

/// Where namespaces have names, as `ip netns` and network plugins of containers give them.
const NAMED: &str = "/run/netns";

/// What other network namespaces were seen to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfacesElsewhere {
    /// Who has a function's interface: `container NAME (LXC, process ID)`, `NAME (process ID)`, or the name of a namespace in which nobody
    /// lives.
    pub found: BTreeMap<Bdf, String>,
    /// Why some of the namespaces could not be looked into, if so: what is in them is not among [`InterfacesElsewhere::found`].
    pub unseen: Option<String>,
}

/// As [`look`], without what could not be looked into.
pub fn elsewhere(root: &Root, wanted: &BTreeSet<Bdf>) -> BTreeMap<Bdf, String> {
    look(root, wanted).found
}

/// Looks for these functions in the network namespaces of all processes, and in those that have names. One that has neither a process nor a
/// name stays unseen, and nothing says so.
pub fn look(root: &Root, wanted: &BTreeSet<Bdf>) -> InterfacesElsewhere {
    let mut all = InterfacesElsewhere::default();
    if wanted.is_empty() || !root.is_system() {
        return all;
    }
    let namespace = |id: &str| files::read_link(format!("/proc/{id}/ns/net"));
    let own = namespace("self").ok();
    // The process with the lowest number in each: of a container that is its first, or who made it.
    let mut homes = BTreeMap::new();
    let mut processes: Vec<u32> =
        files::list("/proc").unwrap_or_default().iter().filter_map(|name| name.parse().ok()).collect();
    processes.sort_unstable();
    for id in processes {
        match namespace(&id.to_string()) {
            Ok(home) if Some(&home) != own.as_ref() => drop(homes.entry(home).or_insert(id)),
            Err(error) if error.is_unreadable() => {
                let why = || format!("where processes of others live may not be seen: {}", error.source);
                all.unseen.get_or_insert_with(why);
            }
            // Ours, or of one that has ended.
            _ => {}
        }
    }
    let mut take = |netlink: &mut Netlink, who: &dyn Fn() -> String| {
        for report in netlink.links().unwrap_or_default() {
            let function = report.device.as_deref().and_then(|device| pci::function_of_device(root, device));
            if let Some(function) = function.filter(|function| wanted.contains(function)) {
                all.found.entry(function).or_insert_with(who);
            }
        }
    };
    let mut closed = None;
    for id in homes.values() {
        match Netlink::in_namespace_of(*id) {
            Ok(mut netlink) => take(&mut netlink, &|| who(*id)),
            Err(_) if !files::exists(format!("/proc/{id}")) => {}
            Err(error) => drop(closed.get_or_insert(format!("{}: {}", who(*id), chain(&error)))),
        }
    }
    for name in files::list(NAMED).unwrap_or_default() {
        // What is no namespace any more is an empty file.
        let Ok(namespace) = NetworkNamespace::open(format!("{NAMED}/{name}")) else { continue };
        let Ok((_, inode)) = namespace.identity() else { continue };
        // As links of processes write it (namespaces(7)).
        let home = PathBuf::from(format!("net:[{inode}]"));
        if Some(&home) == own.as_ref() || homes.contains_key(&home) {
            continue;
        }
        if let Ok(mut netlink) = namespace.netlink() {
            take(&mut netlink, &|| format!("the network namespace {name}"));
        }
    }
    all.unseen = all.unseen.or(closed);
    all
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
