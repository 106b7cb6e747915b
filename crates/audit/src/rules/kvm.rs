//! KVM's own settings.

use penstock_model::{
    audit::{Currency, Layer},
    text::counted,
};

use crate::{
    advice::{Advice, boot_without, option, write},
    machine::{Machine, read},
    rule::{Finding, Need, NoFinding, Rule, RuleResult, left_out, unknown},
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
        what: "whether KVM takes a virtual CPU off that spins on a lock (kvm_intel.ple_gap, kvm_amd.pause_filter_count)",
        why: "with CPUs of its own there is nobody to give the CPU to: leaving the guest only costs time",
        price: Some((Currency::Throughput, "VMs that share CPUs waste time spinning")),
        source: "TuneD, realtime-virtual-host; arch/x86/kvm/vmx/vmx.c; arch/x86/kvm/svm/svm.c",
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
        source: "Documentation/admin-guide/hw-vuln/multihit.rst; kernel commit 0b210faf3373; TuneD commit e4a0e48",
        needs_root: false,
        need: Need::Vms,
        judge: nx_huge_pages,
    },
];

fn loaded(machine: &Machine<'_>) -> Result<(), NoFinding> {
    let kvm = machine.tuning.parameters.keys().any(|name| name.starts_with("kvm"));
    if kvm { Ok(()) } else { left_out("KVM is not loaded") }
}

fn is_on(text: &str) -> bool {
    matches!(text.trim(), "Y" | "y" | "1")
}

fn clock_sync(machine: &Machine<'_>) -> RuleResult {
    loaded(machine)?;
    match machine.parameter("kvm.kvmclock_periodic_sync")? {
        None => left_out("this KVM has no kvmclock_periodic_sync"),
        Some(text) if is_on(text) => {
            Finding::fail(text, "N", option(machine, "kvm", "kvmclock_periodic_sync", "0")).into()
        }
        Some(text) => Finding::pass(text, "N").into(),
    }
}

fn pause_loops(machine: &Machine<'_>) -> RuleResult {
    loaded(machine)?;
    // Intel's filter goes by a gap, AMD's by a count and a threshold; 0 of any switches it off.
    let filters =
        [("kvm_intel", "ple_gap", None), ("kvm_amd", "pause_filter_count", Some("pause_filter_thresh"))];
    for (module, name, other) in filters {
        let Some(text) = machine.parameter(&format!("{module}.{name}"))? else { continue };
        let other = match other {
            Some(other) => machine.parameter(&format!("{module}.{other}"))?,
            None => None,
        };
        if text == "0" || other == Some("0") {
            return Finding::pass("0", "0").into();
        }
        return Finding::fail(format!("{name} {text}"), "0", option(machine, module, name, "0")).into();
    }
    left_out("this KVM has no filter for such loops")
}

fn halt_polling(machine: &Machine<'_>) -> RuleResult {
    loaded(machine)?;
    match machine.parameter("kvm.halt_poll_ns")? {
        None => unknown("kvm.halt_poll_ns is not there"),
        Some(text) => Finding::recorded(text, "whichever measures better here").into(),
    }
}

/// Its name and whether it is on.
fn delivery(machine: &Machine<'_>) -> Result<(&'static str, bool), NoFinding> {
    loaded(machine)?;
    for name in ["kvm_intel.enable_apicv", "kvm_amd.avic"] {
        if let Some(text) = machine.parameter(name)? {
            return Ok((name, is_on(text)));
        }
    }
    left_out("neither kvm_intel nor kvm_amd tells")
}

fn turn_on(machine: &Machine<'_>, name: &str) -> Advice {
    let (module, parameter) = name.split_once('.').unwrap_or((name, ""));
    option(machine, module, parameter, "1")
        .beware("where it stays off the CPU has none, or firmware keeps it off (x2APIC, VT-x)")
}

fn apicv(machine: &Machine<'_>) -> RuleResult {
    let (name, on) = delivery(machine)?;
    if on {
        return Finding::pass(format!("{name} Y"), "Y").into();
    }
    if machine.vms.iter().any(|vm| !vm.process.functions.is_empty()) {
        return left_out("reported under kvm-apicv-off-with-functions");
    }
    Finding::fail(format!("{name} N"), "Y", turn_on(machine, name)).into()
}

fn apicv_with_functions(machine: &Machine<'_>) -> RuleResult {
    let (name, on) = delivery(machine)?;
    machine.sees_processes()?;
    let mut found = Vec::new();
    for vm in machine.vms.iter().filter(|vm| !vm.process.functions.is_empty()) {
        let wanted = "interrupts of its functions delivered by the CPU";
        found.push(if on {
            Finding::pass(format!("{name} Y"), wanted).about(vm.subject())
        } else {
            Finding::conflict(
                format!("{name} N, and it owns {}", counted(vm.process.functions.len(), "function")),
                wanted,
                turn_on(machine, name),
            )
            .about(vm.subject())
        });
    }
    if found.is_empty() { left_out("no running VM owns functions") } else { Ok(found) }
}

fn nx_huge_pages(machine: &Machine<'_>) -> RuleResult {
    loaded(machine)?;
    let Some(text) = machine.parameter("kvm.nx_huge_pages")? else {
        return left_out("this KVM has no nx_huge_pages");
    };
    let Some(erratum) = machine.tuning.vulnerabilities.get("itlb_multihit") else {
        // Kernels for other CPUs, and those from before the erratum was known.
        return unknown("/sys/devices/system/cpu/vulnerabilities/itlb_multihit is not there");
    };
    let Some(erratum) = read(erratum, "/sys/devices/system/cpu/vulnerabilities/itlb_multihit")? else {
        return unknown("/sys/devices/system/cpu/vulnerabilities/itlb_multihit is not there");
    };
    let affected = !erratum.starts_with("Not affected");
    let wanted = "on where the CPU has the erratum";
    if !affected {
        return Finding::pass(format!("{text}; the CPU does not have the erratum"), wanted).into();
    }
    if is_on(text) {
        let read = format!("{text}; spikes of some 100 µs may show, and stay: this is a protection");
        return Finding::pass(read, wanted).into();
    }
    let how = if text == "never" {
        // A write would be refused (EPERM) until KVM is loaded anew without this word.
        if machine.tuning.loadable.contains("kvm") {
            option(machine, "kvm", "nx_huge_pages", "auto")
        } else {
            boot_without("kvm.nx_huge_pages")
        }
    } else {
        write("/sys/module/kvm/parameters/nx_huge_pages", "auto")
    };
    Finding::fail(format!("{text}, and the CPU has the erratum"), wanted, how).into()
}
