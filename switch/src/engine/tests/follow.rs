//! Frames of one turn come to the same as each in a turn of its own, where nothing is known of the one before.

use proptest::prelude::*;

use super::*;

/// A port of the three, drawn so that much of what can be set is.
pub(super) fn drawn(number: u8) -> impl Strategy<Value = Settings> {
    let vlan = prop_oneof![3 => Just(None), 3 => Just(Some(100)), 1 => Just(Some(200))];
    let kind = prop_oneof![3 => Just(TagKind::Customer), 1 => Just(TagKind::Provider)];
    let link = prop_oneof![6 => Just(LinkState::Auto), 1 => Just(LinkState::Disable)];
    let rare = || prop::bool::weighted(0.15);
    let mtu = prop_oneof![2 => Just(1500_u16), 1 => Just(100)];
    (vlan, kind, link, any::<bool>(), rare(), rare(), rare(), mtu).prop_map(
        move |(vlan, kind, link_state, spoofchk, arp_check, promiscuous, uplink, mtu)| Settings {
            vlan: vlan.map(|vlan| PortVlan { tag: Tag { vlan, priority: 3 }, kind }),
            link_state,
            spoofchk,
            arp_check,
            promiscuous,
            trust: true,
            uplink: uplink && number == 2,
            mtu,
            ..settings(number)
        },
    )
}

/// A frame from port 0, and how its buffers are cut.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    to: u8,
    from: u8,
    tag: Option<u16>,
    arp: bool,
    payload: usize,
    asks: bool,
    lens: Vec<u32>,
}

pub(super) fn sent() -> impl Strategy<Value = Sent> {
    let to = prop_oneof![8 => Just(1_u8), 2 => Just(2), 1 => Just(0), 1 => Just(9), 1 => Just(0xff)];
    let from = prop_oneof![12 => Just(0_u8), 1 => Just(7)];
    let tag = prop_oneof![8 => Just(None), 1 => Just(Some(100)), 1 => Just(Some(0))];
    let payload = prop_oneof![Just(0_usize), Just(46), 40_usize..160, Just(1500), Just(1501)];
    let lens =
        prop_oneof![3 => Just(vec![]), 1 => Just(vec![12]), 1 => prop::collection::vec(0_u32..40, 1..4)];
    (to, from, tag, prop::bool::weighted(0.1), payload, prop::bool::weighted(0.1), lens).prop_map(
        |(to, from, tag, arp, payload, asks, lens)| Sent { to, from, tag, arp, payload, asks, lens },
    )
}

impl Sent {
    pub(super) fn send(&self, guest: &mut Guest) {
        let Sent { to, from, tag, arp, payload, asks, lens } = self;
        let mut bytes = frame(*to, *from, *tag, *payload);
        if *arp && tag.is_none() {
            bytes[12..14].copy_from_slice(&[8, 6]);
        }
        let mut header = [0; 12];
        if *asks && *payload > 40 {
            // A checksum to be completed by the receiver.
            header[..10].copy_from_slice(&[1, 0, 0, 0, 0, 0, 18, 0, 4, 0]);
        }
        guest.send_in(header, &bytes, lens);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 200 }, ..ProptestConfig::default() })]
    #[test]
    fn a_frame_that_follows_goes_where_it_would_have_gone(
        packed: bool,
        loopback in prop::bool::weighted(0.8),
        all in (drawn(0), drawn(1), drawn(2)),
        mirror in prop::option::weighted(0.2, (any::<bool>(), any::<bool>())),
        size in prop_oneof![3 => Just(2048_u32), 1 => Just(100)],
        frames in prop::collection::vec(sent(), 1..30),
    ) {
        let run = |together: bool| {
            let (mut engine, mut guests) = rig(packed, vec![all.0.clone(), all.1.clone(), all.2.clone()]);
            if size < 2048 {
                // Buffers that must be joined.
                let knows = engine.port(1).unwrap().negotiated;
                engine.port_mut(1).unwrap().pairs.clear();
                guests[1] = Guest::plug(&mut engine, 1, packed, 128, size, knows);
            }
            engine.set_loopback(loopback);
            if let Some((sent, received)) = mirror {
                engine.set_mirrors(vec![Mirror { port: 2, of: vec![0, 1], sent, received }]);
            }
            for sent in &frames {
                sent.send(&mut guests[0]);
                if !together {
                    engine.round(0);
                }
            }
            engine.round(0);
            let got: Vec<_> = guests.iter_mut().map(Guest::got).collect();
            let counters: Vec<_> = (0..3).map(|id| engine.counters(id).unwrap()).collect();
            (got, counters)
        };
        prop_assert_eq!(run(true), run(false));
    }
}
