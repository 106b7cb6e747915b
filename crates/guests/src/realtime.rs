//! A guest's CPUs as a partition of its own, and how its threads are scheduled.
//!
//! A container's partition is the control group that LXC made for it. A VM's virtual CPUs are in a group each, which libvirt makes
//! somewhere below its own: with systemd in a scope of `machine.slice`, without it in `machine`. They are found by the threads that
//! are in them. QEMU's other threads stay outside.

use std::collections::{BTreeMap, BTreeSet};

use penstock_host::{
    Root,
    cgroup::{CgroupError, Cgroups},
    scheduling::{self, Scheduled, SchedulingError},
    threads::{ThreadsError, vcpu_threads},
};
use penstock_model::{CpuSet, GuestName, Scheduling, SchedulingPolicy};
use thiserror::Error;

use crate::state::PREFIX;

/// A guest that is there.
#[derive(Clone, Copy, Debug)]
pub enum There<'a> {
    /// A container, by its first process.
    Container(&'a GuestName, u32),
    /// A VM, by its QEMU.
    Vm(u32),
}

/// Why a guest was not isolated or scheduled as it should be.
#[derive(Debug, Error)]
pub enum RealtimeError {
    /// The control groups.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// Its threads were not scheduled as asked for.
    #[error(transparent)]
    Scheduling(#[from] SchedulingError),
    /// QEMU's threads could not be looked at.
    #[error(transparent)]
    Threads(#[from] ThreadsError),
    /// A container's first process is in no group of LXC's.
    #[error("its first process is in no control group that LXC made for it")]
    NoGroup,
    /// libvirt has not given the virtual CPUs groups of their own.
    #[error("virtual CPU {vcpu} is in the control group {group} with other threads of QEMU")]
    NotAlone {
        /// The virtual CPU.
        vcpu: u32,
        /// The path of the control group, below the root of the groups.
        group: String,
    },
    /// It was started for other CPUs.
    #[error("its control groups have the CPUs {seen} and not {wanted}")]
    OtherCpus {
        /// What they have.
        seen: CpuSet,
        /// What was asked for.
        wanted: CpuSet,
    },
}

impl RealtimeError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RealtimeError::Cgroup(error) => error.hint(),
            RealtimeError::Scheduling(error) => error.hint(),
            RealtimeError::NotAlone { .. } => Some(
                "let libvirt use control groups: `cgroup_controllers` in /etc/libvirt/qemu.conf must have \"cpuset\"",
            ),
            RealtimeError::OtherCpus { .. } => {
                Some("stop the guest and start it again: its CPUs are given at its start")
            }
            RealtimeError::Threads(_) | RealtimeError::NoGroup => None,
        }
    }
}

/// The control groups of a guest's CPUs, each with the CPUs that it was given.
fn groups(
    root: &Root,
    cgroups: &Cgroups,
    guest: There<'_>,
) -> Result<BTreeMap<String, CpuSet>, RealtimeError> {
    let names: BTreeSet<String> = match guest {
        There::Container(name, pid) => {
            [container_group(root, name, pid).ok_or(RealtimeError::NoGroup)?].into()
        }
        There::Vm(pid) => {
            let vcpus = vcpu_threads(root, pid)?;
            let of_qemu = Cgroups::of_thread(root, pid, pid);
            let group = |(vcpu, thread): (u32, u32)| {
                let group = Cgroups::of_thread(root, pid, thread).unwrap_or_default();
                match of_qemu.as_ref() == Some(&group) || group.is_empty() {
                    true => Err(RealtimeError::NotAlone { vcpu, group }),
                    false => Ok(group),
                }
            };
            vcpus.into_iter().map(group).collect::<Result<_, _>>()?
        }
    };
    names.into_iter().map(|name| Ok((name.clone(), cgroups.cpus(&name)?))).collect()
}

/// The group that LXC made for the container whose first process is `pid`, which may have moved below it.
fn container_group(root: &Root, guest: &GuestName, pid: u32) -> Option<String> {
    let group = Cgroups::of_thread(root, pid, pid)?;
    // LXC appends "-1" and so on when a group of that name is left over.
    let ours = format!("/lxc.payload.{PREFIX}{guest}");
    let at = group.find(&ours)? + 1;
    let end = group[at..].find('/').map_or(group.len(), |length| at + length);
    Some(group[..end].to_owned())
}

