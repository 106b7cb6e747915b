//! Pages: huge, merged, moved, locked.

use penstock_model::{
    ByteSize,
    audit::{Currency, Layer},
    inventory::tuning::{Knob, Value},
};

use crate::{
    advice::{boot, by_hand, disable, model, write, writes},
    machine::{Machine, read},
    rule::{Finding, Need, NoFinding, Rule, RuleResult, left_out, unknown},
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "transparent-huge-pages",
        layer: Layer::Memory,
        what: "whether the kernel makes huge pages by itself (transparent_hugepage/enabled, and that of each size)",
        why: "khugepaged and compaction stop threads while they move their memory",
        price: Some((
            Currency::Throughput,
            "no program gets transparent huge pages, not even one that asks for them as QEMU does for its guests' memory (madvise): give VMs pages of hugetlbfs, which this leaves alone",
        )),
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
        what: "which NUMA nodes a VM's huge pages are of (/proc/PID/numa_maps), and which its virtual CPUs are on",
        why: "memory of another node takes half as long again to reach, and the way there is shared",
        price: None,
        source: "Documentation/admin-guide/mm/hugetlbpage.rst; Documentation/admin-guide/mm/numa_memory_policy.rst",
        needs_root: true,
        need: Need::Vms,
        judge: another_node,
    },
    Rule {
        id: "vm-memory-locked",
        layer: Layer::Memory,
        what: "whether the memory of VMs in real time stays in RAM (VmLck, and how much they have)",
        why: "a page that was swapped or written back takes milliseconds to come back",
        price: None,
        source: "https://libvirt.org/formatdomain.html#memory-backing",
        needs_root: false,
        need: Need::Vms,
        judge: locked,
    },
];

fn transparent(machine: &Machine<'_>) -> RuleResult {
    let wanted = "never, of each size too";
    let whole = match machine.knob(Knob::TransparentHugePages)? {
        None => return Finding::pass("the kernel has none", wanted).into(),
        Some(Value::Word(word)) => word.as_str(),
        Some(other) => {
            return unknown(format!("{} holds {other}, which is no word", Knob::TransparentHugePages));
        }
    };
    // What a size says itself holds whatever is said of all.
    let mut own = Vec::new();
    for (size, reading) in &machine.tuning.transparent_sizes {
        match read(reading, &format!("hugepages-{size}kB/enabled"))?.map(String::as_str) {
            None | Some("never" | "inherit") => {}
            Some(word) => own.push((*size, word)),
        }
    }
    if whole == "never" && own.is_empty() {
        return Finding::pass("never", wanted).into();
    }
    let read =
        own.iter().fold(whole.to_owned(), |text, (size, word)| format!("{text}, {word} of {size} KiB"));
    let of_size = |size: &u64| format!("/sys/kernel/mm/transparent_hugepage/hugepages-{size}kB/enabled");
    let mut files: Vec<String> = own.iter().map(|(size, _)| of_size(size)).collect();
    if whole != "never" {
        files.insert(0, Knob::TransparentHugePages.to_string());
    }
    let now = writes(files, "never");
    let how = if own.is_empty() { now.or(boot("transparent_hugepage=never")) } else { now };
    Finding::fail(read, wanted, how).into()
}

fn merging(machine: &Machine<'_>) -> RuleResult {
    let wanted = "0, or 2, which takes merged pages apart";
    match machine.number(Knob::Ksm)? {
        None => Finding::pass("the kernel has none", wanted).into(),
        Some(number @ (0 | 2)) => Finding::pass(number.to_string(), wanted).into(),
        Some(number) => {
            let apart = write(Knob::Ksm.to_string(), "2");
            // ksmtuned would switch it on again.
            let how = if machine.tuning.programs.contains("ksmtuned") {
                disable(&["ksmtuned.service"]).and(apart)
            } else {
                apart
            };
            let how = how.beware("taking merged pages apart needs as much free memory as they save");
            Finding::fail(number.to_string(), wanted, how).into()
        }
    }
}

fn balancing(machine: &Machine<'_>) -> RuleResult {
    match machine.number(Knob::NumaBalancing)? {
        None => Finding::pass("the kernel has none", "0").into(),
        Some(0) => Finding::pass("0", "0").into(),
        Some(number) if machine.inventory.cpus.nodes.len() == 1 => {
            Finding::pass(format!("{number}, and the machine has one node"), "0").into()
        }
        Some(number) => {
            Finding::fail(number.to_string(), "0", write(Knob::NumaBalancing.to_string(), "0")).into()
        }
    }
}

