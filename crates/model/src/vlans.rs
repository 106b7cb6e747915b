//! Sets of VLANs, and which of them a bridge has at a port.

use std::{borrow::Cow, collections::BTreeSet, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::quantity::{NumberList, number_list, ranges, read_ranges, write_ranges};

/// The highest VLAN id; 4095 is reserved (IEEE 802.1Q, 9.6).
const LAST_VLAN: u32 = 4094;

/// VLANs, written like `0,100-199`; 0 is no tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VlanSet(BTreeSet<u16>);

impl VlanSet {
    /// Whether there is none in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied()
    }

    /// The ranges that they make up, each with its first and last.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> {
        let ranges = ranges(self.0.iter().map(|vlan| u32::from(*vlan)));
        ranges.filter_map(|(first, last)| Some((u16::try_from(first).ok()?, u16::try_from(last).ok()?)))
    }

    /// Whether this VLAN is in it.
    pub fn contains(&self, vlan: u16) -> bool {
        self.0.contains(&vlan)
    }

    /// These VLANs and frames without a tag.
    pub fn and_untagged(&self) -> VlanSet {
        VlanSet(self.0.iter().copied().chain([0]).collect())
    }
}

impl FromIterator<u16> for VlanSet {
    /// Those of `vlans` that can be VLANs.
    fn from_iter<I: IntoIterator<Item = u16>>(vlans: I) -> VlanSet {
        VlanSet(vlans.into_iter().filter(|vlan| u32::from(*vlan) <= LAST_VLAN).collect())
    }
}

/// Text that is no list of VLANs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text} is not a list of VLANs like 0,100-199: {why}", text = crate::tree::shown(.text))]
pub struct ParseVlanSetError {
    text: String,
    why: String,
}

impl FromStr for VlanSet {
    type Err = ParseVlanSetError;

    fn from_str(text: &str) -> Result<VlanSet, ParseVlanSetError> {
        let fail = |why: String| ParseVlanSetError { text: text.to_owned(), why };
        let ranges = read_ranges(text, "VLAN", LAST_VLAN).map_err(fail)?;
        let all = ranges.into_iter().flat_map(|(first, last)| first..=last);
        Ok(VlanSet(all.filter_map(|vlan| u16::try_from(vlan).ok()).collect()))
    }
}

impl fmt::Display for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ranges(self.0.iter().map(|vlan| u32::from(*vlan)), f)
    }
}

impl NumberList for VlanSet {
    const EXPECTED: &'static str = "a list of VLANs like 0,100-199 or [0, 100]";

    fn join(&mut self, more: VlanSet) {
        self.0.extend(more.0);
    }
}

impl Serialize for VlanSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VlanSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<VlanSet, D::Error> {
        number_list(from)
    }
}

impl JsonSchema for VlanSet {
    fn schema_name() -> Cow<'static, str> {
        "VlanSet".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let text = "^\\s*((0|[1-9][0-9]{0,3})(-(0|[1-9][0-9]{0,3}))?)?(,((0|[1-9][0-9]{0,3})(-(0|[1-9][0-9]{0,3}))?)?)*\\s*$";
        schemars::json_schema!({
            "type": ["string", "integer", "array"],
            "minimum": 0,
            "maximum": LAST_VLAN,
            "pattern": text,
            "items": { "type": ["string", "integer"], "minimum": 0, "maximum": LAST_VLAN, "pattern": text },
            "description": "VLANs, or a list of such; 0 is no tag.",
            "examples": ["0,100-199"]
        })
    }
}

/// The VLANs that a bridge which filters them has at a port (`bridge vlan`; `include/uapi/linux/if_bridge.h`,
/// `struct bridge_vlan_info`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortVlans {
    /// Those whose frames leave with their tag.
    #[serde(default, skip_serializing_if = "VlanSet::is_empty")]
    pub tagged: VlanSet,
    /// Those whose frames leave without one (`BRIDGE_VLAN_INFO_UNTAGGED`).
    #[serde(default, skip_serializing_if = "VlanSet::is_empty")]
    pub untagged: VlanSet,
    /// The one of them that a frame is in which comes without a tag (`BRIDGE_VLAN_INFO_PVID`). `None`: such a frame is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvid: Option<u16>,
}

