//! What only a rehearsal needs.

use std::collections::HashMap;

use super::{Subject, function::nic_hint, guest, uplink};
use crate::{
    BoardKernel, ByteSize, Emulation, GuestKind, Model, NicName,
    diagnostic::{Diagnostic, Path},
    text::counted,
};

/// The most that QEMU's NVMe controller takes (`sriov_max_vfs`).
const NVME_VFS: u16 = 127;
/// A board runs a whole system and its guests.
const MIN_MEMORY: ByteSize = ByteSize(256 << 20);

pub(super) fn check(subject: &mut Subject<'_>) {
    let model = subject.model;
    let messages = &mut *subject.messages;
    let path = Path::of(["board"]);
    guest::check_cpus(model.board.cpus, &path, messages);
    guest::check_memory(model.board.memory, MIN_MEMORY, &path, messages);
    if let Some(vfs) = model.board.nvme_vfs.filter(|vfs| !(1..=NVME_VFS).contains(vfs)) {
        messages.push(Diagnostic::error(
            path.join("nvme_vfs"),
            format!("an emulated NVMe controller has 1 to {NVME_VFS} VFs, not {vfs}"),
        ));
    }
    let vm = model.guests.iter().find(|(_, guest)| guest.kind == GuestKind::Vm);
    if let (Some(false), Some((name, _))) = (model.board.iommu, vm) {
        messages.push(
            Diagnostic::error(
                path.join("iommu"),
                format!("{name} is a VM, and a board without an IOMMU gives no function to a VM"),
            )
            .with_hint("leave `iommu` out, or write `kind: container`"),
        );
    }
    if let (Some(BoardKernel::Realtime), Some((name, _))) = (model.board.kernel, vm) {
        messages.push(
            Diagnostic::error(
                path.join("kernel"),
                format!(
                    "{name} is a VM, and the realtime kernel refuses KVM under emulation (it needs a constant TSC)"
                ),
            )
            .with_hint("leave `kernel` out, or rehearse the containers in a model of their own"),
        );
    }
    if let (true, Some(cpus @ 2..)) = (model.board.icount, model.board.cpus) {
        messages.push(
            Diagnostic::error(
                path.join("cpus"),
                format!("a board that counts instructions has one CPU, not {cpus}: they would be counted for all together"),
            )
            .with_related(path.join("icount"), "it counts them")
            .with_hint("leave `cpus` out"),
        );
    }
    let has = if model.board.icount { Some(1) } else { model.board.cpus };
    if let Some((beyond, cpu, has)) = has.and_then(|has| beyond(model, has).map(|(at, cpu)| (at, cpu, has))) {
        let key = if model.board.icount { "icount" } else { "cpus" };
        let text =
            format!("the model names CPU {cpu}, and a board with {} has none", counted(has as usize, "CPU"));
        let hint = match model.board.icount {
            true => "leave `icount` out, or rehearse without CPUs that are named".to_owned(),
            false => format!("write `cpus: {}`, leave it out, or name lower ones", u64::from(cpu) + 1),
        };
        // The machine may have it all the same.
        let warning = Diagnostic::warning(path.join(key), text).with_related(beyond, "named here");
        messages.push(warning.with_hint(hint));
    }
    let cables = path.join("cables");
    let mut plugged: HashMap<&NicName, Path> = HashMap::new();
    for (n, [a, b]) in model.board.cables.iter().enumerate() {
        if super::full(messages) {
            break;
        }
        let path = cables.join(n);
        if a == b {
            messages.push(
                Diagnostic::error(path.clone(), format!("this cable goes from {a} to itself"))
                    .with_hint("a cable joins the uplinks of two NICs"),
            );
        }
        for (end, nic) in [a, b].into_iter().enumerate() {
            let path = path.join(end);
            if !model.nics.contains_key(nic) {
                messages.push(
                    Diagnostic::error(path, format!("this cable goes nowhere: there is no NIC called {nic}"))
                        .with_hint(nic_hint(nic, model.nics.keys())),
                );
            } else if let Some(other) = plugged.get(nic) {
                if a != b {
                    messages.push(
                        Diagnostic::error(path, format!("{nic} has two cables, and a NIC has one uplink"))
                            .with_related(other.clone(), "the first cable"),
                    );
                }
            } else {
                plugged.insert(nic, path);
            }
        }
    }
    for (name, emulation) in &model.board.emulation {
        if super::full(messages) {
            break;
        }
        let path = path.join("emulation").join(name);
        let Some(nic) = model.nics.get(name) else {
            messages.push(
                Diagnostic::error(path, format!("there is no NIC called {name}"))
                    .at_key()
                    .with_hint(nic_hint(name, model.nics.keys())),
            );
            continue;
        };
        let uplink = model.uplink_vfs().find(|uplink| uplink.function.nic == *name);
        if let Some(uplink) = uplink.filter(|_| *emulation == Emulation::Igb) {
            let text = format!(
                "{} is an uplink, and VFs of the emulated igb get frames for their own addresses alone: their driver has no \
                 promiscuous mode",
                uplink.function
            );
            messages.push(
                Diagnostic::error(path.clone(), text)
                    .with_related(uplink::path(uplink), "the uplink")
                    .with_hint(format!("write `{name}: virtio`, or leave it out")),
            );
        }
        let vfs = nic.vfs;
        let place = Path::of(["nics", name.as_str(), "vfs"]);
        let most = emulation.most_vfs();
        match emulation {
            _ if vfs <= most => {}
            Emulation::Igb => messages.push(
                Diagnostic::error(
                    path,
                    format!("{name} has {vfs} VFs, and the emulated igb has at most {most}"),
                )
                .with_related(place, "the number of VFs")
                .with_hint(format!("write `{name}: virtio`, or leave it out")),
            ),
            Emulation::Virtio => messages.push(
                Diagnostic::error(
                    path,
                    format!("{name} has {vfs} VFs, and an emulated virtio NIC has at most {most}"),
                )
                .with_related(place, "the number of VFs"),
            ),
        }
    }
}

/// The highest CPU that the model names, and where, if a machine with `has` of them does not have it.
fn beyond(model: &Model, has: u32) -> Option<(Path, u32)> {
    let of_guests = model.guests.iter().flat_map(|(name, guest)| {
        let path = Path::of(["guests", name.as_str()]);
        let interrupts = guest.realtime.as_ref().and_then(|realtime| realtime.interrupts.as_ref());
        [
            (path.join("pin"), guest.pin.as_ref()),
            (path.join("emulator"), guest.vm.emulator.as_ref()),
            (path.join("realtime").join("interrupts"), interrupts),
        ]
    });
    // What is isolated for guests has been found with them.
    let of_machine = model.realtime.iter().flat_map(|realtime| {
        let path = Path::of(["realtime"]);
        [
            (path.join("isolated"), Some(&realtime.isolated)),
            (path.join("housekeeping"), realtime.housekeeping.as_ref()),
        ]
    });
    let named = of_guests.chain(of_machine).filter_map(|(path, cpus)| Some((path, *cpus?.0.last()?)));
    named.filter(|(_, cpu)| *cpu >= has).max_by_key(|(_, cpu)| *cpu)
}
