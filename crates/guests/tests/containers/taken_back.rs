//! What a container has set on its interface, and how the host has it back.

use std::{fs, path::PathBuf, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use penstock_host::{Command, Netlink, Place, netlink::LinkSettings, running::Running};
use penstock_plan::{Execute, GuestAction, action::GuestDefinition};

use crate::{
    bench::{Bench, TIMEOUT, ip, shell, until},
    monitor_of,
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

/// The host works over an interface that came back by itself: `stop` found no container that runs, and took it down, with its address.
pub fn used_since() {
    let bench = Bench::new();
    let definition = bench.guest("used-", 0);
    let guest = || definition.guest.clone();
    let stop = || GuestAction::StopGuest { guest: guest() };
    let undefine = || GuestAction::UndefineGuest { guest: guest() };
    ip(&["link", "set", &bench.link(0), "up"]);
    ip(&["address", "add", "10.8.8.8/24", "dev", &bench.link(0)]);
    let before = settings(&bench, 0);
    for (up, ends) in [(true, vec![stop(), undefine()]), (true, vec![undefine()]), (false, vec![undefine()])]
    {
        let place = bench.start(&definition);
        let (status, said) = shell(&place, "ip link set eth0 promisc on");
        assert_eq!(status, 0, "{said}");
        let init = place.namespace().unwrap().unwrap();
        let monitor = monitor_of(init).as_raw().unsigned_abs();
        kill(Pid::from_raw(i32::try_from(init).unwrap()), Signal::SIGKILL).unwrap();
        until("LXC has ended", || Running::of(monitor).is_none());
        assert!(!bench.runs(&definition));
        let back = bench.on_host(0).expect("it is back").interface;
        assert!(!back.up && back.addresses.is_empty(), "nobody has used it yet: {back:?}");
        let name = back.name.as_str();
        ip(&["address", "add", "192.0.2.1/24", "dev", name]);
        if up {
            ip(&["link", "set", name, "up"]);
            ip(&["route", "add", "203.0.113.0/24", "via", "192.0.2.9"]);
        }
        for end in ends {
            bench.guests().execute(&end, TIMEOUT).unwrap();
            let now = bench.on_host(0).expect("it is the host's").interface;
            assert_eq!((now.up, now.name.as_str()), (up, name), "{end}");
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
