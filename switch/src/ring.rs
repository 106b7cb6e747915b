//! Virtqueues from the device's side (Virtual I/O Device specification 1.3, 2.6 to 2.8).
//!
//! A ring hands out *chains*: the buffers of one frame, as spans of the guest's memory. They come in batches, since most of
//! what a frame costs is waiting for cache lines of the ring, and are completed in the order in which they were handed out
//! (which is what `VIRTIO_F_IN_ORDER` promises). What is completed shows to the driver when it is published, once a batch.
//!
//! A chain that cannot be is handed out all the same, as a [`Fault`] without spans, to be counted and completed; only a ring
//! whose indices cannot be is broken, since nothing in it can be trusted any more.

pub(crate) mod atomics;
mod batch;
mod packed;
mod ring_memory;
mod split;

use std::{ptr::NonNull, sync::Arc};

use thiserror::Error;

use self::ring_memory::RingMemory;
pub use self::{
    batch::{Batch, Chain, Fault},
    packed::Packed,
    split::Split,
};
use crate::{dirty::Marking, inflight::Note, iotlb::Table, memory::Memory};

/// The most entries that a ring may have (2.6, 2.8.10.1).
pub const MOST_ENTRIES: u16 = 32_768;

/// Descriptor flag: another one follows (2.6.5, 2.8.1).
const NEXT: u16 = 1;
/// Descriptor flag: the device writes to the buffer.
const WRITE: u16 = 2;
/// Descriptor flag: the buffer holds descriptors.
const INDIRECT: u16 = 4;
/// Descriptor flags that say what it is a part of.
const SHAPE: u16 = NEXT | WRITE | INDIRECT;
/// Bytes of a descriptor, in either format.
const DESCRIPTOR: usize = 16;

/// Which way a ring's buffers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The guest has written them: its frames on their way out.
    FromGuest,
    /// They are empty: for frames to the guest.
    ToGuest,
}

impl Direction {
    /// Whether a descriptor with these flags is one of a ring of this direction.
    fn fits(self, flags: u16) -> bool {
        (flags & WRITE != 0) == (self == Direction::ToGuest)
    }

    /// What a descriptor that is a whole chain of it, and no table, has of the flags [`SHAPE`].
    #[inline(always)]
    const fn whole(self) -> u16 {
        match self {
            Direction::FromGuest => 0,
            Direction::ToGuest => WRITE,
        }
    }
}

/// What a front end says of a ring. Addresses are its own (`VHOST_USER_SET_VRING_ADDR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of entries, from 1 to [`MOST_ENTRIES`]; for the split format a power of 2.
    pub entries: u16,
    /// Address of the descriptors.
    pub descriptors: u64,
    /// What the driver writes: the available ring, or the driver's event suppression.
    pub driver: u64,
    /// What the device writes: the used ring, or the device's event suppression.
    pub device: u64,
    /// Whether both sides say exactly when they want to be woken (`VIRTIO_F_EVENT_IDX`).
    pub event_index: bool,
}

impl Layout {
    /// Where its parts are, and how many bytes each has: descriptors, the driver's, the device's. Both of the latter have an
    /// index of an event behind their entries (2.7.6, 2.7.8), or are nothing but events (2.8.14).
    pub fn parts(&self, packed: bool) -> [(u64, usize); 3] {
        let entries = usize::from(self.entries);
        let (driver, device) = if packed { (4, 4) } else { (6 + 2 * entries, 6 + 8 * entries) };
        [(self.descriptors, DESCRIPTOR * entries), (self.driver, driver), (self.device, device)]
    }

    /// Has the translations of all its parts asked for, where there are such.
    pub fn look_up(&self, memory: &Memory, packed: bool) {
        if memory.is_translated() {
            for (at, len) in self.parts(packed) {
                let _ = memory.ring(at, len, 1);
            }
        }
    }
}

/// Why a ring could not be set up, or cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RingError {
    /// The number of entries is none that a ring can have.
    #[error("a ring of {0} entries cannot be")]
    Entries(u16),
    /// A part of it is not in the guest's memory as one piece, or not aligned.
    #[error("the {part} at {at:#x} are not whole and aligned in the guest's memory")]
    Outside {
        /// What the part is called, in the plural.
        part: &'static str,
        /// Where they should be.
        at: u64,
    },
    /// The driver has made more available than there are entries.
    #[error("the driver went from entry {from} to {to} of a ring of {entries}")]
    Jump {
        /// The next entry to be taken.
        from: u16,
        /// The driver's index.
        to: u16,
        /// Number of entries of the ring.
        entries: u16,
    },
    /// Memory of the guest's was taken away.
    #[error("the guest's memory was taken away: its file was made shorter, or there was no huge page for it")]
    Lost,
}

/// A ring of either format.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a box would be one more cache line to wait for")]
pub enum Ring {
    /// With a descriptor table and two rings of indices.
    Split(Split),
    /// With one ring of descriptors.
    Packed(Packed),
}

