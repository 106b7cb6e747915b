//! A ring as a front end describes it, message by message.

use std::{fs::File, os::fd::OwnedFd};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
};

use crate::{ring::Layout, worker::Kick};

/// A ring as the front end describes it.
#[derive(Debug, Default)]
pub struct Described {
    /// Entries.
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
    pub call: Option<OwnedFd>,
    /// Where it is said that it is broken.
    pub err: Option<OwnedFd>,
    /// What wakes the worker; `Some(None)`: the driver says that it never kicks.
    pub kick: Option<Option<Kick>>,
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

/// What somebody waits on for a word from the switch, as the front end gave it. Who has let it fill up is not waited for: the switch
/// serves others, too.
pub fn bell(file: File) -> Result<OwnedFd, Errno> {
    let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(&file, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(file.into())
}
