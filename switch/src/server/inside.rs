//! What was set from inside, apart from what the host has set: each port is as the host has it, with the former on top. And what
//! guests ask of their devices, with what of that is granted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{Attributes, ServerError};
use crate::{
    allow::{AllowConfig, Beyond, Ceiling, Refusal, share_a_vlan},
    config::{Config, PortBackend, PortConfig, mac},
    net::Mac,
    rx_filter::Filter,
    settings::{Settings, Vlans},
};

/// What is told of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideState {
    /// What was set from inside and is not as the host has it.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub set: Attributes,
    /// What the host has in their place.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub host: Attributes,
    /// What its guest asks of its device and is granted.
    #[serde(default, skip_serializing_if = "Granted::is_empty")]
    pub granted: Granted,
    /// What its guest asks of its device and is not granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ungranted: Vec<String>,
    /// Wishes that were refused, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<Refusal, u64>,
}

impl InsideState {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        *self == InsideState::default()
    }
}

/// What of a guest's filter is granted, beside what its port has in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Granted {
    /// MAC addresses that were granted, of those that its guest asks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<String>,
    /// All frames of its VLANs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub promiscuous: bool,
    /// VLANs whose tags it may use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<u16>,
}

impl Granted {
    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Granted::default()
    }
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.macs.iter().map(|mac| format!("address {mac}"));
        let vlans = self.vlans.iter().map(|vlan| format!("VLAN {vlan}"));
        let all = self.promiscuous.then(|| "all frames of its VLANs".to_owned());
        f.write_str(&addresses.chain(vlans).chain(all).collect::<Vec<_>>().join(", "))
    }
}

/// What a guest asks of its device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Learned {
    pub filter: Filter,
    pub granted: Granted,
}

/// Everything that came from inside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Inside {
    /// Whether frames between ports stay inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loopback: Option<bool>,
    /// Attributes by port.
    pub ports: BTreeMap<String, Attributes>,
    /// What guests ask of their devices, by port.
    pub filters: BTreeMap<String, Learned>,
    /// Where these ports led when that was asked for: another guest has none of it, also where a switch begins with what one before it has
    /// left.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub leads: BTreeMap<String, String>,
}

/// What is not granted of what a guest asks of its device.
pub(super) type Unmet = BTreeMap<String, Vec<(Refusal, String)>>;

/// A port with some attributes changed, in the spelling of the configuration.
pub(super) fn with(
    name: &str,
    port: &PortConfig,
    attributes: &Attributes,
) -> Result<PortConfig, ServerError> {
    let mut changed = port.clone();
    for (key, value) in attributes {
        let failed = |source| ServerError::Attribute {
            port: name.to_owned(),
            key: key.clone(),
            value: value.clone(),
            source,
        };
        let mut whole = serde_json::to_value(&changed).map_err(failed)?;
        if let Some(whole) = whole.as_object_mut() {
            whole.insert(key.clone(), value.clone());
        }
        changed = serde_json::from_value(whole).map_err(failed)?;
    }
    Ok(changed)
}

/// The attributes of a port that are not as another has them, or an empty set.
fn differences<'a>(attributes: &'a Attributes, one: &PortConfig, other: &PortConfig) -> Vec<&'a String> {
    let both = [one, other].map(|port| serde_json::to_value(port).unwrap_or_default());
    attributes.keys().filter(|key| both[0].get(key) != both[1].get(key)).collect()
}

/// How far the wishes of a port's guest may go: where the host says nothing, to what it has set.
fn ceiling(host: &Config, name: &str) -> Option<Ceiling> {
    host.ceiling(name).or_else(|| AllowConfig::default().ceiling().ok())
}

/// Where a port leads.
fn leads(config: &Config, name: &str) -> Option<PortBackend> {
    config.ports.get(name)?.backend(name).ok()
}

