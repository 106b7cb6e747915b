//! What went through a port, and what did not.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Why a frame was dropped, at the port that it came from, or at the one that it should have gone to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dropped {
    /// A chain of buffers that cannot be; among what was for a port, empty buffers of its own that were given back.
    BadChain,
    /// A header that cannot be, or a frame shorter than one.
    BadHeader,
    /// Longer than the MTU.
    TooLong,
    /// The source is none of the port's addresses.
    SpoofedMac,
    /// A tag that the port may not use.
    ForeignVlan,
    /// ARP or neighbour discovery from another address.
    SpoofedNeighbour,
    /// A link is down.
    LinkDown,
    /// Nobody has the address.
    NoReceiver,
    /// The receiver has no buffers.
    NoBuffers,
    /// The receiver's buffers are too small for it, and cannot be joined.
    TooSmall,
}

impl Dropped {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Dropped; 10] = [
        Dropped::BadChain,
        Dropped::BadHeader,
        Dropped::TooLong,
        Dropped::SpoofedMac,
        Dropped::ForeignVlan,
        Dropped::SpoofedNeighbour,
        Dropped::LinkDown,
        Dropped::NoReceiver,
        Dropped::NoBuffers,
        Dropped::TooSmall,
    ];
}

impl AddAssign for Counters {
    /// What another worker has counted at the same port.
    fn add_assign(&mut self, other: Counters) {
        let Counters {
            sent,
            sent_bytes,
            received,
            received_bytes,
            dropped_sent,
            dropped_received,
            mirrored,
            mirrored_bytes,
            dropped_mirrored,
        } = other;
        let numbers = [
            (&mut self.sent, sent),
            (&mut self.sent_bytes, sent_bytes),
            (&mut self.received, received),
            (&mut self.received_bytes, received_bytes),
            (&mut self.mirrored, mirrored),
            (&mut self.mirrored_bytes, mirrored_bytes),
        ];
        numbers.into_iter().for_each(|(own, other)| *own += other);
        let reasons = [
            (&mut self.dropped_sent, dropped_sent),
            (&mut self.dropped_received, dropped_received),
            (&mut self.dropped_mirrored, dropped_mirrored),
        ];
        for (own, other) in reasons {
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        }
    }
}

/// Counters of a port. Sent and received are the guest's: sent went into the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that the guest sent; whole segments count as one.
    pub sent: u64,
    /// Bytes of the frames that the guest sent, from the Ethernet header on, without the virtio header.
    pub sent_bytes: u64,
    /// Frames that the guest got.
    pub received: u64,
    /// Bytes of the frames that the guest got, from the Ethernet header on, without the virtio header.
    pub received_bytes: u64,
    /// Frames of its own that were dropped, by reason.
    pub dropped_sent: [u64; Dropped::ALL.len()],
    /// Frames for it that were dropped, by reason.
    pub dropped_received: [u64; Dropped::ALL.len()],
    /// Copies of others' frames that it got.
    pub mirrored: u64,
    /// Bytes of these copies, from the Ethernet header on, without the virtio header.
    pub mirrored_bytes: u64,
    /// Copies for it that were dropped, by reason.
    pub dropped_mirrored: [u64; Dropped::ALL.len()],
}

impl Counters {
    /// Counts a frame of the guest's that was dropped.
    #[inline]
    pub fn drop_sent(&mut self, why: Dropped) {
        // Every reason has a place.
        if let Some(count) = self.dropped_sent.get_mut(why as usize) {
            *count += 1;
        }
    }

    /// Counts a frame for the guest: so many bytes, or why it did not come.
    #[inline]
    pub fn received(&mut self, outcome: Result<u32, Dropped>) {
        match outcome {
            Ok(bytes) => {
                self.received += 1;
                self.received_bytes += u64::from(bytes);
            }
            Err(why) => self.drop_received(why),
        }
    }

    /// Counts empty buffers of the guest's that cannot be, and were given back.
    #[cold]
    pub fn bad_buffers(&mut self, count: u64) {
        if let Some(all) = self.dropped_received.get_mut(Dropped::BadChain as usize) {
            *all += count;
        }
    }

    /// Counts a copy for the guest of another's frame.
    pub fn mirrored(&mut self, outcome: Result<u32, Dropped>) {
        match outcome {
            Ok(bytes) => {
                self.mirrored += 1;
                self.mirrored_bytes += u64::from(bytes);
            }
            Err(why) => {
                if let Some(count) = self.dropped_mirrored.get_mut(why as usize) {
                    *count += 1;
                }
            }
        }
    }

    /// Counts a frame for the guest that was dropped.
    #[inline]
    pub fn drop_received(&mut self, why: Dropped) {
        if let Some(count) = self.dropped_received.get_mut(why as usize) {
            *count += 1;
        }
    }
}
