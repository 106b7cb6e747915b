//! What a claim asks of a VF: the opaque parameters of a claim or of a DeviceClass. Pure.
//!
//! The keys of VF attributes are those of a model, with the same spellings. An unknown key is an error that names the key that was meant.

use std::{fmt, net::IpAddr};

use penstock_model::{
    Bdf, InterfaceAddress, InterfaceName, Mtu, SettingsConflict, VfKey, VfSettings, VfValue,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// What a VF is to a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VfMode {
    /// A network interface in the pod's network namespace.
    #[default]
    Netdev,
    /// A device that a program in the container drives itself: `/dev/vfio/GROUP`.
    Vfio,
}

impl fmt::Display for VfMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VfMode::Netdev => "netdev",
            VfMode::Vfio => "vfio",
        })
    }
}

/// A route over the VF's interface, with netplan's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteParameters {
    /// Where it leads: a network.
    pub to: InterfaceAddress,
    /// The next hop; none for a network on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// Which of two routes to the same network is taken: the one with the lowest; `None` is the kernel's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// What a claim asks of a VF. What is left out is left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VfParameters {
    /// What the VF is to the container; an interface by default.
    pub mode: Option<VfMode>,
    /// The interface's name in the pod. Default: `net1`, `net2`... in the order of the claim's devices.
    pub interface: Option<InterfaceName>,
    /// What is set at the PF.
    pub settings: VfSettings,
    /// The MTU of the interface in the pod, in bytes.
    pub mtu: Option<Mtu>,
    /// IP addresses of the interface.
    pub addresses: Option<Vec<InterfaceAddress>>,
    /// Routes over the interface.
    pub routes: Option<Vec<RouteParameters>>,
    /// The keys of VF attributes that claims may set; a DeviceClass's to say ([`VfParameters::within`]).
    pub allow: Option<Vec<VfKey>>,
}

/// What is wrong with a claim's parameters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParametersError {
    /// They are no mapping.
    #[error("the parameters are no mapping like {{vlan: 100}}")]
    NoMapping,
    /// There is no such key.
    #[error("the parameters have the unknown key {key:?}{}", meant.as_ref().map(|key| format!("; {key:?} is one")).unwrap_or_default())]
    UnknownKey {
        /// The key as it was written.
        key: String,
        /// The nearest key that there is.
        meant: Option<String>,
    },
    /// A value is none that the key can have.
    #[error("{key} is wrong: {why}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong with its value.
        why: String,
    },
    /// A claim asks for what its class has not left to it.
    #[error("{key} may not be {value}: it is for the DeviceClass to set, or to name in `allow`")]
    Beyond {
        /// The key.
        key: VfKey,
        /// What the claim asks for.
        value: VfValue,
    },
    /// A claim asks for another mode than its class.
    #[error("mode may not be {mode}: the DeviceClass names another")]
    BeyondMode {
        /// What the claim asks for.
        mode: VfMode,
    },
    /// A claim says what claims may do.
    #[error("allow is for a DeviceClass to say, and this is a claim")]
    AllowOfClaim,
    /// One thing was said twice.
    #[error("{first} and {second} are two spellings of one key")]
    Twice {
        /// The first spelling.
        first: String,
        /// The second spelling.
        second: String,
    },
    /// Attributes cannot be had together.
    #[error(transparent)]
    Conflict(#[from] SettingsConflict),
    /// Something only an interface can have was asked of a VF that is none.
    #[error("{key} is a matter of interfaces, and with mode vfio there is none")]
    NoInterface {
        /// The key.
        key: &'static str,
    },
}

/// Keys that are no VF attribute.
const OWN: [&str; 9] =
    ["apiVersion", "kind", "mode", "interface", "mtu", "address", "addresses", "routes", "allow"];
/// What `kind` may say, by the convention that opaque parameters are versioned.
const KIND: &str = "VfParameters";
/// What `apiVersion` may say.
const API_VERSION: &str = "penstock.dev/v1alpha1";

