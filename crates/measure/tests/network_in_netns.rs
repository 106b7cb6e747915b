//! Samples between network namespaces that stand for guests, by the real iperf3, and by netperf where it is installed. `ip`
//! is the witness of what is left behind.
#![allow(clippy::disallowed_methods)]

mod network;

use std::{
    collections::BTreeMap,
    fs, iter,
    process::ExitCode,
    sync::{Arc, PoisonError, RwLock, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use network::{HOST, SECOND, USUAL, Vm, World, cell, end, guest, mac, tcp, throughput, usual_ends};
use penstock_host::{Command, Place, interrupt, process};
use penstock_measure::{
    matrix::Planned,
    network::{NetworkTaker, Options},
    parse,
    record::{CpuTime, SampleCpu},
    sampler::Sampler,
    testbed::FunctionInterface,
};
use penstock_model::{
    EndpointName, Mtu,
    measurement::{
        Direction, End, EndKind, Load, Measurement, Metric, Network, PathKind, Protocol, Subject, Tool,
    },
};
use penstock_testkit::{namespace::Namespace, needs, trials::Trials};

/// An interrupt reaches the whole process.
static ALONE: RwLock<()> = RwLock::new(());

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.side_by_side(4);
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let no_iperf3 = missing.clone().or_else(|| trials.lacking("iperf3", || needs::programs(&["iperf3"])));
    let no_netperf =
        missing.clone().or_else(|| trials.lacking("netperf", || needs::programs(&["netperf", "netserver"])));
    let iperf3: [(&str, fn()); 17] = [
        ("iperf3_measures_both_directions_in_netns", iperf3_measures_both_directions),
        ("traffic_stays_on_the_interfaces_that_are_meant_in_netns", traffic_stays_on_its_interfaces),
        ("a_bridge_is_made_and_removed_in_netns", a_bridge_is_made_and_removed),
        ("a_bridge_has_its_uplink_while_it_is_used_in_netns", a_bridge_has_its_uplink),
        ("an_uplink_in_use_is_left_alone_in_netns", an_uplink_in_use_is_left_alone),
        ("veths_in_a_bridge_of_the_hosts_come_and_go_in_netns", veths_in_a_bridge_of_the_hosts),
        ("containers_in_a_vm_come_and_go_with_each_sample_in_netns", containers_in_a_vm),
        ("what_is_down_is_missing_with_the_reason_in_netns", what_is_down_is_missing),
        ("a_path_that_does_not_answer_is_missing_in_netns", a_path_that_does_not_answer_is_missing),
        ("a_missing_tool_hides_its_own_cells_alone_in_netns", a_missing_tool),
        ("a_server_that_died_is_started_again_in_netns", a_server_that_died),
        ("a_link_that_was_down_is_used_again_in_netns", a_link_that_was_down),
        ("a_path_that_falls_silent_costs_little_in_netns", a_path_that_falls_silent),
        ("a_guest_that_stops_ends_its_samples_alone_in_netns", a_guest_that_stops),
        ("a_guest_that_boots_during_the_run_is_said_in_netns", a_guest_that_boots),
        ("an_unexpected_output_is_said_in_netns", an_unexpected_output),
        ("a_killed_run_leaves_nothing_for_long_in_netns", a_killed_run),
    ];
    let beside = |(name, test): (&'static str, fn())| {
        let test = move || {
            let _others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
            test();
        };
        (name, test)
    };
    trials.add(&no_iperf3, iperf3.map(beside));
    let interrupted = || {
        let _nobody = ALONE.write().unwrap_or_else(PoisonError::into_inner);
        an_interrupted_run();
    };
    trials.add(&no_iperf3, [("an_interrupted_run_gives_all_back_in_netns", interrupted)]);
    let no_nft = no_iperf3.clone().or_else(|| trials.lacking("lost datagrams", || needs::programs(&["nft"])));
    let lossy: [(&str, fn()); 1] = [("lost_datagrams_are_missing_and_never_0_in_netns", lost_datagrams)];
    trials.add(&no_nft, lossy.map(beside));
    let netperf: [(&str, fn()); 1] = [("netperf_measures_in_netns", netperf_measures)];
    trials.add(&no_netperf, netperf.map(beside));
    trials.run()
}

fn iperf3_measures_both_directions() {
    let world = World::new();
    let before = world.state();
    let cells = [
        tcp(usual_ends()),
        cell(Tool::Iperf3, Protocol::TcpStream, Direction::Reverse, usual_ends()),
        cell(Tool::Iperf3, Protocol::UdpStream, Direction::Forward, usual_ends()),
    ];
    let mut sampler = world.sampler();
    let preparation = sampler.prepare(&cells);
    assert_eq!(preparation.missing, BTreeMap::new());
    let links: Vec<_> = preparation.links.iter().map(|link| (link.end.to_string(), link.carrier)).collect();
    assert_eq!(links, [("a:NET0#1".to_owned(), Some(true)), ("b:NET0#3".to_owned(), Some(true))]);
    let tools: Vec<_> = preparation.tools.iter().map(|tool| (tool.tool, tool.place.as_str())).collect();
    assert_eq!(tools, [(Tool::Iperf3, "inside a"), (Tool::Iperf3, "inside b")]);
    assert!(preparation.tools.iter().all(|tool| tool.version.as_ref().is_some_and(|v| v.starts_with("3."))));
    assert_ne!(world.state(), before, "there are addresses and servers now");
    for cell in &cells {
        assert!(throughput(&mut sampler, cell).expect(&cell.id) > 1e5, "{}", cell.id);
    }
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!(world.state(), before);
    assert_eq!(sampler.finish(), Vec::<String>::new(), "already gone is a success");
}

fn counters(world: &World, place: &str, interface: &str) -> u64 {
    counters_in(&world.namespace(&guest(place)), interface)
}

fn counters_in(namespace: &Namespace, interface: &str) -> u64 {
    let text = namespace.run(&format!("ip -s -j link show dev {interface}"));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let stats = &json[0]["stats64"];
    stats["rx"]["bytes"].as_u64().unwrap() + stats["tx"]["bytes"].as_u64().unwrap()
}

fn traffic_stays_on_its_interfaces() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends()), tcp((end("a", "NET0#0"), end("b", "NET0#3")))];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let all = [("a", "eth0"), ("a", "eth1"), ("b", "eth0"), ("b", "eth1")];
    let count = || all.map(|(place, interface)| counters(&world, place, interface));
    let before = count();
    throughput(&mut sampler, &cells[0]).unwrap();
    let between = count();
    throughput(&mut sampler, &cells[1]).unwrap();
    let after = count();
    let moved = |from: [u64; 4], to: [u64; 4]| [0, 1, 2, 3].map(|i| to[i] - from[i] > 1_000_000);
    assert_eq!(moved(before, between), [false, true, false, true]);
    assert_eq!(moved(between, after), [true, false, false, true]);
    // One who meant another interface than the kernel takes is told.
    drop(sampler);
    world.namespace(&guest("a")).run("ip rule add to 198.16.0.0/14 lookup 77 priority 9");
    world.namespace(&guest("a")).run("ip route add 198.16.0.0/14 dev eth0 table 77");
    let mut sampler = world.sampler();
    let missing = sampler.prepare(&cells[..1]).missing;
    let why = &missing[&cells[0].id];
    assert!(why.contains("out of eth0") || why.contains("no answer"), "{why}");
}

