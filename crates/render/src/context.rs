//! What templates can name. `docs/templates.md` describes every field; a test compares the two.

use std::collections::{BTreeMap, HashMap};

use indexmap::IndexMap;
use minijinja::{Value, value::Serde};
use penstock_model::{
    Bdf, Diagnostic, Diagnostics, Function, FunctionName, Guest, GuestKind, GuestName, InterfaceAddress,
    InterfaceRoute, Mac, Model, Nic, NicName, Path, VfIndex, VlanId, inventory::Pf,
};
use serde::Serialize;

use super::{FoundMachine, GenerateError};

/// A function's MAC address and its place on the machine.
#[derive(Clone, Copy)]
struct FunctionAddresses {
    mac: Option<Mac>,
    bdf: Option<Bdf>,
}

/// What is known of all functions of the model.
pub struct Known {
    addresses: HashMap<FunctionName, FunctionAddresses>,
}

impl Known {
    /// Finds the MAC address of every function that a guest owns and of every VF.
    ///
    /// # Errors
    ///
    /// [`GenerateError::Unknown`] with each NIC of which a function's MAC address is not known.
    pub fn of(model: &Model, found: Option<FoundMachine<'_>>) -> Result<Known, GenerateError> {
        let mut addresses = HashMap::new();
        let mut messages = Vec::new();
        let mut given: HashMap<&NicName, Mac> = HashMap::new();
        let mut owned: HashMap<&NicName, &GuestName> = HashMap::new();
        for (guest, owner) in &model.guests {
            for function in owner.functions.iter().filter(|function| function.name.vf.is_none()) {
                owned.insert(&function.name.nic, guest);
                given.extend(function.settings.mac.map(|mac| (&function.name.nic, mac)));
            }
        }
        for (name, nic) in &model.nics {
            let pf = found.and_then(|found| found.inventory.pf(*found.nics.get(name)?));
            let permanent = pf.and_then(|pf| pf.permanent_mac).or(nic.matching.mac);
            let own = given.get(name).copied().or(permanent);
            let bdf = pf.map(|pf| pf.bdf);
            addresses
                .insert(FunctionName { nic: name.clone(), vf: None }, FunctionAddresses { mac: own, bdf });
            let mut lacking = (own.is_none() && owned.contains_key(name)).then(|| name.to_string());
            for (index, settings) in model.vfs(name) {
                let function = FunctionName { nic: name.clone(), vf: Some(index) };
                let mac =
                    nic.vf_mac(settings.mac, permanent, index).or_else(|| given_outside(nic, pf?, index));
                if mac.is_none() && lacking.is_none() {
                    lacking = Some(function.to_string());
                }
                let bdf = pf.and_then(|pf| vf_address(pf, index));
                addresses.insert(function, FunctionAddresses { mac, bdf });
            }
            messages.extend(lacking.map(|function| unknown(name, &function, found.is_some())));
        }
        if messages.is_empty() {
            Ok(Known { addresses })
        } else {
            Err(GenerateError::Unknown(Diagnostics(messages)))
        }
    }

    fn get(&self, function: &FunctionName) -> FunctionAddresses {
        self.addresses.get(function).copied().unwrap_or(FunctionAddresses { mac: None, bdf: None })
    }
}

/// The address that a VF was given by whoever manages its NIC.
fn given_outside(nic: &Nic, pf: &Pf, index: VfIndex) -> Option<Mac> {
    pf.sriov.as_ref().filter(|_| nic.externally_managed)?.vf(index)?.given_mac()
}

fn vf_address(pf: &Pf, index: VfIndex) -> Option<Bdf> {
    Some(pf.sriov.as_ref()?.vf(index)?.bdf)
}

/// The message that a MAC address is not known, and what to do.
fn unknown(nic: &NicName, function: &str, machine: bool) -> Diagnostic {
    let why = match function == nic.as_str() {
        true => format!("files are to be made, and the MAC address of {nic}'s PF is not known"),
        false => format!(
            "files are to be made, and the MAC address of {function} is not known: it is derived from that of {nic}'s PF"
        ),
    };
    let known = "say in the model which PF it is: `match: {mac: ...}`";
    let hint = match machine {
        true => known.to_owned(),
        false => format!("render for a machine, with --here or --inventory FILE, or {known}"),
    };
    Diagnostic::error(Path::of(["nics", nic.as_str()]), why).with_hint(hint)
}

