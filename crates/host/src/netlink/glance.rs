//! Whether a PF's VFs are as they were, asked again and again for little.
//!
//! A guest that takes another MAC address through its PF's driver, or a driver that resets a VF, makes no event. What the
//! PF's driver keeps of its VFs is then compared byte by byte with what it was, and read only when it differs.

use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc;

use super::{
    NetlinkError,
    link::{GET_LINK, LINK_HEADER, change},
    socket::{Conversation, socket_error},
    wire,
};
use crate::namespace::within;

/// A PF whose VFs are looked at again and again.
#[derive(Debug)]
pub struct VfGlance {
    socket: Conversation,
    attempt: String,
    body: LinkMessage,
    /// The bytes of `IFLA_VFINFO_LIST`.
    last: Option<Vec<u8>>,
}

impl VfGlance {
    /// The PF whose interface has this index in the namespace of process `pid`; in the calling thread's own for `None`.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the namespace cannot be entered, or no socket can be opened in it. The interface is looked up only
    /// when it is asked.
    pub fn open(pid: Option<u32>, index: u32) -> Result<VfGlance, NetlinkError> {
        let attempt = format!("look at the VFs of interface {index}");
        let open = || Conversation::open(NETLINK_ROUTE).map_err(|source| socket_error(&attempt, source));
        let socket = within(pid, open)??;
        let mut body = change(index);
        // Without statistics, which always differ.
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::Vf, LinkExtentMask::SkipStats]));
        Ok(VfGlance { socket, attempt, body, last: None })
    }

    /// Whether anything is other than it was when this was last asked. The first time, nothing is.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone, or the kernel's answer cannot be read.
    pub fn differs(&mut self) -> Result<bool, NetlinkError> {
        let (mut differs, mut told) = (false, false);
        let last = &mut self.last;
        self.socket.ask(&self.attempt, GET_LINK, 0, &self.body, |message| {
            let attributes = message.payload.get(LINK_HEADER..).unwrap_or_default();
            let now = wire::attribute(attributes, libc::IFLA_VFINFO_LIST).unwrap_or_default();
            if told || last.as_deref() == Some(now) {
                return;
            }
            told = true;
            differs = last.is_some();
            *last = Some(now.to_vec());
        })?;
        Ok(differs)
    }
}
