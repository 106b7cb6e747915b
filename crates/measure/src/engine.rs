//! The one engine of all runs: it makes ready, takes samples round by round, keeps each, and gives everything back.
//!
//! A [`Workload`] decides what depends on what is measured: the order of a round, which arms go on, and why a run ends. A
//! [`Sampler`] takes the samples. The engine does what is the same for all: rounds that an earlier run had are passed over, each
//! sample is in the journal before it counts, nothing begins that the time is not enough for, and an interrupt ends the run.

mod arm;

use std::{collections::BTreeSet, time::Duration};

pub use self::arm::Arm;
use crate::{
    event::Event,
    journal::Journal,
    record::{Record, RecordOutcome},
    sampler::{Failure, Preparation, Sampler},
};

/// Samples of an arm that fail one after the other until it is given up: one may be bad luck, and a path that is down
/// makes each of them wait for its deadline.
pub(crate) const FAILURES: u32 = 2;
/// Seconds by which the last sample may pass the time that is allowed.
pub(crate) const GRACE: f64 = 0.5;

/// Why the engine ends a run that its workload would go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The time is not enough for the next sample.
    TimeUp,
    /// Somebody interrupted it.
    Interrupted,
    /// Nothing can be measured any more.
    GivenUp,
}

/// What is measured, and what is decided by it. An arm is one of [`Workload::planned`], by its position there.
pub trait Workload {
    /// What the sampler is told of an arm.
    type Planned;
    /// A tool as the sampler finds it.
    type Tool;
    /// What the output of a sample tells.
    type Reading;
    /// What is told of a sample while the run goes on.
    type Told;
    /// Why a run ends.
    type Stop: From<Halt>;
    /// All that comes of a run.
    type Measured;

    /// The number of the first round that counts.
    const FIRST_ROUND: u32;
    /// What samples are called: "samples", "blocks".
    const SAMPLES: &'static str;

    /// All arms, in the order of the plan.
    fn planned(&self) -> &[Self::Planned];

    /// The name of an arm, by which its records are found again.
    fn id(planned: &Self::Planned) -> String;

    /// How long the tool of a sample measures.
    fn dwell(&self) -> Duration;

    /// Seconds that a sample will take.
    fn seconds_a_sample(&self) -> f64;

    /// Seconds that the run may take; `None` is no limit.
    fn budget(&self) -> Option<f64>;

