//! Ports that are no guest's against the kernel: what a tap sends goes through two switches and a cable between them to a packet
//! socket, and from there over a veth pair to another namespace.
#![allow(clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sched::{CloneFlags, setns, unshare},
    time::{ClockId, clock_gettime},
};
use penstock_switch::{
    config::{Cable, Config, PortConfig},
    counters::Dropped,
    outside::packet,
    server::{Event, PortState, Server},
};
use penstock_testkit::{namespace::Namespace, needs, trials::Trials};

const TIMEOUT: Duration = Duration::from_secs(20);
const TAP_MAC: &str = "02:00:00:00:0a:01";

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    // One of them looks at how much this process works.
    trials.one_at_a_time();
    let missing = trials.lacking("taps and packet sockets", || {
        let device = Path::new("/dev/net/tun").exists();
        needs::network_namespace().or_else(|| (!device).then(|| "there is no /dev/net/tun".to_owned().into()))
    });
    let checks: [(&str, fn()); 5] = [
        ("tcp_goes_from_a_tap_over_a_cable_to_a_network_in_netns", tcp_goes_all_the_way),
        ("a_carrier_and_an_interface_that_go_and_come_are_followed_in_netns", carriers_are_followed),
        ("an_idle_switch_with_wires_sleeps_in_netns", an_idle_switch_sleeps),
        ("a_tap_has_the_address_of_its_port_in_netns", a_tap_has_the_address_of_its_port),
        ("what_cannot_be_had_is_refused_with_the_reason_in_netns", what_cannot_be_had),
    ];
    let alone = |check: fn()| {
        let work = move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            check();
        };
        thread::spawn(work).join().unwrap();
    };
    trials.add(&missing, checks.map(|(name, check)| (name, move || alone(check))));
    trials.run()
}

fn ip(line: &str) {
    assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "ip {line}");
}

