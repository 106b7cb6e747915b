//! Interfaces, addresses and frames in real network namespaces. `ip` and `bridge` of iproute2 set the scenes and are
//! the independent witness of what was changed.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeSet,
    fmt::Write,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
};
use penstock_host::{
    Here, InterfaceReport, Netlink, NetlinkError, NetworkNamespace, PciFunction, Place, Root, eswitch,
    frames::{Endpoint, FramesError, Reach, reach},
    interface_of,
    netlink::{DevlinkSocket, LinkSettings, wait_for_interface},
};
use penstock_model::{
    Bdf, InterfaceAddress, Mac, Mtu, PortVlans, VfAttribute, VfIndex,
    inventory::{EswitchMode, InterfaceCounters, SwitchMode},
};
use penstock_testkit::{namespace::Namespace, needs, trials::Trials};

type Check = fn();

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let plain: [(&str, Check); 20] = [
        ("interfaces_are_listed_in_netns", interfaces_are_listed),
        ("interfaces_count_what_went_through_them_in_netns", interfaces_count),
        ("an_interface_is_changed_in_netns", an_interface_is_changed),
        (
            "a_socket_of_a_namespace_leaves_its_maker_where_it_was_in_netns",
            a_socket_of_a_namespace_leaves_its_maker_where_it_was,
        ),
        ("an_alias_of_any_bytes_is_seen_and_set_in_netns", an_alias_of_any_bytes),
        ("addresses_come_and_go_in_netns", addresses_come_and_go),
        ("refusals_say_what_was_refused_in_netns", refusals_say_what_was_refused),
        ("what_a_driver_lacks_is_unsupported_in_netns", what_a_driver_lacks_is_unsupported),
        ("without_privilege_it_says_so_in_netns", without_privilege_it_says_so),
        ("devlink_lists_its_devices_to_everybody_in_netns", devlink_lists_its_devices_to_everybody),
        (
            "a_pf_that_devlink_does_not_have_has_no_modes_in_netns",
            a_pf_that_devlink_does_not_have_has_no_modes,
        ),
        ("a_namespace_that_is_gone_is_an_error_in_netns", a_namespace_that_is_gone_is_an_error),
        ("an_interface_is_waited_for_in_netns", an_interface_is_waited_for),
        ("waiting_ends_at_its_deadline_in_netns", waiting_ends_at_its_deadline),
        ("events_that_are_lost_are_made_up_for_in_netns", events_that_are_lost_are_made_up_for),
        ("many_interfaces_are_listed_in_netns", many_interfaces_are_listed),
        ("frames_pass_where_ports_are_not_isolated_in_netns", frames_pass_where_ports_are_not_isolated),
        ("a_wrong_mac_is_not_reached_in_netns", a_wrong_mac_is_not_reached),
        ("an_interface_that_is_down_sends_nothing_in_netns", an_interface_that_is_down_sends_nothing),
        ("hundreds_of_endpoints_are_tried_at_once_in_netns", hundreds_of_endpoints_are_tried_at_once),
    ];
    let vlan: [(&str, Check); 3] = [
        ("a_bridge's_port_is_given_its_vlans_in_netns", a_port_is_given_its_vlans),
        ("vlans_part_the_ports_of_a_bridge_in_netns", vlans_part_the_ports_of_a_bridge),
        ("a_frame_whose_tag_was_stripped_counts_in_netns", a_frame_whose_tag_was_stripped_counts),
    ];
    let no_vlan = missing.clone().or_else(|| trials.lacking("VLANs", needs::vlans));
    let function = pci_interface();
    let no_function = trials.lacking("interfaces of PCI functions", || {
        function.is_none().then(|| "no interface here belongs to a PCI function".to_owned())
    });
    let find = move || {
        let (function, name) = function.expect("this runs only with one");
        an_interface_is_found_by_its_function(function, &name);
    };
    trials.add(&missing, plain);
    trials.add(&no_function, [("an_interface_is_found_by_its_function", find)]);
    trials.add(&no_vlan, vlan);
    trials.run()
}

