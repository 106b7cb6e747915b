//! A ring of empty buffers for frames to a guest.

use std::sync::Arc;

use super::Frame;
use crate::{
    copy::{self, Writer},
    counters::Dropped,
    dirty::Marking,
    eventfd::Notify,
    iotlb::Table,
    memory::Span,
    net::{ETHERNET_HEADER, TAGGED_HEADER, Tag, VIRTIO_HEADER, Virtio},
    ring::{Batch, Chain, Direction, Ring, RingError},
};

/// Chains that are taken of the ring at a time.
const STOCK: usize = 64;

/// A ring of empty buffers, and those that were taken of it and have not been used.
#[derive(Debug)]
pub struct Receiving {
    ring: Ring,
    call: Option<Arc<dyn Notify>>,
    /// Where it is said that the ring is broken.
    pub err: Option<Arc<dyn Notify>>,
    stock: Batch,
    /// How many of the stock were used.
    spent: usize,
    /// Chains that could not be and were given back, and are not counted yet.
    faulty: u64,
    /// Whether something was completed in this turn.
    pub(super) dirty: bool,
    /// Why nothing is written any more.
    pub(super) broken: Option<RingError>,
}

/// Both headers of a frame that asks for nothing and has no tag.
const HEADERS: u32 = (VIRTIO_HEADER + ETHERNET_HEADER) as u32;

/// What a frame must be like to go where another went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Like {
    /// Its Ethernet header; it has no tag.
    pub ethernet: [u8; ETHERNET_HEADER],
    /// The longest payload that both ends may have.
    pub mtu: u32,
}

impl Like {
    /// Copies the frame `from` one buffer `to` another, if it is like this and finds room; says whether it did.
    #[inline(always)]
    fn copy(&self, from: Span, to: Span) -> bool {
        // In two halves, which overlap: fourteen bytes at once are no number.
        const HALF: usize = size_of::<u64>();
        const SECOND: usize = ETHERNET_HEADER - HALF;
        let is_like = copy::at(from, 0).is_some_and(|own| Virtio::is_plain(&own))
            && copy::at::<HALF>(from, VIRTIO_HEADER).as_ref() == self.ethernet.first_chunk()
            && copy::at::<HALF>(from, VIRTIO_HEADER + SECOND).as_ref() == self.ethernet.last_chunk();
        is_like && copy::with_front(from, to, &Virtio::PLAIN.written(0, 1, false), &self.ethernet)
    }
}

/// How a guest wants its frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of the virtio header.
    pub header: u8,
    /// Whether buffers may be joined for one frame.
    pub mergeable: bool,
    /// Whether it may be told that a checksum is right.
    pub valid: bool,
}

impl Receiving {
    /// The ring, and what its driver waits on.
    pub fn new(ring: Ring, call: Option<Arc<dyn Notify>>) -> Receiving {
        let stock = Batch::default();
        Receiving { ring, call, err: None, stock, spent: 0, faulty: 0, dirty: false, broken: None }
    }

    /// The ring as it stands when nothing more is written: what was taken and not used is given back.
    pub fn stop(mut self) -> Ring {
        self.give_back();
        self.ring.publish();
        self.ring
    }

    fn give_back(&mut self) {
        if let Some(first) = self.stock.chains().get(self.spent) {
            self.ring.put_back(first);
        }
        self.stock.clear();
        self.spent = 0;
    }

    /// How many chains of the stock were not used.
    #[inline]
    fn left(&self) -> usize {
        self.stock.chains().len() - self.spent
    }

    /// Takes what the guest has made available since. What was taken before and is left is not looked at again, unless its place is needed:
    /// at most as many chains as were used since.
    fn fill(&mut self) {
        let wanted = STOCK.saturating_sub(self.left());
        if self.stock.room() < wanted {
            if self.spent == 0 {
                return;
            }
            self.give_back();
        } else if self.left() == 0 {
            self.stock.clear();
            self.spent = 0;
        }
        let wanted = STOCK.saturating_sub(self.left());
        if let Err(error) = self.ring.take(Direction::ToGuest, wanted, &mut self.stock) {
            self.broken = Some(error);
            if let Some(err) = &self.err {
                err.signal();
            }
        }
    }

