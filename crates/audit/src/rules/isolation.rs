//! Which CPUs are kept free of everything else.

use penstock_model::{
    CpuSet,
    audit::{Currency, Layer},
    inventory::tuning::Knob,
};

use crate::{
    advice::{Advice, apply, boot, boot_with_and_without, boot_without, by_hand, model, write, writes},
    machine::{Machine, read},
    rule::{Finding, Need, Rule, RuleResult, left_out, unknown},
    sets::{both, either, is_within, named, without},
};

const ISOLATION: &str = "Documentation/admin-guide/cpu-isolation.rst";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "isolated-cpus",
        layer: Layer::Isolation,
        what: "CPUs that the scheduler gives nothing to by itself (/sys/devices/system/cpu/isolated, cpuset.cpus.isolated)",
        why: "on any other CPU every thread of the machine may come between",
        price: Some((Currency::Throughput, "isolated CPUs stay idle when their owner has nothing to do")),
        source: ISOLATION,
        needs_root: false,
        need: Need::Isolation,
        judge: isolated_cpus,
    },
    Rule {
        id: "isolation-at-boot",
        layer: Layer::Isolation,
        what: "whether CPUs are isolated by the boot command line or by partitions",
        why: "what the domain flag of isolcpus= takes from the scheduler comes back only with a new start; a partition lives and goes with its guest",
        price: None,
        source: "Documentation/admin-guide/kernel-parameters.txt, isolcpus (deprecated); cgroup-v2.rst, cpuset.cpus.partition",
        needs_root: false,
        need: Need::Isolation,
        judge: isolation_at_boot,
    },
    Rule {
        id: "no-housekeeping",
        layer: Layer::Isolation,
        what: "CPUs left for everything else",
        why: "interrupts, kernel threads and management need a CPU; with none left they run where they must not",
        price: None,
        source: ISOLATION,
        needs_root: false,
        need: Need::Isolation,
        judge: no_housekeeping,
    },
    Rule {
        id: "housekeeping-on-another-node",
        layer: Layer::Isolation,
        what: "a housekeeping CPU on every NUMA node that has isolated ones",
        why: "interrupts and kernel threads of a node without one cross to the other for all memory that they touch",
        price: None,
        source: ISOLATION,
        needs_root: false,
        need: Need::Isolation,
        judge: housekeeping_nodes,
    },
    Rule {
        id: "smt-siblings-split",
        layer: Layer::Isolation,
        what: "SMT siblings of which one is isolated and the other is not",
        why: "siblings share one core: whatever runs on the other delays, and may spy on, the isolated one",
        price: Some((Currency::Throughput, "the sibling is lost to everybody else")),
        source: "Documentation/admin-guide/cpu-isolation.rst; Documentation/admin-guide/hw-vuln/core-scheduling.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: siblings_split,
    },
    Rule {
        id: "smt-siblings-of-two-tenants",
        layer: Layer::Isolation,
        what: "SMT siblings that two guests use",
        why: "siblings share one core and its caches: the two delay, and may spy on, each other",
        price: Some((
            Currency::Security,
            "a guest can observe its sibling through shared core resources (L1TF, MDS)",
        )),
        source: "Documentation/admin-guide/hw-vuln/core-scheduling.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: siblings_of_two,
    },
    Rule {
        id: "guests-share-cpus",
        layer: Layer::Isolation,
        what: "CPUs that two guests both have as their own",
        why: "two that each count on a CPU alone wait for each other",
        price: None,
        source: "https://libvirt.org/kbase/kvm-realtime.html",
        needs_root: false,
        need: Need::Isolation,
        judge: guests_share,
    },
    Rule {
        id: "tickless",
        layer: Layer::Isolation,
        what: "isolated CPUs without a periodic tick (nohz_full)",
        why: "the tick interrupts a CPU up to a thousand times a second; it stops only where one thread alone is runnable",
        price: Some((
            Currency::Throughput,
            "every entry into the kernel gets dearer, and it helps only with one runnable thread a CPU",
        )),
        source: "Documentation/timers/no_hz.rst",
        needs_root: false,
        need: Need::Tickless,
        judge: tickless,
    },
    Rule {
        id: "tickless-without-isolation",
        layer: Layer::Isolation,
        what: "CPUs of nohz_full= that nothing isolates",
        why: "the scheduler still puts threads there, so that the tick stays and each entry into the kernel is dearer: the price without the gain",
        price: None,
        source: "Documentation/timers/no_hz.rst",
        needs_root: false,
        need: Need::Always,
        judge: tickless_without_isolation,
    },
    Rule {
        id: "tickless-with-several-threads",
        layer: Layer::Isolation,
        what: "CPUs of nohz_full= on which two threads of VMs must run",
        why: "with a second runnable thread the tick is back",
        price: None,
        source: "Documentation/timers/no_hz.rst",
        needs_root: false,
        need: Need::Vms,
        judge: tickless_crowded,
    },
    Rule {
        id: "rcu-offload",
        layer: Layer::Isolation,
        what: "isolated CPUs whose RCU callbacks run elsewhere (rcu_nocbs, or nohz_full, which implies it)",
        why: "callbacks that others left are run in a soft interrupt of the isolated CPU",
        price: Some((Currency::Throughput, "the housekeeping CPUs run the callbacks of all")),
        source: "Documentation/admin-guide/kernel-parameters.txt, rcu_nocbs",
        needs_root: false,
        need: Need::Tickless,
        judge: rcu_offload,
    },
    Rule {
        id: "rcu-offload-differs-from-tickless",
        layer: Layer::Isolation,
        what: "CPUs of nohz_full= that rcu_nocbs= does not name",
        why: "nohz_full= offloads its own CPUs anyway: a list without them says that one of the two was forgotten",
        price: None,
        source: "Documentation/timers/no_hz.rst",
        needs_root: false,
        need: Need::Always,
        judge: rcu_differs,
    },
    Rule {
        id: "rcu-offload-polls",
        layer: Layer::Isolation,
        what: "whether the threads of offloaded RCU callbacks poll (rcu_nocb_poll)",
        why: "isolated CPUs need not wake those threads; no profile of TuneD sets it, SEAPATH does",
        price: Some((Currency::Power, "housekeeping CPUs wake up all the time")),
        source: "Documentation/admin-guide/kernel-parameters.txt, rcu_nocb_poll",
        needs_root: false,
        need: Need::Tickless,
        judge: rcu_polls,
    },
    Rule {
        id: "rcu-expedited",
        layer: Layer::Isolation,
        what: "whether RCU may hurry after the start (/sys/kernel/rcu_normal, which overrides rcu_expedited)",
        why: "a grace period that hurries interrupts every CPU",
        price: Some((
            Currency::Throughput,
            "what waits for a grace period waits milliseconds longer: making network namespaces, unloading modules",
        )),
        source: "Documentation/admin-guide/kernel-parameters.txt, rcupdate.rcu_normal; kernel/ksysfs.c",
        needs_root: false,
        need: Need::Isolation,
        judge: rcu_expedited,
    },
    Rule {
        id: "rcu-settings",
        layer: Layer::Isolation,
        what: "priority of RCU's threads and its patience with tickless CPUs",
        why: "a FIFO thread of a higher priority than RCU's holds up grace periods; which is wanted depends on the workload",
        price: None,
        source: "Documentation/admin-guide/kernel-parameters.txt, rcutree.kthread_prio, rcutree.nohz_full_patience_delay",
        needs_root: false,
        need: Need::Isolation,
        judge: rcu_settings,
    },
];

