//! The datagrams of the latency probe.
//!
//! Twenty-four bytes, numbers in network order, and zeros up to the size that was asked for:
//!
//! ```text
//! 0  4  "PNSK"
//! 4  1  version, 1
//! 5  1  0 for a request, 1 for its answer
//! 6  2  zeros
//! 8  8  which run of the client it is; an answer has the request's
//! 16 8  number of the request, from 0; a greeting, which is not measured, has 2^64 - 1
//! ```

use std::ops::RangeInclusive;

/// Bytes of the smallest datagram.
pub const LEAST: u32 = 24;

/// Bytes of the largest: what IPv4 leaves of 65535.
pub const MOST: u32 = 65507;

/// Sizes that a datagram can have.
pub const SIZES: RangeInclusive<u32> = LEAST..=MOST;

/// The number of a greeting.
pub const GREETING: u64 = u64::MAX;

const MAGIC: [u8; 4] = *b"PNSK";
const VERSION: u8 = 1;

/// What a datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Whether it is an answer.
    pub answer: bool,
    /// Which run of the client it belongs to.
    pub session: u64,
    /// The request's number, from 0; [`GREETING`] for a greeting.
    pub number: u64,
}

impl Packet {
    /// What these bytes say; `None` for anything that is no datagram of the probe.
    pub fn read(bytes: &[u8]) -> Option<Packet> {
        let (head, zeros) = bytes.split_at_checked(LEAST as usize)?;
        let word = |at: usize| head.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let known = head[..4] == MAGIC && head[4] == VERSION && head[5] <= 1 && head[6..8] == [0, 0];
        // The rest is not looked at: a check of 16 KiB would be measured too.
        (known && zeros.len() <= (MOST - LEAST) as usize).then_some(())?;
        Some(Packet { answer: head[5] == 1, session: word(8)?, number: word(16)? })
    }

    /// Writes it at the beginning of `bytes`, and leaves what follows.
    ///
    /// # Panics
    ///
    /// When there are fewer than [`LEAST`] bytes.
    pub fn write(&self, bytes: &mut [u8]) {
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&[VERSION, self.answer.into(), 0, 0]);
        bytes[8..16].copy_from_slice(&self.session.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (answer, number) in [(false, 0), (true, 7), (false, GREETING)] {
            let packet = Packet { answer, session: 0x0123_4567_89ab_cdef, number };
            let mut bytes = [0; 128];
            packet.write(&mut bytes);
            assert_eq!(Packet::read(&bytes), Some(packet));
            assert_eq!(Packet::read(&bytes[..24]), Some(packet));
            assert_eq!(Packet::read(&bytes[..23]), None);
        }
    }

    #[test]
    fn nothing_else_is_read() {
        let mut good = [0; 24];
        Packet { answer: false, session: 1, number: 2 }.write(&mut good);
        for (at, value) in [(0, b'p'), (4, 2), (5, 2), (6, 1), (7, 255)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(Packet::read(&bad), None, "byte {at}");
        }
        assert_eq!(Packet::read(&[]), None);
        assert_eq!(Packet::read(&[0; 70000]), None);
    }
}
