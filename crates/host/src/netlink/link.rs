//! Links: listing them, and changing one.

use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkHeader, LinkMessage};
use nix::libc;
use penstock_model::{InterfaceAddress, InterfaceName, Mac, Mtu, inventory::Interface};

use std::os::fd::{AsFd, AsRawFd};

use super::{
    Netlink, NetlinkError,
    ethtool::Ethtool,
    upper,
    wire::{self, Message},
};
use crate::{InterfaceReport, driver, namespace::NetworkNamespace};

/// Describes a link, in an answer or an event (`RTM_NEWLINK`).
pub(super) const NEW_LINK: u16 = libc::RTM_NEWLINK;
/// Asks for one link, or for all in a dump (`RTM_GETLINK`).
pub(super) const GET_LINK: u16 = libc::RTM_GETLINK;
/// Changes attributes of a link (`RTM_SETLINK`).
pub(super) const SET_LINK: u16 = libc::RTM_SETLINK;
/// Removes a link, or what is named of a port (`RTM_DELLINK`).
pub(super) const DELETE_LINK: u16 = libc::RTM_DELLINK;

/// The length of `struct ifinfomsg`.
pub(super) const LINK_HEADER: usize = 16;

const ARPHRD_ETHER: u16 = 1;
const IFLA_PHYS_PORT_NAME: u16 = 38;
const IFLA_PERM_ADDRESS: u16 = 54;
/// The name of the link's parent device, the address of a PCI function (`include/uapi/linux/if_link.h`).
pub(super) const IFLA_PARENT_DEV_NAME: u16 = 56;
pub(super) const IFLA_INFO_KIND: u16 = 1;
/// What is told of a link of its kind, in that kind's own attributes.
pub(super) const IFLA_INFO_DATA: u16 = 2;

impl Netlink {
    /// Lists the Ethernet interfaces of the namespace with their addresses: one dump of links, one of addresses,
    /// one of speeds.
    ///
    /// The loopback interface is left out, and so are interfaces without an Ethernet address (tunnels). One whose name
    /// [`InterfaceName`] refuses is listed as `index7`, by its index: whoever gives it such a name hides nothing.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the links or the addresses cannot be listed. Speeds that cannot be had are left out.
    pub fn interfaces(&mut self) -> Result<Vec<InterfaceReport>, NetlinkError> {
        let mut reports = self.links_with_addresses()?;
        for (index, speed) in self.ethtool.as_mut().map(Ethtool::speeds).unwrap_or_default() {
            if let Some(report) = reports.iter_mut().find(|report| report.index == index) {
                report.interface.speed = Some(speed);
            }
        }
        Ok(reports)
    }

    /// The same without speeds, which are asked of the hardware: that takes milliseconds.
    ///
    /// # Errors
    ///
    /// As of [`Netlink::interfaces`].
    pub fn links_with_addresses(&mut self) -> Result<Vec<InterfaceReport>, NetlinkError> {
        let mut reports = self.links()?;
        for (index, address) in self.addresses()? {
            if let Some(report) = reports.iter_mut().find(|report| report.index == index) {
                report.interface.addresses.push(address);
            }
        }
        Ok(reports)
    }

    /// The same without addresses and speeds, in one dump.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the links cannot be listed.
    pub fn links(&mut self) -> Result<Vec<InterfaceReport>, NetlinkError> {
        let mut body = LinkMessage::default();
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let mut reports = self.route.dump("list the network interfaces", GET_LINK, &body, link_report)?;
        // Once for all: whether the kernel names devices.
        if reports.iter().all(|report| report.device.is_none()) {
            reports.iter_mut().for_each(|report| self.name_device(report));
        }
        Ok(reports)
    }

    /// Names the device of an interface of hardware for which the kernel names none: before Linux 5.14 it has no `IFLA_PARENT_DEV_NAME`,
    /// and the driver is asked.
    pub(super) fn name_device(&self, report: &mut InterfaceReport) {
        if report.device.is_none() && report.kind.is_none() {
            let function = driver::function_of(&self.route, report.interface.name.as_str());
            report.device = function.map(|function| function.to_string());
        }
    }

