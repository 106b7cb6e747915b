//! What firmware sets, as far as it shows from a running system.

use penstock_model::audit::{Currency, Layer};

use crate::{
    advice::{by_hand, disable},
    machine::{Machine, read},
    rule::{Finding, Need, Rule, RuleResult, left_out, unknown},
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "management-interrupts",
        layer: Layer::Firmware,
        what: "system management interrupts during an observation (MSR 0x34)",
        why: "each takes all CPUs into firmware, for microseconds up to milliseconds; no setting of the kernel stops them",
        price: None,
        source: "Intel SDM volume 4, MSR_SMI_COUNT; rt-tests, hwlatdetect",
        needs_root: true,
        need: Need::Isolation,
        judge: smi,
    },
    Rule {
        id: "firmware-updates",
        layer: Layer::Firmware,
        what: "programs that ask firmware things now and then (fwupd, fwupd-refresh.timer)",
        why: "reading firmware's tables triggers system management interrupts; its timer runs while guests do",
        price: Some((
            Currency::Security,
            "without the timer somebody has to look for firmware updates by hand",
        )),
        source: "openshift/cluster-node-tuning-operator commit faffd0396",
        needs_root: false,
        need: Need::Isolation,
        judge: fwupd,
    },
    Rule {
        id: "turbo",
        layer: Layer::Firmware,
        what: "whether frequencies above the nominal one are used",
        why: "older recipes switch it off for steadiness; TuneD now switches it on: measure both",
        price: Some((Currency::Power, "turbo draws more, and heats until it throttles")),
        source: "Documentation/admin-guide/pm/cpufreq.rst, boost",
        needs_root: false,
        need: Need::Frequency,
        judge: turbo,
    },
    Rule {
        id: "smt",
        layer: Layer::Firmware,
        what: "SMT",
        why: "siblings delay each other; off, or both with one tenant, which smt-siblings-split looks at",
        price: Some((Currency::Throughput, "without it the machine gets a fifth to a third less done")),
        source: "Documentation/admin-guide/cpu-isolation.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: smt,
    },
    Rule {
        id: "emulated-machine",
        layer: Layer::Firmware,
        what: "whether this machine is itself emulated or a VM (the CPU's flag hypervisor)",
        why: "whoever runs it decides when its CPUs run: latencies that are measured inside say little about hardware",
        price: None,
        source: "Documentation/virt/kvm/x86/cpuid.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: emulated,
    },
];

fn smi(machine: &Machine<'_>) -> RuleResult {
    let wanted = "none";
    let Some(watched) = &machine.tuning.watched else {
        return left_out("not observed: audit --over 60s observes it, as root");
    };
    match read(&watched.smi, "MSR 0x34")? {
        None => unknown("this CPU does not count them, or /dev/cpu/0/msr is not there (modprobe msr)"),
        Some(0) => {
            Finding::pass(format!("none in {:.1} s", watched.milliseconds as f64 / 1000.0), wanted).into()
        }
        Some(count) => {
            let how = by_hand("firmware's set-up: USB legacy support, error logging and patrol scrub off; then hwlatdetect --duration=10m")
                .beware("without patrol scrub, errors of memory that nobody reads are found late");
            let seconds = watched.milliseconds as f64 / 1000.0;
            Finding::fail(format!("{count} in {seconds:.1} s"), wanted, how).into()
        }
    }
}

fn fwupd(machine: &Machine<'_>) -> RuleResult {
    let wanted = "not beside guests in real time";
    let timer = machine.tuning.programs.contains("fwupd-refresh.timer");
    let runs = machine.runs("fwupd");
    if timer || runs.as_ref().is_ok_and(|runs| *runs) {
        let read = if timer { "fwupd-refresh.timer is on" } else { "fwupd runs" };
        let how = disable(&["fwupd-refresh.timer", "fwupd.service"])
            .beware("nobody looks for firmware updates any more: start it in maintenance hours");
        return Finding::fail(read, wanted, how).into();
    }
    runs?;
    Finding::pass("fwupd does not run, nor its timer", wanted).into()
}

fn turbo(machine: &Machine<'_>) -> RuleResult {
    match read(&machine.tuning.turbo, "cpufreq/boost")? {
        Some(on) => {
            Finding::recorded(if *on { "on" } else { "off" }, "whichever measures better here").into()
        }
        None => left_out("no driver tells"),
    }
}

fn smt(machine: &Machine<'_>) -> RuleResult {
    match read(&machine.tuning.smt, "/sys/devices/system/cpu/smt/control")? {
        Some(state) => Finding::recorded(state.as_str(), "off, or both siblings with one tenant").into(),
        None => left_out("the kernel does not tell"),
    }
}

fn emulated(machine: &Machine<'_>) -> RuleResult {
    if machine.tuning.cpu_flags.is_empty() {
        return unknown("the CPU's flags could not be read");
    }
    if machine.tuning.cpu_flags.contains("hypervisor") {
        return Finding::recorded("it is", "hardware of its own").into();
    }
    left_out("it is hardware of its own")
}
