//! Partitions of our own, right below the root of the groups: for CPUs that no guest has and nobody else shall.

use nix::errno::Errno;
use penstock_model::CpuSet;

use super::{CPUS, CgroupError, Cgroups, PARTITION, SUBTREE};
use crate::files;

/// A group in ours that says that the root did not hand the cpuset controller down before: whoever removes the partition
/// knows it by that, whatever became of who made it.
const WAS_OFF: &str = "cpuset-was-off";

impl Cgroups {
    /// Makes a group of ours, without any thread in it, that is an isolated partition of these CPUs. After a failure there is none.
    ///
    /// # Errors
    ///
    /// See [`CgroupError`].
    pub fn make_partition(&self, name: &str, cpus: &CpuSet) -> Result<(), CgroupError> {
        let group = own(name);
        let made = self.make(&group, cpus);
        if made.is_err() {
            let _ = self.remove_partition(name);
        }
        made
    }

    fn make(&self, group: &str, cpus: &CpuSet) -> Result<(), CgroupError> {
        files::create_dir_all(self.path(group, ""))?;
        if !self.hands_down_cpusets("") {
            files::create_dir_all(self.path(group, WAS_OFF))?;
            self.write("", SUBTREE, "+cpuset")?;
        }
        self.write(group, CPUS, &cpus.to_string()).map_err(|error| self.missing(group, error))?;
        self.become_isolated(group, cpus)
    }

    /// Removes such a group, whole or half made; already gone is success. The root hands the cpuset controller down no longer
    /// where it did not before, unless somebody else has come to need it.
    ///
    /// # Errors
    ///
    /// See [`CgroupError`].
    pub fn remove_partition(&self, name: &str) -> Result<(), CgroupError> {
        let group = own(name);
        if !files::exists(self.path(&group, "")) {
            return Ok(());
        }
        let processes = self.read(&group, "cgroup.procs").map_or(0, |text| text.lines().count());
        if processes > 0 {
            return Err(CgroupError::InUse { group, processes });
        }
        if files::exists(self.path(&group, PARTITION)) {
            self.write(&group, PARTITION, "member")?;
        }
        // Before the group goes: it is the only one to know.
        if files::exists(self.path(&group, WAS_OFF)) && !self.others_use_cpusets(&group) {
            match self.write("", SUBTREE, "-cpuset") {
                // Somebody else hands it further down.
                Err(error) if error.source.raw_os_error() == Some(Errno::EBUSY as i32) => {}
                written => written?,
            }
        }
        self.remove(&format!("{group}/{WAS_OFF}"))?;
        self.remove(&group)
    }

    /// Whether a group of ours is there, whole or half made.
    pub fn has_partition(&self, name: &str) -> bool {
        files::exists(self.path(&own(name), ""))
    }

    fn hands_down_cpusets(&self, group: &str) -> bool {
        self.read(group, SUBTREE).is_ok_and(|text| text.split_whitespace().any(|name| name == "cpuset"))
    }

    /// Whether a group right below the root, other than `ours`, was given CPUs or hands the controller further down.
    fn others_use_cpusets(&self, ours: &str) -> bool {
        let uses = |group: &String| {
            self.hands_down_cpusets(group)
                || self.cpus(group).is_ok_and(|cpus| !cpus.0.is_empty())
                || self.read(group, "cpuset.mems").is_ok_and(|nodes| !nodes.is_empty())
        };
        self.children("").iter().filter(|group| *group != ours).any(uses)
    }

    fn remove(&self, group: &str) -> Result<(), CgroupError> {
        Ok(files::remove_directory(self.path(group, ""))?)
    }
}

fn own(name: &str) -> String {
    format!("/{}", name.trim_start_matches('/'))
}
