//! The rules by which QEMU's devices may be composed into SR-IOV NICs.
//!
//! QEMU checks most of them too (`hw/pci/pcie_sriov.c`, `hw/virtio/virtio-pci.c`), one at a time, as it comes to a device, and in
//! words that name no NIC. Where a rule is stricter than QEMU, [`CompositionError::stricter`] says why; a test of `board` holds every
//! rule against a paused QEMU.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::device::{Device, DeviceKind, ROOT_BUS, VfLayout};
use crate::Mac;

/// Who gives devices their addresses behind a root port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// QEMU's command line: function numbers 0 to 255 (ARI).
    Ari,
    /// libvirt: slot 0 alone, functions 0 to 7 (`virDomainPCIAddressBusSetModel` in `conf/domain_addr.c`).
    Slot,
}

/// The functions of a slot.
pub const SLOT_FUNCTIONS: u16 = 8;

/// The functions of the root bus that the machine type q35 has itself: the host bridge and the south bridge with AHCI and SMBus
/// (`hw/i386/pc_q35.c`).
const CHIPSET: [u16; 4] = [0, 0x1f * 8, 0x1f * 8 + 2, 0x1f * 8 + 3];

/// Why devices cannot be composed so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompositionError {
    /// Two devices with one id, or one without.
    #[error("{count} devices have the id {id:?}: every device needs one of its own")]
    Id {
        /// The id in question; empty for a device without one.
        id: String,
        /// How many have it.
        count: usize,
    },
    /// Two network devices with one MAC address.
    #[error("{first} and {second} both have the MAC address {mac}")]
    DuplicateMac {
        /// The id of the earlier device.
        first: String,
        /// The id of the later device.
        second: String,
        /// The MAC address of both.
        mac: Mac,
    },
    /// Two devices at one address.
    #[error("{first} and {second} are both at function {function} of the bus {bus}")]
    SameFunction {
        /// The id of the earlier device.
        first: String,
        /// The id of the later device.
        second: String,
        /// The bus of both: [`ROOT_BUS`], or the id of a root port.
        bus: String,
        /// The function number.
        function: u16,
    },
    /// Two root ports of one chassis and slot.
    #[error("the root ports {first} and {second} are both slot {slot} of chassis {chassis}")]
    SameSlot {
        /// The id of the earlier root port.
        first: String,
        /// The id of the later root port.
        second: String,
        /// The `chassis` property of both; `0` when it is not set.
        chassis: String,
        /// The `slot` property of both; `0` when it is not set.
        slot: String,
    },
    /// A device where the machine type has one.
    #[error(
        "{device} is at function {function} of the root bus, where the machine type has a device of its own"
    )]
    Chipset {
        /// The id of the device.
        device: String,
        /// The function number.
        function: u16,
    },
    /// A device behind a root port where libvirt has no address for it.
    #[error("{device} is function {function} behind its root port, and libvirt has functions 0 to {} there", SLOT_FUNCTIONS - 1)]
    OutsideSlot {
        /// The id of the device.
        device: String,
        /// The function number.
        function: u16,
    },
    /// A device on a bus that no root port before it makes.
    #[error("{device} is on the bus {bus}, which no root port before it makes")]
    NoSuchBus {
        /// The id of the device.
        device: String,
        /// The bus that it names.
        bus: String,
    },
    /// An SR-IOV function that is not behind a root port.
    #[error("{device} has SR-IOV and is not behind a PCI Express root port")]
    NotBehindRootPort {
        /// The id of the PF or VF.
        device: String,
    },
    /// A VF of a PF that is not there.
    #[error("{vf} is a VF of {pf}, and there is no such device")]
    MissingPf {
        /// The VF's id.
        vf: String,
        /// What it names.
        pf: String,
    },
    /// A PF that is itself a VF.
    #[error("{pf} is the PF of {vf} and a VF of {of} itself: a device is one or the other")]
    PfIsVf {
        /// The id of the device that is both.
        pf: String,
        /// A VF of it.
        vf: String,
        /// What it is a VF of.
        of: String,
    },
    /// A VF after its PF.
    #[error("{vf} comes after its PF {pf}: VFs are to be made first")]
    VfAfterPf {
        /// The VF's id.
        vf: String,
        /// The PF's id.
        pf: String,
    },
    /// A VF on another bus than its PF.
    #[error("{vf} is on the bus {vf_bus} and its PF {pf} on {pf_bus}: they must be on one")]
    OtherBus {
        /// The VF's id.
        vf: String,
        /// The VF's bus.
        vf_bus: String,
        /// The PF's id.
        pf: String,
        /// The PF's bus.
        pf_bus: String,
    },
    /// A VF of another kind than virtio-net, or than its PF.
    #[error("{vf} is a {vf_kind} and its PF {pf} a {pf_kind}: only virtio-net-pci functions can be composed")]
    OtherKind {
        /// The VF's id.
        vf: String,
        /// What it is.
        vf_kind: &'static str,
        /// The PF's id.
        pf: String,
        /// What that is.
        pf_kind: &'static str,
    },
    /// Functions of one PF whose BARs or capabilities differ.
    #[error("{vf} differs from the other VFs of {pf} in {property}: the VFs of a PF must have equal BARs")]
    UnequalBars {
        /// The id of the VF that differs from the first VF.
        vf: String,
        /// The PF's id.
        pf: String,
        /// The property that differs.
        property: String,
    },
    /// A VF below its PF.
    #[error("{vf} is function {vf_function} and its PF {pf} function {pf_function}: a VF comes after its PF")]
    BelowPf {
        /// The VF's id.
        vf: String,
        /// Its function number.
        vf_function: u16,
        /// The PF's id.
        pf: String,
        /// Its function number.
        pf_function: u16,
    },
    /// VFs that are not evenly spaced.
    #[error("{vf} is function {function} where {expected} is due: the VFs of {pf} need one constant stride")]
    Stride {
        /// The id of the first VF out of line.
        vf: String,
        /// Its function number.
        function: u16,
        /// What the first two VFs lead one to expect.
        expected: u32,
        /// The PF's id.
        pf: String,
    },
    /// VFs past the end of the bus.
    #[error("the last VF of {pf} would be function {last}: first VF + (n - 1) x stride must stay below 256")]
    PastTheBus {
        /// The id of the PF.
        pf: String,
        /// Where the last VF would be.
        last: u32,
    },
    /// An option ROM.
    #[error("{device} has an option ROM: a VF can have none, and nothing on a board boots from a network")]
    Rom {
        /// The id of the device.
        device: String,
    },
    /// A network device without a back end, or two on one.
    #[error("{count} devices use the back end {netdev:?}: each function needs one of its own")]
    Backend {
        /// The back end.
        netdev: String,
        /// How many use it.
        count: usize,
    },
}

