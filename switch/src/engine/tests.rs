//! Whole frames between guests that share nothing with the switch but their memory.

mod buffers;
mod follow;
mod mirrors;
mod neighbours;
mod shares;
mod tags;
mod wires;
mod workers;

use super::*;
use crate::{
    driver::{Form, guest::Guest},
    net::{Mac, Tag},
    settings::{LinkState, PortVlan, TagKind, Vlans},
};

fn mac(number: u8) -> Mac {
    Mac::new([2, 0, 0, 0, 0, number])
}

/// A frame between two of these addresses, with a tag or none.
fn frame(to: u8, from: u8, vlan: Option<u16>, payload: usize) -> Vec<u8> {
    let mut frame = match to {
        0xff => vec![0xff; 6],
        to => vec![2, 0, 0, 0, 0, to],
    };
    frame.extend([2, 0, 0, 0, 0, from]);
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([0x88, 0xb5]);
    frame.extend((0..payload).map(|at| at as u8));
    frame
}

fn settings(number: u8) -> Settings {
    Settings { macs: vec![mac(number)], spoofchk: true, ..Settings::default() }
}

/// A switch with these ports, each with a guest that has what is usual.
fn rig(packed: bool, all: Vec<Settings>) -> (Engine, Vec<Guest>) {
    let mut engine = Engine::default();
    let knows = Negotiated {
        mergeable: true,
        checksum: true,
        tcp4: true,
        tcp6: true,
        udp: true,
        ecn: true,
        header: 12,
    };
    let mut guests = Vec::new();
    for (id, settings) in (0..).zip(all) {
        engine.set_port(id, Some(Box::new(Port::new(Arc::new(settings)))));
        guests.push(Guest::plug(&mut engine, id, packed, 128, 2048, knows));
    }
    (engine, guests)
}

fn dropped(engine: &Engine, id: PortId, why: Dropped) -> u64 {
    engine.counters(id).unwrap().dropped_sent[why as usize]
}

fn missed(engine: &Engine, id: PortId, why: Dropped) -> u64 {
    engine.counters(id).unwrap().dropped_received[why as usize]
}

#[test]
fn frames_go_to_whom_they_are_for() {
    for packed in [false, true] {
        let (mut engine, mut guests) = rig(packed, (0..3).map(settings).collect());
        for round in 0..500_usize {
            let to = frame(1, 0, None, 46 + round % 1400);
            guests[0].send_in([0; 12], &to, [&[12][..], &[], &[5, 9], &[30]][round % 4]);
            let back = frame(0, 1, None, 60);
            guests[1].send(&back);
            guests[2].send(&frame(9, 2, None, 60));
            engine.round(0);
            assert_eq!(guests[1].frames(), [to]);
            assert_eq!(guests[0].frames(), [back]);
            assert!(guests[2].frames().is_empty());
            // Buffers are offered again.
            for guest in [0, 1] {
                let guest = &mut guests[guest];
                let (at, size) = guest.buffers.values().next().copied().unwrap();
                if let Some(id) = guest.receiving.offer(&guest.memory, &[(at, size, true)], Form::Chained) {
                    guest.buffers.insert(id, (at, size));
                }
            }
        }
        assert_eq!(dropped(&engine, 2, Dropped::NoReceiver), 500);
        let counters = engine.counters(0).unwrap();
        assert_eq!((counters.sent, counters.received), (500, 500));
    }
}

#[test]
fn everybody_gets_a_broadcast_but_its_sender() {
    let (mut engine, mut guests) = rig(false, (0..4).map(settings).collect());
    let all = frame(0xff, 2, None, 46);
    guests[2].send(&all);
    engine.round(0);
    for guest in [0, 1, 3] {
        assert_eq!(guests[guest].frames(), std::slice::from_ref(&all));
    }
    assert!(guests[2].frames().is_empty());
}