/// Does the same for either format.
macro_rules! either {
    ($ring:expr, $name:ident => $what:expr) => {
        match $ring {
            Ring::Split($name) => $what,
            Ring::Packed($name) => $what,
        }
    };
}

impl Ring {
    /// Takes up to `most` chains of what the driver has made available; says how many.
    ///
    /// # Errors
    /// [`RingError::Jump`]; chains that were taken before are in the batch.
    #[inline]
    pub fn take(&mut self, direction: Direction, most: usize, batch: &mut Batch) -> Result<usize, RingError> {
        either!(self, ring => ring.take(direction, most, batch))
    }

    /// Gives back `chain` and all that were taken after it, as if they had not been taken.
    #[inline]
    pub fn put_back(&mut self, chain: &Chain) {
        either!(self, ring => ring.put_back(chain))
    }

    /// Completes a chain into which `written` bytes were written. Chains are completed in the order in which they were taken. Not for
    /// a ring of which the last alone is told: see [`Ring::complete_all`].
    #[inline]
    pub fn complete(&mut self, chain: &Chain, written: u32) {
        either!(self, ring => ring.complete(chain, written))
    }

    /// Completes chains of which all is read.
    #[inline]
    pub fn complete_all(&mut self, chains: &[Chain]) {
        either!(self, ring => ring.complete_all(chains));
    }

    /// Shows the driver what was completed; says whether it wants to be woken for it.
    #[inline]
    pub fn publish(&mut self) -> bool {
        either!(self, ring => ring.publish())
    }

    /// Tells the driver of the last of each batch alone from now on, which stands for those before it. For a ring of the
    /// guest's frames whose driver has taken `VIRTIO_F_IN_ORDER` (2.7.10, 2.8.9); of empty buffers it must know how much was
    /// written into each.
    pub fn tell_last_only(&mut self) {
        either!(self, ring => ring.tell_last_only());
    }

    /// Asks the driver to say when it makes something available, or not to. With `true` it must be looked at once more before
    /// anybody sleeps: says whether something has become available meanwhile.
    pub fn ask_for_kicks(&mut self, on: bool) -> bool {
        // What waits for a translation is there, but the answer wakes whoever sleeps.
        either!(self, ring => ring.ask_for_kicks(on) && !ring.ring_memory().waits)
    }

    /// Goes on where a note says that it stood, if it says so, and keeps the note.
    ///
    /// # Errors
    /// [`RingError::Jump`] when what it says cannot be.
    pub fn keep(&mut self, note: Note) -> Result<(), RingError> {
        if note.holds() {
            match self {
                Ring::Split(ring) => ring.resume(&note),
                Ring::Packed(ring) => ring.resume(&note)?,
            }
        }
        match self {
            Ring::Split(_) => note.begin(),
            Ring::Packed(ring) => ring.keep(note),
        }
        Ok(())
    }

    /// Whether memory of its guest's was taken away.
    pub fn is_lost(&self) -> bool {
        let ring_memory = self.ring_memory();
        let marks = ring_memory.marks.as_ref().is_some_and(|marks| marks.is_lost());
        let note = matches!(self, Ring::Packed(ring) if ring.lost_note());
        ring_memory.memory.is_lost() || marks || note
    }

    /// What it stands on.
    #[inline]
    fn ring_memory(&self) -> &RingMemory {
        either!(self, ring => ring.ring_memory())
    }

    fn ring_memory_mut(&mut self) -> &mut RingMemory {
        either!(self, ring => ring.ring_memory_mut())
    }

    /// The marks that it makes of what it writes.
    pub fn marks(&self) -> &Marking {
        &self.ring_memory().marks
    }

    /// Replaces them. What was published before was marked before.
    pub fn set_marks(&mut self, marks: Marking) {
        self.ring_memory_mut().marks = marks;
    }

    /// Whether its guest's addresses are translated.
    #[inline]
    pub fn is_translated(&self) -> bool {
        self.ring_memory().memory.is_translated()
    }

    /// Replaces the translations. No span that was handed out may be used any more.
    pub fn set_table(&mut self, table: &Arc<Table>) {
        self.ring_memory_mut().set_table(table);
    }

    /// Whether the driver has made something available, as far as one look tells.
    #[inline]
    pub fn has_news(&self) -> bool {
        either!(self, ring => ring.has_news())
    }

    /// Where it stands, as the vhost-user protocol has it (`VHOST_USER_GET_VRING_BASE`).
    pub fn base(&self) -> u32 {
        either!(self, ring => ring.base())
    }
}

/// Whether `event` lies among what was done from `old` to `new` (2.7.7.1, `vring_need_event` in
/// `include/uapi/linux/virtio_ring.h`).
fn passes(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

fn part(
    memory: &Memory,
    what: &'static str,
    at: u64,
    len: usize,
    alignment: usize,
) -> Result<NonNull<u8>, RingError> {
    memory.ring(at, len, alignment).ok_or(RingError::Outside { part: what, at })
}

#[cfg(test)]
mod orders;
#[cfg(test)]
mod tests;
