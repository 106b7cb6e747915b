//! The packed format (2.8): one ring of descriptors, which the driver makes available and the device marks as used.

use std::{ptr::NonNull, sync::atomic::Ordering};

use super::{
    Batch, Chain, DESCRIPTOR, Direction, Fault, INDIRECT, Layout, MOST_ENTRIES, NEXT, RingError, SHAPE,
    WRITE,
    atomics::{Word, fence},
    batch::{Builder, MOST_CHAINS, MOST_SPANS},
    part,
    ring_memory::RingMemory,
};
use crate::{
    copy::prefetch_at,
    inflight::Note,
    memory::{self, Memory},
};

/// Descriptor flag: the driver's wrap counter when it made it available.
const AVAILABLE: u16 = 1 << 7;
/// Descriptor flag: the device's wrap counter when it used it.
const USED: u16 = 1 << 15;
/// Event suppression: notify always (`RING_EVENT_FLAGS_ENABLE`).
const ENABLE: u16 = 0;
/// Event suppression: never (`RING_EVENT_FLAGS_DISABLE`).
const DISABLE: u16 = 1;
/// Event suppression: at one descriptor (`RING_EVENT_FLAGS_DESC`).
const AT_DESCRIPTOR: u16 = 2;
/// The bit of a position that holds the wrap counter.
const WRAP: u16 = 1 << 15;

/// A descriptor's address, length and id; its flags are read by themselves.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    len: u32,
    id: u16,
    flags: u16,
}

/// An entry of the ring: 16 bytes of it, aligned to 16.
#[derive(Clone, Copy, Debug)]
struct Slot(NonNull<u8>);

impl Slot {
    #[inline(always)]
    fn flags(&self) -> &Word {
        // SAFETY: the flags are its last two bytes.
        unsafe { Word::from_ptr(self.0.as_ptr().add(14).cast()) }
    }

    /// The descriptor's fields but for its flags, read once.
    #[inline(always)]
    fn read(self, flags: u16) -> Descriptor {
        // SAFETY: all are inside, and aligned.
        unsafe {
            Descriptor {
                address: self.0.cast::<u64>().read_volatile(),
                len: self.0.add(8).cast::<u32>().read_volatile(),
                id: self.0.add(12).cast::<u16>().read_volatile(),
                flags,
            }
        }
    }

    /// Writes the length and the id of a used descriptor.
    #[inline(always)]
    fn write(self, len: u32, id: u16) {
        // SAFETY: both are inside, and aligned.
        unsafe {
            self.0.add(8).cast::<u32>().write_volatile(len);
            self.0.add(12).cast::<u16>().write_volatile(id);
        }
    }
}

/// An entry of the ring and the wrap counter there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    at: u16,
    wrap: bool,
}

impl Position {
    /// The entry that is `by` further on; `by` is at most `entries`.
    #[inline]
    fn on(self, by: u16, entries: u16) -> Position {
        // Neither is beyond 32,768.
        let at = u32::from(self.at) + u32::from(by);
        match at.checked_sub(u32::from(entries)) {
            None => Position { at: at as u16, wrap: self.wrap },
            Some(at) => Position { at: at as u16, wrap: !self.wrap },
        }
    }

    /// What an available descriptor there has of the flags [`AVAILABLE`] and [`USED`].
    #[inline(always)]
    const fn available(self) -> u16 {
        if self.wrap { AVAILABLE } else { USED }
    }

    fn bits(self) -> u16 {
        self.at | if self.wrap { WRAP } else { 0 }
    }

    fn of(bits: u16) -> Position {
        Position { at: bits & !WRAP, wrap: bits & WRAP != 0 }
    }
}

/// A chain that was completed and does not show yet.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    id: u16,
    entries: u16,
    written: u32,
}

