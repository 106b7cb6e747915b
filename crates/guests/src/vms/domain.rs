//! A VM as libvirt is told of it: its domain XML. Pure.
//!
//! Every device sits on the root bus at an address that is chosen here, so that an address that is seen inside can be
//! traced to the host's function behind it. No root ports in between: a kernel has less to look through when it boots, and
//! a VF needs none. Only a NIC of the VM's own has one: SR-IOV wants it.
//!
//! Format: <https://libvirt.org/formatdomain.html>.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use penstock_host::embedded::LINE_NAME;
use penstock_model::{
    Bdf, CpuSet, DataPath, Emulation, Inside, MOST_VM_FUNCTIONS, RoutingId, TenantNic, VM_MEMORY, VfIndex,
    composition::{Device, tenant as composition},
    domain::{self as shared, Booted, DomainHead, escape},
};
use penstock_plan::action::{GuestDefinition, GuestNic};

use crate::state::PREFIX;

/// The first slot for functions: those before it are the host bridge's, the channel's, the random numbers' and the
/// disk's.
const FIRST_SLOT: usize = 4;

/// One after the last slot for functions: 30 is the root ports' of the VM's own NICs, 31 the south bridge's.
const END_SLOT: usize = composition::ROOT_PORTS as usize;

/// The most functions that a VM can have: each slot takes eight. The model refuses more.
pub const MOST_FUNCTIONS: usize = (END_SLOT - FIRST_SLOT) * 8;
const _: () = assert!(MOST_FUNCTIONS == MOST_VM_FUNCTIONS);

/// All that a domain's XML is made of.
#[derive(Clone, Debug)]
pub struct Domain<'a> {
    /// The guest; its `vm` is there.
    pub definition: &'a GuestDefinition,
    /// The UUID of the machine that it is; `None`: libvirt makes up one at each start.
    pub uuid: Option<&'a str>,
    /// What it boots.
    pub boot: &'a Booted,
    /// The host's CPUs for QEMU's own threads; `None`: any.
    pub emulator: Option<&'a CpuSet>,
    /// The file that the console is written to.
    pub console_log: &'a str,
    /// The socket on which the console is served.
    pub console_socket: &'a str,
    /// The sockets of the embedded switch of each NIC of the VM's own, or its vDPA devices (`/dev/vhost-vdpa-N`), in order: the PF's, then
    /// the VFs'.
    pub switches: &'a [Vec<PathBuf>],
    /// The socket of the line to each of these switches, where the VM has one.
    pub lines: &'a [Option<PathBuf>],
}

/// How many virtual CPUs a VM gets.
pub fn cpus(definition: &GuestDefinition) -> u32 {
    let pinned = definition.pin.as_ref().map(|pin| u32::try_from(pin.0.len()).unwrap_or(u32::MAX));
    definition.cpus.or(pinned).unwrap_or(1).max(1)
}

/// The address inside of the function at `position` of `count`. One function a slot while that does, for a function 0
/// that goes away takes its slot with it.
pub fn address_inside(position: usize, count: usize) -> Option<Bdf> {
    let (slot, function) = slot(position, count)?;
    Some(Bdf::new(0, RoutingId((u16::from(slot) << 3) | u16::from(function))))
}

fn slot(position: usize, count: usize) -> Option<(u8, u8)> {
    if position >= count || count > MOST_FUNCTIONS {
        return None;
    }
    let (slot, function) =
        if count <= END_SLOT - FIRST_SLOT { (position, 0) } else { (position / 8, position % 8) };
    Some((u8::try_from(FIRST_SLOT + slot).ok()?, u8::try_from(function).ok()?))
}

/// The host's function that a VM of `definition` has at `inside`.
pub fn function_at(definition: &GuestDefinition, inside: Bdf) -> Option<Bdf> {
    let count = definition.host_functions().count();
    let mut all = definition.host_functions().enumerate();
    all.find(|(position, _)| address_inside(*position, count) == Some(inside)).map(|(_, function)| function)
}

