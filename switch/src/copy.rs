//! Bytes of one guest's buffers to another's.
//!
//! Both guests may write to either side meanwhile; what arrives is then a mixture, of which the guests alone suffer.

use std::ptr::NonNull;

use crate::memory::Span;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes at the beginning of a buffer that are fetched when it is taken from its ring.
pub const FIRST: u32 = 2 * LINE as u32;
/// Bytes of a frame that are fetched ahead at most. The rest of a longer one is found by the processor.
const FETCHED: u32 = 2048;

/// Reads on through the spans of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    spans: &'a [Span],
    /// How much of the first span was read.
    at: u32,
}

impl<'a> Reader<'a> {
    /// From the beginning of `spans`.
    #[inline]
    pub const fn new(spans: &'a [Span]) -> Reader<'a> {
        Reader { spans, at: 0 }
    }

    /// What is left of the first span, at most `most` bytes; and goes on behind it.
    #[inline]
    fn next(&mut self, most: u32) -> Option<Span> {
        loop {
            let (span, rest) = self.spans.split_first()?;
            let left = span.len - self.at;
            if left == 0 {
                self.spans = rest;
                self.at = 0;
                continue;
            }
            let len = left.min(most);
            // SAFETY: `at` is less than the span's length.
            let start = unsafe { span.start.add(self.at as usize) };
            self.at += len;
            return Some(Span { start, len });
        }
    }

    /// The next bytes, at most as many as `into` has; stays where it is. Says how many there were.
    #[inline(always)]
    pub fn peek<const N: usize>(&self, into: &mut [u8; N], count: usize) -> usize {
        if count == N
            && let Some(span) = self.spans.first()
            && let Some(found) = at(*span, self.at as usize)
        {
            *into = found;
            return N;
        }
        self.peek_over(into, count)
    }

    #[inline(never)]
    fn peek_over<const N: usize>(&self, into: &mut [u8; N], count: usize) -> usize {
        let mut reader = *self;
        into.get_mut(..count).map_or(0, |into| reader.read(into))
    }

    /// The next `count` bytes, where they lie together; goes on behind them.
    #[inline(always)]
    fn together(&mut self, count: u32) -> Option<NonNull<u8>> {
        let span = self.spans.first().filter(|span| span.len - self.at >= count)?;
        // SAFETY: `at` is at most the span's length.
        let start = unsafe { span.start.add(self.at as usize) };
        self.at += count;
        Some(start)
    }

    /// Reads as much as there is, up to `into`'s length; says how much.
    #[inline]
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(left) = into.get_mut(done..).filter(|left| !left.is_empty()) {
            let Some(span) = self.next(left.len() as u32) else { break };
            // SAFETY: the span is that many bytes of mapped memory, and at most `left`'s length.
            unsafe { copy(span.start, NonNull::from(left).cast(), span.len) };
            done += span.len as usize;
        }
        done
    }

    /// Puts what is left into the first of these spans, and says how many those are. `None`: they are too few.
    pub fn spans(mut self, into: &mut [Span]) -> Option<usize> {
        let mut count = 0;
        while let Some(span) = self.next(u32::MAX) {
            *into.get_mut(count)? = span;
            count += 1;
        }
        Some(count)
    }

    /// Passes over `count` bytes; says whether there were as many.
    #[inline(always)]
    pub fn skip(&mut self, count: u32) -> bool {
        self.together(count).is_some() || self.skip_over(count)
    }

    #[inline(never)]
    fn skip_over(&mut self, mut count: u32) -> bool {
        while count > 0 {
            let Some(span) = self.next(count) else { return false };
            count -= span.len;
        }
        true
    }
}

/// Writes on through the spans of chains.
#[derive(Debug)]
pub struct Writer<'a> {
    spans: Reader<'a>,
}

impl<'a> Writer<'a> {
    /// From the beginning of `spans`.
    #[inline]
    pub fn new(spans: &'a [Span]) -> Writer<'a> {
        Writer { spans: Reader::new(spans) }
    }

    /// Writes `first` and `second` where they find room together, and goes on behind `count` bytes of the second; says whether
    /// it did. What is behind those is still to be written.
    #[inline(always)]
    pub fn write_both<const A: usize, const B: usize>(
        &mut self,
        first: &[u8; A],
        second: &[u8; B],
        count: usize,
    ) -> bool {
        let at = self.spans.at;
        let fits = |span: &&Span| (span.len - at) as usize >= A + B;
        let Some(span) = self.spans.spans.first().filter(fits) else { return false };
        // SAFETY: the span has that many bytes more from `at` on.
        unsafe {
            let start = span.start.add(at as usize);
            start.cast::<[u8; A]>().write_unaligned(*first);
            start.add(A).cast::<[u8; B]>().write_unaligned(*second);
        }
        self.spans.at += (A + count.min(B)) as u32;
        true
    }

    /// Writes as much as finds room; says how much.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while let Some(left) = bytes.get(done..).filter(|left| !left.is_empty()) {
            let Some(span) = self.spans.next(left.len() as u32) else { break };
            // SAFETY: the span is that many bytes of mapped memory, and at most `left`'s length.
            unsafe { copy(NonNull::from(left).cast(), span.start, span.len) };
            done += span.len as usize;
        }
        done
    }

    /// Copies up to `count` bytes from `reader`, as many as it has and find room; says how many.
    #[inline]
    pub fn copy(&mut self, reader: &mut Reader<'_>, count: u32) -> u32 {
        let before = *reader;
        if let Some(from) = reader.together(count)
            && let Some(to) = self.spans.together(count)
        {
            // SAFETY: both are `count` bytes of mapped memory.
            unsafe { copy(from, to, count) };
            return count;
        }
        *reader = before;
        self.copy_over(reader, count)
    }

    #[inline(never)]
    fn copy_over(&mut self, reader: &mut Reader<'_>, count: u32) -> u32 {
        let mut left = count;
        while left > 0 {
            let Some(to) = self.spans.next(left) else { break };
            let mut to_left = to.len;
            while to_left > 0 {
                let Some(from) = reader.next(to_left) else { return count - left };
                // SAFETY: both spans are mapped memory, and `from` is at most what is left of `to`.
                unsafe { copy(from.start, to.start.add((to.len - to_left) as usize), from.len) };
                to_left -= from.len;
                left -= from.len;
            }
        }
        count - left
    }
}

