//! IP addresses with a prefix length, as an interface carries them.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use thiserror::Error;

/// An IPv4 or IPv6 address and its prefix length: `10.20.31.204/24`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceAddress(IpNet);

impl InterfaceAddress {
    /// The address `ip` in a network of `prefix` bits; `None` when the prefix is longer than the address.
    pub fn new(ip: IpAddr, prefix: u8) -> Option<InterfaceAddress> {
        IpNet::new(ip, prefix).ok().map(InterfaceAddress)
    }

    /// The address itself.
    pub fn ip(self) -> IpAddr {
        self.0.addr()
    }

    /// The first address of its network: the one whose bits behind the prefix are zero.
    pub fn network(self) -> IpAddr {
        self.0.network()
    }

    /// The prefix length in bits.
    pub fn prefix(self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether it is one of IPv6 that the kernel makes by itself wherever an interface is up (`fe80::/10`).
    pub fn is_kernel_made(self) -> bool {
        matches!(self.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
    }

    /// Whether `other` lies in the same network.
    pub fn same_network(self, other: InterfaceAddress) -> bool {
        self.0.trunc() == other.0.trunc()
    }
}

/// Whether an address is one that an interface may have given itself: `fe80::/10` (RFC 4291, section 2.5.6), `169.254.0.0/16` (RFC 3927).
pub fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not an address with a prefix length.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not an address with a prefix length like 10.20.31.204/24 or fd00::4/64")]
pub struct ParseAddressError(String);

impl FromStr for InterfaceAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<InterfaceAddress, ParseAddressError> {
        let fail = || ParseAddressError(text.to_owned());
        // A number that begins with a 0 is octal for some.
        if text.split_once('/').is_some_and(|(_, length)| length.len() > 1 && length.starts_with('0')) {
            return Err(fail());
        }
        text.parse().map(InterfaceAddress).map_err(|_| fail())
    }
}

/// What an address of IPv4 looks like.
macro_rules! ipv4_pattern {
    () => {
        "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}"
    };
}

/// What an address looks like, as far as a pattern can tell of IPv6.
macro_rules! ip_address_pattern {
    () => {
        concat!($crate::address::ipv4_pattern!(), "|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
    };
}

/// The same with the length of a prefix.
macro_rules! ip_network_pattern {
    () => {
        concat!(
            $crate::address::ipv4_pattern!(),
            "/([0-9]|[12][0-9]|3[0-2])|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8])"
        )
    };
}

pub(crate) use {ip_address_pattern, ip_network_pattern, ipv4_pattern};

crate::names::text_serde!(
    InterfaceAddress,
    "An IPv4 or IPv6 address with its prefix length.",
    "10.20.31.204/24",
    concat!("^(", crate::address::ip_network_pattern!(), ")$")
);
