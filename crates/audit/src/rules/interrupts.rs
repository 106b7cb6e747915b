//! Interrupts and workqueues.

use std::collections::BTreeMap;

use penstock_model::{
    CpuSet,
    audit::Layer,
    inventory::tuning::{Irq, Knob, Reading, Value},
};

use crate::{
    advice::{self, Advice, boot, by_hand, disable, model, settings, to_housekeeping, writes},
    machine::{Machine, read},
    rule::{Finding, Need, NoFinding, Rule, RuleResult, left_out, unknown},
    sets::{both, either, is_within, named, without},
};

const AFFINITY: &str = "Documentation/core-api/irq/irq-affinity.rst";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "default-irqs-on-isolated",
        layer: Layer::Interrupts,
        what: "isolated CPUs that take interrupts by default (/proc/irq/default_smp_affinity)",
        why: "each interrupt that a driver asks for from now on may be put on an isolated CPU",
        price: None,
        source: AFFINITY,
        needs_root: false,
        need: Need::Isolation,
        judge: default_affinity,
    },
    Rule {
        id: "irqaffinity-at-boot",
        layer: Layer::Interrupts,
        what: "whether irqaffinity= keeps interrupts off isolated CPUs from the start",
        why: "a write at run time moves an interrupt of the IO-APIC only when it comes the next time, on the isolated CPU",
        price: None,
        source: "https://github.com/redhat-performance/tuned/pull/364",
        needs_root: false,
        need: Need::Tickless,
        judge: irqaffinity,
    },
    Rule {
        id: "irqaffinity-overlaps-isolated",
        layer: Layer::Interrupts,
        what: "CPUs that irqaffinity= gives interrupts to and that are isolated",
        why: "one word keeps the CPU free, the other gives it the machine's interrupts",
        price: None,
        source: "https://github.com/seapath/ansible/issues/865",
        needs_root: false,
        need: Need::Isolation,
        judge: irqaffinity_overlaps,
    },
    Rule {
        id: "irqs-on-isolated",
        layer: Layer::Interrupts,
        what: "interrupts that are delivered to isolated CPUs (/proc/irq/*/effective_affinity_list)",
        why: "each one takes the CPU for microseconds, at times that the device chooses",
        price: None,
        source: AFFINITY,
        needs_root: false,
        need: Need::Isolation,
        judge: on_isolated,
    },
    Rule {
        id: "managed-irqs-on-isolated",
        layer: Layer::Interrupts,
        what: "interrupts that the kernel itself places, on isolated CPUs",
        why: "no write to /proc/irq moves them; isolcpus=managed_irq makes the kernel prefer other CPUs",
        price: None,
        source: "Documentation/admin-guide/kernel-parameters.txt, isolcpus=managed_irq",
        needs_root: false,
        need: Need::Isolation,
        judge: managed,
    },
    Rule {
        id: "managed-irqs-only-on-isolated",
        layer: Layer::Interrupts,
        what: "queues whose interrupts the kernel may place on isolated CPUs alone",
        why: "isolcpus=managed_irq is a best effort: a queue whose mask has no other CPU is delivered to an isolated one",
        price: None,
        source: "Documentation/admin-guide/kernel-parameters.txt, isolcpus=managed_irq",
        needs_root: false,
        need: Need::Isolation,
        judge: managed_only,
    },
    Rule {
        id: "irqbalance-against-isolation",
        layer: Layer::Interrupts,
        what: "irqbalance, and isolated CPUs that it was not told to leave alone",
        why: "irqbalance leaves CPUs of isolcpus= and nohz_full= alone, and not those of partitions: it moves interrupts onto them. Once IRQBALANCE_BANNED_CPULIST is set it looks at that alone",
        price: None,
        source: "irqbalance(1), IRQBALANCE_BANNED_CPULIST; irqbalance, cputree.c, setup_banned_cpus()",
        needs_root: false,
        need: Need::Isolation,
        judge: irqbalance,
    },
    Rule {
        id: "irqs-in-fact",
        layer: Layer::Interrupts,
        what: "interrupts that isolated CPUs had during an observation",
        why: "what was counted is what happens, whatever the files say",
        price: None,
        source: "/proc/interrupts",
        needs_root: false,
        need: Need::Isolation,
        judge: in_fact,
    },
    Rule {
        id: "soft-irqs-in-fact",
        layer: Layer::Interrupts,
        what: "soft interrupts that isolated CPUs had during an observation",
        why: "timers, networking and RCU of others run in them",
        price: None,
        source: "/proc/softirqs",
        needs_root: false,
        need: Need::Isolation,
        judge: soft_in_fact,
    },
    Rule {
        id: "workqueues-on-isolated",
        layer: Layer::Interrupts,
        what: "isolated CPUs that unbound workqueues may use (/sys/devices/virtual/workqueue/cpumask)",
        why: "the kernel's own deferred work runs there",
        price: None,
        source: "Documentation/core-api/workqueue.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: workqueues,
    },
    Rule {
        id: "writeback-on-isolated",
        layer: Layer::Interrupts,
        what: "isolated CPUs that write dirty pages back (/sys/bus/workqueue/devices/writeback/cpumask)",
        why: "that workqueue has its own set of CPUs, and its work lasts long",
        price: None,
        source: "Documentation/core-api/workqueue.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: writeback,
    },
    Rule {
        id: "workqueues-know-isolation",
        layer: Layer::Interrupts,
        what: "isolated CPUs that workqueues were taken off (/sys/devices/virtual/workqueue/cpumask_isolated)",
        why: "a kernel that tells takes unbound workqueues off a partition's CPUs by itself; where it has not, the partition is not what it seems",
        price: None,
        source: "kernel commit fe28f631fa94",
        needs_root: false,
        need: Need::Isolation,
        judge: workqueues_know,
    },
];