fn online_known(machine: &Machine<'_>) -> Result<(), crate::rule::NoFinding> {
    if machine.online().0.is_empty() {
        unknown("the CPUs that are on line could not be read")
    } else {
        Ok(())
    }
}

/// What could be isolated where nothing is: all but the first core of each node. `None`: there are no more.
fn for_example(machine: &Machine<'_>) -> Option<CpuSet> {
    let cpus = &machine.inventory.cpus;
    let nodes = cpus.nodes.values();
    let mut firsts: Vec<u32> =
        nodes.filter_map(|cpus| both(cpus, machine.online()).0.first().copied()).collect();
    firsts.extend(machine.online().0.first().copied());
    let mut rest = machine.online().clone();
    for first in firsts {
        let core = cpus.siblings.iter().find(|siblings| siblings.0.contains(&first));
        rest = without(&rest, &core.cloned().unwrap_or_else(|| CpuSet([first].into())));
    }
    (!rest.0.is_empty()).then_some(rest)
}

/// Isolates these CPUs too, by partitions where the kernel is known to have them.
fn isolate(machine: &Machine<'_>, cpus: &CpuSet) -> Advice {
    let all = either(cpus, &machine.isolated);
    let partitions = model(format!("realtime: {{isolated: {all}}}"));
    // The domain flag is what isolates; without any flag it is meant.
    let with = if machine.line.has("isolcpus") { "domain" } else { "managed_irq,domain" };
    let at_boot = boot(&machine.isolcpus(Some(with), None, cpus))
        .beware("what isolcpus= isolates comes back only with a new start");
    match machine.has_partitions() {
        Some(true) => partitions,
        Some(false) => at_boot,
        None => at_boot.or(partitions),
    }
}

