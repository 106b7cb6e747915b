//! Control groups of version 2, and partitions of CPUs among them (`Documentation/admin-guide/cgroup-v2.rst`, "Cpuset").
//!
//! An isolated partition takes its CPUs away from everybody else's groups, from the scheduler's balancing and from unbound
//! workqueues, without a new start of the kernel. Right below the root it needs nothing more (Linux 6.1). Further down each
//! group on the way must claim the CPUs first (`cpuset.cpus.exclusive`, Linux 6.7): libvirt keeps a VM's virtual CPUs two to three
//! levels below the root, in a group each.
//!
//! The kernel takes a partition that it cannot make, and calls it invalid: what counts is what is read back.

use std::collections::BTreeMap;

use nix::errno::Errno;
use penstock_model::CpuSet;
use thiserror::Error;

use crate::{
    Root,
    files::{self, FileError},
};

mod own;

/// Where version 2 is mounted.
const MOUNT: &str = "/sys/fs/cgroup";
const CPUS: &str = "cpuset.cpus";
const EFFECTIVE: &str = "cpuset.cpus.effective";
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
const PARTITION: &str = "cpuset.cpus.partition";
const SUBTREE: &str = "cgroup.subtree_control";

/// Where libvirt keeps its VMs: with systemd, and without.
const OF_VMS: [&str; 2] = ["machine.slice", "machine"];

/// How deep groups are looked at for claims that nobody needs any more.
const DEEPEST: usize = 16;

/// Why a partition was not made, or not taken back.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// Version 1 is mounted, or nothing.
    #[error("{MOUNT} is not version 2 of control groups alone, and only that has partitions of CPUs")]
    NotVersion2,
    /// The kernel was made or started without it.
    #[error("the kernel's control groups have no cpuset controller")]
    NoCpuset,
    /// The kernel is too old.
    #[error("{what} needs Linux {needs}")]
    TooOld {
        /// What was to be made.
        what: String,
        /// The first kernel that can.
        needs: &'static str,
    },
    /// There is no such group: who was in it has ended.
    #[error("there is no control group {group}")]
    Gone {
        /// The group, below the root of the groups.
        group: String,
    },
    /// Two partitions of one guest would have a CPU in common.
    #[error("the control groups {one} and {other} share the CPUs {cpus}, and a CPU is in one partition only")]
    Shared {
        /// The first of the two groups in the order of their paths; a path below the root of the groups.
        one: String,
        /// The second of them.
        other: String,
        /// What both have.
        cpus: CpuSet,
    },
    /// The kernel made it invalid.
    #[error(
        "control group {group} did not become an isolated partition of the CPUs {cpus}: the kernel says {said:?}{}",
        among(others)
    )]
    Invalid {
        /// The path of the group, below the root of the groups.
        group: String,
        /// The CPUs that it was to have.
        cpus: CpuSet,
        /// What its state reads.
        said: String,
        /// Groups beside it that ask for some of the same CPUs.
        others: Vec<String>,
    },
    /// It became a partition of other CPUs.
    #[error("control group {group} became a partition of the CPUs {seen}, not of {cpus}")]
    Other {
        /// The path of the group, below the root of the groups.
        group: String,
        /// The CPUs that it was to have.
        cpus: CpuSet,
        /// Those that it has.
        seen: CpuSet,
    },
    /// It has processes.
    #[error("control group {group} has {processes} process(es) in it, and would take them along")]
    InUse {
        /// The path of the group, below the root of the groups.
        group: String,
        /// How many processes its `cgroup.procs` lists.
        processes: usize,
    },
    /// A file of a group.
    #[error(transparent)]
    File(#[from] FileError),
}

fn among(others: &[String]) -> String {
    match others {
        [] => String::new(),
        _ => format!(
            "; {} {} some of these CPUs",
            others.join(", "),
            if others.len() == 1 { "asks for" } else { "ask for" }
        ),
    }
}

impl CgroupError {
    /// Whether this machine cannot do it at all.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, CgroupError::NotVersion2 | CgroupError::NoCpuset | CgroupError::TooOld { .. })
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            CgroupError::NotVersion2 => Some(
                "start the kernel with systemd.unified_cgroup_hierarchy=1, or isolate the CPUs from its start on with isolcpus=domain,managed_irq,CPUS",
            ),
            CgroupError::NoCpuset | CgroupError::TooOld { .. } => Some(
                "take a newer kernel, or isolate the CPUs from its start on with isolcpus=domain,managed_irq,CPUS",
            ),
            CgroupError::Shared { .. } => {
                Some("give the VM as many virtual CPUs as `pin` has CPUs: each then has one alone")
            }
            CgroupError::Invalid { others, .. } if !others.is_empty() => Some(
                "take these CPUs out of the other groups: `pin` of a guest, AllowedCPUs= of a unit of systemd",
            ),
            CgroupError::File(FileError { source, .. })
                if matches!(
                    source.raw_os_error().map(Errno::from_raw),
                    Some(Errno::EACCES | Errno::EPERM | Errno::EROFS)
                ) =>
            {
                Some("run Penstock as root, and not inside a container")
            }
            _ => None,
        }
    }
}

