//! Frames from one guest of this process to another, through a switch that is frozen while another has the CPUs.

use std::{thread, time::Duration};

use super::{
    connection::SwitchEndpoint,
    front::{Front, HEADER},
    packets::addresses,
    processes::{self, Clock, GUESTS, SWITCH},
    supervisor::Workshop,
    switches::{self, Kind, Switch},
};

/// Entries of the guests' rings.
const ENTRIES: u16 = 1024;
/// Frames that are sent before those that came are looked at.
const BURST: usize = 32;
/// Where a frame says when it was due, from the beginning of its buffer: behind the addresses and the type.
const STAMP: usize = HEADER + 20;
/// A switch serves its guests within so many tries of a tenth of a second each.
const TRIES: usize = 100;

/// What is sent: the header of virtio, the frame's headers, and nothing in particular behind them.
pub struct Shape {
    /// The beginning, with the addresses first behind [`HEADER`] bytes.
    pub beginning: Vec<u8>,
    /// Bytes of the frame, [`HEADER`] included.
    pub length: usize,
    /// Buffers that it takes; more than one are a segment.
    pub buffers: u16,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    /// Frames that were sent.
    pub sent: u64,
    /// Bytes that came, all headers included.
    pub bytes: u64,
    /// Buffers that came: as many as frames if each takes one.
    pub buffers: u64,
    /// Cycles that each was under way since it was due, for those that tell.
    pub delays: Vec<u32>,
    /// For so long.
    pub seconds: f64,
    /// What the switch's thread had of its CPU then.
    pub core_seconds: f64,
}

/// A switch and two guests.
pub struct Flow {
    switch: Switch,
    from: Front,
    to: Front,
    shape: Shape,
}

impl Flow {
    /// Starts a switch, connects both guests, and freezes it when frames pass in both directions.
    pub fn start(kind: Kind, shape: Shape, workshop: &Workshop) -> Result<Flow, String> {
        let switch = switches::start(kind, workshop)?;
        let listens = switch.sockets.front_end_listens;
        let connect = |number: usize| {
            let path = switch.sockets.paths.get(number).ok_or("the switch has no such port")?;
            Front::connect(SwitchEndpoint { path, listens }, ENTRIES, shape.buffers)
        };
        let (from, to) = (connect(0)?, connect(1)?);
        let mut flow = Flow { switch, from, to, shape };
        let mut back = flow.shape.beginning.clone();
        back.get_mut(HEADER..HEADER + 12)
            .ok_or("a frame without addresses")?
            .copy_from_slice(&addresses(1, 0));
        flow.from.prepare(&flow.shape.beginning);
        flow.to.prepare(&back);
        flow.wait_until_served()?;
        flow.switch.polls.polls_on(SWITCH);
        flow.switch.program.freeze();
        Ok(flow)
    }

    fn wait_until_served(&mut self) -> Result<(), String> {
        let length = self.shape.length;
        for _ in 0..TRIES {
            for front in [&mut self.to, &mut self.from] {
                front.room();
                front.send(length, None);
                front.flush();
                thread::sleep(Duration::from_millis(50));
            }
            let came = [self.from.receive(STAMP, |_, _| {}), self.to.receive(STAMP, |_, _| {})];
            if came.iter().all(|count| *count > 0) {
                return Ok(());
            }
        }
        Err(format!("no frames of {length} bytes pass in both directions"))
    }

    /// Lets it run for so long, with so many frames in a second, or as many as there is room for.
    pub fn run(&mut self, time: Duration, rate: Option<f64>, clock: Clock) -> Result<Passed, String> {
        processes::let_others_run();
        self.switch.program.thaw();
        let Flow { switch, from, to, shape } = self;
        let had = switch.polls.cpu_seconds();
        let passed = thread::scope(|scope| {
            let poll = scope.spawn(|| {
                processes::polls_on(GUESTS);
                poll((from, to), shape, time, rate, clock)
            });
            poll.join().map_err(|_| "the guests' thread panicked".to_owned())
        });
        let core_seconds = switch.polls.cpu_seconds() - had;
        switch.program.freeze();
        let passed = Passed { core_seconds, ..passed? };
        match passed.buffers {
            0 => Err(format!("nothing came of {} frames of {} bytes", passed.sent, self.shape.length)),
            _ => Ok(passed),
        }
    }
}

fn poll(
    (from, to): (&mut Front, &mut Front),
    shape: &Shape,
    time: Duration,
    rate: Option<f64>,
    clock: Clock,
) -> Passed {
    // All of it is there before it is written to.
    let room = rate.map_or(0, |rate| (rate * time.as_secs_f64() * 1.1) as usize);
    let mut passed = Passed { delays: vec![1; room], ..Passed::default() };
    passed.delays.clear();
    let began = Clock::now();
    let whole = (time.as_secs_f64() * clock.0) as u64;
    let interval = rate.map(|rate| clock.0 / rate);
    // What is left in the rings of the run before tells nothing.
    to.receive(STAMP, |_, _| {});
    loop {
        let now = Clock::now();
        let since = now.saturating_sub(began);
        if since >= whole {
            passed.seconds = since as f64 / clock.0;
            return passed;
        }
        let due = interval.map_or(u64::MAX, |interval| (since as f64 / interval) as u64);
        let count = from.room().min(BURST).min(usize::try_from(due - passed.sent.min(due)).unwrap_or(BURST));
        for _ in 0..count {
            // When it should have been sent: what waits here for room in the ring was delayed too.
            let stamp = interval.map(|interval| (STAMP, began + (passed.sent as f64 * interval) as u64));
            from.send(shape.length, stamp);
            passed.sent += 1;
        }
        if count > 0 {
            from.flush();
        }
        let Passed { bytes, buffers, delays, .. } = &mut passed;
        to.receive(STAMP, |written, stamp| {
            *bytes += u64::from(written);
            *buffers += 1;
            if delays.len() < room && stamp >= began {
                delays.push(u32::try_from(Clock::now().saturating_sub(stamp)).unwrap_or(u32::MAX));
            }
        });
    }
}
