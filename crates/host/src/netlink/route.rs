//! Routes: which interfaces lead everywhere else, and which one leads to a given address.

use std::{collections::HashMap, net::IpAddr};

use netlink_packet_core::Emitable;
use netlink_packet_route::{
    AddressFamily,
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage},
};
use nix::{errno::Errno, libc};
use penstock_model::inventory::Family;

use super::{
    Netlink, NetlinkError,
    wire::{self, Message},
};

/// The length of `struct rtmsg`.
pub(super) const ROUTE_HEADER: usize = 12;
/// The length of `struct nhmsg`.
const NEXT_HOP_HEADER: usize = 8;
/// The length of `struct rtnexthop`, before its attributes.
const MULTIPATH_HEADER: usize = 8;
/// `RTM_F_CLONED`: an entry of a cache, not of a table.
pub(super) const CLONED: u32 = 0x200;

const RTM_NEWNEXTHOP: u16 = 104;
const RTM_GETNEXTHOP: u16 = 106;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;
pub(super) const RTA_NH_ID: u16 = 30;

/// A route of some table that leads somewhere over interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The address family.
    pub family: Family,
    /// The length of the destination's prefix in bits.
    pub prefix: u8,
    /// The number of its routing table: 254 is the main one (`RT_TABLE_MAIN`).
    pub table: u32,
    /// The indices of the interfaces, one for each next hop.
    pub interfaces: Vec<u32>,
    /// The next-hop object that has the interfaces, where the route itself names none.
    pub next_hop: Option<u32>,
}

