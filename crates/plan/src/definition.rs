//! How the model's guests are defined on a machine, with what it leaves out filled in.

use std::collections::BTreeSet;

use penstock_model::{Bdf, CpuSet, Guest, GuestKind, GuestName, Inventory, Model, Root, Uplink, Vm};

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
    GuestDefinition {
        guest: name.clone(),
        cpus: if is_vm { Some(vcpus(guest)) } else { guest.cpus },
        memory: if is_vm { Some(guest.vm_memory()) } else { guest.memory.map(|size| size.0) },
        pin: guest.pin.clone().or_else(|| beside_the_exclusive(planner, name)),
        root: match &guest.root {
            Root::Overlay => None,
            Root::Directory(directory) => Some(directory.clone()),
        },
        init: guest.init.clone(),
        privileged: guest.privileged,
        devices: guest.devices.clone(),
        vm: is_vm.then(|| Vm { emulator: emulator(planner, name, guest), ..guest.vm.clone() }),
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

fn beside_the_exclusive(planner: &Planner<'_>, name: &GuestName) -> Option<CpuSet> {
    confined(planner.model, planner.inventory, name)
}

/// The CPUs of QEMU's own threads: those that the model says; for a guest that is pinned, those that no guest is pinned
/// to; for any other, those that it runs on itself.
fn emulator(planner: &mut Planner<'_>, name: &GuestName, guest: &Guest) -> Option<CpuSet> {
    if guest.vm.emulator.is_some() {
        return guest.vm.emulator.clone();
    }
    if guest.pin.is_none() {
        return beside_the_exclusive(planner, name);
    }
    let pins = planner.model.guests.values().filter_map(|guest| guest.pin.as_ref());
    let taken = pins.chain(planner.model.realtime.as_ref().map(|realtime| &realtime.isolated));
    let taken: BTreeSet<u32> = taken.flat_map(|cpus| cpus.0.iter().copied()).collect();
    let housekeeping =
        planner.model.realtime.as_ref().map(|realtime| realtime::housekeeping(realtime, planner.inventory));
    let free = |of: &BTreeSet<u32>| CpuSet(of.difference(&taken).copied().collect());
    // In real time those of housekeeping, as long as one of them is nobody's.
    let places = housekeeping.iter().map(|cpus| &cpus.0).chain([&planner.inventory.cpus.online.0]);
    if let Some(place) = places.map(free).find(|place| !place.0.is_empty()) {
        return Some(place);
    }
    if housekeeping.is_some() {
        return housekeeping;
    }
    let beside = beside_the_exclusive(planner, name).filter(|cpus| !cpus.0.is_empty());
    let place = beside.as_ref().map_or_else(|| "any CPU".to_owned(), |cpus| format!("the CPUs {cpus}"));
    planner.note(format!(
        "every CPU has a guest pinned to it, so that QEMU's own threads of {name} run on {place}: `emulator` says where they belong"
    ));
    beside
}
