//! A PF's interrupts and the kernel's unbound workqueues on CPUs apart.
//!
//! The driver of a VF also asks its PF's when a multicast group is joined, and a workqueue joins those of IPv6 addresses
//! (`net/ipv6/addrconf.c`, `addrconf_dad_work`). Where `workqueue/cpumask` leaves the CPU alone that the PF's interrupts come to, a
//! kernel with PREEMPT_RT answers none of these questions ([`super::beside`]).

use std::collections::{BTreeMap, BTreeSet};

use nix::{sched::sched_getaffinity, unistd::Pid};
use penstock_model::{
    Bdf, CpuSet,
    inventory::tuning::{Knob, Value},
};

use super::{deliveries, is_of_queue, numbers_of};
use crate::{
    Root, files,
    knob::{self, KnobError},
};

/// Has `work` done while the interrupts by which the drivers of these PFs hear of their VFs come to a CPU that unbound workqueues
/// do not run on, and puts them back where they were. The CPU is none that is isolated, or else one of `own`. Where there is no such CPU,
/// and with workqueues on other CPUs already, nothing is moved.
///
/// # Errors
///
/// Beside the outcome: when an interrupt could not be put back.
pub fn apart_from_workqueues<R>(
    root: &Root,
    pfs: &BTreeSet<Bdf>,
    own: Option<&CpuSet>,
    work: impl FnOnce() -> R,
) -> (R, Result<(), KnobError>) {
    let usable = root.is_system().then(|| sched_getaffinity(Pid::from_raw(0)).ok()).flatten();
    let usable = usable.map(|set| numbers_of(&set)).unwrap_or_default();
    let moved = move_away(root, pfs, &usable, own);
    let outcome = work();
    (outcome, put_back(root, moved))
}

/// Moves them, and gives where each could be before.
fn move_away(
    root: &Root,
    pfs: &BTreeSet<Bdf>,
    usable: &BTreeSet<u32>,
    own: Option<&CpuSet>,
) -> BTreeMap<u32, CpuSet> {
    let mut moved = BTreeMap::new();
    let Ok(Value::Cpus(workqueues)) = knob::read(root, Knob::Workqueues) else { return moved };
    let Some(place) = place(root, usable, &workqueues, own) else { return moved };
    for pf in pfs {
        for (irq, delivery) in deliveries(root, *pf) {
            let is_theirs = !is_of_queue(root, irq) && !delivery.allowed.0.is_disjoint(&workqueues.0);
            let to = Value::Cpus(CpuSet([place].into()));
            // One that cannot be moved stays: the work has a chance all the same.
            if is_theirs && knob::write(root, Knob::IrqAffinity(irq), &to).is_ok() {
                moved.insert(irq, delivery.allowed);
            }
        }
    }
    moved
}

fn put_back(root: &Root, moved: BTreeMap<u32, CpuSet>) -> Result<(), KnobError> {
    let mut outcome = Ok(());
    for (irq, allowed) in moved {
        let put = match knob::write(root, Knob::IrqAffinity(irq), &Value::Cpus(allowed)) {
            // Its driver has given it back meanwhile.
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
        let moved = move_away(&root, &pfs, &usable, None);
        assert_eq!(at(), ["2", "0"]);
        put_back(&root, moved).unwrap();
        assert_eq!(at(), ["0", "0"]);
        // All other CPUs are isolated: only the guest's own.
        write(&root, "/sys/fs/cgroup/cpuset.cpus.isolated", "1-3\n");
        assert!(move_away(&root, &pfs, &usable, None).is_empty());
        let own = "3".parse().unwrap();
        let moved = move_away(&root, &pfs, &usable, Some(&own));
        assert_eq!(at(), ["3", "0"]);
        put_back(&root, moved).unwrap();
        // Workqueues may run anywhere, or are elsewhere already.
        for mask in ["f\n", "e\n"] {
            write(&root, "/sys/devices/virtual/workqueue/cpumask", mask);
            assert!(move_away(&root, &pfs, &usable, Some(&own)).is_empty(), "{mask}");
        }
        // One whose driver is gone is nobody's to put back.
        put_back(&root, BTreeMap::from([(77, own)])).unwrap();
    }
}
