//! What a guest has left to others, done here for a guest that does not know how: checksums, and the cutting of segments.
//!
//! It works on a copy of the frame that nobody else can write to. The sender's headers are believed as far as they can be
//! true; a frame that cannot be cut as it says is not cut at all.

use crate::net::{Checksum, Ethernet, Segments, Virtio};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// TCP's flags FIN and PSH belong to the last segment, CWR to the first.
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// The one's complement sum of `bytes`, carried on from `sum` (RFC 1071). The bytes begin at an even offset.
fn add(mut sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        sum += u64::from(u32::from_be_bytes(*word));
    }
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    sum + u64::from(u32::from_be_bytes(last))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Completes the checksum of a frame: the field holds the sum of the pseudo header already. `None`: it is not in the frame.
pub fn complete(frame: &mut [u8], checksum: Checksum) -> Option<()> {
    let start = usize::from(checksum.start);
    let sum = !fold(add(0, frame.get(start..)?));
    let at = start + usize::from(checksum.offset);
    // For UDP a sum of 0 would mean "none"; both zeroes of one's complement are the same to everybody else.
    let sum = if sum == 0 { 0xffff } else { sum };
    frame.get_mut(at..at + 2)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Where the headers of a frame are.
#[derive(Clone, Copy, Debug)]
struct Headers {
    network: usize,
    transport: usize,
    payload: usize,
    version: u8,
}

fn headers(frame: &[u8], header: &Virtio) -> Option<Headers> {
    let ethernet = Ethernet::read(frame)?;
    let network = ethernet.size();
    let transport = usize::from(header.checksum?.start);
    let version = frame.get(network)? >> 4;
    let wanted = match header.segments {
        Segments::None => return None,
        Segments::Tcp4 => (4, TCP),
        Segments::Tcp6 => (6, TCP),
        Segments::Udp => (version, UDP),
    };
    let protocol = match version {
        4 => {
            let len = usize::from(frame.get(network)? & 0xf) * 4;
            (len >= 20 && network + len == transport).then_some(())?;
            *frame.get(network + 9)?
        }
        // Extension headers may stand between; what the last of them says is not looked for.
        6 => {
            (network + 40 <= transport).then_some(())?;
            if network + 40 == transport { *frame.get(network + 6)? } else { wanted.1 }
        }
        _ => return None,
    };
    ((version, protocol) == wanted).then_some(())?;
    let payload = match protocol {
        TCP => {
            let len = usize::from(frame.get(transport + 12)? >> 4) * 4;
            (len >= 20).then_some(transport + len)?
        }
        _ => transport + 8,
    };
    (payload <= frame.len()).then_some(Headers { network, transport, payload, version })
}

/// Cuts a frame into segments and hands each to `emit`, built in `room`. Says how many; `None`: it cannot be cut as it says,
/// and nothing was handed out.
pub fn cut(frame: &[u8], header: &Virtio, room: &mut Vec<u8>, mut emit: impl FnMut(&[u8])) -> Option<u32> {
    let found = headers(frame, header)?;
    let (front, payload) = frame.split_at_checked(found.payload)?;
    let step = usize::from(header.segment);
    if step == 0 {
        return None;
    }
    let last = payload.len().saturating_sub(1) / step;
    for number in 0..=last {
        let from = number * step;
        let part = payload.get(from..payload.len().min(from + step))?;
        room.clear();
        room.extend_from_slice(front);
        room.extend_from_slice(part);
        finish(room, &found, header, number, number == last)?;
        emit(room);
    }
    u32::try_from(last + 1).ok()
}

/// Makes the headers of segment `number` its own.
fn finish(frame: &mut [u8], found: &Headers, header: &Virtio, number: usize, last: bool) -> Option<()> {
    let Headers { network, transport, version, .. } = *found;
    let put = |frame: &mut [u8], at: usize, value: u16| -> Option<()> {
        frame.get_mut(at..at + 2)?.copy_from_slice(&value.to_be_bytes());
        Some(())
    };
    let get = |frame: &[u8], at: usize| -> Option<u16> {
        Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk::<2>()?))
    };
    let network_len = u16::try_from(frame.len() - network).ok()?;
    let transport_len = u16::try_from(frame.len() - transport).ok()?;
    let tcp = header.segments != Segments::Udp;
    // The addresses, then the protocol and the length of what is summed (RFC 9293, 3.1; RFC 8200, 8.1).
    let addresses = if version == 4 {
        put(frame, network + 2, network_len)?;
        let id = get(frame, network + 4)?.wrapping_add(number as u16);
        put(frame, network + 4, id)?;
        put(frame, network + 10, 0)?;
        let sum = !fold(add(0, frame.get(network..transport)?));
        put(frame, network + 10, sum)?;
        frame.get(network + 12..network + 20)?
    } else {
        put(frame, network + 4, network_len.checked_sub(40)?)?;
        frame.get(network + 8..network + 40)?
    };
    let pseudo = add(0, addresses) + u64::from(if tcp { TCP } else { UDP }) + u64::from(transport_len);
    let field = if tcp {
        let sequence = frame.get_mut(transport + 4..transport + 8)?.first_chunk_mut::<4>()?;
        let passed = (number * usize::from(header.segment)) as u32;
        *sequence = u32::from_be_bytes(*sequence).wrapping_add(passed).to_be_bytes();
        let flags = frame.get_mut(transport + 13)?;
        if !last {
            *flags &= !FIN_PSH;
        }
        if number > 0 && header.ecn {
            *flags &= !CWR;
        }
        transport + 16
    } else {
        put(frame, transport + 4, transport_len)?;
        transport + 6
    };
    put(frame, field, 0)?;
    let sum = !fold(pseudo + u64::from(fold(add(0, frame.get(transport..)?))));
    put(frame, field, if sum == 0 { 0xffff } else { sum })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame whose checksums are left to others, with this much payload that counts up.
    fn frame(version: u8, tcp: bool, tagged: bool, payload: usize) -> (Vec<u8>, Virtio) {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if tagged {
            frame.extend([0x81, 0, 0, 100]);
        }
        frame.extend(if version == 4 { [8, 0] } else { [0x86, 0xdd] });
        let protocol = if tcp { TCP } else { UDP };
        if version == 4 {
            frame.extend([0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame.extend([0x60, 0, 0, 0, 0, 0, protocol, 64]);
            frame.extend((0..32).map(|at| at * 3));
        }
        let transport = frame.len();
        if tcp {
            frame.extend([4, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 9, 0x50, 0x99, 1, 0, 0, 0, 0, 0]);
        } else {
            frame.extend([4, 0, 8, 0, 0, 0, 0, 0]);
        }
        frame.extend((0..payload).map(|at| at as u8));
        let checksum = Checksum { start: transport as u16, offset: if tcp { 16 } else { 6 } };
        let segments = match (tcp, version) {
            (true, 4) => Segments::Tcp4,
            (true, _) => Segments::Tcp6,
            _ => Segments::Udp,
        };
        let header = Virtio { checksum: Some(checksum), segments, segment: 1000, ecn: true, ..Virtio::PLAIN };
        (frame, header)
    }

    /// The sum over a segment's transport part with its pseudo header, which is 0xffff when it is right. Written down another
    /// way than above, two bytes at a time.
    fn sum(segment: &[u8], network: usize, transport: usize, protocol: u8) -> u16 {
        let addresses = match segment[network] >> 4 {
            4 => network + 12..network + 20,
            _ => network + 8..network + 40,
        };
        let mut bytes = segment[addresses].to_vec();
        bytes.extend([0, protocol]);
        bytes.extend(((segment.len() - transport) as u16).to_be_bytes());
        bytes.extend(&segment[transport..]);
        bytes.resize(bytes.len().next_multiple_of(2), 0);
        let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let mut sum = words.sum::<u32>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn segments_are_whole_frames_with_right_sums() {
        for (version, tcp, tagged) in
            [(4, true, false), (4, true, true), (6, true, false), (4, false, false), (6, false, true)]
        {
            for payload in [0, 1, 999, 1000, 1001, 2501] {
                let (frame, header) = frame(version, tcp, tagged, payload);
                let transport = usize::from(header.checksum.unwrap().start);
                let network = if tagged { 18 } else { 14 };
                let front = transport + if tcp { 20 } else { 8 };
                let mut all: Vec<Vec<u8>> = Vec::new();
                let count = cut(&frame, &header, &mut Vec::new(), |part| all.push(part.to_vec())).unwrap();
                assert_eq!(count as usize, payload.div_ceil(1000).max(1));
                assert_eq!(count as usize, all.len());
                let joined: Vec<u8> = all.iter().flat_map(|part| part[front..].to_vec()).collect();
                assert_eq!(joined, frame[front..]);
                for (number, part) in all.iter().enumerate() {
                    let at =
                        format!("IPv{version} tcp {tcp} tagged {tagged} payload {payload} segment {number}");
                    assert_eq!(sum(part, network, transport, if tcp { TCP } else { UDP }), 0xffff, "{at}");
                    if version == 4 {
                        assert_eq!(fold(add(0, &part[network..network + 20])), 0xffff, "{at}");
                        assert_eq!(part[network + 5], 7 + number as u8, "{at}");
                        let len = u16::from_be_bytes([part[network + 2], part[network + 3]]);
                        assert_eq!(usize::from(len), part.len() - network, "{at}");
                    }
                    if tcp {
                        let sequence =
                            u32::from_be_bytes(part[transport + 4..transport + 8].try_into().unwrap());
                        assert_eq!(sequence as usize, 256 + number * 1000, "{at}");
                        let flags = part[transport + 13];
                        assert_eq!(flags & FIN_PSH != 0, number + 1 == all.len(), "{at}");
                        assert_eq!(flags & CWR != 0, number == 0, "{at}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_checksum_is_completed() {
        let (mut frame, header) = frame(4, true, false, 333);
        let checksum = header.checksum.unwrap();
        let start = usize::from(checksum.start);
        let mut pseudo = add(0, &frame[26..34]) + u64::from(TCP) + (frame.len() - start) as u64;
        pseudo = u64::from(fold(pseudo));
        frame[start + 16..start + 18].copy_from_slice(&(pseudo as u16).to_be_bytes());
        complete(&mut frame, checksum).unwrap();
        assert_eq!(sum(&frame, 14, start, TCP), 0xffff);
        assert_eq!(complete(&mut frame, Checksum { start: 500, offset: 0 }), None);
    }

    #[test]
    fn what_does_not_fit_together_is_not_cut() {
        let none = |frame: &[u8], header: &Virtio| {
            assert_eq!(cut(frame, header, &mut Vec::new(), |_| panic!("nothing is handed out")), None);
        };
        let (good, header) = frame(4, true, false, 3000);
        none(&good, &Virtio { segments: Segments::Tcp6, ..header });
        none(&good, &Virtio { segments: Segments::Udp, ..header });
        none(&good, &Virtio { checksum: Some(Checksum { start: 36, offset: 16 }), ..header });
        none(&good[..40], &header);
        none(&[], &header);
        let mut long = good.clone();
        long[46] = 0xf0;
        none(&long[..90], &header);
    }
}
