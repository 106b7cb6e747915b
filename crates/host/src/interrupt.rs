//! Ctrl-C, and the signals that mean the same.
//!
//! A signal reaches a whole process, so this is the one thing here that is process-wide. Other programs run in process
//! groups of their own and do not see the terminal's Ctrl-C; a command that Penstock waits for is ended by
//! [`process`](crate::process) as soon as an interrupt is pending. Whoever then cleans up calls [`acknowledge`] first, so
//! that the commands of the clean-up run; whoever must come to an end [holds off](hold_off) those that come meanwhile.

use std::{
    io, mem,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use signal_hook::{
    SigId,
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    flag, low_level,
};

/// The time between two looks at whether an interrupt was heard.
const LOOK: Duration = Duration::from_millis(10);

static DEAF: AtomicBool = AtomicBool::new(false);
/// How many [`HeldOff`] there are.
static HELD_OFF: AtomicUsize = AtomicUsize::new(0);
static PENDING: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// What signals do here, for as long as interrupts are not ignored.
static HANDLERS: Mutex<Vec<SigId>> = Mutex::new(Vec::new());

fn noted() -> &'static Arc<AtomicBool> {
    PENDING.get_or_init(Arc::default)
}

fn handlers() -> MutexGuard<'static, Vec<SigId>> {
    HANDLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(signal: i32) -> io::Result<()> {
    let handler = flag::register(signal, noted().clone())?;
    handlers().push(handler);
    Ok(())
}

/// Has SIGINT, SIGTERM and SIGHUP note an interrupt instead of ending the process.
///
/// # Errors
///
/// The kernel's, when it takes no handler for a signal.
pub fn catch() -> io::Result<()> {
    [SIGINT, SIGTERM, SIGHUP].into_iter().try_for_each(note)
}

/// Has SIGQUIT do the same from now on: for whoever has something to put back that nobody else can, such as a terminal.
///
/// # Errors
///
/// The kernel's, when it takes no handler for the signal.
pub fn catch_quit() -> io::Result<()> {
    note(SIGQUIT)
}

/// Notes an interrupt, as a signal would: for one that comes in another way.
pub fn raise() {
    if !DEAF.load(Ordering::Relaxed) {
        noted().store(true, Ordering::Relaxed);
    }
}

/// From now on no interrupt is ever pending, and none is noted any more, also where the [flag](watched) was given out before: for a
/// process that has to end what it does whoever hangs up. The signals must have been caught, and stay so.
pub fn ignore() {
    DEAF.store(true, Ordering::Relaxed);
    for handler in mem::take(&mut *handlers()) {
        // A signal that was caught and has no handler any more does nothing.
        low_level::unregister(handler);
    }
}

/// Waits until somebody has taken note of the interrupt that is pending, or holds it off, and has none pending ever after: for a
/// process that ends in order whoever hangs up. The signals must have been caught.
pub fn ignore_once_heard() {
    while pending() {
        thread::sleep(LOOK);
    }
    ignore();
}

/// Holds interrupts off for as long as what it gives is there: for what must come to its end once it is begun, such as a way back. One
/// that comes meanwhile is noted, and is pending when nobody holds it off any more. As a signal does, this concerns the whole process.
pub fn hold_off() -> HeldOff {
    HELD_OFF.fetch_add(1, Ordering::Relaxed);
    HeldOff(())
}

/// No interrupt is pending while there is one of these: see [`hold_off`].
#[derive(Debug)]
#[must_use = "interrupts are held off only as long as this is there"]
pub struct HeldOff(());

impl Drop for HeldOff {
    fn drop(&mut self) {
        HELD_OFF.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether an interrupt is pending.
pub fn pending() -> bool {
    let heard = !DEAF.load(Ordering::Relaxed) && HELD_OFF.load(Ordering::Relaxed) == 0;
    heard && noted().load(Ordering::Relaxed)
}

/// The flag itself, for code that is given one to look at; it is set also by an interrupt that is held off.
pub fn watched() -> &'static AtomicBool {
    static NEVER: AtomicBool = AtomicBool::new(false);
    if DEAF.load(Ordering::Relaxed) { &NEVER } else { noted() }
}

/// Takes note of the interrupt: nothing is pending afterwards. Says whether something was.
pub fn acknowledge() -> bool {
    noted().swap(false, Ordering::Relaxed)
}

/// Does something that an interrupt must not end, such as giving back what was taken: one that is pending is put aside
/// meanwhile, and is pending again afterwards.
pub fn set_aside<T>(act: impl FnOnce() -> T) -> T {
    let pending = acknowledge();
    let done = act();
    if pending {
        // It came before whoever ignores those that come since.
        noted().store(true, Ordering::Relaxed);
    }
    done
}
