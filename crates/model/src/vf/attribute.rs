//! What one netlink request sets of a VF, the keys of a model that it carries, and their values.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LinkState, TxRate, VlanId, VlanProtocol, VlanQos, table::vf_attributes};
use crate::{Mac, inventory::Capability};

macro_rules! attributes {
    ({} $($(#[$doc:meta])* $kind:ident $holds:tt $name:literal can { $_cn:literal $_cd:literal $($more:tt)* } keys {
        $($field:tt $word:ident $key:ident: $type:ty, state $_r:ty, ip $ip:literal, aliases [$($alias:literal)*], $_d:tt)*
    })*) => {
        /// One attribute of one VF, as one netlink request carries it: the VLAN triple and the rate pair each travel together
        /// (`IFLA_VF_VLAN_LIST`, `IFLA_VF_RATE`), so setting half of one would reset the other half.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum VfAttribute {
            $($(#[$doc])* $kind $holds,)*
        }

        /// The name of an attribute without its value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum VfAttributeKind {
            $($(#[$doc])* $kind,)*
        }

        /// One key of a model that says something of a VF's attributes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum VfKey {
            $($(
                #[doc = concat!("`", stringify!($key), "`.")]
                $word,
            )*)*
        }

        impl VfAttribute {
            /// Which attribute this is.
            pub const fn kind(&self) -> VfAttributeKind {
                match self {
                    $(VfAttribute::$kind { .. } => VfAttributeKind::$kind,)*
                }
            }

            /// What it says, key by key.
            pub fn values(&self) -> Vec<(VfKey, VfValue)> {
                match *self {
                    $(VfAttribute::$kind { $($field: $key),* } => vec![$((VfKey::$word, VfValue::from($key))),*],)*
                }
            }
        }

        impl VfAttributeKind {
            /// All of them, in the order of the table.
            pub const ALL: &[VfAttributeKind] = &[$(VfAttributeKind::$kind),*];

            /// The keys of a model that this attribute carries.
            pub const fn keys(self) -> &'static [&'static str] {
                match self {
                    $(VfAttributeKind::$kind => &[$(stringify!($key)),*],)*
                }
            }

            /// Its name where its value is not given.
            pub const fn name(self) -> &'static str {
                match self {
                    $(VfAttributeKind::$kind => $name,)*
                }
            }

            /// What a driver needs to be able to set it at all.
            pub const fn capability(self) -> Capability {
                match self {
                    $(VfAttributeKind::$kind => Capability::$kind,)*
                }
            }

            /// The same as a list.
            pub(crate) const fn capabilities(self) -> &'static [Capability] {
                match self {
                    $(VfAttributeKind::$kind => &[Capability::$kind],)*
                }
            }
        }

        impl VfKey {
            /// All of them, in the order of the table.
            pub const ALL: &[VfKey] = &[$($(VfKey::$word),*),*];

            /// As a model spells it.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(VfKey::$word => stringify!($key),)*)*
                }
            }

            /// Its other spellings that are read.
            pub const fn aliases(self) -> &'static [&'static str] {
                match self {
                    $($(VfKey::$word => &[$($alias),*],)*)*
                }
            }

            /// The attribute that carries it.
            pub const fn kind(self) -> VfAttributeKind {
                match self {
                    $($(VfKey::$word => VfAttributeKind::$kind,)*)*
                }
            }

            /// Its value when nothing is set: no address, no tag, off, no limit, the PF's own link.
            pub fn unset(self) -> VfValue {
                match self {
                    $($(VfKey::$word => VfValue::from(<$type>::default()),)*)*
                }
            }

            /// `ip link`'s word for it.
            const fn ip(self) -> &'static str {
                match self {
                    $($(VfKey::$word => $ip,)*)*
                }
            }
        }
    };
}

vf_attributes!(attributes {});

/// The value of one key. An attribute of another type needs another variant here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum VfValue {
    /// The VF's MAC address.
    Mac(Mac),
    /// A port VLAN.
    Vlan(VlanId),
    /// The priority of its tag.
    Qos(VlanQos),
    /// The protocol of its tag.
    Protocol(VlanProtocol),
    /// Whether something is on.
    Switch(bool),
    /// A transmit rate.
    Rate(TxRate),
    /// The link that the VF is shown.
    Link(LinkState),
}

