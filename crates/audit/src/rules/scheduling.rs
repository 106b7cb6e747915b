//! Throttling, the fair server, watchdogs.

use penstock_model::{
    CpuSet,
    audit::{Currency, Layer},
    inventory::tuning::{Knob, Reading, Value},
};

use crate::{
    advice::{self, Advice, boot, model, to_housekeeping, write, writes},
    machine::{Machine, is_realtime},
    rule::{Finding, Need, NoFinding, Rule, RuleResult, left_out, unknown},
    sets::{both, either, named},
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
        why: "at 950000 a kernel before 6.12, or one with RT_GROUP_SCHED, stops them for 50 ms of each second that they would run through",
        price: STARVES,
        source: "Documentation/scheduler/sched-rt-group.rst; kernel commit 5f6bd380c7bd; Documentation/scheduler/sched-deadline.rst",
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
        what: "whether a performance counter interrupts isolated CPUs to find them hung (kernel.nmi_watchdog, watchdog_cpumask)",
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
        what: "whether a timer on isolated CPUs looks for soft lockups (kernel.soft_watchdog, watchdog_cpumask)",
        why: "its timer fires on isolated CPUs every few seconds",
        price: Some((Currency::Safety, "a kernel thread that spins on the CPU is not reported")),
        source: "Documentation/admin-guide/lockup-watchdogs.rst; Documentation/admin-guide/sysctl/kernel.rst, watchdog_cpumask",
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

/// Throttling off: -1, or a runtime that is the whole period.
fn no_throttling(machine: &Machine<'_>) -> Advice {
    let file = Knob::RtRuntime.to_string();
    let period = machine.number(Knob::RtPeriod).ok().flatten().unwrap_or(1_000_000);
    write(file.as_str(), "-1")
        .beware("-1 also ends the admission control of SCHED_DEADLINE: its threads can then be promised more than there is")
        .or(write(file, period))
        .or(model("realtime: {throttling: off}"))
}

fn runtime(machine: &Machine<'_>) -> Result<i64, NoFinding> {
    match machine.number(Knob::RtRuntime)? {
        Some(number) => Ok(number),
        None => unknown("kernel.sched_rt_runtime_us is not there"),
    }
}

/// Whether the kernel has a fair server; `None`: nothing tells.
fn has_fair_server(machine: &Machine<'_>) -> Option<bool> {
    let readings =
        machine.online().0.iter().filter_map(|cpu| machine.tuning.knobs.get(&Knob::FairServer(*cpu)));
    let (mut there, mut absent) = (false, false);
    for reading in readings {
        there |= matches!(reading, Reading::Is(_));
        // Where debugfs cannot be seen it is unreadable, not absent.
        absent |= *reading == Reading::Absent;
    }
    match (there, absent) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        _ => machine.is_at_least(6, 12).then_some(true),
    }
}

/// What real-time threads may use, and whether the kernel stops those that use more. With the fair server the limit is only kept
/// for groups (RT_GROUP_SCHED) and for admitting SCHED_DEADLINE.
fn throttles(machine: &Machine<'_>) -> Result<(String, bool), NoFinding> {
    let runtime = runtime(machine)?;
    if runtime == -1 {
        return Ok(("-1".to_owned(), false));
    }
    if let Ok(Some(period)) = machine.number(Knob::RtPeriod)
        && runtime >= period
    {
        return Ok((format!("{runtime} of {period}, which is all"), false));
    }
    let groups = machine.built_with("RT_GROUP_SCHED");
    let by_default = machine.built_with("RT_GROUP_SCHED_DEFAULT_DISABLED") != Some(true);
    let switched = ["1", "on", "y"].iter().any(|on| machine.line.says("rt_group_sched", on));
    match (has_fair_server(machine), groups) {
        (Some(false), _) => Ok((format!("{runtime}; this kernel has no fair server"), true)),
        (_, Some(true)) if by_default || switched => Ok((format!("{runtime}, with RT_GROUP_SCHED"), true)),
        (Some(true), Some(false)) => Ok((
            format!(
                "{runtime}, which limits nothing: this kernel has the fair server in its place, and no RT_GROUP_SCHED"
            ),
            false,
        )),
        (Some(true), Some(true)) => unknown(format!(
            "sched_rt_runtime_us is {runtime}; whether a kernel whose RT_GROUP_SCHED is switched off limits anything is not known"
        )),
        (Some(true), None) => unknown(format!(
            "sched_rt_runtime_us is {runtime}, which limits anything only with RT_GROUP_SCHED: how this kernel was built could not be read (/proc/config.gz, /boot/config-*)"
        )),
        (None, _) => unknown(format!(
            "sched_rt_runtime_us is {runtime}; whether this kernel has a fair server in its place is for root to see (/sys/kernel/debug/sched)"
        )),
    }
}

const WANTED: &str = "-1, or as much as sched_rt_period_us; any value on a kernel that does not enforce it";

