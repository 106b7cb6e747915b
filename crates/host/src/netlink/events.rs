//! What the kernel tells of the interfaces and addresses of a namespace by itself (rtnetlink(7), multicast groups).

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd},
};

use netlink_packet_route::link::LinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::libc;

use super::{
    NetlinkError,
    link::{GET_LINK, IFLA_PARENT_DEV_NAME, LINK_HEADER, NEW_LINK},
    socket::{Conversation, socket_error},
    wire::{self, Message},
};
use crate::namespace::within;

/// `RTNLGRP_LINK`, `RTNLGRP_IPV4_IFADDR`, `RTNLGRP_IPV6_IFADDR`.
const GROUPS: [u32; 3] = [1, 5, 9];

/// How much may wait to be read: one event takes some 4 KiB of it.
const BUFFER: usize = 4 << 20;

/// The kernel's events of one namespace's interfaces, as they come.
#[derive(Debug)]
pub struct LinkEvents {
    socket: Conversation,
    /// The devices of the interfaces that have one: an event of an address, and a link's last, name the index alone.
    devices: HashMap<u32, String>,
}

/// An interface that something has happened to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touched {
    /// Its index in its namespace.
    pub index: u32,
    /// The device behind it; `None` for a software interface.
    pub device: Option<String>,
}

impl LinkEvents {
    /// From now on, in the namespace that process `pid` lives in; in the calling thread's own for `None`.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the namespace cannot be entered, or the sockets cannot be opened or subscribed.
    pub fn open(pid: Option<u32>) -> Result<LinkEvents, NetlinkError> {
        LinkEvents::holding(pid, BUFFER)
    }

    /// The same with so many bytes for what was not read yet, as far as the system lets.
    ///
    /// # Errors
    ///
    /// As [`open`](LinkEvents::open). A buffer that is smaller than was asked for is no error.
    pub fn holding(pid: Option<u32>, buffer: usize) -> Result<LinkEvents, NetlinkError> {
        let attempt = "listen to the network interfaces";
        let open = || {
            let fail = |source| socket_error(attempt, source);
            let mut socket = Conversation::open(NETLINK_ROUTE).map_err(fail)?;
            socket.hold(buffer);
            for group in GROUPS {
                socket.listen(group, true).map_err(fail)?;
            }
            // Listening first, so that what comes in between is an event.
            let mut asking = Conversation::open(NETLINK_ROUTE).map_err(fail)?;
            let known = asking.dump(attempt, GET_LINK, &LinkMessage::default(), |message| {
                touched(message).and_then(|touched| Some((touched.index, touched.device?)))
            })?;
            Ok(LinkEvents { socket, devices: known.into_iter().collect() })
        };
        within(pid, open)?
    }

    /// Gives what every event that has come is about to `each`, for at most `most` datagrams; says whether some were lost.
    pub(crate) fn drain(&mut self, most: usize, mut each: impl FnMut(Touched)) -> Result<bool, NetlinkError> {
        let devices = &mut self.devices;
        self.socket.drain("read events of interfaces", most, |datagram| {
            for message in wire::messages(datagram).map_while(Result::ok) {
                learn(&message, devices).into_iter().for_each(&mut each);
            }
        })
    }
}

/// As [`touched`], with what `devices` knows and is to know.
fn learn(message: &Message<'_>, devices: &mut HashMap<u32, String>) -> Option<Touched> {
    let mut touched = touched(message)?;
    match touched.device.clone() {
        Some(device) => drop(devices.insert(touched.index, device)),
        None => touched.device = devices.get(&touched.index).cloned(),
    }
    // A bridge that lets a port go tells so in the same words.
    if message.kind == libc::RTM_DELLINK && message.payload.first() == Some(&0) {
        devices.remove(&touched.index);
    }
    Some(touched)
}

/// The interface that an event is about. Links have the index where addresses have it too, behind four bytes of
/// something else (`struct ifinfomsg`, `struct ifaddrmsg`).
fn touched(message: &Message<'_>) -> Option<Touched> {
    let of_link = matches!(message.kind, NEW_LINK | libc::RTM_DELLINK);
    if !of_link && !matches!(message.kind, libc::RTM_NEWADDR | libc::RTM_DELADDR) {
        return None;
    }
    let index = wire::u32_at(message.payload, 4).filter(|index| *index != 0)?;
    let device = match message.payload.get(LINK_HEADER..) {
        Some(attributes) if of_link => wire::attribute(attributes, IFLA_PARENT_DEV_NAME).map(wire::text),
        _ => None,
    };
    Some(Touched { index, device })
}

impl AsFd for LinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
