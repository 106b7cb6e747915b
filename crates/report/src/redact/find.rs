//! Where addresses stand in text.
//!
//! When in doubt it is an address: a version that is taken for one is a pity, an address that stays is a leak. Text may be
//! JSON inside JSON, so that a letter behind a backslash begins nothing.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use super::names::KINDS;

/// An address as text has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// `0c:c4:7a:9a:61:ea`, or with the other separator.
    Mac([u8; 6], char),
    /// `0cc4.7a9a.61ea`, as Cisco's switches write a MAC address.
    Dotted([u8; 6]),
    /// `0c:c4:7a:ff:fe:9a:61:ea`: an EUI-64, or the serial number of a PCIe device. `None`: without a separator.
    Eui64([u8; 8], Option<char>),
    /// `550e8400-e29b-41d4-a716-446655440000`, or the same without dashes, as a machine-id is written. In lower case.
    Uuid(String),
    /// `10.0.0.1`; `version`: the text around it calls it a version.
    V4 {
        /// The address that the text reads as.
        address: Ipv4Addr,
        /// Whether it is perhaps no address.
        version: bool,
    },
    /// `fe80::1`, or one with an IPv4 address at its end: `::ffff:10.0.0.1`.
    V6(Ipv6Addr),
    /// Twelve hexadecimal digits in a row, which may be a MAC address: `001122334455`, or a part of a longer word.
    Digits([u8; 6]),
    /// The same where they are taken for one: a word with a letter in it, what is called `mac`, or `enx0cc47a9a61ea`, as systemd calls an interface by
    /// its MAC address (systemd.net-naming-scheme(7)).
    Bare([u8; 6]),
    /// Bytes of a C initializer, which may be any address: `0x0c, 0xc4, ...`.
    Bytes(Vec<u8>),
}

/// Every address of `text` with its place, in order, none within another.
pub(super) fn addresses(text: &str) -> Vec<(Range<usize>, Address)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        // Every address begins with a hexadecimal digit, or with the two colons of IPv6.
        if !bytes[at].is_ascii_hexdigit() && bytes[at] != b':' {
            at += 1;
            continue;
        }
        let readers = [uuid, netfilter, eui64, mac, dotted, v6, v4, initializer, digits];
        let here = readers.iter().find_map(|read| read(text, at));
        at = match here {
            Some((range, address)) => {
                let end = range.end;
                found.push((range, address));
                end
            }
            None => at + 1,
        };
    }
    found
}

type Here = Option<(Range<usize>, Address)>;

fn hex(byte: Option<&u8>) -> bool {
    byte.is_some_and(u8::is_ascii_hexdigit)
}

/// The byte before `at` as a boundary sees it: none at the start, and none where it belongs to an escape.
fn before(bytes: &[u8], at: usize) -> Option<u8> {
    let byte = *bytes.get(at.checked_sub(1)?)?;
    let escape = at >= 2 && bytes[at - 2] == b'\\' && matches!(byte, b'n' | b't' | b'r' | b'b' | b'f');
    (!escape).then_some(byte)
}

