//! A run: every cell's samples in the balanced order, until there are enough or the time is up.
//!
//! What is decided, and when: which blocks fit into the time, after the warm-up told how long a sample takes, and again
//! before each round that an interval needs; how many samples an arm has at most, once, before the first round (the looks
//! are made of it); whether a block ends, at a look, by all samples taken until then. A run that is taken up again goes
//! through the same rounds, and passes over what was taken.

mod arm;
mod conclude;
mod lost;

use std::time::Duration;

use penstock_model::measurement::{Expectation, Measurements, Rules, StopReason, Subject};

pub use self::conclude::{Outcome, conclude};
use self::{arm::Arm, lost::Lost};
use crate::{
    event::Event,
    journal::Journal,
    matrix::Matrix,
    record::{Record, RecordOutcome},
    sampler::Sampler,
    schedule::{self, Waiting},
    statistics::{Confidence, InterimAnalyses, Look, median, samples_for_interval},
};

/// Samples of a cell that fail one after the other until it is given up: one may be bad luck, and a path that is down
/// makes each of them wait for its deadline.
const FAILURES: u32 = 2;
/// The share of the time that is planned for; the rest is for what the estimate misses. It can be small, because the
/// estimate is made anew before each round that counts.
const PLANNED: f64 = 0.98;
/// Seconds by which the last sample may pass the time that is allowed.
const GRACE: f64 = 0.5;

/// How a run is made.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOptions {
    /// When it stops measuring a cell, and when all. The time counts from the start of this run, making ready included, and
    /// is not shortened by a run that it goes on from.
    pub rules: Rules,
    /// What the order and the intervals are drawn from.
    pub seed: u64,
    /// Whether the machine is an emulated board.
    pub emulated: bool,
    /// Whether only the quick subset of the matrix was asked for.
    pub quick: bool,
    /// When the run started, in RFC 3339 text.
    pub started: String,
}

/// Makes a run: all cells of the matrix are prepared, sampled, and summarised; what fails is missing with its reason, and
/// the rest goes on. [`Sampler::finish`] is called whatever happened.
///
/// - `earlier`: the records of a run that this one goes on from. Rounds and positions go on where they were, and times after
///   the last of them. Samples that failed are taken anew.
/// - `journal`: is given each record as soon as there is one. When it fails that is noted once, and the run goes on.
/// - `clock`: seconds since the run's start.
/// - `interrupted`: asked before each sample. A sample that fails while it says yes was interrupted, and is not recorded.
#[allow(clippy::too_many_arguments, reason = "each is another part of the program, and they meet only here")]
pub fn run(
    matrix: &Matrix,
    options: &RunOptions,
    expect: &[Expectation],
    earlier: &[Record],
    sampler: &mut dyn Sampler,
    journal: &mut dyn Journal,
    observe: &mut dyn FnMut(&Event),
    clock: &dyn Fn() -> f64,
    interrupted: &dyn Fn() -> bool,
) -> Measurements {
    let mut run = Run {
        matrix,
        rules: options.rules,
        seed: options.seed,
        blocks: matrix.blocks(),
        priorities: matrix.priorities(expect),
        comparisons: matrix.comparisons().into_iter().map(|(base, other, _)| (base, other)).collect(),
        arms: matrix.cells.iter().map(Arm::new).collect(),
        records: earlier.to_vec(),
        position: earlier.iter().map(|record| record.position.saturating_add(1)).max().unwrap_or(0),
        before: earlier.iter().map(|record| record.at + record.seconds).fold(0.0, f64::max),
        overhead: Overhead::default(),
        lost: Lost::default(),
        looks: InterimAnalyses::new(&options.rules),
        outcome: Outcome::default(),
        sampler,
        journal: Some(journal),
        observe,
        clock,
        interrupted,
    };
    run.prepare();
    if let Err(halt) = run.sample_all() {
        run.stop_all(halt);
    }
    let complaints = run.sampler.finish();
    complaints.into_iter().for_each(|complaint| run.note(complaint));
    run.outcome.seconds = Some(run.before + clock());
    run.outcome.rules = Some(run.rules);
    conclude(matrix, options, expect, &run.records, &run.outcome)
}