/// The domain's XML. Functions beyond [`MOST_FUNCTIONS`] would be left out; whoever calls this has refused them.
pub fn render(domain: &Domain<'_>) -> String {
    let definition = domain.definition;
    let vm = definition.vm.clone().unwrap_or_default();
    let mut xml = String::new();
    let mut line = |indent: usize, text: String| {
        let _ = writeln!(xml, "{:indent$}{text}", "", indent = indent * 2);
    };
    let composed = definition.nics.iter().any(|own| own.nic.emulation == Emulation::Virtio);
    let head = DomainHead {
        name: &format!("{PREFIX}{}", definition.guest),
        uuid: domain.uuid,
        memory: definition.memory.unwrap_or(VM_MEMORY.0),
        vcpus: cpus(definition),
        pin: definition.pin.as_ref(),
        scheduling: definition.scheduling,
        emulator: domain.emulator,
        vm: &vm,
        boot: Some(domain.boot),
        // The switches read and write frames where the guest has them.
        shares_memory: definition.nics.iter().any(|own| own.nic.path.maps_memory()),
        overrides_qemu: composed,
    };
    shared::head(&head, &mut line);
    line(2, "<controller type='usb' model='none'/>".to_owned());
    line(2, "<controller type='pci' index='0' model='pcie-root'/>".to_owned());
    for at in 0..definition.nics.len() {
        root_port(at, definition.nics.len(), &mut line);
    }
    shared::disk(domain.boot, &[own_address(3)], &mut line);
    let count = definition.host_functions().count();
    for (position, host) in definition.host_functions().enumerate() {
        let Some((slot, function)) = slot(position, count) else { break };
        line(2, "<hostdev mode='subsystem' type='pci' managed='no'>".to_owned());
        line(3, "<driver name='vfio'/>".to_owned());
        line(
            3,
            format!(
                "<source><address domain='0x{:04x}' bus='0x{:02x}' slot='0x{:02x}' function='0x{:x}'/></source>",
                host.domain(),
                host.bus(),
                host.device(),
                host.function()
            ),
        );
        let others = if function == 0 && count > END_SLOT - FIRST_SLOT { " multifunction='on'" } else { "" };
        line(
            3,
            format!(
                "<address type='pci' domain='0x0000' bus='0x00' slot='0x{slot:02x}' \
                 function='0x{function:x}'{others}/>"
            ),
        );
        // A VF has none, and to look costs a moment.
        line(3, "<rom enabled='no'/>".to_owned());
        line(2, "</hostdev>".to_owned());
    }
    for (at, (own, sockets)) in definition.nics.iter().zip(domain.switches).enumerate() {
        tenant_nic(at, own, sockets, &mut line);
    }
    line(2, "<serial type='unix'>".to_owned());
    line(3, format!("<source mode='bind' path='{}'/>", escape(domain.console_socket)));
    line(3, format!("<log file='{}' append='off'/>", escape(domain.console_log)));
    line(3, "<target type='isa-serial' port='0'/>".to_owned());
    line(2, "</serial>".to_owned());
    let lines =
        definition.nics.iter().zip(domain.lines).filter_map(|(own, socket)| Some((own, socket.as_ref()?)));
    if vm.inside == Inside::Agent || lines.clone().next().is_some() {
        line(2, "<controller type='virtio-serial' index='0'>".to_owned());
        line(3, own_address(1));
        line(2, "</controller>".to_owned());
    }
    if vm.inside == Inside::Agent {
        shared::agent_channel(&mut line);
    }
    for (own, socket) in lines {
        attribute_line(own, socket, &mut line);
    }
    shared::rest(&[own_address(2)], &mut line);
    line(1, "</devices>".to_owned());
    if composed {
        compose(definition, &mut line);
    }
    line(0, "</domain>".to_owned());
    xml
}

/// The root port of the VM's NIC number `at` of `count`.
fn root_port(at: usize, count: usize, line: &mut impl FnMut(usize, String)) {
    let port = composition::root_port(at, count);
    line(2, format!("<controller type='pci' index='{}' model='pcie-root-port'>", at + 1));
    line(3, address(&port, 0));
    line(2, "</controller>".to_owned());
}

/// Where a device sits on the bus that libvirt knows by the number `bus`.
fn address(device: &Device, bus: usize) -> String {
    let place = device.place.as_ref().map_or(0, |place| place.function);
    let others = device.property("multifunction").is_some();
    format!(
        "<address type='pci' domain='0x0000' bus='0x{bus:02x}' slot='0x{:02x}' function='0x{:x}'{}/>",
        place >> 3,
        place & 7,
        if others { " multifunction='on'" } else { "" }
    )
}

