//! Questions that the IP stack of a guest answers by itself, and its answers: ARP (RFC 826) and IPv6 neighbour discovery
//! (RFC 4861). No program is needed in the guest, and nothing but an address. And announcements of an address to everybody.
//!
//! Each question goes to one MAC address alone, so that what filters by MAC address and VLAN is really tried, and carries
//! no VLAN tag: the port's is the embedded switch's business.
//!
//! ARP is asked as RFC 5227 probes, with the sender's address 0.0.0.0. Every host has to answer these, or nobody could
//! see that an address is taken; Linux and lwIP answer them to the asker's MAC address alone. A question with a real
//! sender is worth less: Linux drops it where the way back is through another interface (`rp_filter`), which is so when
//! several functions of a guest lie in one network, and it leaves an entry in the guest's table. A probe needs no address
//! in that network either, so that all ends ask the same and their answers compare.
//!
//! Neighbour solicitations come from the link-local address that belongs to the asker's MAC address (RFC 4291, appendix
//! A): a probe there would be answered to everybody.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use penstock_model::Mac;

/// Ethertype of ARP.
pub const ARP: u16 = 0x0806;
/// Ethertype of IPv6.
pub const IPV6: u16 = 0x86dd;

/// Hardware type Ethernet, protocol IPv4, address lengths 6 and 4.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];

const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// In the flags of an advertisement: it answers a solicitation.
const SOLICITED: u8 = 0x40;
/// In the flags of an advertisement: what a neighbour has cached is to be replaced.
const OVERRIDE: u8 = 0x20;
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;
/// What no router passes on: it came from this link.
const HOP_LIMIT: u8 = 255;

/// Every interface of the link.
const BROADCAST: Mac = Mac::new([0xff; 6]);
/// All IPv6 nodes of the link (RFC 4291, 2.7.1), and their MAC address (RFC 2464, 7).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: Mac = Mac::new([0x33, 0x33, 0, 0, 0, 1]);

/// The least that Ethernet carries, without the checksum.
const SHORTEST: usize = 60;
const ETHERNET: usize = 14;
const IPV6_HEADER: usize = 40;
/// Type, code, checksum, flags, target.
const NEIGHBOUR_HEADER: usize = 24;

/// An answer as it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Who answered: the frame's source, which the answer itself names too.
    pub from: Mac,
    /// Who had asked: the frame's destination, which the answer itself names too.
    pub to: Mac,
    /// The address that was asked for.
    pub address: IpAddr,
}

/// The ethertype of questions for an address, and of their answers.
pub fn ethertype(address: IpAddr) -> u16 {
    if address.is_ipv4() { ARP } else { IPV6 }
}

/// The question of `from` to `to` alone, whether it has `address`.
pub fn question(from: Mac, to: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp_request(from, to, Ipv4Addr::UNSPECIFIED, address),
        IpAddr::V6(address) => {
            let message = icmpv6(SOLICITATION, 0, address, SOURCE_LINK_ADDRESS, from);
            ipv6_frame((from, to), (link_local(from), address), message)
        }
    }
}

/// Tells all neighbours that `address` is at `from` now: an ARP announcement (RFC 5227, 3), or an unsolicited neighbour
/// advertisement (RFC 4861, 7.2.6). Who has the address in a table at another MAC address replaces it.
pub fn announcement(from: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp_request(from, BROADCAST, address, address),
        IpAddr::V6(address) => {
            let message = icmpv6(ADVERTISEMENT, OVERRIDE, address, TARGET_LINK_ADDRESS, from);
            ipv6_frame((from, ALL_NODES_MAC), (address, ALL_NODES), message)
        }
    }
}

/// An ARP request of `from`, which says that it has `own`, to `to`: who has `address`?
fn arp_request(from: Mac, to: Mac, own: Ipv4Addr, address: Ipv4Addr) -> Vec<u8> {
    let mut frame = ethernet(from, to, ARP);
    frame.extend(ETHERNET_IPV4);
    frame.extend(REQUEST);
    frame.extend(from.octets());
    frame.extend(own.octets());
    // Whose MAC address it is, is what is asked.
    frame.extend([0; 6]);
    frame.extend(address.octets());
    frame.resize(SHORTEST, 0);
    frame
}

