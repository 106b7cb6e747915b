//! PFs, VFs, their links and the IOMMU.

use std::collections::BTreeSet;

use penstock_model::{
    Bdf,
    audit::{Currency, Layer},
};

use crate::{
    advice::{Advice, boot, boot_without, by_hand, write},
    machine::{Machine, read},
    rule::{Finding, Need, Rule, RuleResult, left_out, unknown},
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "iommu",
        layer: Layer::Functions,
        what: "whether the IOMMU is on (VT-d, AMD-Vi)",
        why: "without it no VF can be given to a VM, and every device can write to all memory",
        price: None,
        source: "Documentation/driver-api/vfio.rst",
        needs_root: false,
        need: Need::Functions,
        judge: iommu,
    },
    Rule {
        id: "iommu-passthrough",
        layer: Layer::Functions,
        what: "whether devices that the host itself uses go past the IOMMU (iommu=pt)",
        why: "mapping each buffer takes time in the host's own drivers; functions of VMs are translated either way",
        price: Some((
            Currency::Security,
            "a device of the host's own that misbehaves can write to all memory",
        )),
        source: "Documentation/admin-guide/kernel-parameters.txt, iommu",
        needs_root: false,
        need: Need::Functions,
        judge: passthrough,
    },
    Rule {
        id: "interrupt-remapping",
        layer: Layer::Functions,
        what: "whether the IOMMU remaps interrupts (IR- in /proc/interrupts)",
        why: "without it a guest can raise any interrupt of the host, and VFIO refuses; posted interrupts need it as well",
        price: None,
        source: "Documentation/driver-api/vfio.rst; Intel VT-d specification, 5",
        needs_root: false,
        need: Need::Functions,
        judge: remapping,
    },
    Rule {
        id: "iommu-groups",
        layer: Layer::Functions,
        what: "whether functions that VMs own are alone in their IOMMU group",
        why: "functions of one group reach each other past the IOMMU",
        price: Some((Currency::Security, "a guest can reach what else is in the group")),
        source: "Documentation/driver-api/vfio.rst",
        needs_root: false,
        need: Need::Functions,
        judge: groups,
    },
    Rule {
        id: "pci-link",
        layer: Layer::Functions,
        what: "speed and lanes of PCI Express links (current_link_speed, current_link_width)",
        why: "a card in the wrong slot, or a link that trained badly, has a part of its bandwidth and takes longer for each transfer",
        price: None,
        source: "Documentation/ABI/testing/sysfs-bus-pci",
        needs_root: false,
        need: Need::Functions,
        judge: link,
    },
    Rule {
        id: "link-power",
        layer: Layer::Functions,
        what: "whether PCI Express links sleep (pcie_aspm/parameters/policy)",
        why: "waking a link from L1 takes microseconds to tens of them, at the next frame",
        price: Some((Currency::Power, "each link that never sleeps draws some hundred milliwatts")),
        source: "Documentation/admin-guide/kernel-parameters.txt, pcie_aspm",
        needs_root: false,
        need: Need::Functions,
        judge: link_power,
    },
];

/// Switches that keep the kernel from using the IOMMU.
const OFF: [(&str, &str); 3] = [("iommu", "off"), ("intel_iommu", "off"), ("amd_iommu", "off")];

fn turn_on(machine: &Machine<'_>) -> Advice {
    let off: Vec<String> = OFF
        .iter()
        .filter(|(key, value)| machine.line.says(key, value))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !off.is_empty() {
        return boot_without(&off.join(" "));
    }
    if machine.is_vm() == Some(true) {
        return by_hand("on the host: a virtual IOMMU for this VM (libvirt: <iommu model='intel'>)")
            .and(boot("intel_iommu=on iommu=pt"));
    }
    let firmware = by_hand("firmware's set-up: VT-d (Intel), AMD-Vi or IOMMU (AMD), SMMU (ARM) on");
    // AMD's and ARM's are used by themselves; Intel's only where the kernel was built so.
    let flags = &machine.tuning.cpu_flags;
    if flags.contains("svm") || flags.contains("asimd") {
        firmware
    } else {
        firmware.and(boot("intel_iommu=on iommu=pt"))
    }
}

fn iommu(machine: &Machine<'_>) -> RuleResult {
    let made_up = read(&machine.tuning.groups_without_iommu, "/sys/kernel/iommu_groups")?;
    let groups = machine.inventory.iommu_groups.len();
    if groups > 0 {
        return Finding::pass(format!("{groups} groups"), "on").into();
    }
    // Unsafe groups that VFIO makes up protect nothing.
    let read = match made_up {
        Some(made_up) if !made_up.is_empty() => {
            format!(
                "none; {} groups that VFIO made up without one (vfio-noiommu), where every device can write to all memory",
                made_up.len()
            )
        }
        _ => "no IOMMU group".to_owned(),
    };
    Finding::fail(read, "on", turn_on(machine)).into()
}

