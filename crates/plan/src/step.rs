//! A plan and its steps.

use std::fmt;

use indexmap::IndexMap;
use penstock_model::{Bdf, DriveName, GuestName, NicName};
use serde::{Deserialize, Serialize};

use crate::{Action, Fact};

/// A step's number within its plan, from 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct StepId(pub u32);

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One step: what, why, after what, how back, and what holds afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Step {
    /// The number of the step in its plan.
    pub id: StepId,
    /// What it does.
    pub action: Action,
    /// Why, for a person, naming functions and guests as the model does: "NET0#3 belongs to rt-2".
    pub reason: String,
    /// Steps that must have succeeded before.
    pub needs: Vec<StepId>,
    /// What takes it back; `None` when nothing needs to be (a reset, a definition that is replaced).
    pub inverse: Option<Action>,
    /// What is true afterwards.
    pub postcondition: Fact,
    /// Whether a driver that answers "unsupported" is to be noted and passed over (the model's `best_effort`).
    pub best_effort: bool,
    /// The guest whose start or stop it is part of. When such a step fails, that guest's steps are taken back, the
    /// steps that need them are left out, and the rest goes on; `None` concerns them all.
    #[serde(default)]
    pub guest: Option<GuestName>,
}

/// Ordered steps from what an inventory found to what a model wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Plan {
    /// Which PF each NIC of the model turned out to be.
    pub nics: IndexMap<NicName, Bdf>,
    /// Which PF each drive of the model turned out to be.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub drives: IndexMap<DriveName, Bdf>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// What an operator should know before agreeing: VFs that are destroyed and whose they were, attributes that the
    /// driver is known not to do.
    pub notes: Vec<String>,
}

impl Plan {
    /// What the model calls the PF at `pf`, of a NIC or of a drive.
    pub fn name_of(&self, pf: Bdf) -> Option<String> {
        let nic = self.nics.iter().find(|(_, bdf)| **bdf == pf).map(|(name, _)| name.to_string());
        nic.or_else(|| self.drives.iter().find(|(_, bdf)| **bdf == pf).map(|(name, _)| name.to_string()))
    }
}
