//! The network configuration that a runtime gives on standard input. Its keys are those of the SR-IOV plugin of the Kubernetes network
//! plumbing group, and `pf`, `vfs`, `free`, `driver`, `mtu`, `addresses` and `routes` besides.

use std::{fmt, path::PathBuf, str::FromStr};

use penstock_model::{
    Bdf, InterfaceAddress, InterfaceName, LinkState, Mac, Mtu, SettingsConflict, TxRate, VfIndex, VfSettings,
    VlanId, VlanProtocol, VlanQos,
};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::document::{Address, Attached, CniError, Route};
pub use crate::version::Version;

/// The largest configuration, in bytes.
pub const LARGEST: usize = 4 << 20;

/// How a configuration names a PF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pf {
    /// By its PCI address.
    Function(Bdf),
    /// By its permanent MAC address.
    Mac(Mac),
    /// By the name of its interface.
    Interface(InterfaceName),
}

impl FromStr for Pf {
    type Err = String;

    fn from_str(text: &str) -> Result<Pf, String> {
        if let Ok(function) = text.parse() {
            return Ok(Pf::Function(function));
        }
        if let Ok(mac) = text.parse() {
            return Ok(Pf::Mac(mac));
        }
        text.parse().map(Pf::Interface).map_err(|_| {
            format!("{text:?} is neither a PCI address, nor a MAC address, nor the name of an interface")
        })
    }
}

impl fmt::Display for Pf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pf::Function(function) => function.fmt(f),
            Pf::Mac(mac) => mac.fmt(f),
            Pf::Interface(name) => name.fmt(f),
        }
    }
}

/// An attachment that is still wanted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Attachment {
    /// The runtime's identifier of the container (`CNI_CONTAINERID`).
    #[serde(rename = "containerID")]
    pub container: String,
    /// What the interface is called in the container (`CNI_IFNAME`).
    #[serde(rename = "ifname")]
    pub interface: String,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Nothing but what ends a call.
    #[serde(alias = "panic", alias = "fatal")]
    Error,
    /// And what was not as it should be.
    #[serde(alias = "warn")]
    Warning,
    /// And what was done.
    #[default]
    Info,
    /// And with what.
    #[serde(alias = "trace")]
    Debug,
}

/// A driver that an attachment has its VF bound to: it hands the VF to a program, and there is no interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoundDriver {
    /// The program opens the VF's IOMMU group (`Documentation/driver-api/vfio.rst`).
    #[serde(rename = "vfio-pci")]
    VfioPci,
}

impl BoundDriver {
    /// As sysfs calls it.
    pub const fn name(self) -> &'static str {
        match self {
            BoundDriver::VfioPci => "vfio-pci",
        }
    }
}

/// A network configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// The version of the specification that it keeps to (`cniVersion`).
    pub version: Version,
    /// The network's name; it is never empty.
    pub name: String,
    /// The VF that is meant.
    pub device: Option<Bdf>,
    /// Or the PF of which any free one is.
    pub pf: Option<Pf>,
    /// Of which only these may be taken.
    pub vfs: Option<Vec<VfIndex>>,
    /// Whether the VF that is meant is refused while the host uses its interface, as one that is chosen is.
    pub free: bool,
    /// The driver that it is bound to; none where the container gets its interface.
    pub driver: Option<BoundDriver>,
    /// What is set.
    pub settings: VfSettings,
    /// The MTU of the interface in the container, in bytes; else it keeps the one that it has.
    pub mtu: Option<Mtu>,
    /// The addresses of the interface, where no other plugin gives them.
    pub addresses: Vec<InterfaceAddress>,
    /// The routes over the interface, where no other plugin gives them.
    pub routes: Vec<Route>,
    /// The plugin that gives addresses.
    pub ipam: Option<String>,
    /// How much is logged.
    pub level: LogLevel,
    /// To where; else to standard error.
    pub log: Option<PathBuf>,
    /// What ADD gave.
    pub previous: Option<Attached>,
    /// Which attachments are still wanted (GC).
    pub valid: Option<Vec<Attachment>>,
    /// All of it, as it came.
    pub whole: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    name: String,
    #[serde(default, rename = "deviceID")]
    device: Option<String>,
    #[serde(default)]
    pf: Option<String>,
    #[serde(default)]
    vfs: Option<Vec<VfIndex>>,
    #[serde(default)]
    free: bool,
    #[serde(default)]
    driver: Option<BoundDriver>,
    #[serde(default)]
    vlan: Option<VlanId>,
    #[serde(default, rename = "vlanQoS")]
    vlan_qos: Option<VlanQos>,
    #[serde(default, deserialize_with = "protocol")]
    vlan_proto: Option<VlanProtocol>,
    #[serde(default)]
    mac: Option<String>,
    #[serde(default, deserialize_with = "on_off")]
    spoofchk: Option<bool>,
    #[serde(default, deserialize_with = "on_off")]
    trust: Option<bool>,
    #[serde(default, rename = "link_state", deserialize_with = "link_state")]
    link_state: Option<LinkState>,
    #[serde(default, rename = "min_tx_rate")]
    min_tx_rate: Option<TxRate>,
    #[serde(default, rename = "max_tx_rate")]
    max_tx_rate: Option<TxRate>,
    #[serde(default)]
    mtu: Option<Mtu>,
    #[serde(default)]
    addresses: Option<Vec<InterfaceAddress>>,
    #[serde(default)]
    routes: Option<Vec<Route>>,
    #[serde(default)]
    ipam: Option<Ipam>,
    #[serde(default)]
    log_level: Option<LogLevel>,
    #[serde(default)]
    log_file: Option<PathBuf>,
    #[serde(default)]
    runtime_config: Option<Runtime>,
    #[serde(default, rename = "prevResult")]
    previous: Option<Attached>,
    #[serde(default, rename = "cni.dev/valid-attachments", deserialize_with = "said")]
    valid: Option<Vec<Attachment>>,
    #[serde(default, rename = "cni.dev/attachments", deserialize_with = "said")]
    attachments: Option<Vec<Attachment>>,
}

