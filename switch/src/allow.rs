//! How far what is set from inside may go: from a machine behind the switch, over its line, or by what its guest asks of a device.
//!
//! What the host has set itself is always within it, and so is whatever takes less than that. An attribute that is not named may not
//! go further than the host has set it, and one for which there is no ceiling is the host's alone.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    config::{PortConfig, mac, vlans},
    net::Mac,
    settings::{LinkState, Settings, Vlans},
};

/// A ceiling as a configuration has it: of each attribute the furthest value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AllowConfig {
    /// Addresses that it may have.
    #[serde(skip_serializing_if = "Addresses::is_own")]
    pub mac: Addresses,
    /// How many addresses it may have beside its first.
    pub more_macs: u16,
    /// VLANs that it may be in, by its port VLAN or with tags of its own; 0 is no tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<String>,
    /// The highest priority of its port VLAN's tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<u8>,
    /// Whether it may choose the kind of its port VLAN's tag.
    pub vlan_proto: bool,
    /// Mbit/s that it may be limited to at most; 0: it may have no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tx_rate: Option<u32>,
    /// Mbit/s that it may have guaranteed.
    pub min_tx_rate: u32,
    /// `false`: it may have the check off.
    pub spoofchk: bool,
    /// `false`: it may have the check off.
    pub arp_check: bool,
    /// `true`: it may have trust.
    pub trust: bool,
    /// `true`: it may be promiscuous, for which it needs trust, too.
    pub promiscuous: bool,
    /// The most that it may do with its link: `disable`, `auto`, `enable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_state: Option<LinkState>,
    /// The longest MTU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Whether it may say that frames stay inside, or do not. Of the whole switch; no port's.
    pub loopback: bool,
}

impl Default for AllowConfig {
    fn default() -> AllowConfig {
        AllowConfig {
            mac: Addresses::Own,
            more_macs: 0,
            vlan: None,
            qos: None,
            vlan_proto: false,
            max_tx_rate: None,
            min_tx_rate: 0,
            spoofchk: true,
            arp_check: true,
            trust: false,
            promiscuous: false,
            link_state: None,
            mtu: None,
            loopback: false,
        }
    }
}

/// Addresses that somebody may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Addresses {
    /// Those that the host has set.
    #[default]
    Own,
    /// Any of one station.
    Any,
    /// Those of the host, and these.
    These(Vec<String>),
}

impl Addresses {
    fn is_own(&self) -> bool {
        *self == Addresses::Own
    }
}

impl TryFrom<Value> for Addresses {
    type Error = String;

    fn try_from(value: Value) -> Result<Addresses, String> {
        let refused =
            || Err(format!("mac of `allow` cannot be {value}: it is any, own, or a list of addresses"));
        match &value {
            Value::String(word) if word == "any" => Ok(Addresses::Any),
            Value::String(word) if word == "own" => Ok(Addresses::Own),
            Value::Array(all) => {
                let texts = all.iter().map(|text| text.as_str().map(str::to_owned));
                texts.collect::<Option<_>>().map_or_else(refused, |all| Ok(Addresses::These(all)))
            }
            _ => refused(),
        }
    }
}

impl From<Addresses> for Value {
    fn from(addresses: Addresses) -> Value {
        match addresses {
            Addresses::Own => "own".into(),
            Addresses::Any => "any".into(),
            Addresses::These(all) => all.into(),
        }
    }
}

/// Why something that was asked for from inside was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Refusal {
    /// Nothing of this port may be set from inside.
    NoAllow,
    /// It is no attribute that could be set from inside.
    Denied,
    /// It makes no sense.
    Invalid,
    /// Another port has the address in one of its VLANs.
    Taken,
    Mac,
    MoreMacs,
    Vlan,
    Qos,
    VlanProto,
    MaxTxRate,
    MinTxRate,
    Spoofchk,
    ArpCheck,
    Trust,
    Promiscuous,
    LinkState,
    Mtu,
    Loopback,
}

/// A wish beyond the ceiling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The attribute that goes beyond its ceiling, as the reason under which the refusal is counted.
    pub of: Refusal,
    /// The attribute and its value.
    pub asked: String,
    /// How far it may go.
    pub ceiling: String,
}

/// A ceiling that makes sense.
#[derive(Clone, Debug)]
pub struct Ceiling {
    addresses: Option<BTreeSet<Mac>>,
    vlans: Vlans,
    config: AllowConfig,
}

