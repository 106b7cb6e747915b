//! What ARP and neighbour discovery say of their sender, in bytes that nobody changes any more.

use crate::net::is_tag;

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
/// What is less is a length, and LLC follows (IEEE 802.3, 3.2.6).
const SHORTEST_KIND: u16 = 0x600;
/// LLC's header with a type behind it (RFC 1042).
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];
/// Bytes of IPv6's header.
const IPV6_HEADER: usize = 40;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const ICMPV6: u8 = 58;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may be sent, as long as nothing in front of this place is changed.
    Fine(usize),
    /// It tells of another address, or cannot be read to its end.
    Lies,
    /// More of it must be read.
    More,
}

/// Whether a frame of this type may be one of those that tell of addresses, or have one inside.
pub(super) fn may_tell(kind: u16) -> bool {
    kind == ARP || kind == IPV6 || kind < SHORTEST_KIND || is_tag(kind)
}

/// Looks at what follows an Ethernet header of this type: the beginning of it, or the `whole`.
pub(super) fn judge(kind: u16, bytes: &[u8], whole: bool, is_own: impl Fn([u8; 6]) -> bool) -> Verdict {
    let found = look(kind, bytes, whole, is_own);
    found.unwrap_or(if whole { Verdict::Lies } else { Verdict::More })
}

/// `None`: it does not end in these bytes, or it is to be judged whole.
fn look(mut kind: u16, bytes: &[u8], whole: bool, is_own: impl Fn([u8; 6]) -> bool) -> Option<Verdict> {
    let mut at = 0;
    loop {
        match kind {
            ARP => {
                // The sender's hardware address (RFC 826).
                let sender = array(bytes, at + 8).filter(|_| whole)?;
                return Some(if is_own(sender) { Verdict::Fine(bytes.len()) } else { Verdict::Lies });
            }
            IPV6 => return ipv6(bytes, at, whole, is_own),
            _ if is_tag(kind) => {
                kind = u16::from_be_bytes(array(bytes, at + 2)?);
                at += 4;
            }
            ..SHORTEST_KIND => {
                let is_snap = bytes.get(at..).is_some_and(|llc| llc.starts_with(&SNAP));
                at += SNAP.len() + 2;
                if !is_snap && (whole || bytes.len() >= at) {
                    return Some(Verdict::Fine(at));
                }
                kind = u16::from_be_bytes(array(bytes, at - 2)?);
            }
            _ => return Some(Verdict::Fine(at)),
        }
    }
}

/// Goes through the headers of a packet that begins at `start` (RFC 8200, 4).
fn ipv6(bytes: &[u8], start: usize, whole: bool, is_own: impl Fn([u8; 6]) -> bool) -> Option<Verdict> {
    let packet = bytes.get(start..)?;
    let header: [u8; IPV6_HEADER] = array(packet, 0)?;
    let [_, _, _, _, l0, l1, mut next, ..] = header;
    let (mut at, mut fragment) = (IPV6_HEADER, false);
    loop {
        let unit = match next {
            ICMPV6 => break,
            // Options of hops, a route, options of the destination, mobility, HIP, Shim6.
            0 | 43 | 60 | 135 | 139 | 140 => 8,
            AUTHENTICATION => 4,
            FRAGMENT => 0,
            _ => return Some(Verdict::Fine(start + at)),
        };
        let [follows, units, high, low] = array(packet, at).filter(|_| whole)?;
        at += 8 + usize::from(units) * unit;
        if next == FRAGMENT {
            // Without the first part, which tells what it is, the others are nothing.
            if u16::from_be_bytes([high, low]) >> 3 != 0 {
                return Some(Verdict::Fine(start + at));
            }
            fragment = true;
        }
        next = follows;
    }
    let [kind] = array(packet, at).filter(|_| whole)?;
    let Some((options, wanted)) = options_of(kind) else {
        // Its type and code.
        return Some(Verdict::Fine(start + at + 2));
    };
    // Neighbour discovery is not sent in parts (RFC 6980, 5).
    if fragment {
        return Some(Verdict::Lies);
    }
    let end = match usize::from(u16::from_be_bytes([l0, l1])) {
        0 => packet.len(),
        len => IPV6_HEADER + len,
    };
    let is_true = options_are_true(packet.get(at + options..end)?, wanted, is_own)?;
    Some(if is_true { Verdict::Fine(bytes.len()) } else { Verdict::Lies })
}

/// Where the options of neighbour discovery begin in a message of this type, and which of them tells a link-layer address: that of its
/// source (1) or its target (2) (RFC 4861, 4). `None`: it is another message.
fn options_of(kind: u8) -> Option<(usize, u8)> {
    Some(match kind {
        // Router solicitation and advertisement, neighbour solicitation and advertisement, redirect.
        133 => (8, 1),
        134 => (16, 1),
        135 => (24, 1),
        136 => (24, 2),
        137 => (40, 2),
        _ => return None,
    })
}

/// Whether all options of this kind tell of own addresses. `None`: they have no end.
fn options_are_true(mut options: &[u8], wanted: u8, is_own: impl Fn([u8; 6]) -> bool) -> Option<bool> {
    while !options.is_empty() {
        let [kind, units] = array(options, 0)?;
        // A length of 0 is no option (RFC 4861, 4.6).
        let (option, rest) = options.split_at_checked(usize::from(units) * 8).filter(|_| units > 0)?;
        if kind == wanted && !is_own(array(option, 2)?) {
            return Some(false);
        }
        options = rest;
    }
    Some(true)
}

/// The `N` bytes from `at` on.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