fn a_bridge_is_made_and_removed() {
    let world = World::new();
    let host = world.namespace(&HOST);
    // What a run that was killed left, and a link of somebody else.
    host.batch("ip", "link add psbr0 type bridge\nlink set psbr0 alias 'penstock measure 1-2'\n");
    host.batch("ip", "link add psve0a type veth peer name x\nlink set psve0a alias 'penstock measure 1-2'\n");
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends()), tcp((end("a", ""), end("b", "")))];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    assert!(throughput(&mut sampler, &cells[1]).unwrap() > 1e6);
    assert!(host.run("ip -br link").contains("psve0b"));
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!(host.run("ip -br link").lines().count(), 1, "only the loopback interface");
    host.run("ip link add psbr0 type bridge");
    let before = world.state();
    let missing = sampler.prepare(&cells).missing;
    assert_eq!(missing.keys().collect::<Vec<_>>(), [&cells[1].id]);
    assert!(missing[&cells[1].id].contains("File exists"), "{missing:?}");
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!(world.state(), before);
}

fn a_bridge_has_its_uplink() {
    let mut world = World::new();
    world.uplink();
    let host = world.namespace(&HOST);
    let up0 = || host.run("ip -d link show dev up0");
    let (state, link) = (world.state(), up0());
    let on_host = End { place: HOST, kind: EndKind::Host, function: Some("NET1".parse().unwrap()) };
    let cells = [
        tcp((end("a", "NET1"), end("b", "NET0#3"))),
        tcp((end("a", "NET0#0"), on_host)),
        tcp((end("b", "NET1"), end("a", "NET0#0"))),
        tcp((end("a", ""), end("b", ""))),
    ];
    let mut sampler = world.sampler();
    let preparation = sampler.prepare(&cells);
    assert_eq!(preparation.missing, BTreeMap::new());
    let links: Vec<String> = preparation.links.iter().map(|link| link.end.to_string()).collect();
    assert_eq!(links, ["host:NET1", "b:NET0#3", "a:NET0#0"]);
    assert_eq!(up0(), link, "it is an end of another path too, and no port between samples");
    let count = || counters_in(&host, "up0");
    for cell in &cells[..3] {
        let before = count();
        assert!(throughput(&mut sampler, cell).expect(&cell.id) > 1e6, "{}", cell.id);
        assert!(count() > before + 100_000, "{} crosses the uplink", cell.id);
        assert_eq!(up0(), link);
    }
    let before = count();
    assert!(throughput(&mut sampler, &cells[3]).unwrap() > 1e6);
    assert!(count() < before + 100_000, "the other bridge has no uplink");
    let veth = world.namespace(&guest("a")).run("ip link show dev psin0a");
    assert!(veth.contains("mtu 1400"), "as large as the uplink's: {veth}");
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!((world.state(), up0()), (state.clone(), link.clone()));

    // Killed in the middle of a sample: the next run removes the bridge, and the uplink is free.
    host.batch("ip", "link add psbr7 type bridge\nlink set psbr7 alias 'penstock measure 1-2' up\n");
    host.run("ip link set up0 master psbr7");
    assert!(up0().contains("psbr7"));
    assert_eq!(sampler.prepare(&cells[..1]).missing, BTreeMap::new());
    assert!(throughput(&mut sampler, &cells[0]).unwrap() > 1e6);
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!((world.state(), up0()), (state, link));
}

