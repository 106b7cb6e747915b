//! Guests that a switch never waits for: what they send is prepared, and all that they do for a frame is to write to its first line, and
//! to read the first line of each that comes, as guests that look at headers do.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use penstock_switch::{copy, features};

use super::{
    connection::{Connection, FROM_GUEST, SwitchEndpoint, TO_GUEST},
    format::Format,
    prepared_pair::PreparedPair,
    processes::{self, GUESTS},
    testpmd::Sockets,
};

/// Entries of a guest's rings.
pub const ENTRIES: u64 = 1024;
/// Frames that are under way at most in each direction: there is room for all of them wherever they are.
const WINDOW: u64 = 512;
/// Buffers that are looked at in one turn of a ring.
const BATCH: u64 = 64;
/// A switch that has fewer frames left than it takes at a time may be about to wait for its guests.
const SHORT: u64 = 32;
/// Within this the frames that are under way arrive, when no more are sent.
const DRAIN: Duration = Duration::from_millis(100);

/// A guest.
struct Guest {
    // Before its memory, so that the switch lets go first.
    connection: Connection,
    pair: PreparedPair,
}

impl Guest {
    fn connect(endpoint: SwitchEndpoint<'_>, format: Format) -> Result<Guest, String> {
        let mut pair = PreparedPair::new(format, ENTRIES)?;
        pair.receiving.offer(&pair.memory, ENTRIES);
        let mut wanted = features::VERSION_1;
        match format {
            Format::Split => wanted |= features::MERGEABLE,
            Format::Packed => wanted |= features::MERGEABLE | features::PACKED,
            Format::PackedSingle => wanted |= features::PACKED,
        }
        let parts = [pair.receiving.parts(), pair.sending.parts()];
        let connection = Connection::open(endpoint, wanted, &pair.memory, ENTRIES as u16, parts)?;
        Ok(Guest { connection, pair })
    }

    /// Takes what came; says how many frames that were.
    fn receive(&mut self) -> u64 {
        let Guest { connection, pair } = self;
        let count = pair.receiving.used(&pair.memory, BATCH);
        if count == 0 {
            return 0;
        }
        let first = pair.receiving.next_used();
        let each = first..first + count;
        each.clone()
            .for_each(|number| copy::prefetch_at(pair.memory.at::<u64>(pair.receiving.buffer(number))));
        each.for_each(|number| pair.read(number));
        pair.receiving.take(count);
        pair.receiving.offer(&pair.memory, count);
        if pair.receiving.wants_kick(&pair.memory) {
            connection.kick(TO_GUEST);
        }
        count
    }

    /// Sees what was sent, and says how many frames the switch has not taken yet.
    fn reclaim(&mut self) -> u64 {
        let PreparedPair { memory, sending, .. } = &mut self.pair;
        let count = sending.used(memory, ENTRIES);
        sending.take(count);
        sending.outstanding()
    }

    /// Sends so many frames if there is room, at most [`BATCH`]; says how many.
    fn send(&mut self, most: u64) -> u64 {
        let Guest { connection, pair } = self;
        let count = most.min(BATCH).min(ENTRIES - pair.sending.outstanding());
        let first = pair.sending.next();
        let each = first..first + count;
        each.clone()
            .for_each(|number| copy::prefetch_owned(pair.memory.at::<u64>(pair.sending.buffer(number))));
        each.for_each(|number| pair.mark(number));
        if count > 0 {
            pair.sending.offer(&pair.memory, count);
        }
        // Looked at in every turn: one that was missed comes soon.
        if pair.sending.outstanding() > 0 && pair.sending.wants_kick(&pair.memory) {
            connection.kick(FROM_GUEST);
        }
        count
    }

    fn in_order(&self) -> Result<(), String> {
        self.pair.receiving.in_order(&self.pair.memory)?;
        self.pair.sending.in_order(&self.pair.memory)
    }
}

/// What was counted since a run began.
#[derive(Debug, Default)]
pub struct Counts {
    received: [AtomicU64; 2],
    looks: AtomicU64,
    short: AtomicU64,
}

/// What was counted up to some moment.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Frames that each guest has got.
    pub received: [u64; 2],
    /// Times that the guests looked at their rings.
    pub looks: u64,
    /// Those at which the switch had no full batch of frames left: it may have waited for them.
    pub short: u64,
    /// The moment.
    pub when: Instant,
}

