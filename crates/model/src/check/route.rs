//! Routes inside guests.

use std::{collections::HashMap, net::IpAddr};

use super::Subject;
use crate::{
    GuestKind, GuestName, InterfaceAddress, InterfaceRoute,
    diagnostic::{Diagnostic, Path},
    document::{HopAddress, OneOrMany, RouteDocument, RouteTarget},
};

/// A route that is written for an interface inside a guest.
pub(super) struct WrittenRoute {
    guest: GuestName,
    kind: GuestKind,
    /// The interface's own addresses.
    addresses: Vec<InterfaceAddress>,
    route: InterfaceRoute,
    path: Path,
    /// Where its next hop stands, if it has one.
    hop_path: Path,
}

/// The routes over one interface inside a guest, whose keys stand at `path`.
pub(super) fn build(
    (guest, kind): (&GuestName, GuestKind),
    path: &Path,
    gateway: &Option<OneOrMany<HopAddress>>,
    routes: Vec<RouteDocument>,
    addresses: &[InterfaceAddress],
    messages: &mut Vec<Diagnostic>,
) -> Vec<WrittenRoute> {
    let gateways = gateway.iter().flat_map(|list| {
        list.values.iter().enumerate().map(|(position, hop)| {
            let path = path.join("gateway");
            let path = if list.list { path.join(position) } else { path };
            (InterfaceRoute::new(everywhere(hop.0), Some(hop.0)), path.clone(), path)
        })
    });
    let mut built: Vec<(InterfaceRoute, Path, Path)> = gateways.collect();
    for (position, document) in routes.into_iter().enumerate() {
        let path = path.join("routes").join(position);
        match route(&document) {
            Ok(Some(route)) => built.push((route, path.clone(), path.join("via"))),
            Ok(None) => {
                // A target that cannot be read is gone, and has been reported.
                if !messages.iter().any(|message| message.path.0.starts_with(&path.0)) {
                    let hint =
                        "write `to`, a network or `default`, like {to: 198.51.100.0/24, via: 192.0.2.1}";
                    messages.push(Diagnostic::error(path, "this route leads nowhere").with_hint(hint));
                }
            }
            Err((key, text, hint)) => {
                messages.push(Diagnostic::error(path.join(key), text).with_hint(hint));
            }
        }
    }
    let written = |(route, path, hop_path)| WrittenRoute {
        guest: guest.clone(),
        kind,
        addresses: addresses.to_vec(),
        route,
        path,
        hop_path,
    };
    built.into_iter().map(written).collect()
}

/// The routes alone.
pub(super) fn routes(written: &[WrittenRoute]) -> Vec<InterfaceRoute> {
    written.iter().map(|written| written.route.clone()).collect()
}

/// All addresses of the family of `hop`.
fn everywhere(hop: IpAddr) -> InterfaceAddress {
    let text = if hop.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    text.parse().expect("it is an address")
}

/// A route as it is written, `None` without a target; else the key that is wrong, why, and what to do.
fn route(document: &RouteDocument) -> Result<Option<InterfaceRoute>, (&'static str, String, String)> {
    let hop = document.via.map(|hop| hop.0);
    let Some(to) = document.to else { return Ok(None) };
    let destination = match (to, hop) {
        (RouteTarget::Default, None) => {
            let hint = "write `via`, the address of the gateway; its family says which addresses are meant";
            return Err(("to", "a default route has to lead over a gateway".to_owned(), hint.to_owned()));
        }
        (RouteTarget::Default, Some(hop)) => everywhere(hop),
        (RouteTarget::Network(network), _) => network,
    };
    if destination.network() != destination.ip() {
        let text = format!("{destination} is an address in a network, and not the network");
        return Err(("to", text, format!("write {}/{}", destination.network(), destination.prefix())));
    }
    if let Some(hop) = hop.filter(|hop| hop.is_ipv4() != destination.ip().is_ipv4()) {
        let text = format!("{destination} cannot be reached over {hop}, an address of the other family");
        return Err(("via", text, "write a gateway of the same family as `to`".to_owned()));
    }
    if destination.ip().is_multicast() {
        let hint = "leave it out: routes are for frames to one receiver".to_owned();
        return Err(("to", format!("{destination} is a multicast network"), hint));
    }
    Ok(Some(InterfaceRoute { priority: document.metric, ..InterfaceRoute::new(destination, hop) }))
}

/// Gateways that nothing leads to, and routes that are there twice.
pub(super) fn check(written: &[WrittenRoute], subject: &mut Subject<'_>) {
    let mut first: HashMap<(&GuestName, InterfaceAddress, u32), &WrittenRoute> = HashMap::new();
    for one in subject.owned.iter().flat_map(|owned| &owned.routes).chain(written) {
        let (route, guest) = (&one.route, &one.guest);
        if let Some((why, hint)) = route.gateway.and_then(|hop| wrong_hop(one, hop)) {
            subject.messages.push(Diagnostic::error(one.hop_path.clone(), why).with_hint(hint));
        }
        let key = (guest, route.destination, metric(route));
        match first.get(&key) {
            Some(other) => {
                let text = format!(
                    "{guest} has two routes of the same metric: {route}, and {} already",
                    other.route
                );
                let hint = "leave one out, or give one a higher `metric`: `routes: [{to: ..., via: ..., metric: 200}]`";
                subject.messages.push(
                    Diagnostic::error(one.path.clone(), text)
                        .with_related(other.path.clone(), "the other one")
                        .with_hint(hint),
                );
            }
            None => {
                first.insert(key, one);
            }
        }
    }
}

/// The metric that the kernel has a route with: `fib_table_insert` of IPv4 leaves it 0, and `IP6_RT_PRIO_USER` is 1024
/// (`include/uapi/linux/ipv6_route.h`).
fn metric(route: &InterfaceRoute) -> u32 {
    match (route.priority, route.is_ipv4()) {
        // IPv6 takes 0 for its default.
        (None | Some(0), false) => 1024,
        (metric, _) => metric.unwrap_or(0),
    }
}

/// Why a next hop cannot be one, and what to do.
fn wrong_hop(one: &WrittenRoute, hop: IpAddr) -> Option<(String, String)> {
    if hop.is_unspecified() || hop.is_multicast() || hop.is_loopback() {
        let hint = "give the address of the router in the interface's network";
        return Some((format!("{hop} is no address of a gateway"), hint.to_owned()));
    }
    if one.addresses.iter().any(|address| address.ip() == hop) {
        let hint = "give the address of the router, which is another one";
        return Some((format!("{hop} is the interface's own address"), hint.to_owned()));
    }
    if matches!(hop, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
        return None;
    }
    let mut of_family = one.addresses.iter().filter(|address| address.ip().is_ipv4() == hop.is_ipv4());
    let reached = |address: &&InterfaceAddress| {
        let hop = InterfaceAddress::new(hop, address.prefix());
        hop.is_some_and(|hop| hop.same_network(**address))
    };
    // What a VM has besides is its own affair: its software may ask for an address.
    if one.kind == GuestKind::Vm && of_family.clone().next().is_none() || of_family.any(|a| reached(&a)) {
        return None;
    }
    let text = format!("{hop} is in no network of the interface, so that nothing leads to this gateway");
    let networks: Vec<String> = one.addresses.iter().map(ToString::to_string).collect();
    let hint = match networks.is_empty() {
        true => "write `address`, an address in the gateway's network".to_owned(),
        false => {
            format!("it has {}: write a gateway in its network, or one more address", networks.join(", "))
        }
    };
    Some((text, hint))
}
