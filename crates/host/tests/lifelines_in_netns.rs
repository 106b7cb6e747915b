//! Default routes and the way to an SSH client in a real network namespace, over interfaces that `ip` stacks there.
#![allow(clippy::disallowed_methods)]

use std::{net::IpAddr, path::Path, process::ExitCode};

use penstock_host::{
    Command, Netlink, Root,
    scan::lifelines::{Started, lifelines},
};
use penstock_model::inventory::Lifelines;
use penstock_testkit::{namespace::Namespace, needs, trials::Trials};
use tempfile::TempDir;

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let no_mount = missing.clone().or_else(|| {
        trials.lacking("interface stacks", || {
            let line = "mount -t sysfs none /mnt";
            let outcome = Command::new("unshare").args(["--net", "--mount", "sh", "-c", line]).succeed();
            outcome.err().map(|error| error.to_string())
        })
    });
    let plain: [(&str, fn()); 8] = [
        ("a_bridge_is_followed_to_its_ports_in_netns", a_bridge_is_followed_to_its_ports),
        ("a_link_local_client_is_at_what_holds_our_address_in_netns", a_link_local_client),
        ("default_routes_of_all_tables_are_found_in_netns", default_routes_of_all_tables_are_found),
        ("each_next_hop_counts_in_netns", each_next_hop_counts),
        ("the_way_to_the_client_is_followed_in_netns", the_way_to_the_client_is_followed),
        (
            "what_holds_the_address_of_a_connection_is_followed_in_netns",
            what_holds_the_address_of_a_connection_is_followed,
        ),
        ("the_way_to_a_named_peer_is_followed_in_netns", the_way_to_a_named_peer_is_followed),
        ("without_a_route_there_is_none_in_netns", without_a_route_there_is_none),
    ];
    let bond = no_mount.clone().or_else(|| trials.lacking("bonds", || without_kind("bond")));
    let vlan = no_mount.clone().or_else(|| {
        let line = "ip link add d type bridge && ip link add link d name v type vlan id 7";
        trials.lacking("VLANs", || without(line))
    });
    let vrf = no_mount
        .clone()
        .or_else(|| trials.lacking("VRFs", || without("ip link add name x type vrf table 77")));
    trials.add(&no_mount, plain);
    trials.add(&vrf, [("the_routes_of_a_vrf_lead_back_in_netns", the_routes_of_a_vrf_lead_back as fn())]);
    trials
        .add(&bond, [("a_bond_is_followed_to_its_ports_in_netns", a_bond_is_followed_to_its_ports as fn())]);
    trials.add(&vlan, [("a_vlan_on_a_bridge_is_followed_in_netns", a_vlan_on_a_bridge_is_followed as fn())]);
    trials.run()
}

fn without_kind(kind: &str) -> Option<String> {
    without(&format!("ip link add x type {kind}"))
}

fn without(line: &str) -> Option<String> {
    let made = Command::new("unshare").args(["--net", "sh", "-c", line]).succeed();
    made.err().map(|error| format!("this kernel has none: {error}"))
}

/// A namespace with its own sysfs in a directory that stands for the machine.
struct Testbed {
    namespace: Namespace,
    tree: TempDir,
}

impl Testbed {
    fn new(lines: &str) -> Testbed {
        let namespace = Namespace::new();
        namespace.batch("ip", lines);
        let tree = tempfile::tempdir().unwrap();
        let sys = tree.path().join("sys");
        std::fs::create_dir(&sys).unwrap();
        // A sysfs shows the interfaces of the namespace in which it was mounted.
        namespace.run(&format!("mount -t sysfs none {}", sys.display()));
        Testbed { namespace, tree }
    }

    /// For a Penstock that was started from this connection, which lives.
    fn look(&self, ssh_connection: Option<&str>) -> Lifelines {
        let net = self.tree.path().join("proc/net");
        std::fs::create_dir_all(&net).unwrap();
        let row = ssh_connection.map(row).unwrap_or_default();
        std::fs::write(net.join("tcp6"), format!("  sl  local_address remote_address st\n{row}")).unwrap();
        let ssh_connection = ssh_connection.map(str::to_owned);
        self.look_as(Started { ssh_connection, ..Started::default() })
    }

