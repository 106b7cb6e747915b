//! How often to look at what makes no event, so that waiting costs below a thousandth of a core.

use std::time::{Duration, Instant};

/// How often, where it costs little: what makes no event is told within a second.
const OFTEN: Duration = Duration::from_millis(800);

/// How seldom at most.
const SELDOM: Duration = Duration::from_secs(10);

/// What share of a core the polls may take.
const GLANCES: f64 = 0.0007;

/// What share the looks at everything may take that come without any event: nothing that was missed stays so for ever.
const LOOKS: f64 = 0.0002;

/// Such a look comes at least and at most after so long.
const LOOK_BETWEEN: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3600)];

/// What makes events may make them without end: a guest, or whoever has the kernel lose some. They are followed again after so long at least...
const RECHECK: Duration = Duration::from_secs(1);

/// ...and for no larger share of the time.
const RECHECKS: f64 = 0.1;

/// When it is tried again to look, after that has failed once.
const RETRY: Duration = Duration::from_secs(3);

/// When to look.
#[derive(Debug)]
pub struct PollSchedule {
    every: Duration,
    /// What a poll costs, smoothed.
    cost: Option<f64>,
    poll: Instant,
    whole: Instant,
    recheck: Instant,
    /// How long after the next look that fails it is tried again.
    retry: Duration,
}

impl PollSchedule {
    /// As it is where nothing was looked at yet.
    pub fn new(now: Instant) -> PollSchedule {
        PollSchedule {
            every: OFTEN,
            cost: None,
            poll: now + OFTEN,
            whole: now + LOOK_BETWEEN[0],
            recheck: now,
            retry: RETRY,
        }
    }

    /// How long until something is due; with `waiting` something waits to be looked at again.
    pub fn next(&self, waiting: bool, now: Instant) -> Duration {
        let due = self.poll.min(self.whole);
        let due = if waiting { due.min(self.recheck) } else { due };
        due.saturating_duration_since(now)
    }

    /// Whether what may come without end may be followed again.
    pub fn may_recheck(&self, now: Instant) -> bool {
        now >= self.recheck
    }

    /// It was followed, which took so long, but for what others were waited for.
    pub fn rechecked(&mut self, took: Duration, now: Instant) {
        let rest = took.mul_f64(1.0 / RECHECKS - 1.0).min(LOOK_BETWEEN[0]);
        self.recheck = now + rest.max(RECHECK);
    }

    /// How often what makes no event is looked at.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Whether it is time for a poll.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.poll
    }

    /// Whether it is time for a look at everything.
    pub fn whole_is_due(&self, now: Instant) -> bool {
        now >= self.whole
    }

    /// A poll was taken.
    pub fn glanced(&mut self, now: Instant) {
        self.poll = now + self.every;
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

    /// Everything was looked at, which took so long.
    pub fn looked(&mut self, took: Duration, now: Instant) {
        let [least, most] = LOOK_BETWEEN;
        let pause = Duration::from_secs_f64((took.as_secs_f64() / LOOKS).min(most.as_secs_f64()));
        self.whole = now + pause.max(least);
        self.retry = RETRY;
        self.glanced(now);
    }

    /// A look at everything failed: it is tried again before long, and ever later as long as it fails.
    pub fn failed(&mut self, now: Instant) {
        self.whole = now + self.retry;
        self.retry = (self.retry * 2).min(LOOK_BETWEEN[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_more_is_done_less_often() {
        let now = Instant::now();
        let mut schedule = PollSchedule::new(now);
        assert!(!schedule.is_due(now) && schedule.next(false, now) <= OFTEN);
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

    #[test]
    fn a_look_that_fails_again_and_again_comes_ever_later() {
        let now = Instant::now();
        let mut schedule = PollSchedule::new(now);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            schedule.failed(now);
            pauses.push((schedule.whole - now).as_secs());
        }
        assert_eq!(pauses, [3, 6, 12, 24, 48, 60, 60]);
        schedule.looked(Duration::ZERO, now);
        schedule.failed(now);
        assert_eq!(schedule.whole - now, RETRY);
    }

    #[test]
    fn events_without_end_are_followed_now_and_then() {
        let now = Instant::now();
        let mut schedule = PollSchedule::new(now);
        assert!(schedule.may_recheck(now), "the first at once");
        schedule.rechecked(Duration::from_millis(1), now);
        assert!(!schedule.may_recheck(now) && schedule.next(true, now) <= RECHECK);
        schedule.poll = now + SELDOM;
        assert!(schedule.next(false, now) > RECHECK, "nothing waits");
        schedule.rechecked(Duration::from_secs(2), now);
        assert_eq!(schedule.next(true, now), SELDOM, "a glance comes first");
        assert!(!schedule.may_recheck(now + Duration::from_secs(17)));
        assert!(schedule.may_recheck(now + Duration::from_secs(18)));
    }
}
