//! A veth into a container that is a port of a bridge of the host's own: what stands in the place of a container's NIC, for a comparison.
//! The bridge is not touched but for its new port: its address and its MTU stay as they are.

use std::{fmt::Write, time::Duration};

use penstock_host::{Command, process::quoted};
use penstock_model::{Mac, Mtu, digest::sha256};

use super::{
    bridge::remove_left_over,
    lease::{TestLink, shell},
};

/// A veth into a network namespace, whose other end is a port of a bridge.
#[derive(Clone, Debug)]
pub struct Veth {
    /// Its number among what the run makes on the host.
    pub number: usize,
    /// Its alias.
    pub alias: String,
    /// A process in the namespace, as the host numbers it.
    pub process: u32,
    /// The bridge's interface.
    pub bridge: String,
    /// The bridge's MTU: a port with a smaller one would make it smaller, too (`br_mtu_auto_adjust`).
    pub of_bridge: Mtu,
    /// The MTU of the interface in the namespace.
    pub mtu: Mtu,
}

impl Veth {
    fn port(&self) -> String {
        format!("psve{}a", self.number)
    }

    /// The interface in the namespace.
    pub fn inside(&self) -> String {
        format!("psin{}a", self.number)
    }

    /// The MAC address of that interface, locally administered (IEEE 802, 8.4). The bridge leads out of the host: no other run, here or
    /// elsewhere, has the same one.
    pub fn mac(&self) -> Mac {
        self.address(0x02)
    }

    fn address(&self, first: u8) -> Mac {
        let digest = sha256(format!("{} {} {}", self.alias, self.number, self.process));
        let octet = |at: usize| {
            digest
                .get(2 * at..2 * at + 2)
                .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                .unwrap_or_default()
        };
        Mac::new([first, octet(0), octet(1), octet(2), octet(3), octet(4)])
    }

    /// What was made on the host; the other end goes with it.
    pub fn made(&self) -> TestLink {
        TestLink { name: self.port(), alias: self.alias.clone() }
    }

    /// The command that makes it, on the host. A bridge that speaks the spanning tree protocol is refused: it would let the first frame
    /// through after twice its forward delay.
    pub fn make(&self) -> Command {
        let Veth { alias, of_bridge, mtu, process, .. } = self;
        let (port, inside, mac) = (self.port(), self.inside(), self.mac());
        // A bridge without an address of its own has the lowest of its ports' (`br_stp_recalculate_bridge_id`).
        let outer = self.address(0xfe);
        let mut script = remove_left_over(alias);
        // Writing to a `String` cannot fail. What else is at the bridge asks for the container's addresses, and advertises routes: it is
        // not to hear or to be heard there.
        let _ = writeln!(
            script,
            "no() {{ echo \"$1\" >&2; exit 1; }}\nb={}\n\
             [ -d \"/sys/class/net/$b/bridge\" ] || no \"$b is no bridge\"\n\
             read -r s <\"/sys/class/net/$b/bridge/stp_state\"; [ \"$s\" = 0 ] || \
             no \"$b speaks the spanning tree protocol, and lets nothing through a new port for a while\"\n\
             \"$ip\" -batch - <<'END' || exit 1\n\
             link add name {port} mtu {of_bridge} address {outer} type veth peer name {inside} mtu {mtu} address {mac} netns {process}\n\
             link set dev {port} alias \"{alias}\" addrgenmode none\n\
             END\n\
             nsenter --net=/proc/{process}/ns/net sh -c '\
             echo 8 >/proc/sys/net/ipv4/conf/{inside}/arp_ignore && \
             if [ -e /proc/sys/net/ipv6/conf/{inside} ]; then echo 1 >/proc/sys/net/ipv6/conf/{inside}/disable_ipv6; fi' || \
             no '{inside} cannot be kept from answering for other addresses'\n\
             exec \"$ip\" link set dev {port} master \"$b\" up",
            quoted(&self.bridge)
        );
        shell(&script).deadline(Duration::from_secs(20))
    }
}
