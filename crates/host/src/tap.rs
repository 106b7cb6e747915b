//! Tap interfaces that carry the frames of VMs' functions to Linux bridges: made by `ip` (iproute2), known by their alias, and there until
//! they are removed (`Documentation/networking/tuntap.rst`).
//!
//! QEMU opens a tap through libvirt, which is root: nobody else may. A bridge takes over the smallest MTU and the smallest address of its
//! ports (`net/bridge/br_if.c`, `br_stp_if.c`), so that a tap has the bridge's MTU and an address that is greater than those of NICs before
//! it becomes a port.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use penstock_model::{InterfaceName, Mac, TenantNic};
use serde::Deserialize;
use thiserror::Error;

use crate::{Command, ProcessError, files};

/// How long `ip` may take.
const MOMENT: Duration = Duration::from_secs(15);
/// How long udev may take, which other events may keep busy.
const UDEV: Duration = Duration::from_secs(5);
/// What the alias of a tap begins with; the name of the function follows.
const ALIAS: &str = "penstock ";

/// A tap of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapReport {
    /// The name of the tap's interface.
    pub name: InterfaceName,
    /// The bridge that it is a port of.
    pub bridge: Option<InterfaceName>,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether a QEMU has it open: only then has it a carrier.
    pub attached: bool,
    /// Whether the bridge forwards its frames. It does not while the bridge is down, and before a spanning tree has settled.
    pub forwarding: bool,
}

impl TapReport {
    /// The address of the function that it was made for.
    pub fn mac(&self) -> Option<Mac> {
        TenantNic::mac_of_tap(&self.name)
    }
}

/// Why taps could not be listed, made or removed.
#[derive(Debug, Error)]
pub enum TapError {
    /// A command of `ip` failed or could not be run.
    #[error("{attempt}")]
    Run {
        /// What was attempted.
        attempt: String,
        /// How it failed.
        source: ProcessError,
    },
    /// What `ip` printed is no list of interfaces.
    #[error("`ip -json link` printed no list of interfaces")]
    Answer(#[source] serde_json::Error),
    /// There is no such bridge.
    #[error("this host has no Linux bridge {bridge}")]
    NoBridge {
        /// The bridge that was looked for.
        bridge: InterfaceName,
    },
    /// Something else is called as the tap is to be called.
    #[error("this host has an interface {name} already, which is no tap of {function}")]
    Taken {
        /// The name that the tap was to have.
        name: InterfaceName,
        /// The name of the function that the tap was to be made for.
        function: String,
    },
}

/// An interface as `ip -json -details link` prints it.
#[derive(Deserialize)]
struct Link {
    ifname: String,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    mtu: u32,
    master: Option<String>,
    ifalias: Option<String>,
    #[serde(default)]
    linkinfo: LinkInfo,
}

#[derive(Default, Deserialize)]
struct LinkInfo {
    info_kind: Option<String>,
    #[serde(default)]
    info_slave_data: PortInfo,
}

/// What is told of a port of a bridge.
#[derive(Default, Deserialize)]
struct PortInfo {
    state: Option<String>,
}

impl Link {
    fn is(&self, kind: &str) -> bool {
        self.linkinfo.info_kind.as_deref() == Some(kind)
    }

    /// The function that it is the tap of, as it was told to [`make`].
    fn function(&self) -> Option<&str> {
        self.ifalias.as_deref()?.strip_prefix(ALIAS).filter(|_| self.is("tun"))
    }
}

fn ip(arguments: &[&str]) -> Command {
    Command::new("ip").args(arguments).deadline(MOMENT)
}

fn links() -> Result<Vec<Link>, TapError> {
    let listed = ip(&["-json", "-details", "link", "show"]).succeed();
    let listed = listed
        .map_err(|source| TapError::Run { attempt: "list the network interfaces".to_owned(), source })?;
    let text = listed.text();
    // Where there is none it prints nothing at all.
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&text).map_err(TapError::Answer)
}