impl Counts {
    /// So far.
    pub fn now(&self) -> Counted {
        let [first, second] = &self.received;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counted {
            received: [read(first), read(second)],
            looks: read(&self.looks),
            short: read(&self.short),
            when: Instant::now(),
        }
    }
}

/// Two guests that send each other what they can.
pub struct Guests([Guest; 2]);

impl Guests {
    /// Connects both.
    pub fn start(format: Format, sockets: &Sockets) -> Result<Guests, String> {
        let listens = sockets.front_end_listens;
        let guest = |number: usize| {
            let path = sockets.paths.get(number).ok_or("the switch has no such port")?;
            Guest::connect(SwitchEndpoint { path, listens }, format)
        };
        Ok(Guests([guest(0)?, guest(1)?]))
    }

    fn prepare(&mut self, size: usize) {
        let Guests([first, second]) = self;
        first.pair.prepare(0, 1, size);
        second.pair.prepare(1, 0, size);
    }

    /// Waits until frames pass in both directions.
    ///
    /// # Errors
    /// When none do within `time`.
    pub fn wait_until_served(&mut self, time: Duration) -> Result<(), String> {
        self.prepare(64);
        let (until, mut received) = (Instant::now() + time, [0, 0]);
        loop {
            for (guest, received) in self.0.iter_mut().zip(&mut received) {
                guest.reclaim();
                guest.send(1);
                thread::sleep(Duration::from_millis(20));
                *received += guest.receive();
            }
            if received.iter().all(|count| *count > 0) {
                return self.drain();
            }
            if Instant::now() > until {
                return Err(format!("no frames pass; the guests have got {received:?} so far"));
            }
        }
    }

    /// Has what is under way arrive.
    fn drain(&mut self) -> Result<(), String> {
        let until = Instant::now() + DRAIN;
        loop {
            let arrived = self.0.iter_mut().map(Guest::receive).sum::<u64>();
            let left = self.0.iter_mut().map(Guest::reclaim).sum::<u64>();
            if left + arrived == 0 {
                return self.0.iter().try_for_each(Guest::in_order);
            }
            if Instant::now() > until {
                return Err(format!("the switch does not take the last {left} frames"));
            }
        }
    }

    /// Sends frames of `size` bytes in both directions for as long as `count` takes.
    ///
    /// # Errors
    /// What `count` says; or that frames were lost, or buffers not used in their order.
    pub fn run<T>(
        &mut self,
        size: usize,
        count: impl FnOnce(&Counts) -> Result<T, String>,
    ) -> Result<T, String> {
        self.prepare(size);
        let (counts, ended) = (Counts::default(), AtomicBool::new(false));
        let (outcome, lost) = thread::scope(|scope| {
            let poll = scope.spawn(|| {
                processes::polls_on(GUESTS);
                self.poll(&counts, &ended)
            });
            let outcome = count(&counts);
            ended.store(true, Ordering::Relaxed);
            (outcome, poll.join().unwrap_or_else(|_| Err("the guests' thread panicked".to_owned())))
        });
        let outcome = outcome?;
        match lost? {
            0 => Ok(outcome),
            lost => Err(format!("{lost} frames of {size} bytes were lost")),
        }
    }

    /// Polls until it is `ended`; says how many frames did not arrive.
    fn poll(&mut self, counts: &Counts, ended: &AtomicBool) -> Result<u64, String> {
        let Guests([first, second]) = self;
        let (mut sent, mut received) = ([0_u64; 2], [0_u64; 2]);
        let (mut looks, mut short) = (0, 0);
        while !ended.load(Ordering::Relaxed) {
            received[0] += first.receive();
            received[1] += second.receive();
            let left = first.reclaim() + second.reclaim();
            sent[0] += first.send(WINDOW.saturating_sub(sent[0] - received[1]));
            sent[1] += second.send(WINDOW.saturating_sub(sent[1] - received[0]));
            looks += 1;
            short += u64::from(left < SHORT);
            let [to_first, to_second] = &counts.received;
            to_first.store(received[0], Ordering::Relaxed);
            to_second.store(received[1], Ordering::Relaxed);
            counts.looks.store(looks, Ordering::Relaxed);
            counts.short.store(short, Ordering::Relaxed);
        }
        let until = Instant::now() + DRAIN;
        while sent.iter().sum::<u64>() > received.iter().sum() && Instant::now() < until {
            received[0] += first.receive();
            received[1] += second.receive();
        }
        self.drain()?;
        Ok(sent.iter().sum::<u64>() - received.iter().sum::<u64>())
    }
}
