//! The interrupts of one PCI function, and where they are handled.
//!
//! A function's interrupts are numbered when its driver asks for them, and anew each time: a guest that starts again, or a
//! driver that is bound again, gets others.

mod workqueues;

use std::collections::{BTreeMap, BTreeSet};

use nix::{
    sched::{CpuSet as NixCpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use penstock_model::{
    Bdf, CpuSet,
    inventory::tuning::{Knob, Value},
};

pub use self::workqueues::{MovedInterrupt, beside_workqueues, move_away, put_back};
use crate::{
    PciFunction, Root, files,
    knob::{self, KnobError},
};

/// Where an interrupt may be delivered, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// `smp_affinity_list`: where it may be.
    pub allowed: CpuSet,
    /// `effective_affinity_list`: where it is; empty while nobody uses it.
    pub effective: CpuSet,
}

/// The numbers of the function's interrupts: its MSI and MSI-X vectors (`msi_irqs`,
/// `Documentation/ABI/testing/sysfs-bus-pci`), or else its line, as far as somebody uses that.
pub fn of_function(root: &Root, function: Bdf) -> Vec<u32> {
    let directory = PciFunction::new(root, function).directory();
    let vectors = files::list(directory.join("msi_irqs")).unwrap_or_default();
    let mut numbers: Vec<u32> = vectors.iter().filter_map(|name| name.parse().ok()).collect();
    if numbers.is_empty() {
        let line = files::read_to_string(directory.join("irq")).unwrap_or_default();
        // 0 is a VF's, which has no line.
        numbers.extend(line.trim().parse::<u32>().ok().filter(|irq| *irq > 0 && is_used(root, *irq)));
    }
    numbers.sort_unstable();
    numbers
}

/// Whether a driver has asked for the interrupt: it then has a directory with the driver's name for it.
fn is_used(root: &Root, irq: u32) -> bool {
    let directory = root.path(format!("/proc/irq/{irq}"));
    let names = files::list(&directory).unwrap_or_default();
    names.iter().any(|name| files::exists(directory.join(name).join(".")))
}

/// Has every interrupt of the function handled by these CPUs. Those that the kernel keeps where they are already are among them
/// are passed over; the first that is elsewhere and cannot be moved is the error.
///
/// # Errors
///
/// See [`KnobError`]. The others have been moved all the same.
pub fn place(root: &Root, function: Bdf, cpus: &CpuSet) -> Result<(), KnobError> {
    let mut outcome = Ok(());
    for irq in of_function(root, function) {
        let placed = match knob::write(root, Knob::IrqAffinity(irq), &Value::Cpus(cpus.clone())) {
            // It has been given back meanwhile.
            Err(KnobError::Absent { .. }) => Ok(()),
            Err(KnobError::Immovable { .. })
                if delivery(root, irq).is_some_and(|seen| seen.effective.0.is_subset(&cpus.0)) =>
            {
                Ok(())
            }
            placed => placed,
        };
        outcome = outcome.and(placed);
    }
    outcome
}

/// Has `work` done where the function's driver can answer meanwhile, and gives what came of it. `attempt` counts from 0: two of three
/// are made where that is likeliest, the others elsewhere, each time at another place, until every CPU was tried.
///
/// The driver of a VF asks that of its PF and waits, with bottom halves disabled, for the answer, which the PF's driver gives
/// when it is interrupted. On a kernel with PREEMPT_RT that interrupt is a thread, which waits in turn for bottom halves of its CPU
/// (`kernel/softirq.c`, `__local_bh_disable_ip`): on one CPU each waits for the other until the VF's driver gives up. Which of the
/// PF's interrupts brings the question nobody tells, and with as many queues as CPUs each CPU has one of them: so it takes
/// another attempt to be sure.
pub fn beside<R>(root: &Root, function: Bdf, attempt: usize, work: impl FnOnce() -> R) -> R {
    let here = root.is_system().then(|| sched_getaffinity(Pid::from_raw(0)).ok()).flatten();
    let Some(all) = here else { return work() };
    let places = places_beside(root, function, &numbers_of(&all));
    let place = places.get(turn(attempt, places.len())).map(set_of);
    // Whoever may not change where it runs runs where it is.
    let moved = place.is_some_and(|place| sched_setaffinity(Pid::from_raw(0), &place).is_ok());
    let outcome = work();
    if moved {
        let _ = sched_setaffinity(Pid::from_raw(0), &all);
    }
    outcome
}

/// Which of so many places an attempt is made at.
fn turn(attempt: usize, places: usize) -> usize {
    if attempt % 3 < 2 || places < 2 { 0 } else { 1 + attempt / 3 % (places - 1) }
}

fn numbers_of(set: &NixCpuSet) -> BTreeSet<u32> {
    (0..NixCpuSet::count())
        .filter(|cpu| set.is_set(*cpu) == Ok(true))
        .filter_map(|cpu| cpu.try_into().ok())
        .collect()
}

fn set_of(cpus: &BTreeSet<u32>) -> NixCpuSet {
    let mut set = NixCpuSet::new();
    for cpu in cpus.iter().filter_map(|cpu| usize::try_from(*cpu).ok()) {
        // One that the kernel's set has no room for is not among those that this thread may run on.
        let _ = set.set(cpu);
    }
    set
}

/// Where of the CPUs `all` the function's driver is asked best, one after the other: on those that none of its interrupts may
/// come to, on those that none comes to now, and then on each alone, those last to which an interrupt comes that is no queue's.
/// Empty when it has no interrupts: then it is the same everywhere.
fn places_beside(root: &Root, function: Bdf, all: &BTreeSet<u32>) -> Vec<BTreeSet<u32>> {
    let deliveries = deliveries(root, function);
    if deliveries.is_empty() {
        return Vec::new();
    }
    let without = |cpus: &dyn Fn(&Delivery) -> &CpuSet| -> BTreeSet<u32> {
        let taken: BTreeSet<u32> =
            deliveries.values().flat_map(|delivery| cpus(delivery).0.iter().copied()).collect();
        all.difference(&taken).copied().collect()
    };
    // Where an interrupt was sent shows only when it comes the next time: so where it may be, if that leaves a CPU.
    let mut places = vec![without(&|delivery| &delivery.allowed), without(&|delivery| &delivery.effective)];
    let at = |cpu: u32, wanted: &dyn Fn(u32) -> bool| {
        let here = |(irq, delivery): &(&u32, &Delivery)| wanted(**irq) && delivery.effective.0.contains(&cpu);
        deliveries.iter().filter(here).count()
    };
    let mut alone: Vec<u32> = all.iter().copied().collect();
    alone.sort_by_key(|cpu| (at(*cpu, &|irq| !is_of_queue(root, irq)), at(*cpu, &|_| true), *cpu));
    places.extend(alone.into_iter().map(|cpu| BTreeSet::from([cpu])));
    let mut seen = BTreeSet::new();
    places.retain(|cpus| !cpus.is_empty() && seen.insert(cpus.clone()));
    places
}

/// Whether the interrupt is that of a queue for frames, by the name that its driver gave it: `eth0-TxRx-0`, and not `eth0`.
fn is_of_queue(root: &Root, irq: u32) -> bool {
    let names = files::list(root.path(format!("/proc/irq/{irq}"))).unwrap_or_default();
    let parts = names.iter().flat_map(|name| name.split('-').skip(1));
    parts.map(str::to_ascii_lowercase).any(|part| matches!(part.as_str(), "rx" | "tx" | "txrx" | "rxtx"))
}

/// Where each interrupt of the function may be, and is.
pub fn deliveries(root: &Root, function: Bdf) -> BTreeMap<u32, Delivery> {
    of_function(root, function).into_iter().filter_map(|irq| Some((irq, delivery(root, irq)?))).collect()
}

fn delivery(root: &Root, irq: u32) -> Option<Delivery> {
    let list = |name: &str| -> Option<CpuSet> {
        files::read_to_string(root.path(format!("/proc/irq/{irq}/{name}"))).ok()?.trim().parse().ok()
    };
    let allowed = list("smp_affinity_list")?;
    // A kernel without it delivers to any of those that are allowed (`CONFIG_GENERIC_IRQ_EFFECTIVE_AFF_MASK`).
    let effective = list("effective_affinity_list").unwrap_or_else(|| allowed.clone());
    Some(Delivery { allowed, effective })
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
    fn vectors_before_the_line() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let function: Bdf = "0000:04:10.0".parse().unwrap();
        let of = |name: &str| format!("/sys/bus/pci/devices/{function}/{name}");
        write(&root, &of("irq"), "11\n");
        assert_eq!(of_function(&root, function), [0_u32; 0], "a line that nobody uses");
        write(&root, "/proc/irq/11/eth0/.keep", "");
        assert_eq!(of_function(&root, function), [11]);
        for irq in [38, 37] {
            write(&root, &of(&format!("msi_irqs/{irq}")), "msix\n");
            write(&root, &format!("/proc/irq/{irq}/smp_affinity_list"), "0-3\n");
        }
        write(&root, "/proc/irq/37/effective_affinity_list", "2\n");
        assert_eq!(of_function(&root, function), [37, 38]);
        place(&root, function, &"0-1".parse().unwrap()).unwrap();
        let seen = deliveries(&root, function);
        assert_eq!(seen[&37].allowed, "0-1".parse().unwrap());
        assert_eq!(seen[&37].effective, "2".parse().unwrap());
        assert_eq!(seen[&38].effective, "0-1".parse().unwrap());
    }

    #[test]
    fn a_driver_is_asked_where_it_is_not_interrupted_and_then_everywhere() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let pf: Bdf = "0000:01:00.0".parse().unwrap();
        let all = |count: u32| (0..count).collect::<BTreeSet<u32>>();
        let places = |count: u32| -> Vec<Vec<u32>> {
            places_beside(&root, pf, &all(count)).iter().map(|cpus| cpus.iter().copied().collect()).collect()
        };
        assert!(places(2).is_empty(), "without interrupts it is the same everywhere");
        // As many queues as CPUs, and what asks comes to CPU 0: an igb on a board of two.
        for (irq, name, effective) in [(32, "eth0", "0"), (33, "eth0-TxRx-0", "1"), (34, "eth0-rx-1", "0")] {
            write(&root, &format!("/sys/bus/pci/devices/{pf}/msi_irqs/{irq}"), "msix\n");
            write(&root, &format!("/proc/irq/{irq}/smp_affinity_list"), "0-1\n");
            write(&root, &format!("/proc/irq/{irq}/effective_affinity_list"), &format!("{effective}\n"));
            write(&root, &format!("/proc/irq/{irq}/{name}/.keep"), "");
        }
        assert_eq!(places(2), [[1], [0]]);
        // With more CPUs than they may come to, on all of those first.
        assert_eq!(places(4), [vec![2, 3], vec![2], vec![3], vec![1], vec![0]]);
        // They may come anywhere, and two have none.
        for irq in 32..35 {
            write(&root, &format!("/proc/irq/{irq}/smp_affinity_list"), "0-3\n");
        }
        assert_eq!(places(4), [vec![2, 3], vec![2], vec![3], vec![1], vec![0]]);
        assert_eq!(places(2), [[1], [0]]);
        let turns = |places: usize| (0..9).map(|attempt| turn(attempt, places)).collect::<Vec<_>>();
        assert_eq!(turns(0), [0; 9]);
        assert_eq!(turns(2), [0, 0, 1, 0, 0, 1, 0, 0, 1]);
        assert_eq!(turns(4), [0, 0, 1, 0, 0, 2, 0, 0, 3]);
    }
}
