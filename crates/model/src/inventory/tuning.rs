//! What of a machine decides how late a thread wakes: read by `host`, judged by `audit`, changed by a plan.
//!
//! What could not be read is never taken for its default: each value is a [`Reading`], which tells a file that is not there
//! from one that may not be read.

mod knob;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use knob::{Knob, ParseKnobError, ParseValueError, Value};

use super::HugePages;
use crate::{Bdf, CpuSet};

/// What came of looking at something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reading<T> {
    /// It is so.
    Is(T),
    /// It is not there: this kernel or this machine has none.
    #[default]
    Absent,
    /// It may not be read by who looked.
    Denied,
    /// It is there and could not be read, or makes no sense; why, in words.
    Unreadable(String),
}

impl<T> Reading<T> {
    /// What was read.
    pub fn known(&self) -> Option<&T> {
        match self {
            Reading::Is(value) => Some(value),
            _ => None,
        }
    }

    /// The same with another value in its place.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Reading::Is(value) => Reading::Is(make(value)),
            Reading::Absent => Reading::Absent,
            Reading::Denied => Reading::Denied,
            Reading::Unreadable(why) => Reading::Unreadable(why),
        }
    }
}

/// All that was read of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Tuning {
    /// Files of one value. One that is left out was not looked at.
    pub knobs: BTreeMap<Knob, Reading<Value>>,
    /// Device interrupts by number.
    pub irqs: BTreeMap<u32, Irq>,
    /// Whether `/proc/interrupts` could be read, which alone says who has an interrupt. Absent: it is not there, or nobody looked.
    pub irq_table: Reading<()>,
    /// Idle states of each CPU that has any, the shallowest first.
    pub idle: BTreeMap<u32, Vec<IdleState>>,
    /// What enters idle states (`cpuidle/current_driver`).
    pub idle_driver: Reading<String>,
    /// What drives frequencies (`scaling_driver`), by CPU.
    pub frequency_drivers: BTreeMap<u32, String>,
    /// Whether frequencies above the nominal one are used (`cpufreq/boost`, or `intel_pstate/no_turbo` the other way round).
    pub turbo: Reading<bool>,
    /// CPUs without a periodic tick while one thread runs (`nohz_full`).
    pub tickless: Reading<CpuSet>,
    /// CPUs that unbound workqueues were taken off by isolation (`workqueue/cpumask_isolated`).
    pub workqueues_isolated: Reading<CpuSet>,
    /// Control groups and the CPU partitions among them.
    pub cgroups: Cgroups,
    /// Cache and memory-bandwidth allocation (`Documentation/filesystems/resctrl.rst`). Absent: not mounted, or the CPU has none.
    pub resctrl: Reading<Resctrl>,
    /// Whether the CPU can share out its caches or its memory bandwidth (`cat_l3`, `cat_l2`, `mba` ... in `/proc/cpuinfo`).
    pub cpu_flags: BTreeSet<String>,
    /// The clock source that is used.
    pub clock_source: Reading<String>,
    /// The clock sources that can be chosen (`available_clocksource`).
    pub clock_sources: Reading<BTreeSet<String>>,
    /// Parameters of loaded modules, by `module.parameter`: of `kvm`, `kvm_intel`, `kvm_amd`, `rcupdate`, `rcutree`,
    /// `pcie_aspm`, `intel_idle`, `processor`, `workqueue`.
    pub parameters: BTreeMap<String, Reading<String>>,
    /// Modules of these that are not built into the kernel, so that they can be loaded anew (`/sys/module/*/initstate`).
    pub loadable: BTreeSet<String>,
    /// How the kernel was built, without `CONFIG_`: what is not set is left out. Only options that a rule asks for are kept
    /// (`/proc/config.gz`, or the distribution's copy in `/boot`).
    pub build: Reading<BTreeMap<String, String>>,
    /// Weaknesses of the CPU and what is done about each (`/sys/devices/system/cpu/vulnerabilities`).
    pub vulnerabilities: BTreeMap<String, Reading<String>>,
    /// SMT: `on`, `off`, `forceoff`, `notsupported`... (`/sys/devices/system/cpu/smt/control`).
    pub smt: Reading<String>,
    /// Whether SELinux enforces. Absent: it is off, or the kernel has none.
    pub selinux_enforcing: Reading<bool>,
    /// How many decisions SELinux caches (`avc/cache_threshold`).
    pub selinux_cache: Reading<u64>,
    /// The security modules that are in force (`/sys/kernel/security/lsm`): `selinux`, `apparmor`, `lockdown`...
    pub security_modules: Reading<BTreeSet<String>>,
    /// Transparent huge pages by size in KiB, where the kernel has a choice for each: `always`, `inherit`, `madvise`, `never`
    /// (`hugepages-*kB/enabled`, Linux 6.8 on).
    pub transparent_sizes: BTreeMap<u64, Reading<String>>,
    /// Pools of huge pages of each NUMA node (`/sys/devices/system/node/nodeN/hugepages`).
    pub node_huge_pages: BTreeMap<u32, Vec<HugePages>>,
    /// Programs that run and move threads, interrupts or frequencies about, or trigger firmware: `irqbalance`, `tuned`, `stalld`,
    /// `fwupd`, `thermald`, `power-profiles-daemon`, `ksmd` at work...
    pub programs: BTreeSet<String>,
    /// What irqbalance was told; `None`: it does not run.
    pub irqbalance: Option<Irqbalance>,
    /// Whether processes of others are hidden from who looked (`hidepid`, proc(5)): nothing is known of programs and VMs then.
    pub processes_hidden: bool,
    /// Processes of QEMU, by id.
    pub vms: BTreeMap<u32, VmProcess>,
    /// Where functions that guests may have are, beside what the rest of the inventory has: their links.
    pub links: BTreeMap<Bdf, PciLink>,
    /// Groups below `/sys/kernel/iommu_groups` that VFIO made up where no IOMMU is (`vfio-noiommu`).
    pub groups_without_iommu: Reading<BTreeSet<u32>>,
    /// Words of the command line that the kernel said it does not know.
    pub unknown_parameters: Reading<Vec<String>>,
    /// `word=value` of words that it knows, whose value it said that it refuses.
    pub refused_values: Vec<String>,
    /// Where the program that looked may run, and with it the session that it was started in (`Cpus_allowed_list` in
    /// `/proc/self/status`).
    pub own_cpus: Reading<CpuSet>,
    /// What was listed and could not be read, so that the lists above are not whole.
    pub unread: Unread,
    /// Whether the boot command line could be read. Absent: nobody looked.
    pub command_line: Reading<()>,
    /// What went on while somebody watched; `None`: nobody did.
    pub watched: Option<Watched>,
}

