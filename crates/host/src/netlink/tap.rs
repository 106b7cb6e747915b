//! Taps and bridges: of a link what tells whether it is a tap of ours, and how it is (`drivers/net/tun.c`, `tun_fill_info`;
//! `net/bridge/br_netlink.c`, `br_port_fill_attrs`).

use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use nix::libc;

use super::{
    Netlink, NetlinkError,
    link::{GET_LINK, IFLA_INFO_DATA, IFLA_INFO_KIND, LINK_HEADER, NEW_LINK},
    wire::{self, Message},
};

const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_TUN_OWNER: u16 = 1;
const IFLA_BRPORT_STATE: u16 = 1;
/// `BR_STATE_FORWARDING` (`include/uapi/linux/if_bridge.h`).
const FORWARDING: u8 = 3;

/// A link, whatever its alias is made of: any root of a network namespace chooses that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TapLink {
    pub index: u32,
    pub name: String,
    /// `tun`, `bridge`...
    pub kind: Option<String>,
    /// It is administratively up (`IFF_UP`).
    pub up: bool,
    /// It has a carrier (`IFF_LOWER_UP`).
    pub lower_up: bool,
    pub mtu: u32,
    /// The index of what it is a port of.
    pub master: Option<u32>,
    pub alias: Option<String>,
    /// The account that alone may open it, of a tap that has one.
    pub owner: Option<u32>,
    /// The bridge that it is a port of forwards its frames.
    pub forwarding: bool,
}

impl Netlink {
    /// All links of the namespace.
    pub(crate) fn tap_links(&mut self) -> Result<Vec<TapLink>, NetlinkError> {
        let mut body = LinkMessage::default();
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        self.route.dump("list the network interfaces", GET_LINK, &body, tap_link)
    }
}

pub(super) fn tap_link(message: &Message<'_>) -> Option<TapLink> {
    if message.kind != NEW_LINK || i32::from(*message.payload.first()?) != libc::AF_UNSPEC {
        return None;
    }
    let flags = wire::u32_at(message.payload, 8)?;
    let has = |flag: i32| flags & flag.cast_unsigned() != 0;
    let mut link = TapLink {
        index: wire::u32_at(message.payload, 4)?,
        up: has(libc::IFF_UP),
        lower_up: has(libc::IFF_LOWER_UP),
        ..TapLink::default()
    };
    for (attribute, value) in wire::attributes(message.payload.get(LINK_HEADER..)?) {
        match attribute {
            libc::IFLA_IFNAME => link.name = wire::text(value),
            libc::IFLA_MTU => link.mtu = wire::u32_at(value, 0)?,
            libc::IFLA_MASTER => link.master = wire::u32_at(value, 0).filter(|index| *index != 0),
            libc::IFLA_IFALIAS => link.alias = Some(wire::text(value)).filter(|alias| !alias.is_empty()),
            libc::IFLA_LINKINFO => {
                let within = |data: u16, kind: u16| wire::attribute(wire::attribute(value, data)?, kind);
                link.kind = wire::attribute(value, IFLA_INFO_KIND).map(wire::text);
                link.owner = within(IFLA_INFO_DATA, IFLA_TUN_OWNER).and_then(|owner| wire::u32_at(owner, 0));
                let state = within(IFLA_INFO_SLAVE_DATA, IFLA_BRPORT_STATE);
                link.forwarding = state.is_some_and(|state| state.first() == Some(&FORWARDING));
            }
            _ => {}
        }
    }
    // Data of other kinds has other meanings.
    link.owner = link.owner.filter(|_| link.kind.as_deref() == Some("tun"));
    Some(link)
}
