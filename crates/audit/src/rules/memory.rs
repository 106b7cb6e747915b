//! Pages: huge, merged, moved, locked.

use penstock_model::{
    ByteSize,
    audit::{Currency, Layer},
    inventory::tuning::{Knob, Value},
};

use crate::{
    machine::Machine,
    rule::{Finding, Need, Rule, Said, left_out, unknown},
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "transparent-huge-pages",
        layer: Layer::Memory,
        what: "whether the kernel makes huge pages by itself (transparent_hugepage/enabled)",
        why: "khugepaged and compaction stop threads while they move their memory",
        price: Some((Currency::Throughput, "programs that do not ask for huge pages get none")),
        source: "Documentation/admin-guide/mm/transhuge.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: transparent,
    },
    Rule {
        id: "same-page-merging",
        layer: Layer::Memory,
        what: "whether pages with the same content are merged (/sys/kernel/mm/ksm/run)",
        why: "a write to a merged page faults and copies; merging also lets guests learn what others have in memory",
        price: Some((Currency::Throughput, "memory that VMs could share is used once each")),
        source: "Documentation/admin-guide/mm/ksm.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: merging,
    },
    Rule {
        id: "numa-balancing",
        layer: Layer::Memory,
        what: "whether pages are unmapped to find out who uses them (kernel.numa_balancing)",
        why: "each unmapped page faults when it is used next, and is then moved",
        price: None,
        source: "Documentation/admin-guide/sysctl/kernel.rst, numa_balancing",
        needs_root: false,
        need: Need::Isolation,
        judge: balancing,
    },
    Rule {
        id: "huge-pages-too-few",
        layer: Layer::Memory,
        what: "huge pages that the model's VMs need",
        why: "a VM whose memory is to be huge pages does not start without them",
        price: None,
        source: "Documentation/admin-guide/mm/hugetlbpage.rst",
        needs_root: false,
        need: Need::Isolation,
        judge: too_few,
    },
    Rule {
        id: "huge-pages-on-another-node",
        layer: Layer::Memory,
        what: "huge pages of the NUMA node that a VM's virtual CPUs are on",
        why: "memory of another node takes half as long again to reach, and the way there is shared",
        price: None,
        source: "Documentation/admin-guide/mm/hugetlbpage.rst; Documentation/admin-guide/mm/numa_memory_policy.rst",
        needs_root: false,
        need: Need::Vms,
        judge: another_node,
    },
    Rule {
        id: "vm-memory-locked",
        layer: Layer::Memory,
        what: "whether the memory of VMs in real time stays in RAM (VmLck)",
        why: "a page that was swapped or written back takes milliseconds to come back",
        price: None,
        source: "https://libvirt.org/formatdomain.html#memory-backing",
        needs_root: false,
        need: Need::Vms,
        judge: locked,
    },
];

fn transparent(machine: &Machine<'_>) -> Said {
    match machine.knob(Knob::TransparentHugePages)? {
        None => Finding::pass("the kernel has none", "never").into(),
        Some(Value::Word(word)) if word == "never" => Finding::pass("never", "never").into(),
        Some(Value::Word(word)) => {
            let how = format!(
                "echo never > {}, for good: transparent_hugepage=never on the boot command line",
                Knob::TransparentHugePages
            );
            Finding::fail(word, "never", how).into()
        }
        Some(other) => unknown(format!("{} holds {other}, which is no word", Knob::TransparentHugePages)),
    }
}

fn merging(machine: &Machine<'_>) -> Said {
    let wanted = "0, or 2, which takes merged pages apart";
    match machine.number(Knob::Ksm)? {
        None => Finding::pass("the kernel has none", wanted).into(),
        Some(number @ (0 | 2)) => Finding::pass(number.to_string(), wanted).into(),
        Some(number) => {
            let how = format!("echo 2 > {}; stop ksmtuned", Knob::Ksm);
            Finding::fail(number.to_string(), wanted, how).into()
        }
    }
}

