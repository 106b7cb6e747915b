//! Virtual functions: their index, and the attributes that the PF's driver keeps for each.

mod attribute;
mod settings;
mod state;
pub(crate) mod table;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    attribute::{VfAttribute, VfAttributeKind, VfKey, VfValue},
    settings::{SettingsConflict, VfSettings},
    state::VfState,
};

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

    /// The index as a plain number, 0 to [`VfIndex::MAX`].
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

            /// The value as a plain number, within the range of the type.
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
