//! What a port with `arp_check` may say of itself: ARP and neighbour discovery, however they are wrapped up.

use super::*;
use crate::{driver::guest::Shape, net::OLD_TAGGED};
use proptest::prelude::*;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 0];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 5];
const ARP: [u8; 2] = [8, 6];
const IPV6: [u8; 2] = [0x86, 0xdd];
const ICMPV6: u8 = 58;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What follows an Ethernet header's addresses: a type and its payload.
type Body = Vec<u8>;

fn arp(sender: [u8; 6]) -> Body {
    let front: [&[u8]; 4] = [&ARP, &[0, 1, 8, 0, 6, 4, 0, 1], &sender, &[10, 0, 0, 1]];
    [&front.concat()[..], &[0; 28]].concat()
}

/// A packet, with these headers between IPv6's and what it carries. Each begins with what follows it.
fn ipv6(next: u8, between: &[(u8, &[u8])], carried: &[u8]) -> Body {
    let mut kinds = between.iter().map(|(kind, _)| *kind).chain([next]);
    let mut behind = vec![];
    let first = kinds.next().unwrap();
    for (_, rest) in between {
        behind.push(kinds.next().unwrap());
        behind.extend(*rest);
    }
    behind.extend(carried);
    let len = (behind.len() as u16).to_be_bytes();
    [&IPV6[..], &[0x60, 0, 0, 0, len[0], len[1], first, 255], &[0xfe; 32], &behind].concat()
}

/// A message of neighbour discovery, whose options are these.
fn message(kind: u8, options: &[&[u8]]) -> Vec<u8> {
    let fixed = match kind {
        133 => 8,
        134 => 16,
        137 => 40,
        _ => 24,
    };
    let mut message = vec![0; fixed];
    message[0] = kind;
    message.extend(options.concat());
    message
}

/// The option that tells the address of a source (1) or a target (2).
fn address(kind: u8, of: [u8; 6]) -> Vec<u8> {
    [&[kind, 1], &of[..]].concat()
}

/// A solicitation from this address.
fn solicitation(of: [u8; 6]) -> Vec<u8> {
    message(135, &[&address(1, of)])
}

fn behind_tags(tags: &[(u16, u16)], body: &[u8]) -> Body {
    let tags = tags.iter().flat_map(|(kind, vlan)| [kind.to_be_bytes(), vlan.to_be_bytes()].concat());
    tags.chain(body.iter().copied()).collect()
}

fn whole(to: u8, body: &[u8]) -> Vec<u8> {
    [&frame(to, 0, None, 0)[..12], body].concat()
}

fn careful() -> Settings {
    Settings { arp_check: true, ..settings(0) }
}

