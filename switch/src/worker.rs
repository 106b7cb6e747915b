//! The thread that runs the data path, and how others have something done by it.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        eventfd::{EfdFlags, EventFd},
    },
};

use crate::{busy_poll::BusyPoll, engine::Engine, eventfd::Signals, sigbus};

/// What the thread is called.
pub const NAME: &str = "switch";
/// Events that are taken of the kernel at a time; which they are does not matter.
const EVENTS: usize = 16;

type Task = Box<dyn FnOnce(&mut Engine) + Send>;

/// What the worker and its clients share.
#[derive(Debug)]
struct Shared {
    tasks: Mutex<Tasks>,
    /// How many tasks wait.
    waiting: AtomicUsize,
    ends: AtomicBool,
    bell: EventFd,
    kicks: Epoll,
    signals: Arc<Signals>,
}

#[derive(Default)]
struct Tasks(VecDeque<Task>);

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tasks", self.0.len())
    }
}

/// Has the worker do something between two rounds.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Has `task` done, and waits for what comes of it. `None`: the worker has ended.
    pub fn ask<R: Send + 'static>(&self, task: impl FnOnce(&mut Engine) -> R + Send + 'static) -> Option<R> {
        let (answer, answered) = mpsc::sync_channel(1);
        let task: Task = Box::new(move |engine| {
            let _ = answer.send(task(engine));
        });
        {
            let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            if self.0.ends.load(Ordering::Acquire) {
                return None;
            }
            tasks.0.push_back(task);
            self.0.waiting.store(tasks.0.len(), Ordering::Release);
        }
        let _ = self.0.bell.write(1);
        answered.recv().ok()
    }

    /// How guests are woken.
    pub fn signals(&self) -> &Arc<Signals> {
        &self.0.signals
    }

    /// Has the worker woken by this, a guest's kicks or a wire. The worker asks its readiness of whoever serves it, who must be the
    /// kernel itself: an eventfd, or a descriptor that this process has opened.
    ///
    /// # Errors
    ///
    /// The kernel's, when the descriptor cannot be polled, or is listened to already.
    pub fn listen(&self, kick: BorrowedFd<'_>) -> Result<(), Errno> {
        // At its edge, so that nobody has to read it: what it says is found in the ring.
        self.0.kicks.add(kick, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))
    }

    /// Stops listening to this descriptor; one that is not listened to is passed over.
    pub fn forget(&self, kick: BorrowedFd<'_>) {
        // One that was closed meanwhile is none any more.
        let _ = self.0.kicks.delete(kick);
    }

    /// Has the worker end.
    pub fn end(&self) {
        self.0.ends.store(true, Ordering::Release);
        let _ = self.0.bell.write(1);
    }
}

/// Starts the worker.
///
/// # Errors
/// When the kernel gives no descriptor, no asynchronous I/O or no thread.
pub fn start(engine: Engine) -> std::io::Result<(Handle, JoinHandle<Engine>)> {
    let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let kicks = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    kicks.add(&bell, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
    let shared = Arc::new(Shared {
        tasks: Mutex::default(),
        waiting: AtomicUsize::new(0),
        ends: AtomicBool::new(false),
        bell,
        kicks,
        signals: Signals::new()?,
    });
    let handle = Handle(Arc::clone(&shared));
    let thread = thread::Builder::new().name(NAME.to_owned()).spawn(move || run(engine, &shared))?;
    Ok((handle, thread))
}

fn run(mut engine: Engine, shared: &Shared) -> Engine {
    let began = Instant::now();
    let nanoseconds = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut last = Instant::now();
    let mut busy_poll = BusyPoll::default();
    let mut lost_before = sigbus::count();
    engine.ask_for_kicks(false, 0);
    loop {
        if shared.waiting.load(Ordering::Acquire) > 0 {
            work_off(&mut engine, shared);
            last = Instant::now();
        }
        if shared.ends.load(Ordering::Acquire) {
            // Who asks from now on is told so; who has asked is answered.
            work_off(&mut engine, shared);
            return engine;
        }
        if sigbus::count() != lost_before {
            lost_before = sigbus::count();
            engine.drop_lost();
        }
        let round = engine.round(nanoseconds());
        if round.frames > 0 {
            last = Instant::now();
            continue;
        }
        if let Some(wait) = round.wait {
            // What waits for its rate is there in any case; no kick will tell of it.
            if wait > 50_000 {
                // Others go on meanwhile: theirs must wake it.
                if !engine.ask_for_kicks(true, nanoseconds()) && shared.waiting.load(Ordering::Acquire) == 0 {
                    sleep(shared, Some(Duration::from_nanos(wait)));
                }
                engine.ask_for_kicks(false, 0);
                engine.wake_all();
            }
            continue;
        }
        if last.elapsed() < busy_poll.now() {
            std::hint::spin_loop();
            continue;
        }
        if !engine.ask_for_kicks(true, nanoseconds()) && shared.waiting.load(Ordering::Acquire) == 0 {
            let began = Instant::now();
            sleep(shared, None);
            // Who has something done by it says nothing of when frames come.
            if shared.waiting.load(Ordering::Acquire) == 0 {
                busy_poll.slept(began.elapsed());
            }
        }
        engine.ask_for_kicks(false, 0);
        engine.wake_all();
        last = Instant::now();
    }
}

fn work_off(engine: &mut Engine, shared: &Shared) {
    let tasks = {
        let mut tasks = shared.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        shared.waiting.store(0, Ordering::Release);
        std::mem::take(&mut tasks.0)
    };
    for task in tasks {
        task(engine);
    }
}

/// Waits for a kick, a task, or the end.
fn sleep(shared: &Shared, most: Option<Duration>) {
    let timeout = match most {
        // At least a millisecond, the kernel's step here.
        Some(most) => u16::try_from(most.as_millis().max(1)).map_or(EpollTimeout::MAX, EpollTimeout::from),
        None => EpollTimeout::NONE,
    };
    let mut events = [EpollEvent::empty(); EVENTS];
    // A signal that interrupts it is as good as an event.
    let _ = shared.kicks.wait(&mut events, timeout);
}

/// A descriptor whose events wake the worker for as long as this lives.
#[derive(Debug)]
pub struct Kick {
    handle: Handle,
    fd: OwnedFd,
}

impl Kick {
    /// Listens to `fd`.
    ///
    /// # Errors
    ///
    /// As [`Handle::listen`].
    pub fn new(handle: &Handle, fd: OwnedFd) -> Result<Kick, Errno> {
        handle.listen(fd.as_fd())?;
        Ok(Kick { handle: handle.clone(), fd })
    }
}

impl Drop for Kick {
    fn drop(&mut self) {
        self.handle.forget(self.fd.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_is_answered_however_deep_it_sleeps() {
        let (handle, worker) = start(Engine::default()).unwrap();
        let (done, all) = mpsc::channel();
        for number in 0..3_u64 {
            let (handle, done) = (handle.clone(), done.clone());
            thread::spawn(move || {
                for turn in 0..400_u64 {
                    // About as long as it lingers, so that it is asked while it goes to sleep.
                    thread::sleep(Duration::from_micros((turn * 7 + number * 31) % 260));
                    assert_eq!(handle.ask(move |_| turn), Some(turn));
                }
                done.send(number).unwrap();
            });
        }
        for _ in 0..3 {
            all.recv_timeout(Duration::from_secs(60)).expect("somebody who asked was not answered");
        }
        handle.end();
        worker.join().unwrap();
        assert_eq!(handle.ask(|_| ()), None);
    }
}