#[derive(Deserialize)]
struct Ipam {
    #[serde(default, rename = "type")]
    plugin: String,
}

#[derive(Default, Deserialize)]
struct Runtime {
    #[serde(default)]
    mac: Option<String>,
    #[serde(default, rename = "deviceID")]
    device: Option<String>,
}

/// A list that is there: what Go writes as `null` is an empty one, and not none.
fn said<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Vec<T>>, D::Error> {
    Ok(Some(Option::<Vec<T>>::deserialize(from)?.unwrap_or_default()))
}

fn on_off<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        Value::Bool(set) => Ok(Some(set)),
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) if text == "on" => Ok(Some(true)),
        Value::String(text) if text == "off" => Ok(Some(false)),
        other => Err(D::Error::custom(format!("{other} is neither \"on\" nor \"off\""))),
    }
}

fn protocol<'de, D: Deserializer<'de>>(from: D) -> Result<Option<VlanProtocol>, D::Error> {
    match Option::<String>::deserialize(from)?.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("") => Ok(None),
        Some("802.1q") => Ok(Some(VlanProtocol::Dot1q)),
        Some("802.1ad") => Ok(Some(VlanProtocol::Dot1ad)),
        Some(other) => Err(D::Error::custom(format!("vlanProto is {other:?}, not 802.1q or 802.1ad"))),
    }
}

fn link_state<'de, D: Deserializer<'de>>(from: D) -> Result<Option<LinkState>, D::Error> {
    match Option::<String>::deserialize(from)?.as_deref() {
        None | Some("") => Ok(None),
        Some("auto") => Ok(Some(LinkState::Auto)),
        Some("enable") => Ok(Some(LinkState::Enable)),
        Some("disable") => Ok(Some(LinkState::Disable)),
        Some(other) => Err(D::Error::custom(format!("link_state is {other:?}, not auto, enable or disable"))),
    }
}

impl Configuration {
    /// What the configuration itself gives the interface, as an IPAM plugin would.
    pub fn own_addresses(&self) -> Attached {
        let address = |address: &InterfaceAddress| Address {
            version: None,
            interface: None,
            address: *address,
            gateway: None,
        };
        Attached {
            ips: self.addresses.iter().map(address).collect(),
            routes: self.routes.clone(),
            ..Attached::default()
        }
    }

