//! Interfaces of software that stand on others (`IFLA_LINK`): what they stand on, and making those of VLANs (`net/8021q/vlan_netlink.c`).

use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVlan, LinkAttribute, LinkInfo, LinkMessage, VlanFlags,
    VlanProtocol as LinkVlanProtocol, VlanQosMapping,
};
use nix::{errno::Errno, libc};
use penstock_model::{InterfaceName, Mac, VlanProtocol, inventory::VlanTag};

use super::{
    Netlink, NetlinkError,
    link::{IFLA_INFO_DATA, IFLA_INFO_KIND, NEW_LINK},
    wire,
};
use crate::interface::Lower;

const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_FLAGS: u16 = 2;
const IFLA_VLAN_EGRESS_QOS: u16 = 3;
const IFLA_VLAN_INGRESS_QOS: u16 = 4;
const IFLA_VLAN_PROTOCOL: u16 = 5;
const IFLA_VLAN_QOS_MAPPING: u16 = 1;
/// The namespace that what it stands on is in, where that is another.
pub const IFLA_LINK_NETNSID: u16 = 37;

/// The kernel refuses all others (`net/8021q/vlan_dev.c`, `vlan_dev_change_flags`).
const SETTABLE: VlanFlags = VlanFlags::ReorderHdr
    .union(VlanFlags::Gvrp)
    .union(VlanFlags::LooseBinding)
    .union(VlanFlags::Mvrp)
    .union(VlanFlags::BridgeBinding);

impl Netlink {
    /// Makes an interface of a VLAN over interface `lower`, with the address `mac`, or that of the one below. It is down. That
    /// there is such an interface already, or another of this name, is success.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when `lower` is gone, or none can be made (`CAP_NET_ADMIN`,
    /// `CONFIG_VLAN_8021Q`).
    pub fn add_vlan(
        &mut self,
        lower: u32,
        name: &InterfaceName,
        mac: Option<Mac>,
        tag: &VlanTag,
    ) -> Result<(), NetlinkError> {
        let flags = wire::NLM_F_CREATE | wire::NLM_F_EXCL;
        let attempt = format!("make {name} of {tag} over interface {lower}");
        match self.route.ask(&attempt, NEW_LINK, flags, &vlan_request(lower, name, mac, tag), |_| {}) {
            Err(NetlinkError::Refused { errno: Errno::EEXIST, .. }) => Ok(()),
            outcome => outcome,
        }
    }
}

fn vlan_request(lower: u32, name: &InterfaceName, mac: Option<Mac>, tag: &VlanTag) -> LinkMessage {
    let protocol = match tag.protocol {
        VlanProtocol::Dot1q => LinkVlanProtocol::Ieee8021Q,
        VlanProtocol::Dot1ad => LinkVlanProtocol::Ieee8021Ad,
    };
    let map =
        |pairs: &[(u32, u32)]| pairs.iter().map(|(from, to)| VlanQosMapping::Mapping(*from, *to)).collect();
    let mut data = vec![
        InfoVlan::Id(tag.id),
        InfoVlan::Protocol(protocol),
        InfoVlan::Flags((VlanFlags::from_bits_retain(tag.flags), SETTABLE)),
    ];
    for (pairs, attribute) in [
        (&tag.ingress_qos, InfoVlan::IngressQos as fn(Vec<VlanQosMapping>) -> InfoVlan),
        (&tag.egress_qos, InfoVlan::EgressQos),
    ] {
        if !pairs.is_empty() {
            data.push(attribute(map(pairs)));
        }
    }
    let mut body = LinkMessage::default();
    body.attributes = vec![
        LinkAttribute::Link(lower),
        LinkAttribute::IfName(name.to_string()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Vlan), LinkInfo::Data(InfoData::Vlan(data))]),
    ];
    body.attributes.extend(mac.map(|mac| LinkAttribute::Address(mac.octets().to_vec())));
    body
}

/// What interface `index` stands on, by the attributes of its link message; `None` where that is nothing, or elsewhere.
pub fn lower(index: u32, attributes: &[u8]) -> Option<Lower> {
    let lower = stands_on(attributes).filter(|lower| *lower != index)?;
    if wire::attribute(attributes, IFLA_LINK_NETNSID).is_some() {
        return None;
    }
    let info = wire::attribute(attributes, libc::IFLA_LINKINFO)?;
    let vlan = match &*wire::text(wire::attribute(info, IFLA_INFO_KIND)?) {
        "vlan" => wire::attribute(info, IFLA_INFO_DATA).and_then(vlan_tag),
        _ => None,
    };
    Some(Lower { index: lower, vlan })
}

/// The index of what an interface of software stands on, in whichever namespace that is.
pub fn stands_on(attributes: &[u8]) -> Option<u32> {
    let lower = wire::u32_at(wire::attribute(attributes, libc::IFLA_LINK)?, 0)?;
    let info = wire::attribute(attributes, libc::IFLA_LINKINFO)?;
    let kind = wire::text(wire::attribute(info, IFLA_INFO_KIND)?);
    // Ends of one cable name each other.
    (lower != 0 && !matches!(&*kind, "veth" | "netkit")).then_some(lower)
}

fn vlan_tag(data: &[u8]) -> Option<VlanTag> {
    let attribute = |wanted| wire::attribute(data, wanted);
    // An EtherType, in the order of the network.
    let protocol = match attribute(IFLA_VLAN_PROTOCOL)?.get(..2)? {
        [0x81, 0x00] => VlanProtocol::Dot1q,
        [0x88, 0xa8] => VlanProtocol::Dot1ad,
        _ => return None,
    };
    let map = |wanted: u16| -> Vec<(u32, u32)> {
        let pairs = wire::attributes(attribute(wanted).unwrap_or(&[]));
        let pairs = pairs.filter(|(kind, _)| *kind == IFLA_VLAN_QOS_MAPPING);
        pairs.filter_map(|(_, pair)| Some((wire::u32_at(pair, 0)?, wire::u32_at(pair, 4)?))).collect()
    };
    Some(VlanTag {
        id: wire::u16_at(attribute(IFLA_VLAN_ID)?, 0)?,
        protocol,
        flags: wire::u32_at(attribute(IFLA_VLAN_FLAGS)?, 0)?,
        ingress_qos: map(IFLA_VLAN_INGRESS_QOS),
        egress_qos: map(IFLA_VLAN_EGRESS_QOS),
    })
}