fn passthrough(machine: &Machine<'_>) -> RuleResult {
    if machine.inventory.iommu_groups.is_empty() {
        return left_out("the IOMMU is off");
    }
    let past = machine.line.parts("iommu").contains(&"pt") || machine.line.says("iommu.passthrough", "1");
    let read = if past { "past it (iommu=pt)" } else { "as the kernel was built" };
    Finding::recorded(read, "iommu=pt where the host's own drivers carry load").into()
}

fn remapping(machine: &Machine<'_>) -> RuleResult {
    if machine.inventory.iommu_groups.is_empty() {
        return left_out("the IOMMU is off");
    }
    if read(&machine.tuning.irq_table, "/proc/interrupts")?.is_none() {
        return unknown("/proc/interrupts is not there");
    }
    // `DMAR-MSI` is the IOMMU's own.
    let chips: BTreeSet<&str> = machine
        .tuning
        .irqs
        .values()
        .map(|irq| irq.chip.as_str())
        .filter(|chip| chip.contains("PCI-MSI"))
        .collect();
    if chips.is_empty() {
        return unknown("no message-signalled interrupt was seen");
    }
    let plain = chips.iter().filter(|chip| !chip.starts_with("IR-")).count();
    if plain == 0 {
        return Finding::pass(format!("{} kinds, all IR-", chips.len()), "IR- on each").into();
    }
    let arm = machine.tuning.clock_source.known().is_some_and(|clock| clock == "arch_sys_counter");
    if arm {
        return left_out("this machine's interrupt controller isolates by itself");
    }
    let how = if machine.line.parts("intremap").contains(&"off") {
        boot_without("intremap=off")
    } else {
        by_hand("firmware's set-up: interrupt remapping and x2APIC on")
    };
    Finding::fail("not remapped", "IR- on each", how).into()
}

/// Functions that running VMs own.
fn owned(machine: &Machine<'_>) -> BTreeSet<Bdf> {
    machine.vms.iter().flat_map(|vm| vm.process.functions.iter().copied()).collect()
}

fn groups(machine: &Machine<'_>) -> RuleResult {
    if machine.inventory.iommu_groups.is_empty() {
        return left_out("the IOMMU is off");
    }
    machine.sees_processes()?;
    let mut found = Vec::new();
    for function in owned(machine) {
        let wanted = "alone, but for bridges";
        let group = machine.inventory.iommu_groups.iter().find(|(_, members)| members.contains(&function));
        let Some((number, members)) = group else {
            found.push(Finding::unknown("its group was not seen", wanted).about(function.to_string()));
            continue;
        };
        let bridge = |member: &Bdf| {
            machine.inventory.others.get(member).is_some_and(|other| other.is_harmless_bridge())
        };
        let others: Vec<String> = members
            .iter()
            .filter(|member| **member != function && !bridge(member))
            .map(ToString::to_string)
            .collect();
        found.push(if others.is_empty() {
            Finding::pass(format!("group {number}, alone"), wanted).about(function.to_string())
        } else {
            let how = by_hand("another slot whose bridges have ACS; no kernel of kernel.org splits groups");
            Finding::fail(format!("group {number} with {}", others.join(", ")), wanted, how)
                .about(function.to_string())
        });
    }
    if found.is_empty() { left_out("no running VM owns functions") } else { Ok(found) }
}

fn link(machine: &Machine<'_>) -> RuleResult {
    let mut found = Vec::new();
    for (function, link) in &machine.tuning.links {
        let read = format!("{} x{}", link.speed, link.width);
        let wanted = format!("{} x{}", link.most_speed, link.most_width);
        // A virtual function says nothing of its own; so do devices that are not on PCI Express.
        if link.width == 0
            || link.most_width == 0
            || link.speed.is_empty()
            || link.speed.starts_with("Unknown")
        {
            continue;
        }
        found.push(if link.width >= link.most_width && link.speed == link.most_speed {
            Finding::pass(read, wanted).about(function.to_string())
        } else {
            let how = by_hand("a slot with all lanes and the full speed; reseat the card; lspci -vv shows LnkCap and LnkSta");
            Finding::fail(read, wanted, how).about(function.to_string())
        });
    }
    if found.is_empty() { left_out("no link could be read") } else { Ok(found) }
}

fn link_power(machine: &Machine<'_>) -> RuleResult {
    if machine.line.says("pcie_aspm", "off") {
        return Finding::recorded("pcie_aspm=off: links stay as firmware left them", "performance").into();
    }
    let Some(reading) = machine.tuning.parameters.get("pcie_aspm.policy") else {
        return left_out("the kernel has no pcie_aspm");
    };
    let Some(text) = read(reading, "pcie_aspm.policy")? else {
        return left_out("the kernel has no pcie_aspm");
    };
    let chosen =
        text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text.trim(), |(word, _)| word);
    if chosen == "performance" {
        return Finding::pass(chosen, "performance").into();
    }
    let how = write("/sys/module/pcie_aspm/parameters/policy", "performance")
        .or(boot("pcie_aspm.policy=performance"));
    Finding::fail(chosen, "performance", how).into()
}
