//! Counters of links and of VFs (`net/core/rtnetlink.c`, `rtnl_fill_stats` and `rtnl_fill_vfinfo`).

use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use nix::libc;
use penstock_model::{
    VfIndex,
    inventory::{InterfaceCounters, VfCounters},
};

use super::{
    Netlink, NetlinkError,
    ethtool::Ethtool,
    link::{GET_LINK, LINK_HEADER, NEW_LINK, change, link_report},
    vf::{IFLA_VF_INFO, IFLA_VF_MAC},
    wire::{self, Message},
};
use crate::InterfaceReport;

const IFLA_STATS64: u16 = 23;

const IFLA_VF_STATS: u16 = 8;
const IFLA_VF_STATS_RX_PACKETS: u16 = 0;
const IFLA_VF_STATS_TX_PACKETS: u16 = 1;
const IFLA_VF_STATS_RX_BYTES: u16 = 2;
const IFLA_VF_STATS_TX_BYTES: u16 = 3;
const IFLA_VF_STATS_BROADCAST: u16 = 4;
const IFLA_VF_STATS_MULTICAST: u16 = 5;
const IFLA_VF_STATS_RX_DROPPED: u16 = 7;
const IFLA_VF_STATS_TX_DROPPED: u16 = 8;

impl Netlink {
    /// The Ethernet interfaces of the namespace as [`interfaces`](Netlink::interfaces) lists them, without addresses, each with its
    /// counters; `None` for one whose counters the kernel did not send.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the links cannot be listed. Speeds that cannot be had are left out.
    pub fn counted_interfaces(
        &mut self,
    ) -> Result<Vec<(InterfaceReport, Option<InterfaceCounters>)>, NetlinkError> {
        let attempt = "read the counters of the network interfaces";
        let mut all = self.route.dump(attempt, GET_LINK, &LinkMessage::default(), |message| {
            Some((link_report(message)?, interface_counters(message)))
        })?;
        for (index, speed) in self.ethtool.as_mut().map(Ethtool::speeds).unwrap_or_default() {
            if let Some((report, _)) = all.iter_mut().find(|(report, _)| report.index == index) {
                report.interface.speed = Some(speed);
            }
        }
        Ok(all)
    }

    /// What the driver of the PF whose interface is `index` has counted for its VFs, in index order.
    ///
    /// A driver that counts nothing is told of with zeros. All VFs of a PF are in one attribute, whose length has 16 bits: of more
    /// than about 180 VFs the kernel's answer is cut off, so that fewer VFs are told of than there are.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] when the interface is gone, or the kernel's answer cannot be read.
    pub fn vf_counters(&mut self, index: u32) -> Result<Vec<(VfIndex, VfCounters)>, NetlinkError> {
        let mut body = change(index);
        body.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::Vf]));
        let mut all = Vec::new();
        let attempt = format!("read the counters of the VFs of interface {index}");
        self.route.ask(&attempt, GET_LINK, 0, &body, |message| all.extend(vf_counters(message)))?;
        all.sort_by_key(|(index, _)| *index);
        all.dedup_by_key(|(index, _)| *index);
        Ok(all)
    }
}

/// The counters in a link message; `None` for any other message.
pub fn interface_counters(message: &Message<'_>) -> Option<InterfaceCounters> {
    if message.kind != NEW_LINK {
        return None;
    }
    let counts = wire::attribute(message.payload.get(LINK_HEADER..)?, IFLA_STATS64)?;
    let count = |place: usize| wire::u64_at(counts, 8 * place);
    Some(InterfaceCounters {
        rx_packets: count(0)?,
        tx_packets: count(1)?,
        rx_bytes: count(2)?,
        tx_bytes: count(3)?,
        rx_errors: count(4)?,
        tx_errors: count(5)?,
        rx_dropped: count(6)?,
        tx_dropped: count(7)?,
        multicast: count(8)?,
    })
}

/// What a link message tells of the counters of the PF's VFs.
pub fn vf_counters(message: &Message<'_>) -> Vec<(VfIndex, VfCounters)> {
    if message.kind != NEW_LINK {
        return Vec::new();
    }
    let attributes = message.payload.get(LINK_HEADER..).unwrap_or_default();
    let list = wire::attribute(attributes, libc::IFLA_VFINFO_LIST).unwrap_or_default();
    let infos = wire::attributes(list).filter(|(kind, _)| *kind == IFLA_VF_INFO);
    infos.filter_map(|(_, info)| counters_of_vf(info)).collect()
}

/// One `IFLA_VF_INFO`; `None` without statistics.
fn counters_of_vf(info: &[u8]) -> Option<(VfIndex, VfCounters)> {
    // Each attribute of a VF begins with its index; this one is always there.
    let index = wire::u32_at(wire::attribute(info, IFLA_VF_MAC)?, 0)?;
    let index = u16::try_from(index).ok().and_then(VfIndex::new)?;
    let counts = wire::attribute(info, IFLA_VF_STATS)?;
    let count = |kind| wire::u64_at(wire::attribute(counts, kind)?, 0);
    let counters = VfCounters {
        rx_packets: count(IFLA_VF_STATS_RX_PACKETS)?,
        tx_packets: count(IFLA_VF_STATS_TX_PACKETS)?,
        rx_bytes: count(IFLA_VF_STATS_RX_BYTES)?,
        tx_bytes: count(IFLA_VF_STATS_TX_BYTES)?,
        broadcast: count(IFLA_VF_STATS_BROADCAST),
        multicast: count(IFLA_VF_STATS_MULTICAST),
        rx_dropped: count(IFLA_VF_STATS_RX_DROPPED),
        tx_dropped: count(IFLA_VF_STATS_TX_DROPPED),
    };
    Some((index, counters))
}
