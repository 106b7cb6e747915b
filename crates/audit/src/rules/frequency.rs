//! CPU frequencies.

use penstock_model::{
    CpuSet, Frequency,
    audit::{Currency, Layer},
    inventory::tuning::{Knob, Value},
};

use crate::{
    advice::{Advice, apply, boot, disable, model, writes},
    machine::{Machine, read},
    rule::{Finding, Need, Rule, RuleResult, left_out, unknown},
    sets::{grouped, named},
};

const CPUFREQ: &str = "Documentation/admin-guide/pm/cpufreq.rst";
const POWER: Option<(Currency, &str)> =
    Some((Currency::Power, "CPUs at a high frequency draw more, also while they wait"));

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "governor",
        layer: Layer::Frequency,
        what: "what chooses the frequency of isolated CPUs (scaling_governor, scaling_min_freq, scaling_max_freq)",
        why: "a CPU that was slowed down while idle works slowly just when it wakes, and changing takes tens of microseconds",
        price: POWER,
        source: CPUFREQ,
        needs_root: false,
        need: Need::Frequency,
        judge: governor,
    },
    Rule {
        id: "governors-differ",
        layer: Layer::Frequency,
        what: "governors that differ between isolated CPUs",
        why: "a guest moved from one to the other wakes later without anything else having changed",
        price: None,
        source: CPUFREQ,
        needs_root: false,
        need: Need::Frequency,
        judge: governors_differ,
    },
    Rule {
        id: "frequency-range",
        layer: Layer::Frequency,
        what: "least and most frequency of isolated CPUs",
        why: "with least = most nothing changes while a guest runs, not even under the performance governor",
        price: POWER,
        source: CPUFREQ,
        needs_root: false,
        need: Need::Frequency,
        judge: range,
    },
    Rule {
        id: "pstate-driver",
        layer: Layer::Frequency,
        what: "what drives frequencies (scaling_driver)",
        why: "intel_pstate in active mode lets CPUs with HWP (Skylake and newer; advised from Ice Lake on) change by themselves in microseconds; older ones do as well with another",
        price: None,
        source: "Documentation/admin-guide/pm/intel_pstate.rst; openshift/cluster-node-tuning-operator",
        needs_root: false,
        need: Need::Frequency,
        judge: driver,
    },
    Rule {
        id: "pstate-off-with-hwp",
        layer: Layer::Frequency,
        what: "intel_pstate=disable on a CPU that has HWP",
        why: "recipes from before HWP switch off the driver that this CPU was made for; what takes over sees fewer frequencies, and no turbo",
        price: None,
        source: "Documentation/admin-guide/pm/intel_pstate.rst",
        needs_root: false,
        need: Need::Always,
        judge: pstate_off,
    },
    Rule {
        id: "programs-that-retune",
        layer: Layer::Frequency,
        what: "programs that change governors by themselves (tuned, power-profiles-daemon, thermald...)",
        why: "what was set by hand or by Penstock is set again by them",
        price: None,
        source: "https://github.com/redhat-performance/tuned",
        needs_root: false,
        need: Need::Frequency,
        judge: programs,
    },
    Rule {
        id: "power-daemon-against-governor",
        layer: Layer::Frequency,
        what: "power-profiles-daemon beside CPUs with the performance governor",
        why: "the daemon writes governors and energy preferences when a battery, a desktop or a button says so",
        price: None,
        source: "https://gitlab.freedesktop.org/upower/power-profiles-daemon",
        needs_root: false,
        need: Need::Frequency,
        judge: power_daemon,
    },
];

fn governor_of<'a>(
    machine: &Machine<'a>,
    cpus: &CpuSet,
) -> Result<Vec<(u32, &'a str)>, crate::rule::NoFinding> {
    let mut found = Vec::new();
    for cpu in &cpus.0 {
        if !machine.online().0.contains(cpu) {
            continue;
        }
        let knob = Knob::Governor(*cpu);
        // Not `Machine::each`: the values are to outlive the borrow of the machine.
        match machine.tuning.knobs.get(&knob) {
            Some(reading) => match read(reading, &knob.to_string())? {
                Some(Value::Word(word)) => found.push((*cpu, word.as_str())),
                Some(other) => return unknown(format!("{knob} holds {other}")),
                None => {}
            },
            None => return unknown(format!("{knob} was not read")),
        }
    }
    Ok(found)
}

