//! The NICs that a VM owns, as libvirt is told of them: a root port for each NIC, all on one slot of the root bus, and behind it the
//! NIC's functions on slot 0, the PF as function 0.

use super::device::{Device, DeviceKind, ROOT_BUS};
use crate::{Emulation, TenantNic, VfIndex};

/// The slot of the root bus that the root ports are on; 31 is the south bridge's.
pub const ROOT_PORTS: u16 = 30;

/// The id of a function of the VM's NIC number `at`. libvirt keeps an alias that begins so, and makes it QEMU's id.
pub fn alias(at: usize, vf: Option<VfIndex>) -> String {
    match vf {
        None => format!("ua-nic{at}"),
        Some(vf) => format!("ua-nic{at}-vf{vf}"),
    }
}

/// The root port of the VM's NIC number `at` of `count`, called as libvirt calls the bus that it makes.
pub fn root_port(at: usize, count: usize) -> Device {
    let place = u16::try_from(at).ok().and_then(|at| at.checked_add(ROOT_PORTS * 8)).unwrap_or(u16::MAX);
    let id = format!("pci.{}", at + 1);
    let port = Device::new(id, DeviceKind::RootPort).at(ROOT_BUS, place).with("chassis", at + 1);
    // A port beyond the first is found only where the first says that there are more.
    if at == 0 && count > 1 { port.with("multifunction", "on") } else { port }
}

/// The functions of the VM's NIC number `at`, in the order in which they are made: QEMU wants VFs before their PF
/// (`hw/pci/pcie_sriov.c`, `pcie_sriov_register_device`). `id` names each, and its back end.
pub fn functions(
    at: usize,
    nic: &TenantNic,
    id: impl Fn(Option<VfIndex>) -> String,
) -> Vec<(Option<VfIndex>, Device)> {
    let bus = format!("pci.{}", at + 1);
    let pf = id(None);
    let mut functions: Vec<_> = nic.functions().collect();
    functions.rotate_left(1);
    let device = |(vf, mac, _): (Option<VfIndex>, _, _)| {
        let place = vf.map_or(0, |vf| vf.get() + 1);
        let kind = match nic.emulation {
            Emulation::Igb => DeviceKind::Igb,
            Emulation::Virtio => DeviceKind::VirtioNet,
        };
        let mut device = Device::new(id(vf), kind).at(&bus, place);
        device = match (vf, nic.emulation) {
            (Some(_), _) => Device { pf: Some(pf.clone()), ..device },
            (None, Emulation::Virtio) => device.with("multifunction", "on"),
            // Its VFs are part of the device.
            (None, Emulation::Igb) => device,
        };
        if nic.queues > 1 {
            // As libvirt has it (`qemuBuildNicDevProps`): a vector for each queue, one for the control queue, one for the configuration.
            device = device.with("mq", "on").with("vectors", 2 * u32::from(nic.queues) + 2);
        }
        device.mac = Some(mac);
        device.netdev = Some(format!("host{}", device.id));
        (vf, device)
    };
    functions.into_iter().map(device).collect()
}

/// All devices of the NICs that a VM owns, root ports first, as libvirt makes them. `id` names the functions.
pub fn devices<'a>(
    nics: impl ExactSizeIterator<Item = &'a TenantNic> + Clone,
    id: impl Fn(usize, Option<VfIndex>) -> String,
) -> Vec<Device> {
    let count = nics.len();
    let ports = (0..count).map(|at| root_port(at, count));
    let functions = nics.enumerate().flat_map(|(at, nic)| functions(at, nic, |vf| id(at, vf)));
    ports.chain(functions.map(|(_, device)| device)).collect()
}
