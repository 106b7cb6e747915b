//! The threads that run the data path, and how others have something done by them. A switch has one, or several that share its rings.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
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

use crate::{
    busy_poll::BusyPoll,
    engine::{Engine, GivenRing, Negotiated, SleepBound, Wire, worker_of},
    eventfd::{Notify, Signals},
    sigbus,
    table::PortId,
};

/// What the thread of the first worker is called; those of others have their number behind it.
const NAME: &str = "switch";
/// Workers that a switch may have: as many as a guest may have pairs of rings.
pub const MOST_WORKERS: usize = 16;
/// Nanoseconds for which nobody goes to sleep.
const SOON: u64 = 50_000;
/// Events that are taken of the kernel at a time; which they are does not matter.
const EVENTS: usize = 16;

/// Whether a thread of this name is a worker.
pub fn is_worker(thread: &str) -> bool {
    thread.strip_prefix(NAME).is_some_and(|rest| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|number| number.parse::<usize>().is_ok())
    })
}

type Task = Box<dyn FnOnce(&mut Engine) + Send>;

/// Does `task`, and sends what comes of it to who waits for that; nobody may any more.
fn answering<R: Send + 'static>(
    answer: mpsc::SyncSender<R>,
    task: impl FnOnce(&mut Engine) -> R + Send + 'static,
) -> Task {
    Box::new(move |engine| {
        let _ = answer.send(task(engine));
    })
}

/// What a worker and its clients share.
#[derive(Debug)]
struct Shared {
    tasks: Mutex<Tasks>,
    /// How many tasks wait.
    waiting: AtomicUsize,
    ends: AtomicBool,
    bell: Arc<Bell>,
    kicks: Epoll,
}

#[derive(Default)]
struct Tasks(VecDeque<Task>);

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tasks", self.0.len())
    }
}

/// Wakes a worker.
#[derive(Debug)]
struct Bell {
    event: EventFd,
    /// Whether it sleeps, or is about to: it has looked for something to do for the last time, or looks now.
    asleep: AtomicBool,
}

impl Notify for Bell {
    /// Wakes it for what another worker has handed over, if it sleeps.
    fn signal(&self) {
        // Either it sees what was handed over, or this sees that it sleeps.
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = self.event.write(1);
        }
    }
}

impl Shared {
    /// Puts a task into the queue, to be done before the next round; says whether there will be one.
    fn put(&self, task: Task) -> bool {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if self.ends.load(Ordering::Acquire) {
            return false;
        }
        tasks.0.push_back(task);
        self.waiting.store(tasks.0.len(), Ordering::Release);
        drop(tasks);
        let _ = self.bell.event.write(1);
        true
    }
}

/// Has the workers of a switch do something between two rounds.
#[derive(Clone, Debug)]
pub struct Handle {
    workers: Arc<[Shared]>,
    /// Whose turn it is to have something done by each: all do it in the same order.
    order: Arc<Mutex<()>>,
    signals: Arc<Signals>,
}

