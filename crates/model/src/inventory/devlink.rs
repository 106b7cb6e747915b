//! What devlink tells of a PF (`Documentation/networking/devlink/`): the mode of its embedded switch, the versions of what it consists of,
//! and how its driver finds it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

/// What devlink tells of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Devlink {
    /// Its embedded switch (`devlink dev eswitch show`). `None`: the driver has no such call, or who asked may not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eswitch: Option<Eswitch>,
    /// Why the mode of its embedded switch is not known, where it was asked for: a model names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// Whether root asked, and the driver tells no mode of the embedded switch. Whoever else asks is not told either way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_modes: bool,
    /// Its versions (`devlink dev info`).
    #[serde(default, skip_serializing_if = "DevlinkVersions::is_empty")]
    pub versions: DevlinkVersions,
    /// What watches over it (`devlink health show`), those of the device before those of its ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthReporter>,
}

/// The embedded switch as devlink shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Eswitch {
    /// Who decides where frames go.
    pub mode: EswitchMode,
    /// As many headers VFs must put into each descriptor that they send, so that it can be switched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_mode: Option<EswitchInlineMode>,
    /// Whether it can put frames into tunnels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encap_mode: Option<EswitchEncapMode>,
}

/// The mode of an embedded switch, in devlink's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EswitchMode {
    /// The switch by MAC addresses and VLANs; attributes of VFs are set at the PF.
    Legacy,
    /// The rules of the host; each VF has a representor there.
    Switchdev,
    /// The same with the rules not in force yet (Linux 6.19).
    SwitchdevInactive,
}

impl fmt::Display for EswitchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EswitchMode::Legacy => "legacy",
            EswitchMode::Switchdev => "switchdev",
            EswitchMode::SwitchdevInactive => "switchdev_inactive",
        })
    }
}

/// How many headers VFs must put into descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EswitchInlineMode {
    /// None.
    None,
    /// That of layer 2.
    Link,
    /// Up to layer 3.
    Network,
    /// Up to layer 4.
    Transport,
}

impl fmt::Display for EswitchInlineMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EswitchInlineMode::None => "none",
            EswitchInlineMode::Link => "link",
            EswitchInlineMode::Network => "network",
            EswitchInlineMode::Transport => "transport",
        })
    }
}

/// Whether an embedded switch can put frames into tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EswitchEncapMode {
    /// It cannot.
    None,
    /// It can.
    Basic,
}

impl fmt::Display for EswitchEncapMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EswitchEncapMode::None => "none",
            EswitchEncapMode::Basic => "basic",
        })
    }
}

/// Versions by the name of what has them, in the driver's words (`Documentation/networking/devlink/devlink-info.rst`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DevlinkVersions {
    /// Of what cannot change: `board.id`, `asic.rev`...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fixed: BTreeMap<String, String>,
    /// Of what runs: `fw`, `fw.mgmt`, `fw.undi`...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub running: BTreeMap<String, String>,
    /// Of what lies in its flash: what of it is not running runs after the next reset. A driver may tell a version here and not under
    /// `running`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stored: BTreeMap<String, String>,
}

impl DevlinkVersions {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fixed.is_empty() && self.running.is_empty() && self.stored.is_empty()
    }
}

/// A health reporter (`Documentation/networking/devlink/devlink-health.rst`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HealthReporter {
    /// The number of the port that it watches; `None`: the whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// What it watches, in the driver's words: `fw`, `tx`, `hw`...
    pub name: String,
    /// Whether all is well now.
    pub healthy: bool,
    /// So many errors it has seen since the driver was bound.
    pub errors: u64,
    /// From so many the driver has recovered.
    pub recoveries: u64,
}
