//! What the lives of recorded machines hang on, also of hostile ones.
#![allow(clippy::disallowed_methods)]

mod ended;
mod machine;

use std::{fs, net::IpAddr, os::unix::fs::symlink, time::Instant};

use penstock_host::{
    PciFunction, Root,
    netlink::Route,
    scan::{
        LinkError,
        lifelines::{Routes, Started, lifelines},
    },
};
use penstock_model::inventory::{LifelineSort, Lifelines};
use penstock_testkit::sysfs;
use proptest::prelude::*;
use tempfile::TempDir;

use machine::{MOUNTED, NETWORK, STORAGE};

/// `198.51.100.0/24` over eth2 and everything else over `over`, in the byte order of this machine.
fn routes(over: &str) -> String {
    let address = |octets: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(octets));
    let all = "00000000";
    format!(
        "/proc/net/route <<END\nIface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
         {over}\t{all}\t{}\t0003\t0\t0\t100\t{all}\t0\t0\t0\n\
         eth2\t{}\t{all}\t0001\t0\t0\t0\t{}\t0\t0\t0\n\
         eth0\t{all}\t{all}\t0201\t0\t0\t0\t{all}\t0\t0\t0\nEND\n\
         /proc/net/ipv6_route <<END\n{all}{all}{all}{all} 00 {all}{all}{all}{all} 00 fe800000{all}{all}00000001 00000400 1 0 00000003 {over}\n\
         {all}{all}{all}{all} 00 {all}{all}{all}{all} 00 {all}{all}{all}{all} ffffffff 1 0 00200200 lo\nEND\n",
        address([192, 0, 2, 1]),
        address([198, 51, 100, 0]),
        address([255, 255, 255, 0]),
    )
}

fn planted(text: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    sysfs::plant(text, directory.path()).unwrap();
    directory
}

fn of(tree: &TempDir, started: &Started) -> Lifelines {
    let found = lifelines(&Root::at(tree.path()), None, started);
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Lifelines>(&json).unwrap(), found);
    found
}

fn read(text: &str) -> Lifelines {
    of(&planted(text), &Started::default())
}

/// Each path of each lifeline.
fn shown(found: &Lifelines) -> Vec<String> {
    let lines = found
        .found
        .iter()
        .flat_map(|lifeline| lifeline.paths.iter().map(move |path| format!("{}: {path}", lifeline.kind)));
    lines.collect()
}

fn unknown(found: &Lifelines, sort: LifelineSort, words: &str) -> bool {
    found.unknown.iter().any(|unknown| unknown.sort == sort && unknown.why.contains(words))
}

fn default_routes(over: &str) -> (Vec<String>, Lifelines) {
    let found = read(&format!("{NETWORK}{}", routes(over)));
    let shown = shown(&found)
        .into_iter()
        .filter_map(|line| line.strip_prefix("the default route of IPv4: ").map(str::to_owned));
    (shown.collect(), found)
}

#[test]
fn a_default_route_is_followed_through_vlan_and_bond_to_each_port() {
    let (paths, found) = default_routes("bond0.7");
    assert_eq!(paths, ["bond0.7, bond0, eth0, 0000:01:00.0", "bond0.7, bond0, eth1, 0000:01:00.1"]);
    assert!(
        shown(&found).contains(&"the default route of IPv6: bond0.7, bond0, eth1, 0000:01:00.1".to_owned())
    );
    // The rejected ones and the one over loopback are none.
    let kinds: Vec<String> = found.found.iter().map(|lifeline| lifeline.kind.to_string()).collect();
    assert_eq!(kinds, ["the default route of IPv4", "the default route of IPv6"]);
    assert!(unknown(&found, LifelineSort::DefaultRoute, "other tables"), "{found:#?}");
}

#[test]
fn a_default_route_is_followed_through_other_stacks() {
    for (over, expected) in [
        ("eth2", &["eth2, 0000:02:00.0"][..]),
        ("usb0", &["usb0, 0000:03:00.0"]),
        ("br-ex", &["br-ex, ovs-system, eth2, 0000:02:00.0"]),
        ("veth0", &["veth0, veth1, br0, usb0, 0000:03:00.0"]),
    ] {
        let (paths, found) = default_routes(over);
        assert_eq!(paths, expected, "{over}: {found:#?}");
        let lost = found.unknown.iter().filter(|unknown| unknown.why.contains("the interfaces below"));
        assert_eq!(lost.count(), 0, "{over}: {found:#?}");
    }
}

#[test]
fn where_an_interface_goes_on_unseen_that_is_told() {
    for (over, words) in [
        ("away", "another network namespace"),
        ("wg0", "made by software"),
        ("gone", "/sys/class/net/gone is not there"),
    ] {
        let (paths, found) = default_routes(over);
        assert_eq!(paths, Vec::<String>::new());
        assert!(unknown(&found, LifelineSort::DefaultRoute, words), "{over}: {found:#?}");
    }
}

