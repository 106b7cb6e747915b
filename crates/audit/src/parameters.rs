//! Boot parameters that concern real time, and the kernels that know them (`Documentation/admin-guide/kernel-parameters.txt`).

use crate::release::Release;

/// A parameter, or one of its values, and the kernels that know it.
pub(crate) struct Parameter {
    /// Its name, with `_` for every `-`.
    pub(crate) key: &'static str,
    /// The value, or the word among values that commas separate, that this is about; empty for the parameter as a whole.
    pub(crate) value: &'static str,
    /// The first kernel that knows it.
    pub(crate) since: Release,
    /// The first kernel that does not know it any more.
    pub(crate) until: Option<Release>,
    /// What to write there instead.
    pub(crate) instead: &'static str,
    /// Whether a kernel that knows it shows it below `/sys/module/*/parameters`.
    pub(crate) shown: bool,
}

impl Parameter {
    const fn shown(self) -> Parameter {
        Parameter { shown: true, ..self }
    }
}

const OLD: Release = Release::new(3, 0);

const fn since(
    key: &'static str,
    value: &'static str,
    major: u32,
    minor: u32,
    instead: &'static str,
) -> Parameter {
    Parameter { key, value, since: Release::new(major, minor), until: None, instead, shown: false }
}

const fn always(key: &'static str) -> Parameter {
    Parameter { key, value: "", since: OLD, until: None, instead: "", shown: false }
}

const fn until(
    key: &'static str,
    value: &'static str,
    major: u32,
    minor: u32,
    instead: &'static str,
) -> Parameter {
    Parameter { key, value, since: OLD, until: Some(Release::new(major, minor)), instead, shown: false }
}

/// The parameters. A key that is none of these is not judged, unless it is nearly one of these.
pub(crate) const PARAMETERS: &[Parameter] = &[
    always("isolcpus"),
    since("isolcpus", "domain", 4, 15, "leave the flag out"),
    since("isolcpus", "nohz", 4, 15, "use nohz_full= instead"),
    since("isolcpus", "managed_irq", 5, 6, "give devices fewer queues (ethtool -L)"),
    since("nohz_full", "", 3, 10, "leave it out"),
    always("nohz"),
    since("rcu_nocbs", "", 3, 8, "leave it out"),
    since("rcu_nocb_poll", "", 3, 9, "leave it out"),
    always("irqaffinity"),
    always("skew_tick"),
    always("tsc"),
    since("tsc", "nowatchdog", 5, 3, "use tsc=reliable"),
    always("clocksource"),
    always("idle"),
    until("idle", "mwait", 3, 9, "leave it out"),
    always("intel_idle.max_cstate"),
    always("processor.max_cstate"),
    since("intel_idle.states_off", "", 5, 6, "limit idle states with PM QoS").shown(),
    since("intel_pstate", "", 3, 9, "leave it out"),
    since("intel_pstate", "passive", 4, 10, "leave it out"),
    since("intel_pstate", "active", 5, 0, "leave it out: it is the default"),
    since("amd_pstate", "", 5, 17, "leave it out"),
    since("cpufreq.default_governor", "", 5, 9, "set the governor at run time").shown(),
    always("cpufreq.off"),
    always("cpuidle.off"),
    since("nosmt", "", 4, 19, "switch SMT off in firmware"),
    since("mitigations", "", 5, 2, "leave it out: they are on"),
    since("mitigations", "no_user_kernel", 6, 17, "mitigations=auto"),
    since("mitigations", "no_user_user", 6, 17, "mitigations=auto"),
    since("mitigations", "no_guest_host", 6, 17, "mitigations=auto"),
    since("mitigations", "no_guest_guest", 6, 17, "mitigations=auto"),
    since("mitigations", "no_cross_thread", 6, 17, "mitigations=auto"),
    always("mce"),
    always("nmi_watchdog"),
    always("nowatchdog"),
    always("nosoftlockup"),
    always("softlockup_panic"),
    always("selinux"),
    always("enforcing"),
    always("apparmor"),
    always("iommu"),
    always("intel_iommu"),
    always("amd_iommu"),
    since("iommu.passthrough", "", 4, 13, "use iommu=pt"),
    since("iommu.strict", "", 4, 20, "leave it out"),
    always("transparent_hugepage"),
    always("hugepages"),
    always("hugepagesz"),
    always("default_hugepagesz"),
    since("numa_balancing", "", 3, 13, "leave it out"),
    always("maxcpus"),
    always("nr_cpus"),
    since("preempt", "", 5, 12, "choose the kernel that is built so"),
    since("preempt", "lazy", 6, 13, "use preempt=full, or a real-time kernel"),
    always("threadirqs"),
    since("rcupdate.rcu_normal_after_boot", "", 4, 5, "write 1 to /sys/kernel/rcu_normal").shown(),
    always("rcupdate.rcu_expedited"),
    always("rcutree.kthread_prio"),
    since("rcutree.nohz_full_patience_delay", "", 6, 11, "leave it out").shown(),
    since("rcutree.use_softirq", "", 5, 3, "leave it out").shown(),
    until("rcutree.rcu_idle_gp_delay", "", 5, 17, "leave it out: idle CPUs are handled by rcu_nocbs").shown(),
    since("workqueue.unbound_cpus", "", 6, 6, "write to /sys/devices/virtual/workqueue/cpumask"),
    always("pcie_aspm"),
    always("pcie_aspm.policy"),
    always("nohlt"),
    always("nolapic"),
    always("noapic"),
    always("nox2apic"),
    always("acpi_irq_nobalance"),
    always("cgroup_disable"),
    since("cgroup_no_v1", "", 4, 6, "leave it out"),
];

