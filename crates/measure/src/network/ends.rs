//! The two ends of a measurement, and where each is.

use std::{collections::BTreeSet, net::Ipv4Addr};

use penstock_model::{
    EndpointName, Mac,
    measurement::{End, Network, PathKind, Tool},
    verdict::Vantage,
};

use super::survey::Survey;
use crate::{
    matrix::Planned,
    testbed::{FunctionInterface, Testbed},
};

/// Two ends and what the traffic between them crosses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// What it crosses.
    pub path: PathKind,
    /// Where the client runs.
    pub client: End,
    /// Where the server runs.
    pub server: End,
}

impl Pair {
    /// The pair of a network measurement.
    pub fn of(network: &Network) -> Pair {
        Pair { path: network.path, client: network.client.clone(), server: network.server.clone() }
    }

    /// Both ends, the client's first.
    pub fn ends(&self) -> [&End; 2] {
        [&self.client, &self.server]
    }

    /// Whether an end is a veth that is made for the run, and what is named is its bridge's uplink, if anything.
    pub fn is_veth(&self, end: &End) -> bool {
        let of_model = || end.function.as_ref().and_then(EndpointName::of_model);
        let pf = || of_model().is_none_or(|function| function.vf.is_none());
        match self.path {
            PathKind::Bridge => true,
            PathKind::BridgeAcross => end.place != Vantage::Host && pf(),
            PathKind::VethVeth | PathKind::VethHost => end.place != Vantage::Host,
            _ => false,
        }
    }

    /// The NIC of a container, or the function of a VM's own NIC at taps, by whose bridge the path leads, where it leads by one of the
    /// host's own.
    pub fn port(&self) -> Option<&EndpointName> {
        let at_taps = self.path.is_of_vm_nic() && self.server.function.is_none();
        self.client.function.as_ref().filter(|_| self.path.is_of_ports() || at_taps)
    }

    /// Whether an end is the host at that bridge.
    pub fn is_at_bridge(&self, end: &End) -> bool {
        end.place == Vantage::Host && self.port().is_some()
    }

    /// Whether links are made on the host for it.
    pub fn makes_links(&self) -> bool {
        self.path.is_bridge() && !self.path.is_of_vm_nic()
    }
}

/// The pairs of these cells in their order, each with the tools that are to be used between them.
pub fn pairs(cells: &[Planned]) -> Vec<(Pair, BTreeSet<Tool>)> {
    let mut pairs: Vec<(Pair, BTreeSet<Tool>)> = Vec::new();
    for cell in cells {
        let Some(network) = cell.measurement.network() else { continue };
        let pair = Pair::of(network);
        let tool = cell.measurement.tool;
        match pairs.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, tools)) => drop(tools.insert(tool)),
            None => pairs.push((pair, [tool].into())),
        }
    }
    pairs
}

/// An end with its interface and address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressedEnd {
    /// Where it is.
    pub place: Vantage,
    /// What people call it: "NET0#3 inside pf0".
    pub name: String,
    /// Its interface there.
    pub interface: String,
    /// Its MAC address.
    pub mac: Mac,
    /// Its address for the run.
    pub address: Ipv4Addr,
}

/// The name and MAC address of the interface of an end's function, once its link is seen to be up.
///
/// # Errors
/// In words, when it is not there or down.
pub fn interface(testbed: &Testbed, end: &End, survey: &Survey) -> Result<(String, Mac), String> {
    let function = end.function.as_ref().ok_or_else(|| format!("{end} has no function"))?;
    linked(testbed.function_interface(function)?, name_of(testbed, end), survey)
}

/// The same of the host's end of the bridge that a container's NIC leads to.
///
/// # Errors
/// In words, when it is not there or down.
pub fn bridge(testbed: &Testbed, nic: &EndpointName, survey: &Survey) -> Result<(String, Mac), String> {
    let bridge = testbed.bridge(nic)?;
    linked(bridge, format!("{} on the host", bridge.interface), survey)
}

fn linked(
    function_interface: &FunctionInterface,
    name: String,
    survey: &Survey,
) -> Result<(String, Mac), String> {
    let interface = function_interface.interface.to_string();
    let Some(state) = survey.links.get(&interface) else {
        return Err(format!("{name} is not there any more: there is no interface {interface}"));
    };
    if !state.up {
        return Err(format!("path is down: {name} is not up (ip link set {interface} up)"));
    }
    if state.carrier.or(function_interface.carrier) == Some(false) {
        return Err(format!("path is down: {name} has no carrier"));
    }
    Ok((interface, function_interface.mac))
}

/// What people call an end of a pair.
pub fn called(testbed: &Testbed, pair: &Pair, end: &End) -> String {
    if pair.path.is_from_container_in_vm() && *end == pair.client {
        let place =
            testbed.place(&end.place).map_or_else(|_| end.place.to_string(), |place| place.describe());
        return format!("the container of {} {place}", pair.path);
    }
    if let Some(Ok(bridge)) = pair.port().filter(|_| pair.is_at_bridge(end)).map(|nic| testbed.bridge(nic)) {
        return format!("{} on the host", bridge.interface);
    }
    let veth = End { function: None, ..end.clone() };
    name_of(testbed, if pair.is_veth(end) { &veth } else { end })
}

fn name_of(testbed: &Testbed, end: &End) -> String {
    let place = match (&end.place, testbed.place(&end.place)) {
        (Vantage::Host, _) => "on the host".to_owned(),
        (_, Ok(place)) => place.describe(),
        (Vantage::Guest(guest), Err(_)) => format!("inside {guest}"),
    };
    match &end.function {
        Some(function) => format!("{function} {place}"),
        None => format!("the veth {place}"),
    }
}
