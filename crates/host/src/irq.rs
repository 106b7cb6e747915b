//! The interrupts of one PCI function, and where they are handled.
//!
//! A function's interrupts are numbered when its driver asks for them, and anew each time: a guest that starts again, or a
//! driver that is bound again, gets others.

use std::collections::BTreeMap;

use nix::{
    sched::{CpuSet as NixCpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use penstock_model::{
    Bdf, CpuSet,
    inventory::tuning::{Knob, Value},
};

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

/// Has `work` done on CPUs that none of the function's interrupts comes to, when there are such CPUs; else anywhere.
///
/// The driver of a VF asks that of its PF and waits, with bottom halves disabled, for the answer, which the PF's driver gives
/// when it is interrupted. On a kernel with PREEMPT_RT that interrupt is a thread, which waits in turn for bottom halves of its CPU
/// (`kernel/softirq.c`, `__local_bh_disable_ip`): on one CPU each waits for the other until the VF's driver gives up.
pub fn beside<R>(root: &Root, function: Bdf, work: impl FnOnce() -> R) -> R {
    let away = root.is_system().then(|| cpus_beside(root, function)).flatten();
    let Some((all, away)) = away else { return work() };
    // Whoever may not change where it runs runs where it is.
    let moved = sched_setaffinity(Pid::from_raw(0), &away).is_ok();
    let outcome = work();
    if moved {
        let _ = sched_setaffinity(Pid::from_raw(0), &all);
    }
    outcome
}

/// The CPUs of this thread, and those of them that no interrupt of the function comes to. `None`: all of them, or none.
fn cpus_beside(root: &Root, function: Bdf) -> Option<(NixCpuSet, NixCpuSet)> {
    let all = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let deliveries = deliveries(root, function);
    let without = |cpus: &dyn Fn(&Delivery) -> &CpuSet| -> Option<NixCpuSet> {
        let mut away = all;
        for cpu in deliveries.values().flat_map(|delivery| cpus(delivery).0.iter()) {
            let _ = away.unset(usize::try_from(*cpu).ok()?);
        }
        let some = (0..NixCpuSet::count()).any(|cpu| away.is_set(cpu) == Ok(true));
        (some && away != all).then_some(away)
    };
    // Where an interrupt was sent shows only when it comes the next time: so where it may be, if that leaves a CPU.
    let away = without(&|delivery| &delivery.allowed).or_else(|| without(&|delivery| &delivery.effective));
    Some((all, away?))
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
}
