//! Routes over one interface: adding them, and listing them.

use std::net::IpAddr;

use netlink_packet_route::{
    AddressFamily,
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
        RouteType,
    },
};
use nix::{errno::Errno, libc};
use penstock_model::InterfaceAddress;

use super::{
    Netlink, NetlinkError,
    wire::{self, Message},
};

/// The length of `struct rtmsg`.
const ROUTE_HEADER: usize = 12;
/// `RTM_F_CLONED`: an entry of a cache, not of a table.
const CLONED: u32 = 0x200;

/// A unicast route over one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceRoute {
    /// Where it leads; a prefix of length 0 is everywhere.
    pub destination: InterfaceAddress,
    /// The next hop; none where the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The table; `None` is the main one (254).
    pub table: Option<u32>,
    /// Its metric, the lowest first; `None` is the kernel's choice.
    pub priority: Option<u32>,
    /// Its scope (`rtnetlink(7)`); `None` is `link` without a gateway, and `universe` with one.
    pub scope: Option<u8>,
    /// The largest packet on it, in bytes.
    pub mtu: Option<u32>,
    /// The largest segment that TCP tells of on it, in bytes.
    pub advmss: Option<u32>,
}

impl InterfaceRoute {
    /// Whether a route that is there is this one, as far as this one says.
    pub fn is_met_by(&self, there: &InterfaceRoute) -> bool {
        let table = |route: &InterfaceRoute| route.table.unwrap_or(u32::from(libc::RT_TABLE_MAIN));
        self.destination.same_network(there.destination)
            && self.destination.prefix() == there.destination.prefix()
            && self.gateway == there.gateway
            && table(self) == table(there)
            && self.priority.is_none_or(|priority| there.priority == Some(priority))
    }
}

impl Netlink {
    /// Adds a route over interface `index`; already there is success.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone or down, the gateway is not reachable over it, or this process may not add
    /// routes (`CAP_NET_ADMIN`).
    pub fn add_route(&mut self, index: u32, route: &InterfaceRoute) -> Result<(), NetlinkError> {
        let attempt = match route.gateway {
            Some(gateway) => format!("add the route to {} over {gateway}", route.destination),
            None => format!("add the route to {}", route.destination),
        };
        let flags = wire::NLM_F_CREATE | wire::NLM_F_EXCL;
        match self.route.ask(&attempt, libc::RTM_NEWROUTE, flags, &message(index, route), |_| {}) {
            Err(NetlinkError::Refused { errno: Errno::EEXIST, .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// The unicast routes over interface `index` alone, of every table but `local`.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel's answer cannot be read. A kernel without IPv6 has no routes of it, which is no error.
    pub fn routes_over(&mut self, index: u32) -> Result<Vec<InterfaceRoute>, NetlinkError> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut body = RouteMessage::default();
            body.header = RouteHeader { address_family: family, ..RouteHeader::default() };
            match self.route.dump("list the routes", libc::RTM_GETROUTE, &body, interface_route) {
                Ok(all) => {
                    found.extend(all.into_iter().filter(|(over, _)| *over == index).map(|(_, route)| route))
                }
                // A kernel without IPv6.
                Err(NetlinkError::Refused { errno: Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP, .. }) => {}
                Err(NetlinkError::Unsupported { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

fn message(index: u32, route: &InterfaceRoute) -> RouteMessage {
    let address = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    };
    let to = route.destination;
    let scope = route.scope.unwrap_or(match route.gateway {
        None => libc::RT_SCOPE_LINK,
        Some(_) => libc::RT_SCOPE_UNIVERSE,
    });
    let mut body = RouteMessage::default();
    body.header = RouteHeader {
        address_family: if to.ip().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 },
        destination_prefix_length: to.prefix(),
        // Tables beyond 255 are told by their attribute alone.
        table: route.table.map_or(RouteHeader::RT_TABLE_MAIN, |table| u8::try_from(table).unwrap_or(0)),
        protocol: RouteProtocol::Static,
        scope: RouteScope::from(scope),
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    let attributes = &mut body.attributes;
    if to.prefix() != 0 {
        attributes.push(RouteAttribute::Destination(address(to.network())));
    }
    attributes.extend(route.gateway.map(|gateway| RouteAttribute::Gateway(address(gateway))));
    attributes.push(RouteAttribute::Oif(index));
    attributes.extend(route.priority.map(RouteAttribute::Priority));
    attributes.extend(route.table.map(RouteAttribute::Table));
    let metrics: Vec<RouteMetric> =
        route.mtu.map(RouteMetric::Mtu).into_iter().chain(route.advmss.map(RouteMetric::Advmss)).collect();
    if !metrics.is_empty() {
        attributes.push(RouteAttribute::Metrics(metrics));
    }
    body
}

/// A unicast route over one interface and the index of that; `None` for any other message.
fn interface_route(message: &Message<'_>) -> Option<(u32, InterfaceRoute)> {
    if message.kind != libc::RTM_NEWROUTE {
        return None;
    }
    let header = message.payload.get(..ROUTE_HEADER)?;
    let unspecified: IpAddr = match i32::from(header[0]) {
        libc::AF_INET => IpAddr::from([0; 4]),
        libc::AF_INET6 => IpAddr::from([0; 16]),
        _ => return None,
    };
    if header[7] != libc::RTN_UNICAST || wire::u32_at(header, 8)? & CLONED != 0 {
        return None;
    }
    let address = |value: &[u8]| match value.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => None,
    };
    let (mut to, mut interface) = (unspecified, None);
    let (mut gateway, mut priority, mut table) = (None, None, u32::from(header[4]));
    for (kind, value) in wire::attributes(message.payload.get(ROUTE_HEADER..)?) {
        match kind {
            libc::RTA_DST => to = address(value)?,
            libc::RTA_OIF => interface = wire::u32_at(value, 0),
            libc::RTA_GATEWAY => gateway = address(value),
            libc::RTA_PRIORITY => priority = wire::u32_at(value, 0),
            libc::RTA_TABLE => table = wire::u32_at(value, 0).unwrap_or(table),
            _ => {}
        }
    }
    let route = InterfaceRoute {
        destination: InterfaceAddress::new(to, header[1])?,
        gateway,
        table: Some(table),
        priority,
        scope: Some(header[6]),
        mtu: None,
        advmss: None,
    };
    (table != u32::from(libc::RT_TABLE_LOCAL)).then_some((interface?, route))
}
