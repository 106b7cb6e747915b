//! What stands for each address: one of the ranges that are kept for documentation, the same throughout a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, Ipv6Addr},
};

/// RFC 5737, and RFC 2544's range for benchmarks when the first three are used up: networks of 256.
fn network(number: usize) -> [u8; 3] {
    match number {
        0 => [192, 0, 2],
        1 => [198, 51, 100],
        2 => [203, 0, 113],
        // The last one takes all that is too much.
        more => {
            let more = (more - 3).min(511) as u16;
            [198, 18 + (more >> 8) as u8, (more & 0xff) as u8]
        }
    }
}

/// Whether it tells nothing of a machine, or is a pseudonym: this is left as it is.
pub(super) fn v4_is_plain(address: Ipv4Addr) -> bool {
    let octets = address.octets();
    let mask = u32::from(address);
    let contiguous = mask.leading_ones() + mask.trailing_zeros() >= 32;
    address.is_loopback()
        || octets[0] == 0
        || address.is_multicast()
        || octets[0] >= 240
        || contiguous
        || address.is_documentation()
        || octets[0] == 198 && octets[1] & 0xfe == 18
}

/// As [`v4_is_plain`]; pseudonyms are in `2001:db8::/32` (RFC 3849).
pub(super) fn v6_is_plain(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let groups_of_all = address.is_multicast() && segments[1..7].iter().all(|segment| *segment == 0);
    address.is_loopback() || address.is_unspecified() || groups_of_all || segments[..2] == [0x2001, 0xdb8]
}

/// As [`v4_is_plain`]: all zeros, broadcast, or a pseudonym, which begins with `02:00:5e`.
pub(super) fn mac_is_plain(mac: [u8; 6]) -> bool {
    mac == [0; 6] || mac == [0xff; 6] || mac[..3] == [2, 0, 0x5e]
}

/// As [`v4_is_plain`]: all zeros, all ones, or a pseudonym.
fn uuid_is_plain(uuid: &str) -> bool {
    uuid.bytes().all(|byte| matches!(byte, b'0' | b'-'))
        || uuid.bytes().all(|byte| matches!(byte, b'f' | b'-'))
        || plain_number(uuid).is_some()
}

/// The number in a UUID that is a pseudonym.
fn plain_number(uuid: &str) -> Option<u32> {
    let digits: String = uuid.chars().filter(|c| *c != '-').collect();
    u32::from_str_radix(digits.strip_prefix("000000000000400080000000")?, 16).ok()
}

/// The pseudonyms given so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Pseudonyms {
    v4: BTreeMap<Ipv4Addr, Ipv4Addr>,
    v4_networks: BTreeMap<[u8; 3], usize>,
    v6: BTreeMap<Ipv6Addr, Ipv6Addr>,
    v6_networks: BTreeMap<[u16; 4], V6Network>,
    macs: BTreeMap<[u8; 6], [u8; 6]>,
    last_mac: u32,
    uuids: BTreeMap<String, u32>,
    last_uuid: u32,
    /// Those that the text itself has, or that were given already.
    taken_v4: BTreeSet<Ipv4Addr>,
    taken_v6: BTreeSet<Ipv6Addr>,
    taken_macs: BTreeSet<[u8; 6]>,
    taken_uuids: BTreeSet<u32>,
}

/// A network of pseudonyms.
#[derive(Clone, Copy, Debug)]
struct V6Network {
    number: u32,
    /// The last host that was given: none before it is free.
    last: u32,
}

/// The first number after `last` that is free, which is the last one from now on. Numbers are not looked through again: text may have a
/// hundred thousand addresses.
fn next(last: &mut u32, is_free: impl Fn(u32) -> bool) -> Option<u32> {
    let number = (last.checked_add(1)?..=u32::MAX).find(|number| is_free(*number))?;
    *last = number;
    Some(number)
}

impl Pseudonyms {
    /// How many addresses have one. It only grows, and what stands for an address stays the same meanwhile.
    pub fn count(&self) -> usize {
        self.v4.len() + self.v6.len() + self.macs.len() + self.uuids.len()
    }

