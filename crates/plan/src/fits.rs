//! Whether the guests that are to start fit the machine: IOMMU groups, CPUs, memory, huge pages, uplinks.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{
    Bdf, ByteSize, CpuSet, DataPath, GuestKind, GuestName, InterfaceName, NicName, Path, Uplink,
    inventory::{HugePages, Vf},
};

use crate::{
    definition::{confined, vcpus},
    error::error,
    guest::Starting,
    planner::{Planner, vf_name},
};

/// Says what stands in the way of these guests on this machine.
pub fn check(planner: &mut Planner<'_>, starting: &[Starting<'_, '_>]) {
    let no_iommu = planner.inventory.iommu_groups.is_empty();
    for guest in starting.iter().filter(|guest| !guest.suspended) {
        cpus(planner, guest);
        if guest.is_vm() && !no_iommu {
            iommu_group(planner, guest);
        }
    }
    if no_iommu {
        lack_iommu(planner, starting);
    }
    let vms: Vec<&Starting<'_, '_>> = starting.iter().filter(|guest| guest.is_vm()).collect();
    ram(planner, &vms);
    huge_pages(planner, &vms);
    uplinks(planner, starting);
}

/// The interfaces that the model does not have and uplinks lead to must be there: a name may be mistyped.
fn uplinks(planner: &mut Planner<'_>, starting: &[Starting<'_, '_>]) {
    for guest in starting {
        for (name, nic) in &guest.guest.nics {
            let Some(Uplink::Interface(wanted)) = &nic.uplink else { continue };
            let Some(known) = &planner.inventory.interfaces else {
                planner.note(format!(
                    "whether this machine has {wanted}, the uplink of {}/{name}, is not known: its interfaces were not listed",
                    guest.name
                ));
                continue;
            };
            if known.contains(wanted) {
                match nic.path {
                    DataPath::Tap | DataPath::VirtioVdpa => {
                        bridge(planner, guest.name, name, nic.path, wanted)
                    }
                    DataPath::Switch | DataPath::SwitchTap | DataPath::VhostVdpa => {
                        vf_by_its_interface(planner, guest.name, name, wanted);
                    }
                }
                continue;
            }
            let distance =
                |other: &InterfaceName| strsim::damerau_levenshtein(other.as_str(), wanted.as_str());
            let near =
                known.iter().map(|other| (distance(other), other)).filter(|(distance, _)| *distance <= 2);
            let hint = match near.min() {
                Some((_, near)) => format!("write `{near}`, if that is meant"),
                None => format!(
                    "make it before, or write one that is there: {}",
                    known.iter().map(InterfaceName::as_str).collect::<Vec<_>>().join(", ")
                ),
            };
            planner.messages.0.push(error(
                Path::of(["guests", guest.name.as_str(), "nics", name.as_str(), "uplink"]),
                format!("this machine has no network interface {wanted}"),
                Some(hint),
            ));
        }
    }
}

/// Taps are ports of a Linux bridge, which is not made for them: what else is in it the machine's own configuration says.
fn bridge(
    planner: &mut Planner<'_>,
    guest: &GuestName,
    nic: &NicName,
    path: DataPath,
    wanted: &InterfaceName,
) {
    let (what, instead) = match path {
        DataPath::VirtioVdpa => ("the switch of", ""),
        DataPath::Tap | DataPath::Switch | DataPath::SwitchTap | DataPath::VhostVdpa => {
            ("the taps of", "; or `path: switch`")
        }
    };
    let ports = match path {
        DataPath::VirtioVdpa => "a port",
        DataPath::Tap | DataPath::Switch | DataPath::SwitchTap | DataPath::VhostVdpa => "ports",
    };
    let Some(bridges) = &planner.inventory.bridges else {
        planner.note(format!(
            "whether {wanted}, of which {what} {guest}/{nic} {} to be {ports}, is a Linux bridge is not known",
            if path == DataPath::VirtioVdpa { "is" } else { "are" }
        ));
        return;
    };
    if bridges.contains(wanted) {
        return;
    }
    let all: Vec<&str> = bridges.iter().map(InterfaceName::as_str).collect();
    let hint = match (all.as_slice(), path) {
        ([], DataPath::VirtioVdpa) => format!("make one before, and {wanted} a port of it"),
        ([], _) => format!("make one before and {wanted} a port of it; or write `path: switch`"),
        (all, _) => format!("write a bridge that is there: {}{instead}", all.join(", ")),
    };
    planner.messages.0.push(error(
        Path::of(["guests", guest.as_str(), "nics", nic.as_str(), "uplink"]),
        format!(
            "{wanted} is no Linux bridge, and {what} {guest}/{nic} {} to be {ports} of it",
            if path == DataPath::VirtioVdpa { "is" } else { "are" }
        ),
        Some(hint),
    ));
}

