//! Leases of IPv4 inside guests, which a DHCP client there asks for (RFC 2131).

use std::net::Ipv4Addr;

use crate::InterfaceAddress;

/// The metric of the default route of the first lease of a guest, as systemd-networkd has it (`DHCP_ROUTE_METRIC`): a route that the model
/// gives without a metric comes first.
const METRIC: u32 = 1024;

/// The metric of the default route that the lease at this position, from 0, of all leases of a guest brings.
pub fn metric(position: usize) -> u32 {
    METRIC + u32::try_from(position).unwrap_or(u32::MAX - METRIC)
}

/// What the client of a container notes of the lease of an interface: a file inside.
pub fn lease_file(interface: &str) -> String {
    format!("/run/penstock-dhcp/lease.{interface}")
}

/// A lease as it is noted. Whoever is root inside may have written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The program that asks for it.
    pub client: &'static str,
    /// The address with its network.
    pub address: InterfaceAddress,
    /// The router of its default route; none where the answer had none that could be used.
    pub router: Option<Ipv4Addr>,
}

impl Lease {
    /// Reads the first line that begins with `lease`; `None` where it makes no sense.
    pub fn read(text: &str) -> Option<Lease> {
        let words = text.lines().find_map(|line| line.strip_prefix("lease "))?;
        let words: Vec<&str> = words.split(' ').collect();
        let &[client, address, router] = &words[..] else { return None };
        let client = ["udhcpc", "dhcpcd", "dhclient", "busybox"].into_iter().find(|name| *name == client)?;
        let (ip, length) = address.split_once('/')?;
        // dhclient tells a mask.
        let length = match length.parse::<Ipv4Addr>() {
            Ok(mask) => {
                let mask = u32::from(mask);
                (mask.leading_ones() == mask.count_ones()).then_some(u8::try_from(mask.count_ones()).ok()?)?
            }
            Err(_) => length.parse().ok()?,
        };
        let ip: Ipv4Addr = ip.parse().ok()?;
        let router = match router {
            "none" => None,
            router => Some(router.parse().ok()?),
        };
        Some(Lease { client, address: InterfaceAddress::new(ip.into(), length)?, router })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_read() {
        let lease = |text: &str| Lease::read(text);
        let first = lease("lease udhcpc 192.0.2.57/24 192.0.2.1\n").unwrap();
        assert_eq!((first.client, first.address.to_string().as_str()), ("udhcpc", "192.0.2.57/24"));
        assert_eq!(first.router, Some(Ipv4Addr::new(192, 0, 2, 1)));
        let masked = lease("noise\nlease dhclient 192.0.2.57/255.255.255.0 none\n").unwrap();
        assert_eq!((masked.address, masked.router), (first.address, None));
        for text in [
            "",
            "lease",
            "lease sh 192.0.2.57/24 none",
            "lease udhcpc 192.0.2.57 none",
            "lease udhcpc 192.0.2.57/33 none",
            "lease dhclient 192.0.2.57/255.0.255.0 none",
            "lease udhcpc 192.0.2.57/24 \u{1b}[2J",
            "lease udhcpc fd00::1/64 none",
            "lease udhcpc 192.0.2.57/24 192.0.2.1 more",
        ] {
            assert_eq!(lease(text), None, "{text:?}");
        }
        assert_eq!((metric(0), metric(1)), (1024, 1025));
    }
}