/// What was listed and could not be read, in words: what it is, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Unread {
    /// Of the control groups that are partitions, or may be.
    pub partitions: Vec<String>,
    /// Of the processes of VMs, and what works for them.
    pub processes: Vec<String>,
    /// Of the groups of resctrl.
    pub resctrl: Vec<String>,
}

/// A device interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Irq {
    /// Who asked for it, as `/proc/interrupts` says; empty when nobody has.
    pub users: Vec<String>,
    /// Its controller and its kind there, as `/proc/interrupts` says: `IR-PCI-MSIX-0000:04:00.0`, `IO-APIC`.
    pub chip: String,
    /// The function whose interrupt it is (`msi_irqs` of its PCI directory).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<Bdf>,
    /// Where it is delivered in fact (`effective_affinity_list`).
    pub effective: Reading<CpuSet>,
    /// How often each CPU had it since the start, by CPU, without those that never had.
    pub counts: BTreeMap<u32, u64>,
}

impl Irq {
    /// Whether the kernel itself places it (`IRQD_AFFINITY_MANAGED`, `kernel/irq/affinity.c`) and refuses another affinity: queues
    /// of NVMe, of virtio block devices, SCSI hosts and file systems, and of storage controllers. The kernel does not tell user space,
    /// so it is judged by the names that such drivers give (`nvme0q1`, `virtio1-req.0`, `virtio2-request`, `virtio3-requests.0`). The
    /// first NVMe interrupt, `nvme0q0`, is for administration, and is not managed.
    pub fn is_kernel_managed(&self) -> bool {
        let queue = |user: &String| {
            let nvme =
                user.starts_with("nvme") && user.split_once('q').is_some_and(|(_, queue)| queue != "0");
            let virtio = user.starts_with("virtio") && user.contains("-req");
            nvme || virtio || user.starts_with("megasas") || user.starts_with("mpt3sas")
        };
        self.users.iter().any(queue)
    }
}

