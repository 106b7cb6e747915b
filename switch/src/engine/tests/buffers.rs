//! Empty buffers that cannot be, or that do no good.

use super::*;

/// Two ports; the second guest has offered nothing.
fn bare(packed: bool, mergeable: bool) -> (Engine, Guest, Guest) {
    let mut engine = Engine::default();
    let knows = Negotiated { mergeable, ..Negotiated::default() };
    let mut guests = [0, 1].map(|id| {
        engine.set_port(id, Some(Box::new(Port::new(Arc::new(settings(id as u8))))));
        let count = if id == 0 { 128 } else { 0 };
        Guest::plug(&mut engine, id, packed, count, 2048, knows)
    });
    // Its buffers are put where it would write frames.
    guests[1].send(&frame(9, 1, None, 60));
    engine.round(0);
    let [from, to] = guests;
    (engine, from, to)
}

fn offer(guest: &mut Guest, at: u64, len: u32, writable: bool) -> u16 {
    guest.receiving.offer(&guest.memory, &[(at, len, writable)], Form::Chained).unwrap()
}

fn used(guest: &mut Guest) -> Vec<(u16, u32)> {
    std::iter::from_fn(|| guest.receiving.used(&guest.memory)).collect()
}

#[test]
fn faulty_buffers_are_given_back_and_the_frame_comes() {
    for packed in [false, true] {
        for mergeable in [false, true] {
            let (mut engine, mut from, mut to) = bare(packed, mergeable);
            let faulty = [0, 1, 2].map(|number| offer(&mut to, number * 2048, 2048, false));
            let good = offer(&mut to, 0x4000, 2048, true);
            let sent = frame(1, 0, None, 60);
            from.send(&sent);
            engine.round(0);
            let mut wanted = faulty.map(|id| (id, 0)).to_vec();
            wanted.push((good, 12 + sent.len() as u32));
            assert_eq!(used(&mut to), wanted, "packed {packed}, mergeable {mergeable}");
            assert_eq!(to.memory.read(0x4000 + 12, sent.len()), sent);
            assert_eq!(missed(&engine, 1, Dropped::BadChain), 3);
            assert_eq!(engine.counters(1).unwrap().received, 1);
        }
    }
}

#[test]
fn nothing_but_faulty_buffers_costs_a_frame_no_more_than_a_stock_of_them() {
    for packed in [false, true] {
        let (mut engine, mut from, mut to) = bare(packed, true);
        for _ in 0..200 {
            offer(&mut to, 0, 2048, false);
        }
        for _ in 0..2 {
            from.send(&frame(1, 0, None, 60));
            engine.round(0);
            let back = used(&mut to).len();
            assert!(back > 0 && back <= 64, "{back}");
        }
        assert_eq!(missed(&engine, 1, Dropped::NoBuffers), 2);
        let good = offer(&mut to, 0, 2048, true);
        for _ in 0..4 {
            from.send(&frame(1, 0, None, 60));
            engine.round(0);
        }
        assert!(used(&mut to).iter().any(|(id, written)| (*id, *written > 0) == (good, true)));
        assert_eq!(missed(&engine, 1, Dropped::BadChain), 200);
    }
}

#[test]
fn small_buffers_are_looked_at_once_until_there_is_something_new() {
    for packed in [false, true] {
        let (mut engine, mut from, mut to) = bare(packed, true);
        let small = [0, 1, 2].map(|number| offer(&mut to, number * 2048, 100, true));
        let sent = frame(1, 0, None, 1000);
        from.send(&sent);
        engine.round(0);
        assert_eq!(missed(&engine, 1, Dropped::NoBuffers), 1);
        // What a driver must not do shows whether its buffers are looked at again.
        let layout = to.receiving.layout(false);
        let first = layout.descriptors - crate::driver::USER;
        to.memory.write(first + 8, &2048_u32.to_le_bytes());
        from.send(&sent);
        engine.round(0);
        assert_eq!(missed(&engine, 1, Dropped::NoBuffers), 2);
        assert!(used(&mut to).is_empty());
        // With another buffer behind those that are there it finds room.
        let more = offer(&mut to, 0x4000, 2048, true);
        from.send(&sent);
        engine.round(0);
        let all = used(&mut to);
        let ids: Vec<u16> = all.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [&small[..], &[more]].concat());
        let written: u32 = all.iter().map(|(_, written)| written).sum();
        assert_eq!(written as usize, 12 + sent.len());
        assert_eq!(engine.counters(1).unwrap().received, 1);
    }
}

#[test]
fn a_stock_goes_on_for_as_long_as_there_are_buffers() {
    for packed in [false, true] {
        let (mut engine, mut from, mut to) = bare(packed, true);
        // In sizes of which some are too small, and some are joined.
        let mut offered = 0_u64;
        let mut received = 0;
        for round in 0..600_usize {
            for _ in 0..3 {
                let len = [80, 2048, 300][offered as usize % 3];
                if to
                    .receiving
                    .offer(&to.memory, &[(offered % 32 * 2048, len, true)], Form::Chained)
                    .is_some()
                {
                    offered += 1;
                }
            }
            from.send(&frame(1, 0, None, [46, 1400, 700][round % 3]));
            engine.round(0);
            from.frames();
            received += used(&mut to).iter().filter(|(_, written)| *written > 0).count();
        }
        let counters = engine.counters(1).unwrap();
        assert_eq!(counters.received, 600, "packed {packed}: {counters:?}");
        assert!(received >= 600);
    }
}
