//! A run: blocks of every series in the balanced order, until what is claimed is proven or broken, or the time is up.
//!
//! Whether it ends is asked at the end of each round, so that every series has as many blocks as the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use penstock_model::measurement::latency::{
    Block, Latency, LatencyExpectation, Series, Setting, Statistic, Stopped, ToolVersion,
};
use serde::{Deserialize, Serialize};

use super::{
    command, conclude,
    sampler::{Failure, Sampler},
    schedule,
};
use crate::{
    journal::Journal,
    record::{Record, RecordOutcome},
    statistics::wake_ups,
};

/// Blocks of a series that fail one after the other until it is given up.
const FAILURES: u32 = 2;
/// Seconds by which the last block may pass the time that is allowed.
const GRACE: f64 = 0.5;

/// The file of a run's directory in which the raw outputs are kept, one JSON object a line.
pub const RAW: &str = "latency.jsonl";

/// How a run is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// What the order and the intervals are drawn from.
    pub seed: u64,
    /// A wake-up of so many microseconds is a spike.
    pub spike: u32,
    /// Confidence of every interval and bound.
    pub confidence: f64,
    /// How long a block is, in milliseconds.
    pub block_ms: u32,
    /// Seconds that the whole run may take; `None` is no limit.
    pub budget: Option<f64>,
    /// Rounds after which it ends in any case; `None` is no limit.
    pub rounds: Option<u32>,
    /// Whether the untuned machine is measured too.
    pub against: bool,
    /// Whether the machine is an emulated board, of which only ratios mean anything.
    pub emulated: bool,
    /// When the run started, in RFC 3339 text.
    pub started: String,
}

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Looking is done: so many series will be measured, so many cannot be.
    Prepared {
        /// That will be.
        series: usize,
        /// That cannot be.
        missing: usize,
    },
    /// A block begins.
    Taking {
        /// Of which series.
        series: String,
        /// In which round, from 0.
        round: u32,
        /// Seconds since the run's start.
        at: f64,
    },
    /// A block was taken.
    Taken {
        /// Of which series.
        series: String,
        /// How many latencies it has; 0 when it failed.
        n: u64,
        /// The longest of them in microseconds.
        max: Option<f64>,
        /// The longest of the series so far.
        worst: Option<f64>,
        /// Why it failed.
        why: Option<String>,
    },
    /// Something that the user should know.
    Note(String),
}

/// Makes a run. [`Sampler::finish`] is called whatever happened.
///
/// - `earlier`: the records of a run that this one goes on from.
/// - `journal`: is given each record as soon as there is one.
/// - `clock`: seconds since the run's start.
/// - `interrupted`: asked before each block. A block that fails while it says yes was interrupted, and is not recorded.
#[allow(clippy::too_many_arguments, reason = "each is another part of the program, and they meet only here")]
pub fn run(
    settings: &[Setting],
    options: &RunOptions,
    claims: &[LatencyExpectation],
    earlier: &[Record],
    sampler: &mut dyn Sampler,
    journal: &mut dyn Journal,
    observe: &mut dyn FnMut(&Event),
    clock: &dyn Fn() -> f64,
    interrupted: &dyn Fn() -> bool,
) -> Latency {
    let before = earlier.iter().map(|record| record.at + record.seconds).fold(0.0, f64::max);
    let mut run = Run {
        options,
        claims,
        before,
        position: earlier.iter().map(|record| record.position.saturating_add(1)).max().unwrap_or(0),
        series: settings.iter().cloned().map(Series::new).collect(),
        failures: BTreeMap::new(),
        have: BTreeSet::new(),
        notes: Vec::new(),
        tools: Vec::new(),
        longest: 0.0,
        sampler,
        journal: Some(journal),
        observe,
        clock,
        interrupted,
    };
    run.recall(earlier);
    run.prepare(settings);
    let stopped = run.rounds();
    let complaints = run.sampler.finish();
    complaints.into_iter().for_each(|complaint| run.note(complaint));
    let seconds = before + clock();
    let Run { series, notes, tools, .. } = run;
    conclude::conclude(
        series,
        options,
        claims,
        conclude::Ending { stopped: Some(stopped), seconds, notes, tools },
    )
}

/// What records of a run tell, put together as [`run`] does it: for a run that was ended from outside.
pub fn told(
    settings: &[Setting],
    options: &RunOptions,
    claims: &[LatencyExpectation],
    records: &[Record],
    ending: conclude::Ending,
) -> Latency {
    let mut series: Vec<Series> = settings.iter().cloned().map(Series::new).collect();
    let mut ending = ending;
    ending.notes.extend(unknown(records, &series));
    for record in records {
        if let Some(one) = series.iter_mut().find(|series| series.id == record.cell) {
            let block = block(&one.setting, record, options);
            one.blocks.push(block);
        }
    }
    conclude::conclude(series, options, claims, ending)
}

