//! Veths into containers that are ports of a bridge of the host's own: what stands in the place of containers' NICs, for a comparison.
//! The bridge is not touched but for its new ports: its address and its MTU stay as they are.

use std::{fmt::Write, time::Duration};

use penstock_host::Command;
use penstock_model::{Mac, Mtu};

use super::{
    bridge::remove_left_over,
    lease::{Made, shell},
};

/// A veth into each of some network namespaces, all ports of one bridge.
#[derive(Clone, Debug)]
pub struct Veths {
    /// Their number among what the run makes on the host.
    pub number: usize,
    /// Their alias.
    pub alias: String,
    /// A process in each namespace, as the host numbers it.
    pub processes: Vec<u32>,
    /// The bridge's interface.
    pub bridge: String,
    /// The bridge's MTU: a port with a smaller one would make it smaller, too (`br_mtu_auto_adjust`).
    pub of_bridge: Mtu,
    /// The MTU of the interfaces in the namespaces.
    pub mtu: Mtu,
}

impl Veths {
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

    /// What was made on the host; the other ends go with it.
    pub fn made(&self) -> Vec<Made> {
        let ports = (0..self.processes.len()).map(|side| self.port(side));
        ports.map(|name| Made { name, alias: self.alias.clone() }).collect()
    }

    /// The command that makes them, on the host. A bridge that speaks the spanning tree protocol is refused: it would let the first frame
    /// through after twice its forward delay.
    pub fn make(&self) -> Command {
        let Veths { alias, bridge, of_bridge, mtu, .. } = self;
        let mut script = remove_left_over(alias);
        // Writing to a `String` cannot fail, here and below.
        let _ = writeln!(
            script,
            "no() {{ echo \"$1\" >&2; exit 1; }}\n\
             [ -d /sys/class/net/{bridge}/bridge ] || no '{bridge} is no bridge'\n\
             read -r s </sys/class/net/{bridge}/bridge/stp_state; [ \"$s\" = 0 ] || \
             no '{bridge} speaks the spanning tree protocol, and lets nothing through a new port for a while'\n\
             \"$ip\" -batch - <<'END' || exit 1"
        );
        // A bridge without an address of its own has the lowest of its ports' (`br_stp_recalculate_bridge_id`).
        for (side, process) in self.processes.iter().enumerate() {
            let (port, inside, mac) = (self.port(side), self.inside(side), self.mac(side));
            let [.., number, side] = mac.octets();
            let outer = Mac::new([0xfe, 0x70, 0x73, 0, number, side]);
            let _ = writeln!(
                script,
                "link add name {port} mtu {of_bridge} address {outer} type veth peer name {inside} mtu {mtu} address {mac} netns {process}\n\
                 link set dev {port} alias \"{alias}\" addrgenmode none"
            );
        }
        let _ = writeln!(script, "END");
        // What else is at the bridge asks for the container's addresses, and advertises routes: it is not to hear or to be heard there.
        for (side, process) in self.processes.iter().enumerate() {
            let inside = self.inside(side);
            let _ = writeln!(
                script,
                "nsenter --net=/proc/{process}/ns/net sh -c '\
                 echo 8 >/proc/sys/net/ipv4/conf/{inside}/arp_ignore && \
                 if [ -e /proc/sys/net/ipv6/conf/{inside} ]; then echo 1 >/proc/sys/net/ipv6/conf/{inside}/disable_ipv6; fi' || \
                 no '{inside} cannot be kept from answering for other addresses'"
            );
        }
        let _ = writeln!(script, "exec \"$ip\" -batch - <<'END'");
        for side in 0..self.processes.len() {
            let _ = writeln!(script, "link set dev {} master {bridge} up", self.port(side));
        }
        let _ = writeln!(script, "END");
        shell(&script).deadline(Duration::from_secs(20))
    }
}
