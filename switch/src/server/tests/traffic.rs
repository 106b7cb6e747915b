//! What holds while frames are on their way.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn a_reload_loses_no_frame_of_ports_that_stay() {
    let (directory, server, config) = rig(3);
    let mut guests =
        [0, 1].map(|number: u8| Guest::connect(&config.ports[&format!("NET0#{number}")].socket, number == 0));
    let ends = AtomicBool::new(false);
    let (sent, reloads) = thread::scope(|scope| {
        let reload = scope.spawn(|| {
            let mut count = 0;
            let more = self::config(directory.path(), 6);
            while !ends.load(Ordering::Acquire) {
                let mut next = config.clone();
                if count % 2 == 0 {
                    // Ports come and go, others change, and one that stays changes in what is none of these frames' business.
                    next.ports.remove("NET0#2");
                    next.ports.extend(more.ports.clone().into_iter().skip(3));
                    next.ports.get_mut("NET0#1").unwrap().more_macs = vec!["02:00:00:00:01:01".to_owned()];
                }
                server.apply(&next).unwrap();
                count += 1;
            }
            count
        });
        let (began, mut sent) = (Instant::now(), 0_u64);
        while began.elapsed() < Duration::from_secs(2) || sent < 2000 {
            let numbered = |number: u64| {
                let mut bytes = frame(1, 0, 100);
                bytes[14..22].copy_from_slice(&number.to_be_bytes());
                bytes
            };
            for number in sent..sent + 32 {
                guests[0].send(&numbered(number));
            }
            for number in sent..sent + 32 {
                assert_eq!(guests[1].receive(), numbered(number));
            }
            sent += 32;
        }
        ends.store(true, Ordering::Release);
        (sent, reload.join().unwrap())
    });
    assert!(reloads > 2, "{reloads} reloads");
    let ports = server.ports().unwrap();
    let (one, other) = (&ports["NET0#0"].counters, &ports["NET0#1"].counters);
    assert_eq!((one.sent, other.received), (sent, sent));
    assert!(one.dropped_sent.is_empty() && other.dropped_received.is_empty());
}

#[test]
fn a_rate_holds_by_the_clock() {
    const RATE: f64 = 16.0;
    let (_directory, server, config) = rig(2);
    server.set("NET0#0", serde_json::json!({"max_tx_rate": RATE as u32}).as_object().unwrap()).unwrap();
    let mut guests =
        [0, 1].map(|number| Guest::connect(&config.ports[&format!("NET0#{number}")].socket, true));
    let bytes = [&[0; 12][..], &frame(1, 0, 1500)].concat();
    let mut second = || {
        let [sender, receiver] = &mut guests;
        sender.memory.write(0x8_0000, &bytes);
        let (began, mut sent, mut late) = (Instant::now(), 0, false);
        while began.elapsed() < Duration::from_secs(1) {
            // It has more than it may send at any time.
            let chain = [(0x8_0000, bytes.len() as u32, false)];
            while sender.from_guest.offer(&sender.memory, &chain, Form::Chained).is_some() {}
            if sender.from_guest.kicks(&sender.memory, true) {
                sender.kicks[1].write(1).unwrap();
            }
            while sender.from_guest.used(&sender.memory).is_some() {
                assert_eq!(receiver.receive().len(), 1500);
                sent += 1500;
            }
            let slept = Instant::now();
            thread::sleep(Duration::from_millis(1));
            late |= slept.elapsed() > Duration::from_millis(6);
        }
        let got = f64::from(sent) * 8.0 / 1e6 / began.elapsed().as_secs_f64();
        (got, late)
    };
    // What it was ahead is gone then.
    second();
    let mut all = Vec::new();
    for _ in 0..5 {
        let (got, late) = second();
        assert!(got < RATE * 1.02, "{got} Mbit/s of {RATE}");
        all.push((got, late));
        // Where threads that sleep come too late, the switch's does too: what it misses then nobody gets back.
        if got > RATE * if late { 0.4 } else { 0.98 } {
            return;
        }
    }
    panic!("{all:?} Mbit/s of {RATE}, and whether threads came late");
}
