//! UDP datagrams, and waiting for them until an exact time.

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, UdpSocket},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        prctl,
        socket::{setsockopt, sockopt},
        time::TimeSpec,
    },
    time::{ClockId, clock_gettime},
};

/// Room for datagrams that came in and were not read yet, in bytes as the kernel counts them.
const BUFFER: usize = 4 << 20;

/// A UDP socket that never blocks but in [`Datagrams::wait`].
#[derive(Debug)]
pub struct Datagrams(UdpSocket);

impl Datagrams {
    /// A socket at this address; port 0 is any that is free.
    ///
    /// # Errors
    ///
    /// No interface has the address, or somebody else has the port.
    pub fn open(at: SocketAddr) -> io::Result<Datagrams> {
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        // More than the system's limit needs CAP_NET_ADMIN; with less, a slow machine loses datagrams.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER)
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &BUFFER));
        Ok(Datagrams(socket))
    }

    /// Talks to this address alone from now on: what others send is not received, and what the network says of the way
    /// there (refused, unreachable) is an error of the next call.
    ///
    /// # Errors
    ///
    /// The kernel's: there is no route to `to`, or it is of another address family than the socket.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.0.connect(to)
    }

    /// Where it is.
    ///
    /// # Errors
    ///
    /// The kernel's, for a socket that is no more.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Sends to the address that it is connected to.
    ///
    /// # Errors
    ///
    /// The kernel's: nobody was there for an earlier datagram (`ConnectionRefused`), the network is unreachable, the datagram
    /// is too long, or the send buffer is full (`WouldBlock`).
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        uninterrupted(|| self.0.send(datagram)).map(drop)
    }

    /// Sends to this address.
    ///
    /// # Errors
    ///
    /// As [`send`](Datagrams::send), and for an address of another family than the socket's.
    pub fn send_to(&self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        uninterrupted(|| self.0.send_to(datagram, to)).map(drop)
    }

    /// Takes a datagram that has come: its length, of which as much as fits is in `buffer`, and who sent it. `None` when
    /// there is none.
    ///
    /// # Errors
    ///
    /// The kernel's: on a connected socket also what the network said of an earlier datagram.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        match uninterrupted(|| self.0.recv_from(buffer)) {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sleeps until something has come (or went wrong), or until the time is there, whichever is first; says whether
    /// something has come. It wakes up late by what the kernel's timers are late; see [`exact_timers`].
    ///
    /// # Errors
    ///
    /// The kernel's, when it cannot poll the socket.
    pub fn wait(&self, until: Instant) -> io::Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut polled, Some(TimeSpec::from_duration(left)), None) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Has the kernel wake the calling thread as soon as a time is there, where it else takes up to 50 us more to wake several
/// at once (`prctl(2)`, `PR_SET_TIMERSLACK`).
///
/// # Errors
///
/// The kernel's, where it refuses another timer slack (`EPERM` in a sandbox that filters system calls).
pub fn exact_timers() -> io::Result<()> {
    prctl::set_timerslack(1).map_err(io::Error::from)
}

/// CPU time that this process has used, its system calls included.
///
/// # Errors
///
/// The kernel's, where it has no clock of the process's CPU time.
pub fn cpu_time() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let at = "127.0.0.1:0".parse().unwrap();
        let (one, other) = (Datagrams::open(at).unwrap(), Datagrams::open(at).unwrap());
        one.connect(other.address().unwrap()).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(other.receive(&mut buffer).unwrap(), None);
        one.send(b"longer").unwrap();
        assert!(other.wait(Instant::now() + Duration::from_secs(5)).unwrap());
        let (length, from) = other.receive(&mut buffer).unwrap().unwrap();
        assert_eq!((length, &buffer, from), (4, b"long", one.address().unwrap()));
        other.send_to(b"back", from).unwrap();
        assert!(one.wait(Instant::now() + Duration::from_secs(5)).unwrap());
        assert_eq!(one.receive(&mut buffer).unwrap().map(|(length, _)| length), Some(4));
    }

    #[test]
    fn waiting_ends_at_its_time_and_never_before() {
        let socket = Datagrams::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let begin = Instant::now();
        let until = begin + Duration::from_millis(20);
        assert!(!socket.wait(until).unwrap());
        assert!(Instant::now() >= until);
        assert!(!socket.wait(begin).unwrap(), "a time that is over is no error");
    }
}
