//! A port: what is set for it, what its guest knows, its rings.

use std::{net::Shutdown, os::unix::net::UnixStream, sync::Arc};

use super::{Frame, Receiving, Sending, Wire, mirror::Watched, rate::PortRate, receive::Shape, share::Part};
use crate::{
    channel::Channel,
    counters::{Counters, Dropped},
    net::Segments,
    ring::RingError,
    settings::{LinkState, Settings},
};

/// What a guest has said that it knows (feature bits of 5.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Bytes of the virtio header: 12, or 10 for an old driver without mergeable buffers.
    pub header: u8,
    /// It joins buffers for one frame.
    pub mergeable: bool,
    /// It completes checksums.
    pub checksum: bool,
    /// It takes whole segments of TCP over IPv4.
    pub tcp4: bool,
    /// It takes whole segments of TCP over IPv6.
    pub tcp6: bool,
    /// It takes datagrams that were not cut, over IPv4 and over IPv6.
    pub udp: bool,
    /// It takes segments with ECN's bit.
    pub ecn: bool,
}

impl Default for Negotiated {
    fn default() -> Negotiated {
        Negotiated {
            header: 12,
            mergeable: false,
            checksum: false,
            tcp4: false,
            tcp6: false,
            udp: false,
            ecn: false,
        }
    }
}

impl Negotiated {
    /// Whether it takes frames that are to be cut so.
    #[inline]
    pub(super) fn takes(&self, segments: Segments, ecn: bool) -> bool {
        (match segments {
            Segments::None => true,
            Segments::Tcp4 => self.tcp4,
            Segments::Tcp6 => self.tcp6,
            Segments::Udp => self.udp,
        }) && (!ecn || self.ecn)
    }

    #[inline]
    pub(super) fn shape(&self) -> Shape {
        Shape { header: self.header, mergeable: self.mergeable, valid: self.checksum }
    }
}

/// A pair of rings.
#[derive(Debug, Default)]
pub struct Pair {
    /// Frames from the guest.
    pub from_guest: Option<Sending>,
    /// Empty buffers for frames to it.
    pub to_guest: Option<Receiving>,
}

/// A port of the switch: its settings and counters, and the rings of its guest or the wire that it leads to.
#[derive(Debug)]
pub struct Port {
    settings: Arc<Settings>,
    /// What its guest knows.
    pub negotiated: Negotiated,
    /// Its pairs of rings, without those that other workers serve; empty without a guest.
    pub pairs: Vec<Pair>,
    /// Pairs whose rings of empty buffers are served, here or by other workers, a bit for each.
    receivers: u32,
    /// What it has instead of rings when it is no guest's, if it is served here.
    pub wire: Option<Wire>,
    /// Whether it has that, here or at another worker.
    pub(super) wired: bool,
    /// Whether there is somebody on the other side; a guest's port takes that for granted.
    pub(super) carrier: bool,
    /// Whether its link is up.
    up: bool,
    /// What went through it.
    pub counters: Counters,
    /// Why one of its rings is served no more.
    pub broken: Option<RingError>,
    /// Whether its device was reset since somebody asked.
    pub(super) was_reset: bool,
    /// The way back to a front end that has the device's configuration from us.
    pub channel: Option<Channel>,
    /// Its front end's connection, to be shut when it cannot go on.
    pub connection: Option<Arc<UnixStream>>,
    pub(super) rate: PortRate,
    /// What it has of the uplink.
    pub(super) part: Part,
    /// What of it others get copies of.
    pub(super) watched: Watched,
    /// Whether each frame for it is to be looked at once more: others get copies, or it is an uplink of limited speed.
    pub(super) noted: bool,
}

impl Port {
    /// The same port without a guest, once for each of so many workers. What it may send is what it may send through all of them.
    pub fn for_each_worker(settings: &Settings, count: usize) -> Vec<Port> {
        // Settings of its own for each: counting who uses them would keep the workers busy with each other.
        let rate = PortRate::new(settings.max_tx_rate);
        (0..count).map(|_| Port { rate: rate.clone(), ..Port::new(Arc::new(settings.clone())) }).collect()
    }

    /// A port without a guest.
    pub fn new(settings: Arc<Settings>) -> Port {
        Port {
            rate: PortRate::new(settings.max_tx_rate),
            part: Part::new(settings.min_tx_rate),
            watched: Watched::default(),
            noted: false,
            settings,
            negotiated: Negotiated::default(),
            pairs: Vec::new(),
            receivers: 0,
            wire: None,
            wired: false,
            carrier: true,
            up: true,
            counters: Counters::default(),
            broken: None,
            was_reset: false,
            channel: None,
            connection: None,
        }
    }

    /// Why one of its rings is served no more.
    pub fn why_broken(&self) -> Option<RingError> {
        let of_pair = |pair: &Pair| pair.to_guest.as_ref()?.broken;
        self.broken.or_else(|| self.pairs.iter().find_map(of_pair))
    }