/// Whether it is passed through to a VM: its owner may have it where it likes.
fn is_a_guests(irq: &Irq) -> bool {
    irq.users.iter().any(|user| user.starts_with("vfio"))
}

fn irqs<'a>(machine: &Machine<'a>) -> Result<&'a BTreeMap<u32, Irq>, NoFinding> {
    // Without the table nobody is known to have asked for any of them.
    if read(&machine.tuning.irq_table, "/proc/interrupts")?.is_none() {
        return unknown("/proc/interrupts is not there");
    }
    if machine.tuning.irqs.is_empty() {
        return unknown("no interrupt could be read of /proc/irq");
    }
    Ok(&machine.tuning.irqs)
}

fn housekeeping(cpus: &CpuSet) -> Advice {
    model(format!("realtime: {{housekeeping: {cpus}}}"))
}

fn irqaffinity_word(machine: &Machine<'_>) -> Advice {
    to_housekeeping(machine, |hold| boot(&format!("irqaffinity={hold}")))
}

fn default_affinity(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let wanted = format!("none of {kept}");
    let Some(cpus) = machine.cpus_of(Knob::DefaultIrqAffinity)? else {
        return unknown("/proc/irq/default_smp_affinity is not there");
    };
    let shared = both(cpus, kept);
    if shared.0.is_empty() {
        return Finding::pass(named(cpus), wanted).into();
    }
    let how =
        to_housekeeping(machine, |hold| advice::cpus(Knob::DefaultIrqAffinity, hold).or(housekeeping(hold)));
    Finding::conflict(format!("{}, among them {}", named(cpus), named(&shared)), wanted, how)
        .about(named(&shared))
        .into()
}

fn irqaffinity(machine: &Machine<'_>) -> RuleResult {
    machine.kept()?;
    let wanted = format!("irqaffinity={}", machine.housekeeping());
    let how = irqaffinity_word(machine);
    match machine.listed("irqaffinity") {
        Some(cpus) => Finding::pass(format!("irqaffinity={cpus}"), wanted).into(),
        None => Finding::fail("not on the command line", wanted, how).into(),
    }
}

fn irqaffinity_overlaps(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let Some(cpus) = machine.listed("irqaffinity") else {
        return left_out("irqaffinity= is not on the command line");
    };
    let shared = both(&cpus, kept);
    let wanted = format!("none of {kept}");
    if shared.0.is_empty() {
        return Finding::pass(format!("irqaffinity={cpus}"), wanted).into();
    }
    let how = irqaffinity_word(machine);
    Finding::conflict(format!("irqaffinity={cpus}, of which {shared} are isolated"), wanted, how)
        .about(named(&shared))
        .into()
}

/// `35 (eth0-TxRx-3)`, at most five of them.
fn listed(irqs: &[(u32, &Irq, CpuSet)]) -> String {
    let mut texts: Vec<String> = irqs
        .iter()
        .take(5)
        .map(|(number, irq, cpus)| format!("{number} ({}) on {cpus}", irq.users.join(", ")))
        .collect();
    if irqs.len() > 5 {
        texts.push(format!("{} more", irqs.len() - 5));
    }
    texts.join("; ")
}