/// A PCI function of this machine and the name of its interface, as sysfs has them.
fn pci_interface() -> Option<(Bdf, String)> {
    let names = std::fs::read_dir("/sys/class/net").ok()?;
    names.flatten().find_map(|name| {
        let device = std::fs::canonicalize(name.path().join("device")).ok()?;
        let function = device.ancestors().find_map(|part| part.file_name()?.to_str()?.parse().ok())?;
        Some((function, name.file_name().to_str()?.to_owned()))
    })
}

fn an_interface_is_found_by_its_function(function: Bdf, name: &str) {
    let mut netlink = Netlink::open().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    let found = wait_for_interface(&mut netlink, &Root::system(), function, deadline).unwrap();
    assert_eq!(found.interface.name.as_str(), name);
    let names = PciFunction::new(&Root::system(), function).interface_names().unwrap();
    assert!(names.contains(&name.to_owned()), "{names:?}");
    let here = Here::default().interfaces().unwrap();
    assert_eq!(interface_of(function, &here, &Root::system()).unwrap().index, found.index);
    assert!(here.iter().all(|report| report.interface.name.as_str() != "lo"));
}

fn netlink(namespace: &Namespace) -> Netlink {
    Netlink::in_namespace_of(namespace.id).expect("a socket in the namespace")
}

fn named(netlink: &mut Netlink, name: &str) -> InterfaceReport {
    let found = netlink.interfaces().expect("a list");
    let found = found.into_iter().find(|report| report.interface.name.as_str() == name);
    found.unwrap_or_else(|| panic!("no interface {name}"))
}

fn address(text: &str) -> InterfaceAddress {
    text.parse().expect("an address")
}

fn interfaces_are_listed() {
    let namespace = Namespace::new();
    namespace.batch(
        "ip",
        "link add left address 02:00:00:00:00:01 mtu 9000 type veth peer name right address 02:00:00:00:00:02\n\
         link add br0 type bridge\n\
         tuntap add tun0 mode tun\n\
         address add 10.20.31.204/24 dev left\n\
         address add fd00::4/64 dev left nodad\n\
         link set left up\n\
         link set right up promisc on\n",
    );
    let mut netlink = netlink(&namespace);
    let mut reports = netlink.interfaces().unwrap();
    reports.sort_by(|a, b| a.interface.name.cmp(&b.interface.name));
    let names: Vec<&str> = reports.iter().map(|r| r.interface.name.as_str()).collect();
    assert_eq!(names, ["br0", "left", "right"], "neither loopback nor a tunnel");
    let [bridge, left, right] = &reports[..] else { unreachable!() };
    assert_eq!(bridge.kind.as_deref(), Some("bridge"));
    assert!(!bridge.interface.up);
    assert_eq!(bridge.interface.carrier, None);
    assert_eq!(left.kind.as_deref(), Some("veth"));
    assert_eq!((left.device.as_deref(), left.port_name.as_deref()), (None, None));
    assert_eq!(left.interface.mac.to_string(), "02:00:00:00:00:01");
    assert_eq!(left.interface.mtu, 9000);
    assert!(left.interface.up);
    assert_eq!(left.interface.carrier, Some(true));
    assert_eq!(left.interface.speed, Some(10_000), "what veth says of itself");
    let addresses: Vec<String> = left.interface.addresses.iter().map(|a| a.to_string()).collect();
    assert!(addresses.contains(&"10.20.31.204/24".to_owned()), "{addresses:?}");
    assert!(addresses.contains(&"fd00::4/64".to_owned()), "{addresses:?}");
    assert_eq!((left.promiscuous, right.promiscuous), (Some(false), Some(true)));
    assert_eq!(right.interface.mtu, 1500);
    assert!(right.interface.addresses.iter().all(|a| a.ip().is_ipv6()), "its link-local one at most");
    // Each by itself: the same, but for addresses and speeds.
    let links = netlink.links().unwrap();
    assert_eq!(links.len(), 3);
    for link in links {
        assert_eq!(netlink.link_named(&link.interface.name).unwrap().as_ref(), Some(&link));
        assert_eq!(netlink.link_at(link.index).unwrap(), Some(link));
    }
    namespace.run("ip link property add dev right altname another");
    assert_eq!(netlink.link_named(&"another".parse().unwrap()).unwrap().unwrap().index, right.index);
    for name in ["nobody", "tun0", "lo"] {
        assert_eq!(netlink.link_named(&name.parse().unwrap()).unwrap(), None, "{name}");
    }
    assert_eq!(netlink.link_at(9999).unwrap(), None);
}