#[test]
fn disks_are_followed_through_their_layers_and_to_their_servers() {
    let found = read(&format!("{NETWORK}{STORAGE}{MOUNTED}{}", routes("eth0")));
    let shown: Vec<String> =
        shown(&found).into_iter().filter(|line| !line.starts_with("the default")).collect();
    assert_eq!(
        shown,
        [
            "the root file system: dm-0, md0, nvme0n1p2, nvme0n1, 0000:05:00.0",
            "the root file system: dm-0, md0, nvme1n1, 0000:06:00.0",
            "the swap space /dev/nvme0n1p1: nvme0n1p1, nvme0n1, 0000:05:00.0",
            "the swap space /swapfile: dm-0, md0, nvme0n1p2, nvme0n1, 0000:05:00.0",
            "the swap space /swapfile: dm-0, md0, nvme1n1, 0000:06:00.0",
            "the file system at /data set: sda1, sda, 0000:07:00.0",
            "the file system at /data set: sdb, 0000:07:00.0",
            "the file system at /srv: 198.51.100.7 (nfs4), eth2, 0000:02:00.0",
            "the file system at /fast: nvme2n1, nvme2, 0000:08:00.0",
            "the file system at /fast: nvme2n1, nvme3, 198.51.100.9 (NVMe), eth2, 0000:02:00.0",
        ],
        "neither memory nor what lies on the root, nor a second one over eth2: {found:#?}"
    );
    let sorts = [LifelineSort::Root, LifelineSort::Swap, LifelineSort::Mount];
    assert!(!found.unknown.iter().any(|unknown| sorts.contains(&unknown.sort)), "{found:#?}");
}

#[test]
fn what_carries_a_root_is_told_or_said_to_be_unknown() {
    let root = |line: &str| {
        let mounted =
            format!("/proc/self/mountinfo <<END\n2 1 259:9 / /lower ro - ext4 /dev/x ro\n{line}\nEND\n");
        read(&format!("{NETWORK}{STORAGE}{mounted}{}", routes("eth0")))
    };
    let paths = |found: &Lifelines| -> Vec<String> {
        shown(found)
            .iter()
            .filter_map(|line| line.strip_prefix("the root file system: ").map(str::to_owned))
            .collect()
    };
    let overlay = root("3 1 0:30 / / rw - overlay overlay rw,lowerdir=/lower/a:/lower/b,upperdir=/lower/up");
    assert_eq!(paths(&overlay).len(), 2, "{overlay:#?}");
    let iscsi = root("3 1 8:16 / / rw - ext4 /dev/sdz rw");
    assert_eq!(paths(&iscsi), ["sdz, 198.51.100.8 (iSCSI), eth2, 0000:02:00.0"]);
    let memory = root("3 1 0:30 / / rw - tmpfs tmpfs rw");
    assert!(paths(&memory).is_empty() && !memory.unknown.iter().any(|one| one.sort == LifelineSort::Root));
    for (line, words) in [
        ("3 1 0:30 / / rw - overlay overlay rw,lowerdir=/hidden,upperdir=/run/up", "/hidden"),
        ("3 1 0:30 / / rw - zfs rpool/ROOT rw", "rpool/ROOT"),
        ("3 1 253:9 / / rw - ext4 /dev/mapper/lost rw", "made by software"),
        ("3 1 77:1 / / rw - ext4 /dev/nothing rw", "77:1"),
        ("3 1 0:30 / / rw - nfs files:/root rw", "server is not known"),
        ("garbage", "no file system at /"),
    ] {
        let found = root(line);
        assert!(paths(&found).is_empty(), "{line}");
        assert!(unknown(&found, LifelineSort::Root, words), "{line}: {found:#?}");
    }
}

/// An SSH server's process 40 with a session below it, and what is connected.
fn session(ancestors: &str) -> String {
    let address = |octets: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(octets));
    let (here, own, other) =
        (address([198, 51, 100, 2]), address([198, 51, 100, 3]), address([203, 0, 113, 9]));
    format!(
        "{NETWORK}{}{ancestors}/proc/net/tcp <<END\n  sl  local_address rem_address st\n\
         0: 00000000:0016 00000000:0000 0A 0:0 0:0 0 0 0 900 1\n\
         1: {here}:0016 {own}:C001 01 0:0 0:0 0 0 0 901 1\n\
         2: {here}:0016 {other}:C002 01 0:0 0:0 0 0 0 902 1\n\
         3: {here}:C003 {other}:01BB 01 0:0 0:0 0 0 0 903 1\nEND\n",
        routes("eth0")
    )
}

