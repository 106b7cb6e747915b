//! The baseline that SR-IOV replaces: a bridge on the host, with a veth from it into each of two containers, or with one and
//! a PF of the host's as uplink.

use std::{fmt::Write, time::Duration};

use penstock_host::{Command, process::quoted};
use penstock_model::{Mac, Mtu};

use super::lease::{TestLink, is_made, shell};

/// What the alias of a link that was made for a run begins with.
pub(super) const ALIAS: &str = "penstock measure";

/// Whether a link with this alias was made for a run.
pub fn is_of_a_run(alias: &str) -> bool {
    alias.strip_prefix(ALIAS).is_some_and(|mark| mark.starts_with(' '))
}

/// The alias of what is made for the run of this mark.
pub(super) fn alias(mark: &str) -> String {
    format!("{ALIAS} {mark}")
}

/// Removes what runs that were killed left, of all numbers: an uplink of another one would be missed. `alias` is this run's.
pub(super) fn remove_left_over(alias: &str) -> String {
    format!(
        "for l in /sys/class/net/psbr* /sys/class/net/psve*; do l=${{l##*/}}; {}; [ $? = 0 ] && [ \"$a\" != {} ] && \
         \"$ip\" link del dev $l; done\n",
        is_made("$l", &format!("'{ALIAS} '*")),
        quoted(alias)
    )
}

/// A bridge with a veth into each of some network namespaces.
#[derive(Clone, Debug)]
pub struct Bridge {
    number: usize,
    alias: String,
    /// A process in each namespace, as the host numbers it.
    processes: Vec<u32>,
    /// What else it joins.
    uplink: Option<Uplink>,
    /// The MTU of its veths, where it is not the kernel's usual one.
    mtu: Option<Mtu>,
}

/// A PF that a bridge has while it is used, and only then: it may be the end of another path too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The PF's interface on the host.
    pub interface: String,
    /// The bridge's number.
    number: usize,
}

impl Bridge {
    /// The bridge of this number between two namespaces, for the run of this mark.
    pub fn between(number: usize, mark: &str, processes: [u32; 2]) -> Bridge {
        Bridge { number, alias: alias(mark), processes: processes.into(), uplink: None, mtu: None }
    }

    /// The same with veths of this MTU.
    pub fn with_mtu(self, mtu: Mtu) -> Bridge {
        Bridge { mtu: Some(mtu), ..self }
    }

    /// The bridge of this number with one namespace and an uplink. The veth takes messages as large as the uplink does.
    pub fn uplinked(number: usize, mark: &str, process: u32, interface: &str, mtu: Mtu) -> Bridge {
        let uplink = Some(Uplink { interface: interface.to_owned(), number });
        Bridge { number, alias: alias(mark), processes: vec![process], uplink, mtu: Some(mtu) }
    }

    /// What it joins while it is used.
    pub fn uplink(&self) -> Option<&Uplink> {
        self.uplink.as_ref()
    }

    fn port(&self, side: usize) -> String {
        format!("psve{}{}", self.number, ["a", "b"][side])
    }

    /// The interface in the namespace of this side.
    pub fn inside(&self, side: usize) -> String {
        format!("psin{}{}", self.number, ["a", "b"][side])
    }

    /// The MAC address of that interface, which is locally administered (IEEE 802, 8.4).
    pub fn mac(&self, side: usize) -> Mac {
        Mac::new([0x02, 0x70, 0x73, 0, self.number as u8, side as u8])
    }

    /// What was made on the host. What is inside the namespaces goes with it, and an uplink is let go by it.
    pub fn made(&self) -> Vec<TestLink> {
        let ports = (0..self.processes.len()).map(|side| self.port(side));
        let names = ports.chain([name(self.number)]);
        names.map(|name| TestLink { name, alias: self.alias.clone() }).collect()
    }

