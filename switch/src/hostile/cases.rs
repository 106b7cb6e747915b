//! What guests may try, one by one: each says what becomes of it, and that the others lose nothing.

use std::sync::Arc;

use super::{neighbours::Neighbours, rings::Hostile};
use crate::{
    counters::Dropped,
    driver::USER,
    engine::{Engine, Negotiated, Pair, Port, Receiving, Sending},
    net::Mac,
    ring::{Layout, RingError},
    settings::Settings,
};

const ENTRIES: u16 = 8;
/// Flags of a descriptor (2.7.5): `VIRTQ_DESC_F_NEXT`, `VIRTQ_DESC_F_WRITE`, `VIRTQ_DESC_F_INDIRECT`.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const TABLE: u16 = 4;
/// Where a frame is that is none of the trouble.
const FRAME: u64 = 0x100;
/// Where a table of descriptors is.
const AT: u64 = 0x800;

/// What becomes of it.
#[derive(Debug)]
enum Then {
    /// It is dropped where it came from.
    Dropped(Dropped),
    /// It is dropped where it should have gone.
    Missed(Dropped),
    /// The ring is served no more.
    Broken,
}

/// What is tried, in which formats (split, packed), by what, and what comes of it.
type Case = (&'static str, [bool; 2], fn(&mut Hostile), Then);

const BOTH: [bool; 2] = [false, true];
const SPLIT: [bool; 2] = [false, false];
const PACKED: [bool; 2] = [true, true];

/// A frame to the listener, behind a header with these bytes.
fn frame(header: [u8; 10], rest: &[u8]) -> Vec<u8> {
    let ethernet = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 8, 0];
    [&header[..], &[0; 2], &ethernet, rest].concat()
}

fn put(guest: &mut Hostile, bytes: &[u8]) {
    guest.write(FRAME, bytes);
    guest.offer(&[(FRAME, bytes.len() as u32)], 0);
}

