//! Events that the kernel reports: in other namespaces, in floods, of processes that end.
#![allow(clippy::disallowed_methods)]

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use penstock_host::{
    Command,
    events::{Event, EventPoller, EventSource, ProcessEnd},
    netlink::LinkEvents,
    running::Running,
};
use penstock_testkit::{namespace::Namespace, needs, trials::Trials};

/// What a change may take to be heard. `ip` itself takes some of it.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How long a busy machine may take to tell.
const PATIENT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let mut trials = Trials::from_arguments();
    let missing = trials.lacking("network namespaces", needs::network_namespace);
    let tests: [(&str, fn()); 4] = [
        ("a_change_in_another_namespace_is_heard_at_once_in_netns", a_change),
        ("where_nothing_happens_nothing_is_heard_in_netns", nothing),
        ("a_flood_that_was_not_read_is_said_to_be_lost_in_netns", a_flood),
        ("a_process_that_ends_is_heard_in_netns", an_end),
    ];
    trials.add(&missing, tests);
    trials.run()
}

fn listen(namespace: &Namespace, buffer: Option<usize>) -> EventPoller<&'static str> {
    let events = match buffer {
        Some(buffer) => LinkEvents::holding(Some(namespace.id), buffer),
        None => LinkEvents::open(Some(namespace.id)),
    };
    let mut poller = EventPoller::default();
    poller.add("there", EventSource::Links(events.expect("it can be listened to")));
    poller
}

fn a_change() {
    let namespace = Namespace::new();
    namespace.run("ip link add v0 type veth peer name v1");
    let mut poller = listen(&namespace, None);
    let mut soonest = Duration::MAX;
    for line in [
        "ip link set v0 mtu 1400",
        "ip link set v0 address 02:00:00:00:00:09",
        "ip link set v0 up",
        "ip address add 192.0.2.1/24 dev v0",
        "ip link del v0",
    ] {
        namespace.run(line);
        let began = Instant::now();
        let events = poller.wait(PATIENT).expect("it listens");
        soonest = soonest.min(began.elapsed());
        let heard = events.iter().any(|(_, event)| matches!(event, Event::Interface(_)));
        assert!(heard, "{line}: {events:?}");
        // What one command does can take more than one event.
        while !poller.wait(Duration::from_millis(50)).expect("it listens").is_empty() {}
    }
    assert!(soonest < AT_ONCE, "{soonest:?}");
}

fn nothing() {
    let namespace = Namespace::new();
    namespace.run("ip link add v0 type veth peer name v1");
    let mut poller = listen(&namespace, None);
    Namespace::new().run("ip link add v0 type veth peer name v1");
    let events = poller.wait(Duration::from_millis(300)).expect("it listens");
    assert!(events.is_empty(), "{events:?}");
}

fn a_flood() {
    let namespace = Namespace::new();
    namespace.run("ip link add v0 type veth peer name v1");
    let mut poller = listen(&namespace, Some(4096));
    let lines: String = (0..400).map(|n| format!("link set v0 mtu {}\n", 1400 + n % 2)).collect();
    namespace.batch("ip", &lines);
    let events = poller.gather(PATIENT, Duration::from_millis(50), AT_ONCE).expect("it listens");
    assert!(events.iter().any(|(_, event)| *event == Event::Lost), "{events:?}");
    // Once all was read, nothing is lost any more.
    namespace.run("ip link set v0 mtu 1300");
    let events = poller.gather(PATIENT, Duration::from_millis(50), AT_ONCE).expect("it listens");
    let events: Vec<&Event> = events.iter().map(|(_, event)| event).collect();
    assert!(matches!(events[..], [Event::Interface(_)]), "{events:?}");
}

fn an_end() {
    let log = tempfile::tempfile().expect("a file");
    let sleeping = Command::new("sleep").arg("600").start_to_stay(log).expect("it starts");
    let process = Running::of(sleeping.id()).expect("it runs");
    let another = Running { started: process.started + 1, ..process };
    assert!(ProcessEnd::of(another).expect("the kernel can tell").is_none(), "a number is used again");
    let mut poller = EventPoller::default();
    poller
        .add("it", EventSource::End(ProcessEnd::of(process).expect("the kernel can tell").expect("it runs")));
    assert!(poller.wait(Duration::from_millis(100)).expect("it listens").is_empty());
    sleeping.end(Duration::ZERO);
    assert_eq!(poller.wait(PATIENT).expect("it listens"), [("it", Event::Ended)].into());
    assert!(poller.wait(Duration::from_millis(50)).expect("it listens").is_empty(), "it is told once");
}
