//! Tap interfaces that carry the frames of VMs' functions to Linux bridges, or to an embedded switch: made by `ip` (iproute2), known by their
//! alias, and there until they are removed (`Documentation/networking/tuntap.rst`).
//!
//! A bridge takes all that comes by a port of it. A switch reads a copy (packet(7)), and the host's own stack would get the frames, too, and
//! answer to its addresses past the switch: a filter of `tc` drops them behind the point where copies are made
//! (`__netif_receive_skb_core`, `net/core/dev.c`).
//!
//! QEMU opens a tap through libvirt, which is root: nobody else may. A bridge takes over the smallest MTU and the smallest address of its
//! ports (`net/bridge/br_if.c`, `br_stp_if.c`), so that a tap has the bridge's MTU and an address that is greater than those of NICs before
//! it becomes a port.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use penstock_model::{InterfaceName, Mac, TenantNic};
use serde::Deserialize;
use thiserror::Error;

use crate::{
    Command, Netlink, NetlinkError, ProcessError, Root, chain, files,
    netlink::{TapLink, wait_for_udev},
};

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
    /// Whether the host's own stack gets nothing that comes by it, of one that is a port of no bridge; an error is why that cannot be
    /// told.
    pub unheard: Result<bool, String>,
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
    /// The kernel does not list the interfaces.
    #[error(transparent)]
    List(NetlinkError),
    /// What `tc` printed is no list of filters.
    #[error("`tc -json filter` printed no list of filters")]
    Filters(#[source] serde_json::Error),
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

impl TapLink {
    fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }

    /// Whether it is what the first step of [`make`] leaves when nothing comes after it: root's alone, and nothing is set of it. Only its
    /// name says whose it is.
    fn is_begun(&self) -> bool {
        let is_bare = self.alias.is_none() && self.master.is_none() && !self.up;
        self.is("tun") && self.owner == Some(0) && is_bare
    }

    /// The function that it is the tap of, as it was told to [`make`].
    fn function(&self) -> Option<&str> {
        self.alias.as_deref()?.strip_prefix(ALIAS).filter(|_| self.is("tun"))
    }
}

fn ip(arguments: &[&str]) -> Command {
    Command::new("ip").args(arguments).deadline(MOMENT)
}

fn tc(arguments: &[&str]) -> Command {
    Command::new("tc").args(arguments).deadline(MOMENT)
}

fn links() -> Result<Vec<TapLink>, TapError> {
    Netlink::open().and_then(|mut netlink| netlink.tap_links()).map_err(TapError::List)
}

/// The taps of ours in this network namespace, by the name of the function that each was made for.
///
/// # Errors
///
/// When the kernel does not list the interfaces.
pub fn taps() -> Result<BTreeMap<String, TapReport>, TapError> {
    let links = links()?;
    let report = |link: &TapLink| {
        // Others are not looked at any further.
        let function = link.function()?;
        let master = |index: u32| links.iter().find(|other| other.index == index)?.name.parse().ok();
        let report = TapReport {
            name: link.name.parse().ok()?,
            bridge: link.master.and_then(master),
            up: link.up,
            attached: link.lower_up,
            unheard: match link.master {
                Some(_) => Ok(false),
                None => is_unheard(&link.name).map_err(|error| chain(&error)),
            },
            forwarding: link.forwarding,
        };
        Some((function.to_owned(), report))
    };
    Ok(links.iter().filter_map(report).collect())
}

/// The taps in this network namespace that somebody began to make and did not live to give to a function: each has the name of the tap
/// of an address, is root's alone, and nothing is set of it.
///
/// # Errors
///
/// When the kernel does not list the interfaces.
pub fn begun() -> Result<BTreeSet<InterfaceName>, TapError> {
    let name = |link: &TapLink| {
        let name: InterfaceName = link.name.parse().ok()?;
        TenantNic::mac_of_tap(&name).filter(|_| link.is_begun()).map(|_| name)
    };
    Ok(links()?.iter().filter_map(name).collect())
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
    let links = links()?;
    let found = links.iter().find(|link| link.name == bridge.as_str() && link.is("bridge"));
    let mtu = found.ok_or_else(|| TapError::NoBridge { bridge: bridge.clone() })?.mtu;
    let name = TenantNic::tap(mac);
    let enter = ip(&["link", "set", "dev", name.as_str(), "master", bridge.as_str(), "up"]);
    let wanted = Wanted { name, function, mac, queues, mtu };
    wanted.make(&links, &format!("a port of {bridge}"), &[enter])
}

/// Makes the tap of `function`, whose address is `mac`, for an embedded switch that reads a copy of what comes by it: the host's own stack
/// gets nothing of it. It is up, and takes frames of up to `mtu` bytes behind their header. After a failure there is none.
///
/// # Errors
///
/// When another interface has the tap's name, or `ip` or `tc` fails.
pub fn make_unheard(function: &str, mac: Mac, mtu: u32) -> Result<InterfaceName, TapError> {
    let name = TenantNic::tap(mac);
    let tap = name.as_str();
    // The filter is there before the first frame can be.
    let steps = [
        tc(&["qdisc", "add", "dev", tap, "clsact"]),
        tc(&[
            "filter", "add", "dev", tap, "ingress", "prio", "1", "protocol", "all", "matchall", "action",
            "drop",
        ]),
        ip(&["link", "set", "dev", tap, "up"]),
    ];
    let wanted = Wanted { name: name.clone(), function, mac, queues: 1, mtu };
    wanted.make(&links()?, "from which the host's own stack gets nothing", &steps)
}