/// The byte that two hexadecimal digits at `at` give; `None` for anything else.
fn octet(text: &str, at: usize) -> Option<u8> {
    let digits = text.get(at..at + 2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

fn mac(text: &str, at: usize) -> Here {
    let bytes = text.as_bytes();
    if before(bytes, at).is_some_and(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let (octets, separator, end) = octets(text, at)?;
    // What goes on behind a colon is an IPv6 address, if it is one, or else a port.
    let goes_on = separator == b':' && bytes.get(end) == Some(&b':');
    let goes_on = goes_on && (hex(bytes.get(end + 1)) || bytes.get(end + 1) == Some(&b':'));
    if octets.len() < 6 || (goes_on && v6(text, at).is_some()) {
        return None;
    }
    // A run that is longer than any identifier may hold addresses anywhere.
    if octets.len() == MOST_OCTETS && bytes.get(end) == Some(&separator) && octet(text, end + 1).is_some() {
        let first: [u8; 6] = octets[..6].try_into().ok()?;
        return Some((at..at + 17, Address::Mac(first, char::from(separator))));
    }
    // Of a longer one (a DHCP client's identifier, an InfiniBand address) the end is what tells.
    let last: [u8; 6] = octets[octets.len() - 6..].try_into().ok()?;
    Some((end - 17..end, Address::Mac(last, char::from(separator))))
}

/// No run of octets that means anything is longer: an InfiniBand address has 20, a DHCP client's identifier with a UUID 23. What is longer
/// is read in parts, so that a text that is one run is not read to its end at each of its octets.
const MOST_OCTETS: usize = 24;

/// Octets with the same separator between them, up to [`MOST_OCTETS`], and where they end.
fn octets(text: &str, at: usize) -> Option<(Vec<u8>, u8, usize)> {
    let bytes = text.as_bytes();
    let mut octets = vec![octet(text, at)?];
    let separator = *bytes.get(at + 2).filter(|byte| matches!(byte, b':' | b'-'))?;
    let mut end = at + 2;
    while octets.len() < MOST_OCTETS && bytes.get(end) == Some(&separator) && !hex(bytes.get(end + 3)) {
        let Some(next) = octet(text, end + 1) else { break };
        octets.push(next);
        end += 3;
    }
    (!hex(bytes.get(end))).then_some((octets, separator, end))
}

/// `MAC=` of a netfilter log line (net/netfilter/nf_log_syslog.c): destination, source and type in one run. The source is what is
/// left when the destination was found, which ends at the same colon.
fn netfilter(text: &str, at: usize) -> Here {
    let source = at >= 22 && text.is_char_boundary(at - 22) && text.get(at - 22..at - 18) == Some("MAC=");
    let destination = at >= 4 && text.is_char_boundary(at - 4) && text.get(at - 4..at) == Some("MAC=");
    let least = match (destination, source) {
        (true, _) => 12,
        (_, true) => 6,
        _ => return None,
    };
    let (octets, separator, _) = octets(text, at)?;
    let first: [u8; 6] = octets.get(..least).and_then(|octets| octets[..6].try_into().ok())?;
    Some((at..at + 17, Address::Mac(first, char::from(separator))))
}

/// Eight octets, with a separator; without one only where the middle says that it was made of a MAC address (RFC 4291, appendix A).
fn eui64(text: &str, at: usize) -> Here {
    let bytes = text.as_bytes();
    // Not the end of a longer run.
    let goes_on =
        matches!(before(bytes, at), Some(b':' | b'-')) && hex(at.checked_sub(2).and_then(|at| bytes.get(at)));
    if goes_on || before(bytes, at).is_some_and(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    if let Some((octets, separator, end)) = octets(text, at) {
        let all: [u8; 8] = octets.try_into().ok()?;
        return Some((at..end, Address::Eui64(all, Some(char::from(separator)))));
    }
    let mut all = [0u8; 8];
    for (number, slot) in all.iter_mut().enumerate() {
        *slot = octet(text, at + 2 * number)?;
    }
    let made = matches!(all[3..5], [0xff, 0xfe | 0xff]) && !hex(bytes.get(at + 16));
    made.then_some((at..at + 16, Address::Eui64(all, None)))
}

/// The MAC address that begins at `at` in Cisco's notation: `0cc4.7a9a.61ea`.
fn dotted(text: &str, at: usize) -> Here {
    let bytes = text.as_bytes();
    let inside = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    if before(bytes, at).is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'.') {
        return None;
    }
    let mut mac = [0u8; 6];
    for (number, slot) in mac.iter_mut().enumerate() {
        *slot = octet(text, at + 2 * number + number / 2)?;
    }
    let dots = bytes.get(at + 4) == Some(&b'.') && bytes.get(at + 9) == Some(&b'.');
    let goes_on =
        inside(bytes.get(at + 14)) || bytes.get(at + 14) == Some(&b'.') && inside(bytes.get(at + 15));
    (dots && !goes_on).then_some((at..at + 14, Address::Dotted(mac)))
}

/// Eight, four, four, four and twelve digits, with dashes or all in a row.
fn uuid(text: &str, at: usize) -> Here {
    let bytes = text.as_bytes();
    if !hex(bytes.get(at)) || before(bytes, at).is_some_and(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let dashed = bytes.get(at + 8) == Some(&b'-');
    let length = if dashed { 36 } else { 32 };
    let word = text.get(at..at + length)?;
    let dash = |place: usize| dashed && matches!(place, 8 | 13 | 18 | 23);
    let is_one = word.bytes().enumerate().all(|(place, byte)| match dash(place) {
        true => byte == b'-',
        false => byte.is_ascii_hexdigit(),
    });
    let ends = bytes.get(at + length).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (is_one && ends).then(|| (at..at + length, Address::Uuid(word.to_ascii_lowercase())))
}

fn v6(text: &str, at: usize) -> Here {
    /// Bytes of the longest address: `ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255`.
    const LONGEST: usize = 45;
    let bytes = text.as_bytes();
    let starts = hex(bytes.get(at)) || bytes[at..].starts_with(b"::");
    if !starts || before(bytes, at).is_some_and(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    // Behind two colons two more begin nothing: what stood for it there would make one address with them.
    if bytes[at..].starts_with(b"::") && bytes[..at].ends_with(b"::") {
        return None;
    }
    // `host-1::` is a pseudonym and two colons: no address that is in use begins with a small number (RFC 4291, section 2.4).
    let number = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let kind = text[..at].strip_suffix('-').unwrap_or_default();
    if (1..4).contains(&number) && KINDS.iter().any(|word| kind.ends_with(word)) {
        return None;
    }
    let inside = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let length = bytes[at..].iter().take(LONGEST).take_while(|byte| inside(byte)).count();
    if bytes[at..at + length].iter().filter(|byte| **byte == b':').count() < 2 {
        return None;
    }
    // The longest that is one. A letter right behind makes a word of the digits before it.
    let ends = (at + 2..=at + length).rev();
    let mut closed = ends.filter(|end| bytes.get(*end).is_none_or(|byte| !byte.is_ascii_alphanumeric()));
    closed.find_map(|end| Some((at..end, Address::V6(text[at..end].parse().ok()?))))
}

fn v4(text: &str, at: usize) -> Here {
    let bytes = text.as_bytes();
    let begins = bytes[at].is_ascii_digit();
    if !begins || before(bytes, at).is_some_and(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let length = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    let run = text[at..at + length].trim_end_matches('.');
    let parts: Vec<&str> = run.split('.').collect();
    // A fifth is a port, as tcpdump writes it. More are no address.
    if !(4..=5).contains(&parts.len()) {
        return None;
    }
    let mut octets = [0u8; 4];
    for (octet, part) in octets.iter_mut().zip(&parts) {
        *octet = Some(part).filter(|part| part.len() <= 3).and_then(|part| part.parse().ok())?;
    }
    let end = at + parts[..4].iter().map(|part| part.len()).sum::<usize>() + 3;
    let version = is_version(text, at, end);
    Some((at..end, Address::V4 { address: Ipv4Addr::from(octets), version }))
}

/// Whether the words around call it a version: `version 3.12.1.2`, `iperf-3.12.1.2`, `v3.12.1.2`, `3.12.1.2-4+deb`.
fn is_version(text: &str, start: usize, end: usize) -> bool {
    const WORDS: [&str; 6] = ["version", "release", "revision", "v", "ver", "rev"];
    const TOOLS: [&str; 5] = ["iperf", "iperf3", "fio", "netperf", "qemu"];
    let mut from = start.saturating_sub(24);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let last_word = |text: &str| {
        let word = text.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        word.to_ascii_lowercase()
    };
    let before = &text[from..start];
    let word = last_word(before.trim_end_matches([' ', '\t', '"', '\'', ':', '=', '-', '(', '\\', '/']));
    let tool = before.strip_suffix([' ', '-']).map(last_word).unwrap_or_default();
    let package = text[end..].strip_prefix(['-', '+', '~']).and_then(|rest| {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        (number.len() < rest.len()).then_some(number)
    });
    WORDS.contains(&word.as_str())
        || TOOLS.contains(&tool.as_str())
        || package.is_some_and(|rest| rest.starts_with(['+', '~']))
}

/// `0x0c, 0xc4, ...` with as many bytes as an address has.
fn initializer(text: &str, at: usize) -> Here {
    let one = |at: usize| {
        text.get(at..at + 2).filter(|prefix| prefix.eq_ignore_ascii_case("0x"))?;
        octet(text, at + 2).filter(|_| !hex(text.as_bytes().get(at + 4)))
    };
    let mut bytes = vec![one(at)?];
    let mut end = at + 4;
    while bytes.len() < 17 {
        let gap = text[end..].bytes().take(3).take_while(|byte| matches!(byte, b',' | b' ')).count();
        match one(end + gap) {
            Some(next) if gap > 0 => {
                bytes.push(next);
                end += gap + 4;
            }
            _ => break,
        }
    }
    matches!(bytes.len(), 4 | 6 | 16).then_some((at..end, Address::Bytes(bytes)))
}

/// Twelve digits in a row.
fn digits(text: &str, at: usize) -> Here {
    let bytes = text.as_bytes();
    if !hex(bytes.get(at))
        || before(bytes, at).is_some_and(|byte| byte.is_ascii_hexdigit())
        || hex(bytes.get(at + 12))
    {
        return None;
    }
    let mut octets = [0u8; 6];
    for (number, slot) in octets.iter_mut().enumerate() {
        *slot = octet(text, at + 2 * number)?;
    }
    let address = match is_named(bytes, at) || is_bare(text, at, octets) {
        true => Address::Bare(octets),
        false => Address::Digits(octets),
    };
    Some((at..at + 12, address))
}

/// Whether the digits at `at` are a word of their own that is taken for a MAC address.
///
/// Hashes are longer, or abbreviated to less; numbers have no letter. What is left that has twelve digits and a letter is a commit of Linux,
/// a container's id or an address in memory. The latter are told apart: where programs lie (0x55..., 0x7f...) the first octet is odd, as
/// no station's is (IEEE 802, the group bit). The others are replaced too, since an address that stays is a leak.
fn is_bare(text: &str, at: usize, octets: [u8; 6]) -> bool {
    let bytes = text.as_bytes();
    let inside = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    if inside(before(bytes, at)) || inside(bytes.get(at + 12).copied()) {
        return false;
    }
    // `1.234567890e12` is a number.
    let is_fraction = before(bytes, at) == Some(b'.') && at >= 2 && bytes[at - 2].is_ascii_digit();
    let has_letter = bytes[at..at + 12].iter().any(u8::is_ascii_alphabetic);
    has_letter && !is_fraction && octets[0] & 1 == 0 || is_called_mac(text, at)
}

/// Whether the word before `at` says that what is there is a MAC address: `mac=`, `"hwaddr": "`, `MAC address `.
fn is_called_mac(text: &str, at: usize) -> bool {
    const WORDS: [&str; 4] = ["mac", "hwaddr", "lladdr", "address"];
    last_word(text, at, &[' ', '\t', '"', '\'', ':', '=', '(', '\\'])
        .is_some_and(|word| WORDS.contains(&&*word))
}

/// The word before `at`, in lower case, if nothing but these marks is between.
fn last_word(text: &str, at: usize, marks: &[char]) -> Option<String> {
    let mut from = at.saturating_sub(24);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let word = text[from..at].trim_end_matches(marks).rsplit(|c: char| !c.is_ascii_alphanumeric()).next()?;
    Some(word.to_ascii_lowercase())
}

/// Whether the digits at `at` are the end of an interface's name, which has no letter before or behind it.
fn is_named(bytes: &[u8], at: usize) -> bool {
    let Some(start) = at.checked_sub(3) else { return false };
    let kind =
        ["enx", "wlx", "wwx"].iter().any(|kind| bytes[start..at].eq_ignore_ascii_case(kind.as_bytes()));
    let letter = |byte: u8| byte.is_ascii_alphanumeric();
    kind && !before(bytes, start).is_some_and(letter) && !bytes.get(at + 12).copied().is_some_and(letter)
}