fn a_socket_of_a_namespace_leaves_its_maker_where_it_was() {
    let namespace = Namespace::new();
    namespace.run("ip link add left type veth peer name right");
    let own = || NetworkNamespace::current().unwrap().identity().unwrap();
    let before = own();
    let there = NetworkNamespace::open(format!("/proc/{}/ns/net", namespace.id)).unwrap();
    assert_ne!(there.identity().unwrap(), before);
    let mut inside = there.netlink().unwrap();
    assert!(inside.link_named(&"left".parse().unwrap()).unwrap().is_some());
    assert_eq!(own(), before);
    let none = NetworkNamespace::open("/dev/null").unwrap();
    let error = penstock_host::chain(&none.netlink().unwrap_err());
    assert!(error.contains("enter the network namespace /dev/null"), "{error}");
    assert_eq!(own(), before);
}

fn interfaces_count() {
    let (_switch, guests, endpoints) = bridge(2, "");
    let counted = || {
        let all = netlink(&guests).counted_interfaces().unwrap();
        let all = all.into_iter().map(|(report, counters)| (report, counters.expect("counters")));
        all.collect::<Vec<_>>()
    };
    let of = |all: &[(InterfaceReport, InterfaceCounters)], name: &str| {
        all.iter().find(|(report, _)| report.interface.name.as_str() == name).unwrap().1
    };
    let before = counted();
    assert_eq!(before.len(), 2);
    assert_eq!(before[0].0.interface.speed, Some(10_000), "what veth says of itself");
    let outcome = reach(&endpoints, &[(0, 1)], Duration::from_secs(30)).unwrap();
    assert!(matches!(outcome[..], [Reach::Arrived]), "{outcome:?}");
    let after = counted();
    let (was, is) = (of(&before, "e0"), of(&after, "e0"));
    assert!(is.tx_packets > was.tx_packets && is.tx_bytes > was.tx_bytes, "{was:?} {is:?}");
    let (was, is) = (of(&before, "e1"), of(&after, "e1"));
    assert!(is.rx_packets > was.rx_packets && is.rx_bytes > was.rx_bytes, "{was:?} {is:?}");
    // No driver of a veth has VFs to count for.
    assert_eq!(netlink(&guests).vf_counters(endpoints[0].interface).unwrap(), []);
}

fn an_interface_is_changed() {
    let namespace = Namespace::new();
    namespace.run("ip link add left type veth peer name right");
    let mut netlink = netlink(&namespace);
    let index = named(&mut netlink, "left").index;
    let mac: Mac = "02:00:00:00:01:04".parse().unwrap();
    netlink.rename(index, &"rt0".parse().unwrap()).unwrap();
    netlink.set_mtu(index, Mtu::new(9000).unwrap()).unwrap();
    netlink.set_mac(index, mac).unwrap();
    netlink.set_up(index, true).unwrap();
    let seen = namespace.run("ip -o link show rt0");
    for expected in ["rt0@right", "mtu 9000", "02:00:00:00:01:04", "UP"] {
        assert!(seen.contains(expected), "{expected} in {seen}");
    }
    let report = named(&mut netlink, "rt0");
    assert_eq!((report.index, report.interface.mac, report.interface.mtu), (index, mac, 9000));
    assert!(report.interface.up);
    netlink.set_up(index, false).unwrap();
    assert!(!namespace.run("ip -o link show rt0").contains(",UP"));
    assert!(!named(&mut netlink, "rt0").interface.up);
    // As it is already: success each time.
    netlink.set_up(index, false).unwrap();
    netlink.rename(index, &"rt0".parse().unwrap()).unwrap();
}