/// A NIC of the VM's own. libvirt makes devices in the order of its file.
fn tenant_nic(at: usize, own: &GuestNic, sockets: &[PathBuf], line: &mut impl FnMut(usize, String)) {
    for (vf, device) in functions(at, own) {
        let Some(mac) = device.mac else { continue };
        // The PF's is the first.
        let socket = sockets.get(vf.map_or(0, |vf| usize::from(vf.get()) + 1));
        let mut driver = String::new();
        match own.nic.path {
            DataPath::Switch => {
                let Some(socket) = socket else { continue };
                let socket = escape(&socket.to_string_lossy());
                line(2, "<interface type='vhostuser'>".to_owned());
                line(3, format!("<mac address='{mac}'/>"));
                line(3, format!("<source type='unix' path='{socket}' mode='client'>"));
                // A switch that has died is there again a moment later.
                line(4, "<reconnect enabled='yes' timeout='1'/>".to_owned());
                line(3, "</source>".to_owned());
            }
            // libvirt opens the device and hands it to QEMU, which may not open it itself.
            DataPath::VhostVdpa => {
                let Some(device) = socket else { continue };
                line(2, "<interface type='vdpa'>".to_owned());
                line(3, format!("<mac address='{mac}'/>"));
                line(3, format!("<source dev='{}'/>", escape(&device.to_string_lossy())));
                // VDUSE has no device without VIRTIO_F_ACCESS_PLATFORM (`features_is_valid`, `drivers/vdpa/vdpa_user/vduse_dev.c`).
                driver.push_str(" iommu='on'");
            }
            // A container's; the model gives no VM one.
            DataPath::VirtioVdpa => continue,
            // libvirt opens a tap that is there, leaves it when the VM ends, and uses vhost-net where the host has it.
            DataPath::Tap | DataPath::SwitchTap => {
                line(2, "<interface type='ethernet'>".to_owned());
                line(3, format!("<mac address='{mac}'/>"));
                line(3, format!("<target dev='{}' managed='no'/>", TenantNic::tap(mac)));
            }
        }
        let model = match own.nic.emulation {
            Emulation::Igb => "igb",
            Emulation::Virtio => "virtio",
        };
        line(3, format!("<model type='{model}'/>"));
        if own.nic.queues > 1 {
            driver.push_str(&format!(" queues='{}'", own.nic.queues));
        }
        if !driver.is_empty() {
            line(3, format!("<driver{driver}/>"));
        }
        line(3, "<rom enabled='no'/>".to_owned());
        line(3, format!("<alias name='{}'/>", device.id));
        line(3, address(&device, at + 1));
        line(2, "</interface>".to_owned());
    }
}

fn functions(at: usize, own: &GuestNic) -> Vec<(Option<VfIndex>, Device)> {
    composition::functions(at, &own.nic, |vf| composition::alias(at, vf))
}

/// The line from within the VM to the switch of one of its NICs, which is found by the PF's address.
fn attribute_line(own: &GuestNic, socket: &Path, line: &mut impl FnMut(usize, String)) {
    line(2, "<channel type='unix'>".to_owned());
    line(3, format!("<source mode='connect' path='{}'>", escape(&socket.to_string_lossy())));
    line(4, "<reconnect enabled='yes' timeout='1'/>".to_owned());
    line(3, "</source>".to_owned());
    line(3, format!("<target type='virtio' name='{LINE_NAME}{}'/>", own.nic.mac));
    line(2, "</channel>".to_owned());
}

/// Says which function is a VF of which, for which libvirt has no words of its own.
fn compose(definition: &GuestDefinition, line: &mut impl FnMut(usize, String)) {
    line(1, "<qemu:override>".to_owned());
    for (at, own) in definition.nics.iter().enumerate() {
        for (_, device) in functions(at, own) {
            let Some(pf) = device.pf else { continue };
            line(2, format!("<qemu:device alias='{}'>", device.id));
            line(3, "<qemu:frontend>".to_owned());
            line(4, format!("<qemu:property name='sriov-pf' type='string' value='{pf}'/>"));
            line(3, "</qemu:frontend>".to_owned());
            line(2, "</qemu:device>".to_owned());
        }
    }
    line(1, "</qemu:override>".to_owned());
}

fn own_address(slot: u8) -> String {
    format!("<address type='pci' domain='0x0000' bus='0x00' slot='0x{slot:02x}' function='0x0'/>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_lead_back_to_functions() {
        for count in [0, 1, 25, 26, 27, 200, MOST_FUNCTIONS] {
            let all: std::collections::BTreeSet<Bdf> =
                (0..count).map(|position| address_inside(position, count).unwrap()).collect();
            assert_eq!(all.len(), count, "each its own");
            assert!(all.iter().all(|bdf| (4..30).contains(&bdf.device())));
            // Whatever has more than one function has a function 0.
            assert!(all.iter().all(|bdf| all.contains(&Bdf::new(0, RoutingId(bdf.routing_id().0 & !7)))));
        }
        assert_eq!(address_inside(0, MOST_FUNCTIONS + 1), None);
    }
}