macro_rules! values {
    ($($variant:ident($type:ty),)*) => {
        $(impl From<$type> for VfValue {
            fn from(value: $type) -> VfValue {
                VfValue::$variant(value)
            }
        })*
    };
}

values! {
    Mac(Mac), Vlan(VlanId), Qos(VlanQos), Protocol(VlanProtocol), Switch(bool), Rate(TxRate), Link(LinkState),
}

impl VfValue {
    /// As `ip link` takes it and a model writes it: a rate as a bare number of Mbit/s.
    pub fn plain(self) -> String {
        match self {
            VfValue::Rate(rate) => rate.0.to_string(),
            other => other.to_string(),
        }
    }
}

/// As a verdict has it: a switch as `on` or `off`, a rate with its unit.
impl fmt::Display for VfValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VfValue::Mac(mac) => mac.fmt(f),
            VfValue::Vlan(id) => id.fmt(f),
            VfValue::Qos(qos) => qos.fmt(f),
            VfValue::Protocol(protocol) => protocol.fmt(f),
            VfValue::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            VfValue::Rate(rate) => rate.fmt(f),
            VfValue::Link(state) => state.fmt(f),
        }
    }
}

impl VfKey {
    /// The key that a model spells so; other spellings are none.
    pub fn named(name: &str) -> Option<VfKey> {
        VfKey::ALL.iter().copied().find(|key| key.name() == name)
    }
}

impl fmt::Display for VfKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for VfAttributeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for VfAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (key, value)) in self.values().into_iter().enumerate() {
            let space = if position == 0 { "" } else { " " };
            write!(f, "{space}{} {}", key.ip(), value.plain())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::vf::{VfSettings, VfState};

    /// Settings by which one key asks for something that is not there by itself.
    fn asked(key: VfKey, spelling: &str) -> VfSettings {
        let value = match key.unset() {
            VfValue::Mac(_) => json!("02:00:00:00:00:07"),
            VfValue::Vlan(_) | VfValue::Qos(_) | VfValue::Rate(_) => json!(7),
            VfValue::Protocol(_) => json!("802.1ad"),
            VfValue::Switch(_) => json!(true),
            VfValue::Link(_) => json!("disable"),
        };
        let document = Value::Object([(spelling.to_owned(), value)].into_iter().collect());
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn each_key_is_read_in_every_spelling_and_goes_into_an_attribute_and_a_state_and_back() {
        for key in VfKey::ALL {
            let settings = asked(*key, key.name());
            let value = settings.get(*key).unwrap();
            assert_ne!(value, key.unset(), "{key}");
            for alias in key.aliases() {
                assert_eq!(asked(*key, alias), settings, "{alias}");
            }
            let [attribute] = settings.attributes()[..] else { panic!("{key}: {settings:?}") };
            assert_eq!(attribute.kind(), key.kind());
            assert!(attribute.values().contains(&(*key, value)), "{attribute}");
            assert!(attribute.kind().keys().contains(&key.name()));
            assert_eq!(VfKey::named(key.name()), Some(*key));

            let mut state = VfState::default();
            state.set(&attribute);
            assert_eq!(state.get(*key), Some(value));
            assert_eq!(state.attribute(key.kind()), Some(attribute));
            assert!(state.attributes().contains(&attribute));

            let mut again = VfSettings::default();
            again.set(&attribute);
            assert_eq!(again.get(*key), Some(value));
            assert_eq!(again.or(&VfSettings::default()), again);
            assert_eq!(VfSettings::default().or(&again), again);
            again.clear(*key);
            assert_eq!(again.get(*key), None);
        }
    }

    #[test]
    fn the_rate_is_set_last_and_what_every_driver_reports_comes_first() {
        let mut settings = VfSettings::default();
        let mut state = VfState::default();
        for attribute in VfKey::ALL.iter().flat_map(|key| asked(*key, key.name()).attributes()) {
            settings.set(&attribute);
            state.set(&attribute);
        }
        let last = settings.attributes().last().map(VfAttribute::kind);
        assert_eq!(last, Some(VfAttributeKind::Rate));
        let first: Vec<_> = state.attributes()[..3].iter().map(VfAttribute::kind).collect();
        assert_eq!(first, [VfAttributeKind::Mac, VfAttributeKind::Vlan, VfAttributeKind::Rate]);
    }
}
