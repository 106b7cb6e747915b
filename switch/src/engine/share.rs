//! How ports share an uplink of limited speed: each has what it is guaranteed, and what is left is shared evenly among those who want
//! more.
//!
//! Guarantees are rates of their own, of which at most the uplink's speed is given away. Who has used up its own may borrow as long as the
//! uplink is free, in the order of what each has borrowed so far (start-time fair queueing, Goyal, Vin and Cheng 1996, by turns
//! instead of by frames). Who must wait leaves its frames in its ring.

use super::{Engine, Round, rate::Rate};
use crate::table::PortId;

/// Bytes by which one port may be ahead of the others with what it has borrowed: a frame. With more, who waits would not be first when
/// the uplink is free again.
const LEAD: u64 = 1514;
/// Chains that a port sends at once of which it is not known that they go out.
const UNKNOWN: usize = 8;
/// Nanoseconds after which a port that was not let to the uplink is asked again whether it wants to go there at all.
const MEMORY: u64 = 1_000_000_000;
/// Nanoseconds after which somebody who waits for its turn looks again.
const SOON: u64 = 1_000;

/// The uplink's speed, and what was given away of it.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// The uplink, if it has a speed.
    uplink: Option<PortId>,
    clock: Rate,
    /// What the port that has borrowed least, of those that want more, had borrowed a round ago.
    least: u64,
    /// The same of this round, so far.
    least_now: Option<u64>,
    /// Bytes to the uplink in this turn.
    pub used: u64,
}

/// What a port has of the uplink.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// What it is guaranteed.
    guarantee: Rate,
    /// Bytes that it has borrowed.
    borrowed: u64,
    /// Until when it is held for one that sends to the uplink.
    uses_until: u64,
}

impl Part {
    /// With a guarantee of so many Mbit/s.
    pub fn new(megabits: u32) -> Part {
        Part { guarantee: Rate::new(megabits), ..Part::default() }
    }

    /// With another guarantee; what it has had already counts.
    pub fn set_guarantee(&mut self, megabits: u32) {
        self.guarantee = self.guarantee.at(megabits);
    }
}

/// What a port may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// So many chains.
    pub most: usize,
    /// Whether they are its own, not borrowed.
    own: bool,
}

impl Share {
    /// Of this uplink with so many Mbit/s; 0 is no limit.
    pub fn new(uplink: Option<(PortId, u32)>) -> Share {
        let limited = uplink.filter(|(_, speed)| *speed > 0);
        Share {
            uplink: limited.map(|(id, _)| id),
            clock: Rate::new(limited.map_or(0, |(_, speed)| speed)),
            ..Share::default()
        }
    }

    /// Whether it is of the same uplink and speed.
    pub fn is_like(&self, other: &Share) -> bool {
        self.uplink == other.uplink && self.clock.is_like(&other.clock)
    }

    fn wants(&mut self, borrowed: u64) {
        self.least_now = Some(self.least_now.map_or(borrowed, |least| least.min(borrowed)));
    }

    /// A round is over.
    #[inline]
    pub fn next_round(&mut self) {
        if let Some(least) = self.least_now.take() {
            self.least = self.least.max(least);
        }
    }
}

impl Engine {
    /// Whether a port may send now, and how much at once. `None`: it waits, which the round is told.
    #[inline]
    pub(super) fn turn(&mut self, id: PortId, now: u64, most: usize, round: &mut Round) -> Option<Turn> {
        let port = self.port(id)?;
        let turn = match port.rate.wait(now) {
            Some(wait) => Err(wait),
            None => {
                let most = port.rate.turn(most);
                match self.share.uplink {
                    None => Ok(Turn { most, own: false }),
                    Some(uplink) => self.share_turn(id, uplink, now, most),
                }
            }
        };
        let wait = match turn {
            Ok(turn) => return Some(turn),
            Err(wait) => wait,
        };
        round.wait = Some(round.wait.map_or(wait, |least| least.min(wait)));
        None
    }

    /// The same where an uplink has a speed; or how long it waits.
    fn share_turn(&mut self, id: PortId, uplink: PortId, now: u64, most: usize) -> Result<Turn, u64> {
        let Some(part) = self.port(id).map(|port| port.part) else { return Ok(Turn { most, own: false }) };
        if id == uplink {
            return Ok(Turn { most, own: false });
        }
        let most = match now < part.uses_until {
            true => self.share.clock.turn(most),
            false => self.share.clock.turn(most).max(UNKNOWN.min(most)),
        };
        if part.guarantee.is_limit() && part.guarantee.wait(now).is_none() {
            return Ok(Turn { most, own: true });
        }
        if now >= part.uses_until {
            return Ok(Turn { most, own: false });
        }
        let borrowed = part.borrowed.max(self.share.least);
        let busy = self.share.clock.wait(now);
        let wait = busy.or((borrowed > self.share.least + LEAD).then_some(SOON));
        match wait {
            None => Ok(Turn { most, own: false }),
            Some(wait) => {
                self.share.wants(borrowed);
                // Until the uplink is free, or it has something of its own again.
                let own = part.guarantee.is_limit().then(|| part.guarantee.wait(now)).flatten();
                Err(own.map_or(wait, |own| own.min(wait)))
            }
        }
    }

    /// Counts what a port has sent in a turn: `bytes` in all, `taken` chains.
    #[inline]
    pub(super) fn turn_over(&mut self, id: PortId, now: u64, turn: Turn, bytes: u64, taken: usize) {
        let used = std::mem::take(&mut self.share.used);
        let (share, ports) = (&mut self.share, &mut self.ports);
        let Some(port) = ports.get_mut(usize::from(id)).and_then(Option::as_deref_mut) else { return };
        port.rate.used(now, bytes);
        let part = &mut port.part;
        if used == 0 {
            part.uses_until = 0;
            return;
        }
        share.clock.used(now, used);
        part.uses_until = now.saturating_add(MEMORY);
        if turn.own {
            part.guarantee.used(now, used);
            return;
        }
        part.borrowed = part.borrowed.max(share.least).saturating_add(used);
        if taken >= turn.most {
            // There is more where that came from.
            share.wants(part.borrowed);
        }
    }
}
