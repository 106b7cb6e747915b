//! Guests and front ends that keep to no rule, made of arbitrary bytes: what the fuzz targets run (`fuzz/README.md`), and the
//! tests run again what was found once.
//!
//! Each takes any bytes, has the switch bear them, and sees to it that those who have nothing to do with it lose nothing.

mod control;
mod inside;
mod neighbours;
mod offload;
mod protocol;
mod rings;

pub use self::{control::control, inside::inside, offload::offload, protocol::protocol, rings::rings};

/// Bytes as decisions. When they have run out, everything is 0.
#[derive(Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Makes decisions of these bytes, from the first to the last.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    /// Whether there are any left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes, as many as are left of `count`.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, left) = self.0.split_at(count.min(self.0.len()));
        self.0 = left;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut all = [0; N];
        let taken = self.bytes(N);
        all[..taken.len()].copy_from_slice(taken);
        all
    }

    /// A number of 8 bits.
    pub fn byte(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// A number of 16 bits.
    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// A number of 32 bits.
    pub fn long(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// A number of 64 bits.
    pub fn wide(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// One of these.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }

    /// Yes or no.
    pub fn coin(&mut self) -> bool {
        self.byte() & 1 == 1
    }
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;
