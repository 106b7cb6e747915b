//! Guests that write whatever they like into their rings and their memory, between the switch's rounds.

use std::sync::Arc;

use super::{Input, neighbours::Neighbours};
use crate::{
    counters::Dropped,
    driver::USER,
    engine::{Engine, Negotiated, Pair, Port, Receiving, Sending},
    memory::{Description, Memory, owned},
    net::Mac,
    ring::{Layout, Packed, Ring, Split},
    settings::{PortVlan, Settings, TagKind, Vlans},
    table::PortId,
};

/// Where a hostile guest's regions begin, and how long they are: two neighbours, a hole, and one whose end is no page's. A ring's
/// parts stand at the regions' very ends, so that whoever goes beyond them is caught.
const REGIONS: [(u64, u64); 3] = [(0, 0x2000), (0x2000, 0x1002), (0x8000, 0x802)];
/// The hostile ports, and one in their VLANs that keeps to the rules.
const HOSTILE: [PortId; 2] = [0, 1];
/// The most that is done.
const STEPS: usize = 200;

/// One direction of a hostile guest.
pub struct Hostile {
    memory: Memory,
    pub packed: bool,
    pub layout: Layout,
    /// The next entry, and for the packed format the wrap counter.
    next: u16,
    wrap: bool,
}

impl Hostile {
    pub fn new(packed: bool, entries: u16, event_index: bool) -> Hostile {
        let parts = REGIONS.map(|(guest, size)| Description { guest, user: USER + guest, size, offset: 0 });
        let memory = owned::memory(&parts).expect("regions that are apart");
        let end = |number: usize| USER + REGIONS[number].0 + REGIONS[number].1;
        let size = u64::from(entries);
        let layout = Layout {
            entries,
            descriptors: end(0) - size * 16,
            driver: if packed { end(1) - 6 } else { end(1) - (6 + size * 2) },
            device: if packed { end(2) - 6 } else { end(2) - (6 + size * 8) },
            event_index,
        };
        Hostile { memory, packed, layout, next: 0, wrap: true }
    }

    pub fn ring(&self, base: u32) -> Option<Ring> {
        match self.packed {
            true => Packed::new(&self.memory, &self.layout, base).ok().map(Ring::Packed),
            false => Split::new(&self.memory, &self.layout, base).ok().map(Ring::Split),
        }
    }

    /// The memory that it shares with the switch; a copy is the same memory.
    #[cfg(all(test, not(any(miri, penstock_sanitized))))]
    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Writes as much as there is memory for.
    pub fn write(&self, mut at: u64, mut bytes: &[u8]) {
        while let Some(span) = self.memory.guest(at, bytes.len() as u32).filter(|_| !bytes.is_empty()) {
            let (now, later) = bytes.split_at(span.len as usize);
            // SAFETY: the span is that long, and the switch does not run meanwhile.
            unsafe { span.start.copy_from_nonoverlapping(std::ptr::NonNull::from(now).cast(), now.len()) };
            at += now.len() as u64;
            bytes = later;
        }
    }

    fn slot(&self, number: u16) -> u64 {
        self.layout.descriptors - USER + u64::from(number % self.layout.entries) * 16
    }

    /// Writes descriptor `number`, which the packed format has as available when `shown`.
    pub fn descriptor(&self, number: u16, address: u64, len: u32, flags: u16, last: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        let (third, fourth) = if self.packed { (last, flags) } else { (flags, last) };
        bytes[12..14].copy_from_slice(&third.to_le_bytes());
        bytes[14..].copy_from_slice(&fourth.to_le_bytes());
        self.write(self.slot(number), &bytes);
    }

    /// Makes these buffers available as one chain, whether the switch is done with what was there or not.
    pub fn offer(&mut self, buffers: &[(u64, u32)], flags: u16) {
        let head = self.next;
        for (number, (address, len)) in (0..).zip(buffers) {
            let next = u16::from(number + 1 < buffers.len());
            if self.packed {
                let wrap = if self.wrap { 1 << 7 } else { 1 << 15 };
                self.descriptor(self.next, *address, *len, flags | next | wrap, head);
                self.next += 1;
                if self.next >= self.layout.entries {
                    self.next = 0;
                    self.wrap = !self.wrap;
                }
            } else {
                let at = head.wrapping_add(number as u16);
                let follows = at.wrapping_add(1) % self.layout.entries;
                self.descriptor(at, *address, *len, flags | next, follows);
            }
        }
        if !self.packed {
            self.show(head % self.layout.entries);
        }
    }

    /// Makes the chain from this descriptor on available, in the split format.
    pub fn show(&mut self, head: u16) {
        let entry = u64::from(self.next % self.layout.entries) * 2;
        self.write(self.layout.driver - USER + 4 + entry, &head.to_le_bytes());
        self.next = self.next.wrapping_add(1);
        self.index(self.next);
    }

    /// Says, in the split format, that everything up to here is available.
    pub fn index(&mut self, index: u16) {
        self.write(self.layout.driver - USER + 2, &index.to_le_bytes());
    }

