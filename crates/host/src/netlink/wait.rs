//! Waiting for a function's interface, on the kernel's own events.

use std::time::{Duration, Instant};

use nix::libc;
use penstock_model::Bdf;

use super::{Netlink, NetlinkError, link::link_report, socket::socket_error, wire};
use crate::{InterfaceReport, Root, files, pci::interface_of};

/// The multicast group of events about links (`RTNLGRP_LINK`, `include/uapi/linux/rtnetlink.h`).
const LINK_GROUP: u32 = 1;

/// Waits until `function` has an interface in `netlink`'s namespace, at most until `deadline`.
///
/// The interface may still be renamed by udev; see [`wait_for_udev`]. Its index stays.
///
/// # Errors
///
/// As [`Netlink::wait_for`].
pub fn wait_for_interface(
    netlink: &mut Netlink,
    root: &Root,
    function: Bdf,
    deadline: Instant,
) -> Result<InterfaceReport, NetlinkError> {
    let attempt = format!("see the interface of {function}");
    netlink.wait_for(&attempt, deadline, |reports| interface_of(function, reports, root))
}

impl Netlink {
    /// Waits until `pick` finds what it looks for among the namespace's interfaces, at most until `deadline`.
    ///
    /// It is asked with all interfaces first, then with each one as it appears or changes; what it finds then it is
    /// asked again for, with all.
    ///
    /// # Errors
    ///
    /// [`NetlinkError::TimedOut`] at the deadline; [`NetlinkError`] when interfaces cannot be listed or listened to.
    pub fn wait_for<T>(
        &mut self,
        attempt: &str,
        deadline: Instant,
        pick: impl Fn(&[InterfaceReport]) -> Option<T>,
    ) -> Result<T, NetlinkError> {
        let started = Instant::now();
        // First listen, then look: what appears in between is then an event.
        self.events.listen(LINK_GROUP, true).map_err(|source| socket_error(attempt, source))?;
        let outcome = self.look_until(attempt, deadline, pick);
        // Should this fail, events pile up unread, up to the socket's buffer, until the next wait.
        let _ = self.events.listen(LINK_GROUP, false);
        outcome?.ok_or_else(|| NetlinkError::TimedOut {
            attempt: attempt.to_owned(),
            after: deadline.saturating_duration_since(started),
        })
    }

    /// Reads all events that have come and forgets them: only what is looked at after this is sure to be whole.
    fn discard_events(&mut self, attempt: &str) -> Result<(), NetlinkError> {
        self.events.drain(attempt, usize::MAX, |_| {}).map(drop)
    }

    fn look_until<T>(
        &mut self,
        attempt: &str,
        deadline: Instant,
        pick: impl Fn(&[InterfaceReport]) -> Option<T>,
    ) -> Result<Option<T>, NetlinkError> {
        'look: loop {
            if let Some(found) = pick(&self.interfaces()?) {
                return Ok(Some(found));
            }
            loop {
                match self.events.receive(attempt, deadline) {
                    Ok(None) => return Ok(None),
                    Ok(Some(datagram)) => {
                        let changed = wire::messages(&datagram)
                            .flatten()
                            .filter_map(|message| link_report(&message))
                            .any(|report| pick(&[report]).is_some());
                        if changed {
                            continue 'look;
                        }
                    }
                    Err(error) if lost_events(&error) => {
                        self.discard_events(attempt)?;
                        continue 'look;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Whether more came than the socket could keep.
pub fn lost_events(error: &NetlinkError) -> bool {
    matches!(error, NetlinkError::Socket { source, .. } if source.raw_os_error() == Some(libc::ENOBUFS))
}

/// Whether udev has done with an interface: it may give it another name until then. So it is where there is no udev.
pub fn udev_is_done(root: &Root, index: u32) -> bool {
    !files::exists(root.path("/run/udev/control"))
        || files::exists(root.path(format!("/run/udev/data/n{index}")))
}

/// Waits until udev, where it runs, has done with interface `index`, so that it will not rename it any more. Gives up
/// in silence at `deadline`: udev may be busy or broken, and a rename by us stands against its usual policy (`keep`).
pub fn wait_for_udev(root: &Root, index: u32, deadline: Instant) {
    let mut interval = Duration::from_millis(1);
    // Polled, because udev announces on a socket that only it and its library speak on; the record is its own proof.
    while !udev_is_done(root, index) && Instant::now() < deadline {
        std::thread::sleep(interval);
        interval = (interval * 2).min(Duration::from_millis(20));
    }
}
