//! The cells of the network and of storage as a workload: samples in the balanced order, until there are enough or the time is up.
//!
//! What is decided, and when: which blocks fit into the time, after the warm-up told how long a sample takes, and again
//! before each round that an interval needs; how many samples an arm has at most, once, before the first round (the looks
//! are made of it); whether a block ends, at a look, by all samples taken until then. A run that is taken up again goes
//! through the same rounds, and passes over what was taken.

mod conclude;
mod lost;

use std::{collections::BTreeMap, time::Duration};

use penstock_model::measurement::{Expectation, Measurements, Rules, StopReason, ToolVersion};
use penstock_statistics::{Confidence, InterimAnalyses, Look, median, samples_for_interval};

pub use self::conclude::{Outcome, conclude};
use self::lost::Lost;
use crate::{
    engine::{ArmProgress, FAILURES, Halt, Run, Workload},
    event::{CellSample, Event},
    matrix::{Matrix, Planned},
    parse::Reading,
    record::Record,
    sampler::Preparation,
    schedule::{self, Waiting},
};

/// The share of the time that is planned for; the rest is for what the estimate misses. It can be small, because the
/// estimate is made anew before each round that counts.
const PLANNED: f64 = 0.98;

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

/// The network and storage of a machine, cell by cell.
pub struct Cells<'a> {
    matrix: &'a Matrix,
    options: &'a RunOptions,
    expect: &'a [Expectation],
    /// Those asked for, with the maximum that fits into the time.
    rules: Rules,
    blocks: Vec<Vec<usize>>,
    priorities: Vec<u32>,
    /// What is compared inside a block.
    comparisons: Vec<(usize, usize)>,
    /// The main metric of each cell by round.
    values: Vec<BTreeMap<u32, f64>>,
    overhead: Overhead,
    lost: Lost,
    looks: InterimAnalyses,
    preparation: Preparation,
    stops: BTreeMap<String, StopReason>,
}

impl From<Halt> for StopReason {
    fn from(halt: Halt) -> StopReason {
        match halt {
            Halt::TimeUp => StopReason::TimeUp,
            Halt::Interrupted => StopReason::Interrupted,
            Halt::GivenUp => StopReason::GivenUp,
        }
    }
}

type Going<'a> = Run<'a, CellSample>;