impl CompositionError {
    /// Why the rule refuses what a QEMU starts with; `None` where QEMU refuses it, too.
    pub fn stricter(&self) -> Option<&'static str> {
        match self {
            CompositionError::Id { .. } => {
                Some("QEMU 11.1 crashes on some devices without an id after a composed PF")
            }
            CompositionError::DuplicateMac { .. } => {
                Some("QEMU does not compare addresses; a switch has one port for each")
            }
            CompositionError::OutsideSlot { .. } => {
                Some("QEMU has ARI, and libvirt no address for such a function")
            }
            CompositionError::NotBehindRootPort { .. } => Some(
                "QEMU refuses composed VFs there, and takes a PF with VFs of its own, which would have no bus for them",
            ),
            CompositionError::MissingPf { .. } => {
                Some("QEMU awaits the PF for ever, and the VF never appears")
            }
            CompositionError::UnequalBars { .. } => Some(
                "QEMU compares the BARs' sizes and the device's id; equal properties are sure to make these equal",
            ),
            CompositionError::Rom { .. } => Some("QEMU leaves out a VF's ROM in silence"),
            CompositionError::Backend { .. } => Some(
                "QEMU refuses a back end with two devices, and only warns of a device or a back end without the other",
            ),
            CompositionError::SameFunction { .. }
            | CompositionError::SameSlot { .. }
            | CompositionError::Chipset { .. }
            | CompositionError::NoSuchBus { .. }
            | CompositionError::PfIsVf { .. }
            | CompositionError::VfAfterPf { .. }
            | CompositionError::OtherBus { .. }
            | CompositionError::OtherKind { .. }
            | CompositionError::BelowPf { .. }
            | CompositionError::Stride { .. }
            | CompositionError::PastTheBus { .. } => None,
        }
    }

    /// The device that the rule refuses, by its id; of back ends, nobody's.
    pub fn device(&self) -> Option<&str> {
        Some(match self {
            CompositionError::Id { id, .. } => id,
            CompositionError::DuplicateMac { second, .. }
            | CompositionError::SameFunction { second, .. }
            | CompositionError::SameSlot { second, .. } => second,
            CompositionError::Chipset { device, .. }
            | CompositionError::OutsideSlot { device, .. }
            | CompositionError::NoSuchBus { device, .. }
            | CompositionError::NotBehindRootPort { device }
            | CompositionError::Rom { device } => device,
            CompositionError::MissingPf { vf, .. }
            | CompositionError::VfAfterPf { vf, .. }
            | CompositionError::OtherBus { vf, .. }
            | CompositionError::OtherKind { vf, .. }
            | CompositionError::UnequalBars { vf, .. }
            | CompositionError::BelowPf { vf, .. }
            | CompositionError::Stride { vf, .. } => vf,
            CompositionError::PfIsVf { pf, .. } | CompositionError::PastTheBus { pf, .. } => pf,
            CompositionError::Backend { .. } => return None,
        })
    }
}