fn an_uplink_in_use_is_left_alone() {
    let mut world = World::new();
    world.uplink();
    let host = world.namespace(&HOST);
    let cells = [tcp((end("a", "NET1"), end("b", "NET0#3")))];
    let why = |change: &str, back: &str| {
        change.lines().for_each(|line| drop(host.run(line)));
        let before = world.state();
        let mut sampler = world.sampler();
        let missing = sampler.prepare(&cells).missing;
        assert_eq!(sampler.finish(), Vec::<String>::new());
        assert_eq!(world.state(), before);
        back.lines().for_each(|line| drop(host.run(line)));
        missing.get(&cells[0].id).cloned().unwrap_or_else(|| panic!("{change}"))
    };
    let said = why("ip address add 10.8.0.1/24 dev up0", "ip address del 10.8.0.1/24 dev up0");
    assert!(said.ends_with("up0 has addresses"), "{said}");
    let said = why("ip route add 10.8.0.0/24 dev up0", "ip route del 10.8.0.0/24 dev up0");
    assert!(said.ends_with("routes lead over up0"), "{said}");
    let said = why("ip link add link up0 name mac5 type macvlan", "ip link del mac5");
    assert!(said.ends_with("up0 is in use (upper_mac5)"), "{said}");
    let said = why("ip link add br9 type bridge\nip link set up0 master br9", "ip link del br9");
    assert!(said.contains("up0 is in use (upper_br9)"), "{said}");
    let said = why("ip link set up0 down", "ip link set up0 up");
    assert_eq!(said, "path is down: NET1 on the host is not up (ip link set up0 up)");
    let function_interface = world.testbed.function_interfaces.get_mut(&"NET1".parse().unwrap()).unwrap();
    function_interface.as_mut().unwrap().in_use = true;
    let said = world.sampler().prepare(&cells).missing[&cells[0].id].clone();
    assert!(said.starts_with("NET1 is in use on the host: up0 has addresses"), "{said}");
}

