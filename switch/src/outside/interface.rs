//! Network interfaces of the namespace in which the switch was started: whether they are there, and whether they have a carrier.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::{
    errno::Errno,
    libc,
    net::if_::if_nametoindex,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
    },
};

use super::AttachError;
use crate::net::Mac;

/// A request about the interface `name` (`netdevice(7)`); a name that is too long loses its end, and is then none.
pub(super) fn request(name: &str) -> libc::ifreq {
    // SAFETY: it is plain data, and all zeros are one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Asks the kernel about an interface, or tells it.
fn ask(what: libc::Ioctl, request: &mut libc::ifreq) -> Result<(), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
    // SAFETY: all of these requests read and write an `ifreq`, which this is.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), what, std::ptr::from_mut(request)) })?;
    Ok(())
}

/// Its number; `None`: there is none of this name.
pub fn index(name: &str) -> Option<u32> {
    if_nametoindex(name).ok()
}

/// Whether it is up and has a carrier; `None`: there is none of this name.
pub fn carrier(name: &str) -> Option<bool> {
    let mut request = request(name);
    ask(libc::SIOCGIFFLAGS, &mut request).ok()?;
    // SAFETY: the kernel has written this member.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    let both = libc::IFF_UP | libc::IFF_RUNNING;
    Some(flags & both == both)
}

/// Has it take longer or shorter frames.
pub(super) fn set_mtu(name: &str, mtu: u16) -> Result<(), AttachError> {
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = i32::from(mtu);
    let failed = |errno| AttachError::new(format!("{name} could not be given an MTU of {mtu}"), errno);
    ask(libc::SIOCSIFMTU, &mut request).map_err(failed)
}

/// Its address; `None`: there is none of this name, or it is no Ethernet interface.
pub fn address(name: &str) -> Option<Mac> {
    let mut request = request(name);
    ask(libc::SIOCGIFHWADDR, &mut request).ok()?;
    // SAFETY: the kernel has written this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let octets = address.sa_data.first_chunk::<6>()?.map(|octet| octet as u8);
    (address.sa_family == libc::ARPHRD_ETHER).then(|| Mac::new(octets))
}

/// Gives it this address.
///
/// # Errors
///
/// [`AttachError`] with the interface, the address and the kernel's reason.
pub fn set_address(name: &str, mac: Mac) -> Result<(), AttachError> {
    let mut request = request(name);
    let [_, _, octets @ ..] = mac.bits().to_be_bytes();
    let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
    for (to, from) in address.sa_data.iter_mut().zip(octets) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_hwaddr = address;
    let failed = |errno| AttachError::new(format!("{name} could not be given the address {mac}"), errno);
    ask(libc::SIOCSIFHWADDR, &mut request).map_err(failed)
}

/// Has it up.
pub(super) fn set_up(name: &str) -> Result<(), AttachError> {
    let failed = |errno| AttachError::new(format!("{name} could not be set up"), errno);
    let mut request = request(name);
    ask(libc::SIOCGIFFLAGS, &mut request).map_err(failed)?;
    // SAFETY: the kernel has written this member.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    ask(libc::SIOCSIFFLAGS, &mut request).map_err(failed)
}

/// Hears whenever something changes about any interface (`rtnetlink(7)`). What it was, is not told: who hears it looks.
#[derive(Debug)]
pub struct LinkSocket(OwnedFd);

impl LinkSocket {
    /// From now on.
    ///
    /// # Errors
    ///
    /// [`AttachError`] when the kernel gives no rtnetlink socket.
    pub fn new() -> Result<LinkSocket, AttachError> {
        let failed = |errno| AttachError::new("changes of network interfaces could not be heard", errno);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let kind = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, kind).map_err(failed)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, libc::RTMGRP_LINK as u32)).map_err(failed)?;
        Ok(LinkSocket(socket))
    }

    /// Forgets what was heard.
    pub fn drain(&self) {
        let mut room = [0; 4096];
        // One that overran says so once, and there is something to look at in any case.
        while matches!(
            recv(self.0.as_raw_fd(), &mut room, MsgFlags::empty()),
            Ok(1..) | Err(Errno::ENOBUFS | Errno::EINTR)
        ) {}
    }
}

impl AsFd for LinkSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