fn isolated_cpus(machine: &Machine<'_>) -> RuleResult {
    online_known(machine)?;
    read(&machine.tuning.cgroups.isolated, "cpuset.cpus.isolated")?;
    read(&machine.tuning.cgroups.unbalanced, "cpuset.sched_load_balance")?;
    if machine.requirements.is_some() {
        let missing = without(&machine.kept, &machine.isolated);
        let wanted = format!("{} isolated", named(&machine.kept));
        let read = format!("isolated: {}", named(&machine.isolated));
        if missing.0.is_empty() {
            return Finding::pass(read, wanted).into();
        }
        let guests_run = machine.inventory.guests.values().any(|guest| guest.running);
        let lacking =
            format!("{read}; {} {} not", named(&missing), if missing.0.len() == 1 { "is" } else { "are" });
        // Partitions come and go with the guests.
        let change = if guests_run { isolate(machine, &missing) } else { apply() };
        return Finding::fail(lacking, wanted, change).about(named(&machine.kept)).into();
    }
    let wanted = "at least one isolated CPU";
    if machine.isolated.0.is_empty() {
        let how = match for_example(machine) {
            Some(cpus) => isolate(machine, &cpus),
            None => by_hand("a machine with more cores: this one has none to spare"),
        };
        return Finding::fail("none", wanted, how).into();
    }
    Finding::pass(named(&machine.isolated), wanted).into()
}

fn isolation_at_boot(machine: &Machine<'_>) -> RuleResult {
    if machine.isolated.0.is_empty() {
        return left_out("no CPU is isolated");
    }
    let boot_isolated = machine.boot_isolated();
    let wanted = "isolated partitions of cgroup v2, and of isolcpus= only managed_irq";
    if boot_isolated.0.is_empty() {
        return Finding::pass(format!("while it runs: {}", named(&machine.partitioned)), wanted).into();
    }
    let read = format!("isolcpus= isolates {} until the next start", named(boot_isolated));
    match machine.has_partitions() {
        Some(true) => Finding::recorded(read, wanted)
            .changed_by(
                boot(&machine.isolcpus(Some("managed_irq"), Some("domain"), boot_isolated))
                    .and(model(format!("realtime: {{isolated: {boot_isolated}}}"))),
            )
            .into(),
        Some(false) => {
            Finding::pass(read, "isolcpus=: control groups here have no isolated partitions").into()
        }
        None => Finding::recorded(
            format!("{read}; nothing tells whether this kernel has isolated partitions"),
            wanted,
        )
        .into(),
    }
}

fn no_housekeeping(machine: &Machine<'_>) -> RuleResult {
    online_known(machine)?;
    machine.kept()?;
    let left = machine.housekeeping();
    let wanted = "at least one CPU on line that is not isolated";
    if left.0.is_empty() {
        let read = format!("all of {} are isolated or a guest's alone", machine.online());
        return Finding::conflict(
            read,
            wanted,
            by_hand("isolate fewer: leave at least one core (with its SMT sibling)"),
        )
        .into();
    }
    Finding::pass(named(&left), wanted).into()
}

