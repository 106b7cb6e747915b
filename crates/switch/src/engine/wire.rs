//! A port that is no guest: a descriptor from which frames are read, each with its virtio header. A tap with `IFF_VNET_HDR`, a
//! packet socket with `PACKET_VNET_HDR`, and one end of a cable to another switch all speak like this.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::{errno::Errno, unistd};

use super::{Frame, receive::Shape};
use crate::{
    counters::Dropped,
    net::{LONGEST, Tag, VIRTIO_HEADER},
};

/// The descriptor of a port that is no guest.
#[derive(Debug)]
pub struct Wire {
    fd: OwnedFd,
    /// Room for what is written: the header and the frame in one piece.
    room: Vec<u8>,
}

impl Wire {
    /// A descriptor that does not block, and takes and gives one frame at a time.
    pub fn new(fd: OwnedFd) -> Wire {
        Wire { fd, room: Vec::with_capacity(LONGEST as usize + VIRTIO_HEADER) }
    }

    /// What wakes who waits for frames.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads a frame with its header; says how long both are. `None`: there is none now.
    pub(super) fn read(&self, into: &mut [u8]) -> Option<usize> {
        // Whatever else is wrong shows as silence; the descriptor's owner is told by its events.
        unistd::read(&self.fd, into).ok().filter(|len| *len > 0)
    }

    /// Writes a frame with this tag or none; says how many bytes of the wire it has.
    pub(super) fn write(
        &mut self,
        shape: Shape,
        frame: &Frame<'_>,
        tag: Option<(Tag, u16)>,
    ) -> Result<u32, Dropped> {
        let (ethernet, ethernet_len) = frame.ethernet.written(tag);
        let grown = ethernet_len as i32 - frame.ethernet.size() as i32;
        let header = frame.virtio.written(grown, 1);
        self.room.clear();
        self.room.extend(header.iter().take(usize::from(shape.header)));
        self.room.extend(ethernet.iter().take(ethernet_len));
        let front = self.room.len();
        self.room.resize(front + frame.rest as usize, 0);
        let mut payload = frame.payload;
        let read = self.room.get_mut(front..).map_or(0, |rest| payload.read(rest));
        self.room.truncate(front + read);
        match unistd::write(&self.fd, &self.room) {
            Ok(_) => Ok(frame.rest + ethernet_len as u32),
            Err(Errno::EAGAIN | Errno::ENOBUFS) => Err(Dropped::NoBuffers),
            Err(_) => Err(Dropped::LinkDown),
        }
    }
}
