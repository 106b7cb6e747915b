//! A container inside a VM for the time of a sample: a network namespace that has a VF of the VM's own NIC, or something in
//! software over its PF. It is made before each sample and taken back after it, since a bridge, macvlan and ipvlan each want the
//! PF for themselves; what a Penstock that is killed leaves is taken back by a keeper in the VM, and by the next run.

use std::{fmt::Write, net::Ipv4Addr, time::Duration};

use penstock_host::{Command, process::quoted};
use penstock_model::{Mac, Mtu, measurement::PathKind};

use super::{
    addresses::LENGTH,
    bridge::{ALIAS, refuse_taken},
    lease::{FIND_IP, is_made, shell},
    open_vswitch,
};

/// What the names of namespaces that are made for a run begin with.
const NAME: &str = "penstock-measure-";

/// Where iproute2 has the names of namespaces (`NETNS_RUN_DIR`).
const NAMESPACES: &str = "/var/run/netns";

/// How long making it and taking it back may take.
const MAKING: Duration = Duration::from_secs(60);

/// How [`SampleContainer::around`] ends where it could not be made; no tool that is run there ends so.
const NOT_MADE: i32 = 121;

/// The same where it could not be taken back.
const NOT_TAKEN_BACK: i32 = 122;

/// The table of nftables that translates addresses for a sample.
const TABLE: &str = "penstock_measure";

/// A container in a VM, which is there during a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleContainer {
    /// Its number among those of the run.
    pub number: usize,
    /// What its namespace says of itself, without how it is attached.
    pub alias: String,
    /// How it is attached.
    pub path: PathKind,
    /// The interface in the VM that it gets, or that it is attached to.
    pub device: String,
    /// The address of that.
    pub device_mac: Mac,
    /// How long a packet may be.
    pub mtu: Mtu,
    /// The addresses of the pair, the client's first.
    pub outer: [Ipv4Addr; 2],
    /// The MAC address of the other end.
    pub far: Mac,
    /// Where addresses are translated: the gateway's and the container's own.
    pub inner: Option<[Ipv4Addr; 2]>,
}

/// Whether a container of this path has the VM's interface for itself, so that one in use is left alone.
pub fn takes_interface(path: PathKind) -> bool {
    matches!(path, PathKind::VmVf | PathKind::VmBridge | PathKind::VmOvs)
}

impl SampleContainer {
    /// What its namespace says of itself, for the run of this mark.
    pub fn alias(mark: &str) -> String {
        format!("{ALIAS} {mark}")
    }

    /// Its network namespace.
    pub fn namespace(&self) -> String {
        format!("{NAME}{}", self.number)
    }

    /// Name of its interface: the VF's own for [`PathKind::VmVf`], else `psinN`, which is made for it.
    pub fn interface(&self) -> String {
        match self.path {
            PathKind::VmVf => self.device.clone(),
            _ => format!("psin{}", self.number),
        }
    }

    /// The address of its interface. What is made is locally administered (IEEE 802, 8.4).
    pub fn mac(&self) -> Mac {
        match self.path {
            PathKind::VmVf | PathKind::VmIpvlan => self.device_mac,
            _ => self.made_mac(0),
        }
    }

    /// The address that the other end sends to.
    pub fn outer_mac(&self) -> Mac {
        if self.inner.is_some() { self.device_mac } else { self.mac() }
    }

    /// The address that it sends from.
    pub fn address(&self) -> Ipv4Addr {
        self.inner.map_or(self.outer[0], |[_, own]| own)
    }

    fn made_mac(&self, side: u8) -> Mac {
        Mac::new([0x02, 0x70, 0x73, 1, self.number as u8, side])
    }

    fn bridge(&self) -> String {
        format!("psbr{}", self.number)
    }

    /// The end of its veth that is in the VM, where it has one.
    fn port(&self) -> String {
        format!("psve{}", self.number)
    }

    /// The command that makes it in the VM, runs another one there, and takes it back, with the end of that one. One command for
    /// all, and few processes: on a slow machine each is dear. [`SampleContainer::failure`] tells what became of it.
    pub fn around(&self, command: &Command) -> Command {
        let (back, make, namespace) = (back(), self.make(), self.namespace());
        let (said, take_back) = (self.said(), self.take_back("\"$v\""));
        let script = format!(
            "{FIND_IP}{back}f=$({make}) || exit {NOT_MADE}\n\
             \"$ip\" netns exec {namespace} \"$@\"\ns=$?\n\
             v=\"{said}$f\"\nl=$({take_back})\n\
             [ -z \"$l\" ] || {{ echo \"$l\" >&2; exit {NOT_TAKEN_BACK}; }}\nexit $s\n",
        );
        let mut around = Command::new("sh")
            .args(["-c", &script, "sh"])
            .arg(command.program())
            .args(command.arguments())
            .input(command.standard_input());
        for (name, value) in command.environment() {
            around = around.env(name, value);
        }
        match command.time_allowed() {
            Some(deadline) => around.deadline(deadline + MAKING),
            None => around,
        }
    }

