//! Several workers, each with an engine of its own, come to the same as one.

use std::sync::atomic::{AtomicUsize, Ordering};

use nix::{
    sys::socket::{AddressFamily, SockFlag, SockType, socketpair},
    unistd::{read, write},
};
use proptest::prelude::*;

use super::{
    follow::{drawn, sent},
    *,
};
use crate::driver::guest::Shape;

/// Counts how often its worker was woken.
#[derive(Debug, Default)]
struct Woken(AtomicUsize);

impl Notify for Woken {
    fn signal(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

const KNOWS: Negotiated =
    Negotiated { mergeable: true, checksum: true, tcp4: true, tcp6: true, udp: true, ecn: true, header: 12 };

fn shape(packed: bool) -> Shape {
    Shape { packed, entries: 256, count: 128, size: 2048, room: 0x9_0000, knows: KNOWS }
}

/// A switch of so many workers.
struct Switch {
    engines: Vec<Engine>,
    bells: Vec<Arc<Woken>>,
}

impl Switch {
    fn new(workers: usize, ports: &[Settings]) -> Switch {
        let bells: Vec<Arc<Woken>> = (0..workers).map(|_| Arc::default()).collect();
        let all: Vec<Arc<dyn Notify>> = bells.iter().map(|bell| Arc::clone(bell) as _).collect();
        let mut engines = Engine::connected(&all);
        for (id, settings) in (0..).zip(ports) {
            for (engine, port) in engines.iter_mut().zip(Port::for_each_worker(settings, workers)) {
                engine.set_port(id, Some(Box::new(port)));
            }
        }
        Switch { engines, bells }
    }

    /// A port's guest with so many pairs of rings, each as a guest of its own.
    fn plug(&mut self, id: PortId, pairs: usize, packed: bool) -> Vec<Guest> {
        let workers = self.engines.len();
        let plug = |pair: usize| {
            for engine in &mut self.engines {
                engine.note_ring(id, pair as u32 * 2, KNOWS);
            }
            Guest::plug_at(&mut self.engines[worker_of(pair, workers)], id, pair, shape(packed))
        };
        (0..pairs).map(plug).collect()
    }

    /// Has each worker do what it has to do.
    fn settle(&mut self) {
        while self.engines.iter_mut().map(|engine| engine.round(0).frames).sum::<usize>() > 0 {}
    }

    fn counters(&self, id: PortId) -> Counters {
        let mut all = Counters::default();
        self.engines.iter().for_each(|engine| all += engine.counters(id).unwrap());
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 150 }, ..ProptestConfig::default() })]
    #[test]
    fn several_workers_come_to_the_same_as_one(
        packed: bool,
        workers in 2_usize..=4,
        loopback in prop::bool::weighted(0.8),
        all in (drawn(0), drawn(1), drawn(2)),
        mirror in prop::option::weighted(0.2, (any::<bool>(), any::<bool>())),
        pairs in (1_usize..=4, 1_usize..=4, 1_usize..=4),
        frames in prop::collection::vec((sent(), 0_usize..4), 1..30),
    ) {
        let run = |workers: usize| {
            let mut switch = Switch::new(workers, &[all.0.clone(), all.1.clone(), all.2.clone()]);
            let mut guests: Vec<Vec<Guest>> = [pairs.0, pairs.1, pairs.2]
                .into_iter()
                .zip(0..)
                .map(|(pairs, id)| switch.plug(id, pairs, packed))
                .collect();
            for engine in &mut switch.engines {
                engine.set_loopback(loopback);
                if let Some((sent, received)) = mirror {
                    engine.set_mirrors(vec![Mirror { port: 2, of: vec![0, 1], sent, received }]);
                }
            }
            for (sent, pair) in &frames {
                sent.send(&mut guests[0][*pair % pairs.0]);
                // What different pairs send at a time has no order.
                switch.settle();
            }
            let got: Vec<Vec<_>> =
                guests.iter_mut().map(|pairs| pairs.iter_mut().map(Guest::got).collect()).collect();
            (got, (0..3).map(|id| switch.counters(id)).collect::<Vec<_>>())
        };
        prop_assert_eq!(run(workers), run(1));
    }
}

