//! The journal of an undo: its own, and those of the runs that it takes back.

use std::{collections::BTreeMap, mem};

use penstock_plan::{Action, StepId};

use super::{record::RunId, recovery::UndoPlan};
use crate::journal::{Ending, Entry, Journal, JournalError};

/// Records in its own journal, and in each run's that it takes steps back of: before a step is taken back, and what came
/// of it. So a run's journal alone tells what stands of it, however often taking it back is begun anew.
pub struct UndoJournal<J> {
    own: J,
    runs: BTreeMap<RunId, J>,
    /// For each step of the undo what it takes back, and how.
    steps: BTreeMap<StepId, (RunId, StepId, Action)>,
    /// What of each run is somebody else's by now.
    anothers: BTreeMap<RunId, Vec<Entry>>,
}

impl<J: Journal> UndoJournal<J> {
    /// A journal for the undo by `way`: `own` is its own, `runs` are those of the runs that it takes back.
    pub fn new(own: J, runs: BTreeMap<RunId, J>, way: &UndoPlan) -> UndoJournal<J> {
        let steps = way.plan.steps.iter().zip(&way.origins);
        let steps = steps.map(|(step, (run, origin))| (step.id, (*run, *origin, step.action.clone())));
        let mut anothers: BTreeMap<RunId, Vec<Entry>> = BTreeMap::new();
        for (run, step, seen) in &way.anothers {
            let left = Entry::Undone { step: *step, error: None, anothers: Some(seen.clone()) };
            anothers.entry(*run).or_default().push(left);
        }
        UndoJournal { own, runs, steps: steps.collect(), anothers }
    }

    fn tell(&mut self, run: RunId, entries: &[Entry], sync: bool) -> Result<(), JournalError> {
        self.runs.get_mut(&run).map_or(Ok(()), |journal| journal.record(entries, sync))
    }
}

impl<J: Journal> Journal for UndoJournal<J> {
    fn record(&mut self, entries: &[Entry], sync: bool) -> Result<(), JournalError> {
        let mut first = self.own.record(entries, sync);
        for entry in entries {
            let told = match entry {
                Entry::Begin { .. } => {
                    let left = mem::take(&mut self.anothers);
                    let told = left.into_iter().map(|(run, left)| self.tell(run, &left, true));
                    told.fold(Ok(()), Result::and)
                }
                Entry::Begun { steps } => {
                    let mut of_runs: BTreeMap<RunId, Vec<Entry>> = BTreeMap::new();
                    for (run, step, action) in steps.iter().filter_map(|step| self.steps.get(step)) {
                        let undo = Entry::Undo { step: *step, action: action.clone() };
                        of_runs.entry(*run).or_default().push(undo);
                    }
                    let told = of_runs.into_iter().map(|(run, undo)| self.tell(run, &undo, true));
                    told.fold(Ok(()), Result::and)
                }
                Entry::Outcome { step, outcome, detail } => {
                    let Some((run, origin, _)) = self.steps.get(step).cloned() else { continue };
                    let error = match outcome {
                        Ending::Done => None,
                        // The driver cannot set back what it could not set either.
                        Ending::Unsupported => None,
                        Ending::Failed => Some(detail.clone().unwrap_or_default()),
                        // Nothing was attempted, so that nothing has changed.
                        Ending::LeftOut => continue,
                    };
                    self.tell(run, &[Entry::Undone { step: origin, error, anothers: None }], false)
                }
                // A run that was cut off has come to its end when all of it is taken back.
                Entry::End { applied: true } => {
                    let ids: Vec<RunId> = self.runs.keys().copied().collect();
                    let end = [Entry::End { applied: false }];
                    ids.into_iter().map(|run| self.tell(run, &end, true)).fold(Ok(()), Result::and)
                }
                _ => Ok(()),
            };
            first = first.and(told);
        }
        first
    }
}