fn balancing(machine: &Machine<'_>) -> Said {
    match machine.number(Knob::NumaBalancing)? {
        None => Finding::pass("the kernel has none", "0").into(),
        Some(0) => Finding::pass("0", "0").into(),
        Some(number) if machine.inventory.cpus.nodes.len() == 1 => {
            Finding::pass(format!("{number}, and the machine has one node"), "0").into()
        }
        Some(number) => Finding::fail(number.to_string(), "0", "sysctl -w kernel.numa_balancing=0").into(),
    }
}

fn too_few(machine: &Machine<'_>) -> Said {
    let Some(wishes) = machine.wishes.as_ref().filter(|wishes| !wishes.huge_pages.is_empty()) else {
        return left_out("no model asks for huge pages");
    };
    let mut found = Vec::new();
    for (size, pages) in &wishes.huge_pages {
        let total =
            machine.inventory.huge_pages.iter().find(|pool| pool.size == *size).map_or(0, |pool| pool.total);
        let (read, wanted) = (format!("{total} of {size}"), format!("at least {pages} of {size}"));
        found.push(if total >= *pages {
            Finding::pass(read, wanted)
        } else {
            let how = format!(
                "echo {pages} > /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages; early, best at boot: hugepagesz={}M hugepages={pages}",
                size.0 / 1024,
                size.0 >> 20
            );
            Finding::conflict(read, wanted, how).about(format!("huge pages of {size}"))
        });
    }
    Ok(found)
}

fn another_node(machine: &Machine<'_>) -> Said {
    let vms: Vec<_> = machine.realtime_vms()?.into_iter().filter(|vm| vm.process.huge_pages).collect();
    if vms.is_empty() {
        return left_out("no VM in real time has its memory of huge pages");
    }
    if machine.inventory.cpus.nodes.len() < 2 {
        return left_out("the machine has one NUMA node");
    }
    if machine.tuning.node_huge_pages.is_empty() {
        return unknown("the pools of the nodes could not be read");
    }
    let mut found = Vec::new();
    for vm in vms {
        let nodes = machine.nodes(&vm.cpus());
        let in_use = |node: &u32| -> u64 {
            let pools = machine.tuning.node_huge_pages.get(node);
            pools.into_iter().flatten().map(|pool| pool.total.saturating_sub(pool.free)).sum()
        };
        let here: u64 = nodes.iter().map(in_use).sum();
        let there: Vec<u32> = machine
            .tuning
            .node_huge_pages
            .keys()
            .copied()
            .filter(|node| !nodes.contains(node) && in_use(node) > 0)
            .collect();
        let mine = nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let wanted = format!("pages of node {mine}, where its virtual CPUs are");
        found.push(if here > 0 {
            Finding::pass(format!("{here} pages of node {mine} in use"), wanted).about(vm.subject())
        } else if let Some(other) = there.first() {
            let how = format!("echo PAGES > /sys/devices/system/node/node{mine}/hugepages/hugepages-2048kB/nr_hugepages, and none on node {other}; then start it again");
            Finding::conflict(format!("none of node {mine} in use, but of node {other}"), wanted, how).about(vm.subject())
        } else {
            Finding::unknown("no page of any node is in use", wanted).about(vm.subject())
        });
    }
    Ok(found)
}

fn locked(machine: &Machine<'_>) -> Said {
    let found = machine.realtime_vms()?.into_iter().map(|vm| {
        let size = ByteSize(vm.process.locked_kib * 1024);
        if vm.process.locked_kib > 0 {
            return Finding::pass(format!("{size} locked"), "all of it locked").about(vm.subject());
        }
        let how = "in the model: locked_memory: on (libvirt: <memoryBacking><locked/></memoryBacking>), and start it again";
        Finding::fail("none locked", "all of it locked", how).about(vm.subject())
    });
    Ok(found.collect())
}