    /// An address that means something here, or any.
    fn address(&self, input: &mut Input<'_>) -> u64 {
        let offset = u64::from(input.word());
        match input.byte() % 8 {
            0..=4 => offset % 0x2000,
            5 => 0x2fe0 + offset % 0x40,
            6 => 0x8000 + offset % 0x900,
            _ => input.wide(),
        }
    }

    /// Writes something somewhere.
    fn scribble(&mut self, input: &mut Input<'_>, flag: u16) {
        match input.byte() % 6 {
            0 => {
                let at = self.address(input);
                let count = usize::from(input.byte() % 64);
                let bytes = input.bytes(count);
                self.write(at, bytes);
            }
            1 => {
                let number = input.word();
                let (address, len) = (self.address(input), length(input));
                let flags = input.word();
                let last = if input.coin() { u16::from(input.byte()) } else { input.word() };
                self.descriptor(number, address, len, flags, last);
            }
            2 => {
                // The driver's part: flags, index, entries and event; or position and flags.
                let at = u64::from(input.byte()) % (u64::from(self.layout.entries) * 2 + 6);
                self.write(self.layout.driver - USER + at, &input.word().to_le_bytes());
            }
            3 => {
                let at = u64::from(input.byte()) % (u64::from(self.layout.entries) * 8 + 6);
                self.write(self.layout.device - USER + at, &input.word().to_le_bytes());
            }
            4 => {
                // A table of descriptors and one that leads to it.
                let at = self.address(input);
                let count = u64::from(input.byte() % 8);
                for number in 0..count {
                    let (address, len) = (self.address(input), length(input));
                    let (a, b) = (u16::from(input.byte()), u16::from(input.byte()));
                    let mut bytes = [0; 16];
                    bytes[..8].copy_from_slice(&address.to_le_bytes());
                    bytes[8..12].copy_from_slice(&len.to_le_bytes());
                    bytes[12..14].copy_from_slice(&a.to_le_bytes());
                    bytes[14..].copy_from_slice(&b.to_le_bytes());
                    self.write(at.wrapping_add(number * 16), &bytes);
                }
                let len = if input.coin() { count as u32 * 16 } else { length(input) };
                self.offer(&[(at, len)], 4 | if input.coin() { flag } else { 0 });
            }
            _ => {
                let count = usize::from(input.byte() % 5) + 1;
                let buffers: Vec<_> = (0..count).map(|_| (self.address(input), length(input))).collect();
                self.offer(&buffers, if input.byte().is_multiple_of(8) { input.word() } else { flag });
            }
        }
    }

    /// Sends a frame that is one, as far as the bytes go.
    fn send(&mut self, input: &mut Input<'_>, header: u8) {
        let mut bytes = vec![0; usize::from(header)];
        if input.coin() {
            let own = input.bytes(10);
            bytes[..own.len()].copy_from_slice(own);
        }
        bytes.extend([2, 0, 0, 0, 0, input.byte() % 6]);
        bytes.extend([2, 0, 0, 0, 0, input.byte() % 3]);
        match input.byte() % 4 {
            0 => bytes.extend([0x81, 0, 0, input.byte() % 9]),
            1 => bytes.extend([0x88, 0xa8, 0, input.byte() % 9]),
            _ => {}
        }
        let kinds = [0x0800_u16, 0x0806, 0x86dd, 0x88b5];
        bytes.extend(input.one(&kinds).to_be_bytes());
        let count = usize::from(input.byte());
        bytes.extend(input.bytes(count));
        bytes.resize(bytes.len() + usize::from(input.byte()) * 7, 0x5a);
        let at = u64::from(input.word()) % 0xf00;
        self.write(at, &bytes);
        let cut = u32::from(input.byte()).min(bytes.len() as u32);
        let buffers = [(at, cut), (at + u64::from(cut), bytes.len() as u32 - cut)];
        self.offer(&buffers[usize::from(cut == 0)..], 0);
    }
}

fn length(input: &mut Input<'_>) -> u32 {
    match input.byte() % 8 {
        0 => input.long(),
        1 => 0,
        2 => u32::from(input.word()),
        _ => u32::from(input.byte()) * 8,
    }
}

fn settings(input: &mut Input<'_>, number: u8) -> Arc<Settings> {
    let (flags, more) = (input.byte(), input.byte());
    let mut trunk = Vlans::none();
    (0..7).for_each(|vlan| trunk.insert(vlan));
    let vlan = (flags & 1 != 0).then(|| PortVlan {
        tag: crate::net::Tag { vlan: u16::from(more % 6) + 1, priority: more >> 5 },
        kind: if flags & 2 != 0 { TagKind::Provider } else { TagKind::Customer },
    });
    Arc::new(Settings {
        macs: vec![Mac::new([2, 0, 0, 0, 0, number])],
        vlan,
        trunk,
        spoofchk: flags & 4 != 0,
        arp_check: flags & 8 != 0,
        trust: true,
        promiscuous: flags & 16 != 0,
        default: flags & 32 != 0,
        max_tx_rate: if flags & 64 != 0 { 1 + u32::from(more) } else { 0 },
        mtu: if flags & 128 != 0 { 300 } else { 1500 },
        ..Settings::default()
    })
}

