//! Tenant NICs: SR-IOV NICs that VMs own. QEMU emulates the PF and its VFs, which are ports of an embedded switch of the host
//! (`docs/tenant-nics.md`); the VM makes VFs of them and hands these out. A container's has one function, which the host's kernel
//! makes (`docs/container-nics.md`).

use std::{collections::BTreeMap, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    Allow, AllowedMacs, Emulation, FunctionName, GuestName, InterfaceAddress, InterfaceName, InterfaceRoute,
    Mac, Mtu, NicName, VfIndex, VfKey, VfSettings, VlanId, function::ParseFunctionError, names::NameError,
};

/// The most pairs of queues of a function of a tenant NIC.
pub const MAX_TENANT_QUEUES: u16 = 16;

/// What the names of taps begin with.
const TAP: &str = "tap";

/// What the names of vDPA devices begin with.
const VDPA: &str = "penstock-";

/// An SR-IOV NIC that a VM owns, or a NIC of one function that a container owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantNic {
    /// What QEMU makes of it.
    #[serde(default = "virtio", skip_serializing_if = "is_virtio")]
    pub emulation: Emulation,
    /// The PF's address. Default: derived from the names of machine, VM and NIC ([`TenantNic::derived_mac`]).
    pub mac: Mac,
    /// What the embedded switch keeps for each VF, by index; `mac` is always there. None of an igb, whose VFs are the VM's to manage:
    /// the host sees the NIC as one function. None of a container's.
    pub vfs: Vec<VfSettings>,
    /// What the embedded switch keeps for the function that a container's NIC is, but for its address; for all of an igb, which has one
    /// port. Of a VM's other NICs nothing.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub settings: VfSettings,
    /// IP addresses of a container's NIC, inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<InterfaceAddress>,
    /// Routes over a container's NIC, inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<InterfaceRoute>,
    /// Whether a DHCP client of the container asks for an address of IPv4 over its NIC.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dhcp: bool,
    /// MTU of a container's NIC, inside. `None`: left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Mtu>,
    /// What carries the frames of its functions.
    #[serde(default, skip_serializing_if = "DataPath::is_switch")]
    pub path: DataPath,
    /// Where the embedded switch leads to. `None`, the default: nowhere; the NIC's functions reach each other alone. The bridge that
    /// taps are ports of, and that the switch of a container's NIC leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<Uplink>,
    /// What the PF's driver keeps for the VF that `uplink` is: its own words over the NIC's defaults. `None`: the uplink is no VF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink_settings: Option<VfSettings>,
    /// Pairs of queues of each function. Default: 1.
    pub queues: u16,
    /// Threads of its embedded switch, each of which serves its part of every function's queues. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub workers: u16,
    /// How far the VM may go by itself at each function. `None`, the default: it may set nothing. Of an igb at a switch what its frames
    /// may have: addresses and tags ([`TenantNic::trunk`]), since nobody tells the switch what its VM asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Allow>,
    /// The same of single VFs, in the place of the NIC's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "by_index")]
    pub vf_allow: BTreeMap<VfIndex, Allow>,
}

/// What carries the frames of a tenant NIC's functions: the back end that QEMU, or the host's kernel, has for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DataPath {
    /// Ports of an embedded switch of the host (vhost-user), which keeps the functions' attributes.
    #[default]
    Switch,
    /// A tap interface of the host, the one port of all functions of an igb at an embedded switch of the host: QEMU connects an igb to
    /// nothing that a switch serves.
    #[serde(rename = "switch_tap")]
    SwitchTap,
    /// Tap interfaces of the host, ports of a Linux bridge, which keeps no attributes.
    Tap,
    /// A vDPA device of the host's kernel (VDUSE) with the driver `virtio_vdpa`, the port of an embedded switch of the host, which keeps
    /// its attributes. A container's NIC.
    #[serde(rename = "vdpa")]
    VirtioVdpa,
    /// Such devices with the driver `vhost_vdpa`, which QEMU opens. A VM's NIC.
    #[serde(rename = "vhost_vdpa")]
    VhostVdpa,
}