impl VfParameters {
    /// Reads the parameters of one configuration of a claim.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with them.
    pub fn read(document: &Value) -> Result<VfParameters, ParametersError> {
        let Value::Object(keys) = document else { return Err(ParametersError::NoMapping) };
        let mut read = VfParameters::default();
        let mut attributes = Map::new();
        for (key, value) in keys {
            match key.as_str() {
                "apiVersion" => only(key, value, API_VERSION)?,
                "kind" => only(key, value, KIND)?,
                "mode" => read.mode = parse(key, value)?,
                "interface" => read.interface = parse(key, value)?,
                "mtu" => read.mtu = parse(key, value)?,
                "address" | "addresses" => read.add_addresses(key, value)?,
                "routes" => read.routes = parse(key, value)?,
                "allow" => read.allow = allow(value)?,
                _ => {
                    if let Some(value) = attribute(key, value)? {
                        attributes.insert(key.clone(), value);
                    }
                }
            }
        }
        if keys.contains_key("address") && keys.contains_key("addresses") {
            return Err(ParametersError::Twice { first: "address".into(), second: "addresses".into() });
        }
        read.settings = settings(&attributes)?;
        Ok(read)
    }

    fn add_addresses(&mut self, key: &str, value: &Value) -> Result<(), ParametersError> {
        self.addresses = match value {
            Value::String(_) => Some(vec![parse_whole(key, value)?]),
            other => parse(key, other)?,
        };
        Ok(())
    }

    /// These parameters, with what they leave out taken from `fallback`.
    #[must_use]
    pub fn or(self, fallback: VfParameters) -> VfParameters {
        VfParameters {
            mode: self.mode.or(fallback.mode),
            interface: self.interface.or(fallback.interface),
            settings: self.settings.over(&fallback.settings),
            mtu: self.mtu.or(fallback.mtu),
            addresses: self.addresses.or(fallback.addresses),
            routes: self.routes.or(fallback.routes),
            allow: self.allow.or(fallback.allow),
        }
    }

    /// Whether what they say goes together, when no more is added.
    ///
    /// # Errors
    ///
    /// What only an interface can have, in [`VfMode::Vfio`]; attributes that cannot be had together.
    pub fn checked(self) -> Result<VfParameters, ParametersError> {
        if let Some(conflict) = self.settings.conflict() {
            return Err(conflict.into());
        }
        if self.mode == Some(VfMode::Vfio) {
            let keys = [
                ("interface", self.interface.is_some()),
                ("mtu", self.mtu.is_some()),
                ("addresses", self.addresses.as_ref().is_some_and(|all| !all.is_empty())),
                ("routes", self.routes.as_ref().is_some_and(|all| !all.is_empty())),
            ];
            if let Some((key, _)) = keys.into_iter().find(|(_, said)| *said) {
                return Err(ParametersError::NoInterface { key });
            }
        }
        Ok(self)
    }

    /// The configuration with which `penstock cni` gives this VF to the claim (docs/cni.md). The network is the claim's own, so that GC
    /// of that network takes back what this claim has, and nothing else.
    pub fn configuration(&self, network: &str, function: Bdf) -> Value {
        let mut all = json!({
            "cniVersion": "1.1.0",
            "name": network,
            "type": "penstock-cni",
            "deviceID": function.to_string(),
            "logLevel": "warning",
        });
        if self.mode == Some(VfMode::Vfio) {
            all["driver"] = json!("vfio-pci");
        }
        let settings = serde_json::to_value(&self.settings).unwrap_or_default();
        for (key, value) in settings.as_object().into_iter().flatten() {
            let key = match key.as_str() {
                "qos" => "vlanQoS",
                "vlan_proto" => "vlanProto",
                key => key,
            };
            match value {
                Value::Null => {}
                Value::Bool(on) => all[key] = json!(if *on { "on" } else { "off" }),
                other => all[key] = other.clone(),
            }
        }
        if let Some(mtu) = self.mtu {
            all["mtu"] = json!(mtu.get());
        }
        if let Some(addresses) = self.addresses.as_ref().filter(|all| !all.is_empty()) {
            all["addresses"] = json!(addresses.iter().map(ToString::to_string).collect::<Vec<_>>());
        }
        if let Some(routes) = self.routes.as_ref().filter(|all| !all.is_empty()) {
            let route = |route: &RouteParameters| {
                let mut all = match route.via {
                    Some(via) => json!({"dst": route.to.to_string(), "gw": via.to_string()}),
                    None => json!({"dst": route.to.to_string(), "scope": 253}),
                };
                if let Some(metric) = route.metric {
                    all["priority"] = json!(metric);
                }
                all
            };
            all["routes"] = routes.iter().map(route).collect();
        }
        all
    }
}

