//! Frames to whom they are for.

use super::{Engine, Frame, Source, mirror::MirrorDirection};
use crate::{
    copy::Reader,
    counters::Dropped,
    memory::Span,
    net::{Segments, TAGGED_HEADER, Virtio},
    offload,
    table::PortId,
};

impl Engine {
    /// Delivers a frame to everybody whom it is for; says whether there was anybody.
    #[inline]
    pub(super) fn distribute(&mut self, source: &Source, frame: &Frame<'_>) -> bool {
        // Without loopback everything that does not come from outside goes out, whomever it is for.
        if !self.loopback && !source.settings.uplink {
            return match self.uplink {
                Some(uplink) => self.deliver(source, uplink, frame),
                None => false,
            };
        }
        if frame.ethernet.to.is_group() {
            return self.flood(source, frame);
        }
        let found = self.find(frame);
        match found {
            // What a guest sends to itself is its own business.
            Some(id) if id == source.id => true,
            Some(id) => {
                self.copies(source, id, frame);
                self.deliver(source, id, frame)
            }
            None => self.unclaimed(source, frame),
        }
    }

    /// Who has the address that a frame is for, in its VLAN.
    #[inline(always)]
    pub(super) fn find(&self, frame: &Frame<'_>) -> Option<PortId> {
        self.table.find(frame.ethernet.to, |id| {
            let port = self.ports.get(usize::from(id)).and_then(Option::as_deref);
            port.is_some_and(|port| port.settings().is_member(frame.vlan))
        })
    }

    /// To all of its VLAN.
    fn flood(&mut self, source: &Source, frame: &Frame<'_>) -> bool {
        self.deliver_each(source, source.id, frame, |engine| &engine.present)
    }

    /// To the ports that get what nobody has the address of.
    fn unclaimed(&mut self, source: &Source, frame: &Frame<'_>) -> bool {
        self.deliver_each(source, source.id, frame, |engine| &engine.unclaimed)
    }

    /// To ports that get every frame of their VLANs, but for `beside`, which gets it in any case.
    #[inline(always)]
    fn copies(&mut self, source: &Source, beside: PortId, frame: &Frame<'_>) -> bool {
        if self.promiscuous.is_empty() {
            return false;
        }
        self.deliver_each(source, beside, frame, |engine| &engine.promiscuous)
    }

    /// To those of these ports that are in its VLAN, but for its sender and `beside`; says whether there was one.
    #[inline(never)]
    fn deliver_each(
        &mut self,
        source: &Source,
        beside: PortId,
        frame: &Frame<'_>,
        ports: fn(&Engine) -> &[PortId],
    ) -> bool {
        let mut any = false;
        for turn in 0..ports(self).len() {
            let Some(id) = ports(self).get(turn).copied() else { break };
            let concerns = |port: &super::Port| port.settings().is_member(frame.vlan);
            if id != source.id && id != beside && self.port(id).is_some_and(concerns) {
                self.deliver(source, id, frame);
                any = true;
            }
        }
        any
    }

    /// To one port; says that there is such a port.
    #[inline]
    pub(super) fn deliver(&mut self, source: &Source, id: PortId, frame: &Frame<'_>) -> bool {
        let Some(port) = self.port(id) else { return false };
        if !port.is_up() {
            if let Some(port) = self.port_mut(id) {
                port.count(frame, Err(Dropped::LinkDown));
            }
            return true;
        }
        let knows = port.negotiated;
        if port.noted && !frame.copy {
            self.note(source, id, frame);
        }
        let virtio = &frame.virtio;
        let software = match virtio.segments {
            Segments::None => virtio.checksum.is_some() && !knows.checksum,
            segments => !knows.checksum || !knows.takes(segments, virtio.ecn),
        };
        if software {
            self.deliver_worked(source, id, frame);
        } else {
            self.write(id, source.pair, frame);
        }
        true
    }

    /// Looks once more at a frame for an uplink of limited speed, or for a port that others watch.
    #[cold]
    fn note(&mut self, source: &Source, id: PortId, frame: &Frame<'_>) {
        if self.uplink == Some(id) {
            self.share.used += frame.cost();
        }
        if self.port(id).is_some_and(|port| port.watched.received) {
            self.mirror(source, id, MirrorDirection::Received, frame);
        }
    }

    /// Writes a frame into a port's buffers, or has the worker do so that serves them.
    #[inline(always)]
    fn write(&mut self, id: PortId, pair: usize, frame: &Frame<'_>) {
        if !self.write_here(id, pair, frame) {
            self.hand_over(id, pair, frame);
        }
    }

