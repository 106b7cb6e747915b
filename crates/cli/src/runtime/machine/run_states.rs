//! How the runs stand that changed this machine.

use std::time::Duration;

use penstock_apply::history::{KnownRun, Phase, RunId, StoreError, Undecided, store::UnreadableRun};

use super::Machine;

/// What becomes of a run that was to be confirmed and was cut off before it came to its end.
pub const CUT_OFF_WAY: &str = "its guard takes back what it did, if that lives; else `penstock undo` does";

/// The runs of a machine, by what somebody should do about them.
#[derive(Debug, Default)]
pub struct RunStates {
    /// Runs that wait to be confirmed.
    pub open: Vec<KnownRun>,
    /// Runs that left the machine half-way.
    pub half_way: Vec<RunId>,
    /// Those of them that were to be confirmed: nothing goes on from one of these until it is taken back.
    pub cut_off: Vec<RunId>,
    /// Runs that somebody is taking back right now.
    pub going: Vec<RunId>,
    /// Runs that somebody goes on from right now.
    pub gone_on_from: Vec<RunId>,
    /// Runs that nobody had confirmed when the machine was reset, and that left something.
    pub lapsed: Vec<RunId>,
    /// Runs of which nothing can be read any more.
    pub unreadable: Vec<UnreadableRun>,
    /// Runs of which something cannot be read any more, and what, a line for each thing.
    pub damaged: Vec<(RunId, Vec<String>)>,
    /// The run that was begun last, of those that can be read.
    pub last: Option<KnownRun>,
}

impl RunStates {
    /// How long there is to confirm the first of those that wait, in milliseconds; below 0 of one that is being taken back. The kernel has
    /// run for `boottime`: the guard goes by that clock, which nobody sets.
    pub fn to_confirm(&self, boottime: Duration) -> Option<i64> {
        let now = i64::try_from(boottime.as_millis()).unwrap_or(i64::MAX);
        let left = |run: &KnownRun| {
            let until = run.outcome.as_ref()?.boottime.saturating_add(run.record.confirm?.within);
            Some(i64::try_from(until).unwrap_or(i64::MAX).saturating_sub(now))
        };
        self.open.iter().filter_map(left).min()
    }
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
        for at_work in all.iter().filter(|run| run.is_running()) {
            states.going.extend(at_work.takes_back());
            states.gone_on_from.extend(&at_work.record.supersedes);
        }
        for run in &all {
            let state = runs.state(run);
            let damage: Vec<String> = run.damage.iter().cloned().chain(state.damage).collect();
            if !damage.is_empty() {
                states.damaged.push((run.id(), damage));
            }
            let undecided = runs.undecided(run);
            if runs.has_lapsed(run) {
                if runs.is_left(&all, run) {
                    states.lapsed.push(run.id());
                }
            } else if undecided == Some(Undecided::Waits) {
                states.open.push(run.clone());
            } else if undecided == Some(Undecided::CutOff) && state.phase != Phase::Nothing {
                states.half_way.push(run.id());
                states.cut_off.push(run.id());
            }
        }
        // Of those that have lapsed the next change takes back what they left.
        let half_way = runs.half_way(&all).into_iter().map(|(run, _)| run.id());
        states.half_way.extend(half_way.filter(|id| !states.lapsed.contains(id)));
        states.half_way.sort();
        states.half_way.dedup();
        Ok(states)
    }
}

#[cfg(test)]
mod tests {
    use penstock_apply::history::{Confirm, Outcome, Purpose, RunRecord};

    use super::{super::runs::who, *};

    #[test]
    fn a_clock_that_was_set_changes_nothing_of_how_long_there_is_to_confirm() {
        let run = |boottime, within| KnownRun {
            record: RunRecord {
                confirm: Some(Confirm { within, at_most: 1 }),
                ..RunRecord::new(Purpose::Apply, who())
            },
            // That clock was a day ahead then.
            outcome: Some(Outcome { ended: 1_900_000_000_000, boottime, error: None }),
            decision: None,
            directory: "7".into(),
            damage: Vec::new(),
        };
        let of = |open| RunStates { open, ..RunStates::default() }.to_confirm(Duration::from_secs(100));
        assert_eq!(of(vec![]), None);
        assert_eq!(of(vec![run(90_000, 60_000), run(95_000, 30_000)]), Some(25_000));
        assert_eq!(of(vec![run(10_000, 60_000)]), Some(-30_000));
    }
}
