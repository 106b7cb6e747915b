//! Work that may take so much memory and time, and no more.
//!
//! MiniJinja counts instructions, and one of them can double a text. So a template of the user's is rendered in a thread whose
//! allocations are counted, whatever they are for: an operator, a filter, a list, a page. The allocation that goes beyond the
//! budget is never made. An allocator may neither fail in a way that can be told nor unwind; so the thread stops there for good, with
//! what it has, and whoever waits for it is told. That memory is gone until the process ends, and the process lives on.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    panic,
    ptr::null,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// The most memory that the work may have at once, in bytes. What it was given is not counted.
pub const MOST_MEMORY: usize = 16 << 20;
/// The longest that it may last; instructions on large texts take long.
pub const MOST_TIME: Duration = Duration::from_secs(20);
/// Room for lists in lists as deep as the memory allows, which are dropped by recursion. Only what is used of it is taken.
const STACK: usize = 512 << 20;
/// How often it is looked whether the work has stopped.
const LOOK: Duration = Duration::from_millis(10);

/// What the work had too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// More than [`MOST_MEMORY`].
    Memory,
    /// More than [`MOST_TIME`].
    Time,
    /// The system has no thread for it.
    Thread,
}

/// What both threads know.
#[derive(Default)]
struct Account {
    /// It stands at an allocation that would have been too much.
    full: AtomicBool,
    /// It is to stop at its next allocation.
    late: AtomicBool,
}

thread_local! {
    /// Whose account allocations of this thread go to; none for most threads.
    static ACCOUNT: Cell<*const Account> = const { Cell::new(null()) };
    /// Bytes that this thread has. Less than nothing if it has freed what others made.
    static USED: Cell<isize> = const { Cell::new(0) };
}

/// Does the work in a thread of its own.
///
/// # Panics
///
/// The work panics.
///
/// # Errors
///
/// [`Exceeded`]: it takes too much time or memory, or no thread can be started.
pub fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Exceeded> {
    let account = Arc::new(Account::default());
    let (done, outcome) = channel();
    let its = account.clone();
    let counted = move || {
        ACCOUNT.set(Arc::as_ptr(&its));
        let outcome = panic::catch_unwind(panic::AssertUnwindSafe(work));
        // Before the account can go.
        ACCOUNT.set(null());
        // Whoever waited has given up; then nobody wants it.
        let _ = done.send(outcome);
    };
    let builder = thread::Builder::new().name("template".to_owned()).stack_size(STACK);
    if builder.spawn(counted).is_err() {
        return Err(Exceeded::Thread);
    }
    let deadline = Instant::now() + MOST_TIME;
    loop {
        match outcome.recv_timeout(LOOK) {
            Ok(outcome) => return Ok(outcome.unwrap_or_else(|panic| panic::resume_unwind(panic))),
            Err(RecvTimeoutError::Disconnected) => unreachable!("it sends before it ends"),
            Err(RecvTimeoutError::Timeout) if account.full.load(Ordering::Relaxed) => {
                return Err(Exceeded::Memory);
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                account.late.store(true, Ordering::Relaxed);
                return Err(Exceeded::Time);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Puts bytes on the account of this thread, if it has one; does not return when they are too many.
///
/// Not while it panics: the panic is written down under locks that the whole process shares, and with `RUST_BACKTRACE` it takes more
/// memory than the work may have. A thread that stopped there would take those locks along.
fn charge(bytes: usize) {
    let account = ACCOUNT.get();
    if account.is_null() || thread::panicking() {
        return;
    }
    // SAFETY: it is set while the thread holds its share of the account, and unset before that goes.
    let account = unsafe { &*account };
    let used = USED.get().saturating_add_unsigned(bytes);
    USED.set(used);
    let full = used > MOST_MEMORY as isize;
    if full {
        account.full.store(true, Ordering::Relaxed);
    }
    while full || account.late.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_secs(3600));
    }
}

fn discharge(bytes: usize) {
    if !ACCOUNT.get().is_null() {
        USED.set(USED.get().saturating_sub_unsigned(bytes));
    }
}

/// The system's allocator, and the account of the thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: all is handed to the system's allocator as it came. What is done besides neither allocates nor unwinds: the thread's
// variables are constants at first and drop nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        discharge(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both are there while one is copied to the other.
        charge(size);
        // SAFETY: as the caller promised.
        let moved = unsafe { System.realloc(block, layout, size) };
        discharge(if moved.is_null() { size } else { layout.size() });
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_within_its_budget_is_done_and_what_it_frees_is_free_again() {
        let outcome = within(|| {
            for _ in 0..10 {
                drop(std::hint::black_box(vec![1_u8; MOST_MEMORY / 2]));
            }
            vec![7_u8; 3]
        });
        assert_eq!(outcome, Ok(vec![7, 7, 7]));
    }

    #[test]
    fn an_allocation_beyond_the_budget_is_never_made() {
        for huge in [MOST_MEMORY + 1, isize::MAX as usize / 2] {
            assert_eq!(within(move || vec![0_u8; huge].len()), Err(Exceeded::Memory));
        }
        let growing = within(|| {
            let mut all = Vec::new();
            loop {
                all.push(vec![0_u8; 1000]);
            }
        });
        assert_eq!(growing.map(|never: std::convert::Infallible| match never {}), Err(Exceeded::Memory));
        assert_eq!(within(|| 1), Ok(1), "others are not kept from anything");
    }

    /// As a backtrace does that takes more memory than there is, under a lock that others want.
    #[test]
    fn a_panic_takes_the_memory_that_it_needs() {
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                assert!(thread::panicking());
                drop(std::hint::black_box(vec![1_u8; 2 * MOST_MEMORY]));
            }
        }
        let panicked = panic::catch_unwind(|| {
            within(|| {
                let _late = Late;
                panic!("oh")
            })
        });
        assert!(panicked.is_err());
    }

    #[test]
    #[should_panic(expected = "oh")]
    fn a_panic_goes_on_where_it_is_waited_for() {
        let _ = within(|| panic!("oh"));
    }
}
