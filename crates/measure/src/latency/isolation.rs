//! How a tool gets onto a CPU that nothing else may use.
//!
//! The CPUs of an isolated partition belong to the tasks of its control group alone: `sched_setaffinity` of any other task is
//! refused (Documentation/admin-guide/cgroup-v2.rst, `cpuset.cpus.partition`). A group whose controllers are handed on to
//! children takes no tasks itself; then a child of it is made, which has the same CPUs.

use penstock_host::{Root, files};
use penstock_model::CpuSet;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";
/// Groups this deep are looked at: `/NAME.slice/NAME.scope/payload/...`.
const DEPTH: usize = 5;
/// More groups than this are not looked at.
const MOST: usize = 20_000;
/// The child that is made where a group takes no tasks itself.
const CHILD: &str = "penstock-measure";

/// A partition of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its directory.
    pub directory: String,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// The partition that has a CPU; `None` when the CPU is free for all, or there is no version 2 of control groups.
pub fn partition(root: &Root, cpu: u32) -> Option<Partition> {
    let mut level = vec![GROUPS.to_owned()];
    let mut looked = 0;
    for _ in 0..DEPTH {
        let mut below = Vec::new();
        for directory in level {
            // Only directories hold the file.
            for name in files::list(root.path(&directory)).unwrap_or_default() {
                let child = format!("{directory}/{name}");
                looked += 1;
                if looked > MOST {
                    return None;
                }
                if !files::exists(root.path(format!("{child}/cgroup.procs"))) {
                    continue;
                }
                let read = |file: &str| {
                    let text = files::read_to_string(root.path(format!("{child}/{file}"))).ok()?;
                    Some(text.trim().to_owned())
                };
                let state = read("cpuset.cpus.partition").unwrap_or_default();
                let cpus = || read("cpuset.cpus.effective")?.parse::<CpuSet>().ok();
                let valid = state == "isolated" || state == "root";
                if let Some(cpus) = cpus().filter(|cpus| valid && cpus.0.contains(&cpu)) {
                    return Some(Partition { directory: child, cpus });
                }
                below.push(child);
            }
        }
        level = below;
    }
    None
}

/// The group below a partition that takes tasks.
///
/// # Errors
/// In words, when the child that has to be made cannot be.
pub fn group_for_tasks(root: &Root, partition: &Partition) -> Result<String, String> {
    let control = files::read_to_string(root.path(format!("{}/cgroup.subtree_control", partition.directory)));
    if control.is_ok_and(|control| control.trim().is_empty()) {
        return Ok(partition.directory.clone());
    }
    let child = format!("{}/{CHILD}", partition.directory);
    files::create_dir_all(root.path(&child)).map_err(|error| penstock_host::chain(&error))?;
    Ok(child)
}

/// Removes what [`group_for_tasks`] made, also in an earlier run that was killed; already gone is success.
pub fn clean(root: &Root, partition: &Partition) {
    let child = format!("{}/{CHILD}", partition.directory);
    if files::exists(root.path(&child)) {
        let _ = files::remove_directory(root.path(child));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_valid_partition_of_a_cpu_is_found_and_a_broken_one_is_not() {
        let tree = tempfile::tempdir().unwrap();
        let group = |path: &str, state: &str, cpus: &str, control: &str| {
            let path = tree.path().join("sys/fs/cgroup").join(path);
            files::create_dir_all(&path).unwrap();
            for (name, text) in [
                ("cgroup.procs", ""),
                ("cgroup.subtree_control", control),
                ("cpuset.cpus.partition", state),
                ("cpuset.cpus.effective", cpus),
            ] {
                files::write_atomic(path.join(name), format!("{text}\n")).unwrap();
            }
        };
        group("a", "member", "0-3", "cpuset");
        group("a/b", "isolated", "2", "");
        group("c", "isolated invalid (Cpu list in cpuset.cpus not exclusive)", "3", "");
        group("d", "root", "1", "cpuset memory");
        let root = Root::at(tree.path());
        let found = |cpu| partition(&root, cpu).map(|found| found.directory);
        assert_eq!(found(2).as_deref(), Some("/sys/fs/cgroup/a/b"));
        assert_eq!(found(3), None);
        assert_eq!(found(1).as_deref(), Some("/sys/fs/cgroup/d"));
        let tasks = |cpu| group_for_tasks(&root, &partition(&root, cpu).unwrap()).unwrap();
        assert_eq!(tasks(2), "/sys/fs/cgroup/a/b");
        assert_eq!(tasks(1), "/sys/fs/cgroup/d/penstock-measure");
        clean(&root, &partition(&root, 1).unwrap());
        assert!(!tree.path().join("sys/fs/cgroup/d/penstock-measure").exists());
    }
}
