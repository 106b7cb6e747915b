//! Virtual functions: their index, and the attributes that the PF's driver keeps for each.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Mac;

/// The index of a VF within its PF, counted from 0 as Linux does (`virtfn0`, `ip link set PF vf 0`).
///
/// At most 16383: the derived MAC has 14 bits for it. No known device comes near.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct VfIndex(u16);

impl VfIndex {
    /// The largest index.
    pub const MAX: u16 = 0x3fff;

    /// The index `index`; `None` past [`VfIndex::MAX`].
    pub const fn new(index: u16) -> Option<VfIndex> {
        if index <= VfIndex::MAX { Some(VfIndex(index)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for VfIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for VfIndex {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<VfIndex, D::Error> {
        let index = u16::deserialize(from)?;
        VfIndex::new(index)
            .ok_or_else(|| serde::de::Error::custom(format!("VF index {index} is past {}", VfIndex::MAX)))
    }
}

/// Declares a number with a range, refused when read outside it.
macro_rules! ranged {
    ($(#[$doc:meta])* $name:ident($inner:ty), $max:expr, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(#[schemars(range(max = $max))] $inner);

        impl $name {
            /// The value; `None` when it is out of range.
            pub const fn new(value: $inner) -> Option<$name> {
                if value <= $max { Some($name(value)) } else { None }
            }

            /// The number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                crate::quantity::ranged(from, $what, 0..=u64::from($max)).and_then(|value| {
                    let value = <$inner>::try_from(value).ok().and_then($name::new);
                    value.ok_or_else(|| serde::de::Error::custom("it is out of range"))
                })
            }
        }
    };
}

ranged! {
    /// How many VFs a NIC has, 0 to 16384: as many as there are indices ([`VfIndex::MAX`]).
    VfCount(u16), 16384u16, "number of VFs"
}
ranged! {
    /// An IEEE 802.1Q VLAN id, 0 to 4094; 0 means "no port VLAN". 4095 is reserved by the standard.
    VlanId(u16), 4094u16, "VLAN id"
}
ranged! {
    /// An IEEE 802.1Q priority code point, 0 to 7.
    VlanQos(u8), 7u8, "VLAN priority"
}

/// The tag protocol of a port VLAN.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum VlanProtocol {
    /// C-tag, EtherType 0x8100.
    #[default]
    #[serde(rename = "802.1Q", alias = "802.1q")]
    Dot1q,
    /// S-tag, EtherType 0x88a8.
    #[serde(rename = "802.1ad", alias = "802.1AD")]
    Dot1ad,
}

impl VlanProtocol {
    /// The EtherType of the tag.
    pub const fn ethertype(self) -> u16 {
        match self {
            VlanProtocol::Dot1q => 0x8100,
            VlanProtocol::Dot1ad => 0x88a8,
        }
    }
}

impl fmt::Display for VlanProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VlanProtocol::Dot1q => "802.1Q",
            VlanProtocol::Dot1ad => "802.1ad",
        })
    }
}

/// The link that a VF is shown (`IFLA_VF_LINK_STATE`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Follows the PF's.
    #[default]
    Auto,
    /// Always up: VFs can talk to each other with the cable out.
    Enable,
    /// Always down.
    Disable,
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LinkState::Auto => "auto",
            LinkState::Enable => "enable",
            LinkState::Disable => "disable",
        })
    }
}

/// A transmit rate in Mbit/s, as `ip link set PF vf N max_tx_rate` counts it; 0 means "no limit".
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct TxRate(#[schemars(range(max = 4_294_967_295_u32))] pub u32);

impl fmt::Display for TxRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mbit/s", self.0)
    }
}

/// What a model may ask of a VF at its PF. Every field is optional: what is left out is left as the driver has it
/// (the MAC alone is always set, derived if need be; see [`Mac::derived`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "VF attributes: a mapping like {vlan: 100}")]
pub struct VfSettings {
    /// The VF's MAC address.
    #[serde(alias = "mac-address")]
    pub mac: Option<Mac>,
    /// Port VLAN: the embedded switch tags what the VF sends and untags what it receives.
    #[serde(alias = "vlan-id")]
    pub vlan: Option<VlanId>,
    /// Priority of the port VLAN's tag.
    #[serde(alias = "vlanQoS")]
    pub qos: Option<VlanQos>,
    /// Protocol of the port VLAN's tag; 802.1Q when not said.
    #[serde(alias = "vlanProto", alias = "vlan-proto")]
    pub vlan_proto: Option<VlanProtocol>,
    /// Whether frames with a foreign source MAC are dropped.
    #[serde(alias = "spoof-check")]
    pub spoofchk: Option<bool>,
    /// Whether the VF may change its MAC and turn promiscuous.
    pub trust: Option<bool>,
    /// Guaranteed transmit rate.
    #[serde(alias = "min-tx-rate")]
    pub min_tx_rate: Option<TxRate>,
    /// Transmit rate limit.
    #[serde(alias = "max-tx-rate")]
    pub max_tx_rate: Option<TxRate>,
    /// The link that the VF is shown.
    #[serde(alias = "link-state")]
    pub link_state: Option<LinkState>,
}

/// One attribute of one VF, as one netlink request carries it: the VLAN triple and the rate pair each travel together
/// (`IFLA_VF_VLAN_LIST`, `IFLA_VF_RATE`), so setting half of one would reset the other half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VfAttribute {
    /// `IFLA_VF_MAC`.
    Mac(Mac),
    /// `IFLA_VF_VLAN_LIST`.
    Vlan {
        /// The port VLAN; 0 for none.
        id: VlanId,
        /// The tag's priority.
        qos: VlanQos,
        /// The tag's protocol.
        protocol: VlanProtocol,
    },
    /// `IFLA_VF_SPOOFCHK`.
    Spoofchk(bool),
    /// `IFLA_VF_TRUST`.
    Trust(bool),
    /// `IFLA_VF_RATE`.
    Rate {
        /// The guaranteed rate; 0 for none.
        min: TxRate,
        /// The limit; 0 for none.
        max: TxRate,
    },
    /// `IFLA_VF_LINK_STATE`.
    LinkState(LinkState),
}

