//! A second worker of ours: row `workers`. Both CPUs are the workers', so nobody is a guest meanwhile: rings are filled before each run, and
//! what is counted are the cycles until all of their frames are delivered. Each worker's rings are filled on the other's CPU, since guests
//! have CPUs of their own too.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use penstock_switch::{
    copy,
    engine::{Engine, GivenRing, Negotiated, Port, worker_of},
    eventfd::Notify,
    net::{Mac, Tag},
    ring::{Layout, Packed, Ring, Split},
    settings::{PortVlan, Settings, TagKind},
};
use serde_json::json;

use super::{
    choice::Choice,
    format::Format,
    prepared_pair::PreparedPair,
    prepared_ring::PreparedRing,
    processes::{self, Clock, GUESTS, SWITCH},
    report::{Bar, Report, Row, Spread},
    supervisor::Workshop,
};

/// Workers, CPUs, ports, and pairs of rings of each port.
const TWO: usize = 2;
/// Entries of each ring.
const ENTRIES: u64 = 1024;
/// Bytes of a frame.
const SIZE: usize = 64;
/// Runs one after the other, in all less than what the kernel lets others wait for a CPU.
const RUNS: usize = 400;

/// A worker that polls need not be woken.
#[derive(Debug)]
struct Polls;

impl Notify for Polls {
    fn signal(&self) {}
}

/// Measures it with split and with packed rings.
pub fn measure(choice: &Choice, workshop: &Workshop, report: &mut Report) {
    if !choice.wants("workers") {
        return;
    }
    for format in [Format::Split, Format::PackedSingle] {
        report.attempt(&format!("workers, {} ring", format.name()), workshop, |report| {
            compare(format, choice.pairs, report)
        });
    }
}

/// The switch's side of either ring.
fn rings(pair: &PreparedPair, format: Format) -> Result<[Ring; 2], String> {
    let memory = pair.memory.mapped_again()?;
    let ring = |prepared: &PreparedRing| {
        let parts = prepared.parts();
        let layout = Layout {
            entries: ENTRIES as u16,
            descriptors: parts.descriptors as u64,
            driver: parts.driver as u64,
            device: parts.device as u64,
            event_index: false,
        };
        let base = u32::from(parts.base);
        match format {
            Format::Split => Split::new(&memory, &layout, base).map(Ring::Split),
            Format::Packed | Format::PackedSingle => Packed::new(&memory, &layout, base).map(Ring::Packed),
        }
        .map_err(|error| format!("a ring could not be served: {error}"))
    };
    Ok([ring(&pair.receiving)?, ring(&pair.sending)?])
}

/// Takes what came and what was sent, and fills both rings.
fn fill(pair: &mut PreparedPair) {
    let came = pair.receiving.used(&pair.memory, ENTRIES);
    let first = pair.receiving.next_used();
    for number in first..first + came {
        copy::prefetch_at(pair.memory.at::<u64>(pair.receiving.buffer(number + 16)));
        pair.read(number);
    }
    pair.receiving.take(came);
    let sent = pair.sending.used(&pair.memory, ENTRIES);
    pair.sending.take(sent);
    let next = pair.sending.next();
    (next..next + ENTRIES - pair.sending.outstanding()).for_each(|number| pair.mark(number));
    for ring in [&mut pair.receiving, &mut pair.sending] {
        ring.offer(&pair.memory, ENTRIES - ring.outstanding());
    }
}

/// A switch of one worker or two, with two ports of two pairs each.
struct Rig {
    engines: Vec<Engine>,
    /// By port and pair.
    lanes: Vec<Vec<PreparedPair>>,
}

impl Rig {
    fn new(workers: usize, format: Format) -> Result<Rig, String> {
        let bells: Vec<Arc<dyn Notify>> = (0..workers).map(|_| Arc::new(Polls) as _).collect();
        let mut engines = Engine::connected(&bells);
        let knows = Negotiated { mergeable: format != Format::PackedSingle, ..Negotiated::default() };
        let mut lanes = Vec::new();
        for id in 0..TWO as u8 {
            let settings = Settings {
                macs: vec![Mac::new([2, 0, 0, 0, 0, id])],
                vlan: Some(PortVlan { tag: Tag { vlan: 100, priority: 0 }, kind: TagKind::Customer }),
                spoofchk: true,
                ..Settings::default()
            };
            for (engine, port) in engines.iter_mut().zip(Port::for_each_worker(&settings, workers)) {
                engine.set_port(id.into(), Some(Box::new(port)));
            }
            let mut pairs = Vec::new();
            for pair in 0..TWO {
                let mut lane = PreparedPair::new(format, ENTRIES)?;
                lane.prepare(id, 1 - id, SIZE);
                for (ring, index) in rings(&lane, format)?.into_iter().zip(2 * pair as u32..) {
                    let mut ring = Some(GivenRing { ring, call: None, err: None });
                    for (worker, engine) in engines.iter_mut().enumerate() {
                        match ring.take_if(|_| worker == worker_of(pair, workers)) {
                            Some(ring) => engine.put_ring(id.into(), index, knows, ring),
                            None => engine.note_ring(id.into(), index, knows),
                        }
                    }
                }
                pairs.push(lane);
            }
            lanes.push(pairs);
        }
        Ok(Rig { engines, lanes })
    }