/// The `N` bytes of a span from `at` on, as they are found; `None` if it has fewer.
#[inline(always)]
pub fn at<const N: usize>(span: Span, at: usize) -> Option<[u8; N]> {
    // SAFETY: they are inside the span.
    (span.len as usize >= at + N).then(|| unsafe { span.start.add(at).cast::<[u8; N]>().read_unaligned() })
}

/// Copies all of a span into another, with `first` and `second` instead of what it begins with; says whether there was room.
#[inline(always)]
pub fn with_front<const A: usize, const B: usize>(
    from: Span,
    to: Span,
    first: &[u8; A],
    second: &[u8; B],
) -> bool {
    let Some(rest) = (from.len as usize).checked_sub(A + B).filter(|_| from.len <= to.len) else {
        return false;
    };
    // SAFETY: both spans have `A + B` bytes and the rest.
    unsafe {
        to.start.cast::<[u8; A]>().write_unaligned(*first);
        to.start.add(A).cast::<[u8; B]>().write_unaligned(*second);
        copy(from.start.add(A + B), to.start.add(A + B), rest as u32);
    }
    true
}

/// Copies `count` bytes.
///
/// # Safety
/// Both ranges must be mapped. They may be the same guest's, and may overlap when that guest says so.
#[inline]
unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, count: u32) {
    // A number: it stays in registers.
    type Block = u128;
    const BLOCK: usize = size_of::<Block>();
    let count = count as usize;
    // SAFETY: every block lies inside `count` bytes, and all are read before one is written; `copy_to` allows ranges that
    // overlap.
    unsafe {
        let read = |at: usize| from.add(at).cast::<Block>().read_unaligned();
        let write = |at: usize, block: Block| to.add(at).cast::<Block>().write_unaligned(block);
        // Small frames are many: a call for each costs as much as the bytes.
        match count {
            BLOCK..=32 => {
                let (first, last) = (read(0), read(count - BLOCK));
                write(0, first);
                write(count - BLOCK, last);
            }
            33..=64 => {
                let (first, second) = (read(0), read(BLOCK));
                let (third, last) = (read(count - 2 * BLOCK), read(count - BLOCK));
                write(0, first);
                write(BLOCK, second);
                write(count - 2 * BLOCK, third);
                write(count - BLOCK, last);
            }
            _ => from.copy_to(to, count),
        }
    }
}

/// Has the processor fetch a cache line that will be read; it need not be there to be asked for.
#[inline(always)]
pub fn prefetch_at<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed; it is a hint.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Has the processor fetch the first two cache lines of what will be read: a header of virtio often ends where the frame's
/// first line begins.
#[inline]
pub fn prefetch_to_read(span: Span) {
    for at in [0, LINE] {
        prefetch_at(span.start.as_ptr().wrapping_add(at));
    }
}

/// Has the processor fetch the first two cache lines of what will be written, as its owner.
#[inline]
pub fn prefetch_to_write(span: Span) {
    for at in [0, LINE] {
        prefetch_owned(span.start.as_ptr().wrapping_add(at));
    }
}

/// Has the processor fetch more of a frame of `len` bytes that will be read soon, whose first two lines are there: its own
/// way of guessing what comes next begins anew in each page, and a frame ends before it has.
#[inline]
pub fn prefetch_rest_to_read(span: Span, len: u32) {
    each_line(span, len, |line| prefetch_at(line));
}

/// The same for a frame that will be written.
#[inline]
pub fn prefetch_rest_to_write(span: Span, len: u32) {
    each_line(span, len, prefetch_owned);
}

/// Does it for each line from the third on, of as many as are fetched.
#[inline(always)]
fn each_line(span: Span, len: u32, fetch: impl Fn(*mut u8)) {
    const FOUR: usize = 4 * LINE;
    let first = span.start.as_ptr();
    let end = first.wrapping_add(len.min(span.len).min(FETCHED) as usize);
    let mut at = first.wrapping_add(FIRST as usize);
    // Four in a turn: counting costs as much as fetching.
    while at.wrapping_add(FOUR - LINE) < end {
        fetch(at);
        fetch(at.wrapping_add(LINE));
        fetch(at.wrapping_add(2 * LINE));
        fetch(at.wrapping_add(3 * LINE));
        at = at.wrapping_add(FOUR);
    }
    while at < end {
        fetch(at);
        at = at.wrapping_add(LINE);
    }
}

/// Has the processor fetch a cache line as its owner; it need not be there to be asked for.
#[inline]
pub fn prefetch_owned<T>(at: *mut T) {
    // Miri knows no assembler, and has no cache.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address is allowed; it is a hint.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