impl Handle {
    /// Has `task` done by the first worker, which knows all ports and serves what is no ring, and waits for what comes of it. `None`: the
    /// worker has ended.
    pub fn ask<R: Send + 'static>(&self, task: impl FnOnce(&mut Engine) -> R + Send + 'static) -> Option<R> {
        let (answer, answered) = mpsc::sync_channel(1);
        if !self.workers.first()?.put(answering(answer, task)) {
            return None;
        }
        answered.recv().ok()
    }

    /// Has each worker do what `task_for` makes for its number, and waits for what comes of all. `None`: one of them has ended.
    pub fn ask_each<R: Send + 'static, T: FnOnce(&mut Engine) -> R + Send + 'static>(
        &self,
        mut task_for: impl FnMut(usize) -> T,
    ) -> Option<Vec<R>> {
        let (answer, answered) = mpsc::sync_channel(self.workers.len());
        {
            let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            for (number, worker) in self.workers.iter().enumerate() {
                if !worker.put(answering(answer.clone(), task_for(number))) {
                    return None;
                }
            }
        }
        drop(answer);
        let all: Vec<R> = answered.iter().collect();
        (all.len() == self.workers.len()).then_some(all)
    }

    /// The same for settings: when it returns, no frame that was decided on under others is written any more.
    pub fn change_each<R: Send + 'static, T: FnOnce(&mut Engine) -> R + Send + 'static>(
        &self,
        mut task_for: impl FnMut(usize) -> T,
    ) -> Option<Vec<R>> {
        self.ask_each(|worker| {
            let task = task_for(worker);
            move |engine: &mut Engine| {
                engine.begin_epoch();
                task(engine)
            }
        })
    }

    /// Has ring `index` of a port served by its worker, which the others are told of. `None`: a worker has ended.
    pub fn put_ring(&self, port: PortId, index: u32, negotiated: Negotiated, given: GivenRing) -> Option<()> {
        let (worker, mut given) = (self.worker_of_ring(index), Some(given));
        let done = self.ask_each(|number| {
            let given = if number == worker { given.take() } else { None };
            move |engine: &mut Engine| match given {
                Some(given) => engine.put_ring(port, index, negotiated, given),
                None => engine.note_ring(port, index, negotiated),
            }
        });
        done.map(drop)
    }

    /// Takes ring `index` of a port back: where it stands, if it was served. `None`: a worker has ended.
    pub fn take_ring(&self, port: PortId, index: u32) -> Option<Option<u32>> {
        let worker = self.worker_of_ring(index);
        let done = self.ask_each(|number| {
            move |engine: &mut Engine| {
                if number == worker {
                    return engine.take_ring(port, index).map(|ring| ring.base());
                }
                engine.forget_ring(port, index);
                None
            }
        });
        Some(done?.into_iter().flatten().next())
    }

    /// Gives a port what it has instead of rings, or takes it away, and says whether there is somebody on its other side.
    pub fn set_wire(&self, port: PortId, wire: Option<(Wire, Negotiated)>, carrier: bool) -> Option<()> {
        let negotiated = wire.as_ref().map(|(_, negotiated)| *negotiated);
        let mut wire = Some(wire);
        let done = self.ask_each(|_| {
            // The first of them serves it.
            let wire = wire.take();
            move |engine: &mut Engine| {
                match wire {
                    Some(wire) => engine.set_wire(port, wire),
                    None => engine.note_wire(port, negotiated),
                }
                engine.set_carrier(port, carrier);
            }
        });
        done.map(drop)
    }

    /// Says whether there is somebody on the other side of a port that is no guest's.
    pub fn set_carrier(&self, port: PortId, carrier: bool) -> Option<()> {
        self.ask_each(|_| move |engine: &mut Engine| engine.set_carrier(port, carrier)).map(drop)
    }

    /// How many there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The worker that serves ring `index`.
    pub fn worker_of_ring(&self, index: u32) -> usize {
        worker_of((index / 2) as usize, self.workers.len())
    }

    /// How guests are woken.
    pub fn signals(&self) -> &Arc<Signals> {
        &self.signals
    }

    /// Has a worker woken by this, a guest's kicks or a wire. The worker asks its readiness of whoever serves it, who must be the
    /// kernel itself: an eventfd, or a descriptor that this process has opened.
    fn listen(&self, worker: usize, kick: BorrowedFd<'_>) -> Result<(), Errno> {
        let Some(worker) = self.workers.get(worker) else { return Err(Errno::EINVAL) };
        // At its edge, so that nobody has to read it: what it says is found in the ring.
        worker.kicks.add(kick, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))
    }

    /// Stops listening to this descriptor; one that is not listened to is passed over.
    fn forget(&self, worker: usize, kick: BorrowedFd<'_>) {
        // One that was closed meanwhile is none any more.
        let _ = self.workers.get(worker).map(|worker| worker.kicks.delete(kick));
    }

    /// Has all workers end.
    pub fn end(&self) {
        for worker in self.workers.iter() {
            worker.ends.store(true, Ordering::Release);
            let _ = worker.bell.event.write(1);
        }
    }
}

/// Starts so many workers, at least one, without ports, and at most [`MOST_WORKERS`]. Each has what `prepare` makes of it.
///
/// # Errors
/// When the kernel gives no descriptor, no asynchronous I/O or no thread.
pub fn start(
    count: usize,
    mut prepare: impl FnMut(&mut Engine),
) -> std::io::Result<(Handle, Vec<JoinHandle<Engine>>)> {
    let bell = || {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok::<_, std::io::Error>(Arc::new(Bell { event, asleep: AtomicBool::new(false) }))
    };
    let bells: Vec<Arc<Bell>> =
        (0..count.clamp(1, MOST_WORKERS)).map(|_| bell()).collect::<Result<_, _>>()?;
    let shared = |bell: &Arc<Bell>| {
        let kicks = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        kicks.add(&bell.event, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
        Ok::<_, std::io::Error>(Shared {
            tasks: Mutex::default(),
            waiting: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            bell: Arc::clone(bell),
            kicks,
        })
    };
    let workers: Arc<[Shared]> = bells.iter().map(shared).collect::<Result<Vec<_>, _>>()?.into();
    let handle = Handle { workers: Arc::clone(&workers), order: Arc::default(), signals: Signals::new()? };
    let bells: Vec<Arc<dyn Notify>> = bells.into_iter().map(|bell| bell as Arc<dyn Notify>).collect();
    let began = Instant::now();
    let mut threads = Vec::new();
    for (number, mut engine) in Engine::connected(&bells).into_iter().enumerate() {
        prepare(&mut engine);
        let all = Arc::clone(&workers);
        let name = if number == 0 { NAME.to_owned() } else { format!("{NAME}-{number}") };
        let work = move || match all.get(number) {
            Some(shared) => run(engine, shared, began),
            None => engine,
        };
        match thread::Builder::new().name(name).spawn(work) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                // Those that were started have nobody any more.
                handle.end();
                return Err(error);
            }
        }
    }
    Ok((handle, threads))
}

