//! What the switch is told at its start and while it runs: its ports and what is set for each.

mod error;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

pub use self::error::ConfigError;
use crate::{
    allow::{AllowConfig, Ceiling},
    memory::{Limit, MOST_REGIONS},
    net::{Mac, Tag},
    settings::{LinkState, PortVlan, Settings, TagKind, Vlans},
    socket::{Access, AccessConfig},
};

/// The version of the file and of the control protocol.
pub const VERSION: u32 = 1;

/// MiB that all front ends together may share where nothing is set: 32 TiB. A process has 128 TiB of addresses on most machines, and
/// memory that takes the place of other memory is mapped beside it for a moment.
pub const MEMORY: u64 = 32 << 20;
/// MiB that a front end may share at most where nothing is set: 1 TiB.
pub const MAX_MEMORY: u64 = 1 << 20;
/// Regions that all front ends together may share: each is a mapping, twice for a moment, of which Linux allows 65,530 (`vm.max_map_count`).
const REGIONS: usize = 30_000;
/// MiB that can be asked for at all: 128 TiB.
const MOST_MEMORY: u64 = 128 << 20;

/// The configuration of a switch, as its file and the control protocol's `reload` have it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The version of this format: [`VERSION`]; any other is refused.
    pub version: u32,
    /// Whether frames between its ports stay inside (VEB), or go out to the uplink (VEPA). Default: they stay.
    #[serde(default = "yes")]
    pub loopback: bool,
    /// MiB that the front ends of all ports together may share. Default: [`MEMORY`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Who may come to its control socket. It is looked at when the switch starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<AccessConfig>,
    /// Who may come to the socket of the line from within a machine behind it. It is looked at when the switch starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<AccessConfig>,
    /// The port of the PF: when its device is reset, what was set from inside lapses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pf: Option<String>,
    /// How far what is set from inside may go at each port that is a guest's and has no `allow` of its own. Default: such a port's
    /// attributes cannot be set from inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<AllowConfig>,
    /// Its ports by name.
    #[serde(default)]
    pub ports: BTreeMap<String, PortConfig>,
}

fn yes() -> bool {
    true
}

/// A port: the attributes of `ip link set PF vf N ...` in their spelling, and what `ip` has no word for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortConfig {
    /// The socket on which its front end is awaited. A port has either this, or one of the next four.
    #[serde(skip_serializing_if = "is_empty")]
    pub socket: PathBuf,
    /// Who may come to its socket, or to that of its cable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessConfig>,
    /// It is the other side of this tap interface, which is made when it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tap: Option<String>,
    /// It is what this network interface is connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<String>,
    /// It is joined with a port of another switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cable: Option<Cable>,
    /// It has a vDPA device of this machine's kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vduse: Option<VduseConfig>,
    /// Its MAC address, of one station, like `02:00:00:00:00:01`. Default: none.
    pub mac: Option<String>,
    /// More addresses of its own.
    pub more_macs: Vec<String>,
    /// Its port VLAN; 0 is none.
    pub vlan: u16,
    /// Priority of its port VLAN's tag.
    pub qos: u8,
    /// Kind of its port VLAN's tag.
    pub vlan_proto: TagKind,
    /// VLANs whose tags it may use, like `0,100-199`; 0 stands for frames without a tag. Default: all.
    pub trunk: Option<String>,
    /// Drop frames from other addresses.
    pub spoofchk: bool,
    /// Drop ARP and neighbour discovery that tell of other addresses.
    pub arp_check: bool,
    /// It may be promiscuous.
    pub trust: bool,
    /// It gets every frame of its VLANs. Only with `trust`.
    pub promiscuous: bool,
    /// It gets what nobody has the address of.
    pub default: bool,
    /// It leads out.
    pub uplink: bool,
    /// The link that it shows.
    pub link_state: LinkState,
    /// Mbit/s; 0 is no limit.
    pub max_tx_rate: u32,
    /// Mbit/s that it is guaranteed of the uplink's `speed`.
    pub min_tx_rate: u32,
    /// Mbit/s that an uplink carries outwards; 0 is no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub speed: u32,
    /// It gets copies of what goes through other ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorConfig>,
    /// The QEMU whose guest is told of its link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qemu: Option<Qemu>,
    /// The QEMU that tells what the port's guest asks of its device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<QemuFilter>,
    /// How far what is set from inside may go. Default: the switch's, at a guest's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<AllowConfig>,
    /// Its MTU. Default: 1500.
    pub mtu: Option<u16>,
    /// MiB that its front end may share: the guest's memory, and what is noted beside it. Default: [`MAX_MEMORY`], or an even part of
    /// what the switch has where that is less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<u64>,
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Whom a port watches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorConfig {
    /// Names of the ports that it watches; it cannot watch itself.
    pub ports: Vec<String>,
    /// What of them. Default: both.
    #[serde(default)]
    pub direction: MirrorDirection,
}

