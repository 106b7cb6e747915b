//! How the runs stand that changed this machine.

use penstock_apply::history::{KnownRun, Phase, RunId, StoreError, store::UnreadableRun};

use super::Machine;

/// The runs of a machine, by what somebody should do about them.
#[derive(Debug, Default)]
pub struct RunStates {
    /// Runs that wait to be confirmed.
    pub open: Vec<KnownRun>,
    /// Runs that left the machine half-way.
    pub half_way: Vec<RunId>,
    /// Runs that nobody had confirmed when the machine was reset, and that left something.
    pub lapsed: Vec<RunId>,
    /// Runs of which nothing can be read any more.
    pub unreadable: Vec<UnreadableRun>,
    /// Runs of which something cannot be read any more, and what, a line for each thing.
    pub damaged: Vec<(RunId, Vec<String>)>,
    /// The run that was begun last, of those that can be read.
    pub last: Option<KnownRun>,
}

impl Machine {
    /// How its runs stand.
    ///
    /// # Errors
    ///
    /// [`StoreError::File`] when the directory of all runs cannot be read.
    pub fn run_states(&self) -> Result<RunStates, StoreError> {
        let runs = self.runs();
        let (all, unreadable) = runs.list()?;
        let mut states = RunStates { unreadable, last: all.last().cloned(), ..RunStates::default() };
        states.half_way = runs.half_way(&all).iter().map(|(run, _)| run.id()).collect();
        for run in &all {
            let state = runs.state(run);
            let damage: Vec<String> = run.damage.iter().cloned().chain(state.damage).collect();
            if !damage.is_empty() {
                states.damaged.push((run.id(), damage));
            }
            if !run.is_open() || run.is_running() {
                continue;
            }
            if !runs.has_lapsed(run) {
                states.open.push(run.clone());
            } else if state.phase != Phase::Nothing {
                states.lapsed.push(run.id());
            }
        }
        Ok(states)
    }
}
