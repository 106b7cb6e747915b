//! What is kept of a run besides its journal and plan.

use std::{fmt, str::FromStr};

use penstock_host::running::Running;
use penstock_model::Bdf;
use serde::{Deserialize, Serialize};

/// The version of a run directory's form; a reader refuses a newer one.
pub const RUN_VERSION: u32 = 1;

/// A run's number on its machine, from 1; the name of its directory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct RunId(pub u32);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RunId {
    type Err = String;

    fn from_str(text: &str) -> Result<RunId, String> {
        let number = text.parse().map_err(|_| "a run is named by its number".to_owned())?;
        if number == 0 { Err("runs are numbered from 1".to_owned()) } else { Ok(RunId(number)) }
    }
}

/// What a run was for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To make the machine what a model says, or to start guests.
    Apply,
    /// To stop guests.
    Stop,
    /// To have a model applied at each start of the machine.
    Persist,
    /// To take these runs back, newest first.
    Undo(Vec<RunId>),
}

/// Who does something to a machine, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Who {
    /// The process that makes the change.
    pub process: Running,
    /// The user, and behind `sudo` the user that called it: `root (mara)`.
    pub user: String,
    /// What was typed.
    pub command: Vec<String>,
    /// Since when, in milliseconds since 1970.
    pub since: u64,
    /// The terminal, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<String>,
    /// The address that an SSH connection came from, when it was started from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
}

impl Who {
    /// The user, and the address that it came from: `root from 192.0.2.7`. Where everybody logs in as root only that tells them apart.
    pub fn caller(&self) -> String {
        match &self.peer {
            Some(peer) => format!("{} from {peer}", self.user),
            None => self.user.clone(),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of {} (process {}", self.command.join(" "), self.user, self.process.id)?;
        if let Some(terminal) = &self.terminal {
            write!(f, " on {terminal}")?;
        }
        if let Some(peer) = &self.peer {
            write!(f, ", from {peer}")?;
        }
        write!(f, ")")
    }
}

/// How long a run waits for being confirmed before it is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Confirm {
    /// From its end, in milliseconds.
    pub within: u64,
    /// The longest that nothing new may come into the journal of a run that goes on, in milliseconds; then it hangs, is ended
    /// and taken back.
    pub at_most: u64,
}

/// What is known of a run before it begins; never changed afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RunRecord {
    /// [`RUN_VERSION`] of the writer.
    pub version: u32,
    /// The number of the run.
    pub id: RunId,
    /// What it was for.
    pub purpose: Purpose,
    /// Who did it.
    pub who: Who,
    /// The run of the kernel that it was done on (`boot_id`); what is not in files is gone with that.
    pub boot: Option<String>,
    /// The model's file, as it was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// When it is taken back unless somebody confirms it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<Confirm>,
    /// Runs that were cut off or taken back in part, and that this one went on from: who takes it back takes them back too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supersedes: Vec<RunId>,
    /// Functions whose `driver_override` a run that was cut off has left set: this one clears it before anything else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clears_overrides: Vec<Bdf>,
}

impl RunRecord {
    /// A run for `purpose`. Version, number and the kernel's run are given to it when it is kept
    /// ([`Runs::create`](super::Runs::create)).
    pub fn new(purpose: Purpose, who: Who) -> RunRecord {
        RunRecord {
            version: 0,
            id: RunId(0),
            purpose,
            who,
            boot: None,
            model: None,
            confirm: None,
            supersedes: Vec::new(),
            clears_overrides: Vec::new(),
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Outcome {
    /// When, in milliseconds since 1970.
    pub ended: u64,
    /// When, in milliseconds of the kernel's own clock (`CLOCK_BOOTTIME`).
    pub boottime: u64,
    /// Why it is not as was wanted; `None` when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