/// A key that has one value.
fn only(key: &str, value: &Value, wanted: &str) -> Result<(), ParametersError> {
    if value == wanted {
        return Ok(());
    }
    Err(ParametersError::Value { key: key.to_owned(), why: format!("it is {value}, and can be {wanted:?}") })
}

fn parse_whole<T: DeserializeOwned>(key: &str, value: &Value) -> Result<T, ParametersError> {
    serde_json::from_value(value.clone())
        .map_err(|error| ParametersError::Value { key: key.to_owned(), why: error.to_string() })
}

/// A key's value; what is null is not said.
fn parse<T: DeserializeOwned>(key: &str, value: &Value) -> Result<Option<T>, ParametersError> {
    if value.is_null() { Ok(None) } else { parse_whole(key, value).map(Some) }
}

/// The keys that claims may set.
fn allow(value: &Value) -> Result<Option<Vec<VfKey>>, ParametersError> {
    let Some(names) = parse::<Vec<String>>("allow", value)? else { return Ok(None) };
    let key = |name: &String| {
        VfKey::named(name)
            .ok_or_else(|| ParametersError::UnknownKey { key: name.clone(), meant: nearest_attribute(name) })
    };
    names.iter().map(key).collect::<Result<_, _>>().map(Some)
}

/// The value of a VF attribute's key as JSON has it: `on` and `off`, which quotation marks make text, are booleans where one is wanted.
fn attribute(key: &str, value: &Value) -> Result<Option<Value>, ParametersError> {
    let alone = |value: &Value| serde_json::from_value::<VfSettings>(json!({key: value}));
    let Err(error) = alone(value) else { return Ok((!value.is_null()).then(|| value.clone())) };
    let boolean = match value.as_str() {
        Some("on") => Some(Value::Bool(true)),
        Some("off") => Some(Value::Bool(false)),
        _ => None,
    };
    if let Some(boolean) = boolean.filter(|boolean| alone(boolean).is_ok()) {
        return Ok(Some(boolean));
    }
    if error.to_string().starts_with("unknown field") {
        return Err(ParametersError::UnknownKey { key: key.to_owned(), meant: nearest(key) });
    }
    Err(ParametersError::Value { key: key.to_owned(), why: error.to_string() })
}

/// The attributes together: a key may have been said under two spellings.
fn settings(attributes: &Map<String, Value>) -> Result<VfSettings, ParametersError> {
    let mut all = VfSettings::default();
    let mut said: Vec<(Value, &str)> = Vec::new();
    for (key, value) in attributes {
        let one: VfSettings = parse_whole(key, &json!({key: value}))?;
        // Which key it is, whatever it was called: the one that is set now.
        let set = serde_json::to_value(&one).unwrap_or_default();
        let names = set.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let name: Value = names.map(|(name, _)| name.clone()).collect::<Vec<_>>().into();
        if let Some((_, first)) = said.iter().find(|(of, _)| *of == name) {
            return Err(ParametersError::Twice { first: (*first).to_owned(), second: key.clone() });
        }
        said.push((name, key));
        all = all.or(&one);
    }
    Ok(all)
}