    fn look_as(&self, started: Started) -> Lifelines {
        let mut netlink = Netlink::in_namespace_of(self.namespace.id).unwrap();
        lifelines(&Root::at(self.tree.path()), Some(&mut netlink), &started)
    }

    /// What is told to be unknown of the SSH connection.
    fn lost_of_ssh(&self, ssh_connection: &str) -> Vec<String> {
        let found = self.look(Some(ssh_connection));
        let lost = found.unknown.into_iter().filter(|unknown| unknown.sort.word() == "ssh");
        let mut lost: Vec<String> = lost.map(|unknown| unknown.why).collect();
        lost.sort();
        lost
    }

    fn shown(&self, ssh_connection: Option<&str>) -> Vec<String> {
        let found = self.look(ssh_connection);
        // The other ends of these veth are routed nowhere: which ones were come to is in what is told of that.
        let lost = found.unknown.into_iter().filter_map(|unknown| {
            let (start, rest) = unknown.why.split_once(": ")?;
            let top = start.strip_prefix("the interfaces below ")?;
            Some(format!("{}: {top} > {}", unknown.sort.word(), rest.split(' ').next()?))
        });
        let mut lost: Vec<String> = lost.collect();
        lost.sort();
        lost
    }
}

/// An established connection as `/proc/net/tcp6` has it, where IPv4 may come mapped into IPv6.
fn row(ssh_connection: &str) -> String {
    let end = |address: &str, port: &str| {
        let address = address.split('%').next().unwrap().parse().unwrap();
        let six = match address {
            IpAddr::V4(four) => four.to_ipv6_mapped(),
            IpAddr::V6(six) => six,
        };
        let words = six.octets();
        let words = words.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        let words: String = words.map(|word| format!("{word:08X}")).collect();
        format!("{words}:{:04X}", port.parse::<u16>().unwrap())
    };
    let fields: Vec<&str> = ssh_connection.split(' ').collect();
    let (peer, local) = (end(fields[0], fields[1]), end(fields[2], fields[3]));
    format!("0: {local} {peer} 01 0:0 0:0 0 0 0 901 1\n")
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let sys = self.tree.path().join("sys");
        let _ = Command::new("umount").arg("--lazy").arg(Path::new(&sys)).succeed();
    }
}

const TWO: &str = "link add d0 type veth peer name p0\nlink add d1 type veth peer name p1\nlink set d0 up\n\
    link set d1 up\nlink set p0 up\nlink set p1 up\n\
    address add 192.0.2.2/24 dev d0\naddress add 198.51.100.2/24 dev d1\naddress add 2001:db8::2/64 dev d1 nodad\n";

fn kinds(found: &Lifelines) -> Vec<String> {
    let mut kinds: Vec<String> = found.found.iter().map(|lifeline| lifeline.kind.to_string()).collect();
    kinds.sort();
    kinds
}

fn default_routes_of_all_tables_are_found() {
    let testbed = Testbed::new(&format!(
        "{TWO}route add default via 192.0.2.1 dev d0\nroute add default via 198.51.100.1 dev d1 table 1000\n\
         route add default via 2001:db8::1 dev d1\nroute add unreachable default metric 999\n\
         route add 203.0.113.0/24 via 192.0.2.1\n"
    ));
    assert_eq!(
        kinds(&testbed.look(None)),
        ["the default route of IPv4", "the default route of IPv4 in table 1000", "the default route of IPv6"]
    );
    assert_eq!(testbed.shown(None), ["default-route: d0 > d0", "default-route: d1 > d1"]);
}

fn each_next_hop_counts() {
    let testbed = Testbed::new(&format!(
        "{TWO}route add default nexthop via 192.0.2.1 dev d0 nexthop via 198.51.100.1 dev d1\n"
    ));
    assert_eq!(testbed.shown(None), ["default-route: d0 > d0", "default-route: d1 > d1"]);
    // The two halves of a VPN that leaves the default route itself alone.
    let testbed = Testbed::new(&format!("{TWO}route add 0.0.0.0/1 dev d0\nroute add 128.0.0.0/1 dev d0\n"));
    assert_eq!(kinds(&testbed.look(None)), ["the default route of IPv4"]);
    let hops = format!(
        "{TWO}nexthop add id 1 via 192.0.2.1 dev d0\nnexthop add id 2 via 198.51.100.1 dev d1\n\
         nexthop add id 9 group 1/2\nroute add default nhid 9\n"
    );
    let testbed = Testbed::new(&hops);
    assert_eq!(testbed.shown(None), ["default-route: d0 > d0", "default-route: d1 > d1"]);
}

