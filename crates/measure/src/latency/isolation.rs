//! How a tool gets onto a CPU that nothing else may use.
//!
//! The CPUs of an isolated partition belong to the tasks of its control group alone: `sched_setaffinity` of any other task is
//! refused (Documentation/admin-guide/cgroup-v2.rst, `cpuset.cpus.partition`). A group whose controllers are handed on to
//! children takes no tasks itself; then a child of it is made, which has the same CPUs.

use penstock_host::{Root, files};
use penstock_model::CpuSet;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";
/// More groups than this are not looked at.
const MOST: usize = 20_000;
/// The child that is made where a group takes no tasks itself.
const CHILD: &str = "penstock-measure";

/// A partition of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its directory below `/sys/fs/cgroup`, as an absolute path.
    pub directory: String,
    /// Its CPUs (`cpuset.cpus.effective`).
    pub cpus: CpuSet,
}

/// The partition that has a CPU; `None` when the CPU is free for all, or there is no version 2 of control groups.
///
/// # Errors
/// In words, when none was found and not all groups could be read: the CPU may be in one of those.
pub fn partition(root: &Root, cpu: u32) -> Result<Option<Partition>, String> {
    let mut level = vec![GROUPS.to_owned()];
    let mut looked = 0;
    let mut unread = None;
    // A group that goes meanwhile, or has no such file, is none.
    let mut read_if_there = |error: files::FileError| {
        if !error.is_missing() {
            unread.get_or_insert_with(|| penstock_host::chain(&error));
        }
    };
    while !level.is_empty() {
        let mut below = Vec::new();
        for directory in level {
            let names = files::list(root.path(&directory)).map_err(&mut read_if_there).unwrap_or_default();
            for name in names {
                let child = format!("{directory}/{name}");
                looked += 1;
                if looked > MOST {
                    return Err(format!(
                        "more than {MOST} entries are in {GROUPS}, and no further ones were looked at"
                    ));
                }
                // Only directories hold the file.
                if !files::exists(root.path(format!("{child}/cgroup.procs"))) {
                    continue;
                }
                let mut read = |file: &str| {
                    let text = files::read_to_string(root.path(format!("{child}/{file}")));
                    text.map_err(&mut read_if_there).ok().map(|text| text.trim().to_owned())
                };
                let state = read("cpuset.cpus.partition").unwrap_or_default();
                if state == "isolated" || state == "root" {
                    let cpus = read("cpuset.cpus.effective").and_then(|text| text.parse::<CpuSet>().ok());
                    if let Some(cpus) = cpus.filter(|cpus| cpus.0.contains(&cpu)) {
                        return Ok(Some(Partition { directory: child, cpus }));
                    }
                }
                below.push(child);
            }
        }
        level = below;
    }
    match unread {
        Some(why) => Err(format!("whether CPU {cpu} is in an isolated partition could not be seen: {why}")),
        None => Ok(None),
    }
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
        let found = |cpu| partition(&root, cpu).unwrap().map(|found| found.directory);
        assert_eq!(found(2).as_deref(), Some("/sys/fs/cgroup/a/b"));
        assert_eq!(found(3), None);
        assert_eq!(found(1).as_deref(), Some("/sys/fs/cgroup/d"));
        let tasks = |cpu| group_for_tasks(&root, &partition(&root, cpu).unwrap().unwrap()).unwrap();
        assert_eq!(tasks(2), "/sys/fs/cgroup/a/b");
        assert_eq!(tasks(1), "/sys/fs/cgroup/d/penstock-measure");
        clean(&root, &partition(&root, 1).unwrap().unwrap());
        assert!(!tree.path().join("sys/fs/cgroup/d/penstock-measure").exists());
    }
    #[test]
    fn groups_that_cannot_be_read_are_not_taken_for_none() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert_eq!(partition(&root, 1), Ok(None), "no control groups at all");
        let groups = tree.path().join("sys/fs/cgroup");
        files::create_dir_all(groups.join("a")).unwrap();
        files::write_atomic(groups.join("a/cgroup.procs"), "").unwrap();
        assert_eq!(partition(&root, 1), Ok(None), "a group without a cpuset");
        // Root reads what nobody may: a directory where a file is to be cannot be read by anybody.
        files::create_dir_all(groups.join("a/cpuset.cpus.partition")).unwrap();
        let why = partition(&root, 1).unwrap_err();
        assert!(why.contains("CPU 1") && why.contains("a/cpuset.cpus.partition"), "{why}");
        // What is found all the same is so.
        files::create_dir_all(groups.join("b")).unwrap();
        for (name, text) in
            [("cgroup.procs", ""), ("cpuset.cpus.partition", "isolated"), ("cpuset.cpus.effective", "1")]
        {
            files::write_atomic(groups.join("b").join(name), text).unwrap();
        }
        assert_eq!(partition(&root, 1).unwrap().unwrap().directory, "/sys/fs/cgroup/b");
    }
}