/// Ports of a bridge of the host's (what a port is does not matter here) beside veths in the same bridge, which is as before afterwards
/// and while it is used.
fn veths_in_a_bridge_of_the_hosts() {
    let mut world = World::new();
    let host = world.namespace(&HOST);
    host.batch(
        "ip",
        "link add br0 type bridge\nlink set br0 addrgenmode none\nlink set br0 up\naddress add 10.9.1.254/24 dev br0\n",
    );
    for (number, name) in [(0, "a"), (1, "b")] {
        let inside = world.namespace(&guest(name));
        let link = format!(
            "link add tap{number} address fe:00:00:00:01:0{number} type veth peer name net0 address {} mtu {} netns {}\n\
             link set tap{number} addrgenmode none\nlink set tap{number} master br0 up\n",
            mac(20 + number),
            1500 - 100 * u32::from(number),
            inside.id
        );
        host.batch("ip", &link);
        inside.batch("ip", "link set net0 addrgenmode none\nlink set net0 up\n");
        let interface = |name: &str, mac, mtu| FunctionInterface {
            interface: name.parse().unwrap(),
            mac,
            mtu: Mtu::new(mtu).unwrap(),
            carrier: Some(true),
            speed: None,
            in_use: false,
        };
        let nic: EndpointName = format!("{name}/net0").parse().unwrap();
        let own = interface("net0", mac(20 + number), 1500 - 100 * u32::from(number));
        world.testbed.function_interfaces.insert(nic.clone(), Ok(own));
        let shown = host.run("ip -o link show dev br0");
        let bridge = shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let bridge = bridge.parse().unwrap();
        world.testbed.bridges.insert(nic, Ok(interface("br0", bridge, 1500)));
    }
    let br0 = || host.run("ip -o link show dev br0");
    // Carriers come a moment after their ports (`linkwatch_event`), and would be a difference afterwards.
    let settled = || {
        let carrier =
            |name: &str| world.namespace(&guest(name)).run("ip link show dev net0").contains("state UP");
        br0().contains("state UP") && carrier("a") && carrier("b")
    };
    assert!(
        (0..100).any(|_| settled() || {
            thread::sleep(SECOND / 20);
            false
        }),
        "{}",
        world.state()
    );
    let (state, bridge) = (world.state(), br0());
    let on_host = || End { place: HOST, kind: EndKind::Host, function: None };
    let ends = [
        (PathKind::PortPort, end("a", "a/net0"), end("b", "b/net0")),
        (PathKind::VethVeth, end("a", "a/net0"), end("b", "b/net0")),
        (PathKind::PortHost, end("a", "a/net0"), on_host()),
        (PathKind::VethHost, end("a", "a/net0"), on_host()),
    ];
    let cells = ends.map(|(path, client, server)| {
        let mut planned = tcp((client, server));
        let Subject::Network(network) = &mut planned.measurement.subject else { unreachable!() };
        network.path = path;
        Planned { id: path.to_string(), ..planned }
    });
    let mut sampler = world.sampler();
    let preparation = sampler.prepare(&cells);
    assert_eq!(preparation.missing, BTreeMap::new());
    assert_eq!(br0(), bridge, "its address and its MTU are its own");
    let a = world.namespace(&guest("a"));
    let quiet =
        a.run("cat /proc/sys/net/ipv4/conf/psin1a/arp_ignore /proc/sys/net/ipv6/conf/psin1a/disable_ipv6");
    assert_eq!(quiet, "8\n1\n", "what is at the bridge is not answered there");
    assert!(a.run("ip link show dev psin0a").contains("mtu 1400"), "as large as between the NICs");
    let joined = host.run("ip -o link show master br0");
    assert!(
        joined.contains("psve1a") && !joined.contains("psve0"),
        "no container meets another in the host's bridge: {joined}"
    );
    for (cell, interface) in cells.iter().zip(["net0", "psin0a", "net0", "psin1a"]) {
        let before = counters_in(&a, interface);
        assert!(throughput(&mut sampler, cell).expect(&cell.id) > 1e6, "{}", cell.id);
        assert!(counters_in(&a, interface) > before + 100_000, "{} crosses {interface}", cell.id);
    }
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!((world.state(), br0()), (state.clone(), bridge));

    // What a Penstock that was killed leaves goes with the next run; a bridge that would keep new ports waiting is left alone.
    host.batch("ip", "link add psve7a type veth peer name psve7b\nlink set psve7a alias 'penstock measure 1-2' master br0\n");
    assert_eq!(sampler.prepare(&cells[1..2]).missing, BTreeMap::new());
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!(world.state(), state);
    host.run("ip link set br0 type bridge stp_state 1");
    let missing = sampler.prepare(&cells).missing;
    assert_eq!(missing.keys().collect::<Vec<_>>(), ["veth-host"]);
    assert!(missing["veth-host"].contains("spanning tree"), "{missing:?}");
    assert_eq!(sampler.finish(), Vec::<String>::new());
}