impl AllowConfig {
    /// Sees whether it makes sense.
    ///
    /// # Errors
    /// In words.
    pub fn ceiling(&self) -> Result<Ceiling, String> {
        let addresses = match &self.mac {
            Addresses::Any => None,
            Addresses::Own => Some(BTreeSet::new()),
            Addresses::These(all) => {
                let read = |text: &String| {
                    let station = mac(text).filter(|mac| !mac.is_group() && !mac.is_zero());
                    station.ok_or_else(|| format!("{text:?} is not a MAC address of one station"))
                };
                Some(all.iter().map(read).collect::<Result<_, _>>()?)
            }
        };
        let text = self.vlan.as_deref().unwrap_or_default();
        let vlans = vlans(text).ok_or_else(|| format!("{text:?} is not a list of VLANs from 0 to 4094"))?;
        if let Some(qos) = self.qos.filter(|qos| *qos > 7) {
            return Err(format!("priority {qos}; 7 is the highest"));
        }
        Ok(Ceiling { addresses, vlans, config: self.clone() })
    }
}

/// The attributes for which there is a ceiling. Any other is the host's alone.
const WITH_CEILING: [&str; 14] = [
    "mac",
    "more_macs",
    "vlan",
    "qos",
    "vlan_proto",
    "trunk",
    "spoofchk",
    "arp_check",
    "trust",
    "promiscuous",
    "link_state",
    "max_tx_rate",
    "min_tx_rate",
    "mtu",
];

/// Something for which there is no ceiling, and which two ports have differently.
fn other_difference(one: &PortConfig, other: &PortConfig) -> Option<String> {
    let [one, other] = [one, other].map(|port| match serde_json::to_value(port) {
        Ok(Value::Object(keys)) => keys,
        _ => Map::new(),
    });
    let differs = |key: &&String| !WITH_CEILING.contains(&key.as_str()) && one.get(*key) != other.get(*key);
    one.keys().chain(other.keys()).find(differs).cloned()
}

/// VLANs that a port is in.
fn membership(settings: &Settings) -> Vlans {
    match &settings.vlan {
        Some(own) => {
            let mut one = Vlans::none();
            one.insert(own.tag.vlan);
            one
        }
        // 4095 is no VLAN (IEEE 802.1Q, 9.6).
        None => {
            let mut reserved = Vlans::none();
            reserved.insert(4095);
            settings.trunk.clone().without(&reserved)
        }
    }
}

/// How far a link goes up.
fn rank(link: LinkState) -> u8 {
    match link {
        LinkState::Disable => 0,
        LinkState::Auto => 1,
        LinkState::Enable => 2,
    }
}

/// A rate of which 0 is none.
fn limit(rate: u32) -> u32 {
    if rate == 0 { u32::MAX } else { rate }
}

impl Ceiling {
    /// Whether this address may be had.
    pub fn has_address(&self, address: Mac) -> bool {
        self.addresses.as_ref().is_none_or(|all| all.contains(&address))
    }

    /// How many addresses there may be beside the first.
    pub fn more_addresses(&self) -> usize {
        usize::from(self.config.more_macs)
    }

    /// Whether one may be in this VLAN.
    pub fn has_vlan(&self, vlan: u16) -> bool {
        self.vlans.has(vlan)
    }

    /// Whether one may be promiscuous.
    pub fn is_promiscuous(&self) -> bool {
        self.config.promiscuous
    }

    /// Which addresses may be had, in words.
    pub fn addresses(&self) -> String {
        match &self.config.mac {
            Addresses::Own => "no address but those that the host has set".to_owned(),
            Addresses::Any => "any address".to_owned(),
            Addresses::These(all) => format!("{}, beside what the host has set", all.join(", ")),
        }
    }

    /// Which VLANs one may be in, in words.
    pub fn vlans(&self) -> String {
        match self.vlans.is_empty() {
            true => "no VLAN but what the host has set".to_owned(),
            false => format!("VLANs {}, beside what the host has set", self.vlans),
        }
    }