/// Interrupts that somebody asked for and that `which` picks, with those of `cpus` that they are delivered to; and how many could
/// not be read.
fn delivered<'a>(
    machine: &Machine<'a>,
    cpus: &CpuSet,
    which: fn(&Irq) -> bool,
) -> Result<(Found<'a>, usize), NoFinding> {
    let (mut found, mut dark) = (Vec::new(), 0);
    for (number, irq) in irqs(machine)? {
        if irq.users.is_empty() || !which(irq) {
            continue;
        }
        match read(&irq.effective, "effective_affinity_list") {
            Ok(Some(effective)) => {
                let shared = both(effective, cpus);
                if !shared.0.is_empty() {
                    found.push((*number, irq, shared));
                }
            }
            _ => dark += 1,
        }
    }
    Ok((found, dark))
}

fn on_isolated(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let (found, dark) = delivered(machine, kept, |irq| !is_a_guests(irq) && !irq.is_kernel_managed())?;
    let wanted = format!("none on {}, but for those of functions that VMs own", named(kept));
    if !found.is_empty() {
        let cpus = found.iter().fold(CpuSet::default(), |all, (_, _, cpus)| either(&all, cpus));
        let how = to_housekeeping(machine, |hold| {
            let paths = found.iter().map(|(number, ..)| Knob::IrqAffinity(*number).to_string());
            writes(paths, &hold.to_string()).or(housekeeping(hold))
        });
        return Finding::conflict(listed(&found), wanted, how).about(named(&cpus)).into();
    }
    if dark > 0 {
        return unknown(format!("where {dark} interrupts are delivered could not be read"));
    }
    Finding::pass(format!("none of {}", machine.tuning.irqs.len()), wanted).into()
}

fn managed(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    if !irqs(machine)?.values().any(Irq::is_kernel_managed) {
        return left_out("no device has interrupts that the kernel places");
    }
    let (found, dark) = delivered(machine, kept, Irq::is_kernel_managed)?;
    let (_, rest) = only_on_isolated(machine, kept, found)?;
    let wanted = format!("none on {}", named(kept));
    if !rest.is_empty() {
        let fewer = by_hand("give the device no more queues than there are housekeeping CPUs");
        let refused = machine.refuses("isolcpus", "managed_irq");
        // The flag only has the kernel prefer other CPUs: where it is there already, more of it does not help.
        let asked = machine.line.isolcpus_flags().contains(&"managed_irq")
            && machine.listed("isolcpus").is_some_and(|cpus| is_within(kept, &cpus));
        let how = if asked || refused {
            fewer
        } else {
            boot(&machine.isolcpus(Some("managed_irq"), None, kept)).or(fewer)
        };
        return Finding::fail(listed(&rest), wanted, how).into();
    }
    if dark > 0 {
        return unknown(format!("where {dark} interrupts are delivered could not be read"));
    }
    Finding::pass("none", wanted).into()
}

type Found<'a> = Vec<(u32, &'a Irq, CpuSet)>;

/// Those that may be delivered to isolated CPUs alone, and the others.
fn only_on_isolated<'a>(
    machine: &Machine<'a>,
    kept: &CpuSet,
    found: Found<'a>,
) -> Result<(Found<'a>, Found<'a>), NoFinding> {
    let (mut only, mut rest) = (Vec::new(), Vec::new());
    for irq in found {
        let mask = machine.cpus_of(Knob::IrqAffinity(irq.0))?;
        match mask {
            Some(mask) if is_within(mask, kept) => only.push(irq),
            _ => rest.push(irq),
        }
    }
    Ok((only, rest))
}

fn managed_only(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    if !irqs(machine)?.values().any(Irq::is_kernel_managed) {
        return left_out("no device has interrupts that the kernel places");
    }
    let (found, dark) = delivered(machine, kept, Irq::is_kernel_managed)?;
    let (only, _) = only_on_isolated(machine, kept, found)?;
    let wanted = "a housekeeping CPU in the mask of every queue";
    if only.is_empty() {
        if dark > 0 {
            return unknown(format!("where {dark} interrupts are delivered could not be read"));
        }
        return Finding::pass("none", wanted).into();
    }
    let many = machine.housekeeping().0.len();
    let how = by_hand(format!(
        "give the device no more queues than there are housekeeping CPUs ({many}): ethtool -L IFACE combined {many}; NVMe: keep its file systems quiet, or nvme.write_queues"
    ));
    Finding::conflict(listed(&only), wanted, how).into()
}

