//! Routes over one interface.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::InterfaceAddress;

/// `RT_TABLE_MAIN` (`rtnetlink(7)`): the table of ordinary routes.
const MAIN: u32 = 254;

/// A unicast route over one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InterfaceRoute {
    /// Where it leads; a prefix of length 0 is everywhere.
    pub destination: InterfaceAddress,
    /// The next hop; none where the destination is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The address that packets over it come from, where nothing else says so (`RTA_PREFSRC`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The table; `None` is the main one (254).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Its metric, the lowest first; `None` is the kernel's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Who set it (`rtm_protocol` of `rtnetlink(7)`: 4 is an administrator, 16 a DHCP client); `None` is an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Its scope (`rtnetlink(7)`); `None` is `link` without a gateway, and `universe` with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
    /// The largest packet on it, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The largest segment that TCP tells of on it, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// Whether the gateway is taken to be on the link although no address of the interface says so (`RTNH_F_ONLINK`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub onlink: bool,
}

impl InterfaceRoute {
    /// A route to `destination` over `gateway`, or on the link, with nothing else said of it.
    pub fn new(destination: InterfaceAddress, gateway: Option<IpAddr>) -> InterfaceRoute {
        InterfaceRoute {
            destination,
            gateway,
            source: None,
            table: None,
            priority: None,
            protocol: None,
            scope: None,
            mtu: None,
            advmss: None,
            onlink: false,
        }
    }

    /// Whether a route that is there is this one, as far as this one says.
    pub fn is_met_by(&self, there: &InterfaceRoute) -> bool {
        let table = |route: &InterfaceRoute| route.table.unwrap_or(MAIN);
        self.destination.same_network(there.destination)
            && self.destination.prefix() == there.destination.prefix()
            && self.gateway == there.gateway
            && table(self) == table(there)
            && self.priority.is_none_or(|priority| there.priority == Some(priority))
    }

    /// Whether it is one of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.destination.ip().is_ipv4()
    }
}

impl fmt::Display for InterfaceRoute {
    /// As `ip route` writes it: `default via 192.0.2.1`, `10.0.0.0/8 via 192.0.2.1 table 100`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.destination.prefix() {
            0 => f.write_str("default")?,
            prefix => write!(f, "{}/{prefix}", self.destination.network())?,
        }
        self.gateway.map_or(Ok(()), |gateway| write!(f, " via {gateway}"))?;
        match self.table {
            None | Some(MAIN) => Ok(()),
            Some(table) => write!(f, " table {table}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_reads_as_ip_writes_it() {
        let route = |to: &str, via: Option<&str>| {
            InterfaceRoute::new(to.parse().unwrap(), via.map(|via| via.parse().unwrap()))
        };
        assert_eq!(route("0.0.0.0/0", Some("192.0.2.1")).to_string(), "default via 192.0.2.1");
        assert_eq!(route("10.1.2.3/8", None).to_string(), "10.0.0.0/8");
        let of_table = InterfaceRoute { table: Some(100), ..route("::/0", Some("fe80::1")) };
        assert_eq!(of_table.to_string(), "default via fe80::1 table 100");
    }

    #[test]
    fn it_reads_back_as_it_was_written() {
        let all = InterfaceRoute {
            source: Some("192.0.2.7".parse().unwrap()),
            table: Some(7),
            priority: Some(100),
            protocol: Some(16),
            scope: Some(0),
            mtu: Some(1400),
            advmss: Some(1360),
            onlink: true,
            ..InterfaceRoute::new("0.0.0.0/0".parse().unwrap(), Some("192.0.2.1".parse().unwrap()))
        };
        for route in [all, InterfaceRoute::new("fd00::/64".parse().unwrap(), None)] {
            let text = serde_json::to_string(&route).unwrap();
            assert_eq!(serde_json::from_str::<InterfaceRoute>(&text).unwrap(), route);
        }
    }
}
