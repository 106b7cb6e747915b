//! The data path: takes what guests have sent, decides on each frame, and copies it to whom it is for.
//!
//! One thread runs it and owns its rings, so that nothing on it is shared with another: settings and rings come between two rounds. A
//! switch with several workers has several of these, each with all ports and its part of their rings ([`handover`]). It knows neither
//! sockets nor clocks; the time is an argument.

mod announce;
mod deliver;
mod end;
mod follow;
mod forward;
mod frame;
mod handover;
mod ingress;
mod mirror;
mod neighbour;
mod port;
mod rate;
mod rebuild;
mod receive;
mod share;
mod stream;
mod wire;

use std::sync::{Arc, mpsc};

pub(crate) use self::wire::PACKET_AUXDATA;
use self::{
    frame::{Frame, Sent, Source},
    handover::Workers,
    mirror::Mirrors,
    share::Share,
};
pub use self::{
    handover::worker_of,
    mirror::Mirror,
    port::{Negotiated, Pair, Port},
    receive::Receiving,
    wire::Wire,
};
use crate::{
    copy,
    counters::{Counters, Dropped},
    eventfd::Notify,
    memory::Limit,
    net::LONGEST,
    ring::{Batch, Direction, Ring, RingError},
    settings::Settings,
    table::{PortId, Table},
};

/// Chains that are taken of one ring before the next has its turn.
const TURN: usize = 32;
/// Turns in a row in which a ring has nothing, after which it is looked at more rarely.
const TIMEOUT: u16 = 512;
/// Rounds between two looks at wires, each of which is a call of the kernel.
const ROUNDS_A_LOOK: u32 = 16;
/// Resting rings that are looked at in a round.
const GLANCES: usize = 4;

/// The data path of a switch: its ports, the address table, and the rings and wires that are looked at in turn.
#[derive(Debug)]
pub struct Engine {
    ports: Vec<Option<Box<Port>>>,
    table: Table,
    /// Ports that get what nobody has the address of.
    unclaimed: Vec<PortId>,
    /// Rings of frames from guests that had something lately. They are looked at in every round.
    busy: Vec<Turn>,
    /// The others: a few of them in every round.
    resting: Vec<Turn>,
    /// Ports that are no guest's.
    wires: Vec<PortId>,
    /// Rounds since these were looked at.
    since_wires: u32,
    /// What was read of a wire.
    read: Vec<u8>,
    /// Which of the resting ones is next.
    glance: usize,
    /// Ports, in the order of their numbers; what is for many is offered to each of them.
    present: Vec<PortId>,
    uplink: Option<PortId>,
    /// Whether frames between ports that are no uplink stay inside.
    loopback: bool,
    batch: Batch,
    /// Room for a frame that must be worked on.
    frame: Vec<u8>,
    segment: Vec<u8>,
    /// Room for what is judged of a frame.
    judged: Vec<u8>,
    /// Ports to which something was written in this turn.
    touched: Vec<(PortId, usize)>,
    /// Ports that get every frame of their VLANs.
    promiscuous: Vec<PortId>,
    mirrors: Mirrors,
    share: Share,
    /// The other workers of this switch.
    workers: Workers,
    /// Who wants to know what befalls ports.
    news: Option<mpsc::Sender<PortEvent>>,
}

impl Default for Engine {
    fn default() -> Engine {
        Engine {
            ports: Vec::new(),
            table: Table::default(),
            unclaimed: Vec::new(),
            busy: Vec::new(),
            resting: Vec::new(),
            wires: Vec::new(),
            since_wires: 0,
            read: vec![0; wire::ROOM],
            glance: 0,
            present: Vec::new(),
            uplink: None,
            loopback: true,
            batch: Batch::default(),
            frame: Vec::with_capacity(LONGEST as usize),
            segment: Vec::with_capacity(LONGEST as usize),
            judged: Vec::new(),
            touched: Vec::new(),
            promiscuous: Vec::new(),
            mirrors: Mirrors::default(),
            share: Share::default(),
            workers: Workers::default(),
            news: None,
        }
    }
}

/// A ring that is to be served.
#[derive(Debug)]
pub struct GivenRing {
    /// The ring.
    pub ring: Ring,
    /// What its driver waits on; `None`: it polls.
    pub call: Option<Arc<dyn Notify>>,
    /// Where it is said that the ring is broken.
    pub err: Option<Arc<dyn Notify>>,
}