const NO_FREQUENCIES: &str = "no driver changes frequencies here: firmware does, or nobody";

/// Whether least and most frequency of each of these CPUs are the same.
fn is_fixed(machine: &Machine<'_>, cpus: &CpuSet) -> bool {
    let number = |knob| machine.number(knob).ok().flatten();
    cpus.0.iter().all(|cpu| {
        let least = number(Knob::MinFrequency(*cpu));
        least.is_some() && least == number(Knob::MaxFrequency(*cpu))
    })
}

/// With a model: whether each CPU's frequency is chosen as it says.
fn as_wished(machine: &Machine<'_>, requirements: &crate::requirements::Requirements) -> RuleResult {
    let mut found = Vec::new();
    for cpu in &machine.kept.0 {
        let Some(wanted) = requirements.frequency(*cpu) else { continue };
        let (read, holds) = match wanted {
            Frequency::Governor(wanted) => match machine.knob(Knob::Governor(*cpu))? {
                Some(governor) => (governor.to_string(), *governor == Value::Word(wanted.clone())),
                None => return left_out(NO_FREQUENCIES),
            },
            Frequency::Fixed(khz) => {
                let least = machine.number(Knob::MinFrequency(*cpu))?;
                let most = machine.number(Knob::MaxFrequency(*cpu))?;
                let (Some(least), Some(most)) = (least, most) else { return left_out(NO_FREQUENCIES) };
                (format!("{least} to {most} kHz"), least == most && u64::try_from(least) == Ok(*khz))
            }
        };
        let subject = format!("CPU {cpu}");
        found.push(if holds {
            Finding::pass(read, wanted.to_string()).about(subject)
        } else {
            Finding::fail(read, wanted.to_string(), apply()).about(subject)
        });
    }
    if found.is_empty() { left_out("the model says nothing of these CPUs' frequency") } else { Ok(found) }
}

/// The performance governor on these CPUs.
fn performance(cpus: &CpuSet) -> Advice {
    let paths = cpus.0.iter().map(|cpu| Knob::Governor(*cpu).to_string());
    writes(paths, "performance").or(model("realtime: {frequency: performance}"))
}

fn governor(machine: &Machine<'_>) -> RuleResult {
    if let Some(requirements) = &machine.requirements {
        return as_wished(machine, requirements);
    }
    let cpus = machine.judged();
    if cpus.0.is_empty() {
        return unknown("the CPUs that are on line could not be read");
    }
    let governors = governor_of(machine, cpus)?;
    if governors.is_empty() {
        return left_out(NO_FREQUENCIES);
    }
    let read = grouped(governors.iter().copied());
    let wanted = "performance, or least and most frequency the same";
    if governors.iter().all(|(_, governor)| *governor == "performance") || is_fixed(machine, cpus) {
        return Finding::pass(read, wanted).into();
    }
    let all_the_same = governors.iter().all(|(_, governor)| *governor == governors[0].1);
    if !all_the_same && !machine.kept.0.is_empty() {
        return left_out("governors differ, which is reported under governors-differ");
    }
    let slow: CpuSet = CpuSet(
        governors.iter().filter(|(_, governor)| *governor != "performance").map(|(cpu, _)| *cpu).collect(),
    );
    Finding::fail(read, wanted, performance(&slow)).about(named(&slow)).into()
}