impl DataPath {
    /// Whether it is an embedded switch that QEMU is connected to by sockets (vhost-user).
    pub fn is_switch(&self) -> bool {
        *self == DataPath::Switch
    }

    /// Whether an embedded switch has a part in it.
    pub fn has_switch(&self) -> bool {
        match self {
            DataPath::Switch | DataPath::SwitchTap | DataPath::VirtioVdpa | DataPath::VhostVdpa => true,
            DataPath::Tap => false,
        }
    }

    /// Whether an embedded switch reads and writes frames in the memory of a VM, which must be shared for that.
    pub fn maps_memory(&self) -> bool {
        match self {
            DataPath::Switch | DataPath::VhostVdpa => true,
            DataPath::SwitchTap | DataPath::Tap | DataPath::VirtioVdpa => false,
        }
    }

    /// Whether its uplink is a Linux bridge that others may have as theirs, too; an interface or a function of its own, else.
    pub fn is_in_bridge(&self) -> bool {
        match self {
            DataPath::Tap | DataPath::VirtioVdpa => true,
            DataPath::Switch | DataPath::SwitchTap | DataPath::VhostVdpa => false,
        }
    }
}

/// A NIC that a container owns, as a port of the Linux bridge of the host that the embedded switch of the NIC leads to
/// (`docs/container-nics.md`).
#[derive(Clone, Copy, Debug)]
pub struct BridgePort<'a> {
    /// The container.
    pub guest: &'a GuestName,
    /// The name of the NIC.
    pub name: &'a NicName,
    /// The NIC.
    pub nic: &'a TenantNic,
    /// The bridge.
    pub bridge: &'a Uplink,
    /// The VLAN that the switch puts its frames into. `None`: into none.
    pub vlan: Option<VlanId>,
}

impl BridgePort<'_> {
    /// Whether frames get from one container to the other.
    pub fn reaches(&self, other: &BridgePort<'_>) -> bool {
        self.guest != other.guest && (self.bridge, self.vlan) == (other.bridge, other.vlan)
    }

    /// Whether frames get to the host's end of the bridge, which is in no VLAN.
    pub fn reaches_host(&self) -> bool {
        self.vlan.is_none()
    }

    /// The function that the NIC is.
    pub fn function(&self) -> TenantFunctionName {
        let function = FunctionName { nic: self.name.clone(), vf: None };
        TenantFunctionName { guest: self.guest.clone(), function }
    }
}

fn is_nothing(settings: &VfSettings) -> bool {
    *settings == VfSettings::default()
}

fn one() -> u16 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_one(number: &u16) -> bool {
    *number == 1
}

fn virtio() -> Emulation {
    Emulation::Virtio
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands it on so")]
fn is_virtio(emulation: &Emulation) -> bool {
    *emulation == Emulation::Virtio
}

/// Keys of JSON are text, and a number in one is read as such only where nothing is buffered, as a tagged enum does.
fn by_index<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<VfIndex, Allow>, D::Error> {
    let index = |key: &str| {
        let vf = key.parse().ok().and_then(VfIndex::new);
        vf.ok_or_else(|| serde::de::Error::custom(format!("{} is no index of a VF", crate::tree::shown(key))))
    };
    let all = BTreeMap::<String, Allow>::deserialize(from)?;
    all.into_iter().map(|(key, allow)| Ok((index(&key)?, allow))).collect()
}

/// Where the embedded switch of a tenant NIC leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Uplink {
    /// The interface of a function of the model, which stays on the host.
    Function(FunctionName),
    /// A network interface of the host that the model does not have.
    Interface(InterfaceName),
}

impl fmt::Display for Uplink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uplink::Function(function) => function.fmt(f),
            Uplink::Interface(interface) => interface.fmt(f),
        }
    }
}

impl TenantNic {
    /// What its embedded switch keeps for a VF beside its address. The model refuses a guaranteed rate and a link state there.
    pub fn switch_keys() -> impl Iterator<Item = VfKey> {
        let others = [VfKey::Mac, VfKey::MinTxRate, VfKey::LinkState];
        VfKey::ALL.iter().copied().filter(move |key| !others.contains(key))
    }