fn too_few(machine: &Machine<'_>) -> RuleResult {
    let Some(requirements) =
        machine.requirements.as_ref().filter(|requirements| !requirements.huge_pages.is_empty())
    else {
        return left_out("no model asks for huge pages");
    };
    let mut found = Vec::new();
    for (size, pages) in &requirements.huge_pages {
        let total =
            machine.inventory.huge_pages.iter().find(|pool| pool.size == *size).map_or(0, |pool| pool.total);
        let (read, wanted) = (format!("{total} of {size}"), format!("at least {pages} of {size}"));
        found.push(if total >= *pages {
            Finding::pass(read, wanted)
        } else {
            let file = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", size.0 / 1024);
            let how = write(file, pages)
                .beware("memory that is in pieces gives fewer than asked for: read the file again")
                .or(boot(&format!("hugepagesz={}M hugepages={pages}", size.0 >> 20)));
            Finding::conflict(read, wanted, how).about(format!("huge pages of {size}"))
        });
    }
    Ok(found)
}

fn another_node(machine: &Machine<'_>) -> RuleResult {
    let vms: Vec<_> = machine.realtime_vms()?.into_iter().filter(|vm| vm.process.huge_pages).collect();
    if vms.is_empty() {
        return left_out("no VM in real time has its memory of huge pages");
    }
    if machine.inventory.cpus.nodes.len() < 2 {
        return left_out("the machine has one NUMA node");
    }
    let subjects: Vec<String> = vms.iter().map(|vm| vm.subject()).collect();
    let found = vms.into_iter().map(|vm| {
        let nodes = machine.nodes(&vm.cpus());
        let mine = nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let wanted = format!("pages of node {mine}, where its virtual CPUs are");
        // Whose the pages of a node's pool are its counters do not tell.
        let pages = match read(&vm.process.huge_page_nodes, "numa_maps of its QEMU") {
            Ok(Some(pages)) => pages,
            Ok(None) => return Finding::unknown("the kernel does not tell where its pages are", wanted),
            Err(NoFinding::Unknown(why) | NoFinding::LeftOut(why)) => return Finding::unknown(why, wanted),
        };
        let size = |kib: &u64| ByteSize(kib.saturating_mul(1024));
        let used = pages.iter().filter(|(_, kib)| **kib > 0);
        let (here, there): (Vec<_>, Vec<_>) = used.partition(|(node, _)| nodes.contains(node));
        let here = size(&here.into_iter().fold(0, |all: u64, (_, kib)| all.saturating_add(*kib)));
        let Some((other, _)) = there.first() else {
            return match here.0 {
                0 => Finding::unknown("it uses no huge page yet", wanted),
                _ => Finding::pass(format!("{here} of node {mine}, none of another"), wanted),
            };
        };
        let elsewhere: Vec<String> =
            there.iter().map(|(node, kib)| format!("{} of node {node}", size(kib))).collect();
        let pools = machine.tuning.node_huge_pages.get(other);
        let pool = pools.into_iter().flatten().find(|pool| pool.total > pool.free);
        let again = by_hand(format!("start {} again", vm.subject()));
        let how = match (nodes.first(), pool) {
            (Some(node), Some(pool)) => {
                let size = pool.size.0 / 1024;
                let file =
                    format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{size}kB/nr_hugepages");
                write(file, pool.total).and(again)
            }
            _ => again,
        };
        Finding::conflict(format!("{}, {here} of node {mine}", elsewhere.join(", ")), wanted, how)
    });
    Ok(found.zip(subjects).map(|(finding, subject)| finding.about(subject)).collect())
}

fn locked(machine: &Machine<'_>) -> RuleResult {
    let wanted = "all of it locked";
    let size = |kib: u64| ByteSize(kib.saturating_mul(1024));
    let found = machine.realtime_vms()?.into_iter().map(|vm| {
        let process = vm.process;
        let Some(locked) = process.locked_kib else {
            return Finding::unknown("VmLck of its QEMU could not be read", wanted).about(vm.subject());
        };
        let how = model("locked_memory: on (libvirt: <memoryBacking><locked/></memoryBacking>)")
            .and(by_hand(format!("start {} again", vm.subject())));
        // The kernel does not count pages of hugetlb, which stay in RAM by themselves, among those that a program has locked: all
        // is locked, too, when all the rest is. Those that VFIO has pinned it does count.
        let rest = process.resident_kib.filter(|_| process.huge_pages);
        let all = [process.memory_kib, rest];
        let finding = if locked == 0 {
            Finding::fail("none locked", wanted, how)
        } else if all.into_iter().flatten().any(|all| locked >= all) {
            Finding::pass(format!("{} locked", size(locked)), wanted)
        } else if process.huge_pages && rest.is_none() {
            let why = format!("{} locked beside its huge pages, and VmRSS could not be read", size(locked));
            Finding::unknown(why, wanted)
        } else if let Some(memory) = process.memory_kib {
            Finding::fail(format!("{} of {} locked", size(locked), size(memory)), wanted, how)
        } else {
            let why =
                format!("{} locked, and its command line does not say how much it has (-m)", size(locked));
            Finding::unknown(why, wanted)
        };
        finding.about(vm.subject())
    });
    Ok(found.collect())
}