/// Any root of a namespace chooses it, and it comes along when the interface is moved.
fn an_alias_of_any_bytes() {
    let namespace = Namespace::new();
    namespace.run("ip link add left type veth peer name right");
    let mut netlink = netlink(&namespace);
    let index = named(&mut netlink, "left").index;
    let before = netlink.link_settings(index).unwrap();
    assert_eq!(before.alias.as_deref(), Some(""));
    let odd = LinkSettings { alias: Some(r"a\x01\x1b\x5c\xff".to_owned()), ..before.clone() };
    netlink.set_link_settings(index, &odd).unwrap();
    assert_eq!(netlink.link_settings(index).unwrap(), odd);
    let shown = namespace.run("ip -o link show left");
    assert!(shown.contains("alias a\u{1}\u{1b}\\"), "{shown:?}");
    // One that is not known stays.
    netlink.set_link_settings(index, &odd.plain()).unwrap();
    assert_eq!(netlink.link_settings(index).unwrap(), odd);
    netlink.set_link_settings(index, &before).unwrap();
    assert_eq!(netlink.link_settings(index).unwrap(), before);
    assert!(!namespace.run("ip -o link show left").contains("alias"));
}

fn addresses_come_and_go() {
    let namespace = Namespace::new();
    namespace.batch("ip", "link add left type veth peer name right\nlink set right up\nlink set left up\n");
    let mut netlink = netlink(&namespace);
    let index = named(&mut netlink, "left").index;
    let (v4, v6) = (address("10.20.31.204/24"), address("fd00::4/64"));
    for _ in 0..2 {
        netlink.add_address(index, v4).unwrap();
        netlink.add_address(index, v6).unwrap();
    }
    let seen = namespace.run("ip -o address show left");
    assert!(seen.contains("inet 10.20.31.204/24") && seen.contains("inet6 fd00::4/64"), "{seen}");
    let unusable = namespace.run("ip -o -6 address show left tentative");
    assert!(!unusable.contains("fd00::4"), "usable at once: {unusable}");
    let addresses = named(&mut netlink, "left").interface.addresses;
    assert!(addresses.contains(&v4) && addresses.contains(&v6), "{addresses:?}");
    // One as of a router advertisement, and one as of DHCP.
    for lent in ["2001:db8::7/64", "192.0.2.7/24"] {
        namespace.run(&format!("ip address add {lent} dev left valid_lft 3600 preferred_lft 1800"));
    }
    let mut configured = netlink.configured_addresses(index).unwrap();
    configured.retain(|address| !address.is_kernel_made());
    configured.sort_by_key(ToString::to_string);
    assert_eq!(configured, [v4, address("192.0.2.7/24"), v6]);
    for _ in 0..2 {
        netlink.remove_address(index, v4).unwrap();
        netlink.remove_address(index, v6).unwrap();
    }
    let seen = namespace.run("ip -o address show left");
    assert!(!seen.contains("10.20.31.204") && !seen.contains("fd00::4"), "{seen}");
}

fn refusals_say_what_was_refused() {
    let namespace = Namespace::new();
    namespace.run("ip link add left type veth peer name right");
    let mut netlink = netlink(&namespace);
    let index = named(&mut netlink, "left").index;
    let error = netlink.rename(index, &"right".parse().unwrap()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EEXIST), "{error}");
    assert!(error.is_taken());
    assert!(error.to_string().contains(&format!("could not rename interface {index} to right: ")), "{error}");
    assert!(error.hint().is_some());
    // No interface takes a multicast address; the kernel has no more to say about it than a number.
    let error = netlink.set_mac(index, "03:00:00:00:00:01".parse().unwrap()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EADDRNOTAVAIL), "{error}");
    // Here it explains itself.
    namespace.run("ip tuntap add tap0 mode tap");
    let tap = named(&mut netlink, "tap0").index;
    let error = netlink.set_mtu(tap, Mtu::new(65_535).unwrap()).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EINVAL), "{error}");
    assert!(error.to_string().contains("kernel: mtu greater than device maximum"), "{error}");
    for error in [
        netlink.set_up(4711, true).unwrap_err(),
        netlink.set_mtu(4711, Mtu::new(1500).unwrap()).unwrap_err(),
        netlink.vfs(4711).unwrap_err(),
        netlink.add_address(4711, address("10.0.0.1/24")).unwrap_err(),
        netlink.remove_address(4711, address("fd00::1/64")).unwrap_err(),
    ] {
        assert!(matches!(error, NetlinkError::NoSuchInterface { .. }), "{error}");
        assert!(error.to_string().contains("4711"), "{error}");
    }
}