/// The key that was meant.
fn nearest(key: &str) -> Option<String> {
    nearest_among(key, OWN.into_iter().chain(VfKey::ALL.iter().map(|key| key.name())))
}

/// The key of a VF attribute that was meant.
fn nearest_attribute(key: &str) -> Option<String> {
    nearest_among(key, VfKey::ALL.iter().map(|key| key.name()))
}

fn nearest_among(key: &str, known: impl Iterator<Item = &'static str>) -> Option<String> {
    let near = known.map(|known| (strsim::damerau_levenshtein(key, known), known));
    near.min().filter(|(distance, _)| *distance <= key.len().div_ceil(3)).map(|(_, known)| known.to_owned())
}

#[cfg(test)]
mod tests {
    use penstock_model::{LinkState, VlanId};
    use proptest::prelude::*;

    use super::*;
    use crate::any_json::any_json;

    fn read(document: Value) -> Result<VfParameters, ParametersError> {
        VfParameters::read(&document).and_then(VfParameters::checked)
    }

    #[test]
    fn all_keys_are_read_as_a_model_has_them() {
        let read = read(json!({
            "apiVersion": "penstock.dev/v1alpha1", "kind": "VfParameters", "interface": "data", "mac": "02:00:00:00:00:01",
            "vlan": 100, "qos": 3, "vlan_proto": "802.1ad", "spoof-check": "on", "trust": false, "min_tx_rate": 10,
            "max_tx_rate": 100, "link_state": "enable", "mtu": 1400, "address": "10.1.0.5/24",
            "routes": [{"to": "10.2.0.0/16", "via": "10.1.0.1", "metric": 200}, {"to": "10.3.0.0/16"}],
        }))
        .unwrap();
        assert_eq!(read.settings.vlan, VlanId::new(100));
        assert_eq!((read.settings.spoofchk, read.settings.trust), (Some(true), Some(false)));
        assert_eq!(read.settings.link_state, Some(LinkState::Enable));
        let wanted = json!({
            "cniVersion": "1.1.0", "name": "uid", "type": "penstock-cni", "deviceID": "0000:01:10.0", "logLevel": "warning",
            "mac": "02:00:00:00:00:01", "vlan": 100, "vlanQoS": 3, "vlanProto": "802.1ad", "spoofchk": "on", "trust": "off",
            "min_tx_rate": 10, "max_tx_rate": 100, "link_state": "enable", "mtu": 1400, "addresses": ["10.1.0.5/24"],
            "routes": [{"dst": "10.2.0.0/16", "gw": "10.1.0.1", "priority": 200}, {"dst": "10.3.0.0/16", "scope": 253}],
        });
        assert_eq!(read.configuration("uid", "0000:01:10.0".parse().unwrap()), wanted);
    }

    #[test]
    fn nothing_is_asked_for_by_nothing() {
        let read = read(json!({"vlan": null, "mtu": null})).unwrap();
        assert_eq!(read, VfParameters::default());
        let configuration = read.configuration("uid", "0000:01:10.0".parse().unwrap());
        assert_eq!(configuration.as_object().unwrap().len(), 5);
    }

