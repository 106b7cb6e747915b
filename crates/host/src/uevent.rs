//! What the kernel tells of devices by itself: bound, unbound, added, removed (`lib/kobject_uevent.c`).
//!
//! Anybody may listen, in any network namespace of the initial user namespace. What the kernel sends is taken, not what
//! udev makes of it later: a driver that was bound is news, whether udev runs or not.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use netlink_sys::protocols::NETLINK_KOBJECT_UEVENT;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use penstock_model::Bdf;

use crate::netlink::{Conversation, NetlinkError};

/// The multicast group that the kernel sends to; group 2 is udev's.
const KERNEL_GROUP: u32 = 1;

/// How much may wait to be read. The making of some hundred VFs tells of some thousand devices.
const BUFFER: usize = 4 << 20;

/// So many events are read in one go by who only asks which functions they are about.
const MOST: usize = 4096;

/// One event of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uevent {
    /// What happened: `add`, `remove`, `bind`, `unbind`, `change`...
    pub action: String,
    /// The device, as a path below `/sys`.
    pub path: String,
    /// Its subsystem: `pci`, `net`...
    pub subsystem: Option<String>,
}

impl Uevent {
    /// The PCI function that this is about: the device itself, or the one that it hangs on.
    pub fn function(&self) -> Option<Bdf> {
        let named = |part: &str| part.parse::<Bdf>().ok().filter(|bdf| bdf.to_string() == part);
        self.path.rsplit('/').find_map(named)
    }
}

/// Reads a message of the kernel's; `None` when it is none: udev's own, cut off, or no text. Any bytes may be given.
pub fn parse(message: &[u8]) -> Option<Uevent> {
    // `ACTION@PATH`, then `KEY=VALUE`s, each with a zero at its end. udev's messages begin with "libudev" and a zero.
    let mut fields = message.strip_suffix(&[0])?.split(|byte| *byte == 0);
    let (action, path) = std::str::from_utf8(fields.next()?).ok()?.split_once('@')?;
    let is_word = !action.is_empty() && action.bytes().all(|byte| byte.is_ascii_lowercase());
    if !is_word || !path.starts_with('/') {
        return None;
    }
    let subsystem = fields.find_map(|field| field.strip_prefix(b"SUBSYSTEM="));
    let subsystem = subsystem.and_then(|value| std::str::from_utf8(value).ok()).map(str::to_owned);
    Some(Uevent { action: action.to_owned(), path: path.to_owned(), subsystem })
}

/// The kernel's events of devices, as they come.
#[derive(Debug)]
pub struct DeviceEvents {
    socket: Conversation,
}

impl DeviceEvents {
    /// From now on.
    ///
    /// # Errors
    ///
    /// The kernel's, when the socket cannot be opened or subscribed to its group.
    pub fn open() -> io::Result<DeviceEvents> {
        // Connected to the kernel: no other process can send to it, but for root through the group.
        let mut socket = Conversation::open(NETLINK_KOBJECT_UEVENT)?;
        socket.hold(BUFFER);
        socket.listen(KERNEL_GROUP, true)?;
        Ok(DeviceEvents { socket })
    }

    /// Waits until an event has come.
    ///
    /// # Errors
    ///
    /// The kernel's, when the socket cannot be waited for.
    pub fn wait(&self) -> io::Result<()> {
        loop {
            let mut socket = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut socket, PollTimeout::NONE) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The PCI functions of the events that have come, and whether some were lost. Does not wait.
    ///
    /// # Errors
    ///
    /// The kernel's, when the socket cannot be read.
    pub fn functions(&mut self) -> Result<(BTreeSet<Bdf>, bool), NetlinkError> {
        let mut functions = BTreeSet::new();
        let lost = self.drain(MOST, |event| functions.extend(event.function()))?;
        Ok((functions, lost))
    }

    /// Gives every event that has come to `each`, at most `most` of them; says whether some were lost.
    pub(crate) fn drain(&mut self, most: usize, mut each: impl FnMut(Uevent)) -> Result<bool, NetlinkError> {
        self.socket
            .drain("read events of devices", most, |message| parse(message).into_iter().for_each(&mut each))
    }
}

impl AsFd for DeviceEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_driver_that_was_bound_is_told_with_its_function() {
        let event = parse(
            b"bind@/devices/pci0000:00/0000:00:04.0/0000:01:10.2\0ACTION=bind\0DEVPATH=/devices/x\0SUBSYSTEM=pci\0\
              DRIVER=igbvf\0SEQNUM=1\0",
        )
        .unwrap();
        assert_eq!(event.action, "bind");
        assert_eq!(event.subsystem.as_deref(), Some("pci"));
        assert_eq!(event.function(), Some("0000:01:10.2".parse().unwrap()));
        let net =
            parse(b"add@/devices/pci0000:00/0000:00:04.0/0000:01:10.2/net/eth1\0SUBSYSTEM=net\0").unwrap();
        assert_eq!(net.function(), event.function());
        let none = parse(b"remove@/devices/LNXSYSTM:00/LNXSYBUS:00/wakeup/wakeup14\0").unwrap();
        assert_eq!((none.function(), none.subsystem), (None, None));
    }

    #[test]
    fn what_the_kernel_did_not_say_is_not_heard() {
        let udev = b"libudev\0\xfe\xed\xca\xfe\0\0\0\x28ACTION=add\0".as_slice();
        for message in
            [udev, b"", b"\0", b"@\0", b"add@\0", b"add@x\0", b"ADD@/x\0", b"add@/x", b"add\0@/x\0"]
        {
            assert_eq!(parse(message), None, "{message:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            if let Some(event) = parse(&bytes) {
                prop_assert!(event.path.len() + event.action.len() < bytes.len());
                let _ = event.function();
            }
        }

        #[test]
        fn what_almost_is_an_event_is_read_without_a_panic(
            action in "[a-z@]{0,8}", path in "[/0-9a-f:.@\u{0}é]{0,40}", rest in "([A-Z]{0,9}=[a-z\u{0}]{0,9})*",
        ) {
            let bytes = format!("{action}@{path}\0{rest}\0");
            if let Some(event) = parse(bytes.as_bytes()) {
                prop_assert!(event.path.starts_with('/'));
                let _ = event.function();
            }
        }
    }
}
