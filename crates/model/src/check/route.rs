//! Routes inside guests.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    net::IpAddr,
    rc::Rc,
};

use super::Subject;
use crate::{
    GuestKind, GuestName, InterfaceAddress, InterfaceRoute, Model, dhcp,
    diagnostic::{Diagnostic, Path},
    document::{HopAddress, OneOrMany, RouteDocument, RouteTarget},
};

/// A route that is written for an interface inside a guest.
pub(super) struct WrittenRoute {
    guest: GuestName,
    kind: GuestKind,
    networks: Rc<Networks>,
    route: InterfaceRoute,
    path: Path,
    /// Where its next hop stands, if it has one.
    hop_path: Path,
}

/// An interface's own addresses, as next hops are compared with them. All of its routes share them.
struct Networks {
    addresses: Vec<InterfaceAddress>,
    own: HashSet<IpAddr>,
    /// The first address and the length of each.
    networks: HashSet<(IpAddr, u8)>,
    lengths: BTreeSet<u8>,
    has_ipv4: bool,
    has_ipv6: bool,
}

impl Networks {
    fn new(addresses: &[InterfaceAddress]) -> Networks {
        let all = || addresses.iter();
        Networks {
            addresses: addresses.to_vec(),
            own: all().map(|address| address.ip()).collect(),
            networks: all().map(|address| (address.network(), address.prefix())).collect(),
            lengths: all().map(|address| address.prefix()).collect(),
            has_ipv4: all().any(|address| address.ip().is_ipv4()),
            has_ipv6: all().any(|address| address.ip().is_ipv6()),
        }
    }

    /// Whether `hop` is in one of them.
    fn reach(&self, hop: IpAddr) -> bool {
        let of_length = |length: &u8| InterfaceAddress::new(hop, *length);
        let mut towards = self.lengths.iter().filter_map(of_length);
        towards.any(|hop| self.networks.contains(&(hop.network(), hop.prefix())))
    }
}

/// An interface has a gateway for each family of addresses.
const MOST_GATEWAYS: usize = 2;

/// The routes over one interface inside a guest, whose keys stand at `path`. Of what is in `reported` nothing more is said.
pub(super) fn build(
    (guest, kind): (&GuestName, GuestKind),
    path: &Path,
    gateway: &Option<OneOrMany<HopAddress>>,
    routes: Vec<RouteDocument>,
    addresses: &[InterfaceAddress],
    reported: &HashSet<Path>,
    messages: &mut Vec<Diagnostic>,
) -> Vec<WrittenRoute> {
    if let Some(count) = gateway.as_ref().map(|list| list.values.len()).filter(|count| *count > MOST_GATEWAYS)
    {
        let text = format!("an interface has a gateway of IPv4 and one of IPv6, and here are {count}");
        let hint = "write other routes under `routes`, like {to: 198.51.100.0/24, via: 192.0.2.1}";
        messages.push(Diagnostic::error(path.join("gateway"), text).with_hint(hint));
    }
    let gateways = gateway.iter().flat_map(|list| {
        list.values.iter().take(MOST_GATEWAYS).enumerate().map(|(position, hop)| {
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
                if !reported.contains(&path) {
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
    let networks = Rc::new(Networks::new(addresses));
    let written = |(route, path, hop_path)| WrittenRoute {
        guest: guest.clone(),
        kind,
        networks: Rc::clone(&networks),
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
        if super::full(subject.messages) {
            return;
        }
        let (route, guest) = (&one.route, &one.guest);
        if let Some((why, hint)) = route.gateway.and_then(|hop| wrong_hop(one, hop)) {
            subject.messages.push(Diagnostic::error(one.hop_path.clone(), why).with_hint(hint));
        }
        if has_metric_of_a_lease(one, subject.model) {
            let text =
                format!("a lease of {guest} gives its default route the metric {}, too", metric(route));
            let hint = format!("write another one: below {}, and this route comes first", dhcp::metric(0));
            subject.messages.push(Diagnostic::error(one.path.clone(), text).with_hint(hint));
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

/// Whether the client of a container would put a lease's default route in the place of this one.
fn has_metric_of_a_lease(one: &WrittenRoute, model: &Model) -> bool {
    let is_of_container = one.kind == GuestKind::Container;
    if !is_of_container || !one.route.is_ipv4() || one.route.destination.prefix() != 0 {
        return false;
    }
    let guest = &model.guests[&one.guest];
    let leases =
        guest.functions.iter().map(|function| function.dhcp).chain(guest.nics.values().map(|nic| nic.dhcp));
    let leases = leases.filter(|dhcp| *dhcp).count();
    (dhcp::metric(0)..dhcp::metric(leases)).contains(&metric(&one.route))
}

/// Why a next hop cannot be one, and what to do.
fn wrong_hop(one: &WrittenRoute, hop: IpAddr) -> Option<(String, String)> {
    if hop.is_unspecified() || hop.is_multicast() || hop.is_loopback() {
        let hint = "give the address of the router in the interface's network";
        return Some((format!("{hop} is no address of a gateway"), hint.to_owned()));
    }
    let Networks { addresses, own, has_ipv4, has_ipv6, .. } = &*one.networks;
    if own.contains(&hop) {
        let hint = "give the address of the router, which is another one";
        return Some((format!("{hop} is the interface's own address"), hint.to_owned()));
    }
    if matches!(hop, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
        return None;
    }
    let has_family = if hop.is_ipv4() { *has_ipv4 } else { *has_ipv6 };
    // What a VM has besides is its own affair: its software may ask for an address.
    if one.networks.reach(hop) || one.kind == GuestKind::Vm && !has_family {
        return None;
    }
    let text = format!("{hop} is in no network of the interface, so that nothing leads to this gateway");
    /// More say no more.
    const SHOWN: usize = 8;
    let mut networks: Vec<String> = addresses.iter().take(SHOWN).map(ToString::to_string).collect();
    networks.extend((addresses.len() > SHOWN).then(|| "...".to_owned()));
    let hint = match networks.is_empty() {
        true => "write `address`, an address in the gateway's network".to_owned(),
        false => {
            format!("it has {}: write a gateway in its network, or one more address", networks.join(", "))
        }
    };
    Some((text, hint))
}
