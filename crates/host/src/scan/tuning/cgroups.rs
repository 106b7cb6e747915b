//! Control groups, and the CPU partitions among them (`Documentation/admin-guide/cgroup-v2.rst`).

use std::collections::VecDeque;

use penstock_model::{
    CpuSet,
    inventory::tuning::{CgroupVersion, Cgroups, Partition, Reading},
};

use super::{cpu_list, flag, why_unread, word};
use crate::scan::reader::Reader;

const GROUPS: &str = "/sys/fs/cgroup";
/// More groups with a cpuset of their own than any machine has: each pod and each VM is one.
const MOST_GROUPS: usize = 10_000;
/// A partition that only a broken machine has more of.
const MOST_PARTITIONS: usize = 1000;

pub(super) fn cgroups(reader: &mut Reader<'_>, unread: &mut Vec<String>) -> Cgroups {
    let controllers = match reader.reading(&format!("{GROUPS}/cgroup.controllers"), word) {
        Reading::Is(controllers) => controllers,
        _ => {
            // Version 1 has a directory for each of its hierarchies; `unified` is version 2's beside them.
            let one = ["cpuset", "cpu", "memory", "unified", "systemd"];
            let is_one = one.iter().any(|name| reader.exists(&format!("{GROUPS}/{name}")));
            let version = if is_one { CgroupVersion::V1 } else { CgroupVersion::Unknown };
            let unbalanced = if is_one { unbalanced(reader) } else { Reading::Absent };
            return Cgroups { version, unbalanced, ..Cgroups::default() };
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
            let file = format!("{GROUPS}{path}/cpuset.cpus.partition");
            let state = reader.reading(&file, word);
            unread.extend(why_unread(&file, &state));
            if let Reading::Is(state) = state
                && state != "member"
            {
                found
                    .partitions
                    .insert(path.trim_start_matches('/').to_owned(), partition(&path, state, reader, unread));
            }
            parents.push_back(path);
        }
    }
    found
}

/// Where version 1 has its cpuset controller.
const CPUSETS: &str = "/sys/fs/cgroup/cpuset";

/// The CPUs of version 1's root group on which no group balances load: the scheduler moves nothing there by itself
/// (`kernel/cgroup/cpuset.c`, `generate_sched_domains`). A group that balances makes its CPUs a domain, whatever the groups below say.
fn unbalanced(reader: &mut Reader<'_>) -> Reading<CpuSet> {
    let mut isolated = CpuSet::default();
    let mut groups = VecDeque::from([String::new()]);
    let mut looked = 0;
    while let Some(group) = groups.pop_front() {
        let cpus = match reader.reading(&format!("{CPUSETS}{group}/cpuset.cpus"), cpu_list) {
            Reading::Is(cpus) => cpus,
            // A group that ended meanwhile is none; without the root's there is no cpuset controller.
            other if group.is_empty() => return other,
            _ => continue,
        };
        let balances = match reader.reading(&format!("{CPUSETS}{group}/cpuset.sched_load_balance"), flag) {
            Reading::Is(balances) => balances,
            Reading::Absent if !group.is_empty() => continue,
            Reading::Absent => return Reading::Absent,
            Reading::Denied => return Reading::Denied,
            Reading::Unreadable(why) => return Reading::Unreadable(why),
        };
        if group.is_empty() {
            isolated = if balances { CpuSet::default() } else { cpus.clone() };
        }
        if balances {
            isolated.0.retain(|cpu| !cpus.0.contains(cpu));
        }
        if isolated.0.is_empty() {
            return Reading::Is(isolated);
        }
        if !balances {
            for name in reader.directories(&format!("{CPUSETS}{group}")) {
                looked += 1;
                if looked > MOST_GROUPS {
                    let why = format!("{CPUSETS} has more than the {MOST_GROUPS} groups that were looked at");
                    return Reading::Unreadable(why);
                }
                groups.push_back(format!("{group}/{name}"));
            }
        }
    }
    Reading::Is(isolated)
}

fn partition(path: &str, state: String, reader: &mut Reader<'_>, unread: &mut Vec<String>) -> Partition {
    let mut cpus = |file: &str| -> CpuSet {
        let file = format!("{GROUPS}{path}/{file}");
        let reading = reader.reading(&file, cpu_list);
        unread.extend(why_unread(&file, &reading));
        reading.known().cloned().unwrap_or_default()
    };
    Partition {
        cpus: cpus("cpuset.cpus"),
        effective: cpus("cpuset.cpus.effective"),
        exclusive: cpus("cpuset.cpus.exclusive"),
        state,
    }
}
