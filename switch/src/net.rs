//! What is in front of a frame: the header of virtio (Virtual I/O Device specification 1.3, 5.1.6), and Ethernet's.

use std::fmt;

/// Bytes of the virtio header with the number of buffers; without it 10.
pub const VIRTIO_HEADER: usize = 12;
/// Bytes of an Ethernet header without a tag.
pub const ETHERNET_HEADER: usize = 14;
/// Bytes of a VLAN tag.
pub const TAG: usize = 4;
/// Bytes of an Ethernet header with a tag.
pub const TAGGED_HEADER: usize = ETHERNET_HEADER + TAG;
/// The longest frame that is taken: a segment of 64 KiB with its headers.
pub const LONGEST: u32 = 65_535 + ETHERNET_HEADER as u32 + 2 * TAG as u32;

/// Bytes in front of the transport header of what is to be cut: each segment has them again. IPv6 with some extension headers, tagged.
const MOST_HEADERS: u16 = 256;
/// Segments into which a frame may have to be cut for each that it is for: 64 KiB of 128 bytes each. Nobody else is served meanwhile.
const MOST_SEGMENTS: u32 = 512;
/// And those of a frame to a group, which all may have to be cut for. Linux cuts a datagram into at most 128 (`UDP_MAX_SEGMENTS`).
const MOST_SEGMENTS_TO_ALL: u32 = 128;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is still to be completed.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`: the checksum is known to be right.
const DATA_VALID: u8 = 2;
/// `VIRTIO_NET_HDR_GSO_ECN`: a bit beside the kind of segment, for TCP with ECN.
const ECN: u8 = 0x80;

/// A MAC address; its first octet is the highest of the 48 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(u64);

impl Mac {
    /// The address of these octets.
    #[inline]
    pub const fn new(octets: [u8; 6]) -> Mac {
        let [a, b, c, d, e, f] = octets;
        Mac(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// Whether it is a group's: broadcast or multicast.
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0 & 1 << 40 != 0
    }

    /// Whether it is everybody's.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.0 == 0xffff_ffff_ffff
    }

    /// Whether it is nobody's.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// As 48 bits.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, _, a, b, c, d, e, g] = self.0.to_be_bytes();
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// How a frame is to be cut into segments (`gso_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segments {
    /// Not at all.
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP datagrams of their own.
    Udp,
}

/// The virtio header of a frame, as far as it was found to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Virtio {
    /// Whether a checksum is to be completed, from `start` over all that follows, and put `offset` after `start`.
    pub checksum: Option<Checksum>,
    /// Whether somebody has seen that the checksum is right.
    pub valid: bool,
    /// How it is to be cut.
    pub segments: Segments,
    /// Payload of each segment.
    pub segment: u16,
    /// Whether the sender used ECN's bit of the header.
    pub ecn: bool,
    /// How long the sender says the headers are; a hint.
    pub headers: u16,
}

/// A checksum that is to be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Where in the frame it begins to count.
    pub start: u16,
    /// Where it goes, counted from there.
    pub offset: u16,
}

impl Virtio {
    /// A frame of which nothing is to be done.
    pub const PLAIN: Virtio =
        Virtio { checksum: None, valid: false, segments: Segments::None, segment: 0, ecn: false, headers: 0 };

    /// Whether a header asks for nothing, as most do.
    #[inline(always)]
    pub fn is_plain(bytes: &[u8; VIRTIO_HEADER]) -> bool {
        bytes[..2] == [0, 0]
    }