/// Which way frames go that are watched, as the guests of the watched ports see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MirrorDirection {
    /// What they get.
    Rx,
    /// What they send.
    Tx,
    /// Both; a frame between two of them is copied once.
    #[default]
    Both,
}

/// A QEMU that has a port. It answers its guest's questions about the link itself, and has to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qemu {
    /// The unix socket of a monitor (`-qmp unix:PATH,server=on,wait=off`).
    pub monitor: PathBuf,
    /// The `id` of the port's `-netdev vhost-user`.
    pub netdev: String,
}

/// A QEMU that has a port's device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QemuFilter {
    /// The unix socket of a monitor that nobody else comes to.
    pub monitor: PathBuf,
    /// The `id` of the `-device`.
    pub device: String,
}

/// A side of a cable: between two switches, or between a switch and a QEMU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cable {
    /// The other side is awaited on this socket.
    Listen(PathBuf),
    /// The other side awaits this one on this socket.
    Connect(PathBuf),
    /// A QEMU is awaited on this socket, with the network of one of its hubs or devices (`-netdev stream`).
    Qemu(PathBuf),
}

/// A vDPA device that the switch serves (VDUSE, `Documentation/userspace-api/vduse.rst`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VduseConfig {
    /// Its name on the vdpa bus, as `vdpa dev show` has it: 1 to 63 letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// The driver that has it.
    #[serde(default)]
    pub driver: VduseDriver,
}

/// Who has a vDPA device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VduseDriver {
    /// This machine's own virtio-net: it has a network interface, for itself or for a container.
    #[default]
    VirtioVdpa,
    /// `/dev/vhost-vdpa-N`, for a QEMU.
    VhostVdpa,
}

impl VduseDriver {
    /// What the kernel calls it, on the vdpa bus and as a module.
    pub fn name(self) -> &'static str {
        match self {
            VduseDriver::VirtioVdpa => "virtio_vdpa",
            VduseDriver::VhostVdpa => "vhost_vdpa",
        }
    }
}

/// Where a port leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortBackend {
    /// To a guest, whose front end comes to this socket.
    Guest(PathBuf),
    /// To this tap interface.
    Tap(String),
    /// To this network interface's network.
    Packet(String),
    /// To another switch, or a QEMU's network.
    Cable(Cable),
    /// To whoever has this vDPA device.
    Vduse(VduseConfig),
}

impl std::fmt::Display for PortBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PortBackend::Guest(path) => write!(f, "socket {}", path.display()),
            PortBackend::Tap(name) => write!(f, "tap {name}"),
            PortBackend::Packet(name) => write!(f, "network interface {name}"),
            PortBackend::Vduse(device) => write!(f, "VDUSE device {}", device.name),
            PortBackend::Cable(Cable::Listen(path)) => write!(f, "cable that listens on {}", path.display()),
            PortBackend::Cable(Cable::Connect(path)) => write!(f, "cable to {}", path.display()),
            PortBackend::Cable(Cable::Qemu(path)) => {
                write!(f, "cable for a QEMU that comes to {}", path.display())
            }
        }
    }
}

