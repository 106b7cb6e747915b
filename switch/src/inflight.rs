//! What outlives the switch: where each ring stood, in memory that the front end keeps and gives back after a crash.
//!
//! vhost-user protocol, "Inflight I/O tracking". The format is shared with other back ends, which mark each chain that they have
//! taken. Here chains are completed in the order in which they were taken, so those in flight are always the ones from the last
//! that shows as used to the last that was taken, and the driver cannot overwrite their entries; nothing needs a mark:
//!
//! - Split: the used ring's own index, in the guest's memory, says where to go on. A chain that was taken and does not show is
//!   taken once more; one that shows never is. Nothing at all is written here while the ring runs.
//! - Packed: the ring itself does not say where the device stood. Before a chain shows, where it ends is written, and where it
//!   begins, in one store; after it shows, its end alone. It shows with the flags of its first descriptor, so after a crash in
//!   between that descriptor says which of the two holds. Chains show one by one (or, with `IN_ORDER`, as one): of several that were
//!   to show together a crash could leave some marked that do not, whose descriptors nobody would find again.
//!
//! Chains that another back end has marked are completed, empty, before anything else: what they held was sent, or is lost as
//! frames are.

use std::{
    fs::File,
    io,
    ptr::NonNull,
    sync::atomic::{AtomicU16, AtomicU64, Ordering},
};

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::memory::{Description, Limit, Memory, MemoryError};

/// The only version there is; 0: nothing was written yet.
const VERSION: u16 = 1;
/// Regions of rings begin at multiples of this, as DPDK has them (`INFLIGHT_ALIGNMENT`).
const ALIGNMENT: u64 = 64;

/// Where something is in a ring's region: `QueueRegionSplit`, `QueueRegionPacked`.
const VERSION_AT: usize = 8;
const ENTRIES_AT: usize = 10;
/// `last_batch_head`, of the split format.
const LAST_BATCH: usize = 12;
/// `used_idx`, of the split format.
const USED_SPLIT: usize = 14;
/// `used_idx`, `old_used_idx`, `used_wrap_counter`, `old_used_wrap_counter` and padding, of the packed format: eight bytes.
const USED_PACKED: usize = 16;

/// Bytes of the region's head and of each of its entries.
fn sizes(packed: bool) -> (usize, usize) {
    if packed { (32, 32) } else { (16, 16) }
}

/// Bytes of one ring's region, with those up to the next.
fn stride(entries: u16, packed: bool) -> u64 {
    let (head, each) = sizes(packed);
    ((head + each * usize::from(entries)) as u64).next_multiple_of(ALIGNMENT)
}

/// Makes a file for so many rings; says its size.
///
/// # Errors
/// When the kernel gives none.
pub fn create(rings: u16, entries: u16, packed: bool) -> io::Result<(File, u64)> {
    let size = stride(entries, packed) * u64::from(rings);
    let file = File::from(memfd_create("penstock-switch-inflight", MFdFlags::MFD_CLOEXEC)?);
    file.set_len(size)?;
    Ok((file, size))
}

/// The file as a front end has given it.
#[derive(Clone, Debug)]
pub struct Inflight {
    memory: Memory,
    size: u64,
    rings: u16,
    entries: u16,
}

impl Inflight {
    /// Maps it.
    ///
    /// # Errors
    /// When it is not as long as it is said to be, or longer than the limit.
    pub fn map(
        file: File,
        offset: u64,
        size: u64,
        rings: u16,
        entries: u16,
        limit: Limit,
    ) -> Result<Inflight, MemoryError> {
        let description = Description { guest: 0, user: 0, size, offset };
        Ok(Inflight { memory: Memory::map(&[(description, file)], limit)?, size, rings, entries })
    }

    /// Bytes that are mapped for it.
    pub fn mapped(&self) -> u64 {
        self.memory.mapped()
    }

    /// The region of ring `index`. `None`: it has none, or one of another size.
    pub fn note(&self, index: u32, entries: u16, packed: bool) -> Option<Note> {
        let stride = stride(self.entries, packed);
        let at = u64::from(index).checked_mul(stride)?;
        let ours = index < u32::from(self.rings) && entries == self.entries && at + stride <= self.size;
        let start = ours.then(|| self.memory.ring(at, usize::try_from(stride).ok()?, 8)).flatten()?;
        Some(Note { memory: self.memory.clone(), start, entries, packed })
    }
}

/// One ring's region.
#[derive(Debug)]
pub struct Note {
    /// Keeps what the pointer points into.
    memory: Memory,
    start: NonNull<u8>,
    entries: u16,
    packed: bool,
}

// SAFETY: the pointer is into `memory`, which others write to in any case.
unsafe impl Send for Note {}

/// A position of a packed ring and its wrap counter.
pub type Position = (u16, bool);

