//! What a container has set on its interface, and how the host has it back.

use std::{collections::BTreeSet, fs, path::PathBuf, sync::atomic::Ordering, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_host::{
    Command, Netlink, Place,
    netlink::{LinkSettings, XdpProgram},
    running::Running,
};
use penstock_model::Bdf;
use penstock_plan::{
    Execute, GuestAction,
    action::{GuestDefinition, GuestFunction},
};
use penstock_testkit::xdp;

use crate::{
    bench::{Bench, TIMEOUT, bdf, ip, shell, until},
    monitor::monitor_of,
};

fn settings(bench: &Bench, end: u32) -> LinkSettings {
    let index = bench.on_host(end).expect("the interface is on the host").index;
    Netlink::open().unwrap().link_settings(index).unwrap()
}

fn record(bench: &Bench, definition: &GuestDefinition) -> PathBuf {
    bench.state.path().join(format!("guests/penstock-{}/started.json", definition.guest))
}

/// All that a container's root may set by itself, with its interface's name on the host among its alternative ones.
fn meddle(bench: &Bench, definition: &GuestDefinition) -> String {
    let place = bench.start(definition);
    let mac = bench.mac(0).replacen("02:", "06:", 1);
    let script = format!(
        "ip link property add dev eth0 altname {} && ip link property add dev eth0 altname spare{} && \
         ip link set eth0 promisc on allmulticast on multicast off arp off && ip link set eth0 mode dormant && \
         ip link set eth0 address {mac} && ip link set eth0 alias \"$(printf 'odd\\001\\033[2J\\377')\"",
        bench.link(0),
        bench.number
    );
    let (status, said) = shell(&place, &script);
    assert_eq!(status, 0, "{said}");
    mac
}

/// It kept its container from being stopped, started and removed, and the next one was promiscuous.
pub fn as_it_was() {
    let bench = Bench::new();
    let definition = bench.guest("left-", 0);
    let own = format!("own{}", bench.number);
    ip(&["link", "property", "add", "dev", &bench.link(0), "altname", &own]);
    let before = settings(&bench, 0);
    assert_eq!(before.other_names, [own.as_str()]);
    meddle(&bench, &definition);
    bench.stop(&definition);
    bench.is_back(0);
    assert_eq!(settings(&bench, 0), before);
    assert_eq!(bench.on_host(0).unwrap().interface.mac.to_string(), bench.mac(0));

    // Here its name inside is taken, and so it comes back with its own name twice, once as an alternative one.
    ip(&["link", "add", "eth0", "type", "bridge"]);
    meddle(&bench, &definition);
    bench.stop(&definition);
    ip(&["link", "del", "eth0"]);
    bench.is_back(0);
    assert_eq!(settings(&bench, 0), before);
    bench.containers.undefine(&definition.guest, TIMEOUT).unwrap();
}

/// Its name inside is one that nobody else has on the host either, and none that a model may have.
pub fn with_a_name_of_its_own() {
    let bench = Bench::new();
    let definition = bench.guest("odd-", 0);
    let place = bench.start(&definition);
    let name = bench.link(0);
    let odd =
        format!("ip link set eth0 down && ip link set eth0 name \"$(printf '\\303\\251\\377%s' {name})\"");
    let (status, said) = shell(&place, &format!("ip link property add dev eth0 altname {name} && {odd}"));
    assert_eq!(status, 0, "{said}");
    bench.stop(&definition);
    bench.is_back(0);
    assert_eq!(settings(&bench, 0).other_names, Vec::<String>::new());
}

/// A container that an older version has started: what is not known of its interface is as if nobody had turned anything on.
pub fn of_an_older_version() {
    let bench = Bench::new();
    let mut definition = bench.guest("older-", 0);
    let before = settings(&bench, 0);
    definition.functions[0].mac = bench.mac(0).parse().ok();
    definition.functions[0].mac_is_kept = true;
    meddle(&bench, &definition);
    let path = record(&bench, &definition);
    let mut started: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let lent = started["functions"][0].as_object_mut().unwrap();
    lent.retain(|key, _| ["function", "name", "mtu"].contains(&key.as_str()));
    fs::write(&path, started.to_string()).unwrap();
    bench.stop(&definition);
    bench.is_back(0);
    let now = settings(&bench, 0);
    assert_eq!(now.other_names, [format!("spare{}", bench.number)]);
    assert!(!now.promiscuous && !now.all_multicast && now.arp, "{now:?}");
    assert_eq!(now.mode, before.mode);
    // Its PF keeps the address, and the next start asks for it.
    assert_eq!(bench.on_host(0).unwrap().interface.mac.to_string(), bench.mac(0));
    bench.start(&definition);
    bench.stop(&definition);
}

/// It ended by itself, with the interface of a PF, say: `stop` finds no container that runs, and only removes it. The interface stayed down.
pub fn ended_by_itself() {
    let bench = Bench::new();
    let definition = bench.guest("ended-up-", 0);
    ip(&["link", "set", &bench.link(0), "up"]);
    for up in [true, false] {
        let init = bench.start(&definition).namespace().unwrap().unwrap();
        kill(Pid::from_raw(i32::try_from(init).unwrap()), Signal::SIGKILL).unwrap();
        while Running::of(init).is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!bench.runs(&definition));
        bench.containers.undefine(&definition.guest, TIMEOUT).unwrap();
        assert_eq!(bench.on_host(0).expect("it is back").interface.up, up);
        ip(&["link", "set", &bench.link(0), "down"]);
    }
    bench.is_back(0);
}

