//! `measure`, `rehearse` and `report`.

use std::{fmt, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use penstock_measure::latency::settings::Spread;
use penstock_model::{
    CpuSet,
    measurement::{
        ParseExpectationError, PathKind, Protocol,
        latency::{Claim, Tool},
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
    /// Only what shows every path: one message size of each protocol, within 2 minutes
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
    /// Go on with the interrupted run that is in this directory, measuring what it measured
    #[arg(long, value_name = "RUN-DIR", conflicts_with_all = ["output", "quick", "Tuning", "Waking"])]
    pub resume: Option<PathBuf>,
    /// This machine is an emulated board, of which only ratios mean anything; found out where this is not given
    #[arg(long)]
    pub emulated: bool,
    /// Tell everything as JSON lines on standard output, for the Penstock outside the board, and keep nothing
    #[arg(long, hide = true, conflicts_with_all = ["output", "json"])]
    pub events: bool,
}

/// How it is measured. None of it belongs in a model.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = true)]
pub struct Tuning {
    /// Length of a sample [default: 1s; of wake-ups 10s, quick 5s]
    #[arg(long, value_name = "TIME", value_parser = dwell)]
    pub dwell: Option<Duration>,
    /// How long the whole run may take, or `none` [default: 12m, quick 2m]
    #[arg(long, visible_alias = "for", value_name = "TIME", value_parser = time_limit)]
    pub time_limit: Option<TimeLimit>,
    /// Stop measuring where half the interval of a median is this narrow [default: 5%]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub half_width: Option<f64>,
    /// Draw the order of the samples and the intervals from this number [default: another one each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Only the network, or only storage
    #[arg(long, value_name = "WHAT")]
    pub only: Option<Only>,
    /// Only these paths: pf-pf, vf-vf-across, vf-vf-inside, guest-host, bridge, bridge-across
    #[arg(long = "path", value_name = "PATH", value_delimiter = ',', value_parser = path)]
    pub paths: Vec<PathKind>,
    /// Only these protocols: udp-stream, tcp-stream, udp-rr, tcp-rr
    #[arg(long = "protocol", value_name = "PROTOCOL", value_delimiter = ',', value_parser = protocol)]
    pub protocols: Vec<Protocol>,
}

impl Tuning {
    /// Whether anything of it was given.
    pub fn is_given(&self) -> bool {
        let Tuning { dwell, time_limit, half_width, seed, only, paths, protocols } = self;
        let one = dwell.is_some() || time_limit.is_some() || half_width.is_some() || seed.is_some();
        one || only.is_some() || !paths.is_empty() || !protocols.is_empty()
    }
}

/// How late threads wake, which is measured by itself.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = true)]
pub struct Waking {
    /// Measure how late threads wake on the CPUs that the model keeps for real time, on the host and in its guests, with
    /// and without a load on the other CPUs; instead of traffic and storage
    #[arg(long, conflicts_with_all = ["only", "paths", "protocols", "half_width"])]
    pub latency: bool,
    /// Measure the same machine without its real-time steps too: they are taken off and put on again between blocks, while
    /// its guests run on
    #[arg(long, value_name = "untuned", requires = "latency")]
    pub against: Option<Against>,
    /// What is to be proven: 100us, or what may stand after `latency` in a line of `expect`. It ends when it is proven or broken
    #[arg(long, value_name = "BOUND", requires = "latency", value_parser = claim)]
    pub prove: Vec<Claim>,
    /// Measure these CPUs, instead of those that the model keeps for real time
    #[arg(long, value_name = "CPUS", requires = "latency")]
    pub cpus: Option<CpuSet>,
    /// Only with these tools: cyclictest, oslat, timerlat, hwlat [default: all that are there; quick: cyclictest]
    #[arg(long = "tool", value_name = "TOOL", value_delimiter = ',', requires = "latency", value_parser = tool)]
    pub tools: Vec<Tool>,
    /// Where hackbench runs: bound to the `others`, the CPUs of housekeeping, or `anywhere` that the machine lets it
    /// [default: others]
    #[arg(long, value_name = "WHERE", requires = "latency", value_parser = spread)]
    pub load: Option<Spread>,
}

/// What the machine is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Against {
    /// The same machine without its real-time steps.
    Untuned,
}

fn claim(text: &str) -> Result<Claim, String> {
    let bound = text.trim();
    let alone = bound.starts_with(|c: char| c.is_ascii_digit());
    let line = match () {
        () if Claim::is_meant(bound) => bound.to_owned(),
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
    /// Between functions.
    Network,
    /// The model's `measure: storage`.
    Storage,
}

/// How long a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLimit {
    /// So long.
    Within(Duration),
    /// As long as it takes.
    Unlimited,
}

/// How much is measured in a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Extent {
    /// What shows every path.
    Quick,
    /// All of it.
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
    let name = |one: &T| one.to_string().replace(' ', "-");
    let all: Vec<T> = all.into_iter().collect();
    let found = all.iter().find(|one| name(one) == text.replace(' ', "-"));
    let names = || all.iter().map(name).collect::<Vec<_>>().join(", ");
    found.copied().ok_or_else(|| format!("it is one of {}", names()))
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
    /// Measure on the board too: what shows every path, or all of it
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
    /// Rehearse the machine that this inventory describes: its PFs' MAC addresses and VF counts
    #[arg(long, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// The run directory [default: runs/MACHINE-TIME]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Boot the board afresh instead of resuming a saved one
    #[arg(long)]
    pub cold: bool,
    /// Show every verdict, also those that pass
    #[arg(long, short)]
    pub verbose: bool,
}

/// `report`
#[derive(Debug, Args)]
pub struct Report {
    /// A run directory, or its evidence.json; with a second one, it is compared with the first
    #[arg(required = true, num_args = 1..=2, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Write there [default: RUN itself; RUN-redacted with --redact; nowhere for a comparison]
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Write a copy of the run in which pseudonyms stand for addresses, hostnames and users
    #[arg(long)]
    pub redact: bool,
    /// Also for the names of the machine and its guests
    #[arg(long, requires = "redact")]
    pub redact_names: bool,
}
