//! The configuration that LXC is given for a container: a pure function of its definition.
//!
//! The keys are those of `lxc.container.conf(5)` that LXC 5 and LXC 6 share.

use std::{
    fmt::Write,
    net::IpAddr,
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use penstock_host::files;
use penstock_model::{InterfaceAddress, InterfaceName, text::plain_path};
use penstock_plan::action::GuestDefinition;
use thiserror::Error;

use super::{
    apparmor::{self, Profile},
    confinement,
    devices::Granted,
    dns,
    ids::Ids,
    start_script,
};

/// How much a container may write to its root where that is the default one. It lies in memory, and takes only what is
/// written.
pub const LAYER_SIZE: &str = "512m";

/// The period in which a container's share of processor time is counted out, in microseconds; the kernel's own default
/// (`kernel/sched/fair.c`, `default_cfs_period`).
pub const CPU_PERIOD: u64 = 100_000;

/// Period of the idle first process's sleep: the longest that every `sleep` takes.
const LONG: &str = "2147483647";

/// What may be opened as a device: null, zero, full, tty, console, ptmx, random, urandom, pseudo-terminals.
const DEVICES: [&str; 9] = [
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 5:0 rwm",
    "c 5:1 rwm",
    "c 5:2 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 136:* rwm",
];

/// All that a container's configuration depends on.
#[derive(Clone, Debug)]
pub struct Config<'a> {
    /// What the container was defined with.
    pub definition: &'a GuestDefinition,
    /// The present name on the host of each function's interface, in the definition's order.
    pub interfaces: &'a [InterfaceName],
    /// The same of the NICs that it owns.
    pub nics: &'a [InterfaceName],
    /// The devices of the host that it is given, in the definition's order.
    pub devices: &'a [Granted],
    /// The container's own directory, for its mount point, its scripts and its console log.
    pub directory: &'a Path,
    /// The host's ids that stand for its own; `None` for a privileged container, whose ids are the host's.
    pub ids: Option<Ids>,
    /// Whether whoever starts it may give it higher resource limits than its own (`CAP_SYS_RESOURCE`); a container manager
    /// that runs in a container often may not.
    pub raise_limits: bool,
    /// Whether a root directory of its own has to be mounted with its ids: its files belong to accounts of the host.
    pub map_root: bool,
    /// The AppArmor profile; `None` where the kernel has no AppArmor.
    pub apparmor: Option<Profile>,
}

/// A definition that cannot be written down for LXC.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// The root directory's path.
    #[error("{path:?} cannot be a container's root: {why}")]
    Root {
        /// The path of the root directory that was asked for.
        path: String,
        /// What is wrong with the path.
        why: &'static str,
    },
    /// A device's path.
    #[error("{path:?} cannot be a device of a container: {why}")]
    Device {
        /// The path on the host or inside that does not fit.
        path: String,
        /// What is wrong with the path.
        why: &'static str,
    },
    /// The state directory's path.
    #[error(
        "{} cannot hold the state of containers: only letters, digits and `/._+@-` may stand in its path",
        path.display()
    )]
    State {
        /// The path that cannot stand in a script.
        path: PathBuf,
    },
}