/// The container starts, leaves its interface promiscuous and ends by itself; the name that its interface has on the host then.
fn started_and_ended(bench: &Bench, definition: &GuestDefinition) -> String {
    let place = bench.start(definition);
    let (status, said) = shell(&place, "ip link set eth0 promisc on");
    assert_eq!(status, 0, "{said}");
    let init = place.namespace().unwrap().unwrap();
    let monitor = monitor_of(init).as_raw().unsigned_abs();
    kill(Pid::from_raw(i32::try_from(init).unwrap()), Signal::SIGKILL).unwrap();
    until("LXC has ended", || Running::of(monitor).is_none());
    assert!(!bench.runs(definition));
    let back = bench.on_host(0).expect("it is back").interface;
    assert!(!back.up && back.addresses.is_empty(), "nobody has used it yet: {back:?}");
    back.name.to_string()
}

/// What a plan is told of an ended container's functions.
fn in_use(bench: &Bench, definition: &GuestDefinition) -> BTreeSet<Bdf> {
    bench.containers.found().unwrap()[&definition.guest].in_use.clone()
}

fn stop(definition: &GuestDefinition) -> GuestAction {
    GuestAction::StopGuest { guest: definition.guest.clone() }
}

fn undefine(definition: &GuestDefinition) -> GuestAction {
    GuestAction::UndefineGuest { guest: definition.guest.clone() }
}

/// Changes what is noted of the start.
fn rewrite(bench: &Bench, definition: &GuestDefinition, change: impl FnOnce(&mut serde_json::Value)) {
    let path = record(bench, definition);
    let mut started: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut started);
    fs::write(&path, started.to_string()).unwrap();
}

/// The host works over an interface that came back by itself: `stop` found no container that runs, and took it down, with its address.
pub fn used_since() {
    let bench = Bench::new();
    let definition = bench.guest("used-", 0);
    let (stop, undefine) = (|| stop(&definition), || undefine(&definition));
    ip(&["link", "set", &bench.link(0), "up"]);
    ip(&["address", "add", "10.8.8.8/24", "dev", &bench.link(0)]);
    let before = settings(&bench, 0);
    for (up, ends) in [(true, vec![stop(), undefine()]), (true, vec![undefine()]), (false, vec![undefine()])]
    {
        let name = &started_and_ended(&bench, &definition);
        assert_eq!(in_use(&bench, &definition), BTreeSet::new());
        ip(&["address", "add", "192.0.2.1/24", "dev", name]);
        assert_eq!(in_use(&bench, &definition), BTreeSet::from([bdf(0)]));
        if up {
            ip(&["link", "set", name, "up"]);
            ip(&["route", "add", "203.0.113.0/24", "via", "192.0.2.9"]);
        }
        for end in ends {
            bench.guests().execute(&end, TIMEOUT).unwrap();
            let now = bench.on_host(0).expect("it is the host's").interface;
            assert_eq!((now.up, now.name.as_str()), (up, name.as_str()), "{end}");
            let addresses: Vec<String> = now.addresses.iter().map(ToString::to_string).collect();
            assert!(addresses.contains(&"192.0.2.1/24".to_owned()), "{end}: {addresses:?}");
            let routes = Command::new("ip").args(["route", "show", "dev", name]).succeed().unwrap().text();
            assert_eq!(routes.contains("203.0.113.0/24 via 192.0.2.9"), up, "{end}: {routes}");
            assert_eq!(settings(&bench, 0), before, "{end}");
        }
        assert!(!record(&bench, &definition).exists());
        ip(&["address", "flush", "dev", name]);
        ip(&["link", "set", name, "down"]);
    }
}

