//! Chains that were taken from a ring, and the spans of memory that they are made of.

use super::Direction;
use crate::{
    copy,
    memory::{Memory, Span},
};

/// Chains of a batch.
pub const MOST_CHAINS: usize = 128;
/// Spans of one chain, and descriptors, also those of empty buffers, which cost as much to look at. Linux sends frames of at most 19
/// (`MAX_SKB_FRAGS` + 2), or 47 where it is built for as many as it can.
pub const MOST_SPANS: usize = 128;
/// Spans of a batch. Chains that do not find room wait for the next.
const ROOM: usize = MOST_CHAINS * 8 + MOST_SPANS;

/// What is wrong with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A buffer, or a table of descriptors, outside the guest's memory.
    Outside,
    /// More descriptors than the ring has, as in a loop.
    Loop,
    /// More than [`MOST_SPANS`] spans or descriptors, or more than 4 GiB.
    TooLong,
    /// A buffer to be read in a ring of buffers to be written, or the other way round.
    Direction,
    /// A table of descriptors in a table, with a successor, or of no whole number of descriptors.
    Indirect,
    /// The number of a descriptor that the ring has not.
    Index,
}

/// The buffers of one frame.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// Its span, if it is one: most are.
    only: Span,
    /// Bytes in all of its spans.
    pub len: u32,
    /// By what the driver knows it again.
    pub(super) id: u16,
    /// Where the ring stood before it was taken: the entry, and in the highest bit the wrap counter.
    pub(super) before: u16,
    /// Entries of the ring that it takes (packed), or 1.
    pub(super) entries: u16,
    /// Its first span in the batch, if they are more.
    first: u16,
    count: u16,
    /// Why it has no spans.
    pub fault: Option<Fault>,
}

impl Chain {
    /// A chain of one buffer: the usual case.
    #[inline(always)]
    const fn of_one(id: u16, before: u16, span: Span) -> Chain {
        Chain { only: span, len: span.len, id, before, entries: 1, first: 0, count: 1, fault: None }
    }

    /// Its span, if it is one.
    #[inline(always)]
    pub fn one(&self) -> Option<Span> {
        (self.count == 1).then_some(self.only)
    }
}

/// Chains that were taken together.
#[derive(Debug)]
pub struct Batch {
    chains: Vec<Chain>,
    spans: Vec<Span>,
}

// SAFETY: spans are addresses of memory that others write to in any case; whose memory it is, the ring keeps.
unsafe impl Send for Batch {}

impl Default for Batch {
    fn default() -> Batch {
        Batch { chains: Vec::with_capacity(MOST_CHAINS), spans: Vec::with_capacity(ROOM) }
    }
}

impl Batch {
    /// One without room, to stand in for another meanwhile.
    pub const fn none() -> Batch {
        Batch { chains: Vec::new(), spans: Vec::new() }
    }

    /// Forgets all chains.
    #[inline]
    pub fn clear(&mut self) {
        self.chains.clear();
        self.spans.clear();
    }

    /// The chains, in the order in which they were taken.
    #[inline]
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// The spans of a chain of this batch, in their order.
    #[inline]
    pub fn spans<'a>(&'a self, chain: &'a Chain) -> &'a [Span] {
        if chain.count == 1 {
            return std::slice::from_ref(&chain.only);
        }
        let first = usize::from(chain.first);
        self.spans.get(first..first + usize::from(chain.count)).unwrap_or_default()
    }

    /// How many chains more are sure to find room.
    #[inline]
    pub fn room(&self) -> usize {
        if self.spans.len() + MOST_SPANS > ROOM { 0 } else { MOST_CHAINS - self.chains.len() }
    }

    /// Puts in chains of one buffer each, as many as are `found` and there is room for; says how many. Each is its id, where the
    /// ring stood before it, and its span.
    #[inline(always)]
    pub(super) fn extend(
        &mut self,
        direction: Direction,
        found: impl Iterator<Item = (u16, u16, Span)>,
    ) -> usize {
        match direction {
            Direction::FromGuest => self.extend_fetched(found, copy::prefetch_to_read),
            Direction::ToGuest => self.extend_fetched(found, copy::prefetch_to_write),
        }
    }

    #[inline(always)]
    fn extend_fetched(
        &mut self,
        found: impl Iterator<Item = (u16, u16, Span)>,
        fetch: impl Fn(Span),
    ) -> usize {
        let old = self.chains.len();
        let mut new = 0;
        // What is found has a place: it is not looked for before there is one.
        for (place, (id, before, span)) in self.chains.spare_capacity_mut().iter_mut().zip(found) {
            fetch(span);
            place.write(Chain::of_one(id, before, span));
            new += 1;
        }
        // SAFETY: as many were written behind those that were there.
        unsafe { self.chains.set_len(old + new) };
        new
    }

    #[cold]
    fn drop_spans(&mut self, from: usize) {
        self.spans.truncate(from);
    }

    /// Begins with a chain, to which [`Builder`] adds what it is made of.
    #[inline]
    pub(super) fn begin<'a>(&'a mut self, memory: &'a Memory, direction: Direction) -> Builder<'a> {
        let first = self.spans.len();
        Builder { batch: self, memory, direction, first, len: 0, descriptors: 0 }
    }
}

/// Has the beginning of a buffer fetched. It will be wanted as soon as the batch is complete; by then it is here.
#[inline]
fn fetch(span: Span, direction: Direction) {
    match direction {
        Direction::FromGuest => copy::prefetch_to_read(span),
        Direction::ToGuest => copy::prefetch_to_write(span),
    }
}

/// A chain in the making.
pub(super) struct Builder<'a> {
    batch: &'a mut Batch,
    memory: &'a Memory,
    direction: Direction,
    first: usize,
    len: u32,
    descriptors: usize,
}

impl Builder<'_> {
    /// Adds a descriptor's buffer, which may go over the border of two regions that are neighbours.
    ///
    /// # Errors
    ///
    /// [`Fault::TooLong`] for more buffers or bytes than a chain may have, [`Fault::Outside`] for what is not the guest's memory.
    #[inline]
    pub fn add(&mut self, mut at: u64, mut len: u32) -> Result<(), Fault> {
        if self.descriptors == MOST_SPANS {
            return Err(Fault::TooLong);
        }
        self.descriptors += 1;
        self.len = self.len.checked_add(len).ok_or(Fault::TooLong)?;
        while len > 0 {
            if self.batch.spans.len() - self.first >= MOST_SPANS {
                return Err(Fault::TooLong);
            }
            let span = self.memory.guest(at, len).ok_or(Fault::Outside)?;
            fetch(span, self.direction);
            self.batch.spans.push(span);
            if span.len == len {
                break;
            }
            len -= span.len;
            at = at.checked_add(u64::from(span.len)).ok_or(Fault::Outside)?;
        }
        Ok(())
    }

    /// Leaves the chain to be taken another time.
    #[cold]
    pub fn forget(self) {
        self.batch.spans.truncate(self.first);
    }

    /// Puts the chain into the batch, with its spans or with what is wrong with it.
    #[inline]
    pub fn end(self, id: u16, entries: u16, before: u16, outcome: Result<(), Fault>) {
        let fault = outcome.err();
        let len = if fault.is_some() { 0 } else { self.len };
        if fault.is_some() {
            self.batch.drop_spans(self.first);
        }
        let count = self.batch.spans.len() - self.first;
        // Both are at most `ROOM`.
        let (first, count) = (self.first as u16, count as u16);
        let only = self.batch.spans.last().copied().unwrap_or(Span::NONE);
        self.batch.chains.push(Chain { only, len, id, before, entries, first, count, fault });
    }
}
