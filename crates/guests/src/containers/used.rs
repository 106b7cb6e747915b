//! Whether the host uses an interface that has come back from a container.

use std::net::IpAddr;

use penstock_host::{InterfaceReport, Netlink, NetlinkError, NetworkNamespace, netlink::lowers_of_others};

/// Who makes routes that come by themselves, the kernel and router advertisements: `RTPROT_KERNEL`, `RTPROT_RA`
/// (`include/uapi/linux/rtnetlink.h`).
const BY_THEMSELVES: [u8; 2] = [2, 9];

/// What stands on an interface or listens to all of it, in words; empty when nothing does.
///
/// # Errors
///
/// [`NetlinkError`] when interfaces cannot be listed.
pub fn stood_on(netlink: &mut Netlink, found: &InterfaceReport) -> Result<Vec<String>, NetlinkError> {
    let mut signs = Vec::new();
    let all = netlink.links()?;
    if let Some(master) = found.master {
        let name = all.iter().find(|other| other.index == master).map(|other| &other.interface.name);
        signs.push(format!("it is a port of {}", name.map_or("another", |name| name.as_str())));
    }
    let stands =
        |other: &&InterfaceReport| other.lower.as_ref().is_some_and(|lower| lower.index == found.index);
    signs.extend(all.iter().filter(stands).map(|upper| format!("{} stands on it", upper.interface.name)));
    // Whatever cannot be looked into shows nothing.
    let others = NetworkNamespace::current().and_then(|home| lowers_of_others(&home));
    if others.is_ok_and(|others| others.contains(&found.index)) {
        signs.push("an interface of another network namespace stands on it".to_owned());
    }
    // An embedded switch whose uplink it is. What was set by hand may be its container's.
    if found.promiscuous == Some(true) && !netlink.link_settings(found.index)?.promiscuous {
        signs.push("a program takes all its frames".to_owned());
    }
    Ok(signs)
}

/// The addresses and routes that show that the host uses an interface, in words; empty when none does.
///
/// That it is up shows nothing, nor what comes of that alone: udev and network managers bring up whatever appears, and then it has link-local
/// addresses, and routes of the kernel's and of router advertisements.
///
/// # Errors
///
/// [`NetlinkError`] when routes cannot be listed.
pub fn configured(netlink: &mut Netlink, found: &InterfaceReport) -> Result<Vec<String>, NetlinkError> {
    let addresses = found.interface.addresses.iter().filter(|address| !is_link_local(address.ip()));
    let mut signs: Vec<String> = addresses.map(|address| format!("it has the address {address}")).collect();
    let mut routes = netlink.routes_over(found.index)?;
    routes.retain(|route| {
        let by_itself = route.protocol.is_some_and(|by| BY_THEMSELVES.contains(&by));
        !by_itself && !is_link_local(route.destination.ip())
    });
    signs.extend(routes.iter().map(|route| format!("the route {route} goes over it")));
    Ok(signs)
}

/// Whether an interface may have given itself this address (`fe80::/10`; RFC 3927, `169.254.0.0/16`).
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
