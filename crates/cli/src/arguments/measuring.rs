//! `measure`, `rehearse` and `report`.

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use clap::{Args, ValueEnum};
use penstock_measure::latency::settings::Spread;
use penstock_model::{
    CpuSet,
    measurement::{
        ParseExpectationError, PathKind, Protocol,
        latency::{LatencyExpectation, Tool},
    },
};
use serde::{Deserialize, Serialize};

use super::{Strict, Subject, duration};

/// `measure`
#[derive(Debug, Args)]
pub struct Measure {
    /// The model
    #[command(flatten)]
    pub subject: Subject,
    /// Measure one message size per path and protocol, within 2 minutes
    #[arg(long)]
    pub quick: bool,
    /// How it is measured
    #[command(flatten)]
    pub tuning: Tuning,
    /// How late threads wake
    #[command(flatten)]
    pub waking: Waking,
    /// The run directory [default: runs/MACHINE-TIME]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Continue the interrupted run in this directory, with its settings
    #[arg(long, value_name = "RUN-DIR", conflicts_with_all = ["output", "quick", "Tuning", "Waking"])]
    pub resume: Option<PathBuf>,
    /// Mark the results as an emulated machine's, where only ratios mean anything; found out by default
    #[arg(long)]
    pub emulated: bool,
    /// Tell everything as JSON lines on standard output, for the Penstock outside the board, and keep nothing
    #[arg(long, hide = true, conflicts_with_all = ["output", "json"])]
    pub events: bool,
}

/// A full run ends after this many seconds, whatever it has.
const FULL: f64 = 720.0;
/// A quick one after this many.
const QUICK: f64 = 120.0;

/// What `--samples` may be: each sample is kept, and a run goes through all of them again when it is resumed.
const MOST_SAMPLES: std::ops::RangeInclusive<i64> = 1..=1000;

/// How it is measured. None of it belongs in a model.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = true)]
pub struct Tuning {
    /// Duration of a sample [default: 1s; of latency 10s, quick 5s]
    #[arg(long, value_name = "TIME", value_parser = dwell)]
    pub dwell: Option<Duration>,
    /// Time limit of the whole run, or `none` [default: 12m, quick 2m]
    #[arg(long, visible_alias = "for", value_name = "TIME", value_parser = time_limit)]
    pub time_limit: Option<TimeLimit>,
    /// Stop sampling a path when half of its median's confidence interval is below this share [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub half_width: Option<f64>,
    /// Stop sampling a path after so many samples, however wide its interval is [default: 30]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(MOST_SAMPLES))]
    pub samples: Option<u32>,
    /// Seed of the order of samples and of the intervals [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Measure only this
    #[arg(long, value_name = "WHAT")]
    pub only: Option<Only>,
    /// Measure only these paths
    #[arg(long = "path", help = only("these paths", PathKind::ALL), value_name = "PATH", value_delimiter = ',', value_parser = path)]
    pub paths: Vec<PathKind>,
    /// Measure only these protocols
    #[arg(long = "protocol", help = only("these protocols", Protocol::ALL), value_name = "PROTOCOL", value_delimiter = ',', value_parser = protocol)]
    pub protocols: Vec<Protocol>,
}

impl Tuning {
    /// Whether anything of it was given.
    pub fn is_given(&self) -> bool {
        let Tuning { dwell, time_limit, half_width, samples, seed, only, paths, protocols } = self;
        let one = dwell.is_some() || time_limit.is_some() || half_width.is_some() || samples.is_some();
        one || seed.is_some() || only.is_some() || !paths.is_empty() || !protocols.is_empty()
    }

    /// Seconds that a run may take, as it was asked for; `None` is no limit.
    pub fn budget(&self, quick: bool) -> Option<f64> {
        match self.time_limit {
            None => Some(if quick { QUICK } else { FULL }),
            Some(TimeLimit::Within(limit)) => Some(limit.as_secs_f64()),
            Some(TimeLimit::Unlimited) => None,
        }
    }

    /// The seed that was asked for, or one that is drawn from the time.
    pub fn seed_at(&self, now: SystemTime) -> u64 {
        let since = || now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // JSON readers that know only floating point keep 53 bits.
        self.seed.unwrap_or_else(|| since().as_nanos() as u64 & ((1 << 53) - 1))
    }
}

/// How late threads wake, which is measured by itself.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = true)]
pub struct Waking {
    /// Measure wake-up latency on the model's real-time CPUs, on the host and in guests, with and without load on the other
    /// CPUs, instead of network and storage
    #[arg(long, conflicts_with_all = ["only", "paths", "protocols", "half_width", "samples"])]
    pub latency: bool,
    /// Also measure without the model's real-time steps: they are undone and applied again between blocks while guests run
    #[arg(long, value_name = "untuned", requires = "latency")]
    pub against: Option<Against>,
    /// Stop when this bound is proven or broken: 100us, or what follows `latency` in a line of `expect`
    #[arg(long, value_name = "BOUND", requires = "latency", value_parser = claim)]
    pub prove: Vec<LatencyExpectation>,
    /// Measure these CPUs instead of the model's real-time CPUs; the first that no guest has, and the first of each guest, stands for
    /// the others
    #[arg(long, value_name = "CPUS", requires = "latency")]
    pub cpus: Option<CpuSet>,
    /// Use only these tools
    #[arg(long = "tool", help = only("with these tools", Tool::ALL) + " [default: all that are installed; quick: cyclictest]", value_name = "TOOL", value_delimiter = ',', requires = "latency", value_parser = tool)]
    pub tools: Vec<Tool>,
    /// Where the load (hackbench) runs: on the `others`, the housekeeping CPUs, or `anywhere` [default: others]
    #[arg(long, value_name = "WHERE", requires = "latency", value_parser = spread)]
    pub load: Option<Spread>,
}

