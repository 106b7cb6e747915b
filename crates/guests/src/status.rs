//! How a defined guest is.

use penstock_model::GuestKind;
use penstock_plan::action::GuestFunction;
use serde::{Deserialize, Serialize};

/// How a defined guest is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// VM or container.
    pub kind: GuestKind,
    /// Whether it runs.
    pub condition: Condition,
    /// Its process on the host, while it is there: a container's first process, a VM's QEMU.
    pub pid: Option<u32>,
    /// When it was started, in seconds since 1970, while it is there.
    pub since: Option<u64>,
    /// Its functions as its definition has them.
    pub functions: Vec<GuestFunction>,
    /// The last lines of its console, when it died.
    pub last_words: Vec<String>,
}

/// Whether a guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// It was not started, or was stopped and its functions given back.
    Stopped,
    /// It is a VM that is there, and does not run.
    Suspended,
    /// It runs.
    Running,
    /// It was started, nobody stopped it, and it is gone.
    Died,
}