/// udev or a network manager brings up whatever appears: such an interface was taken for the host's, and kept the name that the kernel gave it.
pub fn raised_since() {
    let bench = Bench::new();
    let definition = bench.guest("raised-", 0);
    for (end, up) in [(stop(&definition), false), (undefine(&definition), true)] {
        ip(&["link", "set", &bench.link(0), "up"]);
        ip(&["link", "set", &bench.link(1), "up"]);
        let name = &started_and_ended(&bench, &definition);
        ip(&["link", "set", name, "up"]);
        ip(&["address", "add", "169.254.7.7/16", "dev", name]);
        ip(&["route", "add", "169.254.0.0/16", "dev", name, "metric", "1000"]);
        // As of a router advertisement.
        ip(&["address", "add", "2001:db8::7/64", "dev", name, "valid_lft", "3600", "preferred_lft", "1800"]);
        until("it has a link-local address", || {
            let addresses = bench.on_host(0).unwrap().interface.addresses;
            addresses.iter().any(|address| address.is_kernel_made())
        });
        assert_eq!(in_use(&bench, &definition), BTreeSet::new());
        bench.guests().execute(&end, TIMEOUT).unwrap();
        let now = bench.on_host(0).expect("it is back").interface;
        assert_eq!((now.up, now.name.as_str()), (up, bench.link(0).as_str()), "{end}");
        assert!(!now.addresses.iter().any(|address| address.ip().is_ipv4()), "{end}: {:?}", now.addresses);
        let advertised = "2001:db8::7/64".parse().unwrap();
        assert!(!now.addresses.contains(&advertised), "{end}: {:?}", now.addresses);
        ip(&["link", "set", &bench.link(0), "down"]);
    }
    bench.is_back(0);
}

/// What the host has built on an interface needs no address of it.
pub fn built_upon_since() {
    let bench = Bench::new();
    let definition = bench.guest("upon-", 0);
    let bridge = format!("upon{}", bench.number);
    ip(&["link", "add", &bridge, "type", "bridge"]);
    let other = Beside::elsewhere();
    let (away, inside) = (other.0.id().to_string(), format!("--net=/proc/{}/ns/net", other.0.id()));
    // Each with its reverse, and whether it counts after an ending of Penstock's own.
    let on = ["ip", "link", "add", "link", "IT"];
    let uses: [(&[&str], &[&str], bool); 4] = [
        (&["ip", "link", "set", "IT", "master", &bridge], &["ip", "link", "set", "IT", "nomaster"], true),
        (&[&on[..], &["name", "upper", "type", "macvlan"]].concat(), &["ip", "link", "del", "upper"], true),
        (
            &[&on[..], &["name", "away", "netns", &away, "type", "macvlan"]].concat(),
            &["nsenter", &inside, "ip", "link", "del", "away"],
            true,
        ),
        (
            &["ip", "route", "add", "203.0.113.0/24", "dev", "IT"],
            &["ip", "route", "del", "203.0.113.0/24", "dev", "IT"],
            false,
        ),
    ];
    for (use_it, give_up, counts_always) in uses {
        for ending in [false, true] {
            let name = started_and_ended(&bench, &definition);
            let run = |words: &[&str]| {
                let words = words.iter().map(|word| if *word == "IT" { &name } else { *word });
                Command::new(words.clone().next().unwrap()).args(words.skip(1)).succeed().unwrap();
            };
            run(&["ip", "link", "set", "IT", "up"]);
            run(use_it);
            rewrite(&bench, &definition, |started| started["ending"] = ending.into());
            bench.guests().execute(&stop(&definition), TIMEOUT).unwrap();
            let now = bench.on_host(0).expect("it is there").interface;
            let stays = !ending || counts_always;
            let wanted = if stays { name.clone() } else { bench.link(0) };
            assert_eq!((now.up, now.name.to_string()), (stays, wanted), "{use_it:?}, {ending}");
            if stays {
                run(give_up);
                run(&["ip", "link", "set", "IT", "down"]);
            }
        }
    }
    ip(&["link", "del", &bridge]);
    bench.is_back(0);

    // A switch whose uplink it is takes all frames.
    let name = started_and_ended(&bench, &definition);
    ip(&["link", "set", &name, "up", "promisc", "off"]);
    let listens = Beside::run("python3", &["-c", TAKES_ALL, &name]);
    until("it takes all", || bench.on_host(0).unwrap().promiscuous == Some(true));
    bench.guests().execute(&stop(&definition), TIMEOUT).unwrap();
    assert!(bench.on_host(0).unwrap().interface.up);
    drop(listens);
    ip(&["link", "set", &name, "down"]);
}

