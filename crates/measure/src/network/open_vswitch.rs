//! A bridge of Open vSwitch in a VM for the time of a sample. The VM's own Open vSwitch makes it, with the datapath that this has: what
//! container networks on Open vSwitch do there.

use std::net::Ipv4Addr;

use penstock_host::process::quoted;

use super::bridge::ALIAS;

/// Where Open vSwitch says of a bridge to whom it belongs (`external_ids` of the table `Bridge`, ovs-vswitchd.conf.db(5)).
const OWNER: &str = "penstock";

/// How long `ovs-vsctl` waits for the database, and for `ovs-vswitchd` to have done what it is told, in seconds.
const TIMEOUT: u32 = 20;

/// How long an answer is waited for, in seconds.
const PRIMING: u32 = 3;

/// Makes a bridge with these ports, in the VM's shell, and prints what went wrong: `ovs-vsctl` ends well also where a port could not be
/// opened, and says so. It forwards as a learning switch does (`NORMAL`), which a bridge without a controller does by itself.
pub(super) fn make(bridge: &str, alias: &str, ports: [&str; 2]) -> String {
    let [uplink, port] = ports;
    format!(
        "ovs-vsctl --timeout={TIMEOUT} add-br {bridge} -- br-set-external-id {bridge} {OWNER} {} -- add-port {bridge} {uplink} -- \
         add-port {bridge} {port} 2>&1",
        quoted(alias)
    )
}

/// Has it learn its flows, in the VM's shell that knows `$ip`: a first frame, and one that is a fragment, are looked up by `ovs-vswitchd`, which
/// takes longer than a sample where processors are emulated. A far end that does not answer is found out by the sample.
pub(super) fn prime(namespace: &str, far: Ipv4Addr) -> String {
    let ping = |size| {
        format!("\"$ip\" netns exec {namespace} ping -c 1 -w {PRIMING} -s {size} {far} >/dev/null 2>&1\n")
    };
    ping(64) + &ping(4000)
}

/// Removes a bridge that was made for a run, in the VM's shell. The database keeps it beyond a reset of the VM.
pub(super) fn remove(bridge: &str) -> String {
    format!(
        "case \"$(ovs-vsctl --timeout={TIMEOUT} br-get-external-id \"{bridge}\" {OWNER} 2>/dev/null)\" in {}*) \
         ovs-vsctl --timeout={TIMEOUT} del-br \"{bridge}\" ;; esac",
        quoted(&format!("{ALIAS} "))
    )
}

/// Removes the bridges of all runs that were killed, or whose VM was reset: each has the PF that the next sample needs. Each has an
/// interface of its name, which is no bridge of Linux (these have `bridge` in sysfs).
pub(super) fn remove_left_over() -> String {
    format!(
        "for b in /sys/class/net/psbr*; do b=${{b##*/}}\n\
         [ -e /sys/class/net/$b ] && [ ! -e /sys/class/net/$b/bridge ] && {{ {}; }}\ndone\n",
        remove("$b")
    )
}
