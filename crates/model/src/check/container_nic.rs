//! NICs that containers own: each is one function, a vDPA device of the host's kernel that is the port of an embedded switch, whose
//! uplink is a port of a Linux bridge.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::{AllWritten, Subject, address, guest_addresses, nic, route, taps, tenant, tenant::Written};
use crate::{
    DataPath, Emulation, FunctionName, GuestKind, GuestName, InterfaceAddress, InterfaceName, Mac, Nic,
    NicName, TenantFunctionName, TenantNic,
    diagnostic::{Diagnostic, Path},
    document::{DataPathEntry, TenantNicDocument},
};

/// An IP address that is written for a NIC.
pub(super) struct WrittenAddress {
    pub(super) guest: GuestName,
    pub(super) nic: NicName,
    pub(super) address: InterfaceAddress,
    pub(super) path: Path,
}

/// The NICs of the container `guest` as they were written.
pub(super) fn build(
    machine: &str,
    guest: &GuestName,
    documents: IndexMap<NicName, TenantNicDocument>,
    nics: &IndexMap<NicName, Nic>,
    written: &mut AllWritten,
    messages: &mut Vec<Diagnostic>,
) -> IndexMap<NicName, TenantNic> {
    let path = Path::of(["guests", guest.as_str(), "nics"]);
    let built = documents.into_iter().map(|(name, document)| {
        let path = path.join(name.as_str());
        let nic = build_nic(machine, guest, &name, document, nics, &path, written, messages);
        (name, nic)
    });
    built.collect()
}

#[allow(clippy::too_many_arguments, reason = "who it is, what is written, and where both go")]
fn build_nic(
    machine: &str,
    guest: &GuestName,
    name: &NicName,
    document: TenantNicDocument,
    nics: &IndexMap<NicName, Nic>,
    path: &Path,
    written: &mut AllWritten,
    messages: &mut Vec<Diagnostic>,
) -> TenantNic {
    tenant::check_names(guest, name, path, messages);
    check_keys(guest, &document, path, messages);
    if name.as_str().parse::<InterfaceName>().map_or(true, |name| name.as_str() == "lo") {
        let text = format!(
            "{name} cannot be the name of a network interface, and a container's NIC is called so inside"
        );
        let hint = "write up to 15 letters and digits, like `net0`";
        messages.push(Diagnostic::error(path.clone(), text).at_key().with_hint(hint));
    } else if let Some(why) = address::taken_name(name.as_str()) {
        messages.push(Diagnostic::error(path.clone(), why).at_key().with_hint("give the NIC another name"));
    }
    let settings = document.settings();
    nic::check_vlan(&settings, &settings, path, messages);
    let function = FunctionName { nic: name.clone(), vf: None };
    let function = TenantFunctionName { guest: guest.clone(), function };
    written.macs.extend(document.mac.map(|mac| Written { function, mac, path: path.join("mac") }));
    let (all, asked) = guest_addresses(path, &document.address, &document.addresses, messages);
    written.addresses.extend(all.iter().map(|(address, path)| WrittenAddress {
        guest: guest.clone(),
        nic: name.clone(),
        address: *address,
        path: path.clone(),
    }));
    let all: Vec<InterfaceAddress> = all.into_iter().map(|(address, _)| address).collect();
    address::check_mtu(document.mtu, &all, path, messages);
    let who = (guest, GuestKind::Container);
    let routes =
        route::build(who, path, &document.gateway, document.routes, &all, &written.reported, messages);
    let mac: Mac = document.mac.unwrap_or_else(|| TenantNic::derived_mac(machine, guest, name));
    let nic = TenantNic {
        emulation: Emulation::Virtio,
        mac,
        vfs: Vec::new(),
        settings,
        addresses: all,
        routes: route::routes(&routes),
        dhcp: asked.is_some(),
        mtu: document.mtu,
        path: DataPath::VirtioVdpa,
        uplink: taps::bridge(document.uplink, nics, DataPath::VirtioVdpa, path, messages),
        uplink_settings: None,
        queues: 1,
        workers: 1,
        allow: None,
        vf_allow: Default::default(),
    };
    written.routes.extend(routes);
    nic
}

