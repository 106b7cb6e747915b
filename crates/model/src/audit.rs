//! What an audit found: one row a rule and subject, as data. Crate `audit` makes it, the binary prints it, a report shows it.

mod change;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use change::{Change, Remedy, text};

use crate::CpuSet;

/// How one rule came out.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// It was read, and it is as it should be.
    Pass,
    /// It was read, and it is otherwise.
    Fail,
    /// It could not be read. Never counted as a pass.
    Unknown,
    /// Each setting is legal by itself; together they are wrong.
    Conflict,
    /// It was read and is told; those who should know disagree about what is right, so that measuring decides. Counts for
    /// nothing in the score.
    Recorded,
}

impl fmt::Display for AuditOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            AuditOutcome::Pass => "pass",
            AuditOutcome::Fail => "fail",
            AuditOutcome::Unknown => "unknown",
            AuditOutcome::Conflict => "conflict",
            AuditOutcome::Recorded => "recorded",
        })
    }
}

/// Which part of the machine a rule looks at, from the firmware up.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// What firmware sets, as far as it shows from a running system.
    Firmware,
    /// Which kernel runs.
    Kernel,
    /// Its command line.
    Boot,
    /// Which CPUs are kept free: boot parameters, CPU partitions, SMT siblings, RCU.
    Isolation,
    /// Interrupts, soft interrupts and workqueues.
    Interrupts,
    /// Idle states.
    Idle,
    /// CPU frequencies.
    Frequency,
    /// Clock sources and timers.
    Clock,
    /// Throttling, the fair server, watchdogs.
    Scheduling,
    /// Pages: huge, merged, moved, locked.
    Memory,
    /// Shared caches and memory bandwidth.
    Cache,
    /// KVM and the threads of VMs.
    Vm,
    /// PFs, VFs, their links and the IOMMU.
    Functions,
    /// What protects tenants from each other.
    Security,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Layer::Firmware => "firmware",
            Layer::Kernel => "kernel",
            Layer::Boot => "boot",
            Layer::Isolation => "isolation",
            Layer::Interrupts => "interrupts",
            Layer::Idle => "idle",
            Layer::Frequency => "frequency",
            Layer::Clock => "clock",
            Layer::Scheduling => "scheduling",
            Layer::Memory => "memory",
            Layer::Cache => "cache",
            Layer::Vm => "vm",
            Layer::Functions => "functions",
            Layer::Security => "security",
        })
    }
}

/// What is paid with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Currency {
    /// A protection is lost.
    Security,
    /// Energy and heat.
    Power,
    /// Work that the machine gets done.
    Throughput,
    /// A safety net against software that does not give a CPU back, or against failing hardware.
    Safety,
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Currency::Security => "security",
            Currency::Power => "power",
            Currency::Throughput => "throughput",
            Currency::Safety => "safety",
        })
    }
}

/// What something costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Price {
    /// What is paid with.
    pub currency: Currency,
    /// What, in words.
    pub what: String,
}

/// One rule and what it was applied to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Row {
    /// The rule's name, which stays the same from version to version: `irqs-on-isolated`.
    pub rule: String,
    /// Where it looks.
    pub layer: Layer,
    /// What it was applied to: `CPUs 2-7`, `VM rt-2`, `0000:04:10.1`, `machine`.
    pub subject: String,
    /// How it came out.
    pub verdict: AuditOutcome,
    /// What was read; for `unknown`, why nothing could be.
    pub read: String,
    /// What it should be on this kernel and CPU.
    pub wanted: String,
    /// Why it should.
    pub why: String,
    /// What it costs to have it as wanted; of a protection that is off, what that costs.
    pub price: Option<Price>,
    /// The ways to put it right, the best first: each does by itself. Empty: there is nothing to change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Remedy>,
    /// The same as text, a line each change. `None`: there is nothing to change.
    pub change: Option<String>,
    /// The document or the commit that says so.
    pub source: String,
    /// Whether reading it takes root.
    pub needs_root: bool,
}

/// A rule that was not applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LeftOut {
    /// The rule's name.
    pub rule: String,
    /// Why not: what it is about is not on this machine, or the model does not need it.
    pub why: String,
}

/// Something that decides how late a thread wakes and that cannot be seen from a running system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Unobservable {
    /// What cannot be seen.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// Where to look instead.
    pub instead: String,
}

/// How many rows came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Score {
    /// Rows that passed, in percent of all that were judged (`recorded` ones were not), rounded down; 0 when none was.
    pub percent: u32,
    /// Rows that passed.
    pub pass: usize,
    /// Rows that failed.
    pub fail: usize,
    /// Rows whose input could not be read.
    pub unknown: usize,
    /// How many contradictions there are.
    pub conflict: usize,
    /// Rows that were told and not judged.
    pub recorded: usize,
    /// Rows of all these whose input takes no root to read.
    pub without_root: usize,
}

impl Score {
    /// The score of `rows`.
    pub fn of(rows: &[Row]) -> Score {
        let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
        let (pass, fail) = (count(AuditOutcome::Pass), count(AuditOutcome::Fail));
        let (unknown, conflict) = (count(AuditOutcome::Unknown), count(AuditOutcome::Conflict));
        let percent = (pass * 100).checked_div(pass + fail + unknown + conflict).unwrap_or(0);
        let percent = u32::try_from(percent).unwrap_or(100);
        let without_root = rows.iter().filter(|row| !row.needs_root).count();
        Score {
            percent,
            pass,
            fail,
            unknown,
            conflict,
            recorded: count(AuditOutcome::Recorded),
            without_root,
        }
    }
}

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Audit {
    /// The kernel's release.
    pub kernel: String,
    /// The CPU's model name.
    pub cpu: String,
    /// The CPUs that were judged: those that the model's real-time guests use; without a model those that this machine isolates.
    pub cpus: CpuSet,
    /// All rows, by layer; those of one layer in the order of the rules.
    pub rows: Vec<Row>,
    /// Rules that were not applied.
    pub left_out: Vec<LeftOut>,
    /// What cannot be seen.
    pub blind: Vec<Unobservable>,
    /// How many rows came out how.
    pub score: Score,
}

impl Audit {
    /// Whether nothing failed and nothing contradicts; what is unknown does not hold either.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| matches!(row.verdict, AuditOutcome::Pass | AuditOutcome::Recorded))
    }
}