/// A ring in the packed format.
#[derive(Debug)]
pub struct Packed {
    /// What the pointers below point into.
    ring_memory: RingMemory,
    entries: u16,
    event_index: bool,
    descriptors: NonNull<u8>,
    driver: NonNull<u8>,
    device: NonNull<u8>,
    /// The next descriptor to be taken.
    next: Position,
    /// The next descriptor to be marked as used.
    used: Position,
    /// Completed and not published, in their order.
    done: Box<[Done; MOST_CHAINS]>,
    dones: usize,
    /// Whether the driver wants to be woken for what was shown before the batch's end.
    owed: bool,
    /// Whether the last of a batch stands for all of it, in the first one's place.
    last_only: bool,
    /// Where it is noted how far the driver was shown.
    note: Option<Note>,
}

// SAFETY: the pointers are into `ring_memory`, which others write to in any case.
unsafe impl Send for Packed {}

impl Packed {
    /// The ring at `layout`, which stands at `base`: the position of what is taken next. What is used next is the same (some
    /// front ends say so in the upper half, others leave it 0): everything that was taken was completed.
    ///
    /// # Errors
    ///
    /// [`RingError::Entries`] for a number of entries that no ring has, [`RingError::Jump`] when `base` is beyond them,
    /// [`RingError::Outside`] when a part of the ring is not in `memory`.
    pub fn new(memory: &Memory, layout: &Layout, base: u32) -> Result<Packed, RingError> {
        let entries = layout.entries;
        if entries == 0 || entries > MOST_ENTRIES {
            return Err(RingError::Entries(entries));
        }
        let next = Position::of(base as u16);
        if next.at >= entries {
            return Err(RingError::Jump { from: 0, to: next.at, entries });
        }
        let size = usize::from(entries);
        Ok(Packed {
            entries,
            event_index: layout.event_index,
            descriptors: part(memory, "descriptors", layout.descriptors, size * DESCRIPTOR, DESCRIPTOR)?,
            driver: part(memory, "driver's events", layout.driver, 4, 4)?,
            device: part(memory, "device's events", layout.device, 4, 4)?,
            next,
            used: next,
            done: Box::new([Done::default(); MOST_CHAINS]),
            dones: 0,
            owed: false,
            last_only: false,
            note: None,
            ring_memory: RingMemory::new(memory),
        })
    }

    #[inline(always)]
    fn slot(&self, at: u16) -> Slot {
        // SAFETY: every position is below `entries`.
        Slot(unsafe { self.descriptors.add(usize::from(at) * DESCRIPTOR) })
    }

    /// The two halves of an event suppression structure: position, flags.
    #[inline]
    fn event(side: &NonNull<u8>) -> (&Word, &Word) {
        // SAFETY: either structure has four bytes, aligned to 4.
        unsafe { (Word::from_ptr(side.as_ptr().cast()), Word::from_ptr(side.as_ptr().add(2).cast())) }
    }

    /// The flags of the descriptor there, when the driver has made it available.
    #[inline]
    fn available(&self, position: Position, order: Ordering) -> Option<u16> {
        let flags = self.slot(position.at).flags().load(order);
        (flags & (AVAILABLE | USED) == position.available()).then_some(flags)
    }

    // Twice in the program, once for each direction.
    #[inline]
    pub(super) fn take(
        &mut self,
        direction: Direction,
        most: usize,
        batch: &mut Batch,
    ) -> Result<usize, RingError> {
        let (mut taken, mut ahead) = (0, 0);
        let mut resume = None;
        // Entries of chains that were walked. No more can be available at once than there are: whoever has the same ones walked again
        // and again gets no further in one call.
        let mut walked = 0;
        self.ring_memory.waits = false;
        while taken + ahead < most && batch.room() > 0 && walked < u32::from(self.entries) {
            if !self.ring_memory.waits {
                taken += self.take_whole(most - taken - ahead, direction, batch);
                if taken + ahead == most || batch.room() == 0 {
                    break;
                }
            }
            // Pairs with the driver's release of the first descriptor's flags: the rest of the chain is there.
            let Some(flags) = self.available(self.next, Ordering::Acquire) else { break };
            let mut chain = batch.begin(&self.ring_memory.memory, direction);
            let (id, entries, outcome) = self.walk(flags, direction, &mut chain);
            walked += u32::from(entries);
            if self.ring_memory.waits || outcome.is_err() && self.ring_memory.memory.take_missed() {
                // It and those behind it wait, but what they miss is asked for now.
                self.ring_memory.waits = true;
                chain.forget();
                resume = resume.or(Some(self.next));
                self.next = self.next.on(entries, self.entries);
                ahead += 1;
                continue;
            }
            chain.end(id, entries, self.next.bits(), outcome);
            self.next = self.next.on(entries, self.entries);
            taken += 1;
        }
        self.next = resume.unwrap_or(self.next);
        Ok(taken)
    }