fn ssh(text: &str, ssh_connection: Option<&str>) -> (Vec<String>, Lifelines) {
    let started = Started {
        ssh_connection: ssh_connection.map(str::to_owned),
        process: Some(44),
        ..Started::default()
    };
    let found = of(&planted(text), &started);
    let lines = shown(&found).into_iter().filter(|line| line.contains("SSH"));
    (lines.collect(), found)
}

const OWN: &str = "the SSH connection from 198.51.100.3 that penstock was started from: eth2, 0000:02:00.0";

#[test]
fn the_connection_is_found_by_its_variable() {
    let (lines, _) = ssh(&session(""), Some("198.51.100.3 49153 198.51.100.2 22"));
    assert_eq!(lines, [OWN]);
    // A link-local address says which interface; IPv4 may come mapped into IPv6.
    let table = "/proc/net/tcp6 <<END\n  sl  local_address rem_address st\n\
         0: LOCAL:0016 PEER:C001 01 0:0 0:0 0 0 0 904 1\nEND\n";
    let (local, peer) = (in_table("fe80::2"), in_table("fe80::1"));
    let six = table.replace("LOCAL", &local).replace("PEER", &peer);
    let (lines, _) = ssh(&format!("{}{six}", session("")), Some("fe80::1%eth1 49153 fe80::2%eth1 22"));
    assert!(lines[0].ends_with(": eth1, 0000:01:00.1"), "{lines:?}");
    let (lines, _) = ssh(&session(""), Some("::ffff:198.51.100.3 49153 ::ffff:198.51.100.2 22"));
    assert_eq!(lines, [OWN]);
}

/// An IPv6 address as `/proc/net/tcp6` has it.
fn in_table(address: &str) -> String {
    let octets = address.parse::<std::net::Ipv6Addr>().unwrap().octets();
    octets.chunks(4).map(|word| format!("{:08X}", u32::from_ne_bytes(word.try_into().unwrap()))).collect()
}

#[test]
fn the_connection_is_found_through_sudo_by_the_servers_socket() {
    let ancestors = "/proc/44/stat = 44 (penstock) S 43 0 0 34816 0\n/proc/43/stat = 43 (sudo) S 42 0 0 34816 0\n\
         /proc/42/stat = 42 (ba) sh (x) S 41 0 0 34816 0\n/proc/41/stat = 41 (sshd-session) S 40 0 0 0 0\n\
         /proc/40/stat = 40 (sshd) S 1 0 0 0 0\n/proc/1/stat = 1 (systemd) S 0 0 0 0 0\n";
    // Descriptors are links that lead nowhere.
    let open = "/proc/41/fd/0 -> null\n/proc/41/fd/4 -> socket:[901]\n/proc/41/fd/5 -> socket:[903]\n";
    let (lines, found) = ssh(&session(&format!("{ancestors}{open}")), None);
    assert_eq!(lines, [OWN], "and not what it forwards: {found:#?}");
    assert!(!found.unknown.iter().any(|unknown| unknown.sort == LifelineSort::Ssh), "{found:#?}");
    // Not as root: nobody's descriptors are seen, so each connection to the port may be the one.
    let (lines, _) = ssh(&session(ancestors), None);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("may have been started")), "{lines:?}");
}

/// A kernel with these addresses and with routes to everywhere, others for who is bound to a VRF.
struct KernelRoutes {
    addresses: Vec<(u32, IpAddr)>,
    vrf: u32,
    way: Option<u32>,
    in_vrf: Option<u32>,
}

impl Routes for KernelRoutes {
    fn defaults(&mut self) -> Result<Vec<Route>, LinkError> {
        Ok(Vec::new())
    }

    fn towards(
        &mut self,
        _peer: IpAddr,
        _from: Option<IpAddr>,
        over: Option<u32>,
    ) -> Result<Option<u32>, LinkError> {
        Ok(if over == Some(self.vrf) { self.in_vrf } else { self.way })
    }

    fn is_vrf(&mut self, index: u32) -> Result<bool, LinkError> {
        Ok(index == self.vrf)
    }

    fn addresses(&mut self) -> Result<Vec<(u32, IpAddr)>, LinkError> {
        Ok(self.addresses.clone())
    }
}