/// The text of the container's configuration.
///
/// # Errors
///
/// [`ConfigError`] for a root, a device or a state directory whose path cannot stand in LXC's configuration.
pub fn render(config: &Config<'_>) -> Result<String, ConfigError> {
    let directory = plain(config.directory)?;
    let definition = config.definition;
    let mut text = String::new();
    let mut set = |key: &str, value: &str| {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{key} = {value}");
    };
    set("lxc.uts.name", definition.guest.as_str());
    match &definition.root {
        None => {
            set("lxc.rootfs.path", &format!("dir:{directory}/root"));
            set("lxc.hook.pre-mount", &format!("/bin/sh {directory}/{}", confinement::ROOT_SCRIPT));
            set("lxc.mount.auto", "proc:mixed sys:ro cgroup:ro");
        }
        Some(root) => {
            set("lxc.rootfs.path", &format!("dir:{}", fit_root(root)?));
            if config.map_root && config.ids.is_some() {
                set("lxc.rootfs.options", "idmap=container");
            }
            // An init of its own, systemd above all, wants to make control groups.
            set("lxc.mount.auto", "proc:mixed sys:ro cgroup:mixed");
        }
    }
    confinement::keys(directory, config.ids, config.raise_limits, definition.root.is_some(), &mut set);
    // Of its own root directory's /run and /tmp it keeps nothing, either.
    set("lxc.mount.entry", "tmpfs run tmpfs nosuid,nodev,mode=755,size=64m,create=dir 0 0");
    set("lxc.mount.entry", "tmpfs tmp tmpfs nosuid,nodev,mode=1777,size=256m,create=dir 0 0");
    if definition.root.is_some() && definition.dns.is_some() {
        set("lxc.mount.entry", &dns::entry(directory));
    }
    set("lxc.autodev", "1");
    for granted in config.devices {
        set("lxc.mount.entry", &node(granted)?);
    }
    set("lxc.pty.max", "64");
    set("lxc.tty.max", "0");
    if let Some(profile) = config.apparmor {
        set("lxc.apparmor.profile", profile.name());
        if profile == Profile::Generated {
            for rule in apparmor::rules() {
                set("lxc.apparmor.raw", &rule);
            }
        }
    }
    for version in ["cgroup", "cgroup2"] {
        set(&format!("lxc.{version}.devices.deny"), "a");
        for device in DEVICES {
            set(&format!("lxc.{version}.devices.allow"), device);
        }
        for granted in config.devices {
            let may = if granted.write { "rw" } else { "r" };
            set(&format!("lxc.{version}.devices.allow"), &format!("{} {may}", granted.device));
        }
    }
    if let Some(cpus) = definition.cpus {
        let quota = u64::from(cpus) * CPU_PERIOD;
        set("lxc.cgroup2.cpu.max", &format!("{quota} {CPU_PERIOD}"));
    }
    if let Some(memory) = definition.memory {
        set("lxc.cgroup2.memory.max", &memory.to_string());
    }
    if let Some(pin) = &definition.pin {
        set("lxc.cgroup2.cpuset.cpus", &pin.to_string());
    }
    if start_script::wanted(definition) {
        set("lxc.hook.start-host", &format!("/bin/sh {directory}/{}", start_script::SCRIPT));
    }
    set("lxc.console.logfile", &format!("{directory}/console.log"));
    set("lxc.console.size", "1MB");
    set("lxc.console.rotate", "1");
    if !halts_like_an_init(&definition.init) {
        set("lxc.signal.halt", "SIGTERM");
    }
    if definition.functions.is_empty() && definition.nics.is_empty() {
        // Without any `lxc.net` a container would share the host's namespace.
        set("lxc.net.0.type", "empty");
    }
    let functions = definition.functions.iter().zip(config.interfaces);
    let functions = functions
        .map(|(function, link)| (link, function.interface.as_str(), function.mtu, &function.addresses));
    let nics = definition.nics.iter().zip(config.nics);
    let nics = nics.map(|(own, link)| (link, own.name.as_str(), own.nic.mtu, &own.nic.addresses));
    for (position, (link, interface, mtu, addresses)) in functions.chain(nics).enumerate() {
        let mut set = |key: &str, value: &str| set(&format!("lxc.net.{position}.{key}"), value);
        set("type", "phys");
        set("link", link.as_str());
        set("name", interface);
        set("flags", "up");
        if let Some(mtu) = mtu {
            set("mtu", &mtu.to_string());
        }
        for address in addresses {
            match address.ip() {
                IpAddr::V4(_) => set("ipv4.address", &with_broadcast(*address)),
                IpAddr::V6(_) => set("ipv6.address", &address.to_string()),
            }
        }
    }
    Ok(text)
}

/// The script that sets up what of the container's interfaces LXC has no keys for, with the MTU of each function's interface; `None` when
/// there is nothing. [`render`] has LXC run it.
///
/// # Errors
///
/// [`ConfigError::State`] when the path of the state directory cannot stand in a script.
pub fn start_script(config: &Config<'_>, mtus: &[u32]) -> Result<Option<String>, ConfigError> {
    let outside = config.interfaces.iter().zip(mtus.iter().copied());
    Ok(start_script::script(plain(config.directory)?, config.definition, outside))
}

/// The script that makes the container's root; `None` when it has a directory of its own. [`render`] has LXC run it.
///
/// # Errors
///
/// [`ConfigError::State`] when the path of the state directory cannot stand in a script.
pub fn root_script(config: &Config<'_>) -> Result<Option<String>, ConfigError> {
    let directory = plain(config.directory)?;
    let guest = config.definition.guest.as_str();
    let default = config.definition.root.is_none();
    Ok(default
        .then(|| confinement::root_script(directory, guest, LAYER_SIZE, config.definition.dns.is_some())))
}

