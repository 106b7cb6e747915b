//! How fast a port may send.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Nanoseconds that a port which was silent may be ahead: short enough that the rate holds over a second within one percent, and
/// longer than a thread usually sleeps that meant to sleep for a millisecond.
const AHEAD: u64 = 8_000_000;
/// Nanoseconds' worth of full frames that are sent at once.
const STEP: u64 = 200_000;
/// Bytes of a full frame.
const FULL: u64 = 1514;

/// The rate of one port. What it may send is counted in time: each frame takes as long as it would on a wire of that rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// Thousandths of a nanosecond for a byte; 0 is no limit.
    per_byte: u64,
    /// When the wire is free again.
    free: u64,
}

impl Rate {
    /// So many Mbit/s; 0 is no limit.
    pub fn new(megabits: u32) -> Rate {
        let per_byte = match megabits {
            0 => 0,
            // 8 bits of 1,000 / Mbit/s nanoseconds.
            some => 8_000_000 / u64::from(some),
        };
        Rate { per_byte, free: 0 }
    }

    /// The same wire, and from now on so many Mbit/s: what was sent is waited for as it was counted.
    pub fn at(self, megabits: u32) -> Rate {
        Rate { free: self.free, ..Rate::new(megabits) }
    }

    /// Whether there is a limit.
    #[inline]
    pub fn is_limit(&self) -> bool {
        self.per_byte != 0
    }

    /// Whether it is the same rate.
    pub fn is_like(&self, other: &Rate) -> bool {
        self.per_byte == other.per_byte
    }

    /// How many chains may be sent at once, at most `most`: a slow port would be far ahead with as many as a fast one.
    #[inline]
    pub fn turn(&self, most: usize) -> usize {
        match self.per_byte {
            0 => most,
            per_byte => ((STEP * 1000 / per_byte / FULL) as usize).clamp(1, most),
        }
    }

    /// Nanoseconds until it may send; `None`: now.
    #[inline]
    pub fn wait(&self, now: u64) -> Option<u64> {
        self.free.checked_sub(now).filter(|wait| *wait > 0)
    }

    /// Counts what was sent.
    #[inline]
    pub fn used(&mut self, now: u64, bytes: u64) {
        if self.per_byte != 0 {
            let from = self.free.max(now.saturating_sub(AHEAD));
            self.free = from.saturating_add(bytes.saturating_mul(self.per_byte) / 1000);
        }
    }
}

/// The rate of a port that several workers may serve: all that have a copy send no faster together.
#[derive(Clone, Debug, Default)]
pub(super) struct PortRate {
    rate: Rate,
    /// When the wire is free again, as all of them count it.
    free: Arc<AtomicU64>,
}

impl PortRate {
    /// So many Mbit/s; 0 is no limit.
    pub fn new(megabits: u32) -> PortRate {
        PortRate { rate: Rate::new(megabits), free: Arc::default() }
    }

    /// From now on so many Mbit/s. What was sent at the rate before is waited for all the same: a guest may change its own rate, as often
    /// as it likes.
    pub fn set(&mut self, megabits: u32) {
        self.rate = self.rate.at(megabits);
    }

    /// How many chains may be sent at once, at most `most`.
    #[inline]
    pub fn turn(&self, most: usize) -> usize {
        self.rate.turn(most)
    }

    /// Nanoseconds until it may send; `None`: now.
    #[inline]
    pub fn wait(&self, now: u64) -> Option<u64> {
        if !self.rate.is_limit() {
            return None;
        }
        Rate { free: self.free.load(Ordering::Relaxed), ..self.rate }.wait(now)
    }

    /// Counts what was sent.
    #[inline]
    pub fn used(&self, now: u64, bytes: u64) {
        if !self.rate.is_limit() {
            return;
        }
        let after = |free| {
            let mut rate = Rate { free, ..self.rate };
            rate.used(now, bytes);
            Some(rate.free)
        };
        // The closure refuses nothing.
        let _ = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_share_a_rate_send_no_faster_together() {
        let first = PortRate::new(1000);
        let mut both = [first.clone(), first];
        let (mut now, mut sent) = (5_000_000_000_u64, 0_u64);
        let end = now + 1_000_000_000;
        while now < end {
            for rate in both.iter_mut().filter(|rate| rate.wait(now).is_none()) {
                rate.used(now, 1514 * 8);
                sent += 1514 * 8;
            }
            now += 500;
        }
        let got = sent as f64 * 8.0 / 1e6;
        assert!((got / 1000.0 - 1.0).abs() < 0.02, "{got} of 1000 Mbit/s");
        both[0].set(0);
        assert_eq!(both[0].wait(0), None);
    }

    #[test]
    fn a_rate_that_is_changed_to_and_fro_is_no_higher() {
        for megabits in [2, 100, 10_000] {
            let mut rate = PortRate::new(megabits);
            let (mut now, mut sent, mut changed) = (5_000_000_000_u64, 0_u64, 0_u32);
            let end = now + 1_000_000_000;
            while now < end {
                if rate.wait(now).is_none() {
                    rate.used(now, 65_000);
                    sent += 65_000;
                }
                now += 20_000;
                if now.is_multiple_of(5_000_000) {
                    changed += 1;
                    rate.set(megabits - changed % 2);
                }
            }
            let got = sent as f64 * 8.0 / 1e6;
            // One frame of the longest more than a second's worth.
            assert!(got <= f64::from(megabits) * 1.02 + 0.52, "{got} of {megabits} Mbit/s");
            assert!(changed > 100);
        }
    }

    #[test]
    fn a_rate_holds_over_a_second() {
        for megabits in [1, 10, 100, 2_500, 40_000] {
            let mut rate = Rate::new(megabits);
            let (mut now, mut sent) = (5_000_000_000_u64, 0_u64);
            let end = now + 1_000_000_000;
            while now < end {
                match rate.wait(now) {
                    Some(wait) => now += wait,
                    None => {
                        // A turn of full frames at once.
                        let bytes = 1514 * if megabits < 100 { 1 } else { 32 };
                        rate.used(now, bytes);
                        sent += bytes;
                        now += 500;
                    }
                }
            }
            let got = sent as f64 * 8.0 / 1e6;
            assert!((got / f64::from(megabits) - 1.0).abs() < 0.02, "{got} of {megabits} Mbit/s");
        }
    }

    #[test]
    fn no_limit_never_waits() {
        let mut rate = Rate::new(0);
        rate.used(0, u64::MAX);
        assert_eq!(rate.wait(0), None);
    }
}
