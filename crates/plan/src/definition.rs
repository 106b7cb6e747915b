//! How the model's guests are defined on a machine, with what it leaves out filled in.

use std::collections::BTreeSet;

use penstock_model::{
    Bdf, CpuSet, Guest, GuestKind, GuestName, Inventory, Model, Root, Scheduling, Uplink, Vm,
};

use crate::{
    action::{GuestDefinition, GuestFunction, GuestNic},
    planner::Planner,
    realtime, vfs,
    wanted::{WantedNic, WantedVf},
};

/// Virtual CPUs of a VM that is not pinned.
const CPUS: u32 = 1;

/// A guest's definition, with its functions where they are, and the VFs of drives at `drives`.
pub fn define(
    planner: &mut Planner<'_>,
    name: &GuestName,
    guest: &Guest,
    functions: &[(&WantedNic<'_>, Option<&WantedVf<'_>>)],
    drives: Vec<Bdf>,
) -> GuestDefinition {
    let is_vm = guest.kind == GuestKind::Vm;
    let nics = guest.nics.iter().map(|(name, nic)| GuestNic {
        name: name.clone(),
        uplink_at: match &nic.uplink {
            Some(Uplink::Function(function)) => planner.address(function),
            _ => None,
        },
        nic: nic.clone(),
    });
    let nics = nics.collect();
    let emulator = emulator(planner.model, planner.inventory, name, guest);
    if is_vm && emulator.is_crowded {
        let place =
            emulator.cpus.as_ref().map_or_else(|| "any CPU".to_owned(), |cpus| format!("the CPUs {cpus}"));
        planner.note(format!(
            "every CPU has a guest pinned to it, so that QEMU's own threads of {name} run on {place}: `emulator` says where they belong"
        ));
    }
    GuestDefinition {
        guest: name.clone(),
        cpus: if is_vm { Some(vcpus(guest)) } else { guest.cpus },
        memory: if is_vm { Some(guest.vm_memory()) } else { guest.memory.map(|size| size.0) },
        pin: guest.pin.clone().or_else(|| confined(planner.model, planner.inventory, name)),
        root: match &guest.root {
            Root::Overlay => None,
            Root::Directory(directory) => Some(directory.clone()),
        },
        init: guest.init.clone(),
        privileged: guest.privileged,
        devices: guest.devices.clone(),
        vm: is_vm.then(|| Vm { emulator: emulator.cpus, ..guest.vm.clone() }),
        scheduling: realtime::defined(guest),
        functions: guest
            .functions
            .iter()
            .zip(functions)
            .map(|(function, (nic, vf))| GuestFunction {
                function: vf.map_or(nic.pf.bdf, |vf| vf.found.bdf),
                interface: function.interface.clone(),
                addresses: function.addresses.clone(),
                routes: function.routes.clone(),
                dhcp: function.dhcp,
                mtu: function.mtu,
                mac: vf.map_or(function.settings.mac, |vf| vf.settings.mac),
                mac_is_kept: vf.is_some_and(|vf| vfs::address(nic, vf).is_some()),
                egress_rate: function.egress_rate,
                ingress_rate: function.ingress_rate,
                home_driver: home_driver(planner.inventory, name, nic, *vf),
            })
            .collect(),
        drives,
        nics,
        // Another VM sets its resolver up by itself: Penstock only makes files for it.
        dns: guest.dns.clone().filter(|_| guest.starts_with_dns()),
    }
}

/// The driver that goes back to a VF which somebody else made: the one that it has before the guest gets it.
fn home_driver(
    inventory: &Inventory,
    name: &GuestName,
    nic: &WantedNic<'_>,
    vf: Option<&WantedVf<'_>>,
) -> Option<String> {
    let vf = vf.filter(|_| nic.nic.externally_managed)?;
    let known = inventory.guests.get(name);
    match known.map(|found| (found.running, found.home_drivers.get(&vf.found.bdf))) {
        Some((true, home)) | Some((false, home @ Some(_))) => home.cloned(),
        _ => nic.present(vf)?.driver.clone(),
    }
}

