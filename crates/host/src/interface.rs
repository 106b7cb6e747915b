//! A network interface as one network namespace shows it.

use penstock_model::{
    InterfaceRoute, Mac,
    inventory::{Interface, VlanTag},
};
use serde::{Deserialize, Serialize};

/// A network interface and what only the kernel of its namespace can tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// The interface's index in its namespace; never 0.
    pub index: u32,
    /// Name, addresses, MTU, link.
    pub interface: Interface,
    /// The address burnt in (`IFLA_PERM_ADDRESS`), where the driver has one.
    pub permanent_mac: Option<Mac>,
    /// The device behind it (`IFLA_PARENT_DEV_NAME`): a BDF for most NICs, `virtio3` for a virtio one; `None` for a
    /// software interface.
    pub device: Option<String>,
    /// The kind of a software interface (`IFLA_INFO_KIND`): `veth`, `bridge`...
    pub kind: Option<String>,
    /// The port's name within its device (`IFLA_PHYS_PORT_NAME`): `p0` for an uplink, `pf0vf3` for the representor of a
    /// VF; `None` where the driver gives none.
    #[serde(default)]
    pub port_name: Option<String>,
    /// Whether it takes frames for any address, because somebody listens for them (`IFLA_PROMISCUITY`); `None`: not told.
    #[serde(default)]
    pub promiscuous: Option<bool>,
    /// The unicast routes over it alone, of every table but `local`, whoever set them; `None`: not told.
    #[serde(default)]
    pub routes: Option<Vec<InterfaceRoute>>,
    /// The index of the interface that it is a port of (`IFLA_MASTER`).
    #[serde(default)]
    pub master: Option<u32>,
    /// What it stands on, if it is an interface of software and that is in its own namespace.
    #[serde(default)]
    pub lower: Option<Lower>,
}

/// What an interface of software stands on (`IFLA_LINK`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lower {
    /// The index of the interface below.
    pub index: u32,
    /// The VLAN of the upper one, where it is the interface of one.
    pub vlan: Option<VlanTag>,
}