fn housekeeping_nodes(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let left = machine.housekeeping();
    if left.0.is_empty() {
        return left_out("there is no housekeeping CPU at all");
    }
    if machine.inventory.cpus.nodes.len() < 2 {
        return left_out("the machine has one NUMA node");
    }
    let wanted = "a housekeeping CPU on each node with isolated ones";
    let lonely: Vec<u32> = machine.nodes(kept).difference(&machine.nodes(&left)).copied().collect();
    if lonely.is_empty() {
        return Finding::pass(format!("housekeeping on {}", named(&left)), wanted).into();
    }
    let nodes = lonely.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let read = format!("housekeeping on {} only: none on node {nodes}", named(&left));
    Finding::conflict(read, wanted, by_hand(format!("leave one core of node {nodes} to housekeeping"))).into()
}

fn siblings_known(machine: &Machine<'_>) -> Result<(), crate::rule::NoFinding> {
    if machine.inventory.cpus.siblings.is_empty() {
        unknown("SMT siblings could not be read")
    } else {
        Ok(())
    }
}

fn siblings_split(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    siblings_known(machine)?;
    let set = either(kept, &machine.isolated);
    let wanted = "both siblings isolated, or none";
    let mut found = Vec::new();
    for siblings in &machine.inventory.cpus.siblings {
        let siblings = both(siblings, machine.online());
        let (inside, outside) = (both(&siblings, &set), without(&siblings, &set));
        if inside.0.is_empty() || outside.0.is_empty() {
            continue;
        }
        let read = format!("{} isolated, its sibling {} is not", named(&inside), named(&outside));
        let offline = outside.0.iter().map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/online"));
        let how = model(format!("realtime: {{isolated: {}}}", either(&set, &outside)))
            .beware(format!("{outside} is then idle unless the same guest has it"))
            .or(writes(offline, "0")
                .beware(format!("nobody has {outside} then; a guest that is pinned there fails to start")));
        found.push(Finding::conflict(read, wanted, how).about(named(&siblings)));
    }
    if found.is_empty() {
        Finding::pass(format!("none split of {}", named(&set)), wanted).into()
    } else {
        Ok(found)
    }
}

/// CPUs by guest that runs on them and nowhere else: of a model those that want them alone; else VMs whose virtual CPUs are to
/// wake in time.
fn owners(machine: &Machine<'_>) -> Result<Vec<(String, CpuSet)>, crate::rule::NoFinding> {
    Ok(match &machine.requirements {
        Some(requirements) => {
            requirements.own.iter().map(|(name, cpus)| (format!("guest {name}"), cpus.clone())).collect()
        }
        None => {
            machine.sees_processes()?;
            machine.vms.iter().filter(|vm| vm.realtime).map(|vm| (vm.subject(), vm.cpus())).collect()
        }
    })
}

fn pairs<T>(all: &[T]) -> impl Iterator<Item = (&T, &T)> {
    all.iter().enumerate().flat_map(|(n, one)| all[n + 1..].iter().map(move |other| (one, other)))
}

fn siblings_of_two(machine: &Machine<'_>) -> RuleResult {
    let owners = owners(machine)?;
    if owners.len() < 2 {
        return left_out("fewer than two guests have CPUs of their own");
    }
    siblings_known(machine)?;
    let wanted = "both siblings with one guest";
    let mut found = Vec::new();
    for ((one, cpus), (other, others)) in pairs(&owners) {
        for siblings in &machine.inventory.cpus.siblings {
            let (mine, theirs) = (both(siblings, cpus), both(siblings, others));
            if mine.0.is_empty() || theirs.0.is_empty() || mine == theirs {
                continue;
            }
            let read = format!("{} is {one}'s, its sibling {} is {other}'s", named(&mine), named(&theirs));
            let how = model(format!("pin: of {one}, or of {other}, on another core"));
            found.push(Finding::conflict(read, wanted, how).about(named(siblings)));
        }
    }
    if found.is_empty() { Finding::pass("no core has two guests", wanted).into() } else { Ok(found) }
}