/// The control groups of a machine. Groups are named by their path below the root of the groups, `/` in front: as
/// `/proc/PID/cgroup` has them.
#[derive(Clone, Debug)]
pub struct Cgroups {
    root: Root,
}

impl Cgroups {
    /// The groups of the machine under `root`.
    ///
    /// # Errors
    ///
    /// When version 2 is not what is mounted, or has no cpuset controller.
    pub fn of(root: &Root) -> Result<Cgroups, CgroupError> {
        let controllers = files::read_to_string(root.path(format!("{MOUNT}/cgroup.controllers")))
            .map_err(|_| CgroupError::NotVersion2)?;
        if !controllers.split_whitespace().any(|name| name == "cpuset") {
            return Err(CgroupError::NoCpuset);
        }
        Ok(Cgroups { root: root.clone() })
    }

    /// The group of a thread; `None` when it has ended, or lies outside what is mounted here.
    pub fn of_thread(root: &Root, process: u32, thread: u32) -> Option<String> {
        let text = files::read_to_string(root.path(format!("/proc/{process}/task/{thread}/cgroup"))).ok()?;
        let group = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        (group.starts_with('/') && !group.split('/').any(|part| part == "..")).then(|| group.to_owned())
    }

    /// The threads of a group and of those below it.
    pub fn threads(&self, group: &str) -> Vec<u32> {
        let mut all = Vec::new();
        let mut groups = vec![(group.to_owned(), 0)];
        while let Some((group, depth)) = groups.pop() {
            let text = self.read(&group, "cgroup.threads").unwrap_or_default();
            all.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            if depth < DEEPEST {
                groups.extend(self.children(&group).into_iter().map(|child| (child, depth + 1)));
            }
        }
        all
    }

    /// `cpuset.cpus.partition` of a group as it reads: `member`, `isolated`, `isolated invalid (reason)`.
    ///
    /// # Errors
    ///
    /// [`CgroupError::Gone`] when there is no such group, [`CgroupError::NoCpuset`] when the group above does not hand the
    /// controller down, [`CgroupError::File`] when its file cannot be read.
    pub fn state(&self, group: &str) -> Result<String, CgroupError> {
        self.read(group, PARTITION).map_err(|error| self.missing(group, error))
    }

    /// The CPUs that a group was given (`cpuset.cpus`).
    ///
    /// # Errors
    ///
    /// [`CgroupError::Gone`] when there is no such group, [`CgroupError::NoCpuset`] when the group above does not hand the
    /// controller down, [`CgroupError::File`] when its file cannot be read.
    pub fn cpus(&self, group: &str) -> Result<CpuSet, CgroupError> {
        let text = self.read(group, CPUS).map_err(|error| self.missing(group, error))?;
        Ok(text.parse().unwrap_or_default())
    }

    /// The CPUs of an isolated partition: what its threads may run on, when it is a valid one.
    ///
    /// # Errors
    ///
    /// As [`state`](Cgroups::state), of either of the two files that are read.
    pub fn isolated(&self, group: &str) -> Result<Option<CpuSet>, CgroupError> {
        if self.state(group)? != "isolated" {
            return Ok(None);
        }
        let text = self.read(group, EFFECTIVE).map_err(|error| self.missing(group, error))?;
        Ok(Some(text.parse().unwrap_or_default()))
    }

    /// Makes each of these groups, which have been given their CPUs already, an isolated partition of them. All or none: after a
    /// failure they are as before.
    ///
    /// # Errors
    ///
    /// See [`CgroupError`].
    pub fn isolate(&self, groups: &BTreeMap<String, CpuSet>) -> Result<(), CgroupError> {
        for (position, (one, cpus)) in groups.iter().enumerate() {
            for (other, others) in groups.iter().take(position) {
                let both: CpuSet = CpuSet(cpus.0.intersection(&others.0).copied().collect());
                if !both.0.is_empty() {
                    return Err(CgroupError::Shared { one: other.clone(), other: one.clone(), cpus: both });
                }
            }
        }
        // Those that were one before, from an attempt that was stopped, stay one.
        let mut made = BTreeMap::new();
        for (group, cpus) in groups {
            let before = self.isolated(group);
            if before.as_ref().is_ok_and(|before| before.as_ref() == Some(cpus)) {
                continue;
            }
            made.insert(group, cpus);
            if let Err(error) = before.and_then(|_| self.isolate_one(group, cpus)) {
                // What was said first is what counts.
                let _ = self.release(made.keys().copied(), &all(made.values().copied()));
                return Err(error);
            }
        }
        Ok(())
    }

