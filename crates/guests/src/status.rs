//! How a defined guest is.

use std::collections::BTreeMap;

use penstock_host::running::Running;
use penstock_model::{Bdf, GuestKind};
use penstock_plan::action::GuestFunction;
use serde::{Deserialize, Serialize};

use crate::state::Started;

/// How a defined guest is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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
    /// Whether it is there and was made anew once: it had said nothing for too long after its start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made_again: bool,
    /// Whether it is there and nobody has waited to the end until it was ready.
    #[serde(skip)]
    pub not_awaited: bool,
    /// Whether it is there and whoever started it did not live to note its process, or whoever was ending a container to see its end.
    #[serde(skip)]
    pub unfinished: bool,
}

impl Status {
    /// How a guest is that has this process and was started so; `last_words` are asked for when it died.
    pub(crate) fn seen(
        kind: GuestKind,
        process: Option<Running>,
        started: Option<Started>,
        functions: Vec<GuestFunction>,
        last_words: impl FnOnce() -> Vec<String>,
    ) -> Status {
        let condition = match (&process, &started) {
            (Some(_), _) => Condition::Running,
            // Nobody has seen a process of it yet: it is being started, or whoever was at that died.
            (None, Some(Started { init: None, .. }) | None) => Condition::Stopped,
            (None, Some(_)) => Condition::Died,
        };
        Status {
            kind,
            condition,
            pid: process.map(|process| process.id),
            not_awaited: process.is_some() && started.as_ref().is_some_and(|started| started.not_awaited),
            unfinished: process.is_some() && started.as_ref().is_some_and(Started::is_halfway),
            made_again: process.is_some() && started.as_ref().is_some_and(|started| started.made_again),
            since: started.map(|started| started.since).filter(|_| process.is_some()),
            functions,
            last_words: if condition == Condition::Died { last_words() } else { Vec::new() },
        }
    }

    /// The drivers that go back to its functions when it is stopped.
    pub(crate) fn home_drivers(&self) -> BTreeMap<Bdf, String> {
        let home = |owned: &GuestFunction| Some((owned.function, owned.home_driver.clone()?));
        self.functions.iter().filter_map(home).collect()
    }
}

/// Whether a guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// It was not started yet, or was stopped and its functions given back.
    Stopped,
    /// It is a VM that is there, and does not run.
    Suspended,
    /// It runs.
    Running,
    /// It was started, nobody stopped it, and it is gone.
    Died,
}
