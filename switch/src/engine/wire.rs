//! A port that is no guest: a descriptor from which frames are read, each with its virtio header. A tap with `IFF_VNET_HDR`, a
//! packet socket with `PACKET_VNET_HDR`, and one end of a cable to another switch all speak like this. A QEMU's frames have none, and come
//! in a stream.

use std::{
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use nix::{errno::Errno, libc, unistd};

use super::{
    Frame,
    end::WireEnd,
    receive::Shape,
    stream::{PREFIX, Stream},
};
use crate::{
    counters::Dropped,
    net::{ETHERNET_HEADER, LONGEST, TAG, TAGGED, TAGGED_HEADER, Tag, VIRTIO_HEADER},
    passed::PassedFiles,
};

/// Bytes that are needed to read any frame with its header.
pub(super) const ROOM: usize = LONGEST as usize + VIRTIO_HEADER + TAG;
/// Bytes of a packet socket's virtio header and both addresses: what is before the place of a tag.
const BEFORE_TAG: usize = 10 + ETHERNET_HEADER - 2;
/// `PACKET_AUXDATA` of `include/uapi/linux/if_packet.h`: tags that the kernel has taken off are told beside the frame.
pub(crate) const PACKET_AUXDATA: libc::c_int = 8;
/// `TP_STATUS_VLAN_VALID` of `include/uapi/linux/if_packet.h`
const VLAN_VALID: u32 = 1 << 4;
/// `TP_STATUS_VLAN_TPID_VALID` of `include/uapi/linux/if_packet.h`: the tag's type is told; else it is a customer's.
const VLAN_KIND_VALID: u32 = 1 << 6;

/// The descriptor of a port that is no guest.
#[derive(Debug)]
pub struct Wire {
    end: WireEnd,
    /// Room for what is written: the header and the frame in one piece.
    room: Vec<u8>,
    /// Whether tags of frames are told beside them.
    tags_apart: bool,
    /// What frames come and go in, where it does not keep their borders itself.
    stream: Option<Stream>,
    /// Whether there was something when it was looked at last.
    pub(super) busy: bool,
}

impl Wire {
    /// A descriptor that does not block, and takes and gives one frame at a time.
    pub fn new(fd: OwnedFd) -> Wire {
        Wire {
            end: WireEnd::new(fd),
            room: Vec::with_capacity(LONGEST as usize + VIRTIO_HEADER),
            tags_apart: false,
            stream: None,
            busy: false,
        }
    }

    /// A packet socket: it has taken the tags off the frames that it gives, and tells them with `PACKET_AUXDATA`. Its virtio header
    /// has 10 bytes.
    pub fn with_tags_apart(fd: OwnedFd) -> Wire {
        Wire { tags_apart: true, ..Wire::new(fd) }
    }

    /// A stream in which each frame comes after its length, without a virtio header (QEMU's `-netdev stream`).
    pub fn with_lengths(fd: OwnedFd) -> Wire {
        Wire { stream: Some(Stream::new()), ..Wire::new(fd) }
    }

    /// The same wire where descriptors can be passed to its socket: they are left in `brought`, and that is the end of it.
    pub(crate) fn taking(self, brought: PassedFiles) -> Wire {
        Wire { end: self.end.taking(brought), ..self }
    }

    /// What wakes who waits for frames.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.end.fd().as_fd()
    }

    /// Reads a frame with its header; says where in `into` they are. `None`: there is none now.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Option<Range<usize>> {
        if let Some(stream) = &mut self.stream {
            return stream.next(&mut self.end, into);
        }
        if self.tags_apart {
            return self.read_with_tag(into);
        }
        self.end.read(into).map(|len| 0..len)
    }

    fn read_with_tag(&self, into: &mut [u8]) -> Option<Range<usize>> {
        // The tag's place is left free, at the cost of moving what is before it when there is one.
        let (front, rest) = into.split_at_mut_checked(TAG + BEFORE_TAG)?;
        let front = front.get_mut(TAG..)?;
        let mut parts = [
            libc::iovec { iov_base: front.as_mut_ptr().cast(), iov_len: front.len() },
            libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
        ];
        // Aligned as its header must be.
        let mut beside = [0_u64; 8];
        // SAFETY: it is plain data, and all zeros are one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        message.msg_control = beside.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&beside) as _;
        // SAFETY: both parts and the room for what is beside are ours and as long as they say.
        let len = unsafe { libc::recvmsg(self.end.fd().as_raw_fd(), &raw mut message, 0) };
        let len = usize::try_from(len).ok().filter(|len| *len > 0)?;
        match tag_beside(&message) {
            Some((control, kind)) if len > BEFORE_TAG => {
                into.copy_within(TAG..TAG + BEFORE_TAG, 0);
                let place = into.get_mut(BEFORE_TAG..BEFORE_TAG + TAG)?;
                let ([k0, k1], [c0, c1]) = (kind.to_be_bytes(), control.to_be_bytes());
                place.copy_from_slice(&[k0, k1, c0, c1]);
                // The header counts without the tag.
                if into.first()? & 1 != 0 {
                    for at in [2, 6] {
                        let field = into.get_mut(at..)?.first_chunk_mut::<2>()?;
                        *field = u16::from_le_bytes(*field).saturating_add(TAG as u16).to_le_bytes();
                    }
                }
                Some(0..len + TAG)
            }
            _ => Some(TAG..TAG + len),
        }
    }

    /// Writes a frame with this tag or none; says how many bytes of the wire it has.
    pub(super) fn write(
        &mut self,
        shape: Shape,
        frame: &Frame<'_>,
        tag: Option<(Tag, u16)>,
    ) -> Result<u32, Dropped> {
        let mut room = [0; TAGGED_HEADER];
        let (ethernet, ethernet_len) = frame.ethernet.written(tag, &mut room);
        let grown = ethernet_len as i32 - frame.ethernet.size() as i32;
        let header = frame.virtio.written(grown, 1, shape.valid);
        self.room.clear();
        match self.stream {
            // Its length is known when it is there.
            Some(_) => self.room.extend([0; PREFIX]),
            None => self.room.extend(header.iter().take(usize::from(shape.header))),
        }
        self.room.extend(ethernet.iter().take(ethernet_len));
        let front = self.room.len();
        self.room.resize(front + frame.rest as usize, 0);
        let mut payload = frame.payload;
        let read = self.room.get_mut(front..).map_or(0, |rest| payload.read(rest));
        self.room.truncate(front + read);
        let sent = match &mut self.stream {
            Some(stream) => {
                if let Some((prefix, frame)) = self.room.split_first_chunk_mut::<PREFIX>() {
                    *prefix = (frame.len() as u32).to_be_bytes();
                }
                stream.send(self.end.fd(), &self.room)
            }
            None => unistd::write(self.end.fd(), &self.room).map(|_| ()),
        };
        match sent {
            Ok(()) => Ok(frame.rest + ethernet_len as u32),
            Err(Errno::EAGAIN | Errno::ENOBUFS) => Err(Dropped::NoBuffers),
            Err(Errno::EMSGSIZE) => Err(Dropped::TooLong),
            Err(Errno::EINVAL) => Err(Dropped::BadHeader),
            Err(_) => Err(Dropped::LinkDown),
        }
    }
}

/// The tag that the kernel tells beside a frame: its control word and its type.
fn tag_beside(message: &libc::msghdr) -> Option<(u16, u16)> {
    // SAFETY: the kernel has written the headers that the message counts, in room of ours.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: it is null, or such a header.
    while let Some(header) = unsafe { next.as_ref() } {
        if header.cmsg_level == libc::SOL_PACKET && header.cmsg_type == PACKET_AUXDATA {
            // `struct tpacket_auxdata`: status, two lengths; in two bytes each two offsets, the tag's control and its type.
            let mut words = [0_u32; 5];
            // SAFETY: the kernel writes this structure of 20 bytes behind such a header.
            unsafe {
                let data = libc::CMSG_DATA(header);
                data.copy_to_nonoverlapping(words.as_mut_ptr().cast(), size_of_val(&words));
            }
            let [status, .., tag] = words;
            let [c0, c1, k0, k1] = tag.to_ne_bytes();
            let (control, kind) = (u16::from_ne_bytes([c0, c1]), u16::from_ne_bytes([k0, k1]));
            let kind = if status & VLAN_KIND_VALID != 0 { kind } else { TAGGED };
            return (status & VLAN_VALID != 0).then_some((control, kind));
        }
        // SAFETY: `header` is one of the message's.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}