fn what_a_driver_lacks_is_unsupported() {
    let namespace = Namespace::new();
    namespace.run("ip link add left type veth peer name right");
    let mut netlink = netlink(&namespace);
    let index = named(&mut netlink, "left").index;
    assert_eq!(netlink.vfs(index).unwrap(), []);
    assert_eq!(netlink.switch_mode(index).unwrap(), SwitchMode::Unreported);
    let vf = VfIndex::new(3).unwrap();
    for error in [
        netlink.set_vf(index, vf, &VfAttribute::Trust(true)).unwrap_err(),
        netlink.set_vf(index, vf, &VfAttribute::Mac("02:00:00:00:01:04".parse().unwrap())).unwrap_err(),
        netlink.set_switch_mode(index, SwitchMode::Veb).unwrap_err(),
        netlink.set_switch_mode(index, SwitchMode::Switchdev).unwrap_err(),
    ] {
        assert!(error.is_unsupported(), "{error}");
    }
    let error = netlink.set_vf(index, vf, &VfAttribute::Trust(true)).unwrap_err();
    let expected = format!("set trust on of VF 3 through interface {index}");
    assert!(error.to_string().contains(&expected), "{error}");
}

fn without_privilege_it_says_so() {
    let namespace = Namespace::new();
    namespace.run("ip link add left type veth peer name right");
    let index = named(&mut netlink(&namespace), "left").index;
    // The kernel asks the thread that made the socket and the one that sends.
    let error = thread::scope(|scope| {
        let attempt = || {
            let mut netlink = netlink(&namespace);
            drop_privilege();
            netlink.set_up(index, true).unwrap_err()
        };
        scope.spawn(attempt).join().unwrap()
    });
    assert!(matches!(error, NetlinkError::NotPermitted { .. }), "{error}");
    assert!(error.hint().unwrap().contains("root"));
}

/// Whether this kernel has devlink or not. In a namespace of its own no device of the machine's can keep the test waiting.
fn devlink_lists_its_devices_to_everybody() {
    for privileged in [true, false] {
        let attempt = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            if !privileged {
                drop_privilege();
            }
            let socket = DevlinkSocket::open().map_err(|error| error.to_string())?;
            let health = socket.map(|mut socket| socket.health().map_err(|error| error.to_string()));
            health.transpose()
        };
        let health = thread::scope(|scope| scope.spawn(attempt).join().unwrap());
        assert!(matches!(health, Ok(None)) || health == Ok(Some(Default::default())), "{health:?}");
    }
}

/// Whether this kernel has devlink or not: what is asked and set comes back with words, and at once.
fn a_pf_that_devlink_does_not_have_has_no_modes() {
    let pf = "ffff:ff:1f.7".parse().unwrap();
    let attempt = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let asked = eswitch::eswitch(pf, eswitch::ANSWER).map_err(|error| error.to_string());
        (asked, eswitch::set_mode(pf, EswitchMode::Switchdev, eswitch::ANSWER).unwrap_err())
    };
    let (asked, refused) = thread::scope(|scope| scope.spawn(attempt).join().unwrap());
    assert_eq!(asked, Ok(None));
    assert!(refused.is_unsupported(), "{refused}");
    assert!(refused.to_string().contains("of ffff:ff:1f.7 into switchdev mode"), "{refused}");
}

/// Makes the calling thread, and no other, an ordinary user. (The C library would change every thread.)
#[allow(unsafe_code)]
fn drop_privilege() {
    // SAFETY: `setresuid` takes three numbers and touches no memory.
    let outcome = unsafe { nix::libc::syscall(nix::libc::SYS_setresuid, 65_534, 65_534, 65_534) };
    assert_eq!(outcome, 0);
}

fn a_namespace_that_is_gone_is_an_error() {
    // Process ids go to 2^22.
    let error = Netlink::in_namespace_of(u32::MAX / 2).unwrap_err();
    assert!(matches!(error, NetlinkError::Namespace(_)), "{error}");
    assert!(error.to_string().contains("2147483647"), "{error}");
}

