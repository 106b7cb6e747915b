//! What protects tenants from each other: never switched off by us, and what it costs when somebody has.

use penstock_model::audit::{Currency, Layer};

use crate::{
    machine::{Machine, read},
    release::Release,
    rule::{Finding, Need, Rule, Said, left_out, unknown},
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "mitigations-off",
        layer: Layer::Security,
        what: "whether mitigations of the CPU's weaknesses were switched off (mitigations=off)",
        why: "old recipes gain a few microseconds an interrupt by it; from Linux 6.17 on attack vectors can be chosen one by one",
        price: Some((
            Currency::Security,
            "every program and every guest can read the memory of the kernel and of all others",
        )),
        source: "Documentation/admin-guide/hw-vuln/attack_vector_controls.rst",
        needs_root: false,
        need: Need::Always,
        judge: mitigations,
    },
    Rule {
        id: "mitigations-off-with-tenants",
        layer: Layer::Security,
        what: "mitigations switched off, or attack vectors of guests left open, where several guests run",
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

const BACK_ON: &str = "boot command line without mitigations=off; to pay only for what runs here: see the attack vectors (Linux 6.17)";

fn mitigations(machine: &Machine<'_>) -> Said {
    let release = machine.release()?;
    let wanted = if release >= Release::new(6, 17) {
        "on; where no untrusted program runs beside the guests, mitigations=auto,no_user_user"
    } else {
        "on"
    };
    if machine.line.parts("mitigations").contains(&"off") {
        return Finding::fail("mitigations=off", wanted, BACK_ON).into();
    }
    let open: Vec<&str> = ["nopti", "nospectre_v2", "nospectre_v1", "nospec_store_bypass_disable"]
        .into_iter()
        .chain(["spectre_v2=off", "pti=off", "mds=off", "l1tf=off", "tsx_async_abort=off"])
        .filter(|word| match word.split_once('=') {
            Some((key, value)) => machine.line.says(key, value),
            None => machine.line.has(word),
        })
        .collect();
    if !open.is_empty() {
        let how = format!("boot command line without {}", open.join(" "));
        return Finding::fail(open.join(" "), wanted, how).into();
    }
    let read = match machine.line.value("mitigations") {
        Some(value) => format!("mitigations={value}"),
        None => "on, which is the default".to_owned(),
    };
    Finding::pass(read, wanted).into()
}

fn mitigations_with_tenants(machine: &Machine<'_>) -> Said {
    let tenants = machine.tenants();
    if tenants < 2 {
        return left_out("fewer than two guests");
    }
    let parts = machine.line.parts("mitigations");
    let open: Vec<&str> =
        parts.into_iter().filter(|part| ["off", "no_guest_host", "no_guest_guest"].contains(part)).collect();
    let wanted = "mitigations between guests on";
    if open.is_empty() {
        return Finding::pass(format!("{tenants} guests, none of their vectors open"), wanted).into();
    }
    let read = format!("mitigations={}, and {tenants} guests", open.join(","));
    let how = format!("boot command line without {}: mitigations=auto", open.join(" and "));
    Finding::conflict(read, wanted, how).into()
}

fn vulnerabilities(machine: &Machine<'_>) -> Said {
    let all = &machine.tuning.vulnerabilities;
    if all.is_empty() {
        return unknown("/sys/devices/system/cpu/vulnerabilities could not be read");
    }
    let open: Vec<String> = all
        .iter()
        .filter(|(_, state)| state.starts_with("Vulnerable"))
        .map(|(name, state)| format!("{name}: {state}"))
        .collect();
    let wanted = "none vulnerable";
    if open.is_empty() {
        return Finding::pass(format!("{} known, none open", all.len()), wanted).into();
    }
    if machine.line.parts("mitigations").contains(&"off") {
        return left_out("told under mitigations-off");
    }
    Finding::fail(
        open.join("; "),
        wanted,
        "the newest microcode (Debian: apt install intel-microcode amd64-microcode), then a new start",
    )
    .into()
}

fn access_control(machine: &Machine<'_>) -> Said {
    let wanted = "SELinux enforcing, or AppArmor";
    let apparmor = |modules: &std::collections::BTreeSet<String>| modules.contains("apparmor");
    match read(&machine.tuning.selinux_enforcing, "/sys/fs/selinux/enforce")? {
        Some(true) => return Finding::pass("SELinux enforces", wanted).into(),
        Some(false) => {
            return Finding::fail(
                "SELinux is there and does not enforce",
                wanted,
                "setenforce 1, and SELINUX=enforcing in /etc/selinux/config",
            )
            .into();
        }
        None => {}
    }
    if machine.line.says("selinux", "0") {
        return Finding::fail(
            "selinux=0",
            wanted,
            "boot command line without selinux=0; against its cost: see selinux-cache",
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
    Finding::fail(format!("neither among {read}"), wanted, "apt install apparmor (Debian), or SELinux: boot command line with security=apparmor or security=selinux").into()
}

fn selinux_cache(machine: &Machine<'_>) -> Said {
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
    Finding::fail(threshold.to_string(), wanted, "echo 8192 > /sys/fs/selinux/avc/cache_threshold").into()
}

fn machine_checks(machine: &Machine<'_>) -> Said {
    let wanted = "handled";
    if machine.line.says("mce", "off") || machine.line.has("nomce") {
        return Finding::fail("mce=off", wanted, "boot command line without mce=off").into();
    }
    if machine.line.says("mce", "ignore_ce") {
        let read = "mce=ignore_ce: corrected errors are not polled for";
        return Finding::recorded(read, wanted)
            .costs(Currency::Safety, "memory that begins to fail is noticed when it has failed")
            .into();
    }
    Finding::pass("handled", wanted).into()
}