fn throttling(machine: &Machine<'_>) -> RuleResult {
    machine.kept()?;
    match throttles(machine)? {
        (read, false) => Finding::pass(read, WANTED).into(),
        (read, true) => Finding::fail(read, WANTED, no_throttling(machine)).into(),
    }
}

/// The CPUs of these on which the fair server takes something.
fn served(machine: &Machine<'_>, cpus: &CpuSet) -> Result<CpuSet, NoFinding> {
    if has_fair_server(machine) == Some(false) {
        return left_out("this kernel has no fair server");
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

fn off(cpus: &CpuSet) -> Advice {
    let paths = cpus.0.iter().map(|cpu| Knob::FairServer(*cpu).to_string());
    writes(paths, "0").or(model("realtime: {throttling: off}"))
}

fn fair_server(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let on = served(machine, kept)?;
    let wanted = format!("runtime 0 on {}", named(kept));
    if on.0.is_empty() {
        return Finding::pass("0", wanted).into();
    }
    if runtime(machine)? == -1 {
        return left_out("reported under throttling-off-fair-server-on");
    }
    Finding::fail(format!("on for {}", named(&on)), wanted, off(&on)).about(named(&on)).into()
}

fn fair_server_left_on(machine: &Machine<'_>) -> RuleResult {
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

fn fifo_vcpus(machine: &Machine<'_>) -> RuleResult {
    let wanted = "no throttling where virtual CPUs have a real-time policy";
    let mut found = Vec::new();
    let mut seen = false;
    machine.sees_processes()?;
    for vm in &machine.vms {
        let cpus = vm.vcpus.iter().filter(|thread| is_realtime(thread));
        let cpus = cpus.fold(CpuSet::default(), |all, thread| either(&all, &thread.cpus));
        if cpus.0.is_empty() {
            continue;
        }
        seen = true;
        let (limit, stops) = throttles(machine)?;
        if stops {
            let read = format!("real-time virtual CPUs on {}, sched_rt_runtime_us {limit}", named(&cpus));
            found.push(Finding::conflict(read, wanted, no_throttling(machine)).about(vm.subject()));
        }
    }
    if !seen {
        return left_out("no virtual CPU has a real-time policy");
    }
    if found.is_empty() { Finding::pass(throttles(machine)?.0, wanted).into() } else { Ok(found) }
}

fn guard(machine: &Machine<'_>) -> RuleResult {
    if throttles(machine)?.1 {
        return left_out("throttling is on");
    }
    let read = if machine.runs("stalld")? { "stalld runs" } else { "nothing does" };
    Finding::recorded(read, "stalld, or threads that are known to sleep").into()
}

/// The CPUs of these that the watchdogs look at: both have one mask.
fn watched(machine: &Machine<'_>, cpus: &CpuSet) -> Result<CpuSet, NoFinding> {
    let here = both(cpus, machine.online());
    Ok(machine.cpus_of(Knob::WatchdogCpus)?.map_or(here.clone(), |mask| both(&here, mask)))
}

fn elsewhere(machine: &Machine<'_>) -> Advice {
    to_housekeeping(machine, |hold| advice::cpus(Knob::WatchdogCpus, hold))
}

fn nmi_watchdog(machine: &Machine<'_>) -> RuleResult {
    let wanted = "0, or no isolated CPU in watchdog_cpumask";
    match machine.number(Knob::NmiWatchdog)? {
        None => return Finding::pass("the kernel has none", wanted).into(),
        Some(0) => return Finding::pass("0", wanted).into(),
        Some(_) => {}
    }
    let on = watched(machine, machine.judged())?;
    if on.0.is_empty() {
        return Finding::pass("watchdog_cpumask keeps it away", wanted).into();
    }
    let how = write(Knob::NmiWatchdog.to_string(), "0").or(boot("nmi_watchdog=0"));
    let how = if machine.kept.0.is_empty() { how } else { how.or(elsewhere(machine)) };
    Finding::fail(format!("it looks at {}", named(&on)), wanted, how).into()
}

fn soft_lockup(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let wanted = "no isolated CPU in watchdog_cpumask, or soft_watchdog 0";
    match machine.number(Knob::SoftWatchdog)? {
        None => return Finding::pass("the kernel has none", wanted).into(),
        Some(0) => return Finding::pass("soft_watchdog 0", wanted).into(),
        Some(_) => {}
    }
    let on = watched(machine, kept)?;
    if on.0.is_empty() {
        return Finding::pass("watchdog_cpumask keeps it away", wanted).into();
    }
    let how = elsewhere(machine).or(write(Knob::SoftWatchdog.to_string(), "0")).or(boot("nosoftlockup"));
    Finding::fail(format!("it runs on {}", named(&on)), wanted, how).into()
}

fn stat_interval(machine: &Machine<'_>) -> RuleResult {
    let wanted = "10 or more";
    match machine.number(Knob::StatInterval)? {
        Some(number) if number >= 10 => Finding::pass(number.to_string(), wanted).into(),
        Some(number) => {
            Finding::fail(number.to_string(), wanted, write(Knob::StatInterval.to_string(), "10")).into()
        }
        None => unknown("vm.stat_interval is not there"),
    }
}
