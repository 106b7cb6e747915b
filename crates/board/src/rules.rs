//! The rules by which an SR-IOV device may be composed, checked before QEMU is started.
//!
//! QEMU checks most of them too (`hw/pci/pcie_sriov.c`, `hw/virtio/virtio-pci.c`), one at a time, as it comes to a
//! device, and in words that name no NIC; a VF of a PF that never comes it accepts in silence.

use std::collections::{BTreeMap, BTreeSet};

use penstock_model::{Emulation, Mac, NicName, text::counted};
use thiserror::Error;

use crate::{
    design::Design,
    device::{Device, DeviceKind, ROOT_BUS, VfLayout},
};

/// Why no board can be composed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompositionError {
    /// More VFs than the device that stands for the NIC can have.
    #[error("NIC {nic} is to have {}, and {} has at most {limit}{}", counted(usize::from(*wanted), "VF"), device_name(*emulation),
        if *emulation == Emulation::Igb { "; `emulation: virtio` has up to 255" } else { "" })]
    TooManyVfs {
        /// The NIC.
        nic: NicName,
        /// What the model wants.
        wanted: u16,
        /// What stands for it.
        emulation: Emulation,
        /// What that can have.
        limit: u16,
    },
    /// More NICs than root ports fit on the root bus.
    #[error("a board has room for {limit} NICs, and the model has {wanted}")]
    TooManyNics {
        /// What the model has.
        wanted: usize,
        /// The room.
        limit: usize,
    },
    /// More emulated igbs than there are I/O ports for.
    #[error(
        "a board has room for {limit} NICs that are an emulated igb, and the model has {wanted}; `emulation: virtio` takes no such room"
    )]
    TooManyIgbs {
        /// What the model has.
        wanted: usize,
        /// The room.
        limit: usize,
    },
    /// More CPUs than are emulated without being asked for.
    #[error(
        "the model names CPU {}, and a board has at most {limit} CPUs where nothing is said: write `board: {{cpus: {wanted}}}` to have as many, or name lower ones",
        wanted - 1
    )]
    TooManyCpus {
        /// How many there would have to be.
        wanted: u32,
        /// The most.
        limit: u32,
    },
    /// No PF of the inventory is the NIC's.
    #[error("NIC {nic}: the inventory has no PF {what}")]
    NoSuchPf {
        /// The NIC.
        nic: NicName,
        /// What was looked for.
        what: String,
    },
    /// A cable that ends at no NIC.
    #[error("a cable goes to {nic}, and there is no such NIC")]
    CableToNowhere {
        /// What was named.
        nic: NicName,
    },
    /// A cable from a NIC to itself.
    #[error("a cable goes from {nic} to {nic}: its two ends must be different NICs")]
    CableToItself {
        /// The NIC.
        nic: NicName,
    },
    /// A NIC with two cables, which the model refuses already.
    #[error("{nic} has two cables, and a NIC has one uplink")]
    SecondCable {
        /// The NIC.
        nic: NicName,
    },
    /// Two devices with one id, or one without.
    #[error("{count} devices have the id {id:?}: every device needs one of its own")]
    Id {
        /// The id.
        id: String,
        /// How many have it.
        count: usize,
    },
    /// Two network devices with one MAC address.
    #[error("{first} and {second} both have the MAC address {mac}")]
    DuplicateMac {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// The address.
        mac: Mac,
    },
    /// Two devices at one address.
    #[error("{first} and {second} are both at function {function} of the bus {bus}")]
    SameFunction {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// The bus.
        bus: String,
        /// The function number.
        function: u16,
    },
    /// A device on a bus that no root port before it makes.
    #[error("{device} is on the bus {bus}, which no root port before it makes")]
    NoSuchBus {
        /// The device.
        device: String,
        /// The bus.
        bus: String,
    },
    /// An SR-IOV function that is not behind a root port.
    #[error("{device} has SR-IOV and is not behind a PCI Express root port")]
    NotBehindRootPort {
        /// The device.
        device: String,
    },
    /// A VF of a PF that is not there.
    #[error("{vf} is a VF of {pf}, and there is no such device")]
    MissingPf {
        /// The VF.
        vf: String,
        /// What it names.
        pf: String,
    },
    /// A PF that is itself a VF.
    #[error("{pf} is the PF of {vf} and a VF of {of} itself: a device is one or the other")]
    PfIsVf {
        /// The device.
        pf: String,
        /// A VF of it.
        vf: String,
        /// What it is a VF of.
        of: String,
    },
    /// A VF after its PF.
    #[error("{vf} comes after its PF {pf}: VFs are to be made first")]
    VfAfterPf {
        /// The VF.
        vf: String,
        /// The PF.
        pf: String,
    },
    /// A VF on another bus than its PF.
    #[error("{vf} is on the bus {vf_bus} and its PF {pf} on {pf_bus}: they must be on one")]
    OtherBus {
        /// The VF.
        vf: String,
        /// Its bus.
        vf_bus: String,
        /// The PF.
        pf: String,
        /// Its bus.
        pf_bus: String,
    },
    /// A VF of another kind than virtio-net, or than its PF.
    #[error("{vf} is a {vf_kind} and its PF {pf} a {pf_kind}: only virtio-net-pci functions can be composed")]
    OtherKind {
        /// The VF.
        vf: String,
        /// What it is.
        vf_kind: &'static str,
        /// The PF.
        pf: String,
        /// What that is.
        pf_kind: &'static str,
    },
    /// Functions of one PF whose BARs or capabilities differ.
    #[error("{vf} differs from the other VFs of {pf} in {property}: the VFs of a PF must have equal BARs")]
    UnequalBars {
        /// The VF.
        vf: String,
        /// The PF.
        pf: String,
        /// The property that differs.
        property: String,
    },
    /// A VF below its PF.
    #[error("{vf} is function {vf_function} and its PF {pf} function {pf_function}: a VF comes after its PF")]
    BelowPf {
        /// The VF.
        vf: String,
        /// Its function number.
        vf_function: u16,
        /// The PF.
        pf: String,
        /// Its function number.
        pf_function: u16,
    },
    /// VFs that are not evenly spaced.
    #[error("{vf} is function {function} where {expected} is due: the VFs of {pf} need one constant stride")]
    Stride {
        /// The VF.
        vf: String,
        /// Its function number.
        function: u16,
        /// What the first two VFs lead one to expect.
        expected: u32,
        /// The PF.
        pf: String,
    },
    /// VFs past the end of the bus.
    #[error("the last VF of {pf} would be function {last}: first VF + (n - 1) x stride must stay below 256")]
    PastTheBus {
        /// The PF.
        pf: String,
        /// Where the last VF would be.
        last: u32,
    },
    /// An option ROM.
    #[error("{device} has an option ROM: a VF can have none, and nothing on a board boots from a network")]
    Rom {
        /// The device.
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

/// What people call the device that stands for a NIC.
fn device_name(emulation: Emulation) -> &'static str {
    match emulation {
        Emulation::Igb => "the emulated igb",
        Emulation::Virtio => "a composed virtio NIC",
    }
}

