//! Switches of several workers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

fn numbered(number: u64) -> Vec<u8> {
    let mut bytes = frame(0, 1, 100);
    bytes[14..22].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number_of(frame: &[u8]) -> u64 {
    u64::from_be_bytes(frame[14..22].try_into().unwrap())
}

#[test]
fn a_ring_of_another_worker_is_reached_also_when_that_one_sleeps() {
    let (_directory, server, config) = rig_with(3, 3);
    let socket = |number: usize| &config.ports[&format!("NET0#{number}")].socket;
    let mut receiver = Guest::connect(socket(0), false);
    // Each is another worker's, and neither is the receiver's.
    let mut senders = [1, 2].map(|number| Guest::connect_pair(socket(number), number == 1, number));
    let mut sent = 0;
    for round in 0..200_u64 {
        let [first, second] = &mut senders;
        for number in 0..16 {
            first.send(&numbered(number));
            assert_eq!(receiver.receive(), numbered(number));
            let other = [&frame(0, 2, 100)[..14], &numbered(number)[14..]].concat();
            second.send(&other);
            assert_eq!(receiver.receive(), other);
            sent += 2;
        }
        // Less and more than they look for something themselves.
        thread::sleep(Duration::from_micros(round * 13 % 700));
    }
    let ports = server.ports().unwrap();
    let counters = |number: usize| &ports[&format!("NET0#{number}")].counters;
    assert_eq!((counters(0).received, counters(1).sent + counters(2).sent), (sent, sent));
    assert!(ports.values().all(|port| port.broken.is_none() && port.counters.dropped_received.is_empty()));
    assert_eq!([0, 1, 2].map(|number| ports[&format!("NET0#{number}")].pairs), [1, 1, 1]);
}

#[test]
fn what_is_set_holds_at_once_for_what_one_worker_hands_to_another() {
    let (_directory, server, config) = rig_with(2, 2);
    let mut receiver = Guest::connect(&config.ports["NET0#0"].socket, true);
    let mut sender = Guest::connect_pair(&config.ports["NET0#1"].socket, true, 1);
    let set = |vlan: u16| {
        server.set("NET0#0", serde_json::json!({"vlan": vlan}).as_object().unwrap()).unwrap();
    };
    for _ in 0..50 {
        let (sent, ends) = (AtomicU64::new(0), AtomicBool::new(false));
        let (last, came) = thread::scope(|scope| {
            let change = scope.spawn(|| {
                while sent.load(Ordering::Acquire) < 50 {
                    thread::yield_now();
                }
                set(200);
                let last = sent.load(Ordering::Acquire);
                while sent.load(Ordering::Acquire) < last + 50 {
                    thread::yield_now();
                }
                ends.store(true, Ordering::Release);
                last
            });
            let mut came = Vec::new();
            let mut number = 0;
            while !ends.load(Ordering::Acquire) {
                number += 1;
                sender.send(&numbered(number));
                sent.store(number, Ordering::Release);
                came.extend(receiver.all().iter().map(|frame| number_of(frame)));
            }
            (change.join().unwrap(), came)
        });
        // The one that was on its way to the switch when it was told may have been taken before or after.
        assert!(came.iter().all(|number| *number <= last + 1), "{last}, and then {came:?}");
        assert!(!came.is_empty());
        set(0);
        receiver.all();
    }
}

#[test]
fn an_uplink_of_limited_speed_wants_one_worker() {
    let (_directory, server, mut config) = rig_with(2, 2);
    let uplink = config.ports.get_mut("NET0#1").unwrap();
    (uplink.uplink, uplink.speed, uplink.spoofchk) = (true, 1000, false);
    let refused = server.apply(&config).unwrap_err().to_string();
    assert!(refused.contains("NET0#1: speed 1000") && refused.contains("has 2"), "{refused}");
    config.ports.get_mut("NET0#1").unwrap().speed = 0;
    server.apply(&config).unwrap();
}
