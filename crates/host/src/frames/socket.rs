//! A socket for one kind of frames at one interface.

use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, bind, recv, setsockopt, socket,
        sockopt,
    },
};

/// Room for frames that came in and were not read yet, in bytes as the kernel counts them (about 800 for one).
const RECEIVE_BUFFER: usize = 4 << 20;

/// Frames read from one socket before the next one's turn.
const TURN: usize = 256;

/// A socket of the calling thread's namespace that sends at an interface, and receives what comes in there with this
/// ethertype. An error says what was attempted.
///
/// # Errors
///
/// What was attempted, and what the kernel said: a packet socket needs CAP_NET_RAW, and the interface may be gone.
pub fn open(interface: u32, ethertype: u16) -> Result<OwnedFd, (&'static str, Errno)> {
    // With protocol 0 it receives nothing until it is bound: no frame of another interface slips in.
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)
        .map_err(|errno| ("make a packet socket", errno))?;
    ignore_outgoing(&socket).map_err(|errno| ("leave own frames out", errno))?;
    // More than the system's limit needs CAP_NET_ADMIN; with less, a slow machine loses frames and they are sent again.
    let _ = setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER));
    bind(socket.as_raw_fd(), &link_address(interface, ethertype)).map_err(|errno| ("listen", errno))?;
    Ok(socket)
}

/// Hands `each` what has come in, with the position of its socket, waiting for the first frame until `until`.
///
/// # Errors
///
/// What `poll` says, but for an interrupt.
pub fn take_in(
    sockets: &[&OwnedFd],
    until: Instant,
    mut each: impl FnMut(usize, &[u8]),
) -> Result<(), Errno> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = match left.is_zero() {
        true => PollTimeout::ZERO,
        false => PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX),
    };
    let ready: Vec<usize> = {
        let mut polled: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        (0..polled.len()).filter(|at| is_ready(&polled[*at])).collect()
    };
    let mut buffer = [0; 2048];
    for at in ready {
        for _ in 0..TURN {
            match recv(sockets[at].as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => each(at, &buffer[..length]),
                // Nothing more; or the interface went down, which is told once.
                Err(_) => break,
            }
        }
    }
    Ok(())
}

/// Keeps what this host sends through the interface out of what the socket receives (Linux 4.20).
#[allow(unsafe_code)]
fn ignore_outgoing(socket: &OwnedFd) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the option's value is an int that outlives the call, with its true size.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    Errno::result(outcome).map(drop)
}

/// The address of all frames with an ethertype at an interface.
#[allow(unsafe_code)]
fn link_address(interface: u32, ethertype: u16) -> LinkAddr {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: interface.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a whole `sockaddr_ll` of that length, with its own family; `from_raw` copies it.
    unsafe { LinkAddr::from_raw((&raw const address).cast(), Some(length)) }
        .expect("a sockaddr_ll with the family AF_PACKET is a link address")
}
