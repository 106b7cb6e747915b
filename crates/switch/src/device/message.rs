//! Messages that the `vhost` crate has no handler for, taken before it sees them.

use std::{
    io::{Error, ErrorKind, IoSliceMut, Read, Result, Write},
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use nix::{
    cmsg_space,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{ControlMessageOwned, MsgFlags, recv, recvmsg},
};

/// Bytes of a header: request, flags, size.
const HEADER: usize = 12;
/// Flag of a message that wants to be answered, once `REPLY_ACK` was negotiated.
const NEED_REPLY: u32 = 1 << 3;
/// Version 1, and that it is a reply.
const REPLY: u32 = 1 | 1 << 2;
/// The longest body; the crate has the same limit.
const LONGEST: usize = 4096;
/// Descriptors that one message may bring.
const MOST_FILES: usize = 32;
/// How long the rest of a message is awaited.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is wanted.
    pub request: u32,
    flags: u32,
    size: u32,
}

impl Header {
    fn read(bytes: [u8; HEADER]) -> Header {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        let word = |bytes| u32::from_ne_bytes(bytes);
        Header { request: word([a, b, c, d]), flags: word([e, f, g, h]), size: word([i, j, k, l]) }
    }
}

/// A message that was taken.
#[derive(Debug)]
pub struct Message {
    header: Header,
    /// What follows the header.
    pub body: Vec<u8>,
    /// Descriptors that came with it.
    pub files: Vec<OwnedFd>,
}

/// Waits for a message and looks at its header, which stays where it is. A front end may be silent for as long as it likes, but
/// not in the middle of a message.
pub fn peek(stream: &UnixStream) -> Result<Header> {
    let mut awaited = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    while let Err(errno) = poll(&mut awaited, PollTimeout::NONE) {
        if errno != nix::errno::Errno::EINTR {
            return Err(errno.into());
        }
    }
    let began = Instant::now();
    let mut ended = false;
    loop {
        let mut bytes = [0; HEADER];
        match recv(stream.as_raw_fd(), &mut bytes, MsgFlags::MSG_PEEK)? {
            HEADER => return Ok(Header::read(bytes)),
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            _ if ended => return Err(ErrorKind::UnexpectedEof.into()),
            _ if began.elapsed() > PATIENCE => return Err(ErrorKind::TimedOut.into()),
            // No way to sleep until there are more bytes than those that were seen; but until nobody is there who could send them.
            _ => {
                let mut end = [PollFd::new(stream.as_fd(), PollFlags::empty())];
                ended = poll(&mut end, PollTimeout::from(5_u8)).is_ok_and(|any| any > 0);
            }
        }
    }
}

/// Takes the next message, which [`peek`] has seen.
pub fn take(mut stream: &UnixStream) -> Result<Message> {
    let mut bytes = [0; HEADER];
    let mut files = Vec::new();
    let read = {
        let mut room = cmsg_space!([RawFd; MOST_FILES]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut room), flags)?;
        for control in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = control {
                // SAFETY: the kernel has just made these descriptors for us, and nobody else knows them.
                files.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
            }
        }
        received.bytes
    };
    stream.read_exact(bytes.get_mut(read..).unwrap_or_default())?;
    let header = Header::read(bytes);
    if header.size as usize > LONGEST || header.flags & 3 != 1 {
        return Err(Error::new(
            ErrorKind::InvalidData,
            format!("a message {} of {} bytes, flags {:#x}", header.request, header.size, header.flags),
        ));
    }
    let mut body = vec![0; header.size as usize];
    stream.read_exact(&mut body)?;
    Ok(Message { header, body, files })
}

/// Answers a message whether it was done, when it wants to be answered.
pub fn answer(mut stream: &UnixStream, message: &Message, done: bool) -> Result<()> {
    if message.header.flags & NEED_REPLY == 0 {
        return Ok(());
    }
    let mut reply = [0; HEADER + 8];
    let words = [message.header.request, REPLY, 8, u32::from(!done)];
    for (place, word) in reply.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    stream.write_all(&reply)
}