/// Works until it is told to end. All workers count time from when they `began`.
fn run(mut engine: Engine, shared: &Shared, began: Instant) -> Engine {
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
            if wait > SOON {
                // Others go on meanwhile: theirs must wake it.
                if let Some(most) = may_sleep(&mut engine, shared, nanoseconds()) {
                    sleep(shared, Some(most.unwrap_or(wait).min(wait)));
                }
                wake(&mut engine, shared);
            }
            continue;
        }
        if last.elapsed() < busy_poll.now() {
            std::hint::spin_loop();
            continue;
        }
        if let Some(most) = may_sleep(&mut engine, shared, nanoseconds()) {
            let began = Instant::now();
            sleep(shared, most);
            // Who has something done by it says nothing of when frames come.
            if shared.waiting.load(Ordering::Acquire) == 0 {
                busy_poll.slept(began.elapsed());
            }
        }
        wake(&mut engine, shared);
        last = Instant::now();
    }
}

/// Asks guests and other workers to wake it; says how many nanoseconds it may sleep at most, or that somebody will wake it. `None`: there is
/// something to be done.
fn may_sleep(engine: &mut Engine, shared: &Shared, now: u64) -> Option<Option<u64>> {
    shared.bell.asleep.store(true, Ordering::SeqCst);
    // Either this sees what another worker has handed over, or that one sees that this sleeps.
    fence(Ordering::SeqCst);
    let SleepBound { news, most } = engine.ask_for_kicks(true, now);
    let soon = most.is_some_and(|most| most <= SOON);
    (!news && !soon && shared.waiting.load(Ordering::Acquire) == 0).then_some(most)
}

/// Looks for itself again.
fn wake(engine: &mut Engine, shared: &Shared) {
    shared.bell.asleep.store(false, Ordering::SeqCst);
    engine.ask_for_kicks(false, 0);
    engine.wake_all();
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

/// Waits for a kick, a task, or the end, or so many nanoseconds.
fn sleep(shared: &Shared, most: Option<u64>) {
    let timeout = match most.map(Duration::from_nanos) {
        // At least a millisecond, the kernel's step here.
        Some(most) => u16::try_from(most.as_millis().max(1)).map_or(EpollTimeout::MAX, EpollTimeout::from),
        None => EpollTimeout::NONE,
    };
    let mut events = [EpollEvent::empty(); EVENTS];
    // A signal that interrupts it is as good as an event.
    let _ = shared.kicks.wait(&mut events, timeout);
}

/// A descriptor whose events wake a worker for as long as this lives.
#[derive(Debug)]
pub struct Kick {
    handle: Handle,
    worker: usize,
    fd: OwnedFd,
}

impl Kick {
    /// Has `fd` wake the worker that serves ring `index`. Who serves its readiness must be the kernel itself: it is an eventfd.
    ///
    /// # Errors
    /// The kernel's, when the descriptor cannot be polled, or is listened to already.
    pub fn of_ring(handle: &Handle, index: u32, fd: OwnedFd) -> Result<Kick, Errno> {
        Kick::new(handle, handle.worker_of_ring(index), fd)
    }

    /// Has `fd`, which this process has opened, wake the worker that serves what is no ring.
    ///
    /// # Errors
    /// As [`Kick::of_ring`].
    pub fn of_wire(handle: &Handle, fd: OwnedFd) -> Result<Kick, Errno> {
        Kick::new(handle, 0, fd)
    }

    fn new(handle: &Handle, worker: usize, fd: OwnedFd) -> Result<Kick, Errno> {
        handle.listen(worker, fd.as_fd())?;
        Ok(Kick { handle: handle.clone(), worker, fd })
    }
}

impl Drop for Kick {
    fn drop(&mut self) {
        self.handle.forget(self.worker, self.fd.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_is_answered_however_deep_it_sleeps() {
        [1, 3].into_iter().for_each(whoever_asks_is_answered);
    }

    fn whoever_asks_is_answered(count: usize) {
        let (handle, workers) = start(count, |_| ()).unwrap();
        let (done, all) = mpsc::channel();
        for number in 0..3_u64 {
            let (handle, done) = (handle.clone(), done.clone());
            thread::spawn(move || {
                for turn in 0..400_u64 {
                    // About as long as it lingers, so that it is asked while it goes to sleep.
                    thread::sleep(Duration::from_micros((turn * 7 + number * 31) % 260));
                    assert_eq!(handle.ask(move |_| turn), Some(turn));
                    let each = handle.ask_each(|worker| move |_: &mut Engine| worker).map(|mut all| {
                        all.sort_unstable();
                        all
                    });
                    assert_eq!(each, Some((0..count).collect()));
                }
                done.send(number).unwrap();
            });
        }
        for _ in 0..3 {
            all.recv_timeout(Duration::from_secs(60)).expect("somebody who asked was not answered");
        }
        handle.end();
        workers.into_iter().for_each(|worker| drop(worker.join().unwrap()));
        assert_eq!(handle.ask(|_| ()), None);
        assert_eq!(handle.ask_each(|_| |_: &mut Engine| ()), None);
    }
}