/// The first process and its arguments: the definition's, or an idle one that reaps children and ends when asked to.
pub fn init(definition: &GuestDefinition) -> Vec<String> {
    if !definition.init.is_empty() {
        return definition.init.clone();
    }
    // A shell, because every root has one; it reaps whatever becomes its child while it waits for the sleep.
    let idle = format!("trap 'exit 0' TERM INT; while :; do sleep {LONG} & wait; done");
    ["/bin/sh", "-c", &idle].map(str::to_owned).to_vec()
}

/// Whether the first process is a full init, which LXC itself knows how to halt; others get SIGTERM.
fn halts_like_an_init(init: &[String]) -> bool {
    init.first().is_some_and(|program| {
        let name = program.rsplit('/').next().unwrap_or(program);
        name == "init" || name == "systemd"
    })
}

/// The address for `lxc.net.N.ipv4.address`, with its broadcast address where its network has one: the one that LXC 5
/// works out by itself is wrong (0.0.0.255 for 10.9.9.1/24).
fn with_broadcast(address: InterfaceAddress) -> String {
    match IpNet::new(address.ip(), address.prefix()) {
        Ok(IpNet::V4(net)) if net.prefix_len() <= 30 => format!("{address} {}", net.broadcast()),
        _ => format!("{address} 0.0.0.0"),
    }
}

/// The line of `fstab`(5) that mounts a device's node inside.
fn node(granted: &Granted) -> Result<String, ConfigError> {
    let outside = granted.node.to_str().unwrap_or_default();
    let refused = |path: &str, why| ConfigError::Device { path: path.to_owned(), why };
    for path in [outside, &granted.inside] {
        // LXC takes what is mounted inside relative to the root, and must not be led elsewhere.
        if !path.starts_with("/dev/") || path.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
            return Err(refused(path, "it is not a plain path below /dev"));
        }
        if path.contains(char::is_control) {
            return Err(refused(path, "a control character stands in its path"));
        }
    }
    let inside = granted.inside.trim_start_matches('/');
    Ok(format!("{} {} none bind,ro,create=file 0 0", escaped(outside), escaped(inside)))
}

/// A path as `fstab`(5) has it: what could end or begin something else there is written as an octal number.
fn escaped(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._+@:,=-".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "\\{byte:03o}");
        }
    }
    text
}

/// A path that needs quoting neither in a shell, nor in mount options, nor in LXC's configuration.
fn plain(path: &Path) -> Result<&str, ConfigError> {
    path.to_str()
        .filter(|text| {
            text.starts_with('/') && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._+@-".contains(&b))
        })
        .ok_or_else(|| ConfigError::State { path: path.to_owned() })
}

/// Why the host's own root is no container's.
const HOSTS_OWN: &str = "it is the host's own; leave `root` out for a layer over it";

/// Checks that `root`, which is there, does not lead to the host's own by links or mounts.
///
/// # Errors
///
/// [`ConfigError::Root`] when it does.
pub fn not_the_hosts(root: &str) -> Result<(), ConfigError> {
    match files::is_same(root, "/") {
        true => Err(ConfigError::Root { path: root.to_owned(), why: HOSTS_OWN }),
        false => Ok(()),
    }
}

/// Checks that `root` can stand in LXC's configuration, where a line break would start a key of its own.
///
/// # Errors
///
/// [`ConfigError::Root`] when it is not absolute, is `/`, has a control character in it, or ends in a space.
pub fn fit_root(root: &str) -> Result<&str, ConfigError> {
    let why = if !root.starts_with('/') {
        "the path is not absolute"
    } else if plain_path(root) == "/" {
        HOSTS_OWN
    } else if root.contains(|c: char| c.is_control()) || root.trim_end() != root {
        "a control character or trailing space stands in its path"
    } else {
        return Ok(root);
    };
    Err(ConfigError::Root { path: root.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_of_the_hosts_root_is_a_containers() {
        for root in ["/", "//", "/.", "/./", "//."] {
            assert!(fit_root(root).is_err(), "{root}");
        }
        assert!(fit_root("/srv/./guest").is_ok());
        assert!(matches!(not_the_hosts("/proc/self/root"), Err(ConfigError::Root { .. })), "a link to it");
        assert!(not_the_hosts("/proc").is_ok());
    }
}