/// From containers in a VM over its PF and by its VF to the host, and nothing is left between samples, after the run, and of a run that was
/// killed.
fn containers_in_a_vm() {
    let mut world = World::new();
    world.uplink();
    let vm = Arc::new(Vm::new(world.namespace(&guest("a")).id));
    vm.shell("ip address flush dev eth0; ip address flush dev eth1");
    world.testbed.places.insert(guest("node-1"), Ok(Arc::clone(&vm) as Arc<dyn Place>));
    for (name, function_interface) in [("node-1/net0", "NET0#0"), ("node-1/net0#0", "NET0#1")] {
        let function_interface =
            world.testbed.function_interfaces[&function_interface.parse().unwrap()].clone();
        world.testbed.function_interfaces.insert(name.parse().unwrap(), function_interface);
    }
    let paths =
        [PathKind::VmVf, PathKind::VmBridge, PathKind::VmBridgeNat, PathKind::VmMacvlan, PathKind::VmPf];
    let cells = paths.map(|path| {
        let function = if path == PathKind::VmVf { "node-1/net0#0" } else { "node-1/net0" };
        let client =
            End { place: guest("node-1"), kind: EndKind::Vm, function: Some(function.parse().unwrap()) };
        let server = End { place: HOST, kind: EndKind::Host, function: Some("NET1".parse().unwrap()) };
        let network = Network {
            protocol: Protocol::UdpStream,
            path,
            client,
            server,
            size: 1024,
            direction: Direction::Reverse,
            load: Load::Closed,
        };
        let measurement = Measurement { tool: Tool::Iperf3, subject: Subject::Network(network) };
        Planned { id: path.to_string(), measurement, block: 0, null: false }
    });
    // A control group whose time stands still.
    let group = tempfile::NamedTempFile::new().unwrap();
    fs::write(&group, "usage_usec 7\n").unwrap();
    let groups = vec![group.path().to_str().unwrap().to_owned()];
    world.testbed.vm_groups.insert(guest("node-1"), Ok(groups));
    let traces = || {
        vm.shell(
            "ip netns list; ip -br link; ip -4 -o address | sed 's/valid_lft.*//'; ip neigh show nud permanent; ip route; \
             cat /proc/sys/net/ipv4/conf/*/forwarding; nft list ruleset",
        )
    };
    let before = traces();
    let mut sampler = world.sampler();
    let preparation = sampler.prepare(&cells);
    assert_eq!(preparation.missing, BTreeMap::new());
    // The control has its addresses meanwhile.
    let between = traces();
    for cell in &cells {
        let throughput = throughput(&mut sampler, cell).expect(&cell.id);
        assert!(throughput > 1e5, "{}: {throughput}", cell.id);
        // An interface that was moved back has its carrier a moment later (`linkwatch_event`).
        let settled = || {
            (0..100).any(|_| {
                traces() == between || {
                    thread::sleep(SECOND / 20);
                    false
                }
            })
        };
        assert!(settled(), "{}: {} and not {between}", cell.id, traces());
    }
    // The kernels' counters are read beside: of the VM all that runs there, of the host this control group.
    let raw = sampler.take(&cells[0], SECOND).unwrap();
    let Some(SampleCpu { guest: CpuTime::Counted { microseconds: busy, bits }, host }) = raw.cpu.clone()
    else {
        panic!("{raw:?}");
    };
    let CpuTime::Counted { microseconds: 0, bits: streamed } = host else { panic!("{raw:?}") };
    assert!(busy > 0 && bits > 0 && streamed > 0 && streamed <= bits, "{raw:?}");
    assert!(!raw.stderr.contains("penstock-cpu"), "{raw:?}");
    let values = parse::read(&cells[0].measurement, &raw).unwrap().values;
    assert_eq!(values[&Metric::GuestCpuPerGbit], busy as f64 / 1e6 / (bits as f64 / 1e9));
    assert_eq!(values[&Metric::HostCpuPerGbit], 0.0);
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!(traces(), before);

    // What cannot be seen is said, and is no 0.
    fs::write(&group, "user_usec 7\n").unwrap();
    let mut sampler = world.sampler();
    assert_eq!(sampler.prepare(&cells[..1]).missing, BTreeMap::new());
    let raw = sampler.take(&cells[0], SECOND).unwrap();
    let values = parse::read(&cells[0].measurement, &raw).unwrap().values;
    assert!(
        values.contains_key(&Metric::GuestCpuPerGbit) && !values.contains_key(&Metric::HostCpuPerGbit),
        "{raw:?}"
    );
    let said = sampler.finish();
    assert!(
        matches!(&said[..], [said] if said.starts_with("the CPU time of the host is not seen over vm vf: cpu.stat")),
        "{said:?}"
    );
    fs::write(&group, "usage_usec 7\n").unwrap();

    // Killed in the middle of a sample, with the VF and with NAT: the next run takes back what is there.
    for cell in [&cells[0], &cells[2]] {
        let mut killed = world.sampler();
        assert_eq!(killed.prepare(std::slice::from_ref(cell)).missing, BTreeMap::new());
        vm.takes_nothing_back.store(true, Ordering::Relaxed);
        let why = throughput(&mut killed, cell).unwrap_err();
        assert!(why.contains("could not be taken back"), "{why}");
        assert_eq!(killed.finish().len(), 1);
        vm.takes_nothing_back.store(false, Ordering::Relaxed);
        assert!(traces().contains("penstock-measure-0"), "{}: {}", cell.id, traces());
        vm.shell(KILL_KEEPERS);
        let mut sampler = world.sampler();
        assert_eq!(sampler.prepare(&cells[1..2]).missing, BTreeMap::new());
        assert_eq!(sampler.finish(), Vec::<String>::new());
        assert_eq!(traces(), before);
    }

    // What the VM uses is left alone.
    vm.shell("ip address add 10.8.0.1/24 dev eth1");
    world
        .testbed
        .function_interfaces
        .get_mut(&"node-1/net0#0".parse().unwrap())
        .unwrap()
        .as_mut()
        .unwrap()
        .in_use = true;
    let missing = world.sampler().prepare(&cells[..2]).missing;
    assert_eq!(missing.keys().collect::<Vec<_>>(), ["vm vf"]);
    assert!(missing["vm vf"].contains("is in use: eth1"), "{missing:?}");
    vm.shell("ip link add link eth0 name mac5 type macvlan");
    let missing = world.sampler().prepare(&cells[1..2]).missing;
    assert!(missing["vm bridge"].contains("eth0 is in use (upper_mac5)"), "{missing:?}");
}

/// Ends what runs in the VM for a run that was killed.
const KILL_KEEPERS: &str = "for e in $(grep -l PENSTOCK_MEASURE /proc/[0-9]*/environ 2>/dev/null); do p=${e%/environ}; \
     [ \"$(readlink $p/ns/mnt)\" = \"$(readlink /proc/self/ns/mnt)\" ] && kill -9 ${p#/proc/}; done; true";

