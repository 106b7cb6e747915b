//! The lines of an adopted model.

use std::fmt::Write;

use penstock_model::{
    Bdf, Boot, ByteSize, DiskFormat, Firmware, GuestName, Inside, InterfaceRoute, Inventory, Mac, Mtu,
    NicMatch, READY_WITHIN, VfKey, VfSettings, VfValue, Vm,
    inventory::{EswitchMode, KnownMode, Pf, SwitchMode, VfState},
    yaml::{FlowMapping, flow_list, quoted},
};

use super::{Adopted, AdoptedDrive, Draft, Form, checks_by_default};
use crate::{
    action::{GuestDefinition, GuestFunction},
    drivers::VFIO,
};

/// Whether a machine may be called so.
pub fn is_word(text: &str) -> bool {
    text.parse::<GuestName>().is_ok()
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Appends the model's entry of a NIC to `out`.
pub fn nic(adopted: &Adopted<'_>, matching: NicMatch, out: &mut String) {
    let pf = adopted.pf;
    let mut known = FlowMapping::default();
    known.maybe("mac", matching.mac.map(|mac| quoted(&mac.to_string())));
    known.maybe("bdf", matching.bdf.map(|bdf| quoted(&bdf.to_string())));
    let _ = writeln!(out, "  {}:\n    match: {}", adopted.name, known.line());
    let count = pf.sriov.as_ref().map_or(0, |sriov| sriov.num_vfs);
    if adopted.form == Form::External {
        out.push_str("    externally_managed: true\n");
    }
    let usable = pf.driver.as_deref().is_some_and(|driver| crate::drivers::known(driver).is_some());
    let _ = writeln!(out, "    vfs: {}", if usable { count } else { 0 });
    if adopted.form == Form::External {
        return;
    }
    match pf.switch_mode {
        SwitchMode::Veb => out.push_str("    loopback: on\n"),
        SwitchMode::Vepa => out.push_str("    loopback: off\n"),
        SwitchMode::Switchdev | SwitchMode::Unreported => {}
    }
    if pf.known_mode() == KnownMode::Is(EswitchMode::Switchdev) {
        out.push_str("    eswitch: switchdev\n");
    }
    if let Some(found) = &pf.interface {
        let _ = writeln!(out, "    interface: {}", quoted(found.name.as_str()));
        if let Some(mtu) = Mtu::new(found.mtu) {
            let _ = writeln!(out, "    mtu: {mtu}");
        }
        let kept = found.addresses.iter().filter(|address| !address.is_kernel_made());
        let addresses: Vec<String> = kept.map(|address| quoted(&address.to_string())).collect();
        if !addresses.is_empty() && adopted.form == Form::Whole {
            let _ = writeln!(out, "    addresses: {}", flow_list(addresses.into_iter()));
        }
    }
    let defaults = FlowMapping::from(&adopted.defaults);
    if !defaults.is_empty() {
        let _ = writeln!(out, "    defaults: {}", defaults.line());
    }
    if let Some(driver) = adopted.free {
        let _ = writeln!(out, "    free: {{driver: {}}}", driver.name());
    }
}

/// Appends the model's entry of a drive to `out`: by its serial number, where no other drive has it.
pub fn drive(adopted: &AdoptedDrive<'_>, inventory: &Inventory, out: &mut String) {
    let found = adopted.found;
    let serial = found.serial.as_deref().filter(|serial| !serial.trim().is_empty());
    let alone = inventory.nvme.iter().filter(|other| other.serial == found.serial).count() == 1;
    let mut known = FlowMapping::default();
    match serial.filter(|_| alone) {
        Some(serial) => known.put("serial", quoted(serial)),
        None => known.put("bdf", quoted(&found.bdf.to_string())),
    }
    let count = found.sriov.as_ref().map_or(0, |sriov| sriov.num_vfs);
    let _ = writeln!(out, "  {}:\n    match: {}\n    vfs: {count}", adopted.name, known.line());
}

/// What a guest has of drives: each VF with its namespaces and its queues.
fn drives_of(draft: &Draft<'_>, functions: &[Bdf]) -> Vec<String> {
    let entry = |function: &Bdf| {
        let (found, named) = draft.drive_vf(*function)?;
        let mut entry = FlowMapping::default();
        entry.put("vf", quoted(&named.to_string()));
        let told = found.virtualization.as_ref();
        if let Some((told, secondary)) = told.and_then(|told| Some((told, told.of_vf(named.vf)?))) {
            let all = told.namespaces.iter();
            let has = all.filter(|(_, space)| space.controllers.contains(&secondary.controller));
            let has: Vec<String> = has.map(|(namespace, _)| namespace.to_string()).collect();
            if !has.is_empty() {
                entry.put("namespaces", flow_list(has.into_iter()));
            }
            entry.maybe("queues", secondary.queues.checked_sub(1).filter(|queues| *queues > 0));
        }
        Some(entry.line())
    };
    functions.iter().filter_map(entry).collect()
}

/// What a VF has that its PF's driver did not give it by itself.
pub fn not_default(pf: &Pf, state: &VfState) -> VfSettings {
    let tagged = state.vlan.get() != 0;
    let mut own = state.settings();
    own.retain(|key, value| match key {
        VfKey::Mac => false,
        VfKey::Qos | VfKey::VlanProto if !tagged => false,
        VfKey::Spoofchk => value != VfValue::Switch(checks_by_default(pf)),
        // A limit of none says something beside a guaranteed rate.
        VfKey::MaxTxRate if state.min_tx_rate.0 != 0 => true,
        _ => value != key.unset(),
    });
    own
}

/// What all VFs of a PF have that is no default.
pub fn in_common(pf: &Pf) -> VfSettings {
    let states = pf.sriov.iter().flat_map(|sriov| &sriov.vfs).filter_map(|vf| vf.present.as_ref());
    let mut all = states.map(|present| present.attributes.as_ref().map(|state| not_default(pf, state)));
    let Some(Some(mut common)) = all.next() else { return VfSettings::default() };
    for other in all {
        let Some(other) = other else { return VfSettings::default() };
        common = without(&common, &other, true);
    }
    // A tag's parts and the two rates travel together.
    if common.vlan.is_none() {
        (common.qos, common.vlan_proto) = (None, None);
    }
    common
}

/// Those of `one` that `other` has too (`alike`), or has not.
fn without(one: &VfSettings, other: &VfSettings, alike: bool) -> VfSettings {
    let mut left = one.clone();
    left.retain(|key, value| (other.get(key) == Some(value)) == alike);
    left
}

/// A guest of ours that runs.
pub fn guest(draft: &Draft<'_>, name: &GuestName, out: &mut String) {
    let definition = draft.sight.definitions.get(name);
    let found = &draft.sight.inventory.guests[name];
    let by_vfio = || found.functions.iter().any(|function| driver(draft, *function) == Some(VFIO));
    let is_vm = definition.map_or_else(by_vfio, |definition| definition.vm.is_some());
    let _ = writeln!(out, "  {name}:\n    kind: {}", if is_vm { "vm" } else { "container" });
    if let Some(definition) = definition {
        of_definition(definition, out);
    }
    out.push_str("    functions:\n");
    let mut any = false;
    for (position, function) in found.functions.iter().enumerate() {
        let owned = definition
            .and_then(|definition| definition.functions.iter().find(|owned| owned.function == *function));
        let Some((adopted, named)) = draft.name_of(*function) else { continue };
        any = true;
        let mut entry = FlowMapping::default();
        let key = if named.vf.is_some() { "vf" } else { "pf" };
        entry.put(key, quoted(&named.to_string()));
        let vf = named.vf.and_then(|index| adopted.pf.sriov.as_ref()?.vf(index));
        let state = vf.and_then(|vf| vf.present.as_ref()?.attributes.as_ref());
        if adopted.form != Form::External {
            let mut own = state.map(|state| not_default(adopted.pf, state)).unwrap_or_default();
            let (vlan, max) = (own.vlan, own.max_tx_rate);
            own = without(&own, &adopted.defaults, false);
            // Half of a tag or of a pair of rates would reset the other half.
            if own.qos.is_some() || own.vlan_proto.is_some() {
                own.vlan = vlan;
            }
            if own.min_tx_rate.is_some() {
                own.max_tx_rate = max;
            }
            let given = vf.and_then(|vf| vf.given_mac()).or(owned.and_then(|owned| owned.mac));
            let derived = named.vf.zip(adopted.pf.permanent_mac).map(|(vf, pf)| Mac::derived(pf, vf));
            own.mac = given.filter(|mac| derived.is_some_and(|derived| derived != *mac));
            entry.append(FlowMapping::from(&own));
        } else {
            entry.maybe("mac", vf.and_then(|vf| vf.given_mac()).map(|mac| quoted(&mac.to_string())));
        }
        entry.append(owned.map(|owned| inside(owned, position)).unwrap_or_default());
        let _ = writeln!(out, "      - {}", entry.line());
    }
    if !any {
        out.truncate(out.len() - "    functions:\n".len());
    }
    let drives = drives_of(draft, &found.functions);
    if !drives.is_empty() {
        let _ = writeln!(out, "    drives:\n      - {}", drives.join("\n      - "));
    }
}

fn driver<'d>(draft: &'d Draft<'_>, function: penstock_model::Bdf) -> Option<&'d str> {
    let mut vfs =
        draft.sight.inventory.sriov().flat_map(|(_, sriov)| &sriov.vfs).filter(|vf| vf.bdf == function);
    vfs.find_map(|vf| vf.present.as_ref()?.driver.as_deref())
}

/// How a function is inside its guest.
fn inside(owned: &GuestFunction, position: usize) -> FlowMapping {
    let mut all = FlowMapping::default();
    if owned.interface.as_str() != format!("eth{position}") {
        all.put("interface", quoted(owned.interface.as_str()));
    }
    if !owned.addresses.is_empty() || owned.dhcp {
        let asked = owned.dhcp.then(|| "dhcp".to_owned());
        let fixed = owned.addresses.iter().map(|address| quoted(&address.to_string()));
        all.put("addresses", flow_list(asked.into_iter().chain(fixed)));
    }
    if !owned.routes.is_empty() {
        all.put("routes", flow_list(owned.routes.iter().map(route)));
    }
    all.maybe("mtu", owned.mtu);
    all.maybe("egress_rate", owned.egress_rate.map(|rate| rate.0));
    all.maybe("ingress_rate", owned.ingress_rate.map(|rate| rate.0));
    all
}

/// A route inside a guest, as a model has it.
fn route(route: &InterfaceRoute) -> String {
    let mut all = FlowMapping::default();
    let to = match (route.destination.prefix(), route.gateway) {
        (0, Some(_)) => "default".to_owned(),
        _ => route.destination.to_string(),
    };
    all.put("to", quoted(&to));
    all.maybe("via", route.gateway.map(|via| quoted(&via.to_string())));
    all.maybe("metric", route.priority);
    format!("{{{}}}", all.into_entries().join(", "))
}

fn of_definition(definition: &GuestDefinition, out: &mut String) {
    let mut line = |key: &str, value: String| {
        let _ = writeln!(out, "    {key}: {value}");
    };
    if let Some(cpus) = definition.cpus {
        line("cpus", cpus.to_string());
    }
    if let Some(memory) = definition.memory {
        line("memory", quoted(&ByteSize(memory).to_string()));
    }
    if let Some(pin) = definition.pin.as_ref().filter(|pin| !pin.0.is_empty()) {
        line("pin", quoted(&pin.to_string()));
    }
    if let Some(root) = &definition.root {
        line("root", quoted(root));
    }
    if let Some(dns) = &definition.dns {
        let mut entry = FlowMapping::default();
        entry.put("servers", flow_list(dns.servers.iter().map(|server| quoted(&server.to_string()))));
        if !dns.search.is_empty() {
            entry.put("search", flow_list(dns.search.iter().map(|domain| quoted(domain.as_str()))));
        }
        line("dns", entry.line());
    }
    if !definition.init.is_empty() {
        line("init", flow_list(definition.init.iter().map(|word| quoted(word))));
    }
    if definition.privileged {
        line("privileged", switch(true).to_owned());
    }
    let devices = definition.devices.iter().map(|device| {
        let mut entry = FlowMapping::default();
        entry.put("path", quoted(&device.path));
        entry.put("inside", quoted(&device.inside));
        entry.put("write", switch(device.write));
        entry.line()
    });
    if !definition.devices.is_empty() {
        line("devices", flow_list(devices));
    }
    if let Some(vm) = &definition.vm {
        of_vm(vm, &mut line);
    }
}

fn of_vm(vm: &Vm, line: &mut impl FnMut(&str, String)) {
    match &vm.boot {
        Boot::Builtin => {}
        Boot::Kernel { kernel, initramfs } => {
            let mut entry = FlowMapping::default();
            entry.put("kernel", quoted(kernel));
            entry.maybe("initramfs", initramfs.as_deref().map(quoted));
            line("boot", entry.line());
        }
        Boot::Disk { path, format } => {
            let mut entry = FlowMapping::default();
            entry.put("disk", quoted(path));
            let qcow2 = *format == DiskFormat::Qcow2;
            entry.maybe("format", qcow2.then_some("qcow2"));
            line("boot", entry.line());
        }
    }
    if let Some(more) = &vm.command_line {
        line("command_line", quoted(more));
    }
    if vm.firmware == Firmware::Uefi {
        line("firmware", "uefi".to_owned());
    }
    if vm.locked_memory {
        line("locked_memory", "on".to_owned());
    }
    if let Some(size) = vm.huge_pages {
        line("huge_pages", quoted(&size.to_string()));
    }
    match vm.inside {
        Inside::Agent => {}
        Inside::Console => line("inside", "console".to_owned()),
        Inside::None => line("inside", "none".to_owned()),
    }
    if vm.ready_within != READY_WITHIN {
        line("ready_within", vm.ready_within.to_string());
    }
}