    /// Cycles until all frames of all rings were delivered, of each of some runs; the slower worker's, where there are two.
    fn run(&mut self) -> Result<Vec<u64>, String> {
        processes::let_others_run();
        let meeting = Meeting::default();
        let workers = self.engines.len();
        // The lanes of one pair are one worker's, and are filled by the other CPU.
        let mut of_pair: Vec<Vec<&mut PreparedPair>> = (0..TWO).map(|_| Vec::new()).collect();
        for pairs in &mut self.lanes {
            pairs.iter_mut().zip(&mut of_pair).for_each(|(lane, all)| all.push(lane));
        }
        let mut engines: Vec<Option<&mut Engine>> = self.engines.iter_mut().map(Some).collect();
        engines.resize_with(TWO, || None);
        // A single worker is the second CPU's, and all of its rings are filled by the first.
        engines.rotate_right(TWO - workers);
        let mut fillers: Vec<Vec<&mut PreparedPair>> = match workers {
            1 => vec![of_pair.into_iter().flatten().collect(), Vec::new()],
            _ => of_pair.into_iter().rev().collect(),
        };
        let frames = (TWO * TWO) as u64 * ENTRIES / workers as u64;
        let all: Vec<Vec<u64>> = thread::scope(|scope| {
            let work = engines.iter_mut().zip(&mut fillers).zip([GUESTS, SWITCH]);
            let threads: Vec<_> = work
                .map(|((engine, lanes), cpu)| {
                    let meeting = &meeting;
                    scope.spawn(move || {
                        processes::polls_on(cpu);
                        (0..RUNS).map(|_| one_run(engine.as_deref_mut(), lanes, frames, meeting)).collect()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
        });
        let [first, second] = all.as_slice() else { return Err("two threads were started".to_owned()) };
        if first.len() != RUNS || second.len() != RUNS {
            return Err("a worker's thread panicked".to_owned());
        }
        // What lay in the rings before the first run was fetched by nobody.
        Ok(first.iter().zip(second).skip(1).map(|(first, second)| *first.max(second)).collect())
    }
}

/// Fills some rings, meets the other thread, and serves what the other has filled, until so many frames are taken.
fn one_run(
    engine: Option<&mut Engine>,
    lanes: &mut [&mut PreparedPair],
    frames: u64,
    meeting: &Meeting,
) -> u64 {
    lanes.iter_mut().for_each(|lane| fill(lane));
    meeting.meet();
    let began = Clock::now();
    let mut taken = 0;
    if let Some(engine) = engine {
        while taken < frames {
            taken += engine.round(0).frames as u64;
        }
    }
    let cycles = if taken > 0 { Clock::now() - began } else { 0 };
    meeting.meet();
    cycles
}

/// Where two threads wait for each other without giving up their CPUs.
#[derive(Debug, Default)]
struct Meeting(AtomicUsize);

impl Meeting {
    fn meet(&self) {
        let arrived = self.0.fetch_add(1, Ordering::AcqRel) + 1;
        let all = arrived.next_multiple_of(TWO);
        while self.0.load(Ordering::Acquire) < all {
            std::hint::spin_loop();
        }
    }
}

fn compare(format: Format, pairs: usize, report: &mut Report) -> Result<(), String> {
    let (mut one, mut two) = (Rig::new(1, format)?, Rig::new(TWO, format)?);
    let mut samples: Vec<[f64; 2]> = Vec::new();
    for turn in 0..pairs {
        let median =
            |rig: &mut Rig| Ok::<_, String>(Spread::of(rig.run()?.into_iter().map(|run| run as f64)).median);
        let sample = [median(&mut one)?, median(&mut two)?];
        report.progress(&format!(
            "workers, {} ring, {}: {:.0} against {:.0} cycles for all frames",
            format.name(),
            turn + 1,
            sample[1],
            sample[0]
        ));
        samples.push(sample);
    }
    let delivered: Vec<u64> = one
        .lanes
        .iter_mut()
        .chain(&mut two.lanes)
        .flatten()
        .map(|lane| lane.receiving.used(&lane.memory, ENTRIES))
        .collect();
    if delivered.iter().any(|count| *count != ENTRIES) {
        return Err(format!("of {ENTRIES} frames each, the last run delivered {delivered:?}"));
    }
    let frames = (TWO * TWO) as f64 * ENTRIES as f64;
    let of = |part: &dyn Fn(&[f64; 2]) -> f64| Spread::of(samples.iter().map(part));
    let rate = |cycles: f64| frames * report.clock.0 / cycles / 1e6;
    report.add(Row {
        what: format!("64 B, {} ring, two workers", format.name()),
        ours: format!("{:.2} Mpps", rate(of(&|sample| sample[1]).median)),
        other: format!("one: {:.2} Mpps", rate(of(&|sample| sample[0]).median)),
        value: of(&|[one, two]| one / two),
        bar: Bar::AtLeast(1.8),
        samples: samples.iter().map(|[one, two]| json!({"one": one, "two": two})).collect(),
    });
    Ok(())
}
