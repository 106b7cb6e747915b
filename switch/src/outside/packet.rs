//! A packet socket (`packet(7)`) on a network interface: the switch is then another station of that interface's network, beside the
//! machine's own.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::{
    errno::Errno,
    libc,
    sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt},
};

use super::{AttachError, Opened, interface};
use crate::engine::{Negotiated, PACKET_AUXDATA, Wire};

/// `PACKET_VNET_HDR`: each frame has a virtio header of 10 bytes.
const PACKET_VNET_HDR: libc::c_int = 15;
/// `PACKET_IGNORE_OUTGOING` (from Linux 4.20 on)
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// Bytes that may wait in the socket: some milliseconds of a fast network.
const QUEUE: usize = 4 << 20;

/// Opens a socket on the interface `name`, and has it take frames for others too. What the machine itself sends there is not read.
///
/// # Errors
///
/// [`AttachError`] with what was attempted: there is no such interface, no packet socket (`CAP_NET_RAW`), or the kernel refuses
/// an option of it.
pub fn open(name: &str) -> Result<Opened, AttachError> {
    let failed = |what: &'static str| {
        let name = name.to_owned();
        move |errno| AttachError::new(format!("{what} {name}"), errno)
    };
    let index =
        interface::index(name).ok_or(Errno::ENODEV).map_err(failed("there is no network interface"))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    // Without a protocol it hears nothing until it is bound, so that no frame of another interface is in it.
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)
        .map_err(failed("no packet socket could be had for"))?;
    for (option, what) in [
        (PACKET_VNET_HDR, "the kernel gives no virtio headers for"),
        (PACKET_AUXDATA, "the kernel does not tell tags for"),
        (PACKET_IGNORE_OUTGOING, "the kernel cannot leave own frames out on"),
    ] {
        set(&socket, option, &1_i32).map_err(failed(what))?;
    }
    if setsockopt(&socket, sockopt::RcvBufForce, &QUEUE).is_err() {
        // As much as who is not root may have.
        let _ = setsockopt(&socket, sockopt::RcvBuf, &QUEUE);
    }
    // SAFETY: both are plain data, and all zeros are one.
    let (mut address, mut member): (libc::sockaddr_ll, libc::packet_mreq) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    member.mr_ifindex = index as i32;
    member.mr_type = libc::PACKET_MR_PROMISC as u16;
    let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is one of that many bytes.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    Errno::result(bound).map_err(failed("a packet socket could not be bound to"))?;
    set(&socket, libc::PACKET_ADD_MEMBERSHIP, &member)
        .map_err(failed("frames for others cannot be had from"))?;
    // It cuts TCP's segments itself; datagrams only from Linux 6.2 on, which it does not say.
    let negotiated =
        Negotiated { header: 10, checksum: true, tcp4: true, tcp6: true, ecn: true, ..Negotiated::default() };
    Ok(Opened { wire: Wire::with_tags_apart(socket), negotiated })
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> Result<(), Errno> {
    let size = size_of::<T>() as libc::socklen_t;
    let value: *const T = value;
    // SAFETY: the value is that many bytes, and what these options take.
    let outcome =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value.cast(), size) };
    Errno::result(outcome).map(|_| ())
}