/// What there is to say of records of series that a run has not.
fn unknown(records: &[Record], series: &[Series]) -> Option<String> {
    let mut unknown =
        records.iter().filter(|record| series.iter().all(|series| series.id != record.cell)).peekable();
    let first = unknown.peek()?.cell.clone();
    let blocks = unknown.count();
    Some(format!("{blocks} blocks of series that this run has not, like {first:?}, are passed over"))
}

/// A record as a block.
fn block(setting: &Setting, record: &Record, options: &RunOptions) -> Block {
    let mut block = Block {
        round: record.round,
        start: record.at,
        seconds: f64::from(options.block_ms.div_ceil(1000).max(1)),
        raw: Some(format!("{RAW}:{}", u64::from(record.position) + 1)),
        ..Block::default()
    };
    let told = match &record.outcome {
        RecordOutcome::Ran(raw) => command::read(setting.tool, raw),
        RecordOutcome::Failed(why) => Err(why.clone()),
    };
    match told {
        Ok(told) => {
            block.spikes = told.counts.at_least(options.spike);
            block.counts = told.counts;
            (block.min, block.mean, block.max) = (Some(told.min), Some(told.mean), Some(told.max));
        }
        Err(why) => block.failed = Some(why),
    }
    block
}

struct Run<'a> {
    options: &'a RunOptions,
    claims: &'a [LatencyExpectation],
    /// Seconds that the run took which this one goes on from.
    before: f64,
    position: u32,
    series: Vec<Series>,
    /// How many blocks of each series failed since the last that did not.
    failures: BTreeMap<String, u32>,
    /// The blocks that there are, of an earlier run too: series and round.
    have: BTreeSet<(String, u32)>,
    notes: Vec<String>,
    tools: Vec<ToolVersion>,
    /// Seconds of the longest round so far.
    longest: f64,
    sampler: &'a mut dyn Sampler,
    journal: Option<&'a mut dyn Journal>,
    observe: &'a mut dyn FnMut(&Event),
    clock: &'a dyn Fn() -> f64,
    interrupted: &'a dyn Fn() -> bool,
}