#[test]
fn the_routes_of_a_vrf_are_asked_for_what_comes_in_there() {
    let tree = planted(&format!(
        "{NETWORK}[/sys/devices/virtual/net]\nmgmt/ifindex = 20\nmgmt/lower_eth2 -> ../eth2\n\
         [/sys/class/net]\nmgmt -> ../../devices/virtual/net/mgmt\n\
         [/sys/devices/pci0000:00/0000:00:01.0]\n0000:02:00.0/virtio0/net/eth2/master -> ../../../../../../virtual/net/mgmt\n"
    ));
    let held: IpAddr = "198.51.100.2".parse().unwrap();
    let over = |holder: u32, way: Option<u32>, in_vrf: Option<u32>| {
        let mut kernel = KernelRoutes { addresses: vec![(holder, held)], vrf: 20, way, in_vrf };
        let started =
            Started { ssh_connection: Some(format!("203.0.113.7 49153 {held} 22")), ..Started::default() };
        let found = lifelines(&Root::at(tree.path()), Some(&mut kernel), &started);
        let names = shown(&found).into_iter().filter_map(|line| Some(line.rsplit_once(": ")?.1.to_owned()));
        (names.collect::<Vec<_>>(), unknown(&found, LifelineSort::Ssh, "no route"))
    };
    let (eth1, eth2) = ("eth1, 0000:01:00.1".to_owned(), "eth2, 0000:02:00.0".to_owned());
    // Specific routes in the VRF alone; a default route of all others beside them; none in the VRF.
    assert_eq!(over(4, None, Some(4)), (vec![eth2.clone()], false));
    assert_eq!(over(4, Some(3), Some(4)), (vec![eth2.clone()], false));
    assert_eq!(over(4, Some(3), None), (vec![eth1.clone(), eth2.clone()], false));
    assert_eq!(over(4, None, None), (vec![eth2.clone()], true));
    // An address of the VRF itself, and one outside of it.
    assert_eq!(over(20, Some(3), Some(4)), (vec![eth2, "mgmt, eth2, 0000:02:00.0".to_owned()], false));
    assert_eq!(over(3, Some(3), Some(4)), (vec![eth1], false));
}

#[test]
fn a_console_and_a_service_hang_on_no_connection() {
    let console = "/proc/44/stat = 44 (penstock) S 43 0 0 1025 0\n/proc/43/stat = 43 (bash) S 42 0 0 1025 0\n\
         /proc/42/stat = 42 (login) S 1 0 0 1025 0\n/proc/1/stat = 1 (systemd) S 0 0 0 0 0\n";
    let service = "/proc/44/stat = 44 (penstock) S 1 0 0 0 0\n/proc/44/loginuid = 4294967295\n\
         /proc/1/stat = 1 (systemd) S 0 0 0 0 0\n";
    for ancestors in [console, service] {
        let (lines, found) = ssh(&session(ancestors), None);
        assert!(lines.is_empty(), "{lines:?}");
        assert!(!found.unknown.iter().any(|unknown| unknown.sort == LifelineSort::Ssh), "{found:#?}");
    }
}

/// An SSH session from this machine itself, whose other end process 60 has, with these other sockets.
fn looped(ancestors: &str, program: &str, open: &[u32], rows: &[&str]) -> String {
    let address = |octets: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(octets));
    let addresses = [
        ("HERE", address([198, 51, 100, 2])),
        ("OWN", address([198, 51, 100, 3])),
        ("OTHER", address([203, 0, 113, 9])),
        ("LO", address([127, 0, 0, 1])),
    ];
    let rows: String = ["LO:0016 LO:C010 910", "LO:C010 LO:0016 911"]
        .iter()
        .chain(rows)
        .map(|row| {
            let (ends, inode) = row.rsplit_once(' ').unwrap();
            format!("0: {ends} 01 0:0 0:0 0 0 0 {inode} 1\n")
        })
        .collect();
    let rows = addresses.iter().fold(rows, |rows, (name, address)| rows.replace(name, address));
    let open: String =
        open.iter().map(|inode| format!("/proc/60/fd/{inode} -> socket:[{inode}]\n")).collect();
    format!(
        "{NETWORK}{}{ancestors}/proc/60/comm = {program}\n{open}/proc/net/tcp <<END\n  sl  local_address rem_address st\n\
         0: 00000000:0016 00000000:0000 0A 0:0 0:0 0 0 0 900 1\n{rows}END\n",
        routes("eth0")
    )
}

