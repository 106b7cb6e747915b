//! What became of a run's steps, read from its journal.

use std::collections::{BTreeMap, BTreeSet};

use penstock_plan::{Action, Plan, StepId};
use serde::{Deserialize, Serialize};

use crate::journal::{Ending, Entry};

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It was not begun.
    NotBegun,
    /// It was begun, and nobody knows what came of it: the machine is to be asked.
    Unknown,
    /// It was done, and its postcondition was read back.
    Done,
    /// It failed, or the driver could not do it or report it; something of it may be there.
    Doubtful,
    /// It was taken back.
    TakenBack,
    /// It could not be taken back, and why.
    Stuck(String),
    /// Somebody else has made this of it since, which was left alone. Nothing of the run is there: no later undo or guard looks at it
    /// again.
    Anothers(String),
    /// The machine was reset since, and with that it is gone.
    GoneWithReset,
}

impl Fate {
    /// Whether something of the step may be there.
    pub fn may_stand(&self) -> bool {
        matches!(self, Fate::Unknown | Fate::Done | Fate::Doubtful | Fate::Stuck(_))
    }
}

/// How a run stands as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing of it is there: it changed nothing, or all of it was taken back or is gone with a reset.
    Nothing,
    /// It ended by itself, with what its plan wanted.
    Applied,
    /// It ended by itself, and a part of what its plan wanted is there.
    AppliedInPart,
    /// It was cut off.
    Interrupted,
    /// Taking it back was begun and did not get to its end.
    PartlyTakenBack,
    /// What is kept of it is damaged: nobody knows how far it got, and something of it may be there.
    Damaged,
}

impl Phase {
    /// Whether the machine is neither as it was nor as somebody wanted it.
    pub fn is_half_way(self) -> bool {
        matches!(self, Phase::Interrupted | Phase::PartlyTakenBack | Phase::Damaged)
    }
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunState {
    /// Each step that was announced, in order.
    pub steps: Vec<(StepId, Fate)>,
    /// The steps that were seen to be done once, and that nobody has taken back since: also those that could not be, or of which nobody
    /// knows whether they were.
    pub done: BTreeSet<StepId>,
    /// As a whole.
    pub phase: Phase,
    /// How many steps may still be there and have a way back. What has none, a wait for a guest or the reset of a function, is never taken
    /// back.
    pub left: usize,
    /// Whether its journal has an end: it, or an undo of it, got there.
    pub ended: bool,
    /// What is wrong with what is kept of it, the error and its causes.
    pub damage: Option<String>,
}

impl RunState {
    /// Reads `entries`, the journal of a run. `reset` says that the kernel has been started anew since: then only
    /// files are left, and the last entries may have been lost.
    pub fn read(entries: &[Entry], reset: bool) -> RunState {
        RunState::judge(entries, reset, None)
    }

    /// The same of a run whose journal is damaged: `entries` are those that can still be read, and `plan` is what it was to do, if
    /// that is known. Each step of the plan that was not surely taken back may be there: what says otherwise may be what is
    /// lost. To take back one that was never begun does no harm, since it is looked at first.
    pub fn read_damaged(entries: &[Entry], plan: Option<&Plan>, reset: bool, damage: String) -> RunState {
        RunState::judge(entries, reset, Some((plan, damage)))
    }

    fn judge(entries: &[Entry], reset: bool, damage: Option<(Option<&Plan>, String)>) -> RunState {
        let mut fates: BTreeMap<StepId, Fate> = BTreeMap::new();
        let mut announced: BTreeMap<StepId, (&Action, bool)> = BTreeMap::new();
        let mut done: BTreeSet<StepId> = BTreeSet::new();
        let (mut ended, mut undo_since) = (None, false);
        for entry in entries {
            match entry {
                Entry::Begin { .. } => {}
                Entry::Intent { step, action, inverse } => {
                    fates.entry(*step).or_insert(Fate::NotBegun);
                    announced.insert(*step, (action, inverse.is_some()));
                }
                Entry::Begun { steps } => {
                    fates.extend(steps.iter().map(|step| (*step, Fate::Unknown)));
                }
                Entry::Outcome { step, outcome, .. } => {
                    let fate = match outcome {
                        Ending::Done => Fate::Done,
                        Ending::Failed | Ending::Unsupported => Fate::Doubtful,
                        Ending::LeftOut => Fate::NotBegun,
                    };
                    if fate == Fate::Done {
                        done.insert(*step);
                    }
                    fates.insert(*step, fate);
                }
                Entry::Undo { step, .. } => {
                    undo_since |= ended.is_some();
                    fates.insert(*step, Fate::Unknown);
                }
                Entry::Undone { step, error, anothers } => {
                    undo_since |= ended.is_some();
                    if error.is_none() {
                        done.remove(step);
                    }
                    let fate = match (error, anothers) {
                        (Some(error), _) => Fate::Stuck(error.clone()),
                        (None, Some(seen)) => Fate::Anothers(seen.clone()),
                        (None, None) => Fate::TakenBack,
                    };
                    fates.insert(*step, fate);
                }
                Entry::End { applied } => ended = Some(*applied),
            }
        }
        let plan_is_known = !matches!(damage, Some((None, _)));
        if let Some((plan, _)) = &damage {
            for step in plan.iter().flat_map(|plan| &plan.steps) {
                fates.entry(step.id).or_insert(Fate::Unknown);
                announced.entry(step.id).or_insert((&step.action, step.inverse.is_some()));
            }
            for fate in fates.values_mut().filter(|fate| **fate == Fate::NotBegun) {
                *fate = Fate::Unknown;
            }
        }
        let steps: Vec<(StepId, Fate)> = fates
            .into_iter()
            .filter_map(|(step, fate)| {
                let (action, _) = announced.get(&step)?;
                Some((step, if reset { after_reset(fate, action) } else { fate }))
            })
            .collect();
        // What has no way back is never taken back: a function stays reset.
        let has_way_back = |step: &StepId| announced.get(step).is_some_and(|(_, way_back)| *way_back);
        let left = steps.iter().filter(|(step, fate)| fate.may_stand() && has_way_back(step)).count();
        let stands = left > 0;
        let phase = match ended {
            _ if !plan_is_known || (damage.is_some() && stands) => Phase::Damaged,
            // What ended with all that was wanted is that also where nothing was to be done.
            Some(true) if stands && !undo_since => Phase::Applied,
            _ if !stands => Phase::Nothing,
            _ if undo_since => Phase::PartlyTakenBack,
            Some(_) => Phase::AppliedInPart,
            None => Phase::Interrupted,
        };
        let damage = damage.map(|(_, damage)| damage);
        RunState { steps, done, phase, left, ended: ended.is_some(), damage }
    }

    /// The steps of which something may be there, with what became of them.
    pub fn standing(&self) -> impl Iterator<Item = (StepId, &Fate)> {
        self.steps.iter().filter(|(_, fate)| fate.may_stand()).map(|(step, fate)| (*step, fate))
    }
}

/// What a reset of the machine leaves of a step that was announced.
fn after_reset(fate: Fate, action: &Action) -> Fate {
    match fate {
        // That it was begun may not have reached the disk.
        Fate::NotBegun if action.outlives_reset() => Fate::Unknown,
        fate if fate.may_stand() && !action.outlives_reset() => Fate::GoneWithReset,
        fate => fate,
    }
}
