//! Latencies of wake-ups as a workload: blocks of every series in the balanced order, until what is claimed is proven or broken, or
//! the time is up.
//!
//! Whether it ends is asked at the end of each round, so that every series has as many blocks as the others.

use std::time::Duration;

use penstock_model::measurement::latency::{
    Block, Latency, LatencyExpectation, Series, Setting, Statistic, Stopped, ToolVersion,
};
use penstock_statistics::wake_ups;
use serde::{Deserialize, Serialize};

use super::{command, conclude, schedule, settings::StandIn};
use crate::{
    engine::{self, FAILURES, GRACE, Halt, Run, Workload},
    event::{BlockSample, Event},
    record::{Record, RecordOutcome},
    sampler::Preparation,
};

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
    /// CPUs that are measured in the place of others.
    #[serde(default)]
    pub stand_ins: Vec<StandIn>,
    /// When the run started, in RFC 3339 text.
    pub started: String,
}

/// The latencies of a machine, series by series.
pub struct WakeUps<'a> {
    settings: &'a [Setting],
    options: &'a RunOptions,
    claims: &'a [LatencyExpectation],
    /// The settings whatever their arm, in the order of the plan.
    bases: Vec<Setting>,
    series: Vec<Series>,
    tools: Vec<ToolVersion>,
    /// When the round began.
    began: f64,
    /// Seconds of the longest round so far.
    longest: f64,
    stopped: Option<Stopped>,
}

impl From<Halt> for Stopped {
    fn from(halt: Halt) -> Stopped {
        match halt {
            Halt::TimeUp => Stopped::TimeUp,
            Halt::Interrupted => Stopped::Interrupted,
            Halt::GivenUp => Stopped::GivenUp,
        }
    }
}

type Going<'a> = Run<'a, BlockSample>;

impl<'a> WakeUps<'a> {
    /// All these settings, of which this is claimed.
    pub fn new(
        settings: &'a [Setting],
        options: &'a RunOptions,
        claims: &'a [LatencyExpectation],
    ) -> WakeUps<'a> {
        let mut bases: Vec<Setting> = Vec::new();
        for setting in settings {
            if !bases.iter().any(|base| base.is_arm_of(setting)) {
                bases.push(setting.clone());
            }
        }
        WakeUps {
            settings,
            options,
            claims,
            bases,
            series: settings.iter().cloned().map(Series::new).collect(),
            tools: Vec::new(),
            began: 0.0,
            longest: 0.0,
            stopped: None,
        }
    }

    /// A record as a block of which nothing is known yet.
    fn block(&self, record: &Record) -> Block {
        Block {
            round: record.round,
            start: record.at,
            seconds: f64::from(self.options.block_ms.div_ceil(1000).max(1)),
            raw: Some(format!("{RAW}:{}", u64::from(record.position) + 1)),
            ..Block::default()
        }
    }

    /// What version a tool is it tells with each block; the first that does is enough.
    fn learn_version(&mut self, series: usize, record: &Record) {
        let RecordOutcome::Ran(raw) = &record.outcome else { return };
        let tool = self.settings[series].tool;
        let program = command::program(tool);
        let unknown = |found: &&mut ToolVersion| {
            found.tool == program && found.place == raw.place && found.version.is_none()
        };
        if let Some(found) = self.tools.iter_mut().find(unknown) {
            found.version = command::read(tool, raw).ok().and_then(|told| told.version);
        }
    }

    /// Whether the claims are decided after this round. On an emulated board none is proven.
    fn decided(&self, round: u32) -> Option<Stopped> {
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
        // In pairs of rounds the arms are balanced; a series that was given up may have ended within one.
        let balanced = !self.options.against || round % 2 == 1;
        let proven = balanced && !self.options.emulated;
        wake_ups::decided(&rulings).filter(|stopped| proven || *stopped == Stopped::Broken)
    }
}