fn what_is_down_is_missing() {
    let world = World::new();
    world.switch.run("ip link set port1 down");
    world.namespace(&guest("b")).run("ip link set eth0 down");
    let cells = [
        tcp(usual_ends()),
        tcp((end("a", "NET0#0"), end("b", "NET0#2"))),
        tcp((end("a", "NET0#0"), end("b", "NET0#3"))),
        tcp((end("a", "NET0#0"), end("b", "NET0#9"))),
        tcp((end("a", "NET0#0"), end("c", "NET0#3"))),
    ];
    let before = world.state();
    let mut sampler = world.sampler();
    let preparation = sampler.prepare(&cells);
    let why = |number: usize| preparation.missing.get(&cells[number].id).map(String::as_str);
    assert_eq!(why(0), Some("path is down: NET0#1 inside a has no carrier"));
    assert_eq!(why(1), Some("path is down: NET0#2 inside b is not up (ip link set eth0 up)"));
    assert_eq!(why(2), None);
    assert_eq!(why(3), Some("NET0#9 is not there"));
    assert!(why(4).unwrap().contains("c"), "{:?}", why(4));
    assert!(throughput(&mut sampler, &cells[2]).unwrap() > 1e5);
    assert!(sampler.take(&cells[0], SECOND).unwrap_err().contains("not made ready"));
    drop(sampler);
    assert_eq!(world.state(), before, "a sampler that is dropped gives all back too");
}

fn a_path_that_does_not_answer_is_missing() {
    let world = World::new();
    world.switch.run("bridge link set dev port1 isolated on");
    world.switch.run("bridge link set dev port3 isolated on");
    let cells = [tcp(usual_ends()), tcp((end("a", "NET0#0"), end("b", "NET0#3")))];
    let mut sampler = world.sampler();
    let missing = sampler.prepare(&cells).missing;
    assert_eq!(missing.keys().collect::<Vec<_>>(), [&cells[0].id]);
    let why = &missing[&cells[0].id];
    assert!(why.starts_with("NET0#1 inside a gets no answer from NET0#3 inside b"), "{why}");
    assert!(throughput(&mut sampler, &cells[1]).is_ok());
}

fn a_missing_tool() {
    let world = World::new();
    let mut programs = USUAL.to_vec();
    programs.push("iperf3");
    let _kept = world.programs(&guest("b"), &programs, &[]);
    let cells = [
        cell(Tool::Netperf, Protocol::UdpStream, Direction::Forward, usual_ends()),
        tcp(usual_ends()),
        cell(Tool::Iperf3, Protocol::TcpRr, Direction::Forward, usual_ends()),
    ];
    let mut sampler = world.sampler();
    let preparation = sampler.prepare(&cells);
    let why = &preparation.missing[&cells[0].id];
    assert!(why.contains("is not installed inside") && why.contains("install the package netperf"), "{why}");
    assert_eq!(preparation.missing[&cells[2].id], "iperf3 has no tcp rr");
    let version = |tool| preparation.tools.iter().find(|t| t.tool == tool && t.place == "inside b").cloned();
    assert_eq!(version(Tool::Netperf).unwrap().version, None);
    assert!(throughput(&mut sampler, &cells[1]).unwrap() > 1e5);
    // A server that ends at once.
    drop(sampler);
    let broken = |says: &str, then: &str| {
        let script =
            format!("#!/bin/sh\n[ \"$1\" = --version ] && echo iperf 3.12 && exit\n{says}\n{then}\n");
        let _kept = world.programs(&guest("b"), &USUAL, &[("iperf3", &script)]);
        let started = Instant::now();
        let options = Options { start: Duration::from_secs(9), ..Options::default() };
        let mut sampler = NetworkTaker::new(&world.testbed, options);
        let why = sampler.prepare(&cells[1..2]).missing[&cells[1].id].clone();
        assert!(why.starts_with("iperf3 does not listen inside b at 198.18.0."), "{why}");
        assert_eq!(started.elapsed() < Duration::from_secs(6), then == "exit 1", "{:?}", started.elapsed());
        why
    };
    let why = broken("echo 'iperf3: error - no * here' >&2", "exit 1");
    assert!(why.ends_with(": it says: iperf3: error - no * here"), "{why}");
    let why = broken(":", "exit 1");
    assert!(why.ends_with("it ends at once, and does not say why"), "{why}");
    let why = broken("echo hello", "exec sleep 60");
    assert!(why.ends_with("it did not within 9 s, try it there by hand"), "{why}");
    // No ip at all.
    let kept: Vec<&str> = USUAL.into_iter().filter(|program| *program != "ip").collect();
    let _kept = world.programs(&guest("b"), &kept, &[]);
    let why = world.sampler().prepare(&cells[1..2]).missing[&cells[1].id].clone();
    assert_eq!(why, "iproute2 is not installed inside b: its program ip sets the addresses");
}