/// Options of hops with nothing in them, a destination's, a route that has come to its end.
const HOPS: (u8, &[u8]) = (0, &[0, 1, 4, 0, 0, 0, 0]);
const DESTINATION: (u8, &[u8]) = (60, &[1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
const ROUTE: (u8, &[u8]) = (43, &[0, 0, 0, 0, 0, 0, 0]);
const AUTHENTICATION: (u8, &[u8]) =
    (51, &[4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
/// The only part, the first of several, and a later one.
const ONLY_PART: (u8, &[u8]) = (44, &[0, 0, 0, 0, 0, 0, 1]);
const FIRST_PART: (u8, &[u8]) = (44, &[0, 0, 1, 0, 0, 0, 1]);
const LATER_PART: (u8, &[u8]) = (44, &[0, 0, 8, 0, 0, 0, 1]);

/// What is sent as it always was.
fn ordinary() -> Vec<Body> {
    let mut all = vec![
        arp(OWN),
        ipv6(ICMPV6, &[], &solicitation(OWN)),
        // Whether an address is free already: without an option.
        ipv6(ICMPV6, &[], &message(135, &[])),
        ipv6(ICMPV6, &[], &message(136, &[&address(2, OWN)])),
        ipv6(ICMPV6, &[], &message(136, &[])),
        ipv6(ICMPV6, &[], &message(133, &[&address(1, OWN)])),
        ipv6(ICMPV6, &[], &message(133, &[])),
        ipv6(ICMPV6, &[], &message(134, &[&[5, 1, 0, 0, 0, 0, 5, 220], &address(1, OWN), &[3; 24]])),
        ipv6(ICMPV6, &[], &message(137, &[&address(2, OWN), &[4, 9], &[7; 70]])),
        ipv6(ICMPV6, &[HOPS], &solicitation(OWN)),
        // Longer than what is looked at first.
        ipv6(ICMPV6, &[], &message(135, &[&[14, 20], &[0; 158], &address(1, OWN)])),
        // An echo, whole and in parts, and one that is long.
        ipv6(ICMPV6, &[], &[128, 0, 0, 0, 0, 1, 0, 1]),
        ipv6(ICMPV6, &[FIRST_PART], &[128; 1000]),
        ipv6(ICMPV6, &[LATER_PART], &[136; 1000]),
        ipv6(ICMPV6, &[], &[129; 1400]),
        ipv6(UDP, &[FIRST_PART], &[7; 400]),
        ipv6(UDP, &[LATER_PART], &[7; 400]),
        ipv6(UDP, &[HOPS, DESTINATION, ROUTE], &[7; 40]),
        ipv6(UDP, &[], &[7; 9]),
        ipv6(TCP, &[], &[7; 1400]),
        ipv6(59, &[], &[]),
        // Other types, LLC, and a type of theirs behind it.
        [&[8, 0][..], &[0x45; 300]].concat(),
        [&[0x88, 0xb5][..], &arp(OTHER)].concat(),
        [&[0, 38, 0x42, 0x42, 3][..], &[0; 35]].concat(),
        [&[0, 3][..], &[0xe0, 0xe0, 3]].concat(),
        [&[0, 36, 0xaa, 0xaa, 3, 0, 0, 0][..], &arp(OWN)].concat(),
        [&[0, 36, 0xaa, 0xaa, 3, 0, 0, 0, 0x80, 0x9b][..], &[0; 28]].concat(),
    ];
    for kind in [130, 131, 132, 143] {
        // Who hears which groups: nothing of an address.
        all.push(ipv6(ICMPV6, &[HOPS], &[&[kind, 0][..], &[0; 26]].concat()));
    }
    let mut padded = ipv6(ICMPV6, &[], &message(133, &[]));
    padded.extend([0; 9]);
    all.push(padded);
    all
}

/// What tells of another address, or may.
fn lies() -> Vec<Body> {
    let nd = |kind, options: &[&[u8]]| ipv6(ICMPV6, &[], &message(kind, options));
    let [source, target] = [1, 2].map(|kind| address(kind, OTHER));
    let lie = solicitation(OTHER);
    let mut cut = ipv6(ICMPV6, &[], &lie);
    cut.truncate(cut.len() - 3);
    let mut long = arp(OTHER);
    long.resize(600, 0);
    vec![
        arp(OTHER),
        arp(OTHER)[..12].to_vec(),
        long,
        [&[0, 36, 0xaa, 0xaa, 3, 0, 0, 0][..], &arp(OTHER)].concat(),
        nd(133, &[&source]),
        nd(134, &[&source]),
        nd(135, &[&source]),
        nd(136, &[&target]),
        nd(137, &[&target]),
        nd(137, &[&[4, 9], &[7; 70], &target]),
        // Behind an own one, and behind options that are long.
        nd(135, &[&address(1, OWN), &source]),
        nd(135, &[&[14, 8], &[0; 62], &source]),
        nd(136, &[&[14, 150], &[0; 1198], &target]),
        // Without an end.
        nd(135, &[&[14, 0], &[0; 6], &source]),
        nd(135, &[&[14, 9], &[0; 6]]),
        nd(135, &[&[1]]),
        cut,
        ipv6(ICMPV6, &[], &lie[..20]),
        // Behind other headers.
        ipv6(ICMPV6, &[HOPS], &lie),
        ipv6(ICMPV6, &[DESTINATION], &lie),
        ipv6(ICMPV6, &[ROUTE], &lie),
        ipv6(ICMPV6, &[AUTHENTICATION], &lie),
        ipv6(ICMPV6, &[HOPS, DESTINATION, ROUTE, AUTHENTICATION, DESTINATION], &lie),
        ipv6(ICMPV6, &[HOPS], &[]),
        ipv6(0, &[], &[ICMPV6]),
        // In parts, even an own address.
        ipv6(ICMPV6, &[ONLY_PART], &solicitation(OWN)),
        ipv6(ICMPV6, &[FIRST_PART], &solicitation(OWN)),
        ipv6(ICMPV6, &[FIRST_PART, DESTINATION], &lie),
    ]
}

/// Ways in which a body may be wrapped up in tags, by a port that may.
const TAGS: [&[(u16, u16)]; 6] = [
    &[],
    &[(0x8100, 0)],
    &[(0x8100, 7)],
    &[(0x8100, 7), (0x8100, 0)],
    &[(0x88a8, 7), (0x8100, 8), (OLD_TAGGED, 0)],
    &[(OLD_TAGGED, 9), (0x8100, 0)],
];

/// Sends a body from a careful port; says whether it came as it was, and has been counted.
fn comes(port: &Settings, header: [u8; 12], body: &[u8], lens: &[u32]) -> bool {
    let to = Settings { vlan: port.vlan, ..settings(1) };
    let (mut engine, mut guests) = rig(false, vec![port.clone(), to]);
    guests[0].send_in(header, &whole(1, body), lens);
    engine.round(0);
    let got = guests[1].frames();
    assert_eq!(dropped(&engine, 0, Dropped::SpoofedNeighbour), u64::from(got.is_empty()), "{body:x?}");
    assert!(got.iter().all(|got| *got == whole(1, body)), "{body:x?}");
    !got.is_empty()
}

/// A port with `arp_check` that has no VLAN, and one whose tags are its own.
fn ports() -> [Settings; 2] {
    let vlan = Some(PortVlan { tag: Tag { vlan: 7, priority: 0 }, kind: TagKind::Provider });
    [careful(), Settings { vlan, ..careful() }]
}

#[test]
fn what_is_ordinary_passes_and_no_lie_does() {
    for (port, tags) in ports().iter().flat_map(|port| TAGS.map(|tags| (port, tags))) {
        for (bodies, right) in [(ordinary(), true), (lies(), false)] {
            for body in bodies {
                let body = behind_tags(tags, &body);
                // With all tags it is longer than the MTU.
                if body.len() <= 1500 {
                    assert_eq!(comes(port, [0; 12], &body, &[12]), right, "{body:x?}");
                }
            }
        }
    }
}

#[test]
fn more_tags_than_are_looked_through_hide_nothing() {
    let tags = [(0x8100, 7); 200];
    for (body, right) in [(arp(OWN), true), (arp(OTHER), false)] {
        assert_eq!(comes(&careful(), [0; 12], &behind_tags(&tags, &body), &[12]), right);
    }
}

#[test]
fn no_checksum_makes_a_lie() {
    let sum = |start: u8, offset: u8| [1, 0, 0, 0, 0, 0, start, 0, offset, 0, 0, 0];
    let echo = ipv6(ICMPV6, &[], &[128; 60]);
    for (body, header, right) in [
        // Into the sender's address, the type of what follows, the type of a message.
        (arp(OWN), sum(14, 12), false),
        (ipv6(TCP, &[], &[0; 60]), sum(14, 6), false),
        (ipv6(TCP, &[], &[0; 60]), sum(20, 0), false),
        (echo.clone(), sum(54, 0), false),
        (ipv6(ICMPV6, &[], &solicitation(OWN)), sum(54, 2), false),
        (ipv6(UDP, &[HOPS], &[0; 60]), sum(54, 0), false),
        (ipv6(TCP, &[], &[0; 60]), sum(54, 16), true),
        (ipv6(UDP, &[HOPS], &[0; 60]), sum(62, 6), true),
        (echo, sum(54, 2), true),
    ] {
        assert_eq!(comes(&careful(), header, &body, &[]), right, "{header:?} {body:x?}");
    }
}

#[test]
fn segments_pass_as_they_came() {
    for lens in [&[12][..], &[12, 54, 4000, 20_000], &[30; 60]] {
        let (mut engine, mut guests) = rig(false, vec![careful(), settings(1)]);
        let body = ipv6(TCP, &[], &[&[0; 12][..], &[0x50], &[3; 50_000]].concat());
        let header = [1, 4, 74, 0, 100, 5, 54, 0, 16, 0, 0, 0];
        guests[0].send_in(header, &whole(1, &body), lens);
        engine.round(0);
        let got = guests[1].got();
        assert_eq!(got.len(), 1);
        assert!(got[0].0[..10] == header[..10] && got[0].1 == whole(1, &body));
    }
}

/// Sends `body` to two ports, the first of which has the frame's own memory as its buffer: what it gets, from `at` on, changes
/// what is read for the second. Says what that one got.
fn while_it_changes(body: &[u8], at: u64) -> Vec<u8> {
    let (mut engine, mut guests) = rig(false, vec![careful(), settings(1), settings(2)]);
    let knows = engine.port(0).unwrap().negotiated;
    engine.port_mut(0).unwrap().pairs.clear();
    engine.note_ring(0, 0, knows);
    let shape = Shape { packed: false, entries: 256, count: 0, size: 2048, room: 0x9_0000, knows };
    guests[0] = Guest::plug_at(&mut engine, 0, 0, shape);
    let taken = engine.port_mut(0).unwrap().pairs[0].to_guest.take();
    engine.port_mut(1).unwrap().pairs[0].to_guest = taken;
    engine.rings_changed();
    let sender = &mut guests[0];
    assert!(sender.receiving.offer(&sender.memory, &[(at, 2048, true)], Form::Chained).is_some());
    sender.send_in([0; 12], &whole(0xff, body), &[]);
    engine.round(0);
    let frame = whole(0xff, body);
    assert_ne!(guests[0].memory.read(12, frame.len()), frame, "nothing was changed");
    let mut got = guests[2].frames();
    assert_eq!(got.len(), 1);
    got.remove(0)
}

#[test]
fn what_was_judged_is_what_comes() {
    // The last bytes of a virtio header are not those that were there: over an address, and over what follows.
    for (body, at) in [
        (arp(OWN), 12 + 14 + 8 + 4 - 10),
        (ipv6(ICMPV6, &[], &solicitation(OWN)), 12 + 14 + 40 + 24 + 4 - 10),
        (ipv6(UDP, &[HOPS], &[0; 60]), 12 + 14 + 40 - 10),
        (behind_tags(&[(0x8100, 3), (0x8100, 4)], &arp(OWN)), 12 + 18 + 2 - 10),
    ] {
        assert_eq!(while_it_changes(&body, at), whole(0xff, &body));
    }
    // Of what cannot be a lie the front is ours, and the rest whatever it is.
    let body = ipv6(TCP, &[], &[9; 400]);
    assert_eq!(while_it_changes(&body, 12 + 14 + 6 - 10)[..54], whole(0xff, &body)[..54]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 200 }, ..ProptestConfig::default() })]
    #[test]
    fn a_lie_is_seen_behind_whatever_stands_before_it(
        hops in prop::collection::vec((prop_oneof![Just(0_u8), Just(43), Just(60)], 0_u8..12), 0..5),
        options in prop::collection::vec((3_u8..40, 1_u8..20), 0..4),
        (kind, option) in prop_oneof![Just((133_u8, 1)), Just((134, 1)), Just((135, 1)), Just((136, 2)), Just((137, 2))],
        tags in prop::collection::vec((prop_oneof![Just(0x8100_u16), Just(0x88a8), Just(OLD_TAGGED)], 0_u16..4096), 0..4),
        lens in prop::collection::vec(0_u32..90, 0..6),
        lies: bool,
    ) {
        let between: Vec<(u8, Vec<u8>)> = hops
            .iter()
            .map(|(kind, units)| (*kind, [&[*units], &[0; 6][..], &vec![0; usize::from(*units) * 8]].concat()))
            .collect();
        let between: Vec<(u8, &[u8])> = between.iter().map(|(kind, rest)| (*kind, &rest[..])).collect();
        let mut all: Vec<Vec<u8>> = options
            .iter()
            .map(|(kind, units)| [&[*kind, *units][..], &vec![1; usize::from(*units) * 8 - 2]].concat())
            .collect();
        all.push(address(option, if lies { OTHER } else { OWN }));
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let body = behind_tags(&tags, &ipv6(ICMPV6, &between, &message(kind, &all)));
        prop_assume!(body.len() <= 1500);
        let [_, provider] = ports();
        prop_assert_eq!(comes(&provider, [0; 12], &body, &lens), !lies);
    }
}