/// The taps of ours in this network namespace, by the name of the function that each was made for.
///
/// # Errors
///
/// When `ip` fails.
pub fn taps() -> Result<BTreeMap<String, TapReport>, TapError> {
    let report = |link: &Link| {
        let flag = |wanted: &str| link.flags.iter().any(|flag| flag == wanted);
        let report = TapReport {
            name: link.ifname.parse().ok()?,
            bridge: link.master.as_deref().and_then(|master| master.parse().ok()),
            up: flag("UP"),
            attached: flag("LOWER_UP"),
            forwarding: link.linkinfo.info_slave_data.state.as_deref() == Some("forwarding"),
        };
        Some((link.function()?.to_owned(), report))
    };
    Ok(links()?.iter().filter_map(report).collect())
}

/// Makes the tap of `function`, whose address is `mac`, a port of `bridge` that is up. With more than one pair of queues it is opened
/// once for each. After a failure there is none.
///
/// # Errors
///
/// When there is no such bridge, another interface has the tap's name, or `ip` fails.
pub fn make(
    function: &str,
    mac: Mac,
    queues: u16,
    bridge: &InterfaceName,
) -> Result<InterfaceName, TapError> {
    let name = TenantNic::tap(mac);
    let links = links()?;
    let found = links.iter().find(|link| link.ifname == bridge.as_str() && link.is("bridge"));
    let mtu = found.ok_or_else(|| TapError::NoBridge { bridge: bridge.clone() })?.mtu.to_string();
    if let Some(there) = links.iter().find(|link| link.ifname == name.as_str()) {
        if there.function() != Some(function) {
            return Err(TapError::Taken { name, function: function.to_owned() });
        }
        remove(&name)?;
    }
    let (tap, alias, own) = (name.as_str(), format!("{ALIAS}{function}"), own_address(mac).to_string());
    let queues: &[&str] = if queues > 1 { &["multi_queue"] } else { &[] };
    // Without an owner anybody may open it.
    let add = [&["tuntap", "add", "dev", tap, "mode", "tap", "user", "0"], queues].concat();
    // What it says itself, like who its neighbours are, would come to the VM.
    let set =
        ["link", "set", "dev", tap, "address", &own, "mtu", &mtu, "alias", &alias, "addrgenmode", "none"];
    let enter = ["link", "set", "dev", tap, "master", bridge.as_str(), "up"];
    let step = |arguments: &[&str]| {
        ip(arguments).succeed().map_err(|source| TapError::Run {
            attempt: format!("make the tap {name} of {function}, a port of {bridge}"),
            source,
        })
    };
    step(&add)?;
    await_udev(tap);
    if let Err(error) = step(&set).and_then(|_| step(&enter)) {
        let _ = remove(&name);
        return Err(error);
    }
    Ok(name)
}

/// Waits until udev has done with a new interface. systemd's gives it an address that is always the same (`MACAddressPolicy=persistent`,
/// systemd.link(5)) where it finds one made up by the kernel; done later that would be in the place of ours, and may be smaller than the
/// bridge's. In a network namespace of its own udev sees nothing, and is waited for in vain.
fn await_udev(tap: &str) {
    if !files::exists("/run/udev/control") {
        return;
    }
    let index = files::read_to_string(format!("/sys/class/net/{tap}/ifindex"));
    let Ok(index) = index else { return };
    let done = format!("/run/udev/data/n{}", index.trim());
    let until = Instant::now() + UDEV;
    while !files::exists(&done) && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Removes a tap.
///
/// # Errors
///
/// When `ip` fails.
pub fn remove(name: &InterfaceName) -> Result<(), TapError> {
    let removed = ip(&["link", "delete", "dev", name.as_str()]).succeed();
    removed.map(drop).map_err(|source| TapError::Run { attempt: format!("remove the tap {name}"), source })
}

/// The tap's own address: another than the function's, and greater than any NIC's.
fn own_address(mac: Mac) -> Mac {
    let mut octets = mac.octets();
    octets[0] = if octets[0] == 0xfe { 0xfa } else { 0xfe };
    Mac::new(octets)
}
