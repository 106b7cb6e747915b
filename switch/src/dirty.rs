//! What is written to a guest's memory while its front end takes that elsewhere: to another machine, or into a file. The front end
//! has a bit for each page, and copies again what is marked.
//!
//! A page is marked after it was written to, so that whoever takes the mark away and then copies the page copies what was
//! written. Before a ring is given back everything is marked. While nobody wants to know, a ring has no marks to make, and asks
//! itself that once a frame.
//!
//! vhost-user protocol, "Migration". Two things it leaves open, and are done as QEMU and Linux have them: behind an IOMMU the address of a
//! used ring is translated as all others are, and with packed rings it is that of the device's events (the descriptors, which are
//! written too, are marked where they are in the memory table).

use std::{
    fs::File,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use crate::memory::{Description, Limit, Memory, MemoryError, Places, Span};

/// Bytes that a bit stands for (`VHOST_LOG_PAGE`).
pub const PAGE: u64 = 4096;
/// Bytes that a header may be written beyond the frame's end: room for a tag that it has not.
const BEYOND: u32 = 4;

/// The front end's bits. A copy is the same.
#[derive(Clone, Debug)]
pub struct Log {
    /// Keeps them mapped.
    places: Places,
    start: NonNull<u8>,
    /// Size of the bits in bytes; a byte has the bits of eight pages.
    size: u64,
}

// SAFETY: the pointer is into `places`, which others write to in any case.
unsafe impl Send for Log {}
// SAFETY: as above; it is written to by atomic operations alone.
unsafe impl Sync for Log {}

impl Log {
    /// Maps `size` bytes of bits from `offset` on.
    ///
    /// # Errors
    /// When the file is not as long as that, or that is more than the limit.
    pub fn map(file: File, offset: u64, size: u64, limit: Limit) -> Result<Log, MemoryError> {
        let description = Description { guest: 0, user: 0, size, offset };
        let memory = Memory::map(&[(description, file)], limit)?;
        let nothing = MemoryError::Wraps { guest: 0, size, offset };
        let start = memory.guest(0, 1).ok_or(nothing)?.start;
        Ok(Log { places: memory.places(), start, size })
    }

    /// Bytes that are mapped for it.
    pub fn mapped(&self) -> u64 {
        self.places.mapped()
    }

    /// Whether there is a bit for every page of `memory`.
    pub fn covers(&self, memory: &Memory) -> bool {
        memory.last().is_none_or(|last| last / PAGE / 8 < self.size)
    }

    /// Marks the pages in which these bytes are; those that have no bit are passed over.
    fn mark(&self, at: u64, len: u64) {
        let Some(last) = len.checked_sub(1).and_then(|more| at.checked_add(more)) else { return };
        for page in at / PAGE..=last / PAGE {
            if page / 8 >= self.size {
                return;
            }
            // SAFETY: `size` bytes are mapped from `start` on.
            let bits = unsafe { AtomicU8::from_ptr(self.start.as_ptr().add((page / 8) as usize)) };
            // Whoever takes the mark sees what was written before. It is set anew even where it is: it may be gone in between.
            bits.fetch_or(1 << (page % 8), Ordering::AcqRel);
        }
    }
}

/// Where the front end wants what is written to a ring's used entries, or to its device's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// As if it began at this address (`log_guest_addr`).
    At(u64),
    /// Where it is in the memory table.
    Found,
}

/// What marks one ring makes.
#[derive(Clone, Debug)]
pub struct Marks {
    /// The front end's bits, in which written pages are marked.
    pub log: Log,
    /// The guest's memory as the memory table has it.
    pub memory: Places,
    /// Whether buffers are marked (`VHOST_F_LOG_ALL`).
    pub buffers: bool,
    /// Whether the ring's own parts are (`VHOST_VRING_F_LOG`), and where.
    pub ring: Option<Device>,
}

/// What a ring has of it: nothing, most of the time.
pub type Marking = Option<Arc<Marks>>;

impl Marks {
    /// `written` bytes were written from the beginning of these spans on.
    #[cold]
    pub fn buffers(&self, spans: &[Span], written: u32) {
        if !self.buffers {
            return;
        }
        let mut left = written.saturating_add(BEYOND);
        for span in spans {
            let here = left.min(span.len);
            self.found(span.start, here as usize);
            left -= here;
        }
    }

    /// `len` bytes of a ring's descriptors were written.
    pub fn descriptors(&self, start: NonNull<u8>, len: usize) {
        if self.ring.is_some() {
            self.found(start, len);
        }
    }

    /// `len` bytes were written, `from` the start of a ring's used entries, or of its device's events, which are at `start`.
    pub fn device(&self, start: NonNull<u8>, from: usize, len: usize) {
        match self.ring {
            None => {}
            Some(Device::At(at)) => self.log.mark(at.saturating_add(from as u64), len as u64),
            // SAFETY: the caller has written there.
            Some(Device::Found) => self.found(unsafe { start.add(from) }, len),
        }
    }

    /// Marks bytes where the memory table has them; they may lie in regions that are neighbours here.
    fn found(&self, mut start: NonNull<u8>, mut len: usize) {
        while len > 0 {
            let Some((at, left)) = self.memory.physical(start) else { return };
            let here = len.min(left);
            self.log.mark(at, here as u64);
            // SAFETY: at most one behind what the caller has written to.
            start = unsafe { start.add(here) };
            len -= here;
        }
    }

    /// Whether the bits were taken away.
    pub fn is_lost(&self) -> bool {
        self.log.places.is_lost()
    }
}

#[cfg(test)]
mod tests;