/// Parameters that no kernel of kernel.org knows, and what people wanted of them.
pub(crate) const NEVER: [(&str, &str); 5] = [
    (
        "kthread_cpus",
        "it is StarlingX's patch; kernel threads leave isolated CPUs by nohz_full= or an isolated partition",
    ),
    ("sched_rt_runtime_us", "it is a sysctl: kernel.sched_rt_runtime_us"),
    ("timer_migration", "it is a sysctl: kernel.timer_migration"),
    ("default_smp_affinity", "the word is irqaffinity="),
    ("cpu_dma_latency", "it is a device that a program holds open: /dev/cpu_dma_latency"),
];

/// Ordinary parameters that are near enough to one of the above to be taken for a slip.
const ORDINARY: [&str; 12] = [
    "hpet",
    "noht",
    "nomce",
    "audit",
    "noirqbalance",
    "nopti",
    "pti",
    "nosmap",
    "nosmp",
    "nokaslr",
    "notsc",
    "no_hlt",
];

/// The known parameter that a word which is none was meant to be; `None`: it is known, or like none of them.
pub(crate) fn meant(key: &str) -> Option<&'static str> {
    let known =
        |key: &str| PARAMETERS.iter().any(|parameter| parameter.key == key) || ORDINARY.contains(&key);
    if known(key) || key.len() < 5 {
        return None;
    }
    let names = PARAMETERS.iter().map(|parameter| parameter.key).filter(|name| name.len() >= 5);
    let near = names.map(|name| (strsim::osa_distance(key, name), name));
    let (distance, name) = near.min_by_key(|(distance, _)| *distance)?;
    let allowed = if name.len() >= 8 { 2 } else { 1 };
    (distance <= allowed).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_seen_and_ordinary_words_are_not() {
        for (slip, wanted) in [
            ("isolcpu", "isolcpus"),
            ("nohzfull", "nohz_full"),
            ("rcu_nocb", "rcu_nocbs"),
            ("irq_affinity", "irqaffinity"),
        ] {
            assert_eq!(meant(slip), Some(wanted));
        }
        // What stands on the command lines of Debian, Fedora, Ubuntu and of boards.
        for word in [
            "BOOT_IMAGE",
            "root",
            "ro",
            "rw",
            "quiet",
            "splash",
            "console",
            "rd.lvm.lv",
            "rhgb",
            "crashkernel",
            "resume",
            "panic",
            "net.ifnames",
            "biosdevname",
            "systemd.unit",
            "init",
            "initrd",
            "rootflags",
            "rootfstype",
            "rootwait",
            "loglevel",
            "earlyprintk",
            "vga",
            "cgroup_enable",
            "swapaccount",
            "kvm.nx_huge_pages",
            "isolcpus",
            "audit",
            "noresume",
            "nomodeset",
            "elevator",
            "pci",
            "acpi",
            "vt.handoff",
            "lsm",
            "security",
        ] {
            assert_eq!(meant(word), None, "{word}");
        }
    }
}
