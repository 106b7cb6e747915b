//! A load between two interfaces: what arrives of it is what a limit on the way lets through, and all of it is counted.
#![allow(clippy::disallowed_methods)]

use std::{process::ExitCode, time::Duration};

use penstock_host::{
    Command, Netlink,
    frames::{Carried, Endpoint, load},
};
use penstock_testkit::{
    namespace::Namespace,
    needs::{self, Lack},
    trials::Trials,
};

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces and limits in them", no_limits);
    let tests: [(&str, fn()); 2] = [
        ("a_limit_on_the_way_is_seen_in_netns", a_limit_on_the_way_is_seen),
        ("an_end_that_is_down_carries_nothing_in_netns", an_end_that_is_down_carries_nothing),
    ];
    trials.add(&missing, tests);
    trials.run()
}

fn no_limits() -> Option<Lack> {
    let words = "--net tc qdisc add dev lo root tbf rate 20mbit burst 8kb latency 100ms".split(' ');
    needs::network_namespace()
        .or_else(|| needs::programs(&["tc"]))
        .or_else(|| needs::refused(Command::new("unshare").args(words)))
}

/// A cable between two namespaces.
struct Testbed {
    near: Namespace,
    _far: Namespace,
    ends: [Endpoint; 2],
}

fn testbed() -> Testbed {
    let (near, far) = (Namespace::new(), Namespace::new());
    near.run(&format!("ip link add e0 type veth peer name e1 netns {}", far.id));
    near.run("ip link set e0 up");
    far.run("ip link set e1 up");
    let end = |namespace: &Namespace, name: &str| {
        let reports = Netlink::in_namespace_of(namespace.id).unwrap().interfaces().unwrap();
        let report = reports.into_iter().find(|report| report.interface.name.as_str() == name).unwrap();
        Endpoint {
            label: name.to_owned(),
            namespace: Some(namespace.id),
            interface: report.index,
            mac: report.interface.mac,
        }
    };
    let ends = [end(&near, "e0"), end(&far, "e1")];
    Testbed { near, _far: far, ends }
}

impl Testbed {
    fn load(&self, mtu: u32) -> Carried {
        let [from, to] = &self.ends;
        let lasting = Duration::from_secs(1);
        let carried = load(from, to, mtu, lasting).unwrap();
        assert!(carried.took >= lasting, "{carried:?}");
        assert!(carried.arrived + carried.unread <= carried.sent, "{carried:?}");
        carried
    }
}

fn a_limit_on_the_way_is_seen() {
    let testbed = testbed();
    let free = testbed.load(1500);
    assert!(free.arrived > 0 && free.failed.is_none(), "{free:?}");
    testbed.near.run("tc qdisc add dev e0 root tbf rate 20mbit burst 8kb latency 100ms");
    for mtu in [1500, 200] {
        let limited = testbed.load(mtu);
        let megabits = limited.arrived as f64 * 8.0 / limited.took.as_secs_f64() / 1e6;
        // The burst is 8 KB; a machine that has no time for us may get less through.
        assert!(megabits < 20.5 && megabits > 5.0, "{megabits} Mbit/s: {limited:?}");
        assert!(limited.arrived * 2 < free.arrived, "{limited:?} {free:?}");
        assert_eq!(limited.arrived % u64::from(mtu + 14), 0);
    }
}

fn an_end_that_is_down_carries_nothing() {
    let testbed = testbed();
    testbed.near.run("ip link set e0 down");
    let [from, to] = &testbed.ends;
    match load(from, to, 1500, Duration::from_millis(300)) {
        Ok(carried) => {
            assert_eq!(carried.arrived, 0, "{carried:?}");
            assert!(carried.failed.is_some(), "{carried:?}");
        }
        Err(error) => panic!("{error}"),
    }
}
