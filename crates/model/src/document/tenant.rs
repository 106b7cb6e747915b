//! NICs that VMs own as they are written.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{
    Allow, FunctionName, LinkState, Mac, TxRate, VfCount, VfSettings, VlanId, VlanProtocol, VlanQos,
};

/// An SR-IOV NIC that a VM owns: the VM makes its VFs and hands them out.
///
/// ```yaml
/// net0: {vfs: 4, uplink: NET0, functions: {2: {vlan: 100}}}
/// ```
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a NIC of a VM: a mapping like {vfs: 4}")]
#[schemars(rename = "TenantNic")]
pub(crate) struct TenantNicDocument {
    /// How many VFs the VM can make of it, 1 to 7. Must be given.
    #[schemars(range(min = 1, max = 7))]
    pub vfs: Option<VfCount>,
    /// Where its embedded switch leads to: a PF of the model that stays on the host, like `NET0`; a VF of it, like
    /// `{vf: NET0#5, trust: on, spoofchk: off}`; or else an interface of the host. Default: nowhere; its functions reach each
    /// other alone.
    pub uplink: Option<UplinkEntry>,
    /// The PF's MAC address. Default: derived from the names of machine, VM and NIC, the same for ever.
    #[serde(alias = "mac-address")]
    pub mac: Option<Mac>,
    /// What the embedded switch keeps for VFs, by index: `{2: {vlan: 100}}`. Default: nothing but addresses, which are derived from
    /// the PF's.
    pub functions: IndexMap<String, TenantVfDocument>,
    /// How far the VM may go by itself at each function: `{vlan: 100-199, max_tx_rate: 1000}`. Default: it may set nothing.
    pub allow: Option<Allow>,
    /// Pairs of queues of each function, 1 to 16. Default: 1.
    #[schemars(range(min = 1, max = 16))]
    pub queues: Option<u16>,
}

/// Where the embedded switch of a VM's NIC leads to: only a name, or a VF with its attributes.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, rename = "UplinkEntry")]
pub(crate) enum UplinkEntry {
    /// `NET0`, `NET0#5`, or an interface of the host like `br0`.
    Name(FunctionName),
    /// `{vf: NET0#5, trust: on, spoofchk: off}`.
    Settings(Box<UplinkDocument>),
}

impl UplinkEntry {
    /// The function that it names.
    pub fn function(&self) -> Option<&FunctionName> {
        match self {
            UplinkEntry::Name(name) => Some(name),
            UplinkEntry::Settings(document) => document.vf.as_ref(),
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
        }

        from.deserialize_any(Entry)
    }
}

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
    /// The VF's own MAC address. Default: derived from the PF's permanent address and the index. Also read as `mac-address`.
    #[serde(alias = "mac-address")]
    pub mac: Option<Mac>,
    /// Port VLAN: all frames of the VM's NIC are in it beyond the VF. 0 is none. Also read as `vlan-id`.
    #[serde(alias = "vlan-id")]
    pub vlan: Option<VlanId>,
    /// Priority of the port VLAN's tag. Also read as `vlanQoS`.
    #[serde(alias = "vlanQoS")]
    pub qos: Option<VlanQos>,
    /// Protocol of the port VLAN's tag. Default: 802.1Q. Also read as `vlanProto` and `vlan-proto`.
    #[serde(alias = "vlanProto", alias = "vlan-proto")]
    pub vlan_proto: Option<VlanProtocol>,
    /// Whether frames with a foreign source MAC are dropped; only `off`. Also read as `spoof-check`.
    #[serde(alias = "spoof-check")]
    pub spoofchk: Option<bool>,
    /// Whether the VF may turn promiscuous; only `on`.
    pub trust: Option<bool>,
    /// Guaranteed transmit rate in Mbit/s; 0 is none. Also read as `min-tx-rate`.
    #[serde(alias = "min-tx-rate")]
    pub min_tx_rate: Option<TxRate>,
    /// Transmit rate limit in Mbit/s; 0 is none. Also read as `max-tx-rate`.
    #[serde(alias = "max-tx-rate")]
    pub max_tx_rate: Option<TxRate>,
    /// The link that the VF is shown: `auto` or `enable`. Also read as `link-state`.
    #[serde(alias = "link-state")]
    pub link_state: Option<LinkState>,
}

impl UplinkDocument {
    /// What the PF's driver is to keep for it.
    pub fn settings(&self) -> VfSettings {
        VfSettings {
            mac: self.mac,
            vlan: self.vlan,
            qos: self.qos,
            vlan_proto: self.vlan_proto,
            spoofchk: self.spoofchk,
            trust: self.trust,
            min_tx_rate: self.min_tx_rate,
            max_tx_rate: self.max_tx_rate,
            link_state: self.link_state,
        }
    }
}

/// What the embedded switch keeps for a VF of a VM's NIC.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "VF attributes: a mapping like {vlan: 100}")]
#[schemars(rename = "TenantVf")]
pub(crate) struct TenantVfDocument {
    /// The VF's MAC address. Default: derived from the PF's. Also read as `mac-address`.
    #[serde(alias = "mac-address")]
    pub mac: Option<Mac>,
    /// Port VLAN: the switch tags what the VF sends and untags what it receives. 0 is none. Also read as `vlan-id`.
    #[serde(alias = "vlan-id")]
    pub vlan: Option<VlanId>,
    /// Priority of the port VLAN's tag. Also read as `vlanQoS`.
    #[serde(alias = "vlanQoS")]
    pub qos: Option<VlanQos>,
    /// Protocol of the port VLAN's tag. Default: 802.1Q. Also read as `vlanProto` and `vlan-proto`.
    #[serde(alias = "vlanProto", alias = "vlan-proto")]
    pub vlan_proto: Option<VlanProtocol>,
    /// Whether frames with a foreign source MAC are dropped. Also read as `spoof-check`.
    #[serde(alias = "spoof-check")]
    pub spoofchk: Option<bool>,
    /// Whether the VF may change its MAC and turn promiscuous, as far as `allow` goes.
    pub trust: Option<bool>,
    /// Guaranteed transmit rate in Mbit/s; only 0, none. Also read as `min-tx-rate`.
    #[serde(alias = "min-tx-rate")]
    pub min_tx_rate: Option<TxRate>,
    /// Transmit rate limit in Mbit/s; 0 is none. Also read as `max-tx-rate`.
    #[serde(alias = "max-tx-rate")]
    pub max_tx_rate: Option<TxRate>,
    /// The link that the VF is shown; only `auto`. Also read as `link-state`.
    #[serde(alias = "link-state")]
    pub link_state: Option<LinkState>,
    /// How far the VM may go by itself at this VF, in the place of the NIC's `allow`.
    pub allow: Option<Allow>,
}

impl TenantVfDocument {
    /// What the switch is to keep for it.
    pub fn settings(&self) -> VfSettings {
        VfSettings {
            mac: self.mac,
            vlan: self.vlan,
            qos: self.qos,
            vlan_proto: self.vlan_proto,
            spoofchk: self.spoofchk,
            trust: self.trust,
            min_tx_rate: self.min_tx_rate,
            max_tx_rate: self.max_tx_rate,
            link_state: self.link_state,
        }
    }
}