fn a_server_that_died() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends())];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let kill = format!(
        "pkill --ns {} --nslist net --full --exact iperf3.-4.-s.-B.198.18.0.2.-p.[0-9]+",
        world.namespace(&guest("b")).id
    );
    Command::new("sh").args(["-c", &kill]).succeed().expect("there is a server");
    assert!(throughput(&mut sampler, &cells[0]).unwrap() > 1e5);
    // One that hangs is another matter: the sample ends in words, and the next one has a new server.
    let stop = kill.replace("pkill", "pkill --signal STOP");
    Command::new("sh").args(["-c", &stop]).succeed().expect("there is a server");
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.starts_with("iperf3 inside a had no end within 7 s"), "{why}");
    assert!(throughput_again(&mut sampler, &cells[0]) > 1e5);
}

fn a_link_that_was_down() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends())];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    for (place, interface) in [("a", "eth1"), ("b", "eth1")] {
        let inside = world.namespace(&guest(place));
        inside.run(&format!("ip link set {interface} down"));
        throughput(&mut sampler, &cells[0]).unwrap_err();
        inside.run(&format!("ip link set {interface} up"));
        assert!(throughput_again(&mut sampler, &cells[0]) > 1e5);
        // With the link it forgot its neighbour; were that one asked for, any interface of the other guest would answer.
        assert!(inside.run("ip neigh show nud permanent").contains("198.18."), "{place}");
    }
    // What is forgotten already is no hindrance to giving back the rest.
    let inside = world.namespace(&guest("a"));
    inside.run("ip link set eth1 down");
    inside.run("ip link set eth1 up");
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert!(!inside.run("ip address").contains("198.18."));
}

fn a_path_that_falls_silent() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends())];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let isolated = |how: &str| {
        for port in ["port1", "port3"] {
            world.switch.run(&format!("bridge link set dev {port} isolated {how}"));
        }
    };
    isolated("on");
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.contains("had no end within 7 s"), "{why}");
    // Once is enough: the next sample asks first whether anybody answers, and does not wait for long.
    let began = Instant::now();
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.contains("gets no answer"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    isolated("off");
    assert!(throughput_again(&mut sampler, &cells[0]) > 1e5);
}

/// The first sample after one that had no end: whether the server answers is asked first, and on a busy machine an answer may take
/// longer than the 1.5 s that are waited for it here. Such a sample is lost, and the next one is taken.
fn throughput_again(sampler: &mut NetworkTaker, cell: &Planned) -> f64 {
    let mut lost = Vec::new();
    let taken = iter::repeat_with(|| throughput(sampler, cell)).take(5).find_map(|sample| {
        let within = |why: &String| why.contains(" gets no answer ") && why.contains(" within ");
        match sample {
            Err(why) if within(&why) => {
                lost.push(why);
                None
            }
            sample => Some(sample.unwrap()),
        }
    });
    taken.unwrap_or_else(|| panic!("{lost:?}"))
}

fn a_guest_that_stops() {
    let world = World::new();
    let host = world.namespace(&HOST);
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends()), tcp((end("a", ""), end("b", "")))];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let before = world.namespace(&guest("a")).run("ip address");
    assert!(before.contains("198.18."));
    let b = Arc::clone(&world.places[&guest("b")]);
    let stop = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        // All that runs there dies with it.
        let kill = "for f in $(grep -l 'PENSTOCK_MEASURE=.*-server;' /proc/[0-9]*/environ 2>/dev/null); do p=${f%/environ}; \
                    [ $(readlink $p/ns/net) = \"$0\" ] && kill -9 ${p#/proc/}; done";
        let id = b.namespace().unwrap().unwrap();
        let name = fs::read_link(format!("/proc/{id}/ns/net")).unwrap();
        *b.namespace.lock().unwrap() = None;
        Command::new("sh").args(["-c", kill]).arg(name).run().unwrap();
    });
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    stop.join().unwrap();
    assert!(why.contains("could not reach anything inside b: it stopped"), "{why}");
    let why = throughput(&mut sampler, &cells[1]).unwrap_err();
    assert!(why.contains("could not reach anything inside b: it stopped"), "{why}");
    assert_eq!(sampler.finish(), Vec::<String>::new());
    let after = world.namespace(&guest("a")).run("ip address");
    assert!(!after.contains("198.18.") && !after.contains("psin"), "{after}");
    assert_eq!(host.run("ip -br link").lines().count(), 1);
    assert_eq!(world.marked(), Vec::<String>::new());
}

fn a_guest_that_boots() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends())];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let id = tempfile::NamedTempFile::new().unwrap();
    fs::write(id.path(), "5ff2da8c-0d89-4a76-992b-6e1106c26e11\n").unwrap();
    *world.places[&guest("a")].boot.lock().unwrap() = Some(id.path().to_owned());
    let inside = world.namespace(&guest("a"));
    // As a VF that the VM had enabled before.
    inside.run("ip link delete eth1");
    throughput(&mut sampler, &cells[0]).unwrap_err();
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.contains("Cannot find device") && why.contains("the kernel inside a has booted"), "{why}");
    let notes = sampler.finish();
    let [note] = &*notes else { panic!("{notes:?}") };
    assert!(note.contains("the kernel inside a has booted since the run began"), "{note}");
}