/// What befalls ports.
#[derive(Clone, Copy, Debug)]
pub enum PortEvent {
    /// A ring of this port is served no more.
    Broken(PortId, RingError),
    /// Devices were reset: [`Engine::take_resets`] tells which.
    Reset,
}

/// A ring of frames from a guest, by its port and its pair.
#[derive(Clone, Copy, Debug)]
struct Turn {
    port: PortId,
    pair: usize,
    /// Turns in a row in which it had nothing.
    empty: u16,
}

/// What came of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Chains that were taken.
    pub frames: usize,
    /// Nanoseconds until a port whose rate is used up may send again; `None`: none waits for that.
    pub wait: Option<u64>,
}

/// What is known before a worker sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepBound {
    /// Whether there is something to be done.
    pub news: bool,
    /// Nanoseconds that it may sleep at most; `None`: until somebody wakes it.
    pub most: Option<u64>,
}

impl Engine {
    /// Puts a port in, or takes it out; says what was there before.
    pub fn set_port(&mut self, id: PortId, port: Option<Box<Port>>) -> Option<Box<Port>> {
        let at = usize::from(id);
        if self.ports.len() <= at {
            self.ports.resize_with(at + 1, || None);
        }
        let before = self.ports.get_mut(at).and_then(|place| std::mem::replace(place, port));
        if before.is_some() || !self.append(id) {
            self.rebuild();
        }
        before
    }

    /// Gives a port other settings.
    pub fn set_settings(&mut self, id: PortId, settings: Arc<Settings>) {
        if let Some(port) = self.port_mut(id) {
            port.set_settings(settings);
        }
        self.rebuild();
    }

    /// Says what a port's front end may have mapped from now on.
    pub fn set_memory(&mut self, id: PortId, memory: Limit) {
        if let Some(port) = self.port_mut(id).filter(|port| port.settings().memory != memory) {
            let settings = Settings { memory, ..Settings::clone(port.settings()) };
            port.set_settings(Arc::new(settings));
        }
    }

    /// Says whether there is somebody on the other side of a port that is no guest's.
    pub fn set_carrier(&mut self, id: PortId, carrier: bool) {
        if let Some(port) = self.port_mut(id) {
            port.carrier = carrier;
        }
        self.find_links(id);
    }

    /// Gives a port what it has instead of rings, with what may be sent through it; or takes it away.
    pub fn set_wire(&mut self, id: PortId, wire: Option<(Wire, Negotiated)>) {
        if let Some(port) = self.port_mut(id) {
            if let Some((_, negotiated)) = &wire {
                port.negotiated = *negotiated;
            }
            port.wired = wire.is_some();
            port.wire = wire.map(|(wire, _)| wire);
        }
        self.rings_changed();
    }

    /// Another worker serves what a port has instead of rings: through it this may be sent; or it has none.
    pub fn note_wire(&mut self, id: PortId, negotiated: Option<Negotiated>) {
        if let Some(port) = self.port_mut(id) {
            port.wired = negotiated.is_some();
            port.negotiated = negotiated.unwrap_or(port.negotiated);
        }
    }

    /// Another worker serves ring `index` of a port.
    pub fn note_ring(&mut self, port: PortId, index: u32, negotiated: Negotiated) {
        let Some(port) = self.port_mut(port) else { return };
        port.note_ring(index, negotiated);
    }

    /// Another worker serves ring `index` of a port no more.
    pub fn forget_ring(&mut self, port: PortId, index: u32) {
        if let Some(port) = self.port_mut(port) {
            port.forget_ring(index);
        }
    }

    /// Has ring `index` of a port served, as virtio counts them: even ones are of empty buffers for its guest.
    pub fn put_ring(&mut self, port: PortId, index: u32, negotiated: Negotiated, given: GivenRing) {
        let GivenRing { mut ring, call, err } = given;
        let Some(port) = self.port_mut(port) else { return };
        let pair = (index / 2) as usize;
        port.note_ring(index, negotiated);
        // Empty buffers are looked for when there is something to put into them.
        ring.ask_for_kicks(false);
        if let Some(place) = port.pairs.get_mut(pair) {
            match index.is_multiple_of(2) {
                true => {
                    let receiving = place.to_guest.insert(Receiving::new(ring, call));
                    receiving.err = err;
                    receiving.prepare();
                }
                false => place.from_guest = Some(Sending { ring, call, err }),
            }
        }
        self.rings_changed();
    }

