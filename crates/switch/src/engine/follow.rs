//! Frames like the one before them. Most frames of a turn go the same way; what was decided on the first of them holds for those that
//! follow, since nothing that is set can change in between. Only what differs from frame to frame is looked at again.

use super::{Engine, Frame, Sent, Source};
use crate::{
    copy::Reader,
    memory::Span,
    net::{ETHERNET_HEADER, VIRTIO_HEADER, Virtio},
    table::PortId,
};

/// Both headers of a frame that asks for nothing and has no tag.
const HEADERS: u32 = (VIRTIO_HEADER + ETHERNET_HEADER) as u32;

/// What was decided on a frame: it goes to one guest, as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    ethernet: [u8; ETHERNET_HEADER],
    to: PortId,
    /// The longest payload that both may have.
    mtu: u32,
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
            && port.is_up()
            && port.wire.is_none()
            && !port.noted
            && usize::from(port.negotiated.header) == VIRTIO_HEADER;
        plain.then(|| Decided {
            ethernet: frame.ethernet.untagged(),
            to,
            mtu: u32::from(settings.mtu.min(port.settings().mtu)),
        })
    }

    /// Delivers a frame if it is like the one that this was `decided` on; says whether it did.
    #[inline]
    pub(super) fn follow(
        &mut self,
        decided: &Decided,
        source: &Source,
        spans: &[Span],
        len: u32,
        sent: &mut Sent,
    ) -> bool {
        let Some(rest) = len.checked_sub(HEADERS).filter(|rest| *rest <= decided.mtu) else { return false };
        let mut payload = Reader::new(spans);
        let (mut own, mut ethernet) = ([0; VIRTIO_HEADER], [0; ETHERNET_HEADER]);
        if payload.peek(&mut own, VIRTIO_HEADER) < VIRTIO_HEADER || !Virtio::is_plain(&own) {
            return false;
        }
        payload.skip(VIRTIO_HEADER as u32);
        if payload.peek(&mut ethernet, ETHERNET_HEADER) < ETHERNET_HEADER || ethernet != decided.ethernet {
            return false;
        }
        payload.skip(ETHERNET_HEADER as u32);
        let port = self.ports.get_mut(usize::from(decided.to)).and_then(Option::as_deref_mut);
        let Some(port) = port else { return false };
        let Some(receiving) = port.receiving(source.pair) else { return false };
        let was_clean = !receiving.dirty;
        if !receiving.write_plain(&ethernet, &mut payload, rest) {
            return false;
        }
        let bytes = u64::from(rest) + ETHERNET_HEADER as u64;
        port.counters.received += 1;
        port.counters.received_bytes += bytes;
        if was_clean {
            self.touched.push((decided.to, source.pair));
        }
        sent.frames += 1;
        sent.bytes += bytes;
        sent.cost += bytes;
        true
    }
}
