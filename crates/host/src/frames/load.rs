//! As many frames as an interface takes, from one interface to another of this kernel, for a moment: what arrives of them
//! shows whether a rate is held.
//!
//! Frames are counted from before the first one is sent. Whatever keeps the receiver from looking at what came, it cannot
//! see more than was let through since then: a limit is never called broken because a machine is slow.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{MsgFlags, recv, send, setsockopt, sockopt},
};

use super::{Endpoint, FramesError, NONCE, draw, open, payload, wire};
use crate::interrupt;

/// What arrived of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// From before the first frame was sent until after the last one was counted.
    pub took: Duration,
    /// Bytes of the frames that were sent.
    pub sent: u64,
    /// Bytes of the frames that arrived.
    pub arrived: u64,
    /// Bytes of frames that arrived, at most, and that the receiver's kernel had no room for.
    pub unread: u64,
    /// Why no more could be sent, where an error ended it.
    pub failed: Option<String>,
}

/// Bytes that may wait to be sent, of which the kernel counts more than there are: enough that a slow port does not wait for a
/// sender that has to wait for its turn, and few enough that it is rid of them soon after the end.
const SEND_BUFFER: usize = 256 << 10;

/// How long a sender or receiver waits before it looks at the clock.
const LOOK: Duration = Duration::from_millis(10);

/// Bytes of the header of a frame.
const HEADER: usize = 14;
/// The shortest and longest frame's payload.
const PAYLOADS: std::ops::RangeInclusive<u32> = 64..=1500;

/// Sends frames with `mtu` bytes of payload (64 to 1,500) from `from` to `to` for as long as `lasting`, or until Penstock is
/// interrupted.
///
/// # Errors
///
/// [`FramesError`] when nothing could be tried.
pub fn load(from: &Endpoint, to: &Endpoint, mtu: u32, lasting: Duration) -> Result<Carried, FramesError> {
    let mut nonce = [0; NONCE];
    draw(&mut nonce)?;
    let receiver = open(to, wire::ETHERTYPE)?;
    let sender = open(from, wire::ETHERTYPE)?;
    let failed = |attempt: &'static str| {
        move |errno: Errno| FramesError::System { attempt, source: io::Error::from(errno) }
    };
    setsockopt(&sender, sockopt::SndBuf, &SEND_BUFFER).map_err(failed("limit what waits to be sent"))?;
    let length = HEADER + mtu.clamp(*PAYLOADS.start(), *PAYLOADS.end()) as usize;
    let mut frame = wire::frame(from.mac, to.mac, wire::LOAD, &payload(&nonce, 0)).to_vec();
    frame.resize(length, 0);

    let began = Instant::now();
    let over = || began.elapsed() >= lasting || interrupt::pending();
    let (heard, (sent, error)) = thread::scope(|scope| {
        let sending = scope.spawn(|| send_all(&sender, &frame, over));
        let heard = count(&receiver, &frame, over);
        (heard, sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let arrived = heard.map_err(failed("wait for frames"))?;
    let took = began.elapsed();
    let unread = dropped(&receiver).map_err(failed("ask how many frames had no room"))?;
    Ok(Carried {
        took,
        sent: sent * length as u64,
        arrived,
        unread: unread * length as u64,
        failed: error.map(|errno| errno.desc().to_owned()),
    })
}

/// Sends the frame again and again; how often it was taken, and the error that ended it.
fn send_all(socket: &OwnedFd, frame: &[u8], over: impl Fn() -> bool) -> (u64, Option<Errno>) {
    let mut sent = 0;
    while !over() {
        match send(socket.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => sent += 1,
            // The interface's queue is full, which no event tells the end of.
            Err(Errno::ENOBUFS) => thread::sleep(Duration::from_millis(1)),
            Err(Errno::EAGAIN | Errno::EINTR) => {
                if let Err(errno) = wait(socket, PollFlags::POLLOUT) {
                    return (sent, Some(errno));
                }
            }
            Err(errno) => return (sent, Some(errno)),
        }
    }
    (sent, None)
}

/// The bytes of all frames like this one that come in.
fn count(socket: &OwnedFd, frame: &[u8], over: impl Fn() -> bool) -> Result<u64, Errno> {
    let mut arrived = 0;
    // The whole length is told of a frame of which only the beginning is read.
    let mut beginning = [0; 64];
    let known = frame.get(HEADER..beginning.len());
    while !over() {
        match recv(socket.as_raw_fd(), &mut beginning, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC) {
            Ok(length) if beginning.get(HEADER..) == known => arrived += length as u64,
            Ok(_) | Err(Errno::EINTR) => (),
            Err(Errno::EAGAIN) => wait(socket, PollFlags::POLLIN)?,
            Err(errno) => return Err(errno),
        }
    }
    Ok(arrived)
}

/// Waits for what is to be possible at the socket, but not for long.
fn wait(socket: &OwnedFd, what: PollFlags) -> Result<(), Errno> {
    let timeout = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
    match poll(&mut [PollFd::new(socket.as_fd(), what)], timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// How many frames came in at the socket that there was no room for.
#[allow(unsafe_code)]
fn dropped(socket: &OwnedFd) -> Result<u64, Errno> {
    let mut told = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of_val(&told) as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `length` bytes to `told`, which is that long and lives on,
    // and any bytes make a `tpacket_stats` (include/uapi/linux/if_packet.h).
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut told).cast(),
            &raw mut length,
        )
    };
    Errno::result(outcome).map(|_| told.tp_drops.into())
}
