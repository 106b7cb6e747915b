//! The one engine of all runs: it makes ready, takes samples round by round, keeps each, and gives everything back.
//!
//! A [`Workload`] decides what depends on what is measured: the order of a round, which arms go on, and why a run ends. A
//! [`Sampler`] takes the samples. The engine does what is the same for all: rounds that an earlier run had are passed over, each
//! sample is in the journal before it counts, nothing begins that the time is not enough for, and an interrupt ends the run.

mod arm_progress;

use std::{collections::BTreeSet, time::Duration};

pub use self::arm_progress::ArmProgress;
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

/// Bytes of output that a run keeps in memory and on disk. A guest that prints what it likes must not fill either: beyond it no
/// arm keeps more than its share. A run of an hour has some tens of megabytes.
const KEPT: u64 = 1 << 30;

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
    type Sample;
    /// Why a run ends.
    type Stop: From<Halt>;
    /// All that comes of a run.
    type Measured;

    /// The number of the first round that counts.
    const FIRST_ROUND: u32;
    /// What samples are called: "samples", "blocks".
    const SAMPLES: &'static str;
    /// Whether outputs are read again in the end; else none stays in memory once it was read.
    const READ_AGAIN: bool;

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
    fn rest(&self, run: &Run<'_, Self::Sample>) -> Option<f64>;

    /// Takes in what making ready came to; says which arms are warmed up, in order.
    fn begin(&mut self, run: &mut Run<'_, Self::Sample>, preparation: Preparation<Self::Tool>) -> Vec<usize>;

    /// The warm-up is over.
    fn warmed_up(&mut self, run: &mut Run<'_, Self::Sample>);

    /// A round is about to begin.
    ///
    /// # Errors
    /// The reason, when the run ends here.
    fn before_round(&mut self, run: &mut Run<'_, Self::Sample>, round: u32) -> Result<(), Self::Stop>;

    /// In which order the arms of a round are taken; those that need no sample are passed over.
    fn order(&self, round: u32) -> Vec<usize>;

    /// A round has ended.
    ///
    /// # Errors
    /// The reason, when the run ends here.
    fn after_round(&mut self, run: &mut Run<'_, Self::Sample>, round: u32) -> Result<(), Self::Stop>;

    /// What a record of this arm tells.
    ///
    /// # Errors
    /// In words, why it tells nothing.
    fn read(&self, arm: usize, record: &Record) -> Result<Self::Reading, String>;

    /// Takes into account what a record of an earlier run tells.
    fn recall(&mut self, arm: usize, record: &Record, reading: Self::Reading);

    /// Takes into account that a record of an earlier run tells nothing, because of this.
    fn recall_failed(&mut self, _arm: usize, _record: &Record, _why: String) {}

    /// Takes into account what a new record tells, tells it, and ends the arm where it is to end.
    fn sampled(
        &mut self,
        run: &mut Run<'_, Self::Sample>,
        arm: usize,
        record: &Record,
        reading: Result<Self::Reading, String>,
    );

    /// All samples were taken: `ended` is the error of one of the calls above, or none when no arm goes on.
    fn ended(&mut self, run: &mut Run<'_, Self::Sample>, ended: Result<(), Self::Stop>);

    /// What came of it, all being given back.
    fn conclude(self, run: Run<'_, Self::Sample>) -> Self::Measured;
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
    pub observe: &'a mut dyn FnMut(&Event<W::Sample>),
    /// Seconds since the run's start.
    pub clock: &'a dyn Fn() -> f64,
    /// Asked before each sample. A sample that fails while it says yes was interrupted, and is not recorded.
    pub interrupted: &'a dyn Fn() -> bool,
}

/// A run while it goes on.
pub struct Run<'a, T> {
    /// How far each arm is.
    pub arms: Vec<ArmProgress>,
    /// All records so far, of the earlier run too.
    pub records: Vec<Record>,
    /// What the reader should know beside.
    pub notes: Vec<String>,
    position: u32,
    /// Bytes of output that are kept.
    kept: u64,
    /// Bytes that may be, before no arm has more than its share.
    most: u64,
    /// Seconds that the run took which this one goes on from.
    before: f64,
    journal: Option<&'a mut dyn Journal>,
    observe: &'a mut dyn FnMut(&Event<T>),
    clock: &'a dyn Fn() -> f64,
    interrupted: &'a dyn Fn() -> bool,
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

    /// Seconds that it took so far, with those of the run that it goes on from.
    pub fn seconds(&self) -> f64 {
        self.before + self.now()
    }

    /// Counts the bytes of an output of this arm, when they can be kept.
    fn account(&mut self, arm: usize, bytes: u64) -> Result<(), String> {
        let arms = self.arms.len() as u64;
        let arm = &mut self.arms[arm];
        if self.kept + bytes > self.most && arm.kept + bytes > self.most / arms {
            return Err(format!(
                "its tool printed {bytes} bytes, {} with the samples before, and the samples of a run may have {} together",
                arm.kept + bytes,
                self.most
            ));
        }
        arm.kept += bytes;
        self.kept += bytes;
        Ok(())
    }

    /// Keeps a record in the journal.
    fn keep(&mut self, record: &Record, samples: &str) {
        let Some(Err(why)) = self.journal.as_mut().map(|journal| journal.append(record)) else { return };
        // What comes after a line that was cut off could not be read again.
        self.journal = None;
        self.note(format!(
            "{samples} are not kept from position {} on, and a run could not be taken up after that: {why}",
            record.position
        ));
    }
}

/// Makes a run from its beginning to its end. What fails is missing with its reason, and the rest goes on.
pub fn run<W: Workload>(mut workload: W, parts: Parts<'_, W>) -> W::Measured {
    let Parts { earlier, sampler, journal, observe, clock, interrupted } = parts;
    let mut run = Run {
        arms: workload.planned().iter().map(|planned| ArmProgress::new(W::id(planned))).collect(),
        records: earlier.to_vec(),
        notes: Vec::new(),
        kept: 0,
        most: KEPT,
        position: earlier.iter().map(|record| record.position.saturating_add(1)).max().unwrap_or(0),
        before: earlier.iter().map(|record| record.at + record.seconds).fold(0.0, f64::max),
        journal: Some(journal),
        observe,
        clock,
        interrupted,
    };
    recall(&mut workload, &mut run);
    let ended = rounds(&mut workload, &mut run, sampler);
    workload.ended(&mut run, ended);
    sampler.finish().into_iter().for_each(|complaint| run.note(complaint));
    workload.conclude(run)
}

/// Seconds to the microsecond: more digits are noise, and the last of them are not the same when they are read again.
fn microseconds(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// Counts the records of an earlier run. One that failed leaves its round open: what it failed of may be mended.
fn recall<W: Workload>(workload: &mut W, run: &mut Run<'_, W::Sample>) {
    for record in &run.records {
        let arms = run.arms.iter_mut().enumerate();
        for (at, arm) in arms.filter(|(_, arm)| arm.id == record.cell) {
            if let RecordOutcome::Ran(raw) = &record.outcome {
                let bytes = raw.weight();
                arm.kept += bytes;
                run.kept += bytes;
            }
            match workload.read(at, record) {
                Ok(reading) => {
                    arm.count(record, true);
                    workload.recall(at, record, reading);
                }
                Err(why) => {
                    arm.taken += 1;
                    workload.recall_failed(at, record, why);
                }
            }
        }
    }
}

fn rounds<W: Workload>(
    workload: &mut W,
    run: &mut Run<'_, W::Sample>,
    sampler: &mut dyn Sampler<W::Planned, W::Tool>,
) -> Result<(), W::Stop> {
    let mut preparation = sampler.prepare(workload.planned());
    std::mem::take(&mut preparation.notes).into_iter().for_each(|note| run.note(note));
    for arm in &mut run.arms {
        arm.missing = preparation.missing.remove(&arm.id);
        arm.going = arm.missing.is_none();
    }
    for arm in workload.begin(run, preparation) {
        if run.arms[arm].going {
            sample(workload, run, sampler, arm, None)?;
        }
    }
    workload.warmed_up(run);
    let mut round = W::FIRST_ROUND;
    while run.arms.iter().any(|arm| arm.going) {
        workload.before_round(run, round)?;
        for arm in workload.order(round) {
            if run.arms[arm].wants(round) {
                sample(workload, run, sampler, arm, Some(round))?;
            }
        }
        workload.after_round(run, round)?;
        round += 1;
    }
    Ok(())
}

/// Takes one sample and keeps it: of a round, or for warm-up.
fn sample<W: Workload>(
    workload: &mut W,
    run: &mut Run<'_, W::Sample>,
    sampler: &mut dyn Sampler<W::Planned, W::Tool>,
    arm: usize,
    round: Option<u32>,
) -> Result<(), Halt> {
    if (run.interrupted)() {
        return Err(Halt::Interrupted);
    }
    let begin = run.now();
    let late = |budget: f64| begin + workload.seconds_a_sample() > budget + GRACE;
    if workload.budget().is_some_and(late) {
        return Err(Halt::TimeUp);
    }
    let (warm_up, round) = (round.is_none(), round.unwrap_or(0));
    let (cell, sample, left) = (run.arms[arm].id.clone(), run.arms[arm].taken + 1, workload.rest(run));
    run.tell(Event::Sampling { cell: cell.clone(), sample, round, at: run.before + begin, left });
    sampler.enter_round(round);
    let taken = sampler.take(&workload.planned()[arm], workload.dwell());
    let seconds = run.now() - begin;
    let (outcome, machine) = match taken {
        Ok(raw) => match run.account(arm, raw.weight()) {
            Ok(()) => (RecordOutcome::Ran(raw), None),
            Err(why) => (RecordOutcome::Failed(why), None),
        },
        Err(_) if (run.interrupted)() => return Err(Halt::Interrupted),
        Err(Failure::Sample(why)) => (RecordOutcome::Failed(why), None),
        Err(Failure::Machine(why)) => (RecordOutcome::Failed(why.clone()), Some(why)),
    };
    let (at, seconds) = (microseconds(run.before + begin), microseconds(seconds));
    let mut record = Record { cell, position: run.position, round, warm_up, at, seconds, outcome };
    run.position = run.position.saturating_add(1);
    run.keep(&record, W::SAMPLES);
    let reading = workload.read(arm, &record);
    run.arms[arm].count(&record, reading.is_ok());
    workload.sampled(run, arm, &record, reading);
    if let (false, RecordOutcome::Ran(raw)) = (W::READ_AGAIN, &mut record.outcome) {
        (raw.stdout, raw.stderr) = (String::new(), String::new());
    }
    run.records.push(record);
    let Some(why) = machine else { return Ok(()) };
    run.note(format!("nothing more was measured: {why}"));
    Err(Halt::GivenUp)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_that_prints_without_end_is_stopped_and_the_others_are_not() {
        let arms = ["loud", "quiet"].map(|id| ArmProgress::new(id.to_owned())).to_vec();
        let mut run: Run<'_, ()> = Run {
            arms,
            records: Vec::new(),
            notes: Vec::new(),
            position: 0,
            kept: 0,
            most: 1000,
            before: 0.0,
            journal: None,
            observe: &mut |_| {},
            clock: &|| 0.0,
            interrupted: &|| false,
        };
        assert_eq!(run.account(0, 900), Ok(()), "there is room");
        let why = run.account(0, 200).unwrap_err();
        assert!(why.contains("200 bytes, 1100 with"), "{why}");
        assert_eq!(run.account(1, 400), Ok(()), "it has not had its share");
        assert!(run.account(1, 400).is_err());
        assert_eq!((run.kept, run.arms[0].kept, run.arms[1].kept), (1300, 900, 400));
    }
}