fn guests_share(machine: &Machine<'_>) -> RuleResult {
    let owners = owners(machine)?;
    if owners.len() < 2 {
        return left_out("fewer than two guests have CPUs of their own");
    }
    let wanted = "each CPU with one guest";
    let mut found = Vec::new();
    for ((one, cpus), (other, others)) in pairs(&owners) {
        let shared = both(cpus, others);
        if !shared.0.is_empty() {
            let read = format!("{one} and {other} both have {}", named(&shared));
            let how = model(format!("pin: of {other} without {shared}"));
            found.push(Finding::conflict(read, wanted, how).about(named(&shared)));
        }
    }
    if found.is_empty() { Finding::pass("no CPU has two", wanted).into() } else { Ok(found) }
}

fn tickless(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let now = read(&machine.tuning.tickless, "/sys/devices/system/cpu/nohz_full")?.cloned();
    let wanted = format!("nohz_full with {}", named(kept));
    let all = either(kept, &now.clone().unwrap_or_default());
    let offloaded = either(&all, &machine.listed("rcu_nocbs").unwrap_or_default());
    let how = boot(&format!("nohz_full={all} rcu_nocbs={offloaded}")).or(model("realtime: {tickless: on}"));
    match now {
        Some(now) if is_within(kept, &now) => Finding::pass(named(&now), wanted).into(),
        Some(now) => Finding::fail(named(&now), wanted, how).into(),
        None => Finding::fail(
            "not there: the kernel was built without NO_HZ_FULL",
            wanted,
            by_hand("use a kernel with CONFIG_NO_HZ_FULL=y"),
        )
        .into(),
    }
}

fn ticks_off<'a>(machine: &Machine<'a>) -> Result<&'a CpuSet, crate::rule::NoFinding> {
    match read(&machine.tuning.tickless, "/sys/devices/system/cpu/nohz_full")? {
        Some(cpus) if !cpus.0.is_empty() => Ok(cpus),
        _ => left_out("no CPU is without a tick"),
    }
}

fn tickless_without_isolation(machine: &Machine<'_>) -> RuleResult {
    let now = ticks_off(machine)?;
    let wanted = "every CPU of nohz_full= isolated";
    let bare = without(now, &machine.isolated);
    if bare.0.is_empty() {
        return Finding::pass(named(now), wanted).into();
    }
    // A partition that is there only while its guest runs leaves a tickless CPU bare in between.
    if machine.requirements.is_some() && is_within(&bare, &machine.kept) {
        return Finding::pass(
            format!("{}, which guests of the model isolate while they run", named(now)),
            wanted,
        )
        .into();
    }
    let rest = without(now, &bare);
    let ticking = if rest.0.is_empty() {
        boot_without("nohz_full")
    } else {
        let offloaded = without(&machine.listed("rcu_nocbs").unwrap_or_default(), &bare);
        let offload = if offloaded.0.is_empty() { String::new() } else { format!(" rcu_nocbs={offloaded}") };
        boot(&format!("nohz_full={rest}{offload}"))
    };
    let how = isolate(machine, &bare).or(ticking.beware(format!("{} has its tick again", named(&bare))));
    Finding::conflict(format!("{} without a tick, and not isolated", named(&bare)), wanted, how)
        .about(named(&bare))
        .into()
}

fn tickless_crowded(machine: &Machine<'_>) -> RuleResult {
    let now = ticks_off(machine)?;
    machine.sees_processes()?;
    let wanted = "one thread on each CPU of nohz_full=";
    let mut found = Vec::new();
    for cpu in &now.0 {
        let only = CpuSet([*cpu].into());
        let threads: Vec<String> = machine
            .vms
            .iter()
            .flat_map(|vm| vm.process.threads.values().map(move |thread| (vm, thread)))
            .filter(|(_, thread)| thread.cpus == only)
            .map(|(vm, thread)| format!("{} of {}", thread.name, vm.process.name))
            .collect();
        if threads.len() > 1 {
            let how = model(format!("pin: of all but one of them elsewhere, not on {cpu}"));
            found.push(Finding::conflict(threads.join(", "), wanted, how).about(format!("CPU {cpu}")));
        }
    }
    if found.is_empty() {
        Finding::pass("no CPU has two that must run there", wanted).into()
    } else {
        Ok(found)
    }
}