    /// Takes ring `index` of a port back, as it stands; `None` when it is not served.
    pub fn take_ring(&mut self, port: PortId, index: u32) -> Option<Ring> {
        let port = self.port_mut(port)?;
        port.forget_ring(index);
        let pair = port.pairs.get_mut((index / 2) as usize)?;
        let ring = match index.is_multiple_of(2) {
            true => pair.to_guest.take()?.stop(),
            false => pair.from_guest.take()?.ring,
        };
        self.rings_changed();
        Some(ring)
    }

    /// Gives all rings of a port up.
    pub fn take_rings(&mut self, port: PortId) {
        if let Some(port) = self.port_mut(port) {
            port.forget_rings();
        }
        self.rings_changed();
    }

    /// The links of all ports: whether each is up.
    pub fn links(&self) -> Vec<(PortId, bool)> {
        let numbered = (0..).zip(&self.ports);
        numbered.filter_map(|(id, port)| Some((id, port.as_deref()?.is_up()))).collect()
    }

    /// Whether frames between two ports stay inside (VEB), or go out to the uplink's switch (VEPA).
    pub fn set_loopback(&mut self, on: bool) {
        self.loopback = on;
    }

    /// The port with this number; `None` when there is none.
    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.get(usize::from(id))?.as_deref()
    }

    /// A port, to be changed.
    pub fn port_mut(&mut self, id: PortId) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(id))?.as_deref_mut()
    }

    /// A port's counters.
    pub fn counters(&self, id: PortId) -> Option<Counters> {
        self.port(id).map(|port| port.counters)
    }

    /// Has the rings of all ports served; to be called when one was added or taken away.
    pub fn rings_changed(&mut self) {
        self.busy.clear();
        self.resting.clear();
        for (port, found) in (0..).zip(&self.ports) {
            let pairs = found.as_deref().map_or(0, |found| found.pairs.len());
            let served = (0..pairs).filter(|pair| self.workers.serves(*pair));
            self.busy.extend(served.map(|pair| Turn { port, pair, empty: 0 }));
        }
        self.resting.reserve(self.busy.len());
        let numbered = (0..).zip(&self.ports);
        let wires = numbered.filter(|(_, port)| port.as_deref().is_some_and(|port| port.wire.is_some()));
        self.wires = wires.map(|(id, _)| id).collect();
    }

    /// Takes the rings of guests away whose memory was, and sends their front ends away.
    pub fn drop_lost(&mut self) {
        let news = &self.news;
        for (id, port) in (0..).zip(&mut self.ports) {
            let Some(port) = port.as_deref_mut().filter(|port| port.is_lost()) else { continue };
            port.fail(RingError::Lost);
            tell(news, id, RingError::Lost);
        }
        self.rings_changed();
    }

    /// Tells `news` of each ring that cannot be served any more, and that devices were reset.
    pub fn tell(&mut self, news: mpsc::Sender<PortEvent>) {
        self.news = Some(news);
    }

    /// A port's device was reset by its guest.
    pub fn note_reset(&mut self, id: PortId) {
        let first = self.port_mut(id).is_some_and(|port| !std::mem::replace(&mut port.was_reset, true));
        // Whoever hears of it asks for all that were: a guest that does nothing else makes no queue.
        if let Some(news) = self.news.as_ref().filter(|_| first) {
            let _ = news.send(PortEvent::Reset);
        }
    }

    /// The ports whose devices were reset since they were asked for last.
    pub fn take_resets(&mut self) -> Vec<PortId> {
        let numbered = (0..).zip(&mut self.ports);
        let was_reset = |port: &mut Option<Box<Port>>| {
            port.as_deref_mut().is_some_and(|port| std::mem::take(&mut port.was_reset))
        };
        numbered.filter_map(|(id, port)| was_reset(port).then_some(id)).collect()
    }

    /// A ring of this port is served no more.
    #[cold]
    fn broke(&mut self, id: PortId, why: RingError) {
        if let Some(port) = self.port_mut(id) {
            port.broken = Some(why);
        }
        tell(&self.news, id, why);
    }

    /// Looks at all rings in the next rounds: whoever has woken the switch is among them.
    pub fn wake_all(&mut self) {
        for ring in self.resting.drain(..) {
            self.busy.push(Turn { empty: TIMEOUT - 2, ..ring });
        }
    }

    /// Serves each ring that had something lately once, and looks at some of the others. `now` is in nanoseconds, from any
    /// beginning.
    pub fn round(&mut self, now: u64) -> Round {
        let mut round = Round::default();
        let mut turn = 0;
        while let Some(Turn { port, pair, .. }) = self.busy.get(turn).copied() {
            let taken = self.serve(port, pair, now, &mut round);
            let rests = self.busy.get_mut(turn).is_some_and(|ring| {
                ring.empty = if taken { 0 } else { ring.empty.saturating_add(1) };
                ring.empty > TIMEOUT
            });
            if rests {
                self.resting.push(self.busy.swap_remove(turn));
            } else {
                turn += 1;
            }
        }
        if !self.wires.is_empty() {
            self.serve_wires(now, &mut round);
        }
        if self.has_parcels() {
            round.frames += self.serve_parcels();
        }
        for _ in 0..GLANCES.min(self.resting.len()) {
            self.glance = if self.glance + 1 < self.resting.len() { self.glance + 1 } else { 0 };
            let Some(Turn { port, pair, .. }) = self.resting.get(self.glance).copied() else { break };
            if self.has_news(port, pair) && self.serve(port, pair, now, &mut round) {
                let ring = self.resting.swap_remove(self.glance);
                self.busy.push(Turn { empty: 0, ..ring });
            }
        }
        self.share.next_round();
        round
    }

    /// Asks all guests to say when they send something, or not to. With `true`: says whether nobody may sleep yet, since one has sent
    /// something meanwhile or another worker has handed something over, and how long at most. What a port has that waits for its rate at
    /// `now` is known to be there, and looked at when that is over; no kick will tell of it.
    pub fn ask_for_kicks(&mut self, on: bool, now: u64) -> SleepBound {
        let (mut any, mut most) = (false, None::<u64>);
        for port in self.ports.iter_mut().flatten() {
            let wait = if on { port.rate.wait(now) } else { None };
            for sending in port.pairs.iter_mut().filter_map(|pair| pair.from_guest.as_mut()) {
                // Also where it waits: another worker may have used the rate up while nothing was here.
                let news = sending.ring.ask_for_kicks(on);
                match wait {
                    Some(wait) if news => {
                        sending.ring.ask_for_kicks(false);
                        most = Some(most.map_or(wait, |least| least.min(wait)));
                    }
                    _ => any |= news,
                }
            }
        }
        if any {
            // Whoever it was is among them.
            self.rings_changed();
        }
        SleepBound { news: any || on && self.has_parcels(), most }
    }

    /// Whether a ring of frames from a guest has something, as far as one look tells. There may be hundreds that have nothing, and none of
    /// what belongs to them is in a cache.
    fn has_news(&self, id: PortId, pair: usize) -> bool {
        let sending = self.port(id).and_then(|port| port.pairs.get(pair)?.from_guest.as_ref());
        sending.is_some_and(|sending| sending.ring.has_news())
    }

    /// Serves one ring of frames from a guest; says whether it had something, or waits for its rate.
    fn serve(&mut self, id: PortId, pair: usize, now: u64, round: &mut Round) -> bool {
        let Some(may) = self.turn(id, now, TURN, round) else { return self.port(id).is_some() };
        let Some(port) = self.port_mut(id) else { return false };
        // The ring is out of its port while other ports are written to.
        let Some(mut sending) = port.pairs.get_mut(pair).and_then(|pair| pair.from_guest.take()) else {
            return false;
        };
        let mut batch = std::mem::replace(&mut self.batch, Batch::none());
        batch.clear();
        let outcome = sending.ring.take(Direction::FromGuest, may.most, &mut batch);
        let taken = batch.chains().len();
        if taken > 0 {
            let source = self.source(id, pair);
            let (mut sent, mut decided) = (Sent::default(), None);
            let mut left = batch.chains();
            while let Some((chain, behind)) = left.split_first() {
                let followed = decided.as_ref().map_or(0, |decided| self.follow(decided, left, &mut sent));
                if let Some((followed, behind)) = left.split_at_checked(followed)
                    && !followed.is_empty()
                {
                    sending.ring.complete_all(followed);
                    left = behind;
                    continue;
                }
                if let Some(next) = behind.first().filter(|next| next.len > copy::FIRST)
                    && let Some(span) = batch.spans(next).first()
                {
                    copy::prefetch_rest_to_read(*span, span.len);
                }
                if let Some(source) = &source {
                    match chain.fault {
                        Some(_) => self.dropped(id, Dropped::BadChain),
                        None => {
                            decided = self.forward(source, batch.spans(chain), chain.len, &mut sent);
                        }
                    }
                }
                sending.ring.complete_all(std::slice::from_ref(chain));
                left = behind;
            }
            self.publish_touched();
            if sending.ring.publish() {
                sending.wake();
            }
            self.sent(id, &sent);
            self.turn_over(id, now, may, sent.cost, taken);
            round.frames += taken;
        }
        self.batch = batch;
        if let Err(why) = outcome {
            if let Some(err) = &sending.err {
                err.signal();
            }
            self.broke(id, why);
        } else if let Some(pair) = self.port_mut(id).and_then(|port| port.pairs.get_mut(pair)) {
            pair.from_guest = Some(sending);
        }
        taken > 0
    }

    /// Serves the wires that had something lately, like a busy ring; now and then the others too.
    fn serve_wires(&mut self, now: u64, round: &mut Round) {
        self.since_wires += 1;
        // With nothing else to do there is time for the kernel.
        let all = self.since_wires >= ROUNDS_A_LOOK || round.frames == 0;
        if all {
            self.since_wires = 0;
        }
        for turn in 0..self.wires.len() {
            let Some(id) = self.wires.get(turn).copied() else { break };
            let busy = |port: &Port| port.wire.as_ref().is_some_and(|wire| wire.busy);
            if all || self.port(id).is_some_and(busy) {
                let taken = self.serve_wire(id, now, round);
                if let Some(wire) = self.port_mut(id).and_then(|port| port.wire.as_mut()) {
                    wire.busy = taken;
                }
            }
        }
    }

    /// Serves a port that is no guest's; says whether it had something, or waits for its rate.
    fn serve_wire(&mut self, id: PortId, now: u64, round: &mut Round) -> bool {
        let Some(may) = self.turn(id, now, TURN, round) else { return self.port(id).is_some() };
        let Some(source) = self.source(id, 0) else { return false };
        let mut read = std::mem::take(&mut self.read);
        let (mut sent, mut taken) = (Sent::default(), 0);
        while taken < may.most {
            let Some(wire) = self.port_mut(id).and_then(|port| port.wire.as_mut()) else { break };
            let Some(found) = wire.read(&mut read) else { break };
            let len = found.len() as u32;
            let spans = [deliver::span(read.get(found).unwrap_or_default())];
            self.forward(&source, &spans, len, &mut sent);
            taken += 1;
        }
        self.read = read;
        if taken > 0 {
            self.publish_touched();
            self.sent(id, &sent);
            self.turn_over(id, now, may, sent.cost, taken);
            round.frames += taken;
        }
        taken > 0
    }

    /// Counts what a port has sent in one turn.
    fn sent(&mut self, id: PortId, sent: &Sent) {
        if let Some(port) = self.port_mut(id) {
            port.counters.sent += sent.frames;
            port.counters.sent_bytes += sent.bytes;
        }
    }

    /// What the frames of one turn have in common.
    fn source(&self, id: PortId, pair: usize) -> Option<Source> {
        let port = self.port(id)?;
        Some(Source {
            id,
            pair,
            settings: port.settings().clone(),
            header: port.negotiated.header,
            believed: port.wire.is_some(),
            up: port.is_up(),
            watched: port.watched.sent,
        })
    }

    fn dropped(&mut self, id: PortId, why: Dropped) {
        if let Some(port) = self.port_mut(id) {
            port.counters.drop_sent(why);
        }
    }
}

/// Tells who wants to know that a ring of this port is served no more.
fn tell(news: &Option<mpsc::Sender<PortEvent>>, id: PortId, why: RingError) {
    if let Some(news) = news {
        // Nobody may be there any more.
        let _ = news.send(PortEvent::Broken(id, why));
    }
}

/// A ring and how its driver is woken.
#[derive(Debug)]
pub struct Sending {
    /// The ring of frames from the guest.
    pub ring: Ring,
    /// What the driver waits on; `None`: it polls.
    pub call: Option<Arc<dyn Notify>>,
    /// Where it is said that the ring is broken.
    pub err: Option<Arc<dyn Notify>>,
}

impl Sending {
    /// Wakes the driver.
    fn wake(&self) {
        if let Some(call) = &self.call {
            call.signal();
        }
    }
}

#[cfg(test)]
mod tests;