/// Checks every rule for `devices`, in the order in which they are made, and the back ends `netdevs`, by id; empty when all hold.
pub fn check(devices: &[Device], netdevs: &[&str], addressing: Addressing) -> Vec<CompositionError> {
    let mut errors = Vec::new();
    let pfs: BTreeSet<&str> = devices.iter().filter_map(|device| device.pf.as_deref()).collect();
    ids(devices, &mut errors);
    addresses(devices, &mut errors);
    places(devices, &pfs, addressing, &mut errors);
    backends(devices, netdevs, &mut errors);
    for (position, vf) in devices.iter().enumerate() {
        if let Some(pf) = &vf.pf {
            vf_of(devices, position, vf, pf, &mut errors);
        }
    }
    for pf in pfs {
        spacing(devices, pf, &mut errors);
    }
    errors
}

fn ids(devices: &[Device], errors: &mut Vec<CompositionError>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for device in devices {
        *seen.entry(&device.id).or_default() += 1;
    }
    for (id, count) in seen {
        if count > 1 || id.is_empty() {
            errors.push(CompositionError::Id { id: id.to_owned(), count });
        }
    }
}

fn addresses(devices: &[Device], errors: &mut Vec<CompositionError>) {
    let mut seen: BTreeMap<Mac, &str> = BTreeMap::new();
    for device in devices {
        let Some(mac) = device.mac else { continue };
        if let Some(first) = seen.insert(mac, &device.id) {
            let (first, second) = (first.to_owned(), device.id.clone());
            errors.push(CompositionError::DuplicateMac { first, second, mac });
        }
    }
}

fn places(
    devices: &[Device],
    pfs: &BTreeSet<&str>,
    addressing: Addressing,
    errors: &mut Vec<CompositionError>,
) {
    let mut taken: BTreeMap<(&str, u16), &str> = BTreeMap::new();
    let mut slots: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut buses = BTreeSet::from([ROOT_BUS]);
    for device in devices {
        let Some(place) = &device.place else { continue };
        if device.rom {
            errors.push(CompositionError::Rom { device: device.id.clone() });
        }
        let on_root = place.bus == ROOT_BUS;
        if on_root && CHIPSET.contains(&place.function) {
            errors.push(CompositionError::Chipset { device: device.id.clone(), function: place.function });
        }
        if !on_root && addressing == Addressing::Slot && place.function >= SLOT_FUNCTIONS {
            errors
                .push(CompositionError::OutsideSlot { device: device.id.clone(), function: place.function });
        }
        if !buses.contains(place.bus.as_str()) {
            errors.push(CompositionError::NoSuchBus { device: device.id.clone(), bus: place.bus.clone() });
        }
        if on_root && (device.has_vfs() || device.pf.is_some() || pfs.contains(device.id.as_str())) {
            errors.push(CompositionError::NotBehindRootPort { device: device.id.clone() });
        }
        if let Some(first) = taken.insert((&place.bus, place.function), &device.id) {
            errors.push(CompositionError::SameFunction {
                first: first.to_owned(),
                second: device.id.clone(),
                bus: place.bus.clone(),
                function: place.function,
            });
        }
        if device.kind == DeviceKind::RootPort {
            let number = |key| device.property(key).unwrap_or("0");
            let (chassis, slot) = (number("chassis"), number("slot"));
            if let Some(first) = slots.insert((chassis, slot), &device.id) {
                errors.push(CompositionError::SameSlot {
                    first: first.to_owned(),
                    second: device.id.clone(),
                    chassis: chassis.to_owned(),
                    slot: slot.to_owned(),
                });
            }
            buses.insert(&device.id);
        }
    }
}