fn rcu_offload(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let tickless =
        read(&machine.tuning.tickless, "/sys/devices/system/cpu/nohz_full")?.cloned().unwrap_or_default();
    let offloaded = either(&machine.listed("rcu_nocbs").unwrap_or_default(), &tickless);
    let wanted = format!("{} offloaded", named(kept));
    if is_within(kept, &offloaded) {
        return Finding::pass(named(&offloaded), wanted).into();
    }
    let all = either(&machine.listed("rcu_nocbs").unwrap_or_default(), kept);
    Finding::fail(named(&offloaded), wanted, boot(&format!("rcu_nocbs={}", either(&all, &tickless)))).into()
}

fn rcu_differs(machine: &Machine<'_>) -> RuleResult {
    let (Some(offloaded), Some(tickless)) = (machine.listed("rcu_nocbs"), machine.listed("nohz_full")) else {
        return left_out("the command line does not name both rcu_nocbs= and nohz_full=");
    };
    let wanted = "every CPU of nohz_full= in rcu_nocbs= too";
    let read = format!("rcu_nocbs={offloaded} nohz_full={tickless}");
    // More of them is a choice: a CPU with several threads keeps its tick, and its callbacks may run elsewhere all the same.
    if is_within(&tickless, &offloaded) {
        return Finding::pass(read, wanted).into();
    }
    Finding::conflict(read, wanted, boot(&format!("rcu_nocbs={}", either(&offloaded, &tickless)))).into()
}

fn rcu_polls(machine: &Machine<'_>) -> RuleResult {
    let read = if machine.line.has("rcu_nocb_poll") { "they poll" } else { "they are woken" };
    Finding::recorded(read, "whichever measures better here").into()
}

fn rcu_expedited(machine: &Machine<'_>) -> RuleResult {
    let wanted = "rcu_normal 1";
    let how = || {
        write(Knob::RcuNormal.to_string(), "1")
            .or(boot_with_and_without("rcupdate.rcu_normal_after_boot=1", "rcupdate.rcu_expedited"))
    };
    // What holds now; it overrides rcu_expedited, whoever set that.
    let expedited = machine.number(Knob::RcuExpedited).ok().flatten() == Some(1);
    match machine.number(Knob::RcuNormal)? {
        Some(0) if expedited => return Finding::fail("rcu_normal 0, rcu_expedited 1", wanted, how()).into(),
        Some(0) => return Finding::fail("rcu_normal 0", wanted, how()).into(),
        Some(number) if expedited => {
            return Finding::pass(format!("rcu_normal {number}, which overrides rcu_expedited 1"), wanted)
                .into();
        }
        Some(number) => return Finding::pass(format!("rcu_normal {number}"), wanted).into(),
        None => {}
    }
    // A kernel without these files has one CPU alone (TINY_RCU), or a tree was recorded without them.
    match machine.parameter("rcupdate.rcu_normal_after_boot")? {
        Some("1" | "Y") => Finding::pass("rcu_normal_after_boot 1", wanted).into(),
        Some(other) => Finding::fail(format!("rcu_normal_after_boot {other}"), wanted, how()).into(),
        None => unknown(format!("{} is not there", Knob::RcuNormal)),
    }
}

fn rcu_settings(machine: &Machine<'_>) -> RuleResult {
    let names = ["rcutree.kthread_prio", "rcutree.nohz_full_patience_delay"];
    let mut texts = Vec::new();
    for name in names {
        if let Some(value) = machine.parameter(name)? {
            texts.push(format!("{name} {value}"));
        }
    }
    if texts.is_empty() {
        return left_out("the kernel shows neither");
    }
    Finding::recorded(
        texts.join(", "),
        "a priority above that of FIFO threads that spin, or threads that sleep",
    )
    .into()
}