/// Checks every rule; empty when all hold.
pub fn check(design: &Design) -> Vec<CompositionError> {
    let mut errors = Vec::new();
    ids(design, &mut errors);
    addresses(design, &mut errors);
    places(design, &mut errors);
    backends(design, &mut errors);
    for (position, vf) in design.devices.iter().enumerate() {
        if let Some(pf) = &vf.pf {
            vf_of(design, position, vf, pf, &mut errors);
        }
    }
    let pfs: BTreeSet<&String> = design.devices.iter().filter_map(|device| device.pf.as_ref()).collect();
    for pf in pfs {
        spacing(design, pf, &mut errors);
    }
    errors
}

fn ids(design: &Design, errors: &mut Vec<CompositionError>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for device in &design.devices {
        *seen.entry(&device.id).or_default() += 1;
    }
    for (id, count) in seen {
        if count > 1 || id.is_empty() {
            errors.push(CompositionError::Id { id: id.to_owned(), count });
        }
    }
}

fn addresses(design: &Design, errors: &mut Vec<CompositionError>) {
    let mut seen: BTreeMap<Mac, &str> = BTreeMap::new();
    for device in &design.devices {
        let Some(mac) = device.mac else { continue };
        if let Some(first) = seen.insert(mac, &device.id) {
            let (first, second) = (first.to_owned(), device.id.clone());
            errors.push(CompositionError::DuplicateMac { first, second, mac });
        }
    }
}

fn places(design: &Design, errors: &mut Vec<CompositionError>) {
    let mut taken: BTreeMap<(&str, u16), &str> = BTreeMap::new();
    let mut buses = BTreeSet::from([ROOT_BUS]);
    for device in &design.devices {
        let Some(place) = &device.place else { continue };
        if device.rom {
            errors.push(CompositionError::Rom { device: device.id.clone() });
        }
        if !buses.contains(place.bus.as_str()) {
            errors.push(CompositionError::NoSuchBus { device: device.id.clone(), bus: place.bus.clone() });
        }
        if place.bus == ROOT_BUS && design.has_sriov(device) {
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
            buses.insert(&device.id);
        }
    }
}

fn backends(design: &Design, errors: &mut Vec<CompositionError>) {
    let mut users: BTreeMap<&str, usize> = design.netdevs.iter().map(|n| (n.id.as_str(), 0)).collect();
    for device in &design.devices {
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

fn vf_of(design: &Design, position: usize, vf: &Device, pf: &str, errors: &mut Vec<CompositionError>) {
    let found = design.devices.iter().enumerate().find(|(_, device)| device.id == pf);
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
fn spacing(design: &Design, pf: &str, errors: &mut Vec<CompositionError>) {
    let mut vfs: Vec<(u16, &Device)> = design
        .devices
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