    /// Writes a frame into a port's buffers, with the tag that the port sees; says whether it has such buffers here, or a wire.
    #[inline(always)]
    pub(super) fn write_here(&mut self, id: PortId, pair: usize, frame: &Frame<'_>) -> bool {
        let Some(port) = self.ports.get_mut(usize::from(id)).and_then(Option::as_deref_mut) else {
            return false;
        };
        if !frame.copy && !port.settings().takes(frame.ethernet.kind) {
            port.count(frame, Err(Dropped::ForeignVlan));
            return true;
        }
        let tag = match &port.settings().vlan {
            // Its own tag is the switch's business.
            Some(_) if !frame.copy => None,
            _ => frame.tag,
        };
        let mtu = u32::from(port.settings().mtu);
        let too_long = !frame.copy
            && (frame.rest > mtu && frame.virtio.segment == 0 || u32::from(frame.virtio.segment) > mtu);
        let shape = port.negotiated.shape();
        if let Some(wire) = &mut port.wire {
            let outcome = if too_long { Err(Dropped::TooLong) } else { wire.write(shape, frame, tag) };
            port.count(frame, outcome);
            return true;
        }
        let Some(receiving) = port.receiving(pair) else { return false };
        let was_clean = !receiving.dirty;
        let outcome = if too_long { Err(Dropped::TooLong) } else { receiving.write(shape, frame, tag) };
        let broken = if outcome.is_err() { receiving.broken } else { None };
        let touched = was_clean && receiving.dirty;
        let is_new = port.broken.is_none();
        port.count(frame, outcome);
        if touched {
            self.touched.push((id, pair));
        }
        if let Some(why) = broken.filter(|_| is_new) {
            self.broke(id, why);
        }
        true
    }

    /// Completes checksums and cuts segments for who does not know how.
    #[inline(never)]
    fn deliver_worked(&mut self, source: &Source, id: PortId, frame: &Frame<'_>) {
        let mut whole = std::mem::take(&mut self.frame);
        let mut room = std::mem::take(&mut self.segment);
        let mut header = [0; TAGGED_HEADER];
        let (front, front_len) = frame.ethernet.written(frame.ethernet.tag, &mut header);
        whole.clear();
        whole.extend(front.iter().take(front_len));
        // No longer than it is: a small frame does not pay for a large one.
        whole.resize(front_len + frame.rest as usize, 0);
        let mut payload = frame.payload;
        let read = whole.get_mut(front_len..).map_or(0, |rest| payload.read(rest));
        whole.truncate(front_len + read);
        let mut deliver = |bytes: &[u8]| {
            let Some(worked) = again(frame, bytes) else { return };
            let spans = [span(bytes)];
            let mut payload = Reader::new(&spans);
            payload.skip(worked.ethernet.size() as u32);
            self.write(id, source.pair, &Frame { payload, ..worked });
        };
        let done = match (frame.virtio.segments, frame.virtio.checksum) {
            (Segments::None, Some(checksum)) => {
                offload::complete(&mut whole, checksum).map(|()| deliver(&whole))
            }
            _ => offload::cut(&whole, &frame.virtio, &mut room, &mut deliver).map(|_| ()),
        };
        if done.is_none()
            && let Some(port) = self.port_mut(id)
        {
            port.count(frame, Err(Dropped::BadHeader));
        }
        self.frame = whole;
        self.segment = room;
    }

    /// Shows all guests what was written for them, and other workers what was handed over to them.
    pub(super) fn publish_touched(&mut self) {
        while let Some((id, pair)) = self.touched.pop() {
            let Some(port) = self.port_mut(id) else { continue };
            let faulty = port.receiving(pair).map_or(0, super::Receiving::publish);
            if faulty > 0 {
                port.counters.bad_buffers(faulty);
            }
        }
        self.announce_parcels();
    }
}

/// The frame made of these bytes, of which nothing more is to be done.
fn again<'a>(frame: &Frame<'a>, bytes: &[u8]) -> Option<Frame<'a>> {
    // The Ethernet header is what it was: read again, a customer's tag would be taken for the port's.
    let rest = u32::try_from(bytes.len().checked_sub(frame.ethernet.size())?).ok()?;
    Some(Frame { virtio: Virtio { valid: true, ..Virtio::PLAIN }, rest, ..*frame })
}

/// These bytes of ours as a span.
pub(super) fn span(bytes: &[u8]) -> Span {
    // It is only read from.
    Span { start: std::ptr::NonNull::from(bytes).cast(), len: bytes.len() as u32 }
}