impl Config {
    /// Sees whether it makes sense, and what it is for each port.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] at the first thing that makes no sense: another version, an attribute out of its range, two ports at one
    /// socket or with one address.
    pub fn settings(&self) -> Result<BTreeMap<String, Settings>, ConfigError> {
        if self.version != VERSION {
            return Err(ConfigError::Version(self.version));
        }
        let all: BTreeMap<String, Settings> = self
            .ports
            .iter()
            .map(|(name, port)| Ok((name.clone(), port.settings(name)?)))
            .collect::<Result<_, _>>()?;
        let mut backends = BTreeMap::new();
        let mut devices = BTreeMap::new();
        let mut addresses = BTreeMap::new();
        for (name, port) in &self.ports {
            let backend = port.backend(name)?;
            // Both sides of a cable may be this switch's: who wants to try one can.
            if let Some(first) = backends.insert(backend.clone(), name) {
                return Err(ConfigError::Socket { backend, first: first.clone(), second: name.clone() });
            }
            // Whatever driver each is to have.
            if let Some(device) = &port.vduse
                && let Some(first) = devices.insert(&device.name, name)
            {
                return Err(ConfigError::Socket { backend, first: first.clone(), second: name.clone() });
            }
            for mac in all.get(name).map(|settings| settings.macs.as_slice()).unwrap_or_default() {
                if let Some(first) = addresses.insert((*mac, port.vlan), name) {
                    return Err(ConfigError::Collision {
                        first: first.clone(),
                        second: name.clone(),
                        mac: *mac,
                    });
                }
            }
        }
        self.guarantees()?;
        self.mirrors()?;
        self.ceilings()?;
        let mut all = all;
        self.share_memory(&mut all)?;
        Ok(all)
    }

    /// Gives each port its part of the memory that front ends may share: all of them together have no more than there is, so that no
    /// front end takes the room of another port's.
    fn share_memory(&self, all: &mut BTreeMap<String, Settings>) -> Result<(), ConfigError> {
        let whole = self.memory.unwrap_or(MEMORY);
        let mut left = whole;
        for (name, port) in &self.ports {
            let Some(asked) = port.max_memory else { continue };
            let refused = |why| ConfigError::Memory { port: name.clone(), asked, why, all: whole };
            if asked == 0 {
                return Err(refused("a guest without memory cannot be served"));
            }
            if asked > MOST_MEMORY {
                return Err(refused("a process has less of it"));
            }
            left = left
                .checked_sub(asked)
                .ok_or_else(|| refused("with it the ports have more than there is"))?;
        }
        // Only guests share memory.
        let guests = || self.ports.iter().filter(|(_, port)| port.is_guests());
        let unset = || guests().filter(|(_, port)| port.max_memory.is_none());
        let part = (left / (unset().count() as u64).max(1)).min(MAX_MEMORY);
        if let Some((name, _)) = unset().next().filter(|_| part == 0) {
            let why = "nothing is left for it beside what others are given";
            return Err(ConfigError::Memory { port: name.clone(), asked: 0, why, all: whole });
        }
        let regions = (REGIONS / guests().count().max(1)).clamp(1, MOST_REGIONS);
        for (name, settings) in all {
            let own = self.ports.get(name).and_then(|port| port.max_memory).unwrap_or(part);
            settings.memory = Limit { bytes: own << 20, regions };
        }
        Ok(())
    }

    /// Sees whether all guarantees can be given together.
    fn guarantees(&self) -> Result<(), ConfigError> {
        for (name, port) in &self.ports {
            if port.speed > 0 && !port.uplink {
                return Err(ConfigError::Speed { port: name.clone(), speed: port.speed });
            }
        }
        let uplinks: Vec<_> = self.ports.values().filter(|port| port.uplink).collect();
        let mut given = 0_u64;
        for (name, port) in self.ports.iter().filter(|(_, port)| port.min_tx_rate > 0) {
            let min = port.min_tx_rate;
            let refused = |why: String| Err(ConfigError::Guarantee { port: name.clone(), min, why });
            if port.max_tx_rate > 0 && min > port.max_tx_rate {
                return refused(format!("it is more than its max_tx_rate of {}", port.max_tx_rate));
            }
            let speed = match uplinks.as_slice() {
                _ if port.uplink => return refused("an uplink shares nothing".to_owned()),
                [uplink] if uplink.speed > 0 => uplink.speed,
                [] => return refused("there is no uplink whose speed could be shared".to_owned()),
                [_] => return refused("the uplink has no speed that could be shared".to_owned()),
                _ => return refused("there is more than one uplink".to_owned()),
            };
            given += u64::from(min);
            if given > u64::from(speed) {
                let why = format!("with it {given} Mbit/s are promised of the uplink's {speed}");
                return refused(why);
            }
        }
        Ok(())
    }

