//! NICs that VMs own as they are written.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{
    Allow, Emulation, FunctionName, LinkState, Mac, Mtu, TxRate, VfSettings, VlanId, VlanProtocol, VlanQos,
    document::{GuestAddress, HopAddress, OneOrMany, RouteDocument},
    vf::table::{document_with_vf_keys, vf_attributes},
};

/// An SR-IOV NIC that a VM owns: the VM makes its VFs and hands them out. Or a NIC of one function that a container owns, on a host that
/// need not have any with SR-IOV.
///
/// ```yaml
/// net0: {vfs: 4, uplink: NET0, functions: {2: {vlan: 100}}}        # of a VM
/// net0: {uplink: br0, vlan: 100, address: 10.20.50.1/24}           # of a container
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    default,
    expecting = "a NIC of a guest: a mapping like {vfs: 4} of a VM, {uplink: br0} of a container"
)]
#[schemars(rename = "TenantNic")]
pub(crate) struct TenantNicDocument {
    /// How many VFs the VM can make of it, 1 to 7. Must be given with `virtio`; an `igb` has 7.
    #[schemars(range(min = 1, max = 7))]
    pub vfs: Option<u16>,
    /// What QEMU makes of it: `virtio`, whose VFs are the model's; or `igb`, an Intel 82576 with 7 VFs that the VM manages itself, as
    /// on hardware. Default: `virtio`.
    pub emulation: Option<Emulation>,
    /// What carries the frames of its functions: `switch`, an embedded switch of the host that keeps their attributes; `vdpa`, the same
    /// with a device of the host's kernel between it and QEMU for each function; or `tap`, tap interfaces of the host that are ports of
    /// the Linux bridge `uplink`, which keeps none. Default: `switch`. Of a container's NIC: `vdpa`, and nothing else.
    pub path: Option<DataPathEntry>,
    /// Where its embedded switch leads to: a PF of the model that stays on the host, like `NET0`; a VF of it, like
    /// `{vf: NET0#5, trust: on, spoofchk: off}`; or else an interface of the host. Default: nowhere; its functions reach each
    /// other alone. Of a container's NIC: a Linux bridge, which must be given.
    pub uplink: Option<UplinkEntry>,
    /// The PF's MAC address, that of a container's NIC. Default: derived from the names of machine, guest and NIC, the same for ever.
    #[serde(alias = "mac-address")]
    pub mac: Option<Mac>,
    /// What the embedded switch keeps for VFs, by index: `{2: {vlan: 100}}`. Default: nothing but addresses, which are derived from
    /// the PF's.
    pub functions: IndexMap<String, TenantVfDocument>,
    /// How far the VM may go by itself at each function: `{vlan: 100-199, max_tx_rate: 1000}`. Default: it may set nothing. Of an igb at a
    /// switch what its frames may have: `vlan`, `mac` and `max_tx_rate`.
    pub allow: Option<Allow>,
    /// Pairs of queues of each function, 1 to 16. Default: 1.
    #[schemars(range(min = 1, max = 16))]
    pub queues: Option<u16>,
    /// With `path: switch`, threads of its embedded switch: each takes a CPU while there are frames, and serves its part of every function's
    /// `queues`, of which there must be as many. Default: 1.
    #[schemars(range(min = 1, max = 16))]
    pub workers: Option<u16>,
    /// Of a container's NIC, or of an igb at a switch: port VLAN. The switch tags what it sends and untags what it receives. 0 is none.
    #[serde(alias = "vlan-id")]
    pub vlan: Option<VlanId>,
    /// Of a container's NIC, or of an igb at a switch: priority of the port VLAN's tag.
    #[serde(alias = "vlanQoS")]
    pub qos: Option<VlanQos>,
    /// Of a container's NIC, or of an igb at a switch: protocol of the port VLAN's tag.
    #[serde(alias = "vlanProto", alias = "vlan-proto")]
    pub vlan_proto: Option<VlanProtocol>,
    /// Of a container's NIC, or of an igb at a switch: drop frames from other addresses than `mac`. Default: off.
    #[serde(alias = "spoof-check")]
    pub spoofchk: Option<bool>,
    /// Of a container's NIC, or of an igb at a switch: the most that it may send, in Mbit/s; 0 is no limit.
    #[serde(alias = "max-tx-rate")]
    pub max_tx_rate: Option<TxRate>,
    /// Of a container's NIC: an IP address inside, `dhcp` for one of IPv4 that a client inside asks for, or a list of them; the same as
    /// `addresses`.
    pub address: Option<OneOrMany<GuestAddress>>,
    /// Of a container's NIC: IP addresses inside, and `dhcp`.
    pub addresses: Option<OneOrMany<GuestAddress>>,
    /// Of a container's NIC: the gateway of the container's default route over it, or one of IPv4 and one of IPv6. Default: no such route.
    pub gateway: Option<OneOrMany<HopAddress>>,
    /// Of a container's NIC: other routes over it inside.
    pub routes: Vec<RouteDocument>,
    /// Of a container's NIC: MTU inside. Default: left alone.
    pub mtu: Option<Mtu>,
}