/// TCP over IPv4 whose header says that it begins at `start`, with segments of `size` and kind `kind`.
fn segments(guest: &mut Hostile, kind: u8, size: u16, start: u16, ip: u8) {
    let mut header = [1, kind, 54, 0, 0, 0, 0, 0, 16, 0];
    header[4..6].copy_from_slice(&size.to_le_bytes());
    header[6..8].copy_from_slice(&start.to_le_bytes());
    let mut rest = vec![ip, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    rest.extend([4, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 9, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    rest.extend([7; 900]);
    put(guest, &frame(header, &rest));
}

/// Descriptors of a table: address, length, and flags; `next` is what the split format has besides.
fn table(guest: &mut Hostile, all: &[(u64, u32, u16, u16)]) {
    for (number, (address, len, flags, next)) in (0..).zip(all) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        let (third, fourth) = if guest.packed { (0, *flags) } else { (*flags, *next) };
        bytes[12..14].copy_from_slice(&third.to_le_bytes());
        bytes[14..].copy_from_slice(&fourth.to_le_bytes());
        guest.write(AT + number * 16, &bytes);
    }
}

const CASES: &[Case] = {
    use Dropped::{BadChain, BadHeader, TooLong};
    use Then::{Broken, Missed};
    &[
        (
            "descriptors that lead to each other",
            SPLIT,
            |guest| {
                guest.descriptor(0, FRAME, 20, NEXT, 1);
                guest.descriptor(1, FRAME, 20, NEXT, 0);
                guest.show(0);
            },
            Then::Dropped(BadChain),
        ),
        (
            "a chain of all descriptors, without an end",
            PACKED,
            |guest| guest.offer(&[(FRAME, 20); ENTRIES as usize], NEXT),
            Then::Dropped(BadChain),
        ),
        (
            "a table whose descriptors lead to each other",
            SPLIT,
            |guest| {
                table(guest, &[(FRAME, 20, NEXT, 1), (FRAME, 20, NEXT, 0)]);
                guest.offer(&[(AT, 32)], TABLE);
            },
            Then::Dropped(BadChain),
        ),
        (
            "a buffer outside of memory",
            BOTH,
            |guest| guest.offer(&[(FRAME, 60), (0x7000, 60)], 0),
            Then::Dropped(BadChain),
        ),
        (
            "a buffer that ends outside",
            BOTH,
            |guest| guest.offer(&[(0x8000, 0x803)], 0),
            Then::Dropped(BadChain),
        ),
        (
            "an address that wraps",
            BOTH,
            |guest| guest.offer(&[(u64::MAX - 2, 8)], 0),
            Then::Dropped(BadChain),
        ),
        ("a length of 4 GiB", BOTH, |guest| guest.offer(&[(FRAME, u32::MAX)], 0), Then::Dropped(BadChain)),
        (
            "lengths whose sum wraps",
            BOTH,
            |guest| {
                let all = [(FRAME, 0x2000 - FRAME as u32, 0, 0); 1];
                let mut many = vec![all[0]; 3];
                many.push((FRAME, u32::MAX - 0x100, 0, 0));
                chained(&mut many);
                table(guest, &many);
                guest.offer(&[(AT, many.len() as u32 * 16)], TABLE);
            },
            Then::Dropped(BadChain),
        ),
        (
            "a chain longer than any frame needs",
            BOTH,
            |guest| {
                let mut many = vec![(FRAME, 1, 0, 0); 129];
                chained(&mut many);
                table(guest, &many);
                guest.offer(&[(AT, 129 * 16)], TABLE);
            },
            Then::Dropped(BadChain),
        ),
        (
            "a table in a table",
            BOTH,
            |guest| {
                table(guest, &[(AT + 16, 16, TABLE, 0), (FRAME, 60, 0, 0)]);
                guest.offer(&[(AT, 16)], TABLE);
            },
            Then::Dropped(BadChain),
        ),
        (
            "a table with a successor",
            BOTH,
            |guest| guest.offer(&[(AT, 16)], TABLE | NEXT),
            Then::Dropped(BadChain),
        ),
        (
            "a table of a descriptor and a half",
            BOTH,
            |guest| guest.offer(&[(AT, 24)], TABLE),
            Then::Dropped(BadChain),
        ),
        ("a table of nothing", BOTH, |guest| guest.offer(&[(AT, 0)], TABLE), Then::Dropped(BadChain)),
        ("a table of 4 GiB", BOTH, |guest| guest.offer(&[(AT, !15)], TABLE), Then::Dropped(BadChain)),
        (
            "a table outside of memory",
            BOTH,
            |guest| guest.offer(&[(0x7000, 16)], TABLE),
            Then::Dropped(BadChain),
        ),
        (
            "a table that leads beyond its end",
            SPLIT,
            |guest| {
                table(guest, &[(FRAME, 60, NEXT, 1)]);
                guest.offer(&[(AT, 16)], TABLE);
            },
            Then::Dropped(BadChain),
        ),
        (
            "a buffer to be written to",
            BOTH,
            |guest| guest.offer(&[(FRAME, 60)], WRITE),
            Then::Dropped(BadChain),
        ),
        ("a descriptor that the ring has not", SPLIT, |guest| guest.show(ENTRIES), Then::Dropped(BadChain)),
        ("an index that jumps", SPLIT, |guest| guest.index(ENTRIES + 1), Broken),
        ("an index that goes back", SPLIT, |guest| guest.index(u16::MAX), Broken),
        ("no buffers at all", BOTH, |guest| guest.offer(&[(FRAME, 0)], 0), Then::Dropped(BadHeader)),
        ("less than a header", BOTH, |guest| guest.offer(&[(FRAME, 11)], 0), Then::Dropped(BadHeader)),
        ("a header without a frame", BOTH, |guest| guest.offer(&[(FRAME, 12)], 0), Then::Dropped(BadHeader)),
        (
            "half an Ethernet header",
            BOTH,
            |guest| guest.offer(&[(FRAME, 12 + 13)], 0),
            Then::Dropped(BadHeader),
        ),
        (
            "half a tag",
            BOTH,
            |guest| {
                let mut bytes = frame([0; 10], &[0, 7]);
                bytes[24..26].copy_from_slice(&[0x81, 0]);
                put(guest, &bytes);
            },
            Then::Dropped(BadHeader),
        ),
        (
            "more than any frame has",
            BOTH,
            |guest| {
                let mut many = vec![(0, 0x1fff, 0, 0); 10];
                chained(&mut many);
                table(guest, &many);
                guest.offer(&[(AT, 160)], TABLE);
            },
            Then::Dropped(TooLong),
        ),
        (
            "a checksum beyond the frame",
            BOTH,
            |guest| put(guest, &frame([1, 0, 0, 0, 0, 0, 34, 0, 0, 1], &[0; 60])),
            Then::Dropped(BadHeader),
        ),
        (
            "a checksum whose place wraps",
            BOTH,
            |guest| put(guest, &frame([1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], &[0; 60])),
            Then::Dropped(BadHeader),
        ),
        (
            "a checksum of the Ethernet header",
            BOTH,
            |guest| put(guest, &frame([1, 0, 0, 0, 0, 0, 3, 0, 4, 0], &[0; 60])),
            Then::Dropped(BadHeader),
        ),
        (
            "segments of a kind that is none",
            BOTH,
            |guest| segments(guest, 9, 100, 34, 0x45),
            Then::Dropped(BadHeader),
        ),
        ("segments of nothing", BOTH, |guest| segments(guest, 1, 0, 34, 0x45), Then::Dropped(BadHeader)),
        (
            "segments longer than the MTU",
            BOTH,
            |guest| segments(guest, 1, 1501, 34, 0x45),
            Then::Dropped(TooLong),
        ),
        (
            "segments of IPv6 that are IPv4's",
            BOTH,
            |guest| segments(guest, 4, 100, 34, 0x45),
            Missed(BadHeader),
        ),
        ("an IP header shorter than one", BOTH, |guest| segments(guest, 1, 100, 34, 0x44), Missed(BadHeader)),
        (
            "an IP header beyond the frame's end",
            BOTH,
            |guest| segments(guest, 1, 100, 34, 0x4f),
            Missed(BadHeader),
        ),
        ("a TCP header inside IP's", BOTH, |guest| segments(guest, 1, 100, 20, 0x45), Missed(BadHeader)),
        ("a TCP header in the payload", BOTH, |guest| segments(guest, 1, 100, 200, 0x45), Missed(BadHeader)),
        (
            "headers that take as long as the payload",
            BOTH,
            |guest| segments(guest, 1, 100, 400, 0x45),
            Then::Dropped(BadHeader),
        ),
        ("segments of a byte each", BOTH, |guest| segments(guest, 1, 1, 34, 0x45), Then::Dropped(BadHeader)),
    ]
};

/// Has each lead to the next, as the split format wants it.
fn chained(all: &mut [(u64, u32, u16, u16)]) {
    let last = all.len() - 1;
    for (number, (_, _, flags, next)) in (0..).zip(&mut all[..last]) {
        (*flags, *next) = (NEXT, number + 1);
    }
}

/// A switch with a hostile guest at port 0, and others from port 2 on; the one of them that
/// listens knows of no segments.
fn rig(packed: bool) -> (Engine, Hostile, Neighbours) {
    let mut engine = Engine::default();
    let macs = vec![Mac::new([2, 0, 0, 0, 0, 0])];
    engine.set_port(0, Some(Box::new(Port::new(Arc::new(Settings { macs, ..Settings::default() })))));
    let others = Neighbours::plug(&mut engine, 2, packed, Negotiated::default());
    let (sends, receives) = (Hostile::new(packed, ENTRIES, false), Hostile::new(packed, ENTRIES, false));
    plug(&mut engine, &sends, &receives);
    (engine, sends, others)
}

fn plug(engine: &mut Engine, sends: &Hostile, receives: &Hostile) {
    let base = if sends.packed { 0x8000 } else { 0 };
    let port = engine.port_mut(0).unwrap();
    port.broken = None;
    port.pairs = vec![Pair {
        from_guest: Some(Sending { ring: sends.ring(base).unwrap(), call: None, err: None }),
        to_guest: Some(Receiving::new(receives.ring(base).unwrap(), None)),
    }];
    engine.rings_changed();
}

#[test]
fn what_cannot_be_is_dropped_and_counted_and_others_lose_nothing() {
    for (what, formats, does, then) in CASES {
        let formats = if formats[0] == formats[1] { &formats[..1] } else { &formats[..] };
        for packed in formats.iter().copied() {
            let (mut engine, mut sends, mut others) = rig(packed);
            let at = format!("{what}, packed: {packed}");
            does(&mut sends);
            others.send();
            engine.round(0);
            others.received();
            let (own, theirs) = (engine.counters(0).unwrap(), engine.counters(2).unwrap());
            let dropped: u64 = own.dropped_sent.iter().sum();
            let missed: u64 = theirs.dropped_received.iter().sum();
            let broken = engine.port(0).unwrap().broken;
            match then {
                Then::Dropped(why) => {
                    assert_eq!((own.sent, dropped, own.dropped_sent[*why as usize]), (0, 1, 1), "{at}");
                }
                Then::Missed(why) => {
                    assert_eq!((missed, theirs.dropped_received[*why as usize]), (1, 1), "{at}");
                }
                Then::Broken => assert!(matches!(broken, Some(RingError::Jump { .. })), "{at}: {broken:?}"),
            }
            // The port itself goes on, unless nothing in its ring can be trusted any more.
            if !matches!(then, Then::Broken) {
                assert_eq!(broken, None, "{at}");
                put(&mut sends, &frame([0; 10], &[1; 60]));
            }
            others.send();
            engine.round(0);
            others.received();
            others.listened();
            let came = engine.counters(2).unwrap().received;
            assert_eq!(came, u64::from(!matches!(then, Then::Broken)), "{at}");
            others.counted(&engine);
        }
    }
}

#[test]
fn rings_that_are_not_whole_in_memory_are_none() {
    type Part = fn(&mut Layout) -> &mut u64;
    let parts: [Part; 3] =
        [|layout| &mut layout.descriptors, |layout| &mut layout.driver, |layout| &mut layout.device];
    for packed in [false, true] {
        assert!(Hostile::new(packed, ENTRIES, true).ring(0).is_some());
        for (number, part) in parts.into_iter().enumerate() {
            let mut guest = Hostile::new(packed, ENTRIES, true);
            // Each stands at the very end of its region.
            let own = *part(&mut guest.layout);
            for at in [own + 1, own + 4, own + 16, USER - 16, 0, 0x10, u64::MAX, u64::MAX - 15] {
                *part(&mut guest.layout) = at;
                assert!(guest.ring(0).is_none(), "part {number} at {at:#x}, packed: {packed}");
            }
        }
        for (entries, can_be) in [(0, false), (7, packed), (32_769, false), (u16::MAX, false)] {
            let mut guest = Hostile::new(packed, ENTRIES, true);
            guest.layout.entries = entries;
            assert_eq!(guest.ring(0).is_some(), can_be, "{entries} entries, packed: {packed}");
        }
        let base = u32::from(ENTRIES);
        assert_eq!(
            Hostile::new(packed, ENTRIES, true).ring(base).is_some(),
            !packed,
            "it stands behind its end"
        );
    }
}

/// Whoever writes to memory while it is read is no guest that a sanitizer knows.
#[cfg(not(any(miri, penstock_sanitized)))]
#[test]
fn a_guest_that_writes_while_its_rings_are_served_harms_nobody() {
    use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

    for packed in [false, true] {
        let (mut engine, sends, mut others) = rig(packed);
        let receives = Hostile::new(packed, ENTRIES, true);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (number, guest) in (0_u64..).zip([&sends, &receives]) {
                let (memory, ends) = (guest.memory(), &ends);
                scope.spawn(move || {
                    // xorshift64
                    let mut state = 0x9e37_79b9_7f4a_7c15 + number;
                    while !ends.load(Ordering::Relaxed) {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        // Mostly where its rings are: at the ends of its regions.
                        let (start, len) =
                            [(0x1f80, 0x80), (0x2fe0, 0x22), (0x87b0, 0x52), (0, 0x2000)][state as usize % 4];
                        let at = start + (state >> 8) % len / 2 * 2;
                        let span = memory.guest(at, 2).expect("it is there");
                        // SAFETY: two bytes of memory, aligned.
                        let word = unsafe { AtomicU16::from_ptr(span.start.cast().as_ptr()) };
                        // Small numbers are what addresses, lengths, flags and indices are made of.
                        let most = [4, 16, 0x200, u16::MAX][(state >> 48) as usize % 4];
                        word.store((state >> 32) as u16 % most, Ordering::Relaxed);
                    }
                });
            }
            // On a busy machine it may take a while until they write at all.
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            let tried =
                |engine: &Engine| engine.counters(0).unwrap().dropped_sent.iter().any(|count| *count > 0);
            for turn in 0.. {
                if turn >= 400 && (tried(&engine) || std::time::Instant::now() > deadline) {
                    break;
                }
                plug(&mut engine, &sends, &receives);
                others.send();
                for _ in 0..4 {
                    engine.round(0);
                }
                others.received();
                others.listened();
            }
            ends.store(true, Ordering::Relaxed);
        });
        others.counted(&engine);
        let own = engine.counters(0).unwrap();
        assert!(own.dropped_sent.iter().any(|count| *count > 0), "nothing was tried");
    }
}
