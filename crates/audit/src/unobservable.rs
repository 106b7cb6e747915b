//! What cannot be seen from a running system.

use penstock_model::audit::Unobservable;

/// What, why it matters, and where to look instead.
const UNOBSERVABLE: [[&str; 3]; 9] = [
    [
        "hardware prefetchers and the energy-performance settings that only firmware shows",
        "they move latencies by microseconds, and firmware may take them back at each start",
        "the firmware's set-up: prefetchers as the vendor's real-time guide says, energy profile \"maximum performance\"",
    ],
    [
        "package C-states, uncore frequency scaling and memory power-down",
        "a core that stays awake still waits for a memory controller or a mesh that sleeps",
        "the firmware's set-up: package C-state limit C0/C1, uncore at its maximum",
    ],
    [
        "what system management interrupts do, and what asks for them (USB legacy support, memory scrubbing, error logging)",
        "no operating system can stop or even see one; each takes all CPUs for tens of microseconds up to milliseconds",
        "hwlatdetect --duration=10m --threshold=5us; the firmware's set-up: USB legacy support, patrol scrub",
    ],
    [
        "the management controller (BMC, Management Engine) and what it polls",
        "its polling shows as rare pauses and as management interrupts",
        "the controller's own settings; a run of 12 hours",
    ],
    [
        "what another program holds open in /dev/cpu_dma_latency",
        "it limits idle states of all CPUs, and only as long as it runs",
        "fuser -v /dev/cpu_dma_latency",
    ],
    [
        "thermal and power limits that are reached only under load",
        "a CPU that throttles wakes late and works slowly",
        "turbostat while the load of every day runs",
    ],
    [
        "what drivers do in threads that no file tells of, among them storage and NFS threads that wake on the CPUs of guests",
        "one that becomes runnable there brings back the tick and takes time",
        "measure with the load of every day: rtla timerlat, or perf sched on the isolated CPUs",
    ],
    [
        "the inside of guests: their kernel, their clock, their own isolation",
        "a guest that is not tuned wakes late on the best host",
        "penstock audit inside the guest",
    ],
    [
        "memory and PCI Express errors that hardware corrects by itself",
        "each correction may be handled in firmware and take all CPUs",
        "rasdaemon, or the management controller's log",
    ],
];

pub(crate) fn unobservable() -> Vec<Unobservable> {
    let row = |[what, why, instead]: [&str; 3]| Unobservable {
        what: what.to_owned(),
        why: why.to_owned(),
        instead: instead.to_owned(),
    };
    UNOBSERVABLE.into_iter().map(row).collect()
}
