//! The kernel's command line by itself.

use penstock_model::audit::Layer;

use crate::{
    machine::{Machine, read},
    parameters::{NEVER, PARAMETERS, meant},
    rule::{Finding, Need, Rule, Said, left_out},
    sets::{named, without},
};

const PARAMETERS_TEXT: &str = "Documentation/admin-guide/kernel-parameters.txt";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "boot-unknown-parameters",
        layer: Layer::Boot,
        what: "words of the command line that this kernel does not know",
        why: "the kernel ignores a word that it does not know, and goes on as if nobody had asked",
        price: None,
        source: PARAMETERS_TEXT,
        needs_root: false,
        need: Need::Always,
        judge: unknown_parameters,
    },
    Rule {
        id: "boot-parameters-of-other-kernels",
        layer: Layer::Boot,
        what: "words of the command line that only newer or older kernels know",
        why: "a recipe for another kernel does nothing here, without any message",
        price: None,
        source: PARAMETERS_TEXT,
        needs_root: false,
        need: Need::Always,
        judge: other_kernels,
    },
    Rule {
        id: "boot-repeated-parameters",
        layer: Layer::Boot,
        what: "parameters that are there twice with different values",
        why: "which of the two counts differs from parameter to parameter; of isolcpus= and nohz_full= the first may",
        price: None,
        source: "kernel/params.c; kernel/sched/isolation.c, housekeeping_setup()",
        needs_root: false,
        need: Need::Always,
        judge: repeated,
    },
    Rule {
        id: "boot-contradictory-parameters",
        layer: Layer::Boot,
        what: "parameters of which one takes back what another asks for",
        why: "each is legal by itself; together one of them does nothing",
        price: None,
        source: PARAMETERS_TEXT,
        needs_root: false,
        need: Need::Always,
        judge: contradictory,
    },
    Rule {
        id: "boot-cpus-not-online",
        layer: Layer::Boot,
        what: "CPUs that isolcpus=, nohz_full=, rcu_nocbs= or irqaffinity= name and that are not on line",
        why: "a list that was written for another machine isolates other CPUs than was meant",
        price: None,
        source: "Documentation/admin-guide/cpu-isolation.rst",
        needs_root: false,
        need: Need::Always,
        judge: not_online,
    },
    Rule {
        id: "nosmt-against-lists",
        layer: Layer::Boot,
        what: "siblings in the lists of the command line while SMT is switched off",
        why: "the lists expect pairs of siblings; with SMT off half of each pair is not there, and who counts on it has half the CPUs",
        price: None,
        source: "Documentation/admin-guide/kernel-parameters.txt, nosmt",
        needs_root: false,
        need: Need::Always,
        judge: nosmt_against_lists,
    },
];

/// The words that list CPUs.
pub(super) const LISTS: [&str; 4] = ["isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity"];

fn unknown_parameters(machine: &Machine<'_>) -> Said {
    let wanted = "every word is known to this kernel";
    let mut found = Vec::new();
    let mut told: Vec<String> = Vec::new();
    for (key, _) in &machine.line.words {
        if let Some((_, instead)) = NEVER.iter().find(|(name, _)| name == key) {
            let read = format!("{key}= is unknown to every kernel of kernel.org");
            found.push(Finding::conflict(read, wanted, format!("remove {key}=: {instead}")).about(key));
        } else if let Some(name) = meant(key) {
            let read = format!("{key} is no parameter; {name} is");
            found.push(Finding::conflict(read, wanted, format!("write {name} for {key}")).about(key));
        } else {
            continue;
        }
        told.push(key.clone());
    }
    // The kernel's own word on it, where it could be read: it knows those of its modules too.
    if let Ok(Some(words)) = read(&machine.tuning.unknown_parameters, "the kernel's messages") {
        for word in words {
            let key = word.split('=').next().unwrap_or(word).replace('-', "_");
            // What it does not know it gives to init, which takes its own words from there.
            if told.contains(&key) || !PARAMETERS.iter().any(|parameter| parameter.key == key) {
                continue;
            }
            let read = format!("the kernel said at its start that it does not know {word}");
            let how = format!("remove {key}, or use a kernel that was built with what it needs");
            found.push(Finding::conflict(read, wanted, how).about(key));
        }
    }
    if found.is_empty() {
        Finding::pass("no unknown word that concerns real time", wanted).into()
    } else {
        Ok(found)
    }
}

fn other_kernels(machine: &Machine<'_>) -> Said {
    let release = machine.release()?;
    let wanted = format!("words that Linux {release} knows");
    let mut found = Vec::new();
    for parameter in PARAMETERS {
        let there = match parameter.value {
            "" => machine.line.has(parameter.key),
            value => machine.line.parts(parameter.key).contains(&value),
        };
        let new = parameter.since > release;
        let old = parameter.until.is_some_and(|until| release >= until);
        if !there || !(new || old) {
            continue;
        }
        let word = match parameter.value {
            "" => parameter.key.to_owned(),
            value => format!("{}={value}", parameter.key),
        };
        let read = match parameter.until {
            Some(until) if old => format!("{word}, which no kernel from {until} on knows"),
            _ => format!("{word}, which kernels know from {} on", parameter.since),
        };
        let how = format!("remove {word}: {}", parameter.instead);
        found.push(Finding::conflict(read, wanted.clone(), how).about(word));
    }
    if found.is_empty() { Finding::pass("none of another kernel's", wanted).into() } else { Ok(found) }
}

