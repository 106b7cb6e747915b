//! Frames that one worker of a switch has decided on, and another has to write: it serves the receiver's ring, or its wire.
//!
//! Each ring belongs to one worker, by the number of its pair, so that no ring and no port is shared. A guest with as many pairs of rings
//! as there are workers has one of each worker's, and its frames stay with one worker on their whole way. Where a receiver has fewer, its
//! frames take a copy more: into a queue between two workers, which either side uses without a lock.
//!
//! What is set for ports is set for each worker in turn. A frame that was decided on under other settings than its writer has is dropped,
//! so that none of the old ones is written any more once all have been told.

use std::sync::Arc;

use rtrb::{Consumer, Producer, RingBuffer};

use super::{Engine, Frame, Negotiated, TURN, deliver};
use crate::{
    copy::Reader,
    counters::Dropped,
    eventfd::Notify,
    net::{Ethernet, Tag, Virtio},
    table::PortId,
};

/// Frames that wait between two workers at most.
const PARCELS: usize = 1024;
/// And their bytes: some of the longest segments, or all of these frames at their usual length.
const BYTES: usize = 2 << 20;

/// A frame between two workers, but for its payload.
#[derive(Clone, Copy, Debug)]
struct Parcel {
    /// Under which settings it was decided on.
    epoch: u64,
    to: PortId,
    /// Of its sender.
    pair: usize,
    /// What its receiver was known to take.
    negotiated: Negotiated,
    virtio: Virtio,
    ethernet: Ethernet,
    rest: u32,
    vlan: u16,
    tag: Option<(Tag, u16)>,
    copy: bool,
}

/// The way to another worker.
#[derive(Debug)]
struct Outbox {
    parcels: Producer<Parcel>,
    bytes: Producer<u8>,
    /// Wakes that worker if it sleeps.
    bell: Arc<dyn Notify>,
    /// Whether something was put in that it may not have been woken for.
    unannounced: bool,
}

impl Outbox {
    /// Puts a frame in; says whether there was room.
    fn put(&mut self, parcel: Parcel, mut payload: Reader<'_>) -> bool {
        if self.parcels.is_full() {
            return false;
        }
        let Ok(mut room) = self.bytes.write_chunk(parcel.rest as usize) else { return false };
        let (first, second) = room.as_mut_slices();
        let read = payload.read(first) + payload.read(second);
        room.commit_all();
        // Behind its bytes: who sees it finds them.
        debug_assert_eq!(read, parcel.rest as usize, "it was measured by its spans");
        self.unannounced = true;
        self.parcels.push(parcel).is_ok()
    }
}

/// The way from another worker.
#[derive(Debug)]
struct Inbox {
    parcels: Consumer<Parcel>,
    bytes: Consumer<u8>,
}

/// Which worker this is, and its ways to the others.
#[derive(Debug)]
pub(super) struct Workers {
    own: usize,
    count: usize,
    /// By the number of the worker; none to itself.
    outboxes: Vec<Option<Outbox>>,
    inboxes: Vec<Inbox>,
    /// How often settings have changed.
    epoch: u64,
}

impl Default for Workers {
    /// The only one.
    fn default() -> Workers {
        Workers { own: 0, count: 1, outboxes: Vec::new(), inboxes: Vec::new(), epoch: 0 }
    }
}

/// The worker, of `count`, that serves a pair of rings.
pub fn worker_of(pair: usize, count: usize) -> usize {
    pair.checked_rem(count).unwrap_or(0)
}

impl Workers {
    /// Whether this one serves a pair of rings.
    pub fn serves(&self, pair: usize) -> bool {
        worker_of(pair, self.count) == self.own
    }
}

