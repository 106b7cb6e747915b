//! A PF's interrupts and the kernel's unbound workqueues on CPUs apart.
//!
//! The driver of a VF also asks its PF's when a multicast group is joined, and a workqueue joins those of IPv6 addresses
//! (`net/ipv6/addrconf.c`, `addrconf_dad_work`). Where `workqueue/cpumask` leaves the CPU alone that the PF's interrupts come to, a
//! kernel with PREEMPT_RT answers none of these questions ([`super::beside`]).

use std::collections::BTreeSet;

use nix::{sched::sched_getaffinity, unistd::Pid};
use penstock_model::{
    Bdf, CpuSet,
    inventory::tuning::{Knob, Value},
};
use serde::{Deserialize, Serialize};

use super::{Delivery, deliveries, is_of_queue, numbers_of};
use crate::{
    Root, files,
    knob::{self, KnobError},
};

/// An interrupt that is elsewhere for a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedInterrupt {
    /// Its number, as in `/proc/irq`; another function's once its driver has given it back.
    pub irq: u32,
    /// Whose it is.
    pub function: Bdf,
    /// Where it may be otherwise.
    pub allowed: CpuSet,
    /// The CPU that it is on meanwhile.
    pub on: u32,
}

/// The interrupts by which the drivers of these PFs hear of their VFs, as far as they come to CPUs that unbound workqueues run on, and
/// another CPU where they do not. It is none that is isolated, or else one of `own`. Nothing is to be moved where there is no such CPU, and
/// with workqueues on other CPUs already.
pub fn beside_workqueues(root: &Root, pfs: &BTreeSet<Bdf>, own: Option<&CpuSet>) -> Vec<MovedInterrupt> {
    let usable = root.is_system().then(|| sched_getaffinity(Pid::from_raw(0)).ok()).flatten();
    let usable = usable.map(|set| numbers_of(&set)).unwrap_or_default();
    to_move(root, pfs, &usable, own)
}

fn to_move(
    root: &Root,
    pfs: &BTreeSet<Bdf>,
    usable: &BTreeSet<u32>,
    own: Option<&CpuSet>,
) -> Vec<MovedInterrupt> {
    let Ok(Value::Cpus(workqueues)) = knob::read(root, Knob::Workqueues) else { return Vec::new() };
    let Some(on) = place(root, usable, &workqueues, own) else { return Vec::new() };
    let of = |function: Bdf| {
        let moved = move |(irq, delivery): (u32, Delivery)| MovedInterrupt {
            irq,
            function,
            allowed: delivery.allowed,
            on,
        };
        deliveries(root, function).into_iter().map(moved)
    };
    let is_theirs =
        |moved: &MovedInterrupt| !is_of_queue(root, moved.irq) && !moved.allowed.0.is_disjoint(&workqueues.0);
    pfs.iter().copied().flat_map(of).filter(is_theirs).collect()
}

/// Moves them. One that cannot be moved stays: what is done meanwhile has a chance all the same.
pub fn move_away(root: &Root, moved: &[MovedInterrupt]) {
    for one in moved {
        let to = Value::Cpus(CpuSet([one.on].into()));
        let _ = knob::write(root, Knob::IrqAffinity(one.irq), &to);
    }
}

/// Puts those back that are still the function's and where they were moved to: one for which somebody has chosen another place since
/// stays there, and one that its driver has given back meanwhile is nobody's to put back, though it be another function's by now.
///
/// # Errors
///
/// The first that could not be put back; the others have been.
pub fn put_back(root: &Root, moved: &[MovedInterrupt]) -> Result<(), KnobError> {
    let mut outcome = Ok(());
    for one in moved {
        let away = BTreeSet::from([one.on]);
        let seen = deliveries(root, one.function).remove(&one.irq);
        if seen.is_none_or(|seen| seen.allowed.0 != away) {
            continue;
        }
        let put = match knob::write(root, Knob::IrqAffinity(one.irq), &Value::Cpus(one.allowed.clone())) {
            Err(KnobError::Absent { .. }) => Ok(()),
            put => put,
        };
        outcome = outcome.and(put);
    }
    outcome
}