#[test]
fn who_lies_about_its_address_is_not_heard() {
    let (mut engine, mut guests) = rig(true, (0..2).map(settings).collect());
    guests[0].send(&frame(1, 7, None, 46));
    let mut group = frame(1, 0, None, 46);
    group[6] = 1;
    guests[0].send(&group);
    engine.round(0);
    assert!(guests[1].frames().is_empty());
    assert_eq!(dropped(&engine, 0, Dropped::SpoofedMac), 2);
    engine.set_settings(0, Arc::new(Settings { spoofchk: false, ..settings(0) }));
    guests[0].send(&frame(1, 7, None, 46));
    engine.round(0);
    assert_eq!(guests[1].frames().len(), 1);
}

#[test]
fn a_port_vlan_is_put_on_and_taken_off() {
    let own = |number, vlan| Settings {
        vlan: Some(PortVlan { tag: Tag { vlan, priority: 5 }, kind: TagKind::Customer }),
        ..settings(number)
    };
    let mut trunk = Vlans::none();
    trunk.insert(100);
    let trunked = Settings { trunk, ..settings(3) };
    let (mut engine, mut guests) = rig(false, vec![own(0, 100), own(1, 100), own(2, 200), trunked]);
    guests[0].send(&frame(1, 0, None, 46));
    guests[0].send(&frame(2, 0, None, 46));
    guests[0].send(&frame(3, 0, None, 46));
    guests[0].send(&frame(0xff, 0, None, 46));
    // Its own tag is none of its business.
    guests[0].send(&frame(1, 0, Some(100), 46));
    engine.round(0);
    assert_eq!(guests[1].frames(), [frame(1, 0, None, 46), frame(0xff, 0, None, 46)]);
    assert!(guests[2].frames().is_empty());
    let tagged = 100 | 5 << 13;
    assert_eq!(guests[3].frames(), [frame(3, 0, Some(tagged), 46), frame(0xff, 0, Some(tagged), 46)]);
    assert_eq!(dropped(&engine, 0, Dropped::ForeignVlan), 1);
    assert_eq!(dropped(&engine, 0, Dropped::NoReceiver), 1);
    guests[3].send(&frame(0, 3, Some(100), 46));
    guests[3].send(&frame(2, 3, Some(200), 46));
    guests[3].send(&frame(0, 3, None, 46));
    engine.round(0);
    assert_eq!(guests[0].frames(), [frame(0, 3, None, 46)]);
    assert_eq!(dropped(&engine, 3, Dropped::ForeignVlan), 2);
}

#[test]
fn a_provider_vlan_keeps_the_customers_tag() {
    let own = |number| Settings {
        vlan: Some(PortVlan { tag: Tag { vlan: 7, priority: 0 }, kind: TagKind::Provider }),
        ..settings(number)
    };
    let (mut engine, mut guests) = rig(false, vec![own(0), own(1), Settings { uplink: true, ..settings(2) }]);
    guests[0].send(&frame(1, 0, Some(42), 46));
    guests[0].send(&frame(9, 0, Some(42), 46));
    engine.round(0);
    assert_eq!(guests[1].frames(), [frame(1, 0, Some(42), 46)]);
    let out = &guests[2].frames()[0];
    assert_eq!(out[12..20], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 42]);
    let mut back = out.clone();
    back[..12].copy_from_slice(&frame(1, 2, None, 0)[..12]);
    guests[2].send(&back);
    engine.round(0);
    assert_eq!(guests[1].frames(), [frame(1, 2, Some(42), 46)]);
}

