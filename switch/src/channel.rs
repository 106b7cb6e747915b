//! The way back to a front end: a second socket, on which the device asks and tells of its own accord.
//!
//! vhost-user protocol, "Back-end communication". Nothing that is sent asks for a reply, so that nobody here ever waits for one.

use std::{
    os::{fd::AsRawFd, unix::net::UnixStream},
    sync::{Arc, Mutex, PoisonError},
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, send},
};

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Yes,
    /// There is no room for it at the moment.
    Later,
    /// There is no such socket.
    Never,
}

/// The socket, when the front end has given one. A copy is the same.
#[derive(Clone, Debug, Default)]
pub struct Channel(Arc<Mutex<Option<UnixStream>>>);

impl Channel {
    /// `VHOST_USER_BACKEND_IOTLB_MSG`: asks the front end for a translation that is missing.
    pub const IOTLB: u32 = 1;
    /// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`: tells the front end that the link changed; it reads the device's configuration again.
    pub const CONFIG_CHANGE: u32 = 2;

    /// Replaces the socket. Whoever does closes the one before, and descriptors that were sent on it and never taken: that may wait for
    /// ever, while workers and the control line use the channel.
    pub fn set(&self, stream: Option<UnixStream>) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), stream);
        drop(before);
    }

    /// Sends a message of at most 128 bytes, without waiting.
    pub fn send(&self, request: u32, body: &[u8]) -> Sent {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(socket) = &*socket else { return Sent::Never };
        // Version 1, and nothing else.
        let header = [request, 1, body.len() as u32];
        let mut message = [0; 12 + 128];
        let bytes = header.iter().flat_map(|word| word.to_ne_bytes()).chain(body.iter().copied());
        let mut len = 0;
        for (place, byte) in message.iter_mut().zip(bytes) {
            *place = byte;
            len += 1;
        }
        let whole = message.get(..len).unwrap_or_default();
        // So short a message goes whole or not at all.
        match send(socket.as_raw_fd(), whole, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => Sent::Yes,
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => Sent::Later,
            Err(_) => Sent::Never,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        io::{IoSlice, Write},
        net::{TcpListener, TcpStream},
        thread,
        time::{Duration, Instant},
    };

    use nix::sys::socket::{ControlMessage, sendmsg, setsockopt, sockopt};

    use super::*;

    /// A socket that holds another, sent and never taken, which lingers for so many seconds when it is closed; its own other end; and the
    /// peer of the one that lingers, who never reads.
    pub fn slow_to_close(seconds: i32) -> (UnixStream, UnixStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut lingering = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        setsockopt(&lingering, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: seconds })
            .unwrap();
        lingering.set_nonblocking(true).unwrap();
        while lingering.write(&[0; 1 << 16]).is_ok() {}
        let (given, theirs) = UnixStream::pair().unwrap();
        let rights = [lingering.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&rights)];
        sendmsg::<()>(theirs.as_raw_fd(), &[IoSlice::new(&[0])], &rights, MsgFlags::empty(), None).unwrap();
        (given, theirs, peer)
    }

    #[test]
    fn who_closes_a_socket_that_does_not_close_makes_nobody_else_wait() {
        let (given, _theirs, _peer) = slow_to_close(3);
        let channel = Channel::default();
        channel.set(Some(given));
        let other = channel.clone();
        let closing = thread::spawn(move || other.set(None));
        loop {
            let asked = Instant::now();
            let sent = channel.send(Channel::CONFIG_CHANGE, &[]);
            assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
            if sent == Sent::Never {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!closing.is_finished(), "it does not linger, and nothing was tried");
        closing.join().unwrap();
    }
}