/// Says what an uplink that is named by the interface of a VF is not seen to have.
fn vf_by_its_interface(planner: &mut Planner<'_>, vm: &GuestName, nic: &NicName, uplink: &InterfaceName) {
    let vfs = planner.inventory.pfs.iter().filter_map(|pf| Some((pf, pf.sriov.as_ref()?)));
    let mut vfs = vfs.flat_map(|(pf, sriov)| sriov.vfs.iter().map(move |vf| (pf.bdf, vf)));
    let is = |vf: &Vf| {
        let interface = vf.present.as_ref().and_then(|present| present.interface.as_ref());
        interface.is_some_and(|interface| interface.name == *uplink)
    };
    if let Some((pf, vf)) = vfs.find(|(_, vf)| is(vf)) {
        planner.note(format!(
            "{uplink}, the uplink of {vm}/{nic}, is VF {} of {pf}, which without trust gets frames for its own address alone: \
             name the VF as one of `nics` (`uplink: {{vf: NIC#{}, trust: on, spoofchk: off}}`), and it gets what it needs",
            vf.index, vf.index
        ));
    }
}

/// VFIO needs an IOMMU: said once for all VMs that have functions.
fn lack_iommu(planner: &mut Planner<'_>, starting: &[Starting<'_, '_>]) {
    let needs =
        |guest: &&Starting<'_, '_>| !guest.suspended && guest.is_vm() && guest.addresses().next().is_some();
    let names: Vec<String> = starting.iter().filter(needs).map(|guest| guest.name.to_string()).collect();
    let who = match names.as_slice() {
        [] => return,
        [name] => format!("VM {name} gets its functions"),
        [names @ .., last] => format!("VMs {} and {last} get their functions", names.join(", ")),
    };
    let turn_on = turn_on_iommu(&planner.inventory.cpus.model);
    planner.lack(
        format!("{who} through VFIO, which needs an IOMMU, and none is on in this machine"),
        format!("{turn_on}, then reboot; or make it a container, which needs none"),
    );
}

/// A VF that goes to a VM, and its PF.
struct Member {
    bdf: Bdf,
    who: String,
    /// Its group; `None` for a VF that does not exist.
    present: Option<Option<u32>>,
    /// The address, the name and the group of its PF.
    pf: (Bdf, String, Option<u32>),
}

/// VFIO gives a group away only as a whole.
fn iommu_group(planner: &mut Planner<'_>, guest: &Starting<'_, '_>) {
    let name = guest.name;
    let own: BTreeSet<Bdf> = guest.addresses().collect();
    let of_nics = guest.vfs().map(|(nic, vf, _)| Member {
        bdf: vf.found.bdf,
        who: vf_name(nic.name, vf.index),
        present: nic.present(vf).map(|present| present.iommu_group),
        pf: (nic.pf.bdf, nic.name.to_string(), nic.pf.iommu_group),
    });
    let of_drives = guest.drives.iter().map(|(drive, vf)| Member {
        bdf: vf.found.bdf,
        who: vf_name(drive.name, vf.index),
        present: drive.present(vf).map(|present| present.iommu_group),
        pf: (drive.found.bdf, drive.name.to_string(), drive.found.iommu_group),
    });
    for Member { bdf, who, present, pf: (pf, pf_name, pf_group) } in of_nics.chain(of_drives) {
        let groups = &planner.inventory.iommu_groups;
        let group = present.flatten().or_else(|| {
            let is_here = present.is_some();
            groups.iter().find(|(_, members)| is_here && members.contains(&bdf)).map(|(number, _)| *number)
        });
        // A VF that does not exist has no group yet; where its PF shares one, it will most likely come into that.
        let (group, members) = match (group, pf_group) {
            (Some(group), _) => (group, groups.get(&group).cloned().unwrap_or_default()),
            (None, Some(group)) => {
                let members: Vec<Bdf> = groups.get(&group).cloned().unwrap_or_default();
                let others: Vec<String> = members
                    .iter()
                    .filter(|other| **other != pf)
                    .filter_map(|other| member(planner, *other))
                    .collect();
                if !others.is_empty() {
                    planner.note(format!(
                        "the PF of {pf_name} shares IOMMU group {group} with {}: its VFs may come into that group, and then no VM can have one",
                        others.join(", ")
                    ));
                }
                continue;
            }
            (None, None) => continue,
        };
        let others: Vec<String> = members
            .iter()
            .filter(|other| !own.contains(other))
            .filter_map(|other| member(planner, *other))
            .collect();
        if !others.is_empty() {
            planner.lack(
                format!(
                    "{name} is to get {who} ({bdf}), whose IOMMU group {group} has others in it, and VFIO gives a group away as a whole: {}",
                    others.join(", ")
                ),
                "put the card into a slot behind a root port of its own, or turn ACS on in the firmware; or give the function to a container".to_owned(),
            );
        }
    }
}

