//! The switch's control protocol as far as it is used here.

use std::collections::BTreeMap;

use penstock_model::{
    Mac, VfAttribute, VfIndex, VfKey, VfSettings,
    inventory::{PortCounters, SwitchMode, VfCounters, VfState},
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::{
    control::{InsideReport, PortReport},
    refused,
};
use crate::NetlinkError;

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// What is asked.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Request {
    /// What is set.
    Get,
    /// To change attributes of a port.
    Set {
        /// The name of the port at the switch, as in `a/net0#1`.
        port: String,
        /// New values by the attribute's name; what is absent stays as it is.
        attributes: Map<String, Value>,
    },
    /// To take what the guest of a port asks of its device.
    Filter {
        /// The name of the port at the switch, as in `a/net0#1`.
        port: String,
        /// As QEMU tells it.
        filter: Value,
    },
    /// To keep frames between ports inside, or not.
    Loopback {
        /// Whether they stay inside.
        on: bool,
    },
}

impl Request {
    /// The line that asks for it, after one that ends whatever somebody else has begun. The answer has the same `id`.
    pub fn line(&self, id: u64) -> String {
        let mut request = serde_json::to_value(self).unwrap_or_default();
        request["version"] = VERSION.into();
        request["id"] = id.into();
        format!("\n{request}\n")
    }
}

/// What is answered.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The `id` of the request that it answers; `None` where it has none.
    pub id: Option<u64>,
    /// That it was done, with what was asked for.
    pub ok: Option<Value>,
    /// Why it was not done.
    pub error: Option<Why>,
}

impl Answer {
    /// What was asked for; `attempt` is what for.
    ///
    /// # Errors
    /// Why it was not done, with all that lies behind it.
    pub fn into_result(self, attempt: &str) -> Result<Value, NetlinkError> {
        let Some(Why { text, causes }) = self.error else { return Ok(self.ok.unwrap_or_default()) };
        let unknown =
            causes.iter().any(|cause| cause.contains("unknown field") || cause.contains("unknown variant"));
        let why = std::iter::once(text).chain(causes).collect::<Vec<_>>().join(": ");
        Err(match unknown {
            true => NetlinkError::Unsupported { attempt: attempt.to_owned(), detail: Some(why) },
            false => refused(attempt, &why),
        })
    }
}

/// Why something was not done.
#[derive(Clone, Debug, Deserialize)]
pub struct Why {
    /// In one sentence.
    pub text: String,
    /// What lies behind it.
    #[serde(default)]
    pub causes: Vec<String>,
}

/// The switch as it tells of itself.
#[derive(Clone, Debug, Deserialize)]
pub struct State {
    loopback: bool,
    ports: BTreeMap<String, PortState>,
}

#[derive(Clone, Debug, Deserialize)]
struct PortState {
    settings: Settings,
    #[serde(default)]
    connected: bool,
    #[serde(default)]
    unconnected: Option<String>,
    #[serde(default)]
    up: bool,
    #[serde(default)]
    pairs: usize,
    #[serde(default)]
    broken: Option<String>,
    #[serde(default)]
    inside: InsideReport,
    /// A switch that counts in other words tells of no counters; what it has set matters more.
    #[serde(default, deserialize_with = "told_counters")]
    counters: Option<PortCounters>,
}

fn told_counters<'de, D: Deserializer<'de>>(told: D) -> Result<Option<PortCounters>, D::Error> {
    let told = Value::deserialize(told)?;
    Ok(serde_json::from_value(told).ok())
}

/// What is set for a port.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
struct Settings {
    /// Of the attributes of a VF.
    of_vf: VfSettings,
    /// How far this line may set it, where each port has a ceiling of its own.
    allow: Option<Value>,
    /// VLANs whose tags it may use, in the switch's words; `None`: all.
    trunk: Option<String>,
    /// Addresses beside its own.
    more_macs: Vec<Mac>,
}

impl TryFrom<Map<String, Value>> for Settings {
    type Error = String;

