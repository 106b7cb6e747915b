//! A front end that says what it is told to, right or wrong.

use std::{
    fs::File,
    io::{IoSlice, Read},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

use nix::sys::{
    eventfd::{EfdFlags, EventFd},
    socket::{ControlMessage, MsgFlags, sendmsg},
};

pub use crate::driver::request::*;
use crate::{driver::GuestMemory, ring::Layout};

/// `VHOST_USER_PROTOCOL_F_MQ`, `_REPLY_ACK`, `_BACKEND_REQ`
pub const PROTOCOL: u64 = 1 | 1 << 3 | 1 << 5;
/// The flags of a message that wants to be answered.
const NEED_REPLY: u32 = 1 | 1 << 3;

pub struct Raw {
    pub stream: UnixStream,
}

/// What a ring is told of besides its addresses.
pub struct Events {
    pub kick: EventFd,
    pub call: EventFd,
    pub err: EventFd,
}

impl Events {
    pub fn new() -> Events {
        let event = || EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).unwrap();
        Events { kick: event(), call: event(), err: event() }
    }
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

pub fn longs(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

impl Raw {
    pub fn connect(socket: &Path) -> Raw {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Raw { stream }
    }

    pub fn send_with(&self, request: u32, flags: u32, body: &[u8], files: &[RawFd]) -> nix::Result<usize> {
        let message = [words(&[request, flags, body.len() as u32]), body.to_vec()].concat();
        let rights = [ControlMessage::ScmRights(files)];
        let rights = if files.is_empty() { &[][..] } else { &rights[..] };
        let parts = [IoSlice::new(&message)];
        sendmsg::<()>(self.stream.as_raw_fd(), &parts, rights, MsgFlags::MSG_NOSIGNAL, None)
    }

    pub fn send(&self, request: u32, body: &[u8], files: &[RawFd]) {
        // Who was sent away meanwhile finds out when it waits for an answer.
        let sent = self.send_with(request, 1, body, files);
        assert!(sent.is_ok() || sent == Err(nix::errno::Errno::EPIPE), "{sent:?}");
    }

    /// The body of the next answer; `None`: the connection was closed.
    pub fn answer(&self) -> Option<Vec<u8>> {
        let mut header = [0; 12];
        (&self.stream).read_exact(&mut header).ok()?;
        let len = u32::from_ne_bytes(header[8..].try_into().unwrap());
        let mut body = vec![0; len as usize];
        (&self.stream).read_exact(&mut body).ok()?;
        Some(body)
    }

    pub fn number(&self) -> Option<u64> {
        self.answer().map(|body| u64::from_ne_bytes(body[..8].try_into().unwrap()))
    }

    /// Whether something was done, as the device says.
    pub fn done(&self, request: u32, body: &[u8], files: &[RawFd]) -> Option<bool> {
        self.send_with(request, NEED_REPLY, body, files).ok()?;
        self.number().map(|value| value == 0)
    }

    /// Whether it is still there.
    pub fn lives(&self) -> bool {
        self.send_with(GET_FEATURES, 1, &[], &[]).is_ok() && self.answer().is_some()
    }

    pub fn begin(&self, features: u64, protocol: u64) {
        self.send(SET_OWNER, &[], &[]);
        self.send(GET_FEATURES, &[], &[]);
        let offered = self.number().unwrap();
        assert_eq!(offered & features, features);
        self.send(SET_PROTOCOL_FEATURES, &longs(&[protocol]), &[]);
        self.send(SET_FEATURES, &longs(&[features]), &[]);
    }

    pub fn share(&self, memory: &GuestMemory) {
        let (description, file) = memory.description();
        self.share_as(&[(description.guest, description.user, description.size, 0, file)]);
    }

    pub fn share_as(&self, regions: &[(u64, u64, u64, u64, &File)]) {
        let mut body = words(&[regions.len() as u32, 0]);
        for (guest, user, size, offset, _) in regions {
            body.extend(longs(&[*guest, *size, *user, *offset]));
        }
        let files: Vec<RawFd> = regions.iter().map(|(.., file)| file.as_raw_fd()).collect();
        self.send(SET_MEM_TABLE, &body, &files);
    }

    /// Tells of a ring, whose addresses are moved by so much, and has it served.
    pub fn ring(&self, index: u32, layout: &Layout, moved: u64, base: u32, events: &Events) {
        self.send(SET_VRING_NUM, &words(&[index, u32::from(layout.entries)]), &[]);
        self.addresses(index, layout, moved, None);
        self.send(SET_VRING_BASE, &words(&[index, base]), &[]);
        let number = longs(&[u64::from(index)]);
        self.send(SET_VRING_ERR, &number, &[events.err.as_fd().as_raw_fd()]);
        self.send(SET_VRING_CALL, &number, &[events.call.as_fd().as_raw_fd()]);
        self.send(SET_VRING_KICK, &number, &[events.kick.as_fd().as_raw_fd()]);
    }

    /// Tells where a ring is, and where what is written to it is to be marked.
    pub fn addresses(&self, index: u32, layout: &Layout, moved: u64, marked_at: Option<u64>) {
        let at = |at: u64| at.wrapping_add(moved);
        let (flags, log) = (u32::from(marked_at.is_some()), marked_at.unwrap_or(0));
        let addresses = longs(&[at(layout.descriptors), at(layout.device), at(layout.driver), log]);
        self.send(SET_VRING_ADDR, &[words(&[index, flags]), addresses].concat(), &[]);
    }

    pub fn enable(&self, index: u32, on: bool) {
        self.send(SET_VRING_ENABLE, &words(&[index, u32::from(on)]), &[]);
    }

    pub fn base(&self, index: u32) -> Option<u32> {
        self.send(GET_VRING_BASE, &words(&[index, 0]), &[]);
        self.answer().map(|body| u32::from_ne_bytes(body[4..8].try_into().unwrap()))
    }

    /// Gives the device the way back; says where its messages come.
    pub fn back(&self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        assert_eq!(self.done(SET_BACKEND_REQ_FD, &[], &[theirs.as_raw_fd()]), Some(true));
        ours.set_nonblocking(true).unwrap();
        ours
    }
}
