//! The mode of a NIC's embedded switch (`IFLA_BRIDGE_MODE`; `net/core/rtnetlink.c`, `rtnl_bridge_setlink`).

use netlink_packet_route::{
    AddressFamily,
    link::{AfSpecBridge, BridgeFlag, BridgeMode, LinkAttribute, LinkMessage},
};
use nix::libc;
use penstock_model::inventory::SwitchMode;

use super::{
    Netlink, NetlinkError,
    link::{GET_LINK, LINK_HEADER, NEW_LINK, change},
    wire::{self, Message},
};

const IFLA_BRIDGE_MODE: u16 = 1;
const BRIDGE_MODE_VEB: u16 = 0;
const BRIDGE_MODE_VEPA: u16 = 1;

impl Netlink {
    /// The mode of the embedded switch behind interface `index`; [`SwitchMode::Unreported`] when the driver has none.
    ///
    /// devlink's switchdev mode is not seen here.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel cannot be asked.
    pub fn switch_mode(&mut self, index: u32) -> Result<SwitchMode, NetlinkError> {
        let mut body = LinkMessage::default();
        body.header.interface_family = AddressFamily::Bridge;
        // Only a dump can be asked for in this family, and a strict kernel refuses an index in it.
        let attempt = format!("read the embedded switch's mode of interface {index}");
        let modes = self.route.dump(&attempt, GET_LINK, &body, bridge_mode)?;
        Ok(modes.into_iter().find_map(|(of, mode)| (of == index).then_some(mode)).unwrap_or_default())
    }

    /// Sets the mode of the embedded switch behind interface `index`. Only VEB and VEPA can be set here.
    ///
    /// # Errors
    ///
    /// [`NetlinkError::Unsupported`] for another mode than VEB and VEPA, and for a driver that has no such call;
    /// [`NetlinkError`] else when the interface is gone or may not be changed.
    pub fn set_switch_mode(&mut self, index: u32, mode: SwitchMode) -> Result<(), NetlinkError> {
        let attempt = format!("set the embedded switch of interface {index} to {mode} mode");
        match switch_request(index, mode) {
            Some(body) => self.set_link(&attempt, &body),
            None => Err(NetlinkError::Unsupported {
                attempt,
                detail: Some("only VEB and VEPA are modes that an interface takes".to_owned()),
            }),
        }
    }
}

pub(super) fn switch_request(index: u32, mode: SwitchMode) -> Option<LinkMessage> {
    let mode = match mode {
        SwitchMode::Veb => BridgeMode::Veb,
        SwitchMode::Vepa => BridgeMode::Vepa,
        SwitchMode::Switchdev | SwitchMode::Unreported => return None,
    };
    let mut body = change(index);
    body.header.interface_family = AddressFamily::Bridge;
    body.attributes.push(LinkAttribute::AfSpecBridge(vec![
        AfSpecBridge::Flags(BridgeFlag::LowerDev),
        AfSpecBridge::Mode(mode),
    ]));
    Some(body)
}

/// What a message of the bridge family says of an embedded switch.
pub fn bridge_mode(message: &Message<'_>) -> Option<(u32, SwitchMode)> {
    if message.kind != NEW_LINK || i32::from(*message.payload.first()?) != libc::AF_BRIDGE {
        return None;
    }
    let index = wire::u32_at(message.payload, 4)?;
    let of_family = wire::attribute(message.payload.get(LINK_HEADER..)?, libc::IFLA_AF_SPEC)?;
    let mode = wire::attribute(of_family, IFLA_BRIDGE_MODE).and_then(|value| wire::u16_at(value, 0))?;
    match mode {
        BRIDGE_MODE_VEB => Some((index, SwitchMode::Veb)),
        BRIDGE_MODE_VEPA => Some((index, SwitchMode::Vepa)),
        _ => None,
    }
}
