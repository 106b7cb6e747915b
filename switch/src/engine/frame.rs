//! A frame on its way, and what those of one turn have in common.

use std::sync::Arc;

use crate::{
    copy::Reader,
    net::{Ethernet, Segments, Tag, Virtio},
    settings::Settings,
    table::PortId,
};

/// A frame on its way. Its headers are private; its payload is still in the sender's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub virtio: Virtio,
    pub ethernet: Ethernet,
    /// What follows the Ethernet header that was read.
    pub payload: Reader<'a>,
    /// How many bytes that is.
    pub rest: u32,
    /// Its VLAN inside the switch; 0 for none.
    pub vlan: u16,
    /// The tag that it has in that VLAN, with its type on the wire.
    pub tag: Option<(Tag, u16)>,
    /// Whether it is a copy for who watches others.
    pub copy: bool,
}

impl Frame<'_> {
    /// A frame without bytes, in place of one that was not read yet.
    pub const NONE: Frame<'static> = Frame {
        virtio: Virtio::PLAIN,
        ethernet: Ethernet::NONE,
        payload: Reader::new(&[]),
        rest: 0,
        vlan: 0,
        tag: None,
        copy: false,
    };

    /// Its bytes as its sender wrote it.
    pub fn len(&self) -> u32 {
        self.rest + self.ethernet.size() as u32
    }

    /// Bytes that it counts for a rate: those of all frames into which it would be cut, each with the headers.
    #[inline]
    pub fn cost(&self) -> u64 {
        let whole = u64::from(self.len());
        match (self.virtio.segment, self.virtio.checksum) {
            (0, _) | (_, None) => whole,
            (segment, Some(checksum)) => {
                let transport = if self.virtio.segments == Segments::Udp { 8 } else { 20 };
                let headers = u64::from(checksum.start) + transport;
                let frames = whole.saturating_sub(headers).div_ceil(u64::from(segment)).max(1);
                whole + (frames - 1) * headers
            }
        }
    }
}

/// What was let in of one turn.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub frames: u64,
    pub bytes: u64,
    /// Bytes that count for rates.
    pub cost: u64,
}

/// What the frames of one turn have in common.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub id: PortId,
    pub pair: usize,
    pub settings: Arc<Settings>,
    /// Bytes of its virtio header.
    pub header: u8,
    /// Whether it is believed that a checksum is right: a wire is, a guest is not.
    pub believed: bool,
    pub up: bool,
    /// Whether others get copies of what it sends.
    pub watched: bool,
}
