//! The kernel's command line by itself.

use penstock_model::audit::Layer;

use crate::{
    advice::{Advice, boot, boot_with_and_without, boot_without, by_hand},
    machine::{Machine, read},
    parameters::{NEVER, PARAMETERS, Parameter, meant},
    rule::{Finding, Need, Rule, RuleResult, left_out},
    sets::{both, named, without},
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
        why: "a recipe for another kernel does nothing here, without any message; what a distribution has brought to an older kernel does",
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

/// Whether the kernel would have said at its start that it does not know this word: kernels from 5.14 on do, of words without a
/// module's name.
fn would_say(machine: &Machine<'_>, key: &str) -> bool {
    machine.is_at_least(5, 14) && machine.tuning.unknown_parameters.known().is_some() && !key.contains('.')
}

/// Whether the kernel said that it does not know this word.
fn said_no(machine: &Machine<'_>, key: &str) -> bool {
    let name = |word: &String| word.split('=').next().unwrap_or(word).replace('-', "_");
    machine.tuning.unknown_parameters.known().is_some_and(|words| words.iter().any(|word| name(word) == key))
}

fn unknown_parameters(machine: &Machine<'_>) -> RuleResult {
    let wanted = "every word is known to this kernel";
    let mut found = Vec::new();
    let mut told: Vec<String> = Vec::new();
    for (key, value) in machine.line.words() {
        // A kernel with somebody's patch may know it: one that says what it does not know has not named it then.
        if would_say(machine, key) && !said_no(machine, key) {
            continue;
        }
        if let Some((_, instead)) = NEVER.iter().find(|(name, _)| name == key) {
            let read = format!("{key}= is unknown to every kernel of kernel.org: {instead}");
            found.push(Finding::conflict(read, wanted, boot_without(key)).about(key));
        } else if let Some(name) = meant(key) {
            let read = format!("{key} is no parameter; {name} is");
            let right = value.as_ref().map_or(name.to_owned(), |value| format!("{name}={value}"));
            found.push(Finding::conflict(read, wanted, boot_with_and_without(&right, key)).about(key));
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
            let of_ours =
                PARAMETERS.iter().any(|parameter| parameter.key == key && parameter.value.is_empty());
            if told.contains(&key) || !of_ours {
                continue;
            }
            let read = format!(
                "the kernel said at its start that it does not know {word}: it was built without what that needs"
            );
            found.push(Finding::conflict(read, wanted, boot_without(&key)).about(key));
        }
    }
    if found.is_empty() {
        Finding::pass("no unknown word that concerns real time", wanted).into()
    } else {
        Ok(found)
    }
}

/// Whether this kernel knows a parameter, by what it shows and has said; by its number only where that proves something.
fn knows(machine: &Machine<'_>, parameter: &Parameter) -> Option<bool> {
    let key = parameter.key;
    let refused = if parameter.value.is_empty() {
        said_no(machine, key)
    } else {
        machine.refuses(key, parameter.value)
    };
    if refused {
        return Some(false);
    }
    if parameter.shown {
        if machine.tuning.parameters.contains_key(key) {
            return Some(true);
        }
        let module = key.split_once('.').map_or(key, |(module, _)| module);
        let of_module = |name: &String| name.split_once('.').is_some_and(|(of, _)| of == module);
        if machine.tuning.parameters.keys().any(of_module) {
            return Some(false);
        }
    }
    if parameter.value.is_empty() && would_say(machine, key) {
        return Some(true);
    }
    // No distribution brings back what was taken out, and none takes out what its kernel came with.
    let release = machine.release?;
    match parameter.until {
        Some(until) => Some(release < until),
        None => (release >= parameter.since).then_some(true),
    }
}

/// The boot command line without a word, or without one of the values that commas separate.
fn taken_out(machine: &Machine<'_>, key: &str, value: &str) -> Advice {
    let rest: Vec<&str> = machine.line.parts(key).into_iter().filter(|part| *part != value).collect();
    if value.is_empty() || rest.is_empty() {
        boot_without(key)
    } else {
        boot(&format!("{key}={}", rest.join(",")))
    }
}

fn other_kernels(machine: &Machine<'_>) -> RuleResult {
    let release = machine.release()?;
    let mut found = Vec::new();
    for parameter in PARAMETERS {
        let there = match parameter.value {
            "" => machine.line.has(parameter.key),
            value => machine.line.parts(parameter.key).contains(&value),
        };
        if !there {
            continue;
        }
        let word = match parameter.value {
            "" => parameter.key.to_owned(),
            value => format!("{}={value}", parameter.key),
        };
        let wanted = match parameter.instead {
            "" => format!("words that this Linux {release} knows"),
            instead => format!("words that this Linux {release} knows; for {word}: {instead}"),
        };
        let known = match parameter.until {
            Some(until) => format!("kernel.org's kernels before {until} know it"),
            None => format!("kernel.org's kernels know it from {} on", parameter.since),
        };
        match knows(machine, parameter) {
            Some(true) => {}
            Some(false) => found.push(
                Finding::conflict(
                    format!("{word}, which this kernel does not know; {known}"),
                    wanted,
                    taken_out(machine, parameter.key, parameter.value),
                )
                .about(word),
            ),
            None => found.push(
                Finding::unknown(
                    format!("nothing tells whether this kernel knows {word}: {known}, distributions bring such words to older ones"),
                    wanted,
                )
                .about(word),
            ),
        }
    }
    let wanted = format!("words that this Linux {release} knows");
    if found.is_empty() { Finding::pass("none of another kernel's", wanted).into() } else { Ok(found) }
}

/// Words of which one of two values is not to be advised: what protects is the default.
const PROTECT: [&str; 8] =
    ["mitigations", "mce", "selinux", "enforcing", "apparmor", "iommu", "intel_iommu", "amd_iommu"];

fn repeated(machine: &Machine<'_>) -> RuleResult {
    let wanted = "each parameter once";
    let mut found = Vec::new();
    for (key, values) in machine.line.repeated() {
        // Pools of huge pages are given once a size.
        let known = PARAMETERS.iter().any(|parameter| parameter.key == key);
        if !known || ["hugepages", "hugepagesz"].contains(&key) {
            continue;
        }
        let read = values.iter().map(|value| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        let word = |value: &str| if value.is_empty() { key.to_owned() } else { format!("{key}={value}") };
        let how = if PROTECT.contains(&key) {
            boot_without(key)
        } else {
            let mut once: Vec<&str> = Vec::new();
            values.iter().rev().for_each(|value| {
                if !once.contains(value) {
                    once.push(value)
                }
            });
            let ways = once.into_iter().map(|value| boot(&word(value)));
            ways.reduce(Advice::or).unwrap_or_else(|| boot_without(key))
        };
        found.push(Finding::conflict(read, wanted, how).about(key));
    }
    if found.is_empty() { Finding::pass("none twice", wanted).into() } else { Ok(found) }
}

/// Two words of which one takes back the other, each with its value where there is one; an empty value stands for any. Then why, and
/// the words of which one is to go.
type Pair = ([&'static str; 2], [&'static str; 2], &'static str, &'static [&'static str]);

const PAIRS: [Pair; 11] = [
    (["nohz", "off"], ["nohz_full", ""], "without nohz no CPU can be without a tick", &["nohz"]),
    (
        ["nosoftlockup", ""],
        ["softlockup_panic", "1"],
        "nothing panics on what is not looked for",
        &["nosoftlockup", "softlockup_panic"],
    ),
    (["iommu", "off"], ["intel_iommu", "on"], "no VF can be given to a VM", &["iommu=off"]),
    (["iommu", "off"], ["amd_iommu", "on"], "no VF can be given to a VM", &["iommu=off"]),
    (["intel_iommu", "off"], ["iommu", "pt"], "there is nothing to pass through", &["intel_iommu=off"]),
    (
        ["tsc", "unstable"],
        ["clocksource", "tsc"],
        "the kernel leaves a clock that it is told to be unstable",
        &["tsc=unstable"],
    ),
    (["clocksource", "hpet"], ["tsc", "reliable"], "the TSC is trusted and not used", &["clocksource=hpet"]),
    (
        ["clocksource", "acpi_pm"],
        ["tsc", "reliable"],
        "the TSC is trusted and not used",
        &["clocksource=acpi_pm"],
    ),
    (
        ["idle", "poll"],
        ["intel_idle.max_cstate", ""],
        "nothing limits idle states that are never entered",
        &["idle=poll", "intel_idle.max_cstate"],
    ),
    (
        ["idle", "poll"],
        ["processor.max_cstate", ""],
        "nothing limits idle states that are never entered",
        &["idle=poll", "processor.max_cstate"],
    ),
    (
        ["cpufreq.off", "1"],
        ["cpufreq.default_governor", ""],
        "no governor runs",
        &["cpufreq.off", "cpufreq.default_governor"],
    ),
];

fn contradictory(machine: &Machine<'_>) -> RuleResult {
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
    for (one, other, why, go) in PAIRS {
        if says(one) && says(other) {
            let read = format!("{} with {}", shown(one), shown(other));
            let ways = go.iter().map(|word| boot_without(word)).reduce(Advice::or);
            let how = ways.unwrap_or_else(|| by_hand("remove one of the two"));
            found.push(Finding::conflict(format!("{read}: {why}"), wanted, how).about(shown(one)));
        }
    }
    if found.is_empty() { Finding::pass("no such pair", wanted).into() } else { Ok(found) }
}

fn smt_is_off(machine: &Machine<'_>) -> bool {
    match machine.tuning.smt.known() {
        // It can be switched on again while the machine runs.
        Some(smt) => smt.contains("off"),
        None => machine.line.has("nosmt"),
    }
}

/// A list of the command line with CPUs of this machine alone, as far as these can be known.
fn corrected(machine: &Machine<'_>, key: &str) -> Advice {
    let flags = if key == "isolcpus" { machine.line.isolcpus_flags() } else { Vec::new() };
    let here = match machine.listed(key) {
        Some(cpus) => both(&cpus, machine.online()),
        None if key == "irqaffinity" => machine.housekeeping(),
        None => machine.kept.clone(),
    };
    if here.0.is_empty() {
        return boot_without(key);
    }
    let flags: String = flags.into_iter().flat_map(|flag| [flag, ","]).collect();
    boot(&format!("{key}={flags}{here}"))
}

fn not_online(machine: &Machine<'_>) -> RuleResult {
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
                found.push(Finding::conflict(read, wanted.clone(), corrected(machine, key)).about(key));
            }
            continue;
        };
        let missing = without(&cpus, machine.online());
        if !missing.0.is_empty() {
            let read = format!("{key}= names {}, not on line", named(&missing));
            found.push(Finding::conflict(read, wanted.clone(), corrected(machine, key)).about(key));
        }
    }
    if found.is_empty() { Finding::pass("all listed CPUs are on line", wanted).into() } else { Ok(found) }
}

fn nosmt_against_lists(machine: &Machine<'_>) -> RuleResult {
    if !smt_is_off(machine) {
        return left_out("SMT is not switched off");
    }
    let wanted = "lists of CPUs that are on line with SMT off, or SMT on and both siblings with one tenant";
    let mut found = Vec::new();
    for key in LISTS {
        let missing = without(&machine.listed(key).unwrap_or_default(), machine.online());
        if !missing.0.is_empty() {
            let read = format!("SMT is off, and {key}= names {}", named(&missing));
            found.push(Finding::conflict(read, wanted, corrected(machine, key)).about(key));
        }
    }
    if found.is_empty() {
        Finding::pass("SMT is off, and the lists name no siblings", wanted).into()
    } else {
        Ok(found)
    }
}
