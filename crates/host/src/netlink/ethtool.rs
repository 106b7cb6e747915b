//! Link speeds, from ethtool's generic netlink family (`Documentation/networking/ethtool-netlink.rst`; Linux 5.6).

use netlink_packet_core::Emitable;
use netlink_sys::protocols::NETLINK_GENERIC;

use super::{
    socket::Conversation,
    wire::{self, Message},
};

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
const ETHTOOL_MSG_LINKMODES_GET_REPLY: u8 = 4;
const ETHTOOL_A_LINKMODES_HEADER: u16 = 1;
const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_COMPACT_BITSETS: u32 = 1;

/// The length of `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;

/// A socket to ethtool in one network namespace.
#[derive(Debug)]
pub struct Ethtool {
    generic: Conversation,
    /// The number of ethtool's family; `None` until it was asked for: most who have a socket never want a speed.
    family: Option<u16>,
}

impl Ethtool {
    /// A socket in the calling thread's namespace; `None` where the kernel has no generic netlink.
    pub fn open() -> Option<Ethtool> {
        Some(Ethtool { generic: Conversation::open(NETLINK_GENERIC).ok()?, family: None })
    }

    /// The number of the family; `None` where the kernel has no such family.
    fn family(&mut self) -> Option<u16> {
        if self.family.is_some() {
            return self.family;
        }
        let body = Body::new(CTRL_CMD_GETFAMILY).with(CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
        let mut family = None;
        self.generic
            .ask("find ethtool", GENL_ID_CTRL, 0, &body, |message| {
                family = message
                    .payload
                    .get(GENERIC_HEADER..)
                    .and_then(|attributes| wire::attribute(attributes, CTRL_ATTR_FAMILY_ID))
                    .and_then(|value| wire::u16_at(value, 0));
            })
            .ok()?;
        self.family = family;
        family
    }

    /// The speeds in Mbit/s of the interfaces whose driver knows one, with their indices.
    ///
    /// One device that cannot be asked ends the kernel's list early; what came before it still counts. Empty where the kernel has
    /// no ethtool family.
    pub fn speeds(&mut self) -> Vec<(u32, u32)> {
        let Some(family) = self.family() else { return Vec::new() };
        let flags = Body::attribute(ETHTOOL_A_HEADER_FLAGS, &ETHTOOL_FLAG_COMPACT_BITSETS.to_ne_bytes());
        let body = Body::new(ETHTOOL_MSG_LINKMODES_GET)
            .with(ETHTOOL_A_LINKMODES_HEADER | wire::NLA_F_NESTED, &flags);
        let mut speeds = Vec::new();
        let _ = self.generic.dump("list the link speeds", family, &body, |message| {
            speeds.extend(speed(message));
            None::<()>
        });
        speeds
    }
}

/// The index and speed in Mbit/s that an ethtool message tells.
pub fn speed(message: &Message<'_>) -> Option<(u32, u32)> {
    if *message.payload.first()? != ETHTOOL_MSG_LINKMODES_GET_REPLY {
        return None;
    }
    let attributes = message.payload.get(GENERIC_HEADER..)?;
    let header = wire::attribute(attributes, ETHTOOL_A_LINKMODES_HEADER)?;
    let index = wire::u32_at(wire::attribute(header, ETHTOOL_A_HEADER_DEV_INDEX)?, 0)?;
    let speed = wire::u32_at(wire::attribute(attributes, ETHTOOL_A_LINKMODES_SPEED)?, 0)?;
    // SPEED_UNKNOWN is -1.
    (speed != 0 && speed != u32::MAX).then_some((index, speed))
}

/// A generic netlink message: a command and attributes.
struct Body(Vec<u8>);

impl Body {
    fn new(command: u8) -> Body {
        Body(vec![command, 1, 0, 0])
    }

    fn with(mut self, kind: u16, value: &[u8]) -> Body {
        self.0.extend(Body::attribute(kind, value));
        self
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }
}

impl Emitable for Body {
    fn buffer_len(&self) -> usize {
        self.0.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.0);
    }
}
