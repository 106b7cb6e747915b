//! The VLANs of a bridge's ports (`net/bridge/br_netlink.c`): which a port has, and setting them.

use std::collections::BTreeSet;

use netlink_packet_route::{
    AddressFamily,
    link::{AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags, LinkAttribute, LinkExtentMask, LinkMessage},
};
use nix::libc;
use penstock_model::{PortVlans, VlanSet};

use super::{
    Netlink, NetlinkError,
    link::{DELETE_LINK, GET_LINK, IFLA_INFO_DATA, LINK_HEADER, NEW_LINK, change},
    wire::{self, Message},
};

/// The highest VLAN (`VLAN_N_VID` without the reserved one, `include/linux/if_vlan.h`).
const LAST_VLAN: u16 = 4094;
const IFLA_BRIDGE_FLAGS: u16 = 0;
const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
const IFLA_BR_VLAN_DEFAULT_PVID: u16 = 39;
/// The message is of a NIC's embedded switch, not of the bridge that the NIC is a port of.
const BRIDGE_FLAGS_SELF: u16 = 2;

impl Netlink {
    /// The VLANs of every port of a bridge in the namespace, and of each bridge itself, with the index of the interface.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the kernel does not list them.
    pub fn port_vlans(&mut self) -> Result<Vec<(u32, PortVlans)>, NetlinkError> {
        let mut body = LinkMessage::default();
        body.header.interface_family = AddressFamily::Bridge;
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::BrvlanCompressed]));
        self.route.dump("list the VLANs of bridges' ports", GET_LINK, &body, port_vlans)
    }

    /// The VLAN of a bridge's new ports, without a tag (`default_pvid`). `None`: they are in none.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when `bridge` is gone, or the kernel does not tell.
    pub fn default_pvid(&mut self, bridge: u32) -> Result<Option<u16>, NetlinkError> {
        let attempt = format!("look at bridge {bridge}");
        let mut found = None;
        self.route.ask(&attempt, GET_LINK, 0, &change(bridge), |message| {
            found = default_pvid(message).or(found);
        })?;
        Ok(found.filter(|vlan| *vlan != 0))
    }

    /// Gives port `index` of a bridge the VLANs `wanted` in place of `present`. It is never without those that both have.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone, is no port of a bridge, or may not be changed (`CAP_NET_ADMIN`).
    pub fn set_port_vlans(
        &mut self,
        index: u32,
        present: &PortVlans,
        wanted: &PortVlans,
    ) -> Result<(), NetlinkError> {
        let all = wanted.all();
        if !all.is_empty() {
            self.set_link(&format!("put port {index} into {wanted}"), &request(index, wanted))?;
        }
        let surplus = PortVlans {
            tagged: present.all().iter().filter(|vlan| !all.contains(*vlan)).collect(),
            ..PortVlans::default()
        };
        if surplus == PortVlans::default() {
            return Ok(());
        }
        let attempt = format!("take port {index} out of {surplus}");
        self.route.ask(&attempt, DELETE_LINK, 0, &request(index, &surplus), |_| {})
    }
}

/// A message that names VLANs of a port.
fn request(index: u32, vlans: &PortVlans) -> LinkMessage {
    let mut items = Vec::new();
    for (set, flags) in
        [(&vlans.tagged, BridgeVlanInfoFlags::empty()), (&vlans.untagged, BridgeVlanInfoFlags::Untagged)]
    {
        // The PVID stands alone: the kernel takes none in a range (`br_process_vlan_info`).
        let others: VlanSet = set.iter().filter(|vlan| Some(*vlan) != vlans.pvid).collect();
        items.extend(others.ranges().flat_map(|(first, last)| range(first, last, flags)));
        let pvid = vlans.pvid.filter(|vlan| set.contains(*vlan));
        items.extend(pvid.map(|vlan| info(vlan, flags | BridgeVlanInfoFlags::Pvid)));
    }
    let mut body = change(index);
    body.header.interface_family = AddressFamily::Bridge;
    body.attributes.push(LinkAttribute::AfSpecBridge(items));
    body
}

/// A range as the kernel takes one: a VLAN, or the first and the last.
fn range(first: u16, last: u16, flags: BridgeVlanInfoFlags) -> Vec<AfSpecBridge> {
    match first == last {
        true => vec![info(first, flags)],
        false => vec![
            info(first, flags | BridgeVlanInfoFlags::RangeBegin),
            info(last, flags | BridgeVlanInfoFlags::RangeEnd),
        ],
    }
}

fn info(vid: u16, flags: BridgeVlanInfoFlags) -> AfSpecBridge {
    AfSpecBridge::VlanInfo(BridgeVlanInfo { vid, flags })
}

/// What a message of the bridge family says of the VLANs of a port, or of a bridge itself.
pub fn port_vlans(message: &Message<'_>) -> Option<(u32, PortVlans)> {
    if message.kind != NEW_LINK || i32::from(*message.payload.first()?) != libc::AF_BRIDGE {
        return None;
    }
    let index = wire::u32_at(message.payload, 4)?;
    // Left out where there is no VLAN.
    let of_family = wire::attribute(message.payload.get(LINK_HEADER..)?, libc::IFLA_AF_SPEC).unwrap_or(&[]);
    let flags = wire::attribute(of_family, IFLA_BRIDGE_FLAGS).and_then(|value| wire::u16_at(value, 0));
    if flags.is_some_and(|flags| flags & BRIDGE_FLAGS_SELF != 0) {
        return None;
    }
    let (mut tagged, mut untagged, mut pvid) = (BTreeSet::new(), BTreeSet::new(), None);
    let mut begun = None;
    for (attribute, value) in wire::attributes(of_family) {
        // `struct bridge_vlan_info`: flags, the VLAN.
        let (IFLA_BRIDGE_VLAN_INFO, Some(flags), Some(vlan)) =
            (attribute, wire::u16_at(value, 0), wire::u16_at(value, 2))
        else {
            continue;
        };
        let flags = BridgeVlanInfoFlags::from_bits_retain(flags);
        if flags.contains(BridgeVlanInfoFlags::RangeBegin) {
            begun = Some(vlan);
            continue;
        }
        let first = begun.take().filter(|_| flags.contains(BridgeVlanInfoFlags::RangeEnd)).unwrap_or(vlan);
        match flags.contains(BridgeVlanInfoFlags::Untagged) {
            true => untagged.extend(first..=vlan.min(LAST_VLAN)),
            false => tagged.extend(first..=vlan.min(LAST_VLAN)),
        }
        pvid = pvid.or(flags.contains(BridgeVlanInfoFlags::Pvid).then_some(vlan));
    }
    Some((
        index,
        PortVlans { tagged: tagged.into_iter().collect(), untagged: untagged.into_iter().collect(), pvid },
    ))
}

/// The VLAN of new ports, as a link message of a bridge tells it.
fn default_pvid(message: &Message<'_>) -> Option<u16> {
    let attributes = message.payload.get(LINK_HEADER..).filter(|_| message.kind == NEW_LINK)?;
    let data = wire::attribute(wire::attribute(attributes, libc::IFLA_LINKINFO)?, IFLA_INFO_DATA)?;
    wire::u16_at(wire::attribute(data, IFLA_BR_VLAN_DEFAULT_PVID)?, 0)
}