/// Who a member of an IOMMU group is, unless it does not matter.
fn member(planner: &Planner<'_>, bdf: Bdf) -> Option<String> {
    let inventory = planner.inventory;
    let bound = |driver: Option<&str>| {
        driver.map_or_else(|| "no driver".to_owned(), |driver| format!("driver {driver}"))
    };
    if let Some(other) = inventory.others.get(&bdf) {
        let kind = class_name(other.class);
        return (!other.is_harmless_bridge())
            .then(|| format!("{bdf} ({kind}, {})", bound(other.driver.as_deref())));
    }
    let name_of = |pf: Bdf| planner.resolved.iter().find(|(_, at)| **at == pf).map(|(name, _)| name);
    for pf in &inventory.pfs {
        if pf.bdf == bdf {
            let who = name_of(bdf).map_or_else(|| "a NIC".to_owned(), |name| format!("the PF of {name}"));
            return Some(format!("{bdf} ({who}, {})", bound(pf.driver.as_deref())));
        }
        let vf = pf.sriov.iter().flat_map(|sriov| &sriov.vfs).find(|vf| vf.bdf == bdf);
        if let Some(vf) = vf {
            let who = name_of(pf.bdf).map_or_else(
                || format!("VF {} of {}", vf.index, pf.bdf),
                |name| vf_name(name, vf.index).to_string(),
            );
            let driver = vf.present.as_ref().and_then(|present| present.driver.as_deref());
            return Some(format!("{bdf} ({who}, {})", bound(driver)));
        }
    }
    for drive in &inventory.nvme {
        let model = drive.model.as_deref().unwrap_or("an NVMe drive");
        if drive.bdf == bdf {
            return Some(format!("{bdf} ({model}, {})", bound(drive.driver.as_deref())));
        }
        if let Some(vf) = drive.sriov.iter().flat_map(|sriov| &sriov.vfs).find(|vf| vf.bdf == bdf) {
            let driver = vf.present.as_ref().and_then(|present| present.driver.as_deref());
            return Some(format!("{bdf} (VF {} of {model} at {}, {})", vf.index, drive.bdf, bound(driver)));
        }
    }
    // An inventory of an older Penstock says nothing of the rest, and most of that is bridges.
    None
}

/// A class of PCI functions in words (PCI Code and ID Assignment Specification, 1).
fn class_name(class: u32) -> &'static str {
    match class >> 16 {
        0x01 => "a storage controller",
        0x02 => "a network controller",
        0x03 => "a display controller",
        0x04 => "a multimedia device",
        0x06 => "a bridge",
        0x07 => "a communication controller",
        0x0c => "a serial bus controller",
        0x10 => "an encryption controller",
        0x11 => "a signal processing controller",
        0x12 => "an accelerator",
        _ => "another device",
    }
}

fn turn_on_iommu(cpu: &str) -> &'static str {
    if cpu.contains("Intel") {
        "turn VT-d on in the firmware, have `penstock apply --persist` put intel_iommu=on on the kernel's command line"
    } else if cpu.contains("AMD") {
        "turn the IOMMU (AMD-Vi) on in the firmware, take amd_iommu=off off the kernel's command line if it is there"
    } else {
        "turn the IOMMU on in the firmware"
    }
}