/// A message of neighbour discovery about `target`, with one option that names `link`. Its checksum is left at 0.
fn icmpv6(kind: u8, flags: u8, target: Ipv6Addr, option: u8, link: Mac) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    message.extend([option, 1]);
    message.extend(link.octets());
    message
}

/// `message`, with its checksum, between these MAC and these IPv6 addresses.
fn ipv6_frame(
    (from, to): (Mac, Mac),
    (source, destination): (Ipv6Addr, Ipv6Addr),
    mut message: Vec<u8>,
) -> Vec<u8> {
    let sum = checksum(source, destination, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = ethernet(from, to, IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((message.len() as u16).to_be_bytes());
    frame.extend([ICMPV6, HOP_LIMIT]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend(message);
    frame
}

/// The start of a frame.
fn ethernet(from: Mac, to: Mac, ethertype: u16) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET + IPV6_HEADER + NEIGHBOUR_HEADER + 8);
    frame.extend(to.octets());
    frame.extend(from.octets());
    frame.extend(ethertype.to_be_bytes());
    frame
}

/// Reads an answer to a [`question`]; `None` for any other bytes.
pub fn answer(bytes: &[u8]) -> Option<Answer> {
    let to = mac(bytes.get(..6)?)?;
    let from = mac(bytes.get(6..12)?)?;
    let rest = bytes.get(ETHERNET..)?;
    let address = match u16::from_be_bytes(bytes.get(12..ETHERNET)?.try_into().ok()?) {
        ARP => arp_reply(rest, from, to).map(IpAddr::V4),
        IPV6 => advertisement(rest, from, to).map(IpAddr::V6),
        _ => None,
    }?;
    (!from.is_multicast() && !to.is_multicast()).then_some(Answer { from, to, address })
}

fn arp_reply(bytes: &[u8], from: Mac, to: Mac) -> Option<Ipv4Addr> {
    let bytes: &[u8; 28] = bytes.first_chunk()?;
    let right = bytes[..6] == ETHERNET_IPV4
        && bytes[6..8] == REPLY
        && bytes[8..14] == from.octets()
        && bytes[18..24] == to.octets()
        // An answer to a probe: none that the kernel has asked for.
        && bytes[24..28] == Ipv4Addr::UNSPECIFIED.octets();
    let address: [u8; 4] = bytes[14..18].try_into().ok()?;
    right.then(|| Ipv4Addr::from(address))
}

/// The checks of RFC 4861, 7.1.2, and that it is for the one that asked.
fn advertisement(bytes: &[u8], from: Mac, to: Mac) -> Option<Ipv6Addr> {
    let header: &[u8; IPV6_HEADER] = bytes.first_chunk()?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let message = bytes.get(IPV6_HEADER..IPV6_HEADER + length)?;
    let source = ipv6(&header[8..24])?;
    let destination = ipv6(&header[24..40])?;
    let start: &[u8; NEIGHBOUR_HEADER] = message.first_chunk()?;
    let right = header[0] >> 4 == 6
        && header[6] == ICMPV6
        && header[7] == HOP_LIMIT
        && destination == link_local(to)
        && start[..2] == [ADVERTISEMENT, 0]
        && start[4] & SOLICITED != 0
        && checksum(source, destination, message) == 0
        && names(&message[NEIGHBOUR_HEADER..], from);
    right.then(|| ipv6(&start[8..24]))?
}

/// Whether these options are sound and name no other link-layer address than this. They may name none: who asks one MAC
/// address alone knows it.
fn names(mut options: &[u8], from: Mac) -> bool {
    while let [kind, units, ..] = *options {
        let length = usize::from(units) * 8;
        if length == 0 || length > options.len() {
            return false;
        }
        if kind == TARGET_LINK_ADDRESS && options[2..length] != from.octets() {
            return false;
        }
        options = &options[length..];
    }
    options.is_empty()
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    Some(Mac::new(bytes.try_into().ok()?))
}

fn ipv6(bytes: &[u8]) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = bytes.try_into().ok()?;
    Some(Ipv6Addr::from(octets))
}