/// Has the guest's CPUs be a partition of its own.
///
/// # Errors
///
/// [`RealtimeError::OtherCpus`] when the guest runs on other CPUs than `cpus`, [`RealtimeError::NoGroup`] or
/// [`RealtimeError::Cgroup`] when its control group cannot be found or made a valid partition; the kernel's reason is in it.
pub fn isolate(root: &Root, guest: There<'_>, cpus: &CpuSet) -> Result<(), RealtimeError> {
    let cgroups = Cgroups::of(root)?;
    let groups = groups(root, &cgroups, guest)?;
    let seen = CpuSet(groups.values().flat_map(|set| set.0.iter().copied()).collect());
    if seen != *cpus {
        return Err(RealtimeError::OtherCpus { seen, wanted: cpus.clone() });
    }
    Ok(cgroups.isolate(&groups)?)
}

/// Has the guest, if it is there, be no partition any more, and takes back what was claimed for one.
///
/// # Errors
///
/// [`RealtimeError::Cgroup`] when a partition cannot be ended or a claim not be taken back. Without control groups of version 2
/// there is nothing to do.
pub fn release(root: &Root, guest: Option<There<'_>>, cpus: &CpuSet) -> Result<(), RealtimeError> {
    let cgroups = match Cgroups::of(root) {
        Err(CgroupError::NotVersion2 | CgroupError::NoCpuset) => return Ok(()),
        cgroups => cgroups?,
    };
    let groups = guest.and_then(|guest| groups(root, &cgroups, guest).ok()).unwrap_or_default();
    Ok(cgroups.release(groups.keys(), cpus)?)
}

/// The CPUs of the partitions that the guest's groups are; empty where there is none.
pub fn isolated(root: &Root, guest: There<'_>) -> CpuSet {
    let Ok(cgroups) = Cgroups::of(root) else { return CpuSet::default() };
    let groups = groups(root, &cgroups, guest).unwrap_or_default();
    let sets = groups.keys().filter_map(|group| cgroups.isolated(group).ok().flatten());
    CpuSet(sets.flat_map(|set| set.0).collect())
}

/// Whether the guest has its partition, or none, and what is so instead.
///
/// # Errors
///
/// In words, what is so instead.
pub fn is_isolated(root: &Root, guest: Option<There<'_>>, cpus: &CpuSet, on: bool) -> Result<(), String> {
    let seen = guest.map(|guest| isolated(root, guest)).unwrap_or_default();
    if on {
        return match seen {
            seen if seen == *cpus => Ok(()),
            seen if seen.0.is_empty() => Err("it has no valid isolated partition".to_owned()),
            seen => Err(format!("its isolated partition has the CPUs {seen}")),
        };
    }
    if !seen.0.is_empty() {
        return Err(format!("it still has a partition of the CPUs {seen}"));
    }
    match Cgroups::of(root).ok().and_then(|cgroups| cgroups.leftovers(cpus)) {
        Some(group) => Err(format!("control group {group} still claims CPUs of it")),
        None => Ok(()),
    }
}

/// The threads that are scheduled as the guest is: a VM's virtual CPUs, all of a container's, each with its process.
fn threads(root: &Root, guest: There<'_>) -> Vec<u32> {
    match guest {
        There::Vm(pid) => vcpu_threads(root, pid).unwrap_or_default().into_values().collect(),
        There::Container(name, pid) => {
            let group = container_group(root, name, pid);
            let cgroups = Cgroups::of(root).ok();
            cgroups.zip(group).map(|(cgroups, group)| cgroups.threads(&group)).unwrap_or_default()
        }
    }
}

/// Schedules the guest's threads so; later ones of a container inherit it.
///
/// # Errors
///
/// [`RealtimeError::Scheduling`] when the kernel refuses it for a thread, [`RealtimeError::Threads`] or
/// [`RealtimeError::NoGroup`] when no thread of the guest is found.
pub fn schedule(root: &Root, guest: There<'_>, wanted: Scheduling) -> Result<(), RealtimeError> {
    let set = scheduling::set_all(numbers(wanted), || threads(root, guest))?;
    match (set, guest) {
        // Not version 2, or a container without a group of its own: there was nobody to be found.
        (0, There::Container(..)) => Err(Cgroups::of(root).err().map_or(RealtimeError::NoGroup, Into::into)),
        (0, There::Vm(pid)) => Err(ThreadsError::NoVcpus { pid, threads: 0 }.into()),
        _ => Ok(()),
    }
}

/// How all of the guest's threads are scheduled; `None` when they are not alike, or there is none.
pub fn scheduled(root: &Root, guest: There<'_>) -> Option<Scheduled> {
    let mut seen = threads(root, guest).into_iter().filter_map(|thread| scheduling::of(root, thread, thread));
    let first = seen.next()?;
    seen.all(|other| other == first).then_some(first)
}