fn knows(input: &mut Input<'_>) -> Negotiated {
    let bits = input.byte();
    Negotiated {
        header: if bits & 3 == 3 { 10 } else { 12 },
        mergeable: bits & 3 != 3 && bits & 1 != 0,
        checksum: bits & 4 != 0,
        tcp4: bits & 8 != 0,
        tcp6: bits & 16 != 0,
        udp: bits & 32 != 0,
        ecn: bits & 64 != 0,
    }
}

/// A switch with two hostile ports, one of rules in their VLANs, and two that have nothing to do with them.
struct Rig {
    engine: Engine,
    hostile: Vec<[Hostile; 2]>,
    neighbours: Neighbours,
    now: u64,
    /// Chains that rounds have told of.
    frames: u64,
}

impl Rig {
    fn plug(&mut self, which: usize, base: u32) {
        let [sending, receiving] = &self.hostile[which];
        let pair = Pair {
            from_guest: sending.ring(base).map(|ring| Sending { ring, call: None, err: None }),
            to_guest: receiving.ring(base).map(|ring| Receiving::new(ring, None)),
        };
        let port = self.engine.port_mut(HOSTILE[which]).expect("it is there");
        port.pairs = vec![pair];
        port.broken = None;
        self.engine.rings_changed();
    }

    fn round(&mut self) {
        self.frames += self.engine.round(self.now).frames as u64;
    }

    /// Whatever was taken was sent or dropped, for a reason.
    fn counters_add_up(&self) {
        let mut told = 0;
        for id in HOSTILE.into_iter().chain(self.neighbours.ports()) {
            let counters = self.engine.counters(id).expect("it is there");
            let dropped: u64 = counters.dropped_sent.iter().sum();
            // What nobody was there for was sent all the same.
            told += counters.sent + dropped - counters.dropped_sent[Dropped::NoReceiver as usize];
        }
        assert_eq!(self.frames, told, "frames that were taken, and what became of them");
    }
}

/// Rings of one format, whose guests do what these bytes say.
///
/// # Panics
/// When somebody else loses something, or what was counted does not add up.
pub fn rings(bytes: &[u8], packed: bool) {
    let mut input = Input::new(bytes);
    let mut engine = Engine::default();
    let mut hostile = Vec::new();
    for id in HOSTILE {
        let mut port = Port::new(settings(&mut input, id as u8));
        port.negotiated = knows(&mut input);
        engine.set_port(id, Some(Box::new(port)));
        let (entries, event_index) = (input.byte(), input.coin());
        let entries = if packed { u16::from(entries % 16) + 1 } else { 1 << (entries % 5) };
        let side = || Hostile::new(packed, entries, event_index);
        hostile.push([side(), side()]);
    }
    let listens = knows(&mut input);
    let neighbours = Neighbours::plug(&mut engine, HOSTILE.len() as PortId, packed, listens);
    let mut rig = Rig { engine, hostile, neighbours, now: 1_000_000_000, frames: 0 };
    for which in 0..HOSTILE.len() {
        rig.plug(which, if packed { 0x8000 } else { 0 });
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let which = usize::from(input.byte()) % HOSTILE.len();
        let header = rig.engine.port(HOSTILE[which]).map_or(12, |port| port.negotiated.header);
        match input.byte() % 12 {
            0..=2 => rig.hostile[which][0].scribble(&mut input, 0),
            3..=4 => rig.hostile[which][1].scribble(&mut input, 2),
            5..=6 => rig.hostile[which][0].send(&mut input, header),
            7 => {
                let (at, len) = (u64::from(input.word()) % 0x1000, length(&mut input) % 0x900);
                rig.hostile[which][1].offer(&[(at, len)], 2);
            }
            8 => {
                let base = input.long();
                rig.plug(which, base);
                let [sending, receiving] = &mut rig.hostile[which];
                for side in [sending, receiving] {
                    side.wrap = !packed || base & 0x8000 != 0;
                    side.next = if packed { base as u16 & 0x7fff } else { base as u16 };
                    side.next = if packed { side.next % side.layout.entries } else { side.next };
                }
            }
            9 => {
                let settings = settings(&mut input, which as u8);
                rig.engine.set_settings(HOSTILE[which], settings);
            }
            10 => {
                let on = input.coin();
                rig.engine.ask_for_kicks(on, rig.now);
                rig.now += u64::from(input.word()) * 1000;
            }
            _ => {
                rig.round();
                rig.neighbours.listened();
            }
        }
    }
    rig.round();
    rig.neighbours.listened();
    for _ in 0..3 {
        rig.neighbours.send();
        rig.round();
        rig.neighbours.received();
    }
    // What waited for its rate may have come meanwhile.
    rig.neighbours.listened();
    rig.neighbours.counted(&rig.engine);
    rig.counters_add_up();
}