    /// Reads the header of a frame of `len` bytes. `None`: it says what cannot be.
    #[inline(always)]
    pub fn read(bytes: &[u8; 10], len: u32) -> Option<Virtio> {
        // Most frames ask for nothing.
        if bytes[..2] == [0, 0] {
            return Some(Virtio::PLAIN);
        }
        let [flags, kind, rest @ ..] = *bytes;
        let [h0, h1, s0, s1, c0, c1, o0, o1] = rest;
        let (start, offset) = (u16::from_le_bytes([c0, c1]), u16::from_le_bytes([o0, o1]));
        let checksum = (flags & NEEDS_CHECKSUM != 0).then_some(Checksum { start, offset });
        if let Some(Checksum { start, offset }) = checksum
            && (u32::from(start) + u32::from(offset) + 2 > len
                || usize::from(start) < ETHERNET_HEADER
                // It still counts from there when a tag comes before it.
                || start > u16::MAX - TAG as u16)
        {
            return None;
        }
        let segments = match kind & !ECN {
            0 => Segments::None,
            1 => Segments::Tcp4,
            4 => Segments::Tcp6,
            5 => Segments::Udp,
            _ => return None,
        };
        let segment = u16::from_le_bytes([s0, s1]);
        // Who wants segments leaves their checksums to others as well (5.1.6.2.1).
        if segments != Segments::None {
            let start = checksum?.start;
            if segment == 0 || start > MOST_HEADERS || len / u32::from(segment) > MOST_SEGMENTS {
                return None;
            }
        }
        Some(Virtio {
            checksum,
            valid: flags & DATA_VALID != 0,
            segments,
            segment: if segments == Segments::None { 0 } else { segment },
            ecn: segments != Segments::None && kind & ECN != 0,
            headers: u16::from_le_bytes([h0, h1]),
        })
    }

    /// Whether a frame of `len` bytes may be for a group: what has to be cut into many segments may be for one receiver alone.
    #[inline(always)]
    pub fn may_be_for_all(&self, len: u32) -> bool {
        len.checked_div(u32::from(self.segment)).is_none_or(|segments| segments <= MOST_SEGMENTS_TO_ALL)
    }

    /// The header for who receives the frame, whose Ethernet header has become `grown` bytes longer, in `buffers` buffers. Who may not be
    /// `told` that a checksum is right is not (5.1.6.4.1).
    #[inline(always)]
    pub fn written(&self, grown: i32, buffers: u16, told: bool) -> [u8; VIRTIO_HEADER] {
        // Put together in registers: what is stored in parts and loaded whole has to wait for the stores.
        let (mut first, mut last) = (0_u64, u32::from(buffers) << 16);
        if let Some(checksum) = self.checksum {
            // A checksum was inside the frame before, and is now. The length of headers is a hint: where nothing is to be cut it is mostly 0.
            let moved = |at: u16| (i32::from(at) + grown).clamp(0, i32::from(u16::MAX)) as u64;
            let kind = match self.segments {
                Segments::None => 0,
                Segments::Tcp4 => 1,
                Segments::Tcp6 => 4,
                Segments::Udp => 5,
            } | if self.ecn { ECN } else { 0 };
            first = u64::from(NEEDS_CHECKSUM)
                | u64::from(kind) << 8
                | moved(self.headers) << 16
                | u64::from(self.segment) << 32
                | moved(checksum.start) << 48;
            last |= u32::from(checksum.offset);
        } else if self.valid && told {
            first = u64::from(DATA_VALID);
        }
        let mut bytes = [0; VIRTIO_HEADER];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&last.to_le_bytes());
        bytes
    }
}

/// A VLAN tag (IEEE 802.1Q-2018, 9.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// VLAN, 0 to 4095; 0 is a priority without a VLAN.
    pub vlan: u16,
    /// Priority, 0 to 7.
    pub priority: u8,
}

impl Tag {
    /// The two octets behind the tag's type.
    #[inline]
    pub fn control(self) -> u16 {
        self.vlan & 0xfff | u16::from(self.priority) << 13
    }
}

/// The type of a tag (`802.1Q`).
pub const TAGGED: u16 = 0x8100;
/// The type of a provider's tag (`802.1ad`).
pub const PROVIDER_TAGGED: u16 = 0x88a8;
/// The type of a provider's tag before there was a standard. It is not read as one here, but others do.
pub const OLD_TAGGED: u16 = 0x9100;

/// Whether a tag stands behind this type, for us or for whoever else reads the frame.
#[inline]
pub const fn is_tag(kind: u16) -> bool {
    matches!(kind, TAGGED | PROVIDER_TAGGED | OLD_TAGGED)
}

/// An Ethernet header, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// The destination address, octets 0 to 5.
    pub to: Mac,
    /// The source address, octets 6 to 11.
    pub from: Mac,
    /// Its first tag, and the tag's type.
    pub tag: Option<(Tag, u16)>,
    /// What follows (the type behind the first tag).
    pub kind: u16,
    /// As it was read; behind its end anything.
    octets: [u8; TAGGED_HEADER],
}