/// What the machine is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Against {
    /// The same machine without its real-time steps.
    Untuned,
}

fn claim(text: &str) -> Result<LatencyExpectation, String> {
    let bound = text.trim();
    let alone = bound.starts_with(|c: char| c.is_ascii_digit());
    let line = match () {
        () if LatencyExpectation::is_meant(bound) => bound.to_owned(),
        () if alone => format!("latency max < {bound}"),
        () => format!("latency {bound}"),
    };
    line.parse().map_err(|error: ParseExpectationError| error.to_string())
}

fn tool(text: &str) -> Result<Tool, String> {
    named(text, Tool::ALL)
}

fn spread(text: &str) -> Result<Spread, String> {
    match text {
        "others" => Ok(Spread::Others),
        "anywhere" => Ok(Spread::Anywhere),
        _ => Err("it is one of others, anywhere".to_owned()),
    }
}

/// Half of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Only {
    /// Paths between functions.
    Network,
    /// The model's `measure: storage`.
    Storage,
}

/// How long a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// At most this long.
    Within(Duration),
    /// As long as it takes.
    Unlimited,
}

/// How much is measured in a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Extent {
    /// One message size per path and protocol.
    Quick,
    /// Everything.
    Full,
}

fn dwell(text: &str) -> Result<Duration, String> {
    let dwell = duration(text)?;
    let fits = Duration::from_millis(100)..=Duration::from_secs(3600);
    fits.contains(&dwell).then_some(dwell).ok_or_else(|| "a sample lasts 100ms to 1h".to_owned())
}

fn time_limit(text: &str) -> Result<TimeLimit, String> {
    match text {
        "none" => Ok(TimeLimit::Unlimited),
        text => match duration(text)? {
            Duration::ZERO => Err("nothing can be measured in no time; `none` is no limit".to_owned()),
            limit => Ok(TimeLimit::Within(limit)),
        },
    }
}

fn share(text: &str) -> Result<f64, String> {
    let (number, factor) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    let share = number.trim().parse::<f64>().map(|number| number * factor);
    let fits = share.ok().filter(|share| *share > 0.0 && *share < 1.0);
    fits.ok_or_else(|| "write it like 5% or 0.05: more than nothing, and less than all".to_owned())
}

/// One of these by its name, with spaces or hyphens between its words.
fn named<T: Copy + fmt::Display>(text: &str, all: impl IntoIterator<Item = T>) -> Result<T, String> {
    let all: Vec<T> = all.into_iter().collect();
    let found = all.iter().find(|one| name(one) == text.replace(' ', "-"));
    found.copied().ok_or_else(|| format!("it is one of {}", names(&all)))
}

/// The help of an option that takes some of `all`.
fn only<T: fmt::Display>(what: &str, all: impl IntoIterator<Item = T>) -> String {
    format!("Measure only {what}: {}", names(all))
}

fn names<T: fmt::Display>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|one| name(&one)).collect::<Vec<_>>().join(", ")
}

fn name(one: &impl fmt::Display) -> String {
    one.to_string().replace(' ', "-")
}

fn path(text: &str) -> Result<PathKind, String> {
    named(text, PathKind::ALL)
}

fn protocol(text: &str) -> Result<Protocol, String> {
    named(text, Protocol::ALL)
}

/// `rehearse`
#[derive(Debug, Args)]
pub struct Rehearse {
    /// The model
    pub model: PathBuf,
    /// What becomes of the model's warnings
    #[command(flatten)]
    pub strict: Strict,
    /// Also measure on the board
    #[arg(
        long,
        value_name = "EXTENT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "quick"
    )]
    pub measure: Option<Extent>,
    /// How it is measured
    #[command(flatten)]
    pub tuning: Tuning,
    /// Take the PFs' MAC addresses and VF counts from this inventory
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// The run directory [default: runs/MACHINE-TIME]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Boot the board instead of resuming a saved one
    #[arg(long)]
    pub cold: bool,
    /// Also show verdicts that pass
    #[arg(long, short)]
    pub verbose: bool,
}

/// `report`
#[derive(Debug, Args)]
pub struct Report {
    /// A run directory or its evidence.json; two are compared
    #[arg(required = true, num_args = 1..=2, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The directory to write to [default: RUN; with --redact RUN-redacted; none for a comparison]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Write a copy of the run with pseudonyms for addresses, hostnames and users
    #[arg(long)]
    pub redact: bool,
    /// Also replace the names of the machine and its guests
    #[arg(long, requires = "redact")]
    pub redact_names: bool,
    /// Write the latencies of wake-ups in another program's form instead of the report
    #[arg(long, value_name = "FORM", conflicts_with = "redact")]
    pub latencies: Option<LatencyForm>,
}

/// In which form `report --latencies` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LatencyForm {
    /// The histogram of cyclictest, of which OSADL's plots are made
    Cyclictest,
    /// The summary of rteval, XML
    Rteval,
}
