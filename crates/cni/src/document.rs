//! What the plugin answers: results and errors (CNI specification, sections "Result Types" and "Error").

use std::{fmt, net::IpAddr};

use penstock_host::{PciError, ProcessError, files::FileError};
use penstock_model::{Bdf, InterfaceAddress, InterfaceName, InterfaceRoute, Mac};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::version::Version;

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    /// The number by which a runtime knows it.
    pub code: u32,
    /// What was attempted, and with which values.
    pub text: String,
    /// What to do about it, or what else is known.
    pub details: Option<String>,
}

impl CniError {
    /// The configuration is of a version that this plugin does not know.
    pub const VERSION: u32 = 1;
    /// The environment is wrong.
    pub const ENVIRONMENT: u32 = 4;
    /// Something could not be read or written.
    pub const IO: u32 = 5;
    /// The configuration is no JSON.
    pub const DECODING: u32 = 6;
    /// The configuration is wrong.
    pub const CONFIGURATION: u32 = 7;
    /// The same may well succeed later.
    pub const TRY_AGAIN: u32 = 11;
    /// STATUS: nothing can be added.
    pub const NOT_AVAILABLE: u32 = 50;
    /// STATUS: nothing can be added, and containers that have something may not reach what they should.
    pub const LIMITED: u32 = 51;
    /// There is no such VF or PF, or it is no VF.
    pub const NO_VF: u32 = 100;
    /// The VF is another's, or no VF is free.
    pub const TAKEN: u32 = 101;
    /// The kernel, a driver or an embedded switch refused something.
    pub const REFUSED: u32 = 102;
    /// CHECK: something is not as it was set.
    pub const DIFFERS: u32 = 103;
    /// The plugin that gives addresses failed without an error of its own.
    pub const IPAM: u32 = 104;

    /// An error with this number.
    pub fn new(code: u32, text: impl Into<String>) -> CniError {
        CniError { code, text: text.into(), details: None }
    }

    /// The same, with what to do about it.
    pub fn hint(self, details: impl Into<String>) -> CniError {
        CniError { details: Some(details.into()), ..self }
    }

    /// The document that a runtime reads.
    pub fn document(&self, version: Version) -> Value {
        let mut document = json!({"cniVersion": version.text(), "code": self.code, "msg": self.text});
        if let Some(details) = &self.details {
            document["details"] = details.as_str().into();
        }
        document
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.details.iter().try_for_each(|details| write!(f, " ({details})"))
    }
}

impl From<FileError> for CniError {
    fn from(error: FileError) -> CniError {
        CniError::new(CniError::IO, penstock_host::chain(&error))
    }
}

impl From<penstock_host::NetlinkError> for CniError {
    fn from(error: penstock_host::NetlinkError) -> CniError {
        let failed = CniError::new(CniError::REFUSED, penstock_host::chain(&error));
        CniError { details: error.hint().map(str::to_owned), ..failed }
    }
}

impl From<PciError> for CniError {
    fn from(error: PciError) -> CniError {
        let failed = CniError::new(CniError::REFUSED, penstock_host::chain(&error));
        CniError { details: error.hint().map(str::to_owned), ..failed }
    }
}

impl From<ProcessError> for CniError {
    fn from(error: ProcessError) -> CniError {
        CniError::new(CniError::IPAM, penstock_host::chain(&error))
    }
}

/// What ADD gives, and CHECK and DEL are given back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attached {
    /// The interfaces of the attachment; ADD gives the one in the container.
    #[serde(deserialize_with = "or_nothing")]
    pub interfaces: Vec<Interface>,
    /// The IP addresses that the interfaces have; empty without IPAM.
    #[serde(deserialize_with = "or_nothing")]
    pub ips: Vec<Address>,
    /// The routes that the container has; empty without IPAM.
    #[serde(deserialize_with = "or_nothing")]
    pub routes: Vec<Route>,
    /// Name servers and the like, which are handed on as they are.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub dns: Value,
}