    /// Sees whether the ceilings make sense.
    fn ceilings(&self) -> Result<(), ConfigError> {
        let mut devices = BTreeMap::new();
        for (name, port) in &self.ports {
            let Some(filter) = &port.filter else { continue };
            if let Some(first) = devices.insert((&filter.monitor, &filter.device), name) {
                let device = filter.device.clone();
                return Err(ConfigError::Device { first: first.clone(), second: name.clone(), device });
            }
        }
        let refused = |of: &str, why: String| ConfigError::Allow { of: of.to_owned(), why };
        let ports = self.ports.iter().filter_map(|(name, port)| Some((name.as_str(), port.allow.as_ref()?)));
        let all: Vec<_> = self.allow.iter().map(|allow| ("the switch", allow)).chain(ports).collect();
        for (of, allow) in &all {
            allow.ceiling().map_err(|why| refused(of, why))?;
            if allow.loopback && *of != "the switch" {
                return Err(refused(of, "loopback is the switch's, not a port's".to_owned()));
            }
        }
        match (&self.pf, all.first()) {
            (Some(pf), _) if !self.ports.contains_key(pf) => {
                Err(refused("the switch", format!("there is no port {pf}, which `pf` names")))
            }
            (None, Some((of, _))) => {
                let why = "what is set from inside lapses when the PF's device is reset: `pf` beside `ports` has to name its port";
                Err(refused(of, why.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// How far what is set from inside may go at a port; `None`: nothing may be set.
    pub fn ceiling(&self, name: &str) -> Option<Ceiling> {
        let port = self.ports.get(name)?;
        let own = port.allow.as_ref();
        own.or_else(|| self.allow.as_ref().filter(|_| port.is_guests()))?.ceiling().ok()
    }

    /// Sees whether those who are to be watched are there.
    fn mirrors(&self) -> Result<(), ConfigError> {
        let mirrors = self.ports.iter().filter_map(|(name, port)| Some((name, port.mirror.as_ref()?)));
        for (name, mirror) in mirrors {
            for of in &mirror.ports {
                let why = match self.ports.contains_key(of) {
                    _ if of == name => "a port does not watch itself",
                    false => "there is no such port",
                    true => continue,
                };
                return Err(ConfigError::Mirror { port: name.clone(), of: of.clone(), why });
            }
        }
        Ok(())
    }
}

/// Who may come to a socket; `socket` is for what cannot be.
fn access(config: Option<&AccessConfig>, socket: &str) -> Result<Access, ConfigError> {
    let failed = |why| ConfigError::Access { socket: socket.to_owned(), why };
    config.map_or(Ok(Access::default()), |config| Access::try_from(config).map_err(failed))
}

impl Config {
    /// Who may come to the control socket.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an access that makes no sense, called `control`.
    pub fn control_access(&self) -> Result<Access, ConfigError> {
        access(self.control.as_ref(), "control")
    }

    /// Who may come to the line's socket.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an access that makes no sense, called `line`.
    pub fn line_access(&self) -> Result<Access, ConfigError> {
        access(self.line.as_ref(), "line")
    }
}

impl PortConfig {
    /// What the administrator of a PF sets for a port, who does not say where it leads to. How far one inside may set them is
    /// [`Ceiling::judge`]'s.
    pub const ATTRIBUTES: &[&str] = &[
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

    /// Whether it is one that shares its memory: a guest's, or a driver's of this machine.
    fn is_guests(&self) -> bool {
        !is_empty(&self.socket) || self.vduse.is_some()
    }

    /// Who may come to its socket; `name` is for what cannot be.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an access that makes no sense, with `name`.
    pub fn access(&self, name: &str) -> Result<Access, ConfigError> {
        access(self.access.as_ref(), name)
    }

    /// Where it leads to; `name` is for what cannot be.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when it names no backend, more than one, or an interface whose name no interface can have.
    pub fn backend(&self, name: &str) -> Result<PortBackend, ConfigError> {
        let interface = |text: &String| {
            let odd = |byte: u8| byte == b'/' || byte.is_ascii_whitespace();
            if text.is_empty() || text.len() > 15 || text.bytes().any(odd) {
                return Err(ConfigError::Interface { port: name.to_owned(), name: text.clone() });
            }
            Ok(text.clone())
        };
        let mut all = Vec::new();
        if !is_empty(&self.socket) {
            all.push(PortBackend::Guest(self.socket.clone()));
        }
        if let Some(tap) = &self.tap {
            all.push(PortBackend::Tap(interface(tap)?));
        }
        if let Some(packet) = &self.packet {
            all.push(PortBackend::Packet(interface(packet)?));
        }
        all.extend(self.cable.clone().map(PortBackend::Cable));
        if let Some(device) = &self.vduse {
            let odd = |byte: u8| !(byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
            let text = &device.name;
            if !(1..=63).contains(&text.len())
                || text.bytes().any(odd)
                || matches!(text.as_str(), "." | ".." | "control")
            {
                return Err(ConfigError::Vduse { port: name.to_owned(), name: text.clone() });
            }
            all.push(PortBackend::Vduse(device.clone()));
        }
        let has = all.len();
        all.pop().filter(|_| has == 1).ok_or_else(|| ConfigError::Backend { port: name.to_owned(), has })
    }

    /// What it is for its port, without what follows from others; `name` is for what cannot be.
    pub(crate) fn settings(&self, name: &str) -> Result<Settings, ConfigError> {
        let port = name.to_owned();
        if self.qos > 7 {
            return Err(ConfigError::Qos { port, qos: self.qos });
        }
        if self.vlan > 4094 {
            return Err(ConfigError::PortVlan { port, vlan: self.vlan });
        }
        let mtu = self.mtu.unwrap_or(1500);
        if mtu < 68 {
            return Err(ConfigError::Mtu { port, mtu });
        }
        let macs = self.mac.iter().chain(&self.more_macs).map(|text| {
            let fail = || ConfigError::Mac { port: name.to_owned(), text: text.clone() };
            mac(text).filter(|mac| !mac.is_group() && !mac.is_zero()).ok_or_else(fail)
        });
        let macs = macs.collect::<Result<_, _>>()?;
        let trunk = match &self.trunk {
            None => Vlans::all(),
            Some(text) => vlans(text).ok_or_else(|| ConfigError::Trunk { port, text: text.clone() })?,
        };
        let tag = Tag { vlan: self.vlan, priority: self.qos };
        Ok(Settings {
            macs,
            vlan: (self.vlan != 0).then_some(PortVlan { tag, kind: self.vlan_proto }),
            trunk,
            spoofchk: self.spoofchk,
            arp_check: self.arp_check,
            trust: self.trust,
            promiscuous: self.promiscuous,
            default: self.default,
            uplink: self.uplink,
            link_state: self.link_state,
            max_tx_rate: self.max_tx_rate,
            min_tx_rate: self.min_tx_rate,
            speed: self.speed,
            mtu,
            // Its part is known when all ports are.
            memory: Limit::DEFAULT,
        })
    }
}

/// An address as it is written.
pub(crate) fn mac(text: &str) -> Option<Mac> {
    let mut octets = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *octet = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then(|| Mac::new(octets))
}

/// Bytes of VLANs as they are written: every second one, with a space behind each comma, is 12 KiB.
const LONGEST_TRUNK: usize = 16 << 10;

/// VLANs as they are written, like `0,100-199`. The text is read anew with each change of any port, and a guest may have written it.
pub(crate) fn vlans(text: &str) -> Option<Vlans> {
    if text.len() > LONGEST_TRUNK {
        return None;
    }
    let mut all = Vlans::none();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > 4094 {
            return None;
        }
        all.insert_range(first, last);
    }
    Some(all)
}

#[cfg(test)]
mod tests;