/// What was put at an interface inside stays at it on its way back, and would be taken for somebody's at the next start.
pub fn without_its_programs() {
    let bench = Bench::new();
    let definition = bench.guest("programs-", 0);
    let place = bench.start(&definition);
    xdp::attach(place.namespace().unwrap().unwrap(), "eth0").unwrap();
    bench.stop(&definition);
    bench.is_back(0);
    assert_eq!(programs(&bench), []);

    // One that was there before goes in and comes back with it.
    xdp::attach(std::process::id(), &bench.link(0)).unwrap();
    let own = programs(&bench);
    assert_eq!(own.len(), 1);
    bench.start(&definition);
    bench.stop(&definition);
    bench.is_back(0);
    assert_eq!(programs(&bench), own);
    take_off(&bench);

    // Where the container ended by itself, whose one is that was attached since is not known.
    let name = started_and_ended(&bench, &definition);
    xdp::attach(std::process::id(), &name).unwrap();
    let own = programs(&bench);
    bench.guests().execute(&stop(&definition), TIMEOUT).unwrap();
    bench.is_back(0);
    assert_eq!(programs(&bench), own);
    take_off(&bench);
}

fn programs(bench: &Bench) -> Vec<XdpProgram> {
    let index = bench.on_host(0).expect("it is on the host").index;
    Netlink::open().unwrap().xdp_programs_at(index).unwrap()
}

fn take_off(bench: &Bench) {
    let index = bench.on_host(0).expect("it is on the host").index;
    programs(bench).iter().for_each(|program| Netlink::open().unwrap().remove_xdp(index, program).unwrap());
}

/// A packet socket of an interface, which asks for all frames (`PACKET_ADD_MEMBERSHIP`, `PACKET_MR_PROMISC`; packet(7)).
const TAKES_ALL: &str = "import socket, struct, sys, time
taker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
taker.setsockopt(263, 1, struct.pack('iHH8s', socket.if_nametoindex(sys.argv[1]), 1, 0, b''))
time.sleep(1000)";

/// A program that runs until it is dropped.
struct Beside(std::process::Child);

impl Beside {
    fn run(program: &str, arguments: &[&str]) -> Beside {
        Beside(std::process::Command::new(program).args(arguments).spawn().unwrap())
    }