/// What Go writes as `null` is nothing.
fn or_nothing<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// An interface of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The interface's name in its namespace.
    pub name: String,
    /// Its MAC address; `None` where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Its MTU in bytes (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The namespace that it is in; none is that of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The function (1.1.0).
    #[serde(default, rename = "pciID", skip_serializing_if = "Option::is_none")]
    pub function: Option<Bdf>,
}

/// An address of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// `4` or `6`, which versions before 1.0.0 want.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Which of the interfaces has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// The IP address with the length of its network's prefix.
    pub address: InterfaceAddress,
    /// The gateway of its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where it leads.
    pub dst: InterfaceAddress,
    /// The next hop; else the gateway of an address of its family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// The largest packet on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The largest TCP segment on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// Its metric, the lowest first; `None` is the kernel's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The number of its routing table; `None` is the main one (254).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Its scope (`rtnetlink(7)`); `None` is `link` without a gateway, and `universe` with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

impl Attached {
    /// The document that a runtime of this version reads. MTU and function are left out where the version has no word for them.
    pub fn document(&self, version: Version) -> Value {
        let mut told = self.clone();
        for interface in &mut told.interfaces {
            if version < Version::V1_1_0 {
                (interface.mtu, interface.function) = (None, None);
            }
        }
        for address in &mut told.ips {
            let family = if address.address.ip().is_ipv4() { "4" } else { "6" };
            address.version = (version < Version::V1_0_0).then(|| family.to_owned());
        }
        if told.dns.is_null() {
            told.dns = json!({});
        }
        let mut document = serde_json::to_value(told).unwrap_or_default();
        document["cniVersion"] = version.text().into();
        document
    }

    /// The interface of this name that is in a container.
    pub fn of_container(&self, name: &InterfaceName) -> Option<(usize, &Interface)> {
        let inside = |interface: &Interface| {
            interface.name == name.as_str()
                && interface.sandbox.as_deref().is_some_and(|sandbox| !sandbox.is_empty())
        };
        self.interfaces.iter().enumerate().find(|(_, interface)| inside(interface))
    }

    /// The addresses of the interface with this place in the list; those that name none are its, too.
    pub fn addresses_of(&self, place: usize) -> impl Iterator<Item = &Address> {
        self.ips.iter().filter(move |address| address.interface.is_none_or(|of| of == place))
    }

    /// The routes as the kernel is to have them.
    pub fn kernel_routes(&self) -> Vec<InterfaceRoute> {
        let gateway_of = |dst: InterfaceAddress| {
            let same = |address: &&Address| address.address.ip().is_ipv4() == dst.ip().is_ipv4();
            self.ips.iter().filter(same).find_map(|address| address.gateway)
        };
        self.routes
            .iter()
            .map(|route| {
                let gateway = route.gw.or_else(|| gateway_of(route.dst));
                InterfaceRoute {
                    table: route.table,
                    priority: route.priority,
                    scope: route.scope,
                    mtu: route.mtu,
                    advmss: route.advmss,
                    ..InterfaceRoute::new(route.dst, gateway.filter(|_| route.scope != Some(LINK_SCOPE)))
                }
            })
            .collect()
    }
}

/// A result after that of the plugins before (`prevResult`, CNI specification, section 2): what they gave stays as it is, and what is given
/// now follows, with its addresses at interfaces that stand as many places later.
pub fn after(previous: Option<&Value>, mut given: Value) -> Value {
    let Some(previous) = previous.filter(|previous| previous.is_object()) else { return given };
    let before = |key: &str| previous[key].as_array().cloned().unwrap_or_default();
    let places = before("interfaces").len() as u64;
    for address in given["ips"].as_array_mut().into_iter().flatten() {
        if let Some(place) = address["interface"].as_u64() {
            address["interface"] = (place + places).into();
        }
    }
    let mut whole = previous.clone();
    for key in ["interfaces", "ips", "routes"] {
        let mut all = before(key);
        all.extend(given[key].as_array_mut().map(std::mem::take).unwrap_or_default());
        whole[key] = all.into();
    }
    let says = |dns: &Value| dns.as_object().is_some_and(|dns| !dns.is_empty());
    if says(&given["dns"]) || !says(&previous["dns"]) {
        whole["dns"] = given["dns"].take();
    }
    whole["cniVersion"] = given["cniVersion"].take();
    whole
}