    fn try_from(mut told: Map<String, Value>) -> Result<Settings, String> {
        let allow = told.remove("allow").filter(|allow| !allow.is_null());
        let read = |error: serde_json::Error| error.to_string();
        let trunk = told.remove("trunk").map(serde_json::from_value).transpose().map_err(read)?.flatten();
        let more_macs = told.remove("more_macs").map(serde_json::from_value).transpose().map_err(read)?;
        told.retain(|key, _| VfKey::named(key).is_some());
        let of_vf: VfSettings =
            serde_json::from_value(Value::Object(told)).map_err(|error| error.to_string())?;
        // Only a port may have no address, a switch guarantee no rate, and an older one have no word for an attribute that a state
        // may leave out.
        let unreported = VfState::default();
        let optional = |key| matches!(key, VfKey::Mac | VfKey::MinTxRate) || unreported.get(key).is_none();
        match VfKey::ALL.iter().find(|key| of_vf.get(**key).is_none() && !optional(**key)) {
            Some(key) => Err(format!("missing field `{key}`")),
            None => Ok(Settings { of_vf, allow, trunk, more_macs: more_macs.unwrap_or_default() }),
        }
    }
}

impl State {
    /// Whether frames between its ports stay inside.
    pub fn mode(&self) -> SwitchMode {
        if self.loopback { SwitchMode::Veb } else { SwitchMode::Vepa }
    }

    /// All ports by name.
    pub fn ports(&self) -> BTreeMap<String, PortReport> {
        let report = |port: &PortState| PortReport {
            settings: state(&port.settings),
            connected: port.connected,
            unconnected: port.unconnected.clone(),
            up: port.up,
            pairs: port.pairs,
            broken: port.broken.clone(),
            allow: port.settings.allow.clone(),
            trunk: port.settings.trunk.clone(),
            more_macs: port.settings.more_macs.clone(),
            inside: port.inside.clone(),
            counters: port.counters.clone(),
        };
        self.ports.iter().map(|(name, port)| (name.clone(), report(port))).collect()
    }

    /// The VFs, in index order.
    pub fn vfs(&self) -> Vec<(VfIndex, VfState)> {
        let all = self.ports.iter().filter_map(|(name, port)| Some((vf_of(name)?, state(&port.settings))));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(index, _)| *index);
        all
    }

    /// The counters of the VFs, in index order, as far as they are told.
    pub fn counters(&self) -> Vec<(VfIndex, VfCounters)> {
        let of = |(name, port): (&String, &PortState)| Some((vf_of(name)?, port.counters.as_ref()?.of_vf()));
        let mut all: Vec<_> = self.ports.iter().filter_map(of).collect();
        all.sort_by_key(|(index, _)| *index);
        all
    }

    /// The port that is this VF.
    pub fn port(&self, vf: VfIndex) -> Option<String> {
        self.ports.keys().find(|name| vf_of(name) == Some(vf)).cloned()
    }

    /// Attributes of a port as the switch has them.
    pub fn attributes<'a>(
        &self,
        port: &str,
        wanted: impl Iterator<Item = &'a VfAttribute>,
    ) -> Map<String, Value> {
        // Where a port has a ceiling of its own, that may have trust and keep all frames apart.
        let ceiling = self.ports.get(port).and_then(|port| port.settings.allow.as_ref());
        let all_frames = ceiling.is_none_or(|allow| allow["promiscuous"] == true);
        let guarantees = self.ports.values().any(|port| port.settings.of_vf.min_tx_rate.is_some());
        let mut all = Map::new();
        let mut put = |word: &str, value: Value| drop(all.insert(word.to_owned(), value));
        for attribute in wanted {
            match attribute {
                VfAttribute::Mac(mac) if mac.is_zero() => put("mac", Value::Null),
                VfAttribute::Trust(on) => {
                    put("trust", json!(on));
                    // Who may have all frames gets them, whether its guest asks its device for that or not.
                    if all_frames || !on {
                        put("promiscuous", json!(on));
                    }
                }
                VfAttribute::Rate { min, max } => {
                    if guarantees || min.0 != 0 {
                        put("min_tx_rate", json!(min.0));
                    }
                    put("max_tx_rate", json!(max.0));
                }
                other => {
                    for (key, value) in other.values() {
                        put(key.name(), json!(value));
                    }
                }
            }
        }
        all
    }
}

fn vf_of(name: &str) -> Option<VfIndex> {
    VfIndex::new(name.rsplit_once('#')?.1.parse().ok()?)
}

fn state(settings: &Settings) -> VfState {
    let mut state = VfState::default();
    for attribute in settings.of_vf.attributes() {
        state.set(&attribute);
    }
    state
}
