//! VFs as their PF's driver keeps them (`net/core/rtnetlink.c`, `rtnl_fill_vfinfo` and `do_setvfinfo`).

use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkMessage, LinkVfInfo, VfInfo, VfInfoLinkState, VfInfoMac, VfInfoRate,
    VfInfoSpoofCheck, VfInfoTrust, VfLinkState, VfVlan, VfVlanInfo, VlanProtocol as WireProtocol,
};
use nix::libc;
use penstock_model::{
    LinkState, Mac, TxRate, VfAttribute, VfIndex, VlanId, VlanProtocol, VlanQos, inventory::VfState,
};

use super::{
    Netlink, NetlinkError,
    link::{GET_LINK, LINK_HEADER, NEW_LINK, change},
    wire::{self, Message},
};

/// One VF of a list of them.
pub(super) const IFLA_VF_INFO: u16 = 1;
/// A VF's index and address.
pub(super) const IFLA_VF_MAC: u16 = 1;
const IFLA_VF_VLAN: u16 = 2;
const IFLA_VF_TX_RATE: u16 = 3;
const IFLA_VF_SPOOFCHK: u16 = 4;
const IFLA_VF_LINK_STATE: u16 = 5;
const IFLA_VF_RATE: u16 = 6;
const IFLA_VF_TRUST: u16 = 9;
const IFLA_VF_VLAN_LIST: u16 = 12;
const IFLA_VF_VLAN_INFO: u16 = 1;

impl Netlink {
    /// What the driver of the PF whose interface is `index` reports of its VFs, in index order; empty when it reports
    /// none (virtio never does).
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone, or the kernel's answer cannot be read, or has not all of more VFs than fit into it.
    pub fn vfs(&mut self, index: u32) -> Result<Vec<(VfIndex, VfState)>, NetlinkError> {
        let mut body = change(index);
        // Statistics of each VF would only make the answer larger; one attribute holds 64 KiB at most.
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::Vf, LinkExtentMask::SkipStats]));
        let (mut vfs, mut cut) = (Vec::new(), None);
        let attempt = format!("list the VFs of interface {index}");
        self.route.ask(&attempt, GET_LINK, 0, &body, |message| {
            vfs.extend(vf_states(message));
            cut = cut_off(message).or(cut.take());
        })?;
        if let Some(what) = cut {
            return Err(NetlinkError::Malformed { attempt, what });
        }
        vfs.sort_by_key(|(index, _)| *index);
        Ok(vfs)
    }

    /// Sets one attribute of a VF through its PF's interface `index`.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone or may not be changed (`CAP_NET_ADMIN`), there is no such VF, the driver has
    /// no call for the attribute ([`NetlinkError::Unsupported`]), or it refuses the value.
    pub fn set_vf(&mut self, index: u32, vf: VfIndex, attribute: &VfAttribute) -> Result<(), NetlinkError> {
        let attempt = format!("set {attribute} of VF {vf} through interface {index}");
        self.set_link(&attempt, &vf_request(index, &[(vf, *attribute)]))
    }

    /// Sets several attributes of VFs of one PF with one request, in this order. After an error it is not known which of them
    /// it was: those before it are set, those after it are not (`do_setlink` stops there).
    ///
    /// # Errors
    ///
    /// As [`set_vf`](Netlink::set_vf), for the first of them that fails.
    pub fn set_vfs(&mut self, index: u32, wanted: &[(VfIndex, VfAttribute)]) -> Result<(), NetlinkError> {
        let attempt = format!("set {} attributes of VFs through interface {index}", wanted.len());
        self.set_link(&attempt, &vf_request(index, wanted))
    }
}

/// The request that sets attributes of VFs.
///
/// The VLAN always travels as `IFLA_VF_VLAN_LIST`: the kernel (4.9 and later) hands it and the older `IFLA_VF_VLAN` to
/// one and the same driver function, so there is nothing to fall back to.
pub(super) fn vf_request(index: u32, wanted: &[(VfIndex, VfAttribute)]) -> LinkMessage {
    let infos = wanted.iter().map(|(vf, attribute)| LinkVfInfo(vec![vf_info(*vf, attribute)]));
    let mut body = change(index);
    body.attributes.push(LinkAttribute::VfInfoList(infos.collect()));
    body
}

fn vf_info(vf: VfIndex, attribute: &VfAttribute) -> VfInfo {
    let vf = u32::from(vf.get());
    match attribute {
        VfAttribute::Mac(mac) => VfInfo::Mac(VfInfoMac::new(vf, &mac.octets())),
        VfAttribute::Vlan { id, qos, protocol } => VfInfo::VlanList(vec![VfVlan::Info(VfVlanInfo::new(
            vf,
            id.get().into(),
            qos.get().into(),
            match protocol {
                VlanProtocol::Dot1q => WireProtocol::Ieee8021Q,
                VlanProtocol::Dot1ad => WireProtocol::Ieee8021Ad,
            },
        ))]),
        VfAttribute::Spoofchk(on) => VfInfo::SpoofCheck(VfInfoSpoofCheck::new(vf, *on)),
        VfAttribute::Trust(on) => VfInfo::Trust(VfInfoTrust::new(vf, *on)),
        VfAttribute::Rate { min, max } => VfInfo::Rate(VfInfoRate::new(vf, min.0, max.0)),
        VfAttribute::LinkState(state) => VfInfo::LinkState(VfInfoLinkState::new(
            vf,
            match state {
                LinkState::Auto => VfLinkState::Auto,
                LinkState::Enable => VfLinkState::Enable,
                LinkState::Disable => VfLinkState::Disable,
            },
        )),
    }
}

