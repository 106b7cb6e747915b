//! The record of one run, and its JSON form.

use std::{collections::HashSet, time::Duration};

use penstock_model::{
    Verdict, Verdicts,
    audit::Audit,
    measurement::{
        Conclusion, CutShort, ExpectationResult, Measurements,
        latency::{Latency, LatencyExpectation},
    },
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    extent::{self, ReadMode},
    groups::{self, Counts, Group},
    machine::Machine,
    seconds,
};

/// The version of the evidence's JSON form. It grows when a reader of the old form would misread the new one; a field
/// that is only added leaves it alone, because readers pass over fields that they do not know.
///
/// 2: no two verdicts have the same [key](Verdict::key).
pub const EVIDENCE_VERSION: u32 = 2;

/// The record of one run.
///
/// As JSON this is one object whose keys are the fields' names. Times are numbers of seconds, hashes lower-case
/// hexadecimal SHA-256, functions `NET0` or `NET0#3`, MAC and PCI addresses the usual text. A field that is missing
/// has the value of [`Evidence::default`]; one that is unknown is passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Evidence {
    /// [`EVIDENCE_VERSION`] of the writer.
    pub version: u32,
    /// Which run this is.
    pub run: Run,
    /// What it was run with.
    pub versions: Versions,
    /// What went into it, by hash.
    pub hashes: Hashes,
    /// The user's file.
    pub model: ModelFile,
    /// The machine that the run was about.
    pub machine: Machine,
    /// The steps of the plan, in order; empty for a run that changes nothing.
    pub steps: Vec<StepRecord>,
    /// Where the time went, in order: `boot`, `apply`, `verify`...
    pub phases: Vec<Phase>,
    /// What was looked at: one verdict per attribute.
    pub verdicts: Verdicts,
    /// What was measured; `None` for a run that measured nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measurements: Option<Measurements>,
    /// How late threads woke up; `None` for a run that did not measure it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// What an audit of the machine found; `None` for a run that made none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audits: Option<Audits>,
    /// What the reader should know beside: warnings, what could not be read.
    pub notes: Vec<String>,
    /// The end of the machine's serial console, where it has one.
    pub serial_log: Option<String>,
    /// The most memory that Penstock itself had resident on the machine while it carried the plan out, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
}

impl Default for Evidence {
    fn default() -> Evidence {
        Evidence {
            version: EVIDENCE_VERSION,
            run: Run::default(),
            versions: Versions::default(),
            hashes: Hashes::default(),
            model: ModelFile::default(),
            machine: Machine::default(),
            steps: Vec::new(),
            phases: Vec::new(),
            verdicts: Verdicts::default(),
            measurements: None,
            latency: None,
            audits: None,
            notes: Vec::new(),
            serial_log: None,
            peak_memory: None,
        }
    }
}

/// Audits of the machine, before and after what a run measured: they tell whether it was the same machine all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Audits {
    /// The audit before the change.
    pub before: Option<Audit>,
    /// After; `None` where the run did not come so far, or changed nothing that would be worth another look.
    pub after: Option<Audit>,
}

/// Which run this is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Run {
    /// The run's name, as its directory is called.
    pub id: String,
    /// When it started, in RFC 3339 text.
    pub started: String,
    /// How long it took, in seconds.
    #[serde(rename = "seconds", with = "seconds")]
    #[schemars(with = "f64")]
    pub took: Duration,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The exit status; `None` while the run has not ended.
    pub exit: Option<u8>,
}

/// What a run was made with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Versions {
    /// The version of Penstock that made it.
    pub penstock: String,
    /// The commit that Penstock was built from, where the build knew it.
    pub commit: Option<String>,
    /// The kernel of the machine that the run was about (`uname -r`).
    pub kernel: Option<String>,
    /// QEMU's version, for a machine that is emulated.
    pub qemu: Option<String>,
    /// What ran the emulated machine's processors.
    pub accelerator: Option<Accelerator>,
}

/// What ran an emulated machine's processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Accelerator {
    /// `kvm` or `tcg`.
    pub name: String,
    /// Why it was chosen.
    pub why: String,
}

/// What went into a run: SHA-256, in lower-case hexadecimal. `None` where the run had no such thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Hashes {
    /// Of the model file's bytes.
    pub model: Option<String>,
    /// Of the board's image.
    pub image: Option<String>,
    /// Of the Penstock binary.
    pub binary: Option<String>,
    /// Of the inventory's JSON that the plan was made from.
    pub inventory: Option<String>,
}