    fn isolate_one(&self, group: &str, cpus: &CpuSet) -> Result<(), CgroupError> {
        let above: Vec<&str> = above(group).collect();
        if !above.is_empty() {
            for claiming in above.iter().copied().chain([group]) {
                self.claim(claiming, cpus)?;
            }
        }
        self.become_isolated(group, cpus)
    }

    /// Writes the state and looks what came of it.
    fn become_isolated(&self, group: &str, cpus: &CpuSet) -> Result<(), CgroupError> {
        match self.write(group, PARTITION, "isolated") {
            Err(error) if error.is_missing() && files::exists(self.path(group, "cgroup.procs")) => {
                return Err(CgroupError::TooOld { what: "a partition of CPUs".to_owned(), needs: "5.0" });
            }
            Err(error) if error.source.raw_os_error() == Some(Errno::EINVAL as i32) => {
                return Err(CgroupError::TooOld { what: "an isolated partition".to_owned(), needs: "6.1" });
            }
            written => written.map_err(|error| self.missing(group, error))?,
        }
        let said = self.state(group)?;
        if said != "isolated" {
            let others = self.asking_for(group, cpus);
            return Err(CgroupError::Invalid { group: group.to_owned(), cpus: cpus.clone(), said, others });
        }
        match self.isolated(group)? {
            Some(seen) if seen == *cpus => Ok(()),
            seen => Err(CgroupError::Other {
                group: group.to_owned(),
                cpus: cpus.clone(),
                seen: seen.unwrap_or_default(),
            }),
        }
    }

    /// Groups beside `group` that were given some of these CPUs, or claim them.
    fn asking_for(&self, group: &str, cpus: &CpuSet) -> Vec<String> {
        let parent = group.rsplit_once('/').map_or("", |(parent, _)| parent);
        let asks = |other: &String| {
            [CPUS, EXCLUSIVE].iter().any(|file| {
                let set = self.read(other, file).ok().and_then(|text| text.parse::<CpuSet>().ok());
                set.is_some_and(|set| !set.0.is_disjoint(&cpus.0))
            })
        };
        self.children(parent).into_iter().filter(|other| other != group).filter(asks).collect()
    }

    /// Adds CPUs to what a group claims for partitions in it.
    fn claim(&self, group: &str, cpus: &CpuSet) -> Result<(), CgroupError> {
        let claimed = match self.claimed(group) {
            Err(error) if error.is_missing() && files::exists(self.path(group, "cgroup.procs")) => {
                return Err(CgroupError::TooOld {
                    what: format!("a partition as deep as {group}"),
                    needs: "6.7",
                });
            }
            claimed => claimed.map_err(|error| self.missing(group, error))?,
        };
        if cpus.0.is_subset(&claimed.0) {
            return Ok(());
        }
        let wider = CpuSet(claimed.0.union(&cpus.0).copied().collect());
        self.write(group, EXCLUSIVE, &wider.to_string()).map_err(|error| match error.source.raw_os_error() {
            Some(code) if code == Errno::EINVAL as i32 => CgroupError::Invalid {
                others: self.asking_for(group, cpus),
                group: group.to_owned(),
                cpus: cpus.clone(),
                said: "not exclusive".to_owned(),
            },
            _ => self.missing(group, error),
        })
    }

    fn claimed(&self, group: &str) -> files::Result<CpuSet> {
        Ok(self.read(group, EXCLUSIVE)?.parse().unwrap_or_default())
    }