fn an_interface_is_waited_for() {
    let namespace = Namespace::new();
    let mut netlink = netlink(&namespace);
    let id = namespace.id;
    let started = Instant::now();
    let index = thread::scope(|scope| {
        scope.spawn(|| {
            // So late that the first look sees nothing; others come and go meanwhile.
            thread::sleep(Duration::from_millis(200));
            namespace.run("ip link add other type veth peer name another");
            namespace.run("ip link del other");
            namespace.run("ip link add left type veth peer name right");
        });
        netlink
            .wait_for("see right", started + Duration::from_secs(20), |reports| {
                let found = reports.iter().find(|r| r.interface.name.as_str() == "right");
                found.map(|report| report.index)
            })
            .unwrap()
    });
    assert!(started.elapsed() < Duration::from_secs(15));
    let mut fresh = Netlink::in_namespace_of(id).unwrap();
    assert_eq!(named(&mut fresh, "right").index, index);
    // The socket still answers, whatever events came meanwhile.
    assert_eq!(named(&mut netlink, "right").index, index);
}

fn waiting_ends_at_its_deadline() {
    let namespace = Namespace::new();
    let mut netlink = netlink(&namespace);
    let tree = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let deadline = started + Duration::from_millis(300);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| namespace.run("ip link add left type veth peer name right"));
        let root = Root::at(tree.path());
        wait_for_interface(&mut netlink, &root, "0000:04:10.5".parse().unwrap(), deadline)
    });
    let error = outcome.unwrap_err();
    assert!(matches!(error, NetlinkError::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("0000:04:10.5"), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(300));
}

fn events_that_are_lost_are_made_up_for() {
    let namespace = Namespace::new();
    let mut netlink = netlink(&namespace);
    let found = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            namespace.batch("ip", &veth_lines(400));
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        netlink.wait_for("see p399", deadline, |reports| {
            // So slow with each event that the socket's buffer overflows.
            thread::sleep(Duration::from_millis(20));
            let found = reports.iter().find(|report| report.interface.name.as_str() == "p399");
            found.map(|report| report.index)
        })
    });
    assert_eq!(named(&mut netlink, "p399").index, found.unwrap());
}

fn many_interfaces_are_listed() {
    let namespace = Namespace::new();
    namespace.batch("ip", &veth_lines(300));
    let reports = netlink(&namespace).interfaces().unwrap();
    let indices: BTreeSet<u32> = reports.iter().map(|report| report.index).collect();
    assert_eq!((reports.len(), indices.len()), (600, 600));
}

fn veth_lines(count: usize) -> String {
    let mut lines = String::new();
    for at in 0..count {
        writeln!(lines, "link add p{at} type veth peer name e{at}").unwrap();
    }
    lines
}

/// A bridge in one namespace with `count` ports `p0`..., whose other ends `e0`... are up in a second one.
fn bridge(count: usize, options: &str) -> (Namespace, Namespace, Vec<Endpoint>) {
    let (switch, guests) = (Namespace::new(), Namespace::new());
    let mut lines = format!("link add br0 type bridge {options}\nlink set br0 up\n");
    lines += &veth_lines(count);
    for at in 0..count {
        writeln!(lines, "link set p{at} master br0 up\nlink set e{at} netns {}", guests.id).unwrap();
    }
    switch.batch("ip", &lines);
    let ups: String = (0..count).map(|at| format!("link set e{at} up\n")).collect();
    guests.batch("ip", &ups);
    switch.ports_forward("br0");
    let mut reports = netlink(&guests).interfaces().unwrap();
    reports.sort_by_key(|report| report.interface.name.as_str()[1..].parse::<usize>().unwrap());
    let endpoint = |report: InterfaceReport| Endpoint {
        label: report.interface.name.to_string(),
        namespace: Some(guests.id),
        interface: report.index,
        mac: report.interface.mac,
    };
    let endpoints = reports.into_iter().map(endpoint).collect();
    (switch, guests, endpoints)
}

fn every_pair(count: usize) -> Vec<(usize, usize)> {
    let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).collect()
}

/// The pairs of which a frame arrived.
fn arrived(pairs: &[(usize, usize)], outcome: &[Reach]) -> BTreeSet<(usize, usize)> {
    let both = pairs.iter().zip(outcome);
    both.filter(|(_, reach)| matches!(reach, Reach::Arrived)).map(|(pair, _)| *pair).collect()
}