fn address_of(interface: &str) -> String {
    // Read in this thread's namespace: sysfs shows that in which it was mounted.
    let output = Command::new("ip").args(["-brief", "link", "show", "dev", interface]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().nth(2).unwrap_or_default().to_owned()
}

fn switch<const N: usize>(ports: [(&str, PortConfig); N]) -> Server {
    let ports: BTreeMap<String, PortConfig> = ports.map(|(name, port)| (name.to_owned(), port)).into();
    let server = Server::start().unwrap();
    server.apply(&Config { version: 1, loopback: true, ports, ..Config::default() }).unwrap();
    server
}

fn tap() -> PortConfig {
    PortConfig { tap: Some("t0".into()), mac: Some(TAP_MAC.into()), ..PortConfig::default() }
}

fn packet(name: &str) -> PortConfig {
    PortConfig { packet: Some(name.into()), uplink: true, ..PortConfig::default() }
}

fn port(server: &Server, name: &str) -> PortState {
    server.ports().unwrap().remove(name).unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A tap in this namespace, two switches, and the other namespace behind a veth pair.
fn rig(directory: &Path) -> (Server, Server, Namespace) {
    let far = Namespace::new();
    ip("link set lo up");
    ip(&format!("link add v0 type veth peer name v1 netns {}", far.id));
    ip("link set v0 up");
    far.run("ip link set v1 up");
    far.run("ip address add 10.9.0.2/24 dev v1");
    let path = directory.join("cable");
    let near = PortConfig { cable: Some(Cable::Listen(path.clone())), uplink: true, ..PortConfig::default() };
    let left = switch([("tap", tap()), ("cable", near)]);
    let far_end = PortConfig { cable: Some(Cable::Connect(path)), default: true, ..PortConfig::default() };
    let right = switch([("cable", far_end), ("net", packet("v0"))]);
    assert_eq!(address_of("t0"), TAP_MAC, "a tap that is made has its port's address");
    ip("address add 10.9.0.1/24 dev t0");
    until("the links", || port(&left, "tap").up && port(&right, "cable").up && port(&right, "net").up);
    (left, right, far)
}

fn a_tap_has_the_address_of_its_port() {
    let another = "02:00:00:00:0a:99";
    let with = |mac: &str| PortConfig { mac: Some(mac.into()), ..tap() };
    let config = |port: PortConfig| Config {
        version: 1,
        loopback: true,
        ports: [("tap".to_owned(), port)].into(),
        ..Config::default()
    };
    // One that is there with another address is refused, and keeps it.
    ip("tuntap add dev t0 mode tap");
    ip(&format!("link set t0 address {another} up"));
    let server = Server::start().unwrap();
    let refusal = format!("{:#}", server.apply(&config(tap())).unwrap_err());
    let told = std::error::Error::source(&server.apply(&config(tap())).unwrap_err()).map(ToString::to_string);
    let told = told.unwrap_or(refusal);
    assert!(told.contains(another) && told.contains(&format!("ip link set t0 address {TAP_MAC}")), "{told}");
    assert_eq!(address_of("t0"), another);
    // One of the port's further addresses is as good, and so is a port without any.
    let more = PortConfig { more_macs: vec![another.into()], ..tap() };
    server.apply(&config(more)).unwrap();
    until("the tap", || port(&server, "tap").up);
    drop(server);
    let server = Server::start().unwrap();
    server.apply(&config(PortConfig { mac: None, ..tap() })).unwrap();
    until("the tap", || port(&server, "tap").up);
    drop(server);
    ip("link del t0");
    // One that is made has it, also when the port is told another one.
    let server = switch([("tap", tap())]);
    until("the tap", || port(&server, "tap").up);
    assert_eq!(address_of("t0"), TAP_MAC);
    server.apply(&config(with(another))).unwrap();
    until("the other address", || address_of("t0") == another && port(&server, "tap").up);
    // Somebody gives it an address that is not the port's: it is let go of with the reason, until it is right again.
    ip("link set t0 address 02:00:00:00:0a:55");
    until("it is let go of", || !port(&server, "tap").up);
    ip(&format!("link set t0 address {another}"));
    until("it is taken again", || port(&server, "tap").up);
}

/// Sends this many bytes there and gets as many back, and looks at each of them.
fn exchange(far: &Namespace, address: &'static str, bytes: usize) {
    let pattern = |count: usize| (0..count).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
    let id = far.id;
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = thread::spawn(move || {
        setns(File::open(format!("/proc/{id}/ns/net")).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        let listener = TcpListener::bind(address).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut got = vec![0; bytes];
        stream.read_exact(&mut got).unwrap();
        assert!(got == pattern(bytes));
        stream.write_all(&got).unwrap();
    });
    is_ready.recv().unwrap();
    let mut stream = TcpStream::connect_timeout(&address.parse().unwrap(), TIMEOUT).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(&pattern(bytes)).unwrap();
    let mut back = vec![0; bytes];
    stream.read_exact(&mut back).unwrap();
    assert!(back == pattern(bytes));
    server.join().unwrap();
}

fn tcp_goes_all_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let (left, right, far) = rig(directory.path());
    exchange(&far, "10.9.0.2:7001", 16 << 20);
    // Whole segments: far fewer frames than 16 MiB have of 1,448 bytes.
    let sent = port(&left, "tap").counters;
    assert!(sent.sent_bytes > 16 << 20 && sent.sent < 8_000, "{sent:?}");
    assert!(port(&right, "net").counters.received_bytes > 16 << 20);
    // Tags cross both ways, though the kernel takes them off before a packet socket sees them: now nothing else does.
    for (server, name) in [(&left, "tap"), (&right, "net")] {
        server.set(name, serde_json::json!({"trunk": "7"}).as_object().unwrap()).unwrap();
    }
    let tagged: Vec<u8> =
        [&[0; 10][..], &[0xff; 6], &[2, 0, 0, 0, 0, 9], &[0x81, 0, 0x60, 7, 0x88, 0xb5], &[0; 50]].concat();
    for (from, server, name) in [(("v1", far.id), &left, "tap"), (("t0", 0), &right, "net")] {
        let before = port(server, name).counters;
        let frame = tagged.clone();
        let station = move || {
            let (interface, id) = from;
            if id != 0 {
                setns(File::open(format!("/proc/{id}/ns/net")).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            }
            let station = packet::open(interface).unwrap();
            nix::unistd::write(station.wire.fd(), &frame).unwrap();
        };
        thread::spawn(station).join().unwrap();
        until("the tagged frame", || port(server, name).counters.received > before.received);
        let after = port(server, name).counters;
        assert_eq!((after.received - before.received, after.received_bytes - before.received_bytes), (1, 68));
    }
    for server in [&left, &right] {
        for (name, port) in server.ports().unwrap() {
            let dropped = port.counters.dropped_sent;
            assert!(!dropped.contains_key(&Dropped::BadHeader), "{name}: {dropped:?}");
        }
    }
}

fn carriers_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (left, right, far) = rig(directory.path());
    let events = right.subscribe();
    let mut told = Vec::new();
    let mut hears = |wanted: Event| {
        until("an event", || {
            told.extend(events.try_recv().ok());
            told.contains(&wanted)
        });
        told.clear();
    };
    let link = |up| Event::Link { port: "net".to_owned(), up };
    for _ in 0..2 {
        far.run("ip link set v1 down");
        hears(link(false));
        assert!(!port(&right, "net").up && !port(&right, "cable").up);
        far.run("ip link set v1 up");
        hears(link(true));
    }
    exchange(&far, "10.9.0.2:7001", 1 << 20);
    ip("link set t0 down");
    until("the tap's link", || !port(&left, "tap").up);
    ip("link set t0 up");
    until("the tap's link", || port(&left, "tap").up);
    // The veth pair goes, and another one of the same name comes.
    ip("link del v0");
    until("the loss", || port(&right, "net").unconnected.is_some_and(|why| why.contains("v0")));
    assert!(!port(&right, "net").up);
    ip(&format!("link add v0 type veth peer name v1 netns {}", far.id));
    ip("link set v0 up");
    far.run("ip link set v1 up");
    far.run("ip address add 10.9.0.2/24 dev v1");
    until("the network", || port(&right, "net").up);
    exchange(&far, "10.9.0.2:7002", 1 << 20);
    // A tap that was taken over is there with its address when the switch has ended, and can be taken over again.
    drop(left);
    ip("link show t0");
    let again = switch([("tap", tap())]);
    until("the tap", || port(&again, "tap").up);
    drop(again);
    ip("link del t0");
}

fn an_idle_switch_sleeps() {
    let directory = tempfile::tempdir().unwrap();
    let (_left, _right, _far) = rig(directory.path());
    let used = || Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap());
    // Neighbour discovery of new interfaces takes some seconds to fall silent; the quietest second counts.
    let best = (0..5).map(|_| {
        let (before, began) = (used(), Instant::now());
        thread::sleep(Duration::from_secs(1));
        (used() - before).as_secs_f64() / began.elapsed().as_secs_f64()
    });
    let best = best.fold(f64::INFINITY, f64::min);
    // Two switches of one percent of a core each.
    assert!(best < 0.02, "{:.2} % of a core", best * 100.0);
}

fn what_cannot_be_had() {
    let server = Server::start().unwrap();
    let refused = |config: PortConfig| {
        let ports = BTreeMap::from([("a".to_owned(), config)]);
        let error =
            server.apply(&Config { version: 1, loopback: true, ports, ..Config::default() }).unwrap_err();
        let mut text = error.to_string();
        let mut next = std::error::Error::source(&error);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    };
    let text = refused(packet("nowhere0"));
    assert!(text.contains("no such interface in the network namespace"), "{text}");
    // Not a tap at all.
    let text = refused(PortConfig { tap: Some("lo".into()), ..PortConfig::default() });
    assert!(text.contains("no tap") && text.contains("lo"), "{text}");
    let _first = switch([("tap", tap())]);
    let text = refused(tap());
    assert!(text.contains("another program has it open"), "{text}");
    ip("link show t0");
}
