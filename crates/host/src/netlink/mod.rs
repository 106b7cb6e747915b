//! Network interfaces and VFs over rtnetlink: one socket in one network namespace.
//!
//! What is written is built with `netlink-packet-route`. What is read is taken attribute by attribute, only those that
//! are wanted: one odd attribute of one driver must not hide all interfaces of a machine.

mod address;
mod error;
mod link;
mod socket;
mod switch;
mod vf;
mod wait;
pub mod wire;

use netlink_sys::protocols::NETLINK_ROUTE;

use self::socket::{Conversation, socket_error};
pub use self::{
    error::NetlinkError,
    wait::{wait_for_interface, wait_for_udev},
};
use crate::namespace::within;

/// One rtnetlink socket in one network namespace.
///
/// Interfaces are named by their index everywhere, because an index survives a rename.
#[derive(Debug)]
pub struct Netlink {
    route: Conversation,
}

impl Netlink {
    /// A socket in the namespace of the calling thread.
    pub fn open() -> Result<Netlink, NetlinkError> {
        Conversation::open(NETLINK_ROUTE)
            .map(|route| Netlink { route })
            .map_err(|source| socket_error("open a netlink socket", source))
    }

    /// A socket in the namespace that process `pid` lives in.
    pub fn in_namespace_of(pid: u32) -> Result<Netlink, NetlinkError> {
        within(Some(pid), Netlink::open)?
    }
}
