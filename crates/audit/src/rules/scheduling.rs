//! Throttling, the fair server, watchdogs.

use penstock_model::{
    CpuSet,
    audit::{Currency, Layer},
    inventory::tuning::{Knob, Value},
};

use crate::{
    machine::{Machine, is_realtime, read},
    release::Release,
    rule::{Finding, Need, Rule, Said, Silent, left_out, unknown},
    sets::{both, either, is_within, named},
};

const STARVES: Option<(Currency, &str)> = Some((
    Currency::Safety,
    "a real-time thread that spins then starves the kernel's own threads on its CPU; stalld, or a watchdog, has to help",
));

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "rt-throttling",
        layer: Layer::Scheduling,
        what: "what real-time threads may use of each period (kernel.sched_rt_runtime_us)",
        why: "at 950000 the kernel stops them for 50 ms of each second that they would run through",
        price: STARVES,
        source: "Documentation/scheduler/sched-rt-group.rst",
        needs_root: false,
        need: Need::Throttling,
        judge: throttling,
    },
    Rule {
        id: "fair-server",
        layer: Layer::Scheduling,
        what: "what the fair server takes for ordinary threads on isolated CPUs (/sys/kernel/debug/sched/fair_server)",
        why: "from Linux 6.12 on ordinary threads get 50 ms of each second of a CPU that real-time threads use up, whatever sched_rt_runtime_us says",
        price: STARVES,
        source: "kernel commit 5f6bd380c7bd; https://github.com/ni/meta-nilrt/pull/864",
        needs_root: true,
        need: Need::Throttling,
        judge: fair_server,
    },
    Rule {
        id: "throttling-off-fair-server-on",
        layer: Layer::Scheduling,
        what: "throttling that was switched off while the fair server was not",
        why: "from Linux 6.12 on sched_rt_runtime_us=-1 alone does not keep ordinary threads off: who set it believes that it does",
        price: STARVES,
        source: "kernel commit 5f6bd380c7bd",
        needs_root: true,
        need: Need::Throttling,
        judge: fair_server_left_on,
    },
    Rule {
        id: "fifo-vcpus-throttled",
        layer: Layer::Scheduling,
        what: "virtual CPUs with a real-time policy that are throttled",
        why: "a VM whose virtual CPUs never sleep, as polling ones and RTOSes do not, is stopped for 50 ms of each second",
        price: STARVES,
        source: "https://libvirt.org/kbase/kvm-realtime.html",
        needs_root: false,
        need: Need::Throttling,
        judge: fifo_vcpus,
    },
    Rule {
        id: "starvation-guard",
        layer: Layer::Scheduling,
        what: "whether something helps threads that starve (stalld) when nothing is throttled",
        why: "with throttling off a spinning thread keeps the kernel's threads of its CPU from running for ever",
        price: None,
        source: "https://gitlab.com/rt-linux-tools/stalld",
        needs_root: false,
        need: Need::Throttling,
        judge: guard,
    },
    Rule {
        id: "nmi-watchdog",
        layer: Layer::Scheduling,
        what: "whether a performance counter interrupts each CPU to find it hung (kernel.nmi_watchdog)",
        why: "it interrupts isolated CPUs, and takes a counter",
        price: Some((Currency::Safety, "a CPU that hangs with interrupts off is not reported")),
        source: "Documentation/admin-guide/sysctl/kernel.rst, nmi_watchdog",
        needs_root: false,
        need: Need::Isolation,
        judge: nmi_watchdog,
    },
    Rule {
        id: "soft-lockup-watchdog",
        layer: Layer::Scheduling,
        what: "whether a thread on each CPU looks for soft lockups (nosoftlockup, or nohz_full, which keeps it away)",
        why: "its timer fires on isolated CPUs every few seconds",
        price: Some((Currency::Safety, "a kernel thread that spins on the CPU is not reported")),
        source: "Documentation/admin-guide/lockup-watchdogs.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: soft_lockup,
    },
    Rule {
        id: "stat-interval",
        layer: Layer::Scheduling,
        what: "seconds between updates of memory statistics (vm.stat_interval)",
        why: "each update is work on every CPU that touched memory",
        price: None,
        source: "Documentation/admin-guide/sysctl/vm.rst, stat_interval",
        needs_root: false,
        need: Need::Isolation,
        judge: stat_interval,
    },
];

const WRITE: &str = "sysctl -w kernel.sched_rt_runtime_us=-1 (in the model: realtime: {throttling: off})";

fn runtime(machine: &Machine<'_>) -> Result<i64, Silent> {
    match machine.number(Knob::RtRuntime)? {
        Some(number) => Ok(number),
        None => unknown("kernel.sched_rt_runtime_us is not there"),
    }
}

fn throttling(machine: &Machine<'_>) -> Said {
    machine.kept()?;
    let number = runtime(machine)?;
    if number == -1 {
        return Finding::pass("-1", "-1").into();
    }
    Finding::fail(number.to_string(), "-1", WRITE).into()
}