/// The link-local address that belongs to a MAC address (RFC 4291, appendix A).
fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.octets();
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The checksum of an ICMPv6 message (RFC 4443, 2.3); 0 over a message that holds its own.
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u64 {
        bytes
            .chunks(2)
            .map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
            .sum()
    };
    let mut sum = words(&source.octets()) + words(&destination.octets()) + words(message);
    sum += message.len() as u64 + u64::from(ICMPV6);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ASKER: Mac = Mac::new([2, 0, 0, 0, 0, 1]);
    const GUEST: Mac = Mac::new([2, 0, 0, 0, 1, 4]);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_probe_is_what_rfc_5227_says() {
        let frame = question(ASKER, GUEST, ip("10.20.31.204"));
        let expected = [
            &[2, 0, 0, 0, 1, 4, 2, 0, 0, 0, 0, 1, 8, 6][..],
            &[0, 1, 8, 0, 6, 4, 0, 1],
            &[2, 0, 0, 0, 0, 1, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 10, 20, 31, 204],
            &[0; 18],
        ]
        .concat();
        assert_eq!(frame, expected);
    }

    #[test]
    fn a_solicitation_is_what_rfc_4861_says() {
        let frame = question(ASKER, GUEST, ip("fd00::4"));
        assert_eq!(frame.len(), 86);
        assert_eq!(frame[12..14], [0x86, 0xdd]);
        assert_eq!(frame[14..22], [0x60, 0, 0, 0, 0, 32, 58, 255]);
        let (from, to): (Ipv6Addr, Ipv6Addr) =
            ("fe80::ff:fe00:1".parse().unwrap(), "fd00::4".parse().unwrap());
        assert_eq!((&frame[22..38], &frame[38..54]), (&from.octets()[..], &to.octets()[..]));
        assert_eq!(frame[54..56], [135, 0]);
        assert_eq!(frame[62..78], to.octets());
        assert_eq!(frame[78..], [1, 1, 2, 0, 0, 0, 0, 1]);
        assert_eq!(checksum(from, to, &frame[54..]), 0, "it holds its own checksum");
        assert_eq!(frame[56..58], [0x7e, 0x17]);
    }

    #[test]
    fn an_arp_announcement_is_what_rfc_5227_says() {
        let expected = [
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 1, 4, 8, 6][..],
            &[0, 1, 8, 0, 6, 4, 0, 1],
            &[2, 0, 0, 0, 1, 4, 10, 20, 31, 204],
            &[0, 0, 0, 0, 0, 0, 10, 20, 31, 204],
            &[0; 18],
        ]
        .concat();
        assert_eq!(announcement(GUEST, ip("10.20.31.204")), expected);
    }

    #[test]
    fn an_unsolicited_advertisement_is_what_rfc_4861_says() {
        let frame = announcement(GUEST, ip("fd00::4"));
        assert_eq!(frame.len(), 86);
        assert_eq!(frame[..14], [0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 1, 4, 0x86, 0xdd]);
        assert_eq!(frame[14..22], [0x60, 0, 0, 0, 0, 32, 58, 255]);
        let (from, to): (Ipv6Addr, Ipv6Addr) = ("fd00::4".parse().unwrap(), "ff02::1".parse().unwrap());
        assert_eq!((&frame[22..38], &frame[38..54]), (&from.octets()[..], &to.octets()[..]));
        // Neither from a router nor solicited; it overrides.
        assert_eq!((&frame[54..56], &frame[58..62]), (&[136, 0][..], &[0x20, 0, 0, 0][..]));
        assert_eq!(frame[62..78], from.octets());
        assert_eq!(frame[78..], [2, 1, 2, 0, 0, 0, 1, 4]);
        assert_eq!(checksum(from, to, &frame[54..]), 0, "it holds its own checksum");
    }

    /// What Linux answers.
    fn reply() -> Vec<u8> {
        [
            &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 4, 8, 6][..],
            &[0, 1, 8, 0, 6, 4, 0, 2],
            &[2, 0, 0, 0, 1, 4, 10, 20, 31, 204],
            &[2, 0, 0, 0, 0, 1, 0, 0, 0, 0],
        ]
        .concat()
    }

    /// An advertisement with these options.
    fn advert(options: &[u8]) -> Vec<u8> {
        let (from, to): (Ipv6Addr, Ipv6Addr) =
            ("fd00::4".parse().unwrap(), "fe80::ff:fe00:1".parse().unwrap());
        let mut message = [&[136, 0, 0, 0, 0x40, 0, 0, 0][..], &from.octets(), options].concat();
        let sum = checksum(from, to, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        [
            &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 4, 0x86, 0xdd, 0x60, 0, 0, 0, 0, message.len() as u8, 58, 255]
                [..],
            &from.octets(),
            &to.octets(),
            &message,
        ]
        .concat()
    }

    #[test]
    fn answers_are_read() {
        let of = |address| Some(Answer { from: GUEST, to: ASKER, address });
        assert_eq!(answer(&reply()), of(ip("10.20.31.204")));
        let padded = [reply(), vec![0xaa; 18]].concat();
        assert_eq!(answer(&padded), of(ip("10.20.31.204")));
        assert_eq!(answer(&advert(&[])), of(ip("fd00::4")), "as Linux answers a question to it alone");
        assert_eq!(answer(&advert(&[2, 1, 2, 0, 0, 0, 1, 4])), of(ip("fd00::4")));
        assert_eq!(answer(&advert(&[14, 1, 0, 0, 0, 0, 0, 0, 2, 1, 2, 0, 0, 0, 1, 4])), of(ip("fd00::4")));
    }

    #[test]
    fn any_bit_that_matters_makes_an_answer_none_or_another() {
        for whole in [reply(), advert(&[2, 1, 2, 0, 0, 0, 1, 4])] {
            let right = answer(&whole).unwrap();
            for bit in 0..whole.len() * 8 {
                let mut bent = whole.clone();
                bent[bit / 8] ^= 1 << (bit % 8);
                // Only the address asked for, and IPv6's traffic class and flow label, are free to be another.
                let free = (15..18).contains(&(bit / 8)) || bit / 8 == 14 && bit % 8 < 4;
                match answer(&bent) {
                    None => (),
                    Some(other) if other == right => assert!(free && whole.len() > 42, "bit {bit}"),
                    Some(other) => {
                        assert_eq!((other.from, other.to), (right.from, right.to), "bit {bit}");
                        assert!((28..32).contains(&(bit / 8)) && whole.len() == 42, "bit {bit}");
                    }
                }
            }
            for length in 0..whole.len() {
                assert_eq!(answer(&whole[..length]), None, "{length} bytes");
            }
        }
        assert_eq!(answer(&advert(&[2, 1, 2, 0, 0, 0, 1, 5])), None, "it names another");
        assert_eq!(answer(&advert(&[14, 0])), None, "an option of no length");
        assert_eq!(answer(&advert(&[2, 2, 2, 0, 0, 0, 1, 4])), None, "an option past the end");
        assert_eq!(answer(&advert(&[2])), None, "half an option");
    }

    #[test]
    fn a_question_is_no_answer() {
        for address in ["10.20.31.204", "fd00::4"] {
            assert_eq!(answer(&question(ASKER, GUEST, ip(address))), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = answer(&bytes);
        }

        /// Bytes that get past the first checks.
        #[test]
        fn any_bytes_after_a_sound_start_are_read_without_harm(
            six in any::<bool>(),
            kept in 12_usize..90,
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let start = if six { advert(&[2, 1, 2, 0, 0, 0, 1, 4]) } else { reply() };
            let start = &start[..kept.min(start.len())];
            if let Some(read) = answer(&[start, &bytes].concat()) {
                prop_assert_eq!(read.address.is_ipv6(), six);
            }
        }

        #[test]
        fn any_options_are_read_without_harm(options in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(read) = answer(&advert(&options)) {
                prop_assert_eq!(read, Answer { from: GUEST, to: ASKER, address: ip("fd00::4") });
            }
        }
    }
}