    /// The interface of this name, which may be an alternative one (`IFLA_ALT_IFNAME`), without addresses and speed: what it costs
    /// does not depend on how many there are. `None` when there is none, or when it is one that [`Netlink::interfaces`] leaves out.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel does not tell.
    pub fn link_named(&mut self, name: &InterfaceName) -> Result<Option<InterfaceReport>, NetlinkError> {
        let mut body = LinkMessage::default();
        body.attributes.push(LinkAttribute::IfName(name.to_string()));
        self.link(&format!("look at the interface {name}"), body)
    }

    /// The interface of this index, as [`Netlink::link_named`] tells of one.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel does not tell.
    pub fn link_at(&mut self, index: u32) -> Result<Option<InterfaceReport>, NetlinkError> {
        self.link(&format!("look at interface {index}"), change(index))
    }

    fn link(
        &mut self,
        attempt: &str,
        mut body: LinkMessage,
    ) -> Result<Option<InterfaceReport>, NetlinkError> {
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let mut found = None;
        match self
            .route
            .ask(attempt, GET_LINK, 0, &body, |message| found = link_report(message).or(found.take()))
        {
            Err(NetlinkError::NoSuchInterface { .. }) => Ok(None),
            outcome => {
                outcome?;
                found.iter_mut().for_each(|report| self.name_device(report));
                Ok(found)
            }
        }
    }

    /// The addresses of one interface.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the addresses cannot be listed. An interface that is not there has none.
    pub fn addresses_of(&mut self, index: u32) -> Result<Vec<InterfaceAddress>, NetlinkError> {
        let all = self.addresses()?;
        Ok(all.into_iter().filter(|(of, _)| *of == index).map(|(_, address)| address).collect())
    }

    /// Brings an interface administratively up or down.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone, may not be changed (`CAP_NET_ADMIN`), or its driver fails to open the
    /// device.
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), NetlinkError> {
        let attempt = format!("bring interface {index} {}", if up { "up" } else { "down" });
        let mut body = change(index);
        body.header.change_mask = LinkFlags::Up;
        if up {
            body.header.flags = LinkFlags::Up;
        }
        self.set_link(&attempt, &body)
    }

    /// Sets the MTU of an interface.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone, may not be changed (`CAP_NET_ADMIN`), or its driver does not take the MTU.
    pub fn set_mtu(&mut self, index: u32, mtu: Mtu) -> Result<(), NetlinkError> {
        let mut body = change(index);
        body.attributes.push(LinkAttribute::Mtu(mtu.get()));
        self.set_link(&format!("set MTU {mtu} of interface {index}"), &body)
    }

    /// Sets the MAC address of an interface.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone, may not be changed (`CAP_NET_ADMIN`), or its driver refuses the address.
    pub fn set_mac(&mut self, index: u32, mac: Mac) -> Result<(), NetlinkError> {
        let mut body = change(index);
        body.attributes.push(LinkAttribute::Address(mac.octets().to_vec()));
        self.set_link(&format!("set mac {mac} of interface {index}"), &body)
    }

    /// Makes an interface a port of `master`, a bridge, say. A bond takes none that is up.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when one of the two is gone, may not be changed (`CAP_NET_ADMIN`), or `master` does not take it.
    pub fn set_master(&mut self, index: u32, master: u32) -> Result<(), NetlinkError> {
        let mut body = change(index);
        body.attributes.push(LinkAttribute::Controller(master));
        self.set_link(&format!("make interface {index} a port of interface {master}"), &body)
    }

    /// Renames an interface, which has to be down on kernels before 6.2.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone, may not be changed (`CAP_NET_ADMIN`), is up on such a kernel, or the name
    /// is taken.
    pub fn rename(&mut self, index: u32, to: &InterfaceName) -> Result<(), NetlinkError> {
        let mut body = change(index);
        body.attributes.push(LinkAttribute::IfName(to.to_string()));
        self.set_link(&format!("rename interface {index} to {to}"), &body)
    }

    /// Moves an interface to another namespace and gives it a name there, with one request. It is down afterwards, without
    /// addresses, and has another index where its own is taken there.
    ///
    /// # Errors
    ///
    /// `EEXIST` where something there has the name. The interface may have been moved all the same, under its old name: the
    /// kernel looks at the new one when it has moved (`net/core/rtnetlink.c`, `do_setlink`).
    pub fn move_to(
        &mut self,
        index: u32,
        namespace: &NetworkNamespace,
        name: &InterfaceName,
    ) -> Result<(), NetlinkError> {
        let mut body = change(index);
        body.attributes.push(LinkAttribute::NetNsFd(namespace.as_fd().as_raw_fd()));
        body.attributes.push(LinkAttribute::IfName(name.to_string()));
        let attempt = format!("move interface {index} to {} as {name}", namespace.path().display());
        self.set_link(&attempt, &body)
    }

    pub(super) fn set_link(&mut self, attempt: &str, body: &LinkMessage) -> Result<(), NetlinkError> {
        self.route.ask(attempt, SET_LINK, 0, body, |_| {})
    }
}