/// The CPUs that a guest is to run on must be there.
fn cpus(planner: &mut Planner<'_>, guest: &Starting<'_, '_>) {
    let online = &planner.inventory.cpus.online;
    if online.0.is_empty() {
        return;
    }
    let (name, model) = (guest.name, guest.guest);
    let at = |key: &str| Path::of(["guests", name.as_str(), key]);
    let has = format!("this machine has the CPUs {online}");
    let mut found = Vec::new();
    let emulator = model.vm.emulator.as_ref().filter(|_| guest.is_vm());
    for (key, what, wanted) in
        [("pin", "pinned to", model.pin.as_ref()), ("emulator", "to have QEMU's own threads on", emulator)]
    {
        let Some(wanted) = wanted else { continue };
        let missing = CpuSet(wanted.0.difference(&online.0).copied().collect());
        if !missing.0.is_empty() {
            let cpu = if missing.0.len() == 1 { "CPU" } else { "CPUs" };
            found.push(error(
                at(key),
                format!(
                    "{name} is {what} {cpu} {missing}, which {} not here",
                    if missing.0.len() == 1 { "is" } else { "are" }
                ),
                Some(has.clone()),
            ));
        }
    }
    if confined(planner.model, planner.inventory, name).is_some_and(|left| left.0.is_empty())
        && model.pin.is_none()
    {
        found.push(error(
            Path::of(["guests", name.as_str()]),
            format!("no CPU is left for {name}: each of {online} is another guest's alone"),
            Some("take `exclusive` from a guest, or pin it to fewer CPUs".to_owned()),
        ));
    }
    let vcpus = vcpus(model);
    if guest.is_vm()
        && model.pin.is_none()
        && usize::try_from(vcpus).is_ok_and(|vcpus| vcpus > online.0.len())
    {
        let count = online.0.len();
        planner.note(format!("{name} has {vcpus} virtual CPUs, and this machine {count}: they take turns"));
    }
    planner.messages.0.extend(found);
}

/// VFIO locks the memory of a VM in RAM, so that it has to be there; that of huge pages is a part of it.
fn ram(planner: &mut Planner<'_>, vms: &[&Starting<'_, '_>]) {
    let all = planner.inventory.memory;
    let Some(last) = vms.last().filter(|_| all.0 > 0) else { return };
    // VMs that run already have theirs.
    let running = planner.model.guests.iter().filter(|(name, guest)| {
        guest.kind == GuestKind::Vm && planner.runs(name) && !vms.iter().any(|vm| vm.name == *name)
    });
    let mut wanted: Vec<(&GuestName, u64)> = running.map(|(name, guest)| (name, guest.vm_memory())).collect();
    wanted.extend(vms.iter().map(|vm| (vm.name, vm.guest.vm_memory())));
    let sum = wanted.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if sum <= all.0 {
        return;
    }
    let largest = vms.iter().max_by_key(|vm| vm.guest.vm_memory()).unwrap_or(last);
    let list: Vec<String> =
        wanted.iter().map(|(name, bytes)| format!("{name} {}", ByteSize(*bytes))).collect();
    let text = format!(
        "the VMs are to have {} of memory, and this machine has {}: {}",
        rounded(sum),
        rounded(all.0),
        list.join(", ")
    );
    planner.messages.0.push(error(
        Path::of(["guests", largest.name.as_str(), "memory"]),
        text,
        Some("VFIO locks a VM's memory in RAM: give them less, or start fewer".to_owned()),
    ));
}

/// A size that a person can read: in MiB from there on.
fn rounded(bytes: u64) -> String {
    if bytes < 1 << 20 { ByteSize(bytes).to_string() } else { ByteSize(bytes >> 20 << 20).to_string() }
}

/// The pools must have as many free pages as the VMs that are to start take.
fn huge_pages(planner: &mut Planner<'_>, vms: &[&Starting<'_, '_>]) {
    let mut wanted: BTreeMap<ByteSize, Vec<(&GuestName, u64)>> = BTreeMap::new();
    // A VM that is there, suspended, has its pages.
    for vm in vms.iter().filter(|vm| !vm.suspended) {
        if let Some(size) = vm.guest.vm.huge_pages.filter(|size| size.0 > 0) {
            wanted.entry(size).or_default().push((vm.name, vm.guest.vm_memory().div_ceil(size.0)));
        }
    }
    for (size, users) in wanted {
        let pages: u64 = users.iter().map(|(_, pages)| *pages).sum();
        let pool = planner.inventory.huge_pages.iter().find(|pool| pool.size == size);
        let directory = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size.0 >> 10);
        let list: Vec<String> = users.iter().map(|(name, pages)| format!("{name} {pages}")).collect();
        let (text, hint) = match pool {
            None => (
                format!(
                    "huge pages of {size} are needed ({}), and this machine has none of that size",
                    list.join(", ")
                ),
                "choose a size that `penstock scan` lists".to_owned(),
            ),
            Some(HugePages { free, .. }) if *free >= pages => continue,
            Some(HugePages { free, total, .. }) => (
                format!(
                    "{pages} huge pages of {size} are needed ({}), and {free} of {total} are free",
                    list.join(", ")
                ),
                format!(
                    "write {} to {directory}/nr_hugepages, or set them aside on the kernel's command line: hugepagesz={} hugepages={}",
                    total + (pages - free),
                    size.to_string().trim_end_matches("iB"),
                    total + (pages - free)
                ),
            ),
        };
        let at = Path::of(["guests", users[0].0.as_str(), "huge_pages"]);
        planner.messages.0.push(error(at, text, Some(hint)));
    }
}
