//! Idle states.

use penstock_model::{
    audit::{Currency, Layer},
    inventory::tuning::{IdleState, Knob, Value},
};

use crate::{
    advice::{Advice, boot, boot_without, model, writes},
    machine::{Machine, read},
    rule::{Finding, Need, Rule, RuleResult, left_out, unknown},
    sets::{grouped, named},
};

const CPUIDLE: &str = "Documentation/admin-guide/pm/cpuidle.rst";
const POWER: Option<(Currency, &str)> = Some((
    Currency::Power,
    "CPUs that never sleep deeply draw several watts each, and leave less turbo to the others",
));

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "deep-idle-states",
        layer: Layer::Idle,
        what: "idle states of isolated CPUs that take long to wake from (cpuidle/state*/, pm_qos_resume_latency_us)",
        why: "waking from C6 takes tens to hundreds of microseconds, each time that the CPU had nothing to do",
        price: POWER,
        source: CPUIDLE,
        needs_root: false,
        need: Need::WakeLatency,
        judge: deep_states,
    },
    Rule {
        id: "wake-latency-zero",
        layer: Layer::Idle,
        what: "CPUs whose PM QoS was set to 0 where others have a limit",
        why: "per CPU, 0 means no limit at all and n/a means no idle state; in /dev/cpu_dma_latency 0 means no idle state",
        price: None,
        source: "kernel commit 0759e80b84e3; Documentation/admin-guide/pm/cpuidle.rst",
        needs_root: false,
        need: Need::WakeLatency,
        judge: latency_zero,
    },
    Rule {
        id: "idle-states-in-fact",
        layer: Layer::Idle,
        what: "deep idle states that isolated CPUs entered during an observation",
        why: "what was counted is what happens, whatever the limits say",
        price: POWER,
        source: CPUIDLE,
        needs_root: false,
        need: Need::WakeLatency,
        judge: in_fact,
    },
    Rule {
        id: "idle-poll",
        layer: Layer::Idle,
        what: "whether idle CPUs spin (idle=poll)",
        why: "a spinning CPU wakes at once; PM QoS does the same for the CPUs that need it alone",
        price: Some((
            Currency::Power,
            "every core burns all the time, the housekeeping ones too, and none is left for turbo",
        )),
        source: "Documentation/admin-guide/kernel-parameters.txt, idle",
        needs_root: false,
        need: Need::WakeLatency,
        judge: idle_poll,
    },
    Rule {
        id: "idle-poll-with-smt",
        layer: Layer::Idle,
        what: "idle CPUs that spin beside SMT siblings that work",
        why: "the idle sibling takes half of the core from the one that works",
        price: Some((Currency::Power, "every core burns all the time")),
        source: "https://github.com/seapath/ansible/pull/529; Documentation/admin-guide/kernel-parameters.txt, idle",
        needs_root: false,
        need: Need::Always,
        judge: idle_poll_with_smt,
    },
    Rule {
        id: "max-cstate-beside-pm-qos",
        layer: Layer::Idle,
        what: "limits of idle states at boot for all CPUs beside limits per CPU",
        why: "the boot parameter holds for housekeeping CPUs as well and until the next start; the limit per CPU then does nothing more",
        price: POWER,
        source: "Red Hat Enterprise Linux for Real Time 9, chapter 16",
        needs_root: false,
        need: Need::WakeLatency,
        judge: max_cstate_beside_qos,
    },
    Rule {
        id: "max-cstate-falls-back",
        layer: Layer::Idle,
        what: "intel_idle.max_cstate=0 without a limit of the driver that then takes over",
        why: "0 switches intel_idle off, not idle states: acpi_idle enters those that firmware lists",
        price: POWER,
        source: "Documentation/admin-guide/kernel-parameters.txt, intel_idle.max_cstate",
        needs_root: false,
        need: Need::WakeLatency,
        judge: max_cstate_falls_back,
    },
    Rule {
        id: "idle-driver",
        layer: Layer::Idle,
        what: "what enters idle states (cpuidle/current_driver)",
        why: "which states there are and how long they take depends on it",
        price: None,
        source: CPUIDLE,
        needs_root: false,
        need: Need::WakeLatency,
        judge: driver,
    },
];

