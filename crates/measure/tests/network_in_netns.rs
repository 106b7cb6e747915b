//! Samples between network namespaces that stand for guests, by the real iperf3, and by netperf where it is installed. `ip`
//! is the witness of what is left behind.
#![allow(clippy::disallowed_methods)]

mod network;

use std::{collections::BTreeMap, fs, process::ExitCode, sync::atomic::Ordering, thread};

use network::open_vswitch::OpenVswitch;
use network::{
    HOST, SECOND, TRACES, World, cell, end, guest, mac, received_in_vm, tcp, throughput, usual_ends,
};
use penstock_measure::{
    matrix::Planned,
    parse,
    record::{CpuTime, SampleCpu},
    sampler::Sampler,
    testbed::FunctionInterface,
};
use penstock_model::{
    EndpointName, Mtu,
    measurement::{Direction, End, EndKind, Metric, PathKind, Protocol, Subject, Tool},
};
use penstock_testkit::{namespace::Namespace, needs, trials::Trials};

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    trials.side_by_side(4);
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let no_iperf3 = missing.clone().or_else(|| trials.lacking("iperf3", || needs::programs(&["iperf3"])));
    let no_netperf =
        missing.clone().or_else(|| trials.lacking("netperf", || needs::programs(&["netperf", "netserver"])));
    let iperf3: [(&str, fn()); 7] = [
        ("iperf3_measures_both_directions_in_netns", iperf3_measures_both_directions),
        ("traffic_stays_on_the_interfaces_that_are_meant_in_netns", traffic_stays_on_its_interfaces),
        ("a_bridge_is_made_and_removed_in_netns", a_bridge_is_made_and_removed),
        ("a_bridge_has_its_uplink_while_it_is_used_in_netns", a_bridge_has_its_uplink),
        ("an_uplink_in_use_is_left_alone_in_netns", an_uplink_in_use_is_left_alone),
        ("veths_in_a_bridge_of_the_hosts_come_and_go_in_netns", veths_in_a_bridge_of_the_hosts),
        ("containers_in_a_vm_come_and_go_with_each_sample_in_netns", containers_in_a_vm),
    ];
    trials.add(&no_iperf3, iperf3);
    let netperf: [(&str, fn()); 2] = [
        ("netperf_measures_in_netns", netperf_measures),
        ("netperf_sends_datagrams_through_nat_in_netns", netperf_sends_through_nat),
    ];
    trials.add(&no_netperf, netperf);
    let no_open_vswitch = no_iperf3.or_else(|| trials.lacking("Open vSwitch", OpenVswitch::lacking));
    let open_vswitch: [(&str, fn()); 1] =
        [("a_container_in_a_vm_is_at_open_vswitch_in_netns", a_container_at_open_vswitch)];
    trials.add(&no_open_vswitch, open_vswitch);
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
    let (mut world, vm) = World::with_vm();
    let cells =
        [PathKind::VmVf, PathKind::VmBridge, PathKind::VmBridgeNat, PathKind::VmMacvlan, PathKind::VmPf]
            .map(received_in_vm);
    let group = world.still_group();
    world.testbed.instruction = Some(16);
    let traces = || vm.shell(TRACES);
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
    let Some(SampleCpu { guest: CpuTime::Counted { microseconds: busy, bits, frames }, host, .. }) =
        raw.cpu.clone()
    else {
        panic!("{raw:?}");
    };
    let CpuTime::Counted { microseconds: 0, bits: streamed, .. } = host else { panic!("{raw:?}") };
    assert!(busy > 0 && bits > 0 && streamed > 0 && streamed <= bits, "{raw:?}");
    assert!(frames > 0 && bits / frames > 8 * 1024, "each frame has a datagram of 1 KiB: {raw:?}");
    assert!(!raw.stderr.contains("penstock-cpu"), "{raw:?}");
    let values = parse::read(&cells[0].measurement, &raw).unwrap().values;
    assert_eq!(values[&Metric::GuestCpuPerGbit], busy as f64 / 1e6 / (bits as f64 / 1e9));
    assert_eq!(values[&Metric::GuestInstructionsPerFrame], busy as f64 * 1e3 / 16.0 / frames as f64);
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

/// The same by Open vSwitch, with its datapath in user space: the kernel here may have none.
fn a_container_at_open_vswitch() {
    let (mut world, vm) = World::with_vm();
    let _group = world.still_group();
    let _open_vswitch = OpenVswitch::start(&vm);
    let cell = [received_in_vm(PathKind::VmOvs)];
    let before = vm.shell(TRACES);
    let mut sampler = world.sampler();
    assert_eq!(sampler.prepare(&cell).missing, BTreeMap::new());
    for _ in 0..2 {
        let throughput = throughput(&mut sampler, &cell[0]).unwrap();
        assert!(throughput > 1e5, "{throughput}");
    }
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!(vm.shell(TRACES), before);
    assert_eq!(vm.shell("ovs-vsctl list-br"), "");

    // A bridge of a run whose VM was reset goes with the next sample, one of somebody else's is left alone.
    vm.shell(
        "ovs-vsctl add-br psbr5 -- br-set-external-id psbr5 penstock 'penstock measure 1-2' -- add-port psbr5 eth0 -- add-br psbr6",
    );
    let mut sampler = world.sampler();
    assert_eq!(sampler.prepare(&cell).missing, BTreeMap::new());
    assert!(throughput(&mut sampler, &cell[0]).unwrap() > 1e5);
    assert_eq!(sampler.finish(), Vec::<String>::new());
    assert_eq!(vm.shell("ovs-vsctl list-br"), "psbr6\n");

    // What `ovs-vsctl` says and ends well with, is told; the PF of somebody's bridge is left alone.
    vm.shell("ovs-vsctl add-br psbr0");
    let mut sampler = world.sampler();
    let missing = sampler.prepare(&cell).missing;
    assert!(missing["vm ovs"].contains("a bridge named psbr0 already exists"), "{missing:?}");
    sampler.finish();
    assert_eq!(vm.shell("ip netns list; ovs-vsctl list-br"), "psbr0\npsbr6\n");
}

/// Ends what runs in the VM for a run that was killed.
const KILL_KEEPERS: &str = "for e in $(grep -l PENSTOCK_MEASURE /proc/[0-9]*/environ 2>/dev/null); do p=${e%/environ}; \
     [ \"$(readlink $p/ns/mnt)\" = \"$(readlink /proc/self/ns/mnt)\" ] && kill -9 ${p#/proc/}; done; true";

fn netperf_sends_through_nat() {
    let (mut world, _vm) = World::with_vm();
    let _group = world.still_group();
    let mut cell = received_in_vm(PathKind::VmBridgeNat);
    cell.measurement.tool = Tool::Netperf;
    let Subject::Network(network) = &mut cell.measurement.subject else { unreachable!() };
    network.direction = Direction::Forward;
    let cells = [cell];
    let mut sampler = world.sampler();
    assert_eq!(sampler.prepare(&cells).missing, BTreeMap::new());
    let raw = sampler.take(&cells[0], SECOND).unwrap();
    let reading = parse::read(&cells[0].measurement, &raw).expect(&raw.stdout);
    assert!(reading.values[&Metric::Throughput] > 1e5, "{raw:?}");
    assert_eq!(sampler.finish(), Vec::<String>::new());
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