    /// Whether a port that the host has set like `host` may be as `wanted`. Both make sense by themselves, and `settings` are theirs.
    ///
    /// # Errors
    /// The first attribute that goes too far.
    pub fn judge(
        &self,
        host: (&PortConfig, &Settings),
        wanted: (&PortConfig, &Settings),
    ) -> Result<(), Beyond> {
        let allow = &self.config;
        let ((host, host_has), (wanted, has)) = (host, wanted);
        let beyond = |of, asked: String, ceiling: String| Err(Beyond { of, asked, ceiling });
        let set_so = |value: &dyn std::fmt::Display| format!("no more than {value}, as the host has set it");
        let foreign = |address: &&Mac| !host_has.macs.contains(address) && !self.has_address(**address);
        if let Some(address) = has.macs.iter().find(foreign) {
            return beyond(Refusal::Mac, format!("mac {address}"), self.addresses());
        }
        let added = wanted.more_macs.iter().filter(|text| !host.more_macs.contains(text)).count();
        if added > self.more_addresses() {
            let ceiling = format!("{} beside what the host has set", self.more_addresses());
            return beyond(Refusal::MoreMacs, format!("more_macs {}", wanted.more_macs.join(", ")), ceiling);
        }
        let outside = membership(has).without(&membership(host_has)).without(&self.vlans);
        if !outside.is_empty() {
            return beyond(Refusal::Vlan, format!("to be in VLAN {outside}"), self.vlans());
        }
        let most = allow.qos.unwrap_or(0).max(host.qos);
        if wanted.qos > most {
            return beyond(Refusal::Qos, format!("qos {}", wanted.qos), format!("at most {most}"));
        }
        if wanted.vlan_proto != host.vlan_proto && !allow.vlan_proto {
            return beyond(Refusal::VlanProto, "another vlan_proto".to_owned(), set_so(&"its own"));
        }
        let most = limit(host.max_tx_rate).max(allow.max_tx_rate.map_or(0, limit));
        if limit(wanted.max_tx_rate) > most {
            let asked = format!("max_tx_rate {}", wanted.max_tx_rate);
            return beyond(Refusal::MaxTxRate, asked, format!("at most {most} Mbit/s"));
        }
        let most = host.min_tx_rate.max(allow.min_tx_rate);
        if wanted.min_tx_rate > most {
            let asked = format!("min_tx_rate {}", wanted.min_tx_rate);
            return beyond(Refusal::MinTxRate, asked, format!("at most {most} Mbit/s"));
        }
        for (of, name, before, now, may) in [
            (Refusal::Spoofchk, "spoofchk off", !host.spoofchk, !wanted.spoofchk, !allow.spoofchk),
            (Refusal::ArpCheck, "arp_check off", !host.arp_check, !wanted.arp_check, !allow.arp_check),
            (Refusal::Trust, "trust on", host.trust, wanted.trust, allow.trust),
            (Refusal::Promiscuous, "promiscuous on", host.promiscuous, wanted.promiscuous, allow.promiscuous),
        ] {
            if now && !before && !may {
                return beyond(of, name.to_owned(), "not that".to_owned());
            }
        }
        if rank(wanted.link_state) > rank(host.link_state).max(allow.link_state.map_or(0, rank)) {
            let asked = format!("link_state {}", wanted.link_state);
            let most = allow.link_state.filter(|most| rank(*most) > rank(host.link_state));
            return beyond(Refusal::LinkState, asked, set_so(&most.unwrap_or(host.link_state)));
        }
        let most = host_has.mtu.max(allow.mtu.unwrap_or(0));
        if has.mtu > most {
            return beyond(Refusal::Mtu, format!("mtu {}", has.mtu), format!("at most {most}"));
        }
        match other_difference(host, wanted) {
            Some(key) => beyond(Refusal::Denied, key, "what the host has set".to_owned()),
            None => Ok(()),
        }
    }
}