impl Engine {
    /// Engines that hand frames over to each other, one for each of these bells, which wakes its worker.
    pub fn connected(bells: &[Arc<dyn Notify>]) -> Vec<Engine> {
        let count = bells.len();
        let mut all: Vec<Engine> = (0..count)
            .map(|own| {
                let workers = Workers { own, count, ..Workers::default() };
                Engine { workers, ..Engine::default() }
            })
            .collect();
        for from in 0..count {
            for (to, bell) in bells.iter().enumerate() {
                let mut outbox = None;
                if from != to
                    && let Some(engine) = all.get_mut(to)
                {
                    let (parcels, next_parcels) = RingBuffer::new(PARCELS);
                    let (bytes, next_bytes) = RingBuffer::new(BYTES);
                    engine.workers.inboxes.push(Inbox { parcels: next_parcels, bytes: next_bytes });
                    outbox = Some(Outbox { parcels, bytes, bell: Arc::clone(bell), unannounced: false });
                }
                if let Some(engine) = all.get_mut(from) {
                    engine.workers.outboxes.push(outbox);
                }
            }
        }
        all
    }

    /// Settings have changed, or are about to: frames that were decided on before are written no more. To be called for all workers alike.
    pub fn begin_epoch(&mut self) {
        self.workers.epoch += 1;
    }

    /// Whether another worker has handed something over.
    pub(super) fn has_parcels(&self) -> bool {
        self.workers.inboxes.iter().any(|inbox| !inbox.parcels.is_empty())
    }

    /// The worker that a frame for a port is handed over to, when it is not this one that serves the port's ring.
    fn elsewhere(&self, id: PortId, pair: usize) -> Option<usize> {
        let port = self.port(id)?;
        let worker = match port.wired {
            true => 0,
            false => worker_of(port.pair_for(pair)?, self.workers.count),
        };
        (worker != self.workers.own).then_some(worker)
    }

    /// A frame for a port that has no ring here: to the worker that has one, if one has.
    #[cold]
    pub(super) fn hand_over(&mut self, id: PortId, pair: usize, frame: &Frame<'_>) {
        let worker = self.elsewhere(id, pair);
        let epoch = self.workers.epoch;
        let Some(port) = self.ports.get_mut(usize::from(id)).and_then(Option::as_deref_mut) else { return };
        let outbox = worker.and_then(|worker| self.workers.outboxes.get_mut(worker)?.as_mut());
        let Frame { virtio, ethernet, payload, rest, vlan, tag, copy } = *frame;
        let negotiated = port.negotiated;
        let parcel = Parcel { epoch, to: id, pair, negotiated, virtio, ethernet, rest, vlan, tag, copy };
        if !outbox.is_some_and(|outbox| outbox.put(parcel, payload)) {
            port.count(frame, Err(Dropped::NoBuffers));
        }
    }

    /// Wakes the workers that something was handed over to.
    #[inline]
    pub(super) fn announce_parcels(&mut self) {
        for outbox in self.workers.outboxes.iter_mut().flatten() {
            if std::mem::take(&mut outbox.unannounced) {
                outbox.bell.signal();
            }
        }
    }

    /// Writes what others have handed over, of each of them at most a turn; says how many frames that were.
    pub(super) fn serve_parcels(&mut self) -> usize {
        let mut inboxes = std::mem::take(&mut self.workers.inboxes);
        let mut taken = 0;
        for inbox in &mut inboxes {
            for _ in 0..TURN {
                let Ok(parcel) = inbox.parcels.pop() else { break };
                // They are there: they were put in first.
                let Ok(bytes) = inbox.bytes.read_chunk(parcel.rest as usize) else { break };
                let (first, second) = bytes.as_slices();
                self.write_parcel(&parcel, [first, second]);
                bytes.commit_all();
                taken += 1;
            }
        }
        self.workers.inboxes = inboxes;
        if taken > 0 {
            self.publish_touched();
        }
        taken
    }

    fn write_parcel(&mut self, parcel: &Parcel, payload: [&[u8]; 2]) {
        let Parcel { epoch, to, pair, negotiated, virtio, ethernet, rest, vlan, tag, copy } = *parcel;
        // Whose number this is now is not known.
        if epoch != self.workers.epoch {
            return;
        }
        let spans = payload.map(deliver::span);
        let frame = Frame { virtio, ethernet, payload: Reader::new(&spans), rest, vlan, tag, copy };
        let takes = self.port(to).is_some_and(|port| port.negotiated == negotiated);
        if (!takes || !self.write_here(to, pair, &frame))
            && let Some(port) = self.port_mut(to)
        {
            port.count(&frame, Err(Dropped::NoBuffers));
        }
    }
}