/// Two workers; port 0 has a ring of each, port 1 has one ring, which is the first worker's.
fn uneven() -> (Switch, Vec<Guest>, Vec<Guest>) {
    let mut switch = Switch::new(2, &[settings(0), settings(1)]);
    let from = switch.plug(0, 2, false);
    let to = switch.plug(1, 1, false);
    (switch, from, to)
}

#[test]
fn a_frame_for_another_workers_ring_wakes_that_worker_once_a_turn() {
    let (mut switch, mut from, mut to) = uneven();
    for _ in 0..3 {
        from[1].send(&frame(1, 0, None, 60));
    }
    switch.engines[1].round(0);
    assert!(to[0].frames().is_empty());
    assert_eq!(switch.bells.iter().map(|bell| bell.0.load(Ordering::Relaxed)).collect::<Vec<_>>(), [1, 0]);
    assert!(switch.engines[0].ask_for_kicks(true, 0).news, "it may not sleep");
    switch.engines[0].round(0);
    assert_eq!(to[0].frames().len(), 3);
    // Its own it writes itself.
    from[0].send(&frame(1, 0, None, 60));
    switch.engines[0].round(0);
    assert_eq!(to[0].frames().len(), 1);
    assert_eq!(switch.counters(1).received, 4);
}

#[test]
fn who_sleeps_is_kicked_also_where_another_worker_has_used_the_rate_up() {
    let limited = Settings { max_tx_rate: 1, ..settings(0) };
    for packed in [false, true] {
        let mut switch = Switch::new(2, &[limited.clone(), settings(1)]);
        let mut from = switch.plug(0, 2, packed);
        let _to = switch.plug(1, 2, packed);
        let now = 1_000_000_000;
        for engine in &mut switch.engines {
            engine.ask_for_kicks(false, now);
        }
        from[0].send(&frame(1, 0, None, 1400));
        assert_eq!(switch.engines[0].round(now).frames, 1);
        // The rate is used up. Nothing is here that would be looked at when that is over.
        let idle = SleepBound { news: false, most: None };
        assert_eq!(switch.engines[1].ask_for_kicks(true, now), idle);
        from[1].send(&frame(1, 0, None, 60));
        let kicks = |guest: &mut Guest| guest.sending.kicks(&guest.memory, false);
        assert!(kicks(&mut from[1]), "it sleeps, and nobody wakes it");
        // Now something is: it sleeps no longer than that has to wait, and needs no kick for what comes behind.
        let asked = switch.engines[1].ask_for_kicks(true, now);
        assert!(!asked.news && asked.most.is_some_and(|most| most > 0 && most < 12_000_000), "{asked:?}");
        from[1].send(&frame(1, 0, None, 60));
        assert!(!kicks(&mut from[1]));
        let later = now + asked.most.unwrap();
        assert!(switch.engines[1].ask_for_kicks(true, later).news);
        assert!(switch.engines[1].round(later).frames > 0);
    }
}

#[test]
fn what_was_decided_under_other_settings_is_not_written() {
    let (mut switch, mut from, mut to) = uneven();
    from[1].send(&frame(1, 0, None, 60));
    switch.engines[1].round(0);
    // The number of the port is another's now.
    for engine in &mut switch.engines {
        engine.begin_epoch();
        engine.set_settings(1, Arc::new(settings(7)));
    }
    switch.settle();
    assert!(to[0].frames().is_empty());
    // Nor is what was decided before its own worker knew of a change that the writer knows already.
    switch.engines[0].begin_epoch();
    from[1].send(&frame(7, 0, None, 60));
    switch.settle();
    assert!(to[0].frames().is_empty());
    switch.engines[1].begin_epoch();
    from[1].send(&frame(7, 0, None, 60));
    switch.settle();
    assert_eq!(to[0].frames().len(), 1);
}

#[test]
fn a_guest_that_came_back_with_less_gets_nothing_of_what_was_decided_before() {
    let (mut switch, mut from, mut to) = uneven();
    from[1].send(&frame(1, 0, None, 60));
    switch.engines[1].round(0);
    switch.engines[0].port_mut(1).unwrap().negotiated.tcp4 = false;
    switch.settle();
    assert!(to[0].frames().is_empty());
    assert_eq!(switch.counters(1).dropped_received[Dropped::NoBuffers as usize], 1);
}