fn frames_pass_where_ports_are_not_isolated() {
    let (switch, _guests, endpoints) = bridge(4, "");
    switch.batch("bridge", "link set dev p0 isolated on\nlink set dev p1 isolated on\n");
    let pairs = every_pair(4);
    let timeout = Duration::from_secs(1);
    let started = Instant::now();
    let outcome = reach(&endpoints, &pairs, timeout).unwrap();
    let took = started.elapsed();
    let expected: BTreeSet<_> =
        pairs.iter().copied().filter(|pair| !matches!(pair, (0, 1) | (1, 0))).collect();
    assert_eq!(arrived(&pairs, &outcome), expected, "{outcome:?}");
    assert!(took >= timeout && took < timeout * 4, "{took:?}");
    // Where all arrive, nothing is waited for.
    let started = Instant::now();
    let outcome = reach(&endpoints, &[(2, 3)], Duration::from_secs(30)).unwrap();
    assert!(matches!(outcome[..], [Reach::Arrived]), "{outcome:?}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

fn a_wrong_mac_is_not_reached() {
    // With one address learnt at each port and floods off, the bridge passes what it knows the way to, and no more.
    let (switch, _guests, mut endpoints) = bridge(2, "");
    let lines = "link set dev p0 flood off learning on\nlink set dev p1 flood off learning on\n";
    switch.batch("bridge", lines);
    let there_and_back = [(0, 1), (1, 0)];
    switch.run(&format!("bridge fdb replace {} dev p1 master static", endpoints[1].mac));
    switch.run(&format!("bridge fdb replace {} dev p0 master static", endpoints[0].mac));
    let timeout = Duration::from_millis(300);
    let outcome = reach(&endpoints, &there_and_back, timeout).unwrap();
    assert_eq!(arrived(&there_and_back, &outcome).len(), 2, "{outcome:?}");
    endpoints[1].mac = "02:00:00:00:77:77".parse().unwrap();
    let outcome = reach(&endpoints, &[(0, 1)], timeout).unwrap();
    assert_eq!(outcome, [Reach::NotArrived]);
    // What an endpoint sends is not what it receives.
    let outcome = reach(&endpoints, &[(0, 0)], timeout).unwrap();
    assert_eq!(outcome, [Reach::NotArrived]);
}

fn an_interface_that_is_down_sends_nothing() {
    let (_switch, guests, mut endpoints) = bridge(3, "");
    guests.run("ip link set e0 down");
    let pairs = [(0, 1), (1, 0), (1, 2)];
    let outcome = reach(&endpoints, &pairs, Duration::from_millis(300)).unwrap();
    assert!(matches!(&outcome[0], Reach::SendFailed(why) if why.contains("down")), "{outcome:?}");
    assert_eq!(outcome[1], Reach::NotArrived);
    assert!(matches!(outcome[2], Reach::Arrived), "{outcome:?}");
    endpoints[0].interface = 4711;
    let error = reach(&endpoints, &pairs, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(&error, FramesError::Socket { interface: 4711, .. }), "{error}");
    endpoints[0].namespace = Some(u32::MAX / 2);
    let error = reach(&endpoints, &pairs, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, FramesError::Namespace { .. }), "{error}");
    let error = reach(&endpoints, &[(0, 3)], Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, FramesError::NoSuchEndpoint { pair: 0, endpoint: 3, count: 3 }), "{error}");
}

fn hundreds_of_endpoints_are_tried_at_once() {
    let (switch, _guests, endpoints) = bridge(200, "");
    let lines: String = (0..100).map(|at| format!("link set dev p{at} isolated on\n")).collect();
    switch.batch("bridge", &lines);
    // Each endpoint and the 25 that follow it: 5000 pairs.
    let following = |from: usize| (1..=25).map(move |step| (from, (from + step) % 200));
    let pairs: Vec<(usize, usize)> = (0..200).flat_map(following).collect();
    let started = Instant::now();
    let outcome = reach(&endpoints, &pairs, Duration::from_secs(3)).unwrap();
    let took = started.elapsed();
    let expected: BTreeSet<_> =
        pairs.iter().copied().filter(|(from, to)| *from >= 100 || *to >= 100).collect();
    let arrived = arrived(&pairs, &outcome);
    assert_eq!(arrived.difference(&expected).next(), None, "no frame passes between isolated ports");
    assert_eq!(expected.difference(&arrived).next(), None, "every other frame arrives");
    // One after the other, the isolated pairs alone would be waited for 3 s each, more than an hour.
    assert!(took < Duration::from_secs(60), "{took:?}");
}