    /// Takes chains that are one buffer each, the usual case; says how many.
    #[inline]
    fn take_whole(&mut self, most: usize, direction: Direction, batch: &mut Batch) -> usize {
        // Copies stay in registers, whatever is written meanwhile.
        let (ring, entries, main) = (self.descriptors, self.entries, self.ring_memory.memory.main());
        let mut next = self.next;
        let found = std::iter::from_fn(|| {
            let here = next;
            // Four descriptors lie in a cache line; the next but one will be wanted soon.
            if here.at & 3 == 0 {
                prefetch_at(ring.as_ptr().wrapping_add((usize::from(here.at) + 8) * DESCRIPTOR));
            }
            // SAFETY: every position is below `entries`.
            let slot = Slot(unsafe { ring.add(usize::from(here.at) * DESCRIPTOR) });
            // Pairs with the driver's release of the flags: the rest is there.
            let flags = slot.flags().load(Ordering::Acquire);
            if flags & (AVAILABLE | USED | SHAPE) != here.available() | direction.whole() {
                return None;
            }
            let only = slot.read(flags);
            let span = main.whole(only.address, only.len)?;
            next = here.on(1, entries);
            Some((only.id, here.bits(), span))
        });
        let taken = batch.extend(direction, found.take(most));
        self.next = next;
        taken
    }

    /// Goes on where the note says that it stood; see [`crate::inflight`].
    pub(super) fn resume(&mut self, note: &Note) -> Result<(), RingError> {
        let ((new, wrap), (old, old_wrap)) = note.stood();
        let (new, old) = (Position { at: new, wrap }, Position { at: old, wrap: old_wrap });
        for place in [new, old] {
            if place.at >= self.entries {
                return Err(RingError::Jump { from: 0, to: place.at, entries: self.entries });
            }
        }
        // What is still available there, in the same round of the ring, did not show.
        let shown = new != old && self.available(old, Ordering::Acquire).is_none();
        self.next = if shown { new } else { old };
        self.used = self.next;
        for (id, entries) in note.take_marked(0) {
            self.mark(self.used, &Done { id, entries, written: 0 }, Ordering::Release);
            self.mark_dirty(self.used);
            self.used = self.used.on(entries, self.entries);
        }
        self.next = self.used;
        Ok(())
    }

    pub(super) fn tell_last_only(&mut self) {
        self.last_only = true;
    }

    /// Whether the memory of its note was taken away.
    pub(super) fn lost_note(&self) -> bool {
        self.note.as_ref().is_some_and(Note::is_lost)
    }

    /// Has it noted from now on how far the driver was shown.
    pub(super) fn keep(&mut self, note: Note) {
        let now = (self.used.at, self.used.wrap);
        note.set(now, now);
        note.begin();
        self.note = Some(note);
    }

    pub(super) const fn ring_memory(&self) -> &RingMemory {
        &self.ring_memory
    }

    pub(super) const fn ring_memory_mut(&mut self) -> &mut RingMemory {
        &mut self.ring_memory
    }

    /// Marks the pages of the entries of a batch that shows, which began at `old`.
    #[cold]
    fn mark_shown(&self, old: Position) {
        let mut at = old;
        for done in self.done.get(..self.dones).unwrap_or_default() {
            if at == old || !self.last_only {
                self.mark_dirty(at);
            }
            at = at.on(done.entries, self.entries);
        }
    }

    /// Marks the page of an entry.
    fn mark_dirty(&self, at: Position) {
        if let Some(marks) = &self.ring_memory.marks {
            marks.descriptors(self.slot(at.at).0, DESCRIPTOR);
        }
    }