    /// What went wrong with it, in words, by how [`SampleContainer::around`] ended and what was `said` on its standard error.
    pub fn failure(&self, status: Option<i32>, said: &str, place: &str) -> Option<String> {
        let (path, namespace) = (self.path, self.namespace());
        match status {
            Some(NOT_MADE) => Some(format!("no container could be made for {path} {place}: {said}")),
            Some(NOT_TAKEN_BACK) => {
                Some(format!("the container of {path} ({namespace}) could not be taken back {place}: {said}"))
            }
            _ => None,
        }
    }

    /// What its namespace says of itself and of how it is attached, but for the last word: whether the VM forwarded what came in by
    /// the interface (`$f`).
    fn said(&self) -> String {
        let [own, server] = self.outer;
        let (path, device, bridge) = (self.path.to_string().replace(' ', "-"), &self.device, self.bridge());
        format!("{}|{path} {device} {bridge} {own} {server} ", self.alias)
    }

    /// Makes it, in the VM's shell, and prints `$f`. What runs that were killed left is taken back first.
    fn make(&self) -> String {
        let (namespace, device, interface) = (self.namespace(), &self.device, self.interface());
        let mut script = format!(
            "no() {{ echo \"$1\" >&2; exit 1; }}\n\
             for n in {NAMESPACES}/{NAME}*; do [ -e \"$n\" ] && back \"${{n##*/}}\" >&2; done\n"
        );
        script.push_str(&open_vswitch::remove_left_over());
        if takes_interface(self.path) {
            script.push_str(&refuse_taken(device));
        }
        // Writing to a `String` cannot fail, here and below.
        let _ = writeln!(
            script,
            "f=; {{ read -r f </proc/sys/net/ipv4/conf/{device}/forwarding; }} 2>/dev/null\n\
             \"$ip\" netns add {namespace} || no 'no network namespace could be made'\n\
             \"$ip\" -n {namespace} link set dev lo alias \"{}$f\" up || {{ \"$ip\" netns del {namespace}; exit 1; }}\n\
             fail() {{ back {namespace} >/dev/null 2>&1; no \"$1\"; }}",
            self.said(),
        );
        let _ = writeln!(
            script,
            "s=$(\"$ip\" -batch - 2>&1 <<'END'\n{}END\n) || fail \"$s\"",
            lines(self.outside())
        );
        if self.path == PathKind::VmOvs {
            let make = open_vswitch::make(&self.bridge(), &self.alias, [device, &self.port()]);
            let _ = writeln!(script, "set -f; s=$({make}) && [ -z \"$s\" ] || fail \"$(echo $s)\"; set +f");
        }
        let inside = lines(self.inside(&interface));
        let _ = writeln!(
            script,
            "s=$(\"$ip\" -n {namespace} -batch - 2>&1 <<'END'\n{inside}END\n) || fail \"$s\""
        );
        if self.path == PathKind::VmOvs {
            script.push_str(&open_vswitch::prime(&namespace, self.outer[1]));
        }
        if let Some([_, own]) = self.inner {
            let bridge = self.bridge();
            let _ = writeln!(
                script,
                "for i in {bridge} {device}; do echo 1 >/proc/sys/net/ipv4/conf/$i/forwarding || fail \"$i cannot forward\"; done\n\
                 s=$(nft -f - 2>&1 <<'END'\n\
                 table ip {TABLE} {{\n\
                 chain forward {{ type filter hook forward priority 0; policy accept;\n\
                 ct state established,related accept\n\
                 ct state invalid drop\n\
                 iifname {bridge} oifname {device} accept; }}\n\
                 chain postrouting {{ type nat hook postrouting priority 100; policy accept;\n\
                 oifname {device} ip saddr {own} masquerade; }}\n\
                 }}\nEND\n) || fail \"$s\""
            );
        }
        script.push_str("echo \"$f\"\n");
        script
    }

