//! What a file says of name servers inside guests.

use std::{fmt, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;

use super::OneOrMany;
use crate::dns::SearchDomain;

/// How programs in a guest resolve names: its `/etc/resolv.conf`.
///
/// ```yaml
/// {servers: [192.0.2.53, "2001:db8::53"], search: [example.com]}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "name servers: a mapping like {servers: [192.0.2.53]}")]
#[schemars(rename = "Dns")]
pub(crate) struct DnsDocument {
    /// The address of a name server, or a list of up to three of them, the first of which is asked first. Must be given.
    pub servers: Option<OneOrMany<ServerAddress>>,
    /// A domain in which names without a dot are looked up, or a list of up to six of them. Default: none.
    pub search: Option<OneOrMany<SearchDomain>>,
}

/// The address of a name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerAddress(pub IpAddr);

/// Text that is no address of a name server.
#[derive(Debug, Error)]
#[error("{0:?} is not an IP address like 192.0.2.53 or 2001:db8::53, without a prefix length, port or zone")]
pub(crate) struct ParseServerError(String);

impl FromStr for ServerAddress {
    type Err = ParseServerError;

    fn from_str(text: &str) -> Result<ServerAddress, ParseServerError> {
        text.parse().map(ServerAddress).map_err(|_| ParseServerError(text.to_owned()))
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

crate::names::text_serde!(
    ServerAddress,
    "An IPv4 or IPv6 address.",
    "192.0.2.53",
    concat!("^(", crate::address::ip_address_pattern!(), ")$")
);