impl Ethernet {
    /// All zeroes, in place of a header that was not read yet.
    pub const NONE: Ethernet =
        Ethernet { to: Mac(0), from: Mac(0), tag: None, kind: 0, octets: [0; TAGGED_HEADER] };

    /// Reads the header at the beginning of `bytes`. `None`: it is shorter than it says.
    pub fn read(bytes: &[u8]) -> Option<Ethernet> {
        let mut front = [0; TAGGED_HEADER];
        let len = bytes.len().min(front.len());
        front.get_mut(..len)?.copy_from_slice(bytes.get(..len)?);
        Ethernet::read_front(&front, len, true)
    }

    /// Reads the header in the first `len` of these bytes, without looking for a tag unless it is `tagged`: one that is there
    /// is payload then.
    #[inline(always)]
    pub fn read_front(octets: &[u8; TAGGED_HEADER], len: usize, tagged: bool) -> Option<Ethernet> {
        if len < ETHERNET_HEADER {
            return None;
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l, k0, k1, c0, c1, l0, l1] = *octets;
        let outer = Ethernet {
            to: Mac::new([a, b, c, d, e, f]),
            from: Mac::new([g, h, i, j, k, l]),
            tag: None,
            kind: u16::from_be_bytes([k0, k1]),
            octets: *octets,
        };
        if !tagged || outer.kind != TAGGED && outer.kind != PROVIDER_TAGGED {
            return Some(outer);
        }
        if len < ETHERNET_HEADER + TAG {
            return None;
        }
        let control = u16::from_be_bytes([c0, c1]);
        let tag = Tag { vlan: control & 0xfff, priority: (control >> 13) as u8 };
        Some(Ethernet { tag: Some((tag, outer.kind)), kind: u16::from_be_bytes([l0, l1]), ..outer })
    }

    /// As it was read, without a tag.
    #[inline]
    pub fn untagged(&self) -> [u8; ETHERNET_HEADER] {
        let mut octets = [0; ETHERNET_HEADER];
        octets.copy_from_slice(&self.octets[..ETHERNET_HEADER]);
        octets
    }

    /// Bytes that it takes in the frame.
    #[inline]
    pub fn size(&self) -> usize {
        if self.tag.is_some() { ETHERNET_HEADER + TAG } else { ETHERNET_HEADER }
    }

