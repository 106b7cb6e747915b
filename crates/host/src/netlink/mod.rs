//! Network interfaces and VFs over rtnetlink, in one network namespace.
//!
//! What is written is built with `netlink-packet-route`. What is read is taken attribute by attribute, only those that
//! are wanted: one odd attribute of one driver must not hide all interfaces of a machine.

mod address;
mod counters;
mod devlink;
mod elsewhere;
mod error;
mod ethtool;
mod events;
mod generic;
mod glance;
mod interface_route;
mod leftovers;
mod link;
mod port_vlans;
mod programs;
mod route;
mod socket;
mod switch;
mod tap;
mod upper;
mod vf;
mod wait;
mod wire;

#[cfg(test)]
mod tests;

use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;
use penstock_model::{
    Bdf, InterfaceAddress, PortVlans, VfIndex,
    inventory::{InterfaceCounters, SwitchMode, VfCounters, VfState},
};

pub use self::{
    devlink::{DevlinkPart, DevlinkSocket, eswitch_of, set_eswitch_mode},
    elsewhere::lowers_of_others,
    error::NetlinkError,
    events::{LinkEvents, Touched},
    glance::VfGlance,
    leftovers::LinkSettings,
    programs::XdpProgram,
    route::Route,
    wait::{udev_is_done, wait_for_interface, wait_for_udev},
};
use self::{ethtool::Ethtool, socket::socket_error};
pub(crate) use self::{socket::Conversation, tap::TapLink, wait::lost_events};
use crate::{InterfaceReport, namespace::within};

/// All that the messages of a datagram say, read as [`Netlink`]'s calls read the answers to theirs.
#[derive(Debug, Default, PartialEq)]
pub struct Reading {
    /// Interfaces, without their addresses.
    pub interfaces: Vec<InterfaceReport>,
    /// Addresses with the index of their interface.
    pub addresses: Vec<(u32, InterfaceAddress)>,
    /// VFs by their index at their PF, as `IFLA_VFINFO_LIST` describes them.
    pub vfs: Vec<(VfIndex, VfState)>,
    /// Counters of interfaces, without those that have none.
    pub interface_counters: Vec<InterfaceCounters>,
    /// Counters of VFs by their index at their PF.
    pub vf_counters: Vec<(VfIndex, VfCounters)>,
    /// Modes of embedded switches with the index of their PF's interface.
    pub switches: Vec<(u32, SwitchMode)>,
    /// VLANs of bridges' ports with the index of the port's interface.
    pub port_vlans: Vec<(u32, PortVlans)>,
    /// Routes that lead over interfaces, without those of the local table.
    pub routes: Vec<Route>,
    /// What devlink tells of PCI devices.
    pub devlink: Vec<(Bdf, DevlinkPart)>,
    /// Speeds in Mbit/s with the index of their interface.
    pub speeds: Vec<(u32, u32)>,
    /// Error numbers, with the kernel's own words.
    pub errors: Vec<(Errno, Option<String>)>,
}

/// Reads a datagram of the kernel's; an error says where its framing breaks. Any bytes may be given.
///
/// # Errors
///
/// In words: a message is longer than what is left of the datagram, or shorter than its own header.
pub fn read(datagram: &[u8]) -> Result<Reading, String> {
    let mut reading = Reading::default();
    for message in wire::messages(datagram) {
        let message = message?;
        reading.interfaces.extend(link::link_report(&message));
        reading.addresses.extend(address::interface_address(&message));
        reading.vfs.extend(vf::vf_states(&message));
        reading.interface_counters.extend(counters::interface_counters(&message));
        reading.vf_counters.extend(counters::vf_counters(&message));
        reading.switches.extend(switch::bridge_mode(&message));
        reading.port_vlans.extend(port_vlans::port_vlans(&message));
        reading.routes.extend(route::route(&message));
        reading.devlink.extend(devlink::devlink_part(&message));
        reading.speeds.extend(ethtool::speed(&message));
        if matches!(message.kind, wire::NLMSG_ERROR | wire::NLMSG_DONE)
            && let (Some(errno), words) = wire::verdict(&message)
        {
            reading.errors.push((errno, words));
        }
    }
    Ok(reading)
}

/// rtnetlink in one network namespace: a socket for requests, one for events, one for ethtool.
///
/// Interfaces are named by their index everywhere, because an index survives a rename.
#[derive(Debug)]
pub struct Netlink {
    route: Conversation,
    /// Apart from `route`, so that a flood of events never costs an answer.
    events: Conversation,
    /// `None` where the kernel has no generic netlink: speeds are then unknown.
    ethtool: Option<Ethtool>,
}

impl Netlink {
    /// A socket in the namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel gives no rtnetlink socket. Without ethtool's family, speeds are missing.
    pub fn open() -> Result<Netlink, NetlinkError> {
        let open = || {
            Conversation::open(NETLINK_ROUTE).map_err(|source| socket_error("open a netlink socket", source))
        };
        Ok(Netlink { route: open()?, events: open()?, ethtool: Ethtool::open() })
    }

    /// A socket in the namespace that process `pid` lives in.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the process is gone, its namespace may not be entered, or no socket can be opened in it.
    pub fn in_namespace_of(pid: u32) -> Result<Netlink, NetlinkError> {
        within(Some(pid), Netlink::open)?
    }
}