    /// Whether memory of its guest's was taken away.
    pub(super) fn is_lost(&self) -> bool {
        self.ring.is_lost()
    }

    /// Looks what the guest has made available before there is a frame for it: translations take a while to come.
    pub fn prepare(&mut self) {
        if self.ring.is_translated() && self.left() < STOCK / 2 {
            self.fill();
        }
    }

    /// Replaces the translations of the guest's addresses; what was found by the old ones is looked up anew.
    pub fn set_table(&mut self, table: &Arc<Table>) {
        self.give_back();
        self.ring.set_table(table);
        self.prepare();
    }

    /// Replaces the marks that are made of what is written.
    pub fn set_marks(&mut self, marks: Marking) {
        self.ring.set_marks(marks);
    }

    /// How many chains of the stock a frame of `total` bytes takes, header and all.
    #[inline(always)]
    fn chains_for(&self, total: u32, mergeable: bool) -> Result<usize, Dropped> {
        let left = self.stock.chains().get(self.spent..).unwrap_or_default();
        if left.first().is_some_and(|chain| chain.len >= total) {
            return Ok(1);
        }
        // The first of several has the headers.
        if left.first().is_some_and(|chain| chain.fault.is_some()) {
            return Err(Dropped::TooSmall);
        }
        let mut room = 0_u32;
        for (count, chain) in (1..).zip(left) {
            room = room.saturating_add(chain.len);
            if room >= total {
                return Ok(count);
            }
            if !mergeable {
                return Err(Dropped::TooSmall);
            }
        }
        Err(Dropped::NoBuffers)
    }

    /// The same where there are not enough at first: what has come since is taken, twice at most, and chains that cannot be are given back, at
    /// most a stock of them.
    #[inline(never)]
    fn chains_at_last(&mut self, total: u32, mergeable: bool) -> Result<usize, Dropped> {
        let (mut passed_over, mut fills) = (0, 0);
        while self.broken.is_none() && passed_over < STOCK {
            let next = self.stock.chains().get(self.spent).copied();
            if let Some(chain) = next.filter(|chain| chain.fault.is_some()) {
                self.ring.complete(&chain, 0);
                self.spent += 1;
                self.faulty += 1;
                self.dirty = true;
                passed_over += 1;
                continue;
            }
            let outcome = self.chains_for(total, mergeable);
            let before = self.left();
            // There may be nothing more.
            if outcome == Err(Dropped::NoBuffers) && fills < 2 && (next.is_none() || self.ring.has_news()) {
                fills += 1;
                self.fill();
            }
            if self.left() <= before {
                return outcome;
            }
        }
        Err(Dropped::NoBuffers)
    }

    /// Writes the frames in `chains`, from the first on: as many as are like the one that was let in, have one buffer, and find one
    /// with room for all of it. Says how many, and how many bytes they have on the wire.
    #[inline]
    pub(super) fn write_alike(&mut self, like: &Like, chains: &[Chain]) -> (usize, u64) {
        let empty = self.stock.chains().get(self.spent..).unwrap_or_default();
        let (mut frames, mut bytes) = (0, 0);
        for (from, to) in chains.iter().zip(empty) {
            let (Some(found), Some(room)) = (from.one(), to.one()) else { break };
            let Some(rest) = found.len.checked_sub(HEADERS).filter(|rest| *rest <= like.mtu) else { break };
            if !like.copy(found, room) {
                break;
            }
            self.ring.complete(to, found.len);
            frames += 1;
            bytes += u64::from(rest) + ETHERNET_HEADER as u64;
            if found.len > copy::FIRST {
                // The next is likely to be as long.
                let next = |chains: &[Chain]| chains.get(frames).and_then(Chain::one);
                if let Some(next) = next(chains) {
                    copy::prefetch_rest_to_read(next, next.len);
                }
                if let Some(next) = next(empty) {
                    copy::prefetch_rest_to_write(next, found.len);
                }
            }
        }
        if let Some(marks) = self.ring.marks() {
            for (from, to) in chains.iter().zip(empty).take(frames) {
                marks.buffers(self.stock.spans(to), from.len);
            }
        }
        self.spent += frames;
        self.dirty |= frames > 0;
        (frames, bytes)
    }

