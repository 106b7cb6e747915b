//! Which faults a campaign has, and which runs meet them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What happens to a run at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// SIGKILL when the step is announced and nothing of it is done.
    Before,
    /// SIGKILL after half of the system calls with which the step changes the machine.
    Middle,
    /// SIGKILL when the step is carried out and what came of it is about to be written.
    Carried,
    /// SIGKILL when that is written.
    After,
    /// Every system call with which the step changes the machine fails.
    Fail,
    /// The first of them does not come back.
    Hang,
    /// From the begin of the step on the disk of the journal has no byte left.
    Full,
    /// The machine is reset in the middle of the step.
    Reset,
}

/// The run that meets a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// `penstock apply`.
    Apply,
    /// `penstock apply --confirm-within`, watched by its guard.
    Guarded,
    /// `penstock undo` of a complete apply.
    Undo,
    /// The guard, which takes back an apply that nobody confirms.
    Guard,
}

impl Fault {
    /// All, in the order in which they are tried.
    pub const ALL: [Fault; 8] = [
        Fault::Before,
        Fault::Middle,
        Fault::Carried,
        Fault::After,
        Fault::Fail,
        Fault::Hang,
        Fault::Full,
        Fault::Reset,
    ];

    /// Its name on the command line and in the table.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Before => "before",
            Fault::Middle => "middle",
            Fault::Carried => "carried",
            Fault::After => "after",
            Fault::Fail => "fail",
            Fault::Hang => "hang",
            Fault::Full => "full",
            Fault::Reset => "reset",
        }
    }
}

impl Over {
    /// All, in the order in which they are tried.
    pub const ALL: [Over; 4] = [Over::Apply, Over::Undo, Over::Guard, Over::Guarded];

    /// Its name on the command line and in the table.
    pub fn name(self) -> &'static str {
        match self {
            Over::Apply => "apply",
            Over::Guarded => "guarded",
            Over::Undo => "undo",
            Over::Guard => "guard",
        }
    }

    /// Whether its steps are those that take an apply back.
    pub fn takes_back(self) -> bool {
        matches!(self, Over::Undo | Over::Guard)
    }

    /// Whether it meets this fault. A watched apply differs from any other in what follows its death and its failure; a guard that the
    /// reset ends is the reset of the apply that it watches.
    pub fn meets(self, fault: Fault) -> bool {
        match self {
            Over::Apply | Over::Undo => true,
            Over::Guard => !matches!(fault, Fault::Reset | Fault::Hang),
            Over::Guarded => matches!(fault, Fault::Before | Fault::Middle | Fault::After | Fault::Fail),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let names = Fault::ALL.map(Fault::name).join(", ");
        let found = Fault::ALL.into_iter().find(|fault| fault.name() == text);
        found.ok_or_else(|| format!("`{text}` is no fault: {names}"))
    }
}

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Over, String> {
        let names = Over::ALL.map(Over::name).join(", ");
        let found = Over::ALL.into_iter().find(|over| over.name() == text);
        found.ok_or_else(|| format!("`{text}` is no run that meets faults: {names}"))
    }
}