/// The user's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ModelFile {
    /// Its name, as given on the command line.
    pub name: String,
    /// The text of the file.
    pub text: String,
}

/// A step of the plan, as it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct StepRecord {
    /// Its number within the plan, from 1.
    pub id: u32,
    /// What it does.
    pub what: String,
    /// Why it is done, in words.
    pub why: String,
    /// How long it took, in seconds; `None` when it was not carried out.
    #[serde(rename = "seconds", with = "seconds::optional", default)]
    #[schemars(with = "Option<f64>")]
    pub took: Option<Duration>,
    /// How it went.
    pub outcome: StepOutcome,
    /// What there is to say about the outcome: the error of a failed step, the driver's answer of an unsupported one.
    #[serde(default)]
    pub detail: Option<String>,
}

/// How a step went.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum StepOutcome {
    /// Carried out, and its postcondition was seen.
    Done,
    /// It was so already; nothing was written.
    Already,
    /// The driver cannot do it, and the model says best effort.
    Unsupported,
    /// The step was not reached.
    Skipped,
    /// Carried out and taken back.
    Undone,
    /// The step failed.
    Failed,
}

impl StepOutcome {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            StepOutcome::Done => "done",
            StepOutcome::Already => "already so",
            StepOutcome::Unsupported => "unsupported",
            StepOutcome::Skipped => "not reached",
            StepOutcome::Undone => "undone",
            StepOutcome::Failed => "failed",
        }
    }

    /// Whether a step that went so lets the run hold.
    pub const fn holds(self) -> bool {
        matches!(self, StepOutcome::Done | StepOutcome::Already | StepOutcome::Unsupported)
    }
}

/// A part of a run and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Phase {
    /// Its name: `boot`, `apply`...
    pub name: String,
    /// How long it took, in seconds.
    #[serde(rename = "seconds", with = "seconds")]
    #[schemars(with = "f64")]
    pub took: Duration,
}

/// Why text is not evidence.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A newer Penstock wrote it.
    #[error(
        "this evidence has version {found}, and this Penstock reads up to {EVIDENCE_VERSION}: use a newer Penstock"
    )]
    Newer {
        /// The version that it says.
        found: u64,
    },
    /// It is no JSON, or JSON of another form; or two verdicts have the same key.
    #[error("this is not the evidence of a run")]
    Form(#[source] serde_json::Error),
    /// Two of what was measured have the same name: a comparison could not tell them apart.
    #[error("this evidence has two {what} called {name:?}, and a run has one of each name")]
    Repeated {
        /// What they are.
        what: &'static str,
        /// The name that they have in common.
        name: String,
    },
    /// It would take too much memory.
    #[error("this has {found} {what}, and at most {most} are read")]
    TooMuch {
        /// What they are.
        what: &'static str,
        /// How many they are, or a few more.
        found: usize,
        /// How many are read.
        most: usize,
    },
}

impl Evidence {
    /// Whether all that was asked for is so: the machine is as the model says, and measures up to it.
    ///
    /// At least one verdict was given or something was measured; every verdict [holds](Verdict::holds), every step of the plan
    /// went through, what was measured [holds](Measurements::holds) and was not interrupted, and the exit status is not known to be
    /// another than 0.
    pub fn holds(&self) -> bool {
        (!self.verdicts.is_empty() || self.measurements.is_some() || self.latency.is_some())
            && self.verdicts.iter().all(Verdict::holds)
            && self.steps.iter().all(|step| step.outcome.holds())
            && self.measurements.as_ref().is_none_or(Measurements::holds)
            && self.latency.as_ref().is_none_or(Latency::holds)
            && self.cut_short() != Some(CutShort::Interrupted)
            && self.run.exit.is_none_or(|status| status == 0)
    }

    /// What ended the run before it had measured all.
    pub(crate) fn cut_short(&self) -> Option<CutShort> {
        let of_cells = self.measurements.as_ref().and_then(Measurements::cut_short);
        of_cells.max(self.latency.as_ref().and_then(Latency::cut_short))
    }

    /// How many `expect:` lines came out so.
    pub fn expectations_with(&self, told: Conclusion) -> usize {
        self.rulings().iter().filter(|ruling| ruling.told == told).count()
    }

