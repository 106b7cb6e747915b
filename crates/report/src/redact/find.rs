//! Where addresses stand in text.
//!
//! When in doubt it is an address: a version that is taken for one is a pity, an address that stays is a leak. Text may be
//! JSON inside JSON, so that a letter behind a backslash begins nothing.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    ops::Range,
};

/// An address as text has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// `0c:c4:7a:9a:61:ea`, or with the other separator.
    Mac([u8; 6], char),
    /// `10.0.0.1`; `version`: the text around it calls it a version.
    V4 {
        /// The address.
        address: Ipv4Addr,
        /// Whether it is perhaps no address.
        version: bool,
    },
    /// `fe80::1`
    V6(Ipv6Addr),
    /// Twelve digits in a row, which may be a MAC address: `enx0cc47a9a61ea`.
    Digits([u8; 6]),
    /// Bytes of a C initializer, which may be any address: `0x0c, 0xc4, ...`.
    Bytes(Vec<u8>),
}

/// Every address of `text` with its place, in order, none within another.
pub(super) fn addresses(text: &str) -> Vec<(Range<usize>, Address)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let here = [mac, v6, v4, initializer, digits].iter().find_map(|read| read(text, at));
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

/// Two digits.
fn octet(text: &str, at: usize) -> Option<u8> {
    let digits = text.get(at..at + 2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

fn mac(text: &str, at: usize) -> Here {
    let bytes = text.as_bytes();
    if before(bytes, at).is_some_and(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut octets = vec![octet(text, at)?];
    let separator = *bytes.get(at + 2).filter(|byte| matches!(byte, b':' | b'-'))?;
    let mut end = at + 2;
    while bytes.get(end) == Some(&separator) && !hex(bytes.get(end + 3)) {
        let Some(next) = octet(text, end + 1) else { break };
        octets.push(next);
        end += 3;
    }
    let goes_on = separator == b':' && bytes.get(end) == Some(&b':');
    let goes_on = goes_on && (hex(bytes.get(end + 1)) || bytes.get(end + 1) == Some(&b':'));
    if octets.len() < 6 || goes_on || hex(bytes.get(end)) {
        return None;
    }
    // Of a longer one (a DHCP client's identifier, an InfiniBand address) the end is what tells.
    let last: [u8; 6] = octets[octets.len() - 6..].try_into().ok()?;
    Some((end - 17..end, Address::Mac(last, char::from(separator))))
}

fn v6(text: &str, at: usize) -> Here {
    /// `ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255`.
    const LONGEST: usize = 45;
    let bytes = text.as_bytes();
    let starts = hex(bytes.get(at)) || bytes[at..].starts_with(b"::");
    if !starts || before(bytes, at).is_some_and(|byte| byte.is_ascii_alphanumeric()) {
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
    Some((at..at + 12, Address::Digits(octets)))
}
