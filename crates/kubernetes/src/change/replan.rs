//! When a model is planned again that could not be carried out.

use std::time::{Duration, Instant};

use crate::{machine::node::PlanOutcome, pace::Backoff};

/// After so long, at first and at most: what is in the way, a VF that somebody has or a program that is missing, may go without anybody saying so.
const AGAIN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(600));

/// When one model is planned again.
#[derive(Debug)]
pub(super) struct Replan {
    at: Option<Instant>,
    backoff: Backoff,
}

impl Replan {
    /// Of a model that was not planned yet.
    pub(super) fn new() -> Replan {
        Replan { at: None, backoff: Backoff::new(AGAIN.0, AGAIN.1) }
    }

    /// How long to wait before it is planned again; `None`: it need not be.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(now))
    }

    /// Takes note of what a plan came to that was begun at `now`. How long to wait before the next.
    pub(super) fn after(&mut self, outcome: PlanOutcome, now: Instant) -> Option<Duration> {
        let again = match outcome {
            PlanOutcome::Planned => {
                self.backoff.succeeded();
                None
            }
            PlanOutcome::Refused | PlanOutcome::Unfit | PlanOutcome::RebootRequired | PlanOutcome::Failed => {
                Some(self.backoff.failed())
            }
        };
        self.at = again.map(|wait| now + wait);
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_planned_again_ever_more_rarely_until_it_is_not() {
        let start = Instant::now();
        let mut replan = Replan::new();
        assert_eq!(replan.wait(start), None, "it was not planned yet, or could be");
        let mut now = start;
        let mut waits = Vec::new();
        for outcome in
            [PlanOutcome::Refused, PlanOutcome::Unfit, PlanOutcome::Failed, PlanOutcome::RebootRequired]
        {
            let wait = replan.after(outcome, now).unwrap();
            assert_eq!(replan.wait(now), Some(wait), "{outcome}: an event makes it no sooner");
            now += wait;
            assert_eq!(replan.wait(now), Some(Duration::ZERO));
            waits.push(wait.as_secs());
        }
        assert_eq!(waits, [60, 120, 240, 480]);
        assert_eq!(replan.after(PlanOutcome::Refused, now).map(|wait| wait.as_secs()), Some(600));
        assert_eq!((replan.after(PlanOutcome::Planned, now), replan.wait(now)), (None, None));
        assert_eq!(replan.after(PlanOutcome::Refused, now).map(|wait| wait.as_secs()), Some(60));
    }
}
