//! Network interfaces: how the host uses them, what they are ports of, and what stands on them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{InterfaceAddress, InterfaceName, InterfaceRoute, Mac, PortVlans, VlanProtocol};

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Interface {
    /// The name of the interface.
    pub name: InterfaceName,
    /// Its present MAC address.
    pub mac: Mac,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether it is administratively up (`IFF_UP`).
    pub up: bool,
    /// Whether it has a carrier; `None` while it is down.
    pub carrier: Option<bool>,
    /// Its speed in Mbit/s, where the driver knows one.
    pub speed: Option<u32>,
    /// Its IP addresses, link-local ones too.
    pub addresses: Vec<InterfaceAddress>,
    /// The routes over it alone that an administrator, a DHCP client or a program without a name of its own has set: not those that
    /// the kernel makes by itself, nor those of routing daemons. Read on the machine itself only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<InterfaceRoute>,
    /// What it is a port of. Read on the machine itself only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<Master>,
    /// What of software stands on it (`IFLA_LINK`) and goes with it when it loses its driver. Read on the machine itself only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uppers: Vec<Upper>,
}

/// The interface on the host that stands for a VF at an embedded switch in switchdev mode (`Documentation/networking/representors.rst`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Representor {
    /// Its name.
    pub interface: InterfaceName,
    /// The name of its port, as the driver has it (`phys_port_name`): `pf0vf3`.
    pub port: String,
    /// The switch that it is a port of (`phys_switch_id`); the ports of one have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_id: Option<String>,
    /// The bridge of the host that it is a port of; of Open vSwitch's bridges that is `ovs-system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<InterfaceName>,
}

/// An interface of software that stands on another one: that of a VLAN, a macvlan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Upper {
    /// What it is, as the kernel calls it (`IFLA_INFO_KIND`): `vlan`, `macvlan`, `vxlan`...
    pub kind: String,
    /// Its VLAN, where it is the interface of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanTag>,
    /// The interface itself.
    pub interface: Interface,
}

impl Upper {
    /// Whether it is the interface of this VLAN.
    pub fn is_of(&self, tag: &VlanTag) -> bool {
        self.vlan.as_ref().is_some_and(|own| own.is_that_of(tag))
    }
}

/// The VLAN of an interface, and how its tags are treated (`include/uapi/linux/if_link.h`, `IFLA_VLAN_*`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VlanTag {
    /// The VLAN, 0 to 4094.
    pub id: u16,
    /// The protocol of its tag.
    pub protocol: VlanProtocol,
    /// `VLAN_FLAG_*` of `include/uapi/linux/if_vlan.h`.
    pub flags: u32,
    /// Which priority of a tag (0 to 7) becomes which of the kernel's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress_qos: Vec<(u32, u32)>,
    /// Which priority of the kernel's becomes which of a tag.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress_qos: Vec<(u32, u32)>,
}

impl VlanTag {
    /// Whether another interface with this tag would be the same on the wire: an interface has one of them only.
    pub fn is_that_of(&self, other: &VlanTag) -> bool {
        (self.id, self.protocol) == (other.id, other.protocol)
    }
}

impl fmt::Display for VlanTag {
    /// `VLAN 100`, `VLAN 100 of 802.1ad`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            VlanProtocol::Dot1q => write!(f, "VLAN {}", self.id),
            VlanProtocol::Dot1ad => write!(f, "VLAN {} of 802.1ad", self.id),
        }
    }
}

/// An interface of software that others are ports of: a bridge, a bond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Master {
    /// Its name.
    pub name: InterfaceName,
    /// What it is, as the kernel calls it (`IFLA_INFO_KIND`): `bridge`, `bond`, `openvswitch`... `None`: the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Whether it is a bridge that looks at VLANs (`vlan_filtering`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filters_vlans: bool,
    /// The VLANs that it has at this port where it filters them. `None`: it does not, or they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans: Option<PortVlans>,
}

impl Master {
    /// Whether an interface becomes its port by being told so, and by nothing else (`ndo_add_slave`): of an Open vSwitch its own
    /// daemon makes ports.
    pub fn takes_ports(&self) -> bool {
        matches!(self.kind.as_deref(), Some("bridge" | "bond" | "team" | "vrf"))
    }
}
