//! The split format (2.7): a table of descriptors, a ring of what is available, and a ring of what was used.

use std::{ptr::NonNull, sync::atomic::Ordering};

use super::{
    Batch, Chain, DESCRIPTOR, Direction, Fault, INDIRECT, Layout, MOST_ENTRIES, NEXT, RingError, SHAPE,
    atomics::{Word, fence},
    batch::Builder,
    part, passes,
    ring_memory::RingMemory,
};
use crate::{copy::prefetch_at, inflight::Note, memory::Memory};

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` (2.7.6): the driver need not be woken when buffers were used.
const NO_INTERRUPT: u16 = 1;
/// `VIRTQ_USED_F_NO_NOTIFY` (2.7.8): the device need not be woken when buffers become available.
const NO_NOTIFY: u16 = 1;
/// Bytes before the entries of either ring: its flags and its index.
const HEAD: usize = 4;
/// Bytes of an entry of the used ring: the chain's id, and how many bytes were written.
const USED: usize = 8;

/// A descriptor (2.7.5).
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// A ring in the split format.
#[derive(Debug)]
pub struct Split {
    /// What the pointers below point into.
    ring_memory: RingMemory,
    entries: u16,
    event_index: bool,
    descriptors: NonNull<Descriptor>,
    available: NonNull<u8>,
    used: NonNull<u8>,
    /// The next entry of the available ring to be taken; it counts on beyond the ring's end.
    next: u16,
    /// The next entry of the used ring to be written.
    done: u16,
    /// `done` as the driver knows it.
    published: u16,
    /// The driver's index as it was last seen.
    seen: u16,
    /// Whether the last of a batch stands for all of it, and which one was completed last.
    last_only: bool,
    last: u16,
}

// SAFETY: the pointers are into `ring_memory`, which others write to in any case.
unsafe impl Send for Split {}

impl Split {
    /// The ring at `layout`, which stands at `base`.
    ///
    /// # Errors
    ///
    /// [`RingError::Entries`] for a number of entries that is no power of 2 or too large, [`RingError::Outside`] when a part of
    /// the ring is not in `memory`.
    pub fn new(memory: &Memory, layout: &Layout, base: u32) -> Result<Split, RingError> {
        let entries = layout.entries;
        if !entries.is_power_of_two() || entries > MOST_ENTRIES {
            return Err(RingError::Entries(entries));
        }
        let size = usize::from(entries);
        // Each ring has an index of an event behind its entries.
        let descriptors = part(memory, "descriptors", layout.descriptors, size * DESCRIPTOR, DESCRIPTOR)?;
        let available = part(memory, "available entries", layout.driver, HEAD + size * 2 + 2, 2)?;
        let used = part(memory, "used entries", layout.device, HEAD + size * USED + 2, 4)?;
        // All that was taken before was completed before.
        let next = base as u16;
        let ring = Split {
            ring_memory: RingMemory::new(memory),
            entries,
            event_index: layout.event_index,
            descriptors: descriptors.cast(),
            available,
            used,
            next,
            done: next,
            published: next,
            seen: next,
            last_only: false,
            last: 0,
        };
        Ok(ring)
    }

    /// A number of 16 bits in one of the rings.
    ///
    /// # Safety
    /// `at` must be inside it, and a multiple of 2.
    #[inline]
    unsafe fn word(&self, ring: NonNull<u8>, at: usize) -> &Word {
        // SAFETY: the caller says that it is inside; both rings are aligned to 2.
        unsafe { Word::from_ptr(ring.as_ptr().add(at).cast()) }
    }

    #[inline]
    fn driver_flags(&self) -> &Word {
        // SAFETY: the flags come first.
        unsafe { self.word(self.available, 0) }
    }

    #[inline]
    fn driver_index(&self) -> &Word {
        // SAFETY: the index comes second.
        unsafe { self.word(self.available, 2) }
    }

    /// Up to where the driver wants not to be woken (`used_event`).
    #[inline]
    fn driver_event(&self) -> &Word {
        // SAFETY: it comes behind the last entry.
        unsafe { self.word(self.available, HEAD + usize::from(self.entries) * 2) }
    }

    #[inline]
    fn device_flags(&self) -> &Word {
        // SAFETY: the flags come first.
        unsafe { self.word(self.used, 0) }
    }

    #[inline]
    fn device_index(&self) -> &Word {
        // SAFETY: the index comes second.
        unsafe { self.word(self.used, 2) }
    }

    /// Up to where the device wants not to be woken (`avail_event`).
    #[inline]
    fn device_event(&self) -> &Word {
        // SAFETY: it comes behind the last entry.
        unsafe { self.word(self.used, HEAD + usize::from(self.entries) * USED) }
    }

    /// The entry of the available ring that stands at `index`.
    #[inline]
    fn head(&self, index: u16) -> u16 {
        let at = usize::from(index & (self.entries - 1));
        // SAFETY: `at` is below the number of entries, a power of two.
        unsafe { self.word(self.available, HEAD + at * 2) }.load(Ordering::Relaxed)
    }

    /// The descriptor of this number, read once.
    #[inline]
    fn descriptor(&self, index: u16) -> Option<Descriptor> {
        // SAFETY: it is checked to be in the table, which is aligned for it.
        (index < self.entries).then(|| unsafe { self.descriptors.add(usize::from(index)).read_volatile() })
    }

    // Twice in the program, once for each direction.
    #[inline]
    pub(super) fn take(
        &mut self,
        direction: Direction,
        most: usize,
        batch: &mut Batch,
    ) -> Result<usize, RingError> {
        self.ring_memory.waits = false;
        let mut waiting = self.seen.wrapping_sub(self.next);
        if usize::from(waiting) < most {
            // Pairs with the driver's release of its index: entries and descriptors before it are there.
            self.seen = self.driver_index().load(Ordering::Acquire);
            waiting = self.seen.wrapping_sub(self.next);
            if waiting > self.entries {
                let (from, to) = (self.next, self.seen);
                self.seen = self.next;
                return Err(RingError::Jump { from, to, entries: self.entries });
            }
        }
        let count = usize::from(waiting).min(most).min(batch.room());
        let mut heads = [0_u16; super::batch::MOST_CHAINS];
        let heads = heads.get_mut(..count).unwrap_or_default();
        for (ahead, head) in (0..).zip(heads.iter_mut()) {
            *head = self.head(self.next.wrapping_add(ahead));
            prefetch_at(self.descriptors.as_ptr().wrapping_add(usize::from(*head)));
        }
        let mut heads = &*heads;
        let mut taken = 0;
        while batch.room() > 0 {
            if !self.ring_memory.waits {
                let run = self.take_whole(heads, direction, batch);
                self.next = self.next.wrapping_add(run as u16);
                taken += run;
                heads = heads.get(run..).unwrap_or_default();
            }
            let Some((head, behind)) = heads.split_first() else { break };
            if batch.room() == 0 {
                break;
            }
            heads = behind;
            let mut chain = batch.begin(&self.ring_memory.memory, direction);
            let outcome = self.walk(*head, direction, &mut chain);
            if self.ring_memory.waits || outcome.is_err() && self.ring_memory.memory.take_missed() {
                // It and those behind it wait, but what they miss is asked for now.
                self.ring_memory.waits = true;
                chain.forget();
                continue;
            }
            chain.end(*head, 1, self.next, outcome);
            self.next = self.next.wrapping_add(1);
            taken += 1;
        }
        Ok(taken)
    }

    /// Takes chains that are one buffer each, the usual case, from the first of `heads` on; says how many.
    #[inline]
    fn take_whole(&self, heads: &[u16], direction: Direction, batch: &mut Batch) -> usize {
        // Copies stay in registers, whatever is written meanwhile.
        let (descriptors, entries, main) = (self.descriptors, self.entries, self.ring_memory.memory.main());
        let (next, flags) = (self.next, direction.whole());
        let found = (0_u16..).zip(heads).map_while(|(ahead, head)| {
            // SAFETY: it is checked to be in the table, which is aligned for it.
            let only = (*head < entries)
                .then(|| unsafe { descriptors.add(usize::from(*head)).read_volatile() })
                .filter(|only| only.flags & SHAPE == flags)?;
            Some((*head, next.wrapping_add(ahead), main.whole(only.address, only.len)?))
        });
        batch.extend(direction, found)
    }

    /// Goes on where the used ring says that it stood; see [`crate::inflight`].
    pub(super) fn resume(&mut self, note: &Note) {
        let used = self.device_index().load(Ordering::Acquire);
        (self.next, self.done, self.published, self.seen) = (used, used, used, used);
        for (id, _) in note.take_marked(used) {
            self.write_used(id, 0);
        }
        self.device_index().store(self.done, Ordering::Release);
        self.mark_shown(used, self.done);
        (self.next, self.published, self.seen) = (self.done, self.done, self.done);
    }

    pub(super) const fn ring_memory(&self) -> &RingMemory {
        &self.ring_memory
    }

    pub(super) const fn ring_memory_mut(&mut self) -> &mut RingMemory {
        &mut self.ring_memory
    }

    /// Marks the used entries from `old` to `new`, and the index.
    #[cold]
    fn mark_shown(&self, old: u16, new: u16) {
        let Some(marks) = &self.ring_memory.marks else { return };
        let count = if self.last_only { 1 } else { new.wrapping_sub(old).min(self.entries) };
        let first = old & (self.entries - 1);
        let before_end = count.min(self.entries - first);
        let entries = |first: u16, count: u16| {
            marks.device(self.used, HEAD + usize::from(first) * USED, usize::from(count) * USED);
        };
        entries(first, before_end);
        entries(0, count - before_end);
        marks.device(self.used, 2, 2);
    }

    /// Adds what the chain from `head` on is made of.
    #[inline]
    fn walk(&self, head: u16, direction: Direction, chain: &mut Builder<'_>) -> Result<(), Fault> {
        let mut index = head;
        // As many steps as there are descriptors; with one more it is a loop.
        for _ in 0..self.entries {
            let found = self.descriptor(index).ok_or(Fault::Index)?;
            if found.flags & INDIRECT != 0 {
                if found.flags & NEXT != 0 {
                    return Err(Fault::Indirect);
                }
                return self.walk_table(&found, direction, chain);
            }
            if !direction.fits(found.flags) {
                return Err(Fault::Direction);
            }
            chain.add(found.address, found.len)?;
            if found.flags & NEXT == 0 {
                return Ok(());
            }
            index = found.next;
        }
        Err(Fault::Loop)
    }

    /// Adds what a table of descriptors in the guest's memory says.
    #[inline(never)]
    fn walk_table(
        &self,
        found: &Descriptor,
        direction: Direction,
        chain: &mut Builder<'_>,
    ) -> Result<(), Fault> {
        let count = found.len / DESCRIPTOR as u32;
        if count == 0 || !found.len.is_multiple_of(DESCRIPTOR as u32) || count > u32::from(MOST_ENTRIES) {
            return Err(Fault::Indirect);
        }
        let mut index = 0;
        for _ in 0..count {
            let at = found.address.checked_add(u64::from(index) * DESCRIPTOR as u64);
            let inner =
                at.and_then(|at| descriptor_at(&self.ring_memory.memory, at)).ok_or(Fault::Outside)?;
            if inner.flags & INDIRECT != 0 {
                return Err(Fault::Indirect);
            }
            if !direction.fits(inner.flags) {
                return Err(Fault::Direction);
            }
            chain.add(inner.address, inner.len)?;
            if inner.flags & NEXT == 0 {
                return Ok(());
            }
            index = u32::from(inner.next);
            if index >= count {
                return Err(Fault::Index);
            }
        }
        Err(Fault::Loop)
    }

    #[inline]
    pub(super) fn put_back(&mut self, chain: &Chain) {
        self.next = chain.before;
    }

    #[inline]
    pub(super) fn complete(&mut self, chain: &Chain, written: u32) {
        debug_assert!(!self.last_only, "the last alone is told");
        self.write_used(chain.id, written);
    }

    #[inline]
    pub(super) fn complete_all(&mut self, chains: &[Chain]) {
        if !self.last_only {
            chains.iter().for_each(|chain| self.complete(chain, 0));
        } else if let Some(last) = chains.last() {
            self.last = last.id;
            self.done = self.done.wrapping_add(chains.len() as u16);
        }
    }

    #[inline]
    fn write_used(&mut self, id: u16, written: u32) {
        self.write_entry(self.done, id, written);
        self.done = self.done.wrapping_add(1);
    }

    #[inline]
    fn write_entry(&self, index: u16, id: u16, written: u32) {
        let at = usize::from(index & (self.entries - 1));
        // SAFETY: `at` is below the number of entries, and the ring is aligned to 4.
        unsafe {
            let entry = self.used.add(HEAD + at * USED).cast::<u32>();
            entry.write_volatile(u32::from(id));
            entry.add(1).write_volatile(written);
        }
    }

    pub(super) fn tell_last_only(&mut self) {
        self.last_only = true;
    }

    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let (new, old) = (self.done, self.published);
        if new == old {
            return false;
        }
        if self.last_only {
            // In the place of the first.
            self.write_entry(old, self.last, 0);
        }
        // Pairs with the driver's acquire of this index: entries and buffers before it are written.
        self.device_index().store(new, Ordering::Release);
        self.published = new;
        if self.ring_memory.marks.is_some() {
            self.mark_shown(old, new);
        }
        // The driver says that it wants to be woken, then looks at the index again; here it is the other way round.
        fence(Ordering::SeqCst);
        match self.event_index {
            true => passes(self.driver_event().load(Ordering::Relaxed), new, old),
            false => self.driver_flags().load(Ordering::Relaxed) & NO_INTERRUPT == 0,
        }
    }

    pub(super) fn ask_for_kicks(&mut self, on: bool) -> bool {
        match (self.event_index, on) {
            (true, true) => self.device_event().store(self.next, Ordering::Relaxed),
            // One behind is as far away as it can be.
            (true, false) => self.device_event().store(self.next.wrapping_sub(1), Ordering::Relaxed),
            (false, _) => {
                self.device_flags().store(if on { 0 } else { NO_NOTIFY }, Ordering::Relaxed);
            }
        }
        if let Some(marks) = &self.ring_memory.marks {
            let at = if self.event_index { HEAD + usize::from(self.entries) * USED } else { 0 };
            marks.device(self.used, at, 2);
        }
        fence(Ordering::SeqCst);
        on && self.driver_index().load(Ordering::Acquire) != self.next
    }

    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.driver_index().load(Ordering::Relaxed) != self.next
    }

    pub(super) fn base(&self) -> u32 {
        u32::from(self.next)
    }
}

/// A descriptor in a table in the guest's memory, which needs no alignment and may go over the border of two regions.
fn descriptor_at(memory: &Memory, at: u64) -> Option<Descriptor> {
    let mut bytes = [0_u8; DESCRIPTOR];
    crate::memory::read(memory, at, &mut bytes)?;
    let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
    Some(Descriptor {
        address: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
        len: u32::from_le_bytes([l0, l1, l2, l3]),
        flags: u16::from_le_bytes([f0, f1]),
        next: u16::from_le_bytes([n0, n1]),
    })
}