/// The mask of CPUs, in hexadecimal, that takes precedence over the list (`cputree.c`, `setup_banned_cpus`).
const BANNED_MASK: &str = "IRQBALANCE_BANNED_CPUS";
const BANNED_LIST: &str = "IRQBALANCE_BANNED_CPULIST";

/// The CPUs that irqbalance was told to leave alone, and by what; `None`: it was told nothing and looks by itself.
fn banned(told: &BTreeMap<String, String>) -> Result<Option<(CpuSet, String)>, NoFinding> {
    let said = |name: &str| told.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let sense = |cpus: Option<CpuSet>, text: &str| match cpus {
        Some(cpus) => Ok(Some((cpus, text.to_owned()))),
        None => unknown(format!("{text} cannot be parsed")),
    };
    if let Some(mask) = said(BANNED_MASK) {
        let text = format!("{BANNED_MASK}={mask}");
        let plain = mask.trim_start_matches("0x");
        return match Knob::DefaultIrqAffinity.read(plain) {
            Ok(Value::Cpus(cpus)) => sense(Some(cpus), &text),
            _ => sense(None, &text),
        };
    }
    match said(BANNED_LIST) {
        Some(list) => sense(list.parse().ok(), &format!("{BANNED_LIST}={list}")),
        None => Ok(None),
    }
}

fn irqbalance(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    if !machine.runs("irqbalance")? {
        return left_out("irqbalance does not run");
    }
    let wanted = "every isolated CPU banned from it, or no irqbalance";
    let Some(told) = &machine.tuning.irqbalance else {
        return unknown("irqbalance runs, and its settings were not read");
    };
    let tickless =
        read(&machine.tuning.tickless, "/sys/devices/system/cpu/nohz_full")?.cloned().unwrap_or_default();
    let by_itself = either(machine.boot_isolated(), &tickless);
    // What it runs with is root's to see; its settings say what it was started with unless somebody changed them since.
    let (settings_of, from) = match &told.environment {
        Reading::Is(environment) => (environment, "it runs with"),
        _ if told.file.is_some() || !told.settings.is_empty() => (&told.settings, "its settings say"),
        _ => {
            return unknown(
                "what irqbalance runs with may not be read by who looked, and no file of its settings was found: look as root",
            );
        }
    };
    let (spared, how_it_knows) = match banned(settings_of)? {
        Some((cpus, text)) => (cpus, format!("{from} {text}")),
        None => (by_itself.clone(), "it leaves the CPUs of isolcpus= and nohz_full= alone".to_owned()),
    };
    let bare = without(kept, &spared);
    if bare.0.is_empty() {
        return Finding::pass(how_it_knows, wanted).into();
    }
    // With the variable it looks at nothing else: what it spares by itself has to be in the list.
    let list = either(&either(kept, &machine.isolated), &either(&by_itself, &spared));
    let stop = disable(&["irqbalance.service"]).beware("interrupts then stay where their drivers put them");
    let how = match &told.file {
        Some(file) => {
            let mut variables = vec![(BANNED_LIST, list.to_string())];
            if told.settings.contains_key(BANNED_MASK) {
                variables.push((BANNED_MASK, String::new()));
            }
            settings(file, "irqbalance", &variables)
                .beware("with this variable irqbalance no longer looks at isolcpus= and nohz_full=: the list names their CPUs as well, and has to be changed when they change")
                .or(stop)
        }
        None => stop,
    };
    Finding::conflict(format!("irqbalance runs, {how_it_knows}: not {}", named(&bare)), wanted, how)
        .about(named(&bare))
        .into()
}

/// At most so many a minute and CPU are none.
const A_MINUTE: u64 = 10;

/// How often each CPU had each interrupt, by its label.
type CountsByCpu = BTreeMap<String, BTreeMap<u32, u64>>;

