//! How far a VM may change its NIC by itself: the ceiling `allow`, in the words of the embedded switch that holds it (`docs/switch.md`).

use std::fmt;

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

use crate::{Mac, TxRate, VlanQos, VlanSet};

/// How far a VM may go by itself at a function of its NIC: of each attribute the furthest value. What is left out may go no
/// further than the model sets it. What takes less than the model gives is always allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "the limits of a VM: a mapping like {vlan: 100-199}")]
pub struct Allow {
    /// Addresses beside that of the model: a list, `any`, or `own`, none. Default: own.
    #[serde(deserialize_with = "or_default")]
    pub mac: AllowedMacs,
    /// How many addresses beside the first, 0 to 64. Default: 0.
    #[schemars(range(max = 64))]
    #[serde(deserialize_with = "or_default")]
    pub more_macs: u16,
    /// VLANs that it may be in, like `100-199`; 0 is no tag. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanSet>,
    /// The highest priority of its port VLAN's tag. Default: the model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<VlanQos>,
    /// Whether it may choose the protocol of its port VLAN's tag. Default: no.
    #[serde(deserialize_with = "or_default")]
    pub vlan_proto: bool,
    /// The furthest transmit rate limit in Mbit/s, which also holds where the model sets none; 0: it may have no limit. Default: the
    /// model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tx_rate: Option<TxRate>,
    /// `off`: it may have the check off. Default: on.
    #[serde(deserialize_with = "or_on")]
    pub spoofchk: bool,
    /// Whether it may have trust. Default: no.
    #[serde(deserialize_with = "or_default")]
    pub trust: bool,
    /// Whether it may get all frames of its VLANs, for which it also needs trust. Default: no.
    #[serde(deserialize_with = "or_default")]
    pub promiscuous: bool,
    /// Whether it may choose whether frames between the NIC's functions stay inside; of the NIC, not of a function. Default: no.
    #[serde(deserialize_with = "or_default")]
    pub loopback: bool,
}

/// A key with nothing behind it is one that is left out.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

fn or_on<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Option::deserialize(from).map(|set| set.unwrap_or(true))
}

impl Default for Allow {
    fn default() -> Allow {
        Allow {
            mac: AllowedMacs::Own,
            more_macs: 0,
            vlan: None,
            qos: None,
            vlan_proto: false,
            max_tx_rate: None,
            spoofchk: true,
            trust: false,
            promiscuous: false,
            loopback: false,
        }
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        match &self.mac {
            AllowedMacs::Own => {}
            AllowedMacs::Any => parts.push("mac any".to_owned()),
            AllowedMacs::These(all) => {
                let all: Vec<String> = all.iter().map(Mac::to_string).collect();
                parts.push(format!("mac {}", all.join(" or ")));
            }
        }
        if self.more_macs > 0 {
            parts.push(format!("more_macs {}", self.more_macs));
        }
        parts.extend(self.vlan.as_ref().map(|vlans| format!("vlan {vlans}")));
        parts.extend(self.qos.map(|qos| format!("qos {qos}")));
        parts.extend(self.max_tx_rate.map(|rate| match rate.0 {
            0 => "no max_tx_rate".to_owned(),
            _ => format!("max_tx_rate {rate}"),
        }));
        for (may, word) in [
            (self.vlan_proto, "vlan_proto"),
            (!self.spoofchk, "spoofchk off"),
            (self.trust, "trust on"),
            (self.promiscuous, "promiscuous on"),
            (self.loopback, "loopback"),
        ] {
            parts.extend(may.then(|| word.to_owned()));
        }
        match parts.is_empty() {
            true => f.write_str("only less than the model gives"),
            false => f.write_str(&parts.join(", ")),
        }
    }
}

/// Addresses that a VM may give a function beside that of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
pub enum AllowedMacs {
    /// Only the address that the host has set.
    #[default]
    #[schemars(with = "AllowedMacsWord")]
    Own,
    /// Any of one station.
    #[schemars(skip)]
    Any,
    /// Any of these addresses.
    These(Vec<Mac>),
}

/// `own` or `any`.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[allow(dead_code, reason = "the schema's words")]
enum AllowedMacsWord {
    Own,
    Any,
}

impl Serialize for AllowedMacs {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            AllowedMacs::Own => to.serialize_str("own"),
            AllowedMacs::Any => to.serialize_str("any"),
            AllowedMacs::These(all) => all.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for AllowedMacs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<AllowedMacs, D::Error> {
        struct Addresses;

        impl<'de> Visitor<'de> for Addresses {
            type Value = AllowedMacs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`own`, `any`, or a list of MAC addresses")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AllowedMacs, E> {
                match text {
                    "own" => Ok(AllowedMacs::Own),
                    "any" => Ok(AllowedMacs::Any),
                    _ => Err(E::custom("write `own`, `any`, or a list like [\"02:00:00:00:00:01\"]")),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<AllowedMacs, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(AllowedMacs::These)
            }
        }

        from.deserialize_any(Addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_is_written_in_the_words_of_the_switch() {
        let allow = Allow {
            mac: AllowedMacs::These(vec![Mac::new([2, 0, 0, 0, 0, 1])]),
            vlan: Some("100-101, 7".replace(' ', "").parse().unwrap()),
            max_tx_rate: Some(TxRate(1000)),
            trust: true,
            ..Allow::default()
        };
        let written = serde_json::json!({"mac": ["02:00:00:00:00:01"], "more_macs": 0, "vlan": "7,100-101", "vlan_proto": false,
            "max_tx_rate": 1000, "spoofchk": true, "trust": true, "promiscuous": false, "loopback": false});
        assert_eq!(serde_json::to_value(&allow).unwrap(), written);
        assert_eq!(serde_json::from_value::<Allow>(written).unwrap(), allow);
        assert_eq!(
            allow.to_string(),
            "mac 02:00:00:00:00:01, vlan 7,100-101, max_tx_rate 1000 Mbit/s, trust on"
        );
        assert_eq!(Allow::default().to_string(), "only less than the model gives");
    }
}
