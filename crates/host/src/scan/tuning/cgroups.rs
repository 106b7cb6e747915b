//! Control groups, and the CPU partitions among them (`Documentation/admin-guide/cgroup-v2.rst`).

use std::collections::VecDeque;

use penstock_model::{
    CpuSet,
    inventory::tuning::{CgroupVersion, Cgroups, Partition, Reading},
};

use super::{cpu_list, word};
use crate::scan::reader::Reader;

const GROUPS: &str = "/sys/fs/cgroup";
/// More groups with a cpuset of their own than any machine has: each pod and each VM is one.
const MOST_GROUPS: usize = 10_000;
/// A partition that only a broken machine has more of.
const MOST_PARTITIONS: usize = 1000;

pub(super) fn cgroups(reader: &mut Reader<'_>) -> Cgroups {
    let controllers = match reader.reading(&format!("{GROUPS}/cgroup.controllers"), word) {
        Reading::Is(controllers) => controllers,
        _ => {
            // Version 1 has a directory for each of its hierarchies; `unified` is version 2's beside them.
            let one = ["cpuset", "cpu", "memory", "unified", "systemd"];
            let is_one = one.iter().any(|name| reader.exists(&format!("{GROUPS}/{name}")));
            let version = if is_one { CgroupVersion::V1 } else { CgroupVersion::Unknown };
            return Cgroups { version, ..Cgroups::default() };
        }
    };
    let mut found = Cgroups {
        version: CgroupVersion::V2,
        controllers: controllers.split_whitespace().map(str::to_owned).collect(),
        isolated: reader.reading(&format!("{GROUPS}/cpuset.cpus.isolated"), cpu_list),
        ..Cgroups::default()
    };
    // Only a group whose parent hands the cpuset on can be a partition.
    let mut parents = VecDeque::from([String::new()]);
    let mut looked = 0;
    while let Some(parent) = parents.pop_front() {
        let handed = reader.reading(&format!("{GROUPS}{parent}/cgroup.subtree_control"), word);
        let handed = handed.known().is_some_and(|list| list.split_whitespace().any(|one| one == "cpuset"));
        if !handed {
            continue;
        }
        for name in reader.directories(&format!("{GROUPS}{parent}")) {
            looked += 1;
            if looked > MOST_GROUPS || found.partitions.len() >= MOST_PARTITIONS {
                reader.note(format!("{GROUPS} has more groups than the {MOST_GROUPS} that were looked at"));
                return found;
            }
            let path = format!("{parent}/{name}");
            let state = reader.reading(&format!("{GROUPS}{path}/cpuset.cpus.partition"), word);
            if let Reading::Is(state) = state
                && state != "member"
            {
                found
                    .partitions
                    .insert(path.trim_start_matches('/').to_owned(), partition(&path, state, reader));
            }
            parents.push_back(path);
        }
    }
    found
}

fn partition(path: &str, state: String, reader: &mut Reader<'_>) -> Partition {
    let mut cpus = |file: &str| -> CpuSet {
        reader.value(&format!("{GROUPS}{path}/{file}"), "CPU list").unwrap_or_default()
    };
    Partition {
        cpus: cpus("cpuset.cpus"),
        effective: cpus("cpuset.cpus.effective"),
        exclusive: cpus("cpuset.cpus.exclusive"),
        state,
    }
}