    /// Adds what the chain at the next position is made of; says its id and how many entries it takes.
    #[inline]
    fn walk(
        &self,
        first: u16,
        direction: Direction,
        chain: &mut Builder<'_>,
    ) -> (u16, u16, Result<(), Fault>) {
        let mut outcome = Ok(());
        let (mut at, mut flags) = (self.next, first);
        for entries in 1..=self.entries {
            let found = self.slot(at.at).read(flags);
            // What comes after a fault is looked at only for where the chain ends.
            if outcome.is_ok() {
                outcome = self.add(&found, direction, chain);
            }
            if flags & NEXT == 0 || flags & INDIRECT != 0 {
                return (found.id, entries, outcome);
            }
            at = at.on(1, self.entries);
            flags = self.slot(at.at).flags().load(Ordering::Relaxed);
        }
        // All of them, without an end. The id that it would have had is that of the last.
        let last = self.next.on(self.entries - 1, self.entries);
        (self.slot(last.at).read(flags).id, self.entries, Err(Fault::Loop))
    }

    #[inline]
    fn add(&self, found: &Descriptor, direction: Direction, chain: &mut Builder<'_>) -> Result<(), Fault> {
        if found.flags & INDIRECT != 0 {
            return match found.flags & NEXT {
                0 => self.add_table(found, direction, chain),
                _ => Err(Fault::Indirect),
            };
        }
        if !direction.fits(found.flags) {
            return Err(Fault::Direction);
        }
        chain.add(found.address, found.len)
    }

    /// Adds what a table in the guest's memory says: all of its descriptors, in their order (2.8.7).
    #[inline(never)]
    fn add_table(
        &self,
        found: &Descriptor,
        direction: Direction,
        chain: &mut Builder<'_>,
    ) -> Result<(), Fault> {
        let count = found.len / DESCRIPTOR as u32;
        if count == 0 || !found.len.is_multiple_of(DESCRIPTOR as u32) || count > u32::from(MOST_ENTRIES) {
            return Err(Fault::Indirect);
        }
        // All of them belong to the chain.
        if count as usize > MOST_SPANS {
            return Err(Fault::TooLong);
        }
        for index in 0..u64::from(count) {
            let at = found.address.checked_add(index * DESCRIPTOR as u64).ok_or(Fault::Outside)?;
            let mut bytes = [0_u8; DESCRIPTOR];
            memory::read(&self.ring_memory.memory, at, &mut bytes).ok_or(Fault::Outside)?;
            let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, _, _, f0, f1] = bytes;
            let flags = u16::from_le_bytes([f0, f1]);
            if flags & INDIRECT != 0 {
                return Err(Fault::Indirect);
            }
            if !direction.fits(flags) {
                return Err(Fault::Direction);
            }
            let address = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
            chain.add(address, u32::from_le_bytes([l0, l1, l2, l3]))?;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn put_back(&mut self, chain: &Chain) {
        self.next = Position::of(chain.before);
    }

    #[inline]
    pub(super) fn complete(&mut self, chain: &Chain, written: u32) {
        self.add_done(Done { id: chain.id, entries: chain.entries, written });
    }

    #[inline]
    pub(super) fn complete_all(&mut self, chains: &[Chain]) {
        // They are told of as one that is as long as all of them. A guest that makes entries available again before they were
        // used can have more taken than there are.
        let all = || chains.iter().map(|chain| u32::from(chain.entries)).sum::<u32>();
        if self.last_only
            && let Some(last) = chains.last()
            && let Some(entries) = u16::try_from(all()).ok().filter(|all| *all <= self.entries)
        {
            self.add_done(Done { id: last.id, entries, written: 0 });
        } else {
            chains.iter().for_each(|chain| self.complete(chain, 0));
        }
    }

    #[inline]
    fn add_done(&mut self, done: Done) {
        if self.dones == self.done.len() {
            self.owed |= self.show();
        }
        if let Some(place) = self.done.get_mut(self.dones) {
            *place = done;
            self.dones += 1;
        }
    }

    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let wakes = self.show();
        std::mem::take(&mut self.owed) || wakes
    }