#[test]
fn who_comes_from_this_machine_itself_came_over_another_connection() {
    let variable = Some("127.0.0.1 49168 127.0.0.1 22");
    let told = |found: &Lifelines| {
        let lost = found.unknown.iter().filter(|unknown| unknown.sort == LifelineSort::Ssh);
        lost.map(|unknown| unknown.why.clone()).collect::<Vec<_>>()
    };
    let operator = ["HERE:0016 OWN:C001 901"];
    let may_be = OWN.replace("that penstock was started", "that penstock may have been started");
    // `ssh root@localhost` in a session, and `sudo` in that.
    let (lines, found) = ssh(&looped("", "ssh", &[911], &operator), variable);
    assert_eq!((lines, told(&found)), (vec![may_be.clone()], vec![]));
    let sudo = "/proc/44/stat = 44 (penstock) S 43 0 0 34816 0\n/proc/43/stat = 43 (sudo) S 41 0 0 34816 0\n\
         /proc/41/stat = 41 (sshd-session) S 1 0 0 0 0\n/proc/41/fd/4 -> socket:[910]\n";
    let (lines, found) = ssh(&looped(sudo, "ssh", &[911], &operator), None);
    assert_eq!((lines, told(&found)), (vec![may_be.clone()], vec![]));
    // `ssh -R` to another machine.
    let tunnel = ["HERE:C011 OTHER:0016 912"];
    let (lines, found) = ssh(&looped("", "ssh", &[911, 912], &tunnel), variable);
    let to_other = "the SSH connection from 203.0.113.9 that penstock may have been started from: ";
    assert!(lines.len() == 1 && lines[0].starts_with(to_other), "{lines:?}");
    assert_eq!(told(&found), Vec::<String>::new());
    // What hands connections on may have others than SSH's.
    let (lines, found) = ssh(&looped("", "sslh", &[911], &operator), variable);
    assert_eq!(lines, [may_be]);
    assert!(unknown(&found, LifelineSort::Ssh, "sslh (process 60) is at the other end"), "{found:#?}");
    let (_, found) = ssh(&looped("", "ssh", &[], &operator), variable);
    assert!(unknown(&found, LifelineSort::Ssh, "could not be seen"), "{found:#?}");
    let (lines, found) = ssh(&looped("", "ssh", &[911], &[]), variable);
    assert_eq!(lines, Vec::<String>::new());
    assert!(unknown(&found, LifelineSort::Ssh, "no connection to port 22 was found"), "{found:#?}");
}

#[test]
fn a_login_on_a_pseudo_terminal_may_be_served_over_the_network() {
    // `login` itself has given its terminal away.
    let login = |terminal: u32, own: u32| {
        format!(
            "/proc/44/stat = 44 (penstock) S 43 0 0 34816 0\n/proc/43/stat = 43 (bash) S 42 0 0 {terminal} 0\n\
             /proc/42/stat = 42 (login) S 41 0 0 {own} 0\n/proc/41/stat = 41 (ttyd) S 1 0 0 0 0\n\
             /proc/1/stat = 1 (systemd) S 0 0 0 0 0\n/proc/44/sessionid = 7\n"
        )
    };
    let gdm = "/proc/44/stat = 44 (penstock) S 43 0 0 34816 0\n/proc/43/stat = 43 (gdm-session-wor) S 1 0 0 0 0\n\
         /proc/44/sessionid = 7\n";
    let logind = |lines: &str| format!("/run/systemd/sessions/7 <<END\n{lines}\nEND\n");
    let refused = |ancestors: &str| {
        let (lines, found) = ssh(&session(ancestors), None);
        let unknown = found.unknown.iter().any(|unknown| unknown.sort == LifelineSort::Ssh);
        // Whoever it is may come over no SSH connection, so to keep those is not enough.
        assert_eq!(lines.len(), if unknown { 2 } else { 0 }, "{lines:?}");
        unknown
    };
    // tty1, ttyS0 and hvc0; the first and the last pseudo-terminal; none at all.
    for (terminal, expected) in
        [(1025, false), (1088, false), (58624, false), (34816, true), (36863, true), (0, true)]
    {
        assert_eq!(refused(&login(terminal, 0)), expected, "{terminal}");
    }
    assert!(refused(&login(34816, 34816)) && !refused(&login(34816, 1025)));
    assert!(refused(&format!("{}{}", login(1025, 0), logind("REMOTE=1\nSEAT="))));
    assert!(!refused(&format!("{}{}", login(1088, 0), logind("REMOTE=0"))));
    assert!(!refused(gdm), "nothing says that it is not at a screen here");
    assert!(!refused(&format!("{gdm}{}", logind("REMOTE=0\nSEAT=seat0"))));
    assert!(refused(&format!("{gdm}{}", logind("REMOTE=0"))));
}

