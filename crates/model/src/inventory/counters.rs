//! What has gone through a function since its counters began: at a new interface, a new VF, or a driver that was bound anew.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counters of a network interface (`struct rtnl_link_stats64`, `include/uapi/linux/if_link.h`). Packets are what the driver counts
/// as one; bytes are of frames as it counts them, with the Ethernet header and mostly without the checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InterfaceCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bad packets received.
    pub rx_errors: u64,
    /// Packets that could not be sent because of a fault.
    pub tx_errors: u64,
    /// Packets received for which there was no room, or no taker.
    pub rx_dropped: u64,
    /// Packets that were not sent for want of room.
    pub tx_dropped: u64,
    /// Multicast packets received.
    pub multicast: u64,
}

/// Counters of a VF as its PF's driver keeps them (`struct ifla_vf_stats`, `include/linux/if_link.h`), or the embedded switch that
/// stands for the driver. All are the VF's: received is what came to the VF.
///
/// The kernel answers with zeros for a driver that counts nothing (`rtnl_fill_vfinfo`, `net/core/rtnetlink.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VfCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Broadcast packets received; `None`: not counted.
    pub broadcast: Option<u64>,
    /// Multicast packets received; `None`: not counted.
    pub multicast: Option<u64>,
    /// Packets for the VF that were dropped; `None`: not told, as by older kernels.
    pub rx_dropped: Option<u64>,
    /// Packets of the VF that were dropped; `None`: not told, as by older kernels.
    pub tx_dropped: Option<u64>,
}

impl VfCounters {
    /// Whether nothing was counted: the same is told of a VF without traffic and by a driver that counts nothing.
    pub fn is_all_zero(&self) -> bool {
        let optional = [self.broadcast, self.multicast, self.rx_dropped, self.tx_dropped];
        [self.rx_packets, self.tx_packets, self.rx_bytes, self.tx_bytes].iter().all(|count| *count == 0)
            && optional.iter().all(|count| count.is_none_or(|count| count == 0))
    }
}

/// Counters of a port of an embedded switch (docs/switch.md). Sent and received are the guest's: sent went into the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PortCounters {
    /// Frames that the guest sent; a segment that its device has not cut yet counts as one.
    pub sent: u64,
    /// Bytes of these, from the Ethernet header on.
    pub sent_bytes: u64,
    /// Frames that the guest got.
    pub received: u64,
    /// Bytes of these, from the Ethernet header on.
    pub received_bytes: u64,
    /// Frames of the guest's that were dropped, by the switch's word for the reason.
    #[serde(default)]
    pub dropped_sent: BTreeMap<String, u64>,
    /// Frames for the guest that were dropped, by the switch's word for the reason.
    #[serde(default)]
    pub dropped_received: BTreeMap<String, u64>,
}

impl PortCounters {
    /// The same in the words of a VF whose port it is.
    pub fn of_vf(&self) -> VfCounters {
        let sum =
            |dropped: &BTreeMap<String, u64>| dropped.values().fold(0_u64, |sum, n| sum.saturating_add(*n));
        VfCounters {
            rx_packets: self.received,
            tx_packets: self.sent,
            rx_bytes: self.received_bytes,
            tx_bytes: self.sent_bytes,
            broadcast: None,
            multicast: None,
            rx_dropped: Some(sum(&self.dropped_received)),
            tx_dropped: Some(sum(&self.dropped_sent)),
        }
    }
}