    /// Whether memory of its guest's was taken away.
    pub(super) fn is_lost(&self) -> bool {
        self.pairs.iter().any(|pair| {
            pair.to_guest.as_ref().is_some_and(Receiving::is_lost)
                || pair.from_guest.as_ref().is_some_and(|sending| sending.ring.is_lost())
        })
    }

    /// Serves none of its rings any more, says so, and sends its front end away.
    pub(super) fn fail(&mut self, why: RingError) {
        self.broken = Some(why);
        self.receivers = 0;
        for pair in self.pairs.drain(..) {
            let both = [pair.to_guest.and_then(|ring| ring.err), pair.from_guest.and_then(|ring| ring.err)];
            both.into_iter().flatten().for_each(|err| err.signal());
        }
        if let Some(connection) = self.connection.take() {
            // One that is gone needs no sending away.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Ring `index` is served no more.
    pub(super) fn forget_ring(&mut self, index: u32) {
        if index.is_multiple_of(2) {
            self.receivers &= !bit((index / 2) as usize);
        }
    }

    /// None of its rings is served any more.
    pub(super) fn forget_rings(&mut self) {
        self.pairs.clear();
        self.receivers = 0;
    }

    /// Its configuration as a network device has it (Virtual I/O Device specification 1.3, 5.1.4), for `pairs` pairs of rings.
    pub fn configuration(&self, pairs: u16) -> [u8; 17] {
        let [_, _, mac @ ..] = self.settings.macs.first().map_or(0, |mac| mac.bits()).to_be_bytes();
        let mut bytes = [0; 17];
        // Speed and duplex are not known.
        let fields = mac
            .into_iter()
            .chain(u16::from(self.up).to_le_bytes())
            .chain(pairs.to_le_bytes())
            .chain(self.settings.mtu.to_le_bytes())
            .chain([0xff; 5]);
        for (place, byte) in bytes.iter_mut().zip(fields) {
            *place = byte;
        }
        bytes
    }

    /// How many pairs of rings are served.
    pub fn served(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.from_guest.is_some() && pair.to_guest.is_some()).count()
    }

    /// What is set for it.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    pub(super) fn set_settings(&mut self, settings: Arc<Settings>) {
        if settings.max_tx_rate != self.settings.max_tx_rate {
            self.rate.set(settings.max_tx_rate);
        }
        if settings.min_tx_rate != self.settings.min_tx_rate {
            self.part.set_guarantee(settings.min_tx_rate);
        }
        self.settings = settings;
    }

    /// Counts what became of a frame for it, or of a copy.
    #[inline]
    pub(super) fn count(&mut self, frame: &Frame<'_>, outcome: Result<u32, Dropped>) {
        match frame.copy {
            false => self.counters.received(outcome),
            true => self.counters.mirrored(outcome),
        }
    }

    /// Whether its link is up.
    #[inline]
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Whether there is a network behind it, as far as it tells, for those whose link is its.
    pub(super) fn leads_out(&self) -> bool {
        self.carrier && self.settings.link_state != LinkState::Disable
    }

    /// Finds its link anew, where the uplink's is this.
    pub(super) fn find_link(&mut self, uplink: bool) {
        self.up = self.carrier
            && match self.settings.link_state {
                LinkState::Enable => true,
                LinkState::Disable => false,
                LinkState::Auto => uplink,
            };
    }

    /// The pair to whose ring frames of a sender's ring `pair` go: the same if its guest uses that, else one of those that it uses, always
    /// the same one; `None` without any.
    #[inline]
    pub(super) fn pair_for(&self, pair: usize) -> Option<usize> {
        // A division takes as long as a small frame's copy.
        if self.receivers & bit(pair) != 0 { Some(pair) } else { self.another_pair_for(pair) }
    }

    #[inline(never)]
    fn another_pair_for(&self, pair: usize) -> Option<usize> {
        let all = self.receivers.count_ones() as usize;
        let behind = pair.checked_rem(all)?;
        (0..u32::BITS as usize).filter(|pair| self.receivers & bit(*pair) != 0).nth(behind)
    }

    /// The ring to which frames of a sender's ring `pair` go, if it is served here.
    #[inline]
    pub(super) fn receiving(&mut self, pair: usize) -> Option<&mut Receiving> {
        let pair = self.pair_for(pair)?;
        self.pairs.get_mut(pair)?.to_guest.as_mut()
    }

    /// Ring `index` is served from now on, here or by another worker, for a guest that knows this.
    pub(super) fn note_ring(&mut self, index: u32, negotiated: Negotiated) {
        let pair = (index / 2) as usize;
        self.negotiated = negotiated;
        self.broken = None;
        if index.is_multiple_of(2) {
            self.receivers |= bit(pair);
        }
        if self.pairs.len() <= pair {
            self.pairs.resize_with(pair + 1, Pair::default);
        }
    }
}

/// The bit of a pair; a device has at most 16 of them.
#[inline(always)]
fn bit(pair: usize) -> u32 {
    1_u32.unbounded_shl(pair as u32)
}