fn the_way_to_a_named_peer_is_followed() {
    let testbed = Testbed::new(&format!("{TWO}route add 203.0.113.0/24 via 198.51.100.1 dev d1\n"));
    let peers = ["203.0.113.9", "::ffff:192.0.2.7", "127.0.0.1", "10.9.8.7"];
    let peers = peers.iter().map(|peer| peer.parse().unwrap()).collect();
    let found = testbed.look_as(Started { peers, ..Started::default() });
    // One on this machine is no lifeline; one that no route leads to is said to be none that is known.
    assert_eq!(kinds(&found), ["the way to 10.9.8.7", "the way to 192.0.2.7", "the way to 203.0.113.9"]);
    let told = |words: &str| {
        found.unknown.iter().any(|unknown| unknown.sort.word() == "peer" && unknown.why.contains(words))
    };
    assert!(told("no route to 10.9.8.7"), "{found:?}");
    assert!(told("the interfaces below d0") && told("the interfaces below d1"), "{found:?}");
}

fn the_way_to_the_client_is_followed() {
    let testbed = Testbed::new(&format!(
        "{TWO}link set lo up\nroute add default via 192.0.2.1 dev d0\nroute add 203.0.113.0/24 via 198.51.100.1\n"
    ));
    let over = |peer: &str, local: &str| {
        let shown = testbed.shown(Some(&format!("{peer} 50000 {local} 22")));
        shown.into_iter().filter(|line| line.starts_with("ssh")).collect::<Vec<_>>()
    };
    assert_eq!(over("203.0.113.7", "198.51.100.2"), ["ssh: d1 > d1"]);
    assert_eq!(over("203.0.114.7", "192.0.2.2"), ["ssh: d0 > d0"]);
    assert_eq!(over("2001:db8::7", "2001:db8::2"), ["ssh: d1 > d1"]);
    // An address that is not here any more does not hide the way.
    assert_eq!(over("203.0.113.7", "10.0.0.1"), ["ssh: d1 > d1"]);
    // Who comes from this machine itself came to it over a connection that this does not tell.
    for own in ["127.0.0.1", "::1", "192.0.2.2", "2001:db8::2"] {
        let found = testbed.look(Some(&format!("{own} 50000 {own} 22")));
        assert!(!kinds(&found).iter().any(|kind| kind.contains("SSH")), "{own}: {found:?}");
        let told = |words: &str| found.unknown.iter().any(|unknown| unknown.why.contains(words));
        assert!(told("it was started over SSH from this machine itself"), "{own}: {found:?}");
    }
}

/// What is told of the ways below an end of a cable that leads nowhere else.
fn followed(name: &str) -> String {
    let peer = name.replace('d', "p");
    format!(
        "the interfaces below {name}: {name} goes to {peer}, and where it is routed from there is not known"
    )
}

/// Packets come in by the port whose address was called, and answers leave by the one with the default route.
fn what_holds_the_address_of_a_connection_is_followed() {
    let testbed = Testbed::new(&format!(
        "{TWO}link set lo up\nroute add default via 192.0.2.1 dev d0\naddress add 10.0.0.1/32 dev lo\n"
    ));
    let over = |local: &str| testbed.lost_of_ssh(&format!("203.0.113.7 50000 {local} 22"));
    assert_eq!(over("192.0.2.2"), [followed("d0")]);
    assert_eq!(over("198.51.100.2"), [followed("d0"), followed("d1")]);
    let arrives = "where the SSH connection from 203.0.113.7 that penstock was started from arrives";
    let lo = format!("lo holds 10.0.0.1, {arrives}, and over what that comes in is not known");
    assert_eq!(over("10.0.0.1"), [lo, followed("d0")]);
    let none = format!("no interface holds 10.9.9.9, {arrives}");
    assert_eq!(over("10.9.9.9"), [none, followed("d0")]);
}