/// Seconds to the microsecond: more digits are noise, and the last of them are not the same when they are read again.
fn microseconds(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// Seconds that samples took beside their dwell.
#[derive(Default)]
struct Overhead {
    warm_up: Vec<f64>,
    counting: Vec<f64>,
}

impl Overhead {
    /// Samples from which on a mean of those that count is better than what the warm-up told.
    const ENOUGH: usize = 8;

    /// The mean; at first the median, which a few cold starts do not move.
    fn expected(&self) -> f64 {
        if self.counting.len() >= Self::ENOUGH {
            return self.counting.iter().sum::<f64>() / self.counting.len() as f64;
        }
        let all: Vec<f64> = self.warm_up.iter().chain(&self.counting).copied().collect();
        median(&all).unwrap_or(schedule::OVERHEAD)
    }

    fn count(&mut self, seconds: f64, warm_up: bool) {
        if warm_up { &mut self.warm_up } else { &mut self.counting }.push(seconds.max(0.0));
    }
}

struct Run<'a> {
    matrix: &'a Matrix,
    /// Those asked for, with the maximum that fits into the time.
    rules: Rules,
    seed: u64,
    blocks: Vec<Vec<usize>>,
    priorities: Vec<u32>,
    /// What is compared inside a block.
    comparisons: Vec<(usize, usize)>,
    arms: Vec<Arm>,
    records: Vec<Record>,
    position: u32,
    /// Seconds that the run took which this one goes on from.
    before: f64,
    overhead: Overhead,
    lost: Lost,
    looks: InterimAnalyses,
    outcome: Outcome,
    sampler: &'a mut dyn Sampler,
    journal: Option<&'a mut dyn Journal>,
    observe: &'a mut dyn FnMut(&Event),
    clock: &'a dyn Fn() -> f64,
    interrupted: &'a dyn Fn() -> bool,
}

