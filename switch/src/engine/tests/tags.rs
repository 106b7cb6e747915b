//! Which tags a port may send, what they are outside, and what of them is left to who receives them.

use super::*;
use crate::net::{OLD_TAGGED, PROVIDER_TAGGED, TAGGED};

/// Tags of a frame, from the first on: type, and the two octets behind it.
type Tags = &'static [(u16, u16)];

/// A port's own VLAN, and that as its frames have it, with its priority.
const OWN: u16 = 7;
const OWN_TAG: u16 = OWN | 5 << 13;
const FOREIGN: u16 = 200;
/// A priority without a VLAN.
const PRIORITY: u16 = 6 << 13;

const NONE: Tags = &[];
const PRIORITY_ALONE: Tags = &[(TAGGED, PRIORITY)];
const OWN_ALONE: Tags = &[(TAGGED, OWN)];
const PROVIDER_OWN: Tags = &[(PROVIDER_TAGGED, OWN)];
/// Each with another one inside that who takes the first off would have the frame in.
const PRIORITY_FIRST: [Tags; 6] = [
    &[(TAGGED, PRIORITY), (TAGGED, FOREIGN)],
    &[(TAGGED, 0), (TAGGED, 0)],
    &[(TAGGED, 0), (PROVIDER_TAGGED, FOREIGN)],
    &[(TAGGED, 0), (OLD_TAGGED, FOREIGN)],
    &[(PROVIDER_TAGGED, 0), (TAGGED, FOREIGN)],
    &[(TAGGED, 0), (TAGGED, OWN)],
];
const OTHERS: [Tags; 6] = [
    &[(TAGGED, FOREIGN)],
    &[(TAGGED, OWN), (TAGGED, FOREIGN)],
    &[(TAGGED, OWN), (OLD_TAGGED, FOREIGN)],
    &[(PROVIDER_TAGGED, OWN), (TAGGED, FOREIGN)],
    &[(PROVIDER_TAGGED, FOREIGN)],
    &[(OLD_TAGGED, FOREIGN)],
];

fn all_frames() -> Vec<Tags> {
    [&[NONE, PRIORITY_ALONE, OWN_ALONE, PROVIDER_OWN], &PRIORITY_FIRST[..], &OTHERS].concat()
}

fn tagged(to: u8, from: u8, tags: &[(u16, u16)]) -> Vec<u8> {
    let mut bytes = frame(to, from, None, 46);
    let tags = tags.iter().flat_map(|(kind, control)| [kind.to_be_bytes(), control.to_be_bytes()].concat());
    bytes.splice(12..12, tags);
    bytes
}

fn own(number: u8, kind: TagKind) -> Settings {
    let vlan = Some(PortVlan { tag: Tag { vlan: OWN, priority: 5 }, kind });
    Settings { vlan, ..settings(number) }
}

fn trunk(number: u8, vlans: &[u16]) -> Settings {
    let mut trunk = Vlans::none();
    vlans.iter().for_each(|vlan| trunk.insert(*vlan));
    Settings { trunk, ..settings(number) }
}

/// Sends each of all frames from a port, and says what comes out of an uplink.
fn goes_out(port: &Settings, is: impl Fn(Tags) -> Option<Vec<(u16, u16)>>) {
    for tags in all_frames() {
        let uplink = Settings { uplink: true, ..settings(1) };
        let (mut engine, mut guests) = rig(false, vec![port.clone(), uplink]);
        guests[0].send(&tagged(9, 0, tags));
        engine.round(0);
        let right: Vec<_> = is(tags).iter().map(|tags| tagged(9, 0, tags)).collect();
        assert_eq!(guests[1].frames(), right, "{tags:x?} from {port:?}");
        assert_eq!(dropped(&engine, 0, Dropped::ForeignVlan), u64::from(right.is_empty()), "{tags:x?}");
    }
}

