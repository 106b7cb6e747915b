//! Functions whose interfaces are in other network namespaces, and who lives there.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    path::PathBuf,
};

use penstock_model::Bdf;

use crate::{Netlink, NetlinkError, Root, chain, files, namespace::NetworkNamespace, pci};

/// Where namespaces have names, as `ip netns` and network plugins of containers give them, and Docker.
const NAMED: [&str; 2] = ["/run/netns", "/run/docker/netns"];

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
    // With `hidepid` the first process is hidden from everybody but root and itself (proc(5)).
    if !files::exists("/proc/1") {
        all.unseen = Some("processes of others are hidden here (hidepid of proc(5))".to_owned());
    }
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
    let mut take = |netlink: Result<Netlink, NetlinkError>, who: &dyn Fn() -> String| {
        for report in netlink?.links()? {
            let function = report.device.as_deref().and_then(|device| pci::function_of_device(root, device));
            if let Some(function) = function.filter(|function| wanted.contains(function)) {
                all.found.entry(function).or_insert_with(who);
            }
        }
        Ok::<(), NetlinkError>(())
    };
    let mut closed = None;
    for id in homes.values() {
        match take(Netlink::in_namespace_of(*id), &|| who(*id)) {
            Err(error) if files::exists(format!("/proc/{id}")) => {
                closed.get_or_insert(format!("{}: {}", who(*id), chain(&error)));
            }
            // It has ended, then.
            Ok(()) | Err(_) => {}
        }
    }
    for directory in NAMED {
        let names = match files::list(directory) {
            Ok(names) => names,
            Err(error) if error.is_missing() => continue,
            Err(error) => {
                closed.get_or_insert(chain(&error));
                continue;
            }
        };
        for name in names {
            let opened = NetworkNamespace::open(format!("{directory}/{name}"));
            let opened = opened.and_then(|namespace| Ok((namespace.identity()?, namespace)));
            let ((_, inode), namespace) = match opened {
                Ok(opened) => opened,
                Err(error) if error.is_missing() => continue,
                Err(error) => {
                    closed.get_or_insert(chain(&error));
                    continue;
                }
            };
            // As links of processes write it (namespaces(7)).
            let home = PathBuf::from(format!("net:[{inode}]"));
            if Some(&home) == own.as_ref() || homes.contains_key(&home) {
                continue;
            }
            match take(namespace.netlink(), &|| format!("the network namespace {name}")) {
                Ok(()) => {}
                // What is no namespace any more is an empty file (setns(2), EINVAL).
                Err(NetlinkError::Socket { source, .. }) if source.kind() == ErrorKind::InvalidInput => {}
                Err(error) => drop(closed.get_or_insert(chain(&error))),
            }
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