impl Netlink {
    /// The routes of every table but `local` that lead everywhere else: those of prefix length 0, and of length 1, since
    /// VPNs cover the default route by two halves.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when routes or next hops cannot be listed. A kernel without IPv6 has no routes of it, which is no
    /// error.
    pub fn default_routes(&mut self) -> Result<Vec<Route>, NetlinkError> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let body = message(family);
            let all = self.route.dump("list the routes", libc::RTM_GETROUTE, &body, |message| {
                of_family(family, message, route)
            });
            match all {
                Ok(all) => found.extend(all.into_iter().filter(|route| route.prefix <= 1)),
                Err(error) if lacks_family(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if found.iter().any(|route| route.interfaces.is_empty() && route.next_hop.is_some()) {
            let hops = self.next_hops()?;
            for route in &mut found {
                let hop = route.next_hop.filter(|_| route.interfaces.is_empty());
                route.interfaces.extend(hop.map(|hop| interfaces_of(hop, &hops)).unwrap_or_default());
            }
        }
        Ok(found)
    }

    /// The index of the interface over which packets go to `peer`, when they come from `from`, and from who is bound to interface
    /// `over`, where these are given; `None` when there is no route. The routes of a VRF are those of who is bound to it.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel cannot be asked. That it knows no way is `None`.
    pub fn route_to(
        &mut self,
        peer: IpAddr,
        from: Option<IpAddr>,
        over: Option<u32>,
    ) -> Result<Option<u32>, NetlinkError> {
        let (family, length) = match peer {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        let mut body = message(family);
        body.header.destination_prefix_length = length;
        body.attributes.push(RouteAttribute::Destination(address(peer)));
        if let Some(from) = from.filter(|from| from.is_ipv4() == peer.is_ipv4()) {
            body.header.source_prefix_length = length;
            body.attributes.push(RouteAttribute::Source(address(from)));
        }
        body.attributes.extend(over.map(RouteAttribute::Oif));
        let mut interface = None;
        let attempt = format!("ask for the route to {peer}");
        let outcome = self.route.ask(&attempt, libc::RTM_GETROUTE, 0, &body, |message| {
            let found = parsed(message).and_then(|(route, _)| route.interfaces.first().copied());
            interface = interface.or(found);
        });
        match outcome {
            Ok(()) => Ok(interface),
            Err(NetlinkError::Refused {
                errno: Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EACCES | Errno::EINVAL,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Next-hop objects: of each its interface, or the objects that it is a group of.
    fn next_hops(&mut self) -> Result<HashMap<u32, NextHop>, NetlinkError> {
        let hops = self.route.dump("list the next hops", RTM_GETNEXTHOP, &NextHopRequest, next_hop)?;
        Ok(hops.into_iter().collect())
    }
}

/// `struct nhmsg`, all zero: every object.
struct NextHopRequest;

impl Emitable for NextHopRequest {
    fn buffer_len(&self) -> usize {
        NEXT_HOP_HEADER
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer.fill(0);
    }
}

/// A next-hop object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NextHop {
    interface: Option<u32>,
    members: Vec<u32>,
}

fn interfaces_of(hop: u32, hops: &HashMap<u32, NextHop>) -> Vec<u32> {
    let Some(hop) = hops.get(&hop) else { return Vec::new() };
    // Groups have no groups in them (`net/ipv4/nexthop.c`, `nh_check_attr_group`).
    let members = hop.members.iter().filter_map(|member| hops.get(member)?.interface);
    hop.interface.into_iter().chain(members).collect()
}

/// What a message of this family says. With `ipv6.disable=1` nobody answers for IPv6, and the kernel lists the routes of every family that
/// somebody does answer for (`net/core/rtnetlink.c`, `rtnetlink_rcv_msg`).
pub(super) fn of_family<T>(
    family: AddressFamily,
    message: &Message<'_>,
    read: impl FnOnce(&Message<'_>) -> Option<T>,
) -> Option<T> {
    let of = *message.payload.first()?;
    (of == u8::from(family)).then(|| read(message))?
}

/// Whether the kernel has nothing of an address family: one without IPv6.
pub(super) fn lacks_family(error: &NetlinkError) -> bool {
    matches!(
        error,
        NetlinkError::Unsupported { .. }
            | NetlinkError::Refused { errno: Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP, .. }
    )
}

fn next_hop(message: &Message<'_>) -> Option<(u32, NextHop)> {
    if message.kind != RTM_NEWNEXTHOP {
        return None;
    }
    let attributes = message.payload.get(NEXT_HOP_HEADER..)?;
    let number = |kind| wire::attribute(attributes, kind).and_then(|value| wire::u32_at(value, 0));
    // `struct nexthop_grp`: an id, a weight and padding, eight bytes in all.
    let group = wire::attribute(attributes, NHA_GROUP).unwrap_or_default();
    let members = group.chunks_exact(8).filter_map(|member| wire::u32_at(member, 0)).collect();
    Some((number(NHA_ID)?, NextHop { interface: number(NHA_OIF), members }))
}

fn message(family: AddressFamily) -> RouteMessage {
    let mut body = RouteMessage::default();
    body.header = RouteHeader { address_family: family, ..RouteHeader::default() };
    body
}

fn address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

/// What a route message says of a route in a table; `None` for any other message, for routes that lead to no
/// interface (unreachable, local) and for entries of a cache.
pub fn route(message: &Message<'_>) -> Option<Route> {
    let (route, flags) = parsed(message)?;
    let unicast = *message.payload.get(7)? == libc::RTN_UNICAST;
    let local = route.table == u32::from(libc::RT_TABLE_LOCAL);
    (unicast && !local && flags & CLONED == 0).then_some(route)
}

/// A route and its flags.
fn parsed(message: &Message<'_>) -> Option<(Route, u32)> {
    if message.kind != libc::RTM_NEWROUTE {
        return None;
    }
    let family = match i32::from(*message.payload.first()?) {
        libc::AF_INET => Family::V4,
        libc::AF_INET6 => Family::V6,
        _ => return None,
    };
    let attributes = message.payload.get(ROUTE_HEADER..)?;
    let mut route = Route {
        family,
        prefix: *message.payload.get(1)?,
        table: u32::from(*message.payload.get(4)?),
        interfaces: Vec::new(),
        next_hop: None,
    };
    for (kind, value) in wire::attributes(attributes) {
        match kind {
            libc::RTA_TABLE => route.table = wire::u32_at(value, 0).unwrap_or(route.table),
            libc::RTA_OIF => route.interfaces.extend(wire::u32_at(value, 0)),
            libc::RTA_MULTIPATH => route.interfaces.extend(hops(value)),
            RTA_NH_ID => route.next_hop = wire::u32_at(value, 0),
            _ => {}
        }
    }
    Some((route, wire::u32_at(message.payload, 8)?))
}

/// The interfaces of a route with several next hops (`struct rtnexthop`).
fn hops(value: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    let mut rest = value;
    while let (Some(length), Some(interface)) = (wire::u16_at(rest, 0), wire::u32_at(rest, 4)) {
        let length = usize::from(length);
        if length < MULTIPATH_HEADER || length > rest.len() {
            break;
        }
        found.push(interface);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}