#[test]
fn what_another_worker_does_not_take_in_time_is_counted_as_dropped() {
    let (mut switch, mut from, _to) = uneven();
    let (sent, size) = (3000, 1400);
    for _ in 0..sent {
        from[1].send(&frame(1, 0, None, size));
        switch.engines[1].round(0);
        from[1].frames();
    }
    let counters = switch.counters(1);
    let dropped = counters.dropped_received[Dropped::NoBuffers as usize];
    assert!(dropped > 0 && dropped < sent, "{dropped} of {sent}");
    switch.settle();
    let counters = switch.counters(1);
    let dropped = counters.dropped_received[Dropped::NoBuffers as usize];
    assert_eq!(counters.received + dropped, sent);
}

#[test]
fn a_receiver_without_rings_costs_the_frame_and_no_more() {
    let mut switch = Switch::new(3, &[settings(0), settings(1)]);
    let mut from = switch.plug(0, 3, true);
    for guest in &mut from {
        guest.send(&frame(1, 0, None, 60));
    }
    switch.settle();
    assert_eq!(switch.counters(1).dropped_received[Dropped::NoBuffers as usize], 3);
}

#[test]
fn a_wire_is_reached_from_every_worker_and_leads_to_guests() {
    let outside = Settings { default: true, spoofchk: false, ..settings(9) };
    let mut switch = Switch::new(3, &[settings(0), outside]);
    let mut guests = switch.plug(0, 3, true);
    let (end, far) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_NONBLOCK).unwrap();
    switch.engines[0].set_wire(1, Some((Wire::new(end), KNOWS)));
    switch.engines[1..].iter_mut().for_each(|engine| engine.note_wire(1, Some(KNOWS)));
    for guest in &mut guests {
        guest.send(&frame(7, 0, None, 60));
    }
    switch.settle();
    let mut room = [0; 2048];
    for _ in 0..3 {
        let count = read(&far, &mut room).unwrap();
        assert_eq!(room[12..count], frame(7, 0, None, 60));
    }
    write(&far, &[&[0; 12][..], &frame(0, 7, None, 60)].concat()).unwrap();
    switch.settle();
    assert_eq!(guests.iter_mut().map(|guest| guest.frames().len()).collect::<Vec<_>>(), [1, 0, 0]);
    // Without it nothing goes out.
    switch.engines[0].set_wire(1, None);
    switch.engines[1..].iter_mut().for_each(|engine| engine.note_wire(1, None));
    guests[2].send(&frame(7, 0, None, 60));
    switch.settle();
    assert_eq!(read(&far, &mut room), Ok(0), "the other end is closed");
    let counters = switch.counters(1);
    assert_eq!((counters.received, counters.sent), (3, 1));
    assert_eq!(counters.dropped_received[Dropped::NoBuffers as usize], 1);
}

#[test]
fn a_guest_that_gives_up_a_pair_gets_its_frames_in_another() {
    for workers in [1, 2] {
        let mut switch = Switch::new(workers, &[settings(0), settings(1)]);
        let mut from = switch.plug(0, 2, false);
        let mut to = switch.plug(1, 2, false);
        let mut send = |switch: &mut Switch, to: &mut [Guest]| {
            from.iter_mut().for_each(|guest| guest.send(&frame(1, 0, None, 60)));
            switch.settle();
            to.iter_mut().map(|guest| guest.frames().len()).collect::<Vec<_>>()
        };
        assert_eq!(send(&mut switch, &mut to), [1, 1]);
        // As Linux does with fewer channels (`ethtool -L`): pairs behind the others are disabled.
        for index in [2, 3] {
            for (number, engine) in switch.engines.iter_mut().enumerate() {
                match number == worker_of(1, workers) {
                    true => drop(engine.take_ring(1, index)),
                    false => engine.forget_ring(1, index),
                }
            }
        }
        assert_eq!(send(&mut switch, &mut to), [2, 0]);
        assert_eq!(switch.counters(1).received, 4);
    }
}