    /// What `ip` is told in the VM.
    fn outside(&self) -> Vec<String> {
        let (namespace, device, interface, mtu) =
            (self.namespace(), &self.device, self.interface(), self.mtu);
        let (mac, bridge, alias) = (self.mac(), self.bridge(), &self.alias);
        let port = self.port();
        let veth = || {
            vec![
                format!(
                    "link add name {port} mtu {mtu} type veth peer name {interface} mtu {mtu} address {mac} netns {namespace}"
                ),
                format!("link set dev {port} addrgenmode none up"),
            ]
        };
        let bridged = |address: String| {
            let mut lines = vec![
                format!("link add name {bridge} {address}type bridge stp_state 0 forward_delay 0"),
                format!("link set dev {bridge} alias \"{alias}\" addrgenmode none"),
            ];
            lines.extend(veth());
            lines.push(format!("link set dev {port} master {bridge}"));
            lines.push(format!("link set dev {bridge} up"));
            lines
        };
        let over = |kind: &str, address: String| {
            vec![format!(
                "link add link {device} name {interface} mtu {mtu} {address}netns {namespace} type {kind}"
            )]
        };
        match (self.path, self.inner) {
            (PathKind::VmBridgeNat, Some([gateway, own])) => {
                let [outer, server] = self.outer;
                let mut lines = bridged(format!("address {} ", self.made_mac(1)));
                lines.extend([
                    format!("address add {gateway}/{LENGTH} dev {bridge}"),
                    format!("neigh replace {own} lladdr {mac} dev {bridge} nud permanent"),
                    format!("address replace {outer}/{LENGTH} dev {device}"),
                    format!("neigh replace {server} lladdr {} dev {device} nud permanent", self.far),
                ]);
                lines
            }
            (PathKind::VmBridge, _) => {
                let mut lines = bridged(String::new());
                lines.push(format!("link set dev {device} master {bridge}"));
                lines
            }
            (PathKind::VmOvs, _) => veth(),
            (PathKind::VmMacvlan, _) => over("macvlan mode bridge", format!("address {mac} ")),
            (PathKind::VmIpvlan, _) => over("ipvlan mode l2", String::new()),
            _ => vec![format!("link set dev {device} netns {namespace}")],
        }
    }

    /// What `ip` is told in the namespace.
    fn inside(&self, interface: &str) -> Vec<String> {
        let own = self.address();
        let mut lines = vec![
            format!("link set dev {interface} up"),
            format!("address add {own}/{LENGTH} dev {interface}"),
        ];
        let server = self.outer[1];
        match self.inner {
            Some([gateway, _]) => {
                let mac = self.made_mac(1);
                lines.push(format!("neigh replace {gateway} lladdr {mac} dev {interface} nud permanent"));
                lines.push(format!("route replace {server}/32 via {gateway} dev {interface}"));
            }
            None => {
                lines.push(format!(
                    "neigh replace {server} lladdr {} dev {interface} nud permanent",
                    self.far
                ));
            }
        }
        lines
    }

    /// Takes it back, in the VM's shell that knows [`back`]; says `left` of what is there all the same. `said` is a word of the shell
    /// with what its namespace says of itself, where that is known.
    fn take_back(&self, said: &str) -> String {
        let namespace = self.namespace();
        format!(
            "b=$(back {namespace} {said} 2>&1)\n\
             [ ! -e {NAMESPACES}/{namespace} ] || echo \"left the network namespace {namespace}\" \"$b\"\n"
        )
    }

    /// Takes back these containers, in the VM's shell, and says `left` of what is there all the same.
    pub fn take_all_back(containers: &[SampleContainer]) -> String {
        if containers.is_empty() {
            return String::new();
        }
        back() + &containers.iter().map(|container| container.take_back("")).collect::<String>()
    }

    /// The command that takes it back where the one that made it did not come to it, with an error where it cannot.
    pub fn leave(&self) -> Command {
        let script = format!(
            "{}l=$({})\n[ -z \"$l\" ] || {{ echo \"$l\" >&2; exit {NOT_TAKEN_BACK}; }}\nexit 0\n",
            back(),
            self.take_back("")
        );
        shell(&script).deadline(MAKING)
    }
}

fn lines(lines: Vec<String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

/// A function of the shell that takes back the namespace that it is given, and what it is attached to, by what it says of
/// itself: an interface of the VM's own is given back to it, and is up as it was before. What was made is deleted before its
/// namespace, since the kernel deletes what is in a namespace some time after that is gone (`cleanup_net`), and the next
/// container would find its names and the PF taken.
fn back() -> String {
    format!(
        "back() {{ n=$1; v=$2\n\
         [ -n \"$v\" ] || v=$(\"$ip\" netns exec \"$n\" cat /sys/class/net/lo/ifalias 2>/dev/null)\n\
         case \"$v\" in {}*'|'*) ;; *) return 0 ;; esac\n\
         set -- ${{v#*|}}\n\
         case $1 in vm-ovs) {} ;; esac\n\
         case $1 in\n\
         vm-vf) \"$ip\" -n \"$n\" link set dev \"$2\" netns $$ && \"$ip\" link set dev \"$2\" up ;;\n\
         *) \"$ip\" -n \"$n\" link del dev psin${{n##*-}} 2>/dev/null ;; esac\n\
         case $1 in\n\
         vm-bridge*) {} && \"$ip\" link del dev \"$3\" ;; esac\n\
         case $1 in vm-bridge-nat) nft delete table ip {TABLE} 2>/dev/null\n\
         [ $# = 6 ] && echo \"$6\" >/proc/sys/net/ipv4/conf/$2/forwarding && \"$ip\" address del \"$4/{LENGTH}\" dev \"$2\" && \
         \"$ip\" neigh flush to \"$5\" dev \"$2\" nud permanent ;; esac\n\
         \"$ip\" netns del \"$n\"; }}\n",
        quoted(&format!("{ALIAS} ")),
        open_vswitch::remove("$3"),
        is_made("$3", &format!("{}*", quoted(&format!("{ALIAS} ")))),
    )
}
