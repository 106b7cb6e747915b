//! What the memory allows: one copy of each frame, and nothing else. On the guests' CPU a thread writes the first line of a
//! buffer and reads the first line of its copy, as a guest that looks at headers does; on the switch's another copies: as it is, or with
//! the lines of the next buffers asked for ahead. The quicker of both is the limit.

use std::{
    num::NonZeroUsize,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    libc::c_void,
    sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap},
};

use penstock_switch::copy::{prefetch_at, prefetch_owned};

use super::{
    prepared::ENTRIES,
    prepared_ring::STRIDE,
    processes::{GUESTS, SWITCH, polls_on},
};

/// Buffers on each side: as many as two guests have.
const BUFFERS: u64 = 2 * ENTRIES;
/// Bytes of all of them, in whole huge pages.
const LENGTH: usize = (BUFFERS as usize * STRIDE).next_multiple_of(2 << 20);
/// So many are handed over at a time, as the guests do.
const BATCH: u64 = 32;
/// For so long.
const RUN: Duration = Duration::from_millis(400);

/// A counter in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Buffers on huge pages, as guests' are.
struct Buffers(NonNull<c_void>);

// SAFETY: who may touch which buffer is settled by the counters.
unsafe impl Sync for Buffers {}

impl Buffers {
    fn new() -> Result<Buffers, String> {
        let length = NonZeroUsize::new(LENGTH).ok_or("no buffers")?;
        let (access, flags) =
            (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE | MapFlags::MAP_HUGETLB);
        // SAFETY: new memory is nobody else's.
        let start = unsafe { mmap_anonymous(None, length, access, flags) };
        start.map(Buffers).map_err(|errno| format!("{length} bytes of huge pages could not be had: {errno}"))
    }

    fn at(&self, number: u64) -> *mut u8 {
        let offset = (number % BUFFERS) as usize * STRIDE;
        // SAFETY: the remainder is a buffer of the mapping.
        unsafe { self.0.as_ptr().cast::<u8>().add(offset) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and its threads have ended.
        let _ = unsafe { munmap(self.0, LENGTH) };
    }
}

/// Copies of `size` bytes in a second of the copying CPU, at most.
pub fn limit(size: usize) -> Result<f64, String> {
    Ok(rate(size, Ahead::Nothing)?.max(rate(size, Ahead::Next)?))
}

/// What is asked for before it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    /// What the processor guesses.
    Nothing,
    /// All lines of the next buffer, on both sides.
    Next,
}

fn rate(size: usize, ahead: Ahead) -> Result<f64, String> {
    assert!((64..=STRIDE).contains(&size), "a frame fits into a buffer");
    let (from, to) = (Buffers::new()?, Buffers::new()?);
    let (written, copied, ended) = (Counter::default(), Counter::default(), Counter::default());
    thread::scope(|scope| {
        let copies = scope.spawn(|| {
            polls_on(SWITCH);
            copy(size, ahead, (&from, &to), &written, &copied, &ended)
        });
        scope.spawn(|| {
            polls_on(GUESTS);
            touch((&from, &to), &written, &copied, &ended);
        });
        copies.join().map_err(|_| "the copying thread panicked".to_owned())
    })
}

fn copy(
    size: usize,
    ahead: Ahead,
    (from, to): (&Buffers, &Buffers),
    written: &Counter,
    copied: &Counter,
    ended: &Counter,
) -> f64 {
    let warm = RUN / 5;
    let began = Instant::now();
    let mut counted = None;
    let mut done = 0;
    loop {
        let until = written.0.load(Ordering::Acquire).min(done + BATCH);
        for number in done..until {
            if ahead == Ahead::Next {
                for line in (0..size).step_by(64) {
                    prefetch_at(from.at(number + 1).wrapping_add(line));
                    prefetch_owned(to.at(number + 1).wrapping_add(line));
                }
            }
            // SAFETY: both are buffers of at least `size` bytes, which are this thread's until it says that they are copied.
            unsafe { std::ptr::copy_nonoverlapping(from.at(number), to.at(number), size) };
        }
        if until == done {
            std::hint::spin_loop();
        }
        done = until;
        copied.0.store(done, Ordering::Release);
        let now = began.elapsed();
        match counted {
            None if now >= warm => counted = Some((done, now)),
            Some((first, since)) if now >= RUN => {
                ended.0.store(1, Ordering::Release);
                return (done - first) as f64 / (now - since).as_secs_f64();
            }
            _ => {}
        }
    }
}

fn touch((from, to): (&Buffers, &Buffers), written: &Counter, copied: &Counter, ended: &Counter) {
    let (mut sent, mut read) = (0, 0);
    while ended.0.load(Ordering::Relaxed) == 0 {
        let until = copied.0.load(Ordering::Acquire).min(read + BATCH);
        // A guest asks for more than one line at a time.
        (read..until).for_each(|number| prefetch_at(to.at(number)));
        for number in read..until {
            // SAFETY: the copy is done, and its buffer is this thread's until the next is written.
            std::hint::black_box(unsafe { to.at(number).cast::<[u64; 8]>().read_volatile() });
        }
        read = until;
        let until = (read + BUFFERS).min(sent + BATCH);
        (sent..until).for_each(|number| prefetch_owned(from.at(number)));
        for number in sent..until {
            // SAFETY: what was in this buffer was copied and read.
            unsafe { from.at(number).cast::<[u64; 8]>().write_volatile([number; 8]) };
        }
        sent = until;
        written.0.store(sent, Ordering::Release);
    }
}
