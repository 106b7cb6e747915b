//! What a model asks of a VF.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    LinkState, TxRate, VfAttribute, VfAttributeKind, VfKey, VfValue, VlanId, VlanProtocol, VlanQos,
    table::vf_attributes,
};
use crate::Mac;

macro_rules! settings {
    ({} $($(#[$_i:meta])* $kind:ident $_h:tt $_n:literal can $_c:tt keys {
        $($field:tt $word:ident $key:ident: $type:ty, state $_r:ty, ip $_p:literal, aliases [$($alias:literal)*], {
            $doc:literal $_2:literal $_3:literal $_4:literal $_5:literal
        })*
    })*) => {
        /// What a model may ask of a VF at its PF. Every field is optional: what is left out is left as the driver has it
        /// (the MAC alone is always set, derived if need be; see [`Mac::derived`]).
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default, expecting = "VF attributes: a mapping like {vlan: 100}")]
        pub struct VfSettings {
            $($(
                #[doc = $doc]
                $(#[serde(alias = $alias)])*
                pub $key: Option<$type>,
            )*)*
        }

        impl VfSettings {
            /// What is asked for by this key.
            pub fn get(&self, key: VfKey) -> Option<VfValue> {
                match key {
                    $($(VfKey::$word => self.$key.map(VfValue::from),)*)*
                }
            }

            /// What is asked for of this attribute, when one of its keys is. Those beside it are what they are when nothing is set.
            pub fn attribute(&self, kind: VfAttributeKind) -> Option<VfAttribute> {
                match kind {
                    $(VfAttributeKind::$kind => {
                        let asked = $(self.$key.is_some())||*;
                        asked.then(|| VfAttribute::$kind { $($field: self.$key.unwrap_or_default()),* })
                    })*
                }
            }

            /// Asks for this attribute.
            pub fn set(&mut self, attribute: &VfAttribute) {
                match *attribute {
                    $(VfAttribute::$kind { $($field: $key),* } => {
                        $(self.$key = Some($key);)*
                    })*
                }
            }

            /// Asks no more for what this key says.
            pub fn clear(&mut self, key: VfKey) {
                match key {
                    $($(VfKey::$word => self.$key = None,)*)*
                }
            }

            /// These settings, with what they leave out taken from `fallback`.
            pub fn or(&self, fallback: &VfSettings) -> VfSettings {
                VfSettings { $($($key: self.$key.or(fallback.$key),)*)* }
            }
        }
    };
}

vf_attributes!(settings {});

impl VfSettings {
    /// The attributes asked for, in the order in which they are to be set: the MAC first, since a bound VF driver
    /// sees it only after a rebind, and the rate last, since drivers check it against the link.
    pub fn attributes(&self) -> Vec<VfAttribute> {
        let mut kinds = VfAttributeKind::ALL.to_vec();
        kinds.sort_by_key(|kind| *kind == VfAttributeKind::Rate);
        kinds.into_iter().filter_map(|kind| self.attribute(kind)).collect()
    }

    /// The keys by which something is asked for, and what, in the order of the table.
    pub fn values(&self) -> impl Iterator<Item = (VfKey, VfValue)> {
        VfKey::ALL.iter().filter_map(|key| Some((*key, self.get(*key)?)))
    }

    /// These settings of a VF with the defaults of its NIC. One that is outside all VLANs (`vlan: 0`) has nothing of a tag that the defaults
    /// ask for.
    pub fn over(&self, defaults: &VfSettings) -> VfSettings {
        let mut defaults = defaults.clone();
        if self.vlan.is_some_and(|vlan| vlan.get() == 0) {
            VfKey::ALL
                .iter()
                .filter(|key| key.kind() == VfAttributeKind::Vlan)
                .for_each(|key| defaults.clear(*key));
        }
        self.or(&defaults)
    }

    /// Asks no more for what does not hold.
    pub fn retain(&mut self, holds: impl Fn(VfKey, VfValue) -> bool) {
        for key in VfKey::ALL {
            if self.get(*key).is_some_and(|value| !holds(*key, value)) {
                self.clear(*key);
            }
        }
    }

    /// What of them cannot be had together, or by any interface; the first of it. A model says more of where that stands.
    pub fn conflict(&self) -> Option<SettingsConflict> {
        if let Some(mac) = self.mac.filter(|mac| mac.is_multicast() || mac.is_zero()) {
            return Some(SettingsConflict::Mac(mac));
        }
        let tagged = self.vlan.is_some_and(|vlan| vlan.get() != 0);
        if let Some(qos) = self.qos.filter(|qos| !tagged && qos.get() != 0) {
            return Some(SettingsConflict::QosWithoutVlan(qos));
        }
        if let Some(protocol) =
            self.vlan_proto.filter(|protocol| !tagged && *protocol == VlanProtocol::Dot1ad)
        {
            return Some(SettingsConflict::ProtocolWithoutVlan(protocol));
        }
        match (self.min_tx_rate, self.max_tx_rate) {
            (Some(min), Some(max)) if max.0 != 0 && min > max => {
                Some(SettingsConflict::RateAboveLimit { min, max })
            }
            _ => None,
        }
    }
}

/// Settings of a VF that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsConflict {
    /// A multicast address, or none.
    #[error("no interface can have the MAC address {0}")]
    Mac(Mac),
    /// The priority of a tag, without a tag.
    #[error("qos {0} needs a vlan of 1 to 4094")]
    QosWithoutVlan(VlanQos),
    /// The protocol of a tag, without a tag.
    #[error("vlan_proto {0} needs a vlan of 1 to 4094")]
    ProtocolWithoutVlan(VlanProtocol),
    /// A guaranteed rate above the limit.
    #[error("min_tx_rate of {min} is more than max_tx_rate of {max}")]
    RateAboveLimit {
        /// What is guaranteed.
        min: TxRate,
        /// The limit.
        max: TxRate,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VlanId;

    #[test]
    fn a_vf_outside_all_vlans_has_no_part_of_its_nics_tag() {
        let vlan = |id| VfSettings { vlan: VlanId::new(id), ..VfSettings::default() };
        let defaults = VfSettings {
            qos: VlanQos::new(3),
            vlan_proto: Some(VlanProtocol::Dot1ad),
            trust: Some(true),
            ..vlan(108)
        };
        assert_eq!(vlan(0).over(&defaults), VfSettings { trust: Some(true), ..vlan(0) });
        assert_eq!(vlan(7).over(&defaults), VfSettings { vlan: VlanId::new(7), ..defaults.clone() });
        assert_eq!(VfSettings::default().over(&defaults), defaults);
    }
}
