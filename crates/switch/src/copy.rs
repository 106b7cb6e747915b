//! Bytes of one guest's buffers to another's.
//!
//! Both guests may write to either side meanwhile; what arrives is then a mixture, of which the guests alone suffer.

use std::ptr::NonNull;

use crate::memory::Span;

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
    pub fn new(spans: &'a [Span]) -> Reader<'a> {
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

    /// Passes over `count` bytes; says whether there were as many.
    #[inline]
    pub fn skip(&mut self, mut count: u32) -> bool {
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

/// Copies `count` bytes.
///
/// # Safety
/// Both ranges must be mapped. They may be the same guest's, and may overlap when that guest says so.
#[inline]
unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, count: u32) {
    // SAFETY: as the caller says; `copy_to` allows ranges that overlap.
    unsafe { from.copy_to(to, count as usize) };
}
