//! What in a configuration makes no sense, in words.

use thiserror::Error;

use super::{PortBackend, VERSION};
use crate::net::Mac;

/// What in a configuration makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Another version than the one that is known.
    #[error("this is version {0} of a configuration; {VERSION} is known here")]
    Version(u32),
    /// Text that is no address.
    #[error("{port}: {text:?} is not a MAC address of one station")]
    Mac {
        /// Name of the port.
        port: String,
        /// The text, as the configuration has it.
        text: String,
    },
    /// A port VLAN that cannot be.
    #[error("{port}: `vlan` {vlan}; 4094 is the highest, and 0 is none")]
    PortVlan {
        /// Name of the port.
        port: String,
        /// The number, above 4094.
        vlan: u16,
    },
    /// A list of VLANs that cannot be.
    #[error("{port}: `trunk` {text:?} is not a list of VLANs from 0 to 4094, like 0,100-199")]
    Trunk {
        /// Name of the port.
        port: String,
        /// The list, as the configuration has it.
        text: String,
    },
    /// A priority that cannot be.
    #[error("{port}: priority {qos}; 7 is the highest")]
    Qos {
        /// Name of the port.
        port: String,
        /// The priority, above 7.
        qos: u8,
    },
    /// An MTU that cannot be.
    #[error("{port}: MTU {mtu}; 68 is the least")]
    Mtu {
        /// Name of the port.
        port: String,
        /// The MTU in bytes, below 68.
        mtu: u16,
    },
    /// None, or more than one, of what a port may lead to.
    #[error("{port}: it has {has} of socket, tap, packet, cable and vduse, and needs one of them")]
    Backend {
        /// Name of the port.
        port: String,
        /// How many it has.
        has: usize,
    },
    /// What no network interface is called.
    #[error(
        "{port}: {name:?} cannot be the name of a network interface: that has 1 to 15 bytes without / and spaces"
    )]
    Interface {
        /// Name of the port.
        port: String,
        /// The name that its `tap` or `packet` has.
        name: String,
    },
    /// What no VDUSE device is called.
    #[error(
        "{port}: {name:?} cannot be the name of a VDUSE device: that has 1 to 63 letters, digits, _, - and ., and is not \"control\""
    )]
    Vduse {
        /// Name of the port.
        port: String,
        /// The name that its `vduse` has.
        name: String,
    },
    /// A guarantee that cannot be given.
    #[error("{port}: min_tx_rate {min}: {why}")]
    Guarantee {
        /// Name of the port.
        port: String,
        /// What it would be guaranteed, in Mbit/s.
        min: u32,
        /// Why it cannot be guaranteed that.
        why: String,
    },
    /// Memory that not all ports can have.
    #[error(
        "{port}: max_memory {asked} MiB: {why}; `memory` of the switch is {all} MiB, which all ports share so that none \
         takes another's"
    )]
    Memory {
        /// Name of the port.
        port: String,
        /// What it would have.
        asked: u64,
        /// Why it cannot have that much.
        why: &'static str,
        /// What all have together.
        all: u64,
    },
    /// Somebody who cannot be let come to a socket.
    #[error("{socket}: {why}")]
    Access {
        /// The port, or the control socket.
        socket: String,
        /// What makes no sense.
        why: String,
    },
    /// A ceiling for what is set from inside that makes no sense.
    #[error("`allow` of {of}: {why}")]
    Allow {
        /// The port, or the switch.
        of: String,
        /// What makes no sense in it.
        why: String,
    },
    /// Two ports that are one device's.
    #[error("{first} and {second} have the same device {device} in `filter`")]
    Device {
        /// One of them.
        first: String,
        /// Name of the other port.
        second: String,
        /// The `id` of the device in QEMU.
        device: String,
    },
    /// A speed that limits nothing.
    #[error("{port}: speed {speed}: only an uplink has a speed; max_tx_rate limits what a port sends")]
    Speed {
        /// Name of the port, which is no uplink.
        port: String,
        /// Its speed in Mbit/s.
        speed: u32,
    },
    /// A port that cannot be watched.
    #[error("{port}: mirror of {of:?}: {why}")]
    Mirror {
        /// The port that watches.
        port: String,
        /// Name of the port that it is to watch.
        of: String,
        /// Why it cannot watch that port.
        why: &'static str,
    },
    /// Two ports that lead to the same.
    #[error("{first} and {second} have the same {backend}")]
    Socket {
        /// What they have in common.
        backend: PortBackend,
        /// One of them.
        first: String,
        /// Name of the other port.
        second: String,
    },
    /// Two ports with one address in one VLAN.
    #[error("{first} and {second} have the same address {mac} in the same VLAN")]
    Collision {
        /// One of them.
        first: String,
        /// Name of the other port.
        second: String,
        /// The MAC address that both have.
        mac: Mac,
    },
}