fn repeated(machine: &Machine<'_>) -> Said {
    let wanted = "each parameter once";
    let mut found = Vec::new();
    for (key, values) in machine.line.repeated() {
        // Pools of huge pages are given once a size.
        let known = PARAMETERS.iter().any(|parameter| parameter.key == key);
        if !known || ["hugepages", "hugepagesz"].contains(&key) {
            continue;
        }
        let read = values.iter().map(|value| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        let how = format!("keep one {key}= on the boot command line");
        found.push(Finding::conflict(read, wanted, how).about(key));
    }
    if found.is_empty() { Finding::pass("none twice", wanted).into() } else { Ok(found) }
}

/// Pairs of which one takes back the other: a word each, with its value where there is one; an empty value stands for any.
const PAIRS: [([&str; 2], [&str; 2], &str); 11] = [
    (["nohz", "off"], ["nohz_full", ""], "without nohz no CPU can be without a tick; remove nohz=off"),
    (
        ["nosoftlockup", ""],
        ["softlockup_panic", "1"],
        "nothing panics on what is not looked for; remove one of the two",
    ),
    (["iommu", "off"], ["intel_iommu", "on"], "no VF can be given to a VM; remove iommu=off"),
    (["iommu", "off"], ["amd_iommu", "on"], "no VF can be given to a VM; remove iommu=off"),
    (["intel_iommu", "off"], ["iommu", "pt"], "there is nothing to pass through; remove intel_iommu=off"),
    (
        ["tsc", "unstable"],
        ["clocksource", "tsc"],
        "the kernel leaves a clock that it is told to be unstable; remove tsc=unstable",
    ),
    (
        ["clocksource", "hpet"],
        ["tsc", "reliable"],
        "the TSC is trusted and not used; remove clocksource=hpet",
    ),
    (
        ["clocksource", "acpi_pm"],
        ["tsc", "reliable"],
        "the TSC is trusted and not used; remove clocksource=acpi_pm",
    ),
    (
        ["idle", "poll"],
        ["intel_idle.max_cstate", ""],
        "nothing limits idle states that are never entered; remove idle=poll",
    ),
    (
        ["idle", "poll"],
        ["processor.max_cstate", ""],
        "nothing limits idle states that are never entered; remove idle=poll",
    ),
    (["cpufreq.off", "1"], ["cpufreq.default_governor", ""], "no governor runs; remove cpufreq.off=1"),
];

fn contradictory(machine: &Machine<'_>) -> Said {
    let wanted = "no word takes back another";
    let mut found = Vec::new();
    let says = |[key, value]: [&str; 2]| match value {
        "" => machine.line.has(key),
        value => machine.line.says(key, value),
    };
    let shown = |[key, _]: [&str; 2]| match machine.line.value(key) {
        Some(value) => format!("{key}={value}"),
        None => key.to_owned(),
    };
    for (one, other, why) in PAIRS {
        if says(one) && says(other) {
            let read = format!("{} with {}", shown(one), shown(other));
            let (why, how) = why.split_once("; ").unwrap_or((why, "remove one of the two"));
            found.push(Finding::conflict(format!("{read}: {why}"), wanted, how).about(shown(one)));
        }
    }
    if found.is_empty() { Finding::pass("no such pair", wanted).into() } else { Ok(found) }
}

fn smt_is_off(machine: &Machine<'_>) -> bool {
    machine.line.has("nosmt") || machine.tuning.smt.known().is_some_and(|smt| smt.contains("off"))
}

fn not_online(machine: &Machine<'_>) -> Said {
    if !LISTS.iter().any(|key| machine.line.has(key)) {
        return left_out("the command line lists no CPUs");
    }
    if machine.online().0.is_empty() {
        return crate::rule::unknown("the CPUs that are on line could not be read");
    }
    if smt_is_off(machine) {
        return left_out("SMT is off, so that siblings are expected to be missing");
    }
    let wanted = format!("CPUs of {}", machine.online());
    let mut found = Vec::new();
    for key in LISTS {
        let Some(cpus) = machine.listed(key) else {
            if let Some(value) = machine.line.value(key) {
                let read = format!("{key}={value} is no list of CPUs");
                found.push(Finding::conflict(read, wanted.clone(), format!("correct {key}=")).about(key));
            }
            continue;
        };
        let missing = without(&cpus, machine.online());
        if !missing.0.is_empty() {
            let read = format!("{key}= names {}, not on line", named(&missing));
            let how = format!("correct {key}= to CPUs of {}", machine.online());
            found.push(Finding::conflict(read, wanted.clone(), how).about(key));
        }
    }
    if found.is_empty() { Finding::pass("all listed CPUs are on line", wanted).into() } else { Ok(found) }
}

fn nosmt_against_lists(machine: &Machine<'_>) -> Said {
    if !smt_is_off(machine) {
        return left_out("SMT is not switched off");
    }
    let wanted = "lists of CPUs that are on line with SMT off";
    let mut found = Vec::new();
    for key in LISTS {
        let missing = without(&machine.listed(key).unwrap_or_default(), machine.online());
        if !missing.0.is_empty() {
            let read = format!("SMT is off, and {key}= names {}", named(&missing));
            let how =
                format!("take {missing} out of {key}=, or give both siblings to one tenant and leave SMT on");
            found.push(Finding::conflict(read, wanted, how).about(key));
        }
    }
    if found.is_empty() {
        Finding::pass("SMT is off, and the lists name no siblings", wanted).into()
    } else {
        Ok(found)
    }
}