/// Whether frames to an address that both have in one VLAN would go to both.
pub fn share_a_vlan(one: &Settings, other: &Settings) -> bool {
    membership(one).meets(&membership(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(text: &str) -> PortConfig {
        serde_json::from_str(text).unwrap()
    }

    fn judged(allow: &str, host: &str, wanted: &str) -> Result<(), Beyond> {
        let allow: AllowConfig = serde_json::from_str(allow).unwrap();
        let [host, wanted] = [host, wanted].map(|text| {
            let config = port(text);
            let settings = config.settings("a").unwrap();
            (config, settings)
        });
        allow.ceiling().unwrap().judge((&host.0, &host.1), (&wanted.0, &wanted.1))
    }

    /// Nothing is named: what the host has set, and less than that.
    #[test]
    fn an_empty_ceiling_lets_take_back_but_not_further() {
        let host = r#"{"mac": "02:00:00:00:00:01", "more_macs": ["02:00:00:00:00:02"], "vlan": 100, "qos": 3, "spoofchk": true,
            "trust": true, "max_tx_rate": 100, "min_tx_rate": 10, "link_state": "auto", "mtu": 1500}"#;
        for (key, value, refused) in [
            ("mac", r#""02:00:00:00:00:02""#, None),
            ("mac", "null", None),
            ("mac", r#""02:00:00:00:00:09""#, Some(Refusal::Mac)),
            ("more_macs", "[]", None),
            ("more_macs", r#"["02:00:00:00:00:01"]"#, Some(Refusal::MoreMacs)),
            ("vlan", "101", Some(Refusal::Vlan)),
            ("vlan", "0", Some(Refusal::Vlan)),
            ("qos", "2", None),
            ("qos", "4", Some(Refusal::Qos)),
            ("vlan_proto", r#""802.1ad""#, Some(Refusal::VlanProto)),
            ("max_tx_rate", "99", None),
            ("max_tx_rate", "0", Some(Refusal::MaxTxRate)),
            ("max_tx_rate", "101", Some(Refusal::MaxTxRate)),
            ("min_tx_rate", "9", None),
            ("min_tx_rate", "11", Some(Refusal::MinTxRate)),
            ("spoofchk", "false", Some(Refusal::Spoofchk)),
            ("arp_check", "true", None),
            ("trust", "false", None),
            ("promiscuous", "true", Some(Refusal::Promiscuous)),
            ("link_state", r#""disable""#, None),
            ("link_state", r#""enable""#, Some(Refusal::LinkState)),
            ("mtu", "1400", None),
            ("mtu", "1501", Some(Refusal::Mtu)),
            ("speed", "7", Some(Refusal::Denied)),
            ("uplink", "true", Some(Refusal::Denied)),
        ] {
            let mut wanted = serde_json::to_value(port(host)).unwrap();
            wanted[key] = serde_json::from_str(value).unwrap();
            let judged = judged("{}", host, &wanted.to_string());
            assert_eq!(judged.err().map(|beyond| beyond.of), refused, "{key} {value}");
        }
    }

    #[test]
    fn a_ceiling_is_the_furthest_that_each_may_go() {
        let allow = r#"{"mac": ["02:00:00:00:00:05"], "more_macs": 1, "vlan": "0,100-199", "qos": 5, "vlan_proto": true,
            "max_tx_rate": 1000, "min_tx_rate": 50, "spoofchk": false, "arp_check": false, "trust": true, "promiscuous": true,
            "link_state": "enable", "mtu": 9000}"#;
        let host = r#"{"mac": "02:00:00:00:00:01", "vlan": 7, "spoofchk": true, "arp_check": true, "max_tx_rate": 10,
            "link_state": "disable"}"#;
        for (wanted, refused) in [
            (
                r#"{"mac": "02:00:00:00:00:05", "vlan": 150, "qos": 5, "vlan_proto": "802.1ad", "max_tx_rate": 1000,
                "min_tx_rate": 50, "trust": true, "promiscuous": true, "link_state": "enable", "mtu": 9000}"#,
                None,
            ),
            (r#"{"vlan": 7, "max_tx_rate": 5}"#, None),
            (r#"{"vlan": 200, "max_tx_rate": 5}"#, Some(("to be in VLAN 200", "VLANs 0,100-199"))),
            // Without a VLAN of its own its tags are what it is in.
            (r#"{"max_tx_rate": 5}"#, Some(("to be in VLAN 1-6,8-99,200-4094", "VLANs 0,100-199"))),
            (r#"{"trunk": "0,100-110", "max_tx_rate": 5}"#, None),
            (r#"{"vlan": 7, "max_tx_rate": 0}"#, Some(("max_tx_rate 0", "at most 1000 Mbit/s"))),
            (r#"{"vlan": 7, "max_tx_rate": 1001}"#, Some(("max_tx_rate 1001", "at most 1000 Mbit/s"))),
            (
                r#"{"vlan": 7, "max_tx_rate": 5, "mac": "02:00:00:00:00:06"}"#,
                Some(("mac 02:00:00:00:00:06", "02:00:00:00:00:05, beside what the host has set")),
            ),
            (
                r#"{"vlan": 7, "max_tx_rate": 5, "more_macs": ["02:00:00:00:00:05", "02:00:00:00:00:01"]}"#,
                Some(("more_macs 02:00:00:00:00:05, 02:00:00:00:00:01", "1 beside")),
            ),
        ] {
            let judged = judged(allow, host, wanted).err();
            match (&judged, refused) {
                (None, None) => {}
                (Some(beyond), Some((asked, ceiling))) => {
                    assert_eq!(beyond.asked, asked);
                    assert!(beyond.ceiling.contains(ceiling), "{}", beyond.ceiling);
                }
                _ => panic!("{wanted}: {judged:?}"),
            }
        }
    }

    #[test]
    fn a_ceiling_that_makes_no_sense_is_refused() {
        for (allow, why) in [
            (r#"{"mac": "all"}"#, "any, own, or a list"),
            (r#"{"mac": [7]}"#, "any, own, or a list"),
            (r#"{"mac": ["03:00:00:00:00:01"]}"#, "of one station"),
            (r#"{"vlan": "4095"}"#, "list of VLANs"),
            (r#"{"qos": 8}"#, "7 is the highest"),
            (r#"{"vlans": "4"}"#, "unknown field"),
        ] {
            let read = serde_json::from_str::<AllowConfig>(allow).map_err(|error| error.to_string());
            let error = read.and_then(|allow| allow.ceiling().map(drop)).unwrap_err();
            assert!(error.contains(why), "{allow}: {error}");
        }
    }
}