/// The CPUs of these on which the fair server takes something.
fn served(machine: &Machine<'_>, cpus: &CpuSet) -> Result<CpuSet, Silent> {
    let release = machine.release()?;
    if release < Release::new(6, 12) {
        return left_out(format!("Linux {release} has no fair server: it came with 6.12"));
    }
    let values = machine.each(cpus, Knob::FairServer)?;
    if values.is_empty() {
        return unknown(
            "/sys/kernel/debug/sched/fair_server is not there: debugfs is not mounted, or the kernel has no SCHED_DEBUG",
        );
    }
    let on = |(cpu, value): (u32, &Value)| (*value != Value::Number(0)).then_some(cpu);
    Ok(CpuSet(values.into_iter().filter_map(on).collect()))
}

fn off(cpus: &CpuSet) -> String {
    let writes = cpus.0.iter().take(8).map(|cpu| format!("echo 0 > {}", Knob::FairServer(*cpu)));
    format!("{} (in the model: realtime: {{throttling: off}})", writes.collect::<Vec<_>>().join("; "))
}

fn fair_server(machine: &Machine<'_>) -> Said {
    let kept = machine.kept()?;
    let on = served(machine, kept)?;
    let wanted = format!("runtime 0 on {}", named(kept));
    if on.0.is_empty() {
        return Finding::pass("0", wanted).into();
    }
    if runtime(machine)? == -1 {
        return left_out("told under throttling-off-fair-server-on");
    }
    Finding::fail(format!("on for {}", named(&on)), wanted, off(&on)).about(named(&on)).into()
}

fn fair_server_left_on(machine: &Machine<'_>) -> Said {
    let kept = machine.kept()?;
    if runtime(machine)? != -1 {
        return left_out("throttling is on");
    }
    let on = served(machine, kept)?;
    let wanted = "both off on isolated CPUs";
    if on.0.is_empty() {
        return Finding::pass("both off", wanted).into();
    }
    let read = format!("sched_rt_runtime_us is -1, the fair server is on for {}", named(&on));
    Finding::conflict(read, wanted, off(&on)).about(named(&on)).into()
}

fn fifo_vcpus(machine: &Machine<'_>) -> Said {
    let wanted = "no throttling where virtual CPUs have a real-time policy";
    let mut found = Vec::new();
    let mut seen = false;
    let number = runtime(machine)?;
    machine.sees_processes()?;
    for vm in &machine.vms {
        let cpus = vm.vcpus.iter().filter(|thread| is_realtime(thread));
        let cpus = cpus.fold(CpuSet::default(), |all, thread| either(&all, &thread.cpus));
        if cpus.0.is_empty() {
            continue;
        }
        seen = true;
        if number != -1 {
            let read = format!("real-time virtual CPUs on {}, sched_rt_runtime_us {number}", named(&cpus));
            found.push(Finding::conflict(read, wanted, WRITE).about(vm.subject()));
        }
    }
    if !seen {
        return left_out("no virtual CPU has a real-time policy");
    }
    if found.is_empty() { Finding::pass("-1", wanted).into() } else { Ok(found) }
}

fn guard(machine: &Machine<'_>) -> Said {
    if runtime(machine)? != -1 {
        return left_out("throttling is on");
    }
    let read = if machine.runs("stalld")? { "stalld runs" } else { "nothing does" };
    Finding::recorded(read, "stalld, or threads that are known to sleep").into()
}

fn nmi_watchdog(machine: &Machine<'_>) -> Said {
    match machine.number(Knob::NmiWatchdog)? {
        Some(0) => Finding::pass("0", "0").into(),
        Some(number) => {
            let how = "sysctl -w kernel.nmi_watchdog=0, for good: nmi_watchdog=0 on the boot command line";
            Finding::fail(number.to_string(), "0", how).into()
        }
        None => Finding::pass("the kernel has none", "0").into(),
    }
}

fn soft_lockup(machine: &Machine<'_>) -> Said {
    let kept = machine.kept()?;
    let wanted = "nosoftlockup, or all isolated CPUs in nohz_full=";
    if let Some(word) = ["nosoftlockup", "nowatchdog"].into_iter().find(|word| machine.line.has(word)) {
        return Finding::pass(word, wanted).into();
    }
    let tickless =
        read(&machine.tuning.tickless, "/sys/devices/system/cpu/nohz_full")?.cloned().unwrap_or_default();
    if is_within(kept, &tickless) {
        return Finding::pass("nohz_full= keeps it away", wanted).into();
    }
    let read = format!("it runs on {}", named(&both(kept, machine.online())));
    let how = format!("sysctl -w kernel.watchdog_cpumask={}", machine.housekeeping());
    Finding::fail(read, wanted, how).into()
}

fn stat_interval(machine: &Machine<'_>) -> Said {
    let wanted = "10 or more";
    match machine.number(Knob::StatInterval)? {
        Some(number) if number >= 10 => Finding::pass(number.to_string(), wanted).into(),
        Some(number) => Finding::fail(number.to_string(), wanted, "sysctl -w vm.stat_interval=10").into(),
        None => unknown("vm.stat_interval is not there"),
    }
}