/// What irqbalance was told of the CPUs that it is to leave alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Irqbalance {
    /// Its variables as it runs with them (`/proc/PID/environ`): for root alone.
    pub environment: Reading<BTreeMap<String, String>>,
    /// Its variables as its settings and the drop-ins of its unit give them when it starts.
    pub settings: BTreeMap<String, String>,
    /// The distribution's file of settings; `None`: neither of those known is there.
    pub file: Option<String>,
}

/// An idle state of a CPU (`Documentation/admin-guide/pm/cpuidle.rst`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct IdleState {
    /// `POLL`, `C1`, `C6`...
    pub name: String,
    /// Microseconds that waking from it takes.
    pub latency: u64,
    /// Whether it was switched off.
    pub disabled: bool,
    /// How often it was entered since the start.
    pub usage: u64,
}

/// Control groups as this machine has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Cgroups {
    /// How they are mounted.
    pub version: CgroupVersion,
    /// The controllers of the root (`cgroup.controllers`).
    pub controllers: BTreeSet<String>,
    /// CPUs in isolated partitions (`cpuset.cpus.isolated`).
    pub isolated: Reading<CpuSet>,
    /// Of version 1: CPUs on which no group balances load (`cpuset.sched_load_balance`), which isolates them at run time
    /// (`Documentation/admin-guide/cgroup-v1/cpusets.rst`).
    pub unbalanced: Reading<CpuSet>,
    /// Groups that are, or want to be, a partition of CPUs, by path below the root of the groups.
    pub partitions: BTreeMap<String, Partition>,
}

/// How control groups are mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    /// Version 2 alone.
    V2,
    /// Version 1 controllers, with or without a second hierarchy of version 2.
    V1,
    /// Nothing is mounted, or it could not be seen.
    #[default]
    Unknown,
}

/// A group that is, or wants to be, a partition of CPUs (`Documentation/admin-guide/cgroup-v2.rst`, cpuset).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Partition {
    /// `cpuset.cpus.partition` as it reads: `root`, `isolated`, `isolated invalid (reason)`.
    pub state: String,
    /// `cpuset.cpus`.
    pub cpus: CpuSet,
    /// `cpuset.cpus.effective`.
    pub effective: CpuSet,
    /// `cpuset.cpus.exclusive`.
    pub exclusive: CpuSet,
}

/// Cache and memory-bandwidth allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Resctrl {
    /// The capacity mask of a whole cache, by resource (`L3`, `L2`, `L3CODE`...): its bits are ways.
    pub masks: BTreeMap<String, u64>,
    /// The ways that devices write to as well (`shareable_bits`), by resource.
    pub shareable: BTreeMap<String, u64>,
    /// The least bits that a group may have, by resource (`min_cbm_bits`).
    pub least_bits: BTreeMap<String, u32>,
    /// How many groups there can be, the default one included (`num_closids`, the least of all resources).
    pub most_groups: Option<u32>,
    /// Least share of memory bandwidth, and the step between two, in percent; `None`: the CPU cannot limit it.
    pub bandwidth: Option<(u32, u32)>,
    /// Groups by name; the default one is called by the empty name.
    pub groups: BTreeMap<String, ResctrlGroup>,
}

/// A group of CPUs and tasks that share caches and memory bandwidth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ResctrlGroup {
    /// Its CPUs (`cpus_list`).
    pub cpus: CpuSet,
    /// Its capacity masks, or percents for `MB`, by resource and domain (`schemata`).
    pub schemata: BTreeMap<String, BTreeMap<u32, u64>>,
}

