//! A ring as a front end describes it, message by message.

use std::sync::Arc;

use crate::{eventfd::Notify, ring::Layout, worker::Kick};

/// A ring as the front end describes it.
#[derive(Debug, Default)]
pub struct Described {
    /// Number of its entries (`VHOST_USER_SET_VRING_NUM`); 0 before that was said.
    pub entries: u16,
    /// Where its parts are: see [`Layout`].
    pub descriptors: u64,
    pub driver: u64,
    pub device: u64,
    /// Whether that was said.
    pub addressed: bool,
    /// Where what is written to the device's part is marked, if it is (`VHOST_VRING_F_LOG`).
    pub marked_at: Option<u64>,
    /// Where it stands.
    pub base: u32,
    /// What its driver waits on.
    pub call: Option<Arc<dyn Notify>>,
    /// Where it is said that it is broken.
    pub err: Option<Arc<dyn Notify>>,
    /// What wakes the worker.
    pub kick: Option<Kick>,
    /// Whether it is to be served.
    pub enabled: bool,
    /// Whether it is with the worker.
    pub runs: bool,
}

impl Described {
    /// It, as a ring is made of it.
    pub fn layout(&self, event_index: bool) -> Layout {
        Layout {
            entries: self.entries,
            descriptors: self.descriptors,
            driver: self.driver,
            device: self.device,
            event_index,
        }
    }

    /// Whether something of the ring itself lies between these addresses.
    pub fn touches(&self, packed: bool, first: u64, last: u64) -> bool {
        let meets = |(at, len): (u64, usize)| at <= last && at.saturating_add(len as u64) > first;
        self.addressed && self.layout(false).parts(packed).into_iter().any(meets)
    }
}