    /// One that lives in a network namespace of its own.
    fn elsewhere() -> Beside {
        let beside = Beside::run("unshare", &["--net", "sleep", "1000"]);
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).unwrap();
        until("it has its own", || namespace(&beside.0.id().to_string()) != namespace("self"));
        beside
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Penstock was killed while it started or ended a container: a network manager gives the interface that comes back an address, and the next
/// `stop` took it for the host's. What a lifeline goes over stays all the same.
pub fn configured_while_it_ended() {
    let bench = Bench::new();
    let mut definition = bench.guest("ending-", 0);
    let halves = [("ending", serde_json::Value::Bool(true)), ("init", serde_json::Value::Null)];
    for (lifeline, (half, value)) in
        [true, false].into_iter().flat_map(|lifeline| halves.clone().map(|half| (lifeline, half)))
    {
        let name = &started_and_ended(&bench, &definition);
        rewrite(&bench, &definition, |started| started[half] = value);
        ip(&["link", "set", name, "up"]);
        ip(&["address", "add", "192.0.2.1/24", "dev", name]);
        bench.by.lifeline.store(lifeline, Ordering::Relaxed);
        bench.guests().execute(&stop(&definition), TIMEOUT).unwrap();
        if lifeline {
            assert!(bench.on_host(0).unwrap().interface.up);
            bench.by.lifeline.store(false, Ordering::Relaxed);
            ip(&["address", "flush", "dev", name]);
            ip(&["link", "set", name, "down"]);
        }
    }
    bench.is_back(0);
    // An SSH connection may do with a link-local address.
    let name = &started_and_ended(&bench, &definition);
    ip(&["link", "set", name, "up"]);
    bench.by.lifeline.store(true, Ordering::Relaxed);
    bench.guests().execute(&stop(&definition), TIMEOUT).unwrap();
    bench.by.lifeline.store(false, Ordering::Relaxed);
    assert!(bench.on_host(0).unwrap().interface.up);
    ip(&["link", "set", name, "down"]);

    // It is noted before anything ends.
    definition.init = ["/bin/sh", "-c", "trap '' PWR TERM INT; until [ -e /tmp/go ]; do sleep 0.05; done"]
        .map(str::to_owned)
        .to_vec();
    let place = bench.start(&definition);
    std::thread::scope(|scope| {
        scope.spawn(|| bench.stop(&definition));
        until("its end is noted", || {
            let text = fs::read_to_string(record(&bench, &definition)).unwrap_or_default();
            serde_json::from_str(&text).is_ok_and(|started: serde_json::Value| started["ending"] == true)
        });
        assert!(bench.on_host(0).is_none(), "it is its container's still");
        // It may have ended as soon as that is there.
        let _ = place.run(&Command::new("touch").arg("/tmp/go"));
    });
    bench.is_back(0);
}

/// The whole machine was searched anew for each function of a container.
pub fn searched_once() {
    let bench = Bench::new();
    let mut definition = bench.guest("twice-", 0);
    definition.functions.extend(
        bench
            .guest("twice-", 1)
            .functions
            .into_iter()
            .map(|owned| GuestFunction { interface: "eth1".parse().unwrap(), ..owned }),
    );
    started_and_ended(&bench, &definition);
    bench.by.lifeline.store(true, Ordering::Relaxed);
    bench.by.looks.store(0, Ordering::Relaxed);
    let names = [0, 1].map(|end| bench.on_host(end).unwrap().interface.name);
    bench.containers.stop(&definition.guest, TIMEOUT).unwrap();
    assert_eq!(bench.by.looks.load(Ordering::Relaxed), 1);
    assert_eq!([0, 1].map(|end| bench.on_host(end).unwrap().interface.name), names, "they are left");
}

/// It was brought up although it could not be made as it was, whatever it had by then.
pub fn not_as_it_was() {
    let bench = Bench::new();
    let definition = bench.guest("half-", 0);
    ip(&["link", "set", &bench.link(0), "up"]);
    started_and_ended(&bench, &definition);
    // The kernel takes 255 bytes.
    rewrite(&bench, &definition, |started| {
        started["functions"][0]["settings"]["alias"] = "x".repeat(300).into()
    });
    bench.guests().execute(&undefine(&definition), TIMEOUT).unwrap_err();
    assert!(!bench.on_host(0).unwrap().interface.up);
    rewrite(&bench, &definition, |started| started["functions"][0]["settings"]["alias"] = "".into());
    bench.guests().execute(&undefine(&definition), TIMEOUT).unwrap();
    assert!(bench.on_host(0).unwrap().interface.up);
}

/// A name that is refused keeps nobody from the container.
pub fn with_a_name_that_is_taken() {
    let bench = Bench::new();
    let definition = bench.guest("taken-", 0);
    let name = bench.link(0);
    bench.start(&definition);
    let other = format!("other{}", bench.number);
    ip(&["link", "add", &other, "type", "bridge"]);
    ip(&["link", "property", "add", "dev", &other, "altname", &name]);
    bench.stop(&definition);
    assert_ne!(bench.on_host(0).expect("it is back").interface.name.as_str(), name);
    bench.start(&definition);
    bench.stop(&definition);
    ip(&["link", "del", &other]);
    let report = bench.on_host(0).unwrap();
    ip(&["link", "del", report.interface.name.as_str()]);
}
