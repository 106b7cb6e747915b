//! Routes over one interface: adding them, and listing them.

use std::{collections::HashMap, net::IpAddr};

use netlink_packet_route::{
    AddressFamily,
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
        RouteScope, RouteType,
    },
};
use nix::{errno::Errno, libc};
use penstock_model::{InterfaceAddress, InterfaceRoute};

use crate::InterfaceReport;

use super::{
    Netlink, NetlinkError,
    route::{CLONED, ROUTE_HEADER, RTA_NH_ID, lacks_family, of_family},
    wire::{self, Message},
};

/// `RTNH_F_ONLINK`.
const ON_LINK: u32 = 4;
/// `RTPROT_DHCP` (`include/uapi/linux/rtnetlink.h`).
const DHCP: u8 = 16;
const RTA_VIA: u16 = 18;
const RTA_ENCAP: u16 = 22;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;

/// A route that was read, and the interface that it is over.
struct RouteEntry {
    over: u32,
    route: InterfaceRoute,
    /// Whether [`InterfaceRoute`] says all of where it leads: it has no next-hop object, encapsulation or gateway of another family.
    whole: bool,
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
        let all = self.interface_routes()?;
        Ok(all.into_iter().filter(|found| found.over == index).map(|found| found.route).collect())
    }

    /// All interfaces of the namespace, with the routes over each.
    ///
    /// # Errors
    ///
    /// As of [`Netlink::interfaces`] and [`Netlink::routes_over`].
    pub fn routed_interfaces(&mut self) -> Result<Vec<InterfaceReport>, NetlinkError> {
        let mut reports = self.interfaces()?;
        let mut routes: HashMap<u32, Vec<InterfaceRoute>> = HashMap::new();
        for found in self.interface_routes()? {
            routes.entry(found.over).or_default().push(found.route);
        }
        for report in &mut reports {
            report.routes = Some(routes.remove(&report.index).unwrap_or_default());
        }
        Ok(reports)
    }

    /// The routes over one interface that somebody set and nobody makes again by himself, each with the index of its interface: those of
    /// administrators and DHCP clients, not the kernel's own, those of router advertisements, nor those of routing daemons. Left
    /// out are also those with a next-hop object, several next hops, an encapsulation, or a gateway of another family.
    ///
    /// # Errors
    ///
    /// As of [`Netlink::routes_over`].
    pub fn configured_routes(&mut self) -> Result<Vec<(u32, InterfaceRoute)>, NetlinkError> {
        let set = [libc::RTPROT_UNSPEC, libc::RTPROT_BOOT, libc::RTPROT_STATIC, DHCP];
        let mut all = self.interface_routes()?;
        all.retain(|found| found.whole && found.route.protocol.is_some_and(|by| set.contains(&by)));
        Ok(all.into_iter().map(|found| (found.over, found.route)).collect())
    }

    fn interface_routes(&mut self) -> Result<Vec<RouteEntry>, NetlinkError> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut body = RouteMessage::default();
            body.header = RouteHeader { address_family: family, ..RouteHeader::default() };
            let all = self.route.dump("list the routes", libc::RTM_GETROUTE, &body, |message| {
                of_family(family, message, interface_route)
            });
            match all {
                Ok(all) => found.extend(all),
                Err(error) if lacks_family(&error) => {}
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
        protocol: route.protocol.map_or(RouteProtocol::Static, RouteProtocol::from),
        scope: RouteScope::from(scope),
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    if route.onlink {
        body.header.flags = RouteFlags::from_bits_retain(ON_LINK);
    }
    let attributes = &mut body.attributes;
    if to.prefix() != 0 {
        attributes.push(RouteAttribute::Destination(address(to.network())));
    }
    attributes.extend(route.gateway.map(|gateway| RouteAttribute::Gateway(address(gateway))));
    attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(address(source))));
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

/// What a message says of a unicast route over one interface; `None` for any other message.
fn interface_route(message: &Message<'_>) -> Option<RouteEntry> {
    if message.kind != libc::RTM_NEWROUTE {
        return None;
    }
    let header = message.payload.get(..ROUTE_HEADER)?;
    let unspecified: IpAddr = match i32::from(header[0]) {
        libc::AF_INET => IpAddr::from([0; 4]),
        libc::AF_INET6 => IpAddr::from([0; 16]),
        _ => return None,
    };
    let flags = wire::u32_at(header, 8)?;
    if header[7] != libc::RTN_UNICAST || flags & CLONED != 0 {
        return None;
    }
    let address = |value: &[u8]| match value.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => None,
    };
    let mut route = InterfaceRoute {
        protocol: Some(header[5]),
        scope: Some(header[6]),
        onlink: flags & ON_LINK != 0,
        ..InterfaceRoute::new(InterfaceAddress::new(unspecified, 0)?, None)
    };
    let (mut to, mut over, mut table, mut whole) = (unspecified, None, u32::from(header[4]), true);
    for (kind, value) in wire::attributes(message.payload.get(ROUTE_HEADER..)?) {
        match kind {
            libc::RTA_DST => to = address(value)?,
            libc::RTA_OIF => over = wire::u32_at(value, 0),
            libc::RTA_GATEWAY => route.gateway = address(value),
            libc::RTA_PREFSRC => route.source = address(value),
            libc::RTA_PRIORITY => route.priority = wire::u32_at(value, 0),
            libc::RTA_TABLE => table = wire::u32_at(value, 0).unwrap_or(table),
            libc::RTA_METRICS => {
                let metric = |kind| wire::attribute(value, kind).and_then(|value| wire::u32_at(value, 0));
                (route.mtu, route.advmss) = (metric(RTAX_MTU), metric(RTAX_ADVMSS));
            }
            RTA_VIA | RTA_ENCAP | RTA_NH_ID => whole = false,
            _ => {}
        }
    }
    route.destination = InterfaceAddress::new(to, header[1])?;
    route.table = Some(table);
    (table != u32::from(libc::RT_TABLE_LOCAL)).then_some(RouteEntry { over: over?, route, whole })
}
