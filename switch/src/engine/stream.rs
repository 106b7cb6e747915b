//! Frames in a stream of bytes, as QEMU's `-netdev stream` has them: each after its length, four bytes in network order
//! (QEMU, `net/stream_data.c`).

use std::{ops::Range, os::fd::OwnedFd};

use nix::{errno::Errno, unistd};

use super::end::WireEnd;
use crate::net::{LONGEST, VIRTIO_HEADER};

/// Bytes of a length.
pub(super) const PREFIX: usize = 4;
/// Bytes that are read at once: some frames, and in any case a whole one.
const ROOM: usize = 2 * (PREFIX + LONGEST as usize);

/// What of a stream was read and not yet taken, and what of the last frame is still to be written.
#[derive(Debug)]
pub(super) struct Stream {
    read: Box<[u8]>,
    /// Where in it the bytes are that were not taken yet.
    untaken: Range<usize>,
    unsent: Vec<u8>,
}

impl Stream {
    pub fn new() -> Stream {
        Stream { read: vec![0; ROOM].into_boxed_slice(), untaken: 0..0, unsent: Vec::new() }
    }

    /// The next frame, which may have no byte, with an empty virtio header in front of it; says where in `into` both are. `None`: there is
    /// none now.
    pub fn next(&mut self, end: &mut WireEnd, into: &mut [u8]) -> Option<Range<usize>> {
        loop {
            let untaken = self.read.get(self.untaken.clone())?;
            if let Some((prefix, rest)) = untaken.split_first_chunk::<PREFIX>() {
                let len = u32::from_be_bytes(*prefix);
                if len > LONGEST {
                    // Where the next frame begins, nobody can know any more.
                    end.shut();
                    self.untaken = 0..0;
                    return None;
                }
                let len = len as usize;
                if let Some(frame) = rest.get(..len) {
                    self.untaken.start += PREFIX + len;
                    let all = 0..VIRTIO_HEADER + len;
                    let (header, place) = into.get_mut(all.clone())?.split_at_mut_checked(VIRTIO_HEADER)?;
                    header.fill(0);
                    place.copy_from_slice(frame);
                    return Some(all);
                }
            }
            self.read.copy_within(self.untaken.clone(), 0);
            self.untaken = 0..self.untaken.len();
            let room = self.read.get_mut(self.untaken.end..)?;
            self.untaken.end += end.read(room)?;
        }
    }

    /// Writes a frame with its length in front of it, unless a part of the one before is still to be written.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when the kernel takes no more for now: the frame is not sent. What else it says of the connection.
    pub fn send(&mut self, fd: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
        if !self.unsent.is_empty() {
            let sent = unistd::write(fd, &self.unsent)?;
            self.unsent.drain(..sent);
            if !self.unsent.is_empty() {
                return Err(Errno::EAGAIN);
            }
        }
        let sent = unistd::write(fd, bytes)?;
        // A frame of usual length is taken by the kernel whole or not at all. The rest of a longer one goes before the next.
        self.unsent.extend(bytes.get(sent..).unwrap_or_default());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use super::*;

    fn pair() -> (WireEnd, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (WireEnd::new(ours.into()), theirs)
    }

    #[test]
    fn frames_come_whole_however_they_are_cut() {
        let (mut ours, mut theirs) = pair();
        let frames: Vec<Vec<u8>> = [60, 0, 1514, 1, 65_535].map(|len| vec![len as u8; len]).into();
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|frame| (frame.len() as u32).to_be_bytes().into_iter().chain(frame.iter().copied()))
            .collect();
        for piece in [1, 3, 63, 64, 1000, 100_000] {
            let mut stream = Stream::new();
            let mut found = Vec::new();
            let mut into = vec![0xee; VIRTIO_HEADER + LONGEST as usize];
            for part in bytes.chunks(piece) {
                theirs.write_all(part).unwrap();
                while let Some(place) = stream.next(&mut ours, &mut into) {
                    let (header, frame) = into[place].split_at(VIRTIO_HEADER);
                    assert_eq!(header, [0; VIRTIO_HEADER]);
                    found.push(frame.to_vec());
                }
            }
            assert_eq!(found, frames, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_length_that_cannot_be_ends_it() {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(&(LONGEST + 1).to_be_bytes()).unwrap();
        let mut into = vec![0; VIRTIO_HEADER + LONGEST as usize];
        assert_eq!(Stream::new().next(&mut ours, &mut into), None);
        assert_eq!(theirs.read(&mut into).unwrap(), 0, "the other side is not told");
    }

    #[test]
    fn what_the_kernel_takes_half_of_is_finished_before_the_next_frame() {
        let (ours, mut theirs) = pair();
        let mut stream = Stream::new();
        let mut wanted = Vec::new();
        let mut refused = 0;
        let mut read = vec![0; 1 << 20];
        let mut got = Vec::new();
        for number in 0..400_u32 {
            // Longer than the kernel takes at once.
            let mut frame = 65_000_u32.to_be_bytes().to_vec();
            frame.resize(PREFIX + 65_000, number as u8);
            match stream.send(ours.fd(), &frame) {
                Ok(()) => wanted.extend(frame),
                Err(errno) => {
                    assert_eq!(errno, Errno::EAGAIN);
                    refused += 1;
                    let len = theirs.read(&mut read).unwrap();
                    got.extend_from_slice(&read[..len]);
                }
            }
        }
        assert!(refused > 0);
        wanted.truncate(wanted.len() - stream.unsent.len());
        theirs.set_nonblocking(true).unwrap();
        while let Ok(len) = theirs.read(&mut read) {
            got.extend_from_slice(&read[..len]);
        }
        assert!(got == wanted, "{} bytes came of {}", got.len(), wanted.len());
    }
}
