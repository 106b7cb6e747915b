//! How fast something may be repeated: waits that grow, and a bound on what changes all the time.

use std::time::{Duration, Instant};

/// A wait that doubles with each failure.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// From `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, next: first }
    }

    /// How long to wait after one more failure.
    pub fn failed(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        wait
    }

    /// The next failure is the first again.
    pub fn succeeded(&mut self) {
        self.next = self.first;
    }
}

/// A bucket of tokens: `most` at once, one more each `every`.
#[derive(Clone, Debug)]
pub struct Bucket {
    most: u32,
    every: Duration,
    left: u32,
    filled: Instant,
}

impl Bucket {
    /// A full one.
    pub fn new(most: u32, every: Duration, now: Instant) -> Bucket {
        Bucket { most, every, left: most, filled: now }
    }

    /// Takes a token, or says how long it is until there is one.
    ///
    /// # Errors
    ///
    /// The wait, when there is none.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        while self.left < self.most && now.saturating_duration_since(self.filled) >= self.every {
            self.left += 1;
            self.filled += self.every;
        }
        if self.left == self.most {
            self.filled = now;
        }
        if self.left == 0 {
            return Err(self.every.saturating_sub(now.saturating_duration_since(self.filled)));
        }
        self.left -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_up_to_its_longest_and_begins_anew_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(3));
        let waits: Vec<u128> = (0..5).map(|_| backoff.failed().as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 3000, 3000]);
        backoff.succeeded();
        assert_eq!(backoff.failed().as_millis(), 500);
    }

    #[test]
    fn a_bucket_gives_its_tokens_and_then_one_at_a_time() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut bucket = Bucket::new(2, Duration::from_secs(10), start);
        assert_eq!(bucket.take(start), Ok(()));
        assert_eq!(bucket.take(start), Ok(()));
        assert_eq!(bucket.take(after(4)), Err(Duration::from_secs(6)));
        assert_eq!(bucket.take(after(10)), Ok(()));
        assert_eq!(bucket.take(after(11)), Err(Duration::from_secs(9)));
        assert_eq!(bucket.take(after(1000)), Ok(()));
        assert_eq!(bucket.take(after(1000)), Ok(()));
        assert!(bucket.take(after(1000)).is_err());
    }
}