impl<'a> Cells<'a> {
    /// All cells of a matrix, of which these lines are expected.
    pub fn new(matrix: &'a Matrix, options: &'a RunOptions, expect: &'a [Expectation]) -> Cells<'a> {
        Cells {
            matrix,
            options,
            expect,
            rules: options.rules,
            blocks: matrix.blocks(),
            priorities: matrix.priorities(expect),
            comparisons: matrix.comparisons().into_iter().map(|(base, other, _)| (base, other)).collect(),
            values: vec![BTreeMap::new(); matrix.cells.len()],
            overhead: Overhead::default(),
            lost: Lost::default(),
            looks: InterimAnalyses::new(&options.rules),
            preparation: Preparation::default(),
            stops: BTreeMap::new(),
        }
    }

    /// Ends the blocks that have samples enough from an earlier run.
    fn settle(&mut self, run: &mut Going<'_>) {
        for block in 0..self.blocks.len() {
            let have = self.waiting(run, block).have;
            for at in self.looks.at().to_vec() {
                if at <= have {
                    self.look(run, block, at);
                }
            }
        }
    }

    /// The cells that are warmed up: of blocks that the time could be enough for.
    fn warm_ups(&self, run: &Going<'_>) -> Vec<usize> {
        let fits = self.fitting(run);
        let block_fits =
            |cell: usize| self.blocks.iter().zip(&fits).any(|(block, fits)| *fits && block.contains(&cell));
        self.matrix.warm_ups(|cell| run.arms[cell].going && block_fits(cell))
    }

    fn waiting(&self, run: &Going<'_>, block: usize) -> Waiting {
        let going = || self.blocks[block].iter().map(|cell| &run.arms[*cell]).filter(|arm| arm.going);
        let have = going().map(ArmProgress::rounds).min().unwrap_or(0);
        Waiting { arms: going().count(), have, priority: self.priorities[block] }
    }

    /// Seconds that are left to plan with; `None` without a limit.
    fn left(&self, run: &Going<'_>) -> Option<f64> {
        Some((self.rules.budget? - run.now()).max(0.0) * PLANNED)
    }

    /// How many rounds an interval takes.
    fn needed(&self) -> u32 {
        (samples_for_interval(self.rules.confidence) as u32).min(self.rules.maximum.max(1))
    }

    fn fitting(&self, run: &Going<'_>) -> Vec<bool> {
        let Some(left) = self.left(run) else { return vec![true; self.blocks.len()] };
        let waiting: Vec<Waiting> = (0..self.blocks.len()).map(|block| self.waiting(run, block)).collect();
        schedule::fit(&waiting, self.needed(), self.seconds_a_sample(), left)
    }

    /// Leaves out the blocks that the time is not enough for, and fixes how many samples an arm has at most.
    fn fit(&mut self, run: &mut Going<'_>) {
        self.leave_out(run);
        let Some(left) = self.left(run) else { return };
        let blocks = (0..self.blocks.len()).map(|block| self.waiting(run, block));
        let blocks: Vec<Waiting> = blocks.filter(|block| block.arms > 0).collect();
        let most = self.rules.maximum.max(1);
        let have = blocks.iter().map(|block| block.have).max().unwrap_or(0);
        let fits = schedule::rounds_within(&blocks, self.seconds_a_sample(), left, most);
        self.rules.maximum = fits.max(self.needed()).max(have).min(most);
        self.looks = InterimAnalyses::new(&self.rules);
    }

    /// The same before a round without which there is no interval: what would not be finished is not gone on with.
    fn fit_again(&mut self, run: &mut Going<'_>, round: u32) {
        if (2..=self.needed()).contains(&round) {
            self.leave_out(run);
        }
    }

    fn leave_out(&mut self, run: &mut Going<'_>) {
        let Some(left) = self.left(run) else { return };
        let fits = self.fitting(run);
        let why = format!(
            "left out for want of time: {left:.0} s were left, and {} samples of each cell take longer; more with --time-limit",
            self.needed()
        );
        for (block, _) in self.blocks.clone().iter().zip(fits).filter(|(_, fits)| !fits) {
            for cell in block {
                if !run.arms[*cell].going {
                    continue;
                }
                run.arms[*cell].missing = Some(why.clone());
                self.stop(run, *cell, StopReason::TimeUp);
            }
        }
    }

    fn tell_duration(&self, run: &mut Going<'_>, warm_ups: usize) {
        let fits = self.fitting(run);
        let going = self.blocks.iter().zip(fits).filter(|(_, fits)| *fits).flat_map(|(block, _)| block);
        let cells = going.filter(|cell| run.arms[**cell].going).count();
        let rest = schedule::duration(
            cells,
            warm_ups,
            &Rules { budget: self.left(run), ..self.rules },
            self.overhead.expected(),
        );
        let gone = run.now();
        let duration = schedule::Duration { least: gone + rest.least, most: gone + rest.most };
        let missing = run.arms.iter().filter(|arm| arm.missing.is_some()).count();
        let left_out = run.arms.iter().filter(|arm| arm.going).count() - cells;
        run.tell(Event::Prepared { cells, missing, left_out, duration: Some(duration) });
    }

    fn give_up_path(&mut self, run: &mut Going<'_>, cell: usize, why: &str) {
        let planned = &self.matrix.cells[cell];
        let Some(network) = planned.measurement.network() else { return };
        let path = format!("{} {}>{}", network.path, network.client, network.server);
        run.note(format!("{path} is given up: everything on it failed, in the end with: {why}"));
        for other in 0..run.arms.len() {
            if run.arms[other].going && lost::same_path(planned, &self.matrix.cells[other]) {
                run.arms[other].missing =
                    Some(format!("{path} was given up, on which everything failed: {why}"));
                self.stop(run, other, StopReason::GivenUp);
            }
        }
    }

    fn confidence(&self) -> Confidence {
        self.looks.confidence()
    }

    /// Ends a block after so many rounds, if that is a look and it is tight enough, or there are no more.
    fn look(&mut self, run: &mut Going<'_>, block: usize, round: u32) {
        let arms = self.blocks[block].clone();
        if !arms.iter().any(|cell| run.arms[*cell].going) {
            return;
        }
        let going: Vec<usize> = arms.iter().copied().filter(|cell| run.arms[*cell].going).collect();
        let last = self.looks.at().last().is_none_or(|last| round >= *last);
        let ends = last || (self.looks.at().contains(&round) && self.is_tight(&going, round));
        if !ends {
            return;
        }
        for cell in going {
            let tight = self.looks.at().contains(&round) && self.is_arm_tight(cell, round);
            self.stop(run, cell, if tight { StopReason::TightEnough } else { StopReason::SamplesUp });
        }
    }

    /// Whether the medians of these arms of a block, and the ratios between them, are tight enough.
    fn is_tight(&self, arms: &[usize], round: u32) -> bool {
        let ratio_tight = |(base, other): &(usize, usize)| {
            let pairs = self.pairs(*base, *other, round);
            let ratio = self.confidence().ratio_paired(&pairs, round, self.options.seed);
            ratio.is_some_and(|ratio| self.looks.is_tight(&ratio))
        };
        let between = |(base, other): &&(usize, usize)| arms.contains(base) && arms.contains(other);
        arms.iter().all(|cell| self.is_arm_tight(*cell, round))
            && self.comparisons.iter().filter(between).all(ratio_tight)
    }

    fn is_arm_tight(&self, cell: usize, round: u32) -> bool {
        let interval = self.confidence().interval(&self.values(cell, round), round, self.options.seed);
        self.looks.decide(round, interval.as_ref()) == Look::Stop(StopReason::TightEnough)
    }

    /// What a cell told until this round.
    fn values(&self, cell: usize, until: u32) -> Vec<f64> {
        self.values[cell].range(..=until).map(|(_, value)| *value).collect()
    }

    /// What a cell and another told in the same rounds, until this one.
    fn pairs(&self, base: usize, other: usize, until: u32) -> Vec<(f64, f64)> {
        let rounds = self.values[base].range(..=until);
        rounds.filter_map(|(round, value)| Some((*value, *self.values[other].get(round)?))).collect()
    }

    fn stop(&mut self, run: &mut Going<'_>, cell: usize, why: StopReason) {
        run.arms[cell].going = false;
        let cell = run.arms[cell].id.clone();
        run.tell(Event::Stopped { cell: cell.clone(), why });
        self.stops.insert(cell, why);
    }

    /// Takes in the main metric of a sample that counts.
    fn count(&mut self, cell: usize, record: &Record, reading: &Reading) -> Option<f64> {
        let value = reading.values.get(&self.matrix.cells[cell].measurement.main_metric()).copied();
        if let Some(value) = value.filter(|_| !record.warm_up) {
            self.values[cell].insert(record.round, value);
        }
        value
    }
}

impl Workload for Cells<'_> {
    type Planned = Planned;
    type Tool = ToolVersion;
    type Reading = Reading;
    type Sample = CellSample;
    type Stop = StopReason;
    type Measured = Measurements;

