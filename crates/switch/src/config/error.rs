//! What in a configuration makes no sense, in words.

use thiserror::Error;

use super::{Place, VERSION};
use crate::net::Mac;

/// What in a configuration makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A newer version.
    #[error("this is version {0} of a configuration; {VERSION} is known here")]
    Version(u32),
    /// Text that is no address.
    #[error("{port}: {text:?} is not a MAC address of one station")]
    Mac {
        /// The port.
        port: String,
        /// The text.
        text: String,
    },
    /// A VLAN that cannot be.
    #[error("{port}: {text:?} is not a list of VLANs from 0 to 4094")]
    Vlan {
        /// The port.
        port: String,
        /// The text.
        text: String,
    },
    /// A priority that cannot be.
    #[error("{port}: priority {qos}; 7 is the highest")]
    Qos {
        /// The port.
        port: String,
        /// The number.
        qos: u8,
    },
    /// An MTU that cannot be.
    #[error("{port}: MTU {mtu}; 68 is the least")]
    Mtu {
        /// The port.
        port: String,
        /// The number.
        mtu: u16,
    },
    /// None, or more than one, of what a port may lead to.
    #[error("{port}: it has {has} of socket, tap, packet and cable, and needs one of them")]
    Place {
        /// The port.
        port: String,
        /// How many it has.
        has: usize,
    },
    /// What no network interface is called.
    #[error(
        "{port}: {name:?} cannot be the name of a network interface: that has 1 to 15 bytes without / and spaces"
    )]
    Interface {
        /// The port.
        port: String,
        /// The name.
        name: String,
    },
    /// A guarantee that cannot be given.
    #[error("{port}: min_tx_rate {min}: {why}")]
    Guarantee {
        /// The port.
        port: String,
        /// Its guarantee.
        min: u32,
        /// Why not.
        why: String,
    },
    /// Memory that not all ports can have.
    #[error(
        "{port}: max_memory {asked} MiB: {why}; `memory` of the switch is {all} MiB, which all ports share so that none \
         takes another's"
    )]
    Memory {
        /// The port.
        port: String,
        /// What it would have.
        asked: u64,
        /// Why not.
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
        /// Why not.
        why: String,
    },
    /// Two ports that are one device's.
    #[error("{first} and {second} have the same device {device} in `filter`")]
    Device {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// The device.
        device: String,
    },
    /// A speed that limits nothing.
    #[error("{port}: speed {speed}: only an uplink has a speed; max_tx_rate limits what a port sends")]
    Speed {
        /// The port.
        port: String,
        /// Its speed.
        speed: u32,
    },
    /// A port that cannot be watched.
    #[error("{port}: mirror of {of:?}: {why}")]
    Mirror {
        /// The port that watches.
        port: String,
        /// Whom.
        of: String,
        /// Why not.
        why: &'static str,
    },
    /// Two ports that lead to the same.
    #[error("{first} and {second} have the same {place}")]
    Socket {
        /// What they have in common.
        place: Place,
        /// One of them.
        first: String,
        /// The other.
        second: String,
    },
    /// Two ports with one address in one VLAN.
    #[error("{first} and {second} have the same address {mac} in the same VLAN")]
    Collision {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// The address.
        mac: Mac,
    },
}