#[test]
fn a_customers_tag_stays_when_its_frame_is_cut() {
    let own = |number| Settings {
        vlan: Some(PortVlan { tag: Tag { vlan: 7, priority: 0 }, kind: TagKind::Provider }),
        ..settings(number)
    };
    let mut engine = Engine::default();
    let mut guests = Vec::new();
    for id in 0..2 {
        engine.set_port(id, Some(Box::new(Port::new(Arc::new(own(id as u8))))));
        guests.push(Guest::plug(&mut engine, id, false, 64, 2048, Negotiated::default()));
    }
    let (whole, mut header) = segment(3000);
    let tagged = [&whole[..12], &[0x81, 0, 0, 42], &whole[12..]].concat();
    header[2] += 4;
    header[6] += 4;
    guests[0].send_in(header, &tagged, &[12]);
    engine.round(0);
    let got = guests[1].frames();
    assert_eq!(got.len(), 3);
    assert!(got.iter().all(|frame| frame[12..18] == [0x81, 0, 0, 42, 8, 0]));
    let joined: Vec<u8> = got.iter().flat_map(|frame| frame[58..].to_vec()).collect();
    assert_eq!(joined, tagged[58..]);
}

#[test]
fn a_tag_moves_the_checksum_along() {
    let own = Settings {
        vlan: Some(PortVlan { tag: Tag { vlan: 9, priority: 0 }, kind: TagKind::Customer }),
        ..settings(0)
    };
    let (mut engine, mut guests) = rig(false, vec![own, settings(1)]);
    guests[0].send_in([1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0], &frame(1, 0, None, 100), &[]);
    engine.round(0);
    let got = guests[1].got();
    assert_eq!(got[0].0, [1, 0, 4, 0, 0, 0, 38, 0, 16, 0, 1, 0]);
    assert_eq!(got[0].1, frame(1, 0, Some(9), 100));
}

