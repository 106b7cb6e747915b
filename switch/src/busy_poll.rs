//! How long the worker goes on looking when nobody sends anything. Who looks too briefly has to be woken for every frame; who looks
//! too long takes a CPU from guests that need it. Like the kernel's polling for halted virtual CPUs (`virt/kvm/kvm_main.c`,
//! `grow_halt_poll_ns`), it follows how long nothing has come.

use std::time::Duration;

/// The longest. Waking a thread takes some 50 microseconds.
const MOST: Duration = Duration::from_micros(100);
/// What it grows from, and the shortest but none.
const LEAST: Duration = Duration::from_micros(10);

/// How long to look.
#[derive(Clone, Copy, Debug)]
pub struct BusyPoll(Duration);

impl Default for BusyPoll {
    fn default() -> BusyPoll {
        BusyPoll(MOST)
    }
}

impl BusyPoll {
    /// How long to look before sleeping.
    pub const fn now(&self) -> Duration {
        self.0
    }

    /// Learns of a sleep that a frame has ended after this long: looking on for [`MOST`] would have found it, or would not.
    pub fn slept(&mut self, slept: Duration) {
        self.0 = if self.0 + slept < MOST { (self.0 * 2).clamp(LEAST, MOST) } else { self.0 / 2 };
        if self.0 < LEAST {
            self.0 = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    #[test]
    fn frames_that_are_far_apart_are_not_looked_for() {
        let mut timeout = BusyPoll::default();
        for expected in [50, 25, 12, 0, 0] {
            timeout.slept(micros(400));
            assert_eq!(timeout.now().as_micros(), expected);
        }
    }

    #[test]
    fn frames_that_come_soon_are_waited_for() {
        let mut timeout = BusyPoll::default();
        (0..4).for_each(|_| timeout.slept(micros(400)));
        for expected in [10, 20, 40, 80, 100] {
            timeout.slept(micros(15));
            assert_eq!(timeout.now().as_micros(), expected);
        }
    }
}
