//! What a tenant does from inside in a loop, and that its neighbours lose nothing by it.

use std::sync::{
    Barrier,
    atomic::{AtomicBool, AtomicUsize},
};

use super::*;

/// What a tenant does in a loop while two neighbours send each other frames, each of which has to arrive.
fn beside_neighbours(
    does: impl Fn(&Arc<Server>, &Config, usize) + Send + Sync + 'static,
) -> (Arc<Server>, Config, TempDir) {
    let (directory, server, mut config) = rigged();
    config.ports.get_mut("another").unwrap().vlan = 0;
    server.apply(&config).unwrap();
    let (began, ended) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let turns = Arc::new(AtomicUsize::new(0));
    let tenant = thread::spawn({
        let (server, config, began, ended, turns) =
            (Arc::clone(&server), config.clone(), Arc::clone(&began), Arc::clone(&ended), Arc::clone(&turns));
        move || {
            began.wait();
            while !ended.load(Ordering::Acquire) {
                does(&server, &config, turns.fetch_add(1, Ordering::Release));
            }
        }
    });
    let mut guests = ["other", "another"].map(|name| Guest::connect(&config.ports[name].socket, true));
    began.wait();
    let start = Instant::now();
    let mut frames = 0_u64;
    // Where sanitizers watch, and on a busy machine, a turn of the tenant's takes long.
    while start.elapsed() < Duration::from_millis(1500)
        || (turns.load(Ordering::Acquire) <= 4 && start.elapsed() < TIMEOUT)
    {
        guests[0].send(&frame(5, 4, 60 + (frames as usize % 1000)));
        assert_eq!(guests[1].receive(), frame(5, 4, 60 + (frames as usize % 1000)));
        guests[1].send(&frame(4, 5, 60));
        assert_eq!(guests[0].receive(), frame(4, 5, 60));
        frames += 1;
    }
    ended.store(true, Ordering::Release);
    tenant.join().unwrap();
    assert!(turns.load(Ordering::Acquire) > 4, "the tenant did next to nothing");
    let ports = server.ports().unwrap();
    for name in ["other", "another"] {
        let counters = &ports[name].counters;
        assert_eq!((counters.sent, counters.received), (frames, frames), "{name}");
        assert!(counters.dropped_sent.is_empty() && counters.dropped_received.is_empty(), "{counters:?}");
        assert!(
            ports[name].inside.is_empty()
                || ports[name].inside.refused.keys().all(|why| *why == Refusal::NoAllow)
        );
    }
    assert_eq!(server.config(), config, "what the host has set is as it was");
    (server, config, directory)
}

#[test]
fn forged_wishes_and_floods_of_addresses_harm_nobody() {
    let (server, ..) = beside_neighbours(|server, config, turn| {
        let mut line = Line::to(server, Rights::Attributes);
        for by in 0..20 {
            let vlan = (turn * 20 + by) % 4095;
            let _ = line.set(
                "NET0#0",
                json!({"vlan": vlan, "mac": format!("02:00:00:00:{:02x}:{by:02x}", turn & 0xff)}),
            );
            let _ = line.set("NET0#1", json!({"trust": true, "promiscuous": true, "spoofchk": false}));
            let _ = line.set("another", json!({"mac": "02:00:00:00:00:01"}));
        }
        line.answers.get_ref().write_all(b"{\"do\": \"set\", \"port\"\n\xff\xfe{}[]\n").unwrap();
        let more: Vec<String> =
            (0..64).map(|at| format!("02:00:00:{turn:02x}:00:{at:02x}", turn = turn & 0xff)).collect();
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let vlans: Vec<u16> = (1..4095).collect();
        server.set_filter("NET0#0", filter("02:00:00:00:00:05", &more, true, &vlans)).unwrap();
        assert!(config.ports.contains_key("NET0"));
    });
    let port = &server.ports().unwrap()["NET0#0"];
    assert!(
        port.inside.refused[&Refusal::Mac] > 20 && port.inside.refused[&Refusal::Taken] >= 1,
        "{:?}",
        port.inside.refused
    );
    assert!(!port.settings.promiscuous && port.settings.more_macs.is_empty());
}

#[test]
fn devices_that_come_and_go_in_a_loop_harm_nobody() {
    let (server, config, _directory) = beside_neighbours(|server, config, turn| {
        let mut line = Line::to(server, Rights::Attributes);
        line.set("NET0#0", json!({"vlan": 100 + turn % 100})).unwrap();
        let fronts = ["NET0", "NET0#0", "NET0#1"].map(|name| front(config, name));
        for raw in &fronts {
            (0..50).for_each(|_| raw.send(RESET_DEVICE, &[], &[]));
            assert!(raw.lives());
        }
    });
    front(&config, "NET0").send(RESET_DEVICE, &[], &[]);
    until(|| server.ports().unwrap()["NET0#0"].inside.set.is_empty());
}

#[test]
fn a_line_that_is_never_read_holds_nobody() {
    let lines = Mutex::new(Vec::new());
    let (server, ..) = beside_neighbours(move |server, _, _| {
        // Answers that nobody takes, until there is no room for more.
        let line = Line::to(server, Rights::Attributes);
        let stream = line.answers.get_ref();
        stream.set_nonblocking(true).unwrap();
        while stream.peek_full() {}
        lines.lock().unwrap().push(line);
        // Who is beside it is answered.
        Line::to(server, Rights::Attributes).set("NET0#0", json!({"vlan": 101})).unwrap();
        thread::sleep(Duration::from_millis(100));
    });
    assert_eq!(server.ports().unwrap()["NET0#0"].settings.vlan, 101);
}

trait Fill {
    /// Asks once more; says whether there was room for it.
    fn peek_full(&self) -> bool;
}

impl Fill for UnixStream {
    fn peek_full(&self) -> bool {
        (&*self).write_all(b"{\"version\": 1, \"do\": \"get\"}\n").is_ok()
    }
}