/// A process of QEMU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct VmProcess {
    /// The VM's name, from `-name guest=` of its command line; for a VM of ours with its prefix.
    pub name: String,
    /// KiB of its memory that stay in RAM (`VmLck`); `None`: the kernel does not tell.
    pub locked_kib: Option<u64>,
    /// KiB of memory that the VM has (`-m` of its command line); `None`: it does not say.
    pub memory_kib: Option<u64>,
    /// KiB of its memory that are in RAM or were swapped, beside pages of hugetlb (`VmRSS`, `VmSwap`); `None`: the kernel does not tell.
    pub resident_kib: Option<u64>,
    /// KiB of its pages of hugetlb, by NUMA node (`/proc/PID/numa_maps`, for root alone). Absent: it has none, or nobody looked.
    pub huge_page_nodes: Reading<BTreeMap<u32, u64>>,
    /// The functions that its command line gives it by VFIO (`"driver":"vfio-pci","host":"0000:04:10.0"`, or
    /// `vfio-pci,host=...`).
    pub functions: BTreeSet<Bdf>,
    /// Whether its command line makes its memory of huge pages (a `mem-path`, or a memory back end of hugetlb's).
    pub huge_pages: bool,
    /// Its threads, by id.
    pub threads: BTreeMap<u32, VmThread>,
}

/// A thread of QEMU, or one of the kernel's that works for it (`vhost-`, `kvm-pit`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct VmThread {
    /// Its name: `CPU 0/KVM`, `IO mon_iothread`, `vhost-1234`...
    pub name: String,
    /// Where it may run (`Cpus_allowed_list`).
    pub cpus: CpuSet,
    /// Its policy: 0 other, 1 FIFO, 2 RR, 3 batch, 5 idle, 6 deadline (`include/uapi/linux/sched.h`).
    pub policy: u32,
    /// Its real-time priority; 0 for who has none.
    pub priority: u32,
}

/// A PCI Express link as it is, and as it could be (`current_link_speed`, `max_link_width`...).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PciLink {
    /// `8.0 GT/s PCIe`
    pub speed: String,
    /// What both ends could do.
    pub most_speed: String,
    /// Lanes in use.
    pub width: u32,
    /// Lanes that there could be.
    pub most_width: u32,
}

/// What went on for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Watched {
    /// How long, in milliseconds.
    pub milliseconds: u64,
    /// How often each CPU had an interrupt, by its label in `/proc/interrupts` (`35`, `LOC`, `RES`, `TLB`...) and CPU. Known only
    /// where it was read at the beginning and at the end.
    pub interrupts: Reading<BTreeMap<String, BTreeMap<u32, u64>>>,
    /// How often each CPU had a soft interrupt, by its name in `/proc/softirqs` and CPU; the same.
    pub soft_interrupts: Reading<BTreeMap<String, BTreeMap<u32, u64>>>,
    /// How often an idle state was entered, by CPU and name of the state.
    pub idle: BTreeMap<u32, BTreeMap<String, u64>>,
    /// CPUs whose idle states could not be counted at the beginning and at the end.
    pub idle_unread: CpuSet,
    /// System management interrupts that the CPUs counted (MSR 0x34); for root alone.
    pub smi: Reading<u64>,
}

#[cfg(test)]
mod tests {
    use super::Irq;

    #[test]
    fn interrupts_of_queues_are_the_kernels_and_those_of_administration_are_not() {
        for (user, managed) in [
            ("nvme0q0", false),
            ("nvme0q1", true),
            ("nvme12q10", true),
            ("virtio0-config", false),
            ("virtio0-req.0", true),
            ("virtio1-request", true),
            ("virtio2-requests.3", true),
            ("virtio3-input.0", false),
            ("megasas0-msix3", true),
            ("mpt3sas0-msix0", true),
            ("eth0-TxRx-0", false),
            ("timer", false),
        ] {
            let irq = Irq { users: vec![user.to_owned()], ..Irq::default() };
            assert_eq!(irq.is_kernel_managed(), managed, "{user}");
        }
    }
}
