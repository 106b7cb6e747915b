//! A cable. Between two switches it is a unix socket that keeps the borders of messages, and one frame with its virtio header of 12 bytes in
//! each. Before the first frame either side says who it is; the cable is there as soon as both have. To a QEMU it is a stream, and there as
//! soon as that has come.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, accept4, connect, send, setsockopt, sockopt,
    },
};

use super::Opened;
use crate::{
    engine::{Negotiated, Wire},
    passed::{self, PassedFiles, Received},
    socket::{self, Access},
};

/// What either side says first. The number is the version of what follows.
const HELLO: &[u8] = b"penstock cable 1\n";
/// Bytes that may be under way: some tens of whole segments, if the kernel lets us.
const QUEUE: usize = 8 << 20;

fn new() -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let end = nix::sys::socket::socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    // Before anybody is heard.
    passed::refuse(&end);
    enlarge(&end);
    Ok(end)
}

fn enlarge(end: &OwnedFd) {
    if setsockopt(end, sockopt::SndBufForce, &QUEUE).is_err() {
        // As much as who is not root may have: three whole segments, usually.
        let _ = setsockopt(end, sockopt::SndBuf, &QUEUE);
    }
}

/// Awaits another switch on `path`. A socket that is there and on which nobody listens any more is replaced.
///
/// # Errors
///
/// The kernel's, when `path` is too long for a socket, somebody listens there already, or its directory cannot be written.
pub fn await_on(path: &Path, access: Access) -> io::Result<OwnedFd> {
    listen_on(path, SockType::SeqPacket, access)
}

/// Awaits a QEMU on `path`, likewise.
///
/// # Errors
///
/// As [`await_on`].
pub fn await_qemu_on(path: &Path, access: Access) -> io::Result<OwnedFd> {
    listen_on(path, SockType::Stream, access)
}

fn listen_on(path: &Path, kind: SockType, access: Access) -> io::Result<OwnedFd> {
    let end = socket::listen_for_bytes_on(path, kind, 1, access)?;
    enlarge(&end);
    Ok(end)
}

/// Takes who has come; `None`: nobody has.
pub fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let end = accept4(listener.as_raw_fd(), flags).ok()?;
    // SAFETY: the kernel has just made it, for us alone.
    let end = unsafe { OwnedFd::from_raw_fd(end) };
    enlarge(&end);
    Some(end)
}

/// Goes to the side that awaits us on `path`.
///
/// # Errors
///
/// The kernel's, when nobody listens there, or it may not be reached.
pub fn reach(path: &Path) -> Result<OwnedFd, Errno> {
    let end = new()?;
    connect(end.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(end)
}

/// Says who we are.
///
/// # Errors
///
/// The kernel's, when the other side has gone, or its buffer is full.
pub fn greet(end: &OwnedFd) -> Result<(), Errno> {
    send(end.as_raw_fd(), HELLO, MsgFlags::MSG_NOSIGNAL).map(|_| ())
}

/// What the other side has said of itself, once there is something to be read. Descriptors that it has passed are left in `brought`.
///
/// # Errors
/// What it is instead, for people.
pub fn greeted(end: &OwnedFd, brought: &PassedFiles) -> Result<(), String> {
    let mut room = [0; 64];
    let Received { bytes, files, cut } = passed::receive(end.as_fd(), &mut room)
        .map_err(|error| format!("the other side went before it said who it is: {error}"))?;
    if cut || !files.is_empty() {
        brought.add(files);
        return Err("the other side sends descriptors, which no switch does".to_owned());
    }
    let said = room.get(..bytes).unwrap_or_default();
    match said {
        HELLO => Ok(()),
        [] => {
            Err("the other side has hung up, as one does that has a cable already, or whose port is disabled"
                .to_owned())
        }
        other => Err(format!(
            "the other side is no switch of this version: it says {:?}",
            String::from_utf8_lossy(other)
        )),
    }
}

/// The wire of this cable. All that there is may cross; descriptors are left in `brought`.
pub fn wire(end: OwnedFd, brought: &PassedFiles) -> Opened {
    let negotiated =
        Negotiated { checksum: true, tcp4: true, tcp6: true, udp: true, ecn: true, ..Negotiated::default() };
    let refused = passed::are_refused(&end);
    Opened { wire: taking(Wire::new(end), refused, brought), negotiated }
}

/// The wire of a cable to a QEMU, whose frames are finished ones in either direction.
pub fn qemu_wire(end: OwnedFd, brought: &PassedFiles) -> Opened {
    let refused = passed::are_refused(&end);
    let wire = taking(Wire::with_lengths(end), refused, brought);
    Opened { wire, negotiated: Negotiated::default() }
}

/// A wire that looks for descriptors, where the kernel does not refuse them.
fn taking(wire: Wire, refused: bool, brought: &PassedFiles) -> Wire {
    if refused { wire } else { wire.taking(brought.clone()) }
}