/// `RT_SCOPE_LINK`: a route of this scope has no gateway.
const LINK_SCOPE: u8 = 253;

#[cfg(test)]
mod tests {
    use super::*;

    fn attached() -> Attached {
        serde_json::from_value(json!({
            "interfaces": [{"name": "net1", "mac": "02:00:00:00:01:04", "mtu": 9000, "sandbox": "/run/netns/a", "pciID": "0000:01:10.0"}],
            "ips": [{"interface": 0, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "scope": 253}],
            "dns": null,
        }))
        .unwrap()
    }

    #[test]
    fn each_version_gets_its_own_result() {
        let newest = attached().document(Version::V1_1_0);
        assert_eq!(
            newest,
            json!({
                "cniVersion": "1.1.0",
                "interfaces": [{"name": "net1", "mac": "02:00:00:00:01:04", "mtu": 9000, "sandbox": "/run/netns/a", "pciID": "0000:01:10.0"}],
                "ips": [{"interface": 0, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "scope": 253}],
                "dns": {},
            })
        );
        let older = attached().document(Version::V0_3_1);
        assert_eq!(
            older["interfaces"][0],
            json!({"name": "net1", "mac": "02:00:00:00:01:04", "sandbox": "/run/netns/a"})
        );
        assert_eq!(older["ips"][0]["version"], "4");
        assert_eq!(attached().document(Version::V1_0_0)["ips"][0].get("version"), None);
    }

    #[test]
    fn a_result_follows_that_of_the_plugins_before() {
        let given = || attached().document(Version::V1_1_0);
        assert_eq!(after(None, given()), given());
        assert_eq!(after(Some(&Value::Null), given()), given());
        let previous = json!({
            "cniVersion": "1.1.0", "interfaces": [{"name": "br0"}, {"name": "eth0", "sandbox": "/n", "socketPath": "/s"}],
            "ips": [{"interface": 1, "address": "10.7.0.5/24"}, {"address": "10.8.0.5/24"}],
            "routes": [{"dst": "10.8.0.0/16"}], "dns": {"nameservers": ["10.7.0.1"]},
        });
        let whole = after(Some(&previous), given());
        for key in ["interfaces", "ips", "routes"] {
            let (before, now) = (previous[key].as_array().unwrap(), whole[key].as_array().unwrap());
            assert_eq!(&now[..before.len()], before, "{key}");
            assert_eq!(now.len(), before.len() + given()[key].as_array().unwrap().len(), "{key}");
        }
        assert_eq!(whole["interfaces"][2]["name"], "net1");
        assert_eq!(whole["ips"][2]["interface"], 2);
        assert_eq!(whole["dns"], previous["dns"], "nothing was given instead");
        let told = Attached { dns: json!({"domain": "x"}), ..attached() }.document(Version::V1_1_0);
        assert_eq!(after(Some(&previous), told)["dns"], json!({"domain": "x"}));
    }

    #[test]
    fn a_route_without_a_gateway_takes_the_one_of_its_family() {
        let routes = attached().kernel_routes();
        assert_eq!(routes[0].gateway, Some("10.1.0.1".parse().unwrap()));
        assert_eq!(routes[1].gateway, None, "on the link");
    }

    #[test]
    fn an_error_has_its_number_its_words_and_what_to_do() {
        let error = CniError::new(CniError::TAKEN, "no VF is free").hint("make more");
        let wanted =
            json!({"cniVersion": "1.0.0", "code": 101, "msg": "no VF is free", "details": "make more"});
        assert_eq!(error.document(Version::V1_0_0), wanted);
        assert_eq!(error.to_string(), "no VF is free (make more)");
    }
}
