//! Frames like the one before them. Most frames of a turn go the same way; what was decided on the first of them holds for those that
//! follow, since nothing that is set can change in between. Only what differs from frame to frame is looked at again.

use super::{Engine, Frame, Sent, Source, receive::Like};
use crate::{
    net::{VIRTIO_HEADER, Virtio},
    ring::Chain,
    table::PortId,
};

/// What was decided on a frame: it goes to one guest, as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    /// What those that follow must be like.
    like: Like,
    to: PortId,
    /// Of its sender.
    pair: usize,
}

impl Engine {
    /// What holds for frames that follow this one, which was let in; `None` where it is less simple.
    pub(super) fn decided(&self, source: &Source, frame: &Frame<'_>) -> Option<Decided> {
        let settings = &*source.settings;
        let simple = frame.virtio == Virtio::PLAIN
            && frame.ethernet.tag.is_none()
            && !frame.ethernet.to.is_group()
            && usize::from(source.header) == VIRTIO_HEADER
            && !source.watched
            && !settings.arp_check
            && (self.loopback || settings.uplink)
            && self.promiscuous.is_empty();
        if !simple {
            return None;
        }
        let to = self.find(frame).filter(|to| *to != source.id)?;
        let port = self.port(to)?;
        let as_it_came = port.settings().vlan.is_some() || frame.tag.is_none();
        let plain = as_it_came
            && port.settings().takes(frame.ethernet.kind)
            && port.is_up()
            && port.wire.is_none()
            && !port.noted
            && usize::from(port.negotiated.header) == VIRTIO_HEADER;
        plain.then(|| Decided {
            like: Like {
                ethernet: frame.ethernet.untagged(),
                mtu: u32::from(settings.mtu.min(port.settings().mtu)),
            },
            to,
            pair: source.pair,
        })
    }

    /// Delivers the first of the frames in `chains`, as many as are like the one that this was `decided` on; says how many.
    #[inline]
    pub(super) fn follow(&mut self, decided: &Decided, chains: &[Chain], sent: &mut Sent) -> usize {
        let port = self.ports.get_mut(usize::from(decided.to)).and_then(Option::as_deref_mut);
        let Some(port) = port else { return 0 };
        let Some(receiving) = port.receiving(decided.pair) else { return 0 };
        let was_clean = !receiving.dirty;
        let (frames, bytes) = receiving.write_alike(&decided.like, chains);
        if frames == 0 {
            return 0;
        }
        port.counters.received += frames as u64;
        port.counters.received_bytes += bytes;
        if was_clean {
            self.touched.push((decided.to, decided.pair));
        }
        sent.frames += frames as u64;
        sent.bytes += bytes;
        sent.cost += bytes;
        frames
    }
}