/// Whether the program that [`make_unheard`] needs is installed. What the kernel lacks it says only when a tap is made.
///
/// # Errors
///
/// When `tc` does not run.
pub fn makes_unheard() -> Result<(), TapError> {
    let ran = tc(&["-Version"]).succeed();
    ran.map(drop)
        .map_err(|source| TapError::Run { attempt: "see whether tc is installed".to_owned(), source })
}

/// A tap that is to be there.
struct Wanted<'a> {
    name: InterfaceName,
    function: &'a str,
    mac: Mac,
    queues: u16,
    mtu: u32,
}

impl Wanted<'_> {
    /// Makes it in the place of one that is left over, and has `steps` make it `what`. Of `links` it is seen what is there.
    fn make(self, links: &[TapLink], what: &str, steps: &[Command]) -> Result<InterfaceName, TapError> {
        let Wanted { name, function, mac, queues, mtu } = self;
        if let Some(there) = links.iter().find(|link| link.name == name.as_str()) {
            if there.function() != Some(function) && !there.is_begun() {
                return Err(TapError::Taken { name, function: function.to_owned() });
            }
            remove(&name)?;
        }
        let (tap, alias, own) = (name.as_str(), format!("{ALIAS}{function}"), own_address(mac).to_string());
        let (mtu, queues) = (mtu.to_string(), if queues > 1 { &["multi_queue"][..] } else { &[] });
        // Without an owner anybody may open it.
        let add = ip(&[&["tuntap", "add", "dev", tap, "mode", "tap", "user", "0"], queues].concat());
        let call = ip(&["link", "set", "dev", tap, "alias", &alias]);
        // What it says itself, like who its neighbours are, would come to the VM.
        let set = ip(&["link", "set", "dev", tap, "address", &own, "mtu", &mtu, "addrgenmode", "none"]);
        let step = |command: &Command| {
            let attempt = || format!("make the tap {name} of {function}, {what}");
            command.succeed().map(drop).map_err(|source| TapError::Run { attempt: attempt(), source })
        };
        step(&add)?;
        let rest = || {
            // At once: without it the tap is nobody's, should this be all that is done.
            step(&call)?;
            await_udev(&name);
            step(&set)?;
            steps.iter().try_for_each(step)
        };
        if let Err(error) = rest() {
            let _ = remove(&name);
            return Err(error);
        }
        Ok(name)
    }
}

/// Whether a filter drops all that comes by the interface before the host's own stack gets it.
fn is_unheard(interface: &str) -> Result<bool, TapError> {
    let listed = tc(&["-json", "filter", "show", "dev", interface, "ingress"]).succeed();
    let attempt = || format!("list the filters of {interface}");
    let listed = listed.map_err(|source| TapError::Run { attempt: attempt(), source })?;
    // Where there is nothing it prints nothing at all.
    let filters: Vec<Filter> = match listed.text().trim() {
        "" => Vec::new(),
        text => serde_json::from_str(text).map_err(TapError::Filters)?,
    };
    let drops = |filter: &Filter| {
        let action = filter.options.actions.first();
        action.is_some_and(|action| action.control_action.r#type.as_deref() == Some("drop"))
    };
    // The first that matches decides, and nobody but root writes any.
    let first = filters.iter().find(|filter| !filter.options.actions.is_empty());
    Ok(first.is_some_and(|filter| filter.kind == "matchall" && filter.protocol == "all" && drops(filter)))
}

/// A filter as `tc -json filter show` prints it.
#[derive(Deserialize)]
struct Filter {
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    options: FilterOptions,
}

#[derive(Default, Deserialize)]
struct FilterOptions {
    #[serde(default)]
    actions: Vec<FilterAction>,
}

#[derive(Deserialize)]
struct FilterAction {
    #[serde(default)]
    control_action: ControlAction,
}

#[derive(Default, Deserialize)]
struct ControlAction {
    r#type: Option<String>,
}

/// Waits until udev has done with a new interface. systemd's gives it an address that is always the same (`MACAddressPolicy=persistent`,
/// systemd.link(5)) where it finds one made up by the kernel; done later that would be in the place of ours, and may be smaller than the
/// bridge's. In a network namespace of its own udev sees nothing, and is waited for in vain.
fn await_udev(tap: &InterfaceName) {
    let index = files::read_to_string(format!("/sys/class/net/{tap}/ifindex"));
    if let Some(index) = index.ok().and_then(|index| index.trim().parse().ok()) {
        wait_for_udev(&Root::system(), index, Instant::now() + UDEV);
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
