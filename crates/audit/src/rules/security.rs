//! What protects tenants from each other: never switched off by us, and what it costs when somebody has.

use penstock_model::{
    audit::{Currency, Layer},
    text::counted,
};

use super::mitigations::Open;
use crate::{
    advice::{Advice, boot, boot_without, by_hand, settings, write},
    machine::{Machine, read},
    rule::{Finding, Need, NoFinding, Rule, RuleResult, left_out, unknown},
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "mitigations-off",
        layer: Layer::Security,
        what: "whether mitigations of the CPU's weaknesses were switched off: all, one by one (retbleed=off...), or by attack vector (mitigations=auto,no_user_user)",
        why: "old recipes gain a few microseconds an interrupt by it",
        price: Some((
            Currency::Security,
            "every program and every guest can read the memory of the kernel and of all others",
        )),
        source: "Documentation/admin-guide/kernel-parameters.txt, mitigations; Documentation/admin-guide/hw-vuln/attack_vector_controls.rst",
        needs_root: false,
        need: Need::Always,
        judge: mitigations,
    },
    Rule {
        id: "mitigations-off-with-tenants",
        layer: Layer::Security,
        what: "mitigations switched off that guests can make use of, where several guests run",
        why: "guests that were separated by everything else are joined by the CPU",
        price: Some((Currency::Security, "each guest can read the memory of the others and of the host")),
        source: "Documentation/admin-guide/hw-vuln/attack_vector_controls.rst",
        needs_root: false,
        need: Need::Always,
        judge: mitigations_with_tenants,
    },
    Rule {
        id: "cpu-vulnerabilities",
        layer: Layer::Security,
        what: "weaknesses of the CPU that nothing is done about (/sys/devices/system/cpu/vulnerabilities)",
        why: "a weakness without microcode or mitigation is open whatever the command line says",
        price: Some((Currency::Security, "what the weakness named in the row gives away")),
        source: "Documentation/admin-guide/hw-vuln/index.rst",
        needs_root: false,
        need: Need::Always,
        judge: vulnerabilities,
    },
    Rule {
        id: "access-control",
        layer: Layer::Security,
        what: "whether SELinux enforces, or AppArmor is in force",
        why: "sVirt keeps a guest that broke out of QEMU from the disks and the memory of the others; switching it off gains nothing that a larger AVC does not",
        price: Some((
            Currency::Security,
            "sVirt between VMs is lost: one that breaks out of QEMU has them all",
        )),
        source: "https://libvirt.org/drvqemu.html#selinux-svirt-confinement",
        needs_root: false,
        need: Need::Always,
        judge: access_control,
    },
    Rule {
        id: "selinux-cache",
        layer: Layer::Security,
        what: "how many decisions SELinux caches (/sys/fs/selinux/avc/cache_threshold)",
        why: "at 512 eviction costs 200 to 318 µs inside a system call; this is the cost that recipes blame on SELinux. 65536 was worse again",
        price: None,
        source: "https://github.com/redhat-performance/tuned/pull/863; openshift-ansible 9923",
        needs_root: false,
        need: Need::Always,
        judge: selinux_cache,
    },
    Rule {
        id: "machine-checks",
        layer: Layer::Security,
        what: "whether machine checks are handled (mce=off, mce=ignore_ce)",
        why: "mce=off stops polling for corrected errors, and with it the handling of those that are not",
        price: Some((Currency::Safety, "memory that fails is not noticed, and what was in it is used")),
        source: "Documentation/arch/x86/x86_64/boot-options.rst, mce",
        needs_root: false,
        need: Need::Always,
        judge: machine_checks,
    },
];

/// The boot command line without what it leaves open.
fn closed(machine: &Machine<'_>, open: &Open) -> Advice {
    // The word may be there twice, and the other one be no better.
    let all =
        |word: &'_ String| if word == "mitigations=off" { "mitigations".to_owned() } else { word.clone() };
    let gone: Vec<String> = open.words.iter().map(all).collect();
    let mut gone: Vec<&str> = gone.iter().map(String::as_str).collect();
    if open.vectors.is_empty() {
        return boot_without(&gone.join(" "));
    }
    // What is said of siblings stays.
    let parts = machine.line.parts("mitigations");
    let rest: Vec<&str> =
        parts.into_iter().filter(|part| !part.is_empty() && !part.starts_with("no_")).collect();
    if rest.is_empty() || rest == ["auto"] {
        gone.push("mitigations");
        boot_without(&gone.join(" "))
    } else {
        let word = boot(&format!("mitigations={}", rest.join(",")));
        if gone.is_empty() { word } else { word.and(boot_without(&gone.join(" "))) }
    }
}

