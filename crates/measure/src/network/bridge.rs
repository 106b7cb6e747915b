//! The baseline that SR-IOV replaces: a bridge on the host, and a veth from it into each of two containers.

use std::{fmt::Write, time::Duration};

use penstock_host::Command;
use penstock_model::Mac;

use super::lease::{Made, is_made, shell};

/// What the alias of a link that was made for a run begins with.
const ALIAS: &str = "penstock measure";

/// A bridge between two network namespaces.
#[derive(Clone, Debug)]
pub struct Bridge {
    number: usize,
    alias: String,
    /// A process in each namespace, as the host numbers it.
    processes: [u32; 2],
}

impl Bridge {
    /// The bridge of this number, for the run of this mark.
    pub fn new(number: usize, mark: &str, processes: [u32; 2]) -> Bridge {
        Bridge { number, alias: format!("{ALIAS} {mark}"), processes }
    }

    fn name(&self) -> String {
        format!("psbr{}", self.number)
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

    /// What was made on the host. What is inside the namespaces goes with it.
    pub fn made(&self) -> Vec<Made> {
        let names = [self.port(0), self.port(1), self.name()];
        names.into_iter().map(|name| Made { name, alias: self.alias.clone() }).collect()
    }

    /// The command that makes it, on the host. What a run that was killed left is removed first; a link of the same name that
    /// is somebody else's is left alone, and it fails.
    pub fn make(&self) -> Command {
        let (bridge, alias) = (self.name(), format!("\"{}\"", self.alias));
        let mut script = String::new();
        // Writing to a `String` cannot fail, here and below.
        for Made { name, .. } in self.made() {
            let ours = is_made(&name, &format!("'{ALIAS} '*"));
            let _ = writeln!(script, "{ours} && \"$ip\" link del dev {name}");
        }
        let _ = writeln!(
            script,
            "exec \"$ip\" -batch - <<'END'\n\
             link add name {bridge} type bridge stp_state 0 forward_delay 0\n\
             link set dev {bridge} alias {alias} addrgenmode none"
        );
        for (side, process) in self.processes.iter().enumerate() {
            let (port, inside, mac) = (self.port(side), self.inside(side), self.mac(side));
            let _ = writeln!(
                script,
                "link add name {port} type veth peer name {inside} address {mac} netns {process}\n\
                 link set dev {port} alias {alias} addrgenmode none\n\
                 link set dev {port} master {bridge} up"
            );
        }
        let _ = writeln!(script, "link set dev {bridge} up\nEND");
        shell(&script).deadline(Duration::from_secs(20))
    }
}