    /// Completes the next chain of the stock.
    #[inline(always)]
    fn spend(&mut self, chain: &Chain, written: u32, total: u32) {
        self.ring.complete(chain, written);
        if let Some(marks) = self.ring.marks() {
            marks.buffers(self.stock.spans(chain), written);
        }
        self.spent += 1;
        self.dirty = true;
        if total > copy::FIRST {
            self.fetch_next(total);
        }
    }

    /// Has the next buffer fetched: the next frame is likely to be as long.
    #[inline(never)]
    fn fetch_next(&self, total: u32) {
        let next = self.stock.chains().get(self.spent);
        if let Some(span) = next.and_then(|next| self.stock.spans(next).first()) {
            copy::prefetch_rest_to_write(*span, total);
        }
    }

    /// Writes a frame with this tag or none; says how many bytes of the wire it has.
    #[inline]
    pub(super) fn write(
        &mut self,
        shape: Shape,
        frame: &Frame<'_>,
        tag: Option<(Tag, u16)>,
    ) -> Result<u32, Dropped> {
        let mut room = [0; TAGGED_HEADER];
        let (ethernet, ethernet_len) = frame.ethernet.written(tag, &mut room);
        let wire = frame.rest + ethernet_len as u32;
        let total = wire + u32::from(shape.header);
        let count = match self.chains_for(total, shape.mergeable) {
            Ok(count) => count,
            Err(_) => self.chains_at_last(total, shape.mergeable)?,
        };
        let grown = ethernet_len as i32 - frame.ethernet.size() as i32;
        let header = frame.virtio.written(grown, count as u16, shape.valid);
        // One buffer, whole: the usual case.
        let mut payload = frame.payload;
        if count == 1
            && let Some(chain) = self.stock.chains().get(self.spent)
        {
            let mut writer = Writer::new(self.stock.spans(chain));
            let whole = usize::from(shape.header) == VIRTIO_HEADER
                && writer.write_both(&header, ethernet, ethernet_len);
            if !whole {
                writer.write(header.get(..usize::from(shape.header)).unwrap_or(&header));
                writer.write(ethernet.get(..ethernet_len).unwrap_or(ethernet));
            }
            let copied = writer.copy(&mut payload, frame.rest);
            let written = total - (frame.rest - copied);
            let chain = *chain;
            self.spend(&chain, written, total);
            return Ok(wire);
        }
        let header = header.get(..usize::from(shape.header)).unwrap_or(&header);
        let mut front = [0_u8; VIRTIO_HEADER + TAGGED_HEADER];
        let front_len = header.len() + ethernet_len;
        for (to, from) in front.iter_mut().zip(header.iter().chain(ethernet)) {
            *to = *from;
        }
        let mut front = front.get(..front_len).unwrap_or(&front);
        let mut left = total;
        for _ in 0..count {
            let Some(chain) = self.stock.chains().get(self.spent).copied() else { break };
            let written = spread(self.stock.spans(&chain), &mut front, &mut payload, left.min(chain.len));
            self.ring.complete(&chain, written);
            if let Some(marks) = self.ring.marks() {
                marks.buffers(self.stock.spans(&chain), written);
            }
            left -= written.min(left);
            self.spent += 1;
        }
        self.dirty = true;
        Ok(wire)
    }

    /// Shows the guest what was written, and wakes it when it wants to be. Says how many chains were given back because they cannot be.
    pub(super) fn publish(&mut self) -> u64 {
        self.dirty = false;
        if self.ring.publish()
            && let Some(call) = &self.call
        {
            call.signal();
        }
        self.prepare();
        std::mem::take(&mut self.faulty)
    }

    /// Replaces what the driver waits on.
    pub fn set_call(&mut self, call: Option<Arc<dyn Notify>>) {
        self.call = call;
    }
}

/// Writes what is left of `front`, then of `payload`, `count` bytes in all.
fn spread(spans: &[Span], front: &mut &[u8], payload: &mut crate::copy::Reader<'_>, count: u32) -> u32 {
    let mut writer = Writer::new(spans);
    let (now, later) = front.split_at(front.len().min(count as usize));
    let done = writer.write(now) as u32;
    *front = later;
    done + writer.copy(payload, count - done)
}