/// Whether the kernel takes attack vectors; `None`: nothing tells. One that does not leaves all mitigations on.
fn takes_vectors(machine: &Machine<'_>) -> Option<bool> {
    // It refuses such a value as a whole.
    if machine.tuning.refused_values.iter().any(|word| word.starts_with("mitigations=")) {
        return Some(false);
    }
    machine.is_at_least(6, 17).then_some(true)
}

/// As [`Open::of`], without vectors that this kernel does not know. `Err`: whether it does cannot be seen.
fn open(machine: &Machine<'_>, guests_only: bool) -> Result<Open, NoFinding> {
    let mut open = Open::of(machine, guests_only);
    match takes_vectors(machine) {
        _ if open.vectors.is_empty() => Ok(open),
        Some(true) => Ok(open),
        Some(false) => {
            open.vectors.clear();
            Ok(open)
        }
        // What is surely open is said; whether the rest is does not matter then.
        None if !open.words.is_empty() => Ok(open),
        None => unknown(format!(
            "{}: nothing tells whether this kernel leaves these open or refuses the word, as kernel.org's before 6.17 do",
            open.text()
        )),
    }
}

fn mitigations(machine: &Machine<'_>) -> RuleResult {
    let wanted = "on";
    let open = open(machine, false)?;
    if !open.is_empty() {
        return Finding::fail(open.text(), wanted, closed(machine, &open)).into();
    }
    if machine.built_with("CPU_MITIGATIONS") == Some(false) && machine.is_at_least(6, 9) {
        let how = by_hand("use a kernel with CONFIG_CPU_MITIGATIONS=y");
        return Finding::fail("the kernel was built without (CPU_MITIGATIONS)", wanted, how).into();
    }
    let read = match machine.line.value("mitigations") {
        Some(value) => format!("mitigations={value}"),
        None => "on, which is the default".to_owned(),
    };
    Finding::pass(read, wanted).into()
}

fn mitigations_with_tenants(machine: &Machine<'_>) -> RuleResult {
    let tenants = machine.tenants();
    if tenants < 2 {
        machine.sees_processes()?;
        return left_out("fewer than two guests");
    }
    let open = open(machine, true)?;
    let wanted = "mitigations between guests, and between guests and the host, on";
    if open.is_empty() {
        return Finding::pass(
            format!("{}, nothing open that they can use", counted(tenants, "guest")),
            wanted,
        )
        .into();
    }
    Finding::conflict(
        format!("{}, and {}", open.text(), counted(tenants, "guest")),
        wanted,
        closed(machine, &open),
    )
    .into()
}

/// Unprivileged programs of BPF undo what mitigates spectre_v2 (`Documentation/admin-guide/hw-vuln/spectre.rst`).
const BPF: &str = "/proc/sys/kernel/unprivileged_bpf_disabled";

fn vulnerabilities(machine: &Machine<'_>) -> RuleResult {
    let all = &machine.tuning.vulnerabilities;
    if all.is_empty() {
        return unknown("/sys/devices/system/cpu/vulnerabilities could not be read");
    }
    let wanted = "none vulnerable";
    let (mut open, mut unclear, mut unread) = (Vec::new(), Vec::new(), None);
    for (name, state) in all {
        match read(state, &format!("vulnerabilities/{name}")) {
            Ok(Some(state)) if state.starts_with("Vulnerable") || state.contains("VMX: vulnerable") => {
                open.push((name, state));
            }
            // `Unknown: Dependent on hypervisor status`, `Unknown: No mitigations` (`arch/x86/kernel/cpu/bugs.c`).
            Ok(Some(state)) if state.starts_with("Unknown") => {
                unclear.push(Finding::unknown(state.as_str(), wanted).about(name.as_str()));
            }
            Ok(_) => {}
            Err(why) => unread = Some(why),
        }
    }
    if open.is_empty() {
        return match unread {
            Some(why) => Err(why),
            None if !unclear.is_empty() => Ok(unclear),
            None => Finding::pass(format!("{} known, none open", all.len()), wanted).into(),
        };
    }
    if !Open::of(machine, false).is_empty() {
        return left_out("reported under mitigations-off");
    }
    let in_vm = machine.is_vm();
    let found = open.into_iter().map(|(name, state)| {
        let how = if state.to_ascii_lowercase().contains("ebpf") {
            write(BPF, "2")
        } else if in_vm == Some(true) {
            by_hand("on the host: its newest microcode, and a CPU model that hands the fix to this VM (libvirt: <cpu mode='host-model'/>); then stop the VM and start it again. No microcode can be loaded in a VM")
        } else {
            let microcode = by_hand("the newest microcode (Debian: apt install intel-microcode amd64-microcode; Red Hat: microcode_ctl), or newer firmware, then a new start");
            // Where nothing needs microcode the kernel lacks the mitigation.
            if state.contains("microcode") { microcode } else { microcode.and(by_hand("the distribution's newest kernel")) }
        };
        Finding::fail(state.as_str(), wanted, how).about(name.as_str())
    });
    Ok(found.chain(unclear).collect())
}