/// `/proc/net/tcp6` does not say over which link such a peer is, and the kernel's route to it is that of any link.
fn a_link_local_client() {
    let testbed = Testbed::new(&format!(
        "{TWO}address add fe80::a/64 dev d0 nodad\naddress add fe80::b/64 dev d1 nodad\n\
         address add fe80::c/64 dev d0 nodad\naddress add fe80::c/64 dev d1 nodad\n"
    ));
    let over = |local: &str| testbed.lost_of_ssh(&format!("fe80::7 50000 {local} 22"));
    assert_eq!(over("fe80::a"), [followed("d0")]);
    assert_eq!(over("fe80::b"), [followed("d1")]);
    assert_eq!(over("2001:db8::2"), [followed("d1")]);
    assert_eq!(over("fe80::c"), [followed("d0"), followed("d1")]);
    let none = "no interface holds fe80::d, where the SSH connection from fe80::7 that penstock was started from arrives";
    assert_eq!(over("fe80::d"), [none]);
    // A scope says it, whoever else holds the address.
    assert_eq!(testbed.lost_of_ssh("fe80::7%d1 50000 fe80::c%d1 22"), [followed("d1")]);
}

/// Management over d1 in a VRF, everything else over d0.
fn the_routes_of_a_vrf_lead_back() {
    let testbed = Testbed::new(&format!(
        "link add name mgmt type vrf table 77\nlink set mgmt up\n{TWO}link set d1 master mgmt\n\
         route add default via 192.0.2.1 dev d0\nroute add 203.0.113.0/24 via 198.51.100.1 dev d1 table 77\n\
         link add d2 type veth peer name p2\nlink set d2 master mgmt\nlink set d2 up\nlink set p2 up\n\
         address add 198.18.0.2/24 dev d2\n"
    ));
    let over = |local: &str| testbed.lost_of_ssh(&format!("203.0.113.7 50000 {local} 22"));
    assert_eq!(over("198.51.100.2"), [followed("d1")]);
    // In by one port of the VRF, back by the other.
    assert_eq!(over("198.18.0.2"), [followed("d1"), followed("d2")]);
    assert_eq!(over("192.0.2.2"), [followed("d0")]);
}

fn without_a_route_there_is_none() {
    let testbed = Testbed::new("link add d0 type veth peer name p0\n");
    let found = testbed.look(Some("203.0.113.7 50000 198.51.100.2 22"));
    assert_eq!(kinds(&found), ["the SSH connection from 203.0.113.7 that penstock was started from"]);
    assert!(
        found.unknown.iter().any(|unknown| unknown.why.contains("no route to 203.0.113.7")),
        "{found:#?}"
    );
    let default_routes = found.unknown.iter().filter(|unknown| unknown.sort.word() == "default-route");
    assert_eq!(default_routes.count(), 0, "that there is none is known: {found:#?}");
}

fn a_bond_is_followed_to_its_ports() {
    let testbed = Testbed::new(
        "link add bond0 type bond\nlink add d0 type veth peer name p0\nlink add d1 type veth peer name p1\nlink set d0 master bond0\n\
         link set d1 master bond0\nlink set bond0 up\naddress add 192.0.2.2/24 dev bond0\n\
         route add default via 192.0.2.1\n",
    );
    assert_eq!(testbed.shown(None), ["default-route: bond0 > d0", "default-route: bond0 > d1"]);
}

fn a_vlan_on_a_bridge_is_followed() {
    follows_a_bridge("link add link br0 name over type vlan id 7\nlink set over up\n", "over");
}

fn a_bridge_is_followed_to_its_ports() {
    follows_a_bridge("", "br0");
}

/// A bridge with a port and a veth into another bridge with a port, and the default route over `over`, which `made` makes.
fn follows_a_bridge(made: &str, over: &str) {
    let testbed = Testbed::new(&format!(
        "link add br0 type bridge\nlink add d0 type veth peer name p0\nlink add v0 type veth peer name v1\n\
         link add br1 type bridge\nlink add d1 type veth peer name p1\nlink set d1 master br1\n\
         link set v1 master br1\nlink set d0 master br0\nlink set v0 master br0\nlink set br0 up\n\
         {made}address add 192.0.2.2/24 dev {over}\nroute add default via 192.0.2.1\n",
    ));
    let ports = ["d0", "d1"].map(|port| format!("default-route: {over} > {port}"));
    assert_eq!(testbed.shown(None), ports, "through the veth into the other bridge too");
}