fn a_port_is_given_its_vlans() {
    let switch = Namespace::new();
    switch.batch(
        "ip",
        "link add bridge type bridge vlan_filtering 1\nlink add none type bridge vlan_filtering 1 vlan_default_pvid 0\n\
         link add p0 type veth peer name far\nlink set p0 master bridge\n",
    );
    let mut netlink = netlink(&switch);
    let [bridge, none, port] = ["bridge", "none", "p0"].map(|name| named(&mut netlink, name).index);
    assert_eq!(netlink.default_pvid(bridge).unwrap(), Some(1));
    assert_eq!(netlink.default_pvid(none).unwrap(), None);
    let seen = |netlink: &mut Netlink, index: u32| {
        let all = netlink.port_vlans().unwrap();
        all.into_iter().find_map(|(of, vlans)| (of == index).then_some(vlans))
    };
    let witness = || -> String {
        let listed = switch.run("bridge vlan show dev p0");
        let words: Vec<&str> = listed.split_whitespace().skip(3).collect();
        words.join(" ")
    };
    let vlans = |tagged: &str, untagged: &str, pvid| PortVlans {
        tagged: tagged.parse().unwrap_or_default(),
        untagged: untagged.parse().unwrap_or_default(),
        pvid,
    };
    let new = vlans("", "1", Some(1));
    assert_eq!(seen(&mut netlink, port), Some(new.clone()));
    assert_eq!(seen(&mut netlink, none), Some(PortVlans::default()));
    let mut present = new;
    for (wanted, listed) in [
        (vlans("2-4094", "1", Some(1)), None),
        // The PVID in the middle of a range, and one whose frames keep their tags.
        (vlans("5,9-11", "20-24", Some(22)), None),
        (vlans("6-8", "", Some(7)), Some("6 7 PVID 8")),
        (vlans("6-8", "3", None), Some("3 Egress Untagged 6 7 8")),
        (PortVlans::default(), Some("")),
    ] {
        netlink.set_port_vlans(port, &present, &wanted).unwrap();
        assert_eq!(seen(&mut netlink, port), Some(wanted.clone()), "{wanted}");
        if let Some(listed) = listed {
            assert_eq!(witness(), listed, "{wanted}");
        }
        present = wanted;
    }
    switch.run("ip link set p0 nomaster");
    assert_eq!(seen(&mut netlink, port), None);
    let refused = netlink.set_port_vlans(port, &present, &vlans("7", "", None)).unwrap_err();
    assert!(refused.to_string().contains(&format!("put port {port} into VLANs 7")), "{refused}");
}

fn vlans_part_the_ports_of_a_bridge() {
    let (switch, _guests, endpoints) = bridge(4, "vlan_filtering 1");
    let mut lines = String::new();
    for (port, vlan) in [(0, 10), (1, 10), (2, 20), (3, 20)] {
        writeln!(lines, "vlan del dev p{port} vid 1\nvlan add dev p{port} vid {vlan} pvid untagged").unwrap();
    }
    switch.batch("bridge", &lines);
    let pairs = every_pair(4);
    let outcome = reach(&endpoints, &pairs, Duration::from_secs(1)).unwrap();
    let expected = BTreeSet::from([(0, 1), (1, 0), (2, 3), (3, 2)]);
    assert_eq!(arrived(&pairs, &outcome), expected, "{outcome:?}");
}

fn a_frame_whose_tag_was_stripped_counts() {
    let (left, right) = (Namespace::new(), Namespace::new());
    left.run(&format!("ip link add near type veth peer name far netns {}", right.id));
    left.batch("ip", "link add link near name near.7 type vlan id 7\nlink set near up\nlink set near.7 up\n");
    right.run("ip link set far up");
    let endpoint = |namespace: &Namespace, name: &str| {
        let report = named(&mut netlink(namespace), name);
        Endpoint {
            label: name.to_owned(),
            namespace: Some(namespace.id),
            interface: report.index,
            mac: report.interface.mac,
        }
    };
    let endpoints = [endpoint(&left, "near.7"), endpoint(&right, "far")];
    let outcome = reach(&endpoints, &[(0, 1)], Duration::from_secs(2)).unwrap();
    assert!(matches!(outcome[..], [Reach::Arrived]), "{outcome:?}");
}