fn access_control(machine: &Machine<'_>) -> RuleResult {
    let wanted = "SELinux enforcing, or AppArmor";
    let apparmor = |modules: &std::collections::BTreeSet<String>| modules.contains("apparmor");
    match read(&machine.tuning.selinux_enforcing, "/sys/fs/selinux/enforce")? {
        Some(true) => return Finding::pass("SELinux enforces", wanted).into(),
        Some(false) => {
            return Finding::fail(
                "SELinux is there and does not enforce",
                wanted,
                write("/sys/fs/selinux/enforce", "1")
                    .beware("what has no rule for what it does is stopped: first look at what would be denied (ausearch -m avc)")
                    .or(settings("/etc/selinux/config", "", &[("SELINUX", "enforcing".to_owned())])),
            )
            .into();
        }
        None => {}
    }
    if machine.line.says("selinux", "0") {
        return Finding::fail(
            "selinux=0",
            wanted,
            boot_without("selinux=0")
                .beware("files that were written without SELinux have to be labelled first (touch /.autorelabel); against its cost: see selinux-cache"),
        )
        .into();
    }
    let Some(modules) = read(&machine.tuning.security_modules, "/sys/kernel/security/lsm")? else {
        return unknown("/sys/kernel/security/lsm is not there");
    };
    if apparmor(modules) {
        return Finding::pass("AppArmor", wanted).into();
    }
    let read = modules.iter().cloned().collect::<Vec<_>>().join(",");
    let how = if machine.line.says("apparmor", "0") {
        boot_without("apparmor=0")
    } else {
        by_hand("the distribution's package (Debian: apt install apparmor; Red Hat: selinux-policy-targeted)")
            .and(boot("security=apparmor"))
    };
    Finding::fail(format!("neither among {read}"), wanted, how).into()
}

fn selinux_cache(machine: &Machine<'_>) -> RuleResult {
    if read(&machine.tuning.selinux_enforcing, "/sys/fs/selinux/enforce")?.is_none() {
        return left_out("SELinux is not there");
    }
    let Some(threshold) = read(&machine.tuning.selinux_cache, "/sys/fs/selinux/avc/cache_threshold")? else {
        return unknown("/sys/fs/selinux/avc/cache_threshold is not there");
    };
    let wanted = "about 8192";
    if (4096..=16_384).contains(threshold) {
        return Finding::pass(threshold.to_string(), wanted).into();
    }
    Finding::fail(threshold.to_string(), wanted, write("/sys/fs/selinux/avc/cache_threshold", "8192")).into()
}

fn machine_checks(machine: &Machine<'_>) -> RuleResult {
    let wanted = "handled";
    if machine.line.says("mce", "off") || machine.line.has("nomce") {
        let word = if machine.line.has("nomce") { "nomce" } else { "mce=off" };
        return Finding::fail(word, wanted, boot_without("mce=off nomce")).into();
    }
    if machine.line.says("mce", "ignore_ce") {
        let read = "mce=ignore_ce: corrected errors are not polled for";
        return Finding::recorded(read, wanted)
            .costs(Currency::Safety, "memory that begins to fail is noticed when it has failed")
            .into();
    }
    Finding::pass("handled", wanted).into()
}