impl PortVlans {
    /// All of them.
    pub fn all(&self) -> VlanSet {
        self.tagged.iter().chain(self.untagged.iter()).collect()
    }

    /// Whether a port is to be given these that has `present`, at a bridge whose new ports are in VLAN `default`
    /// (`IFLA_BR_VLAN_DEFAULT_PVID`): where it has what a new port has, or that beside these, as when they were given and the other not
    /// taken yet. Whatever else it has, somebody has set it up anew.
    pub fn are_lacking(&self, present: &PortVlans, default: Option<u16>) -> bool {
        let new =
            PortVlans { tagged: VlanSet::default(), untagged: default.into_iter().collect(), pvid: default };
        let both = PortVlans {
            untagged: self.untagged.iter().chain(new.untagged.iter()).collect(),
            pvid: self.pvid.or(default),
            ..self.clone()
        };
        self != present && (*present == new || *present == both)
    }
}

impl fmt::Display for PortVlans {
    /// `VLANs 2-4094, untagged 1, PVID 1`; `no VLAN`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend((!self.tagged.is_empty()).then(|| self.tagged.to_string()));
        parts.extend((!self.untagged.is_empty()).then(|| format!("untagged {}", self.untagged)));
        parts.extend(self.pvid.map(|vlan| format!("PVID {vlan}")));
        match parts.is_empty() {
            true => f.write_str("no VLAN"),
            false => write!(f, "VLANs {}", parts.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_list_of_vlans_is_refused() {
        for text in ["4095", "a", "5-4", "07", "1-", "-1"] {
            assert!(text.parse::<VlanSet>().is_err(), "{text}");
        }
        assert!("0,4094".parse::<VlanSet>().unwrap().contains(4094));
    }

    #[test]
    fn a_port_that_somebody_set_up_anew_keeps_its_vlans() {
        let vlans = |tagged: &[u16], untagged: &[u16], pvid| PortVlans {
            tagged: tagged.iter().copied().collect(),
            untagged: untagged.iter().copied().collect(),
            pvid,
        };
        let wanted = vlans(&[2, 3, 4094], &[7], Some(7));
        assert_eq!(wanted.to_string(), "VLANs 2-3,4094, untagged 7, PVID 7");
        assert_eq!(PortVlans::default().to_string(), "no VLAN");
        // As a port is made, and with its VLANs but the one of a new port not yet taken away.
        for present in [vlans(&[], &[1], Some(1)), vlans(&[2, 3, 4094], &[1, 7], Some(7))] {
            assert!(wanted.are_lacking(&present, Some(1)), "{present}");
        }
        let others = [
            wanted.clone(),
            vlans(&[], &[], None),
            vlans(&[], &[20], Some(20)),
            vlans(&[2, 3], &[7], Some(7)),
            vlans(&[1, 2, 3, 4094], &[7], Some(7)),
        ];
        for present in others {
            assert!(!wanted.are_lacking(&present, Some(1)), "{present}");
        }
        // Where new ports are in no VLAN, somebody has put it into this one.
        assert!(!wanted.are_lacking(&vlans(&[], &[1], Some(1)), None));
        assert!(wanted.are_lacking(&PortVlans::default(), None));
        // One that had none, and whose bridge has a VLAN for new ports.
        assert!(PortVlans::default().are_lacking(&vlans(&[], &[1], Some(1)), Some(1)));
        let json = serde_json::to_string(&wanted).unwrap();
        assert_eq!(json, r#"{"tagged":"2-3,4094","untagged":"7","pvid":7}"#);
        assert_eq!(serde_json::from_str::<PortVlans>(&json).unwrap(), wanted);
    }
}
