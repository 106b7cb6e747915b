//! KVM's own settings.

use penstock_model::audit::{Currency, Layer};

use crate::{
    machine::Machine,
    rule::{Finding, Need, Rule, Said, Silent, left_out, unknown},
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "kvm-clock-sync",
        layer: Layer::Vm,
        what: "whether KVM corrects the clocks of all guests from time to time (kvm.kvmclock_periodic_sync)",
        why: "every five minutes each virtual CPU is kicked out of its guest",
        price: None,
        source: "TuneD, realtime-virtual-host",
        needs_root: false,
        need: Need::Vms,
        judge: clock_sync,
    },
    Rule {
        id: "kvm-pause-loops",
        layer: Layer::Vm,
        what: "whether KVM takes a virtual CPU off that spins on a lock (kvm_intel.ple_gap)",
        why: "with CPUs of its own there is nobody to give the CPU to: leaving the guest only costs time",
        price: Some((Currency::Throughput, "VMs that share CPUs waste time spinning")),
        source: "TuneD, realtime-virtual-host; arch/x86/kvm/vmx/vmx.c",
        needs_root: false,
        need: Need::Vms,
        judge: pause_loops,
    },
    Rule {
        id: "kvm-halt-polling",
        layer: Layer::Vm,
        what: "nanoseconds that KVM polls before it lets a halted virtual CPU's thread sleep (kvm.halt_poll_ns)",
        why: "polling saves waking the thread; of no meaning for a guest that never halts",
        price: Some((Currency::Power, "a halted virtual CPU spins that long")),
        source: "Documentation/virt/kvm/halt-polling.rst",
        needs_root: false,
        need: Need::Vms,
        judge: halt_polling,
    },
    Rule {
        id: "kvm-apicv",
        layer: Layer::Vm,
        what: "whether the CPU delivers interrupts to guests itself (kvm_intel.enable_apicv, kvm_amd.avic)",
        why: "without it each interrupt of a VF leaves and enters the guest twice",
        price: None,
        source: "arch/x86/kvm/vmx/vmx.c",
        needs_root: false,
        need: Need::Vms,
        judge: apicv,
    },
    Rule {
        id: "kvm-apicv-off-with-functions",
        layer: Layer::Vm,
        what: "VMs that own functions while the CPU does not deliver interrupts to guests itself",
        why: "the function was given away for its latency, and each of its interrupts goes through the host",
        price: None,
        source: "Documentation/virt/kvm/x86; Intel SDM volume 3, posted interrupts",
        needs_root: false,
        need: Need::Vms,
        judge: apicv_with_functions,
    },
    Rule {
        id: "kvm-nx-huge-pages",
        layer: Layer::Vm,
        what: "whether KVM splits huge pages that a guest executes (kvm.nx_huge_pages)",
        why: "splitting and putting together again stops a guest for some 100 µs; without it a guest can stop a CPU that has the iTLB multihit erratum",
        price: Some((Currency::Security, "switched off on such a CPU, any guest can halt the machine")),
        source: "Documentation/admin-guide/hw-vuln/multihit.rst; TuneD commit e4a0e48",
        needs_root: false,
        need: Need::Vms,
        judge: nx_huge_pages,
    },
];

fn loaded(machine: &Machine<'_>) -> Result<(), Silent> {
    let kvm = machine.tuning.parameters.keys().any(|name| name.starts_with("kvm"));
    if kvm { Ok(()) } else { left_out("KVM is not loaded") }
}

fn is_on(text: &str) -> bool {
    matches!(text.trim(), "Y" | "y" | "1")
}

fn options(module: &str, text: &str) -> String {
    format!(
        "echo 'options {module} {text}' > /etc/modprobe.d/{module}-realtime.conf; load {module} anew (no VM may run)"
    )
}

fn clock_sync(machine: &Machine<'_>) -> Said {
    loaded(machine)?;
    match machine.parameter("kvm.kvmclock_periodic_sync")? {
        None => left_out("this KVM has no kvmclock_periodic_sync"),
        Some(text) if is_on(text) => {
            Finding::fail(text, "N", options("kvm", "kvmclock_periodic_sync=0")).into()
        }
        Some(text) => Finding::pass(text, "N").into(),
    }
}

fn pause_loops(machine: &Machine<'_>) -> Said {
    loaded(machine)?;
    match machine.parameter("kvm_intel.ple_gap")? {
        None => left_out("this KVM has no ple_gap"),
        Some("0") => Finding::pass("0", "0").into(),
        Some(text) => Finding::fail(text, "0", options("kvm_intel", "ple_gap=0")).into(),
    }
}

fn halt_polling(machine: &Machine<'_>) -> Said {
    loaded(machine)?;
    match machine.parameter("kvm.halt_poll_ns")? {
        None => unknown("kvm.halt_poll_ns is not there"),
        Some(text) => Finding::recorded(text, "whichever measures better here").into(),
    }
}

/// Its name and whether it is on.
fn delivery(machine: &Machine<'_>) -> Result<(&'static str, bool), Silent> {
    loaded(machine)?;
    for name in ["kvm_intel.enable_apicv", "kvm_amd.avic"] {
        if let Some(text) = machine.parameter(name)? {
            return Ok((name, is_on(text)));
        }
    }
    left_out("neither kvm_intel nor kvm_amd tells")
}

const IPIV: &str = "enable it: kvm_intel enable_apicv=1, kvm_amd avic=1; if it stays off, the CPU or firmware (x2APIC, VT-x) has none";

fn apicv(machine: &Machine<'_>) -> Said {
    let (name, on) = delivery(machine)?;
    if on {
        return Finding::pass(format!("{name} Y"), "Y").into();
    }
    if machine.vms.iter().any(|vm| !vm.process.functions.is_empty()) {
        return left_out("told under kvm-apicv-off-with-functions");
    }
    Finding::fail(format!("{name} N"), "Y", IPIV).into()
}

fn apicv_with_functions(machine: &Machine<'_>) -> Said {
    let (name, on) = delivery(machine)?;
    let mut found = Vec::new();
    for vm in machine.vms.iter().filter(|vm| !vm.process.functions.is_empty()) {
        let wanted = "interrupts of its functions delivered by the CPU";
        found.push(if on {
            Finding::pass(format!("{name} Y"), wanted).about(vm.subject())
        } else {
            Finding::conflict(
                format!("{name} N, and it owns {} functions", vm.process.functions.len()),
                wanted,
                IPIV,
            )
            .about(vm.subject())
        });
    }
    if found.is_empty() { left_out("no running VM owns functions") } else { Ok(found) }
}

fn nx_huge_pages(machine: &Machine<'_>) -> Said {
    loaded(machine)?;
    let Some(text) = machine.parameter("kvm.nx_huge_pages")? else {
        return left_out("this KVM has no nx_huge_pages");
    };
    let Some(erratum) = machine.tuning.vulnerabilities.get("itlb_multihit") else {
        return unknown("/sys/devices/system/cpu/vulnerabilities/itlb_multihit could not be read");
    };
    let affected = !erratum.starts_with("Not affected");
    let wanted = "on where the CPU has the erratum";
    match (affected, is_on(text)) {
        (false, _) => Finding::pass(format!("{text}; the CPU does not have the erratum"), wanted).into(),
        (true, true) => Finding::pass(
            format!("{text}; spikes of some 100 µs may show, and stay: this is a protection"),
            wanted,
        )
        .into(),
        (true, false) => Finding::fail(
            format!("{text}, and the CPU has the erratum"),
            wanted,
            "echo auto > /sys/module/kvm/parameters/nx_huge_pages",
        )
        .into(),
    }
}