/// What all guests' templates can name, made once.
pub struct Contexts<'a> {
    machine: &'a str,
    nics: Value,
    functions: IndexMap<&'a GuestName, Vec<Value>>,
}

impl<'a> Contexts<'a> {
    pub fn new(model: &'a Model, known: &Known) -> Contexts<'a> {
        let mut owners: HashMap<&FunctionName, (&GuestName, &Function)> = HashMap::new();
        for (guest, owner) in &model.guests {
            owners.extend(owner.functions.iter().map(|function| (&function.name, (guest, function))));
        }
        let nics: Vec<NicView<'_>> =
            model.nics.iter().map(|(name, nic)| NicView::of(model, name, nic, known, &owners)).collect();
        let generating = model.guests.iter().filter(|(_, guest)| !guest.generate.is_empty());
        let functions = generating
            .map(|(name, guest)| {
                let views = guest.functions.iter().enumerate().map(|(index, function)| {
                    let addresses = known.get(&function.name);
                    value(FunctionView::of(index, function, &model.nics[&function.name.nic], addresses))
                });
                (name, views.collect())
            })
            .collect();
        Contexts { machine: &model.machine, nics: value(nics), functions }
    }

    /// What a template of `guest` can name; one that makes a file for one function has that as `function`.
    pub fn of(&self, name: &GuestName, guest: &Guest, function: Option<usize>) -> Value {
        let functions = self.functions.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut names = BTreeMap::from([
            ("machine", Value::from(self.machine)),
            ("guest", value(GuestView::of(name, guest))),
            ("functions", Value::from(functions.to_vec())),
            ("nics", self.nics.clone()),
        ]);
        names.extend(function.and_then(|at| functions.get(at)).map(|view| ("function", view.clone())));
        Value::from(names)
    }
}

fn value<T: Serialize>(view: T) -> Value {
    Value::from(Serde(view))
}

#[derive(Serialize)]
struct GuestView<'a> {
    name: &'a str,
    kind: GuestKind,
    cpus: Option<u32>,
    memory: Option<u64>,
    pin: Option<String>,
    dns: Option<DnsView>,
}

#[derive(Serialize)]
struct DnsView {
    servers: Vec<String>,
    search: Vec<String>,
}

impl<'a> GuestView<'a> {
    fn of(name: &'a GuestName, guest: &Guest) -> GuestView<'a> {
        GuestView {
            name: name.as_str(),
            kind: guest.kind,
            cpus: guest.cpus,
            memory: guest.memory.map(|size| size.0),
            pin: guest.pin.as_ref().map(ToString::to_string),
            dns: guest.dns.as_ref().map(|dns| DnsView {
                servers: dns.servers.iter().map(ToString::to_string).collect(),
                search: dns.search.iter().map(ToString::to_string).collect(),
            }),
        }
    }
}

#[derive(Serialize)]
struct FunctionView<'a> {
    index: usize,
    name: String,
    kind: &'static str,
    nic: &'a str,
    vf: Option<u16>,
    interface: &'a str,
    mac: Option<String>,
    mac_bytes: Option<[u8; 6]>,
    addresses: Vec<AddressView>,
    dhcp: bool,
    routes: Vec<RouteView>,
    mtu: Option<u32>,
    vlan: Option<u16>,
    loopback: Option<bool>,
    bdf: Option<String>,
    routing_id: Option<u16>,
}

