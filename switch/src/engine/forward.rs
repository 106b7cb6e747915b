//! One frame on its way: it is read, judged, and delivered.

use super::{
    Engine, Frame, Sent, Source, deliver,
    follow::Decided,
    ingress,
    mirror::MirrorDirection,
    neighbour::{self, Verdict},
};
use crate::{
    copy::Reader,
    counters::Dropped,
    memory::Span,
    net::{Ethernet, LONGEST, Mac, Segments, TAGGED_HEADER, VIRTIO_HEADER, Virtio},
    settings::{Settings, TagKind},
};

/// Bytes behind an Ethernet header in which all headers of most frames lie.
const FRONT: usize = 128;
/// Spans of a frame beside those bytes; one that has more is copied whole.
const SPANS: usize = 32;

impl Engine {
    /// Decides on a frame and delivers it; adds it to what was `sent` when it was let in. Says what holds for those like it.
    pub(super) fn forward(
        &mut self,
        source: &Source,
        spans: &[Span],
        len: u32,
        sent: &mut Sent,
    ) -> Option<Decided> {
        // Filled in where it stands: moved, it would be read back before the processor has written it.
        let mut frame = Frame::NONE;
        match self.read(source, spans, len, &mut frame) {
            Ok(()) if source.settings.arp_check => {
                self.accept_checked(source, &frame, sent);
                None
            }
            Ok(()) => {
                self.accept(source, &frame, sent);
                self.decided(source, &frame)
            }
            Err(why) => {
                self.dropped(source.id, why);
                None
            }
        }
    }

    /// Reads a frame's headers, once, and judges whether its sender may send it.
    #[inline(always)]
    fn read<'a>(
        &self,
        source: &Source,
        spans: &'a [Span],
        len: u32,
        frame: &mut Frame<'a>,
    ) -> Result<(), Dropped> {
        if !source.up {
            return Err(Dropped::LinkDown);
        }
        let header = u32::from(source.header);
        let wire = len.checked_sub(header).ok_or(Dropped::BadHeader)?;
        if wire > LONGEST {
            return Err(Dropped::TooLong);
        }
        let mut payload = Reader::new(spans);
        let (mut own, mut start) = ([0; VIRTIO_HEADER], [0; TAGGED_HEADER]);
        // Of an old driver's header two bytes are too many; they are not looked at here.
        if payload.peek(&mut own, VIRTIO_HEADER.min(len as usize)) < usize::from(source.header) {
            return Err(Dropped::BadHeader);
        }
        let mut virtio =
            own.first_chunk().and_then(|own| Virtio::read(own, wire)).ok_or(Dropped::BadHeader)?;
        virtio.valid &= source.believed;
        payload.skip(header);
        let wanted = start.len().min(wire as usize);
        if payload.peek(&mut start, wanted) < wanted {
            return Err(Dropped::BadHeader);
        }
        // Inside a provider's tag a customer's is payload.
        let tagged = source.settings.vlan.as_ref().is_none_or(|own| own.kind == TagKind::Customer);
        let ethernet = Ethernet::read_front(&start, wire as usize, tagged).ok_or(Dropped::BadHeader)?;
        // It is there: it was read.
        payload.skip(ethernet.size() as u32);
        if ethernet.to.is_group() && !virtio.may_be_for_all(wire) {
            return Err(Dropped::BadHeader);
        }
        let rest = wire - ethernet.size() as u32;
        *frame = Frame { rest, virtio, ethernet, payload, vlan: 0, tag: None, copy: false };
        ingress::admit(source, frame)
    }

    /// Counts and delivers a frame that was let in.
    #[inline(always)]
    fn accept(&mut self, source: &Source, frame: &Frame<'_>, sent: &mut Sent) {
        sent.frames += 1;
        sent.bytes += u64::from(frame.len());
        sent.cost += frame.cost();
        self.mirrors.next_frame();
        if source.watched {
            self.mirror(source, source.id, MirrorDirection::Sent, frame);
        }
        if !self.distribute(source, frame) {
            self.dropped(source.id, Dropped::NoReceiver);
        }
    }

    /// The same of a port whose ARP and neighbour discovery are checked. What is judged is delivered as it was judged: its guest may
    /// write to it at any time, so that it is read once, into memory of ours. Of most frames that is the front.
    #[inline(never)]
    fn accept_checked(&mut self, source: &Source, frame: &Frame<'_>, sent: &mut Sent) {
        if !neighbour::may_tell(frame.ethernet.kind) {
            return self.accept(source, frame, sent);
        }
        let mut own = std::mem::take(&mut self.judged);
        let mut left = frame.payload;
        match judge(&source.settings, frame, &mut left, &mut own) {
            true => {
                let mut spans = [Span::NONE; SPANS];
                let spans = join(&mut own, left, frame.rest as usize, &mut spans);
                self.accept(source, &Frame { payload: Reader::new(spans), ..*frame }, sent);
            }
            false => self.dropped(source.id, Dropped::SpoofedNeighbour),
        }
        self.judged = own;
    }
}

/// Whether a frame tells of no address but its port's. What was judged is in `own` then, and not in `left` any more.
fn judge(settings: &Settings, frame: &Frame<'_>, left: &mut Reader<'_>, own: &mut Vec<u8>) -> bool {
    let rest = frame.rest as usize;
    let is_own = |octets| settings.macs.contains(&Mac::new(octets));
    own.clear();
    // Read on, never again.
    for len in [rest.min(FRONT), rest] {
        let read = own.len();
        own.resize(len, 0);
        let missing = own.get_mut(read..).is_none_or(|more| left.read(more) < more.len());
        if missing {
            return false;
        }
        match neighbour::judge(frame.ethernet.kind, own, len == rest, is_own) {
            Verdict::Fine(judged) => return keeps(frame, judged),
            Verdict::Lies => return false,
            Verdict::More => {}
        }
    }
    false
}

/// Whether the first `judged` bytes behind the Ethernet header stay as they are when others do what is left to them.
fn keeps(frame: &Frame<'_>, judged: usize) -> bool {
    let behind = frame.ethernet.size() + judged;
    frame.virtio.checksum.is_none_or(|sum| {
        // Who cuts writes into all that follows the start.
        let cut = frame.virtio.segments != Segments::None;
        usize::from(sum.start) + if cut { 0 } else { usize::from(sum.offset) } >= behind
    })
}

/// What is in `own` and what is `left` of `rest` bytes in all, as spans. Where those are too many, all of it is in `own` then.
fn join<'a>(
    own: &mut Vec<u8>,
    mut left: Reader<'_>,
    rest: usize,
    spans: &'a mut [Span; SPANS],
) -> &'a [Span] {
    let [first, others @ ..] = spans;
    let count = left.spans(others).unwrap_or_else(|| {
        let read = own.len();
        own.resize(rest, 0);
        if let Some(more) = own.get_mut(read..) {
            left.read(more);
        }
        0
    });
    *first = deliver::span(own);
    spans.get(..=count).unwrap_or_default()
}