impl Run<'_> {
    fn note(&mut self, text: String) {
        (self.observe)(&Event::Note(text.clone()));
        self.outcome.notes.push(text);
    }

    fn prepare(&mut self) {
        let mut preparation = self.sampler.prepare(&self.matrix.cells);
        preparation.notes.iter().for_each(|note| (self.observe)(&Event::Note(note.clone())));
        for (arm, planned) in self.arms.iter_mut().zip(&self.matrix.cells) {
            arm.going = !preparation.missing.contains_key(&planned.id);
        }
        // A reason for a cell that is not in the matrix would be counted as missing.
        preparation.missing.retain(|id, _| self.matrix.cells.iter().any(|cell| cell.id == *id));
        self.outcome.preparation = preparation;
        let known = self.matrix.cells.iter().enumerate();
        for (at, planned) in known {
            let of_cell = self.records.iter().filter(|record| record.cell == planned.id);
            of_cell.for_each(|record| self.arms[at].earlier(planned, record));
        }
    }

    /// Warms up, fits the matrix to the time, and takes all samples.
    fn sample_all(&mut self) -> Result<(), StopReason> {
        self.settle();
        let warm_ups = self.warm_ups();
        self.tell_duration(warm_ups.len());
        for _ in 0..self.rules.warm_up {
            for cell in &warm_ups {
                if self.arms[*cell].going {
                    self.sample(*cell, 0, true)?;
                }
            }
        }
        self.fit();
        if self.rules.budget.is_some() || self.rules.warm_up > 0 {
            self.tell_duration(0);
        }
        let mut round = 1;
        while self.arms.iter().any(|arm| arm.going) {
            self.fit_again(round);
            for cell in schedule::round(&self.blocks, round, self.seed) {
                if self.arms[cell].wants(round) {
                    self.sample(cell, round, false)?;
                }
            }
            (0..self.blocks.len()).for_each(|block| self.look(block, round));
            round += 1;
        }
        Ok(())
    }

    /// Ends the blocks that have samples enough from an earlier run.
    fn settle(&mut self) {
        for block in 0..self.blocks.len() {
            let have = self.waiting(block).have;
            for at in self.looks.at().to_vec() {
                if at <= have {
                    self.look(block, at);
                }
            }
        }
    }

    /// The cells that are warmed up: of blocks that the time could be enough for.
    fn warm_ups(&self) -> Vec<usize> {
        let fits = self.fitting();
        let block_fits =
            |cell: usize| self.blocks.iter().zip(&fits).any(|(block, fits)| *fits && block.contains(&cell));
        self.matrix.warm_ups(|cell| self.arms[cell].going && block_fits(cell))
    }

    fn waiting(&self, block: usize) -> Waiting {
        let going = || self.blocks[block].iter().map(|cell| &self.arms[*cell]).filter(|arm| arm.going);
        let have = going().map(Arm::rounds).min().unwrap_or(0);
        Waiting { arms: going().count(), have, priority: self.priorities[block] }
    }

    /// Seconds that are left to plan with; `None` without a limit.
    fn left(&self) -> Option<f64> {
        Some((self.rules.budget? - (self.clock)()).max(0.0) * PLANNED)
    }

    fn seconds_a_sample(&self) -> f64 {
        schedule::sample(&self.rules, self.overhead.expected())
    }

    /// How many rounds an interval takes.
    fn needed(&self) -> u32 {
        (samples_for_interval(self.rules.confidence) as u32).min(self.rules.maximum.max(1))
    }

    fn fitting(&self) -> Vec<bool> {
        let Some(left) = self.left() else { return vec![true; self.blocks.len()] };
        let waiting: Vec<Waiting> = (0..self.blocks.len()).map(|block| self.waiting(block)).collect();
        schedule::fit(&waiting, self.needed(), self.seconds_a_sample(), left)
    }

    /// Leaves out the blocks that the time is not enough for, and fixes how many samples an arm has at most.
    fn fit(&mut self) {
        self.leave_out();
        let Some(left) = self.left() else { return };
        let blocks = (0..self.blocks.len()).map(|block| self.waiting(block));
        let blocks: Vec<Waiting> = blocks.filter(|block| block.arms > 0).collect();
        let most = self.rules.maximum.max(1);
        let have = blocks.iter().map(|block| block.have).max().unwrap_or(0);
        let fits = schedule::rounds_within(&blocks, self.seconds_a_sample(), left, most);
        self.rules.maximum = fits.max(self.needed()).max(have).min(most);
        self.looks = InterimAnalyses::new(&self.rules);
    }

    /// The same before a round without which there is no interval: what would not be finished is not gone on with.
    fn fit_again(&mut self, round: u32) {
        if (2..=self.needed()).contains(&round) {
            self.leave_out();
        }
    }

    fn leave_out(&mut self) {
        let Some(left) = self.left() else { return };
        let fits = self.fitting();
        let why = format!(
            "left out for want of time: {left:.0} s were left, and {} samples of each cell take longer; more with --time-limit",
            self.needed()
        );
        for (block, _) in self.blocks.clone().iter().zip(fits).filter(|(_, fits)| !fits) {
            for cell in block {
                if !self.arms[*cell].going {
                    continue;
                }
                let id = self.matrix.cells[*cell].id.clone();
                self.outcome.preparation.missing.insert(id, why.clone());
                self.stop(*cell, StopReason::TimeUp);
            }
        }
    }

    fn tell_duration(&mut self, warm_ups: usize) {
        let fits = self.fitting();
        let going = self.blocks.iter().zip(fits).filter(|(_, fits)| *fits).flat_map(|(block, _)| block);
        let cells = going.filter(|cell| self.arms[**cell].going).count();
        let rest = schedule::duration(
            cells,
            warm_ups,
            &Rules { budget: self.left(), ..self.rules },
            self.overhead.expected(),
        );
        let gone = (self.clock)();
        let duration = schedule::Duration { least: gone + rest.least, most: gone + rest.most };
        let missing = self.outcome.preparation.missing.len();
        let left_out = self.arms.iter().filter(|arm| arm.going).count() - cells;
        (self.observe)(&Event::Prepared { cells, missing: missing + left_out, duration });
    }

    /// Takes one sample and keeps it.
    fn sample(&mut self, cell: usize, round: u32, warm_up: bool) -> Result<(), StopReason> {
        if (self.interrupted)() {
            return Err(StopReason::Interrupted);
        }
        let begin = (self.clock)();
        if self.rules.budget.is_some_and(|budget| begin + self.seconds_a_sample() > budget + GRACE) {
            return Err(StopReason::TimeUp);
        }
        let planned = &self.matrix.cells[cell];
        let left = Some(self.rest());
        (self.observe)(&Event::Sampling {
            cell: planned.id.clone(),
            sample: self.arms[cell].taken + 1,
            at: self.before + begin,
            left,
        });
        let outcome = self.sampler.take(planned, Duration::from_millis(u64::from(self.rules.dwell_ms)));
        let seconds = (self.clock)() - begin;
        let outcome = match outcome {
            Ok(raw) => RecordOutcome::Ran(raw),
            Err(_) if (self.interrupted)() => return Err(StopReason::Interrupted),
            Err(why) => RecordOutcome::Failed(why),
        };
        let (id, position) = (planned.id.clone(), self.position);
        let (at, seconds) = (microseconds(self.before + begin), microseconds(seconds));
        let record = Record { cell: id, position, round, warm_up, at, seconds, outcome };
        self.position = self.position.saturating_add(1);
        self.keep(&record);
        self.count(cell, &record);
        self.records.push(record);
        Ok(())
    }

    fn keep(&mut self, record: &Record) {
        let Some(Err(why)) = self.journal.as_mut().map(|journal| journal.append(record)) else { return };
        // What comes after a line that was cut off could not be read again.
        self.journal = None;
        self.note(format!(
            "samples are not kept from position {} on, and a run could not be taken up after that: {why}",
            record.position
        ));
    }

    /// Takes a record into account: what it told, how long it took, and whether the cell goes on.
    fn count(&mut self, cell: usize, record: &Record) {
        let planned = &self.matrix.cells[cell];
        let metric = planned.measurement.main_metric();
        let reading = record.reading(&planned.measurement);
        if reading.is_ok() {
            self.overhead.count(record.seconds - f64::from(self.rules.dwell_ms) / 1e3, record.warm_up);
        }
        let value = reading.as_ref().ok().and_then(|reading| reading.values.get(&metric).copied());
        let why = match &reading {
            Ok(_) => value.is_none().then(|| format!("{} did not tell {metric}", planned.measurement.tool)),
            Err(why) => Some(why.clone()),
        };
        let arm = &mut self.arms[cell];
        arm.count(record, reading.is_ok(), value);
        let failed = arm.failed;
        let values = arm.values(u32::MAX);
        let interval = self.confidence().interval(&values, self.seed);
        let path = match &planned.measurement.subject {
            Subject::Network(network) => Some(network.path),
            Subject::Storage(_) => None,
        };
        (self.observe)(&Event::Sampled {
            cell: planned.id.clone(),
            path,
            metric,
            value,
            why: why.clone(),
            median: median(&values),
            interval,
            samples: values.len() as u32,
        });
        let why = why.unwrap_or_default();
        if self.lost.count(planned, reading.is_ok()) {
            self.give_up_path(cell, &why);
        } else if failed >= FAILURES {
            let note =
                format!("{} is given up after {failed} failures, one after the other: {why}", planned.id);
            (self.observe)(&Event::Note(note));
            self.stop(cell, StopReason::GivenUp);
        }
    }

    fn give_up_path(&mut self, cell: usize, why: &str) {
        let planned = &self.matrix.cells[cell];
        let Subject::Network(network) = &planned.measurement.subject else { return };
        let path = format!("{} {}>{}", network.path, network.client, network.server);
        self.note(format!("{path} is given up: everything on it failed, in the end with: {why}"));
        for other in 0..self.arms.len() {
            if self.arms[other].going && lost::same_path(planned, &self.matrix.cells[other]) {
                let id = self.matrix.cells[other].id.clone();
                let why = format!("{path} was given up, on which everything failed: {why}");
                self.outcome.preparation.missing.insert(id, why);
                self.stop(other, StopReason::GivenUp);
            }
        }
    }

    fn confidence(&self) -> Confidence {
        self.looks.confidence()
    }

    /// Seconds until every block that is going has all its samples, or the time is up.
    fn rest(&self) -> f64 {
        let waiting = (0..self.blocks.len()).map(|block| self.waiting(block));
        let samples = waiting.map(|w| w.arms as f64 * f64::from(self.rules.maximum.saturating_sub(w.have)));
        let seconds = samples.sum::<f64>() * self.seconds_a_sample();
        self.left().map_or(seconds, |left| seconds.min(left))
    }

    /// Ends a block after so many rounds, if that is a look and it is tight enough, or there are no more.
    fn look(&mut self, block: usize, round: u32) {
        let arms = self.blocks[block].clone();
        if !arms.iter().any(|cell| self.arms[*cell].going) {
            return;
        }
        let going: Vec<usize> = arms.iter().copied().filter(|cell| self.arms[*cell].going).collect();
        let last = self.looks.at().last().is_none_or(|last| round >= *last);
        let ends = last || (self.looks.at().contains(&round) && self.is_tight(&going, round));
        if !ends {
            return;
        }
        for cell in going {
            let tight = self.looks.at().contains(&round) && self.is_arm_tight(cell, round);
            self.stop(cell, if tight { StopReason::TightEnough } else { StopReason::SamplesUp });
        }
    }

    /// Whether the medians of these arms of a block, and the ratios between them, are tight enough.
    fn is_tight(&self, arms: &[usize], round: u32) -> bool {
        let ratio_tight = |(base, other): &(usize, usize)| {
            let pairs = self.arms[*base].pairs(&self.arms[*other], round);
            let ratio = self.confidence().ratio_paired(&pairs, self.seed);
            ratio.is_some_and(|ratio| self.looks.is_tight(&ratio))
        };
        let between = |(base, other): &&(usize, usize)| arms.contains(base) && arms.contains(other);
        arms.iter().all(|cell| self.is_arm_tight(*cell, round))
            && self.comparisons.iter().filter(between).all(ratio_tight)
    }

    fn is_arm_tight(&self, cell: usize, round: u32) -> bool {
        let interval = self.confidence().interval(&self.arms[cell].values(round), self.seed);
        self.looks.decide(round, interval.as_ref()) == Look::Stop(StopReason::TightEnough)
    }

    fn stop(&mut self, cell: usize, why: StopReason) {
        self.arms[cell].going = false;
        let cell = self.matrix.cells[cell].id.clone();
        (self.observe)(&Event::Stopped { cell: cell.clone(), why });
        self.outcome.stops.insert(cell, why);
    }

    fn stop_all(&mut self, why: StopReason) {
        for cell in 0..self.arms.len() {
            if self.arms[cell].going {
                self.stop(cell, why);
            }
        }
    }
}

#[cfg(test)]
mod tests;