    /// Reads what came on standard input; `mac` is the address among `CNI_ARGS`. The runtime's own MAC address comes first, then
    /// that, then the configuration's.
    ///
    /// # Errors
    ///
    /// What is wrong with it, with the specification's number for that.
    pub fn read(bytes: &[u8], mac: Option<Mac>) -> Result<Configuration, CniError> {
        let whole: Value = serde_json::from_slice(bytes).map_err(|error| {
            CniError::new(CniError::DECODING, format!("the configuration is no JSON: {error}"))
        })?;
        let version = Version::of(&whole).map_err(not_understood)?;
        let wrong = |text: String| CniError::new(CniError::CONFIGURATION, text);
        let raw: Raw = serde_json::from_value(whole.clone())
            .map_err(|error| wrong(format!("the configuration is wrong: {error}")))?;
        if raw.name.is_empty() {
            return Err(wrong("the configuration has no name".to_owned()));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if !raw.name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !raw.name.chars().all(allowed) {
            let name = &raw.name;
            return Err(wrong(format!("the name of the configuration is {name:?}"))
                .hint("it begins with a letter or a digit; letters, digits, '_', '.' and '-' follow"));
        }
        let runtime = raw.runtime_config.unwrap_or_default();
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let device = given(runtime.device).or(given(raw.device));
        let device = device
            .map(|text| text.parse::<Bdf>().map_err(|error| wrong(format!("deviceID is wrong: {error}"))))
            .transpose()?;
        let pf =
            given(raw.pf).map(|text| text.parse::<Pf>().map_err(|why| wrong(format!("pf is wrong: {why}"))));
        // Each is looked at, also one that another comes before.
        let address = |text: String| {
            let mac: Mac = text.parse().map_err(|error| wrong(format!("mac is wrong: {error}")))?;
            settled(&VfSettings { mac: Some(mac), ..VfSettings::default() }).map(|()| mac)
        };
        let own = given(raw.mac).map(address).transpose()?;
        #[allow(clippy::needless_update, reason = "the table may have more attributes than sriov-cni")]
        let settings = VfSettings {
            mac: given(runtime.mac).map(address).transpose()?.or(mac).or(own),
            vlan: raw.vlan,
            qos: raw.vlan_qos,
            vlan_proto: raw.vlan_proto,
            spoofchk: raw.spoofchk,
            trust: raw.trust,
            min_tx_rate: raw.min_tx_rate,
            max_tx_rate: raw.max_tx_rate,
            link_state: raw.link_state,
            // The format is sriov-cni's, which has no other keys.
            ..VfSettings::default()
        };
        settled(&settings)?;
        if raw.vfs.is_some() && pf.is_none() {
            return Err(wrong("vfs says which VFs of a PF may be taken, and there is no pf".to_owned()));
        }
        let ipam = raw.ipam.map(|ipam| ipam.plugin).filter(|plugin| !plugin.is_empty());
        if let Some(plugin) = ipam.as_deref().filter(|plugin| plugin.contains('/')) {
            return Err(wrong(format!("the type of ipam is {plugin:?}, not a file's name")));
        }
        let (addresses, routes) = (raw.addresses.unwrap_or_default(), raw.routes.unwrap_or_default());
        if let Some(ipam) = ipam.as_ref().filter(|_| !addresses.is_empty() || !routes.is_empty()) {
            let text =
                format!("addresses and routes are given by the IPAM plugin {ipam}, and by the configuration");
            return Err(wrong(text).hint("leave out ipam, or addresses and routes"));
        }
        if let Some(driver) = raw.driver {
            let of_interfaces = [
                ("ipam", ipam.is_some()),
                ("addresses", !addresses.is_empty()),
                ("routes", !routes.is_empty()),
                ("mtu", raw.mtu.is_some()),
            ];
            if let Some((key, _)) = of_interfaces.into_iter().find(|(_, said)| *said) {
                let driver = driver.name();
                let text = format!("{key} is a matter of interfaces, and with driver {driver} there is none");
                return Err(wrong(text));
            }
        }
        Ok(Configuration {
            version,
            name: raw.name,
            device,
            pf: pf.transpose()?.filter(|_| device.is_none()),
            vfs: raw.vfs,
            free: raw.free,
            driver: raw.driver,
            settings,
            mtu: raw.mtu,
            addresses,
            routes,
            ipam,
            level: raw.log_level.unwrap_or_default(),
            log: raw.log_file.filter(|path| path.is_absolute()),
            previous: raw.previous,
            // Both say the same; what either names is wanted.
            valid: match (raw.valid, raw.attachments) {
                (Some(valid), Some(more)) => Some(valid.into_iter().chain(more).collect()),
                (valid, more) => valid.or(more),
            },
            whole,
        })
    }
}

/// Whether the settings go together, in the words of sriov-cni's keys.
fn settled(settings: &VfSettings) -> Result<(), CniError> {
    let Some(conflict) = settings.conflict() else { return Ok(()) };
    let text = match conflict {
        SettingsConflict::QosWithoutVlan(qos) => format!("vlanQoS {qos} needs a vlan of 1 to 4094"),
        SettingsConflict::ProtocolWithoutVlan(protocol) => {
            format!("vlanProto {protocol} needs a vlan of 1 to 4094")
        }
        SettingsConflict::Mac(_) | SettingsConflict::RateAboveLimit { .. } => conflict.to_string(),
    };
    Err(CniError::new(CniError::CONFIGURATION, text))
}

/// A configuration says no version that is understood.
fn not_understood(said: &str) -> CniError {
    let known: Vec<&str> = Version::ALL.iter().map(|version| version.text()).collect();
    let text = format!("the configuration is of CNI version {said:?}");
    CniError::new(CniError::VERSION, text).hint(format!("this plugin understands {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(change: Value) -> Result<Configuration, CniError> {
        let mut document =
            json!({"cniVersion": "1.0.0", "name": "net", "type": "sriov", "deviceID": "0000:01:10.0"});
        for (key, value) in change.as_object().unwrap() {
            document[key] = value.clone();
        }
        Configuration::read(document.to_string().as_bytes(), Some("02:00:00:00:00:0a".parse().unwrap()))
    }

    #[test]
    fn every_key_of_the_sriov_plugin_is_taken_as_it_is() {
        let read = read(json!({
            "cniVersion": "0.3.1", "vlan": 100, "vlanQoS": 3, "vlanProto": "802.1AD", "mac": "02:00:00:00:00:01",
            "spoofchk": "off", "trust": "on", "link_state": "enable", "min_tx_rate": 10, "max_tx_rate": 100,
            "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}, "logLevel": "debug", "logFile": "/var/log/a",
            "runtimeConfig": {"mac": "02:00:00:00:00:02", "deviceID": "0000:01:10.2"},
        }))
        .unwrap();
        assert_eq!((read.version, read.device), (Version::V0_3_1, Some("0000:01:10.2".parse().unwrap())));
        let settings = &read.settings;
        assert_eq!(settings.mac, Some("02:00:00:00:00:02".parse().unwrap()), "the runtime's first");
        assert_eq!((settings.vlan, settings.qos), (VlanId::new(100), VlanQos::new(3)));
        assert_eq!(settings.vlan_proto, Some(VlanProtocol::Dot1ad));
        assert_eq!((settings.spoofchk, settings.trust), (Some(false), Some(true)));
        assert_eq!(settings.link_state, Some(LinkState::Enable));
        assert_eq!((settings.min_tx_rate, settings.max_tx_rate), (Some(TxRate(10)), Some(TxRate(100))));
        assert_eq!(read.ipam.as_deref(), Some("host-local"));
        assert_eq!((read.level, read.log), (LogLevel::Debug, Some(PathBuf::from("/var/log/a"))));
    }

    #[test]
    fn what_is_empty_or_null_is_not_said() {
        let read = read(json!({"vlan": null, "spoofchk": "", "mac": "", "link_state": "", "ipam": {}, "prevResult": null})).unwrap();
        assert_eq!(read.settings.mac, Some("02:00:00:00:00:0a".parse().unwrap()), "that of CNI_ARGS");
        assert_eq!(read.settings.attributes().len(), 1);
        assert_eq!((read.ipam, read.previous), (None, None));
    }

    /// As a runtime does: a plugin of a list gets its entry with the list's version and name (specification 1.1, "Deriving request configuration from
    /// plugin configuration").
    #[test]
    fn what_export_writes_is_read() {
        let list = include_str!("../../exchange/tests/golden/cni/20-penstock-NET1.conflist");
        let list: Value = serde_json::from_str(list).unwrap();
        let mut plugin = list["plugins"][0].clone();
        for key in ["cniVersion", "name"] {
            plugin[key] = list[key].clone();
        }
        assert_eq!(plugin["type"], "penstock-cni");
        let read = Configuration::read(plugin.to_string().as_bytes(), None).unwrap();
        assert_eq!(read.pf, Some(Pf::Mac("0c:c4:7a:9a:61:eb".parse().unwrap())));
        assert_eq!(read.vfs, Some(vec![VfIndex::new(0).unwrap(), VfIndex::new(2).unwrap()]));
        assert!(read.settings.attributes().is_empty(), "the VFs stay as they were set up");
    }

    #[test]
    fn a_pf_is_named_in_three_ways() {
        for (text, pf) in [
            ("0000:01:00.0", Pf::Function("0000:01:00.0".parse().unwrap())),
            ("02:00:00:00:00:01", Pf::Mac("02:00:00:00:00:01".parse().unwrap())),
            ("ens1f0", Pf::Interface("ens1f0".parse().unwrap())),
        ] {
            let read = read(json!({"deviceID": "", "pf": text, "vfs": [0, 3]})).unwrap();
            assert_eq!(read.pf, Some(pf));
            assert_eq!(read.vfs.unwrap().len(), 2);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_number() {
        for (change, code, words) in [
            (json!({"cniVersion": "0.2.0"}), 1, "\"0.2.0\""),
            (json!({"cniVersion": ""}), 1, "\"0.1.0\""),
            (json!({"name": ""}), 7, "no name"),
            (json!({"name": "a\n2026 info: b"}), 7, "name of the configuration"),
            (json!({"name": "-a"}), 7, "name of the configuration"),
            (json!({"name": "a/b"}), 7, "name of the configuration"),
            (json!({"deviceID": "eth0"}), 7, "deviceID"),
            (json!({"deviceID": "", "pf": "a b"}), 7, "pf is wrong"),
            (json!({"vfs": [1]}), 7, "there is no pf"),
            (json!({"vlan": 4095}), 7, "4095"),
            (json!({"vlan": "a"}), 7, "configuration is wrong"),
            (json!({"vlanQoS": 3}), 7, "needs a vlan"),
            (json!({"vlan": 0, "vlanProto": "802.1ad"}), 7, "needs a vlan"),
            (json!({"vlan": 3, "vlanProto": "802.3"}), 7, "802.3"),
            (json!({"spoofchk": "yes"}), 7, "yes"),
            (json!({"link_state": "up"}), 7, "\"up\""),
            (json!({"mac": "01:00:5e:00:00:01"}), 7, "no interface can have"),
            (json!({"min_tx_rate": 9, "max_tx_rate": 3}), 7, "more than"),
            (json!({"min_tx_rate": -1}), 7, "configuration is wrong"),
            (json!({"mtu": 40}), 7, "configuration is wrong"),
            (json!({"addresses": ["10.1.0.5"]}), 7, "configuration is wrong"),
            (json!({"addresses": ["10.1.0.5/24"], "ipam": {"type": "x"}}), 7, "by the configuration"),
            (json!({"ipam": {"type": "../x"}}), 7, "not a file's name"),
        ] {
            let error = read(change.clone()).unwrap_err();
            assert_eq!(error.code, code, "{change}: {error}");
            assert!(error.text.contains(words), "{change}: {error}");
        }
        assert_eq!(Configuration::read(b"{", None).unwrap_err().code, CniError::DECODING);
    }

    #[test]
    fn the_versions_are_told() {
        let answer = Version::answer(br#"{"cniVersion": "0.4.0"}"#);
        assert_eq!(answer["cniVersion"], "0.4.0");
        assert_eq!(answer["supportedVersions"], json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
        assert_eq!(Version::answer(b"")["cniVersion"], "1.1.0");
    }

    #[test]
    fn addresses_are_given_by_the_configuration_itself() {
        let read = read(
            json!({"mtu": 9000, "addresses": ["10.1.0.5/24"], "routes": [{"dst": "10.2.0.0/16", "gw": "10.1.0.1"}]}),
        );
        let read = read.unwrap();
        assert_eq!(read.mtu.map(|mtu| mtu.get()), Some(9000));
        let given = read.own_addresses();
        assert_eq!(given.ips[0].address, "10.1.0.5/24".parse().unwrap());
        assert_eq!(given.kernel_routes()[0].gateway, Some("10.1.0.1".parse().unwrap()));
    }

    #[test]
    fn both_keys_of_gc_are_read() {
        let list = json!([{"containerID": "a", "ifname": "net1"}]);
        for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
            let valid = read(json!({key: list})).unwrap().valid.unwrap();
            assert_eq!((valid[0].container.as_str(), valid[0].interface.as_str()), ("a", "net1"), "{key}");
            // Go writes an empty list so.
            assert_eq!(read(json!({key: null})).unwrap().valid, Some(Vec::new()), "{key}");
        }
        let both = json!({"cni.dev/valid-attachments": null, "cni.dev/attachments": list});
        assert_eq!(read(both).unwrap().valid.unwrap().len(), 1);
        assert_eq!(read(json!({})).unwrap().valid, None);
    }

    proptest! {
        #[test]
        fn any_bytes_may_come(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Configuration::read(&bytes, None);
            let _ = Version::answer(&bytes);
        }
    }
}