fn lost_datagrams() {
    let world = World::new();
    let mut sampler = world.sampler();
    let cells =
        [cell(Tool::Iperf3, Protocol::UdpStream, Direction::Forward, usual_ends()), tcp(usual_ends())];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let to = world.namespace(&guest("b"));
    to.run("nft add table ip lossy");
    to.run("nft add chain ip lossy in { type filter hook input priority 0 ; }");
    // What iperf3 begins with is shorter, and passes.
    to.run("nft add rule ip lossy in udp length > 500 drop");
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.contains("nothing arrived"), "{why}");
    to.run("nft add rule ip lossy in udp length > 0 drop");
    let started = Instant::now();
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(20), "{why}");
    assert!(throughput(&mut sampler, &cells[1]).unwrap() > 1e5, "TCP goes on");
}

/// An interrupt that comes, and is pending no more once this is dropped: whatever fails, the tests after it are not to be interrupted.
struct Interrupted(Option<thread::JoinHandle<()>>);

impl Interrupted {
    fn after(time: Duration) -> Interrupted {
        Interrupted(Some(thread::spawn(move || {
            thread::sleep(time);
            interrupt::watched().store(true, Ordering::Relaxed);
        })))
    }

    fn wait(&mut self) {
        if let Some(thread) = self.0.take() {
            thread.join().expect("it only sleeps");
        }
    }
}

impl Drop for Interrupted {
    fn drop(&mut self) {
        self.wait();
        interrupt::acknowledge();
    }
}

fn an_interrupted_run() {
    let world = World::new();
    let before = world.state();
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends()), tcp((end("a", ""), end("b", "")))];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let mut interrupted = Interrupted::after(Duration::from_millis(300));
    let started = Instant::now();
    let why = sampler.take(&cells[0], Duration::from_secs(5)).unwrap_err();
    interrupted.wait();
    assert!(why.contains("interrupted"), "{why}");
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert!(interrupt::acknowledge(), "whoever asks next is told of it too");
    assert_eq!(world.state(), before);
}

fn a_killed_run() {
    let world = World::new();
    let before = world.state();
    let (lease, timeout) = (Duration::from_secs(4), Duration::from_secs(3));
    let options = Options { lease, timeout, ..Options::default() };
    let mut sampler = NetworkTaker::new(&world.testbed, options);
    let cells = [tcp(usual_ends()), tcp((end("a", ""), end("b", "")))];
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    // It is renewed while it is used: a lease is shorter than what is left of it would need.
    assert!(throughput(&mut sampler, &cells[0]).unwrap() > 1e5);
    assert_ne!(world.state(), before);
    std::mem::forget(sampler);
    let started = Instant::now();
    // A sample of 4 s at most was begun, for which it is lent for four times as long.
    while world.state() != before {
        assert!(started.elapsed() < Duration::from_secs(60), "still there: {}", world.state());
        thread::sleep(Duration::from_millis(500));
    }
}

fn an_unexpected_output() {
    let world = World::new();
    // A client of another version, and a server that only listens.
    let client = "#!/bin/sh\ncase \"$1\" in --version) echo 'iperf 4.0 (x)'; exit ;; esac\n\
                  case \"$*\" in *-J*) echo '{\"start\": {\"version\": \"iperf 4.0\"}}' ;; \
                  *) exec REAL \"$@\" ;; esac\n";
    let real = process::find("iperf3").expect("it is here").display().to_string();
    let _kept = world.programs(&guest("a"), &USUAL, &[("iperf3", &client.replace("REAL", &real))]);
    let mut sampler = world.sampler();
    let cells = [tcp(usual_ends())];
    let preparation = sampler.prepare(&cells);
    assert_eq!(preparation.missing, BTreeMap::new());
    assert_eq!(preparation.tools[0].version.as_deref(), Some("4.0"));
    let why = throughput(&mut sampler, &cells[0]).unwrap_err();
    assert!(why.contains("version \"iperf 4.0\" is not known here"), "{why}");
}

fn netperf_measures() {
    let world = World::new();
    let before = world.state();
    let cells: Vec<Planned> = Protocol::ALL
        .into_iter()
        .map(|protocol| cell(Tool::Netperf, protocol, Direction::Forward, usual_ends()))
        .collect();
    let mut sampler = world.sampler();
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    for cell in &cells {
        let raw = sampler.take(cell, SECOND).expect(&cell.id);
        let reading = parse::read(&cell.measurement, &raw).expect(&raw.stdout);
        assert!(reading.values[&cell.measurement.main_metric()] > 1.0, "{}", cell.id);
    }
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!(world.state(), before);
}
