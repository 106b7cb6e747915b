//! Whether a guest is defined as the model says, where the model leaves something to be chosen too.

use std::collections::BTreeSet;

use penstock_model::{Boot, CpuSet, Guest, GuestKind, Inventory, Model, Root};

use crate::action::GuestDefinition;

/// How a definition differs from what the model says of a guest, apart from its functions.
pub fn defined(
    model: &Model,
    inventory: &Inventory,
    guest: &Guest,
    definition: &GuestDefinition,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = &definition.guest;
    let root = match &guest.root {
        Root::Overlay => None,
        Root::Directory(directory) => Some(directory),
    };
    let is_vm = guest.kind == GuestKind::Vm;
    let (mut cpus, mut memory) = (guest.cpus, guest.memory.map(|size| size.0));
    if is_vm {
        cpus = cpus.or(guest.pin.as_ref().map(|pin| pin.0.len() as u32)).or(Some(1));
        memory = memory.or(Some(256 * 1024 * 1024));
    }
    let same = (definition.cpus, definition.memory) == (cpus, memory)
        && definition.root.as_ref() == root
        && definition.init == guest.init
        && definition.privileged == guest.privileged
        && definition.devices == guest.devices
        && definition.vm.is_some() == is_vm;
    if !same {
        wrong.push(format!("guest {name} is defined otherwise than the model says"));
    }
    let wanted = guest.dns.as_ref().filter(|_| !is_vm || guest.vm.boot == Boot::Builtin);
    if definition.dns.as_ref() != wanted {
        wrong.push(format!("guest {name} is defined with other name servers than the model gives it"));
    }
    let foreign: BTreeSet<u32> = model
        .guests
        .iter()
        .filter(|(other, guest)| *other != name && guest.exclusive)
        .flat_map(|(_, guest)| cpus_of(guest.pin.as_ref()))
        .collect();
    let online = &inventory.cpus.online.0;
    let confined = online.iter().any(|cpu| foreign.contains(cpu)) && !online.is_subset(&foreign);
    match (&guest.pin, &definition.pin) {
        (Some(wanted), pin) if pin.as_ref() != Some(wanted) => {
            wrong.push(format!("guest {name} is not pinned to {wanted}"));
        }
        (None, None) if confined => {
            wrong.push(format!("guest {name} may run on CPUs that are another guest's alone"));
        }
        (None, Some(pin)) => wrong.extend(intrudes(name.as_str(), "is pinned to", pin, &foreign)),
        _ => {}
    }
    let nics = definition.nics.iter().map(|own| (&own.name, &own.nic));
    if !nics.eq(guest.nics.iter()) {
        wrong.push(format!("guest {name} is defined with other NICs of its own than the model gives it"));
    }
    let Some(vm) = &definition.vm else { return wrong };
    let mut rest = vm.clone();
    rest.emulator.clone_from(&guest.vm.emulator);
    if rest != guest.vm {
        wrong.push(format!("the VM {name} is defined otherwise than the model says"));
    }
    let pinned: BTreeSet<u32> = model.guests.values().flat_map(|guest| cpus_of(guest.pin.as_ref())).collect();
    // Nor is there room for them where nothing else may run.
    let isolated = model.realtime.iter().flat_map(|realtime| cpus_of(Some(&realtime.isolated)));
    let taken: BTreeSet<u32> = pinned.iter().copied().chain(isolated).collect();
    match (&guest.vm.emulator, &vm.emulator) {
        (Some(wanted), is) if is.as_ref() != Some(wanted) => {
            wrong.push(format!("QEMU's own threads of {name} do not run on {wanted}"));
        }
        (None, Some(is)) => {
            wrong.extend(intrudes(name.as_str(), "has QEMU's own threads on", is, &foreign));
            if guest.pin.is_some() && !online.is_subset(&taken) && !is.0.is_disjoint(&pinned) {
                wrong.push(format!("QEMU's own threads of {name} run on {is}, where guests are pinned"));
            }
        }
        (None, None) if (guest.pin.is_some() && !online.is_subset(&taken)) || confined => {
            wrong.push(format!("QEMU's own threads of {name} run anywhere"));
        }
        _ => {}
    }
    wrong
}

fn cpus_of(set: Option<&CpuSet>) -> impl Iterator<Item = u32> {
    set.into_iter().flat_map(|set| set.0.iter().copied())
}

fn intrudes(name: &str, how: &str, cpus: &CpuSet, foreign: &BTreeSet<u32>) -> Option<String> {
    (cpus.0.is_empty() || !cpus.0.is_disjoint(foreign))
        .then(|| format!("guest {name} {how} {cpus}, of which some are another guest's alone"))
}