    /// Has these groups, as far as they are there still, be members of the one above again, and takes back what was claimed of `cpus`
    /// on the way to them and wherever libvirt keeps VMs: a VM that has ended leaves claims above its own groups.
    ///
    /// # Errors
    ///
    /// The first of what went wrong; it goes on past it.
    pub fn release<'a>(
        &self,
        groups: impl IntoIterator<Item = &'a String>,
        cpus: &CpuSet,
    ) -> Result<(), CgroupError> {
        let mut outcome = Ok(());
        let mut tops: Vec<String> = OF_VMS.iter().map(|name| format!("/{name}")).collect();
        for group in groups {
            let member = match self.state(group) {
                Ok(state) if state == "member" => Ok(()),
                Ok(_) => self.write(group, PARTITION, "member").map_err(|error| self.missing(group, error)),
                Err(error) => Err(error),
            };
            outcome = outcome.and(match member {
                Err(CgroupError::Gone { .. }) => Ok(()),
                member => member,
            });
            if let Some(top) = above(group).next()
                && !tops.iter().any(|known| known == top)
            {
                tops.push(top.to_owned());
            }
        }
        for top in tops {
            outcome = outcome.and(self.disclaim(&top, cpus, 0).map(drop));
        }
        outcome
    }

    /// Whether something of these CPUs is claimed where libvirt keeps VMs and no partition has it.
    pub fn leftovers(&self, cpus: &CpuSet) -> Option<String> {
        OF_VMS.iter().map(|name| format!("/{name}")).find(|top| {
            self.claimed(top).is_ok_and(|claimed| {
                let ours: CpuSet = CpuSet(claimed.0.intersection(&cpus.0).copied().collect());
                !ours.0.is_subset(&self.needed(top, 0).0)
            })
        })
    }

    /// What of a group's claims the partitions in it need.
    fn needed(&self, group: &str, depth: usize) -> CpuSet {
        if self.state(group).is_ok_and(|state| state != "member") {
            return self.claimed(group).unwrap_or_default();
        }
        let claiming = |child: &String| self.claimed(child).is_ok_and(|claimed| !claimed.0.is_empty());
        if depth == DEEPEST {
            return CpuSet::default();
        }
        let children = self.children(group).into_iter().filter(claiming);
        all(children.map(|child| self.needed(&child, depth + 1)).collect::<Vec<_>>().iter())
    }

    /// Takes back what of `cpus` this group and those below it claim and no partition in them needs; says what is needed.
    fn disclaim(&self, group: &str, cpus: &CpuSet, depth: usize) -> Result<CpuSet, CgroupError> {
        let Ok(claimed) = self.claimed(group) else { return Ok(CpuSet::default()) };
        if claimed.0.is_disjoint(&cpus.0) || depth == DEEPEST {
            return Ok(claimed);
        }
        match self.state(group) {
            Ok(state) if state != "member" => return Ok(claimed),
            // It has gone since, with what it claimed.
            Err(CgroupError::Gone { .. }) => return Ok(CpuSet::default()),
            state => drop(state?),
        }
        let mut needed = CpuSet::default();
        for child in self.children(group) {
            needed.0.extend(self.disclaim(&child, cpus, depth + 1)?.0);
        }
        let kept = CpuSet(
            claimed.0.iter().copied().filter(|cpu| !cpus.0.contains(cpu) || needed.0.contains(cpu)).collect(),
        );
        if kept != claimed {
            // An empty text is no write at all.
            let text = if kept.0.is_empty() { "\n".to_owned() } else { kept.to_string() };
            match self.write(group, EXCLUSIVE, &text) {
                Err(error) if files::exists(self.path(group, "cgroup.procs")) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(kept)
    }

    fn children(&self, group: &str) -> Vec<String> {
        let names = files::list(self.path(group, "")).unwrap_or_default();
        let is_group = |child: &String| files::exists(self.path(child, "cgroup.procs"));
        names.into_iter().map(|name| format!("{group}/{name}")).filter(is_group).collect()
    }

    fn path(&self, group: &str, file: &str) -> std::path::PathBuf {
        self.root.path(format!("{MOUNT}{group}/{file}"))
    }

    fn read(&self, group: &str, file: &str) -> files::Result<String> {
        files::read_to_string(self.path(group, file)).map(|text| text.trim().to_owned())
    }

    fn write(&self, group: &str, file: &str, text: &str) -> files::Result<()> {
        files::write_attribute(self.path(group, file), text)
    }

    /// A missing file of a group that is there, or of one that is not.
    fn missing(&self, group: &str, error: FileError) -> CgroupError {
        let gone = error.is_missing() || error.source.raw_os_error() == Some(Errno::ENODEV as i32);
        if !gone {
            return error.into();
        }
        if files::exists(self.path(group, "cgroup.procs")) {
            // The group above does not hand the controller down.
            return CgroupError::NoCpuset;
        }
        CgroupError::Gone { group: group.to_owned() }
    }
}

/// The groups above one, the topmost first, without the root.
fn above(group: &str) -> impl Iterator<Item = &str> {
    group.match_indices('/').skip(1).map(|(at, _)| &group[..at])
}

fn all<'a>(sets: impl Iterator<Item = &'a CpuSet>) -> CpuSet {
    CpuSet(sets.flat_map(|set| set.0.iter().copied()).collect())
}

#[cfg(test)]
mod tests;
