//! Descriptors that come with bytes over a unix socket (`SCM_RIGHTS`), and how a socket takes none.
//!
//! Who reads without room for them has the kernel close them in its own thread, and that may wait for ever: for a socket that lingers, for
//! a file of FUSE.

use std::{
    io::{Error, Result},
    mem::{self, MaybeUninit},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use nix::{errno::Errno, libc};

/// Descriptors that the kernel passes at a time (`SCM_MAX_FD`).
const MOST_PASSED: usize = 253;
/// Room for so many, and for what else may be beside bytes.
const ROOM: usize = MOST_PASSED * size_of::<RawFd>() + 32;
/// `SO_PASSRIGHTS` of `include/uapi/asm-generic/socket.h` (from Linux 6.16 on): whether others may pass descriptors to a socket.
const PASS_RIGHTS: libc::c_int = 83;

/// What was received.
#[derive(Debug)]
pub struct Received {
    /// How many bytes.
    pub bytes: usize,
    /// What came with them.
    pub files: Vec<OwnedFd>,
    /// Whether there were more than could be had.
    pub cut: bool,
}

/// Receives bytes and descriptors. Of the latter none is lost, also where not all could be had: whoever drops what the kernel has made
/// leaves this process with one less each time.
///
/// # Errors
/// The kernel's, as `recvmsg(2)` has them.
#[inline]
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Received> {
    // Aligned as what the kernel writes into it is.
    let mut room = [MaybeUninit::<u64>::uninit(); ROOM.div_ceil(8)];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: it is plain data, and all zeros are one.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&room) as _;
    // SAFETY: the bytes and the room are ours and as long as they say.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let len = usize::try_from(len).map_err(|_| Error::last_os_error())?;
    let files = if message.msg_controllen > 0 { files_of(&message) } else { Vec::new() };
    Ok(Received { bytes: len, files, cut: message.msg_flags & libc::MSG_CTRUNC != 0 })
}

/// The descriptors beside a message that the kernel has just written.
#[cold]
fn files_of(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut files = Vec::new();
    // SAFETY: the kernel has written the headers that the message counts, in room of ours.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: it is null, or such a header.
    while let Some(header) = unsafe { next.as_ref() } {
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: behind the header are as many descriptors as it says, which the kernel has made for us alone.
            unsafe {
                let first = libc::CMSG_DATA(header);
                let bytes = header.cmsg_len - first.offset_from_unsigned(ptr::from_ref(header).cast());
                let numbers = first.cast::<RawFd>();
                let all = (0..bytes / size_of::<RawFd>()).map(|at| numbers.add(at).read_unaligned());
                files.extend(all.map(|number| OwnedFd::from_raw_fd(number)));
            }
        }
        // SAFETY: `header` is one of the message's.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    files
}

/// Has the kernel refuse whoever passes descriptors to this unix socket, or to one that comes of it where it listens. A kernel before
/// Linux 6.16 does not know that; [`are_refused`] tells.
pub fn refuse(socket: &OwnedFd) {
    set(socket, PASS_RIGHTS, 0);
    keep_urgent(socket);
}

/// Has an urgent byte stay in its place in a stream: what comes with one that is passed over is closed unseen.
pub fn keep_urgent(socket: &OwnedFd) {
    set(socket, libc::SO_OOBINLINE, 1);
}

fn set(socket: &OwnedFd, option: libc::c_int, value: libc::c_int) {
    let (number, size) = (socket.as_raw_fd(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: the value is an `int`, which such options take.
    unsafe { libc::setsockopt(number, libc::SOL_SOCKET, option, (&raw const value).cast(), size) };
}

/// Whether no descriptor can be passed to this unix socket.
pub fn are_refused(socket: &OwnedFd) -> bool {
    let mut value: libc::c_int = 1;
    let (number, mut size) = (socket.as_raw_fd(), size_of_val(&value) as libc::socklen_t);
    let place = (&raw mut value).cast();
    // SAFETY: the option is an `int`, for which there is room.
    let outcome = unsafe { libc::getsockopt(number, libc::SOL_SOCKET, PASS_RIGHTS, place, &raw mut size) };
    Errno::result(outcome).is_ok() && value == 0
}

/// Descriptors that came with frames, for who may wait for them to be closed. A copy is the same.
#[derive(Clone, Debug, Default)]
pub struct PassedFiles(Arc<Mutex<Vec<OwnedFd>>>);

impl PassedFiles {
    /// Puts some in.
    #[cold]
    pub fn add(&self, files: Vec<OwnedFd>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(files);
    }

    /// All that came since the last call.
    pub fn take(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