/// The name of an attribute without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VfAttributeKind {
    /// `IFLA_VF_MAC`.
    Mac,
    /// `IFLA_VF_VLAN_LIST`.
    Vlan,
    /// `IFLA_VF_SPOOFCHK`.
    Spoofchk,
    /// `IFLA_VF_TRUST`.
    Trust,
    /// `IFLA_VF_RATE`.
    Rate,
    /// `IFLA_VF_LINK_STATE`.
    LinkState,
}

impl VfAttributeKind {
    /// The keys of a model that this attribute carries.
    pub const fn keys(self) -> &'static [&'static str] {
        match self {
            VfAttributeKind::Mac => &["mac"],
            VfAttributeKind::Vlan => &["vlan", "qos", "vlan_proto"],
            VfAttributeKind::Spoofchk => &["spoofchk"],
            VfAttributeKind::Trust => &["trust"],
            VfAttributeKind::Rate => &["min_tx_rate", "max_tx_rate"],
            VfAttributeKind::LinkState => &["link_state"],
        }
    }
}

impl VfAttribute {
    /// Which attribute this is.
    pub const fn kind(&self) -> VfAttributeKind {
        match self {
            VfAttribute::Mac(_) => VfAttributeKind::Mac,
            VfAttribute::Vlan { .. } => VfAttributeKind::Vlan,
            VfAttribute::Spoofchk(_) => VfAttributeKind::Spoofchk,
            VfAttribute::Trust(_) => VfAttributeKind::Trust,
            VfAttribute::Rate { .. } => VfAttributeKind::Rate,
            VfAttribute::LinkState(_) => VfAttributeKind::LinkState,
        }
    }
}

impl fmt::Display for VfAttributeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VfAttributeKind::Mac => "mac",
            VfAttributeKind::Vlan => "vlan",
            VfAttributeKind::Spoofchk => "spoofchk",
            VfAttributeKind::Trust => "trust",
            VfAttributeKind::Rate => "rate",
            VfAttributeKind::LinkState => "link_state",
        })
    }
}

impl fmt::Display for VfAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |set: &bool| if *set { "on" } else { "off" };
        match self {
            VfAttribute::Mac(mac) => write!(f, "mac {mac}"),
            VfAttribute::Vlan { id, qos, protocol } => write!(f, "vlan {id} qos {qos} proto {protocol}"),
            VfAttribute::Spoofchk(set) => write!(f, "spoofchk {}", on(set)),
            VfAttribute::Trust(set) => write!(f, "trust {}", on(set)),
            VfAttribute::Rate { min, max } => write!(f, "min_tx_rate {} max_tx_rate {}", min.0, max.0),
            VfAttribute::LinkState(state) => write!(f, "state {state}"),
        }
    }
}

impl VfSettings {
    /// The attributes asked for, in the order in which they are to be set: the MAC first, since a bound VF driver
    /// sees it only after a rebind, and the rate last, since drivers check it against the link.
    pub fn attributes(&self) -> Vec<VfAttribute> {
        let vlan_asked = self.vlan.is_some() || self.qos.is_some() || self.vlan_proto.is_some();
        let rate_asked = self.min_tx_rate.is_some() || self.max_tx_rate.is_some();
        [
            self.mac.map(VfAttribute::Mac),
            vlan_asked.then(|| VfAttribute::Vlan {
                id: self.vlan.unwrap_or_default(),
                qos: self.qos.unwrap_or_default(),
                protocol: self.vlan_proto.unwrap_or_default(),
            }),
            self.spoofchk.map(VfAttribute::Spoofchk),
            self.trust.map(VfAttribute::Trust),
            self.link_state.map(VfAttribute::LinkState),
            rate_asked.then(|| VfAttribute::Rate {
                min: self.min_tx_rate.unwrap_or_default(),
                max: self.max_tx_rate.unwrap_or_default(),
            }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Asks for this attribute.
    pub fn set(&mut self, attribute: &VfAttribute) {
        match *attribute {
            VfAttribute::Mac(mac) => self.mac = Some(mac),
            VfAttribute::Vlan { id, qos, protocol } => {
                (self.vlan, self.qos, self.vlan_proto) = (Some(id), Some(qos), Some(protocol));
            }
            VfAttribute::Spoofchk(on) => self.spoofchk = Some(on),
            VfAttribute::Trust(on) => self.trust = Some(on),
            VfAttribute::Rate { min, max } => (self.min_tx_rate, self.max_tx_rate) = (Some(min), Some(max)),
            VfAttribute::LinkState(state) => self.link_state = Some(state),
        }
    }

    /// These settings, with what they leave out taken from `fallback`.
    pub fn or(&self, fallback: &VfSettings) -> VfSettings {
        VfSettings {
            mac: self.mac.or(fallback.mac),
            vlan: self.vlan.or(fallback.vlan),
            qos: self.qos.or(fallback.qos),
            vlan_proto: self.vlan_proto.or(fallback.vlan_proto),
            spoofchk: self.spoofchk.or(fallback.spoofchk),
            trust: self.trust.or(fallback.trust),
            min_tx_rate: self.min_tx_rate.or(fallback.min_tx_rate),
            max_tx_rate: self.max_tx_rate.or(fallback.max_tx_rate),
            link_state: self.link_state.or(fallback.link_state),
        }
    }
}