/// Microseconds that a wake-up may take unless the model says otherwise: C1 and C1E are below it on the CPUs that matter.
const BOUND: u64 = 10;

/// What PM QoS lets a CPU use, in microseconds: `None` no limit, 0 no idle state.
fn limit(value: Option<&Value>) -> Option<u64> {
    match value {
        Some(Value::Word(word)) if word == "n/a" => Some(0),
        Some(Value::Number(number)) if *number > 0 => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// What may be entered of `states` and takes longer than `bound` to wake from, the deepest one.
fn deepest(states: &[IdleState], limit: Option<u64>, bound: u64) -> Option<&IdleState> {
    let usable = |state: &&IdleState| !state.disabled && limit.is_none_or(|limit| state.latency <= limit);
    states.iter().filter(usable).filter(|state| state.latency > bound).max_by_key(|state| state.latency)
}

fn bound(machine: &Machine<'_>, cpu: u32) -> u64 {
    machine.requirements.as_ref().and_then(|requirements| requirements.wake_latency(cpu)).unwrap_or(BOUND)
}

const NO_STATE: &str = "n/a";

/// No idle state on these CPUs.
fn no_idle_state(cpus: &penstock_model::CpuSet) -> Advice {
    let paths = cpus.0.iter().map(|cpu| Knob::ResumeLatency(*cpu).to_string());
    writes(paths, NO_STATE).or(model("realtime: {wake_latency: 0}"))
}

/// As [`no_idle_state`], on a kernel without PM QoS for CPUs: each deep state is switched off by itself.
fn without_qos(machine: &Machine<'_>, cpus: &penstock_model::CpuSet) -> Advice {
    let mut paths = Vec::new();
    for cpu in &cpus.0 {
        for (number, state) in machine.tuning.idle.get(cpu).into_iter().flatten().enumerate() {
            if !state.disabled && state.latency > bound(machine, *cpu) {
                paths.push(format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{number}/disable"));
            }
        }
    }
    writes(paths, "1")
}

fn deep_states(machine: &Machine<'_>) -> RuleResult {
    let cpus = machine.judged();
    if cpus.0.is_empty() {
        return unknown("the CPUs that are on line could not be read");
    }
    let wanted = "none that takes longer than the model's wake_latency, without one 10 µs";
    if machine.line.says("idle", "poll") {
        return Finding::pass("idle=poll: no idle state is entered", wanted).into();
    }
    if machine.tuning.idle.is_empty() {
        return match read(&machine.tuning.idle_driver, "cpuidle/current_driver")? {
            Some(driver) if driver == "none" => Finding::pass("no driver enters idle states", wanted).into(),
            _ => unknown("no idle state could be read"),
        };
    }
    let limits = machine.each(cpus, Knob::ResumeLatency)?;
    let (mut deep, mut none) = (Vec::new(), Vec::new());
    for cpu in &cpus.0 {
        let Some(states) = machine.tuning.idle.get(cpu) else {
            none.push(*cpu);
            continue;
        };
        if let Some(state) = deepest(states, limit(limits.get(cpu).copied()), bound(machine, *cpu)) {
            deep.push((*cpu, format!("{} ({} µs)", state.name, state.latency)));
        }
    }
    if !deep.is_empty() {
        let subject = penstock_model::CpuSet(deep.iter().map(|(cpu, _)| *cpu).collect());
        let how = if subject.0.iter().all(|cpu| limits.contains_key(cpu)) {
            no_idle_state(&subject)
        } else {
            without_qos(machine, &subject)
        };
        return Finding::fail(format!("usable: {}", grouped(deep)), wanted, how)
            .about(named(&subject))
            .into();
    }
    if !none.is_empty() {
        return unknown(format!("idle states of CPU {} could not be read", none[0]));
    }
    Finding::pass("none", wanted).into()
}

fn latency_zero(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let limits = machine.each(kept, Knob::ResumeLatency)?;
    if limits.is_empty() {
        return left_out("these CPUs have no pm_qos_resume_latency_us");
    }
    let zero = |cpu: &u32| limits.get(cpu) == Some(&&Value::Number(0));
    let wished = |cpu: &u32| {
        machine.requirements.as_ref().is_some_and(|requirements| requirements.wake_latency(*cpu) == Some(0))
    };
    let others = kept.0.iter().any(|cpu| limit(limits.get(cpu).copied()).is_some());
    let trapped: Vec<u32> =
        kept.0.iter().copied().filter(|cpu| zero(cpu) && (others || wished(cpu))).collect();
    let wanted = "n/a for no idle state, or a number of microseconds";
    let read = grouped(limits.iter().map(|(cpu, value)| (*cpu, *value)));
    if trapped.is_empty() {
        return Finding::pass(read, wanted).into();
    }
    let subject = penstock_model::CpuSet(trapped.into_iter().collect());
    Finding::conflict(format!("{read}: 0 is no limit"), wanted, no_idle_state(&subject))
        .about(named(&subject))
        .into()
}

fn in_fact(machine: &Machine<'_>) -> RuleResult {
    let kept = machine.kept()?;
    let Some(watched) = &machine.tuning.watched else {
        return left_out("not observed: audit --over 60s observes it");
    };
    if watched.idle.is_empty() {
        // Also where none could be counted.
        return unknown("no idle state was counted");
    }
    let (mut entered, mut cpus) = (Vec::new(), penstock_model::CpuSet::default());
    let mut unseen = penstock_model::CpuSet::default();
    for cpu in &kept.0 {
        let Some(states) = machine.tuning.idle.get(cpu).filter(|_| !watched.idle_unread.0.contains(cpu))
        else {
            unseen.0.insert(*cpu);
            continue;
        };
        // Of a CPU that entered none nothing is kept.
        let Some(counts) = watched.idle.get(cpu) else { continue };
        for state in states.iter().filter(|state| state.latency > bound(machine, *cpu)) {
            if let Some(count) = counts.get(&state.name).filter(|count| **count > 0) {
                entered.push(format!("{} {count} times on CPU {cpu}", state.name));
                cpus.0.insert(*cpu);
            }
        }
    }
    let wanted = "none that takes longer than the model's wake_latency, without one 10 µs";
    if entered.is_empty() {
        // Nothing is proven of a CPU whose idle states nobody counted.
        return match unseen.0.is_empty() {
            true => Finding::pass("none", wanted).into(),
            false => unknown(format!("which idle states CPU {unseen} has could not be seen")),
        };
    }
    let more = entered.len().saturating_sub(8);
    entered.truncate(8);
    if more > 0 {
        entered.push(format!("{more} more"));
    }
    if !unseen.0.is_empty() {
        entered.push(format!("those of CPU {unseen} could not be seen"));
    }
    Finding::fail(entered.join(", "), wanted, no_idle_state(&cpus)).into()
}

const STATES_COME_BACK: &str =
    "idle CPUs then enter idle states: limit these where it matters (in the model: wake_latency: 0)";

/// What of the words that limit idle states of all CPUs limits anything. 0 of `intel_idle` switches that driver off, not idle states, and
/// on AMD's CPUs the driver is not used; ACPI takes 0 for 1, and 9 for more than there are (`drivers/acpi/processor_idle.c`,
/// `ACPI_PROCESSOR_MAX_POWER`).
fn limiting<'a>(machine: &'a Machine<'_>) -> Vec<(&'static str, &'a str)> {
    let intel = if machine.inventory.cpus.model.contains("AMD") { 0 } else { 1 };
    let words = [("intel_idle.max_cstate", intel..9 * intel), ("processor.max_cstate", 0..9)];
    let there = words.into_iter().filter_map(|(key, limits)| Some((key, machine.line.value(key)?, limits)));
    let limiting =
        there.filter(|(_, value, limits)| value.parse().is_ok_and(|most: u32| limits.contains(&most)));
    limiting.map(|(key, value, _)| (key, value)).collect()
}

fn idle_poll(machine: &Machine<'_>) -> RuleResult {
    if !machine.line.says("idle", "poll") {
        return left_out("idle=poll is not on the command line");
    }
    Finding::recorded("idle=poll", "PM QoS for the CPUs that need it: the last resort is this")
        .changed_by(boot_without("idle=poll").beware(STATES_COME_BACK))
        .into()
}

fn idle_poll_with_smt(machine: &Machine<'_>) -> RuleResult {
    if !machine.line.says("idle", "poll") {
        return left_out("idle=poll is not on the command line");
    }
    if machine.inventory.cpus.siblings.is_empty() {
        return unknown("SMT siblings could not be read");
    }
    let wanted = "idle=poll only with SMT off";
    if machine.has_smt() {
        let how = boot_without("idle=poll").beware(STATES_COME_BACK);
        return Finding::conflict("idle=poll, and siblings are on line together", wanted, how).into();
    }
    Finding::pass("idle=poll, and no core has two CPUs", wanted).into()
}

fn max_cstate_beside_qos(machine: &Machine<'_>) -> RuleResult {
    let there: Vec<String> =
        limiting(machine).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    if there.is_empty() {
        return left_out("no boot parameter limits idle states");
    }
    let limits = machine.each(machine.online(), Knob::ResumeLatency)?;
    let limited = limits.iter().filter(|(_, value)| limit(Some(value)).is_some());
    let limited = penstock_model::CpuSet(limited.map(|(cpu, _)| *cpu).collect());
    let wanted = "one of the two: PM QoS per CPU";
    if limited.0.is_empty() {
        return Finding::pass(format!("{} alone", there.join(" ")), wanted).into();
    }
    let keys: Vec<&str> = limiting(machine).into_iter().map(|(key, _)| key).collect();
    let how = boot_without(&keys.join(" "))
        .beware("housekeeping CPUs may then sleep deeply: what runs there wakes later");
    Finding::conflict(
        format!("{} for all CPUs, PM QoS for {}", there.join(" "), named(&limited)),
        wanted,
        how,
    )
    .into()
}

fn max_cstate_falls_back(machine: &Machine<'_>) -> RuleResult {
    if !machine.line.says("intel_idle.max_cstate", "0") {
        return left_out("intel_idle.max_cstate=0 is not on the command line");
    }
    // Only intel_idle is switched off by it.
    if machine.inventory.cpus.model.contains("AMD") {
        return left_out("intel_idle is for Intel's CPUs");
    }
    let wanted = "processor.max_cstate=1 beside it, or PM QoS instead";
    // ACPI's states are C1 and what is deeper: 0 is taken for 1, 9 for no limit at all.
    let most = machine.line.value("processor.max_cstate");
    if let Some(most @ ("0" | "1")) = most {
        let read = format!("processor.max_cstate={most} limits what takes over");
        return Finding::pass(read, wanted).into();
    }
    match read(&machine.tuning.idle_driver, "cpuidle/current_driver")? {
        Some(driver) if driver == "none" => Finding::pass("no driver has taken over", wanted).into(),
        Some(driver) => {
            let how = boot_without("intel_idle.max_cstate processor.max_cstate")
                .beware("intel_idle then enters idle states: limit these where it matters (in the model: wake_latency: 0)")
                .or(boot("processor.max_cstate=1"));
            let limit = match most {
                Some(most) => format!("processor.max_cstate={most} lets it enter deep states"),
                None => "without a limit".to_owned(),
            };
            let read = format!("intel_idle is off, and {driver} has taken over: {limit}");
            Finding::conflict(read, wanted, how).into()
        }
        None => unknown("cpuidle/current_driver is not there"),
    }
}

fn driver(machine: &Machine<'_>) -> RuleResult {
    match read(&machine.tuning.idle_driver, "cpuidle/current_driver")? {
        Some(driver) => Finding::recorded(driver.as_str(), "intel_idle on Intel, acpi_idle on AMD").into(),
        None => left_out("the kernel has no cpuidle"),
    }
}