    /// The command that makes it, on the host. What runs that were killed left is removed first; a link of the same name that
    /// is somebody else's is left alone, and it fails.
    pub fn make(&self) -> Command {
        let (bridge, alias) = (name(self.number), format!("\"{}\"", self.alias));
        let mut script = remove_left_over(&self.alias);
        if let Some(uplink) = &self.uplink {
            script.push_str(&refuse_taken(&uplink.interface));
            script.push_str(&uplink.refuse_needed());
        }
        // Writing to a `String` cannot fail, here and below.
        let _ = writeln!(
            script,
            "exec \"$ip\" -batch - <<'END'\n\
             link add name {bridge} type bridge stp_state 0 forward_delay 0\n\
             link set dev {bridge} alias {alias} addrgenmode none"
        );
        let mtu = self.mtu.map(|mtu| format!("mtu {mtu} ")).unwrap_or_default();
        for (side, process) in self.processes.iter().enumerate() {
            let (port, inside, mac) = (self.port(side), self.inside(side), self.mac(side));
            let _ = writeln!(
                script,
                "link add name {port} {mtu}type veth peer name {inside} {mtu}address {mac} netns {process}\n\
                 link set dev {port} alias {alias} addrgenmode none\n\
                 link set dev {port} master {bridge} up"
            );
        }
        let _ = writeln!(script, "link set dev {bridge} up\nEND");
        shell(&script).deadline(Duration::from_secs(20))
    }
}

fn name(number: usize) -> String {
    format!("psbr{number}")
}

impl Uplink {
    /// The same when something else would be lost: routes, or that received packets are merged, which a bridge turns off for
    /// good (`dev_disable_lro`).
    fn refuse_needed(&self) -> String {
        let Uplink { interface, .. } = self;
        format!(
            "for f in 4 6; do \"$ip\" -$f route show dev {interface} 2>/dev/null | while read -r r rest; do\n\
             case $r in fe80:*|ff00:*|198.1[89].*|'') ;; *) exit 1 ;; esac; done || no 'routes lead over {interface}'; done\n\
             case $(ethtool -k {interface} 2>/dev/null) in *'large-receive-offload: on'*)\n\
             no 'a bridge would turn large-receive-offload of {interface} off for good: ethtool -K {interface} lro off' ;; esac\n"
        )
    }

    /// Puts the interface into the bridge. One that somebody else took meanwhile is left to them.
    pub fn join(&self) -> Command {
        let (interface, bridge) = (&self.interface, name(self.number));
        shell(&format!(
            "[ -e /sys/class/net/{bridge}/brif/{interface} ] && exit 0\n{}\
             exec \"$ip\" link set dev {interface} master {bridge}\n",
            refuse_taken(interface)
        ))
        .deadline(Duration::from_secs(20))
    }

    /// Takes it out again: the kernel takes back what it set for it (promiscuity).
    pub fn leave(&self) -> Command {
        let (interface, bridge) = (&self.interface, name(self.number));
        shell(&format!(
            "[ -e /sys/class/net/{bridge}/brif/{interface} ] || exit 0\n\
             exec \"$ip\" link set dev {interface} nomaster\n"
        ))
        .deadline(Duration::from_secs(20))
    }
}

/// Ends the script when somebody has the interface: a bond, a VLAN on it, an address but a link-local one, or one of the
/// run's, which is for another path.
pub(super) fn refuse_taken(interface: &str) -> String {
    format!(
        "no() {{ echo \"$1\" >&2; exit 1; }}\n\
         for u in /sys/class/net/{interface}/upper_* /sys/class/net/{interface}/master; do\n\
         [ -e \"$u\" ] && no \"{interface} is in use (${{u##*/}})\"; done\n\
         \"$ip\" -o address show dev {interface} 2>/dev/null | while read -r n i f a rest; do\n\
         case \"$f $a\" in 'inet6 fe80:'*|'inet 198.1'[89].*|' ') ;; *) exit 1 ;; esac; done || \
         no '{interface} has addresses'\n"
    )
}
