//! Guests that keep to the rules beside those that do not: one in their VLANs, which looks at what it gets, and two in a VLAN of
//! their own, to whom nothing may happen.

use std::sync::Arc;

use crate::{
    driver::guest::{Guest, Shape},
    engine::{Engine, Negotiated, Port},
    net::{ETHERNET_HEADER, LONGEST, Mac, TAG, Tag},
    settings::{PortVlan, Settings, TagKind},
    table::PortId,
};

/// The VLAN of the two.
const APART: u16 = 4000;
/// What the two send.
const PAYLOAD: usize = 200;

/// Looks at a frame that somebody got, of which the switch may have made `grown` bytes of a tag: whether it can be, and asks for
/// nothing of which its receiver has not said that it knows it.
pub fn can_be(header: &[u8; 12], frame: &[u8], knows: &Negotiated, grown: usize) {
    assert!(frame.len() >= ETHERNET_HEADER && frame.len() <= LONGEST as usize + grown);
    let word = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let [flags, kind, ..] = header;
    if flags & 1 != 0 {
        assert!(knows.checksum, "a checksum is left to who did not say that it can");
        assert!(word(6) + word(8) + 2 <= frame.len(), "a checksum beyond the frame's end");
    }
    match kind & 0x7f {
        0 => assert!(frame.len() <= 1500 + ETHERNET_HEADER + TAG + grown, "{} bytes", frame.len()),
        1 => assert!(knows.tcp4),
        4 => assert!(knows.tcp6),
        5 => assert!(knows.udp),
        other => panic!("segments of kind {other}"),
    }
    assert!(kind & 0x7f == 0 || flags & 1 != 0 && word(4) > 0 && word(4) <= 1500);
    assert!(kind & 0x80 == 0 || knows.ecn);
}

/// Whether a tag stands behind one that a port of few VLANs has sent: only a provider's VLAN has its customer's inside.
fn has_hidden_tag(frame: &[u8]) -> bool {
    let Some([k0, k1, c0, c1, inner @ ..]) = frame.get(12..18) else { return false };
    let in_provider_vlan = [*k0, *k1] == [0x88, 0xa8] && (c0 & 0xf, *c1) != (0, 0);
    let is_tag = |kind: &[u8]| [[0x81, 0], [0x88, 0xa8], [0x91, 0]].iter().any(|tag| tag == kind);
    is_tag(&[*k0, *k1]) && is_tag(inner) && !in_provider_vlan
}

/// The three, at ports that follow each other.
pub struct Neighbours {
    first: PortId,
    listener: Guest,
    listens: Negotiated,
    heard: u64,
    apart: [Guest; 2],
    sent: u64,
}

fn frame(to: PortId, from: PortId, number: u64) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to as u8, 2, 0, 0, 0, 0, from as u8, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((0..PAYLOAD).map(|at| at as u8));
    frame
}

/// The port of the one that is `by` behind the first.
fn port(first: PortId, by: PortId) -> Port {
    let macs = vec![Mac::new([2, 0, 0, 0, 0, (first + by) as u8])];
    let tag = Tag { vlan: APART, priority: 0 };
    let vlan = (by > 0).then_some(PortVlan { tag, kind: TagKind::Customer });
    Port::new(Arc::new(Settings { macs, vlan, spoofchk: true, ..Settings::default() }))
}

impl Neighbours {
    /// Puts them at the ports from `first` on. The one that listens knows what `listens` says.
    pub fn plug(engine: &mut Engine, first: PortId, packed: bool, listens: Negotiated) -> Neighbours {
        let mut put = |by: PortId, shape: Shape| {
            engine.set_port(first + by, Some(Box::new(port(first, by))));
            Guest::plug_as(engine, first + by, shape)
        };
        let shape = Shape { packed, entries: 16, count: 16, size: 512, room: 0x1000, knows: listens };
        let listener = put(0, shape);
        let both =
            [1, 2].map(|by| put(by, Shape { count: 8, room: 0x400, knows: Negotiated::default(), ..shape }));
        Neighbours { first, listener, listens, heard: 0, apart: both, sent: 0 }
    }

    /// Tells another worker of the ports that they are at.
    pub fn note(&self, engine: &mut Engine) {
        for by in 0..3 {
            let id = self.first + by;
            engine.set_port(id, Some(Box::new(port(self.first, by))));
            let knows = if by == 0 { self.listens } else { Negotiated::default() };
            engine.note_ring(id, 0, knows);
        }
    }

    /// The numbers of the three ports that they are at.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + use<> {
        self.first..self.first + 3
    }

    /// Looks at what the listener got: a frame that can be, which asks for nothing that the listener has not said it knows.
    pub fn listened(&mut self) {
        for (header, frame) in self.listener.got_again() {
            self.heard += 1;
            can_be(&header, &frame, &self.listens, 4);
            assert!(!has_hidden_tag(&frame), "a tag inside one that its receiver takes off");
        }
    }

    /// Has the two send each other a frame.
    pub fn send(&mut self) {
        self.sent += 1;
        let [one, other] = [self.first + 1, self.first + 2];
        self.apart[0].send(&frame(other, one, self.sent));
        self.apart[1].send(&frame(one, other, self.sent));
    }

    /// Sees to it that both have come, whole.
    pub fn received(&mut self) {
        let [one, other] = [self.first + 1, self.first + 2];
        let right = [frame(one, other, self.sent), frame(other, one, self.sent)];
        for (guest, right) in self.apart.iter_mut().zip(right) {
            let got: Vec<_> = guest.got_again().into_iter().map(|(_, frame)| frame).collect();
            assert_eq!(got, [right], "a frame between two who have nothing to do with it");
        }
    }

    /// Compares what they saw with what was counted.
    pub fn counted(&self, engine: &Engine) {
        let counters = |by| engine.counters(self.first + by).expect("it is there");
        assert_eq!(counters(0).received, self.heard);
        for by in [1, 2] {
            assert_eq!((counters(by).sent, counters(by).received), (self.sent, self.sent));
            assert_eq!(counters(by).dropped_sent.iter().sum::<u64>(), 0);
            assert_eq!(counters(by).dropped_received.iter().sum::<u64>(), 0);
        }
    }
}