    /// The header with another tag or none, and how many bytes of it there are; behind them anything. It stands in `room`
    /// unless it is what it was.
    #[inline(always)]
    pub fn written<'a>(
        &'a self,
        tag: Option<(Tag, u16)>,
        room: &'a mut [u8; TAGGED_HEADER],
    ) -> (&'a [u8; TAGGED_HEADER], usize) {
        if tag == self.tag {
            return (&self.octets, self.size());
        }
        *room = self.octets;
        let len = match tag {
            None => {
                room[12..14].copy_from_slice(&self.kind.to_be_bytes());
                ETHERNET_HEADER
            }
            Some((tag, kind)) => {
                room[12..14].copy_from_slice(&kind.to_be_bytes());
                room[14..16].copy_from_slice(&tag.control().to_be_bytes());
                room[16..18].copy_from_slice(&self.kind.to_be_bytes());
                ETHERNET_HEADER + TAG
            }
        };
        (room, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_asks_for_nothing_is_plain() {
        assert_eq!(Virtio::read(&[0; 10], 60), Some(Virtio::PLAIN));
        assert_eq!(Virtio::PLAIN.written(4, 1, true), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn what_cannot_be_is_no_header() {
        let header = |flags, kind, segment: u16, start: u16, offset: u16| {
            let mut bytes = [flags, kind, 54, 0, 0, 0, 0, 0, 0, 0];
            bytes[4..6].copy_from_slice(&segment.to_le_bytes());
            bytes[6..8].copy_from_slice(&start.to_le_bytes());
            bytes[8..10].copy_from_slice(&offset.to_le_bytes());
            Virtio::read(&bytes, 60_000)
        };
        assert!(header(1, 1, 1448, 34, 16).is_some());
        assert!(header(1, 0, 0, 34, 59_965).is_none(), "beyond the frame");
        assert!(header(1, 0, 0, u16::MAX, u16::MAX).is_none(), "wraps");
        assert!(header(1, 0, 0, 3, 2).is_none(), "inside the Ethernet header");
        assert!(header(0, 1, 1448, 34, 16).is_none(), "segments without a checksum");
        assert!(header(1, 1, 0, 34, 16).is_none(), "segments of nothing");
        assert!(
            header(1, 1, 118, 34, 16).is_some() && header(1, 1, 116, 34, 16).is_none(),
            "too many segments"
        );
        assert!(
            header(1, 4, 1448, 256, 16).is_some() && header(1, 4, 1448, 257, 16).is_none(),
            "long headers"
        );
        assert!(header(1, 0, 0, 30_000, 16).is_some(), "only a checksum");
        assert!(header(1, 5, 469, 34, 6).unwrap().may_be_for_all(60_000));
        assert!(!header(1, 5, 460, 34, 6).unwrap().may_be_for_all(60_000));
        assert!(Virtio::PLAIN.may_be_for_all(60_000));
        assert!(header(1, 3, 1448, 34, 6).is_none(), "UFO, which nobody offers any more");
        assert!(header(1, 99, 1448, 34, 6).is_none());
    }

    #[test]
    fn a_tag_moves_what_follows() {
        let asked = [1, 0x81, 54, 0, 0xa8, 5, 34, 0, 16, 0];
        let header = Virtio::read(&asked, 3000).unwrap();
        assert_eq!(header.written(4, 2, true), [1, 0x81, 58, 0, 0xa8, 5, 38, 0, 16, 0, 2, 0]);
        assert_eq!(header.written(0, 1, true)[..10], asked);
    }

    #[test]
    fn a_length_of_headers_never_wraps() {
        let asked = [1, 0, 0, 0, 0, 0, 38, 0, 16, 0];
        let header = Virtio::read(&asked, 3000).unwrap();
        assert_eq!(header.written(-4, 1, true), [1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 1, 0]);
        // Of segments it is a hint, and may be none.
        let asked = [1, 1, 3, 0, 0xa8, 5, 38, 0, 16, 0];
        let header = Virtio::read(&asked, 3000).unwrap();
        assert_eq!(header.written(-4, 1, true), [1, 1, 0, 0, 0xa8, 5, 34, 0, 16, 0, 1, 0]);
        let asked = [1, 1, 0xfe, 0xff, 0xa8, 5, 38, 0, 16, 0];
        let header = Virtio::read(&asked, 3000).unwrap();
        assert_eq!(header.written(4, 1, true)[2..4], [0xff, 0xff]);
    }

    #[test]
    fn a_checksum_counts_from_behind_the_ethernet_header_also_with_a_tag_more() {
        let from = |start: u16| {
            let [low, high] = start.to_le_bytes();
            Virtio::read(&[1, 0, 0, 0, 0, 0, low, high, 0, 0], LONGEST)
        };
        assert_eq!(from(u16::MAX - 4).unwrap().written(4, 1, true)[6..8], [0xff, 0xff]);
        assert_eq!(from(u16::MAX - 3), None);
    }

    #[test]
    fn ethernet_is_read_and_written() {
        let mut bytes = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0x60, 100, 8, 0];
        let header = Ethernet::read(&bytes).unwrap();
        assert_eq!(header.tag, Some((Tag { vlan: 100, priority: 3 }, TAGGED)));
        assert_eq!((header.kind, header.size()), (0x800, 18));
        let mut room = [0; TAGGED_HEADER];
        assert_eq!(header.written(header.tag, &mut room), (&bytes, 18));
        bytes[12..14].copy_from_slice(&[8, 0]);
        let (plain, len) = header.written(None, &mut room);
        let plain = *plain;
        assert_eq!((&plain[..len], len), (&bytes[..14], 14));
        assert_eq!(Ethernet::read(&bytes[..13]), None);
        assert_eq!(Ethernet::read(&header.written(header.tag, &mut room).0[..16]), None);
        let untagged = Ethernet::read(&plain[..len]).unwrap();
        let (tagged, len) = untagged.written(header.tag, &mut room);
        assert_eq!(Ethernet::read(&tagged[..len]).unwrap().tag, header.tag);
        assert!(header.to.to_string() == "02:00:00:00:00:01" && !header.to.is_group());
        assert!(Mac::new([0xff; 6]).is_group() && Mac::new([0xff; 6]).is_broadcast());
    }
}