/// How many virtual CPUs a VM gets: as many as it is pinned to, unless it says so itself.
pub fn vcpus(guest: &Guest) -> u32 {
    let pinned = guest.pin.as_ref().and_then(|pin| u32::try_from(pin.0.len()).ok());
    guest.cpus.or(pinned).unwrap_or(CPUS)
}

/// CPUs that are some other guest's alone, or isolated.
fn taken_by_others(model: &Model, name: &GuestName) -> BTreeSet<u32> {
    let others = model.guests.iter().filter(|(other, guest)| *other != name && guest.exclusive);
    let pins = others.filter_map(|(_, guest)| guest.pin.as_ref());
    let isolated = model.realtime.iter().map(|realtime| &realtime.isolated);
    pins.chain(isolated).flat_map(|cpus| cpus.0.iter().copied()).collect()
}

/// Where a guest runs that is pinned nowhere: `None` is anywhere, unless some CPUs are another guest's alone. The set is
/// empty when all of them are.
pub fn confined(model: &Model, inventory: &Inventory, name: &GuestName) -> Option<CpuSet> {
    let taken = taken_by_others(model, name);
    let online = &inventory.cpus.online.0;
    let left: BTreeSet<u32> = online.difference(&taken).copied().collect();
    (left.len() < online.len()).then_some(CpuSet(left))
}

/// Where QEMU's own threads of a guest run.
struct EmulatorCpus {
    /// `None`: anywhere.
    cpus: Option<CpuSet>,
    /// Whether every CPU has a guest pinned to it, so that no place is left which is nobody's.
    is_crowded: bool,
}

/// The CPUs of QEMU's own threads: those that the model says; for a guest that is pinned, those that no guest is pinned
/// to; for any other, those that it runs on itself.
fn emulator(model: &Model, inventory: &Inventory, name: &GuestName, guest: &Guest) -> EmulatorCpus {
    let roomy = |cpus| EmulatorCpus { cpus, is_crowded: false };
    if guest.vm.emulator.is_some() {
        return roomy(guest.vm.emulator.clone());
    }
    if guest.pin.is_none() {
        return roomy(confined(model, inventory, name));
    }
    let pins = model.guests.values().filter_map(|guest| guest.pin.as_ref());
    let taken = pins.chain(model.realtime.as_ref().map(|realtime| &realtime.isolated));
    let taken: BTreeSet<u32> = taken.flat_map(|cpus| cpus.0.iter().copied()).collect();
    let housekeeping = model.realtime.as_ref().map(|realtime| realtime::housekeeping(realtime, inventory));
    let free = |of: &BTreeSet<u32>| CpuSet(of.difference(&taken).copied().collect());
    // In real time those of housekeeping, as long as one of them is nobody's.
    let places = housekeeping.iter().map(|cpus| &cpus.0).chain([&inventory.cpus.online.0]);
    if let Some(place) = places.map(free).find(|place| !place.0.is_empty()) {
        return roomy(Some(place));
    }
    if housekeeping.is_some() {
        return roomy(housekeeping);
    }
    let beside = confined(model, inventory, name).filter(|cpus| !cpus.0.is_empty());
    EmulatorCpus { cpus: beside, is_crowded: true }
}

/// Where a VM's threads run on a machine, as Penstock has libvirt run them.
pub struct VmCpus {
    /// How many virtual CPUs it has.
    pub vcpus: u32,
    /// The host's CPUs for them: those of `pin`, or those that are no other guest's alone. `None`: any.
    pub pin: Option<CpuSet>,
    /// The host's CPUs for QEMU's own threads; `None`: any.
    pub emulator: Option<CpuSet>,
    /// How the virtual CPUs are scheduled; `None`: as the kernel has it.
    pub scheduling: Option<Scheduling>,
}

/// Where the threads of the VM `guest` run on this machine. A set is empty where each CPU is another guest's alone.
pub fn vm_cpus(model: &Model, inventory: &Inventory, name: &GuestName, guest: &Guest) -> VmCpus {
    VmCpus {
        vcpus: vcpus(guest),
        pin: guest.pin.clone().or_else(|| confined(model, inventory, name)),
        emulator: emulator(model, inventory, name, guest).cpus,
        scheduling: realtime::defined(guest),
    }
}