    /// What the embedded switch of the NIC `name` of `guest` calls the port of its uplink. No function is called that.
    pub fn uplink_port(guest: &GuestName, name: &NicName) -> String {
        format!("{guest}/{name} uplink")
    }

    /// The tap interface of the function with this address: `tap` and the address, which is as long as an interface's name may be.
    pub fn tap(mac: Mac) -> InterfaceName {
        let digits: String = mac.octets().iter().map(|octet| format!("{octet:02x}")).collect();
        // Always a name: fifteen letters and digits.
        format!("{TAP}{digits}").parse().unwrap_or_else(|_| unreachable!("{TAP}{digits} is a name"))
    }

    /// The vDPA device of the function with this address: what `vdpa dev show` calls it.
    pub fn vdpa_device(mac: Mac) -> String {
        let digits: String = mac.octets().iter().map(|octet| format!("{octet:02x}")).collect();
        format!("{VDPA}{digits}")
    }

    /// Whether it has one function, which a container owns.
    pub fn is_of_container(&self) -> bool {
        self.path == DataPath::VirtioVdpa
    }

    /// The address of the function whose tap interface this is; `None` for an interface that is no function's tap.
    pub fn mac_of_tap(name: &InterfaceName) -> Option<Mac> {
        let digits = name.as_str().strip_prefix(TAP)?;
        let octets: Vec<u8> =
            (0..6).map_while(|at| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()).collect();
        let mac = Mac::new(octets.try_into().ok()?);
        (TenantNic::tap(mac) == *name).then_some(mac)
    }

    /// The address of the PF of the NIC `nic` of the VM `guest` when the model gives none. Locally administered and unicast; no
    /// derived address of a VF below index 15,360 begins with its first octet. **This is part of the file format: it never
    /// changes.**
    pub fn derived_mac(machine: &str, guest: &GuestName, nic: &NicName) -> Mac {
        let mut hash = Sha256::new();
        for part in ["tenant NIC", machine, guest.as_str(), nic.as_str()] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let hash = hash.finalize();
        Mac::new([0xf2, hash[0], hash[1], hash[2], hash[3], hash[4]])
    }

    /// The VF of the host that its switch leads to, with what the PF's driver keeps for it; `None` when the uplink is no VF.
    pub fn uplink_vf(&self) -> Option<(&FunctionName, &VfSettings)> {
        match (&self.uplink, &self.uplink_settings) {
            (Some(Uplink::Function(function)), Some(settings)) => Some((function, settings)),
            _ => None,
        }
    }

    /// How many VFs the VM can make of it.
    pub fn most_vfs(&self) -> usize {
        match self.emulation {
            Emulation::Igb => usize::from(Emulation::Igb.most_vfs()),
            Emulation::Virtio => self.vfs.len(),
        }
    }

    /// How far the VM may go by itself at a function, as it tells its switch; `None`: it may set nothing of it.
    pub fn allow(&self, vf: Option<VfIndex>) -> Option<&Allow> {
        self.ceiling(vf).filter(|_| self.path != DataPath::SwitchTap)
    }

    /// The `allow` that is written for a function, whoever holds it.
    fn ceiling(&self, vf: Option<VfIndex>) -> Option<&Allow> {
        vf.and_then(|vf| self.vf_allow.get(&vf)).or(self.allow.as_ref())
    }

    /// Whether the VM may set anything of any function by itself.
    pub fn allows(&self) -> bool {
        self.path != DataPath::SwitchTap && (self.allow.is_some() || !self.vf_allow.is_empty())
    }

    /// Whether one port of its switch is all of it: a container's NIC, and an igb.
    pub fn is_one_port(&self) -> bool {
        match self.path {
            DataPath::VirtioVdpa | DataPath::SwitchTap => true,
            DataPath::Switch | DataPath::VhostVdpa | DataPath::Tap => false,
        }
    }