#[test]
fn inside_a_multiplexer_every_connection_may_be_the_one() {
    let tmux = "/proc/44/stat = 44 (penstock) S 43 0 0 34816 0\n/proc/43/stat = 43 (tmux: server) S 1 0 0 0 0\n\
         /proc/1/stat = 1 (systemd) S 0 0 0 0 0\n";
    // What the variable says may be of last week, and is kept too.
    let (lines, _) = ssh(&session(tmux), Some("198.51.100.77 49153 198.51.100.2 22"));
    assert_eq!(lines.len(), 3, "{lines:?}");
    let (lines, _) = ssh(&session(tmux), None);
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn that_nobody_can_tell_is_told() {
    let found = read(&format!("{NETWORK}{}", routes("eth0")));
    assert!(unknown(&found, LifelineSort::Ssh, "/proc/net/tcp could not be read"), "{found:#?}");
    let found = read("/proc/net/tcp = sl\n");
    assert!(unknown(&found, LifelineSort::Ssh, "no connection to port 22"), "{found:#?}");
    for sort in [LifelineSort::DefaultRoute, LifelineSort::Root, LifelineSort::Swap, LifelineSort::Mount] {
        assert!(found.unknown.iter().any(|unknown| unknown.sort == sort), "{sort:?}: {found:#?}");
    }
    assert!(found.found.is_empty());
}

/// Those that nobody knows the ground of are not left out, and a program in user space is not believed what it says of its own.
#[test]
fn a_mount_that_stands_on_something_unknown_is_told() {
    let of = |line: &str| {
        let mounted = format!(
            "/proc/self/mountinfo <<END\n2 1 8:16 / / ro - ext4 /dev/sdz ro\n{line}\nEND\n/proc/swaps = Filename\n"
        );
        read(&format!("{NETWORK}{STORAGE}{mounted}{}", routes("eth0")))
    };
    for (line, words) in [
        ("3 2 0:30 / /tank rw - zfs tank/home rw", "the file system at /tank is not known: it is zfs"),
        ("3 2 0:30 / /share rw - virtiofs share rw", "it is virtiofs"),
        ("3 2 0:30 / /etc/other rw - fuse /dev/fuse rw,user_id=0,group_id=0", "a program in user space"),
        ("3 2 0:30 / /union rw - aufs none rw,si=1", "it is aufs"),
        ("3 2 0:30 / /share rw - 9p share rw,trans=virtio", "server is not known"),
        ("3 2 0:30 / /far rw - fuse.sshfs host:/ rw,user_id=0,group_id=0", "a program in user space"),
        ("3 2 0:30 / /far rw - fuse.evil /dev/sda1 rw,user_id=0,group_id=0", "a program in user space"),
    ] {
        let found = of(line);
        assert!(unknown(&found, LifelineSort::Mount, words), "{line}: {found:#?}");
        assert!(!shown(&found).iter().any(|line| line.contains("sda")), "{found:#?}");
    }
    for line in [
        "3 2 0:30 / /sys rw - sysfs sysfs rw",
        "3 2 0:30 / /var/lib/lxcfs rw - fuse.lxcfs lxcfs rw,user_id=0,group_id=0,allow_other",
        "3 2 0:30 / /run/user/1000/doc rw - fuse.portal portal rw,user_id=1000,group_id=1000",
        "3 2 0:30 / /run/user/0/doc rw - fuse.portal portal rw,user_id=0,group_id=0",
        "3 2 0:30 / /run/user/0/gvfs rw - fuse.gvfsd-fuse gvfsd-fuse rw,user_id=0,group_id=0",
        "3 2 0:30 / /run/vmblock-fuse rw - fuse.vmware-vmblock vmware-vmblock rw,user_id=0,group_id=0",
        "3 2 0:30 / /etc/pve rw - fuse /dev/fuse rw,user_id=0,group_id=0,default_permissions,allow_other",
        "3 2 0:30 / /proc/xen rw - xenfs xenfs rw",
        "3 2 0:30 / /dev/cpuset rw - cpuset none rw",
        "3 2 0:30 / /dlm rw - ocfs2_dlmfs none rw",
        "3 2 0:30 / /home/x rw - ecryptfs /home/x rw",
        "3 2 0:30 / /home/x rw - ecryptfs /home/.ecryptfs/x/.Private rw",
    ] {
        let found = of(line);
        assert!(
            found.unknown.iter().all(|unknown| unknown.sort != LifelineSort::Mount),
            "{line}: {found:#?}"
        );
    }
    let pool = "3 2 0:30 / /a rw - zfs tank/a rw\n4 2 0:31 / /b rw - zfs tank/b rw";
    let found = of(pool);
    assert_eq!(found.unknown.iter().filter(|unknown| unknown.sort == LifelineSort::Mount).count(), 1);
}

#[test]
fn a_table_that_is_too_long_to_be_read_is_told() {
    let tree = planted(&format!("{NETWORK}{}", routes("eth0")));
    let tcp = tree.path().join("proc/net/tcp");
    fs::File::create(tcp).unwrap().set_len((16 << 20) + 1).unwrap();
    let found = of(&tree, &Started::default());
    assert!(unknown(&found, LifelineSort::Ssh, "/proc/net/tcp is longer than"), "{found:#?}");
}

#[test]
fn who_holds_a_function_through_vfio_is_known_by_name() {
    let tree = planted(
        "/sys/bus/pci/drivers/vfio-pci/0000:01:10.0 -> ../../../../devices/0000:01:10.0\n\
         /sys/bus/pci/devices/0000:01:10.0/iommu_group -> ../../../../kernel/iommu_groups/31\n\
         /proc/77/comm = qemu-system-x86\n/proc/77/cmdline = qemu-system-x86_64\x00-name\x00guest=win11,debug-threads=on\x00-S\n/proc/77/fd/\n/proc/78/comm = bash\n/proc/78/fd/\n",
    );
    symlink("/dev/vfio/31", tree.path().join("proc/77/fd/12")).unwrap();
    symlink("/dev/null", tree.path().join("proc/78/fd/0")).unwrap();
    let found = of(&tree, &Started::default());
    let holders: Vec<_> = found.holders.iter().map(|(bdf, names)| format!("{bdf} {names:?}")).collect();
    assert_eq!(holders, [r#"0000:01:10.0 ["qemu-system-x86 (process 77, VM win11)"]"#]);
    // Of a VM that an ordinary user runs, which the system's libvirt does not know.
    let of_user = |real: u32, passwd: &str| {
        std::fs::create_dir_all(tree.path().join("etc")).unwrap();
        std::fs::write(tree.path().join("etc/passwd"), passwd).unwrap();
        let status = format!("Name:\tqemu-system-x86\nUid:\t{real}\t0\t0\t0\n");
        std::fs::write(tree.path().join("proc/77/status"), status).unwrap();
        let found = of(&tree, &Started::default());
        let by_kernel = PciFunction::new(&Root::at(tree.path()), "0000:01:10.0".parse().unwrap()).opened_by();
        (found.holders.into_values().flatten().collect::<Vec<_>>(), by_kernel)
    };
    symlink("../../../bus/pci/drivers/vfio-pci", tree.path().join("sys/bus/pci/devices/0000:01:10.0/driver"))
        .unwrap();
    for (real, passwd, user) in [
        (1001, "root:x:0:0::/root:/bin/sh\nmara:x:1001:1001::/home/mara:/bin/sh\n", ", user mara"),
        (1002, "root:x:0:0::/root:/bin/sh\n", ", user 1002"),
        (0, "root:x:0:0::/root:/bin/sh\n", ""),
    ] {
        let (all, by_kernel) = of_user(real, passwd);
        assert_eq!(all, [format!("qemu-system-x86 (process 77, VM win11{user})")]);
        assert_eq!(by_kernel, [format!("qemu-system-x86 (process 77{user})")]);
    }
}

#[test]
fn who_holds_a_function_is_seen_by_whatever_node_and_however_late() {
    let group = |vf: &str, group: u32| {
        // A driver of VFIO for some devices does the same.
        let driver = if group == 32 { "mlx5_vfio_pci" } else { "vfio-pci" };
        format!(
            "/sys/bus/pci/drivers/{driver}/{vf} -> ../../../../devices/{vf}\n\
             /sys/bus/pci/devices/{vf}/iommu_group -> ../../../../kernel/iommu_groups/{group}\n"
        )
    };
    let vfs = ["0000:01:10.0", "0000:01:10.2", "0000:01:10.4", "0000:01:10.6"];
    let groups: String = vfs.iter().zip(31..).map(|(vf, number)| group(vf, number)).collect();
    let tree = planted(&format!(
        "{groups}/sys/bus/pci/devices/0000:01:10.0/vfio-dev/vfio3/\n/proc/77/comm = spdk_tgt\n/proc/77/fd/\n/proc/78/comm = idle\n/proc/78/fd = no directory\n"
    ));
    let fd = tree.path().join("proc/77/fd");
    for (number, target) in [
        (7, "/dev/vfio/devices/vfio3"),
        (8, "/dev/vfio/noiommu-32"),
        (9, "/dev/vfio/33 (deleted)"),
        (90_000, "/dev/vfio/34"),
    ] {
        symlink(target, fd.join(number.to_string())).unwrap();
    }
    (10_000..14_100).for_each(|number| symlink("/dev/null", fd.join(number.to_string())).unwrap());
    let found = of(&tree, &Started::default());
    let holders: Vec<_> = found.holders.iter().map(|(bdf, names)| format!("{bdf} {names:?}")).collect();
    assert_eq!(holders, vfs.map(|vf| format!(r#"{vf} ["spdk_tgt (process 77)"]"#)));
    assert_eq!(
        found.unseen,
        ["the open files of a process could not be read: Not a directory (os error 20)"]
    );
}

#[test]
fn loops_and_giants_end() {
    let started = Instant::now();
    let text = format!(
        "{}/proc/44/stat = 44 (a) S 45 0 0 0 0\n/proc/45/stat = 45 (b) S 44 0 0 0 0\n\
         /sys/class/net/a/lower_b/\n/sys/class/net/b/lower_a/\n/sys/class/net/a/ifindex = 1\n\
         /sys/class/net/c/device -> device\n/sys/class/net/a/lower_c/\n/sys/class/net/a/lower_{}/\n\
         /sys/class/block/x/slaves/y/\n/sys/class/block/y/slaves/x/\n/sys/dev/block/8:0 -> ../../class/block/x\n\
         /sys/class/block/l/loop/backing_file = /in/itself\n/sys/dev/block/7:0 -> ../../class/block/l\n\
         /proc/self/mountinfo <<END\n1 0 8:0 / / rw - ext4 /dev/x rw\n2 1 7:0 / /in rw - ext4 /dev/l rw\nEND\n",
        routes("a"),
        "n".repeat(200),
    );
    let tree = planted(&text);
    let started_by =
        Started { ssh_connection: Some("x".repeat(1 << 20)), process: Some(44), ..Started::default() };
    let found = of(&tree, &started_by);
    assert!(unknown(&found, LifelineSort::DefaultRoute, "could not be followed"), "{found:#?}");
    assert!(unknown(&found, LifelineSort::Ssh, "names no connection"), "{found:#?}");
    assert!(unknown(&found, LifelineSort::Root, "ends at hardware"), "{found:#?}");
    let long = "z".repeat(1 << 20);
    fs::write(tree.path().join("proc/swaps"), format!("Filename\n/{long} file 1 0 -2\n")).unwrap();
    fs::write(tree.path().join("proc/self/mountinfo"), format!("1 0 8:0 / /{long} rw - ext4 {long} rw\n"))
        .unwrap();
    fs::write(
        tree.path().join("proc/net/route"),
        format!("Iface\n{long}\t00000000\t00000000\t0003\t0\t0\t0\t00000000\n"),
    )
    .unwrap();
    let found = of(&tree, &Started::default());
    assert!(serde_json::to_vec(&found).unwrap().len() < 1 << 16, "giants were passed on");
    assert!(unknown(&found, LifelineSort::Swap, "no paths"), "{found:#?}");
    assert!(unknown(&found, LifelineSort::DefaultRoute, "no name of an interface"), "{found:#?}");
    assert!(started.elapsed().as_secs() < 10);
}

/// Whatever is wrong with a tree's shape, this ends, and what it says can be read back.
#[test]
fn no_shape_breaks_it() {
    let whole = format!(
        "{STORAGE}{}",
        session(
            "/proc/44/stat = 44 (penstock) S 41 0 0 1 0\n/proc/41/stat = 41 (sshd) S 1 0 0 0 0\n/proc/41/fd/4 -> socket:[901]\n"
        )
    );
    // Every path by itself, so that lines can change places.
    let mut directory = String::new();
    let lines: Vec<String> = whole
        .lines()
        .filter_map(|line| {
            if let Some(heading) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                directory = heading.to_owned();
                return None;
            }
            let relative = !line.starts_with('/')
                && (line.contains(" = ") || line.contains(" -> ") || line.ends_with('/'));
            Some(if relative { format!("{directory}/{line}") } else { line.to_owned() })
        })
        .collect();
    let change = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4, any::<u32>());
    let changes = prop::collection::vec(change, 1..10);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(32));
    let planted = std::cell::Cell::new(0);
    runner
        .run(&changes, |changes| {
            let mut lines = lines.clone();
            for (one, other, how, number) in changes {
                let (one, other) = (one.index(lines.len()), other.index(lines.len()));
                let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
                let (first, second) = (name(&lines[one]), name(&lines[other]));
                match how {
                    0 => lines.swap(one, other),
                    1 => lines[one] = format!("{first} -> {}", second.rsplit('/').next().unwrap_or_default()),
                    2 => lines[one] = format!("{first} = {number}"),
                    _ => lines[one].clear(),
                }
            }
            let directory = tempfile::tempdir().unwrap();
            if sysfs::plant(&lines.join("\n"), directory.path()).is_ok() {
                planted.set(planted.get() + 1);
                let mountinfo = directory.path().join("proc/self");
                if fs::create_dir_all(&mountinfo).is_ok() {
                    let _ = fs::write(
                        mountinfo.join("mountinfo"),
                        "22 1 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n",
                    );
                }
                let found = of(
                    &directory,
                    &Started { ssh_connection: None, process: Some(44), ..Started::default() },
                );
                prop_assert!(!found.unknown.is_empty(), "other tables are never known here");
            }
            Ok(())
        })
        .unwrap();
    assert!(planted.get() >= 5, "only {} of 32 trees could be planted", planted.get());
}