fn governors_differ(machine: &Machine<'_>) -> RuleResult {
    let governors = governor_of(machine, machine.kept()?)?;
    if governors.is_empty() {
        return left_out(NO_FREQUENCIES);
    }
    let read = grouped(governors.iter().copied());
    let wanted = "the same on all";
    if governors.iter().all(|(_, governor)| *governor == governors[0].1) {
        return Finding::pass(read, wanted).into();
    }
    let other = governors.iter().filter(|(_, governor)| *governor != "performance").map(|(cpu, _)| *cpu);
    Finding::conflict(read, wanted, performance(&CpuSet(other.collect()))).into()
}

fn range(machine: &Machine<'_>) -> RuleResult {
    let cpus = machine.judged();
    let mut ranges = Vec::new();
    for cpu in &cpus.0 {
        let least = machine.number(Knob::MinFrequency(*cpu))?;
        let most = machine.number(Knob::MaxFrequency(*cpu))?;
        if let (Some(least), Some(most)) = (least, most) {
            ranges.push((*cpu, format!("{} to {} MHz", least / 1000, most / 1000)));
        }
    }
    if ranges.is_empty() {
        return left_out(NO_FREQUENCIES);
    }
    Finding::recorded(grouped(ranges), "least = most where frequency changes show in measurements")
        .changed_by(model("realtime: {frequency: 2.4GHz}"))
        .into()
}

fn driver(machine: &Machine<'_>) -> RuleResult {
    let drivers = &machine.tuning.frequency_drivers;
    let Some(first) = machine.judged().0.iter().find_map(|cpu| drivers.get(cpu)) else {
        return left_out(NO_FREQUENCIES);
    };
    if machine.tuning.cpu_flags.is_empty() {
        return unknown("the CPU's flags could not be read");
    }
    if !machine.tuning.cpu_flags.contains("hwp") {
        let wanted = "any: this CPU has no HWP, or it is not Intel's";
        return Finding::pass(first.as_str(), wanted).into();
    }
    let wanted = "intel_pstate: this CPU has HWP";
    match first.as_str() {
        "intel_pstate" => Finding::pass(first.as_str(), wanted).into(),
        other if machine.line.says("intel_pstate", "disable") => {
            left_out(format!("{other}, since intel_pstate=disable: reported under pstate-off-with-hwp"))
        }
        other => Finding::fail(other, wanted, boot("intel_pstate=active")).into(),
    }
}

fn pstate_off(machine: &Machine<'_>) -> RuleResult {
    if !machine.line.says("intel_pstate", "disable") {
        return left_out("intel_pstate=disable is not on the command line");
    }
    if machine.tuning.cpu_flags.is_empty() {
        return unknown("the CPU's flags could not be read");
    }
    let wanted = "intel_pstate=disable only on CPUs without HWP";
    if machine.tuning.cpu_flags.contains("hwp") {
        return Finding::conflict(
            "intel_pstate=disable, and the CPU has HWP",
            wanted,
            boot("intel_pstate=active"),
        )
        .into();
    }
    Finding::pass("intel_pstate=disable, and the CPU has no HWP", wanted).into()
}

const RETUNERS: [&str; 6] = ["tuned", "thermald", "power-profiles-daemon", "tlp", "auto-cpufreq", "cpupower"];

fn programs(machine: &Machine<'_>) -> RuleResult {
    machine.sees_processes()?;
    let running: Vec<&str> =
        RETUNERS.into_iter().filter(|name| machine.tuning.programs.contains(*name)).collect();
    if running.is_empty() {
        return left_out("none is seen to run");
    }
    Finding::recorded(running.join(", "), "one who decides").into()
}

fn power_daemon(machine: &Machine<'_>) -> RuleResult {
    if !machine.runs("power-profiles-daemon")? {
        return left_out("power-profiles-daemon does not run");
    }
    let governors = governor_of(machine, machine.kept()?)?;
    let wanted = "one of the two decides";
    if governors.iter().any(|(_, governor)| *governor == "performance") {
        let how = disable(&["power-profiles-daemon.service"]);
        return Finding::conflict(
            "power-profiles-daemon runs, and isolated CPUs have the performance governor",
            wanted,
            how,
        )
        .into();
    }
    left_out("no isolated CPU has the performance governor")
}
