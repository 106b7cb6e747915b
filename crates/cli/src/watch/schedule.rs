//! How often to look at what makes no event, so that waiting costs below a thousandth of a core.

use std::time::{Duration, Instant};

use super::watcher::Watcher;

/// How often, where it costs little: what makes no event is told within a second.
const OFTEN: Duration = Duration::from_millis(800);

/// How seldom at most.
const SELDOM: Duration = Duration::from_secs(10);

/// What share of a core the glances may take.
const GLANCES: f64 = 0.0007;

/// What share the looks at everything may take that come without any event: nothing that was missed stays so for ever.
const LOOKS: f64 = 0.0002;

/// Such a look comes at least and at most after so long.
const LOOK_BETWEEN: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];

/// When to look.
#[derive(Debug)]
pub struct PollSchedule {
    every: Duration,
    /// What a poll costs, smoothed.
    cost: Option<f64>,
    poll: Instant,
    whole: Instant,
}

impl Default for PollSchedule {
    fn default() -> PollSchedule {
        let now = Instant::now();
        PollSchedule { every: OFTEN, cost: None, poll: now + OFTEN, whole: now + LOOK_BETWEEN[0] }
    }
}

impl PollSchedule {
    /// How long until something is due.
    pub fn next(&self) -> Duration {
        self.poll.min(self.whole).saturating_duration_since(Instant::now())
    }

    /// How often what makes no event is looked at.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Whether it is time for a poll.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.poll
    }

    /// Whether it is time for a look at everything.
    pub fn whole_is_due(&self) -> bool {
        Instant::now() >= self.whole
    }

    /// A poll was taken.
    pub fn glanced(&mut self) {
        self.poll = Instant::now() + self.every;
    }

    /// What one round of waiting took of the processor. Only rounds in which nothing came say what a poll costs.
    pub fn cost(&mut self, took: Duration, quiet: bool) {
        if !quiet {
            return;
        }
        let took = took.as_secs_f64();
        let smooth = self.cost.map_or(took, |cost| cost * 0.8 + took * 0.2);
        self.cost = Some(smooth);
        self.every = Duration::from_secs_f64((smooth / GLANCES).min(SELDOM.as_secs_f64())).max(OFTEN);
    }

    /// Everything was looked at.
    pub fn looked(&mut self, watcher: &Watcher) {
        let [least, most] = LOOK_BETWEEN;
        let pause = Duration::from_secs_f64((watcher.took.as_secs_f64() / LOOKS).min(most.as_secs_f64()));
        self.whole = Instant::now() + pause.max(least);
        self.glanced();
    }

    /// Looking failed: it is tried again before long.
    pub fn again(&mut self) {
        self.whole = Instant::now() + OFTEN * 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_more_is_done_less_often() {
        let mut schedule = PollSchedule::default();
        assert!(!schedule.is_due() && schedule.next() <= OFTEN);
        for _ in 0..50 {
            schedule.cost(Duration::from_micros(100), true);
        }
        assert_eq!(schedule.every(), OFTEN);
        schedule.cost(Duration::from_secs(1), false);
        assert_eq!(schedule.every(), OFTEN, "what came cost that, not waiting");
        for _ in 0..50 {
            schedule.cost(Duration::from_micros(1400), true);
        }
        assert!((schedule.every().as_secs_f64() - 2.0).abs() < 0.05, "{:?}", schedule.every());
        for _ in 0..50 {
            schedule.cost(Duration::from_secs(1), true);
        }
        assert_eq!(schedule.every(), SELDOM);
    }
}