/// TCP over IPv4 with this much payload, whose checksum is left to others.
fn segment(payload: usize) -> (Vec<u8>, [u8; 12]) {
    let mut frame = frame(1, 0, None, 0);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame.extend([0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([4, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 9, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.extend((0..payload).map(|at| at as u8));
    let size = 1448_u16.to_le_bytes();
    (frame, [1, 1, 54, 0, size[0], size[1], 34, 0, 16, 0, 0, 0])
}

#[test]
fn whole_segments_cross_to_who_knows_them() {
    for packed in [false, true] {
        let (mut engine, mut guests) = rig(packed, (0..2).map(settings).collect());
        let (frame, header) = segment(60_000);
        guests[0].send_in(header, &frame, &[12, 4000, 20_000]);
        engine.round(0);
        let got = guests[1].got();
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].0[..10], header[..10]);
        assert_eq!(u16::from_le_bytes([got[0].0[10], got[0].0[11]]), 30);
        assert!(got[0].1 == frame);
    }
}

#[test]
fn who_does_not_know_segments_gets_frames() {
    for (checksum, told) in [(false, [0, 0]), (true, [2, 0])] {
        let mut engine = Engine::default();
        let mut guests = Vec::new();
        for id in 0..2 {
            engine.set_port(id, Some(Box::new(Port::new(Arc::new(settings(id as u8))))));
            let knows = Negotiated { checksum, ..Negotiated::default() };
            guests.push(Guest::plug(&mut engine, id, false, 64, 2048, knows));
        }
        let (frame, header) = segment(10_000);
        guests[0].send_in(header, &frame, &[12]);
        engine.round(0);
        let got = guests[1].got();
        assert_eq!(got.len(), 7);
        let joined: Vec<u8> = got.iter().flat_map(|(_, frame)| frame[54..].to_vec()).collect();
        assert_eq!(joined, frame[54..]);
        assert!(got.iter().all(|(header, frame)| header[..2] == told && frame.len() <= 1514));
    }
}

#[test]
fn without_loopback_all_goes_out() {
    let uplink = Settings { uplink: true, spoofchk: false, ..settings(9) };
    let (mut engine, mut guests) = rig(false, vec![settings(0), settings(1), uplink]);
    engine.set_loopback(false);
    guests[0].send(&frame(1, 0, None, 46));
    guests[0].send(&frame(0xff, 0, None, 46));
    engine.round(0);
    assert!(guests[1].frames().is_empty());
    assert_eq!(guests[2].frames().len(), 2);
    guests[2].send(&frame(1, 8, None, 46));
    engine.round(0);
    assert_eq!(guests[1].frames().len(), 1);
}

#[test]
fn a_link_that_is_down_carries_nothing() {
    let (mut engine, mut guests) = rig(false, (0..2).map(settings).collect());
    engine.set_settings(1, Arc::new(Settings { link_state: LinkState::Disable, ..settings(1) }));
    guests[0].send(&frame(1, 0, None, 46));
    guests[1].send(&frame(0, 1, None, 46));
    engine.round(0);
    assert!(guests[0].frames().is_empty() && guests[1].frames().is_empty());
    assert_eq!(dropped(&engine, 1, Dropped::LinkDown), 1);
    assert_eq!(missed(&engine, 1, Dropped::LinkDown), 1);
}

#[test]
fn only_who_is_trusted_hears_others() {
    let ear = Settings { promiscuous: true, ..settings(2) };
    let (mut engine, mut guests) = rig(false, vec![settings(0), settings(1), ear.clone()]);
    guests[0].send(&frame(1, 0, None, 46));
    engine.round(0);
    assert!(guests[2].frames().is_empty());
    engine.set_settings(2, Arc::new(Settings { trust: true, ..ear }));
    guests[0].send(&frame(1, 0, None, 46));
    engine.round(0);
    assert_eq!(guests[2].frames().len(), 1);
    assert_eq!(guests[1].frames().len(), 2);
}

#[test]
fn who_hears_everything_hears_what_nobody_claims_once() {
    let ear = Settings { promiscuous: true, trust: true, default: true, ..settings(1) };
    let (mut engine, mut guests) = rig(false, vec![settings(0), ear]);
    guests[0].send(&frame(9, 0, None, 46));
    engine.round(0);
    assert_eq!(guests[1].frames(), [frame(9, 0, None, 46)]);
    assert_eq!(dropped(&engine, 0, Dropped::NoReceiver), 0);
}

#[test]
fn what_finds_no_room_is_dropped_and_counted() {
    let (mut engine, mut guests) = rig(true, (0..2).map(settings).collect());
    for _ in 0..129 {
        guests[0].send_in([0; 12], &frame(1, 0, None, 46), &[]);
    }
    for _ in 0..8 {
        engine.round(0);
    }
    assert_eq!(guests[1].frames().len(), 128);
    assert_eq!(missed(&engine, 1, Dropped::NoBuffers), 1);
}

#[test]
fn what_is_longer_than_the_mtu_is_dropped() {
    let (mut engine, mut guests) = rig(false, (0..2).map(settings).collect());
    guests[0].send(&frame(1, 0, None, 1501));
    guests[0].send(&frame(1, 0, None, 1500));
    engine.round(0);
    assert_eq!(guests[1].frames(), [frame(1, 0, None, 1500)]);
    assert_eq!(dropped(&engine, 0, Dropped::TooLong), 1);
}

#[test]
fn a_rate_is_held_by_leaving_frames_where_they_are() {
    let slow = Settings { max_tx_rate: 50, ..settings(0) };
    let (mut engine, mut guests) = rig(false, vec![slow, settings(1)]);
    for _ in 0..64 {
        guests[0].send(&frame(1, 0, None, 1000));
    }
    let mut now = 1_000_000_000;
    // Eight milliseconds are to its credit: that is what it has sent when it must wait, and a frame more.
    let mut sent = 0;
    let wait = loop {
        let round = engine.round(now);
        sent += round.frames as u64;
        if let Some(wait) = round.wait {
            break wait;
        }
    };
    assert_eq!(sent, 8_000_000 / (1014 * 160) + 1);
    assert_eq!(wait, sent * 1014 * 160 - 8_000_000);
    assert_eq!(engine.round(now + wait - 1).frames, 0);
    while sent < 64 {
        now += 1014 * 160;
        sent += engine.round(now).frames as u64;
    }
    assert_eq!(guests[1].frames().len(), 64);
}

#[test]
fn a_lie_in_arp_is_seen() {
    let careful = Settings { arp_check: true, ..settings(0) };
    let (mut engine, mut guests) = rig(false, vec![careful, settings(1)]);
    let arp = |sender: u8| {
        let mut arp = frame(1, 0, None, 0);
        arp[12..14].copy_from_slice(&[8, 6]);
        arp.extend([0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, sender, 10, 0, 0, 1]);
        arp.extend([0; 28]);
        arp
    };
    guests[0].send(&arp(5));
    guests[0].send(&arp(0));
    engine.round(0);
    assert_eq!(guests[1].frames(), [arp(0)]);
    assert_eq!(dropped(&engine, 0, Dropped::SpoofedNeighbour), 1);
}

#[test]
fn a_cable_joins_two_switches() {
    use std::os::fd::OwnedFd;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let ends: (OwnedFd, OwnedFd) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
    let side = |end: OwnedFd, number: u8| {
        let uplink = Settings { uplink: true, ..Settings::default() };
        let (mut engine, guests) = rig(number == 0, vec![settings(number)]);
        let mut port = Port::new(Arc::new(uplink));
        port.negotiated = Negotiated {
            checksum: true,
            tcp4: true,
            tcp6: true,
            udp: true,
            ecn: true,
            ..Negotiated::default()
        };
        port.wire = Some(Wire::new(end));
        engine.set_port(1, Some(Box::new(port)));
        engine.rings_changed();
        (engine, guests)
    };
    let (mut left, mut left_guests) = side(ends.0, 0);
    let (mut right, mut right_guests) = side(ends.1, 1);
    let (whole, header) = segment(30_000);
    left_guests[0].send(&frame(1, 0, None, 46));
    left_guests[0].send_in(header, &whole, &[12]);
    right_guests[0].send(&frame(0xff, 1, Some(5), 46));
    for _ in 0..2 {
        left.round(0);
        right.round(0);
    }
    let got = right_guests[0].got();
    assert_eq!(got[0].1, frame(1, 0, None, 46));
    assert!(got[1].1 == whole && got[1].0[..10] == header[..10]);
    left.round(0);
    assert_eq!(left_guests[0].frames(), [frame(0xff, 1, Some(5), 46)]);
    drop(right);
    left_guests[0].send(&frame(9, 0, None, 46));
    left.round(0);
    assert_eq!(missed(&left, 1, Dropped::LinkDown), 1);
}

/// Frames through the engine for who counts instructions:
/// `valgrind --tool=callgrind --callgrind-out-file=OUT TEST --ignored --exact engine::tests::many_small_frames`.
#[test]
#[ignore = "it is to be run under callgrind"]
fn many_small_frames() {
    let size: usize = std::env::var("SIZE").map_or(60, |size| size.parse().unwrap());
    let packed = std::env::var_os("PACKED").is_some();
    let tag = PortVlan { tag: Tag { vlan: 100, priority: 0 }, kind: TagKind::Customer };
    let all = (0..2).map(|number| Settings { vlan: Some(tag), ..settings(number) }).collect();
    let (mut engine, mut guests) = rig(packed, all);
    let there = frame(1, 0, None, size - 14);
    for _ in 0..1000 {
        for _ in 0..32 {
            guests[0].send_in([0; 12], &there, &[]);
        }
        assert_eq!(engine.round(0).frames, 32);
        let [sender, receiver] = &mut guests[..] else { unreachable!("two guests") };
        let mut came = 0;
        while let Some((id, _)) = receiver.receiving.used(&receiver.memory) {
            let (at, size) = receiver.buffers.remove(&id).unwrap();
            let id = receiver.receiving.offer(&receiver.memory, &[(at, size, true)], Form::Chained).unwrap();
            receiver.buffers.insert(id, (at, size));
            came += 1;
        }
        assert_eq!(came, 32);
        while sender.sending.used(&sender.memory).is_some() {}
    }
}