/// What is said of NICs of VMs alone.
fn check_keys(guest: &GuestName, document: &TenantNicDocument, path: &Path, messages: &mut Vec<Diagnostic>) {
    let one = "leave it out: a container's NIC is one function, without VFs";
    let beside = "write what it has beside `uplink`, like `{uplink: br0, vlan: 100, address: 10.0.0.1/24}`";
    let other_path = !matches!(document.path, None | Some(DataPathEntry::Vdpa));
    let given = [
        ("vfs", document.vfs.is_some(), one),
        ("emulation", document.emulation.is_some(), one),
        ("functions", !document.functions.is_empty(), beside),
        (
            "allow",
            document.allow.is_some(),
            "leave it out: the host's kernel does not tell the switch what is set inside",
        ),
        ("queues", document.queues.is_some(), "leave it out: the kernel gives such a device one pair"),
        (
            "workers",
            document.workers.is_some(),
            "leave it out: such a device has one pair of queues to share",
        ),
        ("path", other_path, "leave it out, or write `path: vdpa`: there is no other for a container's NIC"),
    ];
    for (key, _, hint) in given.into_iter().filter(|(_, given, _)| *given) {
        let text = match key {
            "path" => format!("that path is for NICs of VMs, and {guest} is a container"),
            _ => format!("`{key}` is for NICs of VMs, and {guest} is a container"),
        };
        let error = Diagnostic::error(path.join(key), text);
        let error = if key == "path" { error } else { error.at_key() };
        messages.push(error.with_hint(hint));
    }
}

/// What is said of a container's NIC alone, at the NIC of a VM.
pub(super) fn check_vm_keys(
    guest: &GuestName,
    document: &TenantNicDocument,
    data_path: DataPath,
    path: &Path,
    messages: &mut Vec<Diagnostic>,
) {
    let of_vfs = match document.emulation {
        Some(Emulation::Igb) => {
            "leave it out; or write `path: switch`, where it holds for all functions of the igb"
        }
        Some(Emulation::Virtio) | None => "write it for a VF, like `functions: {0: {vlan: 100}}`",
    };
    let inside = "leave it out: what the interfaces inside have, the VM's software says";
    let attributes = [
        ("vlan", document.vlan.is_some(), of_vfs),
        ("qos", document.qos.is_some(), of_vfs),
        ("vlan_proto", document.vlan_proto.is_some(), of_vfs),
        ("spoofchk", document.spoofchk.is_some(), of_vfs),
        ("max_tx_rate", document.max_tx_rate.is_some(), of_vfs),
    ];
    let others = [
        ("address", document.address.is_some(), inside),
        ("addresses", document.addresses.is_some(), inside),
        ("gateway", document.gateway.is_some(), inside),
        ("routes", !document.routes.is_empty(), inside),
        ("mtu", document.mtu.is_some(), inside),
    ];
    // All of an igb is one function to its switch.
    let attributes = attributes.into_iter().filter(|_| data_path != DataPath::SwitchTap);
    for (key, _, hint) in attributes.chain(others).filter(|(_, given, _)| *given) {
        let text = format!("`{key}` is for the one function of a container's NIC, and {guest} is a VM");
        messages.push(Diagnostic::error(path.join(key), text).at_key().with_hint(hint));
    }
}

/// Interfaces of one container with one name.
pub(super) fn check(subject: &mut Subject<'_>) {
    let model = subject.model;
    let interface =
        |owned: &'_ super::Owned| (owned.guest.clone(), owned.function.interface.as_str().to_owned());
    let owned: HashMap<(GuestName, String), &FunctionName> =
        subject.owned.iter().rev().map(|owned| (interface(owned), &owned.function.name)).collect();
    for (guest, name, nic) in model.tenant_nics() {
        let twin = owned.get(&(guest.clone(), name.to_string())).filter(|_| nic.is_of_container());
        if let Some(twin) = twin {
            let path = Path::of(["guests", guest.as_str(), "nics", name.as_str()]);
            let text = format!("{guest} has two interfaces called {name}: {twin} is called so too");
            subject
                .messages
                .push(Diagnostic::error(path, text).at_key().with_hint("give the NIC another name"));
        }
    }
}
