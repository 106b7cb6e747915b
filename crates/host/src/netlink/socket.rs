//! Requests and answers over one netlink socket.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

use netlink_packet_core::Emitable;
use netlink_sys::SocketAddr;
use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        setsockopt,
        sockopt::{RcvBuf, RcvBufForce},
    },
};

use super::{
    NetlinkError, lost_events,
    wire::{self, Message},
};

/// How long the kernel may take to answer. Long, because drivers hold the lock of all interfaces while they set up
/// hardware, and every answer waits for it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A netlink socket that one request at a time goes over.
#[derive(Debug)]
pub struct Conversation {
    socket: netlink_sys::Socket,
    sequence: u32,
    /// Events are being lost: those that come until its queue is empty.
    overrun: bool,
}

impl Conversation {
    /// A socket of this protocol in the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// What the kernel says: it may not have the protocol.
    pub fn open(protocol: isize) -> io::Result<Conversation> {
        let mut socket = netlink_sys::Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // These three are refused by kernels before 4.12 and 4.20; everything works without them, with fewer words.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Conversation { socket, sequence: 0, overrun: false })
    }

    /// Asks for one thing or sets one; `each` sees every message of the answer.
    ///
    /// # Errors
    ///
    /// [`NetlinkError`] with what the kernel answers when it refuses; when no answer comes in time, or one that cannot be read.
    pub fn ask(
        &mut self,
        attempt: &str,
        kind: u16,
        flags: u16,
        body: &impl Emitable,
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<(), NetlinkError> {
        self.exchange(attempt, kind, flags | wire::NLM_F_ACK, body, &mut each).map(drop)
    }

    /// Asks for everything of a kind, again when it changed meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Conversation::ask`], and `EAGAIN` when it changes for so long that no whole answer is had.
    pub fn dump<T>(
        &mut self,
        attempt: &str,
        kind: u16,
        body: &impl Emitable,
        mut each: impl FnMut(&Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let started = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let mut all = Vec::new();
            let whole = self
                .exchange(attempt, kind, wire::NLM_F_DUMP, body, &mut |message| all.extend(each(message)))?;
            if whole {
                return Ok(all);
            }
            if started.elapsed() >= TIMEOUT {
                let words = format!("what was asked for kept changing for {} s", TIMEOUT.as_secs());
                return Err(NetlinkError::answered(attempt, Errno::EAGAIN, Some(words)));
            }
            // Interfaces are being made by the hundred: reading them at once would only be interrupted again.
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(64));
        }
    }

    /// `Ok(false)` is a dump that was interrupted by a change.
    fn exchange(
        &mut self,
        attempt: &str,
        kind: u16,
        flags: u16,
        body: &impl Emitable,
        each: &mut dyn FnMut(&Message<'_>),
    ) -> Result<bool, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let sequence = self.sequence;
        let mut payload = vec![0; body.buffer_len()];
        body.emit(&mut payload);
        let bytes = wire::request(kind, flags | wire::NLM_F_REQUEST, sequence, &payload);
        self.socket.send(&bytes, 0).map_err(|source| socket_error(attempt, source))?;
        let started = Instant::now();
        let mut whole = true;
        loop {
            let Some(datagram) = self.receive(attempt, started + TIMEOUT)? else {
                return Err(NetlinkError::TimedOut { attempt: attempt.to_owned(), after: TIMEOUT });
            };
            for message in wire::messages(&datagram) {
                let message =
                    message.map_err(|what| NetlinkError::Malformed { attempt: attempt.to_owned(), what })?;
                // What is left of an earlier exchange that was given up.
                if message.sequence != sequence {
                    continue;
                }
                whole &= message.flags & wire::NLM_F_DUMP_INTR == 0;
                match message.kind {
                    wire::NLMSG_ERROR | wire::NLMSG_DONE => {
                        return match wire::verdict(&message) {
                            (None, _) => Ok(whole),
                            (Some(errno), words) => Err(NetlinkError::answered(attempt, errno, words)),
                        };
                    }
                    wire::NLMSG_OVERRUN => {
                        return Err(NetlinkError::answered(attempt, Errno::ENOBUFS, None));
                    }
                    _ => each(&message),
                }
            }
        }
    }

    /// Lets so many bytes of what was not read yet wait, as far as the system lets.
    pub fn hold(&mut self, bytes: usize) {
        // Root may have more than the system's limit; everybody may have that.
        if setsockopt(&self.socket, RcvBufForce, &bytes).is_err() {
            let _ = setsockopt(&self.socket, RcvBuf, &bytes);
        }
    }

    /// Joins or leaves a multicast group, whose events come with [`Conversation::receive`].
    ///
    /// # Errors
    ///
    /// What the kernel says: some groups need CAP_NET_ADMIN.
    pub fn listen(&mut self, group: u32, on: bool) -> io::Result<()> {
        if on { self.socket.add_membership(group) } else { self.socket.drop_membership(group) }
    }

    /// Gives every datagram that has come to `each`, at most `most`; says whether some were lost. Until its queue is empty,
    /// the kernel keeps dropping events of a socket that overflowed, and says so only once (`net/netlink/af_netlink.c`,
    /// `netlink_overrun`): so long, this says it each time.
    ///
    /// # Errors
    ///
    /// When the socket breaks. Events that were lost are no error.
    pub fn drain(
        &mut self,
        attempt: &str,
        most: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<bool, NetlinkError> {
        for _ in 0..most {
            match self.receive(attempt, Instant::now()) {
                Ok(None) => return Ok(std::mem::take(&mut self.overrun)),
                Ok(Some(datagram)) => each(&datagram),
                Err(error) if lost_events(&error) => self.overrun = true,
                Err(error) => return Err(error),
            }
        }
        Ok(self.overrun)
    }

    /// The next datagram; `None` when none comes until `deadline`.
    ///
    /// # Errors
    ///
    /// When the socket breaks, or the kernel says that events were lost (`ENOBUFS`).
    pub fn receive(&mut self, attempt: &str, deadline: Instant) -> Result<Option<Vec<u8>>, NetlinkError> {
        let fail = |source| socket_error(attempt, source);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up, so that the last fraction of a millisecond is not spun away.
            let timeout =
                PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) if Instant::now() >= deadline => return Ok(None),
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(fail(errno.into())),
            }
            let mut bytes = Vec::new();
            let peek = libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_DONTWAIT;
            let length = match self.socket.recv(&mut bytes, peek) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(fail(error)),
            };
            bytes.clear();
            bytes.reserve_exact(length);
            self.socket.recv(&mut bytes, libc::MSG_DONTWAIT).map_err(fail)?;
            return Ok(Some(bytes));
        }
    }
}

impl AsFd for Conversation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

pub(super) fn socket_error(attempt: &str, source: io::Error) -> NetlinkError {
    NetlinkError::Socket { attempt: attempt.to_owned(), source }
}