    /// Seconds that the rest of the run will take, as far as can be told.
    fn rest(&self, run: &Run<'_, Self::Told>) -> Option<f64>;

    /// Takes in what making ready came to; says which arms are warmed up, in order.
    fn begin(&mut self, run: &mut Run<'_, Self::Told>, preparation: Preparation<Self::Tool>) -> Vec<usize>;

    /// The warm-up is over.
    fn warmed_up(&mut self, run: &mut Run<'_, Self::Told>);

    /// A round is about to begin.
    ///
    /// # Errors
    /// The reason, when the run ends here.
    fn before_round(&mut self, run: &mut Run<'_, Self::Told>, round: u32) -> Result<(), Self::Stop>;

    /// In which order the arms of a round are taken; those that need no sample are passed over.
    fn order(&self, round: u32) -> Vec<usize>;

    /// A round has ended.
    ///
    /// # Errors
    /// The reason, when the run ends here.
    fn after_round(&mut self, run: &mut Run<'_, Self::Told>, round: u32) -> Result<(), Self::Stop>;

    /// What a record of this arm tells.
    ///
    /// # Errors
    /// In words, why it tells nothing.
    fn read(&self, arm: usize, record: &Record) -> Result<Self::Reading, String>;

    /// Takes into account what a record of an earlier run tells.
    fn recall(&mut self, arm: usize, record: &Record, reading: Self::Reading);

    /// Takes into account what a new record tells, tells it, and ends the arm where it is to end.
    fn sampled(
        &mut self,
        run: &mut Run<'_, Self::Told>,
        arm: usize,
        record: &Record,
        reading: Result<Self::Reading, String>,
    );

    /// All samples were taken: `ended` is the error of one of the calls above, or none when no arm goes on.
    fn ended(&mut self, run: &mut Run<'_, Self::Told>, ended: Result<(), Self::Stop>);

    /// What came of it, all being given back.
    fn conclude(self, run: Ran) -> Self::Measured;
}

/// The parts of the program that meet in a run.
pub struct Parts<'a, W: Workload> {
    /// The records of a run that this one goes on from. Rounds and positions go on where they were, and times after the last of
    /// them. Samples that failed are taken anew.
    pub earlier: &'a [Record],
    /// Takes the samples; [`Sampler::finish`] is called whatever happened.
    pub sampler: &'a mut dyn Sampler<W::Planned, W::Tool>,
    /// Is given each record as soon as there is one. When it fails that is noted once, and the run goes on.
    pub journal: &'a mut dyn Journal,
    /// Is told what happens.
    pub observe: &'a mut dyn FnMut(&Event<W::Told>),
    /// Seconds since the run's start.
    pub clock: &'a dyn Fn() -> f64,
    /// Asked before each sample. A sample that fails while it says yes was interrupted, and is not recorded.
    pub interrupted: &'a dyn Fn() -> bool,
}

/// A run while it goes on.
pub struct Run<'a, T> {
    /// How far each arm is.
    pub arms: Vec<Arm>,
    notes: Vec<String>,
    observe: &'a mut dyn FnMut(&Event<T>),
    clock: &'a dyn Fn() -> f64,
}

/// A run of which all samples were taken.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// How far each arm came.
    pub arms: Vec<Arm>,
    /// All records, of the earlier run too.
    pub records: Vec<Record>,
    /// What the reader should know beside.
    pub notes: Vec<String>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl<T> Run<'_, T> {
    /// Tells what happened.
    pub fn tell(&mut self, event: Event<T>) {
        (self.observe)(&event);
    }

    /// Tells something that the reader of the results should know as well.
    pub fn note(&mut self, text: String) {
        self.tell(Event::Note(text.clone()));
        self.notes.push(text);
    }

    /// Seconds since the run's start.
    pub fn now(&self) -> f64 {
        (self.clock)()
    }

    /// Whether any arm goes on.
    pub fn goes_on(&self) -> bool {
        self.arms.iter().any(|arm| arm.going)
    }
}

/// Makes a run from its beginning to its end. What fails is missing with its reason, and the rest goes on.
pub fn run<W: Workload>(workload: W, parts: Parts<'_, W>) -> W::Measured {
    let Parts { earlier, sampler, journal, observe, clock, interrupted } = parts;
    let arms = workload.planned().iter().map(|planned| Arm::new(W::id(planned))).collect();
    let mut engine = Engine {
        workload,
        run: Run { arms, notes: Vec::new(), observe, clock },
        records: earlier.to_vec(),
        position: earlier.iter().map(|record| record.position.saturating_add(1)).max().unwrap_or(0),
        before: earlier.iter().map(|record| record.at + record.seconds).fold(0.0, f64::max),
        sampler,
        journal: Some(journal),
        interrupted,
    };
    engine.recall();
    let ended = engine.rounds();
    engine.workload.ended(&mut engine.run, ended);
    let complaints = engine.sampler.finish();
    complaints.into_iter().for_each(|complaint| engine.run.note(complaint));
    let Engine { workload, run, records, before, .. } = engine;
    workload.conclude(Ran { seconds: before + run.now(), arms: run.arms, records, notes: run.notes })
}

/// Seconds to the microsecond: more digits are noise, and the last of them are not the same when they are read again.
fn microseconds(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

struct Engine<'a, W: Workload> {
    workload: W,
    run: Run<'a, W::Told>,
    records: Vec<Record>,
    position: u32,
    /// Seconds that the run took which this one goes on from.
    before: f64,
    sampler: &'a mut dyn Sampler<W::Planned, W::Tool>,
    journal: Option<&'a mut dyn Journal>,
    interrupted: &'a dyn Fn() -> bool,
}

impl<W: Workload> Engine<'_, W> {
    /// Counts the records of an earlier run. One that failed leaves its round open: what it failed of may be mended.
    fn recall(&mut self) {
        for record in &self.records {
            let arms = self.run.arms.iter_mut().enumerate();
            for (at, arm) in arms.filter(|(_, arm)| arm.id == record.cell) {
                match self.workload.read(at, record) {
                    Ok(reading) => {
                        arm.count(record, true);
                        self.workload.recall(at, record, reading);
                    }
                    Err(_) => arm.taken += 1,
                }
            }
        }
    }

    fn rounds(&mut self) -> Result<(), W::Stop> {
        let mut preparation = self.sampler.prepare(self.workload.planned());
        std::mem::take(&mut preparation.notes).into_iter().for_each(|note| self.run.note(note));
        for arm in &mut self.run.arms {
            arm.missing = preparation.missing.remove(&arm.id);
            arm.going = arm.missing.is_none();
        }
        for arm in self.workload.begin(&mut self.run, preparation) {
            if self.run.arms[arm].going {
                self.sample(arm, 0, true)?;
            }
        }
        self.workload.warmed_up(&mut self.run);
        let mut round = W::FIRST_ROUND;
        while self.run.goes_on() {
            self.workload.before_round(&mut self.run, round)?;
            for arm in self.workload.order(round) {
                if self.run.arms[arm].wants(round) {
                    self.sample(arm, round, false)?;
                }
            }
            self.workload.after_round(&mut self.run, round)?;
            round += 1;
        }
        Ok(())
    }

    /// Takes one sample and keeps it.
    fn sample(&mut self, arm: usize, round: u32, warm_up: bool) -> Result<(), Halt> {
        if (self.interrupted)() {
            return Err(Halt::Interrupted);
        }
        let begin = self.run.now();
        let late = |budget: f64| begin + self.workload.seconds_a_sample() > budget + GRACE;
        if self.workload.budget().is_some_and(late) {
            return Err(Halt::TimeUp);
        }
        let cell = self.run.arms[arm].id.clone();
        let (sample, left) = (self.run.arms[arm].taken + 1, self.workload.rest(&self.run));
        self.run.tell(Event::Sampling { cell: cell.clone(), sample, round, at: self.before + begin, left });
        let taken = self.sampler.take(&self.workload.planned()[arm], self.workload.dwell());
        let seconds = self.run.now() - begin;
        let (outcome, machine) = match taken {
            Ok(raw) => (RecordOutcome::Ran(raw), None),
            Err(_) if (self.interrupted)() => return Err(Halt::Interrupted),
            Err(Failure::Sample(why)) => (RecordOutcome::Failed(why), None),
            Err(Failure::Machine(why)) => (RecordOutcome::Failed(why.clone()), Some(why)),
        };
        let (at, seconds) = (microseconds(self.before + begin), microseconds(seconds));
        let record = Record { cell, position: self.position, round, warm_up, at, seconds, outcome };
        self.position = self.position.saturating_add(1);
        self.keep(&record);
        let reading = self.workload.read(arm, &record);
        self.run.arms[arm].count(&record, reading.is_ok());
        self.workload.sampled(&mut self.run, arm, &record, reading);
        self.records.push(record);
        match machine {
            None => Ok(()),
            Some(why) => {
                self.run.note(format!("nothing more was measured: {why}"));
                Err(Halt::GivenUp)
            }
        }
    }

    fn keep(&mut self, record: &Record) {
        let Some(Err(why)) = self.journal.as_mut().map(|journal| journal.append(record)) else { return };
        // What comes after a line that was cut off could not be read again.
        self.journal = None;
        self.run.note(format!(
            "{} are not kept from position {} on, and a run could not be taken up after that: {why}",
            W::SAMPLES,
            record.position
        ));
    }
}

/// What there is to say of records of arms that a run has not; `None` where there are none. The names are what
/// samples and arms are called.
pub(crate) fn unknown(
    records: &[Record],
    known: impl Fn(&str) -> bool,
    [samples, arms]: [&str; 2],
) -> Option<String> {
    let ids: Vec<&str> = records.iter().map(|record| record.cell.as_str()).filter(|id| !known(id)).collect();
    let (first, distinct) = (ids.first()?, ids.iter().collect::<BTreeSet<_>>().len());
    let count = ids.len();
    Some(format!(
        "{count} {samples} of {distinct} {arms} that this run has not, like {first:?}, are passed over"
    ))
}
