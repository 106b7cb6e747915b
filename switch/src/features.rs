//! What a port offers its guest, and what it makes of what the guest takes.

use crate::engine::Negotiated;

/// `VIRTIO_NET_F_CSUM`: the guest may leave checksums to us.
pub const CHECKSUM: u64 = 1 << 0;
/// `VIRTIO_NET_F_GUEST_CSUM`: the guest completes checksums.
pub const GUEST_CHECKSUM: u64 = 1 << 1;
/// `VIRTIO_NET_F_MTU`: the device's configuration says the largest MTU.
pub const MTU: u64 = 1 << 3;
/// `VIRTIO_NET_F_MAC`: the device's configuration says its address.
pub const MAC: u64 = 1 << 5;
/// `VIRTIO_NET_F_GUEST_TSO4`: the guest takes whole TCP segments over IPv4.
pub const GUEST_TSO4: u64 = 1 << 7;
/// `VIRTIO_NET_F_GUEST_TSO6`: the guest takes whole TCP segments over IPv6.
pub const GUEST_TSO6: u64 = 1 << 8;
/// `VIRTIO_NET_F_GUEST_ECN`: the guest takes whole TCP segments with ECN.
pub const GUEST_ECN: u64 = 1 << 9;
/// `VIRTIO_NET_F_HOST_TSO4`: the guest may send whole TCP segments over IPv4.
pub const HOST_TSO4: u64 = 1 << 11;
/// `VIRTIO_NET_F_HOST_TSO6`: the guest may send whole TCP segments over IPv6.
pub const HOST_TSO6: u64 = 1 << 12;
/// `VIRTIO_NET_F_HOST_ECN`: the guest may send whole TCP segments with ECN.
pub const HOST_ECN: u64 = 1 << 13;
/// `VIRTIO_NET_F_MRG_RXBUF`: a frame for the guest may lie in several buffers.
pub const MERGEABLE: u64 = 1 << 15;
/// `VIRTIO_NET_F_STATUS`: the device's configuration says whether the link is up.
pub const STATUS: u64 = 1 << 16;
/// `VIRTIO_NET_F_CTRL_VQ`: answered by the front end.
pub const CONTROL: u64 = 1 << 17;
/// `VIRTIO_NET_F_GUEST_ANNOUNCE`: a guest that goes on elsewhere tells its neighbours.
pub const ANNOUNCE: u64 = 1 << 21;
/// `VIRTIO_NET_F_MQ`: the guest may have several pairs of rings.
pub const MULTIQUEUE: u64 = 1 << 22;
/// `VHOST_F_LOG_ALL`: what is written is marked; no guest's, the front end takes and leaves it while rings run.
pub const LOG_ALL: u64 = 1 << 26;
/// `VIRTIO_F_INDIRECT_DESC`: a descriptor may lead to a table of descriptors.
pub const INDIRECT: u64 = 1 << 28;
/// `VIRTIO_F_EVENT_IDX`: both sides say exactly when they want to be woken.
pub const EVENT_INDEX: u64 = 1 << 29;
/// `VHOST_USER_F_PROTOCOL_FEATURES`: both sides agree on features of the vhost-user protocol, too. No feature of the guest's.
pub const PROTOCOL: u64 = 1 << 30;
/// `VIRTIO_F_VERSION_1`: the guest keeps to Virtio 1.0 or later.
pub const VERSION_1: u64 = 1 << 32;
/// `VIRTIO_F_ACCESS_PLATFORM`: the guest's addresses are those of its IOMMU.
pub const ACCESS_PLATFORM: u64 = 1 << 33;
/// `VIRTIO_F_RING_PACKED`: rings are of the packed format.
pub const PACKED: u64 = 1 << 34;
/// `VIRTIO_F_IN_ORDER`: buffers are completed in the order in which they were made available.
pub const IN_ORDER: u64 = 1 << 35;
/// `VIRTIO_NET_F_GUEST_USO4`: the guest takes UDP over IPv4 that is to be cut into datagrams.
pub const GUEST_USO4: u64 = 1 << 54;
/// `VIRTIO_NET_F_GUEST_USO6`: the guest takes UDP over IPv6 that is to be cut into datagrams.
pub const GUEST_USO6: u64 = 1 << 55;
/// `VIRTIO_NET_F_HOST_USO`: the guest may send UDP that is to be cut into datagrams.
pub const HOST_USO: u64 = 1 << 56;

/// All that a port offers.
pub const OFFERED: u64 = CHECKSUM
    | GUEST_CHECKSUM
    | MTU
    | GUEST_TSO4
    | GUEST_TSO6
    | GUEST_ECN
    | HOST_TSO4
    | HOST_TSO6
    | HOST_ECN
    | MERGEABLE
    | STATUS
    | CONTROL
    | ANNOUNCE
    | MULTIQUEUE
    | LOG_ALL
    | INDIRECT
    | EVENT_INDEX
    | PROTOCOL
    | VERSION_1
    | ACCESS_PLATFORM
    | PACKED
    | IN_ORDER
    | GUEST_USO4
    | GUEST_USO6
    | HOST_USO;

/// What a VDUSE device offers beside [`MAC`]: the kernel refuses control rings and with them several pairs
/// (`drivers/vdpa/vdpa_user/vduse_dev.c`, `features_is_valid`), and packed rings could not go on after a crash of the switch.
pub const OFFERED_TO_KERNEL: u64 =
    OFFERED & !(CONTROL | ANNOUNCE | MULTIQUEUE | LOG_ALL | PROTOCOL | PACKED | IN_ORDER);

/// What a guest that has taken `features` knows.
pub fn negotiated(features: u64) -> Negotiated {
    let has = |bit: u64| features & bit != 0;
    Negotiated {
        // Without VERSION_1 the number of buffers is there only with buffers to be joined (5.1.6).
        header: if has(VERSION_1 | MERGEABLE) { 12 } else { 10 },
        mergeable: has(MERGEABLE),
        checksum: has(GUEST_CHECKSUM),
        tcp4: has(GUEST_TSO4),
        tcp6: has(GUEST_TSO6),
        // Whether a datagram is IPv4's or IPv6's does not show in its header; who takes one takes both in practice.
        udp: has(GUEST_USO4) && has(GUEST_USO6),
        ecn: has(GUEST_ECN),
    }
}
