//! What a file says of routes inside guests.

use std::{fmt, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;

use crate::InterfaceAddress;

/// A route inside a guest over one of its interfaces.
///
/// ```yaml
/// {to: 198.51.100.0/24, via: 192.0.2.1, metric: 100}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a route: a mapping like {to: 198.51.100.0/24, via: 192.0.2.1}"
)]
#[schemars(rename = "Route")]
pub(crate) struct RouteDocument {
    /// Where it leads: a network like `198.51.100.0/24`, or `default`, which is everywhere. Must be given.
    pub to: Option<RouteTarget>,
    /// The next hop: an address in a network of the interface, or a link-local one. Default: none; the network is on the link.
    pub via: Option<HopAddress>,
    /// Which of two routes to the same network is taken: the one with the lowest. Default: the kernel's, 0 of IPv4 and 1024 of IPv6.
    #[schemars(range(min = 0, max = 4_294_967_295_u32))]
    pub metric: Option<u32>,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteTarget {
    /// Everywhere, in the family of the next hop.
    Default,
    /// A network.
    Network(InterfaceAddress),
}

/// Text that is no target of a route.
#[derive(Debug, Error)]
#[error("{0:?} is neither a network like 198.51.100.0/24 or fd00:1::/64, nor `default`")]
pub(crate) struct ParseTargetError(String);

impl FromStr for RouteTarget {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<RouteTarget, ParseTargetError> {
        match text {
            "default" => Ok(RouteTarget::Default),
            _ => text.parse().map(RouteTarget::Network).map_err(|_| ParseTargetError(text.to_owned())),
        }
    }
}

impl fmt::Display for RouteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteTarget::Default => f.write_str("default"),
            RouteTarget::Network(network) => network.fmt(f),
        }
    }
}

crate::names::text_serde!(
    RouteTarget,
    "A network with its prefix length, or `default`.",
    "198.51.100.0/24",
    concat!("^(default|", crate::address::ip_network_pattern!(), ")$")
);

/// The address of a next hop, without a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HopAddress(pub IpAddr);

/// Text that is no address of a next hop.
#[derive(Debug, Error)]
#[error("{0:?} is not an IP address like 192.0.2.1 or fe80::1, without a prefix length")]
pub(crate) struct ParseHopError(String);

impl FromStr for HopAddress {
    type Err = ParseHopError;

    fn from_str(text: &str) -> Result<HopAddress, ParseHopError> {
        text.parse().map(HopAddress).map_err(|_| ParseHopError(text.to_owned()))
    }
}

impl fmt::Display for HopAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

crate::names::text_serde!(
    HopAddress,
    "An IPv4 or IPv6 address.",
    "192.0.2.1",
    concat!("^(", crate::address::ip_address_pattern!(), ")$")
);