    const FIRST_ROUND: u32 = 1;
    const SAMPLES: &'static str = "samples";
    const READ_AGAIN: bool = true;

    fn planned(&self) -> &[Planned] {
        &self.matrix.cells
    }

    fn id(planned: &Planned) -> String {
        planned.id.clone()
    }

    fn dwell(&self) -> Duration {
        Duration::from_millis(u64::from(self.rules.dwell_ms))
    }

    fn seconds_a_sample(&self) -> f64 {
        schedule::sample(&self.rules, self.overhead.expected())
    }

    fn budget(&self) -> Option<f64> {
        self.rules.budget
    }

    /// Seconds until every block that is going has all its samples, or the time is up.
    fn rest(&self, run: &Going<'_>) -> Option<f64> {
        let waiting = (0..self.blocks.len()).map(|block| self.waiting(run, block));
        let samples = waiting.map(|w| w.arms as f64 * f64::from(self.rules.maximum.saturating_sub(w.have)));
        let seconds = samples.sum::<f64>() * self.seconds_a_sample();
        Some(self.left(run).map_or(seconds, |left| seconds.min(left)))
    }

    fn begin(&mut self, run: &mut Going<'_>, preparation: Preparation) -> Vec<usize> {
        self.preparation = preparation;
        self.settle(run);
        let warm_ups = self.warm_ups(run);
        self.tell_duration(run, warm_ups.len());
        warm_ups.repeat(self.rules.warm_up as usize)
    }