    #[test]
    fn what_is_wrong_is_said_with_the_key_that_was_meant() {
        for (document, words) in [
            (json!([]), "no mapping"),
            (json!({"vlam": 100}), "the unknown key \"vlam\"; \"vlan\" is one"),
            (json!({"max_rate": 1}), "\"max_tx_rate\" is one"),
            (json!({"adresses": []}), "\"addresses\" is one"),
            (json!({"zzz": 1}), "the parameters have the unknown key \"zzz\""),
            (json!({"vlan": 4095}), "vlan is wrong"),
            (json!({"vlan": "on"}), "vlan is wrong"),
            (json!({"spoofchk": "perhaps"}), "spoofchk is wrong"),
            (json!({"mac": "1"}), "mac is wrong"),
            (json!({"interface": "a/b"}), "interface is wrong"),
            (json!({"mode": "dpdk"}), "mode is wrong"),
            (json!({"mtu": 3}), "mtu is wrong"),
            (json!({"address": "10.1.0.5"}), "address is wrong"),
            (json!({"routes": [{"dst": "10.1.0.0/16"}]}), "routes is wrong"),
            (json!({"kind": "Other"}), "can be \"VfParameters\""),
            (json!({"spoofchk": true, "spoof-check": true}), "two spellings of one key"),
            (json!({"address": "10.1.0.5/24", "addresses": []}), "two spellings of one key"),
            (json!({"mode": "vfio", "mtu": 1400}), "mtu is a matter of interfaces"),
            (json!({"vlan_proto": "802.1ad"}), "vlan_proto 802.1ad needs a vlan"),
            (json!({"qos": 3, "vlan": 0}), "qos 3 needs a vlan"),
            (json!({"min_tx_rate": 200, "max_tx_rate": 100}), "is more than max_tx_rate"),
            (json!({"mac": "01:00:00:00:00:01"}), "no interface can have the MAC address"),
            (json!({"allow": ["vlam"]}), "the unknown key \"vlam\"; \"vlan\" is one"),
            (json!({"allow": ["mtu"]}), "the unknown key \"mtu\""),
        ] {
            let error = read(document.clone()).unwrap_err().to_string();
            assert!(error.contains(words), "{document}: {error}");
        }
    }

    #[test]
    fn a_claim_comes_before_its_class() {
        let class = read(json!({"vlan": 7, "spoofchk": "off", "mtu": 1400})).unwrap();
        let claim = read(json!({"vlan": 100, "interface": "data"})).unwrap();
        let both = claim.or(class);
        assert_eq!(both.settings.vlan, VlanId::new(100));
        assert_eq!((both.settings.spoofchk, both.mtu.map(Mtu::get)), (Some(false), Some(1400)));
    }

    /// Any value that a key may be given: often one that it can have.
    fn any_value() -> impl Strategy<Value = Value> {
        let texts = [
            "on",
            "off",
            "auto",
            "enable",
            "disable",
            "802.1ad",
            "802.1Q",
            "vfio",
            "netdev",
            "02:00:00:00:00:01",
            "10.1.0.5/24",
            "fd00::5/64",
            "0.0.0.0/0",
            "10.1.0.1",
            "data",
            "net0",
            "penstock.dev/v1alpha1",
            "VfParameters",
            "",
        ];
        any_json(
            prop_oneof![0_i64..5000, any::<i64>()],
            prop_oneof![prop::sample::select(texts.to_vec()).prop_map(str::to_owned), "\\PC{0,20}"],
            prop_oneof!["to|via|dst", "[a-z]{0,4}"],
        )
    }

    fn any_document() -> impl Strategy<Value = Value> {
        let known = OWN.iter().copied().chain(VfKey::ALL.iter().map(|key| key.name()));
        let known: Vec<String> = known.map(str::to_owned).collect();
        let key = prop_oneof![8 => prop::sample::select(known), 1 => "[a-z_]{0,12}", 1 => "\\PC{0,8}"];
        let keys = prop::collection::btree_map(key, any_value(), 0..4);
        prop_oneof![
            9 => keys.prop_map(|all| Value::Object(all.into_iter().collect())),
            1 => any_value(),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// Whatever a user writes is refused with a word, or is what `penstock cni` takes: nothing is found wrong when the pod starts.
        #[test]
        fn what_is_taken_here_the_plugin_takes(document in any_document()) {
            match read(document.clone()) {
                Err(error) => prop_assert!(!error.to_string().is_empty()),
                Ok(parameters) => {
                    let configuration = parameters.configuration("uid", "0000:01:10.0".parse().unwrap());
                    let text = configuration.to_string();
                    let taken = penstock_cni::Configuration::read(text.as_bytes(), None);
                    prop_assert!(taken.is_ok(), "{document} becomes {text}: {:?}", taken.err());
                }
            }
        }
    }
}
