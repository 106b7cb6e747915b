//! A guest that keeps to the rules, at a port of an engine.

use std::collections::HashMap;

use super::{Driver, Form, GuestMemory, driver_of};
use crate::{
    engine::{Engine, Negotiated, Pair, Receiving, Sending},
    ring::{Packed, Ring, Split},
    table::PortId,
};

/// What a guest has.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Rings of the packed format.
    pub packed: bool,
    /// Entries of each ring.
    pub entries: u16,
    /// Number of empty buffers for frames to it.
    pub count: u16,
    /// Bytes of each.
    pub size: u32,
    /// Bytes in which it writes frames, each with its header, one after the other.
    pub room: u64,
    /// What it says that it knows.
    pub knows: Negotiated,
}

/// A frame as it came: its header, its bytes, the buffers in which it lay.
type Came = ([u8; 12], Vec<u8>, Vec<(u64, u32)>);

/// A guest at a port.
pub struct Guest {
    pub memory: GuestMemory,
    pub sending: Box<dyn Driver>,
    pub receiving: Box<dyn Driver>,
    pub buffers: HashMap<u16, (u64, u32)>,
    shape: Shape,
    place: u64,
}

impl Guest {
    /// Puts a guest with `count` empty buffers of `size` bytes at a port.
    pub fn plug(
        engine: &mut Engine,
        id: PortId,
        packed: bool,
        count: u16,
        size: u32,
        knows: Negotiated,
    ) -> Guest {
        Guest::plug_as(engine, id, Shape { packed, entries: 256, count, size, room: 0x9_0000, knows })
    }

    /// Puts such a guest at a port, or one more pair of its rings, which count as a guest of their own here.
    pub fn plug_as(engine: &mut Engine, id: PortId, shape: Shape) -> Guest {
        let pair = engine.port(id).unwrap().pairs.len();
        Guest::plug_at(engine, id, pair, shape)
    }

    /// Puts a pair of a guest's rings at a port, as the one of this number.
    pub fn plug_at(engine: &mut Engine, id: PortId, pair: usize, shape: Shape) -> Guest {
        let Shape { packed, entries, count, size, room, knows } = shape;
        let first = room.next_multiple_of(16);
        let rings = (first + u64::from(count) * u64::from(size)).next_multiple_of(4096);
        // A descriptor, an entry of each ring of indices, and what stands around them.
        let ring_size = (u64::from(entries) * 26 + 16).next_multiple_of(16);
        let memory = GuestMemory::new((rings + 2 * ring_size) as usize);
        let driver = |at| driver_of(packed, at, entries);
        let (sending, receiving) = (driver(rings), driver(rings + ring_size));
        let ring = |driver: &dyn Driver| match packed {
            true => Ring::Packed(Packed::new(&memory.shared(), &driver.layout(false), 0x8000).unwrap()),
            false => Ring::Split(Split::new(&memory.shared(), &driver.layout(false), 0).unwrap()),
        };
        engine.note_ring(id, pair as u32 * 2, knows);
        engine.port_mut(id).unwrap().pairs[pair] = Pair {
            from_guest: Some(Sending { ring: ring(&*sending), call: None, err: None }),
            to_guest: Some(Receiving::new(ring(&*receiving), None)),
        };
        engine.rings_changed();
        let mut guest = Guest { memory, sending, receiving, buffers: HashMap::new(), shape, place: 0 };
        for number in 0..u64::from(count) {
            assert!(guest.offer(first + number * u64::from(size), size));
        }
        guest
    }

    /// Offers an empty buffer; says whether there was room for it.
    fn offer(&mut self, at: u64, size: u32) -> bool {
        let id = self.receiving.offer(&self.memory, &[(at, size, true)], Form::Chained);
        id.is_some_and(|id| {
            self.buffers.insert(id, (at, size));
            true
        })
    }

    /// Sends a frame with this virtio header, in buffers of these lengths and a last one; says whether there was room for it.
    pub fn try_send_in(&mut self, header: &[u8], frame: &[u8], lens: &[u32]) -> bool {
        let bytes = [header, frame].concat();
        assert!(bytes.len() as u64 <= self.shape.room);
        if self.place + bytes.len() as u64 > self.shape.room {
            self.place = 0;
        }
        self.memory.write(self.place, &bytes);
        let (mut at, mut left) = (self.place, bytes.len() as u32);
        let mut chain = Vec::new();
        for len in lens.iter().copied().chain([u32::MAX]) {
            let len = len.min(left);
            if len > 0 {
                chain.push((at, len, false));
            }
            (at, left) = (at + u64::from(len), left - len);
        }
        self.place += bytes.len() as u64;
        self.sending.offer(&self.memory, &chain, Form::Chained).is_some()
    }

    /// As [`Guest::try_send_in`], where there must be room.
    pub fn send_in(&mut self, header: [u8; 12], frame: &[u8], lens: &[u32]) {
        assert!(self.try_send_in(&header, frame, lens), "the ring is full");
    }

    pub fn send(&mut self, frame: &[u8]) {
        self.send_in([0; 12], frame, &[12]);
    }

    /// All frames that have come, with their headers; one of 10 bytes ends in zeroes.
    pub fn got(&mut self) -> Vec<([u8; 12], Vec<u8>)> {
        self.got_in().into_iter().map(|(header, frame, _)| (header, frame)).collect()
    }

    /// The same, each with the buffers in which it lay.
    fn got_in(&mut self) -> Vec<Came> {
        let mut all = Vec::new();
        let own = usize::from(self.shape.knows.header);
        while let Some((id, written)) = self.receiving.used(&self.memory) {
            let mut buffers = vec![self.buffers[&id]];
            let mut bytes = self.memory.read(buffers[0].0, written as usize);
            let mut header = [0; 12];
            header[..own].copy_from_slice(&bytes[..own]);
            let joined = if own == 12 { u16::from_le_bytes([header[10], header[11]]) } else { 1 };
            assert!(joined == 1 || self.shape.knows.mergeable && joined > 1, "{joined} buffers");
            for _ in 1..joined {
                let (id, written) = self.receiving.used(&self.memory).expect("as many buffers as it says");
                buffers.push(self.buffers[&id]);
                bytes.extend(self.memory.read(self.buffers[&id].0, written as usize));
            }
            all.push((header, bytes.split_off(own), buffers));
        }
        while self.sending.used(&self.memory).is_some() {}
        all
    }

    /// All frames that have come, whose buffers are then offered again.
    pub fn got_again(&mut self) -> Vec<([u8; 12], Vec<u8>)> {
        let all = self.got_in();
        for (at, size) in all.iter().flat_map(|(.., buffers)| buffers) {
            assert!(self.offer(*at, *size));
        }
        all.into_iter().map(|(header, frame, _)| (header, frame)).collect()
    }

    pub fn frames(&mut self) -> Vec<Vec<u8>> {
        self.got().into_iter().map(|(_, frame)| frame).collect()
    }
}