fn backends(devices: &[Device], netdevs: &[&str], errors: &mut Vec<CompositionError>) {
    let mut users: BTreeMap<&str, usize> = netdevs.iter().map(|netdev| (*netdev, 0)).collect();
    for device in devices {
        if let DeviceKind::VirtioNet | DeviceKind::Igb = device.kind {
            match device.netdev.as_deref().and_then(|netdev| users.get_mut(netdev)) {
                Some(count) => *count += 1,
                None => errors.push(CompositionError::Backend {
                    netdev: device.netdev.clone().unwrap_or_default(),
                    count: 1,
                }),
            }
        }
    }
    for (netdev, count) in users {
        if count != 1 {
            errors.push(CompositionError::Backend { netdev: netdev.to_owned(), count });
        }
    }
}

fn vf_of(devices: &[Device], position: usize, vf: &Device, pf: &str, errors: &mut Vec<CompositionError>) {
    let found = devices.iter().enumerate().find(|(_, device)| device.id == pf);
    let Some((pf_position, pf)) = found else {
        errors.push(CompositionError::MissingPf { vf: vf.id.clone(), pf: pf.to_owned() });
        return;
    };
    let (vf_id, pf_id) = (vf.id.clone(), pf.id.clone());
    if let Some(of) = &pf.pf {
        errors.push(CompositionError::PfIsVf { pf: pf_id.clone(), vf: vf_id.clone(), of: of.clone() });
    }
    if position > pf_position {
        errors.push(CompositionError::VfAfterPf { vf: vf_id.clone(), pf: pf_id.clone() });
    }
    if vf.kind != DeviceKind::VirtioNet || pf.kind != DeviceKind::VirtioNet {
        errors.push(CompositionError::OtherKind {
            vf: vf_id.clone(),
            vf_kind: vf.kind.driver(),
            pf: pf_id.clone(),
            pf_kind: pf.kind.driver(),
        });
    }
    if let (Some(at), Some(pf_at)) = (&vf.place, &pf.place) {
        if at.bus != pf_at.bus {
            errors.push(CompositionError::OtherBus {
                vf: vf_id,
                vf_bus: at.bus.clone(),
                pf: pf_id,
                pf_bus: pf_at.bus.clone(),
            });
        } else if at.function <= pf_at.function {
            errors.push(CompositionError::BelowPf {
                vf: vf_id,
                vf_function: at.function,
                pf: pf_id,
                pf_function: pf_at.function,
            });
        }
    }
}

/// Where the VFs of `pf` are, and whether their BARs are equal.
fn spacing(devices: &[Device], pf: &str, errors: &mut Vec<CompositionError>) {
    let mut vfs: Vec<(u16, &Device)> = devices
        .iter()
        .filter(|device| device.pf.as_deref() == Some(pf))
        .filter_map(|device| device.place.as_ref().map(|place| (place.function, device)))
        .collect();
    vfs.sort_by_key(|(function, _)| *function);
    let [(first, leader), rest @ ..] = &*vfs else {
        return;
    };
    let stride = rest.first().map_or(0, |(second, _)| u32::from(*second) - u32::from(*first));
    for (index, (function, vf)) in (1u32..).zip(rest) {
        let expected = u32::from(*first) + stride * index;
        if u32::from(*function) != expected {
            errors.push(CompositionError::Stride {
                vf: vf.id.clone(),
                function: *function,
                expected,
                pf: pf.to_owned(),
            });
            break;
        }
    }
    for (_, vf) in rest {
        let differs = (vf.properties.iter())
            .find(|property| !leader.properties.contains(property))
            .or_else(|| leader.properties.iter().find(|property| !vf.properties.contains(property)));
        if let Some((property, _)) = differs {
            errors.push(CompositionError::UnequalBars {
                vf: vf.id.clone(),
                pf: pf.to_owned(),
                property: (*property).to_owned(),
            });
        }
    }
    let last = vfs.last().map_or(0, |(function, _)| u32::from(*function));
    if last >= u32::from(VfLayout::FUNCTIONS) {
        errors.push(CompositionError::PastTheBus { pf: pf.to_owned(), last });
    }
}