impl Workload for WakeUps<'_> {
    type Planned = Setting;
    type Tool = ToolVersion;
    type Reading = Block;
    type Sample = BlockSample;
    type Stop = Stopped;
    type Measured = Latency;

    const FIRST_ROUND: u32 = 0;
    const SAMPLES: &'static str = "blocks";
    const READ_AGAIN: bool = false;

    fn planned(&self) -> &[Setting] {
        self.settings
    }

    fn id(setting: &Setting) -> String {
        setting.id()
    }

    fn dwell(&self) -> Duration {
        Duration::from_millis(u64::from(self.options.block_ms))
    }

    fn seconds_a_sample(&self) -> f64 {
        self.dwell().as_secs_f64()
    }

    fn budget(&self) -> Option<f64> {
        self.options.budget
    }

    /// Nobody knows when the claims will be decided.
    fn rest(&self, _: &Going<'_>) -> Option<f64> {
        None
    }

    /// Warms nothing up: a block is made of thousands of wake-ups.
    fn begin(&mut self, run: &mut Going<'_>, preparation: Preparation<ToolVersion>) -> Vec<usize> {
        self.tools = preparation.tools;
        for (series, arm) in self.series.iter_mut().zip(&run.arms) {
            series.missing.clone_from(&arm.missing);
        }
        let missing = run.arms.iter().filter(|arm| !arm.going).count();
        run.tell(Event::Prepared { cells: run.arms.len() - missing, missing, left_out: 0, duration: None });
        Vec::new()
    }

    fn warmed_up(&mut self, _: &mut Going<'_>) {}

    fn before_round(&mut self, run: &mut Going<'_>, round: u32) -> Result<(), Stopped> {
        self.began = run.now();
        let late = |budget: f64| self.began + self.longest > budget + GRACE;
        let over = self.options.rounds.is_some_and(|most| round >= most)
            || (round > 0 && self.options.budget.is_some_and(late));
        if over { Err(Stopped::TimeUp) } else { Ok(()) }
    }

    fn order(&self, round: u32) -> Vec<usize> {
        let options = self.options;
        let mut order = Vec::new();
        for arm in schedule::arms(round, options.seed, options.against) {
            for base in schedule::series(self.bases.len(), round, options.seed) {
                let wanted = Setting { arm, ..self.bases[base].clone() };
                order.extend(self.settings.iter().position(|setting| *setting == wanted));
            }
        }
        order
    }

    fn after_round(&mut self, run: &mut Going<'_>, round: u32) -> Result<(), Stopped> {
        self.longest = self.longest.max(run.now() - self.began);
        self.decided(round).map_or(Ok(()), Err)
    }

    fn read(&self, series: usize, record: &Record) -> Result<Block, String> {
        let told = match &record.outcome {
            RecordOutcome::Ran(raw) => command::read(self.settings[series].tool, raw)?,
            RecordOutcome::Failed(why) => return Err(why.clone()),
        };
        Ok(Block {
            spikes: told.counts.at_least(self.options.spike),
            counts: told.counts,
            min: Some(told.min),
            mean: Some(told.mean),
            max: Some(told.max),
            ..self.block(record)
        })
    }

    fn recall(&mut self, series: usize, _: &Record, block: Block) {
        self.series[series].blocks.push(block);
    }

    fn recall_failed(&mut self, series: usize, record: &Record, why: String) {
        let block = Block { failed: Some(why), ..self.block(record) };
        self.series[series].blocks.push(block);
    }

    fn sampled(&mut self, run: &mut Going<'_>, at: usize, record: &Record, block: Result<Block, String>) {
        self.learn_version(at, record);
        let why = block.as_ref().err().cloned();
        let block = block.unwrap_or_else(|why| Block { failed: Some(why), ..self.block(record) });
        let (n, max) = (block.counts.total(), block.max);
        let series = &mut self.series[at];
        series.blocks.push(block);
        let worst = series.max();
        run.tell(Event::Sampled(BlockSample { series: series.id.clone(), n, max, worst, why: why.clone() }));
        if run.arms[at].failed >= FAILURES {
            run.arms[at].going = false;
            series.missing = why;
        }
    }

    fn ended(&mut self, _: &mut Going<'_>, ended: Result<(), Stopped>) {
        // A run that no series goes on with has none left to measure.
        self.stopped = Some(ended.err().unwrap_or(Stopped::GivenUp));
    }

    fn conclude(self, run: Going<'_>) -> Latency {
        let (seconds, mut notes) = (run.seconds(), run.notes);
        let known = |id: &str| self.series.iter().any(|series| series.id == id);
        notes.extend(engine::unknown(&run.records, known, ["blocks", "series"]));
        conclude::conclude(
            self.series,
            self.options,
            self.claims,
            conclude::Ending { stopped: self.stopped, seconds, notes, tools: self.tools },
        )
    }
}