impl Run<'_> {
    fn note(&mut self, text: String) {
        (self.observe)(&Event::Note(text.clone()));
        self.notes.push(text);
    }

    fn recall(&mut self, earlier: &[Record]) {
        self.notes.extend(unknown(earlier, &self.series));
        for record in earlier {
            let Some(series) = self.series.iter_mut().find(|series| series.id == record.cell) else {
                continue;
            };
            let block = block(&series.setting, record, self.options);
            // What failed then is taken anew.
            if block.failed.is_none() {
                self.have.insert((record.cell.clone(), record.round));
                series.blocks.push(block);
            }
        }
    }

    fn prepare(&mut self, settings: &[Setting]) {
        let preparation = self.sampler.prepare(settings);
        preparation.notes.into_iter().for_each(|note| self.note(note));
        self.tools = preparation.tools;
        let mut missing = 0;
        for series in &mut self.series {
            series.missing = preparation.missing.get(&series.id).cloned();
            missing += usize::from(series.missing.is_some());
        }
        let series = self.series.len() - missing;
        (self.observe)(&Event::Prepared { series, missing });
    }

    /// The series whatever their arm, in the order of the plan.
    fn bases(&self) -> Vec<Setting> {
        let mut bases: Vec<Setting> = Vec::new();
        for series in &self.series {
            if !bases.iter().any(|base| base.is_arm_of(&series.setting)) {
                bases.push(series.setting.clone());
            }
        }
        bases
    }

    fn rounds(&mut self) -> Stopped {
        let bases = self.bases();
        for round in 0.. {
            if !self.series.iter().any(|series| series.missing.is_none()) {
                return Stopped::GivenUp;
            }
            if self.options.rounds.is_some_and(|most| round >= most) {
                return Stopped::TimeUp;
            }
            let begin = (self.clock)();
            let late = |budget: f64| begin + self.longest > budget + GRACE;
            if round > 0 && self.options.budget.is_some_and(late) {
                return Stopped::TimeUp;
            }
            for arm in schedule::arms(round, self.options.seed, self.options.against) {
                for at in schedule::series(bases.len(), round, self.options.seed) {
                    let wanted = Setting { arm, ..bases[at].clone() };
                    let Some(at) = self.series.iter().position(|series| series.setting == wanted) else {
                        continue;
                    };
                    if let Err(stopped) = self.take(at, round) {
                        return stopped;
                    }
                }
            }
            self.longest = self.longest.max((self.clock)() - begin);
            if let Some(stopped) = self.decided() {
                return stopped;
            }
        }
        Stopped::TimeUp
    }

    /// Takes one block and keeps it.
    fn take(&mut self, at: usize, round: u32) -> Result<(), Stopped> {
        let (id, setting) = (self.series[at].id.clone(), self.series[at].setting.clone());
        if self.series[at].missing.is_some() || self.have.contains(&(id.clone(), round)) {
            return Ok(());
        }
        if (self.interrupted)() {
            return Err(Stopped::Interrupted);
        }
        let begin = (self.clock)();
        let length = Duration::from_millis(u64::from(self.options.block_ms));
        if self.options.budget.is_some_and(|budget| begin + length.as_secs_f64() > budget + GRACE) {
            return Err(Stopped::TimeUp);
        }
        (self.observe)(&Event::Taking { series: id.clone(), round, at: self.before + begin });
        let (outcome, machine) = match self.sampler.take(&setting, length) {
            Ok(raw) => (RecordOutcome::Ran(raw), None),
            Err(_) if (self.interrupted)() => return Err(Stopped::Interrupted),
            Err(Failure::Block(why)) => (RecordOutcome::Failed(why), None),
            Err(Failure::Machine(why)) => (RecordOutcome::Failed(why.clone()), Some(why)),
        };
        let milli = |seconds: f64| (seconds * 1e3).round() / 1e3;
        let record = Record {
            cell: id.clone(),
            position: self.position,
            round,
            warm_up: false,
            at: milli(self.before + begin),
            seconds: milli((self.clock)() - begin),
            outcome,
        };
        self.position = self.position.saturating_add(1);
        self.keep(&record);
        self.learn_version(&setting, &record);
        let block = block(&setting, &record, self.options);
        let failed = block.failed.clone();
        let (n, max) = (block.counts.total(), block.max);
        self.have.insert((id.clone(), round));
        self.series[at].blocks.push(block);
        let worst = self.series[at].max();
        (self.observe)(&Event::Taken { series: id.clone(), n, max, worst, why: failed.clone() });
        if let Some(why) = machine {
            self.note(format!("nothing more was measured: {why}"));
            return Err(Stopped::GivenUp);
        }
        let failures = self.failures.entry(id).or_default();
        match failed {
            None => *failures = 0,
            Some(why) => {
                *failures += 1;
                if *failures >= FAILURES {
                    self.series[at].missing = Some(why);
                }
            }
        }
        Ok(())
    }

    /// What version a tool is it tells with each block; the first that does is enough.
    fn learn_version(&mut self, setting: &Setting, record: &Record) {
        let RecordOutcome::Ran(raw) = &record.outcome else { return };
        let program = command::program(setting.tool);
        let unknown = |tool: &&mut ToolVersion| {
            tool.tool == program && tool.place == raw.place && tool.version.is_none()
        };
        if let Some(tool) = self.tools.iter_mut().find(unknown) {
            tool.version = command::read(setting.tool, raw).ok().and_then(|told| told.version);
        }
    }

    fn keep(&mut self, record: &Record) {
        let Some(Err(why)) = self.journal.as_mut().map(|journal| journal.append(record)) else { return };
        // What comes after a line that was cut off could not be read again.
        self.journal = None;
        self.note(format!(
            "blocks are not kept from position {} on, and a run could not be taken up after that: {why}",
            record.position
        ));
    }

    /// Whether the claims are decided.
    fn decided(&self) -> Option<Stopped> {
        if self.claims.is_empty() {
            return None;
        }
        // A percentile is judged by what the series adds up to.
        let mut series = self.series.clone();
        if self.claims.iter().any(|claim| claim.statistic() != Statistic::Max) {
            for one in &mut series {
                let summary = wake_ups::summarise(&one.blocks, self.options.confidence, self.options.seed);
                one.summary = summary.ok().flatten();
            }
        }
        let rulings = conclude::rulings(self.claims, &series, self.options);
        // In pairs of rounds the arms are balanced.
        let balanced = !self.options.against || self.series.iter().all(|series| series.blocks.len() % 2 == 0);
        wake_ups::decided(&rulings).filter(|stopped| balanced || *stopped == Stopped::Broken)
    }
}
