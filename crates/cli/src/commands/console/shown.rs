//! The showing half of a console: a thread that writes what the log says to standard output, however long that takes.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use penstock_guests::console::Replay;
use penstock_host::{
    follow::{Begin, Followed, Follower},
    terminal,
};

/// A log that cannot be read for this long is told of.
const UNSHARED: Duration = Duration::from_secs(30);

/// What happened to the log that is shown.
pub enum Event {
    /// What follows is from its first byte.
    Anew,
    /// There is none for now.
    Absent,
    /// It cannot be read, and why.
    Unreadable(String),
}

/// A thread that shows what a console's log says, the scroll-back first.
pub struct Shown {
    thread: JoinHandle<()>,
    /// What happened to the log.
    pub events: Receiver<Event>,
    busy: Arc<AtomicBool>,
    last: Arc<Mutex<Instant>>,
}

impl Shown {
    /// Shows what `older` have, then what `follower` has and gets.
    ///
    /// # Errors
    ///
    /// When standard output cannot be duplicated, or no thread can be started.
    pub fn start(follower: Follower, older: Vec<PathBuf>) -> io::Result<Shown> {
        let (tell, events) = channel();
        let busy = Arc::new(AtomicBool::new(true));
        let last = Arc::new(Mutex::new(Instant::now()));
        let show = Show {
            out: File::from(io::stdout().as_fd().try_clone_to_owned()?),
            replay: io::stdout().is_terminal().then(Replay::default),
            follower,
            tell,
            busy: busy.clone(),
            last: last.clone(),
        };
        let thread = thread::Builder::new().name("show".to_owned()).spawn(move || {
            // What it fails with is a standard output that nobody reads.
            let _ = show.run(&older);
        })?;
        Ok(Shown { thread, events, busy, last })
    }

    /// Whether nobody looks any more.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished() || terminal::output_is_gone()
    }

    /// How long nothing has been shown; nothing while something is being shown.
    pub fn quiet_for(&self) -> Duration {
        if self.busy.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        self.last.lock().map_or(Duration::ZERO, |last| last.elapsed())
    }
}

struct Show {
    out: File,
    /// While the scroll-back is shown, and on a terminal.
    replay: Option<Replay>,
    follower: Follower,
    tell: Sender<Event>,
    busy: Arc<AtomicBool>,
    last: Arc<Mutex<Instant>>,
}

impl Show {
    fn run(mut self, older: &[PathBuf]) -> io::Result<()> {
        for path in older {
            self.whole(path)?;
        }
        let mut scroll_back = self.follower.ahead();
        let mut buffer = vec![0; 16 << 10];
        let (mut absent, mut told, mut unreadable) = (false, false, None);
        loop {
            self.busy.store(true, Ordering::Release);
            if scroll_back == 0 {
                self.replay = None;
            }
            let room = if scroll_back > 0 { buffer.len().min(scroll_back as usize) } else { buffer.len() };
            match self.follower.read(&mut buffer[..room]) {
                Ok(Followed::Bytes(count)) => {
                    (absent, told, unreadable) = (false, false, None);
                    scroll_back = scroll_back.saturating_sub(count as u64);
                    self.put(&buffer[..count])?;
                    continue;
                }
                Ok(Followed::Anew) => {
                    scroll_back = 0;
                    self.say(Event::Anew);
                    continue;
                }
                Ok(Followed::Absent) if !std::mem::replace(&mut absent, true) => self.say(Event::Absent),
                // One that was just made is not shared yet.
                Err(error) => {
                    let since = *unreadable.get_or_insert_with(Instant::now);
                    if !told && since.elapsed() >= UNSHARED {
                        told = true;
                        self.say(Event::Unreadable(error.to_string()));
                    }
                }
                _ => {}
            }
            scroll_back = 0;
            self.busy.store(false, Ordering::Release);
            self.follower.wait(Duration::from_secs(1));
        }
    }

    fn whole(&mut self, path: &Path) -> io::Result<()> {
        // Put aside while nobody looked: gone again by now is no failure.
        let Ok(mut follower) = Follower::new(path, Begin::First) else { return Ok(()) };
        let mut buffer = vec![0; 16 << 10];
        while let Ok(Followed::Bytes(count)) = follower.read(&mut buffer) {
            self.put(&buffer[..count])?;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut kept = Vec::new();
        let mut left = match &mut self.replay {
            Some(replay) => {
                replay.keep(bytes, &mut kept);
                kept.as_slice()
            }
            None => bytes,
        };
        while !left.is_empty() {
            match self.out.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Whoever shares the terminal has made it so.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error),
            }
        }
        if let Ok(mut last) = self.last.lock() {
            *last = Instant::now();
        }
        Ok(())
    }

    fn say(&self, event: Event) {
        // Nobody listens to a session that is being left.
        let _ = self.tell.send(event);
    }
}
