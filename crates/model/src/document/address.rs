//! Addresses inside guests as they are written.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::InterfaceAddress;

/// An address inside a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestAddress {
    /// One of IPv4 that a client inside asks for.
    Dhcp,
    /// This one.
    Fixed(InterfaceAddress),
}

/// Text that is neither.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct ParseGuestAddressError(String);

impl FromStr for GuestAddress {
    type Err = ParseGuestAddressError;

    fn from_str(text: &str) -> Result<GuestAddress, ParseGuestAddressError> {
        match text {
            "dhcp" => Ok(GuestAddress::Dhcp),
            "dhcp4" | "DHCP" | "dhcp6" => Err(ParseGuestAddressError(format!(
                "{text} is no address: write `dhcp` for one of IPv4; IPv6 takes addresses from router advertisements"
            ))),
            _ => {
                let fixed = text.parse().map(GuestAddress::Fixed);
                fixed.map_err(|error: <InterfaceAddress as FromStr>::Err| {
                    ParseGuestAddressError(error.to_string())
                })
            }
        }
    }
}

impl fmt::Display for GuestAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuestAddress::Dhcp => f.write_str("dhcp"),
            GuestAddress::Fixed(address) => address.fmt(f),
        }
    }
}

crate::names::text_serde!(
    GuestAddress,
    "An address with its prefix length, or `dhcp`.",
    "192.0.2.10/24",
    concat!("^(dhcp|", crate::address::ip_network_pattern!(), ")$")
);
