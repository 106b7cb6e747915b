//! Ports that watch others.

use super::*;

/// Ports 0 and 1 with a VLAN of their own, 2 that is in it with its tag, and 3, which watches.
fn watched(mirror: Mirror) -> (Engine, Vec<Guest>) {
    let own = |number| Settings {
        vlan: Some(PortVlan { tag: Tag { vlan: 100, priority: 0 }, kind: TagKind::Customer }),
        ..settings(number)
    };
    let (mut engine, guests) = rig(true, vec![own(0), own(1), settings(2), Settings::default()]);
    engine.set_mirrors(vec![mirror]);
    (engine, guests)
}

fn mirror(of: &[PortId], sent: bool, received: bool) -> Mirror {
    Mirror { port: 3, of: of.to_vec(), sent, received }
}

#[test]
fn copies_have_the_tag_and_are_counted_apart() {
    for (sent, received, wanted) in [
        (true, false, vec![frame(1, 0, Some(100), 46), frame(0xff, 0, Some(100), 46)]),
        (false, true, vec![frame(0, 1, Some(100), 46)]),
        (
            true,
            true,
            vec![frame(1, 0, Some(100), 46), frame(0xff, 0, Some(100), 46), frame(0, 1, Some(100), 46)],
        ),
    ] {
        let (mut engine, mut guests) = watched(mirror(&[0], sent, received));
        guests[0].send(&frame(1, 0, None, 46));
        guests[0].send(&frame(0xff, 0, None, 46));
        // A lie is not on the wire.
        guests[0].send(&frame(1, 7, None, 46));
        guests[1].send(&frame(0, 1, None, 46));
        guests[2].send(&frame(1, 2, Some(100), 46));
        engine.round(0);
        assert_eq!(guests[3].frames(), wanted);
        assert_eq!(guests[0].frames(), [frame(0, 1, None, 46)]);
        assert_eq!(guests[1].frames().len(), 3);
        let counters = engine.counters(3).unwrap();
        assert_eq!((counters.received, counters.mirrored), (0, wanted.len() as u64));
        assert_eq!(counters.mirrored_bytes, wanted.iter().map(|frame| frame.len() as u64).sum::<u64>());
    }
}

#[test]
fn a_frame_between_two_that_are_watched_is_copied_once() {
    let (mut engine, mut guests) = watched(mirror(&[0, 1, 2], true, true));
    guests[0].send(&frame(1, 0, None, 46));
    guests[2].send(&frame(0xff, 2, Some(100), 46));
    engine.round(0);
    assert_eq!(guests[3].frames(), [frame(1, 0, Some(100), 46), frame(0xff, 2, Some(100), 46)]);
}

#[test]
fn whole_segments_are_copied_whole_or_cut_as_the_watcher_knows() {
    for knows in [true, false] {
        let (mut engine, mut guests) = watched(mirror(&[0], true, false));
        if !knows {
            engine.port_mut(3).unwrap().negotiated.tcp4 = false;
        }
        let (whole, header) = segment(20_000);
        guests[0].send_in(header, &whole, &[12]);
        engine.round(0);
        let original = guests[1].got();
        assert!(original.len() == 1 && original[0].1 == whole);
        let copies = guests[3].frames();
        assert_eq!(copies.len(), if knows { 1 } else { 14 });
        assert!(copies.iter().all(|copy| copy[12..18] == [0x81, 0, 0, 100, 8, 0]));
        let payload: usize = copies.iter().map(|copy| copy.len() - 58).sum();
        assert_eq!(payload, 20_000);
    }
}

#[test]
fn a_watcher_without_room_harms_nobody_but_itself() {
    let (mut engine, mut guests) = watched(mirror(&[0], true, true));
    let mut got = 0;
    for _ in 0..10 {
        for _ in 0..16 {
            guests[0].send(&frame(2, 0, None, 46));
        }
        engine.round(0);
        got += guests[2].got_again().len();
        guests[0].got();
    }
    assert_eq!(got, 160);
    let counters = engine.counters(3).unwrap();
    assert_eq!((counters.mirrored, counters.dropped_mirrored[Dropped::NoBuffers as usize]), (128, 32));
    assert_eq!(missed(&engine, 3, Dropped::NoBuffers), 0);
    // Nor one whose link is down.
    engine.set_settings(3, Arc::new(Settings { link_state: LinkState::Disable, ..Settings::default() }));
    guests[0].send(&frame(1, 0, None, 46));
    engine.round(0);
    assert_eq!(guests[1].frames().len(), 1);
    assert_eq!(engine.counters(3).unwrap().dropped_mirrored[Dropped::LinkDown as usize], 1);
}