fn watched_for(
    machine: &Machine<'_>,
    (counts, path): (&Reading<CountsByCpu>, &str),
    counted: impl Fn(&str) -> bool,
    change: Advice,
) -> RuleResult {
    let kept = machine.kept()?;
    let Some(watched) = &machine.tuning.watched else {
        return left_out("not observed: audit --over 60s observes it");
    };
    let wanted = format!("at most {A_MINUTE} a minute on each of {kept}");
    let Some(counts) = read(counts, path)? else {
        return unknown(format!("{path} is not there"));
    };
    let mut texts = Vec::new();
    for (label, by_cpu) in counts {
        if !counted(label) {
            continue;
        }
        for (cpu, count) in by_cpu.iter().filter(|(cpu, _)| kept.0.contains(cpu)) {
            if count.saturating_mul(60_000) > A_MINUTE.saturating_mul(watched.milliseconds.max(1)) {
                texts.push(format!("{count} of {label} on CPU {cpu}"));
            }
        }
    }
    let seconds = watched.milliseconds as f64 / 1000.0;
    if texts.is_empty() {
        return Finding::pass(format!("none in {seconds:.1} s"), wanted).into();
    }
    let more = texts.len().saturating_sub(8);
    texts.truncate(8);
    if more > 0 {
        texts.push(format!("{more} more"));
    }
    Finding::fail(format!("in {seconds:.1} s: {}", texts.join(", ")), wanted, change).into()
}

fn in_fact(machine: &Machine<'_>) -> RuleResult {
    let Some(watched) = &machine.tuning.watched else {
        return left_out("not observed: audit --over 60s observes it");
    };
    let irqs = irqs(machine)?;
    let counted = |label: &str| {
        // A guest's own timer is LOC; what VFIO brings is its own as well.
        let own = label.parse().ok().and_then(|number: u32| irqs.get(&number)).is_some_and(is_a_guests);
        !own && !["LOC", "PIN", "NPI", "PIW", "ERR", "MIS"].contains(&label)
    };
    watched_for(
        machine,
        (&watched.interrupts, "/proc/interrupts"),
        counted,
        by_hand(
            "find who asked for it in /proc/interrupts, and move it to a housekeeping CPU; then watch again",
        ),
    )
}

fn soft_in_fact(machine: &Machine<'_>) -> RuleResult {
    let Some(watched) = &machine.tuning.watched else {
        return left_out("not observed: audit --over 60s observes it");
    };
    watched_for(
        machine,
        (&watched.soft_interrupts, "/proc/softirqs"),
        |_| true,
        by_hand("TIMER and SCHED: nohz_full; RCU: rcu_nocbs; NET_RX: the NIC's interrupts; then watch again"),
    )
}

fn keeps_off(machine: &Machine<'_>, knob: Knob, or: Option<fn(&CpuSet) -> Advice>) -> RuleResult {
    let kept = machine.kept()?;
    let wanted = format!("none of {kept}");
    let Some(cpus) = machine.cpus_of(knob)? else { return left_out(format!("{knob} is not there")) };
    let shared = both(cpus, kept);
    if shared.0.is_empty() {
        return Finding::pass(named(cpus), wanted).into();
    }
    let how = to_housekeeping(machine, |hold| {
        let write = advice::cpus(knob, hold);
        or.map_or_else(|| advice::cpus(knob, hold), |or| write.or(or(hold)))
    });
    Finding::conflict(format!("{}, among them {}", named(cpus), named(&shared)), wanted, how)
        .about(named(&shared))
        .into()
}

fn workqueues(machine: &Machine<'_>) -> RuleResult {
    keeps_off(machine, Knob::Workqueues, Some(housekeeping))
}

fn writeback(machine: &Machine<'_>) -> RuleResult {
    keeps_off(machine, Knob::WritebackWorkqueue, None)
}

fn workqueues_know(machine: &Machine<'_>) -> RuleResult {
    if machine.partitioned.0.is_empty() {
        return left_out("no CPU is in an isolated partition");
    }
    let Some(cpus) = read(&machine.tuning.workqueues_isolated, "cpumask_isolated")? else {
        return left_out("this kernel does not tell: it has no workqueue/cpumask_isolated");
    };
    let wanted = named(&machine.partitioned);
    if is_within(&machine.partitioned, cpus) {
        return Finding::pass(named(cpus), wanted).into();
    }
    let missing = without(&machine.partitioned, cpus);
    Finding::conflict(
        format!("{}: not {}", named(cpus), named(&missing)),
        wanted,
        by_hand("look at cpuset.cpus.partition of the partition for the reason, and make the partition anew"),
    )
    .into()
}
