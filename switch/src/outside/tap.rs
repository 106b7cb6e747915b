//! A tap interface (`Documentation/networking/tuntap.rst`): what its namespace sends comes to the switch, and the other way round,
//! whole segments with their virtio header.

use std::{
    fs::OpenOptions,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

use nix::{errno::Errno, libc};

use super::{AttachError, Opened, interface};
use crate::{
    engine::{Negotiated, Wire},
    net::{Mac, VIRTIO_HEADER},
};

const DEVICE: &str = "/dev/net/tun";

/// Takes the tap `name` over, or makes it: then it is up, has this MTU and the first of `macs`, and stays when the switch ends, with
/// the addresses that it was given. One that is taken over has to have one of `macs`, if there are any: what is sent back to
/// another address would be delivered to nobody.
///
/// # Errors
///
/// What the kernel refuses; a tap that is there with another address.
pub fn open(name: &str, mtu: u16, macs: &[Mac]) -> Result<Opened, AttachError> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
    let failed = |error: std::io::Error| {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        AttachError::new(format!("{DEVICE} could not be opened"), errno)
    };
    let tap = OwnedFd::from(opened.map_err(failed)?);
    let was_there = interface::index(name).is_some();
    if was_there {
        let why = other_address(name, macs);
        why.map_or(Ok(()), |why| Err(AttachError::new(why, Errno::EADDRNOTAVAIL)))?;
    }
    let mut request = interface::request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: this request reads and writes an `ifreq`.
    let outcome = Errno::result(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) });
    outcome.map_err(|errno| match (was_there, errno) {
        (true, Errno::EINVAL) => {
            let tried = format!("{name} is there, and is no tap with one queue that could be taken over");
            AttachError::new(tried, errno)
        }
        (true, _) => AttachError::new(format!("the tap {name} could not be taken over"), errno),
        (false, _) => AttachError::new(format!("the tap {name} could not be made"), errno),
    })?;
    let mut size = VIRTIO_HEADER as libc::c_int;
    // SAFETY: this request reads an `int`.
    let sized = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw mut size) };
    Errno::result(sized).map_err(|errno| {
        AttachError::new(format!("{name} knows no header of {VIRTIO_HEADER} bytes"), errno)
    })?;
    let udp = set_offloads(&tap, name)?;
    if !was_there {
        // SAFETY: this request takes a number.
        let kept = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETPERSIST, 1) };
        Errno::result(kept)
            .map_err(|errno| AttachError::new(format!("{name} could not be made to stay"), errno))?;
        interface::set_mtu(name, mtu)?;
        macs.first().map_or(Ok(()), |mac| interface::set_address(name, *mac))?;
        interface::set_up(name)?;
    }
    let negotiated =
        Negotiated { checksum: true, tcp4: true, tcp6: true, udp, ecn: true, ..Negotiated::default() };
    Ok(Opened { wire: Wire::new(tap), negotiated })
}

/// Why an interface is not at a port with these addresses, if it is not; a port without any takes each.
pub fn other_address(name: &str, macs: &[Mac]) -> Option<String> {
    let (address, mac) = (interface::address(name)?, macs.first()?);
    (!macs.contains(&address)).then(|| {
        format!(
            "{name} has the address {address} and its port the mac {mac}, so that no answer would reach it: give it that \
             one (ip link set {name} address {mac}), or take `mac` from the port"
        )
    })
}

/// Has the kernel leave checksums and whole segments to us; says whether it knows datagrams that are to be cut (from Linux 6.2 on).
fn set_offloads(tap: &OwnedFd, name: &str) -> Result<bool, AttachError> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let set = |offloads: libc::c_uint| {
        // SAFETY: this request takes a number.
        Errno::result(unsafe {
            libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads))
        })
    };
    if set(tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6).is_ok() {
        return Ok(true);
    }
    set(tcp).map_err(|errno| {
        AttachError::new(format!("{name} could not be told to pass whole segments"), errno)
    })?;
    Ok(false)
}
