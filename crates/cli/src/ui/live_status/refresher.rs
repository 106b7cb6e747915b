//! A thread that looks at something again and again, so that nobody waits for it.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use penstock_host::process;

/// What share of a core looking may take: one that takes 50 ms of processor time comes each second.
const SHARE: f64 = 0.05;

/// Looks on a thread of its own. The thread ends with the process: it may hang in a look for as long as it likes.
pub struct Refresher<T> {
    state: Arc<Mutex<State<T>>>,
    thread: JoinHandle<()>,
}

/// How looking stands.
#[derive(Debug)]
struct State<T> {
    latest: Option<Arc<T>>,
    /// When that look was over.
    ended: Option<Instant>,
    /// How many looks are over.
    count: u64,
    /// When the look was begun that goes on.
    begun: Option<Instant>,
}

/// What is known of a look.
#[derive(Debug)]
pub struct Refreshed<T> {
    /// What the last look that is over has seen.
    pub latest: Option<Arc<T>>,
    /// How long ago that was.
    pub age: Duration,
    /// How many looks are over.
    pub count: u64,
    /// How long the look takes already that goes on.
    pub looking: Option<Duration>,
}

impl<T: Send + Sync + 'static> Refresher<T> {
    /// Begins to look: at least `every` so often, and less often where that takes much of a processor.
    ///
    /// # Errors
    ///
    /// The kernel's, when it starts no thread.
    pub fn start(
        name: &str,
        every: Duration,
        mut look: impl FnMut() -> T + Send + 'static,
    ) -> io::Result<Refresher<T>> {
        let state = Arc::new(Mutex::new(State { latest: None, ended: None, count: 0, begun: None }));
        let shared = state.clone();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                lock(&shared).begun = Some(Instant::now());
                let before = process::cpu_time();
                let seen = Arc::new(look());
                let spent = process::cpu_time().saturating_sub(before);
                let mut state = lock(&shared);
                state.latest = Some(seen);
                state.ended = Some(Instant::now());
                state.count += 1;
                state.begun = None;
                drop(state);
                thread::park_timeout(pause(every, spent));
            }
        })?;
        Ok(Refresher { state, thread })
    }

    /// What is known now.
    pub fn now(&self) -> Refreshed<T> {
        let state = lock(&self.state);
        Refreshed {
            latest: state.latest.clone(),
            age: state.ended.map(|ended| ended.elapsed()).unwrap_or_default(),
            count: state.count,
            looking: state.begun.map(|begun| begun.elapsed()),
        }
    }

    /// Has it look at once, unless it does.
    pub fn refresh(&self) {
        self.thread.thread().unpark();
    }

    /// Whether the thread has ended, which only a defect brings about.
    pub fn is_dead(&self) -> bool {
        self.thread.is_finished()
    }
}

/// A thread that panicked in here left nothing half done.
fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long to wait after a look that took so much of a processor.
fn pause(every: Duration, spent: Duration) -> Duration {
    every.max(spent.mul_f64(1.0 / SHARE - 1.0))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_look_that_hangs_leaves_the_last_one_to_be_seen() {
        let (go, gone) = channel();
        let mut number = 0;
        let refresher = Refresher::start("look", Duration::from_millis(1), move || {
            gone.recv().unwrap();
            number += 1;
            number
        })
        .unwrap();
        let until = |what: &str, holds: &dyn Fn(&Refreshed<i32>) -> bool| {
            let began = Instant::now();
            while !holds(&refresher.now()) {
                assert!(began.elapsed() < Duration::from_secs(30), "{what}");
                thread::sleep(Duration::from_millis(1));
            }
        };
        until("it looks", &|now| now.latest.is_none() && now.looking.is_some());
        go.send(()).unwrap();
        until("the first look is over", &|now| now.count == 1 && now.looking.is_some());
        assert_eq!(refresher.now().latest.as_deref(), Some(&1));
        drop(go);
        until("it has a defect", &|_| refresher.is_dead());
        assert_eq!(refresher.now().latest.as_deref(), Some(&1));
    }

    #[test]
    fn what_takes_much_comes_seldom() {
        let second = Duration::from_secs(1);
        assert_eq!(pause(second, Duration::from_millis(10)), second);
        assert_eq!(pause(second, second), Duration::from_secs(19));
    }
}