impl TenantNicDocument {
    /// What the embedded switch is to keep for a container's NIC, but for its address.
    pub fn settings(&self) -> VfSettings {
        VfSettings {
            vlan: self.vlan,
            qos: self.qos,
            vlan_proto: self.vlan_proto,
            spoofchk: self.spoofchk,
            max_tx_rate: self.max_tx_rate,
            ..VfSettings::default()
        }
    }
}

/// What carries the frames of a VM's NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "DataPath")]
pub(crate) enum DataPathEntry {
    /// An embedded switch of the host.
    Switch,
    /// Taps of the host that are ports of a Linux bridge.
    Tap,
    /// Devices of the host's kernel that are ports of an embedded switch.
    Vdpa,
    /// QEMU's user network, which is refused with the reason.
    #[schemars(skip)]
    User,
}

/// Where the embedded switch of a VM's NIC leads to: only a name, or a VF with its attributes.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, rename = "UplinkEntry")]
pub(crate) enum UplinkEntry {
    /// `NET0`, `NET0#5`, or an interface of the host like `br0`.
    Name(FunctionName),
    /// `{vf: NET0#5, trust: on, spoofchk: off}`.
    Settings(Box<UplinkDocument>),
    /// An entry that was wrong and has been reported.
    #[schemars(skip)]
    Spoiled,
}

impl UplinkEntry {
    /// The function that it names.
    pub fn function(&self) -> Option<&FunctionName> {
        match self {
            UplinkEntry::Name(name) => Some(name),
            UplinkEntry::Settings(document) => document.vf.as_ref(),
            UplinkEntry::Spoiled => None,
        }
    }
}

impl<'de> Deserialize<'de> for UplinkEntry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<UplinkEntry, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = UplinkEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an uplink like NET0, br0 or {vf: NET0#5, trust: on, spoofchk: off}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<UplinkEntry, E> {
                text.parse().map(UplinkEntry::Name).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<UplinkEntry, A::Error> {
                let document = UplinkDocument::deserialize(MapAccessDeserializer::new(map))?;
                if document.vf.is_none() {
                    return Err(de::Error::custom(
                        "this names no VF: it needs `vf`, like {vf: NET0#5, trust: on, spoofchk: off}",
                    ));
                }
                Ok(UplinkEntry::Settings(Box::new(document)))
            }

            fn visit_none<E: de::Error>(self) -> Result<UplinkEntry, E> {
                Ok(UplinkEntry::Spoiled)
            }
        }

        from.deserialize_any(Entry)
    }
}

vf_attributes! { document_with_vf_keys {
    uplink
    /// A VF that the embedded switch of a VM's NIC leads to, with its attributes. What is left out comes from the NIC's `defaults`.
    ///
    /// ```yaml
    /// {vf: NET0#5, trust: on, spoofchk: off, vlan: 100}
    /// ```
    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default, expecting = "an uplink like {vf: NET0#5, trust: on, spoofchk: off}")]
    #[schemars(rename = "UplinkVf")]
    pub(crate) struct UplinkDocument {
        /// The VF, like `NET0#5`. It stays on the host. Must be given.
        pub vf: Option<FunctionName>,
    } {
    }
} }

vf_attributes! { document_with_vf_keys {
    tenant
    /// What the embedded switch keeps for a VF of a VM's NIC.
    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default, expecting = "VF attributes: a mapping like {vlan: 100}")]
    #[schemars(rename = "TenantVf")]
    pub(crate) struct TenantVfDocument {
    } {
        /// How far the VM may go by itself at this VF, in the place of the NIC's `allow`.
        pub allow: Option<Allow>,
    }
} }