    /// The VLANs whose tags its functions may use from the start, in the switch's words; 0 stands for frames without a tag.
    pub fn trunk(&self) -> String {
        let allowed = self.allow.as_ref().filter(|_| self.path == DataPath::SwitchTap);
        let allowed = allowed.and_then(|allow| allow.vlan.clone());
        allowed.unwrap_or_default().and_untagged().to_string()
    }

    /// Addresses that it has from the start beside those of its functions: those of an igb's VFs, which its VM chooses of these.
    pub fn more_macs(&self) -> &[Mac] {
        match (self.path, &self.allow) {
            (DataPath::SwitchTap, Some(Allow { mac: AllowedMacs::These(macs), .. })) => macs,
            _ => &[],
        }
    }

    /// The NIC's functions that have a back end on the host, the PF first: the VF's index, the address and what is set.
    pub fn functions(&self) -> impl Iterator<Item = (Option<VfIndex>, Mac, VfSettings)> {
        let pf = VfSettings { mac: Some(self.mac), ..self.settings.clone() };
        let vfs = (0..).map_while(VfIndex::new).map(Some).zip(self.vfs.iter().cloned());
        std::iter::once((None, pf)).chain(vfs).map(|(vf, settings)| {
            let derived = vf.map_or(self.mac, |vf| Mac::derived(self.mac, vf));
            // A limit that may not be passed is one from the start.
            let ceiling = self.ceiling(vf).and_then(|allow| allow.max_tx_rate).filter(|rate| rate.0 > 0);
            let settings = VfSettings { max_tx_rate: settings.max_tx_rate.or(ceiling), ..settings };
            (vf, settings.mac.unwrap_or(derived), settings)
        })
    }
}

/// A VF of the model that stays on the host, because the embedded switch of a tenant NIC leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UplinkVf<'a> {
    /// The VM that owns the tenant NIC.
    pub guest: &'a GuestName,
    /// Which of its NICs.
    pub nic: &'a NicName,
    /// The VF that is the uplink, as the model names it.
    pub function: &'a FunctionName,
    /// What the PF's driver keeps for it.
    pub settings: &'a VfSettings,
}

/// A function of a tenant NIC: `node-1/net0` is the PF, `node-1/net0#2` a VF.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct TenantFunctionName {
    /// The guest that owns the NIC.
    pub guest: GuestName,
    /// Which of its NICs, and which function of that.
    pub function: FunctionName,
}

impl fmt::Display for TenantFunctionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.guest, self.function)
    }
}

/// The end of a path: a function of the model (`NET0#3`) or of a NIC that a VM owns (`node-1/net0#2`). Ordered so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndpointName {
    /// A function of a NIC of the model.
    Function(FunctionName),
    /// A function of a NIC that a VM owns.
    Tenant(TenantFunctionName),
}

impl From<FunctionName> for EndpointName {
    fn from(function: FunctionName) -> EndpointName {
        EndpointName::Function(function)
    }
}

impl From<TenantFunctionName> for EndpointName {
    fn from(function: TenantFunctionName) -> EndpointName {
        EndpointName::Tenant(function)
    }
}

impl EndpointName {
    /// The function of a NIC of the model; `None` for one of a NIC that a VM owns.
    pub fn of_model(&self) -> Option<&FunctionName> {
        match self {
            EndpointName::Function(function) => Some(function),
            EndpointName::Tenant(_) => None,
        }
    }
}

impl fmt::Display for EndpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndpointName::Function(function) => function.fmt(f),
            EndpointName::Tenant(function) => function.fmt(f),
        }
    }
}

