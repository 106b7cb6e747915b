//! Messages as they come from a front end. They are taken here, before the `vhost` crate sees them: their descriptors are looked at
//! first, and it has no handler for some.

use std::{
    io::{Error, ErrorKind, IoSlice, Read, Result, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{ControlMessage, MsgFlags, recv, sendmsg},
};

use crate::passed::{Received, receive};

/// Bytes of a header: request, flags, size.
const HEADER: usize = 12;
/// Flag of a message that wants to be answered, once `REPLY_ACK` was negotiated.
const NEED_REPLY: u32 = 1 << 3;
/// Version 1, and that it is a reply.
const REPLY: u32 = 1 | 1 << 2;
/// The longest body; the crate has the same limit.
const LONGEST: usize = 4096;
/// Descriptors that one message may bring; the crate has the same limit.
pub const MOST_FILES: usize = 32;
/// How long the rest of a message is awaited.
pub const TIMEOUT: Duration = Duration::from_secs(10);

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
    /// Whether there were more than could be had, as where this process has as many as it may.
    pub cut: bool,
}

impl Message {
    /// What is wanted.
    pub fn request(&self) -> u32 {
        self.header.request
    }

    #[cfg(test)]
    pub fn of(request: u32, files: Vec<OwnedFd>, cut: bool) -> Message {
        Message { header: Header { request, flags: 1, size: 0 }, body: Vec::new(), files, cut }
    }
}

/// Waits for a message's header, which stays where it is. A front end may be silent for as long as it likes, but not in the middle of
/// a message.
///
/// # Errors
///
/// `UnexpectedEof` when the front end has gone, `TimedOut` when it is silent in the middle of a header.
pub fn await_one(stream: &UnixStream) -> Result<()> {
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
            HEADER => return Ok(()),
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            _ if ended => return Err(ErrorKind::UnexpectedEof.into()),
            _ if began.elapsed() > TIMEOUT => return Err(ErrorKind::TimedOut.into()),
            // No way to sleep until there are more bytes than those that were seen; but until nobody is there who could send them.
            _ => {
                let mut end = [PollFd::new(stream.as_fd(), PollFlags::empty())];
                ended = poll(&mut end, PollTimeout::from(5_u8)).is_ok_and(|any| any > 0);
            }
        }
    }
}

/// Takes the next message, which [`await_one`] has seen.
///
/// # Errors
///
/// `InvalidData` for a header that no message has; when the rest does not come.
pub fn take(mut stream: &UnixStream) -> Result<Message> {
    let mut bytes = [0; HEADER];
    let Received { bytes: read, files, cut } = receive(stream.as_fd(), &mut bytes)?;
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
    Ok(Message { header, body, files, cut })
}

/// Passes a message on, whole, with its descriptors.
///
/// # Errors
///
/// When the other end has gone, or does not take it.
pub fn pass(message: &Message, to: &UnixStream) -> Result<()> {
    let Header { request, flags, size } = message.header;
    let header = [request, flags, size].map(u32::to_ne_bytes).concat();
    send(to, &[IoSlice::new(&header), IoSlice::new(&message.body)], &message.files)
}

/// Passes what has been answered on, with its descriptors. `from` does not block.
///
/// # Errors
///
/// As [`pass`], and when `from` cannot be read.
pub fn pass_answer(from: &UnixStream, to: &UnixStream) -> Result<()> {
    let mut bytes = [0; HEADER + LONGEST];
    loop {
        match receive(from.as_fd(), &mut bytes) {
            Ok(Received { bytes: 0, .. }) => return Ok(()),
            Ok(Received { bytes: len, files, .. }) => {
                send(to, &[IoSlice::new(bytes.get(..len).unwrap_or_default())], &files)?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn send(mut to: &UnixStream, parts: &[IoSlice<'_>], files: &[OwnedFd]) -> Result<()> {
    let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let with = if numbers.is_empty() { &[][..] } else { &rights };
    let mut sent = sendmsg::<()>(to.as_raw_fd(), parts, with, MsgFlags::MSG_NOSIGNAL, None)?;
    // What did not go at once, where it went slowly.
    for part in parts {
        let left = part.get(sent.min(part.len())..).unwrap_or_default();
        to.write_all(left)?;
        sent = sent.saturating_sub(part.len());
    }
    Ok(())
}

/// Answers a message whether it was done, when it wants to be answered.
///
/// # Errors
///
/// When the front end has gone, or does not take it.
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
