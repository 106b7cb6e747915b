//! What a guest asks of its network device by ordinary means: its own address, more addresses, all frames, VLANs. QEMU answers that
//! itself, whatever its back end is, and tells of it (`query-rx-filter`, `qapi/net.json`). A guest has written what is read here.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{config::mac, net::Mac};

/// Addresses of one station that are taken; QEMU has no more itself (`MAC_TABLE_ENTRIES`, `hw/net/virtio-net.c`).
const MOST_ADDRESSES: usize = 64;

/// What a guest asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Its own address.
    pub mac: Option<String>,
    /// More of them.
    pub more_macs: Vec<String>,
    /// Whether it asks for every frame: by promiscuous mode, or with more addresses than a device takes.
    pub promiscuous: bool,
    /// VLANs, in order.
    pub vlans: Vec<u16>,
}

/// An answer of `query-rx-filter`, as far as it matters here: every port gets all frames to groups of its VLANs in any case.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FilterAnswer {
    main_mac: String,
    promiscuous: bool,
    #[serde(default)]
    unicast: State,
    #[serde(default)]
    unicast_overflow: bool,
    #[serde(default)]
    vlan: State,
    #[serde(default)]
    unicast_table: Vec<String>,
    #[serde(default)]
    multicast_table: Vec<String>,
    #[serde(default)]
    vlan_table: Vec<i64>,
}

#[derive(Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    #[default]
    Normal,
    None,
    All,
}

impl Filter {
    /// Reads what QEMU tells of one device.
    ///
    /// # Errors
    /// In words, when that is not what QEMU tells.
    pub fn read(told: &Value) -> Result<Filter, String> {
        let told =
            FilterAnswer::deserialize(told).map_err(|error| format!("this is no rx-filter: {error}"))?;
        let station = |text: &String| {
            let station = mac(text).filter(|mac| !mac.is_group() && !mac.is_zero());
            station
                .ok_or_else(|| format!("this is no rx-filter: {text:?} is not a MAC address of one station"))
        };
        let own = match mac(&told.main_mac) {
            // One that has none yet.
            Some(none) if none.is_zero() => None,
            _ => Some(station(&told.main_mac)?.to_string()),
        };
        let mut more: Vec<Mac> =
            told.unicast_table.iter().take(MOST_ADDRESSES).map(station).collect::<Result<_, _>>()?;
        more.sort_unstable();
        more.dedup();
        // A device whose driver has asked for nothing yet gets everything (Virtio 1.3, 5.1.6.5.1): that is nobody's wish.
        // Linux asks for VLAN 0 before it asks for anything else.
        let asks_for_vlans = told.vlan == State::Normal && told.vlan_table.iter().any(|vlan| *vlan != 0);
        let asked = !told.unicast_table.is_empty() || !told.multicast_table.is_empty() || asks_for_vlans;
        let promiscuous = told.promiscuous && asked
            || told.unicast == State::All
            || told.unicast_overflow
            || told.unicast_table.len() > MOST_ADDRESSES;
        let mut vlans: Vec<u16> = match told.vlan {
            State::Normal => {
                let all = told.vlan_table.iter().filter_map(|vlan| u16::try_from(*vlan).ok());
                // Without a tag is what the trunk says; 4095 is no VLAN.
                all.filter(|vlan| (1..=4094).contains(vlan)).collect()
            }
            // `All`: its driver knows no VLAN filter, and so asks for none.
            State::None | State::All => Vec::new(),
        };
        vlans.sort_unstable();
        vlans.dedup();
        let more_macs = more.iter().map(Mac::to_string).collect();
        Ok(Filter { mac: own, more_macs, promiscuous, vlans })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What QEMU 11.1 tells of a device as its guest has it, and changes to that.
    fn told(change: Value) -> Value {
        let mut told = json!({"name": "NET0.1", "promiscuous": false, "multicast": "normal", "unicast": "normal", "vlan": "normal",
            "broadcast-allowed": false, "multicast-overflow": false, "unicast-overflow": false, "main-mac": "02:00:00:00:00:01",
            "vlan-table": [], "unicast-table": [], "multicast-table": ["01:00:5e:00:00:01", "33:33:00:00:00:01"]});
        for (key, value) in change.as_object().unwrap() {
            told[key] = value.clone();
        }
        told
    }

    #[test]
    fn what_a_guest_asks_for_is_read() {
        let read = |change| Filter::read(&told(change)).unwrap();
        let plain = Filter { mac: Some("02:00:00:00:00:01".to_owned()), ..Filter::default() };
        assert_eq!(read(json!({})), plain);
        let all = read(json!({"promiscuous": true, "vlan-table": [100, 0, 4095, -1, 7, 100],
            "unicast-table": ["02:00:00:00:00:0B", "02:00:00:00:00:0a"]}));
        assert_eq!((all.promiscuous, &*all.vlans), (true, &[7, 100][..]));
        assert_eq!(all.more_macs, ["02:00:00:00:00:0a", "02:00:00:00:00:0b"]);
        // A driver that was not there yet, and one without VLAN filters.
        assert_eq!(read(json!({"promiscuous": true, "multicast-table": []})), plain);
        assert_eq!(read(json!({"vlan": "all", "vlan-table": [5]})), plain);
        let firmware =
            json!({"promiscuous": true, "vlan": "all", "vlan-table": [5, 4], "multicast-table": []});
        assert_eq!(read(firmware), plain);
        let flood: Vec<String> =
            (0..3000).map(|at| format!("02:00:00:00:{:02x}:{:02x}", at >> 8, at & 0xff)).collect();
        let flooded = read(json!({"unicast-table": flood}));
        assert_eq!((flooded.more_macs.len(), flooded.promiscuous), (64, true));
        assert!(read(json!({"unicast-overflow": true})).promiscuous);
        assert!(read(json!({"unicast": "all"})).promiscuous);
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        for (change, why) in [
            (json!({"main-mac": "03:00:00:00:00:01"}), "of one station"),
            (json!({"main-mac": 7}), "invalid type"),
            (json!({"unicast-table": ["02:00:00:00:00"]}), "of one station"),
            (json!({"vlan": "some"}), "unknown variant"),
            (json!({"promiscuous": null}), "invalid type"),
        ] {
            let error = Filter::read(&told(change.clone())).unwrap_err();
            assert!(error.contains(why), "{change}: {error}");
        }
        assert!(Filter::read(&json!([])).is_err());
    }
}