    fn show(&mut self) -> bool {
        if self.dones == 0 {
            return false;
        }
        let old = self.used;
        self.used = match self.note {
            Some(_) if !self.last_only => self.show_singly(old),
            _ => self.show_together(old),
        };
        if self.ring_memory.marks.is_some() {
            self.mark_shown(old);
        }
        self.dones = 0;
        fence(Ordering::SeqCst);
        self.wakes(old)
    }

    /// Marks what was completed from `old` on, so that it shows at once; says where it ends.
    #[inline]
    fn show_together(&self, old: Position) -> Position {
        let dones = self.done.get(..self.dones).unwrap_or_default();
        let Some((first, rest)) = dones.split_first() else { return old };
        let mut at = old.on(first.entries, self.entries);
        let mut shown = *first;
        for done in rest {
            if self.last_only {
                shown = *done;
            } else {
                self.mark(at, done, Ordering::Relaxed);
            }
            at = at.on(done.entries, self.entries);
        }
        self.keep_note(at, old);
        // The first place shows last, and with it all the others: the driver looks at them in their order.
        self.mark(old, &shown, Ordering::Release);
        self.keep_note(at, at);
        at
    }

    /// The same one by one. Who dies in between must leave nothing marked that does not show: its descriptor would be lost.
    #[inline(never)]
    fn show_singly(&self, mut at: Position) -> Position {
        for done in self.done.get(..self.dones).unwrap_or_default() {
            let next = at.on(done.entries, self.entries);
            self.keep_note(next, at);
            self.mark(at, done, Ordering::Release);
            at = next;
        }
        self.keep_note(at, at);
        at
    }

    /// Notes how far the driver is about to be shown, and how far it was.
    #[inline]
    fn keep_note(&self, new: Position, old: Position) {
        if let Some(note) = &self.note {
            note.set((new.at, new.wrap), (old.at, old.wrap));
        }
    }

    /// Marks the entry as used.
    #[inline]
    fn mark(&self, at: Position, done: &Done, order: Ordering) {
        let slot = self.slot(at.at);
        slot.write(done.written, done.id);
        let wrap = if at.wrap { AVAILABLE | USED } else { 0 };
        let written = if done.written > 0 { WRITE } else { 0 };
        slot.flags().store(wrap | written, order);
    }

    /// Whether the driver wants to be woken for what was used from `old` on.
    #[inline]
    fn wakes(&self, old: Position) -> bool {
        let (position, flags) = Packed::event(&self.driver);
        // Pairs with the driver's release of them: the position that they say to look at is there.
        match flags.load(Ordering::Acquire) & 3 {
            DISABLE => false,
            AT_DESCRIPTOR if self.event_index => {
                let event = Position::of(position.load(Ordering::Relaxed));
                // How far each is from where this batch began, around the ring's end.
                let from_old = |at: Position| {
                    let turn = if at.wrap == old.wrap { 0 } else { i32::from(self.entries) };
                    i32::from(at.at) + turn - i32::from(old.at)
                };
                (0..from_old(self.used)).contains(&from_old(event))
            }
            _ => true,
        }
    }

    pub(super) fn ask_for_kicks(&mut self, on: bool) -> bool {
        let (position, flags) = Packed::event(&self.device);
        if on && self.event_index {
            position.store(self.next.bits(), Ordering::Relaxed);
            // The position shows before the flags that say to look at it.
            flags.store(AT_DESCRIPTOR, Ordering::Release);
        } else {
            flags.store(if on { ENABLE } else { DISABLE }, Ordering::Relaxed);
        }
        if let Some(marks) = &self.ring_memory.marks {
            marks.device(self.device, 0, 4);
        }
        fence(Ordering::SeqCst);
        on && self.available(self.next, Ordering::Acquire).is_some()
    }

    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.available(self.next, Ordering::Relaxed).is_some()
    }

    pub(super) fn base(&self) -> u32 {
        u32::from(self.used.bits()) << 16 | u32::from(self.next.bits())
    }
}