/// A CPU without unbound workqueues where an interrupt disturbs no real-time guest but the one that `own` belongs to.
fn place(root: &Root, usable: &BTreeSet<u32>, workqueues: &CpuSet, own: Option<&CpuSet>) -> Option<u32> {
    let listed = |path: &str| -> BTreeSet<u32> {
        let text = files::read_to_string(root.path(path)).unwrap_or_default();
        text.trim().parse::<CpuSet>().map(|cpus| cpus.0).unwrap_or_default()
    };
    let isolated =
        &listed("/sys/devices/system/cpu/isolated") | &listed("/sys/fs/cgroup/cpuset.cpus.isolated");
    let free = usable - &workqueues.0;
    let shared = free.difference(&isolated).next();
    shared.or_else(|| free.iter().find(|cpu| own.is_some_and(|own| own.0.contains(cpu)))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Root, path: &str, text: &str) {
        let path = root.path(path);
        files::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn a_pf_answers_beside_the_workqueues_and_not_where_a_guest_is_alone() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let pf: Bdf = "0000:01:00.0".parse().unwrap();
        for (irq, name) in [(39, "eth0"), (40, "eth0-TxRx-0")] {
            write(&root, &format!("/sys/bus/pci/devices/{pf}/msi_irqs/{irq}"), "msix\n");
            write(&root, &format!("/proc/irq/{irq}/smp_affinity_list"), "0\n");
            write(&root, &format!("/proc/irq/{irq}/{name}/.keep"), "");
        }
        write(&root, "/sys/devices/virtual/workqueue/cpumask", "1\n");
        write(&root, "/sys/fs/cgroup/cpuset.cpus.isolated", "1,3\n");
        let (pfs, usable) = (BTreeSet::from([pf]), (0..4).collect());
        let at = || [39, 40].map(|irq| deliveries(&root, pf)[&irq].allowed.to_string());
        let away = |own: Option<&CpuSet>| {
            let moved = to_move(&root, &pfs, &usable, own);
            move_away(&root, &moved);
            moved
        };
        let moved = away(None);
        assert_eq!(at(), ["2", "0"]);
        put_back(&root, &moved).unwrap();
        assert_eq!(at(), ["0", "0"]);
        // All other CPUs are isolated: only the guest's own.
        write(&root, "/sys/fs/cgroup/cpuset.cpus.isolated", "1-3\n");
        assert!(away(None).is_empty());
        let own = "3".parse().unwrap();
        let moved = away(Some(&own));
        assert_eq!(at(), ["3", "0"]);
        put_back(&root, &moved).unwrap();
        assert_eq!(at(), ["0", "0"]);
        // Somebody has chosen another place since.
        write(&root, "/proc/irq/39/smp_affinity_list", "1-2\n");
        put_back(&root, &moved).unwrap();
        assert_eq!(at(), ["1-2", "0"]);
        // Workqueues may run anywhere, or are elsewhere already.
        write(&root, "/proc/irq/39/smp_affinity_list", "0\n");
        for mask in ["f\n", "e\n"] {
            write(&root, "/sys/devices/virtual/workqueue/cpumask", mask);
            assert!(away(Some(&own)).is_empty(), "{mask}");
        }
        // One whose driver is gone is nobody's to put back, nor one that is another function's by now.
        std::fs::remove_file(root.path(format!("/sys/bus/pci/devices/{pf}/msi_irqs/39"))).unwrap();
        write(&root, "/proc/irq/39/smp_affinity_list", "3\n");
        put_back(&root, &moved).unwrap();
        put_back(&root, &[MovedInterrupt { irq: 77, ..moved[0].clone() }]).unwrap();
        let seen = files::read_to_string(root.path("/proc/irq/39/smp_affinity_list")).unwrap();
        assert_eq!(seen, "3\n");
    }
}
