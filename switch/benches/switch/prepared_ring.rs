//! A ring whose buffers are always the same, each in the place of its number: to offer them once more costs its driver next to nothing.
//! A device that uses them in another order than they were offered in cannot be measured so, which shows.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::{connection::Parts, format::Format, memory::Memory};

/// Entries, and buffers.
pub const ENTRIES: u64 = 1024;
/// Bytes that a ring takes.
pub const SIZE: usize = 0x8000;
/// From one buffer to the next: as DPDK has them, so that their beginnings do not all fall into the same sets of a cache.
pub const STRIDE: usize = 2304;

/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;
/// `VIRTQ_DESC_F_WRITE`: the device writes to it.
const WRITE: u16 = 2;
/// Packed descriptors: the driver's wrap counter when it was offered, and the device's when it was used.
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// Of split rings: `VIRTQ_AVAIL_F_NO_INTERRUPT`, `VIRTQ_USED_F_NO_NOTIFY`; of packed ones: `RING_EVENT_FLAGS_DISABLE`.
const SILENCE: u16 = 1;

/// The driver's side of such a ring.
#[derive(Debug)]
pub struct PreparedRing {
    packed: bool,
    at: usize,
    buffers: usize,
    to_guest: bool,
    /// What each descriptor says of its buffer's length.
    length: u32,
    /// Buffers that were offered so far, each as often as it was.
    offered: u64,
    /// And those of which it was seen that they were used.
    seen: u64,
    /// A buffer that was used before one that was offered earlier.
    disordered: Option<u64>,
}

impl PreparedRing {
    /// One at `at`, with its buffers at `buffers`; of empty ones for frames to the guest, or of frames from it.
    pub fn new(memory: &Memory, format: Format, at: usize, buffers: usize, to_guest: bool) -> PreparedRing {
        let packed = format != Format::Split;
        let ring =
            PreparedRing { packed, at, buffers, to_guest, length: 0, offered: 0, seen: 0, disordered: None };
        for number in 0..ENTRIES {
            memory.write(ring.descriptor(number), ring.buffer(number) as u64);
            if !packed {
                memory.write(ring.descriptor(number) + 12, if to_guest { WRITE } else { 0 });
                memory.write(ring.driver() + 4 + number as usize * 2, number as u16);
            }
        }
        memory.write(ring.driver() + if packed { 2 } else { 0 }, SILENCE);
        ring
    }

    /// Where its parts are.
    pub fn parts(&self) -> Parts {
        // A packed ring begins with a wrap counter of 1.
        let base = if self.packed { 1 << 15 } else { 0 };
        Parts { descriptors: self.at, driver: self.driver(), device: self.device(), base }
    }

    fn descriptor(&self, number: u64) -> usize {
        self.at + (number % ENTRIES) as usize * DESCRIPTOR
    }

    fn driver(&self) -> usize {
        self.at + ENTRIES as usize * DESCRIPTOR
    }

    fn device(&self) -> usize {
        self.driver() + if self.packed { 4 } else { 6 + ENTRIES as usize * 2 + 2 }
    }

    /// Where the buffer is that is offered as the one of this number.
    pub fn buffer(&self, number: u64) -> usize {
        self.buffers + (number % ENTRIES) as usize * STRIDE
    }

    /// How many are with the device, as far as was seen.
    pub fn outstanding(&self) -> u64 {
        self.offered - self.seen
    }

    /// The number of the next to be offered.
    pub fn next(&self) -> u64 {
        self.offered
    }

    /// The number of the next that will be seen used.
    pub fn next_used(&self) -> u64 {
        self.seen
    }

    /// Has every descriptor say this length. None may be with the device.
    pub fn set_length(&mut self, memory: &Memory, length: u32) {
        assert_eq!(self.outstanding(), 0, "the device has buffers");
        self.length = length;
        if !self.packed {
            (0..ENTRIES).for_each(|number| memory.write(self.descriptor(number) + 8, length));
        }
    }

    /// Offers so many more.
    pub fn offer(&mut self, memory: &Memory, count: u64) {
        assert!(self.outstanding() + count <= ENTRIES, "more than there are");
        if self.packed {
            for number in self.offered..self.offered + count {
                let wrap = (number / ENTRIES).is_multiple_of(2);
                let flags = if self.to_guest { WRITE } else { 0 } | if wrap { AVAILABLE } else { USED };
                let rest = u64::from(self.length) | (number % ENTRIES) << 32 | u64::from(flags) << 48;
                Self::rest(memory, self.descriptor(number)).store(rest, Ordering::Release);
            }
        }
        self.offered += count;
        if !self.packed {
            memory.word(self.driver() + 2).store(self.offered as u16, Ordering::Release);
        }
    }

    /// A packed descriptor's length, identifier and flags.
    fn rest(memory: &Memory, descriptor: usize) -> &AtomicU64 {
        // SAFETY: `at` has checked the place.
        unsafe { AtomicU64::from_ptr(memory.at(descriptor + 8)) }
    }

    /// How many more were used, at most so many. They are passed over with [`PreparedRing::take`].
    pub fn used(&mut self, memory: &Memory, most: u64) -> u64 {
        if !self.packed {
            let index: &AtomicU16 = memory.word(self.device() + 2);
            let new = index.load(Ordering::Acquire).wrapping_sub(self.seen as u16);
            return u64::from(new).min(most);
        }
        let mut count = 0;
        while count < most.min(self.outstanding()) {
            let number = self.seen + count;
            let rest = Self::rest(memory, self.descriptor(number)).load(Ordering::Acquire);
            let flags = (rest >> 48) as u16 & (AVAILABLE | USED);
            let wrap = (number / ENTRIES).is_multiple_of(2);
            if flags != if wrap { AVAILABLE | USED } else { 0 } {
                break;
            }
            if rest >> 32 & 0xffff != number % ENTRIES {
                self.disordered.get_or_insert(number);
            }
            count += 1;
        }
        count
    }

    /// Passes over so many that were used.
    pub fn take(&mut self, count: u64) {
        self.seen += count;
    }

    /// Whether the device wants to be told of what is offered.
    pub fn wants_kick(&self, memory: &Memory) -> bool {
        let flags = self.device() + if self.packed { 2 } else { 0 };
        memory.word(flags).load(Ordering::Relaxed) & SILENCE == 0
    }

    /// That the device has used every buffer in its turn.
    ///
    /// # Errors
    /// Names one that it has not.
    pub fn in_order(&self, memory: &Memory) -> Result<(), String> {
        let used = |number: &u64| {
            let place = self.device() + 4 + (number % ENTRIES) as usize * 8;
            u64::from(memory.read::<u32>(place)) == number % ENTRIES
        };
        let mut last = self.seen.saturating_sub(ENTRIES)..self.seen;
        let wrong = if self.packed { self.disordered } else { last.find(|number| !used(number)) };
        match wrong {
            None => Ok(()),
            Some(number) => Err(format!("the switch did not use buffer {number} of a ring in its turn")),
        }
    }
}