/// The same as the model has it; `None` also for a policy that no model asks for.
pub fn scheduling(root: &Root, guest: There<'_>) -> Option<Scheduling> {
    let Scheduled { policy, priority } = scheduled(root, guest)?;
    let all = [SchedulingPolicy::Other, SchedulingPolicy::Fifo, SchedulingPolicy::Rr];
    let policy = all.into_iter().find(|known| known.number() == policy)?;
    Some(Scheduling { policy, priority })
}

/// A model's scheduling in the kernel's numbers.
pub fn numbers(wanted: Scheduling) -> Scheduled {
    Scheduled { policy: wanted.policy.number(), priority: wanted.priority }
}

#[cfg(test)]
mod tests {
    use penstock_host::files;

    use super::*;

    fn write(root: &Root, path: &str, text: &str) {
        let path = root.path(path);
        files::create_dir_all(path.parent().unwrap()).unwrap();
        files::write_atomic(path, text).unwrap();
    }

    fn group(root: &Root, group: &str, cpus: &str) {
        for (file, text) in [
            ("cgroup.procs", ""),
            ("cgroup.threads", ""),
            ("cpuset.cpus", cpus),
            ("cpuset.cpus.effective", cpus),
            ("cpuset.cpus.exclusive", "\n"),
            ("cpuset.cpus.partition", "member\n"),
        ] {
            write(root, &format!("/sys/fs/cgroup{group}/{file}"), text);
        }
    }

    fn thread(root: &Root, id: u32, name: &str, of: &str) {
        write(root, &format!("/proc/7/task/{id}/comm"), name);
        write(root, &format!("/proc/7/task/{id}/cgroup"), &format!("0::{of}\n"));
    }

    /// A VM of two virtual CPUs as libvirt keeps it without systemd.
    fn vm() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        write(&root, "/sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n");
        let top = "/machine/qemu-1.libvirt-qemu";
        for (name, cpus) in
            [("/machine", ""), (top, ""), (&format!("{top}/vcpu0"), "2"), (&format!("{top}/vcpu1"), "3")]
        {
            group(&root, name, cpus);
        }
        thread(&root, 7, "qemu-system-x86", &format!("{top}/emulator"));
        thread(&root, 8, "CPU 0/KVM", &format!("{top}/vcpu0"));
        thread(&root, 9, "CPU 1/KVM", &format!("{top}/vcpu1"));
        (directory, root)
    }

    #[test]
    fn the_groups_of_virtual_cpus_become_partitions_and_go_again() {
        let (_directory, root) = vm();
        let cpus: CpuSet = "2-3".parse().unwrap();
        assert!(is_isolated(&root, Some(There::Vm(7)), &cpus, true).is_err());
        isolate(&root, There::Vm(7), &cpus).unwrap();
        assert_eq!(is_isolated(&root, Some(There::Vm(7)), &cpus, true), Ok(()));
        assert_eq!(isolated(&root, There::Vm(7)), cpus);
        let claimed = files::read_to_string(root.path("/sys/fs/cgroup/machine/cpuset.cpus.exclusive"));
        assert_eq!(claimed.unwrap(), "2-3");
        release(&root, Some(There::Vm(7)), &cpus).unwrap();
        assert_eq!(is_isolated(&root, Some(There::Vm(7)), &cpus, false), Ok(()));
    }

    #[test]
    fn who_was_started_otherwise_is_told_apart() {
        let (_directory, root) = vm();
        let other = isolate(&root, There::Vm(7), &"3".parse().unwrap()).unwrap_err();
        assert!(matches!(other, RealtimeError::OtherCpus { .. }), "{other}");
        thread(&root, 9, "CPU 1/KVM", "/machine/qemu-1.libvirt-qemu/emulator");
        let shared = isolate(&root, There::Vm(7), &"2-3".parse().unwrap()).unwrap_err();
        assert!(matches!(shared, RealtimeError::NotAlone { vcpu: 1, .. }), "{shared}");
        assert!(shared.hint().is_some());
    }

    #[test]
    fn a_container_that_is_its_own_init_is_found_by_the_group_of_lxc() {
        let (_directory, root) = vm();
        let name: GuestName = "rt".parse().unwrap();
        thread(&root, 7, "systemd", "/lxc.payload.penstock-rt-1/init.scope");
        assert_eq!(container_group(&root, &name, 7).as_deref(), Some("/lxc.payload.penstock-rt-1"));
        thread(&root, 7, "sh", "/user.slice");
        assert_eq!(container_group(&root, &name, 7), None);
    }
}