    /// What stands for it, given now or before.
    pub fn v4(&mut self, address: Ipv4Addr) -> Ipv4Addr {
        if v4_is_plain(address) {
            self.taken_v4.insert(address);
            return address;
        }
        if let Some(given) = self.v4.get(&address) {
            return *given;
        }
        let [a, b, c, host] = address.octets();
        let next = self.v4_networks.len();
        let number = *self.v4_networks.entry([a, b, c]).or_insert(next);
        let [a, b, c] = network(number);
        let of = |host: u8| Ipv4Addr::new(a, b, c, host);
        let hosts = if matches!(host, 0 | 255) { host..=host } else { 1..=254 };
        // When all are given, one stands for the rest.
        let given = hosts.map(of).find(|given| !self.taken_v4.contains(given)).unwrap_or(of(host));
        self.taken_v4.insert(given);
        self.v4.insert(address, given);
        given
    }

    /// What stands for it, given now or before.
    pub fn v6(&mut self, address: Ipv6Addr) -> Ipv6Addr {
        if v6_is_plain(address) {
            self.taken_v6.insert(address);
            return address;
        }
        if let Some(given) = self.v6.get(&address) {
            return *given;
        }
        let s = address.segments();
        let number = self.v6_networks.len() as u32;
        let new = V6Network { number, last: 0 };
        let network = self.v6_networks.entry([s[0], s[1], s[2], s[3]]).or_insert(new);
        let of = |number: u32, host: u32| {
            Ipv6Addr::from(u128::from(0x2001_0db8u32) << 96 | u128::from(number) << 64 | u128::from(host))
        };
        let (number, taken) = (network.number, &self.taken_v6);
        let host = match s[4..] == [0; 4] {
            true => None,
            false => next(&mut network.last, |host| !taken.contains(&of(number, host))),
        };
        let given = of(number, host.unwrap_or_default());
        self.taken_v6.insert(given);
        self.v6.insert(address, given);
        given
    }

    /// What stands for it, given now or before.
    pub fn mac(&mut self, mac: [u8; 6]) -> [u8; 6] {
        if mac_is_plain(mac) {
            self.taken_macs.insert(mac);
            return mac;
        }
        if let Some(given) = self.macs.get(&mac) {
            return *given;
        }
        let of = |number: u32| {
            let [_, a, b, c] = number.to_be_bytes();
            [2, 0, 0x5e, a, b, c]
        };
        let taken = &self.taken_macs;
        let number = next(&mut self.last_mac, |number| !taken.contains(&of(number)));
        let given = of(number.unwrap_or_default());
        self.taken_macs.insert(given);
        self.macs.insert(mac, given);
        given
    }

    /// What stands for it, given now or before: `00000000-0000-4000-8000-000000000001` (RFC 9562's version 4 and variant), without
    /// dashes where it has none.
    pub fn uuid(&mut self, uuid: &str) -> String {
        if uuid_is_plain(uuid) {
            self.taken_uuids.extend(plain_number(uuid));
            return uuid.to_owned();
        }
        let digits: String = uuid.chars().filter(|c| *c != '-').collect();
        let number = match self.uuids.get(&digits) {
            Some(number) => *number,
            None => {
                let taken = &self.taken_uuids;
                let number = next(&mut self.last_uuid, |number| !taken.contains(&number)).unwrap_or_default();
                self.taken_uuids.insert(number);
                self.uuids.insert(digits, number);
                number
            }
        };
        match uuid.contains('-') {
            true => format!("00000000-0000-4000-8000-{number:012x}"),
            false => format!("000000000000400080000000{number:08x}"),
        }
    }

    /// What stands for it, if it was given one.
    pub fn known_v4(&self, address: Ipv4Addr) -> Option<Ipv4Addr> {
        self.v4.get(&address).copied()
    }

    /// What stands for it, if it was given one.
    pub fn known_v6(&self, address: Ipv6Addr) -> Option<Ipv6Addr> {
        self.v6.get(&address).copied()
    }

    /// What stands for it, if it was given one.
    pub fn known_mac(&self, mac: [u8; 6]) -> Option<[u8; 6]> {
        self.macs.get(&mac).copied()
    }
}
