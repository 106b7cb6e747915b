//! IP addresses of interfaces.

use std::net::IpAddr;

use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags, AddressHeader, AddressMessage, AddressScope},
};
use nix::{errno::Errno, libc};
use penstock_model::InterfaceAddress;

use super::{
    Netlink, NetlinkError,
    wire::{self, Message},
};

/// The length of `struct ifaddrmsg`.
const ADDRESS_HEADER: usize = 8;
/// Who made an address (`IFA_PROTO`), and the kernel as that: for the loopback, of router advertisements, of the link
/// (`include/uapi/linux/if_addr.h`).
const IFA_PROTO: u16 = 11;
const IFAPROT_OF_KERNEL: std::ops::RangeInclusive<u8> = 1..=3;

impl Netlink {
    /// Adds an IP address to an interface; already there is success. An IPv6 address skips duplicate address
    /// detection, so that it can be used at once.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone, this process may not change it (`CAP_NET_ADMIN`), or the kernel refuses the
    /// address.
    pub fn add_address(&mut self, index: u32, address: InterfaceAddress) -> Result<(), NetlinkError> {
        let mut body = message(index, address);
        if address.ip().is_ipv6() {
            body.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let attempt = format!("add address {address} to interface {index}");
        let flags = wire::NLM_F_CREATE | wire::NLM_F_EXCL;
        match self.route.ask(&attempt, libc::RTM_NEWADDR, flags, &body, |_| {}) {
            Err(NetlinkError::Refused { errno: Errno::EEXIST, .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Removes an IP address from an interface; already gone is success.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone, or this process may not change it (`CAP_NET_ADMIN`).
    pub fn remove_address(&mut self, index: u32, address: InterfaceAddress) -> Result<(), NetlinkError> {
        let body = message(index, address);
        let attempt = format!("remove address {address} from interface {index}");
        match self.route.ask(&attempt, libc::RTM_DELADDR, 0, &body, |_| {}) {
            Err(NetlinkError::Refused { errno: Errno::EADDRNOTAVAIL, .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Every address of the namespace with the index of its interface.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the addresses cannot be listed.
    pub fn addresses(&mut self) -> Result<Vec<(u32, InterfaceAddress)>, NetlinkError> {
        self.route.dump(
            "list the IP addresses",
            libc::RTM_GETADDR,
            &AddressMessage::default(),
            interface_address,
        )
    }

    /// The addresses of interface `index` that somebody gave it for good. Left out are IPv6 addresses that end by themselves, as those of
    /// router advertisements do, and those that the kernel made.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the addresses cannot be listed.
    pub fn configured_addresses(&mut self, index: u32) -> Result<Vec<InterfaceAddress>, NetlinkError> {
        let all = self.route.dump(
            "list the IP addresses",
            libc::RTM_GETADDR,
            &AddressMessage::default(),
            configured_address,
        )?;
        Ok(all.into_iter().filter(|(at, _)| *at == index).map(|(_, address)| address).collect())
    }
}

fn message(index: u32, address: InterfaceAddress) -> AddressMessage {
    let mut body = AddressMessage::default();
    body.header = AddressHeader {
        family: if address.ip().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 },
        prefix_len: address.prefix(),
        scope: AddressScope::Universe,
        index,
        ..AddressHeader::default()
    };
    body.attributes = vec![AddressAttribute::Local(address.ip()), AddressAttribute::Address(address.ip())];
    body
}

/// What an address message says; `None` for any other message.
pub fn interface_address(message: &Message<'_>) -> Option<(u32, InterfaceAddress)> {
    if message.kind != libc::RTM_NEWADDR {
        return None;
    }
    let prefix = *message.payload.get(1)?;
    let index = wire::u32_at(message.payload, 4)?;
    let attributes = message.payload.get(ADDRESS_HEADER..)?;
    // On a point-to-point interface IFA_ADDRESS is the peer and IFA_LOCAL is ours; elsewhere IPv6 has IFA_ADDRESS alone.
    let bytes = wire::attribute(attributes, libc::IFA_LOCAL)
        .or_else(|| wire::attribute(attributes, libc::IFA_ADDRESS))?;
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some((index, InterfaceAddress::new(ip, prefix)?))
}

/// The same of an address that somebody gave an interface for good.
pub fn configured_address(message: &Message<'_>) -> Option<(u32, InterfaceAddress)> {
    let found = interface_address(message)?;
    let flags = u32::from(*message.payload.get(2)?);
    let by = wire::attribute(message.payload.get(ADDRESS_HEADER..)?, IFA_PROTO).and_then(|by| by.first());
    let lasts = flags & libc::IFA_F_PERMANENT != 0 && !by.is_some_and(|by| IFAPROT_OF_KERNEL.contains(by));
    (lasts || found.1.ip().is_ipv4()).then_some(found)
}
