//! A ring whose buffers are always the same, each in the place of its number: to offer them once more costs its driver next to nothing.
//! A device that uses them in another order than they were offered in cannot be measured so, which shows.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::{connection::Parts, format::Format, memory::Memory};

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

/// Where a ring is in its guest's memory, and what it is for.
#[derive(Clone, Copy, Debug)]
pub struct RingPlace {
    /// Where it begins.
    pub at: usize,
    /// Where its buffers begin, [`STRIDE`] bytes each.
    pub buffers: usize,
    /// How many of each there are, a power of two.
    pub entries: u64,
    /// Whether it is of empty buffers for frames to the guest.
    pub to_guest: bool,
}

impl RingPlace {
    /// Bytes that a ring takes, without its buffers.
    pub const fn size(entries: u64) -> usize {
        entries as usize * 32
    }

    /// Bytes that its buffers take.
    pub const fn buffers_size(entries: u64) -> usize {
        entries as usize * STRIDE
    }
}

/// The driver's side of such a ring.
#[derive(Debug)]
pub struct PreparedRing {
    packed: bool,
    place: RingPlace,
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
    /// One at this place, of which nothing is offered.
    pub fn new(memory: &Memory, format: Format, place: RingPlace) -> PreparedRing {
        let packed = format != Format::Split;
        let ring = PreparedRing { packed, place, length: 0, offered: 0, seen: 0, disordered: None };
        for number in 0..place.entries {
            memory.write(ring.descriptor(number), ring.buffer(number) as u64);
            if !packed {
                memory.write(ring.descriptor(number) + 12, if place.to_guest { WRITE } else { 0 });
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
        Parts { descriptors: self.place.at, driver: self.driver(), device: self.device(), base }
    }

    /// How many there are.
    pub fn entries(&self) -> u64 {
        self.place.entries
    }

    /// The entry of the one of this number.
    fn slot(&self, number: u64) -> u64 {
        // A division takes as long as all else that a driver does for a frame.
        number & (self.place.entries - 1)
    }

    /// A packed ring's wrap counter for the one of this number.
    fn wraps(&self, number: u64) -> bool {
        number & self.place.entries == 0
    }

    fn descriptor(&self, number: u64) -> usize {
        self.place.at + self.slot(number) as usize * DESCRIPTOR
    }

    fn driver(&self) -> usize {
        self.place.at + self.entries() as usize * DESCRIPTOR
    }

    fn device(&self) -> usize {
        self.driver() + if self.packed { 4 } else { 6 + self.entries() as usize * 2 + 2 }
    }

    /// Where the buffer is that is offered as the one of this number.
    pub fn buffer(&self, number: u64) -> usize {
        self.place.buffers + self.slot(number) as usize * STRIDE
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
            (0..self.entries()).for_each(|number| memory.write(self.descriptor(number) + 8, length));
        }
    }

    /// Offers so many more.
    pub fn offer(&mut self, memory: &Memory, count: u64) {
        assert!(self.outstanding() + count <= self.entries(), "more than there are");
        if self.packed {
            for number in self.offered..self.offered + count {
                let wrap = self.wraps(number);
                let flags = if self.place.to_guest { WRITE } else { 0 } | if wrap { AVAILABLE } else { USED };
                let rest = u64::from(self.length) | self.slot(number) << 32 | u64::from(flags) << 48;
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
            let wrap = self.wraps(number);
            if flags != if wrap { AVAILABLE | USED } else { 0 } {
                break;
            }
            if rest >> 32 & 0xffff != self.slot(number) {
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
            let place = self.device() + 4 + self.slot(*number) as usize * 8;
            u64::from(memory.read::<u32>(place)) == self.slot(*number)
        };
        let mut last = self.seen.saturating_sub(self.entries())..self.seen;
        let wrong = if self.packed { self.disordered } else { last.find(|number| !used(number)) };
        match wrong {
            None => Ok(()),
            Some(number) => Err(format!("the switch did not use buffer {number} of a ring in its turn")),
        }
    }
}
