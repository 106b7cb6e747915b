//! Copies of frames for ports that watch others.

use super::{Engine, Frame, Source};
use crate::table::PortId;

/// A port that watches others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Who gets the copies.
    pub port: PortId,
    /// Whom it watches.
    pub of: Vec<PortId>,
    /// Whether it gets what they send.
    pub sent: bool,
    /// Whether it gets what is for them.
    pub received: bool,
}

/// All that watch, and which frame each has a copy of already.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    all: Vec<(Mirror, u64)>,
    /// Counts frames, so that one between two ports that are watched is copied once.
    frame: u64,
}

/// What of a port is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    pub sent: bool,
    pub received: bool,
}

/// Which way a frame went at the port that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MirrorDirection {
    Sent,
    Received,
}

impl Mirrors {
    pub fn new(all: Vec<Mirror>) -> Mirrors {
        Mirrors { all: all.into_iter().map(|mirror| (mirror, 0)).collect(), frame: 0 }
    }

    pub fn watched(&self, id: PortId) -> Watched {
        let of = |way: fn(&Mirror) -> bool| {
            self.all.iter().any(|(mirror, _)| way(mirror) && mirror.of.contains(&id))
        };
        Watched { sent: of(|mirror| mirror.sent), received: of(|mirror| mirror.received) }
    }

    /// Whether this port watches others.
    pub fn watches(&self, id: PortId) -> bool {
        self.all.iter().any(|(mirror, _)| mirror.port == id)
    }

    #[inline]
    pub fn next_frame(&mut self) {
        if !self.all.is_empty() {
            self.frame += 1;
        }
    }
}

impl Engine {
    /// Has these ports watch others, and no other ones.
    pub fn set_mirrors(&mut self, all: Vec<Mirror>) {
        self.mirrors = Mirrors::new(all);
        self.rebuild();
    }

    /// Gives copies of a frame to who watches this port, with the tag that it has inside the switch. Whatever comes of that, the
    /// frame goes its way.
    #[cold]
    pub(super) fn mirror(&mut self, source: &Source, at: PortId, way: MirrorDirection, frame: &Frame<'_>) {
        for turn in 0..self.mirrors.all.len() {
            let number = self.mirrors.frame;
            let Some((mirror, last)) = self.mirrors.all.get_mut(turn) else { break };
            let wanted = match way {
                MirrorDirection::Sent => mirror.sent,
                MirrorDirection::Received => mirror.received,
            };
            if *last == number || !wanted || mirror.port == source.id || !mirror.of.contains(&at) {
                continue;
            }
            *last = number;
            let to = mirror.port;
            self.deliver(source, to, &Frame { copy: true, ..*frame });
        }
    }
}