    /// What the `expect:` lines came out as; none without measurements.
    pub fn rulings(&self) -> &[ExpectationResult] {
        self.measurements.as_ref().map(|measurements| measurements.rulings.as_slice()).unwrap_or_default()
    }

    /// Whether something was measured or audited, so that a run without verdicts is none that forgot them.
    pub(crate) fn has_more_than_verdicts(&self) -> bool {
        self.measurements.is_some() || self.latency.is_some() || self.audits.is_some()
    }

    /// Whether it measured anything, or was to.
    pub(crate) fn measures(&self) -> bool {
        self.measurements.is_some() || self.latency.is_some()
    }

    /// How many claims about latencies came out so.
    pub(crate) fn claims_with(&self, told: Conclusion) -> usize {
        self.claims().iter().filter(|ruling| ruling.told == told).count()
    }

    /// What the claims about latencies came out as; none where none were measured.
    pub fn claims(&self) -> &[ExpectationResult<LatencyExpectation>] {
        self.latency.as_ref().map(|latency| latency.rulings.as_slice()).unwrap_or_default()
    }

    /// How many verdicts came out how.
    pub fn counts(&self) -> Counts {
        Counts::of(&self.verdicts)
    }

    /// The verdicts by what they are about, those that do not hold first.
    pub fn groups(&self) -> Vec<Group<'_>> {
        groups::of(self)
    }

    /// The evidence as JSON, indented, with a final newline.
    pub fn json(&self) -> String {
        // Only a map with keys that are no text, or a type that refuses, could fail; there is neither.
        let mut text =
            serde_json::to_string_pretty(self).expect("evidence has neither maps nor types that refuse");
        text.push('\n');
        text
    }

    /// Whether [`Evidence::from_json`] reads this text of its own again.
    ///
    /// # Errors
    /// [`ReadError::TooMuch`].
    pub fn check_extent(json: &str) -> Result<(), ReadError> {
        extent::check(json, ReadMode::Typed)
    }

    /// Whether its verdicts have keys of their own; in version 1 several could have the same. They are numbered when they are
    /// read, and two runs are compared by more than the keys ([`crate::compare`]).
    pub fn has_keys(&self) -> bool {
        self.version >= 2
    }

    /// What was measured has names of its own, as verdicts have keys.
    fn checked(self) -> Result<Evidence, ReadError> {
        let cells = self.measurements.iter().flat_map(|measured| &measured.cells).map(|cell| &cell.id);
        let series = self.latency.iter().flat_map(|latency| &latency.series).map(|series| &series.id);
        for (what, name) in [("cells", repeated(cells)), ("series of latencies", repeated(series))] {
            if let Some(name) = name.cloned() {
                return Err(ReadError::Repeated { what, name });
            }
        }
        Ok(self)
    }

    /// Reads evidence from JSON. Unknown fields are passed over.
    ///
    /// # Errors
    /// When a newer Penstock wrote it, when two verdicts have the same key or two cells the same name, when it is no evidence
    /// at all, or would take more than some 512 MiB of memory.
    pub fn from_json(text: &str) -> Result<Evidence, ReadError> {
        /// What is read first: a newer form may differ in everything else.
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        extent::check(text, ReadMode::Typed)?;
        let Version { version: found } = serde_json::from_str(text).map_err(ReadError::Form)?;
        if found > u64::from(EVIDENCE_VERSION) {
            return Err(ReadError::Newer { found });
        }
        if found >= 2 {
            return serde_json::from_str::<Evidence>(text).map_err(ReadError::Form)?.checked();
        }
        extent::check(text, ReadMode::Whole)?;
        /// What of version 1 is read apart.
        #[derive(Deserialize)]
        struct Keyless {
            #[serde(default)]
            verdicts: Vec<Verdict>,
        }
        let Keyless { verdicts } = serde_json::from_str(text).map_err(ReadError::Form)?;
        let mut rest: serde_json::Value = serde_json::from_str(text).map_err(ReadError::Form)?;
        rest.as_object_mut().map(|fields| fields.remove("verdicts"));
        let rest: Evidence = serde_json::from_value(rest).map_err(ReadError::Form)?;
        Ok(Evidence { verdicts: verdicts.into_iter().collect(), ..rest })
    }
}

/// The first name that was there before.
fn repeated<'a>(mut names: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let mut known = HashSet::new();
    names.find(|name| !known.insert(*name))
}
