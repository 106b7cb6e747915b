//! A guest's memory with a pair of prepared rings, and frames for another guest in all buffers that it sends from.

use super::{
    format::Format,
    front::HEADER,
    memory::Memory,
    packets,
    prepared_ring::{PreparedRing, RingPlace, STRIDE},
};

/// Where a guest writes to a frame that it sends: the last word of its first line, behind all headers. A port that changes would be
/// another flow each time, which Open vSwitch has to look up.
const MARK: usize = 56;
/// Protocol number of UDP.
const UDP: u8 = 17;

/// Both rings, in memory of their own.
pub struct PreparedPair {
    /// What the switch maps.
    pub memory: Memory,
    /// Empty buffers for frames to the guest.
    pub receiving: PreparedRing,
    /// Frames from it.
    pub sending: PreparedRing,
}

impl PreparedPair {
    /// Rings of so many entries, of which nothing is offered.
    ///
    /// # Errors
    /// When the memory cannot be had.
    pub fn new(format: Format, entries: u64) -> Result<PreparedPair, String> {
        let (ring, buffers) = (RingPlace::size(entries), RingPlace::buffers_size(entries));
        let memory = Memory::new(2 * (ring + buffers))?;
        let place = |at, buffers, to_guest| RingPlace { at, buffers, entries, to_guest };
        let mut receiving = PreparedRing::new(&memory, format, place(0, 2 * ring, true));
        let sending = PreparedRing::new(&memory, format, place(ring, 2 * ring + buffers, false));
        receiving.set_length(&memory, STRIDE as u32);
        Ok(PreparedPair { memory, receiving, sending })
    }

    /// Writes frames of `size` bytes from one guest to another to all buffers that are sent from.
    pub fn prepare(&mut self, from: u8, to: u8, size: usize) {
        let datagram = size - 34;
        let [high, low] = (datagram as u16).to_be_bytes();
        // From and to port 9, which throws away what it gets; without a checksum.
        let udp = [0, 9, 0, 9, high, low, 0, 0];
        let beginning = [&[0; HEADER][..], &packets::headers(from, to, UDP, datagram), &udp].concat();
        for number in 0..self.sending.entries() {
            let at = self.sending.buffer(number);
            (0..HEADER + size).for_each(|offset| {
                self.memory.write(at + offset, beginning.get(offset).copied().unwrap_or(0));
            });
        }
        self.sending.set_length(&self.memory, (HEADER + size) as u32);
    }

    /// Writes to the frame of this number, as whoever sends it does.
    pub fn mark(&self, number: u64) {
        self.memory.write(self.sending.buffer(number) + MARK, number);
    }

    /// Reads the first line of the frame of this number.
    pub fn read(&self, number: u64) {
        std::hint::black_box(self.memory.read::<[u64; 8]>(self.receiving.buffer(number)));
    }
}