/// The start of a message about interface `index`.
pub(super) fn change(index: u32) -> LinkMessage {
    let mut body = LinkMessage::default();
    body.header = LinkHeader { index, ..LinkHeader::default() };
    body
}

/// What a link message says of an Ethernet interface; `None` for any other message.
pub fn link_report(message: &Message<'_>) -> Option<InterfaceReport> {
    if message.kind != NEW_LINK {
        return None;
    }
    // AF_BRIDGE messages describe ports of bridges, not links.
    let family = *message.payload.first()?;
    let (hardware, index) = (wire::u16_at(message.payload, 2)?, wire::u32_at(message.payload, 4)?);
    let flags = wire::u32_at(message.payload, 8)?;
    if i32::from(family) != libc::AF_UNSPEC || hardware != ARPHRD_ETHER || index == 0 {
        return None;
    }
    let attributes = message.payload.get(LINK_HEADER..)?;
    let (mut name, mut mac, mut mtu, mut carrier) = (None, None, None, None);
    let (mut permanent_mac, mut device, mut kind, mut port_name) = (None, None, None, None);
    let (mut promiscuous, mut master) = (None, None);
    for (attribute, value) in wire::attributes(attributes) {
        match attribute {
            libc::IFLA_IFNAME => name = name_of(index, &wire::text(value)),
            libc::IFLA_ADDRESS => mac = mac_of(value),
            libc::IFLA_MTU => mtu = wire::u32_at(value, 0),
            libc::IFLA_MASTER => master = wire::u32_at(value, 0).filter(|index| *index != 0),
            libc::IFLA_CARRIER => carrier = value.first().map(|up| *up != 0),
            libc::IFLA_LINKINFO => kind = wire::attribute(value, IFLA_INFO_KIND).map(wire::text),
            IFLA_PERM_ADDRESS => permanent_mac = mac_of(value).filter(|mac| !mac.is_zero()),
            IFLA_PARENT_DEV_NAME => device = Some(wire::text(value)),
            IFLA_PHYS_PORT_NAME => port_name = Some(wire::text(value)),
            // The flag tells only of what was set by hand (`net/core/dev.c`, `dev_get_flags`).
            libc::IFLA_PROMISCUITY => promiscuous = wire::u32_at(value, 0).map(|listeners| listeners > 0),
            _ => {}
        }
    }
    let up = flags & libc::IFF_UP as u32 != 0;
    Some(InterfaceReport {
        index,
        interface: Interface {
            name: name?,
            mac: mac?,
            mtu: mtu?,
            up,
            carrier: carrier.filter(|_| up),
            speed: None,
            addresses: Vec::new(),
            routes: Vec::new(),
            master: None,
            uppers: Vec::new(),
        },
        permanent_mac,
        device,
        kind,
        port_name,
        promiscuous,
        routes: None,
        master,
        lower: upper::lower(index, attributes),
    })
}

/// The name of an interface. The kernel allows what [`InterfaceName`] does not (`net/core/dev.c`, `dev_valid_name`): `index7`, which the
/// kernel itself gives to none, stands for such a name of interface 7.
fn name_of(index: u32, name: &str) -> Option<InterfaceName> {
    name.parse().or_else(|_| format!("index{index}").parse()).ok()
}

fn mac_of(value: &[u8]) -> Option<Mac> {
    value.try_into().ok().map(Mac::new)
}
