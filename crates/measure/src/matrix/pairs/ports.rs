//! Between which NICs that containers own a path is measured. Each is the port of an embedded switch of its own, whose uplink is in a
//! Linux bridge of the host (`docs/container-nics.md`): those in one bridge and one VLAN reach each other, and the host's end of the
//! bridge is in no VLAN.

use penstock_model::{
    BridgePort, EndpointName, Model, TenantFunctionName,
    measurement::{End, EndKind},
    verdict::Vantage,
};

/// The NIC as an end of what is measured.
fn end(port: &BridgePort<'_>) -> End {
    let place = Vantage::Guest(port.guest.clone());
    End { place, kind: EndKind::Container, function: Some(port.function().into()) }
}

/// The VLAN, in words.
fn vlan(port: &BridgePort<'_>) -> String {
    port.vlan.map_or_else(|| "no VLAN".to_owned(), |vlan| format!("VLAN {vlan}"))
}

/// Whether `max_tx_rate` is what would be measured.
fn is_limited(port: &BridgePort<'_>) -> bool {
    port.nic.settings.max_tx_rate.is_some_and(|rate| rate.0 > 0)
}

/// All of a model, those that are limited last.
fn ports(model: &Model) -> Vec<BridgePort<'_>> {
    let mut ports: Vec<BridgePort<'_>> = model.bridge_ports().collect();
    ports.sort_by_key(is_limited);
    ports
}

/// The pairs of different containers' NICs that reach each other.
pub(super) fn joined(model: &Model) -> Vec<(End, End)> {
    let ports = ports(model);
    let mut pairs: Vec<(&BridgePort<'_>, &BridgePort<'_>)> = Vec::new();
    for (at, one) in ports.iter().enumerate() {
        pairs.extend(ports[at + 1..].iter().filter(|other| one.reaches(other)).map(|other| (one, other)));
    }
    pairs.sort_by_key(|(one, other)| usize::from(is_limited(one)) + usize::from(is_limited(other)));
    pairs.into_iter().map(|(one, other)| (end(one), end(other))).collect()
}

/// The NICs that reach the host, with the host's end of their bridge.
pub(super) fn to_the_host(model: &Model) -> Vec<(End, End)> {
    let host = End { place: Vantage::Host, kind: EndKind::Host, function: None };
    let ports = ports(model);
    ports.iter().filter(|port| port.reaches_host()).map(|port| (end(port), host.clone())).collect()
}

/// Why no two of them reach each other.
pub(super) fn why_none_joined(model: &Model) -> String {
    let ports = ports(model);
    let pairs = || {
        let each = ports.iter().enumerate();
        each.flat_map(|(at, one)| ports[at + 1..].iter().map(move |other| (one, other)))
            .filter(|(one, other)| one.guest != other.guest)
    };
    let at_one_bridge = pairs().find(|(one, other)| one.bridge == other.bridge);
    let Some((one, other)) = at_one_bridge.or_else(|| pairs().next()) else {
        return "it takes NICs of two containers, each the port of an embedded switch (nics), at one bridge of the host".to_owned();
    };
    let (a, b) = (end(one), end(other));
    if one.bridge != other.bridge {
        return format!(
            "no two containers' NICs are at one bridge: {a} is at {}, {b} at {}",
            one.bridge, other.bridge
        );
    }
    format!("no two containers' NICs are in one VLAN: {a} is in {}, {b} in {}", vlan(one), vlan(other))
}

/// Whether the switch of a container's NIC holds it to its address.
pub(super) fn is_checked(model: &Model, end: &End) -> bool {
    let Some(EndpointName::Tenant(TenantFunctionName { guest, function })) = &end.function else {
        return false;
    };
    let nic = model.guests.get(guest).and_then(|guest| guest.nics.get(&function.nic));
    nic.is_some_and(|nic| nic.settings.spoofchk == Some(true))
}

/// Why none of them is compared with a veth to the host.
pub(super) fn why_no_veth_to_the_host(model: &Model) -> String {
    if to_the_host(model).is_empty() {
        return why_none_to_the_host(model);
    }
    "every container's NIC that reaches the host has a spoof check (spoofchk: on), and with a veth in the bridge its container would \
     get round that"
        .to_owned()
}

/// Why none of them reaches the host.
pub(super) fn why_none_to_the_host(model: &Model) -> String {
    match ports(model).first() {
        None => {
            "it takes a container with a NIC of its own, the port of an embedded switch (nics)".to_owned()
        }
        Some(port) => format!(
            "every container's NIC is in a VLAN ({} in {}), and the host's end of its bridge, {}, is in none",
            end(port),
            vlan(port),
            port.bridge
        ),
    }
}