#[test]
fn a_port_sends_no_tag_inside_one_that_is_taken_off() {
    let as_it_came = |tags: Tags| Some(tags.to_vec());
    // The priority is the port's, not one that the guest chooses.
    goes_out(&own(0, TagKind::Customer), |tags| {
        (tags == NONE || tags == PRIORITY_ALONE).then(|| vec![(TAGGED, OWN_TAG)])
    });
    goes_out(&own(0, TagKind::Provider), |tags| Some([&[(PROVIDER_TAGGED, OWN_TAG)], tags].concat()));
    let first = |tags: &Tags| [NONE, PRIORITY_ALONE].contains(tags);
    goes_out(&trunk(0, &[0]), |tags| Some(tags).filter(first).and_then(as_it_came));
    let second = |tags: &Tags| [NONE, PRIORITY_ALONE, OWN_ALONE, PROVIDER_OWN].contains(tags);
    goes_out(&trunk(0, &[0, OWN]), |tags| Some(tags).filter(second).and_then(as_it_came));
    let third = |tags: &Tags| !PRIORITY_FIRST.contains(tags);
    goes_out(&settings(0), |tags| Some(tags).filter(third).and_then(as_it_came));
    // As a configuration has all of them.
    goes_out(&trunk(0, &Vec::from_iter(0..4095)), |tags| Some(tags).filter(third).and_then(as_it_came));
}

#[test]
fn a_port_vlan_leaves_no_other_tag_bare() {
    let frames: [Tags; 4] = [
        &[(TAGGED, OWN)],
        &[(TAGGED, OWN), (TAGGED, FOREIGN)],
        &[(PROVIDER_TAGGED, OWN), (TAGGED, FOREIGN)],
        &[(TAGGED, OWN), (TAGGED, 0)],
    ];
    let ports = [own(1, TagKind::Customer), own(2, TagKind::Provider), trunk(3, &[0, OWN])];
    let (mut engine, mut guests) = rig(false, [&[settings(0)], &ports[..]].concat());
    for tags in frames {
        guests[0].send(&tagged(0xff, 0, tags));
    }
    engine.round(0);
    assert_eq!(guests[1].frames(), [tagged(0xff, 0, NONE)]);
    assert_eq!(missed(&engine, 1, Dropped::ForeignVlan), 3);
    assert_eq!(guests[2].frames(), frames.map(|tags| tagged(0xff, 0, &tags[1..])), "its customer's");
    assert_eq!(guests[3].frames(), frames.map(|tags| tagged(0xff, 0, tags)));
}

#[test]
fn a_customers_tags_stay_among_provider_vlans() {
    let ports = vec![own(0, TagKind::Provider), own(1, TagKind::Customer), own(2, TagKind::Provider)];
    let (mut engine, mut guests) = rig(false, ports);
    let inner: Tags = &[(TAGGED, FOREIGN)];
    for to in [1, 2] {
        // Those that follow go the same way.
        for _ in 0..3 {
            guests[0].send_in([0; 12], &tagged(to, 0, inner), &[]);
        }
    }
    engine.round(0);
    assert!(guests[1].frames().is_empty());
    assert_eq!(missed(&engine, 1, Dropped::ForeignVlan), 3);
    assert_eq!(guests[2].frames(), vec![tagged(2, 0, inner); 3]);
}

#[test]
fn a_checksum_makes_no_other_tag() {
    let (mut engine, mut guests) = rig(false, vec![trunk(0, &[OWN]), settings(1)]);
    let sum = |start, offset| [1, 0, 0, 0, 0, 0, start, 0, offset, 0, 0, 0];
    for header in [sum(14, 0), sum(14, 2), sum(17, 0), sum(18, 4)] {
        guests[0].send_in(header, &tagged(1, 0, OWN_ALONE), &[]);
    }
    engine.round(0);
    assert_eq!(guests[1].frames(), [tagged(1, 0, OWN_ALONE)]);
    assert_eq!(dropped(&engine, 0, Dropped::BadHeader), 3);
}
