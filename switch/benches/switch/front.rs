//! A guest in this process: a driver of a pair of split rings that polls. `testpmd` can neither be there 254 times, nor send segments
//! of TCP, nor say when a frame was sent.

use std::sync::atomic::{Ordering, fence};

use penstock_switch::features;

use super::{
    connection::{Connection, FROM_GUEST, Parts, SwitchEndpoint, TO_GUEST},
    memory::Memory,
};

/// `struct virtio_net_hdr_v1`
pub const HEADER: usize = 12;
/// From one buffer to the next.
pub const BUFFER: usize = 4096;
/// What a ring takes with 1,024 entries, the largest here, rounded up.
const RING: usize = 0x8000;

/// A split ring (virtio 1.2, 2.7), whose other side is asked for no calls.
struct Ring {
    at: usize,
    entries: u16,
    available: u16,
    seen: u16,
}

impl Ring {
    fn new(at: usize, entries: u16, memory: &Memory) -> Ring {
        let ring = Ring { at, entries, available: 0, seen: 0 };
        // VIRTQ_AVAIL_F_NO_INTERRUPT
        memory.write(ring.driver(), 1_u16);
        ring
    }

    fn driver(&self) -> usize {
        self.at + usize::from(self.entries) * 16
    }

    fn device(&self) -> usize {
        (self.driver() + 6 + usize::from(self.entries) * 2).next_multiple_of(4)
    }

    fn parts(&self) -> Parts {
        Parts { descriptors: self.at, driver: self.driver(), device: self.device(), base: 0 }
    }

    /// Writes descriptor `number`, which goes on at `next` if there is one. Addresses of the guest begin with 0.
    fn describe(&self, memory: &Memory, number: u16, at: usize, length: u32, write: bool, next: Option<u16>) {
        let place = self.at + usize::from(number) * 16;
        memory.write(place, at as u64);
        memory.write(place + 8, length);
        memory.write(place + 12, (u16::from(write) * 2) | u16::from(next.is_some()));
        memory.write(place + 14, next.unwrap_or(0));
    }

    /// Offers the chain that begins with `number`; it shows with [`Ring::publish`].
    fn offer(&mut self, memory: &Memory, number: u16) {
        let slot = usize::from(self.available % self.entries);
        memory.write(self.driver() + 4 + slot * 2, number);
        self.available = self.available.wrapping_add(1);
    }

    /// Shows what was offered, and says whether the other side wants to be kicked for it.
    fn publish(&self, memory: &Memory) -> bool {
        memory.word(self.driver() + 2).store(self.available, Ordering::Release);
        fence(Ordering::SeqCst);
        // VIRTQ_USED_F_NO_NOTIFY
        memory.word(self.device()).load(Ordering::Relaxed) & 1 == 0
    }

    /// How many chains were used that were not looked at.
    fn waiting(&self, memory: &Memory) -> u16 {
        memory.word(self.device() + 2).load(Ordering::Acquire).wrapping_sub(self.seen)
    }

    /// The next that was used, of those that wait: its number, and how much was written.
    fn used(&mut self, memory: &Memory) -> (u16, u32) {
        let place = self.device() + 4 + usize::from(self.seen % self.entries) * 8;
        self.seen = self.seen.wrapping_add(1);
        (memory.read::<u32>(place) as u16, memory.read(place + 4))
    }
}

/// A guest that is connected.
pub struct Front {
    // Before the memory, so that the switch lets go first.
    connection: Connection,
    to_guest: Ring,
    from_guest: Ring,
    /// Chains of the sending ring that are free: each is at a place of its own.
    free: Vec<u16>,
    /// Descriptors and buffers in a chain.
    chain: u16,
    memory: Memory,
}

impl Front {
    /// Connects one with so many entries in each ring, all its buffers offered. More than one buffer in a chain: it knows whole segments
    /// of TCP, and sends them from so many.
    pub fn connect(endpoint: SwitchEndpoint<'_>, entries: u16, buffers: u16) -> Result<Front, String> {
        let memory = Memory::new(RING * 2 + usize::from(entries) * BUFFER * 2)?;
        let mut to_guest = Ring::new(0, entries, &memory);
        let from_guest = Ring::new(RING, entries, &memory);
        for number in 0..entries {
            to_guest.describe(&memory, number, to_buffer(number), BUFFER as u32, true, None);
            to_guest.offer(&memory, number);
        }
        to_guest.publish(&memory);
        let mut wanted = features::VERSION_1 | features::MERGEABLE;
        if buffers > 1 {
            wanted |=
                features::CHECKSUM | features::GUEST_CHECKSUM | features::HOST_TSO4 | features::GUEST_TSO4;
        }
        let parts = [&to_guest, &from_guest].map(Ring::parts);
        let connection = Connection::open(endpoint, wanted, &memory, entries, parts)?;
        let chain = buffers.max(1);
        let free = (0..entries / chain).map(|number| number * chain).collect();
        Ok(Front { connection, to_guest, from_guest, free, chain, memory })
    }

    fn source(&self, number: u16) -> usize {
        // Behind those of the receiving ring.
        to_buffer(self.to_guest.entries) + usize::from(number) * BUFFER
    }

    /// Writes `bytes` to the beginning of every buffer that it sends from: header and headers.
    pub fn prepare(&mut self, bytes: &[u8]) {
        for number in self.free.clone() {
            let at = self.source(number);
            bytes.iter().enumerate().for_each(|(offset, byte)| self.memory.write(at + offset, *byte));
        }
    }

    /// Takes back what was sent, and says how many can be.
    pub fn room(&mut self) -> usize {
        for _ in 0..self.from_guest.waiting(&self.memory) {
            let (number, _) = self.from_guest.used(&self.memory);
            self.free.push(number);
        }
        self.free.len()
    }

    /// Sends `length` bytes of what was prepared, header included, with `stamp` at `at`. It shows with [`Front::flush`].
    pub fn send(&mut self, length: usize, stamp: Option<(usize, u64)>) {
        let Some(head) = self.free.pop() else { return };
        if let Some((at, stamp)) = stamp {
            self.memory.write(self.source(head) + at, stamp);
        }
        let mut left = length;
        for number in head..head + self.chain {
            let part = left.min(BUFFER);
            left -= part;
            let next = (left > 0).then_some(number + 1);
            self.from_guest.describe(&self.memory, number, self.source(number), part as u32, false, next);
            if next.is_none() {
                break;
            }
        }
        self.from_guest.offer(&self.memory, head);
    }

    /// Shows what was sent.
    pub fn flush(&mut self) {
        if self.from_guest.publish(&self.memory) {
            self.connection.kick(FROM_GUEST);
        }
    }

    /// Gives each buffer that came, as what was written to it and the number that stands `at` bytes behind its beginning, to
    /// `each`; offers them again.
    pub fn receive(&mut self, at: usize, mut each: impl FnMut(u32, u64)) -> u16 {
        let count = self.to_guest.waiting(&self.memory);
        for _ in 0..count {
            let (number, written) = self.to_guest.used(&self.memory);
            each(written, self.memory.read(to_buffer(number) + at));
            self.to_guest.offer(&self.memory, number);
        }
        if count > 0 && self.to_guest.publish(&self.memory) {
            self.connection.kick(TO_GUEST);
        }
        count
    }
}

/// Where a buffer of the receiving ring is.
fn to_buffer(number: u16) -> usize {
    RING * 2 + usize::from(number) * BUFFER
}
