//! How ports are, and what happens to them, as those hear who listen.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use serde::{Deserialize, Serialize};

use super::inside::InsideState;
use crate::{
    allow::Refusal,
    config::PortConfig,
    counters::{Counters, Dropped},
};

/// Events that a listener may be behind before it misses some.
const BEHIND: usize = 1024;

/// One message to those who listen: how all is, or what happened to the switch or to a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// How all is: what comes before everything else, and after [`Event::Missed`]. An event that comes after it may be told by it
    /// already.
    Snapshot {
        /// Whether frames between ports stay inside.
        loopback: bool,
        /// All ports as they are, by name.
        ports: BTreeMap<String, PortState>,
    },
    /// Frames between ports stay inside from now on, or go out.
    Loopback {
        /// Whether they stay.
        on: bool,
    },
    /// One of a port's rings is served no more, since what its guest wrote into it cannot be.
    Broken {
        /// Name of the port.
        port: String,
        /// What is wrong.
        why: String,
    },
    /// A guest came to a port.
    Connected {
        /// Name of the port.
        port: String,
    },
    /// A guest left a port, or was sent away.
    Disconnected {
        /// Name of the port.
        port: String,
        /// How its connection ended, as text.
        why: String,
    },
    /// A port is there, with these settings.
    Set {
        /// Name of the port.
        port: String,
        /// What holds for it: what the host has set, with what was set from inside on top.
        settings: Box<PortConfig>,
    },
    /// A port's link went up or down.
    Link {
        /// Name of the port.
        port: String,
        /// Whether it is up now.
        up: bool,
    },
    /// What was asked for from inside, or by a guest of its device, was refused.
    Refused {
        /// Name of the port.
        port: String,
        /// The reason under which the refusal is counted.
        why: Refusal,
        /// What was asked for, and why it was refused.
        text: String,
    },
    /// What was set from inside for a port holds no more.
    Lapsed {
        /// Name of the port.
        port: String,
        /// Why it lapsed: the PF's device was reset, or the host has set something that it does not go with.
        why: String,
    },
    /// A port is there no more.
    Removed {
        /// Name that the port had.
        port: String,
    },
    /// The listener was too slow, and missed some. What it has missed is in the snapshot that follows.
    Missed,
}

/// A port as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortState {
    /// What is set for it.
    pub settings: PortConfig,
    /// Whether a front end is connected; at a port that is no guest's: whether there is another side.
    pub connected: bool,
    /// Why there is none: why the last was sent away, at a guest's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconnected: Option<String>,
    /// Whether its link is up.
    #[serde(default)]
    pub up: bool,
    /// Why its QEMU does not know of its link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untold: Option<String>,
    /// What was set and asked for from inside.
    #[serde(default, skip_serializing_if = "InsideState::is_empty")]
    pub inside: InsideState,
    /// Why it is not known what its guest asks of its device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlearned: Option<String>,
    /// Pairs of rings that are served.
    pub pairs: usize,
    /// Why a ring is served no more.
    pub broken: Option<String>,
    /// What went through it.
    pub counters: Counted,
}

/// Counters with their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Counted {
    pub sent: u64,
    pub sent_bytes: u64,
    pub received: u64,
    pub received_bytes: u64,
    /// Frames of the guest's that were dropped, by reason.
    pub dropped_sent: BTreeMap<Dropped, u64>,
    /// Frames for the guest that were dropped, by reason.
    pub dropped_received: BTreeMap<Dropped, u64>,
    /// Copies of others' frames that it got.
    #[serde(default)]
    pub mirrored: u64,
    #[serde(default)]
    pub mirrored_bytes: u64,
    /// Copies for it that were dropped, by reason.
    #[serde(default)]
    pub dropped_mirrored: BTreeMap<Dropped, u64>,
}

impl From<&Counters> for Counted {
    fn from(counters: &Counters) -> Counted {
        let named = |counts: &[u64]| {
            Dropped::ALL
                .into_iter()
                .zip(counts)
                .filter(|(_, count)| **count > 0)
                .map(|(why, count)| (why, *count))
                .collect()
        };
        Counted {
            sent: counters.sent,
            sent_bytes: counters.sent_bytes,
            received: counters.received,
            received_bytes: counters.received_bytes,
            dropped_sent: named(&counters.dropped_sent),
            dropped_received: named(&counters.dropped_received),
            mirrored: counters.mirrored,
            mirrored_bytes: counters.mirrored_bytes,
            dropped_mirrored: named(&counters.dropped_mirrored),
        }
    }
}

/// Who wants to hear of events.
#[derive(Clone, Debug, Default)]
pub(super) struct Listeners(Arc<Mutex<Vec<Listener>>>);

#[derive(Debug)]
struct Listener {
    sender: mpsc::SyncSender<Event>,
    missed: Arc<AtomicBool>,
}

impl Listeners {
    /// One more, who hears of events from now on.
    pub fn subscribe(&self) -> Subscription {
        let (sender, events) = mpsc::sync_channel(BEHIND);
        let missed = Arc::new(AtomicBool::new(false));
        let listener = Listener { sender, missed: Arc::clone(&missed) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
        Subscription { events, missed }
    }

    pub fn tell(&self, event: &Event) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|listener| match listener.sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(mpsc::TrySendError::Disconnected(_)) => false,
            Err(mpsc::TrySendError::Full(_)) => {
                listener.missed.store(true, Ordering::Release);
                true
            }
        });
    }
}

/// Events, from when it was had.
#[derive(Debug)]
pub struct Subscription {
    events: mpsc::Receiver<Event>,
    missed: Arc<AtomicBool>,
}

impl Subscription {
    /// Whether there were more events than this listener took, and some are lost; that is told once.
    pub fn has_missed(&self) -> bool {
        self.missed.swap(false, Ordering::AcqRel)
    }
}

impl std::ops::Deref for Subscription {
    type Target = mpsc::Receiver<Event>;

    fn deref(&self) -> &mpsc::Receiver<Event> {
        &self.events
    }
}
