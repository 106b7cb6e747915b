//! Clock sources and timers.

use penstock_model::{audit::Layer, inventory::tuning::Knob};

use crate::{
    machine::{Machine, read},
    rule::{Finding, Need, Rule, Said, Silent, left_out, unknown},
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "clock-source",
        layer: Layer::Clock,
        what: "the clock that the kernel reads (clocksource0/current_clocksource)",
        why: "reading the TSC takes nanoseconds; reading the HPET takes a microsecond, and CPUs wait for each other",
        price: None,
        source: "Documentation/timers/timekeeping.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: source,
    },
    Rule {
        id: "tsc-steady",
        layer: Layer::Clock,
        what: "whether the CPU's TSC runs at one rate and in every idle state (constant_tsc, nonstop_tsc)",
        why: "a TSC that changes or stops is no clock, and the kernel leaves it when it notices",
        price: None,
        source: "Documentation/timers/timekeeping.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: steady,
    },
    Rule {
        id: "tsc-reliable-without-tsc",
        layer: Layer::Clock,
        what: "tsc=reliable where another clock is used",
        why: "the word stops the kernel from checking the TSC; where it has already left it, it may be used again unchecked",
        price: None,
        source: "Documentation/admin-guide/kernel-parameters.txt, tsc",
        needs_root: false,
        need: Need::Always,
        judge: reliable_without,
    },
    Rule {
        id: "tsc-checked-by-timer",
        layer: Layer::Clock,
        what: "timers that check the TSC on every CPU (tsc=reliable stops them)",
        why: "every ten minutes a timer on each CPU, isolated ones too, compares TSC_ADJUST; tsc=nowatchdog does not stop that one",
        price: None,
        source: "arch/x86/kernel/tsc_sync.c; TuneD commit 49cc817",
        needs_root: false,
        need: Need::Tickless,
        judge: checked,
    },
    Rule {
        id: "timer-migration",
        layer: Layer::Clock,
        what: "whether timers move to CPUs that are awake (kernel.timer_migration)",
        why: "TuneD sets 0, OpenShift 1 and admits that cyclictest suffers: measure both",
        price: None,
        source: "Documentation/admin-guide/sysctl/kernel.rst, timer_migration",
        needs_root: false,
        need: Need::Isolation,
        judge: migration,
    },
    Rule {
        id: "skew-tick",
        layer: Layer::Clock,
        what: "whether the ticks of all CPUs come at different times (skew_tick=1)",
        why: "ticks at one time contend for locks; spread ones wake the machine more often: measure both",
        price: None,
        source: "Documentation/admin-guide/kernel-parameters.txt, skew_tick",
        needs_root: false,
        need: Need::Isolation,
        judge: skew,
    },
];

fn clock<'a>(machine: &Machine<'a>) -> Result<&'a str, Silent> {
    match read(&machine.tuning.clock_source, "clocksource0/current_clocksource")? {
        Some(clock) => Ok(clock),
        None => unknown("clocksource0/current_clocksource is not there"),
    }
}

fn source(machine: &Machine<'_>) -> Said {
    let clock = clock(machine)?;
    let wanted = "tsc (arch_sys_counter on ARM; kvm-clock inside a VM)";
    match clock {
        "tsc" | "arch_sys_counter" => Finding::pass(clock, wanted).into(),
        "kvm-clock" if machine.tuning.cpu_flags.contains("hypervisor") => Finding::pass(clock, wanted).into(),
        _ => {
            let how = "see the kernel's messages for why it left the TSC; echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource";
            Finding::fail(clock, wanted, how).into()
        }
    }
}

fn steady(machine: &Machine<'_>) -> Said {
    if clock(machine)? == "arch_sys_counter" {
        return left_out("this CPU has no TSC");
    }
    let flags = &machine.tuning.cpu_flags;
    if flags.is_empty() {
        return unknown("the CPU's flags could not be read");
    }
    let wanted = "constant_tsc nonstop_tsc";
    let missing: Vec<&str> = wanted.split(' ').filter(|flag| !flags.contains(*flag)).collect();
    if missing.is_empty() {
        return Finding::pass(wanted, wanted).into();
    }
    let how = "another CPU; in a VM, a CPU model with invtsc";
    Finding::fail(format!("without {}", missing.join(" and ")), wanted, how).into()
}

fn trusts(machine: &Machine<'_>) -> Option<&'static str> {
    ["reliable", "nowatchdog"].into_iter().find(|word| machine.line.says("tsc", word))
}

fn reliable_without(machine: &Machine<'_>) -> Said {
    let Some(word) = trusts(machine) else {
        return left_out("the command line does not say that the TSC is to be trusted");
    };
    let clock = clock(machine)?;
    let wanted = "tsc=reliable only where the TSC is the clock";
    if clock == "tsc" {
        return Finding::pass(format!("tsc={word}, and the TSC is the clock"), wanted).into();
    }
    Finding::conflict(
        format!("tsc={word}, and the clock is {clock}"),
        wanted,
        format!("boot command line without tsc={word}, then find out why the kernel left the TSC"),
    )
    .into()
}

fn checked(machine: &Machine<'_>) -> Said {
    machine.kept()?;
    if clock(machine)? != "tsc" {
        return left_out("the clock is not the TSC");
    }
    if machine.tuning.cpu_flags.is_empty() {
        return unknown("the CPU's flags could not be read");
    }
    if !machine.tuning.cpu_flags.contains("tsc_adjust") {
        return left_out("this CPU has no TSC_ADJUST");
    }
    let wanted = "tsc=reliable";
    if machine.line.says("tsc", "reliable") {
        return Finding::pass("tsc=reliable", wanted).into();
    }
    Finding::fail(
        "a timer checks it",
        wanted,
        "boot command line: tsc=reliable (only since the TSC is the clock here)",
    )
    .into()
}

fn migration(machine: &Machine<'_>) -> Said {
    match machine.number(Knob::TimerMigration)? {
        Some(number) => Finding::recorded(number.to_string(), "whichever measures better here").into(),
        None => left_out("the kernel has no timer_migration"),
    }
}

fn skew(machine: &Machine<'_>) -> Said {
    let read = if machine.line.says("skew_tick", "1") { "spread" } else { "at one time" };
    Finding::recorded(read, "whichever measures better here").into()
}