impl Note {
    /// # Safety
    /// `at` must be inside the region, and a multiple of 2.
    unsafe fn word(&self, at: usize) -> &AtomicU16 {
        // SAFETY: the caller says that it is inside; the region is aligned to 8.
        unsafe { AtomicU16::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    fn version(&self) -> &AtomicU16 {
        // SAFETY: either head has 16 bytes or more.
        unsafe { self.word(VERSION_AT) }
    }

    fn noted_entries(&self) -> &AtomicU16 {
        // SAFETY: as above.
        unsafe { self.word(ENTRIES_AT) }
    }

    fn positions(&self) -> &AtomicU64 {
        // SAFETY: the head of the packed format has 32 bytes; only a ring of that format asks.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(USED_PACKED).cast()) }
    }

    /// Whether a back end has written it and did not end it.
    pub fn holds(&self) -> bool {
        self.version().load(Ordering::Acquire) == VERSION
            && self.noted_entries().load(Ordering::Relaxed) == self.entries
    }

    /// Begins it: from now on it holds.
    pub fn begin(&self) {
        self.noted_entries().store(self.entries, Ordering::Relaxed);
        self.version().store(VERSION, Ordering::Release);
    }

    /// Ends it: where the ring stands is told to the front end itself.
    pub fn end(&self) {
        self.version().store(0, Ordering::Release);
    }

    /// Whether the memory was taken away.
    pub fn is_lost(&self) -> bool {
        self.memory.is_lost()
    }

    /// Where a packed ring stood: the end of its last batch, and its beginning.
    pub fn stood(&self) -> (Position, Position) {
        let [a, b, c, d, wrap, old_wrap, _, _] = self.positions().load(Ordering::Relaxed).to_le_bytes();
        ((u16::from_le_bytes([a, b]), wrap != 0), (u16::from_le_bytes([c, d]), old_wrap != 0))
    }

    /// Notes the end of a batch, and its beginning; once it shows, its end for both.
    #[inline]
    pub fn set(&self, (new, wrap): Position, (old, old_wrap): Position) {
        let ([a, b], [c, d]) = (new.to_le_bytes(), old.to_le_bytes());
        let bytes = [a, b, c, d, u8::from(wrap), u8::from(old_wrap), 0, 0];
        // Whoever reads it reads it after this process's end, and sees all stores up to there.
        self.positions().store(u64::from_le_bytes(bytes), Ordering::Release);
    }

    /// Takes the marks of chains that another back end left, in the order in which it took them: their ids, and how many
    /// entries each takes. `used`: the used ring's index, in the split format.
    pub fn take_marked(&self, used: u16) -> Vec<(u16, u16)> {
        let (head, each) = sizes(self.packed);
        let entries = usize::from(self.entries);
        let byte = |entry: usize, at: usize| {
            // SAFETY: `entry` is below `entries`, and `at` below an entry's size.
            unsafe { self.start.add(head + entry * each + at) }
        };
        // SAFETY: an entry's start is aligned to 8, `at` to 2, and both are inside.
        let word = |entry: usize, at: usize| unsafe { byte(entry, at).cast::<u16>().read_volatile() };
        let clear = |entry: usize| {
            // SAFETY: it is inside.
            unsafe { byte(entry, 0).write_volatile(0) };
        };
        if !self.packed {
            // What shows already was to be unmarked next.
            // SAFETY: the head has 16 bytes.
            let (mut at, noted) = unsafe { (self.word(LAST_BATCH), self.word(USED_SPLIT)) };
            for _ in 0..used.wrapping_sub(noted.load(Ordering::Relaxed)).min(self.entries) {
                let entry = usize::from(at.load(Ordering::Relaxed));
                if entry >= entries {
                    break;
                }
                clear(entry);
                // SAFETY: `next` is the fourth word of an entry.
                at = unsafe { self.word(head + entry * each + 6) };
            }
            noted.store(used, Ordering::Relaxed);
        }
        let mut marked: Vec<(u64, u16, u16)> = Vec::new();
        for entry in 0..entries {
            // SAFETY: it is inside, and the counter aligned to 8.
            let (mark, counter) =
                unsafe { (byte(entry, 0).read_volatile(), byte(entry, 8).cast::<u64>().read_volatile()) };
            if mark == 0 {
                continue;
            }
            clear(entry);
            let (id, count) = match self.packed {
                true => match usize::from(word(entry, 4)) {
                    last if last < entries => (word(last, 16), word(entry, 6)),
                    _ => continue,
                },
                false => (entry as u16, 1),
            };
            if (1..=self.entries).contains(&count) {
                marked.push((counter, id, count));
            }
        }
        marked.sort_unstable();
        marked.into_iter().map(|(_, id, count)| (id, count)).collect()
    }
}
