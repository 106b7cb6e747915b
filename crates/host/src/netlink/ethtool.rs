//! Link speeds, from ethtool's generic netlink family (`Documentation/networking/ethtool-netlink.rst`; Linux 5.6).

use super::{
    generic::{GenericBody, GenericFamily, attributes},
    wire::{self, Message},
};

const ETHTOOL_MSG_LINKMODES_GET: u8 = 4;
const ETHTOOL_MSG_LINKMODES_GET_REPLY: u8 = 4;
const ETHTOOL_A_LINKMODES_HEADER: u16 = 1;
const ETHTOOL_A_LINKMODES_SPEED: u16 = 5;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_FLAGS: u16 = 3;
const ETHTOOL_FLAG_COMPACT_BITSETS: u32 = 1;

/// A socket to ethtool in one network namespace.
#[derive(Debug)]
pub struct Ethtool(GenericFamily);

impl Ethtool {
    /// A socket in the calling thread's namespace; `None` where the kernel has no generic netlink.
    pub fn open() -> Option<Ethtool> {
        GenericFamily::open("ethtool").ok().map(Ethtool)
    }

    /// The speeds in Mbit/s of the interfaces whose driver knows one, with their indices.
    ///
    /// One device that cannot be asked ends the kernel's list early; what came before it still counts. Empty where the kernel has
    /// no ethtool family.
    pub fn speeds(&mut self) -> Vec<(u32, u32)> {
        let Ok(Some(family)) = self.0.number() else { return Vec::new() };
        let flags =
            GenericBody::attribute(ETHTOOL_A_HEADER_FLAGS, &ETHTOOL_FLAG_COMPACT_BITSETS.to_ne_bytes());
        let body = GenericBody::new(ETHTOOL_MSG_LINKMODES_GET)
            .with(ETHTOOL_A_LINKMODES_HEADER | wire::NLA_F_NESTED, &flags);
        let mut speeds = Vec::new();
        let _ = self.0.dump("list the link speeds", family, &body, |message| {
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
    let attributes = attributes(message)?;
    let header = wire::attribute(attributes, ETHTOOL_A_LINKMODES_HEADER)?;
    let index = wire::u32_at(wire::attribute(header, ETHTOOL_A_HEADER_DEV_INDEX)?, 0)?;
    let speed = wire::u32_at(wire::attribute(attributes, ETHTOOL_A_LINKMODES_SPEED)?, 0)?;
    // SPEED_UNKNOWN is -1.
    (speed != 0 && speed != u32::MAX).then_some((index, speed))
}
