//! Frames whose sender leaves work to others, for a receiver of any kind; and headers that lie about them.

use std::sync::Arc;

use super::{Input, neighbours::can_be};
use crate::{
    driver::guest::{Guest, Shape},
    engine::{Engine, Negotiated, Port},
    net::{Mac, Tag},
    settings::{PortVlan, Settings, TagKind},
};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// TCP's flags that belong to the last segment (FIN, PSH) and to the first (CWR).
const LAST: u8 = 0x09;
const FIRST: u8 = 0x80;

/// A frame that is one, and what its headers say.
#[derive(Debug)]
struct Made {
    bytes: Vec<u8>,
    /// Where IP, what it carries, and the payload begin.
    network: usize,
    transport: usize,
    payload: usize,
    v4: bool,
    tcp: bool,
}

/// The sum of RFC 1071, two bytes at a time.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    words.fold(0, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    })
}

fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

fn pseudo(addresses: &[u8], protocol: u8, len: usize) -> u32 {
    sum(addresses) + u32::from(protocol) + sum(&(len as u32).to_be_bytes())
}

impl Made {
    fn new(input: &mut Input<'_>) -> Made {
        let (shape, more) = (input.byte(), input.byte());
        let (v4, tcp, tagged) = (shape & 1 == 0, shape & 2 == 0, shape & 4 != 0);
        let len = match shape >> 6 {
            0 => usize::from(input.byte()),
            1 => usize::from(input.word() % 1500),
            _ => usize::from(input.word()) % 64_000,
        };
        let options = usize::from(more % 4) * 4;
        let behind = usize::from(more / 4 % 4) * 4;
        let protocol = if tcp { TCP } else { UDP };
        let transport_len = if tcp { 20 + behind } else { 8 } + len;
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0];
        if tagged {
            bytes.extend([0x81, 0, 0, 7]);
        }
        bytes.extend(if v4 { [8, 0] } else { [0x86, 0xdd] });
        let network = bytes.len();
        let id = input.word();
        let addresses;
        if v4 {
            let total = (20 + options + transport_len) as u16;
            bytes.extend([0x45 + (options / 4) as u8, 0]);
            bytes.extend(total.to_be_bytes());
            bytes.extend(id.to_be_bytes());
            bytes.extend([0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            bytes.resize(bytes.len() + options, 1);
            let check = !fold(sum(&bytes[network..]));
            bytes[network + 10..network + 12].copy_from_slice(&check.to_be_bytes());
            addresses = network + 12..network + 20;
        } else {
            let hops = more & 64 != 0;
            let behind = transport_len + if hops { 8 } else { 0 };
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend((behind as u16).to_be_bytes());
            bytes.extend([if hops { 0 } else { protocol }, 64]);
            bytes.extend((0..32).map(|at| at * 5));
            addresses = network + 8..network + 40;
            if hops {
                // Options of a hop: nothing but padding.
                bytes.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
            }
        }
        let transport = bytes.len();
        let partial = fold(pseudo(&bytes[addresses], protocol, transport_len)).to_be_bytes();
        bytes.extend([4, 0, 8, 0]);
        if tcp {
            bytes.extend(input.long().to_be_bytes());
            bytes.extend([0, 0, 0, 9, 0x50 + ((behind / 4) << 4) as u8, input.byte(), 1, 0]);
            bytes.extend(partial);
            bytes.extend([0, 0]);
            bytes.resize(bytes.len() + behind, 1);
        } else {
            bytes.extend((transport_len as u16).to_be_bytes());
            bytes.extend(partial);
        }
        let payload = bytes.len();
        bytes.extend((0..len).map(|at| (at * 7 + at / 251) as u8));
        Made { bytes, network, transport, payload, v4, tcp }
    }

    fn word(bytes: &[u8], at: usize) -> u16 {
        u16::from_be_bytes([bytes[at], bytes[at + 1]])
    }

    /// Whether lengths and sums of a frame with headers like these are right.
    fn is_right(&self, frame: &[u8]) {
        let (network, transport) = (self.network, self.transport);
        let rest = frame.len() - network;
        let addresses = if self.v4 {
            assert_eq!(usize::from(Made::word(frame, network + 2)), rest, "total length");
            assert_eq!(fold(sum(&frame[network..transport])), 0xffff, "IPv4's sum");
            &frame[network + 12..network + 20]
        } else {
            assert_eq!(usize::from(Made::word(frame, network + 4)), rest - 40, "payload length");
            &frame[network + 8..network + 40]
        };
        let part = &frame[transport..];
        if !self.tcp {
            assert_eq!(usize::from(Made::word(part, 4)), part.len(), "UDP's length");
            assert_ne!(Made::word(part, 6), 0, "a sum that says there is none");
        }
        let protocol = if self.tcp { TCP } else { UDP };
        assert_eq!(fold(pseudo(addresses, protocol, part.len()) + sum(part)), 0xffff, "the sum");
    }

    /// Compares segment `number` of segments of `size`, whose last one is `last`, with the whole.
    fn is_segment(&self, frame: &[u8], number: usize, size: usize, last: bool, ecn: bool) {
        self.is_right(frame);
        let from = self.payload + number * size;
        let to = (from + size).min(self.bytes.len());
        assert!(frame[self.payload..] == self.bytes[from..to], "the payload of segment {number}");
        assert_eq!(frame[..self.network], self.bytes[..self.network]);
        let whole = &self.bytes;
        if self.v4 {
            let id = Made::word(whole, self.network + 4).wrapping_add(number as u16);
            assert_eq!(Made::word(frame, self.network + 4), id);
        }
        if self.tcp {
            let at = self.transport + 4;
            let sequence = |bytes: &[u8]| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"));
            assert_eq!(sequence(frame), sequence(whole).wrapping_add((number * size) as u32));
            let mut flags = whole[self.transport + 13];
            flags &= if last { 0xff } else { !LAST };
            flags &= if number == 0 || !ecn { 0xff } else { !FIRST };
            assert_eq!(frame[self.transport + 13], flags, "flags of segment {number}");
        }
    }
}

/// What the sender's virtio header says.
fn header(made: &Made, segment: u16, ecn: bool) -> [u8; 12] {
    let kind = match (segment, made.tcp, made.v4) {
        (0, ..) => 0,
        (_, true, true) => 1,
        (_, true, false) => 4,
        (_, false, _) => 5,
    };
    let mut header = [1, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if ecn && segment > 0 {
        header[1] |= 0x80;
    }
    header[2..4].copy_from_slice(&(made.payload as u16).to_le_bytes());
    header[4..6].copy_from_slice(&segment.to_le_bytes());
    header[6..8].copy_from_slice(&(made.transport as u16).to_le_bytes());
    header[8..10].copy_from_slice(&(if made.tcp { 16_u16 } else { 6 }).to_le_bytes());
    header
}

/// A frame and its header, as these bytes say, for a receiver as they say.
///
/// # Panics
/// When what comes out is not what went in.
pub fn offload(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (bits, ports) = (input.byte(), input.byte());
    let knows = Negotiated {
        header: if bits & 3 == 2 { 10 } else { 12 },
        mergeable: bits & 1 != 0,
        checksum: bits & 4 != 0,
        tcp4: bits & 8 != 0,
        tcp6: bits & 16 != 0,
        udp: bits & 32 != 0,
        ecn: bits & 64 != 0,
    };
    let mut engine = Engine::default();
    let own =
        (ports & 1 != 0).then_some(PortVlan { tag: Tag { vlan: 7, priority: 0 }, kind: TagKind::Provider });
    for id in 0..2 {
        let vlan = if ports & 2 != 0 || id == 0 { own } else { None };
        let macs = vec![Mac::new([2, 0, 0, 0, 0, id as u8])];
        let settings = Settings { macs, vlan, arp_check: ports & 4 != 0, ..Settings::default() };
        engine.set_port(id, Some(Box::new(Port::new(Arc::new(settings)))));
    }
    let sends = Negotiated { header: if ports & 8 != 0 { 10 } else { 12 }, ..Negotiated::default() };
    let shape =
        Shape { packed: ports & 16 != 0, entries: 64, count: 0, size: 0, room: 0x1_1000, knows: sends };
    let mut sender = Guest::plug_as(&mut engine, 0, shape);
    let (count, size) = if knows.mergeable { (64, 2048) } else { (4, 0x1_1000) };
    let mut receiver = Guest::plug_as(&mut engine, 1, Shape { count, size, knows, ..shape });

    let mut made = Made::new(&mut input);
    let ecn = ports & 32 != 0;
    // With its headers, and a tag that is payload to its port, it is no longer than the MTU; a longer one is dropped, as any is.
    let longest = 1496 - (made.payload - made.network) as u16;
    let segment = if ports & 64 != 0 { 1 + input.word() % longest } else { 0 };
    let mut front = header(&made, segment, ecn);
    let spans: Vec<u32> = (0..input.byte() % 12).map(|_| u32::from(input.byte()) * 3).collect();
    let lies = !input.is_empty();
    while !input.is_empty() {
        let (at, byte) = (usize::from(input.byte()), input.byte());
        match front.get_mut(at) {
            Some(place) => *place = byte,
            None => {
                let at = (at - front.len()) % made.bytes.len();
                made.bytes[at] = byte;
            }
        }
    }
    assert!(sender.try_send_in(&front[..usize::from(sends.header)], &made.bytes, &spans));
    engine.round(0);
    let got = receiver.got();
    // A tag more where the receiver is told of its sender's.
    let grown = if ports & 3 == 1 { 4 } else { 0 };
    for (header, frame) in &got {
        can_be(header, frame, &knows, grown);
    }
    let [from, to] = [0, 1].map(|id| engine.counters(id).expect("it is there"));
    let missed: u64 = to.dropped_received.iter().sum();
    let dropped: u64 = from.dropped_sent.iter().sum();
    assert_eq!(to.received, got.len() as u64);
    assert_eq!(from.sent + dropped, 1 + from.dropped_sent[crate::counters::Dropped::NoReceiver as usize]);
    if lies || from.sent == 0 || to.dropped_received[crate::counters::Dropped::LinkDown as usize] > 0 {
        return;
    }
    let payload = made.bytes.len() - made.payload;
    let takes = knows.checksum
        && (segment == 0
            || (!ecn || knows.ecn)
                && match (made.tcp, made.v4) {
                    (true, true) => knows.tcp4,
                    (true, false) => knows.tcp6,
                    (false, _) => knows.udp,
                });
    let parts = if takes || segment == 0 { 1 } else { payload.div_ceil(usize::from(segment)).max(1) };
    // That it was summed is told to who may be told (5.1.6.4.1).
    let told = if knows.checksum { 2 } else { 0 };
    assert_eq!(got.len() as u64 + missed, parts as u64, "as many as there must be came or were counted");
    for (number, (header, frame)) in got.iter().enumerate() {
        // As it was before it got a tag.
        let mut frame = frame.clone();
        frame.drain(12..12 + grown);
        if takes {
            assert!(frame == made.bytes);
            assert_eq!(header[..2], front[..2]);
            assert_eq!(header[4..6], front[4..6]);
        } else if segment == 0 {
            made.is_segment(&frame, 0, payload, true, false);
            assert_eq!(header[..2], [told, 0]);
        } else {
            made.is_segment(&frame, number, usize::from(segment), number + 1 == parts, ecn);
            assert_eq!(header[..2], [told, 0]);
        }
    }
}