/// Text that names no end of a path.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseEndpointError {
    /// What stands for the VM is no name of one.
    #[error(transparent)]
    Guest(#[from] NameError),
    /// What stands for the function is none.
    #[error(transparent)]
    Function(#[from] ParseFunctionError),
}

impl FromStr for EndpointName {
    type Err = ParseEndpointError;

    fn from_str(text: &str) -> Result<EndpointName, ParseEndpointError> {
        Ok(match text.split_once('/') {
            None => EndpointName::Function(text.parse()?),
            Some((guest, function)) => EndpointName::Tenant(TenantFunctionName {
                guest: guest.parse()?,
                function: function.parse()?,
            }),
        })
    }
}

crate::names::text_serde!(
    EndpointName,
    "A function of a NIC of the model (`NET0#3`), or of a NIC that a VM owns (`node-1/net0#2`).",
    "NET0#3",
    "^([A-Za-z0-9][A-Za-z0-9_.-]{0,47}/)?[A-Za-z0-9][A-Za-z0-9_.-]{0,47}(#(0|[1-9][0-9]{0,3}|1[0-5][0-9]{3}|16[0-2][0-9]{2}|163[0-7][0-9]|1638[0-3]))?$",
    crate::names::SCALARS
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans and journals have it within tagged enums.
    #[test]
    fn what_single_vfs_may_is_read_where_it_is_part_of_something_tagged() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        enum Tagged {
            Nic(Box<TenantNic>),
        }
        let allow = Allow { trust: true, ..Allow::default() };
        let nic = TenantNic {
            emulation: Emulation::Virtio,
            mac: Mac::new([2, 0, 0, 0, 0, 1]),
            vfs: vec![VfSettings::default()],
            settings: VfSettings::default(),
            addresses: Vec::new(),
            routes: Vec::new(),
            dhcp: false,
            mtu: None,
            path: DataPath::Switch,
            uplink: None,
            uplink_settings: None,
            queues: 1,
            workers: 1,
            allow: None,
            vf_allow: VfIndex::new(0).map(|vf| (vf, allow)).into_iter().collect(),
        };
        let written = serde_json::to_string(&Tagged::Nic(Box::new(nic.clone()))).unwrap();
        assert_eq!(serde_json::from_str::<Tagged>(&written).unwrap(), Tagged::Nic(Box::new(nic)));
        let wrong = written.replace("\"0\":", "\"x\":");
        assert!(serde_json::from_str::<Tagged>(&wrong).unwrap_err().to_string().contains("no index of a VF"));
    }

    /// The format's promise: these never change.
    #[test]
    fn derived_addresses_of_tenant_nics_are_what_they_always_were() {
        let (guest, nic) = ("node-1".parse().unwrap(), "net0".parse().unwrap());
        let pf = TenantNic::derived_mac("tenant", &guest, &nic);
        assert!(pf.is_local() && !pf.is_multicast());
        assert_eq!(pf.to_string(), "f2:23:5b:d8:a9:11");
        // The parts are kept apart.
        let (guest, nic) = ("node-1n".parse().unwrap(), "et0".parse().unwrap());
        assert_ne!(TenantNic::derived_mac("tenant", &guest, &nic), pf);
    }

    #[test]
    fn the_name_of_a_tap_leads_back_to_its_function() {
        let mac = Mac::new([0x02, 0, 0, 0xfe, 0x10, 0x01]);
        let tap = TenantNic::tap(mac);
        assert_eq!(tap.as_str(), "tap020000fe1001");
        assert_eq!(TenantNic::mac_of_tap(&tap), Some(mac));
        for other in ["tap0", "tap020000fe10010", "tap020000fe100x", "tap+20000fe1001", "eth020000fe1001"] {
            assert_eq!(other.parse().ok().and_then(|name| TenantNic::mac_of_tap(&name)), None, "{other}");
        }
    }

    #[test]
    fn the_end_of_a_path_is_written_as_everywhere() {
        for text in ["NET0", "NET0#3", "node-1/net0", "node-1/net0#2"] {
            let name: EndpointName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
            assert_eq!(matches!(name, EndpointName::Tenant(_)), text.contains('/'));
            assert_eq!(serde_json::to_value(&name).unwrap(), text);
            assert_eq!(serde_json::from_value::<EndpointName>(text.into()).unwrap(), name);
        }
        for text in ["", "/", "/net0", "node-1/", "a/b/c", "node-1#2/net0", "node-1/net0#x"] {
            assert!(text.parse::<EndpointName>().is_err(), "{text}");
        }
    }
}