    /// Fits the matrix to the time.
    fn warmed_up(&mut self, run: &mut Going<'_>) {
        self.fit(run);
        if self.rules.budget.is_some() || self.rules.warm_up > 0 {
            self.tell_duration(run, 0);
        }
    }

    fn before_round(&mut self, run: &mut Going<'_>, round: u32) -> Result<(), StopReason> {
        self.fit_again(run, round);
        Ok(())
    }

    fn order(&self, round: u32) -> Vec<usize> {
        schedule::round(&self.blocks, round, self.options.seed)
    }

    fn after_round(&mut self, run: &mut Going<'_>, round: u32) -> Result<(), StopReason> {
        (0..self.blocks.len()).for_each(|block| self.look(run, block, round));
        Ok(())
    }

    fn read(&self, cell: usize, record: &Record) -> Result<Reading, String> {
        record.reading(&self.matrix.cells[cell].measurement)
    }

    fn recall(&mut self, cell: usize, record: &Record, reading: Reading) {
        self.count(cell, record, &reading);
    }

    /// What it told, how long it took, and whether the cell goes on.
    fn sampled(
        &mut self,
        run: &mut Going<'_>,
        cell: usize,
        record: &Record,
        reading: Result<Reading, String>,
    ) {
        let planned = &self.matrix.cells[cell];
        let metric = planned.measurement.main_metric();
        let good = reading.is_ok();
        let (value, why) = match reading {
            Ok(reading) => {
                self.overhead.count(record.seconds - self.dwell().as_secs_f64(), record.warm_up);
                let value = self.count(cell, record, &reading);
                let untold = || format!("{} did not tell {metric}", planned.measurement.tool);
                (value, value.is_none().then(untold))
            }
            Err(why) => (None, Some(why)),
        };
        let values = self.values(cell, u32::MAX);
        let path = planned.measurement.network().map(|network| network.path);
        run.tell(Event::Sampled(CellSample {
            cell: planned.id.clone(),
            path,
            metric,
            value,
            why: why.clone(),
            median: median(&values),
            interval: self.confidence().interval(&values, record.round, self.options.seed),
            samples: values.len() as u32,
        }));
        let (why, failed) = (why.unwrap_or_default(), run.arms[cell].failed);
        if self.lost.count(planned, good) {
            self.give_up_path(run, cell, &why);
        } else if failed >= FAILURES {
            let note =
                format!("{} is given up after {failed} failures, one after the other: {why}", planned.id);
            run.tell(Event::Note(note));
            self.stop(run, cell, StopReason::GivenUp);
        }
    }

    fn ended(&mut self, run: &mut Going<'_>, ended: Result<(), StopReason>) {
        let Err(why) = ended else { return };
        for cell in 0..run.arms.len() {
            if run.arms[cell].going {
                self.stop(run, cell, why);
            }
        }
    }

    fn conclude(self, run: Going<'_>) -> Measurements {
        let seconds = run.seconds();
        let missing = run.arms.into_iter().filter_map(|arm| Some((arm.id, arm.missing?)));
        let outcome = Outcome {
            preparation: Preparation { missing: missing.collect(), ..self.preparation },
            rules: Some(self.rules),
            stops: self.stops,
            seconds: Some(seconds),
            notes: run.notes,
        };
        conclude(self.matrix, self.options, self.expect, &run.records, &outcome)
    }
}

#[cfg(test)]
mod tests;
