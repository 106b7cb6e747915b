//! Clock sources and timers.

use penstock_model::{audit::Layer, inventory::tuning::Knob};

use crate::{
    advice::{boot, boot_without, by_hand, write},
    machine::{Machine, read},
    rule::{Finding, Need, NoFinding, Rule, RuleResult, left_out, unknown},
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

fn clock<'a>(machine: &Machine<'a>) -> Result<&'a str, NoFinding> {
    match read(&machine.tuning.clock_source, "clocksource0/current_clocksource")? {
        Some(clock) => Ok(clock),
        None => unknown("clocksource0/current_clocksource is not there"),
    }
}

/// Clocks that take no longer to read than the TSC, and clocks of a VM that do the same with the host's help.
const QUICK: [&str; 5] = ["tsc", "arch_sys_counter", "riscv_clocksource", "timebase", "tod"];
const QUICK_IN_VMS: [&str; 3] = ["kvm-clock", "hyperv_clocksource_tsc_page", "xen"];
/// Clocks that are read over a bus, or only at each tick.
const SLOW: [&str; 7] =
    ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies", "tsc-early", "hyperv_clocksource_msr"];

const CURRENT: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

fn source(machine: &Machine<'_>) -> RuleResult {
    let clock = clock(machine)?;
    let wanted = "tsc (arch_sys_counter on ARM; in a VM its hypervisor's)";
    if QUICK.contains(&clock) {
        return Finding::pass(clock, wanted).into();
    }
    if QUICK_IN_VMS.contains(&clock) {
        return match machine.is_vm() {
            Some(true) => Finding::pass(format!("{clock}, and this is a VM"), wanted).into(),
            Some(false) => Finding::fail(clock, wanted, write(CURRENT, "tsc")).into(),
            None => unknown("the CPU's flags, which tell whether this is a VM, could not be read"),
        };
    }
    if !SLOW.contains(&clock) {
        return Finding::recorded(clock, wanted).into();
    }
    // One that the kernel found to be wrong is not offered any more, and what is written of it is ignored.
    let offered = read(&machine.tuning.clock_sources, "clocksource0/available_clocksource")?;
    let quick = offered
        .and_then(|offered| QUICK.into_iter().chain(QUICK_IN_VMS).find(|quick| offered.contains(*quick)));
    let how = match quick {
        Some(quick) => write(CURRENT, quick),
        None => by_hand(
            "see the kernel's messages (dmesg) for why it left the TSC: firmware that sets it, sockets out of step, or clocksource= on the boot command line",
        ),
    };
    Finding::fail(clock, wanted, how).into()
}

fn steady(machine: &Machine<'_>) -> RuleResult {
    let flags = &machine.tuning.cpu_flags;
    if flags.is_empty() {
        return unknown("the CPU's flags could not be read");
    }
    if !flags.contains("tsc") {
        return left_out("this CPU has no TSC");
    }
    let wanted = "constant_tsc nonstop_tsc";
    let missing: Vec<&str> = wanted.split(' ').filter(|flag| !flags.contains(*flag)).collect();
    if missing.is_empty() {
        return Finding::pass(wanted, wanted).into();
    }
    let how = if flags.contains("hypervisor") {
        by_hand(
            "on the host: a CPU model with invtsc for this VM (libvirt: <feature policy='require' name='invtsc'/>), which then cannot migrate",
        )
    } else {
        by_hand("another CPU")
    };
    Finding::fail(format!("without {}", missing.join(" and ")), wanted, how).into()
}

fn trusts(machine: &Machine<'_>) -> Option<&'static str> {
    ["reliable", "nowatchdog"].into_iter().find(|word| machine.line.says("tsc", word))
}

fn reliable_without(machine: &Machine<'_>) -> RuleResult {
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
        boot_without(&format!("tsc={word}")),
    )
    .into()
}

fn checked(machine: &Machine<'_>) -> RuleResult {
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
    let how = boot("tsc=reliable").beware("the kernel then no longer notices a TSC that firmware sets or that runs off; it is the clock here now");
    Finding::fail("a timer checks it", wanted, how).into()
}

fn migration(machine: &Machine<'_>) -> RuleResult {
    match machine.number(Knob::TimerMigration)? {
        Some(number) => Finding::recorded(number.to_string(), "whichever measures better here").into(),
        None => left_out("the kernel has no timer_migration"),
    }
}

fn skew(machine: &Machine<'_>) -> RuleResult {
    let read = if machine.line.says("skew_tick", "1") { "spread" } else { "at one time" };
    Finding::recorded(read, "whichever measures better here").into()
}