/// The ports whose guests are others now, or gone: one that leads elsewhere is a new one.
pub(super) fn replaced<'a>(before: &'a Config, host: &Config) -> Vec<&'a String> {
    before.ports.keys().filter(|name| leads(before, name) != leads(host, name)).collect()
}

impl Inside {
    /// Reads what another switch has left; `None`: nothing.
    ///
    /// # Errors
    ///
    /// When the file is there and cannot be read, or holds something else.
    pub fn read(path: &Path) -> io::Result<Option<Inside>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Inside::default()
    }

    /// The host's configuration with what was set from inside on top.
    ///
    /// # Errors
    ///
    /// When what was set does not go together with what the host says of the port now.
    pub fn over(&self, host: &Config) -> Result<Config, ServerError> {
        let mut config = host.clone();
        config.loopback = self.loopback.unwrap_or(host.loopback);
        for (name, attributes) in &self.ports {
            if let Some(port) = config.ports.get_mut(name) {
                *port = with(name, port, attributes)?;
            }
        }
        Ok(config)
    }

    /// That, with what is granted of the guests' filters on top.
    pub fn granted_over(&self, mut config: Config) -> Config {
        for (name, learned) in &self.filters {
            let Some(port) = config.ports.get_mut(name) else { continue };
            let Granted { macs, promiscuous, vlans } = &learned.granted;
            port.more_macs.extend(macs.iter().cloned());
            port.promiscuous |= promiscuous;
            let trunk = port.trunk.as_deref().and_then(crate::config::vlans);
            if let Some(mut trunk) = trunk.filter(|_| !vlans.is_empty()) {
                vlans.iter().for_each(|vlan| trunk.insert(*vlan));
                port.trunk = Some(trunk.to_string());
            }
        }
        config
    }

    /// Keeps in mind whose wishes these are.
    pub fn note_guests(&mut self, host: &Config) {
        let names: BTreeSet<&String> = self.ports.keys().chain(self.filters.keys()).collect();
        self.leads = names
            .into_iter()
            .filter_map(|name| Some((name.clone(), leads(host, name)?.to_string())))
            .collect();
    }

    /// Drops what does not go with the host's configuration any more, which was `before`; says of which ports, and why.
    pub fn rebase(&mut self, before: &Config, host: &Config) -> Vec<(String, String)> {
        self.filters.retain(|name, _| host.ports.contains_key(name));
        self.ports.retain(|name, _| host.ports.contains_key(name));
        let mut dropped = Vec::new();
        for (name, led) in std::mem::take(&mut self.leads) {
            if leads(host, &name).is_none_or(|leads| leads.to_string() != led) {
                let had = [self.ports.remove(&name).is_some(), self.filters.remove(&name).is_some()];
                if had.contains(&true) {
                    dropped.push((name, "the port has another guest".to_owned()));
                }
            }
        }
        let asked = host.allow.as_ref().is_some_and(|allow| allow.loopback);
        if !before.ports.is_empty() && before.loopback != host.loopback || !asked {
            self.loopback = None;
        }
        for (name, attributes) in &mut self.ports {
            // What the host sets now is not covered by what was set before.
            if let (Some(was), Some(is)) = (before.ports.get(name), host.ports.get(name)) {
                let set: Vec<String> = differences(attributes, was, is).into_iter().cloned().collect();
                set.iter().for_each(|key| drop(attributes.remove(key)));
            }
        }
        self.ports.retain(|_, attributes| !attributes.is_empty());
        let mut kept = Inside { loopback: self.loopback, filters: self.filters.clone(), ..Inside::default() };
        for (name, attributes) in std::mem::take(&mut self.ports) {
            kept.ports.insert(name.clone(), attributes);
            if let Err(why) = kept.judge(host, &name) {
                kept.ports.remove(&name);
                dropped.push((name, format!("it does not go with what the host has set since: {}", why.1)));
            }
        }
        *self = kept;
        dropped
    }

    /// Whether a port may be as it was set from inside; if not, the reason and the error.
    ///
    /// # Errors
    ///
    /// Why not, as a reason for programs and as an error for people: it contradicts itself, the host allows nothing or not this, or
    /// another port has the MAC address.
    pub fn judge(&self, host: &Config, name: &str) -> Result<(), (Refusal, ServerError)> {
        let invalid = |error: ServerError| (Refusal::Invalid, error);
        let config = self.over(host).map_err(invalid)?;
        let (Some(was), Some(port)) = (host.ports.get(name), config.ports.get(name)) else { return Ok(()) };
        let ceiling = host
            .ceiling(name)
            .ok_or_else(|| (Refusal::NoAllow, ServerError::NoAllow { port: name.to_owned() }))?;
        let settings = |port: &PortConfig| port.settings(name).map_err(|error| invalid(error.into()));
        let (had, has) = (settings(was)?, settings(port)?);
        ceiling.judge((was, &had), (port, &has)).map_err(|Beyond { of, asked, ceiling }| {
            (of, ServerError::Beyond { port: name.to_owned(), asked, ceiling })
        })?;
        let taken = |mac: Mac| (Refusal::Taken, ServerError::Taken { port: name.to_owned(), mac });
        // What a guest has asked of its device gives way to what its administrator sets.
        for (other, held) in config.ports.iter().filter(|(other, _)| *other != name) {
            let Ok(held) = held.settings(other) else { continue };
            let Some(mac) = has.macs.iter().find(|mac| held.macs.contains(mac)) else { continue };
            // Two to whom the host has given one address are its own affair.
            if share_a_vlan(&has, &held) && !(had.macs.contains(mac) && share_a_vlan(&had, &held)) {
                return Err(taken(*mac));
            }
        }
        config.settings().map(drop).map_err(|error| invalid(error.into()))
    }

    /// Grants what may be granted of what guests ask of their devices; says what may not. `config` is the host's with what was set
    /// from inside on top. What was granted before goes first: nobody takes an address from whom has it.
    pub fn grant(&mut self, host: &Config, config: &Config) -> Unmet {
        let mut unmet = Unmet::new();
        if self.filters.is_empty() {
            return unmet;
        }
        let mut settings: BTreeMap<&str, Settings> = BTreeMap::new();
        let mut holders: BTreeMap<Mac, BTreeSet<String>> = BTreeMap::new();
        for (name, port) in &config.ports {
            let Ok(found) = port.settings(name) else { continue };
            for mac in &found.macs {
                holders.entry(*mac).or_default().insert(name.clone());
            }
            settings.insert(name, found);
        }
        let mut before = BTreeMap::new();
        for (name, learned) in &mut self.filters {
            let granted = std::mem::take(&mut learned.granted);
            before.insert(name.clone(), granted.macs);
            let (Some(port), Some(ceiling)) = (config.ports.get(name), ceiling(host, name)) else { continue };
            let mut missing = Vec::new();
            if learned.filter.promiscuous && !(port.promiscuous && port.trust) {
                let why = match (ceiling.is_promiscuous(), port.trust) {
                    (true, true) => None,
                    (false, _) => Some("the host does not allow it"),
                    (true, false) => Some("the port has no trust"),
                };
                learned.granted.promiscuous = why.is_none();
                missing.extend(why.map(|why| (Refusal::Promiscuous, format!("promiscuous mode: {why}"))));
            }
            let mut beyond = Vlans::none();
            let mut taken = Vlans::none();
            let Some(own) = settings.get(name.as_str()) else { continue };
            for vlan in learned.filter.vlans.iter().copied().filter(|vlan| !own.is_member(*vlan)) {
                let held = |mac: &Mac| {
                    let all = holders.get(mac).into_iter().flatten().filter(|other| *other != name);
                    all.filter_map(|other| settings.get(other.as_str())).any(|other| other.is_member(vlan))
                };
                if own.vlan.is_some() || !ceiling.has_vlan(vlan) {
                    beyond.insert(vlan);
                } else if own.macs.iter().any(held) {
                    taken.insert(vlan);
                } else {
                    learned.granted.vlans.push(vlan);
                }
            }
            if !beyond.is_empty() {
                let why = match own.vlan {
                    Some(_) => "the port has a VLAN of its own".to_owned(),
                    None => format!("the host allows {}", ceiling.vlans()),
                };
                missing.push((Refusal::Vlan, format!("VLAN {beyond}: {why}")));
            }
            if !taken.is_empty() {
                missing.push((Refusal::Taken, format!("VLAN {taken}: another port has its address there")));
            }
            let vlans = learned.granted.vlans.clone();
            if let Some(own) = settings.get_mut(name.as_str()) {
                vlans.into_iter().for_each(|vlan| own.trunk.insert(vlan));
            }
            unmet.insert(name.clone(), missing);
        }
        for again in [true, false] {
            for (name, learned) in &mut self.filters {
                let (Some(port), Some(ceiling)) = (config.ports.get(name), ceiling(host, name)) else {
                    continue;
                };
                let Some(own) = settings.get(name.as_str()) else { continue };
                let set = host.ports.get(name).map(|port| port.more_macs.as_slice()).unwrap_or_default();
                let added = port.more_macs.iter().filter(|text| !set.contains(text)).count();
                let main = learned.filter.mac.as_deref();
                let asked = learned.filter.mac.iter().chain(&learned.filter.more_macs);
                for text in asked {
                    let was = before.get(name).is_some_and(|all: &Vec<String>| all.contains(text));
                    let Some(address) = mac(text).filter(|mac| was == again && !own.macs.contains(mac))
                    else {
                        continue;
                    };
                    if learned.granted.macs.contains(text) {
                        continue;
                    }
                    let room = ceiling.more_addresses().saturating_sub(added);
                    let beside =
                        learned.granted.macs.iter().filter(|granted| Some(granted.as_str()) != main).count();
                    // Where ports differ in their trunks alone no configuration may give both one address, and neither may this.
                    let alike =
                        |other: &String| config.ports.get(other).is_some_and(|other| other.vlan == port.vlan);
                    let held = |other: &String| {
                        let share =
                            settings.get(other.as_str()).is_some_and(|other| share_a_vlan(own, other));
                        other != name && (share || alike(other))
                    };
                    let holds = holders.entry(address).or_default();
                    let why = if own.spoofchk && !own.trust {
                        // As with other NICs: the check is of what the administrator has set, not of what the function says.
                        Some((Refusal::Mac, "the port has spoofchk on, and no trust".to_owned()))
                    } else if !ceiling.has_address(address) {
                        Some((Refusal::Mac, format!("the host allows {}", ceiling.addresses())))
                    } else if holds.iter().any(held) {
                        Some((Refusal::Taken, "another port has it".to_owned()))
                    } else if Some(text.as_str()) != main && beside >= room {
                        let most = ceiling.more_addresses();
                        Some((Refusal::MoreMacs, format!("the host allows {most} beside the first")))
                    } else {
                        None
                    };
                    match why {
                        None => {
                            holds.insert(name.clone());
                            learned.granted.macs.push(text.clone());
                        }
                        Some((of, why)) => unmet
                            .entry(name.clone())
                            .or_default()
                            .push((of, format!("address {text}: {why}"))),
                    }
                }
            }
        }
        unmet.retain(|_, missing| !missing.is_empty());
        unmet
    }

    /// Grants nothing of what guests ask, for this reason.
    pub fn grant_nothing(&mut self, why: &str) -> Unmet {
        let nothing = |(name, learned): (&String, &mut Learned)| {
            learned.granted = Granted::default();
            (name.clone(), vec![(Refusal::Invalid, format!("it does not go with the other ports: {why}"))])
        };
        self.filters.iter_mut().map(nothing).collect()
    }
}