impl<'a> FunctionView<'a> {
    fn of(index: usize, function: &'a Function, nic: &Nic, addresses: FunctionAddresses) -> FunctionView<'a> {
        FunctionView {
            index,
            name: function.name.to_string(),
            kind: if function.name.vf.is_some() { "vf" } else { "pf" },
            nic: function.name.nic.as_str(),
            vf: function.name.vf.map(|vf| vf.get()),
            interface: function.interface.as_str(),
            mac: addresses.mac.map(|mac| mac.to_string()),
            mac_bytes: addresses.mac.map(Mac::octets),
            addresses: function.addresses.iter().copied().map(AddressView::of).collect(),
            dhcp: function.dhcp,
            routes: function.routes.iter().map(RouteView::of).collect(),
            mtu: function.mtu.map(|mtu| mtu.get()),
            vlan: port_vlan(function.settings.vlan),
            loopback: nic.loopback,
            bdf: addresses.bdf.map(|bdf| bdf.to_string()),
            routing_id: addresses.bdf.map(|bdf| bdf.routing_id().0),
        }
    }
}

/// A port VLAN; id 0 is none.
fn port_vlan(vlan: Option<VlanId>) -> Option<u16> {
    vlan.map(VlanId::get).filter(|id| *id != 0)
}

#[derive(Serialize)]
struct AddressView {
    text: String,
    ip: String,
    prefix: u8,
    family: u8,
    bytes: Vec<u8>,
}

impl AddressView {
    fn of(address: InterfaceAddress) -> AddressView {
        use std::net::IpAddr;
        let (family, bytes) = match address.ip() {
            IpAddr::V4(ip) => (4, ip.octets().to_vec()),
            IpAddr::V6(ip) => (6, ip.octets().to_vec()),
        };
        AddressView {
            text: address.to_string(),
            ip: address.ip().to_string(),
            prefix: address.prefix(),
            family,
            bytes,
        }
    }
}

#[derive(Serialize)]
struct RouteView {
    /// Where it leads: a network; `0.0.0.0/0` and `::/0` are everywhere.
    to: String,
    via: Option<String>,
    metric: Option<u32>,
}

impl RouteView {
    fn of(route: &InterfaceRoute) -> RouteView {
        RouteView {
            to: route.destination.to_string(),
            via: route.gateway.map(|via| via.to_string()),
            metric: route.priority,
        }
    }
}

#[derive(Serialize)]
struct NicView<'a> {
    name: &'a str,
    mac: Option<String>,
    mac_bytes: Option<[u8; 6]>,
    mtu: Option<u32>,
    loopback: Option<bool>,
    bdf: Option<String>,
    owner: Option<&'a str>,
    vfs: Vec<VfView<'a>>,
}

impl<'a> NicView<'a> {
    fn of(
        model: &'a Model,
        name: &'a NicName,
        nic: &'a Nic,
        known: &Known,
        owners: &HashMap<&FunctionName, (&'a GuestName, &'a Function)>,
    ) -> NicView<'a> {
        let own = FunctionName { nic: name.clone(), vf: None };
        let addresses = known.get(&own);
        let vfs = model.vfs(name).map(|(index, settings)| {
            let function = FunctionName { nic: name.clone(), vf: Some(index) };
            let addresses = known.get(&function);
            let owner = owners.get(&function);
            VfView {
                name: function.to_string(),
                vf: index.get(),
                mac: addresses.mac.map(|mac| mac.to_string()),
                mac_bytes: addresses.mac.map(Mac::octets),
                vlan: port_vlan(settings.vlan),
                bdf: addresses.bdf.map(|bdf| bdf.to_string()),
                owner: owner.map(|(guest, _)| guest.as_str()),
                interface: owner.map(|(_, function)| function.interface.as_str()),
            }
        });
        NicView {
            name: name.as_str(),
            mac: addresses.mac.map(|mac| mac.to_string()),
            mac_bytes: addresses.mac.map(Mac::octets),
            mtu: nic.mtu.map(|mtu| mtu.get()),
            loopback: nic.loopback,
            bdf: addresses.bdf.map(|bdf| bdf.to_string()),
            owner: owners.get(&own).map(|(guest, _)| guest.as_str()),
            vfs: vfs.collect(),
        }
    }
}

#[derive(Serialize)]
struct VfView<'a> {
    name: String,
    vf: u16,
    mac: Option<String>,
    mac_bytes: Option<[u8; 6]>,
    vlan: Option<u16>,
    bdf: Option<String>,
    owner: Option<&'a str>,
    interface: Option<&'a str>,
}