/// What a link message says of the PF's VFs.
pub fn vf_states(message: &Message<'_>) -> Vec<(VfIndex, VfState)> {
    if message.kind != NEW_LINK {
        return Vec::new();
    }
    let attributes = message.payload.get(LINK_HEADER..).unwrap_or_default();
    let list = wire::attribute(attributes, libc::IFLA_VFINFO_LIST).unwrap_or_default();
    wire::attributes(list)
        .filter(|(kind, _)| *kind == IFLA_VF_INFO)
        .filter_map(|(_, info)| vf_state(info))
        .collect()
}

/// That a list of VFs is not whole, in words: the length of an attribute has 16 bits, and kernels let that of the list wrap. A driver that
/// tells nothing of some of its VFs leaves them out as well; then what it would be with all of them fits.
pub(super) fn cut_off(message: &Message<'_>) -> Option<String> {
    if message.kind != NEW_LINK {
        return None;
    }
    let attributes = message.payload.get(LINK_HEADER..)?;
    let list = wire::attribute(attributes, libc::IFLA_VFINFO_LIST)?;
    let count = wire::u32_at(wire::attribute(attributes, libc::IFLA_NUM_VF)?, 0)? as usize;
    let told: Vec<usize> = wire::attributes(list)
        .filter(|(kind, _)| *kind == IFLA_VF_INFO)
        .map(|(_, info)| 4 + info.len())
        .collect();
    let one = told.iter().copied().max().unwrap_or(list.len());
    (told.len() < count && one.saturating_mul(count) > usize::from(u16::MAX)).then(|| {
        format!(
            "it has {} of {count} VFs, and what the kernel tells of all does not fit into its list of 64 KiB",
            told.len()
        )
    })
}

/// One `IFLA_VF_INFO`. Each attribute in it is a struct that starts with the VF's index.
fn vf_state(info: &[u8]) -> Option<(VfIndex, VfState)> {
    let (mut index, mut mac) = (None, None);
    let (mut vlan, mut rate, mut older_rate, mut vlan_proto) = (None, None, None, VlanProtocol::Dot1q);
    let (mut spoofchk, mut trust, mut link_state) = (None, None, None);
    for (kind, value) in wire::attributes(info) {
        let setting = wire::u32_at(value, 4);
        match kind {
            IFLA_VF_MAC => {
                index =
                    wire::u32_at(value, 0).and_then(|index| u16::try_from(index).ok()).and_then(VfIndex::new);
                mac = value.get(4..10).and_then(|octets| octets.try_into().ok()).map(Mac::new);
            }
            IFLA_VF_VLAN => vlan = setting.zip(wire::u32_at(value, 8)),
            IFLA_VF_VLAN_LIST => {
                let protocol = wire::attribute(value, IFLA_VF_VLAN_INFO)
                    .and_then(|info| info.get(12..14))
                    .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
                if protocol == Some(VlanProtocol::Dot1ad.ethertype()) {
                    vlan_proto = VlanProtocol::Dot1ad;
                }
            }
            IFLA_VF_TX_RATE => older_rate = setting,
            IFLA_VF_RATE => rate = setting.zip(wire::u32_at(value, 8)),
            IFLA_VF_SPOOFCHK => spoofchk = setting.and_then(switch),
            IFLA_VF_TRUST => trust = setting.and_then(switch),
            IFLA_VF_LINK_STATE => {
                link_state = setting.and_then(|state| match state {
                    0 => Some(LinkState::Auto),
                    1 => Some(LinkState::Enable),
                    2 => Some(LinkState::Disable),
                    _ => None,
                })
            }
            _ => {}
        }
    }
    let (id, qos) = vlan.unwrap_or_default();
    let (min, max) = rate.unwrap_or((0, older_rate.unwrap_or_default()));
    let state = VfState {
        mac: mac?,
        vlan: u16::try_from(id).ok().and_then(VlanId::new).unwrap_or_default(),
        qos: u8::try_from(qos).ok().and_then(VlanQos::new).unwrap_or_default(),
        vlan_proto,
        spoofchk,
        trust,
        min_tx_rate: TxRate(min),
        max_tx_rate: TxRate(max),
        link_state,
    };
    Some((index?, state))
}

/// 0 and 1 are off and on; the kernel fills in -1 where the driver says nothing.
fn switch(setting: u32) -> Option<bool> {
    match setting {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
