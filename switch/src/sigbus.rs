//! Memory that is taken away while it is used. A guest's memory is a file, and who has the file may make it shorter at any
//! time; the kernel then ends the process that touches what is gone (`SIGBUS`). So it does when a file of huge pages cannot be
//! given a page. Seals on the file (`F_SEAL_SHRINK`) would only help where front ends set them, and QEMU does so on request only.
//!
//! So there is a handler: it puts empty memory where the mapping was, and takes note that it is lost. Whoever runs the data path
//! sees that between two rounds and takes the rings of that guest away. The handler only walks a list that never gets shorter,
//! and makes one system call; it takes no lock and no memory.

mod place;

use std::{
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering},
    },
};

use nix::libc;

use self::place::Place;

/// A place for one mapping. Places are never given back, but used again.
#[derive(Debug)]
struct Slot {
    place: Place,
    lost: AtomicBool,
    next: Option<&'static Slot>,
}

static PLACES: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// Mappings that were lost since the beginning.
static LOST: AtomicUsize = AtomicUsize::new(0);
/// Held by who puts the handler in place.
static HANDLER: Mutex<()> = Mutex::new(());

fn first() -> Option<&'static Slot> {
    // SAFETY: what is in the list was leaked, and is never changed but through its atomics.
    unsafe { PLACES.load(Ordering::Acquire).as_ref() }
}

fn all() -> impl Iterator<Item = &'static Slot> {
    std::iter::successors(first(), |slot| slot.next)
}

/// A mapping whose loss is survived, for as long as this lives.
#[derive(Debug)]
pub struct Watched(&'static Slot);

impl Watched {
    /// Watches `len` bytes from `start` on, which must be a mapping of its own.
    pub fn new(start: usize, len: usize) -> Watched {
        install();
        let slot = all().find(|slot| slot.place.take()).unwrap_or_else(grow);
        slot.lost.store(false, Ordering::Relaxed);
        slot.place.fill(start, len);
        Watched(slot)
    }

    /// Whether it was lost: there is empty memory now where it was.
    pub fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Acquire)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.place.free();
    }
}

/// A new place, which is taken.
fn grow() -> &'static Slot {
    let slot: &'static mut Slot =
        Box::leak(Box::new(Slot { place: Place::taken(), lost: AtomicBool::new(false), next: None }));
    loop {
        let head = PLACES.load(Ordering::Acquire);
        // SAFETY: as in `first`.
        slot.next = unsafe { head.as_ref() };
        let new = ptr::from_mut(slot);
        if PLACES.compare_exchange(head, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return slot;
        }
    }
}

/// How many mappings were lost so far: who has seen fewer looks which.
#[inline]
pub fn count() -> usize {
    LOST.load(Ordering::Relaxed)
}

/// What was done before about the signal.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Puts the handler in place, unless it is there: another part of the process may have put its own there meanwhile.
pub(crate) fn install() {
    let _alone = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the handler is of the form that `SA_SIGINFO` asks for, and does only what a handler may. All zeros are a valid
    // `sigaction`.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before);
        if before.sa_sigaction == on_bus_error as *const () as usize {
            return;
        }
        BEFORE.store(Box::leak(Box::new(before)), Ordering::Release);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid `info`; a bus error has an address.
    let at = unsafe { (*info).si_addr() } as usize;
    if all().any(|slot| slot.replace(at)) {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    }
    // None of ours: what was to happen before happens when it is touched again.
    // SAFETY: it was leaked when this handler was put in place.
    unsafe { libc::sigaction(libc::SIGBUS, BEFORE.load(Ordering::Acquire), ptr::null_mut()) };
}

impl Slot {
    /// Puts empty memory where the mapping is, if `at` is in it. Called by a signal's handler.
    fn replace(&self, at: usize) -> bool {
        // One that is being changed is not that of the thread that was interrupted.
        let Some((start, len)) = self.place.read() else { return false };
        if at < start || at - start >= len {
            return false;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the range is a mapping of ours, which the thread that was interrupted keeps in use. `mmap` is a bare system
        // call, and the number of an error is put back.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            let put = libc::mmap(start as *mut libc::c_void, len, protection, flags, -1, 0);
            *errno = before;
            if put == libc::MAP_FAILED {
                return false;
            }
        }
        self.lost.store(true, Ordering::Release);
        true
    }
}
